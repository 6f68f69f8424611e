"""Ranks of a process group that read objects together: each byte comes once, and is given on.

A Team is made by all ranks at once and lasts for one load. Between its begin and its end, all ranks do the same in the
same order: they meet (Team.meet), and what one of them could not do, all of them raise. So either all have what they
asked for, or none.

What is read is cut into pieces, each read by one rank, its owner, into memory that the ranks of a host share, and copied
from there by those that want it. Where ranks of another host want it too, the owner sends it to one of them. That
memory holds several rounds of pieces: while one is copied, the next ones are read.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import ctypes
import json
import mmap
import os
import secrets
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist

from ringest import _core, _job
from ringest._errors import GroupError, checksum_error, error_tell, error_told
from ringest._exchange import exchange_of, number_of
from ringest._log import logger
from ringest._numbers import BYTES_MAX, whole

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# A round: as many bytes at most, of as many pieces, and how many rounds a host's memory holds. What answers within
# NEAR_S needs fewer: less is on its way, and memory that is used again costs no new pages.
SET_BYTES = 16 << 20
SET_PIECES = 1024
SETS = 24
SETS_NEAR = 5
NEAR_S = 0.005
# What a round has of each rank where all were answered within NEAR_S: with less memory in use, more of it is used
# again, and is still in the cache.
NEAR_BYTES = 2 << 20
# Of a piece: not so small that a request costs more than its bytes, and not so large that owners wait for one.
PIECE_BYTES_MIN = 2 << 20
PIECE_BYTES_MAX = 8 << 20
# Of the memory that ranks share, so much at most stays for the next load of the same group: to make its pages costs more than
# to copy them. The rest is given back when a load ends.
KEPT_BYTES = 64 << 20
# How many numbers ranks tell each other at a meeting, at most.
NUMBERS = 3
# Up to so much that all ranks want is read by one of them and sent to the others: memory that they share has to be agreed
# upon, which takes longer.
GIVEN_BYTES = 1 << 20
# Up to so much each rank reads by itself where not all are near, unless it is told otherwise: an exchange takes longer.
ALONE_BYTES = 64 << 10
# Of a rank that may have read by itself what it wants; what it says of that at the meeting that follows.
OWN_FAILED, OWN_HAS, OWN_WANTS = range(3)
# For madvise(2): makes all pages of a range at once, which costs half of what it does one by one as they are touched.
# Older kernels refuse, and make pages as they are touched.
_POPULATE_READ, _POPULATE_WRITE = 22, 23
# The same: gives pages of shared memory back.
_REMOVE = 9
# Of memory that is made and filled in turns: what was just cleared is still in the cache.
_NEW_BYTES = 2 << 20
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
# In front of the bytes of a piece: their generation and their CRC32C.
_HEAD = struct.Struct("=qQ")
# In front of bytes that one rank sends to all.
_CRC = struct.Struct("=I")
_ALIGNMENT = 64


class Piece(NamedTuple):
    """Bytes of an object."""

    file: int  # of those that are read; what they are is the caller's business
    offset: int
    size: int
    owner: int
    wanted_by: frozenset[int]  # ranks


class Told(NamedTuple):
    """What the ranks have told of one number."""

    least: int
    most: int

    def is_same(self) -> bool:
        return self.least == self.most

    def is_all(self, number: int) -> bool:
        return self == (number, number)


class Want(NamedTuple):
    """A piece, and the address that its bytes are to be read to."""

    piece: Piece
    address: int


Result = TypeVar("Result")
# Reads pieces of this rank's; gives (generation, CRC32C) of each.
Read = Callable[[list[Want]], list[tuple[int, int]]]
# Makes pieces of so many bytes at most.
Cut = Callable[[int], Iterable[Piece]]
# Takes what has come: a piece, the address of its bytes, its generation and its CRC32C.
Take = Callable[[Piece, int, int, int], None]


def _set_bytes(team: Team) -> int:
    """Of a round."""
    return min(SET_BYTES, NEAR_BYTES * team.size) if team.is_quick else SET_BYTES


def _piece_bytes(team: Team) -> int:
    """So that each of the ranks has a part in a round."""
    size = _set_bytes(team)
    return min(max(size // team.size, PIECE_BYTES_MIN), PIECE_BYTES_MAX, size)


def alone_checked(alone_max: Any) -> int | None:
    """What is given as alone_max; None: what is best."""
    return None if alone_max is None else whole(alone_max, "alone_max", 0, BYTES_MAX)


def alone_bytes(alone_max: int | None) -> int:
    """Up to so many bytes each rank reads by itself."""
    return ALONE_BYTES if alone_max is None else alone_max


def copy_to_new(target: int, source: int, size: int) -> None:
    """Copies to memory that was most likely never touched; addresses and bytes."""
    for at in range(0, size, _NEW_BYTES):
        some = min(_NEW_BYTES, size - at)
        begin = -(-(target + at) // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (target + at + some) // mmap.PAGESIZE * mmap.PAGESIZE
        if begin < end:
            _madvise(begin, end - begin, _POPULATE_WRITE)
        ctypes.memmove(target + at, source + at, some)


class Team:
    """The ranks of a process group while they load one thing. Invariant: an exception that others do not know of ends
    the `with` only after they were told."""

    def __init__(self, group: ProcessGroup, what: str):
        """what: is loaded, for messages."""
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group) if self.rank >= 0 else 0
        self._group = group
        self.what = what
        self._told: BaseException | None = None  # what all ranks know of
        self._has_ended = False  # all ranks know that all have what they asked for
        self.is_lost = False  # a rank is gone, and others cannot be told
        self.answered_us = 0  # how long this rank waited for the last that it read; 0: it has read nothing
        self.is_quick = False  # all were answered within NEAR_S when they last read; all know it
        # As of the last meeting: how long one of them waited at most, and whether all have the same memory from earlier.
        self._waited_us, self._is_kept = 0, False
        if self.rank < 0:
            raise ValueError(f"{what}: this process is no rank of the process group that it is to be loaded with")
        if all(device.type != "cpu" for device in group._device_types):
            raise ValueError(
                f"{what}: process_group has no backend for the CPU's memory: give one that has, as of "
                'torch.distributed.new_group(backend="gloo")'
            )
        self._exchange = exchange_of(group)

    def __enter__(self) -> Team:
        self._take_turn()
        self._has_ended = False
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        is_well = False
        try:
            # Who is interrupted does not wait for the others: they find that it is gone.
            if error is None:
                if not self._has_ended:
                    self.meet()
                    self._trim()
                is_well = True
            elif not isinstance(error, Exception):
                self.abandon()
            elif error is not self._told:
                self.meet(error)
        finally:
            if not is_well:
                # Others may still read into it.
                self._exchange.kept = None
            self._exchange.turn.release()

    def _take_turn(self) -> None:
        """What two threads tell other ranks would get mixed, and each might wait for what the other has got."""
        if not self._exchange.turn.acquire(blocking=False):
            raise GroupError(
                f"{self.what}: another thread of rank {self.rank} loads with this process group, which does one load at a "
                "time. Load one after the other, or give each thread a group of its own (torch.distributed.new_group)"
            )

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """This thread alone has the group meanwhile."""
        self._take_turn()
        try:
            yield
        finally:
            self._exchange.turn.release()

    def _trim(self) -> None:
        """All ranks have copied what they wanted, and use no memory before they have met again."""
        self._is_kept = False
        kept = self._exchange.kept
        if isinstance(kept, _Shared):
            kept.trim(self.rank)

    def end(self) -> None:
        """There is no meeting at the end: what all ranks have told each other says that all have what they asked for."""
        self._has_ended = True

    def abandon(self) -> None:
        """Of a rank that is interrupted. Nothing can be loaded with this group any more."""
        self._exchange.close()

    def _together(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """An exchange, or a message."""
        self._take_turn()
        try:
            return function(*arguments, **options)
        except (RuntimeError, OSError, EOFError) as error:
            raise self._lost(error) from error
        finally:
            self._exchange.turn.release()

    def _lost(self, error: Exception) -> GroupError:
        """Nobody can be told any more."""
        self.is_lost = True
        self._told = GroupError(
            f"{self.what}: another rank of the process group was lost, or has not come in time: {error}. Begin the job "
            "again, or load without process_group"
        )
        return self._told

    def is_near(self) -> bool:
        """All ranks are of one host, and an exchange takes little time. All of them know."""
        return self._exchange.is_near()

    def gather(self, *numbers: int) -> list[list[int]]:
        """Those of all ranks. Between the last meeting and this, nothing may fail."""
        return self._together(self._exchange.gather, numbers)

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Those of all ranks."""
        self.meet()
        sizes = [size for (size,) in self.gather(len(data))]
        if not any(sizes):
            return [b""] * self.size
        return self._together(self._exchange.gather_bytes, data, sizes)

    def meet(self, error: BaseException | None = None) -> None:
        """Waits for all ranks. If one of them comes with an error, all raise that of the first of them."""
        self._meet(error)

    def tell(self, *numbers: int) -> list[Told]:
        """A meeting, at which each rank has as many numbers, at most NUMBERS."""
        return self._meet(None, numbers)[0][: len(numbers)]

    def tell_given(
        self, given: bytearray, size: Callable[[list[Told]], int], *numbers: int
    ) -> tuple[list[Told], bytearray]:
        """tell, and what the first rank gives to all at once. size: of that, by all NUMBERS that were told; for all ranks the
        same."""
        told, came = self._meet(None, numbers, given, size)
        return told[: len(numbers)], came

    def _meet(
        self,
        error: BaseException | None = None,
        numbers: tuple[int, ...] = (),
        given: bytearray | None = None,
        size: Callable[[list[Told]], int] | None = None,
    ) -> tuple[list[Told], bytearray]:
        """All of these. All meetings are alike, because one of a rank that has failed may be any of those of the others.
        Where one has failed, nothing is given."""
        padded = (*numbers, *[0] * (NUMBERS - len(numbers)))
        memory = self._kept_number()
        more = (-self.answered_us, memory, -memory)
        mine = [self.size if error is None else self.rank, *padded, *(-each for each in padded), *more]
        came = bytearray()
        if given is None or size is None:
            first, *found = self._together(self._exchange.smallest, mine)
        else:

            def size_of(found: list[int]) -> int:
                return size(_told(found[1:])) if found[0] == self.size else 0

            (first, *found), came = self._together(self._exchange.smallest_given, mine, size_of, given)
        if first == self.size:
            *_, waited, least, most = found
            self._waited_us, self._is_kept = -waited, least == -most != 0
            return _told(found), came
        told = b"" if error is None else json.dumps(error_tell(error), default=str).encode()
        (length,) = self.gather(len(told))[first]
        given = self._give(bytearray(told), length, first)
        if error is not None and (first == self.rank or not isinstance(error, Exception)):
            self._told = error
        else:
            self._told = _error_of(json.loads(given), first)
        if self._told is error:
            raise error
        raise self._told from error

    def _kept_number(self) -> int:
        """Of the memory of an earlier load; 0: there is none."""
        kept = self._exchange.kept
        return kept.number if isinstance(kept, _Shared) else 0

    def _give(self, data: bytearray, size: int, source: int) -> bytearray:
        """Those of that rank. All know how many they are."""
        return self._together(self._exchange.give, data, size, source)

    def once(self, make: Callable[[], bytearray], *alike: Any) -> bytearray:
        """What it gives the first rank. alike: as for agree."""
        made, failure = bytearray(), None
        if self.rank == 0:
            try:
                made = self.timed(make)
            except Exception as error:
                failure = error
        size = len(made) if failure is None else -1
        (digests, sizes), came = self.tell_given(made, _once_size, number_of(repr(alike)), size)
        self._refuse_others(alike, digests)
        if sizes.least < 0:
            self.meet(failure)
        return came

    def once_checked(self, size: int, read: Callable[[memoryview], None]) -> memoryview:
        """The same, of bytes of an object, which are read into memory that is there. They are compared with the CRC32C that
        the first rank found."""

        def make() -> bytearray:
            came = bytearray(_CRC.size + size)
            read(memoryview(came)[_CRC.size :])
            _CRC.pack_into(came, 0, _core.crc32c(memoryview(came)[_CRC.size :]))
            return came

        came = self.once(make)
        (crc32c,), data = _CRC.unpack_from(came), memoryview(came)[_CRC.size :]
        if self.rank and _core.crc32c(data) != crc32c:
            raise checksum_error(self.what, f"{len(data)} bytes came from rank 0 other than it had read them")
        return data

    def timed(self, read: Callable[[], Result]) -> Result:
        started = time.monotonic()
        result = read()
        self.answered_us = 1 + int((time.monotonic() - started) * 1e6)
        return result

    def agree(self, *what: Any, numbers: tuple[int, ...] = ()) -> list[Told]:
        """ValueError unless all ranks were called with the same. numbers: as for tell, one less."""
        # One of them may have failed of its arguments.
        digests, *told = self.tell(number_of(repr(what)), *numbers)
        self._refuse_others(what, digests)
        return told

    def _refuse_others(self, what: tuple[Any, ...], digests: Told) -> None:
        if digests.is_same():
            return
        digest = number_of(repr(what))
        others = [each for each, (other,) in enumerate(self.gather(digest)) if other != digest]
        self._told = ValueError(
            f"{self.what}: ranks of the process group load different things, or differently: rank {self.rank} has "
            f"{what!r}, rank {others[0]} something else"
        )
        raise self._told

    def read(self, cut: Cut, read: Read, take: Take) -> None:
        """Reads pieces, the same and in the same order on all ranks. `read` is called, from another thread, for those
        that this rank owns, `take`, from this one and in order, for those that it wants."""
        self.is_quick = 0 < self._waited_us < NEAR_S * 1e6
        rounds = list(_rounds(cut(_piece_bytes(self)), _set_bytes(self)))
        if not rounds:
            return
        memory = self._take_memory(len(rounds), max(each.size for each in rounds))
        out: collections.deque[concurrent.futures.Future[None]] = collections.deque()
        try:
            if len(rounds) == 1 and (self.is_quick or memory.is_made(rounds[0])):
                self._read_one(memory, rounds[0], read, take)
            else:
                self._read_rounds(memory, rounds, read, take, out)
        except BaseException:
            # The frames of the error refer to it. Where the wait for those that read was interrupted, they do, too.
            if all(each.done() for each in out):
                memory.leave()
            raise
        # Another rank may have failed since the last meeting, and have none. So they agree at the next one.
        shared = memory.leave()
        self._exchange.kept = shared if shared.is_to_be_kept() else None

    def _take_memory(self, rounds: int, set_bytes: int) -> _Memory:
        """That of an earlier load, if all have it. Until this one has ended well, nobody has it for another."""
        sets = min(rounds, SETS_NEAR if self.is_quick else SETS)
        has_met = not self._is_kept
        if has_met:
            self.meet()
        kept, self._exchange.kept = self._exchange.kept, None
        if not (self._is_kept and isinstance(kept, _Shared) and kept.size >= sets * set_bytes):
            # From here on ranks exchange numbers, which one that has failed would not send.
            if not has_met:
                self.meet()
            kept = _Shared(self, sets * set_bytes)
        return _Memory(kept, sets, set_bytes)

    def _read_one(self, memory: _Memory, each: _Round, read: Read, take: Take) -> None:
        """There is nothing to be done meanwhile, and pages take no time, or as long in another thread."""
        failure = None
        try:
            self._make_pages(memory, each)
            self._read_round(memory, each, read)
        except Exception as error:
            failure = error
        self._take_round(memory, each, failure, take)

    def _read_rounds(
        self,
        memory: _Memory,
        rounds: list[_Round],
        read: Read,
        take: Take,
        out: collections.deque[concurrent.futures.Future[None]],
    ) -> None:
        """out: gets those that are read, until they are taken."""

        def read_round(each: _Round) -> None:
            if self.is_quick:
                self._make_pages(memory, each)
            self._read_round(memory, each, read)

        with (
            concurrent.futures.ThreadPoolExecutor(1, "ringest-together-pages") as paging,
            concurrent.futures.ThreadPoolExecutor(SETS, "ringest-together") as pool,
        ):
            for number, each in enumerate(rounds):
                # All ranks have copied all rounds before the last one.
                begun = rounds[number + len(out) : max(number + 1, number + memory.sets - 1)]
                out.extend(pool.submit(read_round, ahead) for ahead in begun)
                if not self.is_quick:
                    # While the service has not answered yet.
                    for ahead in begun:
                        paging.submit(self._make_pages, memory, ahead)
                self._take_round(memory, each, out.popleft().exception(), take)

    def _make_pages(self, memory: _Memory, each: _Round) -> None:
        ranges = ((at, at + _ALIGNMENT + piece.size) for piece, at in each.places() if piece.owner == self.rank)
        memory.make_pages(each, ranges, _POPULATE_WRITE)

    def _read_round(self, memory: _Memory, each: _Round, read: Read) -> None:
        mine = [(piece, at) for piece, at in each.places() if piece.owner == self.rank]
        if not mine:
            return
        wants = [Want(piece, memory.address(each, at) + _ALIGNMENT) for piece, at in mine]
        found = self.timed(lambda: read(wants))
        for (_, at), (generation, crc32c) in zip(mine, found, strict=True):
            memory.note(each, at, generation, crc32c)

    def _take_round(self, memory: _Memory, each: _Round, failure: BaseException | None, take: Take) -> None:
        """failure: of this rank, when it read its part."""
        self.meet(failure)
        if memory.shared.has_several_hosts:
            self.meet(self._send_round(memory, each))
        memory.make_pages(each, [(0, each.size)], _POPULATE_READ)
        for piece, at in each.places():
            if self.rank in piece.wanted_by:
                address, generation, crc32c = memory.piece(each, at)
                take(piece, address, generation, crc32c)
        memory.note_made(each)

    def _message(self, function: Callable[..., Any], tensor: torch.Tensor, **options: int) -> Any:
        return self._together(function, tensor, group=self._group, **options)

    def _send_round(self, memory: _Memory, each: _Round) -> Exception | None:
        """Sends this rank's pieces to other hosts, and takes theirs; what came is compared with its CRC32C."""
        works, came = [], []
        for owner, receivers, begin, end, places in _messages(each, memory.shared.leaders):
            tensor = memory.tensor(each, begin, end)
            if owner == self.rank:
                works += [self._message(dist.isend, tensor, group_dst=receiver) for receiver in receivers]
            elif self.rank in receivers:
                works.append(self._message(dist.irecv, tensor, group_src=owner))
                came += places
        try:
            for work in works:
                work.wait()
        except RuntimeError as error:
            raise self._lost(error) from error
        for piece, at in came:
            address, generation, crc32c = memory.piece(each, at)
            if _core.crc32c((ctypes.c_char * piece.size).from_address(address)) != crc32c:
                return checksum_error(
                    self.what,
                    f"bytes {piece.offset} to {piece.offset + piece.size} of generation {generation} came from rank "
                    f"{piece.owner} other than it had read them",
                )
        return None


