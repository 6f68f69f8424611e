"""Datasets for PyTorch: objects below a prefix, by index or as a stream."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from types import NoneType
from typing import Any

from ringest import _core, _progress
from ringest._core import Item
from ringest._source import Manifest, ObjectView, Source
from ringest._torch import IterableBase, MapBase, worker_info
from ringest.client import Client, parse_size

Transform = Callable[[Item], Any]

# Objects that stand for all of them when the size of a batch is estimated.
_SIZES_LOOKED_AT = 64

# The most that a reader is asked for by one call.
_TAKEN_AT_ONCE = 65536

_REMAINDERS = {"uneven": 0, "pad": 1, "drop": 2}
_CHANGED = {"error": 0, "skip": 1, "newest": 2}


def _choose(choices: dict[str, int], value: str, what: str) -> int:
    if value not in choices:
        raise ValueError(f"{what} is {value!r}; it is one of {', '.join(map(repr, choices))}")
    return choices[value]


class TransformError(RuntimeError):
    """A transform raised; the message names the object, and __cause__ is what it raised."""


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
    for index in indices:
        if not -count <= index < count:
            raise IndexError(f"index {index} of {count} {what}")
    return [index if index >= 0 else index + count for index in indices]


def _take_all(reader: _core.Reader, transform: Transform | None) -> list:
    """What is left of a reader, which is closed."""
    taken: list = []
    try:
        if transform is None:
            while batch := reader.take_data(_TAKEN_AT_ONCE):
                taken += batch
        else:
            while items := reader.take_some(_TAKEN_AT_ONCE):
                taken += [_sample(item, transform) for item in items]
                del items  # while the next are waited for, their memory may be all there is
    finally:
        reader.close()
    return taken


class MapDataset(MapBase):
    """Objects below gs://BUCKET/PREFIX by index.

    An item is what `transform(Item)` returns, or without one a Buffer. `manifest`: a manifest file,
    or names (or (name, size, generation)) of objects; without it the prefix is listed once.

    A DataLoader hands whole batches to __getitems__, each of which is one submission.
    """

    def __init__(
        self,
        uri: str,
        transform: Transform | None = None,
        client: Client | None = None,
        manifest: Manifest | None = None,
    ):
        self._source = Source(uri, client, manifest)
        self._transform = transform

    @property
    def objects(self) -> Sequence:
        return ObjectView(self._source.found)

    def __len__(self) -> int:
        return len(self._source.found)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list:
        found = self._source.found
        numbers = _numbers(indices, len(found), "objects")
        # What is there now is read, though a list says what was there when it was made.
        reader = _core.Reader(self._source.client, found, indices=numbers, changed=_CHANGED["newest"])
        # What a transform has seen may be let go of before the rest of a large batch has come.
        return _take_all(reader, self._transform)


def _rank_and_world_size(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if (rank is None) != (world_size is None):
        raise ValueError("rank and world_size are given together or not at all")
    if rank is not None and world_size is not None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank is {rank} of a world size of {world_size}")
        return rank, world_size
    try:
        import torch.distributed as distributed

        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    except ImportError:
        pass
    return 0, 1


class IterableDataset(IterableBase):
    """Objects below gs://BUCKET/PREFIX as a stream that is read ahead.

    Without `batch_size` it yields samples, and a DataLoader may batch them; with it, lists of that
    many. All ranks and workers share one order: of the names, or with `shuffle` one that `seed` and
    the epoch determine. `remainder` says what becomes of samples that do not divide among ranks:
    "uneven", "pad" (some come twice) or "drop". `changed` says what becomes of an object whose
    generation is no longer the one that was listed: "error", "skip" or "newest". `progress`: a bar of
    tqdm, where that is installed, except in workers; a text is its title.

    state_dict() in the middle of an epoch and load_state_dict() go on with the next sample, in the
    same process layout or, with no workers, on another number of ranks.

    In a DataLoader give `batch_size=None, collate_fn=lambda batch: batch` with batches of Buffers:
    otherwise PyTorch looks at each of them for what could become a tensor.
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
        ordered: bool = True,
        client: Client | None = None,
        manifest: Manifest | None = None,
        progress: bool | str = False,
    ):
        if batch_size is not None and operator.index(batch_size) < 1:
            raise ValueError(f"batch_size is {batch_size}; it is at least 1, or None")
        self._source = self._make_source(uri, client, manifest)
        self._shuffle = shuffle
        self._seed = seed
        self._batch_size = batch_size
        self._transform: Callable[[Any], Any] | None = transform
        self._prefetch = parse_size(prefetch, "prefetch")
        self._requests = requests
        self._rank, self._world_size = _rank_and_world_size(rank, world_size)
        self._remainder = _choose(_REMAINDERS, remainder, "remainder")
        self._changed = _choose(_CHANGED, changed, "changed")
        self._ordered = ordered
        self._progress = progress
        self._epoch = 0
        self._state: bytes | None = None  # to be gone on with by the next iteration
        self._left: bytes | None = None  # where the last iteration was left
        self._reader: _core.Reader | None = None

    def _make_source(self, uri: Any, client: Client | None, manifest: Manifest | None) -> Any:
        return Source(uri, client, manifest)

    def _convert(self, item: Item[Any]) -> Any:
        return _sample(item, self._transform)

    @property
    def objects(self) -> Sequence:
        return ObjectView(self._source.found)

    def __len__(self) -> int:
        """Samples (with batch_size, batches) of this rank in an epoch."""
        count, world = len(self._source.found), self._world_size
        whole, rest = divmod(count, world)
        if self._remainder == _REMAINDERS["pad"]:
            whole += rest > 0
        elif self._remainder == _REMAINDERS["uneven"]:
            whole += self._rank < rest
        return whole if self._batch_size is None else -(-whole // self._batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration is: another order. Forgets a state that was loaded for
        another one."""
        if epoch != self._epoch:
            self._state = self._left = None
        self._epoch = epoch

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

    def _open(self) -> _core.Reader:
        self._check_memory()
        worker = worker_info()
        state, self._state = self._state, None
        options = self._reader_options()
        if state is not None:
            options["state"] = state
        return _core.Reader(
            self._source.client,
            self._source.found,
            shuffle=self._shuffle,
            seed=self._seed,
            epoch=self._epoch,
            rank=self._rank,
            world_size=self._world_size,
            worker=worker.id if worker is not None else 0,
            worker_count=worker.num_workers if worker is not None else 1,
            batch_size=self._batch_size or 1,
            remainder=self._remainder,
            changed=self._changed,
            unordered=not self._ordered,
            window_requests=self._requests,
            window_bytes=self._prefetch,
            **options,
        )

    def _reader_options(self) -> dict[str, Any]:
        return {}

    def __iter__(self) -> Iterator:
        if self._reader is not None:
            self._reader.close()
        self._reader = reader = self._open()
        self._left = None
        try:
            if self._progress and worker_info() is None:
                yield from self._shown(reader)
            else:
                yield from self._yielded(reader)
        finally:
            if self._reader is reader:
                self._reader, self._left = None, reader.state()
            reader.close()

    def _yielded(self, reader: _core.Reader) -> Iterator:
        return self._samples(reader) if self._batch_size is None else self._batches(reader, self._batch_size)

    def _samples(self, reader: _core.Reader) -> Iterator:
        while items := reader.take(1):
            yield self._convert(items[0])

    def _batches(self, reader: _core.Reader, size: int) -> Iterator:
        if self._transform is None and self._is_data:
            while batch := reader.take_data(size):
                yield batch
            return
        while items := reader.take(size):
            yield [self._convert(item) for item in items]

    def _shown(self, reader: _core.Reader) -> Iterator:
        title = f"{self._source.uri} epoch {self._epoch}"
        with _progress.advancing(self._progress, title, reader.total) as advance:
            advance(seen := reader.taken)
            for yielded in self._yielded(reader):
                yield yielded
                advance(reader.taken - seen)
                seen = reader.taken

    def state_dict(self) -> dict:
        """Where this rank is: after the last sample that was yielded, also when the iteration was left
        or is over. What goes on from the end of an epoch has nothing more to give in that epoch."""
        if self._reader is not None:
            state: bytes | None = self._reader.state()
        else:
            state = self._state if self._state is not None else self._left
        return {"epoch": self._epoch, "state": state}

    def load_state_dict(self, state: dict) -> None:
        """Makes the next iteration go on there. A state of other objects, another seed or order is
        refused when that begins."""
        if not isinstance(state, dict) or not isinstance(state.get("state", 0), (bytes, NoneType)):
            raise ValueError(f"{state!r} is not a state that state_dict() gave")
        self._epoch = state["epoch"]
        self._state = state["state"]

    def __getstate__(self) -> dict:
        # A worker begins where the next iteration would.
        return {**self.__dict__, "_reader": None, "_left": None}
