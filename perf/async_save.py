#!/usr/bin/env python3
"""For how long training stands still while a checkpoint is saved, and what its steps cost meanwhile.

Rows: ringest.checkpoint.save and AsyncSaver, the same with pace=None, dcp.save and dcp.async_save with one ringest.dcp.StorageWriter. The emulator
answers late, so that a save takes as long as over a network. For each row: the seconds for which the call holds
up training; the seconds of a step (matrix multiplications of --torch-threads) without a save, and while one is being
sent, at their median and 95th percentile; how many bytes the process has grown by after the first save, and after the last one. Over TLS;
`ringest emulate` on the first core, or with --server-nice on all of them at that priority, the client on all, or with
--pinned on the last one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import common

ROWS = ("ringest", "unheld", "dcp")
NAMES = {"ringest": "ringest.checkpoint", "unheld": "ringest.checkpoint, pace=None", "dcp": "ringest.dcp"}
TENSOR_BYTES = 16 << 20


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def timed(action):
    started = time.monotonic()
    result = action()
    return time.monotonic() - started, result


class Ways:
    """The calls of a row: save(step) holds up training; begin(step) does not, and gives what has result()."""

    def __init__(self, row, state, client):
        import torch.distributed.checkpoint as dcp

        from ringest import checkpoint
        from ringest.dcp import StorageWriter

        if row != "dcp":
            saver = checkpoint.AsyncSaver(client=client, pace="auto" if row == "ringest" else None)
            self.save = lambda step: checkpoint.save(state, f"gs://checkpoints/{step}.pt", client=client)
            self.begin = lambda step: saver.save(state, f"gs://checkpoints/{step}.pt")
        else:
            writer = StorageWriter("gs://checkpoints/dcp", client=client, cache_staged_state_dict=True)
            options = {"storage_writer": writer, "no_dist": True}
            self.save = lambda step: dcp.save(state, checkpoint_id=f"gs://checkpoints/{step}", **options)
            self.begin = lambda step: dcp.async_save(state, checkpoint_id=f"gs://checkpoints/{step}", **options)


def client(arguments):
    """One row, in the process that is measured."""
    import torch

    import ringest

    torch.set_num_threads(arguments.torch_threads)
    count = max(1, arguments.megabytes * 1_000_000 // TENSOR_BYTES)
    state = {f"layer.{i}.weight": torch.randn(TENSOR_BYTES // 4) for i in range(count)}
    left, right = torch.randn(2, 1024, 1024)
    product = torch.empty(1024, 1024)

    def step():
        for _ in range(2):
            torch.mm(left, right, out=product)

    with ringest.Client(arguments.endpoint, arguments.ca) as opened:
        ways = Ways(arguments.row, state, opened)
        synchronous, _ = timed(lambda: ways.save(0))
        alone = [timed(step)[0] for _ in range(arguments.steps)]
        begun = resident()
        blocked, during, lasted, grown = [], [], [], []
        for number in range(1, arguments.saves + 1):
            seconds, saving = timed(lambda number=number: ways.begin(number))
            blocked.append(seconds)
            started = time.monotonic()
            while not saving.done():
                during.append(timed(step)[0])
            saving.result()
            lasted.append(time.monotonic() - started)
            grown.append(resident() - begun)
            alone += [timed(step)[0] for _ in range(arguments.steps // 4)]
    told = {
        "bytes": count * TENSOR_BYTES,
        "synchronous": synchronous,
        "first": blocked[0],
        "blocked": statistics.median(blocked[1:] or blocked),
        "lasted": statistics.median(lasted),
        "alone": statistics.median(alone),
        "during": statistics.median(during),
        "alone_95": statistics.quantiles(alone, n=20)[-1],
        "during_95": statistics.quantiles(during, n=20)[-1],
        "grown": [grown[0], max(grown), grown[-1]],
    }
    print(json.dumps(told))


def row(arguments, name, emulator):
    command = [sys.executable, os.path.abspath(__file__), "--client", name]
    command += ["--endpoint", emulator.endpoint, "--ca", emulator.ca, "--megabytes", str(arguments.megabytes)]
    command += ["--saves", str(arguments.saves), "--steps", str(arguments.steps)]
    command += ["--torch-threads", str(arguments.torch_threads)]
    env = common.environment() | {"PYTHONPATH": arguments.package}
    core = max(os.sched_getaffinity(0)) if arguments.pinned else None
    done = subprocess.run(common.pinned(core, command), env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        common.die(f"{name}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=common.PROGRAM, help="ringest, which has the emulator")
    parser.add_argument("--package", default="", help="where the package ringest is, if not installed: BUILD/python")
    parser.add_argument("--row", choices=ROWS, action="append", help="only these rows")
    parser.add_argument("--megabytes", type=int, default=1000, help="of the state")
    parser.add_argument("--latency-ms", default="2000:2500", help="of each answer, as of ringest emulate")
    parser.add_argument("--server-nice", type=int, help="0 to 19: 19 takes the least from the client")
    parser.add_argument("--torch-threads", type=int, default=1)
    parser.add_argument("--saves", type=int, default=10)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pinned", action="store_true", help="the client has one core")
    parser.add_argument("--client", dest="client_row", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    parser.add_argument("--ca", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client_row:
        arguments.row = arguments.client_row
        client(arguments)
        return
    for name in arguments.row or ROWS:
        core = 0 if arguments.server_nice is None else None
        with common.Emulator(arguments.program, "--latency-ms", arguments.latency_ms, core=core) as emulator:
            for thread in os.listdir(f"/proc/{emulator.pid}/task"):
                os.setpriority(os.PRIO_PROCESS, int(thread), arguments.server_nice or 0)
            told = row(arguments, name, emulator)
        first, most, last = (each / told["bytes"] for each in told["grown"])
        print(f"{NAMES[name]}: {told['bytes'] / 1e9:.2f} GB")
        print(f"  save: {told['synchronous']:.2f} s")
        print(
            f"  asynchronous: {told['lasted']:.2f} s, blocked for {told['blocked']:.3f} s, the first for {told['first']:.3f} s"
        )
        for what, end in (("a step", ""), ("at the 95th percentile", "_95")):
            alone, during = told["alone" + end], told["during" + end]
            print(f"  {what}: {alone * 1e3:.2f} ms, {during * 1e3:.2f} ms while it is sent ({during / alone - 1:+.1%})")
        print(
            f"  grown, in states: {first:.2f} after the first, {most:.2f} at most, {last:.2f} after the last",
            flush=True,
        )


if __name__ == "__main__":
    main()
