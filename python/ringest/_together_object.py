"""One object, read by all ranks of a process group as if each had a client of its own: what checkpoint.load and
safetensors.load_file use in place of a client where they have a group.

All ranks make the same calls of a TogetherObject. Each byte comes once; bytes that an earlier call has read do not come
again. Where exchanges take long, each rank asks for the object's facts by itself. A small object it then reads by itself, too,
and the ranks tell each other only whether all of them have it, of one generation."""

from __future__ import annotations

import array
import ctypes
import itertools
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from ringest import _core, _newest
from ringest._errors import Error, check_crc32c, checksum_error
from ringest._stages import Part, at
from ringest._together import (
    GIVEN_BYTES,
    OWN_FAILED,
    OWN_HAS,
    OWN_WANTS,
    Piece,
    Team,
    Want,
    alone_bytes,
    copy_to_new,
)

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from ringest.client import Client

_FACTS = ("size", "generation", "crc32c")
# In front of the facts and the bytes of a small object: the length of the facts, and the CRC32C of the bytes.
_HEAD = struct.Struct("=II")

T = TypeVar("T")


class Loading(NamedTuple, Generic[T]):
    """What a rank is to load."""

    client: Client
    uri: str
    generation: int  # 0: the newest one
    options: tuple[Any, ...]  # what else all ranks are to be called with alike
    alone_max: int | None  # up to so many bytes each rank reads by itself; None: what is best
    make: Callable[[OwnObject | TogetherObject], T]  # makes it of what it reads by that
    begin_bytes: int = GIVEN_BYTES  # so many bytes of an object's beginning come with its facts


def load(process_group: ProcessGroup, what: str, begin: Callable[[], Loading[T]]) -> tuple[Team, T]:
    """What all ranks of a group load, and the team that they were meanwhile. what: it is, for messages. begin: may fail of
    this rank's arguments."""
    with Team(process_group, what) as team:
        loading = begin()
        with at(Part.LIST, loading.client):
            if team.is_near() and not loading.alone_max:
                return team, _load_near(team, loading)
            return team, _load_own(team, loading)


def _asked(loading: Loading[T]) -> tuple[Any, ...]:
    """What all ranks have to ask for alike."""
    return loading.uri, loading.generation, loading.alone_max, loading.options


def _begin(loading: Loading[Any]) -> tuple[dict[str, Any], list[Any], int] | None:
    """Facts of the object, its first bytes, in parts, and their CRC32C, by one request, or two for all of a small object. None:
    they cannot be had so."""
    client, uri = loading.client, loading.uri
    try:
        first, generation, size, crc32c, found = client._get_told(
            uri, length=loading.begin_bytes, generation=loading.generation
        )
        if size is None or crc32c is None:
            return None
        parts: list[Any] = [first]
        if len(first) < size <= GIVEN_BYTES:
            rest = bytearray(size - len(first))
            _, (crc,) = client.get_into(uri, [(len(first), rest)], generation=generation, checksums=True)
            parts.append(rest)
            found = _core.crc32c_combine(found, crc, len(rest))
    except Error as error:
        # An empty object has no first byte. One that is replaced meanwhile is asked for again.
        if error.http_status not in (404, 416):
            raise
        return None
    return {"size": size, "generation": generation, "crc32c": crc32c}, parts, found


def _facts_told(facts: dict[str, Any], parts: Sequence[Any] = (), crc32c: int = 0) -> bytearray:
    text = json.dumps({name: facts[name] for name in _FACTS}).encode()
    return bytearray().join((_HEAD.pack(len(text), crc32c), text, *parts))


def _load_near(team: Team, loading: Loading[T]) -> T:
    """One rank asks for the facts, and reads a small object, or the beginning of another, at once."""

    def ask() -> bytearray:
        begun = _begin(loading)
        if begun is None:
            return _newest.read(loading.client, loading.uri, loading.generation, _facts_told)
        return _facts_told(*begun)

    told = team.once(ask, *_asked(loading))
    length, crc32c = _HEAD.unpack_from(told)
    reader = TogetherObject(team, loading.client, json.loads(told[_HEAD.size : _HEAD.size + length]))
    reader.know(memoryview(told)[_HEAD.size + length :], crc32c)
    return loading.make(reader)


