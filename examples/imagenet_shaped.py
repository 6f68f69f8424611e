"""Samples a second, and what each costs in CPU time, of objects that are as large as ImageNet's images.

    python examples/imagenet_shaped.py
    python examples/imagenet_shaped.py --uri gs://bucket/train/ --endpoint https://storage.googleapis.com

Reads every object once with ringest.IterableDataset and once with ringest.MapDataset, both shuffled and
through a DataLoader. Without an endpoint, an emulator on this machine computes objects of 100 KiB, and
server and client share its CPUs. CPU time is that of this process and of its workers."""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterable

import emulator
import torch
from torch.utils.data import DataLoader

import ringest

BUCKET = "imagenet"
SIZE = 100 << 10


def to_tensor(item: ringest.Item) -> torch.Tensor:
    """The bytes without a copy. A real program would decode them."""
    return torch.frombuffer(item.data, dtype=torch.uint8)


def keep(samples: list[torch.Tensor]) -> list[torch.Tensor]:
    """Images differ in size until they are decoded, so that there is nothing to stack."""
    return samples


def cpu_seconds() -> float:
    """Of this process and of the workers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def measure(name: str, batches: Iterable[list[torch.Tensor]], count: int) -> None:
    """One epoch, with a line that is rewritten on a terminal."""
    samples = size = 0
    shown = 0.0
    begin, cpu = time.monotonic(), cpu_seconds()
    for batch in batches:
        samples += len(batch)
        size += sum(map(len, batch))
        if sys.stderr.isatty() and time.monotonic() > shown + 0.2:
            shown = time.monotonic()
            print(f"\r\x1b[K{name}: {samples:,} of {count:,}", end="", file=sys.stderr, flush=True)
    seconds, cpu = time.monotonic() - begin, cpu_seconds() - cpu
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if samples != count:
        sys.exit(f"{name}: {samples:,} samples came instead of {count:,}")
    print(
        f"{name}: {samples:,} samples, {samples / seconds:,.0f} samples/s, {size / seconds / 1e9:.2f} GB/s, "
        f"{cpu / samples * 1e6:,.1f} µs of CPU time per sample",
        flush=True,
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--uri", default=f"gs://{BUCKET}/train-", help="of the objects; %(default)s")
    parser.add_argument("--count", type=int, default=20_000, help="objects that the emulator has; %(default)s")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--workers", type=int, default=0, help="processes of the DataLoader; 0")
    parser.add_argument("--epochs", type=int, default=2, help="the first one also opens connections; 2")
    emulator.add_options(parser)
    return parser.parse_args()


def main() -> None:
    options = parse()
    objects = f"{BUCKET}/train-:{options.count}:{SIZE}"
    with (
        emulator.endpoint(options, "--synthetic", objects) as (endpoint, ca),
        ringest.Client(endpoint, ca) as client,
    ):
        stream = ringest.IterableDataset(
            options.uri, shuffle=True, batch_size=options.batch_size, transform=to_tensor, client=client
        )
        by_index = ringest.MapDataset(options.uri, to_tensor, client)
        count = len(stream.objects)
        for epoch in range(options.epochs):
            stream.set_epoch(epoch)
            measure("IterableDataset", DataLoader(stream, batch_size=None, num_workers=options.workers), count)
            shuffled = DataLoader(
                by_index,
                batch_size=options.batch_size,
                shuffle=True,
                collate_fn=keep,
                num_workers=options.workers,
            )
            measure("MapDataset", shuffled, count)


if __name__ == "__main__":
    main()
