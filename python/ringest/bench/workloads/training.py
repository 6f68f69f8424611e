"""A training loop: a step takes a batch, which is read ahead, and computes for a given time. An operation is a sample.

Accelerator utilisation (AU) is DLIO's, `compute_metrics_train` of its statscounter.py: the time that steps computed, by the
time of the epoch, both without the first step; in percent, the mean over ranks. As in DLIO, ranks make equally many
steps, and samples that are left over are not read in that epoch."""

from __future__ import annotations

import bisect
import collections
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ringest._core import crc32c
from ringest.bench import fields
from ringest.bench.adapter import Client, closed
from ringest.bench.objects import Objects as Data
from ringest.bench.result import UNUSED_BYTES, Round
from ringest.bench.task import Expected, Task, WorkloadError
from ringest.bench.workloads.reading import warm_up

__all__ = ["Data", "Work", "run"]

# Samples, bytes, and what was read with its bodies, which a loader keeps until the step has them.
Batch = tuple[int, int, list[Any]]
# As metric_exclude_start_steps of DLIO.
_EXCLUDED_STEPS = 1


@dataclass(frozen=True, kw_only=True)
class Work:
    epochs: int = fields.count(5)
    batch_size: int = fields.count()  # samples of a rank's step
    compute_seconds: float = fields.number()
    prefetch: int = fields.count(2, highest=256)  # batches that are read at once, or wait
    shuffle: bool = fields.flag(True)
    # An object has so many, and is read whole; or as many of this size as fit, and each is read by its range.
    samples_per_object: int = fields.count(1)
    sample_size: int = fields.size(0)
    steps: int = fields.count(0, lowest=0)  # of an epoch, at most; 0: all
    au_goal_percent: float = fields.number(0.0, highest=100)


def _steps(work: Work, samples: int, ranks: int) -> int:
    steps = samples // work.batch_size // ranks
    return min(steps, work.steps) if work.steps else steps


