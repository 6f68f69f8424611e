"""Operations of FileSystem, written once for callers that wait and for callers that await.

An operation is a generator. It yields the requests that it needs, one (Call) or many at once (Many), is sent what they
gave, and returns its result. run() makes the requests and waits for them; arun() awaits them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple, TypeVar

from ringest.client import Client

T = TypeVar("T")

# Requests of one operation that are out at once.
_REQUESTS_AT_ONCE = 64


class Call(NamedTuple):
    """One request: a method of Client. It gives what that returns, or raises in the generator."""

    name: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any] = {}


class Many(NamedTuple):
    """Requests that are made at once. They give (tag, result, error) of each, as they end; `take` is what becomes of a
    result at once, so that memory is given back."""

    calls: list[tuple[Any, str, tuple[Any, ...], dict[str, Any]]]
    take: Callable[[Any], Any] = lambda result: result


Outcomes = list[tuple[Any, Any, Exception | None]]
Steps = Generator[Call | Many, Any, T]


def run(client: Client, steps: Steps[T]) -> T:
    try:
        step = next(steps)
        while True:
            try:
                given = _make(client, step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(given)
    except StopIteration as end:
        return end.value


def _make(client: Client, step: Call | Many) -> Any:
    if isinstance(step, Call):
        return getattr(client, step.name)(*step.arguments, **step.keywords)
    bulk = client._bulk(step.calls, _REQUESTS_AT_ONCE)
    return [(tag, step.take(result) if error is None else None, error) for tag, result, error in bulk]


async def arun(client: Client, steps: Steps[T]) -> T:
    try:
        step = next(steps)
        while True:
            try:
                given = await (_acall(client, *step) if isinstance(step, Call) else _amake(client, step))
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(given)
    except StopIteration as end:
        return end.value


async def _acall(client: Client, name: str, arguments: Iterable[Any], keywords: dict[str, Any]) -> Any:
    # What is written is the caller's memory, so that a cancelled call ends first.
    return await client._channel().call(name, *arguments, ends_first=name == "put", **keywords)


async def _amake(client: Client, many: Many) -> Outcomes:
    outcomes: Outcomes = []
    calls = iter(many.calls)

    async def work() -> None:
        for tag, name, arguments, keywords in calls:
            try:
                outcomes.append((tag, many.take(await _acall(client, name, arguments, keywords)), None))
            except Exception as error:
                outcomes.append((tag, None, error))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(_REQUESTS_AT_ONCE, len(many.calls))):
            group.create_task(work())
    return outcomes
