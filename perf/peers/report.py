"""What measure.py measured, as tables in Markdown and as charts.

    report.py [FOLDER]

writes them again from the figures in a folder (perf/results)."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Iterator
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]

import chart  # noqa: E402
import checkpoints  # noqa: E402
import scenarios  # noqa: E402

SIZES = {"4k": "4 KiB", "100k": "100 KiB", "3m": "3 MiB"}
KINDS = {"reference": "for comparison", "get": "objects", "load": "DataLoader, no workers"}
REFERENCES = ("wrk", BENCH := "ringest bench get")
GET, ITERABLE = "ringest get_many", "ringest IterableDataset"
CONNECTOR, LITDATA = "dataflux map-style", "litdata StreamingRawDataset"
# Times as many objects per CPU second, by size.
GET_GOALS = {"4k": 3.5, "100k": 2.2, "3m": 2.2}
LOADER_GOALS = ((CONNECTOR, 40.0), (LITDATA, 5.0), (BENCH, 0.8))
LOADER_PEERS = tuple(name for name, _ in LOADER_GOALS)
OVERHEAD_GOAL_US = 1.0

Told = dict[str, Any]


def cells(document: dict[str, Any]) -> dict[str, dict[str, Told]]:
    """{size: {client: what an object cost in its rounds}} of a result of `ringest bench compare`."""
    found: dict[str, dict[str, Told]] = {}
    for row in document["rows"]:
        verb, _, key = row["workload"].partition("-")
        kind = "reference" if row["client"] in REFERENCES else verb
        cell: Told = {"kind": kind}
        if row["error"] is not None:
            cell["error"] = row["error"]
        else:
            rounds = row["rounds"]
            costs = [(r["cpu_user_seconds"] + r["cpu_system_seconds"]) / r["operations"] * 1e6 for r in rounds]
            cell |= {
                "cpu_us_per_object": statistics.median(costs),
                "objects_per_s": statistics.median(r["operations"] / r["seconds"] for r in rounds),
                "rss_mb": statistics.median(r["metrics"]["rss_growth_bytes"] for r in rounds) / 1e6,
                "connections": row["parameters"]["concurrency"],
                "rounds_cpu_us": [round(each, 3) for each in costs],
            }
        found.setdefault(key, {})[row["client"]] = cell
    return found


def kind_of(told: Told, name: str) -> str:
    """The same for all sizes."""
    return next(row[name]["kind"] for row in told["cells"].values() if name in row)


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
    ours = cost(told, key, ITERABLE if kind_of(told, name) == "load" else GET)
    if ours:
        text += f" · {result['cpu_us_per_object'] / ours:.2f}"
    return text


def cost_table(told: Told) -> str:
    rows = [["client CPU per object in µs", *(SIZES[key] for key in told["cells"])]]
    for kind, title in KINDS.items():
        names = dict.fromkeys(n for row in told["cells"].values() for n in row if kind_of(told, n) == kind)
        if names:
            rows.append([f"*{title}*", *([""] * len(told["cells"]))])
        rows += [[name, *(cell(told, key, name) for key in told["cells"])] for name in names]
    return markdown(rows)


def best_peer(told: Told, key: str) -> str | None:
    row = told["cells"].get(key, {})
    peers = [n for n in row if row[n]["kind"] == "get" and not n.startswith("ringest") and cost(told, key, n)]
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


def where(machine: dict[str, Any]) -> str:
    load = f" (load {machine['load']:.0f} from other work)" if machine.get("load", 0) > machine["cores"] else ""
    return (
        f"{machine['cpu']}, {machine['cores']} cores{load}, Linux {machine['kernel']}; {machine['nginx']}, "
        f"{machine['wrk']}, {machine['openssl']}; {machine['time']}."
    )


def about(told: Told) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
    if "measured" not in told:
        return [where(told["machine"]), f"{versions}."]
    lines = [
        f"- {SIZES.get(key, key)}, {each['options']['rounds']} rounds of {each['options']['seconds']:g} s: "
        f"{where(each['machine'])}"
        for key, each in told["measured"].items()
    ]
    return ["\n".join(lines), f"{versions}."]


def object_parts(told: Told) -> list[str]:
    return [
        "One server core, one client core, TLS 1.3 with AES-128-GCM. A figure is the median of the rounds at the number "
        "of connections (in brackets) that suits the client best. After the dot: its cost ÷ that of ringest's "
        "get_many, for loaders ÷ that of IterableDataset.",
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


def product(told: Told, name: str) -> tuple[str, str]:
    """Whose client it is, and which of the ways to use it."""
    whose, _, way = name.partition(" ")
    return whose, f"{way}, DataLoader" if kind_of(told, name) == "load" else way


def bars(told: Told, key: str) -> list[chart.Bar]:
    """Of each product the way that costs least."""
    found: dict[str, chart.Bar] = {}
    for name in told["cells"][key]:
        median = cost(told, key, name)
        if not median or kind_of(told, name) == "reference":
            continue
        rounds = told["cells"][key][name].get("rounds_cpu_us") or [median]
        whose, way = product(told, name)
        bar = chart.Bar(whose, way, 1e6 / median, 1e6 / max(rounds), 1e6 / min(rounds), whose.startswith("ringest"))
        product_key = name if bar.is_ours else whose
        if product_key not in found or found[product_key].value < bar.value:
            found[product_key] = bar
    return list(found.values())


def chart_file(key: str, theme: str) -> str:
    return f"objects-{key}{theme}.svg"


def charts(told: Told, folder: str) -> None:
    for key in told["cells"]:
        measured = told["measured"][key]
        machine, options = measured["machine"], measured["options"]
        title = f"Objects of {SIZES[key]} per second of client CPU time"
        subtitle = (
            f"Python clients, over TLS 1.3, on one core; median and range of {options['rounds']} rounds of "
            f"{options['seconds']:g} s; more is better"
        )
        cpu = machine["cpu"].replace("(R)", "").replace(" Processor", "")
        system = machine["kernel"].split("-")[0]
        busy = " (busy with other work)" if machine.get("load", 0) > machine["cores"] else ""
        footer = (
            f"{cpu}, {machine['cores']} virtual cores{busy}, Linux {system}, nginx; {machine['time'][:10]}; "
            "script/bench peers"
        )
        for theme in chart.THEMES:
            with open(os.path.join(folder, chart_file(key, theme)), "w", encoding="utf-8") as file:
                file.write(chart.draw(bars(told, key), title, subtitle, footer, theme))


def pictures(told: Told) -> str:
    """For each size its chart, light or dark as the page is."""
    return "\n".join(
        f"""<picture>
  <source media="(prefers-color-scheme: dark)" srcset="{chart_file(key, "-dark")}">
  <img alt="Objects of {SIZES[key]} per second of client CPU time" src="{chart_file(key, "")}">
