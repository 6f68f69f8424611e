#!/usr/bin/env python3
"""Where the client's CPU time goes: a budget for each kind of request, of parts that are sampled and a whole that is counted.

    budget.py [--callers c,get_many,loader] [--kinds tls,plain] [--sizes 4KiB,...] [--rounds N] [--write]

The emulator runs on one core, the client on the other. A cell is a caller (`ringest bench`, get_many of the Python package, its
dataset in a DataLoader), a verb, a size, TLS or plain. Each is measured with both backends in turns, round after round:

- the whole is what getrusage says of the process, without its start, by the requests (of a list: by its pages);
- the parts are samples of `perf record -e cpu-clock` in the same time: a timer of the kernel that needs no counters of the
  processor, so that it works in virtual machines. A sample counts for the layer that its innermost function belongs to, and in
  the kernel for the system call that it is in;
- one round more is run without perf: how much dearer sampling made it is said.

What samples leave unseen (where interrupts are off, the next function that allows them gets the sample) moves time between
functions of the kernel, not between the kernel and the program. Figures of cells that are not measured again stay in
results/budget.json; --write makes the tables of docs/PERFORMANCE.md and the chart from it."""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import common
import instructions

RESULT = os.path.join(common.ROOT, "perf/results/budget.json")
SERVER_CORE, CLIENT_CORE = 0, 1
HERTZ = 4000
KIB, MIB = 1 << 10, 1 << 20
SIZES = {"4KiB": 4 * KIB, "100KiB": 100 * KIB, "3MiB": 3 * MIB, "64MiB": 64 * MIB}
# Of the largest, fewer: their bodies take memory.
CONNECTIONS = {"4KiB": 64, "100KiB": 64, "3MiB": 64, "64MiB": 8}
LIST_CONNECTIONS, NAMES, PAGE = 16, 60000, 1000
KINDS = ("tls", "plain")
CALLERS = ("c", "get_many", "loader")
# What the package is measured with: names in ringest.bench.peers.ours, and modules to import before anything is counted.
WAYS = {
    ("get_many", "get"): ("get_many", ["ringest"]),
    ("get_many", "put"): ("put_many", ["ringest"]),
    ("get_many", "list"): ("list_names", ["ringest"]),
    ("loader", "get"): ("iterable", ["ringest", "torch.utils.data"]),
}
# Memory grows to what is needed meanwhile.
PYTHON_WARM_UP_S, C_WARM_UP_S = 1.0, 0.4
RUN_S = 60
# The kernel's, then the program's.
PARTS = (
    *("receive", "send", "wait", "pages", "copy"),
    *("cipher", "crc", "tls", "http", "gcs", "runtime", "libc", "caller"),
)
KERNEL_PARTS = PARTS[:5]
COPY = re.compile(r"_copy_(to|from)_iter|rep_movs|copy_user|copy_(to|from)_user|memcpy")
PAGES = re.compile(r"page_fault|sys_(madvise|mmap|munmap|mremap|brk)")
RECEIVE = re.compile(r"sys_(recv|read$|readv)|sock_recvmsg")
SEND = re.compile(r"sys_send|sock_sendmsg|sock_write")
FRAME = re.compile(r"\s+[0-9a-f]+ (.*) \(([^()]*)\)$")
LAYERS = {"json": "gcs", "other": "caller", "cli": "caller"}


class Sources:
    """Where the functions of a binary of ours are from, which is built with -g. BoringSSL's have no lines."""

    def __init__(self, binary):
        self.binary, self.files = binary, {}
        lines = common.run(["nm", "--defined-only", binary]).splitlines()
        self.addresses = {name: address for address, _, name in map(str.split, lines)}

    def find(self, functions):
        """All at once: a look-up by itself reads everything that is known of lines."""
        wanted = [each for each in functions if each in self.addresses and each not in self.files]
        if wanted:
            command = ["addr2line", "--exe", self.binary, *(self.addresses[each] for each in wanted)]
            for each, line in zip(wanted, common.run(command).splitlines()):
                self.files[each] = line.rpartition(":")[0].replace("??", "")


