"""Checkpoints straight between tensors and Cloud Storage.

    ringest.checkpoint.save(model.state_dict(), "gs://bucket/run/step-100.pt")
    state = ringest.checkpoint.load("gs://bucket/run/step-100.pt", map_location="cpu")

    with ringest.checkpoint.open("gs://bucket/run/step-100.pt", "wb") as file:
        torch.save(state, file)           # or pickle.dump, numpy.save ...

The file format is that of torch.save and torch.load; either side may be torch's own. An object appears when it is
complete. If a save fails or an exception ends it, the object that was there before stays.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, overload

from ringest import _core, _leaving, _newest, _torch_pickle
from ringest._async_save import AsyncSaver, Saving
from ringest._chosen import chosen
from ringest._errors import CheckpointError, Error, GroupError, gzip_told, is_gzip
from ringest._memory_file import MemoryFile
from ringest._needs import needs
from ringest._spans import spanned
from ringest._stages import Part, at
from ringest._torch_zip import ArchiveReader, ArchiveWriter, Foreign, torch_alignment, torch_checksums
from ringest.client import Client, parse_size
from ringest.retention import retain

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

    from ringest._together_object import OwnObject, TogetherObject

__all__ = [
    "AsyncReadFile",
    "AsyncSaver",
    "CheckpointError",
    "GroupError",
    "ReadFile",
    "Saving",
    "WriteFile",
    "aopen",
    "load",
    "open",
    "retain",
    "save",
]

# Tracebacks and documentation name what programs import.
for _class in (AsyncSaver, Saving):
    _class.__module__ = __name__
del _class

# Python's own buffer; what is larger goes to the reader, which reads ahead.
_BUFFER_SIZE = 8 << 10


class _RawReader(io.RawIOBase):
    """An object as a file, without a buffer. `counting`: the client whose metrics say how long reading it takes; None: of
    what is no checkpoint."""

    mode = "rb"

    def __init__(self, client: Client, uri: str, generation: int):
        facts = client.stat(uri, generation=generation)
        self.name = uri
        self._client = client
        self.counting: Client | None = client
        self.size: int = facts["size"]
        self.generation: int = facts["generation"]
        self._reader = _core.ObjectReader(client, uri, generation=self.generation)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if self.closed:
            raise ValueError(f"{self.name}: the file is closed")
        begins = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}
        if whence not in begins or begins[whence] + offset < 0:
            raise ValueError(f"{self.name}: seek({offset}, {whence}) is before the start of the file")
        self._at = begins[whence] + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self.closed:
            raise ValueError(f"{self.name}: the file is closed")
        with at(Part.READ, self.counting):
            length = self._reader.read_at(self._at, buffer) if self._at < self.size else 0
        self._at += length
        return length

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._reader.close()


class ReadFile(io.BufferedReader):
    """An object as a seekable binary file. All reads are of the generation that was opened; if it is deleted or
    replaced meanwhile, they raise NotFoundError.

    If all bytes are read in order, they are compared with the object's CRC32C (ChecksumError). Parts cannot be
    compared."""

    raw: _RawReader

    @property
    def size(self) -> int:
        """Bytes of the object."""
        return self.raw.size

    @property
    def generation(self) -> int:
        return self.raw.generation

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process goes on reading where this one is, and the same generation."""
        raw = self.raw
        return _reopen, (raw._client, raw.name, self.generation, self.tell(), raw.counting is not None)


class AsyncReadFile:
    """An object that is read by awaiting. It has no position: any number of reads may be under way, of any tasks of the
    event loop. All are of the generation that was opened; if it is deleted or replaced meanwhile, they raise
    NotFoundError.

    When they have brought all bytes of the object, in whatever order, those are compared with its CRC32C; if they differ,
    that read and all later ones raise ChecksumError.
    """

    def __init__(self, client: Client, uri: str, facts: dict[str, Any]) -> None:
        self.name = uri
        self.size: int = facts["size"]
        self.generation: int = facts["generation"]
        self.closed = False
        self._client = client
        self._reader = _core.ObjectReader(client, uri, generation=self.generation)

    async def readinto(self, buffer: Any, offset: int = 0) -> int:
        """Fills a writable, contiguous buffer with the bytes from `offset` on, and returns how many: fewer only at the
        object's end. After the task is cancelled, nothing writes to the buffer."""
        self._check()
        try:
            return await self._client._channel().call("_read_at", self._reader, offset, buffer, ends_first=True)
        except Error:
            self._check()  # close has ended it
            raise

    async def read(self, size: int = -1, offset: int = 0) -> bytearray:
        """Bytes from `offset` on, fewer only at the object's end; size -1: all up to there."""
        left = max(0, self.size - offset)
        data = bytearray(left if size < 0 else min(size, left))
        if await self.readinto(data, offset) != len(data):
            raise EOFError(f"{self.name}: generation {self.generation} ends before byte {offset + len(data)}")
        return data

    def _check(self) -> None:
        if self.closed:
            raise ValueError(f"{self.name}: the file is closed")

    def close(self) -> None:
        """Ends the reads that are under way: they raise ValueError. Again: nothing."""
        self.closed = True
        self._reader.close()

    async def __aenter__(self) -> AsyncReadFile:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        self.close()


