#!/usr/bin/env python3
"""For how long training stands still while a checkpoint is saved, and what its steps cost meanwhile.

Rows: ringest.checkpoint.save and AsyncSaver, the same with pace=None, dcp.save and dcp.async_save with one ringest.dcp.StorageWriter;
parts, which is held back between parts and not within one, at twice the slowest rate; and floor (floor_pace.c), which is no save: a
process that takes a CPU as long as the row "ringest" of the same round did, in pieces of the same size and at its slowest rate, and
does nothing else. So what a step loses beside it, it loses to any work of that kind.

A step is one of a small model: forward, backward, SGD; or, with --step product, two products of matrices. Rounds take the rows in
turns, each in a process of its own. The emulator may answer late, so that a save takes as long as over a network. For each row,
medians of the rounds: the seconds for which the call holds up training; how much longer a step takes while a save is being sent, at
its median, mean and 95th percentile, beside those just before that save; the same by CPU time alone: what the other threads of the
process (or the floor's process) took while the step ran, as if nobody else had used its CPU; how many bytes the process has grown
by after the first save, and after the last one. Over TLS; `ringest emulate` on the first core, or with --server-nice on all of them
at that priority, the client on all, or with --pinned on the last one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import common

ROWS = ("ringest", "unheld", "dcp", "parts", "floor")
NAMES = {
    "ringest": "ringest.checkpoint",
    "unheld": "ringest.checkpoint, pace=None",
    "dcp": "ringest.dcp",
    "parts": "ringest.checkpoint, a part at a time",
    "floor": "floor",
}
TENSOR_BYTES = 16 << 20
MOMENTS = {"median": statistics.median, "mean": statistics.fmean, "95th percentile": lambda all: quantile(all, 0.95)}
# Of ringest._pace and http/send_pace.h.
SLOWEST, PIECE = 16 << 20, 240 << 10
WARM_UP_STEPS = 30


def quantile(values, share):
    return sorted(values)[int(len(values) * share)]


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def timed(action):
    started = time.monotonic()
    result = action()
    return time.monotonic() - started, result


def scheduled(pid):
    """CPU seconds of a process with one thread, which runs."""
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0]) / 1e9


class Burning:
    """In place of a save: the floor's process."""

    def __init__(self, process):
        self._process = process
        process.stdin.write(b"\n")

    def done(self):
        return self._process.stdout.read(1) is not None

    def result(self):
        pass


