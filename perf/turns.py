#!/usr/bin/env python3
"""Is one backend dearer than the other? CPU time of the client for each request, io_uring beside epoll.

    turns.py [--cells put:100KiB:tls:64,...] [--variants uring,epoll] [--rounds N] [--slice-ms MS] [--calls]

A cell is a verb, a size, TLS or plain, and how many requests are in flight. For each variant one process (turns.c) keeps its
connections open, and they take turns: in a round each works for a slice of time while the others sleep, so that what else the
machine does meets all of them alike. The order is by chance: who works twice in a row has its caches still. A variant is a backend, or PROGRAM:BACKEND for a build of your own. Printed are the medians
of the ratios to the last variant in the same round, with their quartiles; passes of the loop and switches of threads for each request.

--calls has perf count system calls of each, and what the ring does."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import tempfile

import common

CLIENT_CORE = 1
SIZES = {"0": 0, "4KiB": 4 << 10, "100KiB": 100 << 10, "3MiB": 3 << 20, "64MiB": 64 << 20}
CELLS = [
    *(f"put:{size}:tls:{depth}" for size in ("0", "4KiB", "100KiB", "3MiB") for depth in (64, 16, 1)),
    *(f"get:{size}:tls:{depth}" for size in ("4KiB", "100KiB", "3MiB") for depth in (64, 16, 1)),
    *(f"put:{size}:plain:64" for size in ("4KiB", "100KiB", "3MiB")),
    *(f"get:{size}:plain:64" for size in ("4KiB", "100KiB", "3MiB")),
    *("put:64MiB:tls:4", "get:64MiB:tls:4"),
]
# Bodies in flight take the server's memory, too.
WARM_UP_SLICES = 2
EVENTS = {
    "enter": "syscalls:sys_enter_io_uring_enter",
    "epoll_wait": "syscalls:sys_enter_epoll_wait",
    "send": "syscalls:sys_enter_sendto",
    "recv": "syscalls:sys_enter_recvfrom",
    "sleep": "syscalls:sys_enter_clock_nanosleep",
    "futex": "syscalls:sys_enter_futex",
    "write": "syscalls:sys_enter_write",
    "entries": "io_uring:io_uring_submit_req",
    "completions": "io_uring:io_uring_complete",
}


class Load:
    """A process of turns.c while the `with` lasts."""

    def __init__(self, variant, cell, server, options):
        verb, size, _, depth = cell
        program, _, backend = variant.rpartition(":")
        name = {"get": ("bench", f"{size}/00000000"), "put": ("written", "-")}[verb]
        command = [program or options.program, server.endpoint, server.ca or "", verb, *name, str(SIZES[size]), depth]
        self.command = ["setpriv", "--pdeathsig", "TERM", *common.pinned(CLIENT_CORE, command)]
        self.environment = common.environment(backend)
        self.told = []

    def __enter__(self):
        self.process = subprocess.Popen(
            self.command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        common.end(self.process)
        self.process.stdout.close()

    def turn(self, ms):
        self.process.stdin.write(f"{ms}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            common.die(f"{' '.join(self.command)} has ended")
        return dict(zip(("requests", "wall_ns", "cpu_ns", "passes", "switches"), map(int, line.split())))

    def measure(self, ms):
        self.told.append(self.turn(ms))

    def us(self):
        return [each["cpu_ns"] / 1e3 / each["requests"] for each in self.told]

    def per_request(self, what):
        return sum(each[what] for each in self.told) / sum(each["requests"] for each in self.told)


def counted_calls(load, ms):
    """How often each event came in a turn, for each request."""
    to_perf, from_us = os.pipe()
    to_us, from_perf = os.pipe()
    with tempfile.NamedTemporaryFile(prefix="ringest-turns-") as file:
        command = ["perf", "stat", "-x,", "-o", file.name, "-e", ",".join(EVENTS.values()), "-p", str(load.process.pid)]
        command += ["--delay", "-1", "--control", f"fd:{to_perf},{from_perf}"]
        perf = subprocess.Popen(command, pass_fds=(to_perf, from_perf), stderr=subprocess.DEVNULL)
        os.write(from_us, b"enable\n")
        os.read(to_us, 16)
        told = load.turn(ms)
        os.write(from_us, b"disable\n")
        os.read(to_us, 16)
        perf.send_signal(signal.SIGINT)
        perf.wait()
        for each in (to_perf, from_us, to_us, from_perf):
            os.close(each)
        with open(file.name, encoding="ascii") as lines:
            counts = {words[2]: words[0] for words in (line.strip().split(",") for line in lines) if len(words) > 3}
    return {name: float(counts[event]) / told["requests"] for name, event in EVENTS.items()}


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return f"{middle:.3f} ({low:.2f}-{high:.2f})"


def report(cell, loads):
    last = loads[-1].us()
    for variant, load in zip(options_variants, loads):
        us = load.us()
        print(
            f"{':'.join(cell)} {variant}: {statistics.median(us):.1f} us, "
            f"x{quartiles([own / other for own, other in zip(us, last)])}, {load.per_request('passes'):.2f} passes, "
            f"{load.per_request('switches'):.2f} switches, {1e9 / load.per_request('wall_ns'):,.0f}/s",
            flush=True,
        )


options_variants: list[str] = []


def measure(cell, options):
    plain = ["--plain"] if cell[2] == "plain" else []
    served = ["--synthetic", f"bench/{cell[1]}/:1:{cell[1]}", "--bucket", "written"]
    with contextlib.ExitStack() as stack:
        common.touch_memory()
        server = stack.enter_context(common.Emulator(options.ringest, "--threads", "1", *plain, *served))
        loads = [stack.enter_context(Load(variant, cell, server, options)) for variant in options.variants]
        for load in loads * WARM_UP_SLICES:
            load.turn(options.slice_ms)
        for _ in range(options.rounds):
            for load in random.sample(loads, len(loads)):
                load.measure(options.slice_ms)
        report(cell, loads)
        if options.calls:
            for variant, load in zip(options.variants, loads):
                calls = counted_calls(load, 10 * options.slice_ms)
                print(f"  {variant}: " + ", ".join(f"{name} {count:.2f}" for name, count in calls.items() if count))


def cell_of(text):
    cell = text.split(":")
    known = ("get", "put"), SIZES, ("tls", "plain")
    if len(cell) != 4 or any(part not in each for part, each in zip(cell, known)) or not cell[3].isdecimal():
        common.die(f"cell {text!r} is not get|put:{'|'.join(SIZES)}:tls|plain:IN_FLIGHT")
    return cell


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--ringest", default=common.PROGRAM, metavar="PROGRAM")
    parser.add_argument("--program", default=f"{common.ROOT}/build/release/perf/turns", metavar="PROGRAM")
    for name, known in (("cells", CELLS), ("variants", ("uring", "epoll"))):
        parser.add_argument(f"--{name}", type=lambda text: text.split(","), default=list(known), help=",".join(known))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--slice-ms", type=int, default=40, metavar="MS")
    parser.add_argument("--calls", action="store_true", help="count system calls by perf as well")
    parser.add_argument("--quick", action="store_true", help="one short cell")
    options = parser.parse_args()
    if options.quick:
        options.cells, options.rounds, options.slice_ms = CELLS[:1], 1, 10
    if options.calls:
        common.need("perf")
    options_variants.extend(options.variants)
    for cell in [cell_of(each) for each in options.cells]:
        measure(cell, options)


if __name__ == "__main__":
    main()