class Profile:
    """Samples of each part within a time, from a file of perf's; of others, no names are looked up."""

    def __init__(self, path, own, begin=None, end=None):
        self.own = own
        within = ["--time", f"{begin:.6f},{end:.6f}"] if begin is not None else []
        command = ["perf", "script", "--no-inline", "--input", path, "--fields", "time,ip,sym,dso", *within]
        text = common.run(command)
        samples = [self._sample(block) for block in text.split("\n\n") if block.strip()]
        innermost = {frames[0] for _, frames in samples if frames}
        for name, sources in own.items():
            sources.find([function for function, binary in innermost if os.path.basename(binary) == name])
        self.samples = [(at, self._part(frames)) for at, frames in samples]

    def _sample(self, block):
        """When, and the functions with the files of their code, the innermost first."""
        head, *frames = block.strip("\n").split("\n")
        return float(head.strip().rstrip(":")), [match.groups() for match in map(FRAME.match, frames) if match]

    def _part(self, frames):
        if not frames:
            return "caller"
        function, binary = frames[0]
        if binary.startswith("["):
            return kernel_part([name for name, where in frames if where == binary])
        own = self.own.get(os.path.basename(binary))
        source = own.files.get(function, "") if own else ""
        where = source.rpartition("../")[2]
        if where.startswith("http/tls"):
            return "tls"
        if os.path.basename(binary).startswith("_core"):
            binary = "caller" if where.startswith("python/") else "ringest"
        layer = instructions.layer(binary, source, function)
        # Of ours but in none of its layers: datasets, the cache.
        return "runtime" if layer in ("tls", "cipher") and source else LAYERS.get(layer, layer)

    def counts(self, begin=None, end=None, seconds=0.0):
        """Without times: of the last seconds."""
        if end is None:
            end = max(at for at, _ in self.samples)
        if begin is None:
            begin = end - seconds
        return collections.Counter(part for at, part in self.samples if begin <= at <= end)


def kernel_part(names):
    if COPY.search(names[0]):
        return "copy"
    for part, pattern in (("pages", PAGES), ("receive", RECEIVE), ("send", SEND)):
        # The outermost: what a send hands over to the loopback's other end is part of the send.
        if any(pattern.search(name) for name in names):
            return part
    return "wait"


def child(arguments):
    """In a process of its own: a way of the package to use it. Prints what it cost, and when."""
    way, modules, bucket, name, size, connections, seconds, listed, endpoint, ca = arguments
    import importlib

    from ringest.bench.peers import ours, work

    class Noted(work.Meter):
        def begin(self):
            super().begin()
            self.begun_at = time.monotonic()

        def end(self):
            counted, ended_at = super().end(), time.monotonic()
            noted.append((counted, self.begun_at, ended_at))
            return counted

    noted, work.Meter = [], Noted
    for module in modules.split(","):
        importlib.import_module(module)
    getattr(ours, way)(
        work.Work(
            bucket,
            [name],
            int(size),
            int(connections),
            float(seconds),
            PYTHON_WARM_UP_S,
            endpoint,
            ca or None,
            name,
            int(listed),
        )
    )
    counted, begin, end = noted[-1]
    told = {"requests": counted.operations, "user_s": counted.cpu_user, "system_s": counted.cpu_system}
    print(json.dumps(told | {"begin": begin, "end": end}))


def c_command(cell, emulator, options):
    _, verb, size, _ = cell
    uri = {"get": f"gs://bench/{size}/", "put": "gs://written/", "list": "gs://bench/list/"}[verb]
    given = ["--object-size", size, "--keep"] if verb == "put" else []
    connections = LIST_CONNECTIONS if verb == "list" else CONNECTIONS[size]
    return [
        *(options.ringest, "bench", verb, uri, "--threads", "1", "--json", "--quiet", *given, *emulator.options()),
        *("--seconds", str(options.seconds), "--warm-up", str(C_WARM_UP_S), "--concurrency", str(connections)),
        *("--option", "hedging=false"),
    ]


def python_command(cell, emulator, options):
    caller, verb, size, _ = cell
    way, modules = WAYS[caller, verb]
    connections = LIST_CONNECTIONS if verb == "list" else CONNECTIONS[size]
    name = {"get": f"{size}/00000000", "put": "object", "list": "list/"}[verb]
    return [
        *(options.python, "-B", os.path.abspath(__file__), "--child", way, ",".join(modules)),
        *("written" if verb == "put" else "bench", name, str(SIZES.get(size, 0)), str(connections)),
        *(str(options.seconds), str(NAMES), emulator.url(), emulator.ca or ""),
    ]