class Ways:
    """The calls of a row: save(step) holds up training; begin(step) does not, and gives what has result()."""

    def __init__(self, arguments, state):
        self.save = lambda step: None
        self.beside = lambda: 0.0  # CPU seconds of another process
        if arguments.row == "floor":
            megabytes = len(state) * TENSOR_BYTES // 1_000_000
            command = [arguments.floor, str(megabytes), str(SLOWEST), str(PIECE >> 10), str(arguments.floor_cost)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
            os.set_blocking(process.stdout.fileno(), False)
            self.begin = lambda step: Burning(process)
            self.beside = lambda: scheduled(process.pid)
            return
        import torch.distributed.checkpoint as dcp

        import ringest
        from ringest import _pace, checkpoint
        from ringest.dcp import StorageWriter

        client = ringest.Client(arguments.endpoint, arguments.ca)
        if arguments.row == "parts":
            _pace.Pace._tell = lambda pace: None
        if arguments.row != "dcp":
            pace = {"ringest": "auto", "unheld": None, "parts": 2 * SLOWEST}[arguments.row]
            saver = checkpoint.AsyncSaver(client=client, pace=pace)
            self.save = lambda step: checkpoint.save(state, f"gs://checkpoints/{step}.pt", client=client)
            self.begin = lambda step: saver.save(state, f"gs://checkpoints/{step}.pt")
        else:
            writer = StorageWriter("gs://checkpoints/dcp", client=client, cache_staged_state_dict=True)
            options = {"storage_writer": writer, "no_dist": True}
            self.save = lambda step: dcp.save(state, checkpoint_id=f"gs://checkpoints/{step}", **options)
            self.begin = lambda step: dcp.async_save(state, checkpoint_id=f"gs://checkpoints/{step}", **options)


def step_of(kind):
    import torch

    if kind == "product":
        left, right = torch.randn(2, 1024, 1024)
        product = torch.empty(1024, 1024)
        return lambda: [torch.mm(left, right, out=product) for _ in range(2)]
    from torch import nn

    model = nn.Sequential(
        nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 256)
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loss = nn.CrossEntropyLoss()
    batch, labels = torch.randn(64, 1024), torch.randint(0, 256, (64,))

    def step():
        optimizer.zero_grad()
        loss(model(batch), labels).backward()
        optimizer.step()

    return step


class Steps:
    """How long each step took, and the share that other threads had of its CPU beside it. Where other processes have run, too, it
    took longer, and other threads had longer than they needed; so their time is cut by as much. With more than one thread of torch's,
    those are others, too."""

    def __init__(self, step, beside):
        self._step = step
        self._beside = beside
        self.took, self.shares, self.others = [], [], 0.0

    def _now(self):
        own = time.thread_time()
        return time.monotonic(), own, time.process_time() - own + self._beside()

    def go(self):
        before = self._now()
        self._step()
        took, own, others = (now - then for now, then in zip(self._now(), before))
        self.took.append(took)
        self.shares.append(others / own * min(1.0, (own + others) / took))
        self.others += others


def client(arguments):
    """One row, in the process that is measured."""
    import torch

    torch.set_num_threads(arguments.torch_threads)
    torch.manual_seed(1)
    count = max(1, arguments.megabytes * 1_000_000 // TENSOR_BYTES)
    state = {f"layer.{i}.weight": torch.randn(TENSOR_BYTES // 4) for i in range(count)}
    step = step_of(arguments.step)
    ways = Ways(arguments, state)
    alone, during = Steps(step, ways.beside), Steps(step, ways.beside)
    synchronous, _ = timed(lambda: ways.save(0))
    for _ in range(WARM_UP_STEPS):
        step()
    begun = resident()
    blocked, lasted, grown = [], [], []
    for number in range(1, arguments.saves + 1):
        for _ in range(arguments.steps):
            alone.go()
        seconds, saving = timed(lambda number=number: ways.begin(number))
        blocked.append(seconds)
        started = time.monotonic()
        while not saving.done():
            during.go()
        saving.result()
        lasted.append(time.monotonic() - started)
        grown.append(resident() - begun)
    told = {
        "bytes": count * TENSOR_BYTES,
        "synchronous": synchronous,
        "first": blocked[0],
        "blocked": statistics.median(blocked[1:] or blocked),
        "lasted": statistics.median(lasted),
        "step": statistics.median(alone.took),
        "cost": during.others / (count * TENSOR_BYTES * arguments.saves),
        "grown": [grown[0], max(grown), grown[-1]],
    }
    for name, moment in MOMENTS.items():
        told[name] = moment(during.took) / moment(alone.took) - 1
        told[f"{name}, CPU"] = moment(during.shares)
    print(json.dumps(told), flush=True)
    os._exit(0)  # what is still open ends with it


def row(arguments, name, emulator, cost):
    command = [sys.executable, os.path.abspath(__file__), "--client", name]
    command += ["--endpoint", emulator.endpoint, "--ca", emulator.ca, "--megabytes", str(arguments.megabytes)]
    command += ["--saves", str(arguments.saves), "--steps", str(arguments.steps), "--step", arguments.step]
    command += ["--torch-threads", str(arguments.torch_threads), "--floor", arguments.floor]
    command += ["--floor-cost", f"{cost * 1e12:.0f}"]
    env = common.environment() | {"PYTHONPATH": arguments.package}
    core = max(os.sched_getaffinity(0)) if arguments.pinned else None
    done = subprocess.run(common.pinned(core, command), env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        common.die(f"{name}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def rounds(arguments):
    """What each row told in each round."""
    told = {name: [] for name in arguments.rows or ROWS[:3]}
    for _ in range(arguments.rounds):
        for name, results in told.items():
            core = 0 if arguments.server_nice is None else None
            with common.Emulator(arguments.program, "--latency-ms", arguments.latency_ms, core=core) as emulator:
                for thread in os.listdir(f"/proc/{emulator.pid}/task"):
                    os.setpriority(os.PRIO_PROCESS, int(thread), arguments.server_nice or 0)
                cost = told["ringest"][-1]["cost"] if name == "floor" else 0
                results.append(row(arguments, name, emulator, cost))
    return told


def report(name, results):
    def median(key):
        return statistics.median(each[key] for each in results)

    print(f"{NAMES[name]}: {results[0]['bytes'] / 1e9:.2f} GB, a step of {median('step') * 1e3:.1f} ms")
    if name != "floor":
        print(f"  save: {median('synchronous'):.2f} s")
        print(f"  asynchronous: blocked for {median('blocked'):.3f} s, the first for {median('first'):.3f} s")
    print(f"  sent in {median('lasted'):.2f} s, {median('cost') * 1e9:.2f} s of CPU time for a GB")
    for moment in MOMENTS:
        for by in (moment, f"{moment}, CPU"):
            values = sorted(each[by] for each in results)
            print(f"  a step, {by}: {median(by):+.2%} ({', '.join(f'{value:+.2%}' for value in values)})")
    if name != "floor":
        grown = ([size / each["bytes"] for size in each["grown"]] for each in results)
        first, most, last = (statistics.median(sizes) for sizes in zip(*grown))
        print(
            f"  grown, in states: {first:.2f} after the first, {most:.2f} at most, {last:.2f} after the last",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=common.PROGRAM, help="ringest, which has the emulator")
    parser.add_argument("--package", default="", help="where the package ringest is, if not installed: BUILD/python")
    parser.add_argument("--floor", default=f"{common.ROOT}/build/release/perf/floor_pace", help="that program")
    parser.add_argument("--row", choices=ROWS, action="append", dest="rows", help="only these rows, in this order")
    parser.add_argument("--megabytes", type=int, default=1000, help="of the state")
    parser.add_argument("--latency-ms", default="0", help="of each answer, as of ringest emulate: 2000:2500")
    parser.add_argument("--server-nice", type=int, help="0 to 19: 19 takes the least from the client")
    parser.add_argument("--step", choices=("model", "product"), default="model")
    parser.add_argument("--torch-threads", type=int, default=1)
    parser.add_argument("--saves", type=int, default=2, help="in each round")
    parser.add_argument("--steps", type=int, default=200, help="before each save")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pinned", action="store_true", help="the client has one core")
    parser.add_argument("--client", dest="row", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    parser.add_argument("--ca", help=argparse.SUPPRESS)
    parser.add_argument("--floor-cost", type=int, help=argparse.SUPPRESS)  # µs of CPU time for a MB
    arguments = parser.parse_args()
    if arguments.row:
        client(arguments)
        return
    if "floor" in (arguments.rows or ()) and arguments.rows.index("floor") < (arguments.rows + ["ringest"]).index(
        "ringest"
    ):
        parser.error("--row floor needs --row ringest before it, which tells it what a byte costs")
    for name, results in rounds(arguments).items():
        report(name, results)


if __name__ == "__main__":
    main()
