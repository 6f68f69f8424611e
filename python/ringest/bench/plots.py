"""The plots of a report, as SVG in whose place colours are names of the page's style sheet: one plot serves a light page
and a dark one.

Needs matplotlib. A plot shows MAX_LINES lines; tables have the rest."""

from __future__ import annotations

import io
import itertools
import math
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from ringest._needs import needs
from ringest.bench import figures
from ringest.bench.changes import CONFIDENCE, Change, Compared
from ringest.bench.figures import Group, Measure
from ringest.bench.result import Latency, Round, Row

with needs("a page with plots", "matplotlib"):
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

MAX_LINES = 8
MAX_BARS = 24
MAX_LABEL = 42
# Of the name of a bar, which is broken into two where it is longer.
MAX_LINE = 24
# Narrow, so that texts can be read where a page is as narrow as a phone.
WIDTH_IN = 4.5
# A row of bars, one whose name has two lines, and a line of a legend.
BAR_IN, TALL_BAR_IN, LEGEND_IN = 0.27, 0.34, 0.19
# Stand-ins that the page replaces by its variables; no two are the same, and nothing else is drawn in them.
INK, GRID, BACK = "#010101", "#020202", "#030303"
# As many as the page's style sheet has; told apart by colour-blind readers, too (Okabe and Ito, without their yellow).
SERIES = [f"#04040{i}" for i in range(MAX_LINES)]
VARIABLES = {INK: "--ink", GRID: "--grid", BACK: "--back", **{each: f"--series-{i}" for i, each in enumerate(SERIES)}}
DASHES = ["solid", (0, (5, 2)), (0, (1, 1.3)), (0, (6, 1.5, 1, 1.5))]
MARKS = "osD^vPX*"
# By names of matplotlib, which its types list one by one.
STYLE: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "svg.fonttype": "none",
    "text.parse_math": False,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}
Drawn = ElementTree.Element
# What names a mark begins so; the rest is what a browser shows where the pointer rests on it.
TIP = "tip "
# The measures whose changes are drawn.
COMPARED = tuple(each for each in figures.MEASURES if each.counts)
_serial = itertools.count()


def _short(text: str) -> str:
    """Without its middle: ends tell rows apart."""
    half = MAX_LABEL // 2
    return text if len(text) <= MAX_LABEL else text[: half - 1] + "…" + text[-half:]


def _plain(value: float, _: Any = None) -> str:
    """On an axis: without more digits than it needs."""
    if abs(value) >= 1e15 or 0 < abs(value) < 1e-4:
        return f"{value:.0e}"
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"


