"""A report as Markdown that is also read as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ringest.bench import figures
from ringest.bench.changes import CONFIDENCE, Change, Comparison
from ringest.bench.figures import Group
from ringest.bench.result import Document, Row

# What begins something in Markdown, wherever it stands; underscores do so at the ends of words.
_SPECIAL = re.compile(r"[\\`*\[\]<>|~#]|&(?=[#\w])|\b_|_\b")


def escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", text)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The first column is text, the others are figures."""
    lines = [[escaped(each) for each in row] for row in [head, *rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    shown = [
        "| " + " | ".join(f"{each:{'<' if not i else '>'}{widths[i]}}" for i, each in enumerate(line)) + " |"
        for line in lines
    ]
    rule = "|" + "|".join("-" * (width + 1) + ("-" if not i else ":") for i, width in enumerate(widths)) + "|"
    return [shown[0], rule, *shown[1:], ""]


def cells(group: Group) -> tuple[list[str], list[list[str]], list[tuple[str, str]]]:
    """A workload's table: its head, a line for each row, and (row, why) of those that failed, did not end or are of no
    client for it."""
    measures = group.measures()
    head = ["client", "rounds", *(each.title for each in measures)]
    lines, failed = [], []
    for row in group.rows:
        found = [figures.summary(each.values(row)) for each in measures]
        if row.error is not None:
            failed.append((group.label(row), figures.ended(row)))
        lines.append([group.label(row), rounds(row), *(each.text() if each else figures.NONE for each in found)])
    return head, lines, failed


def rounds(row: Row) -> str:
    return figures.NONE if row.is_lacking else f"{len(row.rounds):,}"


def _group(group: Group) -> list[str]:
    head, lines, failed = cells(group)
    said = [f"## {escaped(group.title)}", ""]
    if group.common:
        said += [escaped(f"With {', '.join(figures.parameters(group.rows[0], group.common))}."), ""]
    said += table(head, lines)
    said += [escaped(f"{label} {why}") + "\n" for label, why in failed]
    return said


def one(document: Document) -> str:
    said = ["# Benchmark", ""]
    said += [f"- {what}: {escaped(text)}" for what, text in figures.about(document)] + [""]
    groups = figures.groups(document)
    if not groups:
        said += ["The result has no rows.", ""]
    else:
        said += ["Figures are medians of rounds, with the lowest and the highest.", ""]
    for group in groups:
        said += _group(group)
    return "\n".join(said)


NOTHING_IN_COMMON = "The results have no row in common: none has the same workload, client and parameters in both."


def compared(comparison: Comparison) -> str:
    said = ["# Benchmark: what changed", ""]
    for what, document in (("before", comparison.before), ("after", comparison.after)):
        told = "; ".join(f"{name} {text}" for name, text in figures.about(document) if name in ("measured", "versions"))
        said.append(f"- {what}: {escaped(told)}")
    said += [f"- note: {escaped(each)}" for each in comparison.notes]
    said += [f"- only before: {escaped(each)}" for each in comparison.only_before]
    said += [f"- only after: {escaped(each)}" for each in comparison.only_after]
    said += [""]
    said += [f"- {escaped(row.sentence())}" for row in comparison.rows] or [NOTHING_IN_COMMON]
    said += [""]
    for row in comparison.rows:
        if row.changes:
            said += [f"## {escaped(row.label)}", ""] + table(CHANGE_HEAD, changes(row.changes))
    return "\n".join(said)


CHANGE_HEAD = ("measure", "before", "after", f"after / before ({CONFIDENCE * 100:.0f} % interval)", "beyond noise")
_VERDICTS = {1: "better", -1: "worse", 0: "changed"}


def changes(found: Iterable[Change]) -> list[list[str]]:
    return [
        [
            each.measure.title,
            each.before.text(),
            each.after.text(),
            each.text(),
            _VERDICTS[each.verdict] if each.is_beyond_noise else "no" if each.is_judged else figures.NONE,
        ]
        for each in found
    ]
