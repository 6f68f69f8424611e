"""Shows a result as Markdown and as a page, or says what changed between two:

python3 -m ringest.bench report FILE [FILE] [--markdown FILE] [--html FILE] [--fail-above PERCENT]"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from typing import Any

from ringest.bench import changes, figures, markdown, result
from ringest.bench.changes import Comparison
from ringest.bench.result import Document, ResultError

FAILED = 1
# Results in one folder; each is a file to read.
MAX_FILES = 1000


def _percent(text: str) -> float:
    percent = float(text)
    if not (math.isfinite(percent) and percent >= 0):
        raise ValueError(text)
    return percent


# What argparse calls it in its messages.
_percent.__name__ = "number"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "before",
        metavar="FILE",
        help="a result; of a folder, all its *.json, whose equal rows are rounds of one; -: stdin",
    )
    parser.add_argument("after", metavar="FILE", nargs="?", help="what to compare with the first")
    parser.add_argument("--markdown", metavar="FILE", help="write Markdown there; by default to standard output")
    parser.add_argument("--html", metavar="FILE", help="write one page with plots there; needs matplotlib")
    parser.add_argument(
        "--fail-above",
        metavar="PERCENT",
        type=_percent,
        help="end with 1 if something got slower by more than that beyond noise, or fails now",
    )


def _by_numbers(name: str) -> list[Any]:
    """As people sort: 4 before 16."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split("([0-9]+)", name))]


def _read(path: str) -> Document:
    if not os.path.isdir(path):
        return figures.joined([result.read(path)])
    try:
        names = sorted((each for each in os.listdir(path) if each.endswith(".json")), key=_by_numbers)
    except OSError as error:
        raise ResultError(f"{path}: cannot be read: {error.strerror}") from None
    if not names:
        raise ResultError(f"{path}: has no *.json; benchmarks write some with --result")
    if len(names) > MAX_FILES:
        raise ResultError(f"{path}: has {len(names):,} files, at most {MAX_FILES:,} are read")
    return figures.joined([result.read(os.path.join(path, each)) for each in names])


def _write(options: argparse.Namespace, found: Document | Comparison) -> None:
    """The page first: where matplotlib is missing, nothing is written."""
    if options.html is not None:
        from ringest.bench import page

        result.write_text(options.html, page.one(found) if isinstance(found, Document) else page.compared(found))
    if options.markdown is not None or options.html is None:
        text = markdown.one(found) if isinstance(found, Document) else markdown.compared(found)
        result.write_text(options.markdown or "-", text)


def _judge(comparison: Comparison, percent: float) -> int:
    """The exit status for --fail-above, which must not pass because nothing was compared."""
    failures = comparison.failures(percent)
    judged = len(comparison.judged)
    if not judged and not failures:
        print(
            "ringest bench report: nothing can be told from noise: no row is in both results with enough rounds;"
            " measure five or more of each",
            file=sys.stderr,
        )
        return FAILED
    if judged < len(comparison.rows):
        print(f"ringest bench report: {judged:,} of {len(comparison.rows):,} rows can be judged", file=sys.stderr)
    for each in failures:
        print(f"ringest bench report: {each}", file=sys.stderr)
    return FAILED if failures else 0


def main(options: argparse.Namespace) -> int:
    before = _read(options.before)
    if options.after is None:
        if options.fail_above is not None:
            raise ResultError("--fail-above needs two results to compare")
        _write(options, before)
        return 0
    comparison = changes.compare(before, _read(options.after))
    _write(options, comparison)
    return 0 if options.fail_above is None else _judge(comparison, options.fail_above)
