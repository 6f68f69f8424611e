"""Lists what lies below a prefix. An operation is a name."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ringest.bench import fields
from ringest.bench.adapter import Client
from ringest.bench.objects import Objects as Data
from ringest.bench.result import Round
from ringest.bench.task import Task, WorkloadError

__all__ = ["Data", "Work", "run"]


@dataclass(frozen=True, kw_only=True)
class Work:
    passes: int = fields.count(1)


def run(task: Task, client: Client) -> Round:
    """Each rank lists all, as the ranks of a job do that have no list in common."""
    prefix = task.prefix
    wanted = dict(task.objects)
    until = time.monotonic() + task.warm_up
    while time.monotonic() < until:
        sum(1 for _ in client.list(prefix))
    task.meet()
    task.meter.begin()
    for number in task.epochs(task.work.passes):
        with task.meter.phase(f"pass {number}"):
            asked = time.monotonic()
            entries = list(client.list(prefix))
            task.meter.waited(time.monotonic() - asked)
            task.meter.done(len(entries), 0)
        # Among the user's objects those that stand for folders are not in task.objects.
        listed = entries if task.is_ours else [each for each in entries if not each[0].endswith("/")]
        found = dict(listed)
        if found != wanted or len(listed) != len(wanted):
            missing, more = len(wanted.keys() - found.keys()), len(found.keys() - wanted.keys())
            twice = len(listed) - len(found)
            raise WorkloadError(
                f"a list of {prefix} lacks {missing:,} names, has {more:,} that are not there, and {twice:,} twice"
            )
    return task.meter.end()
