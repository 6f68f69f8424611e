"""What measure.py measured, as tables in Markdown and as a plot."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import checkpoints
import clients
import scenarios

SIZES = {"4k": "4 KiB", "100k": "100 KiB", "3m": "3 MiB"}
KINDS = {"reference": "for comparison", "get": "objects", "loader": "DataLoader, no workers"}
BENCH = "ringest bench get"
GET, ITERABLE = "ringest get_many", "ringest IterableDataset"
CONNECTOR, LITDATA = "gcs-torch-dataflux map-style", "litdata StreamingRawDataset"
# Times as many objects per CPU second, by size.
GET_GOALS = {"4k": 2.5, "100k": 2.2, "3m": 1.2}
LOADER_GOALS = ((CONNECTOR, 40.0), (LITDATA, 5.0), (BENCH, 0.8))
LOADER_PEERS = tuple(name for name, _ in LOADER_GOALS)
OVERHEAD_GOAL_US = 1.0

Told = dict[str, Any]


def kind_of(name: str) -> str:
    return clients.CLIENTS[name].kind if name in clients.CLIENTS else "reference"


def cost(told: Told, key: str, name: str) -> float | None:
    return told["cells"].get(key, {}).get(name, {}).get("cpu_us_per_object")


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"


def markdown(rows: list[list[str]]) -> str:
    """The first row is the head; columns are padded, so that it can be read as it is."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]

    def line(row: list[str]) -> str:
        return "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths)) + " |"

    return "\n".join([line(rows[0]), "|" + "|".join("-" * (w + 2) for w in widths) + "|", *map(line, rows[1:])])


def cell(told: Told, key: str, name: str) -> str:
    result = told["cells"][key].get(name)
    if result is None:
        return ""
    if "error" in result:
        return "failed"
    text = f"{number(result['cpu_us_per_object'])} ({result['connections']})"
    ours = cost(told, key, ITERABLE if kind_of(name) == "loader" else GET)
    if ours:
        text += f" · {result['cpu_us_per_object'] / ours:.2f}"
    return text


def cost_table(told: Told) -> str:
    rows = [["client CPU per object in µs", *(SIZES[key] for key in told["cells"])]]
    for kind, title in KINDS.items():
        names = dict.fromkeys(n for row in told["cells"].values() for n in row if kind_of(n) == kind)
        if names:
            rows.append([f"*{title}*", *([""] * len(told["cells"]))])
        rows += [[name, *(cell(told, key, name) for key in told["cells"])] for name in names]
    return markdown(rows)


def best_peer(told: Told, key: str) -> str | None:
    peers = [n for n, c in clients.CLIENTS.items() if c.kind == "get" and n != GET and cost(told, key, n)]
    return min(peers, key=lambda name: cost(told, key, name) or 0, default=None)


def judged(value: float, wanted: float, at_least: bool = True) -> str:
    good = value >= wanted if at_least else value <= wanted
    return f"{number(value)} {'✓' if good else '✗'}"


def goals(told: Told) -> Iterator[list[str]]:
    """Rows: what, goal, value with a mark for each size."""

    def ratio(key: str, ours: str, other: str | None, wanted: float | None, note: str = "") -> str:
        mine, theirs = cost(told, key, ours), other and cost(told, key, other)
        return judged(theirs / mine, wanted) + note if mine and theirs and wanted else ""

    keys = list(told["cells"])
    peers = {key: best_peer(told, key) for key in keys}
    yield [
        "get_many: objects per CPU second ÷ the best peer's",
        " / ".join(f"≥ {GET_GOALS[key]:g}" for key in keys),
        *(ratio(key, GET, peers[key], GET_GOALS[key], f" ({peers[key]})") for key in keys),
    ]
    for other, wanted in LOADER_GOALS:
        values = [ratio(key, ITERABLE, other, wanted) for key in keys]
        yield [f"IterableDataset: objects per CPU second ÷ {other}'s", f"≥ {wanted:g}", *values]
    overheads = []
    for key in keys:
        ours, below = cost(told, key, GET), cost(told, key, BENCH)
        judge = key == "4k" and ours is not None and below is not None
        overheads.append(judged((ours or 0) - (below or 0), OVERHEAD_GOAL_US, False) if judge else "")
    yield ["Python: CPU µs per object of get_many beyond the library's", f"≤ {OVERHEAD_GOAL_US:g}", *overheads]


def goal_table(told: Told) -> str:
    head = ["what must be reached", "goal", *(SIZES[key] for key in told["cells"])]
    return markdown([head, *goals(told)])


def scenario_rows(scenario: scenarios.Scenario, results: list[dict]) -> Iterator[list[str]]:
    for index, result in enumerate(results):
        figure = "failed" if "error" in result else number(result["value"])
        goal = ""
        if index == 0 and scenario.goal is not None:
            sign, wanted = scenario.goal
            goal = f"{sign} {number(wanted)}"
            if "error" not in result:
                figure = judged(result["value"], wanted, sign == "≥")
        yield [result["who"], figure, goal]


def scenario_tables(told: Told) -> Iterator[str]:
    for name, results in told["scenarios"].items():
        scenario = scenarios.ALL[name]
        title = scenario.title[0].upper() + scenario.title[1:]
        yield f"{title}:"
        yield markdown([["", scenario.unit, "goal"], *scenario_rows(scenario, results)])


