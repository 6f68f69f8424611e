"""What a report shows of a result: measures of each round, their median and range, and rows in groups of a workload.

A value that cannot be computed is None, never zero or infinite."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
import statistics
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from ringest.bench.result import UNUSED_BYTES, Document, Latency, Round, Row

NONE = "\N{EN DASH}"  # where there is no figure
MAX_NAME = 80  # characters of a name that are shown
MAX_COMMAND = 1000  # of a command, which may be given again
MAX_METRICS = 12  # of a workload's own, as columns
MAX_COMMANDS = 20  # of one folder
MAX_UNLIKE = 4  # values of results in one folder that are shown
_LOCAL_PORT = re.compile(r"^(https?://(?:localhost|127\.0\.0\.1|\[::1\])):\d+")
# A quantile is shown where so many samples are expected beyond it.
SAMPLES_BEYOND = 1
QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999))
# Objects as large as this are judged by the CPU time of their bytes, smaller ones by that of each.
LARGE_BYTES = 1 << 20


def name(text: Any) -> str:
    """Any text of a document, as it may be shown: one line, of a bounded length, that no control character changes."""
    return _bounded(text, MAX_NAME)


def _bounded(text: Any, most: int) -> str:
    shown = line(str(text)[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def line(text: Any) -> str:
    """The same of any length: what others have sent cannot drive a terminal."""
    return "".join("\N{REPLACEMENT CHARACTER}" if _is_control(each) else each for each in str(text))


def lines(text: Any) -> str:
    """The same, whose lines stay: of a traceback."""
    return "\n".join(line(each) for each in str(text).split("\n"))


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def number(value: float | None) -> str:
    """With three digits at least, and thousands apart."""
    if value is None or not math.isfinite(value):
        return NONE
    size = abs(value)
    if size >= 1e15 or 0 < size < 1e-4:
        return f"{value:.2e}"
    if size >= 100:
        return f"{value:,.0f}"
    if 0 < size < 0.1:
        return f"{value:#.3g}"
    return f"{value:.{1 if size >= 10 else 2 if size >= 1 else 3}f}" if size else "0"


def per(value: float | None, count: float | None, scale: float = 1) -> float | None:
    """The part of each, or None if there is none."""
    if value is None or count is None or count <= 0:
        return None
    try:
        found = value / count * scale
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def quantile(latency: Latency | None, share: float) -> float | None:
    """In ns: the bound of the bucket with the sample of that rank, None if there are too few samples to tell."""
    total = latency.total if latency else 0
    if latency is None or total * (1 - share) < SAMPLES_BEYOND * (1 - 1e-9):
        return None
    rank, seen = max(1, math.ceil(total * share - 1e-9)), 0
    for bound, count in latency.counts:
        seen += count
        if seen >= rank:
            return float(bound if latency.max is None else min(bound, latency.max))
    return None


def merged_latency(rounds: Iterable[Round]) -> Latency | None:
    """Of all rounds together."""
    found = [each.latency for each in rounds if each.latency and each.latency.total]
    counts: dict[int, int] = {}
    for each in found:
        for bound, count in each.counts:
            counts[bound] = counts.get(bound, 0) + count
    highest = [each.max for each in found if each.max is not None]
    most = max(highest) if found and len(highest) == len(found) else None
    return Latency(sorted(counts.items()), max=most, origin=found[0].origin) if found else None


@dataclass(frozen=True)
class Measure:
    """`better` is 1 where more is better, -1 where less is, 0 where neither is. A change of one that `counts` says that
    something got faster or slower."""

    name: str
    unit: str
    of: Callable[[Round], float | None]
    better: int = -1
    counts: bool = False

    @property
    def title(self) -> str:
        return f"{self.name}, {self.unit}" if self.unit else self.name

    def values(self, row: Row) -> list[float]:
        found = (self.of(each) for each in row.rounds)
        return [each for each in found if each is not None]


def _latency(share: float) -> Callable[[Round], float | None]:
    return lambda each: per(quantile(each.latency, share), 1e6)


def _wire(each: Round) -> float | None:
    """Both ways: a workload may read and write, and what each of them asked for is in the bytes. So is what it had read
    ahead when its time was over."""
    received, sent = each.wire_received_bytes, each.wire_sent_bytes
    if received is None or sent is None or each.bytes is None:
        return None
    return per(float(received + sent), each.bytes + each.metrics.get(UNUSED_BYTES, 0))


RATE = Measure("rate", "operations/s", lambda each: per(each.operations, each.seconds), better=1, counts=True)
THROUGHPUT = Measure("throughput", "MB/s", lambda each: per(each.bytes or None, each.seconds, 1e-6), better=1)
CPU_EACH = Measure("CPU", "µs/operation", lambda each: per(each.cpu_seconds, each.operations, 1e6), counts=True)
CPU_BYTES = Measure("CPU", "s/GB", lambda each: per(each.cpu_seconds, each.bytes, 1e9))
LATENCIES = tuple(Measure(each, "ms", _latency(share), counts=each in ("p50", "p99")) for each, share in QUANTILES)
FIRST = Measure("first answer", "ms", lambda each: per(each.time_to_first_seconds, 1, 1e3))
MEMORY = Measure("peak memory", "MiB", lambda each: per(each.peak_rss_bytes, 1 << 20))
WIRE = Measure("wire bytes for each byte", "", _wire)
ERRORS = Measure("errors", "", lambda each: float(each.errors))
MEASURES = (RATE, THROUGHPUT, CPU_EACH, CPU_BYTES, *LATENCIES, FIRST, MEMORY, WIRE)


@dataclass(frozen=True)
class Summary:
    median: float
    low: float
    high: float
    count: int

    def text(self) -> str:
        shown = number(self.median)
        return shown if self.count == 1 else f"{shown} ({number(self.low)} to {number(self.high)})"


def summary(values: list[float]) -> Summary | None:
    if not values:
        return None
    return Summary(statistics.median(values), min(values), max(values), len(values))


def key(row: Row) -> tuple[str, str, str]:
    """What makes two rows the same: workload, client and parameters."""
    return row.workload, row.client, json.dumps(row.parameters, sort_keys=True)


@dataclass(frozen=True)
class Joined(Row):
    """Of several results; `runs` says how many rounds are of each, in their order."""

    runs: tuple[int, ...] = ()

    def by_run(self) -> list[Row]:
        ends = list(itertools.accumulate(self.runs))
        return [replace(self, rounds=self.rounds[end - count : end]) for end, count in zip(ends, self.runs)]


@dataclass(frozen=True)
class Together(Document):
    """Of several results, `parts`; `unlike` says in what they differ though they are taken as one, such as ("CPU", "a, b")."""

    unlike: tuple[tuple[str, str], ...] = ()
    parts: tuple[Document, ...] = ()


def joined(documents: list[Document]) -> Document:
    """Of results that belong together: rows that are the same are one, with the rounds of all. The first one says where
    it was measured, and `unlike` where others were."""
    rows: dict[tuple[str, str, str], Joined] = {}
    for row in (each for document in documents for each in document.rows):
        known = rows.get(key(row)) or Joined(row.workload, row.client, row.parameters)
        rows[key(row)] = replace(
            known,
            rounds=known.rounds + row.rounds,
            error=known.error or row.error,
            runs=(*known.runs, len(row.rounds)),
        )
    first = {each.name: getattr(documents[0], each.name) for each in fields(Document)}
    return Together(**{**first, "rows": list(rows.values())}, unlike=tuple(_unlike(documents)), parts=tuple(documents))


def places(document: Document) -> dict[str, str | None]:
    """What may make another figure of the same program, or is another program; None is what it does not say."""
    machine = document.machine
    told = {
        "CPU": machine.cpu,
        "number of CPUs": machine.cpus,
        "memory": memory(machine.memory_bytes),
        "kernel": machine.kernel,
        "hypervisor": machine.hypervisor,
        "server": _server(document),
        **{f"version of {name(each)}": version for each, version in document.versions.items()},
    }
    return {what: None if each is None else value(each) for what, each in told.items()}


def _server(document: Document) -> str | None:
    """On this machine a server, such as the emulator, has another port each time."""
    return document.server or re.sub(_LOCAL_PORT, r"\1", document.endpoint or "") or None


def _unlike(documents: list[Document]) -> Iterator[tuple[str, str]]:
    found = [places(each) for each in documents]
    for what in dict.fromkeys(what for each in found for what in each):
        values = list(dict.fromkeys(each.get(what) or "none" for each in found))
        if len(values) > 1:
            more = f", and {len(values) - MAX_UNLIKE:,} more" if len(values) > MAX_UNLIKE else ""
            yield what, ", ".join(values[:MAX_UNLIKE]) + more


@dataclass(frozen=True)
class Group:
    """The rows of one workload. `common` are the parameters that all of them have, `differing` the names of others."""

    workload: str
    rows: list[Row]
    common: dict[str, Any]
    differing: list[str]

    @property
    def title(self) -> str:
        return name(self.workload)

    @property
    def measured(self) -> list[Row]:
        return [row for row in self.rows if row.rounds]

    def label(self, row: Row) -> str:
        """The client, unless all rows are of one, and what parameters tell it from others."""
        told = parameters(row, self.differing)
        return ", ".join(told if told and len({each.client for each in self.rows}) == 1 else [name(row.client), *told])

    def measures(self) -> list[Measure]:
        """Those that any row has, with the workload's own behind."""
        own = list(dict.fromkeys(name for row in self.rows for each in row.rounds for name in each.metrics))
        all_of_them = [*MEASURES, *(_metric(each) for each in own[:MAX_METRICS]), ERRORS]
        return [each for each in all_of_them if any(each.values(row) for row in self.rows)]

    def is_large(self) -> bool:
        bytes_, operations = (
            sum(getattr(each, field) or 0 for row in self.rows for each in row.rounds)
            for field in ("bytes", "operations")
        )
        return (per(bytes_, operations) or 0) >= LARGE_BYTES


