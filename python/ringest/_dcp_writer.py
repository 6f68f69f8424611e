"""StorageWriter of ringest.dcp."""

from __future__ import annotations

import copy
import dataclasses
import io
import itertools
import logging
import os
import secrets
from typing import Any

import torch
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import StorageWriter as TorchStorageWriter
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future

from ringest import _core, _dcp_metadata, _tensor_archive
from ringest._dcp_place import Place, future_of, is_plain
from ringest._errors import NotFoundError
from ringest.client import Client, parse_size

# A rank's data goes on in another object beyond this; Cloud Storage has objects of up to 5 TiB.
FILE_SIZE_MAX = 1 << 40
# What the library uploads by one request.
ONE_REQUEST_MAX = 8 << 20

# What _write_address returns.
_SUM_CRC32C = 2

_log = logging.getLogger("ringest")


class _Output:
    """The objects of one rank: items one after the other, and on to the next object when one is full."""

    def __init__(self, place: Place, rank: int, save: str, file_size_max: int, size_left: int):
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


def _delete(place: Place, name: str, generation: int) -> None:
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
        self._place = Place(uri, client)
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
        return future_of(results)

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
        if not is_plain(given):
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
