"""One object, read by all ranks of a process group as if each had a client of its own: what checkpoint.load and
safetensors.load_file use in place of a client where they have a group.

All ranks make the same calls. Each byte comes once; bytes that an earlier call has read do not come again."""

from __future__ import annotations

import array
import ctypes
import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ringest import _core
from ringest._errors import check_crc32c, checksum_error
from ringest._together import GIVEN_BYTES, Piece, Team, Want, copy_to_new, piece_bytes

_FACTS = ("size", "generation", "crc32c")


class _Known(NamedTuple):
    """Bytes that came earlier."""

    offset: int
    data: bytearray
    crc32c: int


def _address(memory: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory)) if len(memory) else 0


class TogetherObject:
    """stat, get_into and _get_into_addresses of a client, for one object."""

    def __init__(self, team: Team, client: _core.Client):
        self._team = team
        self._client = client
        self._known: dict[int, list[_Known]] = {}  # by generation

    def stat(self, uri: str, *, generation: int = 0) -> dict[str, Any]:
        def ask() -> bytes:
            facts = self._client.stat(uri, generation=generation)
            return json.dumps({name: facts[name] for name in _FACTS}).encode()

        return json.loads(self._team.once(ask))

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
        if len(requests) == 1:
            ((offset, memory),) = requests
            self._known.setdefault(generation, []).append(_Known(offset, bytearray(memory), sums[0]))
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
        known = [each for each in self._known.get(generation, []) if targets.begin <= each.offset < targets.end]
        sums: dict[int, tuple[int, int]] = {}
        for each in sorted(known):
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

        pieces = self._pieces(targets, known)
        if sum(each.size for each in pieces) <= GIVEN_BYTES:
            self._read_given(uri, pieces, generation, take)
        else:
            self._team.read(pieces, read, take)
        return sums

    def _read_given(
        self, uri: str, pieces: list[Piece], generation: int, take: Callable[[Piece, int, int, int], None]
    ) -> None:
        """One rank reads it, and gives it to the others."""
        if not pieces:
            return

        def ask() -> bytearray:
            came, wanted = bytearray(sum(each.size for each in pieces)), []
            view, at = memoryview(came), 0
            for each in pieces:
                wanted.append((each.offset, view[at : at + each.size]))
                at += each.size
            self._client.get_into(uri, wanted, generation=generation)
            return came

        came, at = bytearray(self._team.once_checked(ask)), 0
        for each in pieces:
            data = memoryview(came)[at : at + each.size]
            take(each, _address(data), generation, _core.crc32c(data))
            at += each.size

    def _pieces(self, targets: _Targets, known: list[_Known]) -> list[Piece]:
        """All but what is known, dealt to the ranks in turn."""
        all_ranks = frozenset(range(self._team.size))
        size = piece_bytes(self._team.size)
        holes, end = [], targets.begin
        for each in sorted(known):
            holes.append((end, each.offset))
            end = each.offset + len(each.data)
        holes.append((end, targets.end))
        owners = itertools.cycle(range(self._team.size))
        return [
            Piece(0, begin, min(size, stop - begin), next(owners), all_ranks)
            for start, stop in holes
            for begin in range(start, stop, size)
        ]

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