def _lines(label: str) -> str:
    """In two lines where one would leave little for the bars."""
    if len(label) <= MAX_LINE:
        return label
    lines = textwrap.wrap(label, max(MAX_LINE, len(label) // 2 + 4), break_on_hyphens=False, break_long_words=False)
    if len(lines) > 2 or max(map(len, lines)) > MAX_LABEL * 2 // 3:
        text = _short(label)
        lines = [text[: MAX_LABEL // 2], text[MAX_LABEL // 2 :]]
    return "\n".join(lines)


def _tip(artists: Any, text: str) -> None:
    """What is said of marks where the pointer rests on them."""
    for each in artists:
        each.set_gid(TIP + text)


def _svg(figure: Figure, what: str) -> Drawn:
    """As an element for a page: no names of its own that others may have, nothing that refers outside."""
    canvas, text = FigureCanvasSVG(figure), io.StringIO()
    with warnings.catch_warnings():
        # The page's font has the letters that the one for measuring lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        canvas.print_svg(text, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    root = ElementTree.fromstring(text.getvalue())
    prefix = f"plot-{next(_serial)}-"
    for parent in list(root.iter()):
        for child in list(parent):
            if isinstance(child.tag, str) and child.tag.endswith("}metadata"):
                parent.remove(child)
    for each in root.iter():
        each.tag = each.tag.rpartition("}")[2]
        tip = each.attrib.get("id", "")
        if tip.startswith(TIP):
            title = ElementTree.Element("title")
            title.text = tip.removeprefix(TIP)
            each.insert(0, title)
            del each.attrib["id"]
        each.attrib = {key.rpartition("}")[2]: _own(key, value, prefix) for key, value in each.attrib.items()}
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.attrib.update({"role": "img", "aria-label": what})
    return root


def _own(key: str, text: str, prefix: str) -> str:
    if key == "id":
        return prefix + text
    if key.endswith("}href"):
        return "#" + prefix + text.removeprefix("#")
    if key == "style":
        for colour, variable in VARIABLES.items():
            text = text.replace(colour, f"var({variable})")
    return text.replace("url(#", f"url(#{prefix}")


def _log(axis: Any, values: Sequence[float]) -> None:
    """A logarithmic axis with round numbers at its ticks, of which two at least are seen, few or many decades."""
    low, high = min(values), max(values)
    decades = math.log10(high / low) if high > low else 0
    steps = next(
        (each for most, each in ((0.7, range(1, 10)), (1.5, (1, 2, 5)), (2.5, (1, 3))) if decades < most), (1,)
    )
    every = 1 + int(decades) // 8
    first = math.floor(math.log10(low)) // every * every
    last = min(math.ceil(math.log10(high)) + every, 307)
    ticks = [float(f"{step}e{power}") for power in range(first, last + 1, every) for step in steps]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_plain))
    if sum(low <= each <= high for each in ticks) < 2:
        below = max(each for each in ticks if each <= low * 1.001)
        limits = below, min((each for each in ticks if each > max(below, high * 0.999)), default=high)
        (axis.axes.set_ylim if axis.axis_name == "y" else axis.axes.set_xlim)(limits)


def _figure(height_in: float = 3.1) -> tuple[Figure, Any]:
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    return figure, figure.subplots()


def _legend(figure: Figure, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if len(handles) > 1:
        columns = 1 if max(map(len, labels)) > 18 else min(3, len(handles))
        figure.set_figheight(figure.get_figheight() + LEGEND_IN * math.ceil(len(handles) / columns))
        figure.legend(handles, labels, loc="outside upper left", ncols=columns)
    elif labels:
        axes.set_title(labels[0], loc="left", fontsize=9)


class Palette:
    """The same colour for a client in all plots of a page; rows of one client differ in their dashes and marks."""

    def __init__(self, clients: Sequence[str]) -> None:
        self._colours = {client: SERIES[i % len(SERIES)] for i, client in enumerate(dict.fromkeys(clients))}

    def colour(self, row: Row) -> str:
        return self._colours[row.client]

    def lines(self, rows: Sequence[Row]) -> Iterator[tuple[Row, dict[str, Any]]]:
        """Those that are drawn as lines. Where all are of one client, each has a colour of its own."""
        alone = len({row.client for row in rows}) == 1
        seen: dict[str, int] = {}
        for i, row in enumerate(rows[:MAX_LINES]):
            place = seen.setdefault(row.client, 0)
            seen[row.client] += 1
            colour = SERIES[i] if alone else self.colour(row)
            yield row, {"color": colour, "linestyle": DASHES[(i if alone else place) % len(DASHES)]}


def rates(group: Group, palette: Palette) -> Drawn | None:
    """Each round a mark, and the median a line and a number."""
    rows = [row for row in group.measured if any(figures.RATE.values(row))][:MAX_BARS]
    if not rows:
        return None
    figure, axes = _figure()
    for place, row in enumerate(rows):
        values = figures.RATE.values(row)
        found = figures.summary(values)
        colour = palette.colour(row)
        marks = axes.plot(values, [place] * len(values), "o", color=colour, markersize=5, alpha=0.45, markeredgewidth=0)
        if found is not None:
            marks += axes.plot([found.median] * 2, [place - 0.32, place + 0.32], color=colour, linewidth=2.4)
            _value(axes, place, found.median)
            _tip(marks, f"{group.label(row)}: {found.text()} operations/s")
    _bars(axes, [group.label(row) for row in rows], 0.9)
    axes.set_xlabel("operations/s; line and number: the median")
    axes.set_xlim(0, 1.05 * max(value for row in rows for value in figures.RATE.values(row)))
    return _svg(figure, f"rates of {group.title}")


def _value(axes: Any, place: int, value: float) -> None:
    """In a column of their own, where no mark is taken for what the number says."""
    axes.annotate(
        figures.number(value),
        (1, place),
        (8, 0),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        va="center",
        annotation_clip=False,
    )


def _bars(axes: Any, labels: list[str], others_in: float) -> None:
    """Names the rows, for which the figure becomes as high as it has to be; what else is in it takes others_in."""
    shown = [_lines(each) for each in labels]
    height = TALL_BAR_IN if any("\n" in each for each in shown) else BAR_IN
    axes.figure.set_figheight(others_in + height * len(labels))
    axes.set_yticks(range(len(labels)), shown)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.locator_params(axis="x", nbins=5)


def latencies(group: Group, palette: Palette) -> Drawn | None:
    """Latency against the percentile, whose axis stretches towards 100 %."""
    rows = [row for row in group.measured if figures.merged_latency(row.rounds)]
    if not rows:
        return None
    figure, axes = _figure(3.6)
    everything: list[float] = []
    for row, style in palette.lines(rows):
        latency = figures.merged_latency(row.rounds)
        nines = [each / 40 for each in range(4 * 40 + 1)]  # 0 is the least latency, 4 is 99.99 %
        found = [(each, figures.quantile(latency, 1 - 10.0**-each)) for each in nines]
        points = [(at, ns / 1e6) for at, ns in found if ns]
        if points:
            line = axes.plot(*zip(*points), label=_short(group.label(row)), **style)
            _tip(line, f"{group.label(row)}: {_quantiles(latency)}")
            everything += [ms for _, ms in points]
    if not everything:
        return None
    axes.set_yscale("log")
    _log(axes.yaxis, everything)
    axes.set_xticks([0, -math.log10(0.5), 1, 2, 3, 4], ["0", "50", "90", "99", "99.9", "99.99"])
    axes.set_xlim(0, 4.05)
    due = any((each.latency and each.latency.origin) == "scheduled" for row in rows for each in row.rounds)
    axes.set_xlabel("percentile of requests, all rounds together")
    axes.set_ylabel("latency, ms, from when it was due" if due else "latency, ms")
    _legend(figure, axes)
    return _svg(figure, f"latencies of {group.title}")


def _quantiles(latency: Latency | None) -> str:
    found = [(each, figures.quantile(latency, share)) for each, share in figures.QUANTILES]
    return ", ".join(f"{each} {figures.number(ns / 1e6)} ms" for each, ns in found if ns)


def cpu(group: Group, palette: Palette) -> Drawn | None:
    """User and system time, of each GB where objects are large, else of each operation."""
    large = group.is_large()

    def part(field: str) -> Measure:
        def of(each: Round) -> float | None:
            seconds = getattr(each, field)
            return figures.per(seconds, each.bytes, 1e9) if large else figures.per(seconds, each.operations, 1e6)

        return Measure(field, "", of)

    parts = [part("cpu_user_seconds"), part("cpu_system_seconds")]
    rows = [row for row in group.measured if all(each.values(row) for each in parts)][:MAX_BARS]
    found = [[figures.summary(each.values(row)) for each in parts] for row in rows]
    heights = [[each.median if each else 0.0 for each in both] for both in found]
    if not any(map(any, heights)):
        return None
    figure, axes = _figure()
    unit = "s/GB" if large else "µs/operation"
    for place, (row, (user, system)) in enumerate(zip(rows, heights)):
        colour, said = palette.colour(row), group.label(row)
        _tip(axes.barh(place, user, 0.62, color=colour, linewidth=0), f"{said}: user {figures.number(user)} {unit}")
        _tip(
            axes.barh(place, system, 0.62, left=user, color=colour, alpha=0.45, linewidth=0),
            f"{said}: system {figures.number(system)} {unit}",
        )
        _value(axes, place, user + system)
    colour = palette.colour(rows[0]) if len({row.client for row in rows}) == 1 else INK
    axes.bar(0, 0, color=colour, linewidth=0, label="user")
    axes.bar(0, 0, color=colour, alpha=0.45, linewidth=0, label="system")
    _bars(axes, [group.label(row) for row in rows], 1.0)
    axes.set_xlim(0, 1.05 * max(map(sum, heights)))
    axes.set_xlabel(f"client CPU time, {unit}")
    _legend(figure, axes)
    return _svg(figure, f"CPU time of {group.title}")


def scaling(group: Group, palette: Palette) -> Drawn | None:
    found = figures.scaling(group)
    if found is None:
        return None
    parameter, lines = found
    figure, axes = _figure()
    at: set[float] = set()
    drawn = list(itertools.islice(lines.items(), MAX_LINES))
    styles = [style for _, style in palette.lines([points[0][1] for _, points in drawn])]
    for (label, points), style, mark in zip(drawn, styles, MARKS):
        summaries = [(x, figures.summary(figures.RATE.values(row))) for x, row in points]
        known = [(x, each) for x, each in summaries if each]
        xs, medians = [x for x, _ in known], [each.median for _, each in known]
        spread = [[each.median - each.low for _, each in known], [each.high - each.median for _, each in known]]
        line = axes.errorbar(
            xs, medians, spread, marker=mark, markersize=5, elinewidth=1, capsize=2.5, label=_short(label), **style
        ).lines[0]
        _tip([line], f"{label}: " + ", ".join(f"{each.text()} at {_plain(x)}" for x, each in known))
        at.update(xs)
    if min(at) > 0 and max(at) >= 8 * min(at):
        axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sorted(at)[:: 1 + len(at) // 12]))
    axes.xaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(_plain))
    axes.set_ylim(bottom=0)
    axes.set_xlabel(_short(figures.name(parameter)))
    axes.set_ylabel("operations/s")
    _legend(figure, axes)
    return _svg(figure, f"rate of {group.title} by {figures.name(parameter)}")


def series(group: Group, palette: Palette) -> Drawn | None:
    """Of the round whose rate is the median."""
    rows = [row for row in group.measured if len(_rates_over_time(row)) > 2]
    if not rows:
        return None
    figure, axes = _figure()
    for row, style in palette.lines(rows):
        label = group.label(row)
        _tip(axes.plot(*zip(*_rates_over_time(row)), label=_short(label), **style, drawstyle="steps-pre"), label)
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds, in the round whose rate is the median")
    axes.set_ylabel("operations/s")
    _legend(figure, axes)
    return _svg(figure, f"rate of {group.title} over time")


def _rates_over_time(row: Row) -> list[tuple[float, float]]:
    middle = figures.middle_round(row)
    points, before = [], 0.0
    for each in middle.series if middle else ():
        rate = figures.per(each.operations, each.at_seconds - before)
        before = each.at_seconds
        if rate is not None:
            points.append((each.at_seconds, rate))
    return [(0.0, points[0][1]), *points] if points else []


def phases(group: Group, palette: Palette) -> Drawn | None:
    rows = [(row, figures.phases(row)) for row in group.measured]
    rows = [(row, found) for row, found in rows if len(found) > 1 and any(seconds for _, seconds in found)][:MAX_BARS]
    if not rows:
        return None
    names = list(dict.fromkeys(phase for _, found in rows for phase, _ in found))
    # What has no colour of its own is one part: without it a bar would be shorter than what it stands for.
    parts = [{each} for each in names[: MAX_LINES - 1]] + (
        [set(names[MAX_LINES - 1 :])] if len(names) >= MAX_LINES else []
    )
    figure, axes = _figure()
    ends = [0.0] * len(rows)
    for part, colour in zip(parts, SERIES):
        label = _short(min(part)) if len(part) == 1 else f"{len(part):,} more"
        widths = [sum(seconds for phase, seconds in found if phase in part) for _, found in rows]
        bars = axes.barh(range(len(rows)), widths, 0.62, ends, color=colour, edgecolor=BACK, linewidth=0.8, label=label)
        for bar, (row, _), width in zip(bars, rows, widths):
            _tip([bar], f"{group.label(row)}: {label} {figures.number(width)} s")
        ends = [end + width for end, width in zip(ends, widths)]
    _bars(axes, [group.label(row) for row, _ in rows], 1.1)
    axes.set_xlabel("seconds, medians of rounds")
    _legend(figure, axes)
    return _svg(figure, f"phases of {group.title}")


# Two that are about as high beside each other.
PLOTS: Sequence[tuple[str, Callable[[Group, Palette], Drawn | None]]] = (
    ("Rate", rates),
    ("CPU time", cpu),
    ("Latency", latencies),
    ("Over time", series),
    ("Scaling", scaling),
    ("Phases", phases),
)


def of_group(group: Group, palette: Palette) -> list[tuple[str, Drawn]]:
    with matplotlib.rc_context(STYLE):
        drawn = [(title, draw(group, palette)) for title, draw in PLOTS]
    return [(title, each) for title, each in drawn if each is not None]


def of_changes(rows: Sequence[Compared], measure: Measure) -> Drawn | None:
    """Ratios with their intervals about 1."""
    found: list[tuple[str, Change]] = []
    for row in rows:
        found += [(row.label, each) for each in row.changes if each.measure is measure and each.ratio is not None]
    found = found[:MAX_BARS]
    if not found:
        return None
    with matplotlib.rc_context(STYLE):
        figure, axes = _figure()
        ends = [1.0]
        for place, (label, change) in enumerate(found):
            ratio = change.ratio or 1
            low, high = change.low or ratio, change.high or ratio
            ends += [low, high]
            colour = {1: SERIES[2], -1: SERIES[1], 0: INK}[change.verdict]
            drawn = axes.plot([low, high], [place, place], color=colour, linewidth=1.6, solid_capstyle="butt")
            mark = {"markerfacecolor": colour if change.is_judged else "none", "markeredgecolor": colour}
            drawn += axes.plot([ratio], [place], "o", markersize=6, **mark)
            _tip(drawn, f"{label}: {figures.number(ratio)} ({figures.number(low)} to {figures.number(high)})")
        _bars(axes, [label for label, _ in found], 0.9)
        if max(ends) > 3 * min(ends):
            axes.set_xscale("log")
            _log(axes.xaxis, ends)
        axes.axvline(1, color=INK, linewidth=1, zorder=0)
        axes.set_xlabel(f"after / before, with the {CONFIDENCE * 100:.0f} % interval")
        return _svg(figure, f"changes of {measure.name}")
