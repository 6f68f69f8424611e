"""Local files that FileSystem.get_file makes: they are there as a whole or not at all, and below where they are to be."""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Any


def _why_not(root: str, target: str) -> str | None:
    """Why a name that was made into the path `target`, below `root`, cannot be a file there: what "ringest cp" says."""
    below = target.removeprefix(root.rstrip("/"))
    parts = below.strip("/").split("/")
    if "." in parts or ".." in parts:
        return f'cannot be a file below {root}: it has "." or ".." between "/"'
    if below.startswith("//") or (len(parts) > 1 and "" in parts):
        return f'cannot be a file below {root}: it has an empty part between "/"'
    return None


def pairs(
    files: Any, rpath: Any, lpath: Any, recursive: bool, maxdepth: int | None, options: dict[str, Any]
) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """(what, where) of a copy to local files, by the rules of fsspec's "Copying files and directories"; and why not, of
    names that can be no files there."""
    from fsspec.implementations.local import make_path_posix, trailing_sep
    from fsspec.utils import other_paths

    root = make_path_posix(os.fspath(lpath))
    is_one = not isinstance(rpath, list)
    sources = files.expand_path(rpath, recursive=recursive, maxdepth=maxdepth, **options)
    if is_one and (not recursive or maxdepth is not None):
        sources = [one for one in sources if not trailing_sep(one) and not files.isdir(one)]
    if not sources:
        return [], {}
    is_pattern = is_one and glob.has_magic(os.fspath(rpath))
    is_folder = trailing_sep(root) or os.path.isdir(root)
    exists = is_one and (len(sources) == 1 if is_pattern else is_folder and not trailing_sep(os.fspath(rpath)))
    found = list(zip(sources, other_paths(sources, root, exists=exists, flatten=not is_one), strict=True))
    wrong = {source: why for source, target in found if (why := _why_not(root, target)) is not None}
    return [(source, target) for source, target in found if source not in wrong], wrong


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
