"""The logger "ringest": what is worth a line is said at level debug, and nothing for each object. At level
info, what a program may have to know."""

from __future__ import annotations

import logging

logger = logging.getLogger("ringest")
logger.addHandler(logging.NullHandler())


def request(uri: str | tuple[str, ...], attempts: int, seconds: float, status: str, found_done: bool) -> None:
    """Called by the extension for requests that were slow or took several attempts. `found_done`: a write or a
    removal whose answer was lost."""
    if found_done:
        logger.info("%s: an answer was lost, and it is done, by this call or by somebody else", uri)
    if logger.isEnabledFor(logging.DEBUG):
        what = uri if isinstance(uri, str) else f"{len(uri)} objects from {uri[0]} on"
        logger.debug("%s: %d attempts, %.3f s, %s", what, attempts, seconds, status)


def session(backend: str, reason: str, threads: int) -> None:
    """Called by the extension when event loops were started."""
    logger.debug("backend %s, %d event loops%s", backend, threads, f" ({reason})" if reason else "")
