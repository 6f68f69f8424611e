"""Checkpoints of Lightning, by the connector's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.plugins.io import CheckpointIO

from ringest import checkpoint as files
from ringest.dataflux._common import Bucket
from ringest.dataflux.lightning.path_utils import object_uri
from ringest.lightning import AsyncCheckpointIO


class DatafluxLightningCheckpoint(CheckpointIO):
    """Saves to and loads from "gs://bucket/name".

    project_name and disable_multipart: have no effect. storage_client: a ringest.Client or a
    google.cloud.storage.Client, as for DataFluxIterableDataset.
    """

    def __init__(self, project_name: str | None, storage_client: Any = None, disable_multipart: bool = False):
        self.project_name = project_name
        self.storage_client = storage_client
        self.disable_multipart = disable_multipart
        self._source = Bucket("", storage_client)

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """storage_options: has no effect. Raises ringest.Error; then what was there before is there still."""
        files.save(checkpoint, object_uri(path), client=self._source.client())

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """map_location: that of torch.load. weights_only: None is PyTorch's default, True.

        Raises ringest.NotFoundError, and what ringest.checkpoint.load raises."""
        return files.load(
            object_uri(path),
            map_location=map_location,
            weights_only=weights_only is not False,
            client=self._source.client(),
        )

    def remove_checkpoint(self, path: str | Path) -> None:
        """Raises ringest.NotFoundError where there is none."""
        self._source.client().delete(object_uri(path))

    def teardown(self) -> None:
        pass


class DatafluxLightningAsyncCheckpoint(AsyncCheckpointIO):
    """The same while training goes on, as ringest.lightning.AsyncCheckpointIO does it: a failure fails the
    training."""

    def __init__(self, project_name: str | None, storage_client: Any = None, disable_multipart: bool = False):
        super().__init__(DatafluxLightningCheckpoint(project_name, storage_client, disable_multipart))
