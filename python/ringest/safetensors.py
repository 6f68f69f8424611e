"""Files of the safetensors format, straight between tensors and Cloud Storage.

    from ringest.safetensors import load_file, safe_open, save_file

    save_file(model.state_dict(), "gs://bucket/model.safetensors", metadata={"step": "100"})
    state = load_file("gs://bucket/model.safetensors")
    with safe_open("gs://bucket/model.safetensors") as file:
        rows = file.get_slice("embedding.weight")[rank * share : (rank + 1) * share]

What is saved here loads with the safetensors package, and what that saved loads here. A header is
checked as that package does: names are unique, tensors lie one behind the other without a hole, and
sizes agree. Needs PyTorch, not the package.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ringest import _core, _newest
from ringest._chosen import chosen
from ringest._errors import SafetensorError, checksum_error, crc32c_text, gzip_told, is_gzip
from ringest._needs import needs
from ringest._spans import spanned
from ringest._stages import Part, at
from ringest.client import Client

with needs(__name__, "torch"):
    import torch

    from ringest import _freed, _lane, _staging
    from ringest._dcp_ranges import bytes_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from ringest._dcp_ranges import File as Wanted
    from ringest._safetensors_together import Gathering
    from ringest._together_object import Loading, OwnObject, TogetherObject

T = TypeVar("T")

__all__ = ["SafetensorError", "load_file", "safe_open", "save_file"]

# The format's own limit on the JSON in front of the tensors, in bytes.
HEADER_SIZE_MAX = 100_000_000
# The first read; longer headers take a second one.
HEADER_SIZE_GUESS = 256 << 10
# Parts of a slice that are closer than this are read with what lies between: a request costs as much
# as so many bytes.
GAP_MAX = 64 << 10
# What does not come straight into its tensor, bytes at a time.
BLOCK_SIZE = 8 << 20
STAGED_SIZE = 64 << 20

_METADATA = "__metadata__"


class _Type(NamedTuple):
    """A type of the format. torch_name is None where PyTorch has no such type."""

    bits: int
    torch_name: str | None
    packed: int = 1  # how many elements of the format are one of PyTorch's


_TYPES = {
    "BOOL": _Type(8, "bool"),
    "F4": _Type(4, "float4_e2m1fn_x2", 2),
    "F6_E2M3": _Type(6, None),
    "F6_E3M2": _Type(6, None),
    "U8": _Type(8, "uint8"),
    "I8": _Type(8, "int8"),
    "F8_E5M2": _Type(8, "float8_e5m2"),
    "F8_E4M3": _Type(8, "float8_e4m3fn"),
    "F8_E5M2FNUZ": _Type(8, "float8_e5m2fnuz"),
    "F8_E4M3FNUZ": _Type(8, "float8_e4m3fnuz"),
    "F8_E8M0": _Type(8, "float8_e8m0fnu"),
    "I16": _Type(16, "int16"),
    "U16": _Type(16, "uint16"),
    "F16": _Type(16, "float16"),
    "BF16": _Type(16, "bfloat16"),
    "I32": _Type(32, "int32"),
    "U32": _Type(32, "uint32"),
    "F32": _Type(32, "float32"),
    "C64": _Type(64, "complex64"),
    "F64": _Type(64, "float64"),
    "I64": _Type(64, "int64"),
    "U64": _Type(64, "uint64"),
}
_NAMES = {
    getattr(torch, kind.torch_name): name
    for name, kind in _TYPES.items()
    if kind.torch_name is not None and hasattr(torch, kind.torch_name)
}
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class _Entry(NamedTuple):
    """A tensor of a file."""

    type_name: str
    shape: tuple[int, ...]  # as in the header
    offset: int  # in the file, bytes
    size: int  # bytes

    def torch_type(self, uri: str, name: str) -> torch.dtype:
        found = getattr(torch, _TYPES[self.type_name].torch_name or "", None)
        if found is None:
            raise SafetensorError(
                f"{uri}: {name} is of type {self.type_name}, which PyTorch {torch.__version__} has not"
            )
        return found

    def torch_shape(self) -> tuple[int, ...]:
        packed = _TYPES[self.type_name].packed
        return self.shape if packed == 1 else (*self.shape[:-1], self.shape[-1] // packed)


class _Header(NamedTuple):
    size: int  # bytes of the file in front of the tensors
    tensors: dict[str, _Entry]  # in the order of their places
    metadata: dict[str, str] | None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 64


def _entry_parse(described: Any, header_size: int) -> _Entry:
    """Raises ValueError."""
    if not isinstance(described, dict) or described.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError("is not described by dtype, shape and data_offsets")
    kind, shape, offsets = described["dtype"], described["shape"], described["data_offsets"]
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ValueError(f"is of the type {kind!r}, which is not known")
    if not isinstance(shape, list) or not all(map(_is_count, shape)):
        raise ValueError(f"has the shape {shape!r}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)):
        raise ValueError(f"has the offsets {offsets!r}")
    bits = math.prod(shape) * _TYPES[kind].bits
    if bits % 8 or bits // 8 != offsets[1] - offsets[0]:
        raise ValueError(
            f"has the shape {shape!r} of {kind}, which does not take the bytes {offsets[0]} to {offsets[1]}"
        )
    if shape and shape[-1] % _TYPES[kind].packed:
        raise ValueError(f"has the shape {shape!r}, whose last length is odd")
    return _Entry(kind, tuple(shape), header_size + offsets[0], offsets[1] - offsets[0])


def _metadata_parse(metadata: Any) -> dict[str, str] | None:
    if metadata is not None and (
        not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values())
    ):
        raise ValueError(f"{_METADATA} is not a map of strings")
    return metadata


def _header_parse(text: bytes, file_size: int) -> _Header:
    """The header that the JSON says. Raises ValueError."""
    if not text.startswith(b"{"):
        raise ValueError("its header does not begin with {")
    described = json.loads(text.decode(), object_pairs_hook=_without_repeats)
    metadata = _metadata_parse(described.pop(_METADATA, None))
    tensors = {}
    for name, each in described.items():
        try:
            tensors[name] = _entry_parse(each, 8 + len(text))
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
    in_order = dict(sorted(tensors.items(), key=lambda item: (item[1].offset, item[1].size)))
    end = 8 + len(text)
    for name, entry in in_order.items():
        if entry.offset != end:
            raise ValueError(f"{name} begins at byte {entry.offset}, the tensor in front of it ends at {end}")
        end += entry.size
    if end != file_size:
        raise ValueError(f"its tensors end at byte {end}, and the object has {file_size}")
    return _Header(8 + len(text), in_order, metadata)


class _File:
    """One generation of an object, and its header."""

    def __init__(self, client: Client | OwnObject | TogetherObject, uri: str, facts: dict[str, Any], counting: Client):
        """counting: the client whose metrics say how long its parts take."""
        self.uri = uri
        self.client = client
        self.counting = counting
        self.size = facts["size"]
        self.generation = facts["generation"]
        self.crc32c: int | None = facts["crc32c"]
        self.content: memoryview | None = None  # all of a file that the first read had
        self.head = b""
        try:
            self.header = self._read_header()
        except (ValueError, RecursionError) as error:
            if is_gzip(self.head):
                raise SafetensorError(f"{uri}: {gzip_told(uri)}") from error
            raise SafetensorError(f"{uri}: is damaged or not a safetensors file: {error}") from error

    def _read_header(self) -> _Header:
        if self.size < 8:
            raise ValueError(f"it has {self.size} bytes")
        first = bytearray(min(self.size, HEADER_SIZE_GUESS))
        self.read([(0, first)])
        self.head = bytes(first[:8])
        if len(first) == self.size:
            self.content = memoryview(first)
        size = int.from_bytes(first[:8], "little")
        if size > HEADER_SIZE_MAX:
            raise ValueError(f"its header would have {size} bytes, {HEADER_SIZE_MAX} are allowed")
        if 8 + size > self.size:
            raise ValueError(f"its header would end at byte {8 + size}, and the object has {self.size}")
        rest = bytearray(max(0, 8 + size - len(first)))
        self.read([(len(first), rest)])
        self.head = bytes(first[: 8 + size]) + rest
        return _header_parse(self.head[8:], self.size)

    def read(self, ranges: list[tuple[int, Any]]) -> list[int]:
        """The CRC32C of each."""
        ranges = [each for each in ranges if len(each[1])]
        if not ranges:
            return []
        if self.content is not None:
            for offset, memory in ranges:
                memory[:] = self.content[offset : offset + len(memory)]
            return [_core.crc32c(memory) for _, memory in ranges]
        return self.client.get_into(self.uri, ranges, generation=self.generation, checksums=True)[1]

    def entry(self, name: str) -> _Entry:
        if name not in self.header.tensors:
            raise SafetensorError(f"{self.uri}: has no tensor {name}")
        return self.header.tensors[name]

    def empty(self, name: str, device: torch.device | str = "cpu") -> torch.Tensor:
        """What a tensor is to be read into."""
        entry = self.entry(name)
        return torch.empty(entry.torch_shape(), dtype=entry.torch_type(self.uri, name), device=device)

    def is_staged(self, device: torch.device) -> bool:
        return self.content is None and _staging.is_staged(device)

    def _put(self, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        with at(Part.PLACE, self.counting):
            return tensor.to(device)

    def tensor(self, name: str, device: torch.device) -> torch.Tensor:
        with at(Part.READ, self.counting):
            return self._read_tensor(name, device)

    def _read_tensor(self, name: str, device: torch.device) -> torch.Tensor:
        if not self.is_staged(device):
            tensor = self.empty(name)
            self.read([(self.entry(name).offset, bytes_of(tensor))])
            return self._put(tensor, device)
        assert isinstance(self.client, Client)
        tensor = self.empty(name, device)
        targets = [_staging.bytes_of(tensor)]
        _staging.read(self.client, self.uri, self.generation, self.entry(name).offset, targets, device)
        return tensor

    def tensors(self, device: torch.device, verify: bool) -> dict[str, torch.Tensor]:
        """All of them."""
        told = self._told(verify)
        head = bytearray(self.header.size)
        read = self._read_staged if self.is_staged(device) else self._read_all
        with at(Part.READ, self.counting):
            found, crc = read(device, head)
        self._compare(told, crc, head)
        return found

    def _read_staged(self, device: torch.device, head: bytearray) -> tuple[dict[str, torch.Tensor], int]:
        """Through pieces that the device copies from, and the CRC32C."""
        assert isinstance(self.client, Client)
        found = {name: self.empty(name, device) for name in self.header.tensors}
        targets: list[_staging.Target] = [memoryview(head), *map(_staging.bytes_of, found.values())]
        return found, _staging.read(self.client, self.uri, self.generation, 0, targets, device)

    def _read_all(self, device: torch.device, head: bytearray) -> tuple[dict[str, torch.Tensor], int]:
        """On the CPU at once; elsewhere a part at a time, so that the CPU's memory holds no more than STAGED_SIZE and a
        tensor."""
        found: dict[str, torch.Tensor] = {}
        wanted: list[tuple[int, Any]] = [(0, head)]
        waiting: list[str] = []
        size = crc = 0
        for name, entry in self.header.tensors.items():
            found[name] = self.empty(name)
            wanted.append((entry.offset, bytes_of(found[name])))
            waiting.append(name)
            size += entry.size
            if device.type != "cpu" and size >= STAGED_SIZE:
                crc = self._move(found, wanted, waiting, device, crc)
                size = 0
        return found, self._move(found, wanted, waiting, device, crc)

    def tensors_together(self, client: TogetherObject, device: torch.device, verify: bool) -> dict[str, torch.Tensor]:
        """The same by all ranks of a group. They come in the order of the file, and each goes to its device when it is
        whole."""
        if self.content is not None:
            return self.tensors(device, verify)
        told = self._told(verify)
        names = [name for name, entry in self.header.tensors.items() if entry.size]
        found = {name: self.empty(name) for name, entry in self.header.tensors.items() if not entry.size}
        head = bytearray(self.header.size)

        def begin(number: int) -> Any:
            if number == 0:
                return head
            name = names[number - 1]
            found[name] = self.empty(name)
            return bytes_of(found[name])

        def end(number: int) -> None:
            if number:
                found[names[number - 1]] = self._put(found[names[number - 1]], device)

        sizes = [self.header.size, *(self.header.tensors[name].size for name in names)]
        with at(Part.READ, self.counting):
            crc = client.get_in_order(self.uri, sizes, begin, end, generation=self.generation)
        self._compare(told, crc, head)
        return {name: found[name].to(device) for name in self.header.tensors}

    def want(self, name: str, device: torch.device, wanted: Wanted, sums: list[tuple[int, int]]) -> list[torch.Tensor]:
        """Adds the bytes of a tensor to what a Gathering reads. The list holds the tensor when they have come, and `sums`
        then gets their number and CRC32C."""
        entry = self.entry(name)
        kind = entry.torch_type(self.uri, name)
        place = self.empty(name) if device.type == "cpu" or not entry.size else None
        found = [] if place is None else [place.to(device)]

        def done(memory: torch.Tensor, crc32c: int) -> None:
            sums.append((entry.size, crc32c))
            if not found:
                found.append(memory.view(kind).reshape(entry.torch_shape()).to(device))

        wanted.want(entry.offset, entry.size, place, done)
        return found

    def want_one(self, name: str, device: torch.device, wanted: Wanted) -> Callable[[], torch.Tensor]:
        found = self.want(name, device, wanted, [])
        return lambda: found[0]

    def want_all(self, device: torch.device, wanted: Wanted) -> Callable[[], dict[str, torch.Tensor]]:
        """The header is not read again: that of all ranks is compared."""
        told = self._told(verify=True)
        sums: list[tuple[int, int]] = []  # in the order of the file
        found = {name: self.want(name, device, wanted, sums) for name in self.header.tensors}

        def end() -> dict[str, torch.Tensor]:
            crc = _core.crc32c(self.head)
            for size, each in sums:
                crc = _core.crc32c_combine(crc, each, size)
            self._compare(told, crc, self.head)
            return {name: each for name, (each,) in found.items()}

        return end

    def _told(self, verify: bool) -> int | None:
        """What is to be compared with."""
        if verify and self.crc32c is None:
            raise checksum_error(self.uri, "cannot be compared with its CRC32C: the server does not tell it")
        return self.crc32c if verify else None

    def _compare(self, told: int | None, crc: int, head: bytes | bytearray) -> None:
        if told is not None and crc != told:
            raise checksum_error(
                self.uri,
                f"generation {self.generation} has the CRC32C {crc32c_text(told)}, what came has {crc32c_text(crc)}",
            )
        if head != self.head:
            raise checksum_error(self.uri, f"the header of generation {self.generation} was read twice, and differs")

    def _move(
        self, found: dict[str, torch.Tensor], wanted: list, waiting: list[str], device: torch.device, crc: int
    ) -> int:
        """The CRC32C of all that was read so far: the header and the tensors behind it leave no hole."""
        sizes = [len(memory) for _, memory in wanted if len(memory)]
        for size, each in zip(sizes, self.read(wanted)):
            crc = _core.crc32c_combine(crc, each, size)
        wanted.clear()
        for name in waiting:
            found[name] = self._put(found[name], device)
        waiting.clear()
        return crc


def _open(uri: str | os.PathLike[str], client: Client | None, generation: int, take: Callable[[_File], T]) -> T:
    """What `take` makes of the file."""
    text = os.fspath(uri)
    reader = chosen(client)
    with at(Part.LIST, reader):
        return _newest.read(reader, text, generation, lambda facts: take(_File(reader, text, facts, reader)))


@dataclasses.dataclass(slots=True)
class _Part:
    """A part of one dimension: `count` indices from `start` on, `step` apart."""

    start: int
    count: int
    step: int
    is_kept: bool  # False: an index, which takes the dimension away


def _parts(index: Any, shape: tuple[int, ...]) -> list[_Part]:
    """Integers, slices and one Ellipsis, as torch has them."""
    given = list(index) if isinstance(index, tuple) else [index]
    places = [i for i, each in enumerate(given) if each is Ellipsis]
    if len(places) > 1:
        raise IndexError("an index has at most one ...")
    if len(given) - len(places) > len(shape):
        raise IndexError(f"{len(given) - len(places)} indices for a tensor of {len(shape)} dimensions")
    missing = [slice(None)] * (len(shape) - len(given) + len(places))
    if places:
        given[places[0] : places[0] + 1] = missing
    else:
        given += missing
    parts = []
    for each, length in zip(given, shape):
        if isinstance(each, slice):
            start, stop, step = each.indices(length)
            if step < 1:
                raise ValueError("the step of a slice must be positive")
            parts.append(_Part(start, len(range(start, stop, step)), step, True))
        elif hasattr(each, "__index__") and not isinstance(each, bool):
            at = each.__index__()
            if not -length <= at < length:
                raise IndexError(f"{at} is beyond a dimension of {length}")
            parts.append(_Part(at % length, 1, 1, False))
        else:
            raise TypeError(f"an index is an integer, a slice or ..., not {each!r}")
    return parts


@dataclasses.dataclass(slots=True)
class _Block:
    """A part of a file that is read as a whole, and where what is wanted of it lies in the result."""

    offset: int  # in the tensor, elements
    count: int  # elements
    target: tuple[int | slice, ...]  # of the result
    strides: tuple[int, ...]  # of what is wanted in what is read, in elements


def _blocks(parts: list[_Part], shape: tuple[int, ...], itemsize: int) -> Iterator[_Block]:
    """Cuts a slice into blocks. From dimension `cover` on what lies between is read too."""
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    pitches = [part.step * stride for part, stride in zip(parts, strides)]
    spans = [1] * (len(shape) + 1)
    cover = len(shape)
    for d in reversed(range(len(shape))):
        spans[d] = (parts[d].count - 1) * pitches[d] + spans[d + 1]
        gap = pitches[d] - spans[d + 1]
        if cover == d + 1 and (parts[d].count == 1 or gap * itemsize <= GAP_MAX):
            cover = d
    base = sum(part.start * stride for part, stride in zip(parts, strides))
    rows = 1
    if cover < len(shape):
        rows = max(1, BLOCK_SIZE // max(1, pitches[cover] * itemsize))
    for outer in itertools.product(*(range(part.count) for part in parts[:cover])):
        begin = base + sum(i * pitch for i, pitch in zip(outer, pitches))
        if cover == len(shape):
            yield _Block(begin, 1, outer, ())
            continue
        for row in range(0, parts[cover].count, rows):
            count = min(rows, parts[cover].count - row)
            span = (count - 1) * pitches[cover] + spans[cover + 1]
            target: tuple[int | slice, ...] = (*outer, slice(row, row + count))
            yield _Block(begin + row * pitches[cover], span, target, tuple(pitches[cover:]))


def _copying(target: torch.Tensor, strides: tuple[int, ...]) -> Callable[[torch.Tensor, int], None]:
    """To be given the bytes of a block, and their CRC32C."""

    def done(memory: torch.Tensor, crc32c: int) -> None:
        target.copy_(memory.view(target.dtype).as_strided(target.shape, strides))

    return done


class _Slice:
    """A tensor of a file, of which an index reads a part: what safe_open.get_slice returns.

    Indices are integers, slices with a positive step, and one `...`; the result is a tensor of its own. Read is
    what is wanted, and what lies between parts that are less than 64 KiB apart. Of a file that a process group has open, an
    index is a call of all ranks, which may have different indices of different tensors; a name that is not there is told
    by that call."""

    def __init__(self, file: _File, name: str, device: torch.device, group: Gathering | None):
        self._file = file
        self._name = name
        self._device = device
        self._group = group
        if group is None:
            file.entry(name)

    @property
    def _entry(self) -> _Entry:
        return self._file.entry(self._name)

    def get_shape(self) -> list[int]:
        return list(self._entry.shape)

    def get_dtype(self) -> str:
        """In the format's own words: "F32", "BF16"."""
        return self._entry.type_name

    def __getitem__(self, index: Any) -> torch.Tensor:
        with at(Part.READ, self._file.counting):
            if self._group is not None:
                return self._group.read(lambda wanted: self._want(index, wanted))
            result, blocks, end = self._prepare(index)
            self._read(result, blocks)
            with at(Part.PLACE, self._file.counting):
                return end()

    def _prepare(self, index: Any) -> tuple[torch.Tensor, Iterator[_Block], Callable[[], torch.Tensor]]:
        """What is to be filled, the blocks that fill it, and what makes the result of it then."""
        entry = self._entry
        shape = entry.torch_shape()
        parts = _parts(index, shape)
        kind = entry.torch_type(self._file.uri, self._name)
        # PyTorch copies only some of the short types.
        result = torch.empty([part.count for part in parts], dtype=_INTEGERS[kind.itemsize], device="cpu")
        blocks = _blocks(parts, shape, result.itemsize) if result.numel() else iter(())
        kept = [part.count for part in parts if part.is_kept]
        return result, blocks, lambda: result.reshape(kept).view(kind).to(self._device)

    def _want(self, index: Any, wanted: Wanted) -> Callable[[], torch.Tensor]:
        """Adds the blocks to what a Gathering reads."""
        result, blocks, end = self._prepare(index)
        for block in blocks:
            target = result[block.target]
            offset = self._entry.offset + block.offset * result.itemsize
            if target.numel() == block.count:
                wanted.want(offset, target.nbytes, target, None)
            else:
                wanted.want(offset, block.count * result.itemsize, None, _copying(target, block.strides))
        return end

    def _read(self, result: torch.Tensor, blocks: Iterator[_Block]) -> None:
        wanted: list[tuple[int, memoryview]] = []
        staged: list[tuple[_Block, torch.Tensor]] = []
        size = 0
        for block in blocks:
            target = result[block.target]
            offset = self._entry.offset + block.offset * result.itemsize
            if target.numel() == block.count:
                wanted.append((offset, bytes_of(target)))
                continue
            between = torch.empty(block.count, dtype=result.dtype, device="cpu")
            wanted.append((offset, bytes_of(between)))
            staged.append((block, between))
            size += between.nbytes
            if size >= STAGED_SIZE:
                self._finish(result, wanted, staged)
                size = 0
        self._finish(result, wanted, staged)

    def _finish(self, result: torch.Tensor, wanted: list, staged: list) -> None:
        self._file.read(wanted)
        with at(Part.PLACE, self._file.counting):
            for block, between in staged:
                target = result[block.target]
                target.copy_(between.as_strided(target.shape, block.strides))
        wanted.clear()
        staged.clear()


