"""Writes the table of compare.py into docs/PERFORMANCE.md, from its figures.

    tables.py FIGURES.json [PAGE]

What stands between the two marks of the page is replaced; the rest of the page is written by people."""

from __future__ import annotations

import json
import os
import statistics
import sys
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "PERFORMANCE.md")
BEGIN, END = "<!-- script/bench wrk writes this -->\n", "<!-- to here -->\n"
NAMES = {
    "wrk": "wrk",
    "floor": "floor",
    "floor+crc": "floor with CRC32C",
    "uring": "**ringest, io_uring**",
    "epoll": "**ringest, epoll**",
}


def number(us: float) -> str:
    return f"{us:,.1f}" if us < 1000 else f"{us:,.0f}"


def table(figures: dict[str, Any]) -> str:
    """Microseconds, and the ratio to wrk of the same run."""
    cells, ratios, machine = figures["cells"], figures.get("ratios_to_wrk", {}), figures["machine"]
    lines = ["| | " + " | ".join(cells) + " |", "|---" * (len(cells) + 1) + "|"]
    for client in next(iter(cells.values())):
        row = []
        for cell, results in cells.items():
            text = number(statistics.median(each["cpu_us_per_request"] for each in results[client]))
            if client != "wrk" and cell in ratios:
                text += f" · {ratios[cell][client]:.2f}"
            row.append(f"**{text}**" if client == "uring" else text)
        lines.append(f"| {NAMES[client]} | " + " | ".join(row) + " |")
    rounds = len(next(iter(next(iter(cells.values())).values())))
    busy = f" (load {machine['load']:.0f} from other work)" if machine["load"] > machine["cores"] else ""
    lines += [
        "",
        f"Machine: {machine['cpu']}, {machine['cores']} virtual CPUs{busy}, Linux {machine['kernel'].split('-')[0]}, "
        f"{machine['nginx'].removeprefix('nginx version: ')}; {machine['time'][:10]}. Each figure is the median of {rounds} rounds.",
    ]
    return "\n".join(lines) + "\n"


def replaced(page: str, text: str, mark: str = BEGIN) -> str:
    before, begin, rest = page.partition(mark)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"has not the marks {mark.strip()} and {END.strip()}")
    return f"{before}{mark}\n{text}\n{END}{after}"


def main(arguments: list[str]) -> None:
    page = arguments[1] if len(arguments) > 1 else PAGE
    with open(arguments[0], encoding="utf-8") as file:
        text = table(json.load(file))
    with open(page, encoding="utf-8") as file:
        before = file.read()
    try:
        after = replaced(before, text)
    except ValueError as error:
        sys.exit(f"{page}: {error}")
    with open(page, "w", encoding="utf-8") as file:
        file.write(after)


if __name__ == "__main__":
    main(sys.argv[1:])
