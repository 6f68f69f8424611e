"""Samples: what a transform makes of an item, and what becomes of one that cannot be had."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, Final

from ringest._core import Item
from ringest._errors import Error
from ringest._log import logger

# A handler of errors is given the item, whose data is None where it could not be read, and the error.
OnError = str | Callable[[Item[Any], Exception], Any]

# What is wrong with one object, and not with the service, the credentials or this process: on_error="skip"
# leaves out nothing else.
_STATUSES_OF_OBJECTS = {"NOT_FOUND", "PRECONDITION", "BAD_REQUEST", "CHECKSUM", "RANGE", "TOO_LARGE"}

# So many one after the other are no longer single objects.
_SKIPPED_IN_A_ROW_MAX = 1000


class _Skip(enum.Enum):
    SKIP = "SKIP"

    def __repr__(self) -> str:
        return "ringest.SKIP"


# What a handler of errors returns to have the sample left out.
SKIP: Final = _Skip.SKIP


class TransformError(RuntimeError):
    """A transform raised; the message names the object, and __cause__ is what it raised."""


def check_transform(transform: Any) -> Any:
    if transform is not None and not callable(transform):
        raise TypeError(f"transform must be a function or None, got {transform!r}")
    return transform


def check_on_error(on_error: OnError) -> OnError:
    if not callable(on_error) and on_error not in ("raise", "skip"):
        raise ValueError(
            f"on_error must be 'raise', 'skip' or a function of an Item and an exception, got {on_error!r}"
        )
    return on_error


def _is_of_object(error: BaseException | None) -> bool:
    """Whether another object may well be had."""
    if isinstance(error, TransformError):
        error = error.__cause__
    if isinstance(error, Error):
        return error.status in _STATUSES_OF_OBJECTS
    return not isinstance(error, MemoryError)


def _let_go(error: BaseException) -> None:
    """What is left out shall not be kept in memory by the frames that failed."""
    found: BaseException | None = error
    seen: set[int] = set()  # one may be its own cause
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        found.__traceback__ = None
        # Left as it is: it may be what a caller is handling.
        found.__context__ = None
        found = found.__cause__


class Samples:
    """Makes samples of items; counts those it leaves out."""

    def __init__(self, convert: Callable[[Item[Any]], Any], on_error: OnError) -> None:
        self._convert = convert
        self._on_error = on_error
        self._in_a_row = 0
        self.skipped = 0
        self.last_error: Exception | None = None  # of what was left out

    def make(self, items: Iterable[Item[Any]]) -> list:
        """What becomes of each, without those that are left out. Raises what on_error does not settle."""
        if self._on_error == "raise":
            return [self._convert(item) for item in items]
        made = (self._make_one(item) for item in items)
        return [sample for sample in made if sample is not SKIP]

    def _make_one(self, item: Item[Any]) -> Any:
        try:
            sample = self._convert(item)
        except (Error, TransformError) as error:
            sample = self._settle(item, error)
        if sample is not SKIP:
            self._in_a_row = 0
        return sample

    def leave_out(self, error: Exception) -> None:
        """What was made of several items; raises the error where on_error does not settle it."""
        if self._on_error == "raise":
            raise error
        self._settle(None, error)

    def _settle(self, item: Any, error: Exception) -> Any:
        if callable(self._on_error):
            sample = self._on_error(item, error)
        else:
            self._check_skip(error)
            logger.warning("left out: %s", error)
            sample = SKIP
        if sample is SKIP:
            self.skipped += 1
            self.last_error = error
            _let_go(error)
        return sample

    def _check_skip(self, error: Exception) -> None:
        if not _is_of_object(error):
            error.add_note("on_error='skip' leaves out what is wrong with one object, which this may not be")
            raise error
        self._in_a_row += 1
        if self._in_a_row > _SKIPPED_IN_A_ROW_MAX:
            error.add_note(f"the {_SKIPPED_IN_A_ROW_MAX:,} samples before it were left out, too, by on_error='skip'")
            raise error
