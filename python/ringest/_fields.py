"""Fields of HTTP and parameters of URLs that are given as a mapping."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\r\n\0]*")


def texts(given: Any, what: str) -> dict[str, str]:
    """A copy of a mapping of str; None is an empty one. Values are not shown: they may be secrets."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} must be a dict of str or None, got one of type {type(given).__name__}")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"{what} must be a dict of str, and has {name!r} of type {type(value).__name__}")
    return dict(given)


def fields(given: Any) -> dict[str, str]:
    """The same of fields of HTTP."""
    headers = texts(given, "headers")
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError(f"headers has {name!r}, which with its value is no field of HTTP: a name, and one line")
    return headers
