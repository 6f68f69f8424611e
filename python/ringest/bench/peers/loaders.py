"""Others' datasets as the client of a preset: a DataLoader of PyTorch, whose workers read, gives the batches of each step."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ringest.bench import peers
from ringest.bench.adapter import Client, Unsupported
from ringest.bench.peers.work import Work


class Loader(Client):
    """Made in each rank. `peer` and `way` are names, `work` fields of Work, `sizes` those of all objects by their URIs."""

    def __init__(self, peer: str, way: str, work: dict[str, Any], sizes: dict[str, int]) -> None:
        # As in a program of a user's own, whereas a rank is started afresh.
        multiprocessing.set_start_method("fork", force=True)
        # What others warn of is no part of the table; what they fail of is raised.
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        self.name = f"{peer} {way}"
        self._way = next(each for each in peers.find(peer).ways if each.name == way)
        self._sizes = sizes
        self._work = Work(names=[], size=0, concurrency=1, seconds=0, warm_up=0, **work)

    def steps(self, steps: Sequence[Sequence[str]], ahead: int) -> Iterator[Sequence[Any]]:
        from torch.utils.data import DataLoader

        assert self._way.dataset is not None
        bucket = f"gs://{self._work.bucket}/"
        objects = [(name.removeprefix(bucket), self._sizes[name]) for step in steps for name in step]
        ends = list(itertools.accumulate(len(step) for step in steps))
        indices = [list(range(end - len(step), end)) for step, end in zip(steps, ends)]
        # Its workers are asked for so many steps at once as the preset reads ahead.
        loader = DataLoader(
            self._way.dataset(self._work, objects),
            batch_sampler=indices,
            num_workers=ahead,
            prefetch_factor=1,
            collate_fn=list,
        )
        yield from loader

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
        wanted = list(names)
        for bodies in self.steps([wanted], 1) if wanted else ():
            yield from zip(wanted, bodies, strict=True)

    def list(self, prefix: str) -> Iterable[tuple[str, int]]:
        raise Unsupported(f"{self.name} lists nothing here")

    def write(self, name: str, data: Any) -> None:
        raise Unsupported(f"{self.name} writes nothing here")
