"""The `.metadata` of a checkpoint: where each of its items lies.

It is torch's own: a pickled Metadata whose storage_data maps each item to a _StorageInfo (file,
offset, length), so that torch's FileSystemReader reads it. Ours has one attribute more on each
_StorageInfo, `ringest`: (LAYOUT, offset of the elements in the item, CRC32C of the elements). Of an
item that is no plain tensor that offset is 0, and the CRC32C that of the whole item.
"""

from __future__ import annotations

import contextlib
import copyreg
import gc
import io
import itertools
import pathlib
import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint import metadata as torch_metadata
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata

from ringest._errors import CheckpointError, gzip_told, is_gzip

VERSION = "1.0.0"  # of torch's format, which says nothing of what is inside an item
LAYOUT = 1


class Item(NamedTuple):
    """Where one item lies."""

    file: str
    offset: int
    length: int
    inner: int | None  # offset of the elements in the item; None: not written by ringest
    crc32c: int | None


def info_make(file: str, offset: int, length: int, inner: int, crc32c: int) -> _StorageInfo:
    info: Any = _StorageInfo(file, offset, length)
    attributes = info.__dict__
    attributes["ringest"] = (LAYOUT, inner, crc32c)
    # torch leaves it out of the pickle.
    attributes.pop("transform_descriptors", None)
    return info


def info_read(info: Any, uri: str, fqn: str) -> Item:
    """Raises CheckpointError for what this version cannot read."""
    if not isinstance(info, _StorageInfo):
        raise CheckpointError(
            f"{uri}: {fqn} is described by a {type(info).__name__}, not as a part of a file; "
            "load it with the reader of the library that saved it"
        )
    transforms = getattr(info, "transform_descriptors", None)
    if transforms:
        raise CheckpointError(
            f"{uri}: {fqn} went through the stream transforms {', '.join(transforms)}; "
            "download the checkpoint and load it with torch's FileSystemReader"
        )
    layout, inner, crc32c = getattr(info, "ringest", None) or (None, None, None)
    if layout not in (None, LAYOUT):
        raise CheckpointError(
            f"{uri}: {fqn} has layout {layout}, this version of ringest knows {LAYOUT}; update ringest"
        )
    path = info.relative_path
    if not isinstance(path, str) or (".." in path and ".." in path.split("/")):
        raise CheckpointError(f"{uri}: {fqn} lies in {path!r}, which is not below the checkpoint")
    return Item(info.relative_path, info.offset, info.length, inner, crc32c)


def _allowed() -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {("collections", "OrderedDict"): __import__("collections").OrderedDict}
    for name in (*torch_metadata.__all__, "_MEM_FORMAT_ENCODING"):
        thing = getattr(torch_metadata, name)
        found[torch_metadata.__name__, name] = thing
    found["torch.distributed.checkpoint.filesystem", "_StorageInfo"] = _StorageInfo
    found["torch", "Size"] = torch.Size
    found["torch.serialization", "_get_layout"] = torch.serialization._get_layout
    for name, thing in vars(torch).items():
        if isinstance(thing, (torch.dtype, torch.layout, torch.memory_format)):
            found["torch", name] = thing
    # torch's writer for file systems notes its folder.
    for module in "pathlib", "pathlib._local":
        for name in "PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath":
            found[module, name] = pathlib.PureWindowsPath if "Windows" in name else pathlib.PurePosixPath
    return found