def _reopen(client: Client, uri: str, generation: int, place: int, is_counted: bool = True) -> ReadFile:
    raw = _RawReader(client, uri, generation)
    raw.counting = client if is_counted else None
    file = ReadFile(raw, _BUFFER_SIZE)
    file.seek(place)
    return file


if TYPE_CHECKING:
    # What wants a binary file by its type, such as torch.save, wants this; at run time nobody looks.
    class _BinaryFile(io.BufferedIOBase, BinaryIO):
        name: str
else:
    _BinaryFile = io.BufferedIOBase


class WriteFile(_BinaryFile):
    """A binary file that becomes an object when it is closed.

    A partial object is never published. If an exception leaves the `with` statement of the file, or of a layer around
    it (text, compression, fsspec.open, contextlib.closing), closing makes no object. A file that is never closed makes
    no object either; if it is garbage-collected, there is a warning.
    """

    mode = "wb"
    counting: Client | None = None  # as of a file that is read

    def __init__(self, writer: _core.Writer, uri: str):
        self._writer = writer
        self.name = uri
        self.result: dict[str, int] | None = None
        self._is_abandoned = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.closed:
            raise ValueError(f"{self.name}: the file is closed")
        if self._is_abandoned:
            return memoryview(data).nbytes
        with at(Part.UPLOAD, self.counting):
            return self._writer.write(data)

    def tell(self) -> int:
        return self._writer.size

    def close(self) -> None:
        """Publishes the object; `result` has its generation, size and crc32c then. Again: nothing."""
        if self.closed:
            return
        if self._is_abandoned or _leaving.by_exception():
            self.abort()
            return
        try:
            if not self._writer.ended:
                self.result = self._publish()
        finally:
            super().close()

    def _publish(self) -> dict[str, int]:
        with at(Part.COMMIT, self.counting):
            return self._writer.finish()

    def abort(self) -> None:
        """Ends the file without an object. After close: nothing."""
        self._writer.abort()
        super().close()

    def _abandon(self) -> None:
        """Ends the upload; what layers write until they have closed themselves goes nowhere."""
        self._is_abandoned = True
        self._writer.abort()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _dealloc_warn(self, layer: Any) -> None:
        """Layers of Python's io call this before they close a file because nobody did."""
        if not self.closed:
            self.abort()
            self._warn()

    def _warn(self) -> None:
        if not sys.is_finalizing():
            warnings.warn(
                f"{self.name}: the file was not closed, so that nothing was written; use `with`, or call close()",
                RuntimeWarning,
                stacklevel=3,
            )

    def __del__(self) -> None:
        # io.IOBase would close, which publishes.
        if hasattr(self, "_writer"):
            self._dealloc_warn(self)


@overload
def open(uri: str, mode: Literal["rb"] = "rb", *, client: Client | None = None, generation: int = 0) -> ReadFile: ...
@overload
def open(uri: str, mode: Literal["wb"], *, client: Client | None = None, **options: Any) -> WriteFile: ...
@overload
def open(
    uri: str, mode: str, *, client: Client | None = None, generation: int = 0, **options: Any
) -> ReadFile | WriteFile: ...
def open(
    uri: str, mode: str = "rb", *, client: Client | None = None, generation: int = 0, **options: Any
) -> ReadFile | WriteFile:
    """An object as a binary file: "rb" is seekable, "wb" is a stream that appears when it is closed.

    generation: that is read; 0: the newest one, which then stays the same. For "wb" the options are those of
    Client.writer: part_size, parts_in_flight, if_generation_match, content_type, size_hint, exclusive, storage_class.
    """
    client = chosen(client)
    if mode == "rb" and not options:
        return ReadFile(_RawReader(client, uri, generation), _BUFFER_SIZE)
    if mode == "wb" and not generation:
        file = WriteFile(client.writer(uri, **options), uri)
        file.counting = client
        return file
    raise ValueError(
        f'{uri}: mode must be "rb" (with generation=, no other option) or "wb" (with options of a writer), got {mode!r}'
    )


