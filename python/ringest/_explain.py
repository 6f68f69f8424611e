"""Why a step of a loop over a dataset took as long as it did. What is said is the library's (dataset/causes.h), and the
program's, too (`ringest explain`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ringest import _core


class Explanation(NamedTuple):
    """Where the time of the last steps went; str() is for people. All times are in seconds."""

    steps: int
    seconds: float  # of these steps together
    consumer: float  # of these: between getting a batch and asking for the next one
    wait: float  # the rest: from asking for a batch until it was there
    parts: Mapping[str, float]  # of the wait, by its cause; "other" is what has none
    loops_busy: float  # which part of a CPU each of the client's threads has used since the iteration began
    attributed: float  # which part of the wait has a known cause, 0 to 1
    advice: str  # a sentence
    text: str  # all of that, for people

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON, without the text."""
        found = {**self._asdict(), "parts": dict(self.parts)}
        del found["text"]
        return found

    def __str__(self) -> str:
        return f"{self.text}\n{self.advice}"


def explain(reader: _core.Reader, steps: int, ahead: str) -> Explanation:
    """Of the last steps of its iteration. `ahead` names the option that limits how much is read ahead."""
    count, consumer, wait, parts, busy, attributed, advice, text = reader.explain(steps, ahead)
    return Explanation(count, consumer + wait, consumer, wait, parts, busy, attributed, advice, text)
