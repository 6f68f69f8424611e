"""The formats in which a checkpoint is saved and loaded: bytes as they are, torch.save and torch.load, or PyTorch Distributed
Checkpoint. Of each, only what the client does is measured: memory is asked for before, and compared after."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from ringest._core import crc32c
from ringest._needs import needs
from ringest.bench.adapter import Client
from ringest.bench.task import Task, WorkloadError

NAMES = ("bytes", "torch", "dcp")
_PATTERN_BYTES = 1 << 20
# Of a tensor's bytes: any type has its place there.
_ALIGNMENT = 64
_KEY = "state"


def _memory(size: int) -> memoryview:
    """Pages that were never touched, as those of a large new tensor."""
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)) if size else memoryview(b"")


def _divided(block: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    ends = list(itertools.accumulate(sizes))
    return [block[end - size : end] for size, end in zip(sizes, ends)]


class Bytes:
    """An object of each rank, of pieces of memory without a type."""

    def __init__(self, task: Task, client: Client, kinds: Sequence[tuple[int, int]]) -> None:
        """kinds: of each tensor, the bytes of this rank's part, and of an element."""
        self._task, self._client = task, client
        self._sizes = self._rounded([size for size, _ in kinds])
        self._elements = [element for _, element in kinds]
        self.total = sum(self._sizes)
        self._block = _memory(self.total)
        pattern = os.urandom(_PATTERN_BYTES)
        for at in range(0, self.total, _PATTERN_BYTES):
            self._block[at : at + _PATTERN_BYTES] = pattern[: self.total - at]
        self._parts = _divided(self._block, self._sizes)
        self._loaded: Any = None

    def _rounded(self, sizes: list[int]) -> list[int]:
        return sizes

    def name(self, number: int) -> str:
        return f"{self._task.folder}rank-{self._task.rank}/save-{number:08d}"

    def save(self, number: int) -> None:
        self._client.save(self.name(number), self._parts)

    def prepare(self) -> None:
        """Before a load: memory that nobody has touched, as a real one has it."""
        self._loaded = _memory(self.total)

    def load(self, number: int) -> None:
        self._client.load(self.name(number), _divided(self._loaded, self._sizes))

    def check(self, number: int) -> None:
        self._compare([crc32c(self._loaded)], [crc32c(self._block)], number)

    def _compare(self, found: list[int], wanted: list[int], number: int) -> None:
        self._loaded = None
        if found != wanted:
            raise WorkloadError(f"what was loaded from {self.name(number)} is not what was saved")

    def close(self) -> None:
        """Ends what the ranks have in common."""


def _type(torch: Any, element: int) -> Any:
    return {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}.get(element, torch.uint8)


class Torch(Bytes):
    """An object of each rank, as torch.save writes it."""

    def __init__(self, task: Task, client: Client, kinds: Sequence[tuple[int, int]]) -> None:
        with needs("a checkpoint of this format", "torch"):
            import torch
        super().__init__(task, client, kinds)
        self._torch = torch
        self._state = self._tensors(self._block)

    def _rounded(self, sizes: list[int]) -> list[int]:
        return [max(size // _ALIGNMENT, 1) * _ALIGNMENT for size in sizes]

    def _tensors(self, block: memoryview) -> dict[str, Any]:
        """Below one key, as a model's are: torch writes to its log for each at the top."""
        parts = zip(_divided(block, self._sizes), self._elements)
        tensors = (self._torch.frombuffer(part, dtype=_type(self._torch, element)) for part, element in parts)
        return {_KEY: {f"tensor.{i}": tensor for i, tensor in enumerate(tensors)}}

    def save(self, number: int) -> None:
        self._client.save_torch(self.name(number), self._state)

    def prepare(self) -> None:
        pass

    def load(self, number: int) -> None:
        self._loaded = self._client.load_torch(self.name(number))

    def check(self, number: int) -> None:
        found = [crc32c(each.view(self._torch.uint8).numpy()) for each in self._loaded[_KEY].values()]
        self._compare(found, [crc32c(part) for part in self._parts], number)


class Distributed(Torch):
    """A folder of all ranks: tensors are DTensors, of which each rank has an equal part, as FSDP's are."""

    def __init__(self, task: Task, client: Client, kinds: Sequence[tuple[int, int]]) -> None:
        super().__init__(task, client, kinds)
        self._is_alone = task.ranks == 1
        self._mesh = None if self._is_alone else self._join()
        self._state = self._distributed(self._state)
        self._into: Any = None

    def _join(self) -> Any:
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # ranks of one machine
        store = dist.FileStore(self._task.meeting, self._task.ranks)
        dist.init_process_group("gloo", store=store, rank=self._task.rank, world_size=self._task.ranks)
        return init_device_mesh("cpu", (self._task.ranks,))

    def _distributed(self, state: dict[str, Any]) -> dict[str, Any]:
        if self._mesh is None:
            return state
        from torch.distributed.tensor import DTensor, Shard

        made = {name: DTensor.from_local(each, self._mesh, [Shard(0)]) for name, each in state[_KEY].items()}
        return {_KEY: made}

    def name(self, number: int) -> str:
        return f"{self._task.folder}dcp-{number:08d}"

    def save(self, number: int) -> None:
        with _quiet():
            self._client.save_dcp(self.name(number), self._state, self._is_alone)

    def prepare(self) -> None:
        self._loaded = _memory(self.total)
        self._into = self._distributed(self._tensors(self._loaded))

    def load(self, number: int) -> None:
        with _quiet():
            self._client.load_dcp(self.name(number), self._into, self._is_alone)

    def check(self, number: int) -> None:
        self._into = None
        self._compare([crc32c(self._loaded)], [crc32c(self._block)], number)

    def close(self) -> None:
        if self._mesh is not None:
            import torch.distributed as dist

            dist.destroy_process_group()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch warns that one process is alone, which it is to be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def of(name: str) -> type[Bytes]:
    return {"bytes": Bytes, "torch": Torch, "dcp": Distributed}[name]
