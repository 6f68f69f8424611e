"""StorageWriter of ringest.dcp."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import logging
import math
import os
import pickle
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import StorageWriter as TorchStorageWriter
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future

from ringest import _core, _dcp_metadata, _dcp_names, _freed, _pace, _tensor_archive, _uri
from ringest._chosen import checked
from ringest._dcp_place import PLAIN, PerThread, Place, checkpoint_uri, detached, future_of, is_plain
from ringest._dcp_planner import SavePlanner as KeepingPlanner
from ringest._errors import CheckpointError, NotFoundError, PreconditionError
from ringest._spans import spanned
from ringest._stages import Part, at
from ringest.client import Client, _default_if_open, parse_size

# A rank's data goes on in another object beyond this; Cloud Storage has objects of up to 5 TiB.
FILE_SIZE_MAX = 1 << 40
# What the library uploads by one request.
ONE_REQUEST_MAX = 8 << 20

_QUANTIZED = {torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4}
_SPARSE = {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}

# Whose deep copies they are themselves.
_CONSTANT = {type(None), bool, int, float, complex, str, bytes}

# Numbers that no thread has.
_NOBODY, _ELSEWHERE = 0, -1

# So much is given to a writer in one call: as soon as it is that many items, or bytes.
GATHERED_MAX = 256
GATHERED_BYTES_MAX = 4 << 20

_log = logging.getLogger("ringest")


class _Output:
    """The objects of one rank: items one after the other, and on to the next object when one is full."""

    def __init__(
        self, place: Place, name: Callable[[int], str], file_size_max: int, size_left: int, pace: _pace.Pace | None
    ):
        self._place = place
        self._pace = pace  # None: nothing is held back
        self._name = name  # of its objects, by their numbers
        self._file_size_max = file_size_max
        self._size_left = size_left
        self._count = 0
        self._writer: Any = None
        self._file, self._offset = "", 0  # where the next item lies
        # Of items that the writer has not yet: what it gets of each, and its index, offset, length, offset of the elements
        # and CRC32C. None: the writer knows that.
        self._pieces: list[tuple[bytes, int, int, Any, bytes]] = []
        self._notes: list[tuple[MetadataIndex, int, int, int, int | None]] = []
        self._gathered = 0  # bytes of them
        self._finished: list[tuple[str, int]] = []
        self.results: list[WriteResult] = []

    def begin(self, size: int) -> None:
        """Begins an item of about so many bytes."""
        if self._writer is None or self._offset + size > self._file_size_max:
            self._begin_object()
        self._size_left -= size

    def _begin_object(self) -> None:
        self.finish()
        self._file = self._name(self._count)
        self._count += 1
        self._offset = 0
        hint = min(max(self._size_left, 0), self._file_size_max)
        # The name is new. To say so makes one request repeatable, but parts temporary objects.
        condition = 0 if hint <= ONE_REQUEST_MAX else None
        writer = self._place().writer(self._place.file(self._file), size_hint=hint, if_generation_match=condition)
        self._writer = writer if self._pace is None else _pace.PacedWriter(writer, self._pace)

    def whole(self, index: MetadataIndex, content: bytes) -> None:
        self._notes.append((index, self._offset, len(content), 0, _core.crc32c(content)))
        self._gather((content, 0, 0, None, b""), len(content))

    def framed(self, index: MetadataIndex, frame: tuple[bytes, bytes], tensor: torch.Tensor) -> None:
        """A contiguous tensor, which is kept alive until its elements are sent."""
        before, behind = frame
        size, inner = tensor.nbytes, len(before)
        length = inner + size + len(behind)
        self._notes.append((index, self._offset, length, inner, None))
        self._gather((before, tensor.data_ptr(), size, tensor, behind), length)

    def _gather(self, piece: tuple[bytes, int, int, Any, bytes], length: int) -> None:
        self._pieces.append(piece)
        self._offset += length
        self._gathered += length
        if self._gathered >= GATHERED_BYTES_MAX or len(self._pieces) == GATHERED_MAX:
            self._flush()

    def _flush(self) -> None:
        crc32cs = self._writer._write_framed(self._pieces)
        for (index, offset, length, inner, known), crc32c in zip(self._notes, crc32cs, strict=True):
            info = _dcp_metadata.info_make(self._file, offset, length, inner, crc32c if known is None else known)
            self.results.append(WriteResult(index, length, info))
        self._pieces.clear()
        self._notes.clear()
        self._gathered = 0

    def finish(self) -> None:
        """What was begun, if anything was."""
        if self._writer is not None:
            self._flush()
            facts = self._writer.finish()
            self._finished.append((self._file, facts["generation"]))
            self._writer = None

    def abort(self) -> None:
        """Leaves nothing, as far as the server can be reached."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None
        for name, generation in self._finished:
            _delete(self._place, name, generation=generation)


