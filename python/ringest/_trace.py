"""A trace of every request, for Perfetto and chrome://tracing, on the clock of torch's profiler."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple, TextIO

from ringest import _core
from ringest._log import logger
from ringest._numbers import whole

# What one event takes in memory.
_EVENT_BYTES = 128
_MEMORY_MAX = 2 << 30

# torch's profiler counts from the last multiple of so many seconds (a quarter of a year) of the epoch. With the same
# zero, events of both fit into one file.
_QUARTER_S = 7889238

# Numbers of threads that no system has: connections are shown as threads.
_FIRST_CONNECTION = 1 << 30

# What a connection is busy with for a request; everything else is waiting.
_ON_CONNECTION = {"first_byte", "body"}
_OPENING = {"connect", "proxy", "tls"}


class _Event(NamedTuple):
    at_ns: int
    took_ns: int
    request: int
    connection: int
    operation: str | None
    what: str
    thread: int
    attempts: int
    name: str


class _Clock:
    """CLOCK_MONOTONIC, which events have, as microseconds of a trace."""

    def __init__(self) -> None:
        looks = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(8)]
        # The one between whose clocks least time has passed.
        before, now, after = min(looks, key=lambda look: look[2] - look[0])
        self._before_epoch_ns = now - (before + after) // 2
        self.base_ns = time.time_ns() // 10**9 // _QUARTER_S * _QUARTER_S * 10**9

    def us(self, monotonic_ns: int) -> float:
        return (monotonic_ns + self._before_epoch_ns - self.base_ns) / 1000


class _Request:
    """One that has begun."""

    def __init__(self, number: int, event: _Event):
        self.number, self.operation, self.name = number, event.operation, event.name
        self.begun_ns = event.at_ns
        self.now = event


class _Slices:
    """Turns events into those of the format. A slice of a connection is complete ("X"); requests overlap, and what they
    wait for are pairs ("b", "e") with the number of the request."""

    def __init__(self, clock: _Clock):
        self._clock, self._pid = clock, os.getpid()
        self._requests: dict[int, _Request] = {}
        self._tracks: dict[int, int] = {}
        self._connections: dict[int, _Event] = {}
        self._count = 0

    def _complete(self, name: str, thread: int, begin_ns: int, end_ns: int, **arguments: Any) -> dict[str, Any]:
        begin, end = self._clock.us(begin_ns), self._clock.us(end_ns)
        event = {"ph": "X", "cat": "ringest", "name": name, "pid": self._pid, "tid": thread}
        return {**event, "ts": begin, "dur": end - begin, "args": arguments}

    def _pair(self, name: str, number: int, begin_ns: int, end_ns: int, **arguments: Any) -> Iterator[dict[str, Any]]:
        event = {"cat": "ringest", "name": name, "id": number, "pid": self._pid, "tid": self._pid}
        yield {**event, "ph": "b", "ts": self._clock.us(begin_ns), "args": arguments}
        yield {**event, "ph": "e", "ts": self._clock.us(end_ns)}

    def _track(self, connection: int) -> int:
        return self._tracks.setdefault(connection, _FIRST_CONNECTION + len(self._tracks))

    def _stage(self, request: _Request, end_ns: int) -> Iterator[dict[str, Any]]:
        """What the request was at until now."""
        at = request.now
        if at.what in _ON_CONNECTION and at.connection:
            name = f"{request.operation}: {at.what}"
            track = self._track(at.connection)
            yield self._complete(name, track, at.at_ns, end_ns, object=request.name, request=request.number)
        elif at.what not in _ON_CONNECTION:
            yield from self._pair(at.what, request.number, at.at_ns, end_ns)

    def _of_request(self, event: _Event) -> Iterator[dict[str, Any]]:
        request = self._requests.get(event.request)
        if request is None:
            if event.name:  # else it began before the trace
                self._count += 1
                self._requests[event.request] = _Request(self._count, event)
            return
        yield from self._stage(request, event.at_ns)
        request.now = event
        if event.what.isupper():
            del self._requests[event.request]
            arguments = {"object": request.name, "status": event.what, "attempts": event.attempts}
            name = str(request.operation)
            yield from self._pair(name, request.number, request.begun_ns, event.at_ns, **arguments)

    def _of_connection(self, event: _Event) -> Iterator[dict[str, Any]]:
        before = self._connections.get(event.connection)
        if before is not None and before.what in _OPENING:
            yield self._complete(before.what, self._track(event.connection), before.at_ns, event.at_ns)
        self._connections[event.connection] = event

    def of(self, event: _Event) -> Iterator[dict[str, Any]]:
        if event.request:
            yield from self._of_request(event)
        elif event.connection:
            yield from self._of_connection(event)
        else:
            yield self._complete("ringest: wait for samples", event.thread, event.at_ns, event.at_ns + event.took_ns)

    def names(self) -> Iterator[dict[str, Any]]:
        for number, track in enumerate(self._tracks.values(), 1):
            event = {"ph": "M", "pid": self._pid, "tid": track, "ts": 0}
            yield {**event, "name": "thread_name", "args": {"name": f"ringest connection {number}"}}
            yield {**event, "name": "thread_sort_index", "args": {"sort_index": track}}


class trace:
    """In the block, what every request of this process is at is written down; at its end, `path` is written, which
    https://ui.perfetto.dev shows. One at a time.

        with ringest.trace("requests.json"):
            for batch in dataset: ...

    Each connection is shown as a thread, with its requests from sending them to the first byte and from there to the
    last, and with how it was opened. What requests wait for (queue, throttled, retry, ...) is beside them, and on the
    loop's own thread its sleeps for samples. Times are those of torch.profiler: events of both files fit together.

    memory: bytes for what is written down, 128 for each event; a request has three to five. When it is full, what comes
    later is left out, and a line of the log (level warning) says how much; so does `dropped`, after the block. The memory is taken
    when it begins, in about 0.4 ms for each MiB, and given back at the end. Requests that began before the block are left out, and of those that did not end in it, what they
    were at last. A child that is forked in the block is not in the trace, and may begin its own. OSError, before the
    block: `path` cannot be written, or there is another trace.
    """

    __module__ = "ringest"

    def __init__(self, path: str | os.PathLike[str], *, memory: int = 64 << 20):
        self._path = os.fspath(path)
        self._events = whole(memory, "memory", 64 * _EVENT_BYTES, _MEMORY_MAX) // _EVENT_BYTES
        self.dropped = 0

    def __enter__(self) -> trace:
        self._clock, self._pid = _Clock(), os.getpid()
        _core.trace_begin(self._events)
        try:
            self._file = open(self._path, "w", encoding="utf-8")
        except BaseException:
            _core.trace_end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() != self._pid:
            return  # a child that was forked in the block: the trace is its parent's
        with self._file as file:
            found, self.dropped = _core.trace_end()
            self._write(file, found)
        if self.dropped:
            logger.warning("%s lacks %d events: give trace(memory=) more", self._path, self.dropped)

    def _write(self, file: TextIO, found: list[Any]) -> None:
        """One event after the other: all of them together would take many times the memory of the trace."""
        head = {
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": self._clock.base_ns,
            "otherData": {"ringest": _core.version, "dropped": self.dropped},
        }
        slices = _Slices(self._clock)
        found.sort(key=lambda event: event[0])
        made = (made for event in found for made in slices.of(_Event(*event)))
        file.write(json.dumps(head)[:-1] + ', "traceEvents": [')
        for number, event in enumerate(itertools.chain(made, slices.names())):
            file.write((",\n" if number else "\n") + json.dumps(event))
        file.write("\n]}\n")
