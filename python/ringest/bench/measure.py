"""What is measured in a rank while a workload runs, and how the ranks' parts become one round."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ringest.bench.result import Latency, Phase, Point, Round

# Latencies are counted in buckets whose bounds differ by less than 1/500: so many significant bits.
_BITS = 10
SIGNIFICANT_DIGITS = 3
# A series begins with points of this width; when there are too many, two become one.
_WIDTH_S = 0.1
_POINTS_MAX = 1000
# Between two reports of progress.
_TELL_S = 0.2
# Counters of a client that are fields of a round.
_FIELDS = ("requests", "wire_received_bytes", "wire_sent_bytes")


class Latencies:
    """Counted in buckets, whose bounds differ by less than 1/500."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.max = 0

    def add(self, nanoseconds: int) -> None:
        bound = _bound(nanoseconds)
        self.counts[bound] = self.counts.get(bound, 0) + 1
        self.max = max(self.max, nanoseconds)

    def told(self) -> Latency | None:
        """As a round has them, from when each was sent; None if there are none."""
        if not self.counts:
            return None
        return Latency(sorted(self.counts.items()), "ns", SIGNIFICANT_DIGITS, self.max, "sent")


def _bound(nanoseconds: int) -> int:
    """The upper bound of the bucket that it is in."""
    drop = max(nanoseconds.bit_length() - _BITS, 0)
    return nanoseconds | ((1 << drop) - 1)


def _peak_restart() -> None:
    """proc(5): 5 resets the peak of the resident set. Where that is refused, it stays that of the process."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def _peak_bytes() -> int | None:
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 or None


def _cpu() -> tuple[float, float]:
    """User and system: of this process, and of those that it has started and that have ended, such as a loader's workers."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime for each in used), sum(each.ru_stime for each in used)