def _load_own(team: Team, loading: Loading[T]) -> T:
    """Each rank asks for the facts, and reads a small object by itself."""
    own = OwnObject(loading.client, loading.uri, loading.generation)
    said, failure, made = OWN_WANTS, None, []
    try:
        if team.timed(own.size) <= alone_bytes(loading.alone_max):
            made.append(loading.make(own))
            said = OWN_HAS
    except Exception as error:
        said, failure = OWN_FAILED, error
    states, generations = team.agree(*_asked(loading), numbers=(said, own.generation()))
    if states.least == OWN_FAILED:
        team.meet(failure)
    if states.is_all(OWN_HAS) and generations.is_same():
        team.end()
        return made[0]
    made.clear()
    facts = own.facts if states.is_all(OWN_WANTS) and generations.is_same() else None
    return loading.make(TogetherObject(team, loading.client, facts))


class OwnObject:
    """The same for one rank alone, which knows the object's facts when it begins to read."""

    def __init__(self, client: _core.Client, uri: str, generation: int):
        self._client = client
        self._uri, self._wanted = uri, generation
        self.facts: dict[str, Any] | None = None
        self._is_new = False
        self.get_into = client.get_into
        self._get_into_addresses = client._get_into_addresses

    def size(self) -> int:
        """Asks for the facts."""
        self.facts = self._client.stat(self._uri, generation=self._wanted)
        self._is_new = True
        return self.facts["size"]

    def generation(self) -> int:
        """Of the last facts."""
        return self.facts["generation"] if self.facts is not None else 0

    def stat(self, uri: str, *, generation: int = 0) -> dict[str, Any]:
        """Asks again where it is called for the second time: that generation was replaced."""
        if not self._is_new:
            self.size()
        self._is_new = False
        assert self.facts is not None
        return self.facts


class _Known(NamedTuple):
    """Bytes that came earlier."""

    offset: int
    data: bytearray | memoryview
    crc32c: int


def _parts(known: list[_Known], begin: int, end: int) -> list[_Known]:
    """What of these bytes is known. known: in order, none over another."""
    found = []
    for each in known:
        first, last = max(begin, each.offset), min(end, each.offset + len(each.data))
        if (first, last) == (each.offset, each.offset + len(each.data)):
            found.append(each)
        elif first < last:
            data = memoryview(each.data)[first - each.offset : last - each.offset]
            found.append(_Known(first, data, _core.crc32c(data)))
    return found


def _holes(known: list[_Known], begin: int, end: int) -> list[tuple[int, int]]:
    """What of these bytes is not."""
    found, at = [], begin
    for each in _parts(known, begin, end):
        if at < each.offset:
            found.append((at, each.offset))
        at = each.offset + len(each.data)
    return found + ([(at, end)] if at < end else [])


def _address(memory: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory)) if len(memory) else 0


