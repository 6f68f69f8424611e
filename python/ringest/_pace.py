"""How fast a save is sent beside training.

An upload costs CPU time, about half a second for each GB. Where training wants all CPUs, that time is taken from its steps;
nice threads do not change that. So a save takes what is idle, and where nothing is, an 80th of a CPU:

    one (by what was idle since the last save) -> before(size) of each piece, which looks again now and then -> over

A step loses what was taken from it while it ran. So nothing is done in one go that takes long. The writer has the rate,
too: by it the thread that saves adds up checksums, half a MiB at a time, and the loop seals and sends a quarter.

When somebody waits for a save (hurried), nothing is held back any more."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  (before hurry_all is registered, so that it is called after it)
import contextlib
import math
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringest import _control_groups
from ringest.client import parse_size

if TYPE_CHECKING:
    from ringest import _core

# CPU seconds for a byte: sealing, sending and two checksums, on a processor that is not the newest.
_COST = 0.5e-9
# Bytes in a second that are sent whatever else there is to do: in pieces so small that other work loses little at a time,
# this is 1/80 of a CPU.
SLOWEST = 16 << 20
# Given to the writer at a time, which itself holds back smaller ones.
PIECE = 4 << 20
# CPUs that are left alone, and how often it is looked at.
_SPARE_CPUS = 0.15
_LOOK_S = 0.25
_UNKNOWN = -1.0


def parse(pace: Any) -> int | str | None:
    """Bytes in a second; "auto"; or None: as fast as it goes."""
    if pace is None or pace == "auto":
        return pace
    rate = parse_size(pace, "pace") if not isinstance(pace, bool) else 0
    if rate < 1:
        raise ValueError(f"pace must be 'auto', None, or bytes in a second such as '200MiB', got {pace!r}")
    return rate


class _Group:
    """A control group, which may have a limit of CPU time."""

    def __init__(self, folder: Path):
        self._folder = folder

    def allowed(self) -> float | None:
        """CPUs that it may use at once, if that is limited."""
        try:
            quota, period = (self._folder / "cpu.max").read_text("ascii").split()
            return int(quota) / int(period)
        except (OSError, ValueError, ZeroDivisionError):
            return None

    def used(self) -> float:
        """CPU seconds; _UNKNOWN: it is not told."""
        try:
            found = re.search(r"^usage_usec (\d+)", (self._folder / "cpu.stat").read_text("ascii"), re.MULTILINE)
        except (OSError, ValueError):
            return _UNKNOWN
        return int(found[1]) / 1e6 if found is not None else _UNKNOWN


class _FirstGroup(_Group):
    """The same of version 1, whose controllers have a folder each."""

    def __init__(self, folder: Path, accounts: Path):
        super().__init__(folder)
        self._accounts = accounts

    def allowed(self) -> float | None:
        try:
            quota, period = (
                int((self._folder / f"cpu.cfs_{name}_us").read_text("ascii")) for name in ("quota", "period")
            )
            return quota / period if quota > 0 else None
        except (OSError, ValueError, ZeroDivisionError):
            return None

    def used(self) -> float:
        try:
            return int((self._accounts / "cpuacct.usage").read_text("ascii")) / 1e9
        except (OSError, ValueError):
            return _UNKNOWN


def _groups(root: str | os.PathLike[str]) -> list[_Group]:
    """Those of this process."""
    mount, paths = Path(root, "sys/fs/cgroup"), _control_groups.paths(root)
    found = [_Group(folder) for folder in _control_groups.upwards(mount, paths[""])]
    if "cpu" in paths and paths["cpu"] == paths.get("cpuacct"):
        found += map(_FirstGroup, *(_control_groups.upwards(mount / name, paths["cpu"]) for name in ("cpu", "cpuacct")))
    return found


class Idle:
    """CPU seconds that nobody used, of the CPUs that this process may use, and of its control groups."""

    def __init__(self, root: str | os.PathLike[str] = "/"):
        self._stat = Path(root, "proc/stat")
        self._groups = _groups(root)
        self._cpus = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        self._since = self._now()

    def _now(self) -> tuple[float, float, list[float]]:
        """Time, idle seconds, and seconds that each group has used; _UNKNOWN where it is not told."""
        return time.monotonic(), self._idle(), [each.used() for each in self._groups]

    def _idle(self) -> float:
        try:
            rows = (line.split() for line in self._stat.read_text("ascii").splitlines() if line.startswith("cpu"))
            # Idle, and waiting for disks.
            ticks = sum(int(row[4]) + int(row[5]) for row in rows if row[0] in self._cpus)
        except (OSError, ValueError, IndexError):
            return _UNKNOWN
        # Never idle since it was booted: a sandbox that does not count, as gVisor.
        return ticks / os.sysconf("SC_CLK_TCK") if ticks else _UNKNOWN

    def restart(self) -> None:
        self._since = self._now()

    def cpus(self) -> float | None:
        """How many were idle since the last answer, or restart; all that there can be where nobody tells. None: it is too
        short a time, which goes on."""
        before, now = self._since, self._now()
        seconds = now[0] - before[0]
        if seconds < _LOOK_S:
            return None
        self._since = now
        if _UNKNOWN in (before[1], now[1]):
            return math.inf
        idle = (now[1] - before[1]) / seconds
        for group, used_before, used in zip(self._groups, before[2], now[2], strict=True):
            allowed = group.allowed()
            if allowed is not None and _UNKNOWN not in (used_before, used):
                idle = min(idle, allowed - (used - used_before) / seconds)
        return max(idle, 0.0)


class Pace:
    """Of one save. Its thread calls before(); any thread hurries. rate: bytes in a second, at first; None: no limit."""

    def __init__(self, rate: float | None, idle: Idle | None, clock: Callable[[], float] = time.monotonic):
        self.rate = rate
        self._idle = idle  # None: the rate is fixed
        self._clock = clock
        self._hurry = threading.Event()
        self._writer: _core.Writer | None = None
        self._due = 0.0
        self._looked, self._sent = clock(), 0

    def hurry(self) -> None:
        self._hurry.set()
        self._tell()
        self._tell()

    def lead(self, writer: _core.Writer | None) -> None:
        """The writer that the bytes go to from now on; None: there is none any more."""
        self._writer = writer
        self._tell()

    def _tell(self) -> None:
        """Who hurries sets the event first, and this looks at it last. So whichever of two threads comes last, hurry
        stays."""
        writer = self._writer
        if writer is not None and self.rate is not None:
            writer._set_rate(int(max(self.rate, 1)) if self.rate < math.inf else 0)
            if self._hurry.is_set():
                writer._set_rate(0)

    def before(self, size: int) -> None:
        """Returns when so many bytes more may be sent."""
        if self.rate is None or self._hurry.is_set():
            return
        now = self._clock()
        self._look(now)
        self._due = max(self._due, now)
        if self._due > now:
            self._hurry.wait(self._due - now)
        self._due += size / self.rate
        self._sent += size

    def _look(self, now: float) -> None:
        """What this save has left idle it may have, too; of what was too much it gives half back."""
        cpus = self._idle.cpus() if self._idle is not None else None
        if cpus is None or self.rate is None:
            return
        # Where the network is slower than the rate, that is no measure.
        rate = min(self.rate, self._sent / max(now - self._looked, _LOOK_S))
        self._looked, self._sent = now, 0
        self.rate = max(rate * 2 if cpus >= _SPARE_CPUS else rate / 2, SLOWEST)
        self._tell()


class Paces:
    """Of the saves of one saver, at the `pace` that parse() gave. Any thread."""

    def __init__(self, pace: int | str | None):
        self._pace = pace
        self._idle = Idle()
        self._rate: float = SLOWEST  # of the save before, if it was not told otherwise
        self._lock = threading.RLock()  # a signal handler may wait for a save while its thread has it
        self._current: set[Pace] = set()
        self._waiting = 0
        self._announced, self._begun = 0, 0

    @contextlib.contextmanager
    def one(self) -> Iterator[Pace]:
        """For the save that the thread of the caller makes."""
        made = self._begin()
        try:
            with self._lock:
                self._current.add(made)
                self._begun += 1
                if self._waiting or self._begun < self._announced:
                    made.hurry()
            yield made
        finally:
            made.lead(None)
            with self._lock:
                self._current.discard(made)
            self._rate = made.rate or self._rate
            self._idle.restart()

    def _begin(self) -> Pace:
        if self._pace != "auto":
            return Pace(self._pace if isinstance(self._pace, int) else None, None)
        cpus = self._idle.cpus()
        # Half, because CPUs that are idle now and then are not idle at once.
        rate = self._rate if cpus is None else max(cpus / 2 / _COST, SLOWEST)
        return Pace(rate, self._idle)

    @contextlib.contextmanager
    def hurried(self) -> Iterator[None]:
        """Somebody waits for saves: nothing is held back."""
        self.hurry_for_good()
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    def hurry_for_good(self) -> None:
        with self._lock:
            self._waiting += 1
        self._hurry_current()

    def forget(self) -> None:
        """In a child of fork(): its parent's saves are no business of it, nor is a lock that a thread of the parent has."""
        self._lock = threading.RLock()
        self._current.clear()

    def announce(self, is_next: bool = False) -> None:
        """Another save is to come, so those before it are overtaken, begun or not. is_next: all of them have ended, also
        those that failed before they began."""
        with self._lock:
            self._announced = (self._begun if is_next else self._announced) + 1
        self._hurry_current()

    def _hurry_current(self) -> None:
        with self._lock:
            for each in self._current:
                each.hurry()