def _delete(place: Place, name: str, *, generation: int = 0, if_generation_match: int | None = None) -> None:
    try:
        place().delete(place.file(name), generation=generation, if_generation_match=if_generation_match)
    except (NotFoundError, PreconditionError):
        pass
    except OSError as error:
        _log.warning("%s: is not needed any more but could not be deleted: %s", place.file(name), error)


class _Save:
    """What is known of one save: of each its own, so that nothing of one is left for the next."""

    def __init__(self, place: Place, rank: int | None, is_alone: bool, save_id: str):
        self.place = place
        self.rank = rank
        self.is_alone = is_alone  # without the other ranks
        self.save_id = save_id
        self.generation = 0  # of the metadata that is replaced; 0: there is none

    def metadata_uri(self) -> str:
        return self.place.file(_dcp_names.metadata_name(self.rank if self.is_alone else None))

    def find_replaced(self, overwrite: bool) -> None:
        self.generation = self._generation_now()
        if self.generation and not overwrite:
            raise FileExistsError(f"{self.place.uri}: is a checkpoint already; save elsewhere, or with overwrite=True")

    def warn_of_other(self) -> None:
        """Metadata of all ranks hides that of one."""
        if self.place.has(_dcp_names.METADATA_NAME):
            _log.warning(
                "%s: a checkpoint is there that was saved by all ranks together, and dcp.load takes that one, not "
                "what is now saved with use_collectives=False; save elsewhere, or delete it",
                self.place.uri,
            )

    def commit(self, metadata: bytes) -> None:
        """Replaces the checkpoint, unless it is not that any more which was there when the save began."""
        try:
            self.place().put(self.metadata_uri(), metadata, if_generation_match=self.generation)
        except PreconditionError as error:
            raise self._too_late() from error

    def _too_late(self) -> PreconditionError:
        return PreconditionError(
            self.metadata_uri(),
            "PRECONDITION",
            "a precondition failed",
            412,
            0,
            f"{self.metadata_uri()}: another save was completed here since this one began, of another process, or of "
            "one that was killed and whose last request came late; that checkpoint is whole and stays; save again, or "
            "elsewhere",
        )

    def _generation_now(self) -> int:
        try:
            return self.place().stat(self.metadata_uri())["generation"]
        except NotFoundError:
            return 0

    def unused(self, used: set[str]) -> list[tuple[str, int]]:
        """Names and generations of data that nothing needs any more when this save is complete: what killed saves of
        this kind have left, and what only the metadata names that is replaced.

        To be called before that, because what comes later may be of a save that began from this one."""
        uri = self.place.file(f"__{self.rank}_" if self.is_alone else "__")
        listed = {
            name.rsplit("/", 1)[1]: generation
            for name, _, generation in self.place().list(uri)
            if "/" not in name[len(self.place.uri.split("/", 3)[3]) + 1 :]
        }
        gone = sorted(used - listed.keys())
        if gone:
            if self._generation_now() != self.generation:
                raise self._too_late()
            raise CheckpointError(
                f"{self.place.file(gone[0])}: was deleted, by somebody else, before its checkpoint was complete; "
                "save it again"
            )
        found = {name for name in listed.keys() - used if _dcp_names.DATA_NAME.fullmatch(name)}
        if not found:
            return []
        found -= self._named_by_others(found, listed)
        strangers = {name for name in found if not _dcp_names.is_of_save(name, self.is_alone)}
        if strangers:
            found -= strangers - self._named_by(self.metadata_uri(), self.generation)
        return [(name, listed[name]) for name in sorted(found)]

    def _named_by_others(self, found: set[str], listed: Iterable[str]) -> set[str]:
        """The data that a save of the other kind needs."""
        if not self.is_alone:
            others = [name for name in listed if _dcp_names.is_metadata(name)]
        elif all(_dcp_names.is_of_save(name, True) for name in found):
            others = []
        else:
            others = [_dcp_names.METADATA_NAME]
        return set().union(*(self._named_by(self.place.file(name), None) for name in others))

    def _named_by(self, uri: str, generation: int | None) -> set[str]:
        if generation == 0:
            return set()
        try:
            return _dcp_names.named_in(bytes(self.place().get(uri, generation=generation or 0)))
        except NotFoundError:
            return set()


