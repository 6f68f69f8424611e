"""Reads beside writes, in a given proportion. An operation is an object, read or written."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ringest.bench import fields
from ringest.bench.adapter import Client
from ringest.bench.objects import Objects as Data
from ringest.bench.result import Round
from ringest.bench.task import Task, WorkloadError
from ringest.bench.workloads.reading import warm_up

__all__ = ["Data", "Work", "run"]


@dataclass(frozen=True, kw_only=True)
class Work:
    writes_percent: float = fields.number(highest=100)
    batch_size: int = fields.count(100)  # reads and writes that begin together
    batches: int = fields.count()
    write_size: int = fields.size()

    def scaled(self, factor: float) -> Work:
        return replace(self, batches=fields.scaled_count(self.batches, factor, 2))


def run(task: Task, client: Client) -> Round:
    work, meter = task.work, task.meter
    warm_up(task, client, work.batch_size)
    writes = round(work.batch_size * work.writes_percent / 100)
    names = itertools.cycle(task.share(1, shuffle=True) or task.objects)
    known = dict(task.objects)
    payload = memoryview(os.urandom(work.write_size))
    numbers = itertools.count()

    def read() -> Iterator[int]:
        wanted = [name for name, _ in itertools.islice(names, work.batch_size - writes)]
        for name, body in client.read(wanted):
            if len(body) != known[name]:
                raise WorkloadError(f"{name} has {len(body):,} bytes, and {known[name]:,} were expected")
            yield len(body)

    def write() -> None:
        client.write_many(
            (f"{task.folder}rank-{task.rank}/written-{next(numbers):08d}", payload) for _ in range(writes)
        )

    task.meet()
    meter.begin()
    with concurrent.futures.ThreadPoolExecutor(1) as beside, meter.phase("reads and writes"):
        for _ in range(work.batches) if task.seconds is None else itertools.count():
            asked = time.monotonic()
            writing = beside.submit(write)
            sizes = list(read())
            writing.result()
            meter.waited(time.monotonic() - asked)
            meter.done(len(sizes) + writes, sum(sizes) + writes * work.write_size)
            meter.metrics["objects_read"] = meter.metrics.get("objects_read", 0) + len(sizes)
            meter.metrics["objects_written"] = meter.metrics.get("objects_written", 0) + writes
            if task.is_over():
                break
    return meter.end()
