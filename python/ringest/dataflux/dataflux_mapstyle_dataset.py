"""Objects of a bucket by index, by the connector's names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ringest._torch import MapBase
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
    "DataFluxMapStyleDataset",
    "FORK",
    "data_format_default",
]


def __getattr__(name: str) -> Any:
    if name == "MODIFIED_RETRY":
        return modified_retry()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Config:
    """Settings of a DataFluxMapStyleDataset.

    prefix: objects whose names begin with it; None: all of the bucket.

    The rest is kept as it was given and has no effect: listings are always sorted; nothing is
    composed (sort_listing_results, max_composite_object_size in bytes, disable_compose); there are
    neither processes nor threads (num_processes, threads_per_process); and what can be tried again
    is, within the library's own limits (max_listing_retries, list_retry_config,
    download_retry_config).
    """

    def __init__(
        self,
        sort_listing_results: bool = False,
        max_composite_object_size: int = 100000000,
        num_processes: int | None = os.cpu_count(),
        prefix: str | None = None,
        max_listing_retries: int = 3,
        threads_per_process: int = 1,
        disable_compose: bool = False,
        list_retry_config: Any = None,
        download_retry_config: Any = None,
    ):
        self.sort_listing_results = sort_listing_results
        self.max_composite_object_size = 0 if disable_compose else max_composite_object_size
        self.num_processes = num_processes
        self.prefix = prefix
        self.max_listing_retries = max_listing_retries
        self.threads_per_process = threads_per_process
        self.list_retry_config = list_retry_config
        self.download_retry_config = download_retry_config


class DataFluxMapStyleDataset(BucketDataset, MapBase):
    """Objects of a bucket by index; a DataLoader's whole batch is in flight at once.

    Arguments, `objects` and errors are those of DataFluxIterableDataset.
    """

    _config_class = Config

    def __len__(self) -> int:
        return len(self.objects)

    def __getitem__(self, idx: int) -> Any:
        return self.__getitems__([idx])[0]

    def __getitems__(self, indices: Sequence[int]) -> list:
        try:
            objects = [self.objects[idx] for idx in indices]
        except IndexError:
            where = f"gs://{self.bucket_name}/{self.config.prefix or ''}"
            raise IndexError(f"{where}: there are {len(self.objects):,} objects, no index of {list(indices)}") from None
        return list(self._bucket.read(objects, self.data_format_fn))