def told_by_c(text, verb):
    told = json.loads(text)
    if told["errors"]:
        common.die(f"{told['errors']} requests failed")
    # A run ends when what is in flight has ended.
    return {
        "requests": told["requests"],
        "user_s": told["cpu_user_seconds"],
        "system_s": told["cpu_system_seconds"],
        "seconds": told["seconds"],
    }


def run(cell, backend, emulator, own, options, sampled=True):
    """What one run cost: requests, CPU seconds, samples of each part."""
    caller, verb, *_ = cell
    make = c_command if caller == "c" else python_command
    command = common.pinned(CLIENT_CORE, make(cell, emulator, options))
    os.environ["PYTHONPATH"] = options.package
    with tempfile.NamedTemporaryFile(prefix="ringest-budget-") as file:
        record = ["perf", "record", "--quiet", "--event", "cpu-clock", "--freq", str(HERTZ), "-g"]
        record += ["--clockid", "CLOCK_MONOTONIC", "--output", file.name, "--"]
        common.touch_memory()
        text = common.run((record if sampled else []) + command, backend, RUN_S).strip().splitlines()[-1]
        told = told_by_c(text, verb) if caller == "c" else json.loads(text)
        if verb == "list" and caller != "c":
            told["requests"] /= PAGE
        if sampled:
            profile = Profile(file.name, own, told.get("begin"), told.get("end"))
            told["samples"] = profile.counts(told.get("begin"), told.get("end"), told.get("seconds", 0))
    return told


def us(told):
    return (told["user_s"] + told["system_s"]) * 1e6 / told["requests"]


def summed(rounds, bare):
    """A cell of one backend: µs for each request, of all, of the kernel as getrusage has it, and of the parts."""
    requests = sum(each["requests"] for each in rounds)
    whole = statistics.median(us(each) for each in rounds)
    samples = sum((each["samples"] for each in rounds), collections.Counter())
    counted = sum(each["user_s"] + each["system_s"] for each in rounds)
    total = samples.total()
    return {
        "us": round(whole, 3),
        "us_without_perf": round(us(bare), 3),
        "us_rounds": [round(us(each), 3) for each in rounds],
        "requests": round(requests),
        "samples": total,
        "sampled_by_counted": round(total / HERTZ / counted, 4),
        "system_share": round(sum(each["system_s"] for each in rounds) / counted, 4),
        "kernel_share": round(sum(samples[part] for part in KERNEL_PARTS) / total, 4),
        "parts": {part: round(samples[part] / total, 4) for part in PARTS},
    }


def cells(options):
    for kind in options.kinds:
        for caller in options.callers:
            for verb in options.verbs:
                if caller == "c" or (caller, verb) in WAYS:
                    for size in ["names"] if verb == "list" else options.sizes:
                        yield caller, verb, size, kind


def emulator(kind, options):
    synthetic = [f"bench/{size}/:1:{size}" for size in SIZES] + [f"bench/list/:{NAMES}:4KiB"]
    served = [word for each in synthetic for word in ("--synthetic", each)]
    plain = ["--plain"] if kind == "plain" else []
    return common.Emulator(options.ringest, "--threads", "1", "--bucket", "written", *plain, *served, core=SERVER_CORE)


def measure(cell, own, options):
    found = {backend: [] for backend in common.BACKENDS}
    bare = {}
    for number in range(options.rounds + 1):
        backends = common.BACKENDS if number % 2 else common.BACKENDS[::-1]
        for backend in backends:
            # A new one each time: what was written goes with it.
            with emulator(cell[3], options) as server:
                told = run(cell, backend, server, own, options, sampled=number > 0)
            if number:
                found[backend].append(told)
            else:
                bare[backend] = told
    return {backend: summed(found[backend], bare[backend]) for backend in common.BACKENDS}


def backends(cell, options):
    """µs for each request with either backend, in turns and without perf."""
    found = {backend: [] for backend in common.BACKENDS}
    for number in range(options.rounds):
        with emulator(cell[3], options) as server:
            for backend in common.BACKENDS if number % 2 else common.BACKENDS[::-1]:
                found[backend].append(round(us(run(cell, backend, server, {}, options, sampled=False)), 3))
    return found


