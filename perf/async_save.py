#!/usr/bin/env python3
"""For how long training stands still while a checkpoint is saved, and what its steps cost meanwhile.

Rows: ringest.checkpoint.save and AsyncSaver, dcp.save and dcp.async_save with one ringest.dcp.StorageWriter. The emulator
answers late, so that a save takes as long as over a network. For each row: the seconds for which the call holds
up training; the seconds of a step (matrix multiplications of one thread) without a save, and while one is being
sent, at their median; how many bytes the process has grown by after the first save, and after the last one. Over TLS;
`ringest emulate` on the first core, the client on all, or with --pinned on the last one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import common

ROWS = ("ringest", "dcp")
NAMES = {"ringest": "ringest.checkpoint", "dcp": "ringest.dcp"}
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

        if row == "ringest":
            saver = checkpoint.AsyncSaver(client=client)
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

    torch.set_num_threads(1)
    count = max(1, arguments.megabytes * 1_000_000 // TENSOR_BYTES)
    state = {f"layer.{i}.weight": torch.randn(TENSOR_BYTES // 4) for i in range(count)}
    left, right = torch.randn(2, 512, 512)

    def step():
        for _ in range(8):
            left @ right

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
        "grown": [grown[0], max(grown), grown[-1]],
    }
    print(json.dumps(told))


def row(arguments, name, emulator):
    command = [sys.executable, os.path.abspath(__file__), "--client", name]
    command += ["--endpoint", emulator.endpoint, "--ca", emulator.ca, "--megabytes", str(arguments.megabytes)]
    command += ["--saves", str(arguments.saves), "--steps", str(arguments.steps)]
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
        with common.Emulator(arguments.program, "--latency-ms", arguments.latency_ms) as emulator:
            told = row(arguments, name, emulator)
        first, most, last = (each / told["bytes"] for each in told["grown"])
        print(f"{NAMES[name]}: {told['bytes'] / 1e9:.2f} GB")
        print(f"  save: {told['synchronous']:.2f} s")
        print(
            f"  asynchronous: {told['lasted']:.2f} s, blocked for {told['blocked']:.3f} s, the first for {told['first']:.3f} s"
        )
        slower = told["during"] / told["alone"] - 1
        print(f"  a step: {told['alone'] * 1e3:.2f} ms, {told['during'] * 1e3:.2f} ms while it is sent ({slower:+.1%})")
        print(
            f"  grown, in states: {first:.2f} after the first, {most:.2f} at most, {last:.2f} after the last",
            flush=True,
        )


if __name__ == "__main__":
    main()
