"""A report as a page: one file that asks for nothing, not even by scripts, on light and dark screens and on paper.

It is built as a tree, whose texts are escaped when it is written, so that no name of a result becomes markup; the
policy at its head forbids a browser whatever could come from elsewhere."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from ringest.bench import figures, markdown, plots
from ringest.bench.changes import Comparison
from ringest.bench.figures import Group
from ringest.bench.result import Document

# Of so many workloads there are plots; tables show all.
MAX_PLOTTED = 12
# Of a comparison: the rows whose measures are in tables, too. All have their sentence.
MAX_TABLES = 100
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_VERDICTS = {1: "better", -1: "worse", 0: ""}


def element(tag: str, *inside: Element | str, **attributes: str) -> Element:
    """`class_` stands for class."""
    made = Element(tag, {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()})
    for each in inside:
        if isinstance(each, Element):
            made.append(each)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + each
        else:
            made.text = (made.text or "") + each
    return made


def _page(title: str, body: Iterable[Element]) -> str:
    style = importlib.resources.files("ringest.bench").joinpath("page.css").read_text("utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", style),
    )
    page = element("html", head, element("body", element("main", *body)), lang="en")
    return "<!DOCTYPE html>\n" + ElementTree.tostring(page, encoding="unicode", method="html") + "\n"


def _about(document: Document) -> Element:
    told = [each for what, text in figures.about(document) for each in (element("dt", what), element("dd", text))]
    return element("dl", *told)


def _figure(title: str, plot: Element, class_: str = "") -> Element:
    made = element("figure", element("h3", title), plot)
    if class_:
        made.set("class", class_)
    return made


def _table(what: str, head: Iterable[str], lines: Iterable[Element]) -> Element:
    columns = element("tr", *(_above(each) for each in head))
    table = element("table", element("thead", columns), element("tbody", *lines))
    # With arrow keys, too, it is moved where it is wider than the page.
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=what)


def _above(title: str) -> Element:
    """The head of a column, with the unit below it, or what is in brackets."""
    name, _, unit = title.removesuffix(")").replace(" (", ", ", 1).partition(", ")
    return element("th", name, *([element("span", unit)] if unit else []), scope="col")


def _below(text: str) -> Element:
    """A figure, and what is in brackets behind it, below."""
    figure, _, rest = text.partition(" (")
    return element("td", figure, *([element("span", rest.removesuffix(")"))] if rest else []))


def _spread(found: figures.Summary | None) -> Element:
    """The median, and below it from where to where the rounds go."""
    if found is None:
        return element("td", figures.NONE)
    if found.count == 1:
        return element("td", figures.number(found.median))
    between = f"{figures.number(found.low)} {figures.NONE} {figures.number(found.high)}"
    return element("td", figures.number(found.median), element("span", between))


def _rows(group: Group) -> Element:
    measures = group.measures()
    lines = []
    for row in group.rows:
        line = element("tr", element("td", group.label(row)), element("td", markdown.rounds(row)))
        has_figures = bool(row.rounds) or row.is_lacking
        if has_figures:
            line.extend(_spread(figures.summary(each.values(row))) for each in measures)
        lines.append(line)
        if row.error is not None:
            text = element("span", figures.ended(row))
            class_ = "failed lacking" if row.is_lacking else "failed"
            failed = element("td", text, class_=class_, colspan=str(len(measures) + 1))
            if has_figures:
                lines.append(element("tr", element("td", ""), failed))
            else:
                line.remove(line[1])
                line.append(failed)
    return _table(f"figures of {group.title}", ["client", "rounds", *(each.title for each in measures)], lines)


def _group(group: Group, palette: plots.Palette, is_plotted: bool) -> list[Element]:
    said = [element("h2", group.title)]
    if group.common:
        said.append(element("p", f"With {', '.join(figures.parameters(group.rows[0], group.common))}.", class_="soft"))
    drawn = plots.of_group(group, palette) if is_plotted else []
    if drawn:
        said.append(element("div", *(_figure(title, plot) for title, plot in drawn), class_="plots"))
    said.append(_rows(group))
    said += _left_out(group, is_plotted)
    return said


def _left_out(group: Group, is_plotted: bool) -> list[Element]:
    """What the plots do not show."""
    if not group.measured:
        return []
    if not is_plotted:
        return [element("p", f"Only the first {MAX_PLOTTED:,} workloads have plots.", class_="soft")]
    if len(group.measured) > plots.MAX_LINES:
        text = (
            f"Plots show the first {plots.MAX_LINES:,} lines and {plots.MAX_BARS:,} bars of {len(group.rows):,} rows."
        )
        return [element("p", text, class_="soft")]
    return []


def one(document: Document) -> str:
    said = [element("h1", "Benchmark"), _about(document)]
    groups = figures.groups(document)
    text = "Figures are medians of rounds; below them, the lowest and the highest." if groups else "No rows."
    said.append(element("p", text, class_="soft"))
    palette = plots.Palette([row.client for row in document.rows])
    for place, group in enumerate(groups):
        said += _group(group, palette, place < MAX_PLOTTED)
    return _page("Benchmark", said)


def _changes(comparison: Comparison) -> list[Element]:
    said = []
    for row in [each for each in comparison.rows if each.changes][:MAX_TABLES]:
        lines = []
        for change, cells in zip(row.changes, markdown.changes(row.changes)):
            line = element("tr", element("td", cells[0]), *map(_below, cells[1:]))
            if change.is_beyond_noise and _VERDICTS[change.verdict]:
                line[-1].set("class", _VERDICTS[change.verdict])
            lines.append(line)
        said += [element("h3", row.label), _table(f"changes of {row.label}", markdown.CHANGE_HEAD, lines)]
    return said


def compared(comparison: Comparison) -> str:
    said = [element("h1", "Benchmark: what changed")]
    sentences = [element("li", row.sentence()) for row in comparison.rows]
    said.append(element("ul", *sentences) if sentences else element("p", markdown.NOTHING_IN_COMMON))
    notes = [
        *comparison.notes,
        *(f"only before: {each}" for each in comparison.only_before),
        *(f"only after: {each}" for each in comparison.only_after),
    ]
    if notes:
        said += [element("h2", "Not the same"), element("ul", *(element("li", each) for each in notes))]
    drawn = [(each.title, plots.of_changes(comparison.rows, each)) for each in plots.COMPARED]
    shown = [_figure(title, plot, "wide") for title, plot in drawn if plot is not None]
    if shown:
        said += [element("h2", "Changes"), element("div", *shown, class_="plots")]
        if len(comparison.rows) > plots.MAX_BARS:
            said.append(element("p", f"Plots show the first {plots.MAX_BARS:,} rows.", class_="soft"))
    said += _changes(comparison)
    for what, document in (("Before", comparison.before), ("After", comparison.after)):
        said += [element("h2", what), _about(document)]
    return _page("Benchmark: what changed", said)
