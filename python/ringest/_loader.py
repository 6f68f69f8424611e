"""Which worker of a DataLoader this process is."""

from __future__ import annotations

import sys


def worker() -> tuple[int, int]:
    """The worker's number, and how many there are; (0, 0): this process is none. Called by the extension when it starts
    event loops: workers divide those of their rank."""
    data = sys.modules.get("torch.utils.data")
    info = getattr(data, "get_worker_info", lambda: None)()
    return (0, 0) if info is None else (info.id, info.num_workers)
