"""Where a run's objects are: a folder of its own in a bucket, that no other program has. What the run has written there
is removed at its end, and nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import ringest
from ringest import _uri
from ringest.bench import leftovers
from ringest.bench.adapter import put_new
from ringest.bench.objects import Objects
from ringest.bench.result import ResultError
from ringest.bench.task import Object

FORM = "gs://BUCKET/[FOLDER/]"
# What the ranks of a preset write.
_OURS = re.compile(
    r"round-(?P<round>\d+)/(rank-(?P<rank>\d+)/(written|save)-\d{8}"
    r"|dcp-\d{8}/(\.metadata|__(?P<part>\d+)_\d+\.[0-9a-f]{16}\.distcp))"
)
# A name that ends in a number, as all have that this process writes: 00-00000017, table-00017.parquet.
_NUMBERED = re.compile(r"(.*\D)(\d+)(\D*)", re.DOTALL)
# What is left after so many tries is named. A request whose answer was lost may come to its end after the first.
_REMOVALS = 3
_NAMED = 5
# From which size on bodies are written as a stream of pieces.
_PIECE_BYTES = 32 << 20
Tell = Callable[[int, int], None]


class FolderError(ResultError):
    """A place that cannot be used."""


def connect(endpoint: str | None, ca: str | None = None) -> ringest.Client:
    """A client for this server. What no client can be made of, by options or by the environment, is said in a line."""
    try:
        return ringest.Client(endpoint, ca)
    except (ValueError, OSError) as error:
        raise _no_client(error) from None


def _no_client(error: Exception) -> FolderError:
    return FolderError((error.strerror if isinstance(error, OSError) else None) or str(error))


def _parts(uri: str, option: str) -> tuple[str, str]:
    try:
        bucket, prefix = _uri.split(uri if uri.count("/") > 2 else uri + "/", FORM)
    except ValueError as error:
        raise FolderError(f"{option}: {error}") from None
    return bucket, prefix if prefix == "" or prefix.endswith("/") else prefix + "/"


class Folder:
    """gs://BUCKET/[FOLDER/]ringest-bench-MARK-NUMBER/"""

    def __init__(
        self,
        client: ringest.Client,
        place: str,
        option: str = "--folder",
        ours: re.Pattern[str] = _OURS,
        **below: int,
    ) -> None:
        """ours: what other processes of the run write, by its names within the folder; below: for groups of it, what their
        numbers are less than. What this one writes is known by `write`."""
        self._client, self._ours, self._below = client, ours, below
        # Of each series of names the highest number and its digits, so that a million names take no memory.
        self._written: dict[tuple[str, str], tuple[int, int]] = {}
        bucket, prefix = _parts(place, option)
        self.place = f"gs://{bucket}/{prefix}"
        self.uri = f"{self.place}{leftovers.new_name()}/"
        self._is_ours = True
        self._others: set[str] = set()  # that were there, though nothing was when it began

    def use(self, client: ringest.Client) -> None:
        """From now on: one of a server that did not run before."""
        self._client = client

    def claim(self) -> None:
        """Before the first write: whether the name is as new as it should be. Without this being known nothing is written,
        and there is nothing to remove."""
        self._is_ours = False
        try:
            objects, folders = self._client.list_folder(self.uri, limit=1)
        except (ValueError, OSError) as error:  # no such bucket or name may be, or a client is only made now
            if isinstance(error, ringest.Error):
                raise
            raise _no_client(error) from None
        if len(objects) or len(folders):
            raise FolderError(f"{self.uri} has objects, and is to be a new folder: nothing was written; begin again")
        self._is_ours = True

    def write(self, objects: Iterable[tuple[str, Any]]) -> None:
        """New ones. What is there is not replaced, and not removed later."""

        def each() -> Iterator[tuple[str, Any]]:
            for uri, data in objects:
                self._note(uri)
                yield uri, data

        try:
            put_new(self._client, each())
        except ExceptionGroup as group:
            self._others |= {each.uri for each in group.exceptions if isinstance(each, ringest.PreconditionError)}
            raise

    def _note(self, uri: str) -> None:
        """Before it is written: the answer may be lost."""
        found = _NUMBERED.fullmatch(uri.removeprefix(self.uri))
        assert found is not None
        series, digits = (found[1], found[3]), found[2]
        highest, _ = self._written.get(series, (-1, 0))
        self._written[series] = max(highest, int(digits)), len(digits)

    def _has_written(self, name: str) -> bool:
        """Whether this run did, or may have, by the object's name within the folder."""
        found = self._ours.fullmatch(name)
        if found is not None:
            numbers = found.groupdict()
            return all(int(numbers[group] or 0) < most for group, most in self._below.items())
        found = _NUMBERED.fullmatch(name)
        if found is None:
            return False
        highest, digits = self._written.get((found[1], found[3]), (-1, 0))
        return len(found[2]) == digits and int(found[2]) <= highest

    @property
    def data(self) -> str:
        return self.uri + "data/"

    def _named(self, names: Sequence[str]) -> str:
        more = f", and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        return ", ".join(names[:_NAMED]) + more

    def fill(self, objects: Objects, tell: Tell) -> None:
        """Writes what the workload is to read."""
        groups = objects.groups()
        largest = max(group.size for group in groups)
        payload = memoryview(os.urandom(min(largest, _PIECE_BYTES)))
        small = [group for group in groups if group.size <= len(payload)]
        done = 0

        def each() -> Iterator[tuple[str, Any]]:
            nonlocal done
            for group in small:
                for name in group.names():
                    yield self.data + name, payload[: group.size]
                    done += 1
                    tell(done, objects.objects)

        self.write(each())
        for group in groups:
            for name in group.names() if group.size > len(payload) else ():
                # Without a condition: with one, parts would be temporary objects outside of the folder.
                self._note(self.data + name)
                with self._client.writer(self.data + name, size_hint=group.size) as stream:
                    for at in range(0, group.size, len(payload)):
                        stream.write(payload[: group.size - at], borrow=True)
                done += 1
                tell(done, objects.objects)

    def fill_with(self, file: bytes, count: int, tell: Tell) -> list[Object]:
        """Writes the same Parquet file under so many names."""
        uris = [f"{self.data}table-{i:05d}.parquet" for i in range(count)]

        def each() -> Iterator[tuple[str, Any]]:
            for i, uri in enumerate(uris):
                yield uri, file
                tell(i + 1, count)

        self.write(each())
        return [(uri, len(file)) for uri in uris]

    def _found(self, within: str = "") -> tuple[list[tuple[str, int]], list[str]]:
        """Ours, with their generations, and others'."""
        try:
            found = self._client.list(self.uri + within)
        except ringest.NotFoundError:
            return [], []  # the bucket was not there, or is gone
        bucket = f"gs://{found.bucket}/"
        ours, others = [], []
        for name, _, generation in found:
            uri = bucket + name
            if self._has_written(uri.removeprefix(self.uri)) and uri not in self._others:
                ours.append((uri, generation))
            else:
                others.append(uri)
        return ours, others

    def _abort_uploads(self) -> None:
        try:
            uploads = self._client.list_uploads(self.uri)
        except ringest.NotFoundError:
            return
        bucket, _ = _uri.split(self.uri, FORM)
        for name, upload, _ in uploads:
            try:
                self._client.abort_upload(f"gs://{bucket}/{name}", upload)
            except ringest.NotFoundError:
                continue

    def remove(self, within: str = "") -> str | None:
        """Removes what this run has written, or only that in a folder of its folder. What is left, if anything is: a text
        that names it."""
        if not self._is_ours:
            return None
        left: list[str] = []
        for _ in range(_REMOVALS):
            try:
                self._abort_uploads()
                ours, others = self._found(within)
                if not ours:
                    return f"objects of others are in {self.uri}: {self._named(others)}" if others else None
                left = [uri for uri, _ in ours]
                self._client.delete(ours, missing_ok=True)
            except (ringest.Error, OSError, ExceptionGroup) as error:
                cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
                return f"could not be removed: {self._named(left) or self.uri}: {cause}"
        ours, _ = self._found(within)
        return f"could not be removed: {self._named([uri for uri, _ in ours])}" if ours else None


def given(client: ringest.Client, uri: str, suffix: str = "") -> list[Object]:
    """The objects that the user has below a prefix, in the order of their names."""
    _parts(uri, "--data")
    try:
        found = client.list(uri)
    except (ringest.Error, OSError, ValueError) as error:
        raise FolderError(f"--data {uri}: {error}") from None
    bucket = f"gs://{found.bucket}/"
    objects = [(bucket + name, size) for name, size, _ in found if name.endswith(suffix) and not name.endswith("/")]
    if not objects:
        what = f"objects whose names end in {suffix}" if suffix else "objects"
        raise FolderError(f"--data {uri}: there are no {what} below it")
    return objects
