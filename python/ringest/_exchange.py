"""Little that the ranks of a process group tell each other: by the group, or, where all of them are of one host, by Unix
sockets, which takes a fraction of the time.

One Exchange is kept for each group. All ranks make the same exchanges in the same order, and those of the smallest numbers
carry what it takes to get from the group to the sockets, so that this costs no exchange of its own:

    NEW    the group. Each rank says what host it is of, and the first one where it listens
    TOLD   the group. All are of one host: each of the others tries to connect, and says whether it is
    JOINED the group. All others are connected: the first one says whether it could take them
    NEAR   sockets, one between the first rank and each of the others
    FAR    the group: they are of several hosts, or could not connect
    LOST   a socket has failed, or a rank was interrupted: all of them find their sockets closed, and nothing follows

A rank that ends, however it does, closes its sockets, and the others know at once.

What is more than BOARD_MIN and given by the first rank goes by memory that it has made and sent to the others, the board: by a
socket it takes several times as long. The first such gift still comes by the sockets, and the board with it; from then on each rank
says at every exchange whether it has it. The first rank writes on it when the others have come to an exchange, and they read it
before they leave that."""

from __future__ import annotations

import enum
import hashlib
import mmap
import os
import secrets
import socket
import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ringest import _job

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_NOWHERE = 2**63 - 1  # in place of a token: nobody listens
_HELLO = struct.Struct("=qI")  # token and rank
_TIME = struct.Struct("@ll")  # of SO_RCVTIMEO
_CREDENTIALS = struct.Struct("3i")  # of SO_PEERCRED: process, user, group
# Room for others that connect to the first rank. Where there are more, ranks stay with the group.
_STRANGERS = 16
# Of what is given, bytes: from here on by the board, which has so many. Less is as fast by the sockets.
BOARD_MIN = 64 << 10
BOARD_BYTES = 2 << 20
# Where the group does not say how long it waits.
_PATIENCE_S = 1800.0


# How many bytes are given, by what was found.
Size = Callable[[list[int]], int]


def _nothing(found: list[int]) -> int:
    return 0


class _State(enum.Enum):
    NEW = enum.auto()
    TOLD = enum.auto()
    JOINED = enum.auto()
    NEAR = enum.auto()
    FAR = enum.auto()
    LOST = enum.auto()


