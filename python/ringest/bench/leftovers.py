"""What a run that was killed has left behind, and how a later one knows that it did.

Folders of a run, in a bucket and in the temporary files, are named ringest-bench-MARK-NUMBER. The mark says which process made
them: of which boot of which machine, in which namespace of processes, with which number, started when. Where all of it is this
machine's, and that process is gone, the folder is of no use to anybody. It is named, and never removed: what else lies in it
is not known."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tempfile

import ringest

PREFIX = "ringest-bench-"
_NAME = re.compile(re.escape(PREFIX) + r"([0-9a-f]{12})-([0-9a-f]+)-([0-9a-f]+)-\w+")
# Of one place; more are counted.
NAMED_MAX = 5


def _here() -> str:
    """This boot of this machine, and its namespace of processes: random digits of the one with the number of the other
    in them, as the program has it (cli/bench_folder.c)."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip().replace("-", "")
    return f"{int(boot[:12], 16) ^ os.stat('/proc/self/ns/pid').st_ino:012x}"


def _started(pid: int) -> int | None:
    """In clock ticks since the boot, proc(5); None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return None


def _mark() -> str:
    pid = os.getpid()
    return f"{_here()}-{pid:x}-{_started(pid) or 0:x}"


def new_name() -> str:
    """Of a folder of this process's own."""
    return f"{temporary_prefix()}{secrets.token_hex(8)}"


def temporary_prefix() -> str:
    """Of tempfile's names."""
    return f"{PREFIX}{_mark()}-"


def is_left(name: str) -> bool:
    """Whether the process that made the folder was one of this machine, and is gone."""
    found = _NAME.fullmatch(name)
    return found is not None and found[1] == _here() and _started(int(found[2], 16)) != int(found[3], 16)


def in_temporary_files() -> list[str]:
    """Paths, of this user's folders only."""
    where, found = tempfile.gettempdir(), []
    with contextlib.suppress(OSError), os.scandir(where) as entries:
        for each in entries:
            with contextlib.suppress(OSError):
                if is_left(each.name) and each.is_dir(follow_symlinks=False) and each.stat().st_uid == os.getuid():
                    found.append(each.path)
    return sorted(found)


def in_bucket(client: ringest.Client, place: str) -> list[str]:
    """URIs of folders in gs://BUCKET/[FOLDER/]. What cannot be listed is said by what is then done there."""
    try:
        _, folders = client.list_folder(place + PREFIX)
    except (ringest.Error, OSError, ValueError):
        return []
    bucket = "/".join(place.split("/")[:3]) + "/"
    return [bucket + each for each in folders if is_left(each.rstrip("/").rpartition("/")[2])]


def said(found: list[str], command: str, how: str) -> list[str]:
    """A line for each, with the command that removes it."""
    lines = [f"{each} is left by a benchmark that {how}; `{command} {each}` removes it" for each in found[:NAMED_MAX]]
    more = len(found) - NAMED_MAX
    return [*lines, f"and {more:,} more such folders"] if more > 0 else lines


def warnings(client: ringest.Client, place: str | None) -> list[str]:
    """Of a place in a bucket, if there is one, and of the temporary files."""
    in_it = in_bucket(client, place) if place is not None else []
    killed = "was killed"
    return [*said(in_it, "ringest rm -r", f"{killed}, or had --keep"), *said(in_temporary_files(), "rm -r", killed)]
