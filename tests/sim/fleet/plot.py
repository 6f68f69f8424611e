"""Draws the charts of docs/internals/fleet.md as SVG, each for a light and a dark page. Needs matplotlib.

    plot.py FLEET_REPORT [FOLDER]

What is drawn over time is what FLEET_REPORT --series prints now. What is drawn against the number of hosts is what
the tables of the page say, since thousands of hosts take minutes. FOLDER is docs/internals/fleet."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import sys
from collections import defaultdict
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3)
PAGE = os.path.join(ROOT, "docs", "internals", "fleet.md")
HOSTS = (64, 512)
COLD_MEAN_S = 10  # what one point of twelve minutes is the mean of
AROUND_S = (20, 90)  # how long before an outage, and after it began

# Colours that are told apart by colour-blind readers too, and each control has lines and marks of its own.
THEMES: dict[str, dict[str, str]] = {
    "": {
        "text": "#1f2328",
        "grid": "#d1d9e0",
        "shade": "#818b98",
        "none": "#59636e",
        "ramp": "#bc4c00",
        "own": "#8250df",
        "default": "#0969da",
        "shared": "#008060",
    },
    "-dark": {
        "text": "#f0f6fc",
        "grid": "#3d444d",
        "shade": "#9198a1",
        "none": "#9198a1",
        "ramp": "#f0883e",
        "own": "#ab7df8",
        "default": "#4493f8",
        "shared": "#2fbf8f",
    },
}
STYLES: dict[str, dict[str, Any]] = {
    "none": {"linestyle": (0, (1, 1.2)), "marker": "s"},
    "ramp": {"linestyle": (0, (5, 2)), "marker": "^"},
    "own": {"linestyle": (0, (2, 1)), "marker": "v"},
    "default": {"linestyle": "solid", "marker": "o"},
    "shared": {"linestyle": (0, (5, 1, 1, 1)), "marker": "D"},
}
BUCKET = {"linestyle": "solid", "linewidth": 0.8, "label": "what the bucket can do"}

# (life, hosts, control): the columns of its seconds
Series = dict[tuple[str, int, str], dict[str, list[float]]]
# (hosts, control): the cells of its row
Table = dict[tuple[int, str], dict[str, float]]


def read_series(report: str) -> Series:
    hosts = [str(each) for each in HOSTS]
    lines = subprocess.run([report, "--series", *hosts], check=True, stdout=subprocess.PIPE, text=True).stdout
    series: Series = defaultdict(lambda: defaultdict(list))
    for row in csv.DictReader(lines.splitlines()):
        columns = series[row["life"], int(row["hosts"]), row["control"]]
        for name in ("rate", "asked", "answered", "refused"):
            columns[name].append(float(row[name]))
    return series


def number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def read_table(title: str) -> Table:
    with open(PAGE, encoding="utf-8") as page:
        section = page.read().split(f"### {title}\n", 1)[1].split("\n#", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {(int(row[0]), row[1]): dict(zip(head, map(number, row))) for row in rows}


def means(values: list[float], count: int) -> list[float]:
    return [sum(values[i : i + count]) / count for i in range(0, len(values), count)]


def line(axes: Any, xs: list[float], ys: list[float], control: str, colours: dict[str, str], **more: Any) -> None:
    style = {**STYLES[control], "color": colours[control], "label": control, "linewidth": 1.6, **more}
    axes.plot(xs, ys, **style)


def thousands(axes: Any, what: str, most: int) -> None:
    axes.set_ylim(-500, most)
    axes.yaxis.set_major_locator(FixedLocator(range(0, 100_001, 20_000)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:.0f}"))
    axes.set_ylabel(what)


def finish(figure: Any, axes: Any, folder: str, name: str) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", transparent=True)
    with open(os.path.join(folder, name + ".svg"), "w", encoding="utf-8") as file:
        file.write(shrink(drawn.getvalue()))
    pyplot.close(figure)


def shrink(svg: str) -> str:
    """A third of the size: without what says how it was made, and no finer than a hundredth of a point."""
    svg = svg[svg.index("<svg ") :]
    svg = re.sub(r" *<metadata>.*?</metadata>\n", "", svg, flags=re.DOTALL)
    svg = re.sub(r"(\d\.\d\d)\d+", r"\1", svg)
    svg = re.sub(r" *\n(?=[A-Za-z\"])", " ", svg)
    return re.sub(r"\n +", "\n", svg)


def draw_cold(series: Series, colours: dict[str, str], folder: str, name: str) -> None:
    figure, grid = pyplot.subplots(2, len(HOSTS), figsize=(8.8, 5.2), sharex=True, sharey="row", layout="constrained")
    for (above, below), hosts in zip(grid.T, HOSTS):
        for control in ("none", "ramp", "default"):
            columns = series["cold", hosts, control]
            asked, answered, refused = (means(columns[each], COLD_MEAN_S) for each in ("asked", "answered", "refused"))
            minutes = [(i + 0.5) * COLD_MEAN_S / 60 for i in range(len(asked))]
            share = [100 * each / max(all_of_it, 1) for each, all_of_it in zip(refused, asked)]
            line(above, minutes, answered, control, colours, marker="")
            line(below, minutes, share, control, colours, marker="")
        rate = series["cold", hosts, "none"]["rate"]
        above.plot([i / 60 for i in range(len(rate))], rate, color=colours["text"], zorder=1, **BUCKET)
        above.set_title(f"{hosts} hosts")
        below.set_xlabel("minutes since the job began")
        below.set_xlim(0, 12)
    thousands(grid[0][0], "answered, thousand requests/s", 90_000)
    grid[1][0].set_ylabel("refused, % of requests")
    grid[1][0].set_ylim(-0.5, 100)
    finish(figure, grid[0][0], folder, name)


def draw_outage(series: Series, colours: dict[str, str], folder: str, name: str) -> None:
    figure, grid = pyplot.subplots(2, len(HOSTS), figsize=(8.8, 5.2), sharex=True, sharey="row", layout="constrained")
    silent = [i for i, each in enumerate(series["grown", HOSTS[0], "default"]["answered"]) if each == 0]
    begin, end = silent[0], silent[-1] + 1
    seconds: list[float] = [float(each) for each in range(-AROUND_S[0], AROUND_S[1])]
    for (above, below), hosts in zip(grid.T, HOSTS):
        for control in ("none", "ramp", "default"):
            columns = series["grown", hosts, control]
            for axes, what in ((above, "answered"), (below, "asked")):
                part = columns[what][begin - AROUND_S[0] : begin + AROUND_S[1]]
                line(axes, seconds, part, control, colours, marker="", drawstyle="steps-post")
        for axes in (above, below):
            axes.axvspan(0, end - begin, color=colours["shade"], alpha=0.2, linewidth=0, label="outage")
        above.set_title(f"{hosts} hosts")
        below.set_xlabel("seconds since the outage began")
        below.set_xlim(seconds[0], seconds[-1])
    thousands(grid[0][0], "answered, thousand requests/s", 90_000)
    thousands(grid[1][0], "asked, thousand requests/s", 118_000)
    finish(figure, grid[0][0], folder, name)


def draw_hosts(tables: list[tuple[str, Table]], colours: dict[str, str], folder: str, name: str) -> None:
    figure, grid = pyplot.subplots(2, 3, figsize=(8.8, 5.4), sharex=True, sharey="col", layout="constrained")
    columns = (
        ("wasted, %", "wasted, % of attempts"),
        ("Jain", "Jain's index of the hosts"),
        ("slowest / median", "slowest step / median step"),
    )
    for row, (title, table) in zip(grid, tables):
        for axes, (column, label) in zip(row, columns):
            for control in STYLES:
                hosts: list[float] = sorted({each for each, _ in table})
                values = [table.get((int(each), control), {}).get(column, float("nan")) for each in hosts]
                line(axes, hosts, values, control, colours, markersize=4)
            axes.set_title(title)
            axes.set_ylabel(label)
        row[0].axhline(2, color=colours["text"], linewidth=1, label="goal", zorder=1)
        row[1].axhline(0.95, color=colours["text"], linewidth=1, zorder=1)
    scale_hosts(grid, sorted({each for each, _ in tables[0][1]}))
    finish(figure, grid[0][0], folder, name)


def scale_hosts(grid: Any, hosts: list[int]) -> None:
    plain = FuncFormatter(lambda value, _: f"{value:,.0f}")
    grid[0][0].set_yscale("symlog", linthresh=2, linscale=0.6)
    grid[0][0].set_ylim(-0.1, 100)
    grid[0][1].set_ylim(0.88, 1.005)
    grid[0][2].set_yscale("log")
    grid[0][2].set_ylim(0.9, 250)
    for axes, ticks in ((grid[0][0], (0, 1, 2, 5, 10, 20, 50, 100)), (grid[0][2], (1, 2, 5, 10, 20, 50, 100, 200))):
        axes.yaxis.set_major_locator(FixedLocator(ticks))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(plain)
    for axes in grid[1]:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(hosts))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(plain)
        axes.set_xlabel("hosts")


def style(colours: dict[str, str]) -> dict[Any, Any]:
    text = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), colours["text"])
    return {
        **text,
        "axes.edgecolor": colours["grid"],
        "grid.color": colours["grid"],
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "font.size": 9,
        "font.family": "sans-serif",
        "font.sans-serif": ["Segoe UI", "Noto Sans", "Helvetica", "Arial", "DejaVu Sans"],
        "svg.fonttype": "none",
        "svg.hashsalt": "fleet",
    }


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = sys.argv[2] if len(sys.argv) == 3 else os.path.join(ROOT, "docs", "internals", "fleet")
    os.makedirs(folder, exist_ok=True)
    series = read_series(sys.argv[1])
    grown = read_table("A bucket that has grown, then an outage of 60 s")
    tables = [("a bucket that has grown", grown), ("a cold bucket", read_table("A cold bucket"))]
    for theme, colours in THEMES.items():
        with pyplot.rc_context(style(colours)):
            draw_cold(series, colours, folder, "cold" + theme)
            draw_outage(series, colours, folder, "outage" + theme)
            draw_hosts(tables, colours, folder, "hosts" + theme)


if __name__ == "__main__":
    main()
