"""Requests and samples that are awaited. The completion queue's eventfd wakes the event loop; no thread waits.

A Channel is one completion queue of one event loop, opened with the first request of a client in
that loop and closed with the client, or when the loop is gone."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from ringest import _core

# Requests of one event loop that are out at once; more wait for their turn.
CAPACITY = 4096
# Where the client, which others use too, has no room; and how often memory is looked after at least.
_PAUSE_S = 0.001
_WAIT_S = 0.25

# Guards the channels of all clients.
_lock = threading.Lock()


def _forget_lock() -> None:
    # The parent may have held it.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def _closed() -> ValueError:
    return ValueError("the client was closed")


async def _wait_for_all(*futures: asyncio.Future) -> None:
    """However often the task is cancelled meanwhile. What they raise is nobody's any more."""
    while any(not future.done() for future in futures):
        try:
            await asyncio.wait(futures)
        except asyncio.CancelledError:
            pass
    for future in futures:
        if not future.cancelled():
            future.exception()


class Channel:
    """Used by the loop's thread only, except for close. Must not refer to the event loop, which would then never be
    collected."""

    def __init__(self, client: _core.Client, loop: asyncio.AbstractEventLoop):
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
        is_idle = len(self._queue) == 0 and not self._waiting
        if not self.is_closed and not self._is_looked_after and not is_idle:
            self._is_looked_after = True
            asyncio.get_running_loop().call_later(_WAIT_S, self._look)

    def _take(self) -> None:
        if self.is_closed:
            return
        try:
            outcomes = self._queue.take()
        except ValueError:
            if self.is_closed:  # by what ran within it, which has told who waits
                return
            raise
        for future, result, error in outcomes:
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        self._give_turns()

    def _give_turns(self) -> None:
        room = CAPACITY - len(self._queue)
        while self._waiting and room > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                room -= 1

    async def _room(self, loop: asyncio.AbstractEventLoop) -> None:
        if len(self._queue) == 0:
            await asyncio.sleep(_PAUSE_S)
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            self._give_turns()  # it may have been given one, which is another's now
            raise

    async def call(self, name: str, *arguments: Any, ends_first: bool = False, **keywords: Any) -> Any:
        """A call of the client's by its name. `ends_first`: when it is cancelled, it is over before this returns, since
        it reads or writes memory of the caller's."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        while True:
            if self.is_closed:
                raise _closed()
            ticket = self._queue.submit(future, name, *arguments, **keywords)
            if ticket is not None:
                break
            await self._room(loop)
        self._look_later()
        try:
            # What is shielded goes on to its end, which is waited for.
            return await (asyncio.shield(future) if ends_first else future)
        except asyncio.CancelledError:
            self._queue.cancel(ticket)
            if ends_first:
                await _wait_for_all(future)
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
                    future.set_exception(_closed())
        self._waiting.clear()


class Channels:
    """Those of one client: one for each event loop. Any thread."""

    def __init__(self) -> None:
        self._of: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Channel] = weakref.WeakKeyDictionary()
        self._pid = os.getpid()
        self._is_closed = False

    def get(self, client: _core.Client) -> Channel:
        loop = asyncio.get_running_loop()
        with _lock:
            if self._pid != os.getpid():  # those of the parent are its own
                self._of, self._pid = weakref.WeakKeyDictionary(), os.getpid()
            channel = self._of.get(loop)
            gone = [] if channel is not None else self._take_closed_loops()
        for closed, left in gone:
            left.close(closed)
        if channel is None or channel.is_closed:
            channel = Channel(client, loop)
            with _lock:
                self._of[loop] = channel
            if self._is_closed:  # meanwhile
                channel.close(loop)
        return channel

    def _take_closed_loops(self) -> list[tuple[asyncio.AbstractEventLoop, Channel]]:
        closed = [(loop, channel) for loop, channel in self._of.items() if loop.is_closed()]
        for loop, _ in closed:
            del self._of[loop]
        return closed

    def close(self) -> None:
        """From any thread: a loop that runs in another one does it itself."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        with _lock:
            self._is_closed = True
            channels = list(self._of.items()) if self._pid == os.getpid() else []
            self._of = weakref.WeakKeyDictionary()
        for loop, channel in channels:
            if loop is not here and loop.is_running():
                try:
                    loop.call_soon_threadsafe(channel.close, loop)
                    continue
                except RuntimeError:
                    pass  # it was closed meanwhile
            channel.close(loop)