# What _write_address returns.
_SUM_CRC32C = 2


class PacedWriter:
    """A writer whose bytes are held back."""

    def __init__(self, writer: _core.Writer, pace: Pace):
        self._writer = writer
        self._pace = pace
        pace.lead(writer)

    def write(self, data: Any) -> int:
        with memoryview(data).cast("B") as all_bytes:
            for begin in range(0, len(all_bytes), PIECE):
                self._pace.before(min(PIECE, len(all_bytes) - begin))
                self._writer.write(all_bytes[begin : begin + PIECE])
            return len(all_bytes)

    def _write_address(self, address: int, size: int, owner: Any, kind: int) -> int:
        found = 0
        for begin in range(0, size, PIECE):
            length = min(PIECE, size - begin)
            self._pace.before(length)
            found = self._writer._write_address(address + begin, length, owner, kind, found)
        return found

    def _write_framed(self, pieces: Sequence[tuple[bytes, int, int, Any, bytes]]) -> list[int]:
        found, behind_last = [], b""
        for before, address, size, owner, behind in pieces:
            self.write(behind_last + before)
            found.append(self._write_address(address, size, owner, _SUM_CRC32C))
            behind_last = behind
        self.write(behind_last)
        return found

    def finish(self) -> dict[str, int]:
        return self._writer.finish()

    def abort(self) -> None:
        self._writer.abort()


_all: weakref.WeakSet[Paces] = weakref.WeakSet()


def paces(pace: int | str | None) -> Paces:
    """Whose saves are hurried when the interpreter ends, because it waits for them."""
    made = Paces(pace)
    _all.add(made)
    return made


def hurry_all() -> None:
    for each in list(_all):
        each.hurry_for_good()


def _forget_all() -> None:
    for each in list(_all):
        each.forget()


os.register_at_fork(after_in_child=_forget_all)
# Before executors' threads are joined, which atexit is too late for. Where Python has it no more, the end takes longer.
getattr(threading, "_register_atexit", lambda call: None)(hurry_all)
