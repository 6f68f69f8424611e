"""The objects of a comparison: made by ringest, below a folder of their own, and removed at the end."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ringest
from ringest import _uri
from ringest._core import crc32c
from ringest.bench import leftovers
from ringest.bench.folder import FORM, Folder

# Of one size, all its objects together.
BYTES_MAX = 256 << 20
# What the clients that are measured write, by its names within the folder.
_OURS = re.compile(r"put-\d+/\d{8}")


@dataclass(frozen=True)
class Place:
    """Cloud Storage without an endpoint; without `ca` the machine's authorities are trusted."""

    endpoint: str | None
    ca: str | None

    @classmethod
    def given(cls, endpoint: str | None, ca: str | None) -> Place:
        """By options, or else by the environment."""
        at = endpoint or os.environ.get("STORAGE_EMULATOR_HOST")
        return cls(at, ca or (os.environ.get("SSL_CERT_FILE") if at else None))


@dataclass(frozen=True)
class Part:
    """What one process works with: `fields` of its Work, and what is wrong with what it then told or left, if anything."""

    fields: dict[str, Any]
    wrong: Callable[[dict[str, Any]], str | None]


@dataclass
class Data:
    """`objects` of each size and `names` to list. With `existing` the objects of sizes are there already, and nothing is
    written."""

    client: ringest.Client
    place: Place
    uri: str
    objects: int
    names: int
    existing: bool = False
    verify: bool = False  # every body that is read and every object that is written, not only the first
    _crcs: dict[str, set[int]] = field(default_factory=dict)
    _parts: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self._folder = None if self.existing else Folder(self.client, self.uri, "the place of the objects", _OURS)
        self.bucket, self.prefix = _uri.split(self._folder.uri if self._folder else self.uri, FORM)

    @property
    def folder(self) -> str:
        """The URI of its own."""
        return self._folder.uri if self._folder else ""

    def left_by_others(self) -> list[str]:
        """What killed runs have left, here or among the temporary files."""
        return leftovers.warnings(self.client, self._folder.place if self._folder else None)

    def _uri(self, name: str) -> str:
        return f"gs://{self.bucket}/{name}"

    def _count(self, size: int) -> int:
        return max(1, min(self.objects, BYTES_MAX // max(1, size)))

    def _names_of(self, label: str, size: int) -> list[str]:
        return [f"{self.prefix}{label}-{index:08d}" for index in range(self._count(size))]

    def make(self, verbs: list[str], sizes: dict[str, int]) -> None:
        """What the verbs need."""
        if self._folder is not None:
            self._folder.claim()
        if {"get", "load"} & set(verbs):
            for label, size in sizes.items():
                names = self._names_of(label, size)
                if self._folder is None:
                    self._crcs[label] = {crc32c(self.client.get(self._uri(name))) for name in names}
                else:
                    # All alike, so that each body has the same checksum.
                    body = secrets.token_bytes(size)
                    self._crcs[label] = {crc32c(body)}
                    self._folder.write((self._uri(name), body) for name in names)
        if "list" in verbs and self._folder is not None:
            self._folder.write((self._uri(f"{self.prefix}names/{index:08d}"), b"") for index in range(self.names))

    def remove(self) -> str | None:
        """All that this run made; what is left, if anything is: a text that names it."""
        return self._folder.remove() if self._folder else None

    def _wrong_body(self, label: str, told: dict[str, Any]) -> str | None:
        if told["crc"] in self._crcs[label]:
            return None
        return f"the first body has the CRC32C {told['crc']}, which no object has"

    def _wrong_object(self, names: list[str], size: int, count: int) -> str | None:
        """Of `count` that it says it wrote, in the order of the names: the first, or all. Of those in flight at the end, any
        may be there."""
        there = 0
        for name in names if self.verify else names[:1]:
            try:
                body = self.client.get(self._uri(name))
            except ringest.NotFoundError:
                continue
            there += 1
            if bytes(body) != bytes(size):
                return "an object has not the bytes that were to be written"
        if there < (min(count, len(names)) if self.verify else 1):
            return "it says that it wrote an object that is not there"
        return None

    @contextlib.contextmanager
    def of(self, verb: str, label: str, size: int, is_ours: bool) -> Iterator[Part]:
        """For one process. What it wrote is removed after it. ringest's own clients compare every body themselves."""
        if verb == "list":
            folder = f"{self.prefix}names/"
            fields = {"names": [folder], "prefix": folder, "listed": self.names, "verify": self.verify}
            yield Part(fields, lambda told: None)
        elif verb == "put":
            assert self._folder is not None
            within = f"put-{next(self._parts)}/"
            folder = self.prefix + within
            names = [f"{folder}{index:08d}" for index in range(self._count(size))]
            try:
                yield Part(
                    {"names": names, "prefix": folder}, lambda told: self._wrong_object(names, size, told["operations"])
                )
            finally:
                self._folder.remove(within)
        else:
            crcs = sorted(self._crcs[label]) if self.verify and not is_ours else None
            fields = {"names": self._names_of(label, size), "prefix": self.prefix, "crcs": crcs}
            yield Part(fields, lambda told: self._wrong_body(label, told))
