"""Requests that are awaited. The completion queue's eventfd wakes the event loop; no thread waits.

A Channel is one completion queue of one event loop, opened with the first request of a client in
that loop and closed with the client, or when the loop is gone."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from ringest import _core

# Requests of one event loop that are out at once; more wait for their turn.
CAPACITY = 4096
# Where the client, which others use too, has no room; and how often memory is looked after at least.
_PAUSE_S = 0.001
_WAIT_S = 0.25


class Channel:
    """Must not refer to the event loop, which would then never be collected."""

    def __init__(self, client: _core.Client, loop: asyncio.AbstractEventLoop):
        self.pid = os.getpid()
        self._queue = _core.Queue(client, CAPACITY)
        self._waiting: deque[asyncio.Future] = deque()
        self._fd = self._queue.fileno()
        self._is_looked_after = False
        self.is_closed = False
        loop.add_reader(self._fd, self._take)

    def _look(self) -> None:
        """While requests are out: taking is what ends those that wait for memory for too long."""
        self._is_looked_after = False
        self._take()
        self._look_later()

    def _look_later(self) -> None:
        if not self.is_closed and not self._is_looked_after and len(self._queue) > 0:
            self._is_looked_after = True
            asyncio.get_running_loop().call_later(_WAIT_S, self._look)

    def _take(self) -> None:
        if self.is_closed:
            return
        for future, result, error in self._queue.take():
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        for _ in range(min(len(self._waiting), CAPACITY - len(self._queue))):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    async def _room(self, loop: asyncio.AbstractEventLoop) -> None:
        if len(self._queue) == 0:
            await asyncio.sleep(_PAUSE_S)
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    async def call(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        while (ticket := self._queue.submit(future, name, *arguments, **keywords)) is None:
            await self._room(loop)
        self._look_later()
        try:
            return await future
        except asyncio.CancelledError:
            self._queue.cancel(ticket)
            raise

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """By the loop's thread, or when it does not run. Ends what is out."""
        if self.is_closed:
            return
        self.is_closed = True
        if not loop.is_closed():
            loop.remove_reader(self._fd)
        left = self._queue.close()
        if not loop.is_closed():
            for future in (*left, *self._waiting):
                if not future.done():
                    future.set_exception(ValueError("the client was closed"))
        self._waiting.clear()


class Channels:
    """Those of one client: one for each event loop."""

    def __init__(self) -> None:
        self._of: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Channel] = weakref.WeakKeyDictionary()

    def get(self, client: _core.Client) -> Channel:
        loop = asyncio.get_running_loop()
        channel = self._of.get(loop)
        if channel is None or channel.is_closed or channel.pid != os.getpid():
            self._forget_closed_loops()
            channel = self._of[loop] = Channel(client, loop)
        return channel

    def _forget_closed_loops(self) -> None:
        for loop, channel in list(self._of.items()):
            if loop.is_closed():
                del self._of[loop]
                channel.close(loop)

    def close(self) -> None:
        """From any thread: a loop that runs in another one does it itself."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        for loop, channel in list(self._of.items()):
            if channel.pid != os.getpid():
                continue
            if loop is not here and loop.is_running():
                loop.call_soon_threadsafe(channel.close, loop)
            else:
                channel.close(loop)
        self._of.clear()


async def batches(many: _core.GetMany) -> AsyncIterator[list[_core.Item]]:
    """The lists of a get_many, awaited."""
    loop = asyncio.get_running_loop()
    descriptor = many.fileno()
    ready = asyncio.Event()

    def wake() -> None:
        # Read, so that the loop is not woken again and again while the caller does something else.
        try:
            os.eventfd_read(descriptor)
        except BlockingIOError:
            pass
        ready.set()

    loop.add_reader(descriptor, wake)
    try:
        while True:
            ready.clear()
            items = many.poll()
            if items is None:
                try:
                    await asyncio.wait_for(ready.wait(), _WAIT_S)
                except TimeoutError:
                    pass
            elif items is False:
                await asyncio.sleep(_PAUSE_S)
            elif items:
                yield items
            else:
                return
    finally:
        loop.remove_reader(descriptor)
        many.close()