def checkpoint_table(told: Told) -> str:
    shapes = list(told["checkpoints"])
    head = ["CPU s per GB, peak memory in MiB"]
    head += [f"{what}, {checkpoints.describe(shape)}" for shape in shapes for what in ("save", "load")]
    rows = [head]
    for name in checkpoints.CHECKPOINTS:
        row = [name]
        for shape in shapes:
            result = told["checkpoints"][shape][name]
            for what in ("save", "load"):
                if "error" in result:
                    row.append("failed")
                else:
                    row.append(f"{result[what]['cpu_s_per_gb']:.2f} · {max(result[what]['peak_mib'], 0):,.0f}")
        rows.append(row)
    return markdown(rows)


def failures(told: Told) -> list[str]:
    lines = [
        f"{SIZES[key]}, {name}: {result['error']}"
        for key, row in told.get("cells", {}).items()
        for name, result in row.items()
        if "error" in result
    ]
    for results in told.get("scenarios", {}).values():
        lines += [f"{result['who']}: {result['error']}" for result in results if "error" in result]
    for shape, results in told.get("checkpoints", {}).items():
        lines += [f"{shape}, {name}: {r['error']}" for name, r in results.items() if "error" in r]
    return lines


def has_failed(told: Told) -> bool:
    return bool(failures(told))


def about(told: Told) -> list[str]:
    machine = told["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
    return [
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}; {machine['nginx']}, "
        f"{machine['wrk']}, {machine['openssl']}; {machine['time']}.",
        f"{versions}.",
    ]


def object_parts(told: Told) -> list[str]:
    options = told["options"]
    return [
        "One server core, one client core, TLS 1.3 with AES-128-GCM; of each client the number of connections "
        f"(in brackets) and the round, of {options['rounds']} of {options['seconds']:g} s, in which it was best; "
        "after the first round, peers that cost half as much again as the best of their kind were left out. "
        "After the dot: its cost ÷ that of ringest's get_many, for loaders ÷ that of IterableDataset.",
        cost_table(told),
        goal_table(told),
        *scenario_tables(told),
    ]


def checkpoint_parts(told: Told) -> list[str]:
    return [
        "A state dict saved to the emulator and loaded again, over TLS, one server core, one client core; the "
        f"best of {told['options']['rounds']} rounds. CPU time of the client; memory beyond the state dict.",
        checkpoint_table(told),
    ]


def text(told: Told) -> str:
    failed = failures(told)
    parts = [*about(told), *(checkpoint_parts if "checkpoints" in told else object_parts)(told)]
    if failed:
        parts.append("Failed:\n\n" + "\n".join(f"- {line}" for line in failed))
    return "\n\n".join(parts)


def plot(told: Told, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    keys = list(told["cells"])
    # One row for each client, the same in all panels; a client that was not measured at a size has none there.
    names = list(dict.fromkeys(name for key in keys for name in told["cells"][key] if cost(told, key, name)))
    size = (4 + 3.5 * len(keys), 1.5 + 0.3 * len(names))
    figure, axes = pyplot.subplots(1, len(keys), figsize=size, squeeze=False, sharey=True)
    colours = {"reference": "tab:grey", "get": "tab:blue", "loader": "tab:green"}
    for key, place in zip(keys, axes[0]):
        costs = {name: value for name in names if (value := cost(told, key, name))}
        for name, value in costs.items():
            ours = name.startswith("ringest")
            row = names.index(name)
            place.plot(value, row, "D" if ours else "o", color=colours[kind_of(name)], markersize=8 if ours else 6)
            weight = "bold" if ours else "normal"
            place.annotate(number(value), (value, row), (8, -3), textcoords="offset points", fontsize=8, weight=weight)
        place.set_xscale("log")
        # A number stands to the right of its mark.
        place.set_xlim(min(costs.values()) / 1.5, max(costs.values()) * 4)
        place.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
        place.xaxis.set_minor_formatter(ticker.NullFormatter())
        place.grid(alpha=0.3)
        place.set_axisbelow(True)
        place.set_title(f"objects of {SIZES[key]}", fontsize=10)
        place.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_yticks(range(len(names)), names, fontsize=9)
    axes[0][0].invert_yaxis()
    for label, name in zip(axes[0][0].get_yticklabels(), names):
        label.set_weight("bold" if name.startswith("ringest") else "normal")
    figure.suptitle("Client CPU time per object read over TLS, µs (logarithmic; further left is better)", fontsize=11)
    marks = [pyplot.Line2D([], [], color=colours[kind], marker="o", linestyle="") for kind in KINDS]
    figure.legend(marks, list(KINDS.values()), loc="lower center", ncols=len(KINDS), fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def write_page(told: Told, folder: str, page: str, data: str, title: str, command: str, end: str) -> None:
    with open(os.path.join(folder, data), "w", encoding="utf-8") as file:
        json.dump(told, file, indent=1)
        file.write("\n")
    with open(os.path.join(folder, page), "w", encoding="utf-8") as file:
        file.write(f"# {title}\n\nBy `{command}`, which writes this page afresh.\n\n{text(told)}\n{end}")


def write(told: Told, folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    if "checkpoints" in told:
        title, command = "Checkpoints measured beside others", "script/bench peers --checkpoints"
        write_page(told, folder, "checkpoints.md", "checkpoints.json", title, command, "")
        return
    end = "\n![client CPU per object](peers.png)\n\n[Checkpoints](checkpoints.md)\n"
    title, command = "Objects and datasets measured beside others", "script/bench peers"
    write_page(told, folder, "README.md", "peers.json", title, command, end)
    try:
        plot(told, os.path.join(folder, "peers.png"))
    except ImportError as error:
        print(f"no plot: {error}")
