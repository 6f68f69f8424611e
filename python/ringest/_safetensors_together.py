"""A file that all ranks of a process group have open: what safetensors.safe_open reads by where it has a group.

A Gathering is made by all ranks at once, and every read is a call of all of them. A call has a meeting at which each
rank says whether it reads or goes, and how much it wants; so who reads learns that another rank has closed the file, or
has left its `with` by an exception. What fails within a call fails for all, and the file stays open.

An exchange may take longer than a small read. So a rank that wants little has read it by itself before the meeting, and if
all want little, or what all want is the same and not much, there is no more of it than that takes."""

from __future__ import annotations

import array
import enum
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch

from ringest import _core
from ringest._dcp_ranges import File, Range, bytes_of
from ringest._dcp_together import read_together
from ringest._errors import GroupError, checksum_error
from ringest._exchange import number_of
from ringest._together import GIVEN_BYTES
from ringest._together_object import OwnObject, TogetherObject

if TYPE_CHECKING:
    from ringest._together import Team, Told
    from ringest.client import Client
    from ringest.safetensors import _File as OpenFile

# What a rank that reads by itself reads at a time at least, bytes.
ALONE_SIZE = 64 << 20
# In front of what the first rank gives.
_CRC = struct.Struct("=I")
# In place of a size: what the rank wants, or has read, could not be had.
_FAILED_SIZE = -1

Result = TypeVar("Result")
# Adds to a File the ranges that are wanted; what it returns makes the result of them when all have come.
Want = Callable[[File], Callable[[], Result]]


class _Says(enum.IntEnum):
    """What a rank does in place of reading."""

    CLOSES = 0
    FAILED = 1


class _State(enum.Enum):
    OPEN = enum.auto()
    CLOSED = enum.auto()  # by this rank
    LEFT = enum.auto()  # by another rank
    LOST = enum.auto()  # a rank is gone, or this one was interrupted: nobody can be told any more


