"""Objects of Google Cloud Storage, as fast as the machine allows.

In use:

    import ringest

    client = ringest.Client()
    data = client.get("gs://bucket/object")               # bytes-like, no copy
    for items in client.get_many(uris): ...               # lists of Item, as they arrive

    dataset = ringest.IterableDataset("gs://bucket/train/", shuffle=True, batch_size=64)
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from ringest import _interpreter  # noqa: F401 (before the extension, which not all of them find)

# isort: split
from ringest import _core, _share  # noqa: F401 (how lists are pickled)
from ringest._core import Buffer, Item, Objects, TarIndex
from ringest._errors import (
    ChecksumError,
    Error,
    ListError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnavailableError,
)
from ringest._metrics import Metric, metrics
from ringest._samples import SKIP, TransformError
from ringest._state import gather_state
from ringest.client import Client, default_client, stats

if TYPE_CHECKING:
    from ringest._trace import trace
    from ringest.dataset import IterableDataset, MapDataset
    from ringest.device import DeviceBatches, to_device
    from ringest.parquet import ParquetDataset
    from ringest.tar import TarDataset, TarMapDataset

__version__ = _core.version
__all__ = [
    "Buffer",
    "ChecksumError",
    "Client",
    "DeviceBatches",
    "Error",
    "IterableDataset",
    "Item",
    "ListError",
    "MapDataset",
    "Metric",
    "NotFoundError",
    "Objects",
    "ParquetDataset",
    "PermissionDeniedError",
    "PreconditionError",
    "SKIP",
    "TarDataset",
    "TarIndex",
    "TarMapDataset",
    "TransformError",
    "UnavailableError",
    "default_client",
    "gather_state",
    "metrics",
    "stats",
    "to_device",
    "trace",
]

# Tracebacks and pickles name what programs import.
for _class in (
    ChecksumError,
    Error,
    ListError,
    Metric,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    TransformError,
    UnavailableError,
):
    _class.__module__ = __name__
del _class

# Datasets are PyTorch's, whose import takes seconds, and few write traces: only where they are used.
_DATASETS = {
    "DeviceBatches": "device",
    "IterableDataset": "dataset",
    "MapDataset": "dataset",
    "ParquetDataset": "parquet",
    "TarDataset": "tar",
    "TarMapDataset": "tar",
    "to_device": "device",
    "trace": "_trace",
}


# What cannot be had without a package. help(ringest) takes all that dir() names, `from ringest import *` all of __all__,
# and either would end there. Who asks for one of them by its name is told what to install.
_NEEDED = {"DeviceBatches": "torch", "ParquetDataset": "pyarrow", "to_device": "torch"}


def _is_there(name: str) -> bool:
    try:
        return name not in _NEEDED or importlib.util.find_spec(_NEEDED[name]) is not None
    except (ImportError, ValueError):  # of a program that forbids its import
        return False


__all__[:] = filter(_is_there, __all__)


def __getattr__(name: str) -> Any:
    if name in _DATASETS:
        return getattr(importlib.import_module(f"ringest.{_DATASETS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Modules that a program imports by itself.
_MODULES = [
    "aio",
    "checkpoint",
    "client",
    "dataflux",
    "dataset",
    "dcp",
    "device",
    "fs",
    "lightning",
    "opentelemetry",
    "prometheus",
    "retention",
    "safetensors",
]
_MODULES += ["parquet", "ray", "tar", "tensorboard", "torch_checkpointing", "torchdata", "webdataset"]


def __dir__() -> list[str]:
    loaded = [name for name in _MODULES if name in globals()]
    special = [name for name in globals() if name.startswith("__")]
    return sorted([*__all__, *loaded, *special])
