"""What ranks want of the objects of a checkpoint in common, and reading that together.

All ranks know what all of them want, and each makes the same list of pieces of it. An object of which no two ranks want
the same byte is left to each of them."""

from __future__ import annotations

import array
import ctypes
import itertools
import json
import struct
from collections.abc import Callable, Iterable, Iterator

import torch

from ringest import _core
from ringest._dcp_ranges import File, Range, bytes_of
from ringest._errors import checksum_error
from ringest._exchange import number_of
from ringest._together import Piece, Team, Want

# Reads ranges of one object, given as (offset, size, address) each; gives their generation and CRC32Cs.
ReadRanges = Callable[[str, "array.array[int]"], tuple[int, list[int]]]
# Takes a range that has come, its memory, the generation and the CRC32C.
TakeRange = Callable[[File, Range, torch.Tensor, int, int], None]


# In front of what is given, of each range: its generation and its CRC32C.
_HEAD = struct.Struct("=qI")


class _Class:
    """Ranks that want the same of an object."""

    def __init__(self, ranks: list[int], numbers: tuple[int, ...]):
        self.ranks = frozenset(ranks)
        self.ranges = list(zip(numbers[0::2], numbers[1::2], strict=True))  # begin and end of each


def _wanted(team: Team, files: dict[str, File], is_alike: bool) -> dict[str, list[_Class]]:
    """What all ranks want, by the URI of an object."""
    mine = {
        uri: [number for each in file.ranges if each.size for number in (each.offset, each.offset + each.size)]
        for uri, file in files.items()
    }
    if is_alike:
        every = list(range(team.size))
        return {uri: [_Class(every, tuple(numbers))] for uri, numbers in sorted(mine.items()) if numbers}
    told = team.gather_bytes(json.dumps(mine).encode())
    # Most often all ranks, or all of a kind, want the same.
    alike: dict[bytes, list[int]] = {}
    for rank, each in enumerate(told):
        alike.setdefault(each, []).append(rank)
    found: dict[str, dict[tuple[int, ...], list[int]]] = {}
    for each, ranks in alike.items():
        for uri, numbers in json.loads(each).items():
            if numbers:
                found.setdefault(uri, {}).setdefault(tuple(numbers), []).extend(ranks)
    return {uri: [_Class(ranks, numbers) for numbers, ranks in sorted(found[uri].items())] for uri in sorted(found)}


def _segments(classes: list[_Class]) -> Iterator[tuple[int, int, frozenset[int]]]:
    """Begin and end of what the same ranks want, and these ranks."""
    begins = [(begin, number, 1) for number, each in enumerate(classes) for begin, _ in each.ranges]
    ends = [(end, number, -1) for number, each in enumerate(classes) for _, end in each.ranges]
    events = sorted(begins + ends)
    depth = [0] * len(classes)
    ranks_of: dict[tuple[int, ...], frozenset[int]] = {}
    begin = 0
    for at, group in itertools.groupby(events, key=lambda event: event[0]):
        active = tuple(number for number, each in enumerate(depth) if each)
        if active:
            if active not in ranks_of:
                ranks_of[active] = frozenset().union(*(classes[number].ranks for number in active))
            yield begin, at, ranks_of[active]
        for _, number, step in group:
            depth[number] += step
        begin = at


def _pieces(segments: Iterable[tuple[int, int, int, frozenset[int]]], size: int) -> Iterator[Piece]:
    """Cuts segments, (file, begin, end, ranks). Neighbours have one owner until they are as large as a piece, so that
    one request reads them."""
    owners: dict[frozenset[int], Iterator[int]] = {}
    last: tuple[int, frozenset[int]] | None = None
    owner = run = 0
    for file, begin, end, ranks in segments:
        for at in range(begin, end, size):
            length = min(size, end - at)
            if last != (file, ranks) or run + length > size:
                last, run = (file, ranks), 0
                if ranks not in owners:
                    owners[ranks] = itertools.cycle(sorted(ranks))
                owner = next(owners[ranks])
            run += length
            yield Piece(file, at, length, owner, ranks)


class _Filling:
    """A range, of which pieces come in order."""

    def __init__(self, wanted: Range):
        self.wanted = wanted
        self.memory = wanted.memory()
        self.size = self.crc32c = 0

    def add(self, piece: Piece, address: int, crc32c: int) -> bool:
        """Whether all of it has come."""
        assert piece.offset == self.wanted.offset + self.size
        ctypes.memmove(self.memory.data_ptr() + self.size, address, piece.size)
        self.crc32c = _core.crc32c_combine(self.crc32c, crc32c, piece.size) if self.size else crc32c
        self.size += piece.size
        return self.size == self.wanted.size