async def aopen(uri: str, *, client: Client | None = None, generation: int = 0) -> AsyncReadFile:
    """open(uri, "rb") for an event loop: `async with await aopen(uri) as file: head = await file.read(100)`."""
    client = chosen(client)
    return AsyncReadFile(client, uri, await client.astat(uri, generation=generation))


@spanned("ringest.checkpoint.save")
def save(
    obj: Any,
    uri: str,
    *,
    client: Client | None = None,
    part_size: int | str = 0,
    parts_in_flight: int = 0,
    if_generation_match: int | None = None,
    content_type: str | None = None,
    pickle_module: Any = pickle,
    pickle_protocol: int = 2,
) -> dict[str, int]:
    """What torch.save(obj, file) would write, as an object: its generation, size and crc32c.

    Tensors are sent from their own memory, without a copy, and must not be changed before this returns. The
    object appears when it is complete; any failure leaves what was there before. if_generation_match: the
    generation that is replaced, 0: there must be none; otherwise PreconditionError.
    """
    with needs("ringest.checkpoint.save"):
        import torch

        from ringest import _freed

    client = chosen(client)
    options: dict[str, Any] = {
        "part_size": parse_size(part_size, "part_size"),
        "parts_in_flight": parts_in_flight,
        "if_generation_match": if_generation_match,
        "content_type": content_type,
    }
    pickling = getattr(torch.serialization, "_save", None)
    if pickling is None:
        with open(uri, "wb", client=client, **options) as file:
            torch.save(obj, file, pickle_module=pickle_module, pickle_protocol=pickle_protocol)
        assert file.result is not None
        return file.result
    with client.writer(uri, **options) as writer, at(Part.UPLOAD, client):
        archive = ArchiveWriter(writer, torch_checksums(), torch_alignment())
        pickling(obj, archive, pickle_module, pickle_protocol, False)
        if archive.has_empty_storage:
            _freed.refuse_in(obj, pickle_module, pickle_protocol)
        archive.finish()
        with at(Part.COMMIT, client):
            return writer.finish()


@spanned("ringest.checkpoint.load")
def load(
    uri: str,
    *,
    map_location: Any = None,
    weights_only: bool = True,
    client: Client | None = None,
    generation: int = 0,
    verify: bool = True,
    process_group: ProcessGroup | None = None,
    alone_max: int | None = None,
    pickle_module: Any = None,
    **pickle_load_args: Any,
) -> Any:
    """What torch.load gives for an object that torch.save or save() wrote.

    generation: that is loaded; 0: the newest one. Storages are read straight into the memory that the tensors will
    have, by many requests at once, and all of the object is compared with its CRC32C, unless verify=False.
    If map_location names a device that has streams, such as "cuda", they come through up to 256 MiB of pinned memory,
    which the device copies from while more is read. Files of older layouts, and compressed ones, are read into memory first. Where tensors are to have no content
    (map_location="meta", FakeTensorMode), nothing is compared, because theirs is not read.

    process_group: its ranks load the object together, each byte once for all of them; every rank makes this call, with
    the same uri, generation and verify, and gets tensors of its own. On a host they take up to 390 MiB of memory
    together while they read. Its backend, or one of them, must be for the CPU (gloo). All ranks return, or all raise:
    what the first rank that failed raised, or GroupError where a rank is lost, after the group's timeout at the
    latest. alone_max: an object of up to so many bytes each rank reads by itself, the same for all ranks; by default 65,536
    between hosts, where that is faster than to give it on, and on one host 0.

    The other arguments are those of torch.load. A file that is no checkpoint, or that is cut or damaged, raises
    CheckpointError; bytes that are not those that were stored, or that cannot be compared, ChecksumError.
    """
    with needs("ringest.checkpoint.load"):
        import torch

    options = (generation, verify, pickle_module, pickle_load_args)
    if process_group is None:
        client = chosen(client)
        with at(Part.READ, client):
            return _load(uri, map_location, weights_only, client, client, *options)
    with needs("ringest.checkpoint.load"):
        from ringest import _together, _together_object

    def begin() -> _together_object.Loading[Any]:
        used = chosen(client)
        alike = verify, _wants_no_bytes(torch, map_location)

        def make(reader: OwnObject | TogetherObject) -> Any:
            with at(Part.READ, used):
                return _load(uri, map_location, weights_only, used, reader, *options)

        return _together_object.Loading(used, uri, generation, alike, _together.alone_checked(alone_max), make)

    return _together_object.load(process_group, uri, begin)[1]


