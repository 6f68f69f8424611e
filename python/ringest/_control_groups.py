"""Where the control groups of this process are, of version 2 and of version 1. As runtime/cpu_quota.c finds them."""

from __future__ import annotations

import os
from pathlib import Path


def paths(root: str | os.PathLike[str]) -> dict[str, str]:
    """By controller; "" is that of version 2."""
    found = {"": "/"}
    try:
        for line in Path(root, "proc/self/cgroup").read_text(errors="replace").splitlines():
            _, controllers, path = line.split(":", 2)
            found |= dict.fromkeys(controllers.split(","), path)
    except (OSError, ValueError):
        pass
    return found


def upwards(mount: Path, path: str) -> list[Path]:
    """A group, and those that it is in; a container may see its own as the mount itself."""
    parts = [each for each in path.split("/") if each]
    return [mount.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]