async def put_many(
    channel: Channel, objects: Iterable[tuple[str, Any]], requests: int, said: dict[str, str | None]
) -> tuple[dict[int, int], list[Exception]]:
    """Generations by their numbers, and what could not be written. said: of all of them, as of put. What `objects` raises ends all of it."""
    numbered = enumerate(objects)
    generations: dict[int, int] = {}
    errors: list[Exception] = []
    raised: list[BaseException] = []

    async def work() -> None:
        while not raised:
            try:
                index, (uri, data) = next(numbered)
            except StopIteration:
                return
            except BaseException as error:
                raised.append(error)
                raise
            try:
                generations[index] = await channel.call("put", uri, data, ends_first=True, **said)
            except Exception as error:
                errors.append(error)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(requests):
                group.create_task(work())
    except BaseExceptionGroup:
        if raised:
            raise raised[0] from None
        raise
    return generations, errors


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


class Wake:
    """Wakes who awaits samples of a reader that was started.

    It belongs to the event loop in which it is first waited for, and to that loop's thread. It has a descriptor of its
    own for what the reader's says: whatever becomes of the reader, the loop watches no number that is another file's."""

    def __init__(self, reader: _core.Reader) -> None:
        self._reader = reader
        self._pid = os.getpid()
        self._fd = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._future: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def wait(self) -> asyncio.Future[None]:
        """Until the reader is to be polled again, which it is now and then: that ends a wait for memory that lasts for
        too long."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._fd = os.dup(self._reader.fileno())
            self._loop = loop
            loop.add_reader(self._fd, self._read)
        elif self._loop is not loop:
            raise RuntimeError("this iteration belongs to another event loop: begin one in this loop")
        self._tell()
        self._future = loop.create_future()
        if self._timer is None:  # one for many waits, which mostly are short
            self._timer = loop.call_later(_WAIT_S, self._look)
        return self._future

    def _look(self) -> None:
        self._timer = None
        self._tell()

    def _read(self) -> None:
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            pass
        self._tell()

    def _tell(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def _leave(self, fd: int) -> None:
        assert self._loop is not None
        self._loop.remove_reader(fd)
        os.close(fd)
        if self._timer is not None:
            self._timer.cancel()
        self._tell()

    def close(self) -> None:
        """By any thread, since a garbage collector may be what closes. Who waits is told."""
        loop, fd, self._fd = self._loop, self._fd, -1
        if loop is None or fd < 0:
            return
        if loop.is_closed() or self._pid != os.getpid():  # what the parent's loop watches is its own
            os.close(fd)
            return
        if loop.is_running() and asyncio._get_running_loop() is not loop:
            try:
                loop.call_soon_threadsafe(self._leave, fd)
                return
            except RuntimeError:
                pass  # it was closed meanwhile
        self._leave(fd)


class AsyncWriter:
    """A stream into one object, awaited: what Client.writer gives, for an event loop.

    Calls are made by threads of the loop's executor, since they may wait for room. One call at a time. Cancelling one
    ends the stream, of which nothing is published; that is waited for, so that `data` is the caller's again."""

    def __init__(self, writer: _core.Writer) -> None:
        self._writer = writer

    def _begin_abort(self) -> asyncio.Future[None]:
        """By a thread of its own: those of the executor may all be waiting for room."""
        with_one = concurrent.futures.ThreadPoolExecutor(1, "ringest-abort")
        try:
            return asyncio.get_running_loop().run_in_executor(with_one, self._writer.abort)
        finally:
            with_one.shutdown(wait=False)

    async def _call(self, call: Callable[..., Any], *arguments: Any) -> Any:
        turn = threading.Lock()  # of whoever is first: a thread that calls, or what cancels before that

        def call_in_turn() -> Any:
            return call(*arguments) if turn.acquire(blocking=False) else None

        running = asyncio.get_running_loop().run_in_executor(None, call_in_turn)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            never_begins = turn.acquire(blocking=False)
            await _wait_for_all(*(() if never_begins else (running,)), self._begin_abort())
            raise

    async def write(self, data: Any) -> int:
        """Takes all of any contiguous bytes-like object, when there is room. One that raises ends the stream."""
        return await self._call(self._writer.write, data)

    async def finish(self) -> dict[str, Any]:
        """Publishes the object; what Writer.finish says of it."""
        return await self._call(self._writer.finish)

    async def abort(self) -> None:
        """Ends the upload and removes what it left; nothing after finish, or again."""
        aborting = self._begin_abort()
        try:
            await asyncio.shield(aborting)
        except asyncio.CancelledError:
            await _wait_for_all(aborting)
            raise

    @property
    def size(self) -> int:
        """Bytes written."""
        return self._writer.size

    @property
    def ended(self) -> bool:
        """True after finish, abort or a failure."""
        return self._writer.ended

    async def __aenter__(self) -> AsyncWriter:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        """Left by an exception it is aborted, otherwise finished."""
        if exception[0] is not None:
            await self.abort()
        else:
            await self._call(self._writer.__exit__, *exception)
