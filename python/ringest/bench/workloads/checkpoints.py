"""A model's state, saved to one object for each rank and loaded again. An operation is a save or a load.

The tensors are those of a Llama (https://github.com/meta-llama/llama-models): their weights, and with an optimizer three
more values of each parameter in 32 bits, as Adam's with a master copy. Each rank has an equal part of each, as FSDP and ZeRO 3
divide them. A load goes into memory that nobody has touched, as a real one does, and is compared with what was saved.
In what format is `ringest.bench.workloads.formats`."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from ringest.bench import fields
from ringest.bench.adapter import Client
from ringest.bench.result import Round
from ringest.bench.task import Task
from ringest.bench.workloads import formats

__all__ = ["Data", "Work", "run"]

# Of a rank's part of a tensor, whatever the scale.
PART_MIN = 64


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

    def kinds(self, scale: float) -> list[tuple[int, int]]:
        """Of each tensor, the bytes of one rank's part, and of an element."""
        kinds = [self.weight_bytes, *([4] * 3 if self.optimizer else [])]
        share = scale / self.ranks
        return [(max(int(number * kind * share), PART_MIN), kind) for kind in kinds for number in self.parameters()]

    def parts(self, scale: float) -> list[int]:
        """Bytes of each tensor of one rank."""
        return [size for size, _ in self.kinds(scale)]


@dataclass(frozen=True, kw_only=True)
class Work:
    saves: int = fields.count(1)
    loads: int = fields.count(1)
    # bytes: as they are, which is the way to and from the bucket alone; torch: torch.save and torch.load; dcp:
    # torch.distributed.checkpoint, by all ranks together.
    format: str = fields.choice(formats.NAMES, "bytes")
    scale: float = fields.number(1.0, highest=1)

    def scaled(self, factor: float) -> Work:
        return replace(self, scale=self.scale * factor)


def memory_needed(work: Work, data: Data) -> int:
    """Of all ranks: what is saved, and what is loaded."""
    return 2 * sum(data.parts(work.scale)) * data.ranks


def run(task: Task, client: Client) -> Round:
    meter, work = task.meter, task.work
    state = formats.of(work.format)(task, client, task.data.kinds(work.scale))
    task.meet()
    meter.begin()
    try:
        for number in range(1, work.saves + 1):
            task.meet()
            with meter.phase(f"save {number}"):
                asked = time.monotonic()
                state.save(number)
                meter.waited(time.monotonic() - asked)
                meter.done(1, state.total)
        for number in range(1, work.loads + 1):
            state.prepare()
            task.meet()
            with meter.phase(f"load {number}"):
                asked = time.monotonic()
                state.load(work.saves)
                meter.waited(time.monotonic() - asked)
                meter.done(1, state.total)
            state.check(work.saves)
        return meter.end()
    finally:
        state.close()
