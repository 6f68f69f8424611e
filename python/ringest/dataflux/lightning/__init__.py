"""Checkpoints of Lightning and of torch.distributed.checkpoint, by the connector's names."""

from ringest.dataflux.lightning.dataflux_lightning_checkpoint import (
    DatafluxLightningAsyncCheckpoint,
    DatafluxLightningCheckpoint,
)
from ringest.dataflux.lightning.gcs_filesystem import (
    GCSDistributedReader,
    GCSDistributedWriter,
    GCSFileSystem,
)

__all__ = [
    "DatafluxLightningAsyncCheckpoint",
    "DatafluxLightningCheckpoint",
    "GCSDistributedReader",
    "GCSDistributedWriter",
    "GCSFileSystem",
]