</picture>
"""
        for key in told["cells"]
    )


def write_page(told: Told, folder: str, page: str, data: str, title: str, command: str, end: str) -> None:
    with open(os.path.join(folder, data), "w", encoding="utf-8") as file:
        json.dump(told, file, indent=1)
        file.write("\n")
    with open(os.path.join(folder, page), "w", encoding="utf-8") as file:
        file.write(f"# {title}\n\n`{command}` writes this page.\n\n{text(told)}\n{end}")


def read(folder: str, data: str) -> Told:
    path = os.path.join(folder, data)
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def merged(old: Told, new: Told) -> Told:
    """What was not measured again stays as it was, with its own machine and time."""
    measured = {key: {"machine": new["machine"], "options": new["options"]} for key in new["cells"]}
    if new["scenarios"]:
        measured["scenarios"] = {"machine": new["machine"], "options": new["options"]}
    result = {**new}
    for part, own in (("cells", new["cells"]), ("scenarios", new["scenarios"]), ("measured", measured)):
        result[part] = {**old.get(part, {}), **own}
    result["versions"] = {**old.get("versions", {}), **new["versions"]}
    result["cells"] = {key: result["cells"][key] for key in SIZES if key in result["cells"]}
    return result


def write(told: Told, folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    if "checkpoints" in told:
        title, command = "Checkpoints beside others", "script/bench peers --checkpoints"
        write_page(told, folder, "checkpoints.md", "checkpoints.json", title, command, "")
        return
    if told.get("document", {}).get("rows"):
        with open(os.path.join(folder, "objects.json"), "w", encoding="utf-8") as file:
            json.dump(told["document"], file, indent=1)
            file.write("\n")
    write_objects(
        merged(read(folder, "peers.json"), {name: each for name, each in told.items() if name != "document"}), folder
    )


def write_objects(told: Told, folder: str) -> None:
    title, command = "Objects and datasets beside others", "script/bench peers"
    write_page(
        told, folder, "README.md", "peers.json", title, command, f"\n{pictures(told)}\n[Checkpoints](checkpoints.md)\n"
    )
    charts(told, folder)


def main(arguments: list[str]) -> None:
    folder = arguments[0] if arguments else os.path.join(os.path.dirname(HERE), "results")
    write_objects(read(folder, "peers.json"), folder)


if __name__ == "__main__":
    main(sys.argv[1:])
