"""Batches on a device, copied there while the step before them runs.

dataset = ringest.IterableDataset("gs://train/", batch_size=64, transform=decode, client=ringest.Client(pinned="512MiB"))
for batch in dataset.to_device("cuda"):
    loss = step(batch)

for batch in ringest.to_device(loader, "cuda", depth=3):      # any iterable of batches
    loss = step(batch)
"""

from __future__ import annotations

import atexit
import copy
import enum
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from ringest import _lane
from ringest._core import Buffer, Iteration
from ringest._lane import NOTHING, Lane, Mark
from ringest._needs import needs
from ringest._numbers import whole
from ringest._state import Told
from ringest.dataset import IterableDataset

with needs("ringest.to_device"):
    import torch
    from torch.nn.utils.rnn import PackedSequence

Batch = TypeVar("Batch")

__all__ = ["DeviceBatches", "to_device"]

_DEPTH_MAX = 1024
_NONE = object()
# How long the end of the process waits for a batch that is being made.
_END_S = 2.0


def _bytes_of(buffer: Buffer) -> torch.Tensor:
    """Its bytes, in the same memory, which nobody writes to."""
    if len(buffer) == 0:
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    view = memoryview(buffer)
    return torch.frombuffer(bytearray(view) if view.readonly else view, dtype=torch.uint8)


def _array_of(array: Any) -> torch.Tensor | None:
    """The same memory as a tensor; None: PyTorch has no such elements."""
    kind = array.dtype
    is_even = all(stride >= 0 and stride % (kind.itemsize or 1) == 0 for stride in array.strides)
    try:
        if not (array.flags.writeable and is_even and kind.isnative):
            array = array.astype(kind.newbyteorder("="), order="C")
        return torch.from_numpy(array)
    except TypeError:
        return None


