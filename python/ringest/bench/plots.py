"""The plots of a report, as SVG in whose place colours are names of the page's style sheet: one plot serves a light page
and a dark one.

Needs matplotlib. A plot shows MAX_LINES lines; tables have the rest."""

from __future__ import annotations

import io
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from ringest._needs import needs
from ringest.bench import figures
from ringest.bench.changes import CONFIDENCE, Change, Compared
from ringest.bench.figures import Group, Measure
from ringest.bench.result import Round, Row

with needs("a page with plots", "matplotlib"):
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

MAX_LINES = 8
MAX_BARS = 24
MAX_LABEL = 42
WIDTH_IN = 5.6
# A row of bars, and a line of a legend.
BAR_IN, LEGEND_IN = 0.27, 0.19
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
    """A logarithmic axis with round numbers at its ticks, few or many decades."""
    low, high = min(values), max(values)
    decades = math.log10(high / low) if high > low else 0
    steps = (1, 2, 5) if decades < 3 else (1,)
    ticks = [
        step * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for step in steps
    ]
    axis.set_major_locator(FixedLocator(ticks[:: 1 + len(ticks) // 12]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_plain))


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
    """Each round a mark, and the median a line."""
    rows = [row for row in group.measured if any(figures.RATE.values(row))][:MAX_BARS]
    if not rows:
        return None
    figure, axes = _figure(0.9 + BAR_IN * len(rows))
    for place, row in enumerate(rows):
        values = figures.RATE.values(row)
        found = figures.summary(values)
        colour = palette.colour(row)
        axes.plot(values, [place] * len(values), "o", color=colour, markersize=5, alpha=0.45, markeredgewidth=0)
        if found is not None:
            axes.plot([found.median] * 2, [place - 0.32, place + 0.32], color=colour, linewidth=2.4)
            axes.annotate(
                figures.number(found.median), (found.high, place), (7, 0), textcoords="offset points", va="center"
            )
    _bars(axes, [group.label(row) for row in rows])
    axes.set_xlabel("operations/s, and their median")
    axes.set_xlim(0, 1.15 * max(value for row in rows for value in figures.RATE.values(row)))
    return _svg(figure, f"rates of {group.title}")


def _bars(axes: Any, labels: list[str]) -> None:
    axes.set_yticks(range(len(labels)), [_short(each) for each in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.locator_params(axis="x", nbins=6)


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
            axes.plot(*zip(*points), label=_short(group.label(row)), **style)
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
    figure, axes = _figure(1.2 + BAR_IN * len(rows))
    for place, (row, (user, system)) in enumerate(zip(rows, heights)):
        colour = palette.colour(row)
        axes.barh(place, user, 0.62, color=colour, linewidth=0)
        axes.barh(place, system, 0.62, left=user, color=colour, alpha=0.45, linewidth=0)
        axes.annotate(
            figures.number(user + system), (user + system, place), (5, 0), textcoords="offset points", va="center"
        )
    colour = palette.colour(rows[0]) if len({row.client for row in rows}) == 1 else INK
    axes.bar(0, 0, color=colour, linewidth=0, label="user")
    axes.bar(0, 0, color=colour, alpha=0.45, linewidth=0, label="system")
    _bars(axes, [group.label(row) for row in rows])
    axes.set_xlim(0, 1.15 * max(map(sum, heights)))
    axes.set_xlabel("client CPU time, s/GB" if large else "client CPU time, µs/operation")
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
        axes.errorbar(
            xs, medians, spread, marker=mark, markersize=5, elinewidth=1, capsize=2.5, label=_short(label), **style
        )
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
        axes.plot(*zip(*_rates_over_time(row)), label=_short(group.label(row)), **style, drawstyle="steps-pre")
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
    names = list(dict.fromkeys(phase for _, found in rows for phase, _ in found))[:MAX_LINES]
    figure, axes = _figure(1.3 + BAR_IN * len(rows))
    ends = [0.0] * len(rows)
    for phase, colour in zip(names, SERIES):
        widths = [dict(found).get(phase, 0.0) for _, found in rows]
        axes.barh(
            range(len(rows)), widths, 0.62, ends, color=colour, edgecolor=BACK, linewidth=0.8, label=_short(phase)
        )
        ends = [end + width for end, width in zip(ends, widths)]
    _bars(axes, [group.label(row) for row, _ in rows])
    axes.set_xlabel("seconds, medians of rounds")
    _legend(figure, axes)
    return _svg(figure, f"phases of {group.title}")


PLOTS: Sequence[tuple[str, Callable[[Group, Palette], Drawn | None]]] = (
    ("Rate", rates),
    ("Latency", latencies),
    ("CPU time", cpu),
    ("Scaling", scaling),
    ("Over time", series),
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
        figure, axes = _figure(1.0 + BAR_IN * len(found))
        ends = [1.0]
        for place, (_, change) in enumerate(found):
            ratio = change.ratio or 1
            low, high = change.low or ratio, change.high or ratio
            ends += [low, high]
            colour = {1: SERIES[2], -1: SERIES[1], 0: INK}[change.verdict]
            axes.plot([low, high], [place, place], color=colour, linewidth=1.6, solid_capstyle="butt")
            mark = {"markerfacecolor": colour if change.is_judged else "none", "markeredgecolor": colour}
            axes.plot([ratio], [place], "o", markersize=6, **mark)
        _bars(axes, [label for label, _ in found])
        if max(ends) > 3 * min(ends):
            axes.set_xscale("log")
            _log(axes.xaxis, ends)
        axes.axvline(1, color=INK, linewidth=1, zorder=0)
        axes.set_xlabel(f"{measure.title}: after / before, with the {CONFIDENCE * 100:.0f} % interval")
        return _svg(figure, f"changes of {measure.name}")
