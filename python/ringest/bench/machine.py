"""This machine and what is installed, as a result records them."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path

from ringest import _control_groups, _core
from ringest.bench.result import Machine


def _line(path: str, name: str) -> str | None:
    """What follows "name:" in a file of /proc."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            key, colon, value = line.partition(":")
            if colon and key.strip() == name:
                return value.strip()
    return None


# Of a control group: its limit, what is used of it, and what of that is of files and can be given up.
_GROUP_FILES = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _left_in_groups(root: str) -> Iterator[int]:
    """What the limits of the groups leave: of the one that this process is in, and of those that this is in."""
    paths = _control_groups.paths(root)
    for controller, limit, used, of_files in _GROUP_FILES:
        for folder in _control_groups.upwards(Path(root, "sys/fs/cgroup", controller), paths.get(controller, "/")):
            with contextlib.suppress(OSError, ValueError):
                found = [int((folder / name).read_text("ascii")) for name in (limit, used)]
                lines = dict(line.split() for line in (folder / "memory.stat").read_text("ascii").splitlines())
                yield max(found[0] - found[1] + int(lines.get(of_files, 0)), 0)


def memory_available(root: str = "/") -> int | None:
    """Bytes that can be used without swapping, and without being killed for them."""
    words = (_line(os.path.join(root, "proc/meminfo"), "MemAvailable") or "").split()
    return min([*([int(words[0]) * 1024] if words else []), *_left_in_groups(root)], default=None)


def describe() -> Machine:
    memory = (_line("/proc/meminfo", "MemTotal") or "").split()
    return Machine(
        cpu=_line("/proc/cpuinfo", "model name") or platform.machine(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=int(memory[0]) * 1024 if memory else None,
        kernel=platform.release(),
        hypervisor=_core._hypervisor(),
    )


def versions(names: Iterable[str]) -> dict[str, str]:
    """Of those distributions that are installed; ringest itself may lie in a folder without being installed."""
    import ringest

    found = {"ringest": getattr(ringest, "__version__", "")}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return {name: version for name, version in found.items() if version}
