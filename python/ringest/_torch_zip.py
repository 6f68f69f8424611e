"""The file format of torch.save, so that tensors go between their own memory and the network.

A file is a ZIP whose entries are stored, not compressed: "archive/data.pkl" refers to the entries
"archive/data/KEY", each of which is the memory of one storage at an aligned offset. What is written here is
byte for byte what torch.save writes, but for the digits of archive/.data/serialization_id.

torch.serialization pickles and unpickles; it is given an object that takes and gives entries in place of
torch's own ZIP writer and reader.
"""

from __future__ import annotations

import array
import itertools
import struct
import sys
import zlib
from typing import TYPE_CHECKING, Any

from ringest._errors import CheckpointError, check_crc32c, checksum_error

if TYPE_CHECKING:
    import torch

    from ringest import _core
    from ringest._pace import PacedWriter
    from ringest._together_object import OwnObject, TogetherObject

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_LOCATOR = struct.Struct("<4sIQI")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_MAX_32 = 0xFFFFFFFF
_STORED = 0
# Flags of an entry: its name is UTF-8; its checksum and sizes stand behind its data.
_UTF_8, _SIZES_BEHIND = 0x0800, 0x0008
# torch says in the first extra field of an entry how much it is aligned by.
_PADDING_ID = b"FB"
_ZIP_64_ID = 1
# What is read of a file at first: its directory, with luck. More where the directory is larger.
TAIL_SIZE = 256 << 10


def torch_checksums() -> bool:
    """Whether torch is to compute checksums of entries."""
    import torch

    get = getattr(torch.serialization, "get_crc32_options", None)
    return get() if get is not None else True


def torch_alignment() -> int:
    import torch

    get = getattr(torch.serialization, "_get_storage_alignment", None)
    return get() if get is not None else 64


class ArchiveWriter:
    """What torch.serialization takes for its ZIP writer: entries go to a stream, storages from their memory."""

    def __init__(self, stream: _core.Writer | PacedWriter, checksums: bool, alignment: int):
        self._stream = stream
        self._checksums = checksums
        self._alignment = alignment
        self._at = 0
        self._pending = bytearray()  # small things that come before the next storage
        self._directory: list[bytes] = []
        self._sum = self._names = 0
        self.has_empty_storage = False

    def write_record(self, name: str, data: Any, size: int) -> None:
        path = f"archive/{name}".encode()
        at = self._at
        extra_64 = b""
        if size >= _MAX_32 or at >= _MAX_32:
            large = ([size, size] if size >= _MAX_32 else []) + ([at] if at >= _MAX_32 else [])
            extra_64 = struct.pack(f"<2H{len(large)}Q", _ZIP_64_ID, 8 * len(large), *large)
        begin = at + _LOCAL.size + len(path) + 4 + len(extra_64)
        padding = -begin % self._alignment
        # At its beginning, an entry does not know its compressed size yet.
        extra_local = extra_64[:12] + bytes(8) + extra_64[20:] if size >= _MAX_32 else extra_64
        extra = extra_local + _PADDING_ID + struct.pack("<H", padding) + b"Z" * padding
        flags = _UTF_8 | (_SIZES_BEHIND if size else 0)
        pending = self._pending
        pending += _LOCAL.pack(b"PK\3\4", 0, flags, _STORED, 0, 0, 0, 0, 0, len(path), len(extra))
        pending += path
        pending += extra
        checksum = self._write_data(data, size)
        if size:
            form = "<4sIQQ" if extra_64 else "<4s3I"
            behind = struct.pack(form, b"PK\7\10", checksum, size, size)
            pending += behind
            self._at = begin + padding + size + len(behind)
        else:
            self._at = begin + padding
        entry_size = min(size, _MAX_32)
        self._directory.append(
            _CENTRAL.pack(
                b"PK\1\2", 0, 0, flags, _STORED, 0, 0, checksum, entry_size, entry_size,
                len(path), len(extra_64), 0, 0, 0, 0, min(at, _MAX_32),
            )
        )  # fmt: skip
        self._directory += (path, extra_64)
        self._names = zlib.crc32(path, self._names)
        self._sum = (self._sum * 31 + checksum) & 0xFFFFFFFFFFFFFFFF

    def _write_data(self, data: Any, size: int) -> int:
        if isinstance(data, str):
            data = data.encode()
        if isinstance(data, (bytes, bytearray, memoryview)):
            self._pending += data
            return zlib.crc32(data) if self._checksums else 0
        if size == 0:
            self.has_empty_storage = True
            return 0
        self._stream.write(self._pending)
        self._pending.clear()
        return self._stream._write_address(data.data_ptr(), size, data, self._checksums)

    def write_record_metadata(self, name: str, size: int) -> None:
        raise NotImplementedError("torch.serialization.skip_data while saving to an object, which cannot have holes")

    def finish(self) -> None:
        """Writes what comes behind the entries; the stream is the caller's to finish."""
        self.write_record("version", b"3\n", 2)
        self.write_record(".data/serialization_id", b"%020d%020d" % (self._names, self._sum % 10**20), 40)
        begin = self._at
        directory = b"".join(self._directory)
        count, size = len(self._directory) // 3, len(directory)
        self._pending += directory
        self._pending += _END_64.pack(b"PK\6\6", 44, 0x031E, 45, 0, 0, count, count, size, begin)
        self._pending += _LOCATOR.pack(b"PK\6\7", 0, begin + size, 1)
        self._pending += _END.pack(
            b"PK\5\6", 0, 0, min(count, 0xFFFF), min(count, 0xFFFF), min(size, _MAX_32), min(begin, _MAX_32), 0
        )
        self._stream.write(self._pending)
        self._pending.clear()