def _check(framework: str, device: Any) -> torch.device:
    if framework not in ("pt", "torch", "pytorch"):
        raise ValueError(f"framework must be 'pt', got {framework!r}")
    return _lane.check_device(device)


class safe_open:
    """Opens a file and reads its header; tensors are read when they are asked for.

    uri: "gs://bucket/object". framework: "pt". device: where tensors go. client: a ringest.Client, by
    default the process's. generation: that is opened, 0: the newest one.

    All reads are of the generation that was opened: once it was replaced they raise NotFoundError. To a device that has
    streams, such as "cuda", tensors come through up to 256 MiB of pinned memory, which the device copies from while more
    is read. RuntimeError: there is no such device.
    Tensors have memory of their own and outlive the file. Any thread may use it. What is read in part
    has no checksum to be compared with; get_tensors and load_file compare.

    process_group: its ranks open the file together, with the same uri and generation. Then get_tensor, get_tensors,
    get_slice(...)[...] and close (the end of the `with`) are collective calls: every rank makes as many of them in the
    same order, one at a time, and each waits for the others. Ranks may ask for different tensors, or different parts, in
    the same call: each byte that any of them wants comes once from the bucket, and what several want is shared; but up to
    alone_max bytes of a call (by default 65,536) each rank reads by itself, which is faster. All ranks must have the same
    alone_max. One call for much is faster than many calls. All of a call return, or all raise what the first rank that failed raised, such as
    SafetensorError for a name that is not there; the file stays open then. A rank that closes it early, or leaves its
    `with` by an exception, ends it for the others: their next call raises ringest.checkpoint.GroupError, as where a rank
    is lost, after the group's timeout at the latest. So use the `with`, or close it in any case. keys, offset_keys,
    metadata and get_slice(...).get_shape need no other rank. Tensors go to the rank's own device, and there are no
    pieces of pinned memory.

    Raises SafetensorError for what is no such file, ringest.Error for what cannot be read.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        framework: str = "pt",
        device: Any = "cpu",
        *,
        client: Client | None = None,
        generation: int = 0,
        process_group: ProcessGroup | None = None,
        alone_max: int | None = None,
    ):
        self._group: Gathering | None = None
        self._opened: _File | None = None
        if process_group is not None:
            self._open_together(uri, framework, device, client, generation, process_group, alone_max)
            return
        self._device = _check(framework, device)
        self._opened = _open(uri, client, generation, lambda file: file)

    def _open_together(
        self,
        uri: str | os.PathLike[str],
        framework: str,
        device: Any,
        client: Client | None,
        generation: int,
        process_group: ProcessGroup,
        alone_max: int | None,
    ) -> None:
        with needs("ringest.safetensors.safe_open"):
            from ringest import _together, _together_object
            from ringest._safetensors_together import Gathering

        def begin() -> Loading[_File]:
            # What is wrong with the arguments of one rank is told to all of them.
            self._device, text, used = _check(framework, device), os.fspath(uri), chosen(client)

            def make(reader: OwnObject | TogetherObject) -> _File:
                file = _newest.read(reader, text, generation, lambda facts: _File(reader, text, facts, used))
                if file.content is None and isinstance(reader, _together_object.TogetherObject):
                    file.content = reader.content()
                file.client = used
                return file

            alone = _together.alone_checked(alone_max)
            return _together_object.Loading(used, text, generation, (), alone, make, HEADER_SIZE_GUESS)

        team, file = _together_object.load(process_group, str(uri), begin)
        self._opened = file
        self._group = Gathering(team, file, _together.alone_bytes(alone_max))

    @property
    def _file(self) -> _File:
        if self._opened is None:
            raise ValueError("the file is closed")
        return self._opened

    def keys(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._file.header.tensors)

    def offset_keys(self) -> list[str]:
        """Names of all tensors in the order of their places."""
        return list(self._file.header.tensors)

    def metadata(self) -> dict[str, str] | None:
        """What save_file was given as metadata."""
        return self._file.header.metadata

    def get_tensor(self, name: str) -> torch.Tensor:
        """With a process group, a call of all ranks."""
        file = self._file
        if self._group is not None:
            with at(Part.READ, file.counting):
                return self._group.read(lambda wanted: file.want_one(name, self._device, wanted))
        return file.tensor(name, self._device)

    def get_tensors(self) -> dict[str, torch.Tensor]:
        """All, by name; what came is compared with the object's CRC32C (ChecksumError). With a process group, a call of
        all ranks."""
        file = self._file
        if self._group is not None:
            with at(Part.READ, file.counting):
                return self._group.read(lambda wanted: file.want_all(self._device, wanted))
        return file.tensors(self._device, verify=True)

    def get_slice(self, name: str) -> _Slice:
        """A tensor to be read in part: get_slice(name)[10:20, :5]; see there for indices. With a process group, that
        index is a call of all ranks."""
        return _Slice(self._file, name, self._device, self._group)

    def close(self) -> None:
        """With a process group, it waits until all ranks close it, or read."""
        self._close(None)

    def _close(self, error: BaseException | None) -> None:
        was_open, self._opened = self._opened is not None, None
        if self._group is None or not was_open:
            return
        if error is None or isinstance(error, Exception):
            self._group.close(has_failed=error is not None)
        else:
            self._group.abandon()

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._close(error)


@spanned("ringest.safetensors.load_file")
def load_file(
    uri: str | os.PathLike[str],
    device: Any = "cpu",
    *,
    client: Client | None = None,
    generation: int = 0,
    verify: bool = True,
    process_group: ProcessGroup | None = None,
    alone_max: int | None = None,
) -> dict[str, torch.Tensor]:
    """All tensors of a file, by name. What came is compared with the object's CRC32C, and ringest.ChecksumError
    raised where it differs, or cannot be compared; not with verify=False. The rest is that of safe_open.

    process_group: its ranks load the file together, each byte once for all of them, as with ringest.checkpoint.load: every
    rank makes this call, with the same uri, generation and verify, and gets tensors of its own, on a device of its own.
    All return, or all raise: what the first rank that failed raised, or ringest.checkpoint.GroupError where a rank is
    lost. alone_max: as there."""
    if process_group is None:
        place = _lane.check_device(device)
        return _open(uri, client, generation, lambda file: file.tensors(place, verify))
    with needs("ringest.safetensors.load_file"):
        from ringest import _together, _together_object

    def begin() -> Loading[dict[str, torch.Tensor]]:
        # What is wrong with the arguments of one rank is told to all of them.
        place, text, used = _lane.check_device(device), os.fspath(uri), chosen(client)

        def make(reader: OwnObject | TogetherObject) -> dict[str, torch.Tensor]:
            def take(facts: dict[str, Any]) -> dict[str, torch.Tensor]:
                file = _File(reader, text, facts, used)
                if isinstance(reader, _together_object.TogetherObject):
                    return file.tensors_together(reader, place, verify)
                file.client = used
                return file.tensors(place, verify)

            return _newest.read(reader, text, generation, take)

        return _together_object.Loading(used, text, generation, (verify,), _together.alone_checked(alone_max), make)

    return _together_object.load(process_group, str(uri), begin)[1]


def _plain(name: str, tensor: Any) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name!r} is of type {type(tensor).__name__}, and must be a tensor")
    given = tensor.detach()
    if type(given) is not torch.Tensor or given.layout is not torch.strided:
        raise TypeError(
            f"{name} is a {type(given).__name__} of layout {given.layout}, which the format has not; "
            "save a dense tensor made of it"
        )
    if given.is_meta:
        raise TypeError(f"{name} is on the meta device and has no content to be saved")
    _freed.refuse(name, [given])
    if given.dtype not in _NAMES:
        raise TypeError(f"{name} is of {given.dtype}, which the format has not; convert it")
    return given


def _header_make(tensors: list[tuple[str, torch.Tensor]], metadata: Mapping[str, str] | None) -> bytes:
    described: dict[str, Any] = {}
    if metadata is not None:
        if not all(isinstance(text, str) for pair in metadata.items() for text in pair):
            raise TypeError("metadata is not a map of strings to strings")
        described[_METADATA] = dict(metadata)
    end = 0
    for name, tensor in tensors:
        type_name = _NAMES[tensor.dtype]
        packed = _TYPES[type_name].packed
        shape = list(tensor.shape)
        if packed > 1 and not shape:
            raise TypeError(f"{name} has no dimension, which a tensor of {tensor.dtype} needs")
        if packed > 1:
            shape[-1] *= packed
        described[name] = {"dtype": type_name, "shape": shape, "data_offsets": [end, end + tensor.nbytes]}
        end += tensor.nbytes
    text = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
    # So that tensors are aligned where a file is mapped.
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER_SIZE_MAX:
        raise ValueError(f"names and shapes take {len(text)} bytes, {HEADER_SIZE_MAX} are allowed")
    return len(text).to_bytes(8, "little") + text


@spanned("ringest.safetensors.save_file")
def save_file(
    tensors: Mapping[str, torch.Tensor],
    uri: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    *,
    client: Client | None = None,
    if_generation_match: int | None = None,
) -> int:
    """Saves tensors into one object, which appears, whole, when all is there; returns its generation.

    metadata: strings, for people. if_generation_match: the generation to replace, 0: there must be no
    such object (PreconditionError). Tensors that are contiguous and on the CPU are sent from their own
    memory and must not change meanwhile; others go through a copy of one at a time. Tensors that share
    memory are written each. Of float8_e4m3fnuz and float8_e5m2fnuz the package safetensors reads files since 0.8.

    Raises TypeError for what the format has not, ringest.Error when it cannot be written; then nothing
    is there that was not before.
    """
    if not isinstance(tensors, Mapping):
        raise TypeError(f"tensors by name are needed, a dict, not {type(tensors).__name__}")
    if _METADATA in tensors:
        raise ValueError(f"a tensor cannot be called {_METADATA}")
    # The larger types first, so that every one is aligned.
    given = sorted(
        ((name, _plain(name, tensor)) for name, tensor in tensors.items()),
        key=lambda item: (-item[1].itemsize, item[0]),
    )
    header = _header_make(given, metadata)
    size = len(header) + sum(tensor.nbytes for _, tensor in given)
    client = chosen(client)
    target = client.writer(os.fspath(uri), if_generation_match=if_generation_match, size_hint=size)
    with target as writer, at(Part.UPLOAD, client):
        writer.write(header)
        for _, tensor in given:
            with at(Part.STAGE, client):
                sent = tensor.cpu().resolve_conj().resolve_neg().contiguous()
            if sent.nbytes:
                writer.write(bytes_of(sent), borrow=sent.data_ptr() == tensor.data_ptr())
        # Inside the `with`, because memory that is borrowed belongs to `given`.
        with at(Part.COMMIT, client):
            return writer.finish()["generation"]
