"""PyTorch Distributed Checkpoint (torch.distributed.checkpoint) straight between tensors and Cloud Storage.

    import torch.distributed.checkpoint as dcp
    from ringest.dcp import StorageReader, StorageWriter

    dcp.save(state_dict, storage_writer=StorageWriter("gs://bucket/run/step-100"))
    dcp.load(state_dict, storage_reader=StorageReader("gs://bucket/run/step-100"))

A checkpoint is a prefix with one object for each rank, `__RANK_NUMBER.SAVE.distcp`, and `.metadata`,
which is written last and names them. SAVE is new for each save, so that saving over a checkpoint
changes nothing of it until `.metadata` is replaced, in one request that fails where somebody else
has replaced it meanwhile; only then are the old objects deleted. Killed at any moment, a save
leaves the last complete checkpoint; what it left besides, the next save there removes.

What loads where: what is saved here loads with ringest, and with torch's FileSystemReader (also
through fsspec), where a tensor is read as torch.save writes it. What torch's FileSystemWriter and
FsspecWriter (hence Google's connector) wrote with their default format loads here; whole tensors are
read then, where ours are read in parts too.

Ranks, tensors, planners and process groups are as with any other storage of torch: FSDP, DTensor of
any placement, replicated tensors saved once, `no_dist`, plans of your own.
"""

from __future__ import annotations

import array
import collections
import concurrent.futures
import copy
import ctypes
import dataclasses
import io
import itertools
import logging
import math
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import StorageReader as TorchStorageReader
from torch.distributed.checkpoint.storage import StorageWriter as TorchStorageWriter
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future

from ringest import _core, _dcp_metadata, _tensor_archive
from ringest._dcp_metadata import Item
from ringest._errors import CheckpointError, ChecksumError, NotFoundError
from ringest.client import Client, default_client, parse_size

__all__ = ["CheckpointError", "StorageReader", "StorageWriter"]

# A rank's data goes on in another object beyond this; Cloud Storage has objects of up to 5 TiB.
FILE_SIZE_MAX = 1 << 40
# What the library uploads by one request.
ONE_REQUEST_MAX = 8 << 20
# Objects that one rank reads from at a time.
FILES_AT_ONCE = 8
# What does not come straight into its tensor comes through blocks of up to this, as many as FILES_AT_ONCE.
BLOCK_SIZE = 4 << 20
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

# What _write_address returns.
_SUM_CRC32C = 2

# What follows when a range has been read: it is given the bytes and their CRC32C.
Done = Callable[[torch.Tensor, int], None]

_log = logging.getLogger("ringest")


