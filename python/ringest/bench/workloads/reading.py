"""Reads whole objects, every one once in an epoch. An operation is an object."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ringest.bench import fields
from ringest.bench.adapter import Client, closed
from ringest.bench.objects import Objects as Data
from ringest.bench.result import Round
from ringest.bench.task import Expected, Object, Task

__all__ = ["Data", "Work", "run"]


@dataclass(frozen=True, kw_only=True)
class Work:
    epochs: int = fields.count(1)
    batch_size: int = fields.count(100)
    shuffle: bool = fields.flag(True)
    # Slept after each batch, as if a model computed.
    compute_seconds: float = fields.number(0.0)
    # The client keeps what it reads on a disk, so that later epochs come from there.
    cache: bool = fields.flag(False)


# What a warm-up reads between two looks at the clock: a client takes names far ahead of their bodies, and all that it has
# taken is read. As many bytes as the memory of a client has room for.
_WARM_UP_BYTES = 1 << 30
_WARM_UP_OBJECTS = 1024


def _some(objects: Iterator[Object], most: int, most_bytes: int) -> Iterator[str]:
    """Names of the next ones; at least one."""
    while most > 0 and most_bytes > 0:
        name, size = next(objects)
        most, most_bytes = most - 1, most_bytes - size
        yield name


def warm_up(task: Task, client: Client, at_once: int | None = None) -> None:
    """Opens connections, and touches memory, by so many objects at a time: no more than the workload has."""
    until = time.monotonic() + task.warm_up
    objects = itertools.cycle(task.objects)
    most, most_bytes = (_WARM_UP_OBJECTS, _WARM_UP_BYTES) if at_once is None else (at_once, sys.maxsize)
    while time.monotonic() < until and task.objects:
        for _ in client.read(_some(objects, most, most_bytes)):
            pass


def _epoch(task: Task, client: Client, epoch: int) -> None:
    work, meter = task.work, task.meter
    share = task.share(epoch, shuffle=work.shuffle)
    expected = Expected(share)
    with meter.phase(f"epoch {epoch}"), closed(client.read(name for name, _ in share)) as bodies:
        while not task.is_over():
            asked, count, size = time.monotonic(), 0, 0
            for name, body in itertools.islice(bodies, work.batch_size):
                expected.take(name, len(body))
                count, size = count + 1, size + len(body)
            if count == 0:
                expected.end()
                return
            meter.waited(time.monotonic() - asked)
            meter.done(count, size)
            if work.compute_seconds:
                time.sleep(work.compute_seconds)


def run(task: Task, client: Client) -> Round:
    if not task.work.cache:  # which it would fill
        warm_up(task, client)
    task.meet()
    task.meter.begin()
    for epoch in task.epochs(task.work.epochs):
        _epoch(task, client, epoch)
    return task.meter.end()
