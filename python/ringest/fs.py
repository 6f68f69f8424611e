"""Cloud Storage as a filesystem of fsspec, which Lightning, pandas, datasets and many others open paths with.

    import ringest.fs

    ringest.fs.register()                                    # gs:// is ringest's from here on
    trainer = lightning.Trainer(callbacks=[ModelCheckpoint(dirpath="gs://bucket/run")], ...)

    fs = ringest.fs.FileSystem(client=client)                # or without registering
    with fs.open("bucket/object", "rb") as file: ...

What is listed is asked for each time: there is no cache that could be out of date. Folders are parts of names:
making one does nothing, and one is there while an object is in it.
"""

from __future__ import annotations

import datetime
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import fsspec
from fsspec.spec import AbstractFileSystem

from ringest import checkpoint
from ringest._errors import NotFoundError, PreconditionError
from ringest.client import Client, default_client

__all__ = ["PROTOCOLS", "FileSystem", "register"]

PROTOCOLS = ("gs", "gcs")

# Of a local file, at a time.
_COPY_SIZE = 16 << 20
# Requests of cat_ranges.
_RANGES_AT_ONCE = 64

Entry = dict[str, Any]


class FileSystem(AbstractFileSystem):
    """gs:// by way of one Client: the one given, one of the given arguments of Client, or the process's.

    Paths are "bucket/name", with or without "gs://". Errors are those of ringest, of which NotFoundError is
    a FileNotFoundError; what exists already is a FileExistsError.
    """

    protocol = PROTOCOLS
    # The client of an instance may be closed by its owner: each call makes its own.
    cachable = False

    def __init__(self, client: Client | None = None, **options: Any):
        storage = {name: options.pop(name) for name in list(options) if name in _CLIENT_OPTIONS}
        super().__init__(**options)
        if client is not None and storage:
            raise ValueError(f"a client is given, and {', '.join(storage)} of another one")
        self._client = client if client is not None else Client(**storage) if storage else None

    @property
    def client(self) -> Client:
        return self._client if self._client is not None else default_client()

    @classmethod
    def _uri(cls, path: str) -> str:
        """Of an object. ValueError: it names a bucket, or nothing."""
        bucket, _, name = cls._strip_protocol(path).partition("/")
        if not bucket or not name:
            raise ValueError(f"{path}: this is not gs://BUCKET/OBJECT")
        return f"gs://{bucket}/{name}"

    @classmethod
    def _folder(cls, path: str) -> str:
        """Of what lies under a path. The names of buckets are not to be listed here."""
        path = cls._strip_protocol(path).rstrip("/")
        if not path:
            raise ValueError("gs://: buckets are not listed; begin with the name of one")
        return f"gs://{path}/"

    def ls(self, path: str, detail: bool = True, **_options: Any) -> list[Any]:
        """What is in a folder, or the object itself."""
        uri = self._folder(path)
        objects, folders = self.client.list_folder(uri)
        # An object named as the folder marks it.
        entries = [_file(objects.bucket, *entry) for entry in objects if not uri.endswith(f"/{entry[0]}")]
        entries += [_directory(f"{objects.bucket}/{name.rstrip('/')}") for name in folders]
        if not entries and not len(objects):
            entries = [self.info(path)]
        entries.sort(key=lambda entry: entry["name"])
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_options: Any) -> Entry:
        path = self._strip_protocol(path).rstrip("/")
        folder = self._folder(path)
        if "/" in path:
            try:
                return _described(path, self.client.stat(f"gs://{path}"))
            except NotFoundError:
                pass
        objects, folders = self.client.list_folder(folder, limit=1)
        if "/" in path and not len(objects) and not folders:
            raise FileNotFoundError(f"gs://{path}: there is no such object or folder")
        return _directory(path)

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any
    ) -> Any:
        """All objects under a path, by a parallel listing where no depth and no folders are wanted."""
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth, withdirs, detail, **options)
        objects = self.client.list(self._folder(path) + options.get("prefix", ""))
        entries = [_file(objects.bucket, *entry) for entry in objects if not entry[0].endswith("/")]
        if not entries:
            try:
                only = self.info(path)
            except FileNotFoundError:
                only = _directory(path)
            entries = [only] if only["type"] == "file" else []
        return {entry["name"]: entry for entry in entries} if detail else [entry["name"] for entry in entries]

    def created(self, path: str) -> datetime.datetime:
        """An object is written once: when that was."""
        return self.modified(path)

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromisoformat(self.client.stat(self._uri(path))["updated"])

    def checksum(self, path: str) -> int:
        """Another one for other content: the generation."""
        return self.client.stat(self._uri(path))["generation"]

    ukey = checksum

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        autocommit: bool = True,
        cache_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """ "rb": seekable, of one generation. "wb", and "xb" where nothing may be there: appears when closed."""
        del block_size, cache_options
        if not autocommit:
            raise NotImplementedError(f"{path}: transactions of fsspec; an object appears when it is closed")
        uri = self._uri(path)
        if mode == "rb":
            return checkpoint.open(uri, "rb", client=self.client, **options)
        if mode == "xb":
            return _CreatedFile(self.client.writer(uri, if_generation_match=0, **options), uri)
        if mode == "wb":
            return checkpoint.open(uri, "wb", client=self.client, **options)
        raise NotImplementedError(f'{uri}: mode is "rb", "wb" or "xb", and not {mode!r}: objects are written whole')

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_options: Any) -> bytes:
        uri = self._uri(path)
        if not start and end is None:
            return bytes(self.client.get(uri))
        offset, length = self._range(uri, start, end)
        return bytes(self.client.get(uri, offset=offset, length=length)) if length != 0 else b""

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any) -> Any:
        """One object's bytes, or those of many by path, read at once."""
        paths = self.expand_path(path, recursive=recursive)
        if isinstance(path, str) and paths == [self._strip_protocol(path)] and not recursive:
            return self.cat_file(paths[0], **options)
        wanted = [one for one in paths if not recursive or not self.isdir(one)]
        return dict(
            _settled(zip(wanted, _contents(self.client, [self._uri(one) for one in wanted]), strict=True), on_error)
        )

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_options: Any,
    ) -> list[Any]:
        """A range of each path, all at once."""
        if max_gap is not None:
            raise NotImplementedError("max_gap: Client.get_ranges reads neighbours of one object together")
        starts = starts if isinstance(starts, Sequence) else [starts] * len(paths)
        ends = ends if isinstance(ends, Sequence) else [ends] * len(paths)
        results: list[Any] = [b""] * len(paths)
        calls = []
        for index, (path, start, end) in enumerate(zip(paths, starts, ends, strict=True)):
            uri = self._uri(path)
            try:
                offset, length = self._range(uri, start, end)
            except OSError as error:
                results[index] = error
                continue
            if length != 0:
                calls.append((index, "get", (uri,), {"offset": offset, "length": length or 0}))
        for index, data, failure in self.client._bulk(calls, _RANGES_AT_ONCE):
            results[index] = bytes(data) if failure is None else failure
        return [result for _, result in _settled(enumerate(results), on_error)]

    def _range(self, uri: str, start: int | None, end: int | None) -> tuple[int, int]:
        """The offset, and the length: 0 of nothing. Negative ones count from the end, for which it is asked."""
        if end is None or (start or 0) < 0 or end < 0:
            size = self.client.stat(uri)["size"]
            start, end, _ = slice(start, end).indices(size)
        return start or 0, max(end - (start or 0), 0)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_options: Any) -> None:
        condition = 0 if mode == "create" else None
        try:
            self.client.put(self._uri(path), value, if_generation_match=condition)
        except PreconditionError as error:
            raise FileExistsError(f"{self._uri(path)}: exists already") from error

    def pipe(self, path: Any, value: bytes | None = None, **options: Any) -> None:
        """Writes one object, or many at once from a dict."""
        if isinstance(path, str):
            self.pipe_file(path, value if value is not None else b"", **options)
        else:
            self.client.put_many((self._uri(one), data) for one, data in path.items())

    def put_file(
        self, lpath: str, rpath: str, callback: Any = fsspec.callbacks.NoOpCallback(), **_options: Any
    ) -> None:
        if os.path.isdir(lpath):
            return
        with open(lpath, "rb") as file, self.client.writer(self._uri(rpath)) as writer:
            callback.set_size(os.fstat(file.fileno()).st_size)
            while piece := file.read(_COPY_SIZE):
                writer.write(piece)
                callback.relative_update(len(piece))

    def get_file(
        self, rpath: str, lpath: Any, callback: Any = fsspec.callbacks.NoOpCallback(), **_options: Any
    ) -> None:
        """Into a local file, which appears when it is whole, or into one that is open."""
        if self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        with checkpoint.open(self._uri(rpath), "rb", client=self.client) as source:
            callback.set_size(source.size)
            if hasattr(lpath, "write"):
                shutil.copyfileobj(source, lpath, _COPY_SIZE)
                return
            folder = os.path.dirname(os.path.abspath(lpath))
            os.makedirs(folder, exist_ok=True)
            descriptor, partial = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(lpath)}.")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    while piece := source.read(_COPY_SIZE):
                        file.write(piece)
                        callback.relative_update(len(piece))
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(partial, 0o666 & ~mask)
                os.replace(partial, lpath)
            except BaseException:
                os.unlink(partial)
                raise

    def cp_file(self, path1: str, path2: str, **_options: Any) -> None:
        """By the service itself. A folder is nothing that could be copied."""
        if not self.isdir(path1):
            self.client.copy(self._uri(path1), self._uri(path2))

    def _rm(self, path: str) -> None:
        self.client.delete(self._uri(path))

    rm_file = _rm

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes objects, and with `recursive` all that is under a path, a hundred in a request.

        All are tried; where several could not be removed, that is an ExceptionGroup.
        """
        wanted = [path] if isinstance(path, str) else list(path)
        names: dict[str, None] = {}
        for one in wanted:
            found = self.find(one, maxdepth=maxdepth) if recursive else self.expand_path(one, maxdepth=maxdepth)
            if recursive and not found:
                raise FileNotFoundError(f"{one}: there is no such object or folder")
            names.update(dict.fromkeys(found))
        try:
            self.client.delete([self._uri(name) for name in names])
        except ExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise

    def mkdir(self, path: str, create_parents: bool = True, **_options: Any) -> None:
        """Nothing: a folder is part of a name."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Nothing, like mkdir."""

    def rmdir(self, path: str) -> None:
        """Nothing, like mkdir."""

    def touch(self, path: str, truncate: bool = True, **_options: Any) -> None:
        """An empty object; with `truncate` in place of what is there."""
        try:
            self.pipe_file(path, b"", mode="overwrite" if truncate else "create")
        except FileExistsError:
            pass


