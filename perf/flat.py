#!/usr/bin/env python3
"""Is the cost of a request flat? CPU time of the client for each, by how many connections take part, how many requests are handed
over at once, and how large objects are; over TLS, the emulator on one core and the client on the other.

    flat.py [--only connections|queued|sizes] [--rounds N] [--seconds S]

- connections: `ringest bench get` of 4 KiB on 1 to 20,000 connections, each with one request in flight, when all are open; or on
  as many as the limit of open files allows, which client and emulator have one each of. Handshakes are not in it. A load on 64
  beside idle ones is idle_connections.py's.
- queued: one call of get_many for 1 to 1,000,000 names of objects of 4 KiB, on 64 connections.
- sizes: objects of 0 B to 5 GiB, each whole in memory. What the memory has no room for is left out, and said.

A figure is the median of the rounds, which go through all of a table in turns."""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys

import common
import idle_connections

CONNECTIONS = (1, 8, 64, 512, 4096, 16384, 20000)
QUEUED = (1, 10, 100, 1000, 10_000, 100_000, 1_000_000)
SIZES = ("0", "1", "1KiB", "4KiB", "64KiB", "256KiB", "1MiB", "16MiB", "256MiB", "1GiB", "5GiB")
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# In flight at most: so many requests, and so many bytes of bodies.
IN_FLIGHT, BYTES_IN_FLIGHT = 64, 256 << 20
# Beside a body.
SPARE_BYTES = 2 << 30
# Until all connections are open, on a slow machine; and as many requests a second, so that each connection has had some.
HANDSHAKES_PER_S = 700
REQUESTS_PER_S = 8000
# A call for few names is made again, until this many have come.
AT_LEAST = 5000
CLIENT_CORE = 1


def bytes_of(size):
    number = size.rstrip("BKMGi")
    return int(number) * UNITS[size[len(number) :]]


def connections(server, options, count):
    """None: there were not so many open in time."""
    told = common.bench(
        options.ringest, "gs://bench/4KiB/", *server.options(), "--seconds",
        str(max(options.seconds, count / REQUESTS_PER_S)), "--concurrency", str(count), "--option", "hedging=false",
        "--option", "adapting=false", "--warm-up", str(options.seconds + count / HANDSHAKES_PER_S),
    )  # fmt: skip
    if told["connections_opened"] or told["connections"] < count:
        common.say(
            f"{count} connections: {told['connections_opened']} were opened too late, {told['connections']} were open"
        )
        return None
    return told["cpu_us_per_request"]


def child(arguments):
    """One call, or several in turn, of get_many for `count` names, after a first one. Prints µs of CPU time for each."""
    import ringest

    endpoint, ca, count = arguments[0], arguments[1], int(arguments[2])

    def cpu_s():
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    uris = ["gs://bench/4KiB/00000000"] * count
    with ringest.Client(endpoint, ca, threads=1, connections=IN_FLIGHT) as client:
        for _ in client.get_many(uris[:1] * 1000):
            pass
        began, came = cpu_s(), 0
        while came < AT_LEAST:
            for items in client.get_many(uris):
                came += sum(item.error is None for item in items)
        print(json.dumps({"us": (cpu_s() - began) * 1e6 / came}))


def queued(server, options, count):
    os.environ["PYTHONPATH"] = options.package
    command = [options.python, "-B", os.path.abspath(__file__), "--child", server.url(), server.ca, str(count)]
    return json.loads(common.run(common.pinned(CLIENT_CORE, command)))["us"]


def sizes(server, options, size):
    wanted = bytes_of(size)
    with open("/proc/meminfo", encoding="ascii") as file:
        free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    if wanted + SPARE_BYTES > free:
        common.say(f"{size}: left out, {free >> 20} MiB of memory are free")
        return None
    in_flight = max(1, min(IN_FLIGHT, BYTES_IN_FLIGHT // max(1, wanted)))
    told = common.bench(
        options.ringest, f"gs://bench/{size}/", *server.options(), "--concurrency", str(in_flight), "--memory",
        str(max(1 << 30, wanted + (256 << 20))), "--seconds", str(options.seconds), "--option", "hedging=false",
    )  # fmt: skip
    return told["cpu_us_per_request"]


TABLES = {
    "connections": (connections, CONNECTIONS, "connections"),
    "queued": (queued, QUEUED, "names in one call"),
    "sizes": (sizes, SIZES, "size"),
}


def raised_file_limit():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    enough = CONNECTIONS[-1] + idle_connections.SPARE_FILES
    if hard == resource.RLIM_INFINITY or hard > enough:
        hard = enough
    idle_connections.raise_file_limit(hard)
    return hard


def measure(name, server, options):
    call, steps, head = TABLES[name]
    if options.quick:
        steps = steps[:2]
    found = {step: [] for step in steps}
    for number in range(options.rounds):
        for step in steps if number % 2 == 0 else reversed(steps):
            us = call(server, options, step)
            if us is not None:
                found[step].append(us)
                common.say(f"round {number + 1}/{options.rounds}, {head} {step}: {us:,.1f} us")
    print(f"| {head} | µs | s/GB |\n|---|---|---|")
    for step, us in found.items():
        if us:
            size = bytes_of(step) if name == "sizes" else 4096
            per_gb = f"{statistics.median(us) * 1e3 / size:.2f}" if size >= 1 << 20 else ""
            print(f"| {step if isinstance(step, str) else f'{step:,}'} | {statistics.median(us):,.1f} | {per_gb} |")


def main():
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--ringest", default=common.PROGRAM, metavar="PROGRAM")
    parser.add_argument("--package", default=f"{common.ROOT}/build/root/lib/python", help="the folder that has ringest")
    parser.add_argument("--python", default=sys.executable, metavar="PROGRAM")
    parser.add_argument("--only", choices=TABLES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--quick", action="store_true", help="one short round of little")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.05
        options.only = options.only or "connections"
    allowed = raised_file_limit() - idle_connections.SPARE_FILES
    if allowed < CONNECTIONS[-1]:
        common.say(f"{allowed:,} connections instead of {CONNECTIONS[-1]:,}: no more files are allowed (ulimit -Hn)")
        TABLES["connections"] = (
            connections,
            (*(each for each in CONNECTIONS if each < allowed), allowed),
            "connections",
        )
    served = [word for size in SIZES for word in ("--synthetic", f"bench/{size}/:1:{size}")]
    with common.Emulator(options.ringest, "--threads", "1", *served) as server:
        for name in [options.only] if options.only else TABLES:
            measure(name, server, options)


if __name__ == "__main__":
    main()
