#!/usr/bin/env python3
"""How many instructions the client takes for each request, by layer, counted by callgrind, and what of it has grown.

A row is the difference of two runs of `ringest bench` that differ only in their number of requests, divided by that:
starting, connecting and ending drop out. The client has one event loop on epoll (valgrind does not know io_uring), as
has the emulator, which is not counted. valgrind shows a processor with AVX2 at most, so `cipher` and `crc` are not what
the processor at hand would take; the others are. Instructions hardly depend on what else the machine does: each row is
the median of several rounds, and says how far they were apart.

The counts are compared with those in instructions.json, which name what they were taken with. A layer may grow by
TOLERANCE of the row, and by TOLERANCE_OF_OURS of what is neither cipher nor CRC. Compilers and libraries differ by more, so elsewhere nothing is compared (exit status 77).
--update writes the file, and the table of docs/PERFORMANCE.md.
"""

import argparse
import collections
import contextlib
import json
import os
import platform
import re
import statistics
import sys
import tempfile

import common
import tables

BASELINE = os.path.join(common.ROOT, "perf/instructions.json")
# Of a row's instructions: rounds of one build were up to 0.053 apart, mostly below 0.025.
QUICK_COUNT = 50
TOLERANCE = 0.06
# Of the row without cipher and CRC, where these are most of it. How a body's bytes come, in few or many pieces, makes up to 0.14.
TOLERANCE_OF_OURS = 0.2
AGAIN = 2
# One difference of two runs has layers below zero: what starting and connecting take varies by more than small layers have.
ROUNDS_MIN = 3
LAYERS = ("cli", "gcs", "http", "runtime", "json", "tls", "cipher", "crc", "libc", "other")
# verb, object size, requests of the shorter and the longer run
ROWS = {
    "get-4k": ("get", "4KiB", 200, 1000),
    "get-100k": ("get", "100KiB", 100, 400),
    "put-4k": ("put", "4KiB", 200, 1000),
    "put-100k": ("put", "100KiB", 100, 400),
    "list": ("list", "4KiB", 10, 50),
}
KINDS = ("tls", "plain")
BEGIN = "<!-- perf/instructions.py --update writes this -->\n"
# What the page's table shows, and how it calls rows.
COLUMNS = (*LAYERS[:-1], "all")
TITLES = {"get": "get", "put": "put", "4k": "4 KiB", "100k": "100 KiB", "list": "list, a page of 1,000 names"}
NAMES = 60000
CIPHER = re.compile(r"aes|ghash|gcm|gmult|GCM", re.IGNORECASE)
TIMEOUT_S = 300


class Profile:
    """The own cost of each function in a file of callgrind's."""

    def __init__(self, path):
        self.costs = collections.Counter()
        self._names = {}
        with open(path, encoding="utf-8", errors="replace") as file:
            self._read(file)

    def _name(self, kind, text):
        """Each is written out where it comes first: "(7) name", then "(7)"."""
        number, _, name = text.partition(" ")
        if name:
            self._names[kind, number] = name
        return self._names.get((kind, number), "")

    def _read(self, file):
        at = {"ob": "", "fl": "", "fn": ""}
        is_inclusive = False
        kinds = {"ob": "ob", "cob": "ob", "fn": "fn", "cfn": "fn"} | dict.fromkeys(
            ("fl", "fi", "fe", "cfi", "cfl"), "fl"
        )
        for line in file:
            key, _, text = line.rstrip("\n").partition("=")
            if key in kinds:
                name = self._name(kinds[key], text)
                if not key.startswith("c"):
                    at[kinds[key]] = name
            elif key == "calls":
                is_inclusive = True  # the next line has what the function that is called costs
            elif line[0].isdigit() or line[0] in "+-*":
                if not is_inclusive:
                    self.costs[layer(at["ob"], at["fl"], at["fn"])] += int(line.split()[1])
                is_inclusive = False


def layer(binary, source, function):
    """Of a function. BoringSSL is compiled without lines of source, into the program."""
    name = os.path.basename(binary)
    # From a build folder, of this clone or of another one that a compiler's cache has it from: DIR/../../http/pool.c.
    first = source.rpartition("../")[2].split("/")[0]
    if first in ("cli", "gcs", "http", "runtime"):
        return first
    if "yyjson" in source or "yyjson" in function:
        return "json"
    if name.startswith("libisal"):
        return "crc"
    if name.startswith(("libc.", "libc-", "libm.")):
        return "libc"
    if name == "ringest":
        return "cipher" if CIPHER.search(function) else "tls"
    return "other"


def made_with(arguments):
    """What counts depend on besides the code."""
    return {
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "build": arguments.build,
        "valgrind": common.version(["valgrind", "--version"]),
    }


def profile(command, folder):
    path = os.path.join(folder, "callgrind.out")
    counted = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={path}", *command]
    common.run(common.pinned(max(os.sched_getaffinity(0)), counted), "epoll", TIMEOUT_S)
    return Profile(path).costs


def command(arguments, emulator, name, count):
    verb, size, *_ = ROWS[name]
    uri = {"get": f"gs://bench/{size}/", "put": "gs://written/", "list": "gs://bench/4KiB/"}[verb]
    options = ["--object-size", size] if verb == "put" else []
    return [
        arguments.ringest,
        *("bench", verb, uri, *options, "--count", str(count), "--concurrency", str(arguments.concurrency)),
        *("--threads", "1", "--quiet", "--json", "--option", "hedging=false", *emulator.options()),
    ]


