"""How long threads are at each part of saving and loading checkpoints: the metrics checkpoint_NAME_time."""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringest.client import Client


class Part(enum.IntEnum):
    """In the order of enum rg_checkpoint_part of <ringest/metrics.h>."""

    STAGE = 0
    UPLOAD = 1
    COMMIT = 2
    LIST = 3
    READ = 4
    PLACE = 5


class _Innermost(threading.local):
    part: at | None = None


_innermost = _Innermost()


class at:
    """For a `with`. What is within another one counts for itself, and not for that. Without a client nothing counts."""

    def __init__(self, part: Part, client: Client | None) -> None:
        self._part, self._client = part, client

    def __enter__(self) -> None:
        self._outer = _innermost.part
        if self._outer is not None:
            self._outer._count()
        _innermost.part = self
        self._since = time.perf_counter_ns()

    def __exit__(self, *exception: object) -> None:
        self._count()
        _innermost.part = self._outer
        if self._outer is not None:
            self._outer._since = time.perf_counter_ns()

    def _count(self) -> None:
        if self._client is not None:
            with contextlib.suppress(ValueError, OSError):  # it was closed, or is the parent's
                self._client._checkpoint_took(self._part, time.perf_counter_ns() - self._since)
