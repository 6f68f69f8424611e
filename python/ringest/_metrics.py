"""What the library counts, with names, kinds and units: what exporters are made of."""

from __future__ import annotations

from typing import NamedTuple

from ringest import _core

# What the buckets of histograms end at, in nanoseconds: 16 us to 69 s.
BOUNDS = tuple(1 << bits for bits in range(14, 37))


class Histogram(NamedTuple):
    """Durations in nanoseconds. Quantiles are exact to 1/16 and of all durations so far."""

    sum: int
    p50: int
    p99: int
    p999: int
    max: int
    buckets: tuple[int, ...]  # how many are below each of `bounds`, those below smaller ones included

    @property
    def bounds(self) -> tuple[int, ...]:
        """What the buckets end at: 16 us to 69 s, in powers of two."""
        return BOUNDS


class Metric(NamedTuple):
    """One value, such as attempts (a counter) or request_duration of get (a histogram)."""

    name: str
    kind: str  # "counter", "gauge" or "histogram"
    unit: str  # "ns", "bytes", "requests", ...
    text: str  # what it means
    operation: str | None  # labels; None: it has none
    status: str | None
    value: int  # of a histogram: how many durations
    histogram: Histogram | None

    @property
    def labels(self) -> dict[str, str]:
        """Its labels: operation and status of requests, operation of their durations, the cause of retries."""
        status = "cause" if self.name == "retries" else "status"
        pairs = (("operation", self.operation), (status, self.status))
        return {label: value for label, value in pairs if value is not None}


def metrics(client: _core.Client | None = None) -> list[Metric]:
    """What all clients of this process have counted, closed ones too; with `client`, what that one has, which is open.

    A counter only grows, a gauge is as it is now, and a histogram has durations. Those with labels (requests by
    operation and status, retries by cause) are there once they are not 0, and one of each name always. docs/METRICS.md
    lists all. Each process, such as a worker of a DataLoader, counts for itself. Any thread."""
    if not isinstance(client, _core.Client | None):
        raise TypeError(f"client must be a Client or None, got {client!r}")
    rows = _core.metrics() if client is None else client._metrics()
    return [Metric._make((*row, parts and Histogram._make(parts))) for *row, parts in rows]


def metrics_if_open(client: _core.Client | None) -> list[Metric]:
    """The same for exporters, which outlive clients: of a closed one there are none."""
    try:
        return metrics(client)
    except ValueError:
        return []
