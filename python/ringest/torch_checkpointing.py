"""Cloud Storage for the checkpoints of torch_checkpointing.

    from ringest.torch_checkpointing import StorageConfig

    manager = CheckpointManager(..., storage_config=StorageConfig())
    manager.save("gs://bucket/run/step-100", ...)

Its paths are pathlib's, which makes gs:/bucket/run of gs://bucket/run: both are understood.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringest import checkpoint as files
from ringest._errors import NotFoundError, PreconditionError
from ringest._needs import needs
from ringest._uri import object_uri
from ringest.client import Client, default_client

with needs(__name__, "torch_checkpointing"):
    from torch_checkpointing.metadata_serialization import METADATA_FILE_NAME
    from torch_checkpointing.storage import base_storage as base

__all__ = ["Storage", "StorageConfig"]

# The URI of an object, and its generation.
_Found = tuple[str, int]

# Copies and removals that the service is asked for at once.
_REQUESTS = 32


@dataclass
class StorageConfig(base.StorageConfig):
    """client: by default that of the process. It reaches the process that saves in the background."""

    client: Client | None = None

    def create_storage(self) -> Storage:
        return Storage(self.client)


class Storage(base.Storage):
    """Files are objects, and a directory is what lies below it: mkdir() makes nothing, and an empty one is not there.

    A file appears when it is closed, as a whole, and a `with` statement that an exception leaves makes none. What is
    read from its beginning to its end is checked against the object's CRC32C.

    Directories are renamed by copies within the service. No object is replaced by that: if any is at the destination,
    FileExistsError is raised, and nothing is removed. The checkpoint's metadata comes last, so that a rename that was
    interrupted leaves no checkpoint that looks complete. Only what was copied is removed, in the generation that was.
    Where directories are removed, also those that were renamed, the metadata goes first, for the same reason.

    Errors are those of ringest, of which NotFoundError is a FileNotFoundError. Any thread may use it.
    """

    def __init__(self, client: Client | None = None) -> None:
        self._given = client

    @property
    def _client(self) -> Client:
        return self._given or default_client()

    def stream_read(self, path: Path, read_args: base.ReadArgs | None = None) -> io.RawIOBase:
        return files.open(_uri(path), client=self._client)  # type: ignore[return-value]  # which has readinto

    def stream_write(self, path: Path) -> io.IOBase:
        return files.open(_uri(path), "wb", client=self._client)

    def read(self, path: Path, read_args: base.ReadArgs | None = None) -> bytes:
        return bytes(self._client.get(_uri(path)))

    def write(self, path: Path, data: Any) -> None:
        self._client.put(_uri(path), data)

    def delete(self, path: Path) -> None:
        self._client.delete(_uri(path))

    def mkdir(self, path: Path, recursive: bool = True) -> None:
        """Nothing: directories are parts of names."""
        _uri(path)

    def rmdir(self, path: Path) -> None:
        """Removes all that lies below, in the generations that are there now."""
        found = self._below(path)
        if not found:
            raise FileNotFoundError(errno.ENOENT, "there is no such directory", _uri(path))
        self._remove(found)

    def rename(
        self, src_path: Path, dst_path: Path, is_directory: bool = False, background_cleanup: bool = False
    ) -> None:
        source, target = _uri(src_path), _uri(dst_path)
        if self.isdir(dst_path):
            raise _occupied(source, target, errno.ENOTEMPTY if self.isdir(src_path) else errno.EISDIR)
        if found := self._below(src_path):
            if self._client.exists(target):
                raise _occupied(source, target, errno.ENOTDIR)
            self._rename_all(found, source, target)
            return
        generation = self._client.stat(source)["generation"]
        self._client.copy(source, target, generation=generation)
        if source != target:
            self._remove([(source, generation)])

    def _rename_all(self, found: list[_Found], source: str, target: str) -> None:
        metadata, others = _by_kind(found)
        for part in others, metadata:
            calls = (
                (uri, "copy", (uri, target + uri[len(source) :]), {"generation": generation, "if_generation_match": 0})
                for uri, generation in part
            )
            for _, _, error in self._client._bulk(calls, _REQUESTS):
                if isinstance(error, PreconditionError):
                    raise _occupied(source, target, errno.ENOTEMPTY) from error
                if error is not None:
                    raise error
        self._remove(found)

    def ls(self, path: Path) -> list[str]:
        """Names of files and directories right below; of a directory that is not there, an error."""
        start = len(_uri(path)) + 1
        names = {uri[start:].partition("/")[0] for uri, _ in self._below(path)}
        if not names:
            raise FileNotFoundError(errno.ENOENT, "there is no such directory", _uri(path))
        return sorted(names)

    def exists(self, path: Path) -> bool:
        return self._client.exists(_uri(path)) or self.isdir(path)

    def getsize(self, path: Path) -> int:
        return self._client.stat(_uri(path))["size"]

    def isdir(self, path: Path) -> bool:
        return bool(self._below(path))

    def remap_path(self, path: Path) -> str:
        return _uri(path)

    def _below(self, path: Path) -> list[_Found]:
        """URIs and generations of what is in a directory, and in those in it."""
        bucket, _, _ = _uri(path).removeprefix("gs://").partition("/")
        return [(f"gs://{bucket}/{name}", generation) for name, _, generation in self._client.list(_uri(path) + "/")]

    def _remove(self, objects: Iterable[_Found]) -> None:
        """What was replaced meanwhile stays, and what is gone is."""
        for part in _by_kind(objects):
            calls = ((uri, "delete", (uri,), {"if_generation_match": generation}) for uri, generation in part)
            for _, _, error in self._client._bulk(calls, _REQUESTS):
                if error is not None and not isinstance(error, (NotFoundError, PreconditionError)):
                    raise error


def _by_kind(objects: Iterable[_Found]) -> tuple[list[_Found], list[_Found]]:
    """Metadata of checkpoints, without which they are none, and all else."""
    kinds: tuple[list[_Found], list[_Found]] = ([], [])
    for each in objects:
        kinds[each[0].rpartition("/")[2] != METADATA_FILE_NAME].append(each)
    return kinds


def _uri(path: Path) -> str:
    uri = object_uri(path)
    if uri is None:
        raise ValueError(f"{path} is not below gs://BUCKET/: this storage is for Cloud Storage only")
    return uri.rstrip("/")


def _occupied(source: str, target: str, number: int) -> FileExistsError:
    return FileExistsError(
        number, f"{source} was not renamed to {target}: something is there; remove that first if it is to be replaced"
    )
