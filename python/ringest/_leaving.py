"""Tells whether a file is closed because an exception leaves the `with` statement that it is in.

Python tells `__exit__` of the exception. But layers around a file (text, buffers, what fsspec.open returns) only close
what they are around, and so does contextlib.closing. A file that becomes an object when it is closed must know, or what
is half written is published.
"""

from __future__ import annotations

import dis
import sys
from types import FrameType

# Modules that close a file for somebody: who that is, is asked further up.
_LAYERS = frozenset(
    {
        "codecs",
        "contextlib",
        "fsspec.core",
        "gzip",
        "pandas.io.common",
        "pyarrow.parquet.core",
        "ringest._fs_files",
        "ringest.checkpoint",
        "zipfile",
    }
)
# Calls __exit__ with an exception; the way out without one is an ordinary call.
_CALLS_EXIT = dis.opmap.get("WITH_EXCEPT_START")


def by_exception() -> bool:
    """Whether the call of a method that asks comes, by way of layers, from a `with` that an exception leaves."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in _LAYERS:
        frame = frame.f_back
    return frame is not None and frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _CALLS_EXIT