class _Unpickler(pickle.Unpickler):
    """Makes nothing but what a Metadata is made of, and what torch.serialization.add_safe_globals allows."""

    def __init__(self, data: io.BytesIO, uri: str):
        super().__init__(data)
        self._uri = uri
        self._known = _allowed()

    def find_class(self, module: str, name: str) -> Any:
        known = self._known.get((module, name))
        if known is not None:
            return known
        for safe in torch.serialization.get_safe_globals():
            thing, named = safe if isinstance(safe, tuple) else (safe, f"{safe.__module__}.{safe.__qualname__}")
            if named == f"{module}.{name}":
                return thing
        raise CheckpointError(
            f"{self._uri}: holds a {module}.{name}, which metadata has not; if you trust it, "
            "allow it by torch.serialization.add_safe_globals"
        )


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """While many objects are made that all stay: looking for cycles among them, and sooner or later through all of
    the process's, takes longer than making them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _share(metadata: Metadata) -> None:
    """Makes what is equal one object, so that it is pickled once: most tensors are of the type, the shape and the pieces of
    others, and every size stands there several times."""
    sizes: dict[torch.Size | None, torch.Size] = {}
    properties: dict[Any, torch_metadata.TensorProperties] = {}
    known: dict[Any, torch_metadata.TensorStorageMetadata] = {}
    shared: set[int] = set()  # ids of those that are known
    entries = metadata.state_dict_metadata
    for fqn, entry in entries.items():
        # Of a plan that was kept, all are shared since the first save.
        if id(entry) in shared or not isinstance(entry, torch_metadata.TensorStorageMetadata):
            continue
        own, size = entry.properties, entry.size
        key = own.dtype, own.layout, own.requires_grad, own.memory_format, own.pin_memory
        chunks = [(chunk.offsets, chunk.sizes) for chunk in entry.chunks]
        one = known.setdefault((key, size, *chunks), entry)
        if one is not entry:
            entries[fqn] = one
            continue
        shared.add(id(entry))
        entry.properties = properties.setdefault(key, own)
        entry.size = sizes.setdefault(size, size)
        for chunk in entry.chunks:
            chunk.offsets = sizes.setdefault(chunk.offsets, chunk.offsets)
            chunk.sizes = sizes.setdefault(chunk.sizes, chunk.sizes)
    for index in metadata.storage_data:
        offset = index.offset
        one_size = sizes.setdefault(offset, offset)
        if one_size is not offset:
            # It is frozen because it is a key, which stays equal.
            object.__setattr__(index, "offset", one_size)


def _by_attributes(thing: Any) -> tuple[Any, ...]:
    """What pickle itself finds out by more steps, of an object without a way of its own to be pickled."""
    return copyreg.__newobj__, (type(thing),), thing.__dict__  # type: ignore[attr-defined]


def _pickler(file: io.BytesIO, metadata: Metadata) -> pickle.Pickler:
    """Each item has two objects of its own. pickle asks three calls of Python how to take one apart, where the answer is the same
    for all. Where torch comes to have another one, the first item tells."""
    pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
    quick = {
        type(thing): _by_attributes
        for item in itertools.islice(metadata.storage_data.items(), 1)
        for thing in item
        if tuple(thing.__reduce_ex__(pickle.HIGHEST_PROTOCOL))[:3] == _by_attributes(thing)
    }
    pickler.dispatch_table = {**copyreg.dispatch_table, **quick}
    return pickler


def encode(metadata: Metadata) -> bytes:
    file = io.BytesIO()
    with _no_collection():
        _share(metadata)
        _pickler(file, metadata).dump(metadata)
    return file.getvalue()


def decode(data: Any, uri: str) -> Metadata:
    """The metadata that the bytes of `.metadata` at `uri` say."""
    try:
        with _no_collection():
            metadata = _Unpickler(io.BytesIO(data), uri).load()
    except CheckpointError:
        raise
    except Exception as error:
        if is_gzip(data):
            raise CheckpointError(f"{uri}: {gzip_told(uri)}") from error
        raise CheckpointError(
            f"{uri}: cannot be read as metadata of a checkpoint ({error}); it is damaged, or something else"
        ) from error
    if not isinstance(metadata, Metadata):
        raise CheckpointError(f"{uri}: holds a {type(metadata).__name__}, not the metadata of a checkpoint")
    version = getattr(metadata, "version", None)
    if version is not None and str(version).split(".")[0] != VERSION.split(".")[0]:
        raise CheckpointError(
            f"{uri}: is of version {version}, this version of ringest knows {VERSION}; "
            "update ringest, or load it with the torch that saved it"
        )
    if not isinstance(metadata.storage_data, dict):
        raise CheckpointError(f"{uri}: does not say where its items lie; it is damaged, or of another storage")
    if getattr(metadata, "storage_meta", None) is None:
        metadata.storage_meta = torch_metadata.StorageMeta()
    return metadata