def _metric(own: str) -> Measure:
    return Measure(name(own), "", lambda each: each.metrics.get(own), better=0)


def parameters(row: Row, names: Iterable[str]) -> list[str]:
    """Words without the parameter's name: a scheme, a verb, an option's word say what they are."""
    told = [(each, row.parameters[each]) for each in names if each in row.parameters]
    return [value(each) if _is_word(each) else f"{name(key)} {value(each)}" for key, each in told]


def _is_word(of_parameter: Any) -> bool:
    return isinstance(of_parameter, str) and of_parameter != "" and " " not in of_parameter


def value(of_parameter: Any) -> str:
    if isinstance(of_parameter, float) and of_parameter.is_integer() and abs(of_parameter) < 1e15:
        of_parameter = int(of_parameter)
    if isinstance(of_parameter, int) and not isinstance(of_parameter, bool) and abs(of_parameter) < 10**15:
        return f"{of_parameter:,}"
    return name(of_parameter if isinstance(of_parameter, str) else json.dumps(of_parameter, sort_keys=True))


def groups(document: Document) -> list[Group]:
    workloads: dict[str, list[Row]] = {}
    for row in document.rows:
        workloads.setdefault(row.workload, []).append(row)
    return [_group(workload, rows) for workload, rows in workloads.items()]