class TogetherObject:
    """stat, get_into and _get_into_addresses of a client, for one object."""

    def __init__(self, team: Team, client: _core.Client, facts: dict[str, Any] | None):
        """facts: of the object, where all ranks have the same."""
        self._team = team
        self._client = client
        self._facts = facts
        self._size = 0  # as the last facts say
        self._known: dict[int, list[_Known]] = {}  # by generation

    def know(self, content: memoryview, crc32c: int) -> None:
        """The first bytes of the object that the facts are of, or all of a small one, which the first rank has read, and
        their CRC32C."""
        assert self._facts is not None
        if _core.crc32c(content) != crc32c:
            raise checksum_error(self._team.what, f"{len(content)} bytes came from rank 0 other than it had read them")
        if len(content) or not self._facts["size"]:
            self._known[self._facts["generation"]] = [_Known(0, content, crc32c)]

    def stat(self, uri: str, *, generation: int = 0) -> dict[str, Any]:
        def ask() -> bytearray:
            found = self._client.stat(uri, generation=generation)
            return bytearray(json.dumps({name: found[name] for name in _FACTS}).encode())

        facts, self._facts = self._facts, None
        if facts is None:
            facts = json.loads(self._team.once(ask))
        self._size = facts["size"]
        return facts

    def get_into(self, uri: str, requests: list[tuple[int, Any]], *, checksums: bool = False, **options: Any) -> Any:
        """checksums: gives the CRC32C of each, too, as a client does."""
        table = array.array("Q")
        for offset, memory in requests:
            table.extend((offset, len(memory), _address(memory)))
        self._get_into_addresses(uri, table, **options)
        generation: int = options["generation"]
        if len(requests) > 1 and not checksums:
            return generation
        sums = [_core.crc32c(memory) for _, memory in requests]
        if len(requests) == 1 and self._size > GIVEN_BYTES:
            ((offset, memory),) = requests
            known = self._known.setdefault(generation, [])
            for begin, end in _holes(known, offset, offset + len(memory)):
                data = bytearray(memoryview(memory)[begin - offset : end - offset])
                known.append(_Known(begin, data, _core.crc32c(data)))
            known.sort(key=lambda each: each.offset)
        return (generation, sums) if checksums else generation

    def get_in_order(
        self,
        uri: str,
        sizes: Sequence[int],
        begin: Callable[[int], Any],
        end: Callable[[int], None],
        *,
        generation: int,
    ) -> int:
        """Reads an object from its beginning on, as ranges of these sizes, none of which is 0. `begin` gives the memory
        of a range when its first byte has come, and `end` is called when its last one has: so only those that are at it
        have memory. The CRC32C of all."""
        sums = self._read(uri, _InOrder(sizes, begin, end), generation)
        return _united(sums)[1]

    def _get_into_addresses(
        self,
        uri: str,
        table: array.array[int],
        *,
        generation: int,
        verify: bool = True,
        whole: bool = False,
        crc32c: int | None = None,
    ) -> int:
        """The ranges lie behind each other. whole: from the object's beginning to its end."""
        targets = _Ranges(table)
        sums = self._read(uri, targets, generation)
        if whole and verify:
            self._compare(uri, generation, targets, sums, crc32c)
        return generation

    def _read(self, uri: str, targets: _Targets, generation: int) -> dict[int, tuple[int, int]]:
        """Size and CRC32C of what came, by its offset."""
        if self._size <= GIVEN_BYTES:
            return self._copy_small(uri, targets, generation)
        known = _parts(self._known.get(generation, []), targets.begin, targets.end)
        sums: dict[int, tuple[int, int]] = {}
        for each in known:
            targets.copy(each.offset, _address(each.data), len(each.data))
            sums[each.offset] = len(each.data), each.crc32c

        def read(wants: list[Want]) -> list[tuple[int, int]]:
            wanted = array.array("Q")
            for want in wants:
                wanted.extend((want.piece.offset, want.piece.size, want.address))
            options = {"generation": generation, "gap_max": 1, "checksums": True}
            came, checksums = self._client._get_into_addresses(uri, wanted, **options)
            return [(came, each) for each in checksums]

        def take(piece: Piece, address: int, came: int, checksum: int) -> None:
            targets.copy(piece.offset, address, piece.size)
            sums[piece.offset] = piece.size, checksum

        holes = _holes(known, targets.begin, targets.end)
        if sum(end - begin for begin, end in holes) <= GIVEN_BYTES:
            self._read_given(uri, list(self._pieces(holes, GIVEN_BYTES)), generation, take)
        else:
            self._team.read(lambda size: self._pieces(holes, size), read, take)
        return sums

    def _given(self, uri: str, ranges: list[tuple[int, int]], generation: int) -> memoryview:
        """Offsets and sizes. One rank reads them, and gives them to the others."""

        def read(memory: memoryview) -> None:
            wanted, at = [], 0
            for offset, size in ranges:
                wanted.append((offset, memory[at : at + size]))
                at += size
            self._client.get_into(uri, wanted, generation=generation)

        return self._team.once_checked(sum(size for _, size in ranges), read)

    def _read_given(
        self, uri: str, pieces: list[Piece], generation: int, take: Callable[[Piece, int, int, int], None]
    ) -> None:
        if not pieces:
            return
        came, at = self._given(uri, [(each.offset, each.size) for each in pieces], generation), 0
        for each in pieces:
            data = came[at : at + each.size]
            take(each, _address(data), generation, _core.crc32c(data))
            at += each.size

    def _copy_small(self, uri: str, targets: _Targets, generation: int) -> dict[int, tuple[int, int]]:
        """Out of an object that is small: all of it is read at once."""
        if generation not in self._known and self._size:
            data = self._given(uri, [(0, self._size)], generation)
            self._known[generation] = [_Known(0, data, _core.crc32c(data))]
        whole = self._known[generation][0] if self._size else _Known(0, bytearray(), 0)
        if targets.end > self._size:
            raise EOFError(f"{uri}: has {self._size} bytes, and bytes up to {targets.end} are wanted")
        targets.copy(targets.begin, _address(whole.data) + targets.begin, targets.end - targets.begin)
        return {0: (self._size, whole.crc32c)}

    def content(self) -> memoryview | None:
        """All of an object that is small, if any of it was read."""
        known = [each for found in self._known.values() for each in found]
        return memoryview(known[-1].data) if known and self._size <= GIVEN_BYTES else None

    def _pieces(self, holes: list[tuple[int, int]], size: int) -> Iterator[Piece]:
        """Of what is not known, dealt to the ranks in turn."""
        all_ranks = frozenset(range(self._team.size))
        owners = itertools.cycle(range(self._team.size))
        for start, stop in holes:
            for begin in range(start, stop, size):
                yield Piece(0, begin, min(size, stop - begin), next(owners), all_ranks)

    def _compare(
        self, uri: str, generation: int, targets: _Targets, sums: dict[int, tuple[int, int]], wanted: int | None
    ) -> None:
        end, found = _united(sums)
        if wanted is not None and end != targets.end:
            detail = f"of {targets.end} bytes could not be compared with its CRC32C: not all of it was read"
            raise checksum_error(uri, f"generation {generation} {detail}")
        check_crc32c(uri, generation, targets.end, wanted, found)


