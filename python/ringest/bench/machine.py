"""This machine and what is installed, as a result records them."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable

from ringest.bench.result import Machine

VIRT_TIMEOUT_S = 5


def _line(path: str, name: str) -> str | None:
    """What follows "name:" in a file of /proc."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            key, colon, value = line.partition(":")
            if colon and key.strip() == name:
                return value.strip()
    return None


def _hypervisor() -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["systemd-detect-virt", "--vm"], capture_output=True, text=True, timeout=VIRT_TIMEOUT_S, check=False
        )
        name = done.stdout.strip()
        if name:
            return None if name == "none" else name
    flags = _line("/proc/cpuinfo", "flags") or ""
    return "unknown" if "hypervisor" in flags.split() else None


def memory_available() -> int | None:
    """Bytes that can be used without swapping."""
    words = (_line("/proc/meminfo", "MemAvailable") or "").split()
    return int(words[0]) * 1024 if words else None


def describe() -> Machine:
    memory = (_line("/proc/meminfo", "MemTotal") or "").split()
    return Machine(
        cpu=_line("/proc/cpuinfo", "model name") or platform.machine(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=int(memory[0]) * 1024 if memory else None,
        kernel=platform.release(),
        hypervisor=_hypervisor(),
    )


def versions(names: Iterable[str]) -> dict[str, str]:
    """Of those distributions that are installed; ringest itself may lie in a folder without being installed."""
    import ringest

    found = {"ringest": getattr(ringest, "__version__", "")}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return {name: version for name, version in found.items() if version}