class _Whole:
    """The batches of an epoch, of whole objects. A batch reads those that its samples are the first of."""

    def __init__(self, task: Task, client: Client, epoch: int) -> None:
        work = self._work = task.work
        self._client = client
        self._crcs: dict[str, int] | None = task.crcs  # until the first body was compared
        self._verify = task.verify
        share = task.share(epoch, shuffle=work.shuffle, even=True)
        steps = _steps(work, len(task.objects) * work.samples_per_object, task.ranks)
        self.steps = min(steps, len(share) * work.samples_per_object // work.batch_size)
        self._share = share[: self._objects_before(self.steps)]
        self._expected = Expected(self._share)

    def _objects_before(self, step: int) -> int:
        return -(-step * self._work.batch_size // self._work.samples_per_object)

    def _names(self, step: int) -> list[str]:
        return [name for name, _ in self._share[self._objects_before(step) : self._objects_before(step + 1)]]

    def read(self, step: int) -> Batch:
        wanted = self._names(step)
        return self._batch(list(self._client.read(wanted)) if wanted else [])

    def _batch(self, bodies: list[Any]) -> Batch:
        return self._work.batch_size, sum(len(body) for _, body in bodies), bodies

    def loaded(self) -> Iterator[Batch] | None:
        """By the client's own loader, if it has one."""
        steps = [self._names(step) for step in range(self.steps)]
        loader = self._client.steps(steps, self._work.prefetch)
        return None if loader is None else self._of_loader(steps, loader)

    def _of_loader(self, steps: list[list[str]], loader: Iterator[Sequence[Any]]) -> Iterator[Batch]:
        with closed(loader):
            for names, bodies in zip(steps, loader, strict=True):
                yield self._batch(list(zip(names, bodies, strict=True)))

    def check(self, bodies: list[Any]) -> None:
        for name, body in bodies:
            self._expected.take(name, len(body))
            if self._crcs is not None and name in self._crcs:
                if crc32c(body) != self._crcs[name]:
                    raise WorkloadError(f"{name}: its bytes are not those that are stored")
                self._crcs = self._crcs if self._verify else None

    def end(self) -> None:
        self._expected.end()


class _Ranged:
    """The same of samples that are ranges; drawn without repetition if they are shuffled."""

    def __init__(self, task: Task, client: Client, epoch: int) -> None:
        work = self._work = task.work
        self._client, self._objects = client, task.objects
        self._per_object = [size // work.sample_size for _, size in task.objects]
        self._ends = list(itertools.accumulate(self._per_object))
        total = self._ends[-1] if self._ends else 0
        self.steps = _steps(work, total, task.ranks)
        needed = self.steps * work.batch_size
        drawn = random.Random(task.seed * 1_000_003 + epoch)
        numbers = drawn.sample(range(total), needed * task.ranks) if work.shuffle else range(total)
        self._numbers = numbers[task.rank * needed : (task.rank + 1) * needed]

    def _range(self, number: int) -> tuple[str, int, int]:
        at = bisect.bisect_right(self._ends, number)
        offset = (number - (self._ends[at] - self._per_object[at])) * self._work.sample_size
        return self._objects[at][0], offset, self._work.sample_size

    def read(self, step: int) -> Batch:
        size = self._work.batch_size
        ranges = [self._range(number) for number in self._numbers[step * size : (step + 1) * size]]
        bodies = list(self._client.read_ranges(ranges))
        if sorted(each for each, _ in bodies) != sorted(ranges):
            raise WorkloadError(f"step {step}: {len(bodies)} ranges came that are not the {size} that were asked for")
        return size, sum(len(body) for _, body in bodies), bodies

    def loaded(self) -> None:
        return None

    def check(self, bodies: list[Any]) -> None:
        for each, body in bodies:
            if len(body) != each[2]:
                raise WorkloadError(
                    f"{each[0]}: {len(body):,} bytes came at {each[1]:,}, and {each[2]:,} were asked for"
                )

    def end(self) -> None:
        pass


def _ahead(pool: Executor, batches: _Whole | _Ranged, prefetch: int, sizes: list[int]) -> Iterator[Batch]:
    """In the order of steps; so many at most are read, or wait. sizes: gets the bytes of each that was read."""
    numbers = iter(range(batches.steps))

    def read(number: int) -> Batch:
        batch = batches.read(number)
        sizes.append(batch[1])
        return batch

    waiting = collections.deque(pool.submit(read, number) for number in itertools.islice(numbers, prefetch))
    try:
        while waiting:
            batch = waiting.popleft().result()
            for number in itertools.islice(numbers, 1):
                waiting.append(pool.submit(read, number))
            yield batch
    finally:
        for each in waiting:
            each.cancel()


def utilisation(computed: list[float], processed: list[float], seconds: float) -> float:
    """AU in percent, by the times that steps computed, and took with their waits, of an epoch of so many seconds."""
    total = sum(computed[_EXCLUDED_STEPS:])
    return 100 * total / (seconds - sum(processed[:_EXCLUDED_STEPS])) if total else 0.0


def _epoch(task: Task, client: Client, epoch: int) -> float | None:
    """Its AU; None if the time was over before there was a step that counts."""
    work, meter = task.work, task.meter
    batches = (_Ranged if work.sample_size else _Whole)(task, client, epoch)
    if batches.steps == 0:
        raise WorkloadError(
            f"{len(task.objects):,} objects have less than a batch of {work.batch_size:,} samples for each of {task.ranks} "
            "ranks; give a larger --scale"
        )
    computed: list[float] = []
    processed: list[float] = []
    sizes: list[int] = []
    before = meter.bytes
    with ThreadPoolExecutor(work.prefetch) as pool, meter.phase(f"epoch {epoch}"):
        began = loading = time.monotonic()
        with closed(batches.loaded() or _ahead(pool, batches, work.prefetch, sizes)) as ahead:
            for samples, size, bodies in ahead:
                computing = time.monotonic()
                meter.waited(computing - loading)
                batches.check(bodies)
                meter.done(samples, size)
                time.sleep(work.compute_seconds)
                now = time.monotonic()
                computed.append(now - computing)
                processed.append(now - loading)
                loading = now
                if task.is_over():
                    break
        seconds = time.monotonic() - began
    if task.seconds is None:
        batches.end()
        if len(computed) != batches.steps:
            raise WorkloadError(f"an epoch had {len(computed):,} steps, and {batches.steps:,} were expected")
    is_cut = len(computed) < batches.steps
    if is_cut and sizes:  # they have come, and no step has had them
        unused = sum(sizes) - (meter.bytes - before)
        meter.metrics[UNUSED_BYTES] = meter.metrics.get(UNUSED_BYTES, 0) + unused
    return None if is_cut and len(computed) <= _EXCLUDED_STEPS else utilisation(computed, processed, seconds)


def memory(work: Work, sizes: Sequence[int], ranks: int = 1) -> int:
    """Bytes of bodies that so many ranks hold: batches that are read or wait, and the one that is used. sizes: of the
    objects, the largest first."""
    batches = (work.prefetch + 1) * ranks
    if work.sample_size:
        return batches * work.batch_size * work.sample_size
    objects = -(-work.batch_size // work.samples_per_object) + 1
    return sum(sizes[: batches * objects])


def _warm_up_ranges(task: Task, client: Client) -> None:
    until = time.monotonic() + task.warm_up
    batches = _Ranged(task, client, 0)
    steps = itertools.cycle(range(batches.steps))
    while time.monotonic() < until and batches.steps:
        batches.read(next(steps))


def run(task: Task, client: Client) -> Round:
    if task.work.sample_size:
        _warm_up_ranges(task, client)
    else:
        warm_up(task, client, task.work.prefetch * max(task.work.batch_size // task.work.samples_per_object, 1))
    task.meet()
    task.meter.begin()
    found: list[float] = []
    for epoch in task.epochs(task.work.epochs):
        utilised = _epoch(task, client, epoch)
        if utilised is not None:
            found.append(utilised)
            task.meter.metrics[f"au_percent_epoch_{epoch}"] = utilised
    if found:
        task.meter.metrics["au_percent"] = sum(found) / len(found)
    if task.work.au_goal_percent:
        task.meter.metrics["au_goal_percent"] = task.work.au_goal_percent
    return task.meter.end()
