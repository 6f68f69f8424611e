"""One tensor as an archive that torch.load reads, around bytes that stay where they are.

torch.save writes a zip archive of stored (not compressed) records: a pickle that describes the
tensor, some small ones, and the elements. Here the archive is made in two pieces, the one before the
elements and the one behind them, so that those are sent from the tensor's own memory and read back
by their offset alone, a part of them too. Their CRC-32 is left 0, which torch.load does not look
at; ours is a CRC32C that stands in the checkpoint's metadata.
"""

from __future__ import annotations

import collections
import functools
import io
import math
import pickle
import struct
import zlib
from typing import Any

import torch

# Elements begin at a multiple of this, as torch.save has it.
ALIGNMENT = 64

_FOLDER = "archive/"
_ELEMENTS = _FOLDER + "data/0"
_ZIP64_FROM = 0xFFFFFFFF
_DATE = 1 << 5 | 1  # 1980-01-01

# What torch.save names a storage by; types that came later have no name and are told by their dtype.
_STORAGES = {
    torch.float64: torch.DoubleStorage,
    torch.float32: torch.FloatStorage,
    torch.float16: torch.HalfStorage,
    torch.bfloat16: torch.BFloat16Storage,
    torch.int64: torch.LongStorage,
    torch.int32: torch.IntStorage,
    torch.int16: torch.ShortStorage,
    torch.int8: torch.CharStorage,
    torch.uint8: torch.ByteStorage,
    torch.bool: torch.BoolStorage,
    torch.complex64: torch.ComplexFloatStorage,
    torch.complex128: torch.ComplexDoubleStorage,
}


class _Storage:
    """Stands for the storage in the pickle; with the count that torch.load wants of it."""

    def __init__(self, kind: type, count: int):
        self.kind = kind
        self.count = count


class _Tensor:
    """Pickles as the tensor."""

    def __init__(self, dtype: torch.dtype, shape: tuple[int, ...]):
        self.dtype = dtype
        self.shape = shape

    def __reduce__(self) -> tuple[Any, ...]:
        strides, count = [], 1
        for length in reversed(self.shape):
            strides.append(count)
            count *= max(length, 1)
        strides.reverse()
        count = 0 if 0 in self.shape else count
        kind = _STORAGES.get(self.dtype)
        rebuild: Any
        last: tuple
        if kind is None:
            storage = _Storage(torch.UntypedStorage, count * self.dtype.itemsize)
            rebuild, last = torch._utils._rebuild_tensor_v3, (self.dtype,)
        else:
            storage = _Storage(kind, count)
            rebuild, last = torch._utils._rebuild_tensor_v2, ()
        return rebuild, (storage, 0, self.shape, tuple(strides), False, collections.OrderedDict(), *last)


class _Pickler(pickle.Pickler):
    def persistent_id(self, thing: Any) -> Any:
        if isinstance(thing, _Storage):
            return ("storage", thing.kind, "0", "cpu", thing.count)
        return None


def _local_header(name: str, crc: int, size: int, extra: bytes) -> bytes:
    limited = min(size, _ZIP64_FROM)
    return (
        struct.pack("<IHHHHHIIIHH", 0x04034B50, 45, 0, 0, 0, _DATE, crc, limited, limited, len(name), len(extra))
        + name.encode()
        + extra
    )


def _zip64(size: int) -> bytes:
    return struct.pack("<HHQQ", 1, 16, size, size) if size >= _ZIP64_FROM else b""


def _central_header(name: str, crc: int, size: int, offset: int) -> bytes:
    limited = min(size, _ZIP64_FROM)
    extra = _zip64(size)
    return (
        struct.pack(
            "<IHHHHHHIIIHHHHHII",
            *(0x02014B50, 45, 45, 0, 0, 0, _DATE, crc, limited, limited),
            *(len(name), len(extra), 0, 0, 0, 0, offset),
        )
        + name.encode()
        + extra
    )


def _end(count: int, size: int, offset: int) -> bytes:
    found = b""
    if offset >= _ZIP64_FROM:
        where = offset + size
        found = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count, count, size, offset)
        found += struct.pack("<IIQI", 0x07064B50, 0, where, 1)
    return found + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, count, count, size, min(offset, _ZIP64_FROM), 0)


@functools.lru_cache(maxsize=1024)
def frame(dtype: torch.dtype, shape: tuple[int, ...]) -> tuple[bytes, bytes]:
    """What stands before and behind the elements of a contiguous tensor."""
    described = io.BytesIO()
    _Pickler(described, 2).dump(_Tensor(dtype, tuple(shape)))  # a torch.Size would be pickled as one
    size = dtype.itemsize * math.prod(shape)
    before, entries = b"", []
    for name, content in ("data.pkl", described.getvalue()), ("byteorder", b"little"), ("version", b"3\n"):
        crc = zlib.crc32(content)
        entries.append((_FOLDER + name, crc, len(content), len(before)))
        before += _local_header(_FOLDER + name, crc, len(content), b"") + content
    entries.append((_ELEMENTS, 0, size, len(before)))
    extra = _zip64(size)
    bare = len(before) + len(_local_header(_ELEMENTS, 0, size, extra)) + 4
    padding = -bare % ALIGNMENT
    extra += b"FB" + struct.pack("<H", padding) + b"Z" * padding
    before += _local_header(_ELEMENTS, 0, size, extra)
    central = b"".join(_central_header(*entry) for entry in entries)
    return before, central + _end(len(entries), len(central), len(before) + size)


@functools.lru_cache(maxsize=1024)
def is_frame_of(dtype: torch.dtype, shape: tuple[int, ...], before_size: int, size: int) -> bool:
    """Whether an archive of `size` bytes, of which that many stand before the elements, can be of such a tensor."""
    elements = dtype.itemsize * math.prod(shape)
    behind = len(frame(torch.uint8, ())[1]) + 20 * (elements >= _ZIP64_FROM)
    behind += 76 * (before_size + elements >= _ZIP64_FROM)
    return before_size % ALIGNMENT == 0 and size == before_size + elements + behind
