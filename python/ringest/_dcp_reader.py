"""StorageReader of ringest.dcp."""

from __future__ import annotations

import array
import collections
import concurrent.futures
import contextlib
import dataclasses
import io
import math
import os
import secrets
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader as TorchStorageReader
from torch.futures import Future

from ringest import _core, _dcp_metadata, _dcp_names, _tensor_archive, _uri
from ringest._chosen import checked
from ringest._dcp_metadata import Item
from ringest._dcp_place import PerThread, Place, checkpoint_uri, detached, future_of, is_plain
from ringest._dcp_ranges import (
    GAP_ALWAYS,
    Box,
    Check,
    Done,
    File,
    Range,
    bytes_of,
    copy,
    fits,
    is_staged_into,
    item_error,
    overlaps_itself,
    sharing,
)
from ringest._dcp_together import Given, generations_number, read_together, same_generations, wanted_number
from ringest._errors import CheckpointError, Error, NotFoundError, checksum_error, crc32c_text, gzip_told
from ringest._exchange import number_of
from ringest._freed import is_freed
from ringest._spans import spanned
from ringest._stages import Part, at
from ringest._staging import PIECE_SIZE, Copying, Piece, Staging
from ringest._together import GIVEN_BYTES, OWN_HAS, OWN_WANTS, Team, Told, alone_bytes, alone_checked
from ringest.client import Client

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# Objects that one rank reads from at a time.
FILES_AT_ONCE = 8
# So many items of a plan are compared with those of other ranks, at most.
ALIKE_ITEMS = 1024


def _unpack(data: Any, item: ReadItem, target: torch.Tensor, uri: str, wanted: int | None) -> None:
    """A tensor as torch.save wrote it, of which the item may want a part. wanted: the CRC32C of its elements."""
    fqn = item.storage_index.fqn
    try:
        tensor = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:
        raise CheckpointError(f"{uri}: {fqn} cannot be read ({error}); load another checkpoint") from error
    if wanted is not None:
        elements = tensor.contiguous()
        check = Check(uri, fqn, 0, elements.nbytes, wanted)
        check.add(_core.crc32c(bytes_of(elements)), elements.nbytes)
    for dim, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths)):
        if tensor.size(dim) != length:
            tensor = tensor.narrow(dim, offset, length)
    if _quantizer(tensor) != _quantizer(target) and target.is_quantized and tensor.is_quantized:
        raise CheckpointError(
            f"{uri}: {fqn} is quantized by {_quantizer(tensor)}, and to be loaded into a tensor that is by "
            f"{_quantizer(target)}; load it into one with the saved parameters"
        )
    copy(tensor, target, f"{uri}: {fqn}")


def _quantizer(tensor: torch.Tensor) -> tuple[Any, ...]:
    if not tensor.is_quantized:
        return ()
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return tensor.qscheme(), tensor.dtype, tensor.q_scale(), tensor.q_zero_point()
    scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    return tensor.qscheme(), tensor.dtype, tensor.q_per_channel_axis(), scales.tolist(), zeros.tolist()


class _Batch(NamedTuple):
    """Ranges of an object that are being read."""

    file: File
    blocks: list[tuple[Range, torch.Tensor]]
    piece: Piece | None  # that has the blocks for devices
    future: concurrent.futures.Future[tuple[int, list[int]]]


def _blocks(ranges: list[Range], staging: Staging) -> tuple[list[tuple[Range, torch.Tensor]], Piece | None]:
    """Memory for each: what goes to a device is read into a piece, if it has room for all of that."""
    device = next((each.device for each in ranges if each.device is not None), None)
    size = sum(each.block_size() for each in ranges if each.device is not None)
    piece = staging.take(device) if device is not None and size <= PIECE_SIZE else None
    blocks, at = [], 0
    for each in ranges:
        if piece is None or each.device is None:
            blocks.append((each, each.memory()))
            continue
        blocks.append((each, piece.memory[at : at + each.size]))
        at += each.block_size()
    return blocks, piece


class _Planned(NamedTuple):
    """What the ranks of a load tell the coordinator with their plans, and are told."""

    uri: str  # of the metadata
    generation: int
    number: int  # the same for the same plan; 0: there may be much in it
    is_alike: bool  # the plans of all ranks are the same


