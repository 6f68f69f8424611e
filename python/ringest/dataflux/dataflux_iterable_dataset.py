"""Objects of a bucket as a stream, by the connector's names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ringest._torch import IterableBase, worker_info
from ringest.dataflux._common import (
    CREATE,
    DELETE,
    FORK,
    BucketDataset,
    data_format_default,
    modified_retry,
)

__all__ = [
    "CREATE",
    "Config",
    "DELETE",
    "DataFluxIterableDataset",
    "FORK",
    "data_format_default",
]


def __getattr__(name: str) -> Any:
    if name == "MODIFIED_RETRY":
        return modified_retry()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Config:
    """Settings of a DataFluxIterableDataset.

    prefix: objects whose names begin with it; None: all of the bucket.

    The rest is kept as it was given and has no effect: listings are always sorted; nothing is
    composed (sort_listing_results, max_composite_object_size in bytes, disable_compose); there are
    no processes (num_processes); and what can be tried again is, within the library's own limits
    (max_listing_retries, list_retry_config, download_retry_config).
    """

    def __init__(
        self,
        sort_listing_results: bool = False,
        max_composite_object_size: int = 100000000,
        num_processes: int | None = os.cpu_count(),
        prefix: str | None = None,
        max_listing_retries: int = 3,
        disable_compose: bool = False,
        list_retry_config: Any = None,
        download_retry_config: Any = None,
    ):
        self.sort_listing_results = sort_listing_results
        self.max_composite_object_size = 0 if disable_compose else max_composite_object_size
        self.num_processes = num_processes
        self.prefix = prefix
        self.max_listing_retries = max_listing_retries
        self.list_retry_config = list_retry_config
        self.download_retry_config = download_retry_config


class DataFluxIterableDataset(BucketDataset, IterableBase):
    """Objects of a bucket as a stream, read ahead.

    project_name: has no effect. data_format_fn: makes a sample of an object's bytes; what it raises
    comes out with a note that names the object. storage_client: a ringest.Client or a
    google.cloud.storage.Client, of which the endpoint, the credentials, their quota project and the
    certificates are taken over; None: by the environment.

    The bucket is listed at once; `objects` is the list of (name, size in bytes), which may be
    changed. In a DataLoader's worker an iteration gives one contiguous part of it, as long as that
    of every other worker but the last. Ranks are not told apart.

    Raises ringest.Error when the bucket cannot be listed.
    """

    _config_class = Config

    def __iter__(self) -> Iterator[Any]:
        objects = self.objects
        worker = worker_info()
        if worker is not None:
            share = -(-len(objects) // worker.num_workers)
            objects = objects[worker.id * share : (worker.id + 1) * share]
        yield from self._bucket.read(objects, self.data_format_fn)
