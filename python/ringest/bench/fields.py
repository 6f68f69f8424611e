"""Keys of a preset's tables: dataclasses whose fields say what values they take, and what is wrong with others."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ringest.client import parse_size

T = TypeVar("T")
COUNT_MAX = 10**12


class Wrong(Exception):
    """Of a key: its name within the file, and what is wrong."""


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _field(parse: Callable[[Any], Any], allowed: str, default: Any) -> Any:
    return dataclasses.field(default=default, metadata={"parse": parse, "allowed": allowed})


def count(default: Any = dataclasses.MISSING, *, lowest: int = 1, highest: int = COUNT_MAX) -> Any:
    def parse(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise ValueError
        return value

    return _field(parse, f"a whole number from {lowest:,} to {highest:,}", default)


def size(default: Any = dataclasses.MISSING, *, lowest: int = 0) -> Any:
    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError
        found = parse_size(value, "size")
        if found < lowest:
            raise ValueError
        return found

    return _field(parse, f'bytes, {lowest:,} or more, such as 4096 or "64MiB"', default)


def number(default: Any = dataclasses.MISSING, *, highest: float = 86400.0) -> Any:
    def parse(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= highest:
            raise ValueError  # NaN, too
        return float(value)

    return _field(parse, f"a number from 0 to {highest:g}", default)


def flag(default: Any = dataclasses.MISSING) -> Any:
    def parse(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError
        return value

    return _field(parse, "true or false", default)


def choice(allowed: Sequence[str], default: Any = dataclasses.MISSING) -> Any:
    def parse(value: Any) -> str:
        if value not in allowed:
            raise ValueError
        return str(value)

    return _field(parse, f"one of {', '.join(allowed)}", default)


def names(default: Any = dataclasses.MISSING) -> Any:
    def parse(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not value or not all(isinstance(each, str) and each for each in value):
            raise ValueError
        return tuple(value)

    return _field(parse, 'a list of names such as ["text"]', default)


def sizes(default: Any = dataclasses.MISSING) -> Any:
    """A table of sizes by names."""

    def parse(value: Any) -> dict[str, int]:
        if not isinstance(value, dict) or not value:
            raise ValueError
        found = {}
        for name, each in value.items():
            if isinstance(each, bool) or not isinstance(each, int | str):
                raise ValueError
            found[name] = parse_size(each, name)
        return found

    return _field(parse, 'a table of bytes by names, such as {text = "4KiB"}', default)


def refuse_unknown(place: str, given: Any, known: list[str]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f', did you mean "{near[0]}"?' if near else "."
            raise Wrong(f"{place}{name}: is not a key here{meant} Allowed: {', '.join(known)}")


def parse_table(kind: type[T], given: Any, place: str) -> T:
    """The table of that name as a dataclass `kind`."""
    if not isinstance(given, dict):
        raise Wrong(f"{place}: must be a table, is {_shown(given)}")
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    refuse_unknown(f"{place}.", given, [each.name for each in fields])
    found = {}
    for each in fields:
        here = f"{place}.{each.name}"
        if each.name not in given:
            if each.default is dataclasses.MISSING:
                raise Wrong(f"{here}: is missing; must be {each.metadata['allowed']}")
            continue
        try:
            found[each.name] = each.metadata["parse"](given[each.name])
        except (ValueError, TypeError):
            raise Wrong(f"{here}: must be {each.metadata['allowed']}, is {_shown(given[each.name])}") from None
    return kind(**found)


def scaled_count(number_of: int, scale: float, lowest: int) -> int:
    """So many of them, at least `lowest` if there are that many."""
    return max(math.ceil(number_of * scale), min(number_of, lowest))