def number_of(text: str) -> int:
    """As good as the text where it is only compared; so is its negative."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True) >> 1


def _name(token: int) -> str:
    """Of an abstract socket. Everybody on the host can see it, and not find the token by it."""
    return f"\0ringest-{hashlib.sha256(str(token).encode()).hexdigest()[:32]}"


def _patience(group: ProcessGroup) -> float:
    """How long a rank is waited for, seconds."""
    try:
        return group._get_backend(torch.device("cpu")).options._timeout.total_seconds()
    except (AttributeError, RuntimeError):
        return _PATIENCE_S


class Exchange:
    """Raises RuntimeError, OSError or EOFError where a rank is lost."""

    def __init__(self, group: ProcessGroup):
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self._group = weakref.ref(group)
        self._patience_s = _patience(group)
        self._host = number_of(_job._host())
        self._token = _NOWHERE
        self._listener: socket.socket | None = None
        # Of the first rank: those of all others. Of another rank: that of the first one.
        self._sockets: list[socket.socket] = []
        self._state = _State.NEW if self.size > 1 else _State.NEAR
        self.turn = threading.RLock()  # of the thread that makes exchanges
        # Memory that the ranks share, from one load to the next. It goes with the group, and a child that was forked has none.
        self.kept: object = None
        self._board: mmap.mmap | None = None
        self._is_board_tried = False
        _exchanges.add(self)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Nothing follows: the others find their sockets closed, if there are sockets."""
        self.kept = self._board = None
        if self._state is not _State.FAR and self.size > 1:
            self._end(_State.LOST)

    def _end(self, state: _State) -> None:
        self._state = state
        for each in (*self._sockets, *([self._listener] if self._listener else [])):
            each.close()
        self._sockets, self._listener = [], None

    def smallest(self, numbers: Sequence[int]) -> list[int]:
        """The smallest that any rank has of each."""
        if self._is_near():
            return self._guarded(lambda: self._smallest_near(numbers, _nothing, bytearray())[0])
        try:
            said = torch.tensor([*numbers, *self._say()], device="cpu")
            dist.all_reduce(said, op=dist.ReduceOp.MIN, group=self._group())
            *found, host, other, token, is_ready = said.tolist()
            self._learn(host == -other, token, bool(is_ready))
        except BaseException:
            self.close()
            raise
        return found

    def smallest_given(self, numbers: Sequence[int], size: Size, data: bytearray) -> tuple[list[int], bytearray]:
        """Both smallest and give, of the first rank, in one message where ranks are near. size: of what is given, by the
        numbers that were found; all ranks must find the same."""
        if self._is_near():
            return self._guarded(lambda: self._smallest_near(numbers, size, data))
        found = self.smallest(numbers)
        length = size(found)
        return found, self.give(data, length, 0) if length else bytearray()

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Those of all ranks."""
        if self._is_near():
            packed = struct.pack(f"={len(numbers)}q", *numbers)
            told = self._gather_near(packed, [len(packed)] * self.size)
            return [list(struct.unpack(f"={len(numbers)}q", each)) for each in told]
        all_numbers = [torch.empty(len(numbers), dtype=torch.int64, device="cpu") for _ in range(self.size)]
        dist.all_gather(all_numbers, torch.tensor(numbers, device="cpu"), group=self._group())
        return [each.tolist() for each in all_numbers]

    def gather_bytes(self, data: bytes, sizes: Sequence[int]) -> list[bytes]:
        """Those of all ranks, who know how many they are."""
        if self._is_near():
            return self._gather_near(data, sizes)
        padded = torch.zeros(max(sizes), dtype=torch.uint8, device="cpu")
        if data:
            padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        all_bytes = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(all_bytes, padded, group=self._group())
        return [each[:size].numpy().tobytes() for each, size in zip(all_bytes, sizes)]

    def give(self, data: bytearray, size: int, source: int) -> bytearray:
        """Those of that rank; all know how many they are. The rank itself gets its own."""
        is_source = source == self.rank
        came = data if is_source else bytearray(size)
        if not size:
            return came
        if self._is_near():
            self._give_near(came, source)
            return came
        dist.broadcast(torch.frombuffer(came, dtype=torch.uint8), group_src=source, group=self._group())
        return came

    def is_near(self) -> bool:
        """All ranks are of one host, and connected. All of them know."""
        return self._state is _State.NEAR

    def _is_near(self) -> bool:
        if self._state is _State.LOST:
            raise EOFError("ranks have parted in an earlier load, which failed or was interrupted")
        return self._state is _State.NEAR

    def _guarded(self, function: Callable[[], Any]) -> Any:
        """What fails in the middle ends it for all."""
        try:
            return function()
        except BaseException as error:
            self.close()
            if isinstance(error, BlockingIOError):
                raise TimeoutError(f"nothing came within {self._patience_s:.0f} s") from error
            raise

    def _smallest_near(self, numbers: Sequence[int], size: Size, data: bytearray) -> tuple[list[int], bytearray]:
        packing = struct.Struct(f"={len(numbers) + 1}q")
        mine = (*numbers, int(self._board is not None))
        if self.rank:
            (first,) = self._sockets
            first.sendall(packing.pack(*mine))
            *found, has_board = packing.unpack(_receive(first, bytearray(packing.size)))
            return found, self._take_given(size(found), bool(has_board))
        told = [packing.unpack(_receive(each, bytearray(packing.size))) for each in self._sockets]
        *found, has_board = (min(each) for each in zip(mine, *told))
        given = data if size(found) else bytearray()
        self._give_found(packing.pack(*found, has_board), given, bool(has_board))
        return found, given

    def _is_for_board(self, size: int) -> bool:
        return self.size > 1 and BOARD_MIN <= size <= BOARD_BYTES

    def _give_found(self, packed: bytes, given: bytearray, has_board: bool) -> None:
        """Of the first rank. has_board: all ranks do."""
        if self._is_for_board(len(given)) and has_board:
            assert self._board is not None
            self._board[: len(given)] = given
            given = bytearray()
        elif self._is_for_board(len(given)) and not self._is_board_tried:
            self._send_board(packed)
            packed = b""
        for each in self._sockets:
            _send(each, packed, given)

    def _take_given(self, size: int, has_board: bool) -> bytearray:
        """Of the others."""
        if self._is_for_board(size) and has_board:
            assert self._board is not None
            return bytearray(memoryview(self._board)[:size])
        if self._is_for_board(size) and not self._is_board_tried:
            self._receive_board()
        return _receive(self._sockets[0], bytearray(size))

    def _send_board(self, packed: bytes) -> None:
        """Behind these, one byte with it, or alone where it cannot be made."""
        self._is_board_tried, fd = True, -1
        try:
            fd = os.memfd_create("ringest-board", os.MFD_CLOEXEC)
            os.ftruncate(fd, BOARD_BYTES)
            self._board = mmap.mmap(fd, BOARD_BYTES)
        except OSError:
            pass
        try:
            for each in self._sockets:
                each.sendall(packed)
                # One byte alone is sent as a whole.
                if self._board is None or not _sent_with(each, fd):
                    each.sendall(b"-")
        finally:
            if fd >= 0:
                os.close(fd)

    def _receive_board(self) -> None:
        self._is_board_tried = True
        said, found, _, _ = socket.recv_fds(self._sockets[0], 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not said:
            raise EOFError("it has closed its connection")
        for fd in found:
            try:
                if os.fstat(fd).st_size == BOARD_BYTES:
                    self._board = mmap.mmap(fd, BOARD_BYTES)
            except OSError:
                pass
            finally:
                os.close(fd)

    def _gather_near(self, mine: bytes, sizes: Sequence[int]) -> list[bytes]:
        def exchange() -> bytes | bytearray:
            if self.rank:
                (first,) = self._sockets
                first.sendall(mine)
                return _receive(first, bytearray(sum(sizes)))
            whole = b"".join([mine, *(_receive(each, bytearray(size)) for each, size in zip(self._sockets, sizes[1:]))])
            for each in self._sockets:
                each.sendall(whole)
            return whole

        whole, at, found = self._guarded(exchange), 0, []
        for size in sizes:
            found.append(bytes(whole[at : at + size]))
            at += size
        return found

    def _give_near(self, data: bytearray, source: int) -> None:
        def give() -> None:
            if self.rank == source and self.rank:
                self._sockets[0].sendall(data)
            elif self.rank:
                _receive(self._sockets[0], data)
            else:
                if source:
                    _receive(self._sockets[source - 1], data)
                for rank, each in enumerate(self._sockets, 1):
                    if rank != source:
                        each.sendall(data)

        self._guarded(give)

    def _say(self) -> tuple[int, int, int, int]:
        """What this rank adds to the numbers: host, token, and whether it is ready for the next state."""
        is_ready = True
        if self._state is _State.NEW and self.rank == 0:
            self._listen()
        elif self._state is _State.TOLD and self.rank:
            is_ready = self._connect()
        elif self._state is _State.JOINED and self.rank == 0:
            is_ready = self._accept()
        return self._host, -self._host, self._token if self.rank == 0 else _NOWHERE, int(is_ready)

    def _learn(self, is_one_host: bool, token: int, is_ready: bool) -> None:
        """What all ranks have said together."""
        if self._state is _State.NEW and is_one_host and token != _NOWHERE:
            self._token, self._state = token, _State.TOLD
        elif self._state is _State.TOLD and is_ready:
            self._state = _State.JOINED
        elif self._state is _State.JOINED and is_ready:
            self._state = _State.NEAR
        elif self._state is not _State.FAR:
            self._end(_State.FAR)

    def _listen(self) -> None:
        try:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            token = secrets.randbelow(_NOWHERE)
            self._listener.bind(_name(token))
            self._listener.listen(self.size + _STRANGERS)
            self._listener.setblocking(False)
            self._token = token
        except OSError:
            pass  # no rank is told where

    def _ready(self, each: socket.socket) -> None:
        """Waits as the group does. A time-out of Python's own would take one more system call each time."""
        each.setblocking(True)
        time = _TIME.pack(int(self._patience_s), int(self._patience_s % 1 * 1e6))
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, time)

    def _connect(self) -> bool:
        try:
            first = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._sockets = [first]
            # The first rank has room for all: none of them waits.
            first.setblocking(False)
            first.connect(_name(self._token))
            self._ready(first)
            first.sendall(_HELLO.pack(self._token, self.rank))
            return _is_of_this_user(first)
        except OSError:
            return False

    def _accept(self) -> bool:
        """All others have connected and said hello. Whether they could be taken."""
        found: dict[int, socket.socket] = {}
        try:
            assert self._listener is not None
            while len(found) < self.size - 1:
                came, _ = self._listener.accept()
                rank = self._rank_of(came)
                if rank in found or not 0 < rank < self.size:
                    came.close()
                    continue
                self._ready(came)
                found[rank] = came
        except OSError:
            for each in found.values():
                each.close()
            return False
        self._sockets = [found[rank] for rank in range(1, self.size)]
        self._listener.close()
        self._listener = None
        return True

    def _rank_of(self, came: socket.socket) -> int:
        """0: it is of no rank."""
        try:
            token, rank = _HELLO.unpack(came.recv(_HELLO.size, socket.MSG_DONTWAIT))
        except (OSError, struct.error):
            return 0
        return rank if token == self._token and _is_of_this_user(came) else 0


