"""What a workload is given besides a client: its part of the work, and the other ranks."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ringest.bench.measure import Meter

EPOCHS_MAX = 10**9
# URI and size.
Object = tuple[str, int]


class WorkloadError(Exception):
    """What was read is not what was asked for: the client, or the server, is wrong."""


def _alone() -> None:
    pass


class Last:
    """The last epoch of all ranks. A rank may be an epoch ahead of one that still looks at this, so it is a number and
    no mere flag."""

    def __init__(self, shared: Any = None, number: int = 0) -> None:
        """shared: an array of multiprocessing with EPOCHS_MAX in each place, of which one is used."""
        self._epochs, self._number = shared if shared is not None else [EPOCHS_MAX], number
        self._lock = shared.get_lock() if shared is not None else contextlib.nullcontext()

    def epoch(self) -> int:
        return int(self._epochs[self._number])

    def end_with(self, epoch: int) -> None:
        with self._lock:
            self._epochs[self._number] = min(epoch, self._epochs[self._number])


@dataclass
class Task:
    """One rank's part of one round. `work` and `data` are the preset's tables. The workload calls `meet` before
    meter.begin() and between phases, each rank as often: it returns when all ranks have come."""

    work: Any
    data: Any
    objects: Sequence[Object]  # to read
    prefix: str  # below which there are no others
    folder: str  # to write to, "gs://BUCKET/.../"; "": nowhere
    meter: Meter
    crcs: dict[str, int] | None = None  # CRC32Cs, by URIs: of a client that compares none itself
    verify: bool = False  # every body, not only the first of an epoch
    meeting: str = ""  # a path for a file of this round, by which ranks find each other
    is_ours: bool = True  # the objects are those of `data`, not others that the user has given
    rank: int = 0
    ranks: int = 1
    seed: int = 0
    seconds: float | None = None  # the round ends then, even within an epoch
    warm_up: float = 0
    meet: Callable[[], None] = field(default=_alone)
    # Of all ranks: the last epoch, once the time of one of them has ended in it.
    last: Last = field(default_factory=Last)

    def is_over(self) -> bool:
        return self.seconds is not None and self.meter.elapsed() >= self.seconds

    def epochs(self, number: int) -> Iterator[int]:
        """Or with a time to keep, as many as it takes. All ranks begin each together, and all have the same ones: that in
        which the first of them has no time left is the last."""
        for epoch in range(1, (number if self.seconds is None else EPOCHS_MAX) + 1):
            self.meet()
            if epoch > self.last.epoch():
                return
            yield epoch
            if self.is_over():
                self.last.end_with(epoch)

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
