"""What a client of a comparison has to do, and how that is counted.

An adapter's functions take a `Work` and return a `Counted`. They are called in a process that has nothing else to do.
Adapters import the packages that they are for inside of these functions only."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import resource
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ringest._core import crc32c
from ringest.bench.measure import Latencies

# Of a loader: what a training step could have, not more than memory.
BATCH = 256
BATCH_BYTES = 64 << 20
# Names of an epoch; there are fewer objects, which come again and again.
EPOCH = 65536
# Until the first operation is done, however long it takes.
POLL_S = 0.01


@dataclass
class Work:
    """Objects gs://BUCKET/NAME of `size` bytes, at most `concurrency` at a time, for `seconds` after `warm_up`. Without
    an `endpoint` it is Cloud Storage, with the credentials that the client finds; with one, nobody asks for any.
    `prefix` is what put may write below, and what list lists: `listed` names, which are PREFIX00000000 and so on."""

    bucket: str
    names: list[str]
    size: int
    concurrency: int
    seconds: float
    warm_up: float
    endpoint: str | None = None
    ca: str | None = None
    prefix: str = ""
    listed: int = 0
    verify: bool = False  # the names of every listing, not only of the first
    crcs: list[int] | None = None  # of the objects: one of them every body has to have
    crc: int | None = None  # of the first body
    first_at: float | None = None  # when it came
    _names: Iterator[str] = field(init=False, repr=False)
    _was_listed: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        self._names = itertools.cycle(self.names)

    @property
    def batch(self) -> int:
        return max(1, min(BATCH, BATCH_BYTES // max(1, self.size)))

    def next(self) -> str:
        """The name to ask for next; for any thread."""
        return next(self._names)

    def uris(self) -> Iterator[str]:
        return (f"gs://{self.bucket}/{name}" for name in self._names)

    def epoch(self) -> list[str]:
        """Names of an epoch of a dataset."""
        return list(itertools.islice(itertools.cycle(self.names), EPOCH))

    def check(self, data: Any) -> None:
        if len(data) != self.size:
            raise ValueError(f"{len(data):,} bytes came instead of {self.size:,}")
        if self.crc is not None and self.crcs is None:
            return
        found = crc32c(data)
        if self.crc is None:
            self.crc, self.first_at = found, time.monotonic()
        if self.crcs is not None and found not in self.crcs:
            raise ValueError(f"a body has the CRC32C {found}, which no object has")

    def check_listed(self, count: int, names: Callable[[], Iterable[str]] | None = None) -> None:
        """Of a listing, how many came, and those that did: names() is called for the first listing, and to verify all."""
        if count != self.listed:
            raise ValueError(f"{count:,} names came instead of {self.listed:,}")
        if names is None:
            if self.verify:
                raise ValueError("its adapter gives no names to compare: work.check_listed(count, names)")
        elif self.verify or not self._was_listed:
            self._was_listed = True
            self._check_names(list(names()))

    def _check_names(self, found: list[str]) -> None:
        wanted = {f"{self.prefix}{index:08d}" for index in range(self.listed)}
        wrong = next((name for name in found if name not in wanted), None)
        if wrong is not None:
            raise ValueError(f"{wrong} is listed, and is not there")
        if len(set(found)) != self.listed:
            raise ValueError(
                f"{self.listed - len(set(found)):,} of {self.listed:,} names did not come, and others came twice"
            )


@dataclass(frozen=True)
class Counted:
    """CPU time of all threads, and of processes that were started and have ended. Latencies where requests can be told
    apart: where the client is asked for one object at a time."""

    operations: int
    seconds: float
    cpu_user: float
    cpu_system: float
    latencies: Latencies | None = None


Objects = list[tuple[str, int]]  # names and sizes
Dataset = Callable[[Work, Objects], Any]


@dataclass(frozen=True)
class Way:
    """One way to use a package. `modules` are imported before anything is counted. `needs` are distributions beside the
    package's own. `concurrency` replaces the numbers that the comparison tries, where there is a reason."""

    name: str
    get: Callable[[Work], Counted] | None = None
    load: Callable[[Work], Counted] | None = None
    put: Callable[[Work], Counted] | None = None
    list: Callable[[Work], Counted] | None = None
    # Of presets: a map-style dataset of objects, for a DataLoader of PyTorch whose workers read.
    dataset: Dataset | None = None
    modules: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    concurrency: tuple[int, ...] | None = None


# What a way may have: objects read by an interface of its own, by a PyTorch DataLoader, written, and names listed.
VERBS = ("get", "load", "put", "list")


