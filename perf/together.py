#!/usr/bin/env python3
"""What it costs that ranks of one host load the same, each alone and together (process_group=), in turns.

Rows: ringest.checkpoint.load, ringest.safetensors.load_file, and dcp.load of replicated tensors into memory that is there,
over TLS, from `ringest emulate` on the same machine, by 2, 4 and 8 ranks. For each: the seconds until all ranks have the
tensors, the CPU seconds of all ranks, and the bytes that they have received for each that is needed; medians of the rounds.

--conn-mbps and --latency-ms are those of the emulator, for a service that is far away."""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time

import common

ROWS = ("checkpoint", "safetensors", "dcp")
NAMES = {"checkpoint": "checkpoint.load", "safetensors": "safetensors.load_file", "dcp": "dcp.load"}
TENSOR_BYTES = 4 << 20
ARCHIVE, FILE, FOLDER = "gs://models/model.pt", "gs://models/model.safetensors", "gs://models/dcp"


def make(megabytes):
    import torch

    torch.manual_seed(1)
    count = max(1, (megabytes << 20) // TENSOR_BYTES)
    return {f"layer.{i}.weight": torch.randn(TENSOR_BYTES // 4) for i in range(count)}


def save(arguments, place, state):
    import torch.distributed.checkpoint as dcp

    import ringest
    from ringest import checkpoint, safetensors
    from ringest.dcp import StorageWriter

    with ringest.Client(*place) as client:
        if "checkpoint" in arguments.row:
            checkpoint.save(state, ARCHIVE, client=client)
        if "safetensors" in arguments.row:
            safetensors.save_file(state, FILE, client=client)
        if "dcp" in arguments.row:
            dcp.save(state, storage_writer=StorageWriter(FOLDER, client=client), no_dist=True)


def loads(row, client, group, target):
    """What loads with that group."""
    import torch.distributed.checkpoint as dcp

    from ringest import checkpoint, safetensors
    from ringest.dcp import StorageReader

    if row == "checkpoint":
        return checkpoint.load(ARCHIVE, client=client, process_group=group)
    if row == "safetensors":
        return safetensors.load_file(FILE, client=client, process_group=group)
    dcp.load(target, storage_reader=StorageReader(FOLDER, client=client, process_group=group))
    return target


def spent():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def rank(arguments, place, row, number, count, folder, pipe):
    """Sends (seconds, CPU seconds, bytes received) of each load: alone and together, in turns."""
    import torch
    import torch.distributed as dist

    import ringest

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=number, world_size=count)
    target = make(arguments.megabytes) if row == "dcp" else {}
    found = {"alone": [], "together": []}
    with ringest.Client(*place, hedging=False) as client:
        for _ in range(arguments.repeats + 1):
            for name, group in (("alone", None), ("together", dist.group.WORLD)):
                dist.barrier()
                received, cpu, started = client.stats()["recv_bytes"], spent(), time.monotonic()
                state = loads(row, client, group, target)
                seconds = time.monotonic() - started
                # So that the next one finds the same.
                del state
                found[name].append((seconds, spent() - cpu, client.stats()["recv_bytes"] - received))
        dist.barrier()
    dist.destroy_process_group()
    # The first one opens connections.
    pipe.send({name: each[1:] for name, each in found.items()})


def measured(arguments, place, row, count):
    """Of each way: [seconds, CPU seconds, bytes received], at the median."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pipes = [fork.Pipe(duplex=False) for _ in range(count)]
        ranks = [
            fork.Process(target=rank, args=(arguments, place, row, number, count, folder, pipes[number][1]))
            for number in range(count)
        ]
        for each in ranks:
            each.start()
        for _, end in pipes:
            end.close()
        told = [end.recv() for end, _ in pipes]
        for each in ranks:
            each.join()
    found = {}
    for name in told[0]:
        # For each repeat, the slowest rank's time, and the sum of the rest.
        repeats = [
            (max(s for s, _, _ in each), sum(c for _, c, _ in each), sum(b for _, _, b in each))
            for each in zip(*(one[name] for one in told))
        ]
        found[name] = [statistics.median(each) for each in zip(*repeats)]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=common.PROGRAM, help="ringest, which has the emulator")
    parser.add_argument("--package", default="", help="where the package ringest is, if not installed: BUILD/python")
    parser.add_argument("--row", choices=ROWS, action="append", help="only these rows")
    parser.add_argument("--ranks", type=int, action="append", help="only so many; again for more")
    parser.add_argument("--megabytes", type=int, default=320, help="of the tensors")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--conn-mbps", help="as of ringest emulate")
    parser.add_argument("--latency-ms", help="as of ringest emulate")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.row = arguments.row or list(ROWS)
    if arguments.package:
        sys.path.insert(0, arguments.package)
    # Once, for all ranks.
    import torch.distributed.checkpoint  # noqa: F401

    import ringest  # noqa: F401

    options = [f"--{name}={getattr(arguments, name.replace('-', '_'))}" for name in ("conn-mbps", "latency-ms")]
    options = [each for each in options if not each.endswith("=None")]
    fork = multiprocessing.get_context("fork")
    if not arguments.json:
        print(f"{'':24}ranks{'alone':>14}{'CPU':>11}{'bytes':>8}{'together':>14}{'CPU':>11}{'bytes':>8}")
    with common.Emulator(arguments.program, *options, core=None) as emulator:
        place = emulator.endpoint, emulator.ca
        # A child: this process forks, and must have no client.
        saving = fork.Process(target=save, args=(arguments, place, make(arguments.megabytes)))
        saving.start()
        saving.join()
        if saving.exitcode:
            common.die("nothing could be saved")
        for row in arguments.row:
            for count in arguments.ranks or (2, 4, 8):
                found = measured(arguments, place, row, count)
                if arguments.json:
                    print(json.dumps({"row": row, "ranks": count, **found}), flush=True)
                    continue
                text = f"{NAMES[row]:24}{count:5}"
                for seconds, cpu, received in found.values():
                    text += f"{seconds:12.2f} s{cpu:9.2f} s{received / (arguments.megabytes << 20):8.3f}"
                print(text, flush=True)


if __name__ == "__main__":
    main()
