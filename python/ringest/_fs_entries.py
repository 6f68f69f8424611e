"""What FileSystem tells of objects and folders: entries of a listing, and all that is known of an object."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

Entry = dict[str, Any]


def time(text: str | None) -> datetime.datetime:
    """A time as the service tells it of every object."""
    if text is None:
        raise ValueError("the server does not tell the time of the object")
    return datetime.datetime.fromisoformat(text)


def file(
    bucket: str, name: str, size: int, generation: int, crc32c: int | None = None, updated: str | None = None
) -> Entry:
    """The entry of an object in a listing."""
    entry = {"name": f"{bucket}/{name}", "size": size, "type": "file", "generation": generation, "crc32c": crc32c}
    if updated is not None:
        entry["updated"] = updated
        entry["mtime"] = time(updated)
    return entry


def version(bucket: str, name: str, size: int, generation: int) -> Entry:
    """The entry of one generation of an object."""
    path = f"{bucket}/{name}#{generation}"
    return {"name": path, "size": size, "type": "file", "generation": generation}


def directory(path: str) -> Entry:
    return {"name": path, "size": 0, "type": "directory"}


# Names in what Client.stat returns, and what the service, and so gcsfs, calls the same.
_NAMES_OF_SERVICE = {
    "content_type": "contentType",
    "content_encoding": "contentEncoding",
    "cache_control": "cacheControl",
    "storage_class": "storageClass",
    "md5": "md5Hash",
    "created": "timeCreated",
}


def described(path: str, facts: dict[str, Any]) -> Entry:
    entry = {key: value for key, value in facts.items() if key not in ("bucket", "name")}
    entry |= {name: facts[key] for key, name in _NAMES_OF_SERVICE.items() if facts[key] is not None}
    if facts["updated"] is not None:
        entry["mtime"] = time(facts["updated"])
    if facts["created"] is not None:
        entry["created"] = entry["ctime"] = time(facts["created"])
    return {**entry, "name": path, "type": "file"}


def folders_of(names: Iterable[str], bucket: str, path: str) -> set[str]:
    """The paths of the folders under `path` that lead to objects."""
    folders: set[str] = set()
    for name in names:
        folder = f"{bucket}/{name}".rpartition("/")[0]
        while len(folder) > len(path) and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return {folder for folder in folders if not folder.endswith("/")}
