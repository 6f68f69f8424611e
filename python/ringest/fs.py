"""Cloud Storage as a filesystem of fsspec, which Lightning, pandas, datasets and many others open paths with.

    import ringest.fs

    ringest.fs.register()                                    # gs:// is ringest's from here on
    trainer = lightning.Trainer(callbacks=[ModelCheckpoint(dirpath="gs://bucket/run")], ...)

    fs = ringest.fs.GCSFileSystem(client=client)             # or without registering
    with fs.open("bucket/object", "rb") as file: ...

What is listed is asked for each time: there is no cache that could be out of date. Folders are parts of names:
making one does nothing, and one is there while an object is in it. Every call has its coroutine (`_cat_file`, `_find`,
...), which any event loop may await, and `open_async` gives files that are awaited. docs/FSSPEC.md says in what this differs from
gcsfs and from what fsspec describes, and why.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import secrets
import urllib.parse
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from glob import has_magic
from typing import Any

from ringest import _fs_entries, _fs_files, _fs_local, checkpoint
from ringest._chosen import checked
from ringest._errors import Error, NotFoundError, PreconditionError
from ringest._fs_options import HINTS, client_options, condition, refuse, refuse_options
from ringest._fs_steps import Call, Many, Steps, run
from ringest._needs import needs
from ringest.client import Client, default_client

with needs(__name__, "fsspec"):
    import fsspec
    from fsspec.compression import compr
    from fsspec.core import get_compression
    from fsspec.implementations.local import trailing_sep
    from fsspec.spec import AbstractFileSystem
    from fsspec.utils import other_paths, tokenize

    from ringest._fs_async import AwaitedFileSystem

__all__ = ["PROTOCOLS", "FileSystem", "GCSFileSystem", "register"]

PROTOCOLS = ("gs", "gcs")

# So much of a local file is copied at a time.
_COPY_SIZE = 16 << 20
# Requests that are out at once for one call.
_REQUESTS_AT_ONCE = 64
# Times that a range which counts from the end is asked for, of an object that is replaced meanwhile.
_TRIES = 5


# Clients of this process by names that JSON can have: what is made of a filesystem's JSON here has its client.
_sessions: weakref.WeakValueDictionary[str, Client] = weakref.WeakValueDictionary()
# A path's end that names a generation, where versions are asked for.
_VERSION = re.compile(r"(?:#|\?generation=)(\d+)$")


class GCSFileSystem(AwaitedFileSystem):
    """gs:// by way of one Client: the one given, one of the given arguments of Client, or the process's.

    Paths are "bucket/name", with or without "gs://". Errors are those of ringest, of which NotFoundError is
    a FileNotFoundError; what exists already is a FileExistsError. Of several errors of one call the first is
    raised, with a note of the others, when all has been tried.

    Of gcsfs's arguments these are understood: `endpoint_url`, `token` "anon", "google_default", "cloud" or a file of
    credentials, `requester_pays`; and those that ask for no more than is done anyway.

    version_aware: a path may end in "#GENERATION" (or "?generation=..."), and `ls` knows `versions=True`. Without it,
    `info`, `cat_file`, `open` and `url` take generation=.
    """

    protocol = PROTOCOLS
    transaction_type = _fs_files.Transaction
    # The client of an instance may be closed by its owner: each call makes its own.
    cachable = False

    def __init__(
        self,
        client: Client | None = None,
        *,
        asynchronous: bool = False,
        version_aware: bool = False,
        session: str | None = None,
        **options: Any,
    ):
        storage, others = client_options(options)
        refuse_options(others)
        others.pop("loop", None)  # any will do
        # Not AsyncFileSystem's own, which starts a thread with an event loop.
        AbstractFileSystem.__init__(self, **others)
        checked(client)
        if client is not None and storage:
            raise ValueError(f"a client is given, and {', '.join(storage)} of another one")
        if client is None and session is not None:
            client = _sessions.get(session)
        self.asynchronous = asynchronous
        self.version_aware = version_aware
        self.batch_size = None
        self._client = client if client is not None else Client(**storage) if storage else None

    @property
    def client(self) -> Client:
        return self._client if self._client is not None else default_client()

    @property
    def _settings(self) -> dict[str, Any]:
        """The settings of its client that are not the defaults."""
        settings = self._client._settings if self._client is not None else {}
        return {name: value for name, value in settings.items() if value not in (None, 0, 30.0)}

    @property
    def _fs_token(self) -> str:
        """The same of what is the same: fsspec compares and hashes filesystems by it."""
        return tokenize("ringest.fs", self.version_aware, sorted(self._settings.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GCSFileSystem) and self._fs_token == other._fs_token

    __hash__ = AbstractFileSystem.__hash__

    def __repr__(self) -> str:
        return f"ringest.fs.GCSFileSystem({', '.join(f'{name}={value!r}' for name, value in self._settings.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        # In another process it goes to the same place, whatever is registered there.
        return _rebuild, (self._client, self.asynchronous, self.version_aware)

    def to_json(self, *, include_password: bool = True) -> str:
        return json.dumps(self.to_dict(include_password=include_password))

    def to_dict(self, *, include_password: bool = True) -> dict[str, Any]:
        """For JSON: the settings of its client, and in this process the client itself."""
        made: dict[str, Any] = {"cls": "ringest.fs:GCSFileSystem", "protocol": PROTOCOLS[0], "args": []}
        if self.asynchronous:
            made["asynchronous"] = True
        if self.version_aware:
            made["version_aware"] = True
        if self._client is not None:
            names = [name for name, client in _sessions.items() if client is self._client]
            made["session"] = names[0] if names else secrets.token_hex(8)
            _sessions[made["session"]] = self._client
            settings = {
                name: os.fspath(value) if isinstance(value, os.PathLike) else value
                for name, value in self._settings.items()
            }
            made |= (
                settings
                if include_password
                else {name: value for name, value in settings.items() if name not in ("headers", "proxy")}
            )
        return made

    @classmethod
    def _uri(cls, path: str) -> str:
        """The URI of an object. ValueError: the path names a bucket, or nothing."""
        bucket, _, name = cls._strip_protocol(path).partition("/")
        if not bucket or not name or ":" in bucket:  # a ":" is of another scheme
            raise ValueError(f"{path}: this is not gs://BUCKET/OBJECT")
        return f"gs://{bucket}/{name}"

    def _place(self, path: str) -> tuple[str, int]:
        """The URI of an object, and the generation that the path asks for; 0: the newest."""
        uri = self._uri(path)
        version = _VERSION.search(uri) if self.version_aware else None
        return (uri[: version.start()], int(version[1])) if version is not None else (uri, 0)

    @classmethod
    def _folder(cls, path: str) -> str:
        """The URI prefix of what lies under a path. ValueError for the root: buckets are not listed."""
        path = cls._strip_protocol(path).rstrip("/")
        if not path:
            raise ValueError("gs://: buckets are not listed; begin with the name of one")
        return f"gs://{path}/"

    # What is there.

    def ls(self, path: str, detail: bool = True, versions: bool = False, **options: Any) -> list[Any]:
        """What is in a folder, or the object itself. versions: of a version_aware filesystem all generations of its
        objects, as "NAME#GENERATION"; every name below the path is listed for it."""
        if versions:
            return self._ls_versions(path, detail, **options)
        return run(self.client, self._ls_steps(path, detail, **options))

    def _ls_versions(self, path: str, detail: bool, **options: Any) -> list[Any]:
        refuse("ls", path, options, "refresh")
        if not self.version_aware:
            raise ValueError(f"{path}: versions=True is for GCSFileSystem(version_aware=True)")
        uri = self._folder(path)
        bucket, _, prefix = uri[len("gs://") :].partition("/")
        objects = self.client.list(uri, versions=True)
        if not len(objects) and "/" in uri[len("gs://") : -1]:
            prefix, _, only = prefix[:-1].rpartition("/")
            prefix = f"{prefix}/" if prefix else ""
            found = [one for one in self.client.list(uri[:-1], versions=True) if one[0] == f"{prefix}{only}"]
        else:
            found = [one for one in objects if one[0] != prefix and "/" not in one[0][len(prefix) :]]
        if not found and not len(objects):
            raise FileNotFoundError(f"gs://{bucket}/{prefix}: there is no such object or folder")
        entries = [_fs_entries.version(bucket, *one) for one in found]
        return entries if detail else [entry["name"] for entry in entries]

    def _ls_steps(self, path: str, detail: bool = True, **options: Any) -> Steps[list[Any]]:
        options.pop("versions", None)
        refuse("ls", path, options, "refresh")
        uri = self._folder(path)
        path = uri[len("gs://") : -1]
        bucket = path.partition("/")[0]
        objects, folders = yield Call("_list_details", (uri,), {"folder": True})
        # An object named as the folder marks it, and one part of a name may be empty.
        entries = [_fs_entries.file(bucket, *entry) for entry in objects if not uri.endswith(f"/{entry[0]}")]
        names = (f"{bucket}/{name.rstrip('/')}" for name in folders or ())
        entries += [_fs_entries.directory(name) for name in names if name != path]
        if not objects and not folders and path != bucket:
            entries = [(yield from self._info_steps(path))]
        entries.sort(key=lambda entry: entry["name"])
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **options: Any) -> _fs_entries.Entry:
        """For an object: its name, size, type "file", `mtime` and `created` (also `ctime`) as datetime, `generation`,
        and what Client.stat says, under its names and those of the service. generation: which; the newest."""
        return run(self.client, self._info_steps(path, **options))

    def _info_steps(self, path: str, generation: int | None = None, **options: Any) -> Steps[_fs_entries.Entry]:
        refuse("info", path, options, "refresh")
        path = self._strip_protocol(path).rstrip("/")
        if not path:
            return _fs_entries.directory(path)
        if "/" in path:
            uri, of_path = self._place(path)
            try:
                facts = yield Call("stat", (uri,), {"generation": generation or of_path})
                return _fs_entries.described(path, facts)
            except NotFoundError:
                if generation or of_path:
                    raise
        objects, folders = yield Call("_list_details", (self._folder(path),), {"folder": True, "limit": 1})
        if "/" in path and not objects and not folders:
            raise FileNotFoundError(f"gs://{path}: there is no such object or folder")
        return _fs_entries.directory(path)

    def _type_steps(self, path: str) -> Steps[str | None]:
        try:
            return (yield from self._info_steps(path))["type"]
        except FileNotFoundError:
            return None

    def exists(self, path: str, **_options: Any) -> bool:
        """False is certain: what could not be asked for is an error."""
        return run(self.client, self._type_steps(path)) is not None

    def isfile(self, path: str) -> bool:
        return run(self.client, self._type_steps(path)) == "file"

    def isdir(self, path: str) -> bool:
        return run(self.client, self._type_steps(path)) == "directory"

    def _stat_steps(self, path: str) -> Steps[dict[str, Any]]:
        """What is stored about an object. A folder is an IsADirectoryError, as it is for a local file."""
        uri, generation = self._place(path)
        try:
            return (yield Call("stat", (uri,), {"generation": generation}))
        except NotFoundError as error:
            yield from self._refuse_folder(path, error)
            raise

    def _refuse_folder(self, path: str, error: NotFoundError) -> Steps[None]:
        if (yield from self._type_steps(path)) == "directory":
            raise IsADirectoryError(f"{self._uri(path)}: no such object, but a folder; ls() lists it") from error

    def _stat(self, path: str) -> dict[str, Any]:
        return run(self.client, self._stat_steps(path))

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any
    ) -> Any:
        """All objects under a path, by a parallel listing where no depth is wanted; `prefix`: whose names go on so."""
        if maxdepth is None:
            return run(self.client, self._find_steps(path, withdirs, detail, **options))
        if options.pop("prefix", ""):
            raise ValueError(f"{path}: a prefix, and a maxdepth that it would have to be listed without")
        refuse("find", path, options, "refresh")
        return super().find(path, maxdepth, withdirs, detail)

    def _find_steps(
        self, path: str, withdirs: bool = False, detail: bool = False, prefix: str = "", **options: Any
    ) -> Steps[Any]:
        refuse("find", path, options, "refresh")
        uri = self._folder(path)
        path = uri[len("gs://") : -1]
        bucket = path.partition("/")[0]
        objects, _ = yield Call("_list_details", (uri + prefix,))
        found = {
            entry["name"]: entry for entry in (_fs_entries.file(bucket, *one) for one in objects if one[0][-1] != "/")
        }
        if withdirs and objects:
            for name in _fs_entries.folders_of((one[0] for one in objects), bucket, path):
                found.setdefault(name, _fs_entries.directory(name))
            found.setdefault(path, _fs_entries.directory(path))
        if not objects and not prefix:
            try:
                only = yield from self._info_steps(path)
            except FileNotFoundError:
                only = _fs_entries.directory(path)
            if only["type"] == "file":
                found[path] = only
        names = sorted(found)
        return {name: found[name] for name in names} if detail else names

    def _is_pattern(self, path: Any) -> bool:
        """Whether a path stands for what it matches. Where something is named just so, it stands for that."""
        path = self._strip_protocol(path)
        return has_magic(path) and not self.exists(path)

    def expand_path(self, path: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> list[str]:
        """What paths, patterns and, if `recursive`, folders stand for. A name that looks like a pattern is no
        pattern where there is such an object or folder: another's would be copied or removed in its place."""
        paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
        if options.get("assume_literal"):
            return super().expand_path(paths, recursive, maxdepth, **options)
        stripped = [self._strip_protocol(one) for one in paths]
        named = {one for one in stripped if has_magic(one) and self.exists(one)}
        found = set(named)
        if recursive:
            found.update(*(self.find(one, maxdepth, withdirs=True) for one in named))
        if others := [one for one in stripped if one not in named]:
            found.update(super().expand_path(others, recursive, maxdepth, **options))
        return sorted(found)

    def du(
        self, path: str, total: bool = True, maxdepth: int | None = None, withdirs: bool = False, **options: Any
    ) -> Any:
        """Bytes of the objects under a path, by what a listing says of them."""
        found = self.find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True, **options)
        sizes = {name: entry["size"] for name, entry in found.items()}
        return sum(sizes.values()) if total else sizes

    def created(self, path: str) -> datetime.datetime:
        """When this generation of the object was written."""
        return _fs_entries.time(self._stat(path)["created"])

    def modified(self, path: str) -> datetime.datetime:
        """When the object, or what is stored about it, was changed."""
        return _fs_entries.time(self._stat(path)["updated"])

    def checksum(self, path: str) -> int:
        """Another one for other content: the generation."""
        return self._stat(path)["generation"]

    def ukey(self, path: str) -> int:
        return self.checksum(path)

    def sign(self, path: str, expiration: float = 100, **options: Any) -> str:
        """A URL by which anybody may read the object for `expiration` seconds; the options are those of
        Client.sign_url, such as method="PUT"."""
        uri, generation = self._place(path)
        if generation:
            options["query"] = {**(options.get("query") or {}), "generation": str(generation)}
        return self.client.sign_url(uri, expires=expiration, **options)

    def url(self, path: str, generation: int | None = None) -> str:
        """Where the object's bytes are, for clients with permission to read it."""
        uri, of_path = self._place(path)
        bucket, _, name = uri[len("gs://") :].partition("/")
        endpoint = self._settings.get("endpoint") or os.environ.get("STORAGE_EMULATOR_HOST")
        place = (endpoint or "https://storage.googleapis.com").rstrip("/")
        place = place if "://" in place else f"http://{place}"
        which = f"&generation={generation or of_path}" if generation or of_path else ""
        return f"{place}/download/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}?alt=media{which}"

    def getxattr(self, path: str, attr: str) -> str | None:
        """One value of the object's own metadata."""
        return self._stat(path)["metadata"].get(attr)

    def setxattrs(
        self,
        path: str,
        content_type: str | None = None,
        content_encoding: str | None = None,
        fixed_key_metadata: Mapping[str, str] | None = None,
        **attributes: str | None,
    ) -> dict[str, str]:
        """Changes the object's own metadata (None removes a value) and what the service knows of it; returns the
        former. fixed_key_metadata: "cache_control"."""
        fixed = dict(fixed_key_metadata or {})
        control = fixed.pop("cache_control", None)
        if fixed:
            raise ValueError(f"{path}: of fixed_key_metadata only cache_control is known here, not {', '.join(fixed)}")
        uri = self._uri(path)
        facts = self.client.update(
            uri,
            content_type=content_type,
            content_encoding=content_encoding,
            cache_control=control,
            metadata=attributes or None,
        )
        return facts["metadata"]

    def merge(self, path: str, paths: Sequence[str]) -> None:
        """One object of the bytes of up to 32, in this order, by the service itself."""
        self.client.compose(self._uri(path), [self._uri(one) for one in paths])

    # Reading and writing.

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        cache_options: Mapping[str, Any] | None = None,
        compression: str | None = None,
        **options: Any,
    ) -> Any:
        """An object as a file. What is written appears, whole, when the file is closed; never when an exception
        leaves its `with`, nor when nobody closes it. See checkpoint.WriteFile.

        Modes are "r", "w" and "x", with "b" or as text. In a transaction, files appear when that ends.

        Reading in order is read ahead of (cache_type "readahead", the default). Any other cache_type of fsspec
        ("blockcache", "bytes", "first", "all", "mmap", "background", "parts", "none") is used as fsspec has it, with
        its block_size and cache_options. generation: which is read; the newest.
        """
        text = {name: options.pop(name) for name in ("encoding", "errors", "newline") if name in options}
        binary = mode if "b" in mode else mode.replace("t", "") + "b"
        if text and binary == mode:
            raise ValueError(f"{path}: {', '.join(text)} of a file that is not text: its mode is {mode!r}")
        codec = get_compression(path, compression)
        if codec not in compr:
            raise ValueError(f"{path}: there is no compression {compression!r} here")
        autocommit = options.pop("autocommit", not self._intrans)
        file = self._open(path, binary, block_size, autocommit, cache_options, **options)
        raw = file
        try:
            if codec is not None:
                file = _fs_files.CompressedFile(compr[codec], file, "rb" if binary == "rb" else "wb")
            if binary != mode:
                file = _fs_files.TextFile(file, mode, **text)
        except BaseException:
            raw.abort() if binary != "rb" else raw.close()
            raise
        if not autocommit and binary != "rb":
            self.transaction.files.append(file)
        return file

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
        uri, generation = self._place(path)
        cache_type = options.get("cache_type") or "readahead"
        options = self._file_options(options)
        if mode == "rb":
            options.setdefault("generation", generation)
            try:
                file = checkpoint.open(uri, "rb", client=self.client, **options)
            except NotFoundError as error:
                run(self.client, self._refuse_folder(path, error))
                raise
            file.raw.counting = None  # it is no checkpoint
            if cache_type == "readahead":
                return file
            return _fs_files.CachedFile(self, path, file, block_size, cache_type, cache_options)
        if mode not in ("wb", "xb"):
            raise NotImplementedError(f'{uri}: mode is "rb", "wb" or "xb", and not {mode!r}: objects are written whole')
        if mode == "xb":
            self._check_created(uri, options)
            # Known now is better than known when all was written; that it stays so is known when it is closed.
            if self.isfile(path):
                raise FileExistsError(f"{uri}: exists already")
        return _FILES[mode, bool(autocommit)](self.client.writer(uri, **options), uri)

    @staticmethod
    def _file_options(options: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in options.items() if name not in HINTS}

    @staticmethod
    def _check_created(uri: str, options: dict[str, Any]) -> None:
        if options.pop("if_generation_match", 0) not in (0, None):
            raise ValueError(f"{uri}: a file that is created replaces no generation")
        options["if_generation_match"] = 0

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """A slice of an object: bounds behind its end are its end, negative ones count from there. generation: which;
        the newest."""
        return run(self.client, self._cat_file_steps(path, start, end, **options))

    def _cat_file_steps(
        self, path: str, start: int | None = None, end: int | None = None, generation: int | None = None, **options: Any
    ) -> Steps[bytes]:
        refuse("cat_file", path, options, *HINTS)
        uri, of_path = self._place(path)
        wanted = generation or of_path
        if start in (None, 0) and end is None:
            return bytes((yield Call("get", (uri,), {"generation": wanted})))
        for tries in range(_TRIES, 0, -1):
            facts = (yield Call("stat", (uri,), {"generation": wanted})) if _counts_from_end(start, end) else None
            call = _range_call(uri, start, end, facts, wanted)
            try:
                return bytes((yield Call("get", (call.pop("uri"),), call))) if call else b""
            except NotFoundError:
                # The generation that was asked of has been replaced meanwhile.
                if facts is None or wanted or tries == 1:
                    raise
            except Error as error:
                if error.status != "RANGE":
                    raise
                return b""
        raise AssertionError

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any) -> Any:
        """One object's bytes, or those of many by path, read at once. `start` and `end` are those of cat_file."""
        if isinstance(path, (str, os.PathLike)) and not recursive and not self._is_pattern(path):
            path = os.fspath(path)
            try:
                return self.cat_file(path, **options)
            except NotFoundError as error:
                run(self.client, self._refuse_folder(path, error))
                raise
        start, end = options.pop("start", None), options.pop("end", None)
        refuse("cat", path, options, *HINTS)
        paths = self.expand_path(path)
        if recursive:
            paths = sorted({name for one in paths for name in self.find(one)})
            if not paths:
                raise FileNotFoundError(f"{path}: there is no such object or folder")
        if start is None and end is None:
            contents = _contents(self.client, [self._uri(one) for one in paths])
        else:
            contents = iter(self.cat_ranges(paths, start, end))
        return dict(_results(zip(paths, contents, strict=True), on_error))

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **options: Any,
    ) -> list[Any]:
        """A range of each path as cat_file has it, all at once."""
        return run(
            self.client, self._cat_ranges_steps(paths, starts, ends, max_gap=max_gap, on_error=on_error, **options)
        )

    def _cat_ranges_steps(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **options: Any,
    ) -> Steps[list[Any]]:
        if max_gap is not None:
            raise NotImplementedError("max_gap: Client.get_ranges reads neighbours of one object together")
        refuse("cat_ranges", "", options, *HINTS)
        starts = starts if isinstance(starts, Sequence) else [starts] * len(paths)
        ends = ends if isinstance(ends, Sequence) else [ends] * len(paths)
        wanted = [(*self._place(path), start, end) for path, start, end in zip(paths, starts, ends, strict=True)]
        results: list[Any] = [b""] * len(wanted)
        from_end = {(uri, which) for uri, which, start, end in wanted if _counts_from_end(start, end)}
        facts = yield from self._stats_steps(from_end)
        calls: list[tuple[Any, ...]] = []
        for index, (uri, which, start, end) in enumerate(wanted):
            known = facts.get((uri, which))
            if isinstance(known, Exception):
                results[index] = known
            elif call := _range_call(uri, start, end, known, which):
                calls.append((index, "get", (call.pop("uri"),), call))
        for index, data, failure in (yield Many(calls, bytes)):
            results[index] = data if failure is None else failure
        for index, (uri, which, start, end) in enumerate(wanted):
            if isinstance(results[index], Error) and results[index].status == "RANGE":
                results[index] = b""
            elif isinstance(results[index], NotFoundError) and isinstance(facts.get((uri, which)), dict) and not which:
                try:  # It was replaced meanwhile.
                    results[index] = yield from self._cat_file_steps(paths[index], start, end)
                except Exception as error:
                    results[index] = error
        return [result for _, result in _results(enumerate(results), on_error)]

    def _stats_steps(self, places: Iterable[tuple[str, int]]) -> Steps[dict[tuple[str, int], Any]]:
        """Facts or an error of each."""
        calls = [(place, "stat", (place[0],), {"generation": place[1]}) for place in places]
        outcomes = (yield Many(calls)) if calls else []
        return {place: facts if failure is None else failure for place, facts, failure in outcomes}

    def _stats(self, uris: Iterable[str]) -> dict[str, Any]:
        """The same of what is there now."""
        facts = run(self.client, self._stats_steps((uri, 0) for uri in uris))
        return {uri: one for (uri, _), one in facts.items()}

    def _there(self, uris: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Facts of those that are there; what cannot be asked for is an error."""
        facts = self._stats(uris)
        _raise_first(one for one in facts.values() if isinstance(one, Exception) and not isinstance(one, NotFoundError))
        return {uri: one for uri, one in facts.items() if isinstance(one, dict)}

    def head(self, path: str, size: int = 1024) -> bytes:
        return self.cat_file(path, end=size)

    def tail(self, path: str, size: int = 1024) -> bytes:
        return self.cat_file(path, start=-size) if size > 0 else b""

    def pipe_file(
        self, path: str, value: bytes, mode: str = "overwrite", content_type: str | None = None, **options: Any
    ) -> None:
        """mode "create": where nothing is yet, else FileExistsError. storage_class: as of Client.put."""
        run(self.client, self._pipe_steps({path: value}, mode=mode, content_type=content_type, **options))

    def pipe(self, path: Any, value: bytes | None = None, **options: Any) -> None:
        """Writes one object, or many at once from a dict; the options are those of pipe_file."""
        run(self.client, self._pipe_steps(self._named(path, value), **options))

    @staticmethod
    def _named(path: Any, value: bytes | None) -> Mapping[str, bytes]:
        if not isinstance(path, (str, os.PathLike)):
            return path
        if value is None:
            raise TypeError(f'{path}: there is nothing to write; b"" for an empty object')
        return {os.fspath(path): value}

    def _pipe_steps(
        self,
        objects: Mapping[str, bytes],
        mode: str = "overwrite",
        content_type: str | None = None,
        storage_class: str | None = None,
        **options: Any,
    ) -> Steps[None]:
        refuse("pipe", next(iter(objects), ""), options, *HINTS)
        keywords: dict[str, Any] = {
            "if_generation_match": condition(mode),
            "content_type": content_type,
            "storage_class": storage_class,
        }
        calls: list[tuple[Any, ...]] = []
        for path, data in objects.items():
            uri = self._uri(path)
            calls.append((uri, "put", (uri, data), keywords))
        _raise_first(_as_exists(uri, failure) for uri, _, failure in (yield Many(calls)))

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        """An empty object; with `truncate` in place of what is there, else that stays as it is, its time too."""
        try:
            self.pipe_file(path, b"", mode="overwrite" if truncate else "create", **options)
        except FileExistsError:
            pass

    def put_file(
        self,
        lpath: str,
        rpath: str,
        callback: Any = fsspec.callbacks.NoOpCallback(),
        mode: str = "overwrite",
        content_type: str | None = None,
        storage_class: str | None = None,
        **options: Any,
    ) -> None:
        refuse("put_file", rpath, options, *HINTS)
        if os.path.isdir(lpath):
            return
        uri = self._uri(rpath)
        with open(lpath, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            callback.set_size(size)
            keywords: dict[str, Any] = {
                "if_generation_match": condition(mode),
                "content_type": content_type,
                "storage_class": storage_class,
            }
            try:
                with self.client.writer(uri, size_hint=size, **keywords) as writer:
                    while piece := file.read(_COPY_SIZE):
                        writer.write(piece)
                        callback.relative_update(len(piece))
            except PreconditionError as error:
                raise FileExistsError(f"{uri}: exists already") from error

    def get_file(
        self,
        rpath: str,
        lpath: Any,
        callback: Any = fsspec.callbacks.NoOpCallback(),
        outfile: Any = None,
        **options: Any,
    ) -> None:
        """Into a local file, which appears when it is whole, with the mode of the one it replaces, or into one that
        is open."""
        refuse("get_file", rpath, options, *HINTS)
        if outfile is None and hasattr(lpath, "write"):
            outfile = lpath
        try:
            uri, generation = self._place(rpath)
            source = checkpoint.open(uri, "rb", client=self.client, generation=generation)
            source.raw.counting = None
        except NotFoundError:
            if outfile is not None or not self.isdir(rpath):
                raise
            os.makedirs(lpath, exist_ok=True)
            return
        with source:
            callback.set_size(source.size)
            if outfile is not None:
                _copy_file(source, outfile, callback)
                return
            with _fs_local.new_file(lpath) as file:
                _copy_file(source, file, callback)

    def get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = fsspec.callbacks.NoOpCallback(),
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        """Into local files, by the rules of fsspec's "Copying files and directories". What has a name that cannot be a
        file below `lpath`, such as one with ".." between "/", is an error (ValueError) when all else was copied."""
        if isinstance(rpath, list) and isinstance(lpath, list):
            super().get(rpath, lpath, recursive=recursive, callback=callback, maxdepth=maxdepth, **options)
            return
        pairs, wrong = _fs_local.pairs(self, rpath, lpath, recursive, maxdepth, options)
        if pairs:
            super().get([source for source, _ in pairs], [target for _, target in pairs], callback=callback, **options)
        # Folders are told of by what is in them.
        told = {self._uri(source): why for source, why in wrong.items()}
        facts = self._stats(set(told))
        _raise_first(ValueError(f"{uri}: {why}") for uri, why in told.items() if isinstance(facts[uri], dict))

    # Copies, moves and removals.

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """By the service itself. A folder is nothing that could be copied."""
        run(self.client, self._cp_file_steps(path1, path2, **options))

    def _cp_file_steps(self, path1: str, path2: str, **options: Any) -> Steps[None]:
        refuse("cp_file", path1, options)
        uri, generation = self._place(path1)
        try:
            yield Call("copy", (uri, self._uri(path2)), {"generation": generation})
        except NotFoundError:
            if (yield from self._type_steps(path1)) != "directory":
                raise

    def copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        on_error: str | None = None,
        **options: Any,
    ) -> None:
        """By the service itself, many at once, and so refused (ValueError) where two would go to one place, or one
        to the place of another. on_error "ignore": what is not there any more; the default of recursive copies."""
        refuse("copy", path1, options)
        if on_error is None:
            on_error = "ignore" if recursive else "raise"
        pairs = self._pairs(path1, path2, recursive, maxdepth)
        copied = self._copy_pairs(pairs, on_error == "raise")
        if recursive and maxdepth is None:
            self._copy_markers(pairs, copied)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """Copies, as `copy` does, and removes just what was copied, when all of it was: what was added or replaced
        meanwhile stays."""
        refuse("mv", path1, options)
        if path1 == path2:
            return
        pairs = self._pairs(path1, path2, recursive, maxdepth)
        if not pairs and not recursive:
            raise IsADirectoryError(f"{self._folder(path1)}: a folder is moved with recursive=True")
        moved = self._copy_pairs(pairs, True)
        if recursive and maxdepth is None:
            moved |= self._copy_markers(pairs, moved)
        # One may have gone to itself.
        targets = {f"gs://{self._strip_protocol(target)}" for _, target in pairs}
        self._remove_generations({uri: moved[uri] for uri in moved if uri.rstrip("/") not in targets})

    rename = mv

    def _pairs(self, path1: Any, path2: Any, recursive: bool, maxdepth: int | None) -> list[tuple[str, str]]:
        """What goes where, by the rules of fsspec's "Copying files and directories"."""
        if isinstance(path1, list) and isinstance(path2, list):
            if len(path1) != len(path2):
                raise ValueError(f"{len(path1)} sources and {len(path2)} targets: there must be one for each")
            return list(zip(path1, path2, strict=True))
        is_one = isinstance(path1, (str, os.PathLike))
        sources = self.expand_path(path1, recursive=recursive, maxdepth=maxdepth)
        if is_one and (not recursive or maxdepth is not None):
            # A glob that is not recursive does not mean the folders that it matches.
            sources = [one for one in sources if not trailing_sep(one) and not self.isdir(one)]
            if not sources:
                return []
        into_folder = isinstance(path2, (str, os.PathLike)) and (
            trailing_sep(os.fspath(path2)) or self.isdir(os.fspath(path2))
        )
        is_glob = is_one and self._is_pattern(path1)
        exists = is_one and (len(sources) == 1 if is_glob else into_folder and not trailing_sep(path1))
        pairs = zip(sources, other_paths(sources, path2, exists=exists, flatten=not is_one), strict=True)
        # A bucket is a folder, and no object that could be copied.
        return [(source, target) for source, target in pairs if not recursive or "/" in self._strip_protocol(source)]

    def _copy_pairs(self, pairs: list[tuple[str, str]], is_strict: bool) -> dict[str, int]:
        """Copies what is an object. Returns the generation of each that was copied, by URI."""
        facts = self._stats({self._uri(source) for source, _ in pairs})
        copied: dict[str, int] = {}
        failures: list[Exception | None] = []
        calls: list[tuple[Any, ...]] = []
        for source, target in pairs:
            uri = self._uri(source)
            known = facts[uri]
            if isinstance(known, dict) and uri == self._uri(target):
                continue  # there already; a copy would have the bucket's storage class and permissions
            if isinstance(known, dict):
                copied[uri] = known["generation"]
                calls.append((uri, "copy", (uri, self._uri(target)), {"generation": known["generation"]}))
            elif not isinstance(known, NotFoundError) or (is_strict and not self.isdir(source)):
                failures.append(known)
        _refuse_overlaps([call[2] for call in calls])
        for uri, _, failure in self.client._bulk(calls, _REQUESTS_AT_ONCE):
            if failure is not None:
                copied.pop(uri, None)
                if is_strict or not isinstance(failure, NotFoundError):
                    failures.append(failure)
        _raise_first(failures)
        return copied

    def _markers(self, paths: Iterable[str]) -> dict[str, int]:
        """The generations of folders' markers, by URI: empty objects whose names end in "/". One that is not empty
        is somebody's data."""
        there = self._there(f"{self._uri(path)}/" for path in paths)
        return {uri: facts["generation"] for uri, facts in there.items() if facts["size"] == 0}

    def _copy_markers(self, pairs: list[tuple[str, str]], copied: Mapping[str, int]) -> dict[str, int]:
        """Copies the markers of folders, unless one is in their place. Returns what _markers then gives for what is
        there."""
        targets = {
            f"{self._uri(source)}/": f"gs://{self._strip_protocol(target)}/"
            for source, target in pairs
            if self._uri(source) not in copied and "/" in self._strip_protocol(target)
        }
        markers = self._markers(targets)
        calls = [
            (uri, "copy", (uri, targets[uri]), {"generation": generation, "if_generation_match": 0})
            for uri, generation in markers.items()
        ]
        failures: list[Exception | None] = []
        for uri, _, failure in self.client._bulk(calls, _REQUESTS_AT_ONCE):
            if isinstance(failure, NotFoundError):
                markers.pop(uri)
            elif not isinstance(failure, PreconditionError):
                failures.append(failure)
        _raise_first(failures)
        return markers

    def _remove_generations(self, generations: Mapping[str, int]) -> None:
        """By URI. What is not there any more, or is another one by now, is left."""
        calls = [
            (uri, "delete", (uri,), {"if_generation_match": generation}) for uri, generation in generations.items()
        ]
        failures = (failure for _, _, failure in self.client._bulk(calls, _REQUESTS_AT_ONCE))
        _raise_first(failure for failure in failures if not isinstance(failure, (NotFoundError, PreconditionError)))

    def rm_file(self, path: str) -> None:
        run(self.client, self._rm_file_steps(path))

    def _rm_file_steps(self, path: str, **options: Any) -> Steps[None]:
        refuse("rm_file", path, options, *HINTS)
        uri, generation = self._place(path)
        yield Call("delete", (uri,), {"generation": generation})

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes objects, and with `recursive` all that is under a path, a hundred in a request: markers of
        folders (`dir/`) too, unless a maxdepth is given. All are tried. What `recursive` has found stays if somebody
        replaces it meanwhile.
        """
        named: dict[str, int | None] = {}
        for one in [path] if isinstance(path, (str, os.PathLike)) else path:
            if recursive:
                named.update(self._found(one, maxdepth))
            else:
                named.update(dict.fromkeys(map(self._uri, self.expand_path(one))))
        try:
            self.client.delete([uri if known is None else (uri, known) for uri, known in named.items()])
        except ExceptionGroup as group:
            overtaken = (NotFoundError, PreconditionError) if recursive else ()
            _raise_first(
                error for error in group.exceptions if isinstance(error, Exception) and not isinstance(error, overtaken)
            )

    def _found(self, path: Any, maxdepth: int | None) -> dict[str, int | None]:
        """The generations, where the server tells them, of all objects under a path, or under what a pattern
        matches, by URI."""
        generations: dict[str, int | None] = {}
        for one in self.expand_path(path) if self._is_pattern(path) else [path]:
            if maxdepth is not None:
                found = self.find(one, maxdepth=maxdepth, detail=True)
                generations.update((self._uri(name), entry["generation"] or None) for name, entry in found.items())
                continue
            folder = self._folder(one)
            bucket = folder[len("gs://") :].partition("/")[0]
            objects, _ = self.client._list_details(folder)
            generations.update((f"gs://{bucket}/{entry[0]}", entry[2] or None) for entry in objects)
            if folder != f"gs://{bucket}/":
                there = self._there([folder[:-1]])
                generations.update((uri, facts["generation"]) for uri, facts in there.items())
        if not generations:
            raise FileNotFoundError(f"{path}: there is no such object or folder")
        return generations

    def mkdir(self, path: str, create_parents: bool = True, **_options: Any) -> None:
        """Nothing: a folder is part of a name, and buckets are not made here."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Nothing, like mkdir."""

    def rmdir(self, path: str) -> None:
        """Nothing, like mkdir, but for an empty folder's marker (`dir/`), which is removed."""
        if "/" not in self._strip_protocol(path):
            return
        objects, folders = self.client._list_details(self._folder(path), folder=True, limit=2)
        if len(objects) == 1 and not folders and f"{self._uri(path)}/".endswith(f"/{objects[0][0]}"):
            self._remove_generations(self._markers([path]))


_FILES: dict[tuple[str, bool], Callable[..., checkpoint.WriteFile]] = {
    ("wb", True): checkpoint.WriteFile,
    ("xb", True): _fs_files.CreatedFile,
    ("wb", False): _fs_files.PendingFile,
    ("xb", False): _fs_files.PendingCreatedFile,
}


def _as_exists(uri: str, failure: Exception | None) -> Exception | None:
    if not isinstance(failure, PreconditionError):
        return failure
    exists = FileExistsError(f"{uri}: exists already")
    exists.__cause__ = failure
    return exists


def _raise_first(failures: Iterable[Exception | None]) -> None:
    """When all has been tried: the first of the failures, with a note of the others."""
    raised = [failure for failure in failures if failure is not None]
    if not raised:
        return
    for other in raised[1:]:
        raised[0].add_note(f"and {other}")
    raise raised[0]


def _refuse_overlaps(copies: Iterable[tuple[str, str]]) -> None:
    """Copies are made at once: what one of them writes, no other may write or read."""
    sources: dict[str, str] = {}
    for source, target in copies:
        if sources.setdefault(target, source) != source:
            raise ValueError(f"{target}: {sources[target]} and {source} would both be copied there; do it one by one")
    for source in sources.values():
        if sources.get(source, source) != source:
            raise ValueError(f"{source}: it is to be copied, and to be replaced by {sources[source]}; do it one by one")


def _counts_from_end(start: int | None, end: int | None) -> bool:
    return (start or 0) < 0 or (end or 0) < 0


def _range_call(
    uri: str, start: int | None, end: int | None, facts: Mapping[str, Any] | None, generation: int
) -> dict[str, Any]:
    """The arguments of Client.get for a slice; none where nothing is in it. With facts it is of that generation."""
    if facts is not None:
        start, end, _ = slice(start, end).indices(facts["size"])
        generation = facts["generation"]
    offset = start or 0
    if end is None:
        return {"uri": uri, "offset": offset, "generation": generation}
    return {"uri": uri, "offset": offset, "length": end - offset, "generation": generation} if end > offset else {}


def _copy_file(source: Any, target: Any, callback: Any) -> None:
    while piece := source.read(_COPY_SIZE):
        target.write(piece)
        callback.relative_update(len(piece))


def _contents(client: Client, uris: list[str]) -> Iterator[Any]:
    """Bytes, or what went wrong, in the order of the URIs."""
    for items in client.get_many(uris, ordered=True):
        for item in items:
            yield bytes(item.data) if item.error is None else item.error


def _results(results: Any, on_error: str) -> Iterator[tuple[Any, Any]]:
    """Pairs of (key, bytes or error): raises, leaves out or returns the errors, as fsspec has it."""
    for key, result in results:
        if isinstance(result, Exception):
            if on_error == "raise":
                raise result
            if on_error == "omit":
                continue
        yield key, result


def _rebuild(client: Client | None, asynchronous: bool, version_aware: bool) -> GCSFileSystem:
    return GCSFileSystem(client, asynchronous=asynchronous, version_aware=version_aware)


# Its former name.
FileSystem = GCSFileSystem

_registered: Client | None = None


class _Registered(GCSFileSystem):
    """What fsspec makes of gs:// where a client was registered."""

    def __init__(self, client: Client | None = None, **options: Any):
        storage, _ = client_options(options)
        is_given = client is not None or storage or "session" in options
        super().__init__(client if is_given else _registered, **options)


def register(client: Client | None = None) -> None:
    """Has fsspec, and all that opens paths with it, open gs:// and gcs:// by us, with this client.

    Before anybody has opened such a path: fsspec keeps the filesystems that it made.
    """
    global _registered
    _registered = client
    for protocol in PROTOCOLS:
        fsspec.register_implementation(protocol, _Registered, clobber=True)
