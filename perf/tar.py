"""CPU per sample of tar shards: ringest over TLS beside the webdataset package with local files.

`ringest emulate` on core 0 has shards whose samples are a picture of --size bytes and a class; each way
of reading them runs on core 1 in a process of its own, round after round, over all samples. Of each,
the least CPU time per sample counts, of the process and its children, and the samples per second of the
same round. webdataset reads the same shards from files (which lie in the page cache), from `pipe:cat`,
and from gs:// through ringest.webdataset. Needs the packages of tests/python/requirements.txt."""

import argparse
import io
import json
import os
import random
import resource
import subprocess
import sys
import tarfile
import tempfile
import time

import common

WAYS = ("file", "pipe", "gopen", "stream", "shuffle", "scan")
NAMES = {
    "file": "webdataset, local files",
    "pipe": "webdataset, pipe:cat of local files",
    "gopen": "webdataset, gs:// by ringest.webdataset",
    "stream": "ringest.TarDataset, in order",
    "shuffle": "ringest.TarDataset, shuffle=True",
    "scan": "scanning the shards, once",
}


def shard_make(path, number, count, size):
    source = random.Random(number)
    with tarfile.open(path, "w") as archive:
        for i in range(count):
            for extension, data in (("jpg", source.randbytes(size)), ("cls", b"%d" % (i % 1000))):
                info = tarfile.TarInfo(f"{number:04d}-{i:06d}.{extension}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))


def spent():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def samples_of(way, options):
    """An iterable of samples or batches; for a scan the function that makes it."""
    shards = f"{{0000..{options.shards - 1:04d}}}.tar"
    if way in ("file", "pipe"):
        import webdataset

        prefix = "pipe:cat " if way == "pipe" else ""
        return webdataset.WebDataset(f"{prefix}{options.folder}/{shards}", shardshuffle=False)
    import ringest
    from ringest.tar import make_index

    client = ringest.Client(options.endpoint, options.ca, threads=1, connections=options.connections)
    if way == "gopen":
        import webdataset

        import ringest.webdataset

        ringest.webdataset.register(client)
        return webdataset.WebDataset(f"gs://shards/{shards}", shardshuffle=False)
    uri = f"gs://shards/{shards}"
    if way == "scan":
        client.list("gs://shards/")  # connects
        return lambda: make_index(uri, client=client)
    return ringest.TarDataset(uri, client=client, shuffle=way == "shuffle", batch_size=options.batch)


def measure(way, options):
    """In the process that is measured."""
    source = samples_of(way, options)
    cpu, began, count, size = spent(), time.perf_counter(), 0, 0
    if way == "scan":
        count = len(source())
    else:
        for batch in source:
            for sample in batch if isinstance(batch, list) else [batch]:
                count += 1
                size += len(sample["jpg"])
    wall = time.perf_counter() - began
    expected = options.shards * options.count
    if count != expected or (way != "scan" and size != expected * options.size):
        common.die(f"{way} gave {count} samples with {size} bytes")
    print(json.dumps({"us": (spent() - cpu) * 1e6 / count, "per_s": count / wall}))


def run_way(way, options, emulator):
    command = [sys.executable, os.path.abspath(__file__), "--way", way, "--folder", options.folder]
    command += ["--endpoint", emulator.endpoint, "--ca", emulator.ca]
    for name in ("shards", "count", "size", "batch", "connections"):
        command += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(
        common.pinned(1, command),
        env={**common.environment(), "PYTHONPATH": options.package},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        common.die(f"{' '.join(command)} ended with {done.returncode}")
    return json.loads(done.stdout)


def compare(options):
    best: dict = {}
    with tempfile.TemporaryDirectory() as root:
        options.folder = os.path.join(root, "shards")
        os.mkdir(options.folder)
        for number in range(options.shards):
            shard_make(f"{options.folder}/{number:04d}.tar", number, options.count, options.size)
        with common.Emulator(options.ringest, "--threads", "1", "--root", root) as emulator:
            for _ in range(options.rounds):
                for way in options.ways:
                    result = run_way(way, options, emulator)
                    if way not in best or result["us"] < best[way]["us"]:
                        best[way] = result
    ways = [way for way in WAYS if way in best]
    print(f"{options.shards} shards of {options.count} samples of {options.size} bytes, {options.rounds} rounds")
    for way in ways:
        ratio = best["file"]["us"] / best[way]["us"]
        print(f"{NAMES[way]:<42} {best[way]['us']:8.1f} us CPU {best[way]['per_s']:9.0f} /s {ratio:6.2f} x", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringest", default=common.PROGRAM, metavar="PROGRAM")
    parser.add_argument("--package", default=os.path.join(common.ROOT, "build/release/python"), metavar="DIR")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--count", type=int, default=500, help="samples of a shard; 500")
    parser.add_argument("--size", type=int, default=100 << 10, help="bytes of a picture; 100 KiB")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few samples, one round, three of the ways")
    for name in ("way", "folder", "endpoint", "ca"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.ways = WAYS
    if options.quick:
        options.shards, options.count, options.size, options.rounds = 2, 20, 1000, 1
        options.ways = ("file", "gopen", "stream")
    if options.way:
        measure(options.way, options)
    else:
        compare(options)


if __name__ == "__main__":
    main()
