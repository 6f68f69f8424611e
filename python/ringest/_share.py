"""How lists of objects and indexes of shards travel to other processes.

To one that is being started (spawn, forkserver) a large one goes as a descriptor of sealed memory, or of its file,
and is mapped there: nobody has a copy. Everywhere else it goes as its bytes."""

from __future__ import annotations

import copyreg
import os
import sys
from typing import Any

from ringest._core import Objects, TarIndex

Shared = Objects | TarIndex


def _of_data(kind: type[Shared], data: bytes) -> Shared:
    return kind(data=data)


def _of_descriptor(kind: type[Shared], handed: Any, digest: str | None) -> Shared:
    fd = handed.detach()
    try:
        made = kind(fd=fd)
    finally:
        os.close(fd)
    if digest is not None:
        made._digest = digest
    return made


def is_starting_a_process() -> bool:
    """Whether what is pickled now goes to a process that this one starts."""
    context = sys.modules.get("multiprocessing.context")
    return context is not None and context.get_spawning_popen() is not None


def hand_over(fd: int) -> Any:
    """A descriptor, to be pickled for the process that is being started; detach() gives it there."""
    from multiprocessing import reduction

    return reduction.DupFd(fd)


def _reduce(shared: Shared) -> tuple[Any, ...]:
    if shared.fd >= 0 and is_starting_a_process():
        # What is known of it need not be found out again, by reading all of it.
        return _of_descriptor, (type(shared), hand_over(shared.fd), shared._digest)
    return _of_data, (type(shared), bytes(shared))


for _kind in (Objects, TarIndex):
    copyreg.pickle(_kind, _reduce)  # type: ignore[arg-type]
