#!/usr/bin/env python3
"""Compares ways of receiving (floor_ways.c): the CPU time per GET of a client that is nothing but them.

    perf/receive.py [--rounds N] [--seconds S] [--ways poll,select-4] [--cells "4 KiB TLS"] [--json]

The emulator runs on one core, the client on the other. All ways take turns; the first ("poll", what ringest does) is the
one that the others are divided by, round by round. A cell of the table is the median of those ratios, and their quartiles.
A way that the kernel does not have is left out, with its reason on standard error."""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import urllib.parse

import common

SERVER_CORE, CLIENT_CORE = 0, 1
SIZES = {"4 KiB": 4096, "100 KiB": 102400, "3 MiB": 3 << 20}
CELLS = [f"{size} {way}" for way in ("TLS", "plain") for size in SIZES]
WAYS = [
    "poll",
    "epoll",
    "poll+ring",
    "poll+files",
    "poll+both",
    "linked",
    "linked-32",
    "select-1",
    "select-4",
    "select-32",
    "select-small",
    "select+both",
    "multishot",
    "bundle",
    "bundle-small",
]


def measure(emulator, cell, way, options):
    """Microseconds, or why there are none."""
    size, tls = cell.rsplit(" ", 1)
    path = f"/storage/v1/b/bench/o/{SIZES[size]}-00000000?alt=media"
    port = urllib.parse.urlsplit(emulator.endpoint).port
    command = [options.floor, "--json", "--way", way, "--seconds", str(options.seconds), "--crc"]
    command += ["--connections", str(options.connections)] + ["--tls"] * (tls == "TLS")
    done = subprocess.run(
        common.pinned(CLIENT_CORE, [*command, "127.0.0.1", str(port), path]),
        capture_output=True,
        text=True,
        timeout=60 + options.seconds,
    )
    if done.returncode == common.SKIPPED:
        return None, done.stderr.strip()
    if done.returncode:
        common.die(f"{cell}, {way}: {done.stderr.strip()}")
    return json.loads(done.stdout)["cpu_us_per_request"], None


def measure_all(emulators, options):
    """{cell: {way: [microseconds in each round]}}"""
    ways, results = list(options.ways), {cell: {way: [] for way in options.ways} for cell in options.cells}
    for number in range(options.rounds):
        turn = number % len(ways)
        for cell in options.cells:
            for way in ways[turn:] + ways[:turn]:
                if way not in results[cell]:
                    continue
                if not options.quick:
                    common.touch_memory()
                found, why = measure(emulators[cell.rsplit(" ", 1)[1]], cell, way, options)
                if why:
                    common.say(f"{cell}, {way}: {why}")
                    del results[cell][way]
                else:
                    results[cell][way].append(found)
        common.say(f"round {number + 1}/{options.rounds}")
    return results


def ratio(times, base):
    ratios = [time / other for time, other in zip(times, base)]
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})"


def show(results, options):
    base = options.ways[0]
    print(f"| way | {' | '.join(options.cells)} |\n|{'---|' * (len(options.cells) + 1)}")
    print(f"| {base}, µs | {' | '.join(f'{statistics.median(results[cell][base]):.1f}' for cell in options.cells)} |")
    for way in options.ways[1:]:
        cells = [ratio(each[way], each[base]) if way in each else "-" for each in results.values()]
        print(f"| {way} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--ways", type=lambda text: text.split(","), default=WAYS)
    parser.add_argument("--cells", type=lambda text: text.split(","), default=CELLS)
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--floor", default=f"{common.ROOT}/build/release/perf/floor", metavar="PROGRAM")
    parser.add_argument("--ringest", default=common.PROGRAM, metavar="PROGRAM")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.connections = 1, 0.05, 8
        options.cells = ["100 KiB TLS", "4 KiB plain"]
    synthetic = [word for size in SIZES.values() for word in ("--synthetic", f"bench/{size}-:1:{size}")]
    with contextlib.ExitStack() as stack:
        emulators = {
            name: stack.enter_context(common.Emulator(options.ringest, *synthetic, *given, core=SERVER_CORE))
            for name, given in (("TLS", ["--threads", "1"]), ("plain", ["--threads", "1", "--plain"]))
        }
        results = measure_all(emulators, options)
    if options.json:
        print(json.dumps({"machine": common.machine(), "cpu_us": results}))
    else:
        show(results, options)


if __name__ == "__main__":
    main()
