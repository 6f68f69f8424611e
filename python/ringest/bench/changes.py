"""Whether one result is slower than another: row by row, with an interval of what noise between rounds allows.

The interval is that of the Mann-Whitney test, turned round: all ratios of a round of the one to a round of the other are
sorted, and as many are cut off at both ends as chance explains. It holds exactly whatever the distribution is, needs at
least five rounds of each to say anything, and says so.

Rounds of one run have in common what else the machine did meanwhile. So where there are enough runs, as results in a folder, the
median of each counts, and not its rounds."""

from __future__ import annotations

import functools
import math
import statistics
from dataclasses import dataclass

from ringest.bench import figures
from ringest.bench.figures import (
    MEASURES,
    MEMORY,
    NONE,
    Joined,
    Measure,
    Summary,
    Together,
    key,
    name,
    number,
    parameters,
    per,
    summary,
    value,
)
from ringest.bench.result import Document, Row

# Of one figure. A row has five: so it is called changed without a change in one of twenty at most.
CONFIDENCE = 0.99
# More are thinned out evenly: the pairs of all would be too many.
MAX_ROUNDS = 200
# From here on the normal distribution is as good as the exact one, if the other result has some rounds, too.
MAX_EXACT, FEW = 30, 12
BETWEEN_RUNS = (
    "what changed may be the machine: rounds of one run tell nothing of what lies between runs; compare two folders of five runs "
    "or more each, made in turns"
)
SIZE = Measure("size", "bytes", lambda each: per(each.bytes or None, each.operations), better=0)
# Of sizes that differ among the objects of one bucket, the mean of what a round had differs a little.
SAME_SIZE = 0.02
SHOWN = tuple(each for each in MEASURES if each.counts or each is MEMORY)


@functools.cache
def _arrangements(first: int, second: int) -> list[int]:
    """How many orders of so many values of two kinds have U pairs in which one of the first kind is above."""
    counts = [1]
    for i in range(1, first + 1):
        # Times (1 - x^(second + i)) / (1 - x^i): the next Gaussian binomial coefficient.
        grown = counts + [0] * second
        for u in range(second + i, len(grown)):
            grown[u] -= counts[u - second - i] if u - second - i < len(counts) else 0
        for u in range(i, len(grown)):
            grown[u] += grown[u - i]
        counts = grown
    return counts


def cut(first: int, second: int, confidence: float = CONFIDENCE) -> int:
    """How many of the sorted pairs lie outside of the interval at each end; 0 if there are too few to tell."""
    allowed = (1 - confidence) / 2
    first, second = sorted((first, second))
    if second > MAX_EXACT and first > FEW:
        mean, deviation = first * second / 2, math.sqrt(first * second * (first + second + 1) / 12)
        return max(0, math.floor(mean + statistics.NormalDist().inv_cdf(allowed) * deviation))
    counts, seen = _arrangements(first, second), 0
    for u, count in enumerate(counts):
        seen += count
        if seen > allowed * math.comb(first + second, first):
            return u
    return 0


def _thinned(values: list[float]) -> list[float]:
    step = max(1, math.ceil(len(values) / MAX_ROUNDS))
    return values[::step]


