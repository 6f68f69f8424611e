"""What the reader of ringest.dcp wants of objects: ranges, gathered so that few requests read them."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
from collections.abc import Callable, Iterator

import torch

from ringest import _core
from ringest._dcp_place import is_plain
from ringest._errors import CheckpointError, checksum_error, crc32c_text
from ringest._freed import is_freed, reach
from ringest._staging import PIECE_SIZE, Copying, is_staged

# What does not come straight into its tensor comes through blocks of up to this, as many as FILES_AT_ONCE; what goes to a
# device with streams, through pieces of PIECE_SIZE.
BLOCK_SIZE = 4 << 20
# Blocks begin at a multiple of this, so that elements of any type do.
BLOCK_ALIGNMENT = 64
# One call reads at most this many ranges.
RANGES_AT_ONCE = 2048
# Neighbours are read together with what lies between them up to this distance, as long as that is
# no more than a 32nd of what is wanted, or little: a request costs as much as so many bytes.
GAP_MAX = 64 << 10
GAP_FREE = 256 << 10
# A gap that is no longer than the heads of a request and its answer. The ends of two archives are.
GAP_ALWAYS = 1 << 10
# Rows of a shard by columns that are closer than this are always read with what lies between.
ROW_GAP_MAX = 4 << 10

# What follows when a range has been read: it is given the bytes and their CRC32C.
Done = Callable[[torch.Tensor, int], None]
# Copies elements of a block to a target; the text names the tensor.
Copy = Callable[[torch.Tensor, torch.Tensor, str], None]


def fits(target: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether saved elements of that type can be read straight into its memory."""
    is_same = target.is_cpu and target.dtype is dtype and is_plain(target) and target.is_contiguous()
    # The memory of a conjugated or negated view has other elements than the tensor.
    return is_same and not target.is_conj() and not target.is_neg() and not is_freed(target)