def _load(
    uri: str,
    map_location: Any,
    weights_only: bool,
    client: Client,
    reader: Client | OwnObject | TogetherObject,
    generation: int,
    verify: bool,
    pickle_module: Any,
    pickle_load_args: dict[str, Any],
) -> Any:
    """reader: of the bytes of tensors."""
    import torch

    unpickling = getattr(torch.serialization, "_load", None)
    if _wants_no_bytes(torch, map_location):
        with open(uri, "rb", client=client, generation=generation) as file:
            return _load_file(file, uri, file.generation, map_location, weights_only, pickle_module, pickle_load_args)

    device = _staged_device(torch, map_location) if reader is client else None

    def take(facts: dict[str, Any]) -> ArchiveReader | _Whole:
        if unpickling is not None:
            try:
                return ArchiveReader(reader, uri, facts, verify, device)
            except Foreign:
                pass
        return _Whole(reader, uri, facts, verify)

    with at(Part.LIST, client):
        archive = _newest.read(reader, uri, generation, take)
    if isinstance(archive, _Whole):
        whole = io.BufferedReader(archive, _BUFFER_SIZE)
        return _load_file(whole, uri, archive.generation, map_location, weights_only, pickle_module, pickle_load_args)
    assert unpickling is not None
    if weights_only:
        if pickle_module is not None:
            raise ValueError("weights_only has its own unpickler: give no pickle_module, or weights_only=False")
        try:
            loaded = _torch_pickle.load(archive, map_location)
        except _torch_pickle.NotPlain:
            pass
        else:
            archive.check_storages()
            return loaded
        pickle_module = torch._weights_only_unpickler
    pickle_load_args.setdefault("encoding", "utf-8")
    try:
        loaded = unpickling(archive, map_location, pickle_module or pickle, **pickle_load_args)
    except pickle.UnpicklingError as error:
        error.add_note(f"while {uri} was loaded" + (" with weights_only=True" if weights_only else ""))
        raise
    except _BROKEN_PICKLE if weights_only else () as error:
        cause = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{uri} (generation {archive.generation}) cannot be loaded: {cause}") from error
    archive.check_storages()
    return loaded


def _staged_device(torch: Any, map_location: Any) -> torch.device | None:
    """Where all storages are to be, if that is a device with streams."""
    from ringest import _lane, _staging

    if not isinstance(map_location, (str, torch.device)) or not _staging.is_staged(torch.device(map_location)):
        return None
    return _lane.check_device(map_location)


class _Whole(MemoryFile):
    """All of an object in memory, as a file."""

    def __init__(self, client: Client | OwnObject | TogetherObject, uri: str, facts: dict[str, Any], verify: bool):
        self.generation: int = facts["generation"]
        super().__init__(memoryview(bytearray(facts["size"])))
        client.get_into(
            uri,
            [(0, self._memory)],
            generation=self.generation,
            verify=verify,
            whole=verify,
            crc32c=facts["crc32c"],
        )


# What torch raises for bytes that are no checkpoint: its unpicklers take them as they come.
_DAMAGED = (
    AssertionError,
    EOFError,
    LookupError,
    RuntimeError,
    UnicodeDecodeError,
    pickle.UnpicklingError,
    struct.error,
)
_SAFE_DAMAGED = (*_DAMAGED, TypeError, ValueError)
# Those of them that only the bytes can have caused if no code of the file runs.
_BROKEN_PICKLE = (AssertionError, EOFError, LookupError, UnicodeDecodeError, struct.error)


def _load_file(
    file: Any,
    uri: str,
    generation: int,
    map_location: Any,
    weights_only: bool,
    pickle_module: Any,
    pickle_load_args: dict[str, Any],
) -> Any:
    """The way for files of other layouts: compressed, of TorchScript, or older than the ZIP format."""
    with needs("ringest.checkpoint.load"):
        import torch

    try:
        return torch.load(file, map_location, pickle_module, weights_only=weights_only, mmap=False, **pickle_load_args)
    except _SAFE_DAMAGED if weights_only else _DAMAGED as error:
        file.seek(0)
        head = file.read(4)
        if is_gzip(head):
            raise CheckpointError(f"{uri} (generation {generation}) {gzip_told(uri)}") from error
        if head.startswith((b"PK\3\4", b"\x80")):
            cause = str(error).partition("\n")[0] or type(error).__name__
        else:
            cause = f"it is no file of torch.save, it begins with {head!r}"
        raise CheckpointError(f"{uri} (generation {generation}) cannot be loaded: {cause}") from error


def _wants_no_bytes(torch: Any, map_location: Any) -> bool:
    """Tensors without memory, or without content."""
    local = getattr(torch.serialization, "_serialization_tls", None)
    return (
        getattr(local, "skip_data", False)
        or torch._guards.detect_fake_mode(None) is not None
        or (isinstance(map_location, (str, torch.device)) and torch.device(map_location).type == "meta")
    )
