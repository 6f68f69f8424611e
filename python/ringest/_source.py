"""What datasets read from: a URI, a client, and the list of objects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ringest._core import Objects
from ringest.client import Client, default_client

# A file, or objects: names, or (name, size, generation).
Manifest = str | os.PathLike[str] | Objects | Sequence[str | tuple[str, int, int]]


def _find_objects(uri: str, client: Client, manifest: Manifest | None) -> Objects:
    """The objects of a dataset: given, out of a manifest file, named by a list, or listed."""
    if isinstance(manifest, Objects):
        objects = manifest
    elif isinstance(manifest, (str, os.PathLike)):
        objects = Objects(manifest=manifest)
    elif manifest is not None:
        bucket = uri.removeprefix("gs://").split("/", 1)[0]
        entries: list[Any] = [(name, 0, 0) if isinstance(name, str) else tuple(name) for name in manifest]
        objects = Objects(bucket, entries)
    else:
        objects = client.list(uri)
    if len(objects) == 0:
        raise ValueError(f"there are no objects below {uri}")
    return objects


class ObjectView(Sequence):
    """What dataset.objects shows: .objects[i].name, .size, .generation."""

    class Entry(tuple):
        """(name, size, generation)"""

        __slots__ = ()
        name = property(lambda self: self[0])
        size = property(lambda self: self[1])
        generation = property(lambda self: self[2])

    def __init__(self, objects: Objects):
        self._objects = objects

    def __len__(self) -> int:
        return len(self._objects)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.Entry(self._objects[index])


class Source:
    """A URI, a client and the objects, found when they are first needed; pickles without them."""

    def __init__(self, uri: str, client: Client | None, manifest: Manifest | None) -> None:
        if not isinstance(uri, str):
            raise TypeError(f"{uri!r} is not a str of the form gs://BUCKET/PREFIX; a list of names is a manifest")
        if not uri.startswith("gs://") or uri[len("gs://") :].partition("/")[0] == "":
            raise ValueError(f"{uri!r} is not of the form gs://BUCKET/PREFIX")
        self.uri = uri if "/" in uri[len("gs://") :] else uri + "/"
        self._client = client
        self._manifest = manifest
        self._found: Objects | None = None

    @property
    def client(self) -> Client:
        return self._client or default_client()

    @property
    def found(self) -> Objects:
        if self._found is None:
            self._found = _find_objects(self.uri, self.client, self._manifest)
        return self._found