def speeds(options):
    """Of the cipher and of the CRC alone, in GB/s, over records in a hot buffer."""
    command = [options.floor, "--cipher", "--json", "--seconds", "0.6"]
    return json.loads(common.run(common.pinned(CLIENT_CORE, command)))


def need_perf():
    """perf, allowed to sample the kernel, whose functions have names."""
    common.need("perf", "nm", "addr2line", "taskset")
    probe = ["perf", "record", "--quiet", "--event", "cpu-clock", "-g", "--output", "/dev/null", "true"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    with open("/proc/kallsyms", encoding="ascii") as file:
        hidden = int(file.readline().split()[0], 16) == 0
    if done.returncode or hidden:
        print(
            f"perf may not sample the kernel here: {done.stderr.strip() or 'its addresses are hidden (kptr_restrict)'}"
        )
        sys.exit(common.SKIPPED)


def told_line(found):
    if isinstance(found, list):
        return f"{statistics.median(found):.2f} us"
    return f"{found['us']:.2f} us = " + " ".join(
        f"{part} {found['us'] * share:.2f}" for part, share in found["parts"].items() if share
    )


def measure_all(wanted, told, key, call, options):
    """Writes the file after each cell, so that a run that is ended has not measured for nothing."""
    for cell in wanted:
        name = " ".join(cell)
        if options.missing and name in told[key]:
            continue
        told[key][name] = call(cell)
        for backend, found in told[key][name].items():
            print(f"{name} {backend}: {told_line(found)}", flush=True)
        if not options.quick:
            # At once: a run that is ended while it writes must not take with it what was measured before.
            with open(f"{options.json}.new", "w", encoding="utf-8") as file:
                json.dump(told, file, indent=1)
                file.write("\n")
            os.replace(f"{options.json}.new", options.json)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--ringest", default=common.PROGRAM, help="the program, of a release build with lines (-g)")
    parser.add_argument("--floor", default=f"{common.ROOT}/build/release/perf/floor", metavar="PROGRAM")
    parser.add_argument("--package", default=f"{common.ROOT}/build/root/lib/python", help="the folder that has ringest")
    parser.add_argument("--python", default=sys.executable, help="an interpreter; for loader with PyTorch")
    for name, known in (("callers", CALLERS), ("kinds", KINDS), ("verbs", ("get", "put", "list")), ("sizes", SIZES)):
        parser.add_argument(f"--{name}", type=lambda text: text.split(","), default=list(known), help=",".join(known))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each run; 0.5")
    parser.add_argument("--json", default=RESULT, metavar="FILE", help="what was measured before, and is now")
    parser.add_argument("--backends", action="store_true", help="compare the backends, without perf, instead")
    parser.add_argument("--missing", action="store_true", help="only cells that are not in that file")
    parser.add_argument(
        "--write", action="store_true", help="write the page's tables and the chart, and measure nothing"
    )
    parser.add_argument("--quick", action="store_true", help="one short cell, and keep nothing")
    return parser.parse_args()


def main():
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2:])
        return
    options = parse()
    if options.write:
        import budget_page

        budget_page.write(options.json)
        return
    if options.quick:
        options.callers, options.kinds, options.verbs, options.sizes = ["c"], ["tls"], ["get"], ["100KiB"]
        options.rounds, options.seconds = 1, 0.1
    told = {"cells": {}, "backends": {}}
    if not options.quick:
        with contextlib.suppress(FileNotFoundError), open(options.json, encoding="utf-8") as file:
            told |= json.load(file)
    if options.backends:
        measure_all(cells(options), told, "backends", lambda cell: backends(cell, options), options)
        return
    need_perf()
    own = {os.path.basename(options.ringest): Sources(options.ringest)}
    if set(options.callers) != {"c"}:
        core = os.path.join(options.package, "ringest/_core.abi3.so")
        own[os.path.basename(core)] = Sources(core)
    told["machine"], told["speeds"] = common.machine(), speeds(options)
    measure_all(cells(options), told, "cells", lambda cell: measure(cell, own, options), options)


if __name__ == "__main__":
    main()
