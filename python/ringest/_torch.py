"""What PyTorch has of datasets, and what stands for it where it is not installed."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ringest import _collate

try:
    from torch.utils.data import Dataset as MapBase
    from torch.utils.data import IterableDataset as IterableBase
    from torch.utils.data import get_worker_info as worker_info
except ImportError:  # torch is optional

    class MapBase:  # type: ignore[no-redef]
        pass

    class IterableBase:  # type: ignore[no-redef]
        pass

    def worker_info() -> Any:
        return None


def profiler() -> ModuleType | None:
    """The module that says whether torch's profiler runs; None: nobody has imported it."""
    return sys.modules.get("torch.autograd.profiler")


_collate.register()