class _Entry:
    __slots__ = ("name", "header", "begin", "size")

    def __init__(self, name: str, header: int, begin: int, size: int):
        self.name = name
        self.header = header
        self.begin = begin
        self.size = size


class _Filled:
    """As much of a tensor as torch asks for, of a storage."""

    __slots__ = ("_untyped_storage",)

    def __init__(self, storage: torch.UntypedStorage):
        self._untyped_storage = storage

    def _typed_storage(self) -> _Filled:
        return self


class Foreign(Exception):
    """A file that torch may know how to read, but that is not laid out as torch.save does it."""


class ArchiveReader:
    """What torch.serialization takes for its ZIP reader, with all storages read at once.

    Opening it reads the whole object: storages into memory that will be the tensors', and everything else
    into one piece of memory.
    """

    def __init__(
        self,
        client: _core.Client | OwnObject | TogetherObject,
        uri: str,
        facts: dict[str, Any],
        verify: bool,
        device: torch.device | None = None,
    ):
        """facts: of the generation that is read. verify: what is read must be compared with the object's CRC32C.
        device: of the storages, one with streams; None: the CPU. Ranks that load together have none."""
        self.device = device
        self._client = client
        self._uri = uri
        self.generation: int = facts["generation"]
        self._crc32c = facts["crc32c"]
        self._verify = verify
        self._entries: dict[str, _Entry] = {}
        self._storages: dict[str, torch.UntypedStorage] = {}
        self._small: dict[str, bytes] = {}
        self._read_first = bytearray()  # the directory, and what is behind it
        self._content: bytearray | None = None  # all of an object that came with its directory
        directory_begin, entries = self._read_directory(facts["size"])
        self._read_all(facts["size"], directory_begin, entries)

    def _damaged(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self._uri} (generation {self.generation}) is damaged: {what}; load an older checkpoint"
        )

    def _read(self, begin: int, end: int) -> bytearray:
        data = bytearray(end - begin)
        self._client.get_into(self._uri, [(begin, data)], generation=self.generation)
        return data

    def _read_directory(self, size: int) -> tuple[int, list[_Entry]]:
        """Where the directory begins, and the entries in the order in which they lie."""
        if size < _END.size:
            raise Foreign
        tail_begin = max(0, size - TAIL_SIZE)
        tail = self._read(tail_begin, size)
        if tail_begin == 0 and self.device is None:
            self._content = tail[:]
        end = tail.rfind(b"PK\5\6")
        if end < 0 or end + _END.size > len(tail):
            raise Foreign
        _, _, _, _, count, directory_size, begin, _ = _END.unpack_from(tail, end)
        locator = end - _LOCATOR.size
        if locator >= 0 and tail[locator : locator + 4] == b"PK\6\7":
            end_64 = _LOCATOR.unpack_from(tail, locator)[2] - tail_begin
            if not 0 <= end_64 <= locator - _END_64.size or tail[end_64 : end_64 + 4] != b"PK\6\6":
                raise self._damaged("its end does not say where its directory is")
            count, directory_size, begin = _END_64.unpack_from(tail, end_64)[7:]
        if begin + directory_size > size:
            raise self._damaged(f"a directory that ends at byte {begin + directory_size} of {size}")
        if begin < tail_begin:
            tail = self._read(begin, tail_begin) + tail
        else:
            del tail[: begin - tail_begin]
        self._read_first = tail
        return begin, self._parse_directory(tail[:directory_size], count, begin)

    def _parse_directory(self, directory: bytearray, count: int, end: int) -> list[_Entry]:
        at = 0
        found = []
        for number in range(count):
            if at + _CENTRAL.size > len(directory):
                raise self._damaged(f"{count} entries are promised and {number} are listed")
            fields = _CENTRAL.unpack_from(directory, at)
            size, name_size, extra_size, header = fields[9], fields[10], fields[11], fields[16]
            at += _CENTRAL.size
            name = directory[at : at + name_size].decode(errors="replace")
            at += name_size
            if size == _MAX_32 or header == _MAX_32:
                size, header = self._parse_extra_64(directory[at : at + extra_size], size, header)
            at += extra_size + fields[12]
            if fields[4] != _STORED:
                raise Foreign
            found.append((header, name, size, bool(fields[3] & _SIZES_BEHIND)))
        found.sort()
        # An entry ends where the next one begins; so the sizes of local headers need not be known.
        entries = []
        for header, name, size, sizes_behind in reversed(found):
            behind = (24 if size >= _MAX_32 or header >= _MAX_32 else 16) if sizes_behind else 0
            begin = end - behind - size
            if begin < header + _LOCAL.size + len(name):
                raise self._damaged(f"entry {name} of {size} bytes lies over another one")
            entries.append(_Entry(name, header, begin, size))
            end = header
        if not entries or end != 0:
            raise Foreign
        entries.reverse()
        return entries

    @staticmethod
    def _parse_extra_64(extra: bytearray, size: int, header: int) -> tuple[int, int]:
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<2H", extra, at)
            if kind == _ZIP_64_ID:
                numbers = list(struct.unpack_from(f"<{length // 8}Q", extra, at + 4))
                if size == _MAX_32 and numbers:
                    size = numbers.pop(0)
                    numbers = numbers[1:]
                if header == _MAX_32 and numbers:
                    header = numbers.pop(0)
                break
            at += 4 + length
        return size, header

    def _read_all(self, size: int, directory_begin: int, entries: list[_Entry]) -> None:
        """One table of ranges that tile the object: storages, and what lies between them."""
        import torch

        prefix = entries[0].name.partition("/")[0]
        data = f"{prefix}/data/"
        skip = len(prefix) + 1
        storages: dict[str, torch.UntypedStorage] = {}
        gap_begin = 0
        gaps = []
        for entry in entries:
            name = entry.name
            self._entries[name[skip:]] = entry
            if not name.startswith(data) or entry.size == 0:
                continue
            storages[name[skip:]] = torch.UntypedStorage(entry.size, device=self.device)
            gaps.append((gap_begin, entry.begin - gap_begin))
            gap_begin = entry.begin + entry.size
        gaps.append((gap_begin, size - gap_begin))
        between = bytearray(sum(length for _, length in gaps))
        if self.device is None:
            self._fill(list(storages.values()), gaps, between)
        else:
            self._fill_staged(list(storages.values()), gaps, between, size)
        if between[len(between) - len(self._read_first) :] != self._read_first:
            # One of the two was damaged on its way; where they were compared with the CRC32C, it was this one.
            raise checksum_error(
                self._uri, f"the directory of generation {self.generation} was read twice, and differs"
            )
        self._storages = storages
        self._keep_small(between, gaps, entries, skip)

    def _fill(self, storages: list[torch.UntypedStorage], gaps: list[tuple[int, int]], between: bytearray) -> None:
        """Each storage lies behind the gap of its number, and one gap is left."""
        table = array.array("Q")
        address = _address(between)
        for (begin, length), storage in itertools.zip_longest(gaps, storages):
            table.extend((begin, length, address))
            address += length
            if storage is not None:
                table.extend((begin + length, storage.nbytes(), storage.data_ptr()))
        if self._content is not None:
            self._copy(self._content, table)
            return
        self._client._get_into_addresses(
            self._uri,
            table,
            generation=self.generation,
            verify=self._verify,
            whole=self._verify,
            crc32c=self._crc32c,
        )

    def _copy(self, content: bytearray, table: array.array[int]) -> None:
        """The same, of what has come."""
        import ctypes

        from ringest import _core

        if self._verify:
            check_crc32c(self._uri, self.generation, len(content), self._crc32c, _core.crc32c(content))
        source = _address(content)
        for offset, size, address in zip(table[0::3], table[1::3], table[2::3], strict=True):
            ctypes.memmove(address, source + offset, size)

    def _fill_staged(
        self, storages: list[torch.UntypedStorage], gaps: list[tuple[int, int]], between: bytearray, size: int
    ) -> None:
        from ringest import _core, _staging

        assert self.device is not None and isinstance(self._client, _core.Client)
        targets: list[_staging.Target] = []
        at = 0
        for (_, length), storage in itertools.zip_longest(gaps, storages):
            targets.append(memoryview(between)[at : at + length])
            at += length
            if storage is not None:
                targets.append(_staging.bytes_in(storage))
        found = _staging.read(self._client, self._uri, self.generation, 0, targets, self.device)
        if self._verify:
            check_crc32c(self._uri, self.generation, size, self._crc32c, found)

    def _keep_small(self, between: bytearray, gaps: list[tuple[int, int]], entries: list[_Entry], skip: int) -> None:
        """Takes the other entries out of what was read, and looks whether all lie where they were thought to."""
        gap, offset = 0, 0
        unpack = _LOCAL.unpack_from
        for entry in entries:
            begin, length = gaps[gap]
            while entry.header >= begin + length:
                offset += length
                gap += 1
                begin, length = gaps[gap]
            at = offset + entry.header - begin
            fields = unpack(between, at)
            if fields[0] != b"PK\3\4":
                raise self._damaged(f"entry {entry.name} does not begin at byte {entry.header}")
            if entry.header + _LOCAL.size + fields[9] + fields[10] != entry.begin:
                raise Foreign
            name = entry.name[skip:]
            if name not in self._storages:
                at += entry.begin - entry.header
                self._small[name] = bytes(between[at : at + entry.size])

    def has_record(self, name: str) -> bool:
        return name in self._entries

    def get_record(self, name: str) -> bytes:
        if name not in self._small:
            raise self._damaged(f"it has no entry {name}")
        return self._small[name]

    def get_storage_from_record(self, name: str, size: int, kind: Any) -> _Filled:
        import torch

        storage = self._storages.get(name)
        if storage is None:
            if name not in self._entries:
                raise self._damaged(f"it has no entry {name}")
            storage = self._storages[name] = torch.UntypedStorage(0, device=self.device)
        if storage.nbytes() != size:
            raise self._damaged(f"entry {name} has {storage.nbytes()} bytes in place of {size}")
        # Where the bytes of numbers are to be swapped, which torch does on the CPU.
        return _Filled(storage if self.is_native() else storage.cpu())

    def check_storages(self) -> None:
        """After unpickling. A storage is made larger where a tensor is said to have more elements than it holds, and those
        would be whatever that memory held before."""
        for name, storage in self._storages.items():
            size, needed = self._entries[name].size, storage.nbytes()
            if needed != size:
                why = " (a tensor whose memory was freed before it was saved)" if size == 0 else ""
                raise self._damaged(f"entry {name} has {size} bytes, and a tensor of it needs {needed}{why}")

    def is_native(self) -> bool:
        """Whether numbers have the byte order of this processor."""
        return self._small.get("byteorder", b"little").decode(errors="replace") == sys.byteorder

    def serialization_id(self) -> str:
        return self._small.get(".data/serialization_id", b"").decode(errors="replace")


def _address(memory: bytearray) -> int:
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(memory)) if memory else 0
