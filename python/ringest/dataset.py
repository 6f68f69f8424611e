"""Datasets for PyTorch: objects below a prefix, by index or as a stream."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ringest import _core, _progress
from ringest._core import Item
from ringest._epochs import Beginning, Epochs
from ringest._explain import Explanation, explain
from ringest._numbers import flag, whole
from ringest._samples import OnError, Samples, TransformError, check_on_error, check_transform
from ringest._source import Manifest, ObjectSource, ObjectView
from ringest._spans import span
from ringest._state import Place, Told, gather_state, unite
from ringest._torch import IterableBase, MapBase, profiler, worker_info
from ringest._workers import WorkerReady, register
from ringest.aio import Wake
from ringest.client import Client, parse_size

if TYPE_CHECKING:
    from ringest.device import DeviceBatches

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
        raise ValueError(f"{what} must be one of {', '.join(map(repr, choices))}, got {value!r}")
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
            raise TypeError(f"an index of {what} must be a whole number, 0 to {count - 1}, got {index!r}") from None
        if not -count <= number < count:
            raise IndexError(f"index {number} is out of range: there are {count} {what}")
        numbers.append(number if number >= 0 else number + count)
    return numbers


def take_all(reader: _core.Reader, samples: Samples) -> list:
    """All remaining samples of a reader, which is then closed. If all were left out, the last error is raised, because
    there is nothing to return instead."""
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


def _waking(values: Iterator, wake: Wake) -> Iterator:
    """The same values; when they end, or are left, nothing is waited for any more."""
    try:
        yield from values
    finally:
        wake.close()


class MapDataset(WorkerReady, MapBase):
    """Objects below gs://BUCKET/PREFIX by index.

    A sample is a Buffer, or what `transform(Item)` returns. A DataLoader asks for whole batches (__getitems__); the
    requests of a batch are sent together.

    The prefix is literal, as in the service: gs://bucket/data also means database/x, and gs://bucket/data/ does not.
    Empty objects whose names end in "/" (folder markers) are left out, unless folder_markers=True. repr() and the log
    (level info) tell how many objects and bytes were found.

    manifest, folder_markers, shared: as of IterableDataset. All ranks of a job and all workers have one list.
    on_error: "raise", "skip" or a function, as of IterableDataset. Skipped samples are missing from their batch. If
        all of a batch would be skipped, as with dataset[i], the error is raised. `skipped` counts them.
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

    A sample is a Buffer, or what `transform(Item)` returns. Without `batch_size` the dataset yields samples; with
    it, lists of that many.

    Order:

    shuffle, seed: without `shuffle` objects come in the order of their names, with it in an order that `seed` and
        the epoch determine. All ranks and workers share one order.
    remainder: what happens to samples that do not divide among ranks: "uneven", "pad" (some come twice) or "drop".
    ordered: False yields samples in the order of arrival.

    Reading:

    prefetch, requests: bytes ("64MiB") and requests in flight ahead of the loop.
    epochs: how many there will be, if that is known. If the client has a cache, what that lacks of the next epoch's
        beginning is read for it while an epoch ends, up to half of the window: samples that were other ranks' so far.
        Not in the last one, number epochs - 1.
    changed: what happens to an object that was replaced since it was listed: "error", "skip" or "newest". For each one
        that was, "skip" and "newest" cost one more request.
    on_error: what happens to a sample that cannot be read or transformed. "raise" raises an error that names its
        object. "skip" leaves it out and logs a line. A function gets the Item (data is None if it could not be read)
        and the error; it returns a sample instead, or ringest.SKIP, or raises. Batches are filled up with the next
        samples. "skip" still raises errors that are not about one object, such as refused credentials or a server
        that does not answer, and gives up after 1,000 samples in a row. `skipped` counts what the last iteration left
        out in this process, including by `changed`.
    progress: a bar of tqdm, if that is installed, except in workers; a text is its title.

    Which objects:

    The prefix is literal, as of MapDataset.

    manifest: a manifest file, local or in a bucket, or names, or (name, size, generation), of the same bucket. It is
        used as it is, folder markers too, because saved states depend on it. Ranks compare theirs before the first
        sample. Without it, the prefix is listed.
    folder_markers: True includes empty objects whose names end in "/" when the prefix is listed.
    rank, world_size: which share of the list to read. Without them: the process group, else RANK and WORLD_SIZE, else
        the variables of MPI and Slurm. They are looked up when an iteration begins or len() is called.
    shared: all ranks of a job read shares of one list. The rank that needs it first makes it, and the others get
        it through the store of the process group. False: this process makes its own. Without a process group,
        several ranks need a manifest that all can read. ListError: the ranks have no list in common. `digest` identifies
        a list.

    A trainer that divides an IterableDataset among ranks itself, such as Accelerate's, needs rank=0, world_size=1.

    Epochs: every iteration is a whole epoch and independent of other iterations, also in other threads. set_epoch()
    chooses the order of the next one.

    Resuming: state_dict() in the middle of an epoch says what was consumed, and load_state_dict() resumes with the next
    sample. A rank resumes from its own state, or any number of ranks from the states of all ranks. state_dict()
    describes the iteration that started last; any thread may call it. A sample is consumed when the loop gets it, or the
    batch that it is in. If an exception is raised before that, the sample comes again after resuming, and the
    iteration is over. That holds for transforms, signal handlers, and missing objects. Two things outside of this class
    can lose samples: a signal handler that raises inside a DataLoader's own code (set a flag instead), and a DataLoader
    without workers that makes batches itself while a sample raises (use `batch_size` here, or `on_error`).

    asyncio: `async for` gives the same, and its iterator has aclose(). No thread waits; loops of the library read ahead.
    An iteration belongs to the event loop in which it first waits. A task that is cancelled while it waits loses
    nothing: the iterator may go on. What __aiter__ needs of the list blocks, if the prefix was not listed before.

    Workers of a DataLoader get the list of the process that starts them. set_epoch() and load_state_dict() in that
    process reach them, also if they persist; call these between iterations. While workers read, state_dict() is an
    error, because PyTorch's DataLoader does not say which batches it has handed out; torchdata's StatefulDataLoader has
    states of its own.

    In a DataLoader a batch of Buffers is a list of them, with workers and without. If `batch_size` is given here, give
    the DataLoader batch_size=None; with collate_fn=list, PyTorch does not search the Buffers for tensors.
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
        epochs: int | None = None,
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
        self._epoch_count = whole(epochs, "epochs", 1, _EPOCHS_MAX) if epochs is not None else _EPOCHS_MAX
        self._remainder = _choose(_REMAINDERS, remainder, "remainder")
        self._changed = _choose(_CHANGED, changed, "changed")
        self._on_error = check_on_error(on_error)
        self._ordered = flag(ordered, "ordered")
        self._progress = progress
        self._epochs = Epochs()
        self._place: _core.Reader | Place | Told | None = None  # what state_dict() tells
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
        """SHA-256 of the list: the same on all ranks, and the same when a run resumes."""
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

    def explain(self, steps: int = 100) -> Explanation:
        """Where the time of the last steps went, at most 256: how much of it was the loop's own, how much it waited for
        data, and what for. A step goes from one value of the iteration to the next; the iteration is the one that
        started last. str() of the result is for people and ends with advice, to_dict() is for programs.

        The causes are those of all gets of the client meanwhile: a sleep of the loop is divided as gets divide their
        time among stages. Any thread. In a loop over a DataLoader with workers it is the workers that wait: call it
        there, of get_worker_info().dataset. A step that has waited for more than 0.1 s belongs to them before it ends, so
        that a thread that watches learns why nothing comes; it is not counted in `steps`. `ringest explain` says the same of
        loops that run, from outside. RuntimeError: this process has made no step yet."""
        count = whole(steps, "steps", 1, _EPOCHS_MAX - 1)
        found = explain(self._reader, count, self._ahead()) if self._reader is not None else None
        if found is None or (found.steps == 0 and found.wait == 0):
            raise RuntimeError(
                "there is no step to explain: this process has taken nothing from the dataset yet; in a loop over a "
                "DataLoader with workers, they do"
            )
        return found

    def _ahead(self) -> str:
        """The option that limits what is read ahead."""
        is_bytes = self._mean_size() * self._requests > self._prefetch
        return f"prefetch= (now {self._prefetch} bytes)" if is_bytes else f"requests= (now {self._requests})"

    def _mean_size(self) -> int:
        """Of objects, by some of them."""
        found = self._source.found
        looked_at = range(0, len(found), -(-len(found) // _SIZES_LOOKED_AT))
        return sum(found[i][1] for i in looked_at) // max(len(looked_at), 1)

    def _check_memory(self) -> None:
        """Refuses batches that the client's memory cannot hold: they would never be complete."""
        mean, batch_size = self._mean_size(), self._batch_size or 1
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
            remainder=self._remainder,
            changed=self._changed,
            unordered=not self._ordered,
            window_requests=self._requests,
            window_bytes=self._prefetch,
            state=state.state,
            base=state.base,
            digest=bytes.fromhex(objects.digest),
            prefetch_next=beginning.epoch + 1 < self._epoch_count,
            **self._reader_options(),
        )

    def _reader_options(self) -> dict[str, Any]:
        return {"batch_size": self._batch_size or 1}

    def _begin(self) -> tuple[_core.Reader, Samples, int]:
        """The reader of an iteration, its samples, and which epoch it is."""
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
        reader.introduce(type(self).__name__, self._source.what, self._ahead())
        self._reader = reader
        samples, self._place = self._begin_samples(reader, beginning)
        self._samples = samples
        return reader, samples, beginning.epoch

    def _begin_samples(self, reader: _core.Reader, beginning: Beginning) -> tuple[Samples, _core.Reader | Told]:
        """What makes the samples of an iteration, and what tells the place behind the last one."""
        return Samples(self._convert, self._on_error), reader

    # What is yielded is consumed when the Iteration, or AsyncIteration, hands it out, which no signal comes between.
    def __iter__(self) -> Iterator:
        reader, samples, epoch = self._begin()
        values = self._run(self._yielded(reader, samples), reader, epoch)
        return _core.Iteration(values, reader, profiler(), self._profiled)

    @property
    def _profiled(self) -> str:
        """What torch's profiler calls a step, if it runs: so tools know it for the time of a DataLoader."""
        return f"enumerate(DataLoader)#ringest.{type(self).__name__}.__next__"

    def _begin_ahead(self) -> tuple[_core.Iteration, Callable[[], Place]]:
        """An iteration for somebody who hands out later what it gives, and what tells the state behind what it gave."""
        reader, samples, epoch = self._begin()
        told = self._place
        values = _core.Iteration(self._run(self._yielded(reader, samples), reader, epoch), reader)
        if isinstance(told, Told):
            return values, lambda: told.place
        return values, lambda: Place(epoch, reader.state(), reader.base)

    def _follow(self, told: Told) -> None:
        """From now on, state_dict() tells what somebody else says was handed out."""
        self._place = told

    def to_device(self, device: Any = "cuda", *, depth: int = 2) -> DeviceBatches[Any]:
        """The same batches on a device, copied there while the step before them runs; see ringest.to_device. state_dict()
        says what that has handed out."""
        from ringest.device import DeviceBatches

        return DeviceBatches(self, device, depth=depth)

    def __aiter__(self) -> _core.AsyncIteration:
        reader, samples, epoch = self._begin()
        wake = Wake(reader)
        values = self._run(self._polled(reader, samples), reader, epoch)
        return _core.AsyncIteration(_waking(values, wake), reader, wake.wait)

    def _run(self, values: Iterator, reader: _core.Reader, epoch: int) -> Iterator:
        try:
            with span(
                "ringest.epoch", is_current=False, **{"ringest.epoch": epoch, "ringest.source": self._source.what}
            ):
                if self._progress and worker_info() is None:
                    yield from self._shown(values, reader, epoch)
                else:
                    yield from values
                reader.consume()  # what was left out behind the last sample
        finally:
            reader.close()

    def _is_taken_as_data(self) -> bool:
        """What is taken is what is yielded."""
        return self._transform is None and self._is_data and self._on_error == "raise"

    def _yielded(self, reader: _core.Reader, samples: Samples) -> Iterator:
        if self._is_taken_as_data():
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

    def _polled(self, reader: _core.Reader, samples: Samples) -> Iterator:
        """The same, while loops read ahead. The reader among them says: to be asked again when there is more."""
        reader.start()
        size = self._batch_size or 1
        is_data = self._is_taken_as_data()
        poll: Callable[[int], list[Any] | None] = reader.poll_data if is_data else reader.poll
        batch: list = []
        while (taken := poll(size - len(batch))) is None or taken:
            if taken is None:
                yield reader
                continue
            batch += taken if is_data else samples.make(taken)
            del taken  # while the next are waited for, their memory may be all there is
            if len(batch) == size:
                yielded, batch = batch, []
                yield yielded[0] if self._batch_size is None else yielded
                del yielded
        if batch:
            yield batch[0] if self._batch_size is None else batch

    def _shown(self, values: Iterator, reader: _core.Reader, epoch: int) -> Iterator:
        title = f"{self._source.what} epoch {epoch}"
        with _progress.advancing(self._progress, title, reader.total) as advance:
            advance(seen := reader.taken)
            for yielded in values:
                yield yielded
                if yielded is not reader:
                    advance(reader.taken - seen)
                    seen = reader.taken

    def state_dict(self, *, all_ranks: bool = False) -> dict:
        """What this rank has consumed, up to the last sample that was yielded; also after the iteration was left
        or is over. A state from the end of an epoch has no samples left in that epoch.

        all_ranks: what all ranks have consumed, wherever each of them is. Every rank of the process group must call
        it, and all get the same state. Any number of ranks and workers can resume from it.

        A state has 112 bytes, and up to 8 KiB more with ordered=False. In an epoch that was resumed it also has a
        compressed base: at most a bit for each sample between the first that was not consumed then and the last
        that was."""
        self._epochs.check_told()
        place = self._place
        if isinstance(place, _core.Reader):
            place = Place(self._epochs.epoch, place.state(), place.base)
        elif isinstance(place, Told):
            place = place.place
        state = (place or Place(self._epochs.epoch)).to_dict()
        return self._gather(state) if all_ranks else state

    def _gather(self, state: dict) -> dict:
        try:
            return gather_state(state)
        except ValueError as error:
            error.add_note("state_dict(all_ranks=True) asks the ranks of torch.distributed's process group")
            raise

    def load_state_dict(self, state: dict | Sequence[dict]) -> None:
        """The next iteration resumes from `state`, which is

        - what this rank saved: it resumes with the same world size, and any number of workers;
        - what state_dict(all_ranks=True) returned, or a list of the states of all ranks, in any order, wherever each
          had stopped. All ranks must give the same; their number and that of workers may change. Every sample that was
          not consumed comes exactly once, and in the order of the epoch if all ranks had stopped at the same place.
          {"epoch": number, "state": None} stands for a rank that had not started.

        The state of a rank may be that of torchdata's StatefulDataLoader around the dataset. `remainder` applies to
        the samples that are left. ValueError: states are missing, doubled, damaged or not of one run. States of other
        objects, or of another seed or order, are refused when the iteration begins."""
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
        place = self._place if isinstance(self._place, Place) else None
        return {**state, "_reader": None, "_samples": None, "_place": place}

    def __copy__(self) -> IterableDataset:
        made = type(self).__new__(type(self))
        made.__setstate__({**self.__getstate__(), "_epochs": copy.deepcopy(self._epochs)})
        return made
