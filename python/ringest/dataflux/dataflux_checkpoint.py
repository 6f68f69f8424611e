"""Checkpoints as files, by the connector's names."""

from __future__ import annotations

from typing import Any

from ringest import checkpoint
from ringest.dataflux._common import Bucket, checked_name

__all__ = ["DatafluxCheckpoint"]


class DatafluxCheckpoint:
    """Files in a bucket, for torch.save and torch.load.

    project_name: has no effect. storage_client: a ringest.Client or a google.cloud.storage.Client, as for
    DataFluxIterableDataset.

    Unlike the connector's: a writer sends while it is written to, in bounded memory, and one that is left by an
    exception, or forgotten without close(), writes nothing; a reader reads what is asked for, all of one
    generation, and can be sought in.
    """

    def __init__(self, project_name: str | None, bucket_name: str, storage_client: Any = None):
        self.project_name = project_name
        self.bucket_name = bucket_name
        self.storage_client = storage_client
        self._bucket = Bucket(checked_name(bucket_name), storage_client)

    def _uri(self, object_name: str) -> str:
        return f"gs://{self.bucket_name}/{object_name}"

    def reader(self, object_name: str) -> checkpoint.ReadFile:
        """Raises ringest.NotFoundError."""
        return checkpoint.open(self._uri(object_name), "rb", client=self._bucket.client())

    def writer(self, object_name: str) -> checkpoint.WriteFile:
        """The object appears when the file is closed; failures raise ringest.Error, there or before."""
        return checkpoint.open(self._uri(object_name), "wb", client=self._bucket.client())
