"""A model's state, saved to one object for each rank and loaded again. An operation is a save or a load.

The tensors are those of a Llama (https://github.com/meta-llama/llama-models): their weights, and with an optimizer three
more values of each parameter in 32 bits, as Adam's with a master copy. Each rank has an equal part of each, as FSDP and ZeRO 3
divide them. What is measured is the bytes' way to and from the bucket: tensors are memory without a type, and nothing
is pickled. A load goes into memory that nobody has touched, as a real one does, and is compared with what was saved."""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass, replace

from ringest._core import crc32c
from ringest.bench import fields
from ringest.bench.adapter import Client
from ringest.bench.result import Round
from ringest.bench.task import Task, WorkloadError

__all__ = ["Data", "Work", "run"]

# Of a rank's part of a tensor, whatever the scale.
PART_MIN = 64
_PATTERN_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Data:
    layers: int = fields.count()
    hidden: int = fields.count()
    feed_forward: int = fields.count()
    heads: int = fields.count()
    key_value_heads: int = fields.count()
    vocabulary: int = fields.count()
    weight_bytes: int = fields.count(2, highest=8)
    optimizer: bool = fields.flag(True)
    # Processes of the job, each with an equal part.
    ranks: int = fields.count(1, highest=4096)

    def scaled(self, factor: float, ranks: int) -> Data:
        """The same tensors; Work.scale makes them smaller."""
        return replace(self, ranks=ranks)

    def parameters(self) -> list[int]:
        """Of each tensor: attention, feed-forward and norms of each layer, embedding, last norm, output."""
        head = self.hidden // self.heads
        attention = [self.hidden * self.hidden, *[self.hidden * self.key_value_heads * head] * 2, self.hidden**2]
        layer = [*attention, *[self.hidden * self.feed_forward] * 3, self.hidden, self.hidden]
        embedding = self.vocabulary * self.hidden
        return [embedding, *layer * self.layers, self.hidden, embedding]

    def parts(self, scale: float) -> list[int]:
        """Bytes of each tensor of one rank."""
        kinds = [self.weight_bytes, *([4] * 3 if self.optimizer else [])]
        share = scale / self.ranks
        return [max(int(number * kind * share), PART_MIN) for kind in kinds for number in self.parameters()]


@dataclass(frozen=True, kw_only=True)
class Work:
    saves: int = fields.count(1)
    loads: int = fields.count(1)
    scale: float = fields.number(1.0, highest=1)

    def scaled(self, factor: float) -> Work:
        return replace(self, scale=self.scale * factor)


def memory_needed(work: Work, data: Data) -> int:
    """Of all ranks: what is saved, and what is loaded."""
    return 2 * sum(data.parts(work.scale)) * data.ranks


def _memory(size: int) -> memoryview:
    """Pages that were never touched, as those of a large new tensor."""
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)) if size else memoryview(b"")


def _divided(block: memoryview, sizes: list[int]) -> list[memoryview]:
    parts, at = [], 0
    for size in sizes:
        parts.append(block[at : at + size])
        at += size
    return parts


def run(task: Task, client: Client) -> Round:
    meter, sizes = task.meter, task.data.parts(task.work.scale)
    total = sum(sizes)
    state = _memory(total)
    pattern = os.urandom(_PATTERN_BYTES)
    for at in range(0, total, _PATTERN_BYTES):
        state[at : at + _PATTERN_BYTES] = pattern[: total - at]
    parts = _divided(state, sizes)
    name = ""
    task.meet()
    meter.begin()
    for number in range(1, task.work.saves + 1):
        name = f"{task.folder}rank-{task.rank}/save-{number:08d}"
        task.meet()
        with meter.phase(f"save {number}"):
            asked = time.monotonic()
            client.save(name, parts)
            meter.waited(time.monotonic() - asked)
            meter.done(1, total)
    for number in range(1, task.work.loads + 1):
        block = _memory(total)
        into = _divided(block, sizes)
        task.meet()
        with meter.phase(f"load {number}"):
            asked = time.monotonic()
            client.load(name, into)
            meter.waited(time.monotonic() - asked)
            meter.done(1, total)
        if crc32c(block) != crc32c(state):
            raise WorkloadError(f"what was loaded from {name} is not what was saved")
    return meter.end()
