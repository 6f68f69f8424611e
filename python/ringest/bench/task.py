"""What a workload is given besides a client: its part of the work, and the other ranks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ringest.bench.measure import Meter

# URI and size.
Object = tuple[str, int]


class WorkloadError(Exception):
    """What was read is not what was asked for: the client, or the server, is wrong."""


def _alone() -> None:
    pass


@dataclass
class Task:
    """One rank's part of one round. `work` and `data` are the preset's tables. The workload calls `meet` before
    meter.begin() and between phases: it returns when all ranks have come."""

    work: Any
    data: Any
    objects: Sequence[Object]  # to read
    prefix: str  # below which there are no others
    folder: str  # to write to, "gs://BUCKET/.../"; "": nowhere
    meter: Meter
    is_ours: bool = True  # the objects are those of `data`, not others that the user has given
    rank: int = 0
    ranks: int = 1
    seed: int = 0
    seconds: float | None = None  # the round ends then, even within an epoch
    warm_up: float = 0
    meet: Callable[[], None] = field(default=_alone)

    def is_over(self) -> bool:
        return self.seconds is not None and self.meter.elapsed() >= self.seconds

    def epochs(self, number: int) -> range:
        """With a time to keep, as many as it takes."""
        return range(1, (number if self.seconds is None else 10**9) + 1)

    def share(self, epoch: int, *, shuffle: bool, even: bool = False) -> list[Object]:
        """This rank's objects of an epoch: every object is one rank's, but for the rest of a division if `even`."""
        indices = list(range(len(self.objects)))
        if shuffle:
            random.Random(self.seed * 1_000_003 + epoch).shuffle(indices)
        if even:
            del indices[len(indices) // self.ranks * self.ranks :]
        return [self.objects[i] for i in indices[self.rank :: self.ranks]]


class Expected:
    """The objects that an epoch is to bring, each once and whole."""

    def __init__(self, objects: Sequence[Object]) -> None:
        self._left = dict(objects)

    def take(self, name: str, size: int) -> None:
        wanted = self._left.pop(name, None)
        if wanted is None:
            raise WorkloadError(f"{name} came twice in an epoch, or was not asked for")
        if size != wanted:
            raise WorkloadError(f"{name} has {size:,} bytes, and {wanted:,} were expected")

    def end(self) -> None:
        if self._left:
            raise WorkloadError(
                f"{len(self._left):,} objects of an epoch did not come, such as {next(iter(self._left))}"
            )