class Meter:
    """Of one rank and one round: begin() -> within phases, done() of each batch -> end(). Time, of the CPU too, is that of
    the phases: what lies between them, such as shuffling names, is not measured."""

    def __init__(self, counters: Callable[[], dict[str, float]], tell: Callable[[str, int], None]) -> None:
        self._counters, self._tell = counters, tell
        self.operations, self.bytes, self.errors = 0, 0, 0
        self.metrics: dict[str, float] = {}
        self.phases: list[Phase] = []
        self._latencies = Latencies()
        self._first: float | None = None
        self._width = _WIDTH_S
        self._points: dict[int, list[float]] = {}
        self._told = 0.0
        self._phase = ""
        self._before: dict[str, float] = {}
        self._seconds, self._since = 0.0, 0.0  # of the phases that have ended; when the current one began
        self._user, self._system, self._cpu = 0.0, 0.0, 0.0

    def begin(self) -> None:
        _peak_restart()
        self._before = self._counters()

    def elapsed(self) -> float:
        return self._seconds + (time.monotonic() - self._since if self._since else 0.0)

    def waited(self, seconds: float) -> None:
        """Of a batch, from when it was asked for."""
        self._latencies.add(int(seconds * 1e9))

    def done(self, operations: int, size: int) -> None:
        now = self.elapsed()
        if self._first is None:
            self._first = now
        self.operations += operations
        self.bytes += size
        point = self._points.get(int(now / self._width))
        if point is None:
            point = self._add_point(now)
        point[0] += operations
        point[1] += size
        if now - self._told >= _TELL_S:
            self._told = now
            self._tell(self._phase, self.operations)

    def _add_point(self, now: float) -> list[float]:
        """Where there are too many, their width doubles. CPU time is told when a point begins, of those before it."""
        if len(self._points) >= _POINTS_MAX:
            wider: dict[int, list[float]] = {}
            for index, point in self._points.items():
                have = wider.setdefault(index // 2, [0, 0, 0.0])
                for i, value in enumerate(point):
                    have[i] += value
            self._width, self._points = self._width * 2, wider
        if self._points:
            self._take_cpu(self._points[max(self._points)])
        return self._points.setdefault(int(now / self._width), [0, 0, 0.0])

    def _take_cpu(self, point: list[float]) -> None:
        cpu = sum(_cpu())
        point[2] += cpu - self._cpu
        self._cpu = cpu

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._phase = name
        operations, size, (user, system) = self.operations, self.bytes, _cpu()
        self._cpu = user + system
        self._since = time.monotonic()
        yield
        seconds = time.monotonic() - self._since
        user_after, system_after = _cpu()
        if self._points:
            self._take_cpu(self._points[max(self._points)])
        self._seconds, self._since = self._seconds + seconds, 0.0
        self._user += user_after - user
        self._system += system_after - system
        self.phases.append(Phase(name, seconds, self.operations - operations, self.bytes - size))

    def end(self) -> Round:
        counted = {name: value - self._before.get(name, 0) for name, value in self._counters().items()}
        fields: dict[str, Any] = {name: int(counted.pop(name)) for name in _FIELDS if name in counted}
        return Round(
            self._seconds,
            self.operations,
            self.errors,
            self.bytes,
            **fields,
            cpu_user_seconds=self._user,
            cpu_system_seconds=self._system,
            peak_rss_bytes=_peak_bytes(),
            time_to_first_seconds=self._first,
            latency=self._latencies.told(),
            series=[
                Point((index + 1) * self._width, int(point[0]), int(point[1]), cpu_seconds=point[2])
                for index, point in sorted(self._points.items())
            ],
            phases=self.phases,
            metrics={**counted, **self.metrics},
        )


def _total(values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _latencies(parts: Sequence[Latency]) -> Latency | None:
    if not parts:
        return None
    counts: dict[int, int] = {}
    for part in parts:
        for bound, count in part.counts:
            counts[bound] = counts.get(bound, 0) + count
    largest = max(part.max or 0 for part in parts)
    return dataclasses.replace(parts[0], counts=sorted(counts.items()), max=largest)


def _series(parts: Sequence[list[Point]]) -> list[Point]:
    """The ranks' points, whose widths may differ by powers of two, in those of the widest."""
    points = [point for part in parts for point in part]
    if len(parts) == 1 or not points:
        return points
    widths = [
        min((b.at_seconds - a.at_seconds for a, b in itertools.pairwise(part)), default=_WIDTH_S) for part in parts
    ]
    width = max(_WIDTH_S, *widths)
    merged: dict[int, list[float]] = {}
    for point in points:
        have = merged.setdefault(-int(-point.at_seconds / width + 1e-6), [0, 0, 0.0])
        for i, value in enumerate((point.operations or 0, point.bytes or 0, point.cpu_seconds or 0.0)):
            have[i] += value
    return [
        Point(index * width, int(value[0]), int(value[1]), cpu_seconds=value[2])
        for index, value in sorted(merged.items())
    ]


def _phases(parts: Sequence[list[Phase]]) -> list[Phase]:
    by_name: dict[str, list[Phase]] = {}
    for part in parts:
        for phase in part:
            by_name.setdefault(phase.name, []).append(phase)
    return [
        Phase(
            name,
            max(phase.seconds for phase in phases),
            _total([phase.operations for phase in phases]),
            _total([phase.bytes for phase in phases]),
        )
        for name, phases in by_name.items()
    ]


def _metrics(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    """Counters are added; percentages are means, as DLIO's are."""
    found: dict[str, float] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        values = [part[name] for part in parts if name in part]
        found[name] = sum(values) / (len(values) if "percent" in name else 1)
    return found


def merged(rounds: Sequence[Round]) -> Round:
    """One of the ranks' rounds, which began together. The first batch has come when each rank has one; the peaks of all
    ranks together are more than the job had at any time, if they had them at different times."""
    phases = _phases([each.phases for each in rounds])
    firsts = [each.time_to_first_seconds for each in rounds if each.time_to_first_seconds is not None]
    return Round(
        sum(phase.seconds for phase in phases),
        sum(each.operations for each in rounds),
        sum(each.errors for each in rounds),
        **{
            name: _total([getattr(each, name) for each in rounds])
            for name in ("bytes", *_FIELDS, "cpu_user_seconds", "cpu_system_seconds", "peak_rss_bytes")
        },
        time_to_first_seconds=max(firsts, default=None),
        latency=_latencies([each.latency for each in rounds if each.latency is not None]),
        series=_series([each.series for each in rounds]),
        phases=phases,
        metrics=_metrics([each.metrics for each in rounds]),
    )
