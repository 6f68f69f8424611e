"""Local files that FileSystem.get_file makes: they are there as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[Any]:
    """A binary file that takes the place of what is there at the end of the `with`; an exception leaves that. Its
    mode is that of the file that it replaces, else what the umask says. A link stays, and what it leads to is
    replaced; a device or a pipe is written to."""
    place = os.path.realpath(path)
    try:
        replaced = os.stat(place)
    except FileNotFoundError:
        replaced = None
    if replaced is not None and not stat.S_ISREG(replaced.st_mode):
        with open(path, "wb") as file:
            yield file
        return
    folder = os.path.dirname(place)
    os.makedirs(folder, exist_ok=True)
    # By a plain open, so that its mode is as the umask says, which cannot be asked for.
    partial = os.path.join(folder, f".{os.path.basename(place)}.{secrets.token_hex(4)}")
    try:
        with open(partial, "xb") as file:
            if replaced is not None:
                _keep_mode(file.fileno(), replaced)
            yield file
        os.replace(partial, place)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
        raise


def _keep_mode(descriptor: int, replaced: os.stat_result) -> None:
    """Who may read what is replaced may read what takes its place, and nobody else: where its group cannot be kept,
    the group that the file has gets what all others have. A filesystem that cannot change modes has one for all."""
    mode = stat.S_IMODE(replaced.st_mode) & 0o777
    made = os.fstat(descriptor)
    if made.st_uid != replaced.st_uid:
        with contextlib.suppress(OSError):
            os.fchown(descriptor, replaced.st_uid, -1)
    if made.st_gid != replaced.st_gid:
        try:
            os.fchown(descriptor, -1, replaced.st_gid)
        except OSError:
            mode = mode & 0o707 | (mode & 0o007) << 3
    with contextlib.suppress(OSError):
        os.fchmod(descriptor, mode)
