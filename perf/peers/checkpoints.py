"""Saves a state dict to the emulator and loads it again, in a process of its own:

    checkpoints.py NAME ENDPOINT CA SHAPE

prints {"save": {"cpu_s_per_gb", "seconds", "peak_mib"}, "load": {...}} as JSON. Each is done once for the
peak, by which the process grew beyond the state dict that it saves or has loaded, and then again, with
memory that is touched and connections that are open, for the CPU time of all threads."""

from __future__ import annotations

import ctypes
import gc
import io
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from compare import BUCKET

MIB = 1 << 20
KEY = "checkpoint"
# Tensors and the size of each: a large model's weights, and an optimizer's many small ones.
SHAPES = {"large": (64, 16 * MIB), "small": (2048, 64 << 10)}
REPEATS, REPEAT_S = 3, 5


def describe(shape: str) -> str:
    count, size = SHAPES[shape]
    unit = f"{size // MIB} MiB" if size >= MIB else f"{size >> 10} KiB"
    return f"{count * size // MIB:,} MiB in {unit}"


@dataclass(frozen=True)
class Place:
    endpoint: str
    ca: str

    def work(self) -> Any:
        from ringest.bench.peers.work import Work

        return Work(BUCKET, [KEY], 0, 16, 0, 0, self.endpoint, self.ca)


Save = Callable[[Any], Any]
Load = Callable[[], Any]


def ram_disk(place: Place) -> tuple[Save, Load]:
    import torch

    # A file in memory that goes with the process, however that ends.
    path = f"/proc/self/fd/{os.memfd_create('checkpoint')}"

    return lambda state: torch.save(state, path), lambda: torch.load(path)


def obstore_whole(place: Place) -> tuple[Save, Load]:
    import torch

    from ringest.bench.peers import obstore

    store = obstore.store(place.work())

    def save(state: Any) -> None:
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        store.put(KEY, file)

    return save, lambda: torch.load(io.BytesIO(store.get(KEY).bytes()))


def connector(place: Place) -> tuple[Save, Load]:
    import torch
    from dataflux_pytorch.dataflux_checkpoint import DatafluxCheckpoint

    from ringest.bench.peers import google_cloud_storage

    checkpoint = DatafluxCheckpoint("p", BUCKET, google_cloud_storage.client(place.work()))

    def save(state: Any) -> None:
        with checkpoint.writer(KEY) as writer:
            torch.save(state, writer)

    def load() -> Any:
        with checkpoint.reader(KEY) as reader:
            return torch.load(reader)

    return save, load


def distributed(
    writer: Callable[[], Any], reader: Callable[[], Any], save_planner: Any = None, load_planner: Any = None
) -> tuple[Save, Load]:
    """PyTorch Distributed Checkpoint, of one rank; with its own planners, or with those."""
    import torch
    import torch.distributed.checkpoint as dcp

    like: dict[str, Any] = {}

    def save(state: Any) -> None:
        like.update((name, (tensor.shape, tensor.dtype)) for name, tensor in state.items())
        dcp.save({"model": state}, storage_writer=writer(), planner=save_planner, no_dist=True)

    def load() -> Any:
        state = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in like.items()}
        dcp.load({"model": state}, storage_reader=reader(), planner=load_planner, no_dist=True)
        return state

    return save, load


def dcp_gcsfs(place: Place) -> tuple[Save, Load]:
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

    options: dict[str, Any] = {"endpoint_url": place.endpoint, "token": "anon", "project": "p"}
    uri = f"gs://{BUCKET}/dcp"
    return distributed(lambda: FsspecWriter(uri, sync_files=False, **options), lambda: FsspecReader(uri, **options))


def ringest_client(place: Place) -> Any:
    import ringest

    return ringest.Client(place.endpoint, place.ca, threads=1)


def ringest_fast(place: Place) -> tuple[Save, Load]:
    import ringest.checkpoint

    client, uri = ringest_client(place), f"gs://{BUCKET}/{KEY}"
    return (
        lambda state: ringest.checkpoint.save(state, uri, client=client),
        lambda: ringest.checkpoint.load(uri, client=client),
    )