def _plan_number(plan: LoadPlan) -> int:
    if len(plan.items) > ALIKE_ITEMS or sum(math.prod(each.lengths) for each in plan.items) > GIVEN_BYTES:
        return 0
    return number_of(repr([(each.storage_index, each.storage_offsets, each.lengths) for each in plan.items])) or 1


class _Unreadable:
    """Stands for metadata that could not be read: whoever looks into it gets the error."""

    def __init__(self, error: Exception):
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error


class _Load:
    """What is known of one load: of each its own, so that nothing of one is left for the next."""

    def __init__(self, place: Place, team: Team | None = None, alone_max: int = 0):
        """team: the ranks that load together; of what each of them wants, it reads up to alone_max bytes by itself."""
        self.place = place
        self._team = team
        self._alone_max = alone_max
        self.metadata: Metadata | None = None
        self.metadata_uri = ""
        self.generation = 0  # of the metadata
        self.failure: Exception | None = None  # why metadata of all ranks was not read
        self._checks: list[Check] = []
        self._uncompared = 0  # items that are one range each, and were not compared yet
        self._shared: set[int] = set()  # ids of items whose memory is another's too
        self._is_alike = False  # all ranks want the same, and little; all of them know
        self._given: Given | None = None  # what is read goes to it, too
        self._copying: Copying | None = None  # out of the piece whose ranges are taken

    def read_metadata(self, rank: int | None) -> Metadata:
        """The metadata of all ranks, or one rank's own if there is none of all. Metadata of all that is there but cannot
        be read is an error: a rank's own may be older."""
        before, self.failure = self.failure, None
        if before is not None and not isinstance(before, NotFoundError):
            raise before
        uri = self.place.file(_dcp_names.metadata_name(rank))
        try:
            data, generation = self._read_metadata(uri, rank)
            metadata = _dcp_metadata.decode(data, uri)
        except Exception as error:
            if before is not None and isinstance(error, NotFoundError):
                raise before from None
            self.failure = error
            raise
        assert metadata.storage_meta is not None  # decode sees to that
        metadata.storage_meta.load_id = secrets.token_hex(8)
        self.generation = generation
        self.metadata_uri = uri
        return metadata

    def _read_metadata(self, uri: str, rank: int | None) -> tuple[Any, int]:
        """The bytes and their generation."""

        def read() -> tuple[Any, int]:
            # One request tells both.
            ((item,),) = self.place().get_many([uri])
            if item.error is not None:
                raise item.error
            return item.data, item.generation

        if self._team is None or rank is not None:
            return read()

        def read_for_all() -> bytearray:
            data, generation = read()
            return bytearray(generation.to_bytes(8, "little")) + data

        told = self._team.once(read_for_all, self.place.uri)
        return memoryview(told)[8:], int.from_bytes(told[:8], "little")

    def replaced(self) -> CheckpointError:
        return CheckpointError(f"{self.place.uri}: was replaced, or deleted, while it was loaded; load it again")

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> None:
        assert self.metadata is not None, "read_data before set_up_storage_reader"
        self._is_alike = isinstance(plan.storage_data, _Planned) and plan.storage_data.is_alike
        with self._team or contextlib.nullcontext(), at(Part.READ, self.place()):
            try:
                self._read_data(plan, planner)
            except Error as error:
                if error.status in ("CHECKSUM", "RANGE") and self._is_compressed(error.uri):
                    raise CheckpointError(f"{error.uri}: {gzip_told(error.uri)}") from error
                if error.status == "RANGE":
                    raise CheckpointError(f"{error}: it is truncated; load another checkpoint") from error
                raise

    def _read_data(self, plan: LoadPlan, planner: LoadPlanner) -> None:
        files: dict[str, File] = {}
        tensors = [(item, planner.resolve_tensor(item)) for item in plan.items if item.type != LoadItemType.BYTE_IO]
        targets = {id(item): detached(target) for item, target in tensors}
        shared = [tensors[i][0] for i in sharing(list(targets.values()))]
        self._shared = {id(item) for item in shared}
        for item in plan.items:
            where = self._where(item)
            file = files.get(where.file)
            if file is None:
                file = files[where.file] = File(self.place.file(where.file))
            if where.crc32c is None:
                file.leave_unchecked()
            if item.type == LoadItemType.BYTE_IO:
                self._want_bytes(file, where, item, planner)
            else:
                self._want_tensor(file, where, item, targets[id(item)])

        def check() -> None:
            self._check_all(files.values())
            for item in shared:
                self._compare_shared(item, targets[id(item)])
            for item, target in tensors:
                planner.commit_tensor(item, target)

        if self._team is None:
            self._read(files.values())
            check()
        else:
            self._read_together(self._team, files, check)

    def _check_all(self, files: Iterable[File]) -> None:
        for check in self._checks:
            check.end()
        if self._uncompared:
            raise checksum_error(self.place.uri, f"{self._uncompared} tensors were not compared with their CRC32C")
        for file in files:
            self._compare(file)

    def _where(self, item: ReadItem) -> Item:
        assert self.metadata is not None
        info = self.metadata.storage_data.get(item.storage_index)
        return _dcp_metadata.info_read(info, self.metadata_uri, item.storage_index.fqn)

    def _check(self, file: File, item: ReadItem, begin: int, size: int, wanted: int | None) -> Check:
        check = Check(file.uri, item.storage_index.fqn, begin, size, wanted)
        self._checks.append(check)
        return check

    def _compare(self, file: File) -> None:
        """Where items have no CRC32C of their own, but all of the object was read."""
        if file.unchecked is None or not file.generation:
            return
        facts = self.place().stat(file.uri, generation=file.generation)
        crc, size = file.crc32c()
        if size == facts["size"] and facts["crc32c"] not in (None, crc):
            raise checksum_error(
                file.uri,
                f"generation {file.generation} has the CRC32C {crc32c_text(facts['crc32c'])}, and what came "
                f"{crc32c_text(crc)}; load it again",
            )

    def _compare_shared(self, item: ReadItem, target: torch.Tensor) -> None:
        """What went into one memory must have been one thing."""
        where = self._where(item)
        sizes, dtype = self._saved(item)
        is_whole = tuple(item.lengths) == sizes and where.inner and target.dtype is dtype
        if not is_whole or where.crc32c is None:
            return
        elements = target.cpu().resolve_conj().resolve_neg().contiguous()
        if _core.crc32c(bytes_of(elements)) != where.crc32c:
            raise CheckpointError(
                f"{self.place.uri}: {item.storage_index.fqn} is to be loaded into memory that another tensor shares, "
                "and the checkpoint has something else for that; give each memory of its own"
            )

    def _want_bytes(self, file: File, where: Item, item: ReadItem, planner: LoadPlanner) -> None:
        check = self._check(file, item, where.offset, where.length, where.crc32c)

        def done(block: torch.Tensor, crc32c: int) -> None:
            check.add(crc32c, where.length)
            planner.load_bytes(item, io.BytesIO(bytes_of(block)))

        self._want(file, where.offset, where.length, None, done)

    def _want_whole(self, file: File, where: Item, item: ReadItem, target: torch.Tensor) -> bool:
        """Of all of an item, straight into memory that takes it as it is. Most are such, so this is short."""
        if not where.inner or where.crc32c is None or id(item) in self._shared:
            return False
        sizes, dtype = self._saved(item)
        if not (target.shape == sizes == item.lengths and fits(target, dtype)) or 0 in sizes:
            return False
        if not _tensor_archive.is_frame_of(dtype, sizes, where.inner, where.length):
            return False
        file.want_item(where.offset + where.inner, target, where.crc32c, item.storage_index.fqn)
        self._uncompared += 1
        return True

    def _want_tensor(self, file: File, where: Item, item: ReadItem, target: torch.Tensor) -> None:
        if self._want_whole(file, where, item, target):
            return
        self._refuse(item, target)
        sizes, dtype = self._saved(item)
        if where.inner and _tensor_archive.is_frame_of(dtype, sizes, where.inner, where.length):
            is_whole = tuple(item.lengths) == sizes and target.numel()
            base = where.offset + where.inner
            check = self._check(file, item, base, math.prod(sizes) * dtype.itemsize, where.crc32c) if is_whole else None
            if target.numel():
                is_direct = id(item) not in self._shared
                box = Box(file, base, sizes, dtype, check, item.storage_index.fqn, is_direct, self._copy)
                box.want(list(item.storage_offsets), list(item.lengths), target)
            return
        # The CRC32C of our own is that of the elements, unless there are none to be told.
        check = self._check(file, item, where.offset, where.length, None if where.inner else where.crc32c)

        def done(block: torch.Tensor, crc32c: int) -> None:
            check.add(crc32c, where.length)
            _unpack(bytes_of(block), item, target, file.uri, where.crc32c if where.inner else None)

        self._want(file, where.offset, where.length, None, done)

    def _want(self, file: File, offset: int, size: int, tensor: torch.Tensor | None, done: Done) -> None:
        file.want(offset, size, tensor, done)
        if not size:
            done(torch.empty(0, dtype=torch.uint8, device="cpu"), 0)

    def _refuse(self, item: ReadItem, target: torch.Tensor) -> None:
        """What nothing can be loaded into."""
        what = None
        if target.is_meta:
            what = "a tensor on the meta device, which has no memory"
        elif target.layout is not torch.strided:
            what = f"a tensor of the layout {target.layout}, which cannot be filled in place; load a dense one"
        elif tuple(target.shape) != tuple(item.lengths):
            what = f"a tensor of the shape {tuple(target.shape)}, and {tuple(item.lengths)} was saved"
        elif is_plain(target) and is_freed(target):
            what = f"a tensor whose memory was freed (its storage was resized to {target.untyped_storage().nbytes()} bytes)"
        elif overlaps_itself(target):
            what = f"a tensor whose elements overlap (strides {target.stride()}); load one that is contiguous"
        if what is not None:
            raise CheckpointError(f"{self.place.uri}: {item.storage_index.fqn} is to be loaded into {what}")

    def _saved(self, item: ReadItem) -> tuple[tuple[int, ...], torch.dtype]:
        """Shape and type of the part of a tensor that was saved as one item."""
        index = item.storage_index
        assert self.metadata is not None
        entry = self.metadata.state_dict_metadata[index.fqn]
        if not isinstance(entry, TensorStorageMetadata):
            raise CheckpointError(f"{self.metadata_uri}: {index.fqn} is no tensor there, and is to be loaded as one")
        chunks = entry.chunks
        if index.index is not None and index.index < len(chunks) and chunks[index.index].offsets == index.offset:
            chunk: ChunkStorageMetadata | None = chunks[index.index]
        else:
            chunk = next((each for each in chunks if each.offsets == index.offset), None)
        if chunk is None:
            raise CheckpointError(f"{self.metadata_uri}: has no part of {index.fqn} at {index.offset}; it is damaged")
        return chunk.sizes, entry.properties.dtype

    def _read_together(self, team: Team, files: dict[str, File], check: Callable[[], None]) -> None:
        """check: when all have come."""
        by_uri = {file.uri: file for file in files.values()}

        def read_ranges(uri: str, table: array.array[int]) -> tuple[int, list[int]]:
            try:
                return self.place()._get_into_addresses(uri, table, gap_max=GAP_ALWAYS, checksums=True)
            except (NotFoundError, EOFError) as error:
                raise self._explained(uri, error) from error

        size = sum(each.size for file in files.values() for each in file.ranges)
        is_own = size <= self._alone_max
        # The first rank reads so much that all want before the ranks meet, and gives it at the meeting.
        ahead_max = GIVEN_BYTES if self._is_alike and team.is_near() else 0
        is_ahead = not is_own and size <= ahead_max
        given = Given(by_uri) if is_ahead else None
        has_own = is_own or (is_ahead and team.rank == 0)
        packed = bytearray()
        if has_own:
            # What fails here is told at the meeting.
            packed = self._read_own(files, given)
            check()
        number = generations_number(by_uri) if is_own else wanted_number(by_uri, ahead_max)

        def given_size(told: list[Told]) -> int:
            states, numbers, *_ = told
            return given.size if given is not None and states.is_all(OWN_WANTS) and numbers.is_same() else 0

        (states, numbers), came = team.tell_given(packed, given_size, OWN_HAS if is_own else OWN_WANTS, number)
        if states.is_all(OWN_HAS) and numbers.is_same():
            team.end()
            return
        if came and given is not None:
            if not has_own:
                given.take(came, self._take_range)
                check()
            return
        # Who has its own takes part, because others read together.
        is_same = states.is_all(OWN_WANTS) and numbers.is_same() and not is_ahead
        own = read_together(team, {} if has_own else by_uri, read_ranges, self._take_range, is_same)
        self._read(own, has_gaps=False)
        # Who wants the same has seen the same.
        if not is_same and not same_generations(team, by_uri):
            raise self.replaced()
        if not has_own:
            check()

    def _read_own(self, files: dict[str, File], given: Given | None) -> bytearray:
        """What this rank wants, by itself. What is given to the others, if it is."""
        self._given = given
        self._read(files.values())
        self._given = None
        return given.packed() if given is not None else bytearray()

    def _read(self, files: Iterable[File], has_gaps: bool = True) -> None:
        """Reads the ranges of all; what follows is done here, one after the other."""
        out: collections.deque[_Batch] = collections.deque()
        # The threads first: what they fill is kept until they have ended.
        with (
            Staging(PIECE_SIZE, 2 * FILES_AT_ONCE) as staging,
            concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE, "ringest-dcp") as pool,
        ):
            for file in files:
                for ranges in file.batches(has_gaps):
                    if len(out) == FILES_AT_ONCE:
                        self._take(out.popleft(), staging)
                    blocks, piece = _blocks(ranges, staging)
                    future = pool.submit(self._read_batch, file, blocks)
                    out.append(_Batch(file, blocks, piece, future))
            while out:
                self._take(out.popleft(), staging)

    def _is_there(self) -> bool:
        try:
            return self.place().stat(self.metadata_uri)["generation"] == self.generation
        except NotFoundError:
            return False

    def _read_batch(self, file: File, blocks: list[tuple[Range, torch.Tensor]]) -> tuple[int, list[int]]:
        table = array.array("Q")
        for each, block in blocks:
            table.extend((each.offset, each.size, block.data_ptr()))
        return self.place()._get_into_addresses(file.uri, table, gap_max=file.gap_max, checksums=True)

    def _take(self, batch: _Batch, staging: Staging) -> None:
        try:
            generation, checksums = batch.future.result()
        except (NotFoundError, EOFError) as error:
            raise self._explained(batch.file.uri, error) from error
        with contextlib.nullcontext() if batch.piece is None else staging.copying(batch.piece) as self._copying:
            for (each, block), crc32c in zip(batch.blocks, checksums, strict=True):
                self._take_range(batch.file, each, block, generation, crc32c)
        self._copying = None

    def _copy(self, source: torch.Tensor, target: torch.Tensor, name: str) -> None:
        """Out of a block."""
        with at(Part.PLACE, self.place()):
            copy(source, target, name, self._copying if is_staged_into(target) else None)

    def _explained(self, uri: str, error: NotFoundError | EOFError) -> Exception:
        """What is wrong with the checkpoint, if an object is missing or short."""
        if isinstance(error, EOFError):
            if self._is_compressed(uri):
                return CheckpointError(f"{uri}: {gzip_told(uri)}")
            return CheckpointError(f"{error}: it is truncated; load another checkpoint")
        if not self._is_there():
            return self.replaced()
        detail = f"{uri}: is missing, and {self.metadata_uri} names it; load another checkpoint"
        return NotFoundError(uri, "NOT_FOUND", "not found", 404, 0, detail)

    def _is_compressed(self, uri: str) -> bool:
        try:
            return self.place().stat(uri)["content_encoding"] == "gzip"
        except (Error, ValueError):  # it is no object, or gone, and what went wrong is said without it
            return False

    def _take_range(self, file: File, each: Range, block: torch.Tensor, generation: int, crc32c: int) -> None:
        if file.generation not in (0, generation):
            raise self.replaced()
        file.generation = generation
        if self._given is not None:
            self._given.note(file, each, block, generation, crc32c)
        if file.unchecked is not None:
            file.unchecked.append((each.offset, each.size, crc32c))
        if each.item is not None:
            wanted, fqn = each.item
            if crc32c != wanted:
                raise item_error(file.uri, fqn, each.offset, each.size, crc32c, wanted)
            self._uncompared -= 1
        if each.done is not None:
            each.done(block, crc32c)


