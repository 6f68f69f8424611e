"""What the Python package costs above the C library, and what datasets reach, beside each other in one
run: CPU time of the client per object, objects per second from a server that answers late, the time
to a first batch, and memory over epochs.

CPU time per object is that of the whole process, and of the thread that submits and takes, which is
where the package can cost something: the event loop's thread does the same work in either case, and
more of the noise.

The emulator serves on core 0, the client runs on core 1, over TLS. Each figure is from a process of
its own, without its start, and the best of the rounds: what else happens on a machine only adds to
it.

    dataset.py [--quick] [--rounds N] [--only overhead|late|first|memory]"""

import argparse
import contextlib
import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import common

OVERHEAD_GOAL_US = 1.0
LATE_GOAL = 30000
FIRST_GOAL_S = 1.5
MANIFEST_COUNT = 1_000_000
CLIENT_S = 300
WARM_UP_S = 2.0
MEMORY = "256MiB"


def thread_cpu_s(pid):
    """Of the first thread of a process."""
    with open(f"/proc/{pid}/task/{pid}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0]) / 1e9


def usage():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(counts, seconds):
    """Objects, wall and CPU seconds, after memory was touched for the first time."""
    total, began, cpu, own = 0, 0.0, 0.0, 0.0
    warm = time.monotonic() + min(WARM_UP_S, 5 * seconds)
    for count in counts:
        now = time.monotonic()
        if not began:
            if now >= warm:
                began, cpu, own = now, usage(), thread_cpu_s(os.getpid())
            continue
        total += count
        if now >= began + seconds:
            break
    return {"objects": total, "wall_s": time.monotonic() - began, "cpu_s": usage() - cpu,
            "taker_s": thread_cpu_s(os.getpid()) - own}  # fmt: skip


def counts_for_ever(batches):
    while True:
        for items in batches():
            yield len(items)


def objects(prefix, count, size):
    return [(f"{prefix}{i:08d}", int(size), 0) for i in range(int(count))]


def run_get_many(connect, prefix, count, seconds, connections):
    client = connect(connections=int(connections))
    uris = [f"gs://bench/{prefix}{i:08d}" for i in range(int(count))]
    return measure(counts_for_ever(lambda: client.get_many(uris)), float(seconds))


def run_stream(connect, prefix, count, size, batch, seconds, connections, requests, loader):
    import ringest

    dataset = ringest.IterableDataset(
        "gs://bench/", batch_size=int(batch), client=connect(connections=int(connections)), requests=int(requests),
        shuffle=True, manifest=objects(prefix, count, size),
    )  # fmt: skip
    batches = dataset
    if loader == "loader":
        from torch.utils.data import DataLoader

        # Otherwise PyTorch goes through each batch to make tensors of what could be one.
        batches = DataLoader(dataset, batch_size=None, num_workers=0, collate_fn=lambda batch: batch)
    return measure(counts_for_ever(lambda: batches), float(seconds))


def run_first(connect, manifest, batch):
    import ringest

    options = {"manifest": manifest, "client": connect(), "shuffle": True, "batch_size": int(batch)}
    ringest.IterableDataset  # imports PyTorch, which is no matter of the manifest's
    began, cpu = time.monotonic(), usage()
    dataset = ringest.IterableDataset("gs://bench/", **options)
    samples = iter(dataset)
    next(samples)
    start = {"wall_s": time.monotonic() - began, "cpu_s": usage() - cpu}
    for _ in range(min(200, len(dataset) // 2)):
        next(samples)
    state = dataset.state_dict()
    samples.close()
    began, cpu = time.monotonic(), usage()
    other = ringest.IterableDataset("gs://bench/", **options)
    other.load_state_dict(state)
    next(iter(other))
    return {"start": start, "resume": {"wall_s": time.monotonic() - began, "cpu_s": usage() - cpu}}


def run_epochs(connect, prefix, count, size, number):
    """Resident memory above that before, after each of a number of epochs."""
    import ringest

    client = connect(memory=MEMORY)
    before = common.memory_mb(os.getpid(), "VmRSS")
    dataset = ringest.IterableDataset(
        "gs://bench/", batch_size=64, client=client, shuffle=True, manifest=objects(prefix, count, size)
    )
    highest = []
    for epoch in range(int(number)):
        dataset.set_epoch(epoch)
        for _ in dataset:
            pass
        highest.append(common.memory_mb(os.getpid(), "VmHWM") - before)
    return {"above_mb": highest}


# What runs in a process of its own.
IN_CLIENT = {"get_many": run_get_many, "stream": run_stream, "first": run_first, "memory": run_epochs}


def in_client(what, endpoint, ca, *arguments):
    """Runs one of IN_CLIENT in this process and prints its result."""
    import ringest

    connect = functools.partial(ringest.Client, endpoint, ca, threads=1)
    print(json.dumps(IN_CLIENT[what](connect, *arguments)))


def client(options, emulator, what, *arguments):
    command = [options.python, os.path.abspath(__file__), "--in-client", what, emulator.endpoint, emulator.ca]
    done = subprocess.run(
        common.pinned(1, [*command, *map(str, arguments)]), capture_output=True, text=True, timeout=CLIENT_S,
        env={**common.environment(), "PYTHONPATH": options.package}, check=False,
    )  # fmt: skip
    if done.returncode:
        common.die(f"{what}: {done.stderr}")
    return json.loads(done.stdout)


def per_object_us(result, what="cpu_s"):
    return result[what] / result["objects"] * 1e6


def bench(options, emulator, connections):
    """CPU time per object of `ringest bench get`, and of its first thread, warm-up included."""
    command = common.pinned(1, [
        options.ringest, "bench", "get", "gs://bench/o-", *emulator.options(), "--threads", "1", "--json",
        "--seconds", str(options.seconds + WARM_UP_S), "--concurrency", str(connections), "--verify",
    ])  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=common.environment()) as process:
        taker = 0.0
        while process.poll() is None:
            with contextlib.suppress(OSError):
                taker = max(taker, thread_cpu_s(process.pid))
            time.sleep(0.02)
        told = json.loads(process.stdout.read())
    if told["errors"]:
        common.die(f"{' '.join(command)}: {told['errors']} errors")
    return told["cpu_us_per_request"], taker / told["requests"] * 1e6


def both(result):
    return per_object_us(result), per_object_us(result, "taker_s")


def has_torch(options):
    return not subprocess.run([options.python, "-c", "import torch"], capture_output=True, check=False).returncode


def overhead(options):
    """CPU per object: the C library, get_many, and IterableDataset in a DataLoader."""
    for size, count, connections in ((4096, 50000, 64), (102400, 10000, 64), (3 << 20, 500, 16)):
        if options.size not in (None, size):
            continue
        count = min(count, options.count * 10)
        # What a training step takes: 256 samples, but no more than 64 MiB of them.
        batch = min(256, (64 << 20) // size)
        best = {}
        synthetic = f"bench/o-:{count}:{size}"
        kind = "loader" if has_torch(options) else "alone"
        with common.Emulator(options.ringest, "--threads", "1", "--synthetic", synthetic) as emulator:
            for _ in range(options.rounds):
                found = {
                    "bench get": bench(options, emulator, connections),
                    "get_many": both(
                        client(options, emulator, "get_many", "o-", count, options.seconds, connections)
                    ),
                    "IterableDataset": both(
                        client(
                            options, emulator, "stream", "o-", count, size, batch, options.seconds,
                            connections, 1024, kind,
                        )
                    ),
                }  # fmt: skip
                for name, figures in found.items():
                    best[name] = [min(pair) for pair in zip(figures, best.get(name, figures), strict=True)]
        base = best["bench get"]
        for name, (us, taker) in best.items():
            print(f"{size:>8} bytes  {name:<16} {us:9.2f} µs of CPU per object, {base[0] / us:5.2f} of bench get; "
                  f"thread that takes {taker:7.2f} µs, {taker - base[1]:+6.2f} (goal {OVERHEAD_GOAL_US:+})")  # fmt: skip


def late(options):
    """Objects per second of 10 KiB, each answered after 30 ms."""
    count = min(50000, options.count * 10)
    with common.Emulator(
        options.ringest, "--threads", "1", "--latency-ms", "30", "--synthetic", f"bench/o-:{count}:10240"
    ) as emulator:
        best = {}
        for _ in range(options.rounds):
            for connections in (64,) if options.quick else (1024, 1536, 2048):
                result = client(
                    options, emulator, "stream", "o-", count, 10240, 256, options.seconds, connections,
                    2 * connections, "alone",
                )  # fmt: skip
                rate = result["objects"] / result["wall_s"]
                if rate > best.get(connections, (0, 0))[0]:
                    best[connections] = rate, per_object_us(result)
    for connections, (rate, us) in best.items():
        print(f"   10240 bytes after 30 ms, {connections} connections: {rate:9,.0f} objects/s, {us:.1f} µs of CPU per object"
              f" (goal {LATE_GOAL:,})")  # fmt: skip


def first(options):
    """Time to the first batch of a manifest, from its start and from its middle."""
    import_path = f"import sys; sys.path.insert(0, {options.package!r}); import ringest; "
    count = MANIFEST_COUNT if not options.quick else 10000
    with (
        tempfile.TemporaryDirectory() as folder,
        common.Emulator(options.ringest, "--threads", "1", "--synthetic", f"bench/o-:{count}:10240") as emulator,
    ):
        path = os.path.join(folder, "manifest")
        script = f"ringest.Client({emulator.endpoint!r}, {emulator.ca!r}).list('gs://bench/o-').save({path!r})"
        began = time.monotonic()
        common.run([options.python, "-c", import_path + script])
        print(f"a listing of {count:,} objects, saved as a manifest of {os.path.getsize(path) / 1e6:.1f} MB: "
              f"{time.monotonic() - began:.2f} s")  # fmt: skip
        results = [client(options, emulator, "first", path, 256) for _ in range(options.rounds)]
        for what in ("start", "resume"):
            best = min((result[what] for result in results), key=lambda result: result["wall_s"])
            print(f"first batch of 256 of {count:,} objects, {what}: {best['wall_s']:.3f} s, "
                  f"{best['cpu_s']:.3f} s of CPU (goal {FIRST_GOAL_S} s)")  # fmt: skip


def memory(options):
    """Resident memory above that of the process before, after each epoch."""
    count = min(20000, options.count * 4)
    with common.Emulator(options.ringest, "--threads", "1", "--synthetic", f"bench/o-:{count}:102400") as emulator:
        result = client(options, emulator, "memory", "o-", count, 102400, 3)
    told = ", ".join(f"{mb:.0f} MB" for mb in result["above_mb"])
    print(f"{count:,} objects of 100 KiB, 3 epochs, memory {MEMORY}: at most {told} above the start")


PARTS = {"overhead": overhead, "late": late, "first": first, "memory": memory}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--ringest", default=common.PROGRAM, metavar="PROGRAM")
    parser.add_argument("--package", default=os.path.join(common.ROOT, "build/root/lib/python"), metavar="FOLDER")
    parser.add_argument("--python", default=sys.executable, help="that has torch, for the DataLoader")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--count", type=int, default=5000, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help="bytes: only this one of the objects that overhead has")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="only shows that it works")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.count = 1, 0.2, 100
    print(json.dumps(common.machine()))
    for name, part in PARTS.items():
        if options.only in (None, name):
            part(options)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in-client"]:
        in_client(*sys.argv[2:])
    else:
        main()
