"""Whole numbers that are given: what the extension says of its own (python/core/numbers.c)."""

from __future__ import annotations

import operator
from typing import Any

BYTES_MAX = 2**63 - 1


def _text(number: int) -> str:
    for bits in (63, 64):
        if number == 2**bits - 1:
            return f"2**{bits} - 1"
    return str(number)


def flag(value: Any, name: str) -> bool:
    """True or False, also as 1 or 0. Nothing else: "no" would be true."""
    if isinstance(value, str | bytes) or not any(value is known or value == known for known in (True, False)):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def whole(value: Any, name: str, low: int, high: int) -> int:
    """The number, which is one and within its bounds."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if not low <= number <= high:
        raise ValueError(f"{name} must be {_text(low)} to {_text(high)}, got {number}")
    return number