class Gathering:
    """Invariant: while it is OPEN, all ranks are, and have made as many calls, or are about to."""

    def __init__(self, team: Team, file: OpenFile, alone_max: int):
        """alone_max: up to so many bytes of a call each rank reads by itself, even what others want, too."""
        assert not isinstance(file.client, OwnObject | TogetherObject)
        self._team = team
        self._client: Client = file.client
        self._uri = file.uri
        self._generation = file.generation
        self._content = file.content
        self._alone_max = alone_max
        self._are_alike = False  # all ranks wanted the same in the last call for more than a little; all of them know
        self._state = _State.OPEN
        self._why = ""  # nobody reads any more

    def _change(self, state: _State) -> None:
        assert state is _State.CLOSED or self._state is _State.OPEN
        self._state = state

    def read(self, want: Want[Result]) -> Result:
        with self._team.turn():
            return self._read_in_turn(want)

    def _read_in_turn(self, want: Want[Result]) -> Result:
        if self._state is _State.CLOSED:
            raise ValueError("the file is closed")
        if self._state is not _State.OPEN:
            raise GroupError(self._why)
        file, failure, end = File(self._uri), None, None
        size, is_done, result, given = _FAILED_SIZE, False, None, bytearray()
        # The first rank reads so much that most likely all want before the ranks meet, and gives it at the meeting.
        ahead_max = GIVEN_BYTES if self._are_alike and self._team.is_near() else 0
        try:
            try:
                end = want(file)
                file.ranges = [each for each in file.ranges if each.size]
                size = sum(each.size for each in file.ranges)
                is_small = self._content is not None or size <= self._alone_max
                is_done = is_small or (self._team.rank == 0 and size <= ahead_max)
                if is_done:
                    given = self._read_here(file, is_given=not is_small)
                    result = end()
                    size = 0 if is_small else size
            except Exception as error:
                failure, size = error, _FAILED_SIZE
            sizes, is_same, came = self._begin(size, file, given, ahead_max)
            if sizes.least == _FAILED_SIZE:
                self._team.meet(failure)
            if sizes.is_all(0):
                return cast(Result, result)
            self._are_alike = is_same
            with self._team:
                if came and not is_done:
                    self._fill(file, came)
                elif not came and is_same and sizes.most <= GIVEN_BYTES:
                    self._read_given(file)
                elif not came:
                    # Who has its own takes part, because others read together.
                    self._read(File(self._uri) if is_done else file, is_same)
                if not is_done:
                    assert end is not None  # else it has failed, and all have raised
                    result = end()
                return cast(Result, result)
        except BaseException as error:
            is_open = self._state is _State.OPEN
            if is_open and (self._team.is_lost or not isinstance(error, Exception)):
                self._leave(
                    _State.LOST, str(error) or f"{self._uri}: a call that reads it was interrupted; open it again"
                )
                self._team.abandon()
            raise

    def close(self, has_failed: bool) -> None:
        """Waits for the other ranks, which read or close it."""
        is_open = self._state is _State.OPEN
        self._change(_State.CLOSED)
        if is_open:
            try:
                said = _Says.FAILED if has_failed else _Says.CLOSES
                self._team.tell(len(_Says) * self._team.rank + said)
            except GroupError:
                pass  # this rank has what it wanted

    def abandon(self) -> None:
        """As close, of a rank that is interrupted: the others find that it is gone."""
        self._change(_State.CLOSED)
        self._team.abandon()

    def _leave(self, state: _State, why: str) -> None:
        self._change(state)
        self._why = why

    def _begin(self, size: int, file: File, given: bytearray, ahead_max: int) -> tuple[Told, bool, bytearray]:
        """size: of what this rank still wants, or _FAILED_SIZE. Those of all ranks, whether they want the same, and that,
        where the first rank has read it before."""
        # Who does not come to be given the same says something else.
        asked = ahead_max, [(each.offset, each.size) for each in file.ranges]
        what = number_of(repr(asked)) if size > 0 else 0
        ranks = self._team.size

        def given_size(told: list[Told]) -> int:
            said, sizes, same = told
            is_given = said.is_all(len(_Says) * ranks) and sizes.is_same() and same.is_same()
            return _CRC.size + sizes.most if is_given and self._alone_max < sizes.most <= ahead_max else 0

        (said, sizes, same), came = self._team.tell_given(given, given_size, len(_Says) * ranks, size, what)
        if not said.is_all(len(_Says) * ranks):
            rank, how = divmod(said.least, len(_Says))
            text = "has failed, and tells itself of what" if how == _Says.FAILED else "has closed it"
            advice = "Every rank makes the same number of reads, and closes the file after the last"
            self._leave(_State.LEFT, f"{self._uri}: rank {rank} {text}, while rank {self._team.rank} reads. {advice}")
            raise GroupError(self._why)
        return sizes, sizes.is_same() and same.is_same(), came

    def _read_here(self, file: File, is_given: bool) -> bytearray:
        """Without others. is_given: gives what is given to the others."""
        if self._content is None:
            batch = [(each, each.memory()) for each in file.ranges]
            crc32c = self._read_batch(batch)
            return bytearray().join([_CRC.pack(crc32c), *(bytes_of(each) for _, each in batch)] if is_given else [])
        for each in file.ranges:
            memory = each.memory()
            target = bytes_of(memory)
            target[:] = self._content[each.offset : each.offset + each.size]
            _done(each, memory, _core.crc32c(target))
        return bytearray()

    def _read_given(self, file: File) -> None:
        """What all ranks want: one reads it, and gives it to the others."""

        def read(memory: memoryview) -> None:
            wanted, at = [], 0
            for each in file.ranges:
                wanted.append((each.offset, memory[at : at + each.size]))
                at += each.size
            self._client.get_into(self._uri, wanted, generation=self._generation)

        came, at = self._team.once_checked(sum(each.size for each in file.ranges), read), 0
        for each in file.ranges:
            memory = each.memory()
            bytes_of(memory)[:] = came[at : at + each.size]
            _done(each, memory, _core.crc32c(came[at : at + each.size]))
            at += each.size

    def _fill(self, file: File, came: bytearray) -> None:
        """What the first rank has read."""
        (crc32c,), at, found = _CRC.unpack_from(came), _CRC.size, 0
        filled = []
        for each in file.ranges:
            memory = each.memory()
            target = bytes_of(memory)
            target[:] = memoryview(came)[at : at + each.size]
            filled.append((each, memory, _core.crc32c(target)))
            found = _core.crc32c_combine(found, filled[-1][2], each.size)
            at += each.size
        if found != crc32c:
            raise checksum_error(self._uri, f"{at - _CRC.size} bytes came from rank 0 other than it had read them")
        for each, memory, crc in filled:
            _done(each, memory, crc)

    def _read(self, file: File, is_same: bool) -> None:
        def read_ranges(uri: str, table: array.array[int]) -> tuple[int, list[int]]:
            options: Any = {"generation": self._generation, "gap_max": 1, "checksums": True}
            return self._client._get_into_addresses(uri, table, **options)

        def take(file: File, each: Range, memory: torch.Tensor, generation: int, crc32c: int) -> None:
            _done(each, memory, crc32c)

        for own in read_together(self._team, {self._uri: file}, read_ranges, take, is_same):
            self._read_alone(own.ranges)

    def _read_alone(self, ranges: list[Range]) -> None:
        """What no other rank wants."""
        batch: list[tuple[Range, torch.Tensor]] = []
        size = 0
        for each in ranges:
            batch.append((each, each.memory()))
            size += 0 if each.tensor is not None else each.size
            if size >= ALONE_SIZE:
                self._read_batch(batch)
                batch, size = [], 0
        self._read_batch(batch)

    def _read_batch(self, batch: list[tuple[Range, torch.Tensor]]) -> int:
        """The CRC32C of all."""
        found = 0
        if batch:
            wanted = [(each.offset, bytes_of(memory)) for each, memory in batch]
            _, sums = self._client.get_into(self._uri, wanted, generation=self._generation, checksums=True)
            for (each, memory), crc32c in zip(batch, sums, strict=True):
                found = _core.crc32c_combine(found, crc32c, each.size)
                _done(each, memory, crc32c)
        return found


def _done(each: Range, memory: torch.Tensor, crc32c: int) -> None:
    if each.done is not None:
        each.done(memory, crc32c)
