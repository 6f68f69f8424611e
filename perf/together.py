#!/usr/bin/env python3
"""What it costs that ranks of one host load the same, each alone and together (process_group=), in turns.

Rows: ringest.checkpoint.load, ringest.safetensors.load_file, get_tensor of a file that safe_open has open, and dcp.load of
replicated tensors into memory that is there, over TLS, from `ringest emulate` on the same machine, by 2, 4 and 8 ranks. For
each: the seconds from when all may begin until all ranks have the tensors, the CPU seconds of all ranks, and the bytes that
they have received for each that is needed; medians of the rounds. For less than a MiB, --kilobytes.

--floor measures what it takes without any of that: see together_floor.py.

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
import together_floor

ROWS = ("checkpoint", "safetensors", "get_tensor", "dcp")
NAMES = {
    "checkpoint": "checkpoint.load",
    "safetensors": "safetensors.load_file",
    "get_tensor": "safe_open.get_tensor",
    "dcp": "dcp.load",
}
TENSOR_BYTES = 4 << 20
# Rounds that are not counted: ranks get to know each other.
WARM = 4
# How long before a round all ranks know when it begins.
AHEAD_S = 0.005
ARCHIVE, FILE, FOLDER = "gs://models/model.pt", "gs://models/model.safetensors", "gs://models/dcp"
# With more in it than its header's request brings along.
OPEN_FILE, REST_BYTES = "gs://models/open.safetensors", 4 << 20


def make(size):
    import torch

    torch.manual_seed(1)
    count = max(1, size // TENSOR_BYTES)
    return {f"layer.{i}.weight": torch.randn(size // count // 4) for i in range(count)}


def save(arguments, place, state):
    import torch
    import torch.distributed.checkpoint as dcp

    import ringest
    from ringest import checkpoint, safetensors
    from ringest.dcp import StorageWriter

    with ringest.Client(*place) as client:
        if "checkpoint" in arguments.row:
            checkpoint.save(state, ARCHIVE, client=client)
        if "safetensors" in arguments.row:
            safetensors.save_file(state, FILE, client=client)
        if "get_tensor" in arguments.row:
            rest = torch.zeros(REST_BYTES, dtype=torch.uint8)
            safetensors.save_file({**state, "rest": rest}, OPEN_FILE, client=client)
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


def begin_at(dist):
    """Waits for a moment that all ranks know; the clock is that of the machine."""
    import torch

    moment = torch.tensor(time.monotonic() + AHEAD_S, dtype=torch.float64)
    dist.all_reduce(moment, op=dist.ReduceOp.MAX)
    time.sleep(max(0.0, float(moment) - time.monotonic()))
    return float(moment)


class Round:
    """One way to load, again and again."""

    def __init__(self, row, client, group, target):
        from ringest import safetensors

        self.row, self.client, self.group, self.target = row, client, group, target
        self.file = None
        if row == "get_tensor":
            self.file = safetensors.safe_open(OPEN_FILE, client=client, process_group=group)

    def load(self):
        if self.file is not None:
            return [self.file.get_tensor(name) for name in self.file.offset_keys() if name != "rest"]
        return loads(self.row, self.client, self.group, self.target)

    def close(self):
        if self.file is not None:
            self.file.close()


def rank(arguments, place, row, number, count, folder, pipe):
    """Sends (seconds, CPU seconds, bytes received) of each load: alone and together, in turns."""
    import torch
    import torch.distributed as dist

    import ringest

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=number, world_size=count)
    target = make(arguments.size) if row == "dcp" else {}
    found = {"alone": [], "together": []}
    with ringest.Client(*place, hedging=False) as client:
        rounds = {"alone": Round(row, client, None, target), "together": Round(row, client, dist.group.WORLD, target)}
        for _ in range(arguments.repeats + WARM):
            for name, each in rounds.items():
                started = begin_at(dist)
                received, cpu = client.stats()["recv_bytes"], spent()
                state = each.load()
                seconds = time.monotonic() - started
                # So that the next one finds the same.
                del state
                found[name].append((seconds, spent() - cpu, client.stats()["recv_bytes"] - received))
        for each in rounds.values():
            each.close()
        dist.barrier()
    dist.destroy_process_group()
    pipe.send({name: each[WARM:] for name, each in found.items()})


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
    parser.add_argument("--kilobytes", type=int, help="the same, of one tensor")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--conn-mbps", help="as of ringest emulate")
    parser.add_argument("--latency-ms", help="as of ringest emulate")
    parser.add_argument("--floor", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.row = arguments.row or list(ROWS)
    arguments.size = arguments.kilobytes << 10 if arguments.kilobytes else arguments.megabytes << 20
    if arguments.package:
        sys.path.insert(0, arguments.package)
    # Once, for all ranks.
    import torch.distributed.checkpoint  # noqa: F401

    import ringest  # noqa: F401

    options = [f"--{name}={getattr(arguments, name.replace('-', '_'))}" for name in ("conn-mbps", "latency-ms")]
    options = [each for each in options if not each.endswith("=None")]
    if arguments.floor:
        together_floor.show(arguments, options)
        return
    fork = multiprocessing.get_context("fork")
    if not arguments.json:
        print(f"{'':24}ranks{'alone':>14}{'CPU':>11}{'bytes':>8}{'together':>14}{'CPU':>11}{'bytes':>8}")
    with common.Emulator(arguments.program, *options, core=None) as emulator:
        place = emulator.endpoint, emulator.ca
        # A child: this process forks, and must have no client.
        saving = fork.Process(target=save, args=(arguments, place, make(arguments.size)))
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
                    text += f"{seconds * 1000:11.2f} ms{cpu * 1000:8.2f} ms{received / arguments.size:8.3f}"
                print(text, flush=True)


if __name__ == "__main__":
    main()