def _united(sums: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """How far they go on without a hole, and the CRC32C up to there."""
    end = found = 0
    for offset, (size, each) in sorted(sums.items()):
        if offset == end:
            found = _core.crc32c_combine(found, each, size)
            end += size
    return end, found


class _Targets(Protocol):
    """Where the bytes from `begin` to `end` of an object are to go."""

    begin: int
    end: int

    def copy(self, offset: int, address: int, size: int) -> None: ...


class _InOrder:
    """Ranges from an object's beginning on, filled one after the other. Invariant: `_memory` is that of the range which
    some, but not all bytes have come of."""

    def __init__(self, sizes: Sequence[int], begin: Callable[[int], Any], end: Callable[[int], None]):
        self._sizes = sizes
        self._begin, self._end = begin, end
        self._number = self._filled = self._at = 0
        self._memory: Any = None
        self.begin, self.end = 0, sum(sizes)

    def copy(self, offset: int, address: int, size: int) -> None:
        assert offset == self._at, "what comes in order"
        self._at += size
        while size:
            if self._memory is None:
                self._memory = self._begin(self._number)
            some = min(size, self._sizes[self._number] - self._filled)
            copy_to_new(_address(self._memory) + self._filled, address, some)
            address, size, self._filled = address + some, size - some, self._filled + some
            if self._filled == self._sizes[self._number]:
                self._memory = None
                self._end(self._number)
                self._number, self._filled = self._number + 1, 0


class _Ranges:
    """Ranges that lie behind each other, whose memory is there."""

    def __init__(self, table: array.array[int]):
        ranges = sorted(zip(table[0::3], table[1::3], table[2::3], strict=True))
        self._ranges = [each for each in ranges if each[1]]
        self.begin = self._ranges[0][0] if self._ranges else 0
        self.end = self.begin + sum(size for _, size, _ in self._ranges)
        self._at = 0  # in the ranges: the last one that was copied to

    def copy(self, offset: int, address: int, size: int) -> None:
        end = offset + size
        at = self._at if self._at < len(self._ranges) and self._ranges[self._at][0] <= offset else 0
        while at < len(self._ranges) and self._ranges[at][0] < end:
            begin, length, target = self._ranges[at]
            first, last = max(offset, begin), min(end, begin + length)
            if first < last:
                copy_to_new(target + first - begin, address + first - offset, last - first)
            self._at = at
            at += 1