def _group(workload: str, rows: list[Row]) -> Group:
    names = list(dict.fromkeys(name for row in rows for name in row.parameters))
    texts = {each: {json.dumps(row.parameters.get(each, _Missing), default=str) for row in rows} for each in names}
    common = {each: rows[0].parameters[each] for each in names if len(texts[each]) == 1}
    return Group(workload, rows, common, [each for each in names if each not in common])


class _Missing:
    """A parameter that a row has not."""


def memory(size: int | None) -> str | None:
    return None if size is None else f"{number(size / (1 << 30))} GiB"


def ended(row: Row) -> str:
    """How a row with an error did."""
    if row.is_lacking:
        return name(row.error)
    return f"{'did not end' if row.is_interrupted else 'failed'}: {name(row.error)}"


def _hypervisor(told: str | None) -> str:
    return "one whose name is not known" if told == "unknown" else name(told or "")


def about(document: Document) -> list[tuple[str, str]]:
    """Where and with what it was measured."""
    parts = document.parts if isinstance(document, Together) else (document,)
    machine = document.machine
    cpus = None if machine.cpus is None else f"{machine.cpus:,} CPUs"
    told = [
        ("measured", _from_to([each.made for each in parts])),
        ("machine", ", ".join(name(each) for each in (machine.cpu, cpus, memory(machine.memory_bytes)) if each)),
        ("kernel", name(machine.kernel or "")),
        ("hypervisor", _hypervisor(machine.hypervisor)),
        ("endpoint", name(document.endpoint or "")),
        ("server", _bounded(document.server or "", MAX_COMMAND)),
        ("versions", ", ".join(f"{name(each)} {name(version)}" for each, version in document.versions.items())),
        *(("command", each) for each in _commands(parts)),
    ]
    unlike = document.unlike if isinstance(document, Together) else ()
    return [*((what, text) for what, text in told if text), *(("not the same", f"{w}: {t}") for w, t in unlike)]


