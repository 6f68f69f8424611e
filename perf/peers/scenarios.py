"""What a dataset does in situations that one object from nginx does not show, against the emulator:

    scenarios.py NAME ENDPOINT CA SECONDS [MANIFEST]

measures one in a process of its own, as measure.py starts it, and prints {"value": ...} or several
such figures as JSON. ALL says what there is, in which unit, and what must be reached."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]

import common  # noqa: E402
from compare import BUCKET  # noqa: E402

MIB = 1 << 20
LATE_CONNECTIONS = 1536
# Handshakes of so many connections take their time.
LATE_WARM_UP_S = 4.0
LATE_SIZE = 10 << 10
LATE_COUNT = 100_000
# Of a dataset without a listing, each the name of an object that there is.
LATE_NAMES = 1000
NAMES = 1_000_000
BATCH = 256
# Batches before the stop.
TAKEN = 100
MEMORY = 128 * MIB
PREFETCH = 64 * MIB
EPOCHS = 3
PHOTOS, PHOTO_SIZE = 4_000, 100 << 10


@dataclass(frozen=True)
class Scenario:
    """`servers` are options of the emulator. `rows` are (label, function below, key of its result);
    `goal` compares a value of the first row with what must be reached."""

    title: str
    unit: str
    servers: tuple[str, ...]
    rows: tuple[tuple[str, str, str], ...]
    goal: tuple[str, float] | None
    manifest: str | None = None


ALL: dict[str, Scenario] = {
    "late": Scenario(
        "objects of 10 KiB a second that come 30 ms late, one process without workers",
        "objects/s",
        ("--latency-ms", "30", "--synthetic", f"{BUCKET}/late-:{LATE_COUNT}:{LATE_SIZE}"),
        (
            ("ringest IterableDataset", "late_ringest", "rate"),
            ("obstore, uvloop", "late_obstore", "rate"),
            ("litdata StreamingRawDataset", "late_litdata", "rate"),
            ("ringest IterableDataset, client CPU µs per object", "late_ringest", "cost"),
            ("obstore, uvloop, client CPU µs per object", "late_obstore", "cost"),
            ("litdata StreamingRawDataset, client CPU µs per object", "late_litdata", "cost"),
        ),
        ("≥", 30_000),
    ),
    "first": Scenario(
        f"first batch of {BATCH} out of {NAMES:,} shuffled objects, and the next one after a resume",
        "s",
        ("--synthetic", f"{BUCKET}/name-:{NAMES}:4KiB"),
        (
            ("ringest IterableDataset, from a manifest", "first_ringest", "start"),
            ("ringest IterableDataset, resumed in mid-epoch", "first_ringest", "resume"),
            ("ringest IterableDataset, listing first", "first_listing", "value"),
        ),
        ("≤", 1.5),
        f"gs://{BUCKET}/name-",
    ),
    "memory": Scenario(
        f"growth of the process over {EPOCHS} epochs of {PHOTOS:,} objects of 100 KiB, and what "
        f"close() leaves; the client may hold {MEMORY // MIB} MiB",
        "MiB; then files, threads",
        ("--synthetic", f"{BUCKET}/photo-:{PHOTOS}:{PHOTO_SIZE}"),
        (
            ("ringest IterableDataset", "memory_ringest", "grown"),
            ("files left open", "memory_ringest", "files"),
            ("threads left running", "memory_ringest", "threads"),
        ),
        ("≤", MEMORY // MIB),
    ),
}


def work(endpoint: str, ca: str, seconds: float) -> Any:
    from ringest.bench.peers.work import Work

    names = [f"late-{index:08d}" for index in range(LATE_NAMES)]
    return Work(BUCKET, names, LATE_SIZE, LATE_CONNECTIONS, seconds, LATE_WARM_UP_S, endpoint, ca)


def rate(counted: Any) -> dict[str, float]:
    cpu = counted.cpu_user + counted.cpu_system
    return {"rate": counted.operations / counted.seconds, "cost": cpu / counted.operations * 1e6}


def late_ringest(endpoint: str, ca: str, seconds: float) -> dict[str, float]:
    import ringest
    from ringest.bench.peers.work import in_loader

    client = ringest.Client(endpoint, ca, threads=1, connections=LATE_CONNECTIONS)
    dataset = ringest.IterableDataset(
        f"gs://{BUCKET}/late-", shuffle=True, batch_size=BATCH, requests=4096, client=client
    )
    return rate(in_loader(work(endpoint, ca, seconds), dataset, batch_size=None))


def late_obstore(endpoint: str, ca: str, seconds: float) -> dict[str, float]:
    from ringest.bench.peers import obstore

    return rate(obstore.get_in_tasks(work(endpoint, ca, seconds)))


def late_litdata(endpoint: str, ca: str, seconds: float) -> dict[str, float]:
    from ringest.bench.peers import litdata

    return rate(litdata.raw(work(endpoint, ca, seconds), batch=LATE_CONNECTIONS))


def first_ringest(endpoint: str, ca: str, seconds: float, manifest: str) -> dict[str, float]:
    import ringest
    import ringest.dataset  # and torch, which a training has long imported

    def opened() -> Any:
        return ringest.IterableDataset(
            f"gs://{BUCKET}/name-",
            shuffle=True,
            batch_size=BATCH,
            client=ringest.Client(endpoint, ca, threads=1),
            manifest=manifest,
        )

    begin = time.monotonic()
    dataset = opened()
    batches = iter(dataset)
    assert len(next(batches)) == BATCH
    start = time.monotonic() - begin
    for _ in range(TAKEN):
        next(batches)
    state = json.loads(json.dumps({**dataset.state_dict(), "state": dataset.state_dict()["state"].hex()}))
    wanted = [bytes(data) for data in next(batches)]
    batches.close()

    begin = time.monotonic()
    dataset = opened()
    dataset.load_state_dict({**state, "state": bytes.fromhex(state["state"])})
    batch = next(iter(dataset))
    resume = time.monotonic() - begin
    if [bytes(data) for data in batch] != wanted:
        raise ValueError("another batch came after the resume")
    return {"start": start, "resume": resume}


def first_listing(endpoint: str, ca: str, seconds: float, manifest: str) -> dict[str, float]:
    import ringest
    import ringest.dataset  # and torch, which a training has long imported

    begin = time.monotonic()
    dataset = ringest.IterableDataset(
        f"gs://{BUCKET}/name-",
        shuffle=True,
        batch_size=BATCH,
        client=ringest.Client(endpoint, ca, threads=1),
    )
    assert len(next(iter(dataset))) == BATCH
    return {"value": time.monotonic() - begin}


def memory_ringest(endpoint: str, ca: str, seconds: float) -> dict[str, float]:
    import ringest
    import ringest.dataset  # and torch, which a training has long imported
    from ringest.bench.peers.__main__ import peak_rss

    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    files, threads = held()
    before = peak_rss()
    client = ringest.Client(endpoint, ca, threads=1, memory=MEMORY)
    dataset = ringest.IterableDataset(
        f"gs://{BUCKET}/photo-", shuffle=True, batch_size=64, prefetch=PREFETCH, client=client
    )
    for epoch in range(EPOCHS):
        dataset.set_epoch(epoch)
        count = sum(len(batch) for batch in dataset)
        if count != PHOTOS:
            raise ValueError(f"{count} objects came in epoch {epoch}")
    grown = (peak_rss() - before) / MIB
    client.close()
    # While it lives, it tells `ringest explain` of its steps in a file that the host's processes share.
    del dataset
    left_files, left_threads = held()
    return {"grown": grown, "files": left_files - files, "threads": left_threads - threads}


@contextlib.contextmanager
def saved_manifest(scenario: Scenario, emulator: Any, options: argparse.Namespace) -> Iterator[list[str]]:
    if scenario.manifest is None:
        yield []
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "manifest")
        common.run([options.ringest, "manifest", "save", scenario.manifest, path, *emulator.options()])
        yield [path]


def measure_one(scenario: Scenario, options: argparse.Namespace, run: Callable[..., dict]) -> list[dict]:
    """[{"who", "value" or "error"}], each function once for all rows that it fills."""
    found: dict[str, dict] = {}
    with (
        common.Emulator(options.ringest, "--threads", "1", *scenario.servers) as emulator,
        saved_manifest(scenario, emulator, options) as manifest,
    ):
        for _, function, _ in scenario.rows:
            if function not in found:
                arguments = [function, emulator.url(), emulator.ca, str(options.seconds), *manifest]
                found[function] = run(arguments, emulator.ca)
                common.say(f"{function}: {found[function]}")
    return [
        {"who": who, "error": found[function]["error"]}
        if "error" in found[function]
        else {"who": who, "value": found[function][key]}
        for who, function, key in scenario.rows
    ]


def measure_all(options: argparse.Namespace, run: Callable[..., dict]) -> dict[str, list[dict]]:
    return {name: measure_one(ALL[name], options, run) for name in options.scenarios}


def main(arguments: list[str]) -> None:
    name, endpoint, ca, seconds, *rest = arguments
    if name not in {row[1] for scenario in ALL.values() for row in scenario.rows}:
        sys.exit(f"there is no {name}")
    from ringest.bench.peers.__main__ import leave

    leave(globals()[name](endpoint, ca, float(seconds), *rest))


if __name__ == "__main__":
    main(sys.argv[1:])