def interval(before: list[float], after: list[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Of the ratio of `after` to `before`; None if these are too few rounds. All are above zero."""
    before, after = _thinned(before), _thinned(after)
    outside = cut(len(before), len(after), confidence)
    if outside == 0:
        return None
    ratios = sorted(a / b for a in after for b in before)
    return ratios[outside - 1], ratios[-outside]


@dataclass(frozen=True)
class Change:
    """Of one measure of one row. `ratio` is that of the medians, None where there is none; `low` and `high` are None
    where there are too few rounds to tell it from noise."""

    measure: Measure
    before: Summary
    after: Summary
    ratio: float | None
    low: float | None = None
    high: float | None = None
    by_run: bool = False  # the interval knows what lies between runs, too

    @property
    def is_judged(self) -> bool:
        return self.low is not None

    @property
    def is_beyond_noise(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 1 or self.high < 1)

    @property
    def verdict(self) -> int:
        """1 if it is better beyond noise, -1 if worse, else 0."""
        if not self.is_beyond_noise or self.ratio is None:
            return 0
        return self.measure.better if self.ratio > 1 else -self.measure.better

    @property
    def worse_percent(self) -> float:
        """By how much time or cost grew: half the rate is 100 % more time for each."""
        if self.ratio is None:
            return 0.0
        return 100 * ((self.ratio if self.measure.better < 0 else 1 / self.ratio) - 1)

    def text(self) -> str:
        """The ratio with its interval."""
        if self.ratio is None:
            return NONE
        if self.low is None:
            return f"{number(self.ratio)} (too few rounds to tell)"
        return f"{number(self.ratio)} ({number(self.low)} to {number(self.high)})"

    def phrase(self) -> str:
        if self.ratio is None:
            return f"{self.measure.name} cannot be compared"
        return f"{self.measure.name} {_percent(self.ratio)} ({_percent(self.low)} to {_percent(self.high)})"


def _percent(ratio: float | None) -> str:
    if ratio is None:
        return NONE
    if ratio > 3:
        return f"\N{MULTIPLICATION SIGN} {number(ratio)}"
    percent = 100 * (ratio - 1)
    return (
        f"{percent:+.1f} %".replace("-", "\N{MINUS SIGN}")
        if abs(percent) < 10
        else f"{percent:+.0f} %".replace("-", "\N{MINUS SIGN}")
    )


def _of_runs(measure: Measure, row: Row) -> list[float]:
    """The medians of those runs that have such a figure."""
    runs = row.by_run() if isinstance(row, Joined) else [row]
    return [each.median for each in (summary(measure.values(run)) for run in runs) if each is not None]


def _change(measure: Measure, before: Row, after: Row) -> Change | None:
    ours, theirs = measure.values(before), measure.values(after)
    first, second = summary(ours), summary(theirs)
    of_runs = _of_runs(measure, before), _of_runs(measure, after)
    by_run = cut(*map(len, of_runs)) > 0
    if by_run:
        ours, theirs = of_runs
    if first is None or second is None:
        return None
    if first.low <= 0 or second.low <= 0:
        return Change(measure, first, second, None)
    try:
        ratio, found = second.median / first.median, interval(ours, theirs)
    except OverflowError:
        return Change(measure, first, second, None)
    if not all(math.isfinite(each) and each > 0 for each in (ratio, *(found or ()))):
        return Change(measure, first, second, None)
    if found is None:
        return Change(measure, first, second, ratio)
    low, high = found
    # The ratio of the medians nearly always lies within; where it does not, the interval is made wider.
    return Change(measure, first, second, ratio, min(low, ratio), max(high, ratio), by_run)


@dataclass(frozen=True)
class Compared:
    """A row that both results have."""

    before: Row
    after: Row
    label: str
    changes: list[Change]

    @property
    def began_to_fail(self) -> bool:
        had_run = self.before.error is None or (self.before.is_interrupted and not self.after.is_interrupted)
        return self.after.error is not None and had_run

    @property
    def errors(self) -> tuple[int, int]:
        return sum(each.errors for each in self.before.rounds), sum(each.errors for each in self.after.rounds)

    def slower_percent(self) -> float:
        """By how much the worst of what got worse beyond noise did; 0 if nothing did."""
        worse = [each.worse_percent for each in self.changes if each.measure.counts and each.verdict < 0]
        return max(worse, default=0.0)

    def sentence(self) -> str:
        """What changed beyond noise."""
        return f"{self.label}: {self._told()}{self._told_errors()}."

    def _told(self) -> str:
        if self.before.error is not None or self.after.error is not None:
            return self._told_failure()
        beyond = [each for each in self.changes if each.is_beyond_noise]
        if beyond:
            verdicts = {each.verdict for each in beyond if each.measure.counts}
            said = {frozenset({1}): "faster: ", frozenset({-1}): "slower: "}.get(frozenset(verdicts), "changed: ")
            return said + ", ".join(each.phrase() for each in beyond)
        if any(each.is_judged for each in self.changes):
            return "no change beyond noise"
        rounds = f"{len(self.before.rounds)} and {len(self.after.rounds)} rounds"
        if self.changes and self.changes[0].ratio is not None:
            first = self.changes[0]
            return f"{rounds} are too few to tell a change from noise ({first.measure.name} {_percent(first.ratio)})"
        return f"nothing that can be compared, in {rounds}"

    def _told_failure(self) -> str:
        if self.after.is_lacking:
            return name(self.after.error)
        if self.before.is_lacking:
            now = "is measured" if self.after.error is None else f"fails ({name(self.after.error)})"
            return f"was not measured before ({name(self.before.error)}), and {now} now"
        if self.after.error is None:
            was = "did not end before" if self.before.is_interrupted else "failed before"
            return f"{was} ({name(self.before.error)}), and {'did' if self.before.is_interrupted else 'does not'} now"
        if self.after.is_interrupted:
            return f"did not end ({name(self.after.error)})"
        is_old = self.before.error is not None and not self.before.is_interrupted
        return f"{'fails as before' if is_old else 'fails'} ({name(self.after.error)})"

    def _told_errors(self) -> str:
        before, after = self.errors
        return f"; {before:,} errors before, {after:,} now" if before != after else ""


@dataclass(frozen=True)
class Comparison:
    before: Document
    after: Document
    rows: list[Compared]
    only_before: list[str]
    only_after: list[str]
    notes: list[str]

    @property
    def judged(self) -> list[Compared]:
        return [row for row in self.rows if any(each.is_judged for each in row.changes)]

    def failures(self, percent: float) -> list[str]:
        """What got slower by more than that beyond noise, or began to fail."""
        slower = [f"{row.label} got slower" for row in self.rows if row.slower_percent() > percent]
        return slower + [
            f"{row.label} {'did not end' if row.after.is_interrupted else 'fails'}"
            for row in self.rows
            if row.began_to_fail
        ]


def _labels(rows: list[Row]) -> list[str]:
    """Each with what tells it from others of its workload."""
    by_workload: dict[str, list[Row]] = {}
    for row in rows:
        by_workload.setdefault(row.workload, []).append(row)
    return [_label(row, by_workload[row.workload]) for row in rows]


def _label(row: Row, others: list[Row]) -> str:
    differing = [each for each in row.parameters if any(_differs(row, other, each) for other in others)]
    return ", ".join([name(row.workload), name(row.client), *parameters(row, differing)])


def _differs(row: Row, other: Row, parameter: str) -> bool:
    absent = object()
    return bool(row.parameters[parameter] != other.parameters.get(parameter, absent))


def compare(before: Document, after: Document) -> Comparison:
    ours, theirs = ({key(row): row for row in each.rows} for each in (before, after))
    common = [each for each in ours if each in theirs]
    rows = []
    for each, label in zip(common, _labels([ours[each] for each in common])):
        changes = [_change(measure, ours[each], theirs[each]) for measure in SHOWN]
        rows.append(Compared(ours[each], theirs[each], label, [change for change in changes if change is not None]))
    gone, new = ([side[each] for each in side if each not in common] for side in (ours, theirs))
    labels = _labels(gone + new)
    notes = [*_notes(before, after, gone, new), *filter(None, map(_other_sizes, rows))]
    if any(change.is_beyond_noise and not change.by_run for row in rows for change in row.changes):
        notes.append(BETWEEN_RUNS)
    return Comparison(before, after, rows, labels[: len(gone)], labels[len(gone) :], notes)


def _notes(before: Document, after: Document, gone: list[Row], new: list[Row]) -> list[str]:
    """What else differs, so that a change need not be one of the program."""
    ours, theirs = figures.places(before), figures.places(after)
    notes = [
        f"{what} differs: {ours.get(what) or 'none'} before, {theirs.get(what) or 'none'} after"
        for what in dict.fromkeys([*ours, *theirs])
        if ours.get(what) != theirs.get(what)
    ]
    for when, document in (("before", before), ("after", after)):
        unlike = document.unlike if isinstance(document, Together) else ()
        notes += [f"results {when} are not of the same {what}: {values}" for what, values in unlike]
    for row in gone:
        same = [other for other in new if (other.workload, other.client) == (row.workload, row.client)]
        if len(same) == 1:
            notes.append(f"{name(row.workload)}, {name(row.client)} has other parameters: {_other(row, same[0])}")
    return notes


def _other_sizes(row: Compared) -> str | None:
    """What is in a bucket is no parameter: operations of other sizes are other work under the same name."""
    ours, theirs = (summary(SIZE.values(each)) for each in (row.before, row.after))
    if ours is None or theirs is None or math.isclose(ours.median, theirs.median, rel_tol=SAME_SIZE):
        return None
    return (
        f"{row.label}: an operation had {number(ours.median)} bytes before, and has {number(theirs.median)} after: what was read or "
        "written is not the same"
    )


def _told(found: object) -> str:
    return "none" if found is None else value(found)


def _other(row: Row, other: Row) -> str:
    names = dict.fromkeys([*row.parameters, *other.parameters])
    return ", ".join(
        f"{name(each)} {_told(row.parameters.get(each))} before, {_told(other.parameters.get(each))} after"
        for each in names
        if row.parameters.get(each) != other.parameters.get(each)
    )