class StorageReader(TorchStorageReader):
    """Loads from `uri`, "gs://bucket/prefix"; the checkpoint_id of dcp.load replaces it.

    client: a ringest.Client, by default the process's.

    process_group: its ranks load together: bytes that several of them want, such as those of replicated tensors, come
    once and are given on. It is that of dcp.load, and has a backend for the CPU (gloo), as for
    ringest.checkpoint.load; all its ranks make the same calls of this reader. Where a rank is lost, the others raise
    GroupError. alone_max: if all that a rank wants is no more than so many bytes, it reads that by itself, which is faster
    than to give it on; by default 65,536.

    Reads of each object what this rank's plan needs, straight into tensors that are contiguous, on the
    CPU and of the type that was saved; others get theirs through blocks of up to 4 MiB, or, on a device that has streams,
    through up to 256 MiB of pinned memory, which it copies from while more is read. What lies between is
    read along where it is short: less than a 32nd of what is wanted, or 256 KiB in an object; more
    only between tensors, 652 bytes each, and of a shard by columns whose rows are less than 4 KiB apart. Items that are read whole are
    compared with the CRC32C that was saved with them (ChecksumError).

    Metadata is unpickled with nothing allowed but what it is made of. Objects in the state dict that
    are no tensors are unpickled by the planner; torch's own runs the code of whoever saved them.

    A checkpoint that is replaced while it is loaded is never mixed with the new one: the load fails
    with CheckpointError, and can be done again. That is so for what ringest.dcp saves; other writers call the new data
    as the old, and metadata comes last, so that nothing tells which of them is read.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        client: Client | None = None,
        process_group: ProcessGroup | None = None,
        alone_max: int | None = None,
    ):
        self._uri = checkpoint_uri(uri)
        self._given_client = checked(client)
        self._group = process_group
        self._alone_max = alone_bytes(alone_checked(alone_max))
        self._loads = PerThread[_Load]()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loads": PerThread()}

    def _client(self) -> Client | None:
        """For the load that begins."""
        return self._given_client

    def _team(self, uri: str) -> Team | None:
        if self._group is None:
            return None
        return Team(self._group, uri)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self._uri = checkpoint_uri(checkpoint_id)
            self._loads.note("uri", self._uri)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        rank = kwargs.get("rank")
        load = self._loads.current_or_none()
        # dcp.load takes any error for "there is none", asks once more, for that of its rank, and then says only that
        # there is none; so what was wrong is told where it listens again.
        is_second = rank is not None and load is not None and load.failure is not None
        if load is None or not is_second:
            uri = self._loads.take("uri", self._uri)
            load = _Load(Place(uri, self._client()), self._team(uri), self._alone_max)
            self._loads.begin(load)
        try:
            with at(Part.LIST, load.place()):
                return load.read_metadata(rank)
        except Exception as error:
            if not is_second:
                raise
            return _Unreadable(error)  # type: ignore[return-value]

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if isinstance(metadata, _Unreadable):
            metadata.storage_data  # raises
        self._loads.current().metadata = metadata

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        load = self._loads.current()
        number = _plan_number(plan) if self._group is not None else 0
        return dataclasses.replace(plan, storage_data=_Planned(load.metadata_uri, load.generation, number, False))

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        load = self._loads.current()
        shared = load.place.file(_dcp_names.METADATA_NAME)
        seen: dict[str, int] = {}
        planned: list[_Planned] = [plan.storage_data for plan in plans]
        for each in planned:
            if seen.setdefault(each.uri, each.generation) != each.generation:
                raise load.replaced()
        if shared in seen and len(seen) > 1:
            # Some ranks found what all saved together, the others did not, and took their own.
            raise load.replaced()
        numbers = {each.number for each in planned}
        if len(numbers) > 1 or 0 in numbers:
            return plans
        return [dataclasses.replace(plan, storage_data=plan.storage_data._replace(is_alike=True)) for plan in plans]

    @spanned("ringest.dcp.read_data")
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        self._loads.current().read_data(plan, planner)
        return future_of(None)

    @property
    def checkpoint_id(self) -> str:
        return self._uri

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return _uri.is_uri(str(checkpoint_id))
