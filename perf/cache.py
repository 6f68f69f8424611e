#!/usr/bin/env python3
"""Two epochs of the same objects with the caches of loaders on a local disk, beside each other in one run: objects per
second of the client's CPU time, in the first epoch, which fills the cache, and in the second, which reads it.

    ringest       IterableDataset, Client(cache=)
    litdata       StreamingRawDataset, cache_files=True
    MDS           StreamingDataset of mosaicml-streaming. Its objects are made into shards before, and its first
                  epoch copies them from a local folder, which is less than the others do

The emulator serves on core 0 over TLS, the client runs on core 1, in a process of its own without workers, and its start
is not counted. What is not installed is left out. With --half nothing is compared: ringest reads with a cache that
holds half of the objects, and its hits of each epoch are told. With --misses it is what a miss costs: `ringest bench get`
of objects that the cache has not, with the cache and without, in turns. It is the CPU time of whole processes, whose
threads write behind, until the last byte is written: of all objects less that of a quarter of them, so that what a start
costs drops out, which is told beside.

    cache.py [--program FILE] [--python FILE] [--package DIR] [--objects N] [--size BYTES] [--folder DIR] [--half]
             [--misses [--rounds N]]"""

import argparse
import importlib.abc
import importlib.machinery
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import types

import common

BATCH = 64
EPOCHS = 2


def epochs(run, count, size):
    """What each epoch took: objects, seconds, CPU seconds."""
    for epoch in range(EPOCHS):
        began, cpu, seen = time.monotonic(), time.process_time(), 0
        for batch in run(epoch):
            for data in batch:
                if len(data) != size:
                    raise ValueError(f"{len(data)} bytes came instead of {size}")
            seen += len(batch)
        if seen != count:
            raise ValueError(f"{seen} objects came instead of {count}")
        yield {"objects": seen, "seconds": time.monotonic() - began, "cpu": time.process_time() - cpu}


def ringest_run(place, folder, limit, _):
    import ringest

    client = ringest.Client(*place, cache=folder, **limit)
    dataset = ringest.IterableDataset("gs://bench/", shuffle=True, batch_size=BATCH, client=client)
    before = client.stats()

    def run(epoch):
        nonlocal before
        dataset.set_epoch(epoch)
        yield from dataset
        after = client.stats()
        told = {name: after[name] - before[name] for name in ("cache_hits", "cache_misses", "requests")}
        print(json.dumps(told), file=sys.stderr)
        before = after

    len(dataset)
    return run


def litdata_run(place, folder, _, count):
    from litdata import StreamingRawDataset
    from litdata.raw.indexer import BaseIndexer, FileMetadata
    from litdata.streaming import downloader
    from obstore.store import GCSStore
    from torch.utils.data import DataLoader

    class Index(BaseIndexer):
        def discover_files(self, input_dir, storage_options):
            return [FileMetadata(f"gs://bench/part-{i:08d}", count[1]) for i in range(count[0])]

        def build_or_load_index(self, input_dir, cache_dir, storage_options, recompute_index=False):
            return self.discover_files(input_dir, storage_options)

    key = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    key = json.dumps({"gcs_base_url": place[0], "disable_oauth": True, **key})
    with open(place[1], encoding="ascii") as file:
        options = {"root_certificate": file.read(), "pool_max_idle_per_host": "4096"}
    # It has no option for another endpoint; its own store is made of Google's credentials.
    downloader.GCPDownloader._get_store = lambda self, bucket: downloader._cached_obstore_store(
        self, lambda: GCSStore("bench", service_account_key=key, client_options=options)
    )
    dataset = StreamingRawDataset("gs://bench/", cache_dir=folder, indexer=Index(), cache_files=True)
    return lambda epoch: DataLoader(dataset, batch_size=BATCH, shuffle=True, collate_fn=list)


class Absent(types.ModuleType):
    """In the place of transformers and torchvision, of which it imports names only."""

    __path__: list = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class AbsentFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        is_ours = name.split(".")[0] in ("transformers", "torchvision")
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_ours else None

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        pass


def streaming_import():
    sys.meta_path.append(AbsentFinder())
    import streaming

    return streaming


def mds_run(_, folder, __, count):
    streaming = streaming_import()
    from torch.utils.data import DataLoader

    remote = os.path.join(folder, "remote")
    with streaming.MDSWriter(out=remote, columns={"data": "bytes"}) as out:
        for _ in range(count[0]):
            out.write({"data": os.urandom(count[1])})
    streaming.base.util.clean_stale_shared_memory()
    dataset = streaming.StreamingDataset(
        remote=remote, local=os.path.join(folder, "local"), shuffle=True, batch_size=BATCH
    )

    def collate(samples):
        return [sample["data"] for sample in samples]

    return lambda epoch: DataLoader(dataset, batch_size=BATCH, collate_fn=collate)


