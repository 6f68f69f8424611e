"""Datasets for PyTorch: objects below a prefix, by index or as a stream."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ringest import _core, _progress
from ringest._core import Item
from ringest._epochs import Beginning, Epochs
from ringest._numbers import flag, whole
from ringest._samples import OnError, Samples, TransformError, check_on_error, check_transform
from ringest._source import Manifest, ObjectSource, ObjectView
from ringest._state import Place, gather_state, unite
from ringest._torch import IterableBase, MapBase, worker_info
from ringest._workers import WorkerReady, register
from ringest.client import Client, parse_size

Transform = Callable[[Item], Any]

# Objects that stand for all of them when the size of a batch is estimated.
_SIZES_LOOKED_AT = 64

# The most that a reader is asked for by one call.
_TAKEN_AT_ONCE = 65536

# The largest window, by <ringest/dataset.h>.
_REQUESTS_MAX = 65536

# The generator of the order takes 64 bits.
_EPOCHS_MAX = 1 << 64

_REMAINDERS = {"uneven": 0, "pad": 1, "drop": 2}
_CHANGED = {"error": 0, "skip": 1, "newest": 2}


def _choose(choices: dict[str, int], value: str, what: str) -> int:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{what} is {value!r}; it is one of {', '.join(map(repr, choices))}")
    return choices[value]


def _sample(item: Item, transform: Transform | None) -> Any:
    if item.error is not None:
        raise item.error
    if transform is None:
        return item.data
    try:
        return transform(item)
    except Exception as error:
        raise TransformError(f"the transform of {item.uri} raised {error!r}") from error


def _numbers(indices: Sequence[int], count: int, what: str) -> list[int]:
    """Indices without negative ones."""
    numbers = []
    for index in indices:
        try:
            number = operator.index(index)
        except TypeError:
            raise TypeError(f"{index!r} is no index of {what}: dataset[0] to dataset[{count - 1}]") from None
        if not -count <= number < count:
            raise IndexError(f"index {number} of {count} {what}")
        numbers.append(number if number >= 0 else number + count)
    return numbers


def take_all(reader: _core.Reader, samples: Samples) -> list:
    """What is left of a reader, which is closed. Where all of it was left out, the last error is raised: there
    is nothing that could be given in its place."""
    taken: list = []
    try:
        while items := reader.take_some(_TAKEN_AT_ONCE):
            taken += samples.make(items)
            del items  # while the next are waited for, their memory may be all there is
    finally:
        reader.close()
    if not taken and samples.last_error is not None:
        raise samples.last_error
    return taken


def _take_all_data(reader: _core.Reader) -> list:
    """The same without a transform, the first error being raised."""
    taken: list = []
    try:
        while batch := reader.take_data(_TAKEN_AT_ONCE):
            taken += batch
    finally:
        reader.close()
    return taken


class MapDataset(WorkerReady, MapBase):
    """Objects below gs://BUCKET/PREFIX by index.

    The prefix is literal, as in the service: gs://bucket/data is also database/x, and gs://bucket/data/ is not. Empty
    objects whose names end in "/" (folder markers) are left out, unless folder_markers=True. repr() and the log (level
    info) tell how many objects and bytes were found. An item is what `transform(Item)` returns, or without one a Buffer. `manifest`: a manifest file, which may
    lie in a bucket, or names (or (name, size, generation)) of objects; without it the prefix is listed once.

    All ranks of a job and all workers have one list: see IterableDataset, as for `folder_markers` and `shared`.

    A DataLoader hands whole batches to __getitems__, each of which is one submission.

    `on_error`: "raise", "skip" or a handler, as with IterableDataset. A batch lacks what is left out; where
    nothing else was asked for, as by dataset[i], the error is raised. `skipped` counts.
    """

    def __init__(
        self,
        uri: str,
        transform: Transform | None = None,
        client: Client | None = None,
        manifest: Manifest | None = None,
        *,
        on_error: OnError = "raise",
        folder_markers: bool = False,
        shared: bool = True,
    ):
        self._source = ObjectSource(uri, client, manifest, folder_markers=folder_markers, is_shared=shared)
        self._transform = check_transform(transform)
        self._on_error = check_on_error(on_error)
        self.skipped = 0
        register(self)

    @property
    def objects(self) -> Sequence:
        return ObjectView(self._source.found)

    @property
    def digest(self) -> str:
        """SHA-256 of the list of objects: the same on all ranks."""
        return self._source.found.digest

    def __len__(self) -> int:
        return len(self._source.found)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list:
        found = self._source.checked
        numbers = _numbers(indices, len(found), "objects")
        # What is there now is read, though a list says what was there when it was made.
        reader = _core.Reader(self._source.client, found, indices=numbers, changed=_CHANGED["newest"])
        if self._transform is None and self._on_error == "raise":
            return _take_all_data(reader)
        # What a transform has seen may be let go of before the rest of a large batch has come.
        samples = Samples(lambda item: _sample(item, self._transform), self._on_error)
        try:
            return take_all(reader, samples)
        finally:
            self.skipped += samples.skipped


class IterableDataset(WorkerReady, IterableBase):
    """Objects below gs://BUCKET/PREFIX as a stream that is read ahead.

    The prefix is literal, and folder markers are left out, as with MapDataset. Without `batch_size` it yields samples, and a DataLoader may batch them; with it, lists of that
    many. All ranks and workers share one order: of the names, or with `shuffle` one that `seed` and
    the epoch determine. `remainder` says what becomes of samples that do not divide among ranks:
    "uneven", "pad" (some come twice) or "drop". `changed` says what becomes of an object whose
    generation is no longer the one that was listed: "error", "skip" or "newest". `progress`: a bar of
    tqdm, where that is installed, except in workers; a text is its title.

    All ranks of a job read shares of one list, which the rank that asks first makes and gives to the others by the store
    of the process group. `rank` and `world_size` are looked up when an iteration begins, or len() is asked: what was
    given, else the process group, else RANK and WORLD_SIZE, else MPI's variables and Slurm's. `manifest`: a manifest
    file, which may lie in a bucket, or names, or (name, size, generation), of the same bucket; what it names is taken as
    it is, folder markers too, since saved states depend on it, and compared
    with what other ranks were given before the first sample. Without a process group several ranks need one that all can
    read. `folder_markers`: also empty objects whose names end in "/", when the prefix is listed. `shared`: False for a
    list of this process's own, whatever ranks there are. ListError: there is no list in common. `digest` tells lists
    apart. A trainer that deals an IterableDataset out itself, as Accelerate does, wants rank=0, world_size=1.

    Workers of a DataLoader get the list of the process that starts them, and set_epoch() and load_state_dict() there
    reach them, also those that persist. Call these between iterations. While workers read, state_dict() is an error:
    PyTorch's DataLoader tells nobody what of it was handed out; torchdata's StatefulDataLoader has states of its own.

    `on_error` says what becomes of a sample that cannot be read or transformed: "raise" raises what names its
    object, "skip" leaves it out with a line in the log, and a function is called with the Item, whose data is None
    where it could not be read, and the error; it returns a sample in its place, or ringest.SKIP, or raises. Batches
    are filled up with what follows. "skip" still raises what is not about one object, such as refused credentials
    or a service that does not answer, and when 1,000 samples in a row would be left out. `skipped` counts what the
    last iteration left out, by `changed` too, in this process.

    state_dict() in the middle of an epoch and load_state_dict() go on with the next sample: a rank from
    its own state, or from the states of all ranks any number of them.

    Iterations are independent of each other, whichever threads they run in, and each is a whole epoch;
    state_dict() tells of the one that began last, and any thread may ask.

    A sample is consumed when a `for` is given it, or the batch that it is in; what an exception kept from arriving
    comes again when a state is gone on with. An iteration that has raised is over. That holds for a transform, a
    handler of signals, and objects that are gone. Code in between, such as a DataLoader's, has its own moments in
    which a signal's handler that raises loses what was given to it: let handlers set a flag. A DataLoader without
    workers that makes the batches itself drops the samples that it has when the next one raises: have the dataset
    make them (`batch_size`), or `on_error` settle what is wrong.

    In a DataLoader a batch of Buffers is a list of them, with workers and without. With `batch_size` here give the
    DataLoader batch_size=None; with collate_fn=list, too, PyTorch does not look at each Buffer for what could become
    a tensor.
    """

    # Without a transform a sample is its Buffer, and needs no Item.
    _is_data = True

    def __init__(
        self,
        uri: str,
        *,
        shuffle: bool = False,
        seed: int = 0,
        batch_size: int | None = None,
        transform: Transform | None = None,
        prefetch: int | str = "64MiB",
        requests: int = 1024,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: str = "uneven",
        changed: str = "error",
        on_error: OnError = "raise",
        ordered: bool = True,
        client: Client | None = None,
        manifest: Manifest | None = None,
        folder_markers: bool = False,
        shared: bool = True,
        progress: bool | str = False,
    ):
        if batch_size is not None:
            batch_size = whole(batch_size, "batch_size", 1, _TAKEN_AT_ONCE)
        layout = {"rank": rank, "world_size": world_size, "is_dealt": True, "is_shared": shared}
        self._source = self._make_source(uri, client, manifest, folder_markers=folder_markers, **layout)
        self._shuffle = flag(shuffle, "shuffle")
        self._seed = whole(seed, "seed", 0, 2**64 - 1)
        self._batch_size = batch_size
        self._transform: Callable[[Any], Any] | None = check_transform(transform)
        self._prefetch = parse_size(prefetch, "prefetch")
        self._requests = whole(requests, "requests", 0, _REQUESTS_MAX)
        self._remainder = _choose(_REMAINDERS, remainder, "remainder")
        self._changed = _choose(_CHANGED, changed, "changed")
        self._on_error = check_on_error(on_error)
        self._ordered = flag(ordered, "ordered")
        self._progress = progress
        self._epochs = Epochs()
        self._place: _core.Reader | Place | None = None  # what state_dict() tells
        self._reader: _core.Reader | None = None  # of the last iteration
        self._samples: Samples | None = None  # of the last iteration
        register(self)

    def _make_source(self, uri: Any, client: Client | None, manifest: Manifest | None, **options: Any) -> Any:
        return ObjectSource(uri, client, manifest, **options)

    def _convert(self, item: Item[Any]) -> Any:
        return _sample(item, self._transform)

    @property
    def objects(self) -> Sequence:
        return ObjectView(self._source.found)

    @property
    def digest(self) -> str:
        """SHA-256 of the list of what is read: the same on all ranks, and where a state is gone on with."""
        return self._source.found.digest

    def __len__(self) -> int:
        """Samples (with batch_size, batches) of this rank in an epoch."""
        count, (rank, world) = len(self._source.found), self._source.layout
        whole, rest = divmod(count, world)
        if self._remainder == _REMAINDERS["pad"]:
            whole += rest > 0
        elif self._remainder == _REMAINDERS["uneven"]:
            whole += rank < rest
        return whole if self._batch_size is None else -(-whole // self._batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration is: another order. Forgets a state that was loaded for
        another one."""
        epoch = whole(epoch, "epoch", 0, _EPOCHS_MAX - 1)
        if self._epochs.set_epoch(epoch):
            self._place = None

    @property
    def skipped(self) -> int:
        """Samples that the last iteration has left out so far."""
        changed = self._reader.skipped if self._reader is not None else 0
        return changed + (self._samples.skipped if self._samples is not None else 0)

    def _check_memory(self) -> None:
        """A batch that the client's memory cannot hold would be waited for for ever."""
        found, batch_size = self._source.found, self._batch_size or 1
        looked_at = range(0, len(found), -(-len(found) // _SIZES_LOOKED_AT))
        mean = sum(found[i][1] for i in looked_at) // max(len(looked_at), 1)
        # Without a transform the caller still has the batch before when the next one is made.
        batches = 1 if self._transform is not None else 2
        memory = self._source.client.memory
        if batch_size > 1 and batches * batch_size * mean > memory:
            raise ValueError(
                f"{batches} batches of {batch_size} objects of {mean} bytes do not fit the client's memory "
                f"of {memory} bytes: use smaller batches, or Client(memory=...)"
            )

    def _open(self, beginning: Beginning) -> _core.Reader:
        worker = worker_info()
        layout = self._source.layout
        objects = self._source.checked
        state = beginning.state or Place(beginning.epoch)
        return _core.Reader(
            self._source.client,
            objects,
            shuffle=self._shuffle,
            seed=self._seed,
            epoch=beginning.epoch,
            rank=layout.rank,
            world_size=layout.world_size,
            worker=worker.id if worker is not None else 0,
            worker_count=worker.num_workers if worker is not None else 1,
            batch_size=self._batch_size or 1,
            remainder=self._remainder,
            changed=self._changed,
            unordered=not self._ordered,
            window_requests=self._requests,
            window_bytes=self._prefetch,
            state=state.state,
            base=state.base,
            digest=bytes.fromhex(objects.digest),
            **self._reader_options(),
        )

    def _reader_options(self) -> dict[str, Any]:
        return {}

    def __iter__(self) -> Iterator:
        # Now, and not with the first sample: this iteration is the one that a state is for, and workers of a
        # DataLoader begin together.
        self._source.checked
        self._check_memory()
        beginning = self._epochs.begin()
        try:
            reader = self._open(beginning)
        except BaseException:
            self._epochs.undo(beginning)
            raise
        self._reader = self._place = reader
        self._samples = samples = Samples(self._convert, self._on_error)
        # What is yielded is consumed when the Iteration hands it out, which no signal comes between.
        return _core.Iteration(self._run(reader, samples, beginning.epoch), reader)

    def _run(self, reader: _core.Reader, samples: Samples, epoch: int) -> Iterator:
        try:
            if self._progress and worker_info() is None:
                yield from self._shown(reader, samples, epoch)
            else:
                yield from self._yielded(reader, samples)
            reader.consume()  # what was left out behind the last sample
        finally:
            reader.close()

    def _yielded(self, reader: _core.Reader, samples: Samples) -> Iterator:
        if self._transform is None and self._is_data and self._on_error == "raise":
            while batch := reader.take_data(self._batch_size or 1):
                yield batch[0] if self._batch_size is None else batch
            return
        if self._batch_size is None and self._on_error == "raise":
            while items := reader.take(1):
                yield self._convert(items[0])
            return
        size = self._batch_size or 1
        while items := reader.take(size):
            batch = samples.make(items)
            while len(batch) < size and (items := reader.take(size - len(batch))):
                batch += samples.make(items)
            if batch:
                yield batch[0] if self._batch_size is None else batch

    def _shown(self, reader: _core.Reader, samples: Samples, epoch: int) -> Iterator:
        title = f"{self._source.what} epoch {epoch}"
        with _progress.advancing(self._progress, title, reader.total) as advance:
            advance(seen := reader.taken)
            for yielded in self._yielded(reader, samples):
                yield yielded
                advance(reader.taken - seen)
                seen = reader.taken

    def state_dict(self, *, all_ranks: bool = False) -> dict:
        """Where this rank is: after the last sample that was yielded, also when the iteration was left
        or is over. What goes on from the end of an epoch has nothing more to give in that epoch.

        With `all_ranks`, where all ranks are, each wherever it has come: every rank of the process group calls it
        and gets the same state. Any number of ranks and workers goes on from that.

        A state has 112 bytes, up to 8 KiB more without order, and in an epoch that was gone on with a compressed
        base, of a bit at most for each sample between the first that was not consumed then and the last that was."""
        self._epochs.check_told()
        place = self._place
        if isinstance(place, _core.Reader):
            place = Place(self._epochs.epoch, place.state(), place.base)
        state = (place or Place(self._epochs.epoch)).to_dict()
        return self._gather(state) if all_ranks else state

    def _gather(self, state: dict) -> dict:
        try:
            return gather_state(state)
        except ValueError as error:
            error.add_note("state_dict(all_ranks=True) asks the ranks of torch.distributed's process group")
            raise

    def load_state_dict(self, state: dict | Sequence[dict]) -> None:
        """Makes the next iteration go on there. `state` is

        - what this rank saved: it goes on with the same world size, and any number of workers;
        - what state_dict(all_ranks=True) gave, or the list of the states of all ranks, in any order, wherever each
          had stopped: every rank gives the same, and any number of ranks and workers goes on. What nobody had
          consumed comes exactly once, and where all had stopped alike in the order that it would have come in.
          {"epoch": number, "state": None} stands for a rank that never began.

        The state of a rank may be that of torchdata's StatefulDataLoader around the dataset. `remainder` applies to
        what is left. ValueError: states are missing, doubled, damaged or not of one run; those of other objects,
        another seed or order are refused when the iteration begins."""
        place = unite(state)
        self._epochs.load(place.epoch, None if place.is_beginning else place)
        self._place = place

    def prepare_for_worker(self, group: str) -> None:
        self._source.prepare()
        self._epochs.prepare_for_worker(group)

    def worker_was_started(self) -> None:
        self._epochs.worker_was_started()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        # It begins where the next iteration would.
        place = None if isinstance(self._place, _core.Reader) else self._place
        return {**state, "_reader": None, "_samples": None, "_place": place}

    def __copy__(self) -> IterableDataset:
        made = type(self).__new__(type(self))
        made.__setstate__({**self.__getstate__(), "_epochs": copy.deepcopy(self._epochs)})
        return made