class _Mover:
    """Copies what a batch has; `tensors` are those that were made. Views that it makes go to `kept`."""

    def __init__(self, lane: Lane, kept: list):
        self._lane = lane
        self._array = getattr(sys.modules.get("numpy"), "ndarray", ())
        self.tensors: list[torch.Tensor] = []
        self._kept = kept

    def move(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value if value.device == self._lane.device else self._copy(value)
        if isinstance(value, Buffer):
            return self._copy(_bytes_of(value))
        if isinstance(value, self._array):
            view = _array_of(value)
            return value if view is None else self._copy(view)
        if isinstance(value, Mapping):
            return self._move_mapping(value)
        if isinstance(value, PackedSequence):  # the sizes are of use on the CPU only
            data, sizes, *orders = value
            return type(value)(self.move(data), sizes, *map(self.move, orders))
        if isinstance(value, tuple):
            moved = [self.move(each) for each in value]
            return type(value)(*moved) if hasattr(value, "_fields") else tuple(moved)
        if isinstance(value, list):
            return [self.move(each) for each in value]
        return value

    def _copy(self, host: torch.Tensor) -> torch.Tensor:
        self._kept.append(host)
        self.tensors.append(self._lane.copy(host))
        return self.tensors[-1]

    def _move_mapping(self, value: Mapping) -> Any:
        moved = {key: self.move(each) for key, each in value.items()}
        if type(value) is dict or not isinstance(value, dict):
            return moved
        same = copy.copy(value)  # a defaultdict keeps what it makes values with
        same.update(moved)
        return same


class _Ready(NamedTuple):
    """A batch whose copy is under way, or the end: then `batch` is what the source raised, or None."""

    batch: Any
    tensors: list[torch.Tensor]
    mark: Mark | None  # None: the end
    place: Any  # the state behind it


class _FeedState(enum.Enum):
    """Only _Feed._become changes it.

    NEW -> RUNNING -> ENDED     the source has ended, or raised; what is ready is still handed out
     |        |         |
     +--------+---------+-> CLOSED"""

    NEW = 0
    RUNNING = 1
    ENDED = 2
    CLOSED = 3


_FOLLOWING = {
    _FeedState.NEW: (_FeedState.RUNNING, _FeedState.CLOSED),
    _FeedState.RUNNING: (_FeedState.ENDED, _FeedState.CLOSED),
    _FeedState.ENDED: (_FeedState.CLOSED,),
    _FeedState.CLOSED: (),
}


class _Feed:
    """A thread that takes batches from a source and has them copied, at most `depth` ahead of the loop.

    A batch that was copied from is let go of when its copy is done: before the thread waits for anything but the next
    batch, which it takes meanwhile."""

    def __init__(self, batches: Iterator, place: Callable[[], Any], lane: Lane, depth: int):
        self._batches = batches
        self._place = place
        self._lane = lane
        self._depth = depth
        self._state = _FeedState.NEW
        self._ready: deque[_Ready] = deque()
        self._changed = threading.Condition()
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None

    def _become(self, state: _FeedState) -> None:
        """Under the lock."""
        assert state in _FOLLOWING[self._state], f"{self._state} -> {state}"
        self._state = state
        self._changed.notify_all()

    def start(self) -> None:
        with self._changed:
            self._become(_FeedState.RUNNING)
        self._thread = threading.Thread(target=self._run, name="ringest-device", daemon=True)
        _feeds.add(self)
        self._thread.start()

    def take(self) -> _Ready:
        """The next batch, or the end."""
        if self._pid != os.getpid():
            raise RuntimeError("this iteration belongs to the parent of this process: begin another one")
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._state is _FeedState.CLOSED)
            if self._state is _FeedState.CLOSED:
                return _Ready(None, [], None, None)
            self._changed.notify_all()
            return self._ready.popleft()

    def close(self, patience_s: float | None = None) -> None:
        """Ends what is under way, and waits for that. Again: nothing."""
        if self._pid != os.getpid():
            return
        with self._changed:
            if self._state is _FeedState.CLOSED:
                return
            is_begun = self._state is not _FeedState.NEW
            self._become(_FeedState.CLOSED)
            self._ready.clear()
        # Ours may be closed by any thread, which ends the wait that it is in; others by who is in it.
        if not is_begun or isinstance(self._batches, Iteration):
            _close(self._batches)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(patience_s)

    def _has_room(self) -> bool:
        with self._changed:
            return self._state is not _FeedState.RUNNING or len(self._ready) < self._depth

    def _wait_for_room(self) -> bool:
        """False: nobody wants more."""
        with self._changed:
            self._changed.wait_for(lambda: self._state is not _FeedState.RUNNING or len(self._ready) < self._depth)
            return self._state is _FeedState.RUNNING

    def _put(self, ready: _Ready) -> None:
        with self._changed:
            if self._state is _FeedState.RUNNING:
                self._ready.append(ready)
                if ready.mark is None:
                    self._become(_FeedState.ENDED)
                self._changed.notify_all()

    def _send(self, batch: Any, kept: list) -> Mark:
        """Puts into `kept` what is to be kept until the mark is done."""
        kept.append(batch)
        place = self._place()
        mover = _Mover(self._lane, kept)
        with self._lane.entered():
            try:
                moved = mover.move(batch)
            except BaseException:
                self._lane.mark().wait()  # some of it may be under way
                raise
            mark = self._lane.mark()
        self._put(_Ready(moved, mover.tensors, mark, place))
        return mark

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._take_all()
        except BaseException as raised:
            error = raised
        try:
            self._end(error)
        finally:
            del error  # whose frames refer to this one

    def _take_all(self) -> None:
        kept: list = []  # of the copy under way
        mark: Mark = NOTHING
        try:
            while True:
                if not self._has_room():
                    mark.wait()
                    kept.clear()
                if not self._wait_for_room():
                    return
                batch = next(self._batches, _NONE)
                if batch is _NONE:
                    return
                mark.wait()
                kept.clear()
                mark = self._send(batch, kept)
                del batch
        finally:
            mark.wait()
            kept.clear()

    def _end(self, error: BaseException | None) -> None:
        place = None
        try:
            _close(self._batches)
            place = self._place()
        except BaseException as raised:
            error = error or raised
        try:
            self._put(_Ready(error, [], None, place))
        finally:
            del error


def _close(batches: Iterator) -> None:
    close = getattr(batches, "close", None)
    if callable(close):
        close()


