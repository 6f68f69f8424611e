"""Reading all of an object that may be replaced at any moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ringest._errors import NotFoundError

if TYPE_CHECKING:
    from ringest import _core
    from ringest._together_object import OwnObject, TogetherObject

T = TypeVar("T")

# How often it is begun again.
REPLACED_MAX = 3


def read(
    client: _core.Client | OwnObject | TogetherObject, uri: str, generation: int, take: Callable[[dict[str, Any]], T]
) -> T:
    """What `take` makes of an object's facts, by which it reads just that generation. Where the newest one is wanted
    (0) and was replaced meanwhile, that of the one which is the newest then."""
    facts = client.stat(uri, generation=generation)
    for _ in range(REPLACED_MAX):
        try:
            return take(facts)
        except NotFoundError:
            now = client.stat(uri, generation=generation)
            if now["generation"] == facts["generation"]:
                raise
            facts = now
    return take(facts)