class _CreatedFile(checkpoint.WriteFile):
    """One that must not be there yet."""

    def close(self) -> None:
        try:
            super().close()
        except PreconditionError as error:
            raise FileExistsError(f"{self.name}: exists already") from error


_CLIENT_OPTIONS = frozenset(
    {
        "attempts",
        "ca",
        "connections",
        "credentials",
        "endpoint",
        "memory",
        "memory_timeout",
        "threads",
        "token",
        "user_project",
    }
)


def _file(bucket: str, name: str, size: int, generation: int) -> Entry:
    return {"name": f"{bucket}/{name}", "size": size, "type": "file", "generation": generation}


def _directory(path: str) -> Entry:
    return {"name": path, "size": 0, "type": "directory"}


def _described(path: str, facts: dict[str, Any]) -> Entry:
    entry = {key: value for key, value in facts.items() if key not in ("bucket", "name")}
    return {**entry, "name": path, "type": "file"}


def _contents(client: Client, uris: list[str]) -> Iterator[Any]:
    """Bytes, or what went wrong, in the order of the URIs."""
    for items in client.get_many(uris, ordered=True):
        for item in items:
            yield bytes(item.data) if item.error is None else item.error


def _settled(results: Any, on_error: str) -> Iterator[tuple[Any, Any]]:
    """Of (key, bytes or error): raises, leaves out or returns the errors, as fsspec has it."""
    for key, result in results:
        if isinstance(result, Exception):
            if on_error == "raise":
                raise result
            if on_error == "omit":
                continue
        yield key, result


def register(client: Client | None = None) -> None:
    """Has fsspec, and all that opens paths with it, open gs:// and gcs:// by us, with this client.

    Before anybody has opened such a path: fsspec keeps the filesystems that it made.
    """

    class Registered(FileSystem):
        def __init__(self, **options: Any):
            super().__init__(**options if options.keys() & _CLIENT_OPTIONS else {"client": client, **options})

    for protocol in PROTOCOLS:
        fsspec.register_implementation(protocol, Registered if client is not None else FileSystem, clobber=True)
