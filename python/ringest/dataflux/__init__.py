"""Google's Connector for PyTorch (dataflux_pytorch 1.4.0), by its own names: datasets and checkpoints.

Replace dataflux_pytorch by ringest.dataflux in imports; nothing else changes:

    from ringest.dataflux import dataflux_iterable_dataset, dataflux_mapstyle_dataset

    dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
        project_name="project",
        bucket_name="bucket",
        config=dataflux_mapstyle_dataset.Config(prefix="train/", sort_listing_results=True),
        data_format_fn=decode,  # gets bytes
    )

What is the same: names, arguments and their order, defaults, which objects a dataset has (not those
that end in "/", nor what the connector left below dataflux-composed-objects/), which of them each
worker of a DataLoader reads, and the samples.

What is not:

- Objects come in the order of their names, so that every process has the same order; the
  connector's is another in each process unless sort_listing_results is set.
- Objects of every storage class are listed, not of STANDARD alone.
- In a process group one rank lists for all.
- A sample that cannot be read raises what ringest.Client raises; batches are never short.
- Nothing is composed, so nothing is written, and permission to list and to get is enough. Of Config
  only prefix has an effect: see there.
- Datasets pickle with their client's endpoint, certificates and billing project. Workers that are
  spawned look for credentials themselves (Application Default Credentials).
- google-cloud-storage is not needed, unless a client of it is passed.

Of checkpoints there are dataflux_checkpoint.DatafluxCheckpoint, and in lightning (which needs Lightning)
DatafluxLightningCheckpoint, DatafluxLightningAsyncCheckpoint, GCSFileSystem, GCSDistributedWriter,
GCSDistributedReader and path_utils. Files are those of the connector, both ways. Nothing is written by
a save that fails, and a failure of an asynchronous save fails the training.

For new code, ringest.MapDataset and ringest.IterableDataset do more: shuffling, ranks, resuming,
and samples without a copy; and ringest.checkpoint, ringest.dcp and ringest.lightning.
"""

from ringest.dataflux import dataflux_iterable_dataset, dataflux_mapstyle_dataset
from ringest.dataflux.dataflux_iterable_dataset import DataFluxIterableDataset
from ringest.dataflux.dataflux_mapstyle_dataset import (
    Config,
    DataFluxMapStyleDataset,
    data_format_default,
)

__all__ = [
    "Config",
    "DataFluxIterableDataset",
    "DataFluxMapStyleDataset",
    "data_format_default",
    "dataflux_iterable_dataset",
    "dataflux_mapstyle_dataset",
]
