"""What it costs that a dataset is a completion queue: CPU time of the client for each sample that comes
through an rg_cq beside rg_reader_next (streams.c), and for `async for batch in dataset` beside `for`.

The emulator serves on core 0, the client runs on core 1, over TLS. Both ways are measured in turns in
one process; the ratio is the median of the rounds, with its quartiles.

    streams.py [--quick] [--rounds N] [--size BYTES] [--only queue|python]"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import common

GOAL = 1.02
BYTES = 64 << 20  # of one epoch, at most
SIZES = (4096, 10240, 102400)
CLIENT_S = 600


def quartiles(values):
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def report(what, rounds, base, other):
    """One line about rounds of {way: {"cpu_us", "switches"}}."""
    ratios = [one[other]["cpu_us"] / one[base]["cpu_us"] for one in rounds]
    low, middle, high = quartiles(ratios)

    def median(way, key):
        return statistics.median(one[way][key] for one in rounds)

    print(
        f"{what:<34} {base} {median(base, 'cpu_us'):7.2f} µs, {median(base, 'switches'):5.3f} switches; "
        f"{other} {median(other, 'cpu_us'):7.2f} µs, {median(other, 'switches'):5.3f} switches; "
        f"x{middle:.3f} ({low:.3f} to {high:.3f}, goal {GOAL:.2f})",
        flush=True,
    )


def count_of(options, size):
    return min(options.count, BYTES // size)


def emulator(options, size):
    synthetic = f"bench/o-:{count_of(options, size)}:{size}"
    return common.Emulator(options.ringest, "--threads", "1", "--synthetic", synthetic)


def queue(options):
    """In C: one and four threads that take from one queue."""
    for size in options.sizes:
        with emulator(options, size) as server:
            for threads in options.threads:
                command = [options.program, server.endpoint, server.ca, "bench", "o-", count_of(options, size), size,
                           threads, options.batch, options.rounds, 64]  # fmt: skip
                told = common.run(common.pinned(1, [str(part) for part in command]), timeout=CLIENT_S)
                rounds = [json.loads(line) for line in told.splitlines()]
                report(f"{size} bytes, {threads} threads, by {options.batch}", rounds, "calls", "queue")


def python(options):
    """In Python: one loop of asyncio that does nothing else."""
    for size in options.sizes:
        with emulator(options, size) as server:
            command = [options.python, os.path.abspath(__file__), "--in-client", server.endpoint, server.ca,
                       count_of(options, size), size, options.batch, options.rounds]  # fmt: skip
            done = subprocess.run(
                common.pinned(1, [str(part) for part in command]), capture_output=True, text=True, timeout=CLIENT_S,
                env={**common.environment(), "PYTHONPATH": options.package}, check=False,
            )  # fmt: skip
            if done.returncode:
                common.die(done.stderr)
            rounds = [json.loads(line) for line in done.stdout.splitlines()]
            report(f"{size} bytes, batches of {options.batch}", rounds, "for", "async for")


def in_client(endpoint, ca, count, size, batch, rounds):
    """Prints one round a line."""
    import ringest

    count, size = int(count), int(size)
    client = ringest.Client(endpoint, ca, threads=1, connections=64)
    manifest = [(f"o-{i:08d}", size, 0) for i in range(count)]
    dataset = ringest.IterableDataset(
        "gs://bench/", batch_size=int(batch), client=client, shuffle=True, manifest=manifest
    )

    async def awaited():
        return sum([len(samples) async for samples in dataset])

    async def plain():  # in a loop, too, so that only the iteration differs
        return sum(len(samples) for samples in dataset)

    def measure(way):
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        taken = asyncio.run(way())
        after = resource.getrusage(resource.RUSAGE_SELF)
        assert taken == count
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"cpu_us": cpu / count * 1e6, "switches": (after.ru_nvcsw - before.ru_nvcsw) / count,
                "wall_us": (time.monotonic() - began) / count * 1e6}  # fmt: skip

    ways = {"for": plain, "async for": awaited}
    for way in ways.values():
        measure(way)
    for number in range(int(rounds)):
        dataset.set_epoch(number)
        order = list(ways.items())[:: 1 if number % 2 else -1]
        print(json.dumps({name: measure(way) for name, way in order}), flush=True)


PARTS = {"queue": queue, "python": python}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--ringest", default=common.PROGRAM, metavar="PROGRAM")
    parser.add_argument("--program", default=f"{common.ROOT}/build/release/perf/streams", metavar="PROGRAM")
    parser.add_argument("--package", default=os.path.join(common.ROOT, "build/root/lib/python"), metavar="FOLDER")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--count", type=int, default=16384, help="objects of an epoch, at most; 16384")
    parser.add_argument("--batch", type=int, default=64, help="samples that are waited for at a time; 64")
    parser.add_argument("--size", type=int, action="append", dest="sizes", help="bytes of an object")
    parser.add_argument("--threads", type=int, action="append", help="that take from the queue")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="only shows that it works")
    options = parser.parse_args()
    options.sizes = options.sizes or SIZES
    options.threads = options.threads or (1, 4)
    if options.quick:
        options.rounds, options.count = 1, 200
    print(json.dumps(common.machine()))
    for name, part in PARTS.items():
        if options.only in (None, name):
            part(options)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in-client"]:
        in_client(*sys.argv[2:])
    else:
        main()
