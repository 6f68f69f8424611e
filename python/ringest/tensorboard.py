"""Scalars for TensorBoard, beside the loss.

    writer = torch.utils.tensorboard.SummaryWriter("gs-or-local-folder")
    seen = ringest.tensorboard.Scalars(writer)
    for step, batch in enumerate(loader):
        ...
        if step % 100 == 0:
            seen.write(step)

Any writer with add_scalar(tag, value, step) will do: that of torch.utils.tensorboard, tensorboardX, a stub.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from ringest._explain import Explanation
from ringest._metrics import BOUNDS, Metric, metrics
from ringest.client import Client

__all__ = ["Scalars"]

_NS_PER_MS = 10**6


class Writer(Protocol):
    """What is needed of one."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int, /) -> object: ...


class Explained(Protocol):
    """A dataset of ringest."""

    def explain(self, steps: int = ..., /) -> Explanation: ...


def quantile(bounds: Sequence[int], below: Sequence[int], count: int, p: float) -> float:
    """Of `count` values, `below[i]` of which are below `bounds[i]`: the value that a part p of them is below, between
    the ends of its bucket as if they were spread evenly; 0 of none."""
    wanted, begin, seen = p * count, 0, 0
    for end, until in zip(bounds, below):
        if until >= wanted and until > seen:
            return begin + (end - begin) * (wanted - seen) / (until - seen)
        begin, seen = end, max(seen, until)
    return float(bounds[-1]) if count > 0 else 0.0


class _Sums:
    """What is compared with what was counted before."""

    def __init__(self, found: list[Metric]):
        self.at = time.monotonic()
        self.wait_ns = sum(m.histogram.sum for m in found if m.name == "consumer_wait" and m.histogram)
        self.bytes = sum(m.value for m in found if m.name in ("recv_bytes", "cache_hit_bytes"))
        self.window = {m.name: m.value for m in found if m.name.startswith("window_")}
        self.checkpoints = {m.name: m.value for m in found if m.name.startswith("checkpoint_")}
        self.retries = sum(m.value for m in found if m.name == "retries")
        gets = [m for m in found if m.name == "request_duration" and m.operation == "get"]
        self.get_count = sum(m.value for m in gets)
        self.gets = [sum(column) for column in zip(*(m.histogram.buckets for m in gets if m.histogram))]
        self.gets = self.gets or [0] * len(BOUNDS)


class Scalars:
    """Writes what has happened since the last call: ringest/wait_ms_per_step (how long threads slept for data),
    ringest/megabytes_per_s (received, or from the cache), ringest/get_p99_ms (of gets, retries included; interpolated
    within a factor of 2), ringest/retries, and where there are some, ringest/window_fill (which part of what may be read
    ahead is there) and ringest/checkpoint_upload_ms, ... (of saving and loading checkpoints).

    dataset: one that the loop iterates, of which ringest/wait_first_byte_ms, ringest/wait_decode_ms, ... say for each cause how
    long a step waited (dataset.explain, at most the last 256 steps). client: the one to look at; None: all of this process. step: the one that training goes on from. Workers of a DataLoader are processes of their own: write in
    them, or use a loader without workers, as ringest's datasets need none. One thread at a time."""

    def __init__(
        self,
        writer: Writer,
        client: Client | None = None,
        prefix: str = "ringest/",
        step: int = 0,
        *,
        dataset: Explained | None = None,
    ):
        if not callable(getattr(writer, "add_scalar", None)):
            raise TypeError(f"writer must have add_scalar, as tensorboard's SummaryWriter has, got {writer!r}")
        if dataset is not None and not callable(getattr(dataset, "explain", None)):
            raise TypeError(f"dataset must be one of ringest, which has explain(), or None, got {dataset!r}")
        self._writer, self._client, self._prefix, self._dataset = writer, client, prefix, dataset
        self._before = _Sums(metrics(client))
        self._step = step

    def write(self, step: int) -> dict[str, float]:
        """Writes the scalars at `step`, and returns them by their names without prefix."""
        now, before = _Sums(metrics(self._client)), self._before
        steps = max(step - self._step, 1)
        gets = [int(a - b) for a, b in zip(now.gets, before.gets)]
        found = {
            "wait_ms_per_step": (now.wait_ns - before.wait_ns) / _NS_PER_MS / steps,
            "megabytes_per_s": (now.bytes - before.bytes) / 1e6 / max(now.at - before.at, 1e-9),
            "get_p99_ms": quantile(BOUNDS, gets, now.get_count - before.get_count, 0.99) / _NS_PER_MS,
            "retries": float(now.retries - before.retries),
        }
        if now.window.get("window_room", 0) > 0:
            found["window_fill"] = now.window["window_filled"] / now.window["window_room"]
        for name, ns in now.checkpoints.items():
            if ns > before.checkpoints.get(name, 0):
                found[name.removesuffix("time") + "ms"] = (ns - before.checkpoints.get(name, 0)) / _NS_PER_MS
        found |= self._waits(steps)
        for name, value in found.items():
            self._writer.add_scalar(self._prefix + name, value, step)
        self._before, self._step = now, step
        return found

    def _waits(self, steps: int) -> dict[str, float]:
        """By cause, in a step; nothing before the first step."""
        if self._dataset is None:
            return {}
        try:
            explained = self._dataset.explain(steps)
        except RuntimeError:
            return {}
        return {
            f"wait_{name}_ms": seconds * 1000 / max(explained.steps, 1) for name, seconds in explained.parts.items()
        }