def _from_to(times: list[str]) -> str:
    first, last = name(min(times)), name(max(times))
    return first if first == last else f"{first} to {last}"


def _commands(parts: Iterable[Document]) -> list[str]:
    """Those that only write to other files are one, which a loop has given again."""
    different: dict[str, list[str]] = {}
    for part in parts:
        different.setdefault(shlex.join(_without_result(part.command)), part.command)
    shown = [_bounded(shlex.join(command), MAX_COMMAND) for command in different.values()]
    left = len(shown) - MAX_COMMANDS
    return shown if left <= 0 else [*shown[:MAX_COMMANDS], f"and {left:,} more"]


def _without_result(command: list[str]) -> list[str]:
    return [
        word
        for i, word in enumerate(command)
        if not word.startswith("--result=") and "--result" not in (word, command[i - 1] if i else "")
    ]


def scaling(group: Group) -> tuple[str, dict[str, list[tuple[float, Row]]]] | None:
    """The parameter along which to draw rates, and for each line of them its points; None where there are no three
    values of any. The lines are clients, with what else differs."""
    for each in group.differing:
        others = [other for other in group.differing if other != each]
        lines: dict[str, dict[float, Row]] = {}
        for row in group.measured:
            at = row.parameters.get(each)
            if isinstance(at, (int, float)) and not isinstance(at, bool) and abs(at) < 1e15 and RATE.values(row):
                line = replace(group, differing=others).label(row)
                lines.setdefault(line, {})[float(at)] = row
        curves = {line: sorted(points.items()) for line, points in lines.items() if len(points) >= 3}
        if curves:
            return each, {line: list(points) for line, points in curves.items()}
    return None


def middle_round(row: Row) -> Round | None:
    """The round whose rate is the median: it stands for the row where only one can."""
    rounds = sorted((each for each in row.rounds if each.series), key=lambda each: RATE.of(each) or 0)
    return rounds[len(rounds) // 2] if rounds else None


def phases(row: Row) -> list[tuple[str, float]]:
    """Each phase with the median of its seconds over the rounds."""
    found: dict[str, list[float]] = {}
    for each in row.rounds:
        for phase in each.phases:
            found.setdefault(phase.name, []).append(phase.seconds)
    return [(name(phase), statistics.median(seconds)) for phase, seconds in found.items()]
