"""Objects read into memory of a device, by way of a few pieces of the CPU's that the device copies from.

    requests fill a piece  ->  the device copies it, on a stream of its own  ->  the piece is filled again

So requests, and copies of what they have brought, run side by side, and a load takes STAGED_MAX beside its tensors,
however large they are. Everything is done by the thread that loads."""

from __future__ import annotations

import contextlib
import ctypes
import enum
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ringest import _core, _lane

if TYPE_CHECKING:
    from ringest._lane import Lane, Mark

# Memory that a load takes beside the tensors.
STAGED_MAX = 256 << 20
# Requests have up to 8 MiB of it each.
PIECE_SIZE = 16 << 20


def is_staged(device: torch.device) -> bool:
    """Whether what is loaded to the device comes through here."""
    return _lane.has_streams(device)


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a contiguous tensor, whatever its type, as a row of bytes."""
    return bytes_in(tensor.untyped_storage())[tensor.storage_offset() * tensor.itemsize :][: tensor.nbytes]


def bytes_in(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


class PieceState(enum.Enum):
    """Only Staging._become changes it.

    FREE -> FILLING -> COPYING -> FREE"""

    FREE = 0
    FILLING = 1  # taken: requests may write to it
    COPYING = 2  # devices may read from it, until its marks are done


_FOLLOWING = {
    PieceState.FREE: PieceState.FILLING,
    PieceState.FILLING: PieceState.COPYING,
    PieceState.COPYING: PieceState.FREE,
}


class Piece:
    def __init__(self, memory: torch.Tensor):
        self.memory = memory
        self.state = PieceState.FREE
        self.marks: list[Mark] = []

    def view(self, size: int) -> memoryview:
        """Its first bytes, for requests. The piece must outlive it."""
        return memoryview((ctypes.c_char * size).from_address(self.memory.data_ptr())).cast("B")


class Staging:
    """The pieces of one load, made as they are needed, and the lanes of the devices that it goes to.

    Invariant: each piece is in one of the two lists or FILLING, and there are no more of them than _pieces_max. Before it is
    left, whoever fills pieces has ended that; leaving it waits for all copies, also if an exception leaves it, so that
    neither pieces nor targets are let go of while a device uses them. If an interrupt comes before finish() has begun to
    wait, PyTorch keeps their memory until then (StreamLane.copy_into)."""

    def __init__(self, piece_size: int, pieces_max: int):
        assert piece_size * pieces_max <= STAGED_MAX
        self._pieces_max = pieces_max
        self._piece_size = piece_size
        self._lanes: dict[torch.device, Lane] = {}
        self._count = 0  # pieces that were made
        self._free: list[Piece] = []
        self._copying: deque[Piece] = deque()  # in the order of their copies

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.finish()

    def finish(self) -> None:
        """Waits for all copies; who interrupts that is heard when they are done."""
        interrupt: KeyboardInterrupt | None = None
        lanes = list(self._lanes.values())
        while lanes:
            try:
                # Not only for the marks of pieces: one may have been interrupted between a copy and its mark.
                with lanes[-1].entered():
                    mark = lanes[-1].mark()
                mark.wait()
                lanes.pop()
            except KeyboardInterrupt as raised:
                interrupt = raised
        if interrupt is not None:
            raise interrupt

    def open(self, device: torch.device) -> Lane:
        """Its lane. Copies go behind what the current stream had been given when the device was first named."""
        lane = self._lanes.get(device)
        if lane is None:
            lane = self._lanes[device] = _lane.open_lane(device)
            lane.follow()
        return lane

    def take(self, device: torch.device) -> Piece | None:
        """A piece to be filled, of memory from which the device copies; None: all are being filled."""
        if not self._free and self._count == self._pieces_max and self._copying:
            self._reclaim()
        if not self._free and self._count < self._pieces_max:
            self._free.append(Piece(self.open(device).staging(self._piece_size)))
            self._count += 1
        if not self._free:
            return None
        piece = self._free.pop()
        self._become(piece, PieceState.FILLING)
        return piece

    @contextlib.contextmanager
    def copying(self, piece: Piece) -> Iterator[Copying]:
        """The piece is filled. Copies that are made within begin in it; behind them, it is used again."""
        stack = contextlib.ExitStack()
        copies = Copying(self, stack)
        try:
            with stack:
                yield copies
        finally:
            # Whatever was raised: copies that were made before it are under way.
            self._become(piece, PieceState.COPYING)
            self._copying.append(piece)
            for lane in copies.lanes:
                with lane.entered():
                    piece.marks.append(lane.mark())

    def _reclaim(self) -> None:
        """Waits for the copies of the piece that has been copied from for the longest time."""
        piece = self._copying[0]
        for mark in piece.marks:
            mark.wait()
        piece.marks.clear()
        self._copying.popleft()
        self._become(piece, PieceState.FREE)
        self._free.append(piece)

    def _become(self, piece: Piece, state: PieceState) -> None:
        assert _FOLLOWING[piece.state] is state, f"{piece.state} -> {state}"
        piece.state = state


class Copying:
    """Copies out of one piece."""

    def __init__(self, staging: Staging, stack: contextlib.ExitStack):
        self._staging = staging
        self._stack = stack
        self._lane: Lane | None = None  # that was entered
        self.lanes: list[Lane] = []  # that have copies

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """source: of the piece."""
        lane = self._staging.open(target.device)
        if lane is not self._lane:
            self._stack.close()
            self._lane = None
            self._stack.enter_context(lane.entered())
            self._lane = lane
        if lane not in self.lanes:
            self.lanes.append(lane)
        lane.copy_into(target, source)


# Where bytes of an object go: a row of bytes on a device, or memory of the CPU.
Target = torch.Tensor | memoryview


class _Window(NamedTuple):
    """What one piece has of an object."""

    offset: int
    size: int
    parts: list[tuple[int, Target]]  # where in the piece each begins


def _windows(offset: int, targets: Iterable[Target], size: int) -> Iterator[_Window]:
    """Cuts what lies behind each other in an object, from the offset on, into windows of up to that size."""
    filled = 0
    parts: list[tuple[int, Target]] = []
    for target in targets:
        done = 0
        while done < len(target):
            some = min(len(target) - done, size - filled)
            parts.append((filled, target[done : done + some]))
            done += some
            filled += some
            if filled == size:
                yield _Window(offset, filled, parts)
                offset, filled, parts = offset + filled, 0, []
    if filled:
        yield _Window(offset, filled, parts)


def _give(staging: Staging, piece: Piece, window: _Window) -> None:
    with staging.copying(piece) as copying:
        for begin, target in window.parts:
            source = piece.memory[begin : begin + len(target)]
            if isinstance(target, memoryview):
                target[:] = piece.view(window.size)[begin : begin + len(target)]
            else:
                copying.copy(target, source)


def read(
    client: _core.Client, uri: str, generation: int, offset: int, targets: Iterable[Target], device: torch.device
) -> int:
    """Fills `targets`, which lie behind each other in one generation of an object from the offset on; gives the CRC32C of
    all that came. What is read when it raises is unfinished, and nothing writes to the targets any more."""
    targets = list(targets)
    size = sum(map(len, targets))
    sums: dict[int, tuple[int, int]] = {}
    piece_size, pieces_max = max(1, min(PIECE_SIZE, size)), STAGED_MAX // PIECE_SIZE
    # The queue first: what is read into pieces is ended before copies from them are waited for.
    with (
        Staging(piece_size, pieces_max) as staging,
        contextlib.closing(_core.Queue(client, pieces_max)) as queue,
    ):
        for window in _windows(offset, targets, piece_size):
            while (piece := staging.take(device)) is None:
                _take(queue, staging, sums)
            _submit(queue, staging, sums, uri, generation, piece, window)
        while len(queue):
            _take(queue, staging, sums)
    crc = 0
    for _, (length, each) in sorted(sums.items()):
        crc = _core.crc32c_combine(crc, each, length)
    return crc


def _submit(
    queue: _core.Queue,
    staging: Staging,
    sums: dict[int, tuple[int, int]],
    uri: str,
    generation: int,
    piece: Piece,
    window: _Window,
) -> None:
    request = [(window.offset, piece.view(window.size))]
    options = {"generation": generation, "checksums": True}
    while queue.submit((piece, window), "get_into", uri, request, **options) is None:
        if len(queue) == 0:
            time.sleep(0.001)  # others have filled the client
        _take(queue, staging, sums)


def _take(queue: _core.Queue, staging: Staging, sums: dict[int, tuple[int, int]]) -> None:
    """Has the device copy what has come."""
    outcomes = queue.wait()
    error = None
    try:
        for (piece, window), result, error in outcomes:
            if error is not None:
                raise error
            sums[window.offset] = window.size, result[1][0]
            _give(staging, piece, window)
    finally:
        # Whose frames refer to this one, and by it to memory of a device.
        outcomes.clear()
        del error