def measured(arguments, emulator, name, folder):
    """Instructions of each layer for one request, and by how much of them all the rounds were apart."""
    if arguments.quick:
        # With all that a start takes: of so few, the difference between two runs is what varies between them.
        costs = profile(command(arguments, emulator, name, QUICK_COUNT), folder)
        found = {each: round(costs[each] / QUICK_COUNT) for each in LAYERS}
        return found | {"all": sum(found.values()), "apart": 0}
    few, many = ROWS[name][2:]
    rounds = []
    for _ in range(arguments.rounds):
        first, second = (profile(command(arguments, emulator, name, count), folder) for count in (few, many))
        rounds.append({each: (second[each] - first[each]) / (many - few) for each in LAYERS})
    totals = [sum(each.values()) for each in rounds]
    found = {each: round(statistics.median(one[each] for one in rounds)) for each in LAYERS}
    found["all"] = round(statistics.median(totals))
    found["apart"] = round((max(totals) - min(totals)) / found["all"], 4)
    return found


def grown(before, now):
    """The layers that take more than they may, and the totals."""
    room = min(before["all"] * TOLERANCE, (before["all"] - before["cipher"] - before["crc"]) * TOLERANCE_OF_OURS)
    return [f"{each} {before[each]} -> {now[each]}" for each in (*LAYERS, "all") if now[each] > before[each] + room]


def least(arguments, baseline, found):
    """Counts again what seems to have grown: what another program's work adds is not there each time, what ours adds is."""
    for _ in range(AGAIN):
        suspects = [name for name, row in found.items() if grown(baseline[name], row)]
        if not suspects:
            break
        print(f"again: {', '.join(suspects)}")
        for name, row in rows(arguments, suspects).items():
            found[name] = {each: min(found[name][each], count) for each, count in row.items()}
    return found


def rows(arguments, only=None):
    sizes = ("4KiB", "100KiB")
    served = [each for size in sizes for each in ("--synthetic", f"bench/{size}/:{NAMES}:{size}")]
    print(f"{'instructions/request':20}" + "".join(f"{each:>9}" for each in LAYERS) + f"{'all':>10}{'apart':>8}")
    found = {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for kind in KINDS:
            plain = ["--plain"] if kind == "plain" else []
            emulator = stack.enter_context(
                common.Emulator(arguments.ringest, "--threads", "1", "--bucket", "written", *plain, *served)
            )
            for name in ["get-4k"] if arguments.quick else arguments.row or ROWS:
                if only is not None and f"{name}-{kind}" not in only:
                    continue
                row = found[f"{name}-{kind}"] = measured(arguments, emulator, name, folder)
                cells = "".join(f"{row[each]:>9}" for each in LAYERS)
                print(f"{name + '-' + kind:20}{cells}{row['all']:>10}{row['apart']:>8.1%}", flush=True)
                # The caller of a list takes less for a page than starting varies by.
                if min(row[each] for each in ("gcs", "http")) <= 0:
                    common.die(f"{name}: a layer takes no instructions: is {arguments.ringest} built with -g?")
    return found


def title(row):
    """get-4k-tls as the page has it."""
    *what, kind = row.split("-")
    return f"{' '.join(TITLES[each] for each in what)}, {'TLS' if kind == 'tls' else kind}"


def table(found):
    lines = [f"| request | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    lines += [f"| {title(name)} | {' | '.join(f'{row[each]:,}' for each in COLUMNS)} |" for name, row in found.items()]
    apart = sorted(row["apart"] for row in found.values())
    told = f"Rounds were up to {apart[-1]:.1%} apart, {apart[len(apart) // 2]:.1%} at the median of rows."
    return "\n".join([*lines, "", told.replace("%", " %")]) + "\n"


def update(made, found):
    """Rows that were not counted now stay, if they were counted with the same."""
    with contextlib.suppress(FileNotFoundError), open(BASELINE, encoding="utf-8") as file:
        before = json.load(file)
        if before["made_with"] == made:
            found = {**before["rows"], **found}
    with open(BASELINE, "w", encoding="utf-8") as file:
        json.dump({"made_with": made, "rows": found}, file, indent=4)
        file.write("\n")
    with open(tables.PAGE, encoding="utf-8") as file:
        page = tables.replaced(file.read(), table(found), BEGIN)
    with open(tables.PAGE, "w", encoding="utf-8") as file:
        file.write(page)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringest", default=common.PROGRAM, help="the program, of a release build with lines (-g)")
    parser.add_argument("--build", default="", help="what it was built with, such as the compiler and its options")
    parser.add_argument("--row", choices=ROWS, action="append", help="only these")
    parser.add_argument("--rounds", type=int, default=3, help=f"{ROUNDS_MIN} at least; 3")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument(
        "--update", action="store_true", help="write what is counted to perf/instructions.json and its table"
    )
    parser.add_argument("--quick", action="store_true", help="count little, and compare nothing")
    arguments = parser.parse_args()
    if arguments.rounds < ROUNDS_MIN:
        parser.error(
            f"--rounds {arguments.rounds}: {ROUNDS_MIN} at least, of which the medians are taken; --quick counts little"
        )
    common.need("valgrind")
    made = made_with(arguments)
    baseline = {"made_with": None}
    with contextlib.suppress(FileNotFoundError), open(BASELINE, encoding="utf-8") as file:
        baseline = json.load(file)
    if not arguments.quick and not arguments.update and baseline["made_with"] != made:
        print(f"not compared: counted with {made}, and perf/instructions.json with {baseline['made_with']}")
        sys.exit(common.SKIPPED)
    found = rows(arguments)
    if arguments.update:
        update(made, found)
    elif not arguments.quick:
        found = least(arguments, baseline["rows"], found)
        more = {name: grown(baseline["rows"][name], row) for name, row in found.items()}
        for name, layers in more.items():
            for each in layers:
                print(f"{name}: {each}, which is too far above perf/instructions.json")
        sys.exit(1 if any(more.values()) else 0)


if __name__ == "__main__":
    main()