def is_staged_into(target: torch.Tensor) -> bool:
    """Whether the device copies it from a piece, beside what is read meanwhile."""
    return is_plain(target) and is_staged(target.device)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU, which must outlive the view."""
    if not tensor.nbytes:
        return memoryview(b"")  # one of no bytes cannot be cast
    return memoryview((ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())).cast("B")


def copy(source: torch.Tensor, target: torch.Tensor, name: str, copying: Copying | None = None) -> None:
    """Into a tensor of another type, device or strides. name: of the tensor, and of where it is. copying: out of the
    piece that has the source."""
    try:
        if copying is None:
            target.copy_(source)
        else:
            copying.copy(target, source)
    except RuntimeError as error:
        raise CheckpointError(
            f"{name}, of {source.dtype}, cannot be copied into a tensor of {target.dtype} with the shape "
            f"{tuple(target.shape)}: {error}"
        ) from error


def item_error(uri: str, fqn: str, begin: int, size: int, found: int, wanted: int) -> Exception:
    """For an item whose bytes have another CRC32C than they were saved with."""
    return checksum_error(
        uri,
        f"bytes {begin} to {begin + size} ({fqn}) have the CRC32C {crc32c_text(found)} and were saved with "
        f"{crc32c_text(wanted)}; load another checkpoint",
    )


class Check:
    """Compares the CRC32C of an item with the one that was saved, when all its pieces have come, in order."""

    def __init__(self, uri: str, fqn: str, begin: int, size: int, wanted: int | None):
        self._uri = uri
        self._fqn = fqn
        self._begin = begin
        self._left = self._size = size
        self._wanted = wanted
        self._found = 0

    def add(self, crc32c: int, size: int) -> None:
        self._found = _core.crc32c_combine(self._found, crc32c, size) if self._found else crc32c
        self._left -= size
        if self._left == 0 and self._wanted is not None and self._wanted != self._found:
            raise item_error(self._uri, self._fqn, self._begin, self._size, self._found, self._wanted)

    def end(self) -> None:
        """When everything has come."""
        if self._left:
            raise checksum_error(
                self._uri, f"{self._left} of {self._size} bytes of {self._fqn} were not compared with their CRC32C"
            )


@dataclasses.dataclass(slots=True)
class Range:
    """Bytes of an object, and where they go."""

    offset: int
    size: int
    # Contiguous and of that size; None: a block is made when it is read.
    tensor: torch.Tensor | None
    done: Done | None
    # With streams, of the tensor that the block is copied to.
    device: torch.device | None = None
    # Of an item that is this one range, with a CRC32C of its own: that, and its name.
    item: tuple[int, str] | None = None

    def memory(self) -> torch.Tensor:
        return self.tensor if self.tensor is not None else torch.empty(self.size, dtype=torch.uint8, device="cpu")

    def block_size(self) -> int:
        return 0 if self.tensor is not None else -(-self.size // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT


class File:
    """What is wanted of one object."""

    def __init__(self, uri: str):
        self.uri = uri
        self.generation = 0
        self.ranges: list[Range] = []
        self.gap_max = 1
        # What has come, (offset, size, CRC32C), where some of it has no CRC32C in the metadata.
        self.unchecked: list[tuple[int, int, int]] | None = None

    def want(
        self,
        offset: int,
        size: int,
        tensor: torch.Tensor | None,
        done: Done | None,
        device: torch.device | None = None,
    ) -> None:
        self.ranges.append(Range(offset, size, tensor, done, device))

    def want_item(self, offset: int, tensor: torch.Tensor, crc32c: int, fqn: str) -> None:
        """All of an item, straight into its tensor, to be compared with that CRC32C."""
        self.ranges.append(Range(offset, tensor.nbytes, tensor, None, None, (crc32c, fqn)))

    def leave_unchecked(self) -> None:
        """An item has no CRC32C of its own: the object has, if all of it is read."""
        if self.unchecked is None:
            self.unchecked = []

    def crc32c(self) -> tuple[int, int]:
        """The CRC32C of the bytes that have come from the first one on without a hole, and how many they are."""
        end = crc = 0
        for offset, size, each in sorted(self.unchecked or ()):
            if offset == end:
                crc = _core.crc32c_combine(crc, each, size)
                end += size
        return crc, end

    def batches(self, has_gaps: bool = True) -> Iterator[list[Range]]:
        """In the order of their offsets, each of what one call may read; without those that have no bytes. has_gaps:
        what lies between them may be read along."""
        self.ranges = [each for each in self.ranges if each.size]
        self.ranges.sort(key=lambda each: each.offset)
        self.gap_max = _gap_max(self.ranges) if has_gaps else GAP_ALWAYS
        batch: list[Range] = []
        size = 0
        for each in self.ranges:
            room = BLOCK_SIZE if each.device is None else PIECE_SIZE
            if batch and (len(batch) == RANGES_AT_ONCE or size + each.block_size() > room):
                yield batch
                batch, size = [], 0
            batch.append(each)
            size += each.block_size()
        if batch:
            yield batch


def _gap_max(ranges: list[Range]) -> int:
    """How far apart sorted ranges may be to be read by one request."""
    left = max(sum(each.size for each in ranges) // 32, GAP_FREE)
    gaps = sorted(behind.offset - before.offset - before.size for before, behind in itertools.pairwise(ranges))
    best = GAP_ALWAYS
    for gap, equal in itertools.groupby(gap for gap in gaps if gap > GAP_ALWAYS):
        left -= gap * len(list(equal))
        if left < 0 or gap > GAP_MAX:
            break
        best = gap
    return best


class Box:
    """The elements that one item of a plan wants of a saved tensor, which lies contiguous at `base`."""

    def __init__(
        self,
        file: File,
        base: int,
        sizes: tuple[int, ...],
        dtype: torch.dtype,
        check: Check | None,
        name: str,
        is_direct: bool,
        copy: Copy,
    ):
        """name: of the tensor, for messages. is_direct: whether runs may be read straight into the target."""
        self._file = file
        self._base = base
        self._sizes = sizes
        self._dtype = dtype
        self._check = check
        self._name = f"{file.uri}: {name}"
        self._is_direct = is_direct
        self._copy = copy
        self._strides = [1] * len(sizes)
        for i in range(len(sizes) - 1, 0, -1):
            self._strides[i - 1] = self._strides[i] * sizes[i]

    def want(self, offsets: list[int], lengths: list[int], target: torch.Tensor) -> None:
        """Adds ranges for the elements from `offsets` on, which go to `target`."""
        itemsize = self._dtype.itemsize
        size = target.numel() * itemsize
        is_run, gap = self._shape(lengths)
        if is_run and self._is_direct and fits(target, self._dtype):
            self._range(offsets, size, target, target)
            return
        span = (1 + sum((length - 1) * stride for length, stride in zip(lengths, self._strides))) * itemsize
        block_size = PIECE_SIZE if is_staged_into(target) else BLOCK_SIZE
        if (is_run or gap <= ROW_GAP_MAX) and span <= block_size:
            self._range(offsets, span, None, target)
            return
        # Cut along the first dimension that can be cut: into blocks, or else into runs.
        dim = next(i for i, length in enumerate(lengths) if length > 1)
        step = 1
        if is_run or gap <= ROW_GAP_MAX:
            step = max(1, block_size // (self._strides[dim] * itemsize))
        for i in range(0, lengths[dim], step):
            count = min(step, lengths[dim] - i)
            part = [*offsets[:dim], offsets[dim] + i, *offsets[dim + 1 :]]
            self.want(part, [*lengths[:dim], count, *lengths[dim + 1 :]], target.narrow(dim, i, count))

    def _shape(self, lengths: list[int]) -> tuple[bool, int]:
        """Whether they follow each other, else how many bytes are between one row of them and the next."""
        run, dim = 1, len(lengths)
        while dim > 0:
            dim -= 1
            run *= lengths[dim]
            if lengths[dim] != self._sizes[dim]:
                break
        while dim > 0 and lengths[dim - 1] == 1:
            dim -= 1
        if dim == 0:
            return True, 0
        return False, (self._strides[dim - 1] - run) * self._dtype.itemsize

    def _range(self, offsets: list[int], size: int, tensor: torch.Tensor | None, target: torch.Tensor) -> None:
        begin = sum(offset * stride for offset, stride in zip(offsets, self._strides))
        done = None
        if tensor is None or self._check is not None:

            def done(block: torch.Tensor, crc32c: int) -> None:
                if self._check is not None:
                    self._check.add(crc32c, block.nbytes)
                if tensor is None:
                    self._copy(block.view(self._dtype).as_strided(target.shape, self._strides), target, self._name)

        device = target.device if tensor is None and is_staged_into(target) else None
        self._file.want(self._base + begin * self._dtype.itemsize, size, tensor, done, device)


# Elements of a tensor with odd strides whose places are compared one by one; beyond that it is taken to overlap.
PLACES_MAX = 1 << 22


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements have one place in memory, as in an expanded tensor."""
    if not is_plain(tensor) or tensor.is_contiguous():
        return False
    dims = sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1)
    reach = 0
    for stride, size in dims:
        if stride <= reach:
            break
        reach += stride * (size - 1)
    else:
        return False
    if tensor.numel() == 0 or tensor.numel() > PLACES_MAX:
        return tensor.numel() > 0
    places = torch.zeros(1, dtype=torch.int64, device="cpu")
    for stride, size in dims:
        places = (places[:, None] + torch.arange(size, device="cpu") * stride).flatten()
    return len(places.unique()) < len(places)


def sharing(tensors: list[torch.Tensor]) -> set[int]:
    """The indices of those whose memory is, in part, another's too."""
    found: set[int] = set()
    spans = []
    for i, tensor in enumerate(tensors):
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_meta:
            continue
        if tensor.nbytes:
            spans.append((tensor.data_ptr(), tensor.data_ptr() + reach(tensor), i))
    end, owner = 0, -1
    for begin, stop, i in sorted(spans):
        if begin < end:
            found |= {owner, i}
        if stop > end:
            end, owner = stop, i
    return found
