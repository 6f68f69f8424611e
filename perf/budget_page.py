"""What budget.py measured, as the tables of docs/PERFORMANCE.md and as a chart, for a light and a dark page."""

from __future__ import annotations

import json
import os
import statistics
import sys
from typing import Any

import tables
from budget import KERNEL_PARTS, SIZES

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
import chart

BEGIN = "<!-- perf/budget.py --write makes this -->\n"
RESULTS = os.path.join(tables.ROOT, "perf/results")
# What a reader sees: name, parts.
COLUMNS = (
    ("system calls", ("receive", "send", "wait")),
    ("pages", ("pages",)),
    ("kernel's copy", ("copy",)),
    ("cipher", ("cipher",)),
    ("CRC32C", ("crc",)),
    ("TLS", ("tls",)),
    ("HTTP", ("http",)),
    ("GCS", ("gcs",)),
    ("loop", ("runtime",)),
    ("libc", ("libc",)),
    ("caller", ("caller",)),
)
CALLERS = {"c": "C", "get_many": "Python", "loader": "DataLoader"}
KINDS = {"tls": "TLS", "plain": "plain"}
# From here on a request is told in milliseconds.
MS_FROM_US = 10000

Told = dict[str, Any]


def label(cell: str) -> str:
    caller, verb, size, _ = cell.split()
    what = "page of 1,000 names" if verb == "list" else size.replace("KiB", " KiB").replace("MiB", " MiB")
    return f"{CALLERS[caller]} {verb} {what}"


def ordered(told: Told, kind: str) -> list[str]:
    """As a reader looks for them: by caller, verb and size."""
    sizes = [*SIZES, "names"]

    def place(cell: str) -> tuple[int, int, int]:
        caller, verb, size, _ = cell.split()
        return list(CALLERS).index(caller), ("get", "put", "list").index(verb), sizes.index(size)

    return sorted((cell for cell in told["cells"] if cell.endswith(f" {kind}")), key=place)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def part(us: float, share: float) -> str:
    text = number(us * share) if share >= 0.0005 else ""
    return f"{text} · {share:.0%}" if share >= 0.005 else text


def per_gb(cell: str, us: float) -> str:
    size = SIZES.get(cell.split()[2], 0)
    return f"{us / 1e6 / (size / 1e9):.2f}" if size >= 1 << 20 else ""


def shares(found: Told) -> list[float]:
    return [sum(found["parts"][part] for part in parts) for _, parts in COLUMNS]


def against_epoll(told: Told, cell: str) -> str:
    """io_uring's cost by epoll's: the median of rounds in turns without perf, where there were any."""
    found = told["backends"].get(cell)
    if not found:
        return ""
    return f"{statistics.median(a / b for a, b in zip(found['uring'], found['epoll'])):.2f}"


def budget(told: Told, kind: str) -> list[str]:
    lines = [
        f"| {KINDS[kind]} | all | s/GB | " + " | ".join(name for name, _ in COLUMNS) + " | ÷ epoll |",
        "|---" * (len(COLUMNS) + 4) + "|",
    ]
    for cell in ordered(told, kind):
        found = told["cells"][cell]["uring"]
        parts = [part(found["us"], share) for share in shares(found)]
        row = [label(cell), f"**{number(found['us'])}**", per_gb(cell, found["us"]), *parts]
        lines.append("| " + " | ".join([*row, against_epoll(told, cell)]) + " |")
    return lines


def calls(told: Told) -> list[str]:
    """System calls by what they are for, of both backends."""
    names = KERNEL_PARTS[:3]
    lines = [
        "| C, get | io_uring: " + " | ".join(names) + " | epoll: " + " | ".join(names) + " |",
        "|---" * (2 * len(names) + 1) + "|",
    ]
    for kind in KINDS:
        for cell in ordered(told, kind):
            if cell.startswith("c get"):
                both = [told["cells"][cell][backend] for backend in ("uring", "epoll")]
                cells = [number(each["us"] * each["parts"][name]) for each in both for name in names]
                lines.append(f"| {label(cell).removeprefix('C get ')}, {KINDS[kind]} | " + " | ".join(cells) + " |")
    return lines


