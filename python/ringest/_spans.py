"""Spans of what takes long, for whoever wants to be told: see ringest.opentelemetry.spans."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

# name, attributes, whether what is called in it belongs to it.
Begin = Callable[[str, Mapping[str, Any], bool], contextlib.AbstractContextManager[Any]]

_begin: Begin | None = None


def tell(begin: Begin | None) -> None:
    """From now on, spans begin by calling it. None: there are none."""
    global _begin
    _begin = begin


def span(name: str, *, is_current: bool = True, **attributes: Any) -> contextlib.AbstractContextManager[Any]:
    """For a `with`, which is the span. A generator's is not current: its caller runs in between."""
    return _begin(name, attributes, is_current) if _begin is not None else contextlib.nullcontext()


def spanned(name: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Each call of the function is a span; an argument `uri` is told."""

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            if _begin is None:
                return function(*args, **kwargs)
            arguments = inspect.signature(function).bind_partial(*args, **kwargs).arguments
            told = {"ringest.uri": str(arguments["uri"])} if "uri" in arguments else {}
            with _begin(name, told, True):
                return function(*args, **kwargs)

        return call

    return decorate
