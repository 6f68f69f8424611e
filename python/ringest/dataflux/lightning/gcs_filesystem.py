"""torch.distributed.checkpoint in Cloud Storage, by the connector's names."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ringest import checkpoint, dcp
from ringest._errors import NotFoundError, PreconditionError
from ringest.client import Client
from ringest.dataflux._common import Bucket
from ringest.dataflux.lightning.path_utils import object_uri, parse_gcs_path

# Bytes at a time when an object is renamed.
_COPY_SIZE = 8 << 20

_PathLike = str | os.PathLike


class GCSFileSystem:
    """What torch's FileSystemReader and FileSystemWriter want of a file system.

    project_name: has no effect. debug: prints streams as they are opened. storage_client: a ringest.Client or
    a google.cloud.storage.Client, as for DataFluxIterableDataset.
    """

    def __init__(self, project_name: str | None, debug: bool = False, storage_client: Any = None):
        self.project_name = project_name
        self.storage_client = storage_client
        self.debug = debug
        self._source = Bucket("", storage_client)

    @contextlib.contextmanager
    def create_stream(self, path: _PathLike, mode: str) -> Iterator[BinaryIO]:
        """Mode "rb" or "wb". What is written appears at the end of the `with`, unless an exception ends it."""
        if mode not in ("rb", "wb"):
            raise ValueError(f"{path}: mode is {mode!r}; it is rb or wb")
        uri = object_uri(path)
        if self.debug:
            print(f"{uri}: opened with mode {mode}")
        with checkpoint.open(uri, mode, client=self._source.client()) as stream:
            yield stream

    def concat_path(self, path: _PathLike, suffix: str) -> Path:
        return Path(path) / suffix

    def init_path(self, path: _PathLike) -> Path:
        return Path(path)

    def rename(self, path: _PathLike, new_path: _PathLike) -> None:
        """By a copy, which goes through this process. ValueError for another bucket."""
        old, new = parse_gcs_path(path), parse_gcs_path(new_path)
        if old[0] != new[0]:
            raise ValueError(f"{path} cannot be renamed to {new_path}, which is in another bucket")
        if old == new:
            return
        client = self._source.client()
        with checkpoint.open(object_uri(path), "rb", client=client) as source:
            with checkpoint.open(object_uri(new_path), "wb", client=client) as target:
                shutil.copyfileobj(source, target, _COPY_SIZE)
            # What somebody has put there meanwhile stays, and so do old versions where the bucket keeps them.
            with contextlib.suppress(PreconditionError):
                client.delete(object_uri(path), if_generation_match=source.generation)

    def mkdir(self, path: _PathLike) -> None:
        """There are no folders to make."""

    def exists(self, path: _PathLike) -> bool:
        try:
            self._source.client().stat(object_uri(path))
        except NotFoundError:
            return False
        return True

    def rm_file(self, path: _PathLike) -> None:
        """Raises ringest.NotFoundError where there is none."""
        self._source.client().delete(object_uri(path))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: _PathLike) -> bool:
        """True, or ValueError for a string that is no such path."""
        if not isinstance(checkpoint_id, Path):
            parse_gcs_path(checkpoint_id)
        return True


class GCSDistributedWriter(dcp.StorageWriter):
    """ringest.dcp.StorageWriter by the connector's arguments.

    path: "gs://bucket/prefix". project_name: has no effect. storage_client, debug: those of GCSFileSystem.
    overwrite, cache_staged_state_dict: those of torch's FileSystemWriter, whose other arguments
    (single_file_per_rank, sync_files, thread_count, per_thread_copy_ahead) are taken and have no effect.

    What it writes loads with the connector's reader, and with torch's.
    """

    def __init__(
        self,
        path: _PathLike,
        project_name: str | None,
        storage_client: Any = None,
        debug: bool | None = False,
        *,
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
    ):
        self.fs = GCSFileSystem(project_name, bool(debug), storage_client)
        super().__init__(
            object_uri(path),
            client=self.fs._source.client(),
            overwrite=overwrite,
            cache_staged_state_dict=cache_staged_state_dict,
        )

    def reset(self, checkpoint_id: _PathLike | None = None) -> None:
        super().reset(object_uri(checkpoint_id) if checkpoint_id else None)

    def _client(self) -> Client:
        # The client's token may have ended since the last save.
        return self.fs._source.client()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: _PathLike) -> bool:
        return GCSFileSystem.validate_checkpoint_id(checkpoint_id)


class GCSDistributedReader(dcp.StorageReader):
    """ringest.dcp.StorageReader by the connector's arguments, which are those of GCSDistributedWriter.

    It reads what the connector's writer and torch's have written, too."""

    def __init__(
        self, path: _PathLike, project_name: str | None, storage_client: Any = None, debug: bool | None = False
    ):
        self.fs = GCSFileSystem(project_name, bool(debug), storage_client)
        super().__init__(object_uri(path), client=self.fs._source.client())

    def reset(self, checkpoint_id: _PathLike | None = None) -> None:
        super().reset(object_uri(checkpoint_id) if checkpoint_id else None)

    def _client(self) -> Client:
        return self.fs._source.client()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: _PathLike) -> bool:
        return GCSFileSystem.validate_checkpoint_id(checkpoint_id)