class StorageWriter(BlockingAsyncStager, TorchStorageWriter):
    """Saves to `uri`, "gs://bucket/prefix"; the checkpoint_id of dcp.save replaces it.

    client: a ringest.Client, by default the process's. overwrite: whether a checkpoint that is there
    may be replaced; else FileExistsError. file_size_max: bytes of a rank's object, beyond which another
    is begun. cache_staged_state_dict: whether async_save keeps the memory of its copy for the next one (pinned, for
    tensors of a CUDA device); while a save still reads it, the next one gets memory of its own.

    dcp.save reads contiguous tensors on the CPU from their own memory, and others through copies, of
    as many as are being sent. dcp.async_save copies the state dict once, then the caller may go on; its future
    has the exception if there is one. Memory besides: what the client's parts take.

    pace: of async_save, as of ringest.checkpoint.AsyncSaver: by what CPUs are idle, bytes in a second, or None. Nothing is
    held back when the next one is staged, and at the end of the interpreter. Another process, where async_save is given
    one to save in, learns of neither: it keeps the pace.

    May be used for one save after the other, and for several at once, each in a thread, or a process, of its own.
    Pickles with its client.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        client: Client | None = None,
        overwrite: bool = True,
        file_size_max: int | str = FILE_SIZE_MAX,
        cache_staged_state_dict: bool = False,
        pace: int | str | None = "auto",
    ):
        super().__init__(cache_staged_state_dict=cache_staged_state_dict)
        self._uri = checkpoint_uri(uri)
        self._given_client = checked(client)
        self._overwrite = overwrite
        self._file_size_max = parse_size(file_size_max, "file_size_max")
        self._saves = PerThread[_Save]()
        self._handed_out: weakref.ref | None = None
        self._ahead: list[weakref.ref] = []  # what was staged: there until it is saved
        self._pace = _pace.parse(pace)
        self._paces = _pace.paces(self._pace)
        self._stager = _NOBODY  # the thread that has staged: what others save then is of async_save

    def __getstate__(self) -> dict[str, Any]:
        # A weak reference does not pickle; and what another process stages is a copy of its own.
        stager = self._stager and _ELSEWHERE
        left: dict[str, Any] = {
            "_saves": PerThread(),
            "_handed_out": None,
            "_ahead": [],
            "state_dict_cache": None,
            "_paces": None,
            "_stager": stager,
        }
        return {**self.__dict__, **left}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._paces = _pace.paces(self._pace)

    def _client(self) -> Client | None:
        """For the save that begins."""
        return self._given_client

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """The copy of the state dict that async_save saves: every tensor is copied once, to the CPU."""
        self._stager = threading.get_ident()
        self._ahead = [each for each in self._ahead if each() is not None]
        self._paces.announce(is_next=not self._ahead)
        is_read = self._handed_out is not None and self._handed_out() is not None
        with at(Part.STAGE, self._client() or _default_if_open()):
            staged = _Staged(
                _staged("", state_dict, None if is_read else self.state_dict_cache, self.cache_staged_state_dict)
            )
        if self.cache_staged_state_dict:
            self.state_dict_cache = dict(staged)
            self._handed_out = weakref.ref(staged)
        self._ahead.append(weakref.ref(staged))
        return staged

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self._uri = checkpoint_uri(checkpoint_id)
            self._saves.note("uri", self._uri)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        rank = kwargs.get("rank")
        is_alone = not kwargs.get("use_collectives", True)
        place = Place(self._saves.take("uri", self._uri), self._client())
        save = _Save(place, rank, is_alone, self._saves.take("save_id", ""))
        if is_coordinator or is_alone:
            save.find_replaced(self._overwrite)
        if is_alone and not rank:
            save.warn_of_other()
        self._saves.begin(save)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        save = self._saves.current()
        return dataclasses.replace(plan, storage_data=save.rank) if save.is_alone else plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        # A cached plan (of DefaultSavePlanner) comes back with what it had before: so nothing here
        # may be of one save.
        return [
            plan if plan.storage_data is not None else dataclasses.replace(plan, storage_data=i)
            for i, plan in enumerate(plans)
        ]

    @spanned("ringest.dcp.write_data")
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        is_beside_training = self._stager not in (_NOBODY, threading.get_ident())
        try:
            with self._paces.one() if is_beside_training else contextlib.nullcontext() as pace:
                with at(Part.UPLOAD, self._saves.current().place()):
                    return future_of(self._write(plan, planner, pace))
        finally:
            if isinstance(planner, KeepingPlanner):
                planner.release()

    def _write(self, plan: SavePlan, planner: SavePlanner, pace: _pace.Pace | None) -> list[WriteResult]:
        keeping = planner if isinstance(planner, KeepingPlanner) else None
        planned = keeping.of_plan(plan, _planned) if keeping is not None else _planned(plan)
        held: dict[Any, Any] = keeping.held() if keeping is not None else {}
        save = self._saves.current()
        # Drawn here, because a writer is used again, and so are copies of it in processes that do not know each other.
        unique = secrets.token_hex(8)
        rank = plan.storage_data or 0
        output = _Output(
            save.place,
            lambda number: _dcp_names.data_name(rank, number, unique, save.is_alone),
            self._file_size_max,
            sum(each.size for each in planned),
            pace,
        )
        try:
            for item, (key, size, dtype, shape, frame) in zip(plan.items, planned):
                output.begin(size)
                tensor = held.get(key.fqn)
                if dtype is None or shape is None or frame is None or tensor is None:
                    _write_item(output, item, planner)
                elif _lies_as_planned(tensor, dtype, shape):
                    output.framed(key, frame, tensor)
                else:
                    _write_item(output, item, planner)
            output.finish()
        except BaseException:
            output.abort()
            raise
        return output.results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        save = self._saves.current()
        with at(Part.COMMIT, save.place()):
            self._commit(save, metadata, results)

    def _commit(self, save: _Save, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.storage_data = {result.index: result.storage_data for result in itertools.chain(*results)}
        metadata.storage_meta = StorageMeta(checkpoint_id=save.place.uri, save_id=save.save_id)
        if hasattr(metadata, "version"):
            metadata.version = _dcp_metadata.VERSION
        unused = save.unused({info.relative_path for info in metadata.storage_data.values()})
        save.commit(_dcp_metadata.encode(metadata))
        for name, generation in unused:
            # Where the bucket keeps versions, it keeps those of the checkpoint that was replaced, as it does its metadata.
            _delete(save.place, name, if_generation_match=generation)

    def storage_meta(self) -> StorageMeta:
        # This is what a save begins with.
        save_id = secrets.token_hex(8)
        self._saves.note("save_id", save_id)
        return StorageMeta(checkpoint_id=self._uri, save_id=save_id)

    @property
    def checkpoint_id(self) -> str:
        return self._uri

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return _uri.is_uri(str(checkpoint_id))


class _Staged(dict):
    """A state dict that was staged. Whether somebody still has it is told by a weak reference, which a dict cannot
    have."""


def _staged(name: str, value: Any, before: Any, is_kept: bool) -> Any:
    """A copy of part of a state dict; in the memory of the one before where that fits. is_kept: the next one gets this
    memory, so that it pays to pin it."""
    if isinstance(value, ShardedTensor):
        _freed.refuse(name, [each.tensor for each in value.local_shards()])
        return BlockingAsyncStager().stage({"": value})[""]
    if isinstance(value, torch.Tensor):
        value = value.detach()
        _freed.refuse(name, [value.to_local() if isinstance(value, DTensor) else value])
        if type(before) is type(value) and _can_hold(before, value):
            return before.copy_(value)
        if is_kept and value.is_cuda and is_plain(value):
            return torch.empty_like(value, device="cpu", pin_memory=True).copy_(value)
        return value.clone() if value.is_cpu else value.to("cpu")
    if isinstance(value, dict):
        known = before if isinstance(before, dict) else {}
        return {key: _staged(_inner(name, key), each, known.get(key), is_kept) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        olds = before if isinstance(before, (list, tuple)) else ()
        pairs = itertools.zip_longest(value, olds[: len(value)])
        copied = [_staged(_inner(name, i), each, old, is_kept) for i, (each, old) in enumerate(pairs)]
        return tuple(copied) if isinstance(value, tuple) else copied
    return value if type(value) in _CONSTANT else _freed.deepcopy(name, value)


def _inner(name: str, key: Any) -> str:
    """What the planner calls it."""
    return f"{name}.{key}" if name else str(key)


def _can_hold(held: torch.Tensor, value: torch.Tensor) -> bool:
    if held.shape != value.shape or held.dtype is not value.dtype or held.is_quantized:
        return False
    if isinstance(value, DTensor) and isinstance(held, DTensor):
        return held.placements == value.placements and held.device_mesh == value.device_mesh
    return held.layout is value.layout


class _Planned(NamedTuple):
    """What is known of an item by its plan."""

    key: MetadataIndex
    size: int  # about how many bytes it takes in its object
    dtype: torch.dtype | None  # of a tensor that can be sent from its memory, if it is meant as a whole; else None
    shape: torch.Size | None
    frame: tuple[bytes, bytes] | None


def _planned(plan: SavePlan) -> list[_Planned]:
    return [_planned_item(item) for item in plan.items]


def _planned_item(item: WriteItem) -> _Planned:
    data, offset = item.tensor_data, item.index.offset
    if data is None or item.type == WriteItemType.BYTE_IO:
        return _Planned(item.index, 1024, None, None, None)
    dtype, shape = data.properties.dtype, data.chunk.sizes
    size = dtype.itemsize * math.prod(shape) + 1024
    is_whole = offset is not None and len(offset) == len(shape) and not any(offset)
    # Of an empty one there is nothing to be gained.
    if not is_whole or dtype in _QUANTIZED or 0 in shape:
        return _Planned(item.index, size, None, None, None)
    return _Planned(item.index, size, dtype, shape, _tensor_archive.frame(dtype, shape))


def _lies_as_planned(tensor: torch.Tensor, dtype: torch.dtype, shape: torch.Size) -> bool:
    """Whether it can be sent from its memory, and is what the metadata says, by which its elements are found again."""
    return (
        type(tensor) in PLAIN
        and tensor.dtype is dtype
        and tensor.shape == shape
        and tensor.layout is torch.strided
        and tensor.is_cpu
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not (dtype.is_complex and tensor.is_conj())
        # Its memory was neither freed nor cut short.
        and tensor.untyped_storage().nbytes() >= ((tensor.storage_offset() + tensor.numel()) * dtype.itemsize or 1)
    )


def _is_as_planned(item: WriteItem, given: torch.Tensor) -> bool:
    """Whether its type and shape are those that the metadata says, by which its elements are found again."""
    assert item.tensor_data is not None
    return given.dtype is item.tensor_data.properties.dtype and given.shape == item.tensor_data.chunk.sizes


def _refuse(item: WriteItem, given: torch.Tensor) -> None:
    """What cannot be saved."""
    if given.is_meta:
        raise TypeError(f"{item.index.fqn} is on the meta device and has no content to be saved")
    if given.layout in _SPARSE:
        raise TypeError(
            f"{item.index.fqn} is a tensor of the layout {given.layout}, which cannot be loaded into; save it "
            "dense, or its indices and values"
        )
    _freed.refuse(item.index.fqn, [given])


def _pickled(item: WriteItem, given: torch.Tensor) -> bytes:
    whole = io.BytesIO()
    try:
        torch.save(given.cpu(), whole)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise TypeError(
            f"{item.index.fqn} is a {type(given).__qualname__} that cannot be pickled ({error}); define its class in a "
            "module, or save a plain tensor made of it"
        ) from error
    return whole.getvalue()


def _refuse_inside(item: WriteItem, content: bytes, planner: SavePlanner) -> None:
    """What cannot be saved, of an object that the planner has pickled; it goes through it once more only where one of the
    storages is empty."""
    look_up = getattr(planner, "lookup_object", None)
    if look_up is not None and _freed.has_empty_storage(content):
        name = item.index.fqn
        _freed.refuse_in({name: look_up(item.index)}, pickle, torch.serialization.DEFAULT_PROTOCOL, name)


def _write_item(output: _Output, item: WriteItem, planner: SavePlanner) -> None:
    data: Any = planner.resolve_data(item)
    if item.type == WriteItemType.BYTE_IO:
        content = data.getvalue()
        _refuse_inside(item, content, planner)
        return output.whole(item.index, content)
    given = detached(data)
    _refuse(item, given)
    if not is_plain(given) or not _is_as_planned(item, given):
        return output.whole(item.index, _pickled(item, given))
    if not (given.is_cpu and given.is_contiguous()) or given.is_conj() or given.is_neg():
        given = given.cpu().resolve_conj().resolve_neg().contiguous()
    return output.framed(item.index, _tensor_archive.frame(given.dtype, given.shape), given)