def _bytes_of(tensor: torch.Tensor) -> ctypes.Array:
    """The memory of a contiguous tensor, which must outlive it."""
    return (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_quantized


def _fits(target: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether saved elements of that type can be read straight into it."""
    return target.is_cpu and target.dtype is dtype and _is_plain(target) and target.is_contiguous()


def _done(value: Any) -> Future:
    future: Future = Future()
    future.set_result(value)
    return future


class _Place:
    """A checkpoint's URI and the client, of a reader or a writer."""

    def __init__(self, uri: str | os.PathLike[str], client: Client | None):
        self.client = client
        self.move(uri)

    def move(self, uri: str | os.PathLike[str]) -> None:
        text = os.fspath(uri)
        if not re.match("gs://[^/]+/.", text):
            raise ValueError(f"{text!r} is not the URI of a checkpoint: gs://bucket/prefix")
        self.uri = text.rstrip("/")

    def __call__(self) -> Client:
        return self.client or default_client()

    def file(self, name: str) -> str:
        return f"{self.uri}/{name}"


class _Output:
    """The objects of one rank: items one after the other, and on to the next object when one is full."""

    def __init__(self, place: _Place, rank: int, save: str, file_size_max: int, size_left: int):
        self._place = place
        self._rank = rank
        self._save = save
        self._file_size_max = file_size_max
        self._size_left = size_left
        self._count = 0
        self._writer: Any = None
        self._pending: list[bytes] = []
        self._finished: list[tuple[str, int]] = []
        self.name = ""
        self.offset = 0

    def begin(self, size: int) -> None:
        """Of an item of about so many bytes."""
        if self._writer is not None and self.offset + size > self._file_size_max:
            self._close()
        if self._writer is None:
            self.name = f"__{self._rank}_{self._count}.{self._save}.distcp"
            self._count += 1
            self.offset = 0
            hint = min(self._size_left, self._file_size_max)
            # The name is new. To say so makes one request repeatable, but parts temporary objects.
            condition = 0 if hint <= ONE_REQUEST_MAX else None
            self._writer = self._place().writer(
                self._place.file(self.name), size_hint=hint, if_generation_match=condition
            )
        self._size_left = max(0, self._size_left - size)

    def small(self, data: Any) -> None:
        """Bytes that are kept until more follow."""
        self._pending.append(data)
        self.offset += len(data)

    def tensor(self, tensor: torch.Tensor) -> int:
        """The elements of a contiguous tensor, which is kept alive until they are sent; their CRC32C."""
        self._flush()
        size = tensor.nbytes
        self.offset += size
        return self._writer._write_address(tensor.data_ptr(), size, tensor, _SUM_CRC32C) if size else 0

    def _flush(self) -> None:
        if self._pending:
            self._writer.write(b"".join(self._pending))
            self._pending.clear()

    def _close(self) -> None:
        self._flush()
        facts = self._writer.finish()
        self._finished.append((self.name, facts["generation"]))
        self._writer = None

    def finish(self) -> None:
        if self._writer is not None:
            self._close()

    def abort(self) -> None:
        """Leaves nothing, as far as the server can be reached."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None
        for name, generation in self._finished:
            _delete(self._place, name, generation)


def _delete(place: _Place, name: str, generation: int) -> None:
    try:
        place().delete(place.file(name), generation=generation)
    except NotFoundError:
        pass
    except OSError as error:
        _log.warning("%s: is not needed any more but could not be deleted: %s", place.file(name), error)


class StorageWriter(BlockingAsyncStager, TorchStorageWriter):
    """Saves to `uri`, "gs://bucket/prefix"; the checkpoint_id of dcp.save replaces it.

    client: a ringest.Client, by default the process's. overwrite: whether a checkpoint that is there
    may be replaced; else FileExistsError. file_size_max: bytes of a rank's object, beyond which another
    is begun. cache_staged_state_dict: whether async_save keeps the memory of its copy for the next one.

    dcp.save reads contiguous tensors on the CPU from their own memory, and others through copies, of
    as many as are being sent. dcp.async_save copies the state dict once, then the caller may go on; its future
    has the exception if there is one. Memory besides: what the client's parts take.

    One save at a time. Pickles with its client.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        client: Client | None = None,
        overwrite: bool = True,
        file_size_max: int | str = FILE_SIZE_MAX,
        cache_staged_state_dict: bool = False,
    ):
        super().__init__(cache_staged_state_dict=cache_staged_state_dict)
        self._place = _Place(uri, client)
        self._overwrite = overwrite
        self._file_size_max = parse_size(file_size_max, "file_size_max")
        self._rank: int | None = None
        self._is_alone = False
        self._generation = 0
        self._save = self._written = secrets.token_hex(8)

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """The copy of the state dict that async_save saves: every tensor is copied once, to the CPU."""
        staged = _staged(state_dict, self.state_dict_cache)
        if self.cache_staged_state_dict:
            self.state_dict_cache = staged
        return staged

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self._place.move(checkpoint_id)
        self._save = secrets.token_hex(8)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._rank = kwargs.get("rank")
        self._is_alone = not kwargs.get("use_collectives", True)
        self._generation = 0
        if is_coordinator or self._is_alone:
            try:
                self._generation = self._place().stat(self._metadata_uri())["generation"]
            except NotFoundError:
                return
            if not self._overwrite:
                raise FileExistsError(
                    f"{self._place.uri}: is a checkpoint already; save elsewhere, or with overwrite=True"
                )

    def _metadata_uri(self) -> str:
        return self._place.file(_dcp_metadata.name_of(self._rank if self._is_alone else None))

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return dataclasses.replace(plan, storage_data=self._rank) if self._is_alone else plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        # A cached plan (of DefaultSavePlanner) comes back with what it had before: so nothing here
        # may be of one save.
        return [
            plan if plan.storage_data is not None else dataclasses.replace(plan, storage_data=i)
            for i, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        sizes = [_size_of(item) for item in plan.items]
        # Used up, whatever comes: reset is not called for a writer that saves a second time.
        self._written, self._save = self._save, secrets.token_hex(8)
        output = _Output(self._place, plan.storage_data or 0, self._written, self._file_size_max, sum(sizes))
        results = []
        try:
            for item, size in zip(plan.items, sizes):
                output.begin(size)
                results.append(_write_item(output, item, planner.resolve_data(item)))
            output.finish()
        except BaseException:
            output.abort()
            raise
        return _done(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.storage_data = {result.index: result.storage_data for result in itertools.chain(*results)}
        metadata.storage_meta = StorageMeta(checkpoint_id=self._place.uri, save_id=self._written)
        if hasattr(metadata, "version"):
            metadata.version = _dcp_metadata.VERSION
        # What is there now and not ours: listed before the checkpoint is replaced, because what
        # comes later may be of a save that began from this one.
        unused = self._unused({info.relative_path for info in metadata.storage_data.values()})
        self._place().put(
            self._metadata_uri(), _dcp_metadata.encode(metadata), if_generation_match=self._generation
        )
        for name, generation in unused:
            _delete(self._place, name, generation)

    def _unused(self, used: set[str]) -> list[tuple[str, int]]:
        found = []
        start = len(self._place.uri.split("/", 3)[3]) + 1
        for name, _, generation in self._place().list(self._place.uri + "/__"):
            match = _dcp_metadata.DATA_NAME.fullmatch(name[start:])
            if match and name[start:] not in used and (not self._is_alone or match[1] == str(self._rank)):
                found.append((name[start:], generation))
        return found

    def storage_meta(self) -> StorageMeta:
        return StorageMeta(checkpoint_id=self._place.uri, save_id=self._save)

    @property
    def checkpoint_id(self) -> str:
        return self._place.uri

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return str(checkpoint_id).startswith("gs://")


def _staged(value: Any, before: Any) -> Any:
    """A copy of part of a state dict; in the memory of the one before where that fits."""
    if isinstance(value, ShardedTensor):
        return BlockingAsyncStager().stage({"": value})[""]
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if type(before) is type(value) and _can_hold(before, value):
            return before.copy_(value)
        return value.clone() if value.is_cpu else value.to("cpu")
    if isinstance(value, dict):
        known = before if isinstance(before, dict) else {}
        return {key: _staged(each, known.get(key)) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        olds = before if isinstance(before, (list, tuple)) else ()
        copied = [_staged(each, old) for each, old in itertools.zip_longest(value, olds[: len(value)])]
        return tuple(copied) if isinstance(value, tuple) else copied
    return copy.deepcopy(value)


def _can_hold(held: torch.Tensor, value: torch.Tensor) -> bool:
    if held.shape != value.shape or held.dtype is not value.dtype or held.is_quantized:
        return False
    if isinstance(value, DTensor) and isinstance(held, DTensor):
        return held.placements == value.placements and held.device_mesh == value.device_mesh
    return held.layout is value.layout


def _size_of(item: WriteItem) -> int:
    """About how many bytes it takes in its object."""
    if item.tensor_data is None:
        return 1024
    size = item.tensor_data.properties.dtype.itemsize
    for length in item.tensor_data.chunk.sizes:
        size *= length
    return size + 1024


def _write_item(output: _Output, item: WriteItem, data: Any) -> WriteResult:
    offset, inner = output.offset, 0
    if item.type == WriteItemType.BYTE_IO:
        content = data.getvalue()
        crc32c = _core.crc32c(content)
        output.small(content)
    else:
        given = data.detach()
        if given.is_meta:
            raise TypeError(f"{item.index.fqn} is on the meta device and has no content to be saved")
        if not _is_plain(given):
            whole = io.BytesIO()
            torch.save(given.cpu(), whole)
            content = whole.getvalue()
            crc32c = _core.crc32c(content)
            output.small(content)
        else:
            tensor = given
            if not (given.is_cpu and given.is_contiguous()) or given.is_conj() or given.is_neg():
                tensor = given.cpu().resolve_conj().resolve_neg().contiguous()
            before, behind = _tensor_archive.frame(tensor.dtype, tuple(tensor.shape))
            inner = len(before)
            output.small(before)
            crc32c = output.tensor(tensor)
            output.small(behind)
    length = output.offset - offset
    info = _dcp_metadata.info_make(output.name, offset, length, inner, crc32c)
    return WriteResult(index=item.index, size_in_bytes=length, storage_data=info)


class _Check:
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
        if self._left == 0 and self._wanted not in (None, self._found):
            raise ChecksumError(
                self._uri, "CHECKSUM", "checksum", 0, 0,
                f"{self._uri}: bytes {self._begin} to {self._begin + self._size} ({self._fqn}) have the CRC32C "
                f"{self._found:08x} and were saved with {self._wanted:08x}; load another checkpoint",
            )

    def see(self, block: torch.Tensor, crc32c: int) -> None:
        """add, as what follows a range."""
        self.add(crc32c, block.nbytes)


@dataclasses.dataclass(slots=True)
class _Range:
    """Bytes of an object, and where they go."""

    offset: int
    size: int
    # Contiguous and of that size; None: a block is made when it is read.
    tensor: torch.Tensor | None
    done: Done | None

    def memory(self) -> torch.Tensor:
        return self.tensor if self.tensor is not None else torch.empty(self.size, dtype=torch.uint8)

    def block_size(self) -> int:
        return 0 if self.tensor is not None else self.size


class _File:
    """What is wanted of one object."""

    def __init__(self, uri: str):
        self.uri = uri
        self.generation = 0
        self.ranges: list[_Range] = []
        self.gap_max = 1

    def want(self, offset: int, size: int, tensor: torch.Tensor | None, done: Done | None) -> None:
        self.ranges.append(_Range(offset, size, tensor, done))

    def batches(self) -> Iterator[list[_Range]]:
        """In the order of their offsets, each of what one call may read."""
        self.ranges.sort(key=lambda each: each.offset)
        self.gap_max = _gap_max(self.ranges)
        batch: list[_Range] = []
        size = 0
        for each in self.ranges:
            if batch and (len(batch) == RANGES_AT_ONCE or size + each.block_size() > BLOCK_SIZE):
                yield batch
                batch, size = [], 0
            batch.append(each)
            size += each.block_size()
        if batch:
            yield batch


def _gap_max(ranges: list[_Range]) -> int:
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


class _Box:
    """The elements that one item of a plan wants of a saved tensor, which lies contiguous at `base`."""

    def __init__(self, file: _File, base: int, sizes: tuple[int, ...], dtype: torch.dtype, check: _Check | None):
        self._file = file
        self._base = base
        self._sizes = sizes
        self._dtype = dtype
        self._check = check
        self._strides = [1] * len(sizes)
        for i in range(len(sizes) - 1, 0, -1):
            self._strides[i - 1] = self._strides[i] * sizes[i]

    def want(self, offsets: list[int], lengths: list[int], target: torch.Tensor) -> None:
        """Adds ranges for the elements from `offsets` on, which go to `target`."""
        itemsize = self._dtype.itemsize
        size = target.numel() * itemsize
        is_run, gap = self._shape(lengths)
        if is_run and _fits(target, self._dtype):
            self._range(offsets, size, target, target)
            return
        span = (1 + sum((length - 1) * stride for length, stride in zip(lengths, self._strides))) * itemsize
        if (is_run or gap <= ROW_GAP_MAX) and span <= BLOCK_SIZE:
            self._range(offsets, span, None, target)
            return
        # Cut along the first dimension that can be cut: into blocks, or else into runs.
        dim = next(i for i, length in enumerate(lengths) if length > 1)
        step = 1
        if is_run or gap <= ROW_GAP_MAX:
            step = max(1, BLOCK_SIZE // (self._strides[dim] * itemsize))
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
                    target.copy_(block.view(self._dtype).as_strided(target.shape, self._strides))

        self._file.want(self._base + begin * self._dtype.itemsize, size, tensor, done)


def _unpack(data: Any, item: ReadItem, target: torch.Tensor, uri: str) -> None:
    """A tensor as torch.save wrote it, of which the item may want a part."""
    try:
        tensor = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:
        fqn = item.storage_index.fqn
        raise CheckpointError(f"{uri}: {fqn} cannot be read ({error}); load another checkpoint") from error
    for dim, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths)):
        if tensor.size(dim) != length:
            tensor = tensor.narrow(dim, offset, length)
    target.copy_(tensor)


class _Unreadable:
    """Stands for metadata that could not be read: whoever looks into it gets the error."""

    def __init__(self, error: Exception):
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error


class StorageReader(TorchStorageReader):
    """Loads from `uri`, "gs://bucket/prefix"; the checkpoint_id of dcp.load replaces it.

    client: a ringest.Client, by default the process's.

    Reads of each object what this rank's plan needs, straight into tensors that are contiguous, on the
    CPU and of the type that was saved; others get theirs through blocks of up to 4 MiB. What lies between is
    read along where it is short: less than a 32nd of what is wanted, or 256 KiB in an object; more
    only between tensors, 652 bytes each, and of a shard by columns whose rows are less than 4 KiB apart. Items that are read whole are
    compared with the CRC32C that was saved with them (ChecksumError).

    Metadata is unpickled with nothing allowed but what it is made of. Objects in the state dict that
    are no tensors are unpickled by the planner; torch's own runs the code of whoever saved them.

    A checkpoint that is replaced while it is loaded is never mixed with the new one: the load fails
    with CheckpointError, and can be done again.
    """

    def __init__(self, uri: str | os.PathLike[str], *, client: Client | None = None):
        self._place = _Place(uri, client)
        self.reset()

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self._place.move(checkpoint_id)
        self._load = secrets.token_hex(8)
        self._generation = 0
        self._metadata_uri = ""
        self._metadata: Metadata | None = None
        self._metadata_error: Exception | None = None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        rank = kwargs.get("rank")
        try:
            return self._read_metadata(rank)
        except Exception as error:
            # dcp.load takes any error here for "there is none", asks once more, for that of its rank, and then
            # says only that there is none; so what was wrong is told where it listens again.
            before, self._metadata_error = self._metadata_error, error
            if rank is None:
                raise
            if before is not None and (isinstance(error, NotFoundError) or not isinstance(before, NotFoundError)):
                error = before
            return _Unreadable(error)  # type: ignore[return-value]

    def _read_metadata(self, rank: int | None) -> Metadata:
        uri = self._place.file(_dcp_metadata.name_of(rank))
        # One request tells the bytes and their generation.
        ((item,),) = self._place().get_many([uri])
        if item.error is not None:
            raise item.error
        self._generation = item.generation
        metadata = _dcp_metadata.decode(item.data, uri)
        assert metadata.storage_meta is not None  # decode sees to that
        metadata.storage_meta.load_id = self._load
        self._metadata_uri = uri
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if isinstance(metadata, _Unreadable):
            metadata.storage_data  # raises
        self._metadata = metadata

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return dataclasses.replace(plan, storage_data=(self._metadata_uri, self._generation))

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        seen: dict[str, int] = {}
        for uri, generation in (plan.storage_data for plan in plans):
            if seen.setdefault(uri, generation) != generation:
                raise self._replaced()
        return plans

    def _replaced(self) -> CheckpointError:
        return CheckpointError(f"{self._place.uri}: was replaced while it was loaded; load it again")

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        assert self._metadata is not None, "read_data before set_up_storage_reader"
        files: dict[str, _File] = {}
        tensors = []
        for item in plan.items:
            fqn = item.storage_index.fqn
            info = self._metadata.storage_data.get(item.storage_index)
            where = _dcp_metadata.info_read(info, self._metadata_uri, fqn)
            file = files.get(where.file)
            if file is None:
                file = files[where.file] = _File(self._place.file(where.file))
            if item.type == LoadItemType.BYTE_IO:
                self._want_bytes(file, where, item, planner)
            else:
                target = planner.resolve_tensor(item)
                tensors.append((item, target))
                self._want_tensor(file, where, item, target.detach())
        self._read(files.values())
        for item, target in tensors:
            planner.commit_tensor(item, target)
        return _done(None)

    def _want_bytes(self, file: _File, where: Item, item: ReadItem, planner: LoadPlanner) -> None:
        check = _Check(file.uri, item.storage_index.fqn, where.offset, where.length, where.crc32c)

        def done(block: torch.Tensor, crc32c: int) -> None:
            check.add(crc32c, where.length)
            planner.load_bytes(item, io.BytesIO(_bytes_of(block)))

        file.want(where.offset, where.length, None, done)

    def _want_tensor(self, file: _File, where: Item, item: ReadItem, target: torch.Tensor) -> None:
        fqn = item.storage_index.fqn
        if tuple(target.shape) != tuple(item.lengths):
            raise CheckpointError(
                f"{self._place.uri}: of {fqn} {tuple(item.lengths)} is to be loaded into {tuple(target.shape)}"
            )
        sizes, dtype = self._saved(item)
        if where.inner and _tensor_archive.is_frame_of(dtype, sizes, where.inner, where.length):
            is_whole = tuple(item.lengths) == sizes and target.numel()
            base = where.offset + where.inner
            check = _Check(file.uri, fqn, base, math.prod(sizes) * dtype.itemsize, where.crc32c) if is_whole else None
            if check is not None and _fits(target, dtype):
                file.want(base, target.nbytes, target, check.see)
            elif target.numel():
                _Box(file, base, sizes, dtype, check).want(list(item.storage_offsets), list(item.lengths), target)
            return
        # The CRC32C of our own is that of the elements, unless there are none to be told.
        check = _Check(file.uri, fqn, where.offset, where.length, None if where.inner else where.crc32c)

        def done(block: torch.Tensor, crc32c: int) -> None:
            check.add(crc32c, where.length)
            _unpack(_bytes_of(block), item, target, file.uri)

        file.want(where.offset, where.length, None, done)

    def _saved(self, item: ReadItem) -> tuple[tuple[int, ...], torch.dtype]:
        """Shape and type of the part of a tensor that was saved as one item."""
        index = item.storage_index
        assert self._metadata is not None
        entry = self._metadata.state_dict_metadata[index.fqn]
        if not isinstance(entry, TensorStorageMetadata):
            raise CheckpointError(f"{self._metadata_uri}: {index.fqn} is no tensor there, and is to be loaded as one")
        chunks = entry.chunks
        if index.index is not None and index.index < len(chunks) and chunks[index.index].offsets == index.offset:
            chunk: ChunkStorageMetadata | None = chunks[index.index]
        else:
            chunk = next((each for each in chunks if each.offsets == index.offset), None)
        if chunk is None:
            raise CheckpointError(f"{self._metadata_uri}: has no part of {index.fqn} at {index.offset}; it is damaged")
        return tuple(chunk.sizes), entry.properties.dtype

    def _read(self, files: Iterable[_File]) -> None:
        """Reads the ranges of all; what follows is done here, one after the other."""
        out: collections.deque[tuple[_File, list, concurrent.futures.Future]] = collections.deque()
        with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE, "ringest-dcp") as pool:
            for file in files:
                for batch in file.batches():
                    if len(out) == FILES_AT_ONCE:
                        self._take(*out.popleft())
                    blocks = [(each, each.memory()) for each in batch]
                    out.append((file, blocks, pool.submit(self._read_batch, file, blocks)))
            while out:
                self._take(*out.popleft())

    def _read_batch(self, file: _File, blocks: list[tuple[_Range, torch.Tensor]]) -> tuple[int, list[int]]:
        table = array.array("Q")
        for each, block in blocks:
            table.extend((each.offset, each.size, block.data_ptr()))
        return self._place()._get_into_addresses(file.uri, table, gap_max=file.gap_max, checksums=True)

    def _take(self, file: _File, blocks: list[tuple[_Range, torch.Tensor]], future: concurrent.futures.Future) -> None:
        try:
            generation, checksums = future.result()
        except NotFoundError as error:
            if self._place().stat(self._metadata_uri)["generation"] != self._generation:
                raise self._replaced() from error
            raise NotFoundError(
                file.uri, "NOT_FOUND", "not found", 404, 0,
                f"{file.uri}: is missing, and {self._metadata_uri} names it; load another checkpoint",
            ) from error
        except EOFError as error:
            raise CheckpointError(f"{error}: it is truncated; load another checkpoint") from error
        if file.generation not in (0, generation):
            raise self._replaced()
        file.generation = generation
        for (each, block), crc32c in zip(blocks, checksums):
            if each.done is not None:
                each.done(block, crc32c)

    @property
    def checkpoint_id(self) -> str:
        return self._place.uri

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return str(checkpoint_id).startswith("gs://")