_feeds: weakref.WeakSet[_Feed] = weakref.WeakSet()


def _end_all() -> None:
    """At the end of the process, so that no thread is in the middle of a copy then."""
    for feed in list(_feeds):
        feed.close(_END_S)


atexit.register(_end_all)


class DeviceBatches(Generic[Batch]):
    """What to_device() gives: an iterable of the same batches, on a device. Each iteration is one of the source."""

    def __init__(self, batches: Iterable[Batch], device: Any = "cuda", *, depth: int = 2):
        self.source = batches
        self.device = _lane.check_device(device)
        self._depth = whole(depth, "depth", 1, _DEPTH_MAX)
        self._told: Told | None = None

    def __len__(self) -> int:
        return len(self.source)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<{self.source!r} on {self.device}>"

    def __iter__(self) -> Iterator[Batch]:
        batches, place = self._begin()
        self._told = told = Told(place())
        if isinstance(self.source, IterableDataset):
            self.source._follow(told)
        return self._handed_out(_Feed(batches, place, _lane.open_lane(self.device), self._depth), told)

    def _begin(self) -> tuple[Iterator, Callable[[], Any]]:
        """An iteration, and what tells its state."""
        if isinstance(self.source, IterableDataset):
            return self.source._begin_ahead()
        state_dict = getattr(self.source, "state_dict", None)
        return iter(self.source), state_dict if callable(state_dict) else lambda: None

    def _handed_out(self, feed: _Feed, told: Told) -> Iterator[Batch]:
        try:
            feed.start()
            while True:
                batch, tensors, mark, place = feed.take()
                if mark is None:
                    break
                feed._lane.hand_over(mark, tensors)
                del tensors, mark
                # No signal handler runs between these two: what is told is what has gone out.
                told.place = place
                yield batch
                del batch
            if batch is not None:
                raise batch
            if place is not None:
                told.place = place
        finally:
            feed.close()

    def set_epoch(self, epoch: int) -> None:
        """The source's."""
        self._told = None
        self.source.set_epoch(epoch)  # type: ignore[attr-defined]

    def state_dict(self, **options: Any) -> Any:
        """The source's state behind the last batch that was handed out: those that are copied ahead are not in it."""
        if isinstance(self.source, IterableDataset):
            return self.source.state_dict(**options)
        state_dict = getattr(self.source, "state_dict", None)
        if not callable(state_dict):
            raise TypeError(f"a {type(self.source).__name__} has no state_dict()")
        return state_dict(**options) if self._told is None else self._told.place

    def load_state_dict(self, state: Any) -> None:
        """The source's: for the next iteration."""
        self._told = None
        self.source.load_state_dict(state)  # type: ignore[attr-defined]


def to_device(batches: Iterable[Batch], device: Any = "cuda", *, depth: int = 2) -> DeviceBatches[Batch]:
    """The batches of a dataset, a DataLoader or any other iterable, on a device. A thread takes them from the source and
    copies them on a stream of its own, while the step before them runs.

    Copied are tensors, ringest.Buffers (as uint8 tensors), and arrays of numpy, also those in dicts, lists, tuples and
    named tuples and PackedSequences; anything else, such as a str, is handed out as it is. What is handed out is ready for the stream that is
    current then. depth: batches that are copied ahead, and wait in the device's memory.

    What was copied from is let go of when its copy is done. Copies run beside the step if they begin in pinned memory:
    Buffers of a Client(pinned=...), tensors of DataLoader(pin_memory=True). Others work, and hold up the thread.

    device: "cuda", "cuda:1", or another one that PyTorch has; "cpu": Buffers and arrays are copied into tensors of their
    own, and tensors stay as they are. RuntimeError: there is no such device.

    What the source raises comes in its turn, and ends the iteration. Closing an iteration, or letting go of it, ends what
    is under way, and waits for the batch that the source is making. state_dict(), of a dataset of ringest or of what this
    returns, says what the loop was given, not what is copied ahead. For other sources that have a state_dict() it is called
    after each batch, by the thread.
    """
    return DeviceBatches(batches, device, depth=depth)
