"""progress=: a bar of tqdm, where that is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ringest._log import logger

T = TypeVar("T")


def _bar(progress: bool | str, what: str, total: int | None) -> Any:
    if not progress:
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        logger.warning("progress= shows nothing: tqdm is not installed (pip install tqdm)")
        return None
    return tqdm(total=total, unit=" objects", desc=progress if isinstance(progress, str) else what)


@contextmanager
def advancing(progress: bool | str, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Gives the function to call with how many more there are; False as `progress` shows nothing."""
    bar = _bar(progress, what, total)
    if bar is None:
        yield lambda count: None
        return
    with bar:
        yield bar.update


def counting(batches: Iterable[list[T]], progress: bool | str, what: str, total: int | None) -> Iterator[list[T]]:
    """The same batches, with a bar that counts what is in them."""
    with advancing(progress, what, total) as advance:
        for batch in batches:
            yield batch
            advance(len(batch))


def length(things: Any) -> int | None:
    """The length of what has one; None otherwise."""
    return len(things) if hasattr(things, "__len__") else None