def ringest_file(place: Place) -> tuple[Save, Load]:
    import torch

    import ringest.checkpoint

    client, uri = ringest_client(place), f"gs://{BUCKET}/{KEY}"

    def save(state: Any) -> None:
        with ringest.checkpoint.open(uri, "wb", client=client) as file:
            torch.save(state, file)

    def load() -> Any:
        with ringest.checkpoint.open(uri, client=client) as file:
            return torch.load(file)

    return save, load


def ringest_dcp(place: Place, *planners: Any) -> tuple[Save, Load]:
    import ringest.dcp

    client, uri = ringest_client(place), f"gs://{BUCKET}/dcp"
    return distributed(
        lambda: ringest.dcp.StorageWriter(uri, client=client),
        lambda: ringest.dcp.StorageReader(uri, client=client),
        *planners,
    )


def ringest_dcp_planned(place: Place) -> tuple[Save, Load]:
    import ringest.dcp

    return ringest_dcp(place, ringest.dcp.SavePlanner(), ringest.dcp.LoadPlanner())


CHECKPOINTS: dict[str, Callable[[Place], tuple[Save, Load]]] = {
    "torch.save, RAM disk": ram_disk,
    "ringest.checkpoint": ringest_fast,
    "torch.save, ringest.checkpoint.open": ringest_file,
    "DCP, ringest.dcp": ringest_dcp,
    "DCP, ringest.dcp with its planners": ringest_dcp_planned,
    "obstore, whole object": obstore_whole,
    "gcs-torch-dataflux": connector,
    "DCP, gcsfs": dcp_gcsfs,
}
# Whose versions the page names.
DISTRIBUTIONS = ("torch", "obstore", "gcs-torch-dataflux", "gcsfs")
# Its checkpoint modules do not import with a newer one.
NEEDS_OLD_GOOGLE = ("gcs-torch-dataflux",)


def merge(before: dict | None, now: dict) -> dict:
    """The smaller of each figure; an error only where there is nothing else."""
    if before is None or "error" in before:
        return now
    if "error" in now:
        return before
    return {what: {key: min(before[what][key], now[what][key]) for key in now[what]} for what in ("save", "load")}


def status_mib(field: str) -> float:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field + ":")) / 1024


def measure_peak(action: Callable[[], Any]) -> tuple[float, Any]:
    """By how much the process grows at most, in MiB."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    # The peak is counted from here.
    with open("/proc/self/clear_refs", "w", encoding="ascii") as clear:
        clear.write("5")
    rss = status_mib("VmRSS")
    result = action()
    return status_mib("VmHWM") - rss, result


def measure_cpu(size: int, action: Callable[[], Any]) -> dict[str, float]:
    """The best of a few times, as far as they are short."""
    over = time.monotonic() + REPEAT_S
    found: list[tuple[float, float]] = []
    while not found or (len(found) < REPEATS and time.monotonic() < over):
        cpu, begin = time.process_time(), time.monotonic()
        action()
        found.append((time.process_time() - cpu, time.monotonic() - begin))
    cpu, seconds = map(min, zip(*found))
    return {"cpu_s_per_gb": cpu / size * 1e9, "seconds": seconds}


def run(name: str, place: Place, shape: str) -> dict[str, Any]:
    import torch

    count, tensor_size = SHAPES[shape]
    size = count * tensor_size
    state = {f"layer.{i}": torch.full((tensor_size // 4,), float(i)) for i in range(count)}
    save, load = CHECKPOINTS[name](place)
    save_peak, _ = measure_peak(lambda: save(state))
    saved = measure_cpu(size, lambda: save(state))
    load_peak, loaded = measure_peak(load)
    if loaded.keys() != state.keys() or not all(torch.equal(loaded[k], state[k]) for k in state):
        raise ValueError("what was loaded is not what was saved")
    del loaded
    result = measure_cpu(size, load)
    return {
        "save": {**saved, "peak_mib": save_peak},
        "load": {**result, "peak_mib": load_peak - size / MIB},
    }


def main(arguments: list[str]) -> None:
    name, endpoint, ca, shape = arguments
    from ringest.bench.peers.__main__ import leave

    leave(run(name, Place(endpoint, ca), shape))


if __name__ == "__main__":
    main(sys.argv[1:])