class _Incoming:
    """The ranges of an object that this rank wants, while pieces of it come. Invariant: those that are open have begun
    to come, and have not ended."""

    def __init__(self, file: File):
        self.file = file
        self._waiting = sorted((each for each in file.ranges if each.size), key=lambda each: each.offset, reverse=True)
        self._open: list[_Filling] = []

    def add(self, piece: Piece, address: int, generation: int, crc32c: int, take: TakeRange) -> None:
        while self._waiting and self._waiting[-1].offset <= piece.offset:
            self._open.append(_Filling(self._waiting.pop()))
        whole = [each for each in self._open if each.add(piece, address, crc32c)]
        self._open = [each for each in self._open if each not in whole]
        for each in whole:
            take(self.file, each.wanted, each.memory, generation, each.crc32c)


def read_together(
    team: Team, files: dict[str, File], read_ranges: ReadRanges, take: TakeRange, is_alike: bool
) -> list[File]:
    """Reads what of these objects several ranks want. Returns those of which no other rank wants the same byte; of them
    nothing was read. is_alike: all ranks want the same; all of them know."""
    wanted = _wanted(team, files, is_alike)
    uris = list(wanted)
    segments = []
    common = set()
    for number, uri in enumerate(uris):
        found = list(_segments(wanted[uri]))
        if any(len(ranks) > 1 for _, _, ranks in found):
            common.add(uri)
            segments += [(number, *each) for each in found]
    incoming = {number: _Incoming(files[uri]) for number, uri in enumerate(uris) if uri in common and uri in files}

    def read(wants: list[Want]) -> list[tuple[int, int]]:
        came: list[tuple[int, int]] = []
        for number, group in itertools.groupby(wants, key=lambda want: want.piece.file):
            table = array.array("Q")
            for piece, address in group:
                table.extend((piece.offset, piece.size, address))
            generation, checksums = read_ranges(uris[number], table)
            came += [(generation, each) for each in checksums]
        return came

    def see(piece: Piece, address: int, generation: int, crc32c: int) -> None:
        incoming[piece.file].add(piece, address, generation, crc32c, take)

    team.read(lambda size: _pieces(segments, size), read, see)
    return [file for uri, file in files.items() if uri not in common]


def _ranges(files: dict[str, File]) -> list[tuple[File, Range]]:
    """In an order that is the same for all ranks that want the same."""
    found = [(file, each) for _, file in sorted(files.items()) for each in file.ranges if each.size]
    return sorted(found, key=lambda pair: (pair[0].uri, pair[1].offset, pair[1].size))


def wanted_number(files: dict[str, File], ahead_max: int) -> int:
    """The same where the same is wanted, and as much at most given."""
    return number_of(repr((ahead_max, [(file.uri, each.offset, each.size) for file, each in _ranges(files)])))


class Given:
    """Ranges that one rank has read and gives to others, which want the same: the generation and the CRC32C of each, and
    behind all of these their bytes."""

    def __init__(self, files: dict[str, File]):
        self._wanted = _ranges(files)
        self.size = sum(_HEAD.size + each.size for _, each in self._wanted)
        self._came: dict[tuple[str, int, int], tuple[bytes, bytes]] = {}

    def note(self, file: File, each: Range, memory: torch.Tensor, generation: int, crc32c: int) -> None:
        """Of the rank that reads them."""
        key = file.uri, each.offset, each.size
        self._came[key] = _HEAD.pack(generation, crc32c), bytes(bytes_of(memory))

    def packed(self) -> bytearray:
        """When all have come."""
        came = [self._came[file.uri, each.offset, each.size] for file, each in self._wanted]
        return bytearray().join([head for head, _ in came] + [data for _, data in came])

    def take(self, packed: bytearray, take: TakeRange) -> None:
        """Of the others."""
        at, data = _HEAD.size * len(self._wanted), memoryview(packed)
        for number, (file, each) in enumerate(self._wanted):
            generation, crc32c = _HEAD.unpack_from(packed, _HEAD.size * number)
            memory = each.memory()
            bytes_of(memory)[:] = data[at : at + each.size]
            if _core.crc32c(bytes_of(memory)) != crc32c:
                detail = (
                    f"bytes {each.offset} to {each.offset + each.size} came from rank 0 other than it had read them"
                )
                raise checksum_error(file.uri, detail)
            take(file, each, memory, generation, crc32c)
            at += each.size


def _generations(files: dict[str, File]) -> dict[str, int]:
    return {uri: file.generation for uri, file in sorted(files.items()) if file.generation}


def generations_number(files: dict[str, File]) -> int:
    """The same where the same generations of the same objects were read."""
    return number_of(repr(_generations(files)))


def same_generations(team: Team, files: dict[str, File]) -> bool:
    """Whether all ranks have read the same generation of each object."""
    seen: dict[str, int] = {}
    told = set(team.gather_bytes(json.dumps(_generations(files)).encode()))
    return all(seen.setdefault(uri, each) == each for one in told for uri, each in json.loads(one).items())