@dataclass(frozen=True)
class Peer:
    """A client, of a distribution; that of ringest is here already. `unable` is why it cannot do any of this work."""

    name: str
    distribution: str | None
    ways: tuple[Way, ...]
    unable: str | None = None


class Meter:
    """Counts operations, and says what they cost between begin() and end()."""

    def __init__(self) -> None:
        self.count = 0
        self._latencies = Latencies()
        self._begin = self._snapshot()

    def _snapshot(self) -> tuple[int, float, float, float]:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        cpu = sum(each.ru_utime for each in used), sum(each.ru_stime for each in used)
        return self.count, time.monotonic(), *cpu

    def add(self, count: int, began: int) -> None:
        """Of one call, which began at that time of perf_counter_ns."""
        self.count += count
        self._latencies.add(time.perf_counter_ns() - began)

    def begin(self) -> None:
        self._latencies = Latencies()
        self._begin = self._snapshot()

    def end(self) -> Counted:
        count, seconds, user, system = (b - a for a, b in zip(self._begin, self._snapshot(), strict=True))
        latencies, self._latencies = self._latencies, Latencies()
        return Counted(int(count), seconds, user, system, latencies)


def iterate(work: Work, counts: Iterable[int]) -> Counted:
    """For what yields numbers of operations that are done."""
    meter, begin = Meter(), time.monotonic() + work.warm_up
    begun = False
    for count in counts:
        meter.count += count
        now = time.monotonic()
        if not begun and now >= begin:
            meter.begin()
            begun, begin = True, now
        elif begun and now >= begin + work.seconds:
            break
    return meter.end()


def in_threads(work: Work, call: Callable[[], int]) -> Counted:
    """For what blocks until it is done; it returns how many operations that was."""
    meter, over, lock = Meter(), threading.Event(), threading.Lock()
    errors: list[Exception] = []

    def run() -> None:
        try:
            while not over.is_set():
                began = time.perf_counter_ns()
                count = call()
                with lock:
                    meter.add(count, began)
        except Exception as error:
            errors.append(error)
            over.set()

    threads = [threading.Thread(target=run, daemon=True) for _ in range(work.concurrency)]
    for thread in threads:
        thread.start()

    def wait(seconds: float) -> None:
        """And until there is something to count."""
        before = meter.count
        over.wait(seconds)
        while meter.count == before and not over.wait(POLL_S):
            pass

    wait(work.warm_up)
    meter.begin()
    wait(work.seconds)
    result = meter.end()
    over.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return result


Opened = Callable[[], Awaitable[Callable[[], Awaitable[int]]]]


def in_tasks(work: Work, opened: Opened, loop: str = "uvloop") -> Counted:
    """For what is awaited. `opened` makes, inside the event loop, the function to repeat."""
    meter = Meter()

    async def repeat(call: Callable[[], Awaitable[int]]) -> None:
        while True:
            began = time.perf_counter_ns()
            count = await call()
            # Not in one statement with the wait, in which others add theirs.
            meter.add(count, began)

    async def wait(tasks: list[asyncio.Task[None]], seconds: float) -> None:
        """And until there is something to count. A task that ends has failed."""
        before = meter.count
        while True:
            done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if meter.count != before:
                return
            seconds = POLL_S

    async def main() -> Counted:
        call = await opened()
        tasks = [asyncio.create_task(repeat(call)) for _ in range(work.concurrency)]
        try:
            await wait(tasks, work.warm_up)
            meter.begin()
            await wait(tasks, work.seconds)
            return meter.end()
        finally:
            for task in tasks:
                task.cancel()

    with asyncio.Runner(loop_factory=importlib.import_module(loop).new_event_loop) as runner:
        return runner.run(main())


Reader = Callable[[str], Any]


class Read:
    """A map-style dataset of a client that reads an object by its name. Each worker opens a client of its own."""

    def __init__(self, work: Work, objects: Objects, opened: Callable[[Work], Reader]) -> None:
        self._work, self._objects, self._opened = work, objects, opened
        self._read: Reader | None = None

    def __len__(self) -> int:
        return len(self._objects)

    def __getitem__(self, index: int) -> Any:
        if self._read is None:
            self._read = self._opened(self._work)
        return self._read(self._objects[index][0])


def in_loader(work: Work, dataset: Any, **options: Any) -> Counted:
    """A dataset in a PyTorch DataLoader without workers."""
    from torch.utils.data import DataLoader

    def counts() -> Iterator[int]:
        while True:
            for batch in DataLoader(dataset, num_workers=0, **options):
                for data in batch:
                    work.check(data)
                yield len(batch)

    return iterate(work, counts())