def _receive(source: socket.socket, memory: bytearray) -> bytearray:
    """Fills it."""
    view = memoryview(memory)
    while len(view):
        size = source.recv_into(view, 0, socket.MSG_WAITALL)
        if not size:
            raise EOFError("it has closed its connection")
        view = view[size:]
    return memory


def _send(target: socket.socket, head: bytes, data: bytearray) -> None:
    """Both as one message, so that who waits for them is woken once."""
    if not len(data):
        target.sendall(head)
        return
    sent = target.sendmsg((head, data))
    if sent < len(head):
        target.sendall(head[sent:])
    target.sendall(memoryview(data)[max(0, sent - len(head)) :])


def _sent_with(target: socket.socket, fd: int) -> bool:
    """A byte with that descriptor."""
    try:
        return socket.send_fds(target, [b"+"], [fd]) == 1
    except BlockingIOError:
        raise
    except OSError:
        # Some sandboxes refuse to send one. Where the connection is what failed, the next byte fails, too.
        return False


def _is_of_this_user(peer: socket.socket) -> bool:
    _, user, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return user == os.geteuid()


_exchanges: weakref.WeakSet[Exchange] = weakref.WeakSet()
_of_group: weakref.WeakKeyDictionary[ProcessGroup, Exchange] = weakref.WeakKeyDictionary()


def exchange_of(group: ProcessGroup) -> Exchange:
    found = _of_group.get(group)
    # Of two threads that come at once both get the same.
    return found if found is not None else _of_group.setdefault(group, Exchange(group))


def _close_in_child() -> None:
    """A child that was forked would keep the sockets of a rank that is killed open."""
    for each in list(_exchanges):
        each.turn = threading.RLock()  # whose owner is not here
        each.close()


os.register_at_fork(after_in_child=_close_in_child)