def _once_size(told: list[Told]) -> int:
    """How much `once` gives: nothing where it raises."""
    digests, sizes, *_ = told
    return sizes.most if digests.is_same() and sizes.least >= 0 else 0


def _told(found: list[int]) -> list[Told]:
    """Of the numbers of a meeting and their negatives."""
    return [Told(low, -high) for low, high in zip(found[:NUMBERS], found[NUMBERS : 2 * NUMBERS], strict=True)]


def _error_of(told: dict[str, Any], rank: int) -> Exception:
    error = error_told(told, GroupError)
    error.add_note(f"so it went for rank {rank} of the process group that loads together")
    return error


class _Round:
    """Pieces that are read at once, and where each lies in their memory."""

    def __init__(self, number: int, set_bytes: int):
        self.number = number
        self._set_bytes = set_bytes
        self.pieces: list[Piece] = []
        self.begins: list[int] = []
        self.size = 0  # of the memory that they take
        self._bytes = 0

    def has_room(self, piece: Piece) -> bool:
        return not self.pieces or (self._bytes + piece.size <= self._set_bytes and len(self.pieces) < SET_PIECES)

    def add(self, piece: Piece) -> None:
        self._bytes += piece.size
        self.pieces.append(piece)
        self.begins.append(self.size)
        self.size += _ALIGNMENT + -(-piece.size // _ALIGNMENT) * _ALIGNMENT

    def places(self) -> Iterator[tuple[Piece, int]]:
        return zip(self.pieces, self.begins)


def _rounds(pieces: Iterable[Piece], set_bytes: int) -> Iterator[_Round]:
    each = _Round(0, set_bytes)
    for piece in pieces:
        if not each.has_room(piece):
            yield each
            each = _Round(each.number + 1, set_bytes)
        each.add(piece)
    if each.pieces:
        yield each


class _Message(NamedTuple):
    """Neighbours in a round's memory that go from one rank to the same others."""

    owner: int
    receivers: tuple[int, ...]
    begin: int
    end: int
    places: list[tuple[Piece, int]]


def _messages(each: _Round, leaders: list[int]) -> Iterator[_Message]:
    """leaders: who takes what comes from other hosts, for each rank."""
    receivers_of: dict[tuple[int, frozenset[int]], tuple[int, ...]] = {}
    ends = [*each.begins[1:], each.size]
    last: _Message | None = None
    for (piece, begin), end in zip(each.places(), ends):
        key = piece.owner, piece.wanted_by
        if key not in receivers_of:
            others = {leaders[rank] for rank in piece.wanted_by} - {leaders[piece.owner]}
            receivers_of[key] = tuple(sorted(others))
        receivers = receivers_of[key]
        if last is not None and (last.owner, last.receivers) == (piece.owner, receivers):
            last = last._replace(end=end)
            last.places.append((piece, begin))
            continue
        if last is not None and last.receivers:
            yield last
        last = _Message(piece.owner, receivers, begin, end, [(piece, begin)])
    if last is not None and last.receivers:
        yield last


_REMEDY = "Run all ranks of a host as one user in one container"
_is_alone_told = False  # by this process


def _tell_alone(why: str) -> None:
    """Says once that something keeps this rank from sharing memory; why: "" where nothing does."""
    global _is_alone_told
    if why and not _is_alone_told:
        _is_alone_told = True
        logger.warning(
            "ranks of this host that load together cannot all share memory, and send each other by the process group what "
            "they read, which is slower: %s",
            why,
        )


def _stranger(told: list[list[int]], rank: int) -> str:
    """told: host and machine of each rank. Why there is a rank on this rank's machine that is none of its host, or ""."""
    host, machine = told[rank]
    others = [other for other, each in enumerate(told) if each[1] == machine and each[0] != host]
    return f"rank {others[0]} is of another user, or in another container. {_REMEDY}" if others else ""


def _is_removed(mapped: mmap.mmap) -> bool:
    """Gives the first page back. Whether that went well."""
    return _madvise(ctypes.addressof(ctypes.c_char.from_buffer(mapped)), mmap.PAGESIZE, _REMOVE) == 0


class _Shared:
    """Memory that is one for each host: the first rank of a host makes it, the others map it. A rank that cannot counts as
    a host of its own, and says why. It lasts as long as one of its ranks has it mapped."""

    def __init__(self, team: Team, size: int):
        self.size = size
        # Of its beginning: what all ranks have touched, and is still there.
        self.made = 0
        told = team.gather(number_of(_job._host()), number_of(_job._machine()))
        hosts = [each for each, _ in told]
        leader = hosts.index(hosts[team.rank])
        fd, why_alone = -1, ""
        try:
            if leader == team.rank:
                fd, why_alone = self._make()
            places = team.gather(os.getpid(), fd, secrets.randbits(62))
            if leader != team.rank:
                fd, why_alone = self._open(*places[leader][:2])
            mapped, failure = self._map(fd)
            # Some kernels cannot. Nobody has anything in it before all have met.
            self._can_trim = mapped is not None and _is_removed(mapped)
            team.meet(failure)
        finally:
            # After all have opened it.
            if fd >= 0:
                os.close(fd)
        assert mapped is not None
        self.mapped = mapped
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        # All of them, on all hosts, have what they have together: never 0.
        self.number = 1 + (number_of(repr(places)) >> 2 & (1 << 60) - 1)
        self.leaders = [each for (each,) in team.gather(leader if fd >= 0 else team.rank)]
        self.has_several_hosts = len(set(self.leaders)) > 1
        if team.size > 1:
            _tell_alone(why_alone or _stranger(told, team.rank))

    def _make(self) -> tuple[int, str]:
        """A descriptor, or -1 and why not."""
        fd = -1
        try:
            fd = os.memfd_create("ringest", os.MFD_CLOEXEC)
            os.ftruncate(fd, self.size)
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            return (
                -1,
                f"no memory file of {self.size} bytes: {error}. Raise this process's limits (ulimit -f, ulimit -n)",
            )
        return fd, ""

    def _open(self, pid: int, fd: int) -> tuple[int, str]:
        """That of another process, or -1 and why not."""
        if fd < 0:
            return -1, f"process {pid}, which makes it, could not, and says why"
        path = f"/proc/{pid}/fd/{fd}"
        try:
            opened = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            return -1, f"{path}: {error}. {_REMEDY}, and keep them from making themselves undumpable"
        if os.fstat(opened).st_size != self.size:
            os.close(opened)
            return -1, f"{path} is another process's. {_REMEDY}"
        return opened, ""

    def _map(self, fd: int) -> tuple[mmap.mmap | None, Exception | None]:
        """-1: memory of this process."""
        try:
            return mmap.mmap(fd, self.size), None
        except OSError as error:
            return None, error

    def is_to_be_kept(self) -> bool:
        return self.size <= KEPT_BYTES or self._can_trim

    def trim(self, rank: int) -> None:
        """Gives back what is not kept, if nobody uses it."""
        self.made = min(self.made, KEPT_BYTES)
        if self.size > KEPT_BYTES and self.leaders[rank] == rank:
            _madvise(self.base + KEPT_BYTES, self.size - KEPT_BYTES, _REMOVE)


class _Memory:
    """That of the rounds of a load."""

    def __init__(self, shared: _Shared, sets: int, set_bytes: int):
        self._shared: _Shared | None = shared
        self.sets, self._set_bytes = sets, set_bytes

    @property
    def shared(self) -> _Shared:
        assert self._shared is not None
        return self._shared

    def leave(self) -> _Shared:
        """Nobody uses it for this load any more."""
        shared, self._shared = self.shared, None
        return shared

    def _at(self, each: _Round, at: int) -> int:
        return each.number % self.sets * self._set_bytes + at

    def address(self, each: _Round, at: int) -> int:
        """Of a piece's head."""
        return self.shared.base + self._at(each, at)

    def is_made(self, each: _Round) -> bool:
        """Its part of the memory was used before."""
        return each.number >= self.sets or self._at(each, each.size) <= self.shared.made

    def note_made(self, each: _Round) -> None:
        """All of it was used, as were all before it."""
        if each.number < self.sets:
            self.shared.made = max(self.shared.made, self._at(each, each.size))

    def make_pages(self, each: _Round, ranges: Iterable[tuple[int, int]], advice: int) -> None:
        """Before a part of the memory is used for the first time."""
        if self.is_made(each):
            return
        for begin, end in ranges:
            start = self._at(each, begin) // mmap.PAGESIZE * mmap.PAGESIZE
            _madvise(self.shared.base + start, self._at(each, end) - start, advice)

    def tensor(self, each: _Round, begin: int, end: int) -> torch.Tensor:
        at = self._at(each, begin)
        return torch.frombuffer(self.shared.mapped, dtype=torch.uint8, count=end - begin, offset=at)

    def note(self, each: _Round, at: int, generation: int, crc32c: int) -> None:
        _HEAD.pack_into(self.shared.mapped, self._at(each, at), generation, crc32c)

    def piece(self, each: _Round, at: int) -> tuple[int, int, int]:
        """Address, generation and CRC32C."""
        generation, crc32c = _HEAD.unpack_from(self.shared.mapped, self._at(each, at))
        return self.address(each, at) + _ALIGNMENT, generation, crc32c
