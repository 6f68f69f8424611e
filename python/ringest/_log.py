"""The logger "ringest", and the library's own log, whose lines become records of the loggers "ringest.http",
"ringest.gcs.request" and so on, by the place in the library that they are of.

Where a program configures no logging, warnings of the package go to standard error, as Python does by default with
every logger: what a user had better know (credentials that are not used, a prefix that ends inside a name) is not
hidden by a handler that drops it. The library's own lines need a handler.

The levels that these loggers have when a Client is made say what the library tells, and nobody pays for what no
handler is there for. Lines pass a ring and a thread of ours, because threads of the library must not wait for the
interpreter."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import traceback

from ringest import _core

logger = logging.getLogger("ringest")

# Of Python's levels, in the order of enum rg_log_level; the last is "nothing".
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
_OFF = len(_LEVELS) + 1
# How long the last lines may take when the process ends: a handler may be stuck.
_END_S = 2.0

_lock = threading.Lock()
_thread: threading.Thread | None = None
_is_on = False  # the library tells lines to the ring, or is about to: a fork may come in between
_is_inherited = False  # a parent's clients tell, and this process has not begun to


def _is_heard(one: logging.Logger) -> bool:
    """Whether a record of this logger gets to a handler that does something."""
    at: logging.Logger | None = one
    while at is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False


def _wanted() -> int:
    """The library's level for what our loggers want."""
    names = [name for name in list(logging.root.manager.loggerDict) if name.startswith("ringest.")]
    loggers = [logger, *map(logging.getLogger, names)]
    levels = [one.getEffectiveLevel() for one in loggers if _is_heard(one)]
    return sum(min(levels) <= level for level in _LEVELS) or _OFF if levels else _OFF


def _emit(level: int, place: str, text: str, lost: int) -> None:
    folder = place.rpartition("/")[0].replace("/", ".")
    target = logging.getLogger(f"ringest.{folder}" if folder else "ringest")
    if lost:
        logger.warning("%d lines of the log were lost, because its handlers are slow", lost)
    if target.isEnabledFor(_LEVELS[level - 1]):
        target.handle(target.makeRecord(target.name, _LEVELS[level - 1], place, 0, text, (), None))


def _tell_of_handler() -> None:
    """As logging.Handler.handleError does: not by the log, whose handler has just raised."""
    if logging.raiseExceptions and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # it may be closed
            traceback.print_exc()


def _run() -> None:
    while (line := _core._log_take()) is not None:
        try:
            _emit(*line)
        except Exception:  # of a handler, which gets the next line all the same
            _tell_of_handler()


def begin() -> None:
    """Has the library tell what loggers and handlers want by now."""
    global _thread, _is_on
    level = _wanted()
    with _lock:
        if _thread is None and level == _OFF:
            return
        _is_on = True
        _core._log_begin(level)
        if _thread is None:
            _thread = threading.Thread(target=_run, name="ringest-log", daemon=True)
            _thread.start()
            atexit.register(_end)


def _end() -> None:
    """Gives the last lines to their handlers."""
    global _thread, _is_on
    thread, _thread = _thread, None
    if thread is not None:
        _is_on = False
        _core._log_end()
        thread.join(_END_S)


def _forget() -> None:
    """In a child of fork, where the thread is not. With the child's own event loops it begins again."""
    global _lock, _thread, _is_on, _is_inherited
    _lock, _thread = threading.Lock(), None
    was_on, _is_on = _is_on, False
    _is_inherited = _is_inherited or was_on
    if was_on:
        atexit.unregister(_end)
        _core._log_forget()


os.register_at_fork(after_in_child=_forget)


def request(uri: str | tuple[str, ...], attempts: int, seconds: float, status: str, found_done: bool) -> None:
    """Called by the extension for requests that were slow or took several attempts. `found_done`: a write or a
    removal whose answer was lost."""
    if found_done:
        logger.info("%s: an answer was lost, and it is done, by this call or by somebody else", uri)
    if logger.isEnabledFor(logging.DEBUG):
        what = uri if isinstance(uri, str) else f"{len(uri)} objects from {uri[0]} on"
        logger.debug("%s: %d attempts, %.3f s, %s", what, attempts, seconds, status)


def ending(count: int) -> None:
    """Called by the extension when cancelled requests take a while to end."""
    logger.warning(
        "waiting up to 30 s for the end of %d cancelled request%s: what an upload has left on the server is removed",
        count,
        "s" * (count > 1),
    )


def session(backend: str, reason: str, threads: int, pinned: str) -> None:
    """Called by the extension when event loops were started."""
    global _is_inherited
    if _is_inherited:
        _is_inherited = False
        begin()
    if pinned.startswith("none") and _wanted() == _OFF:  # else a line of the library says so
        logger.warning("pinned memory was asked for, and there is %s", pinned)
    logger.debug("backend %s, %d event loops%s", backend, threads, f" ({reason})" if reason else "")