CLIENTS = {"ringest": ringest_run, "litdata": litdata_run, "MDS": mds_run}


def client_main(name, endpoint, ca, folder, limit, count, size):
    limit = {"cache_size": int(limit)} if int(limit) else {}
    try:
        run = CLIENTS[name]((endpoint, ca), folder, limit, (int(count), int(size)))
    except ImportError as error:
        print(json.dumps({"absent": str(error)}), flush=True)
        os._exit(0)
    for told in epochs(run, int(count), int(size)):
        print(json.dumps(told), flush=True)
    os._exit(0)  # what threads of others do while Python ends is not measured


def measure(options, server, name, limit):
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        os.chmod(folder, 0o700)
        command = [options.python, __file__, "--client", name, server.url(), server.ca, folder, str(limit)]
        done = subprocess.run(
            common.pinned(1, [*command, str(options.objects), str(options.size)]),
            env=common.environment() | {"PYTHONPATH": options.package, "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        common.die(f"{name} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    more = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"cache_hits')]
    return told, more


def show(name, told, more):
    if "absent" in told[0]:
        print(f"{name:10} left out: {told[0]['absent']}")
        return
    for epoch, took in enumerate(told):
        counts = more[epoch] if more else {}
        hits = counts.get("cache_hits", 0) / took["objects"]
        print(
            f"{name:10} epoch {epoch + 1}: {took['objects'] / took['cpu']:8.0f} objects a CPU second, "
            f"{took['objects'] / took['seconds']:8.0f} a second"
            + (f", {hits:6.1%} hits, {counts['requests']} requests" if counts else "")
        )


def get_us(options, server, count, cached):
    """CPU time of a process that gets so many objects once each, and how many of them a cache has kept then."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        command = [options.program, "bench", "get", "gs://bench/part-", *server.options(), "--threads", "1", "--json"]
        command += ["--count", str(count), *(["--option", f"cache={folder}"] if cached else [])]
        common.touch_memory()
        process = subprocess.Popen(common.pinned(1, command), env=common.environment(), stdout=subprocess.PIPE)
        told = json.loads(process.stdout.read())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode or told["errors"]:
            common.die(f"{' '.join(command)} ended with {process.returncode}, {told['errors']} errors")
        kept = sum(entry.stat().st_size for entry in os.scandir(folder)) // options.size
    return (used.ru_utime + used.ru_stime) * 1e6, min(kept, count)


def spread(values):
    """Quartiles, in percent."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return f"{middle:+.1%} (quartiles {low:+.1%}, {high:+.1%})"


def misses(options, server):
    few, many = options.objects // 4, options.objects
    each, starts, kept = {False: [], True: []}, {False: [], True: []}, []
    for number in range(options.rounds):
        for cached in (False, True) if number % 2 else (True, False):
            (first, _), (second, has) = (get_us(options, server, count, cached) for count in (few, many))
            each[cached].append((second - first) / (many - few))
            starts[cached].append((first - few * each[cached][-1]) / 1000)
            kept += [has] if cached else []
    bare, with_cache = (statistics.median(each[cached]) for cached in (False, True))
    print(
        f"{options.size} bytes: {bare:.1f} us of CPU each without, {with_cache:.1f} with; "
        f"{spread([cached / bare - 1 for bare, cached in zip(each[False], each[True], strict=True)])}, {options.rounds} "
        f"rounds in turns; {statistics.median(kept) / many:.0%} kept; to start and end "
        f"{statistics.median(starts[False]):.1f} and {statistics.median(starts[True]):.1f} ms"
    )


def main():
    if "--client" in sys.argv:
        client_main(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=common.PROGRAM)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--package", default="")
    parser.add_argument("--objects", type=int, default=2000)
    parser.add_argument("--size", type=int, default=100 << 10)
    parser.add_argument("--folder", default=None, help="on the disk to measure; default: that of temporary files")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    with common.Emulator(options.program, "--synthetic", f"bench/part-:{options.objects}:{options.size}") as server:
        if options.misses:
            misses(options, server)
            return
        if options.half:
            show("ringest", *measure(options, server, "ringest", options.objects * options.size // 2))
            return
        for name in CLIENTS:
            show(name, *measure(options, server, name, 0))


if __name__ == "__main__":
    main()