def checks(told: Told) -> dict[str, Any]:
    every = [each for cell in told["cells"].values() for each in cell.values()]
    return {
        "sampled": sorted(each["sampled_by_counted"] for each in every),
        "perf": statistics.median(each["us"] / each["us_without_perf"] for each in every),
        "kernel": sorted(abs(each["kernel_share"] - each["system_share"]) for each in every),
    }


def derived(told: Told) -> list[str]:
    """The cipher and the CRC from their speeds alone, beside what was sampled."""
    speeds = told["speeds"]
    lines = ["| 3 MiB over TLS, C | sampled µs | from its speed alone |", "|---|---|---|"]
    wanted = (
        ("c get 3MiB tls", "cipher", "open_gb_per_s"),
        ("c put 3MiB tls", "cipher", "seal_gb_per_s"),
        ("c get 3MiB tls", "crc", "crc32c_gb_per_s"),
    )
    for cell, part, speed in wanted:
        if cell in told["cells"]:
            found = told["cells"][cell]["uring"]
            alone = SIZES["3MiB"] / speeds[speed] / 1e3
            what = f"{part.replace('crc', 'CRC32C')} of a {cell.split()[1]}"
            lines.append(
                f"| {what} | {number(found['us'] * found['parts'][part])} | {number(alone)}, at {speeds[speed]:.1f} GB/s |"
            )
    return lines


def text(told: Told) -> str:
    found, machine = checks(told), told["machine"]
    sampled, kernel = found["sampled"], found["kernel"]
    middle = len(sampled) // 2
    tables_of = [line for kind in KINDS if ordered(told, kind) for line in (*budget(told, kind), "")]
    lines = [
        *tables_of,
        *calls(told),
        "",
        *derived(told),
        "",
        f"Samples times their distance make {sampled[0]:.2f} to {sampled[-1]:.2f} of the CPU time that getrusage counts, "
        f"{sampled[middle]:.2f} at the median. The kernel's share is within {kernel[-1] * 100:.1f} points of getrusage's "
        f"(median {kernel[middle] * 100:.1f}). With perf a request costs {found['perf']:.2f} times what it does without.",
        "",
        f"Machine: {machine['cpu']}, {machine['cores']} virtual CPUs, shared with other work (load "
        f"{machine['load']:.0f}), Linux {machine['kernel'].split('-')[0]}; {machine['time'][:10]}.",
    ]
    return "\n".join(lines) + "\n"


def stacks(told: Told) -> list[chart.Stack]:
    return [
        chart.Stack(
            f"{label(cell)}, {KINDS[kind]}",
            f"{number(told['cells'][cell]['uring']['us'])} µs",
            tuple(shares(told["cells"][cell]["uring"])),
        )
        for kind in KINDS
        for cell in ordered(told, kind)
    ]


def write(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        told = json.load(file)
    with open(tables.PAGE, encoding="utf-8") as file:
        page = tables.replaced(file.read(), text(told), BEGIN)
    with open(tables.PAGE, "w", encoding="utf-8") as file:
        file.write(page)
    machine = told["machine"]
    subtitle = "Share of each part, io_uring; a request, a page of a list, an object of a batch"
    cpu = machine["cpu"].replace("(R)", "").replace(" Processor", "")
    footer = f"{cpu}, {machine['cores']} virtual cores (busy with other work); {machine['time'][:10]}; perf/budget.py"
    for theme in chart.THEMES:
        drawn = chart.stacked(
            stacks(told), [name for name, _ in COLUMNS], "Where the client's CPU time goes", subtitle, footer, theme
        )
        with open(os.path.join(RESULTS, f"budget{theme}.svg"), "w", encoding="utf-8") as file:
            file.write(drawn)
