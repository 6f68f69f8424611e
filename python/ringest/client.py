"""The client: settings, pickling, requests in bulk and awaited, and the process's default."""

from __future__ import annotations

import builtins
import datetime
import functools
import itertools
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from ringest import _collate, _core, _fields, _log, _progress
from ringest._core import Buffer, GetMany, Item, Objects
from ringest._errors import NotFoundError
from ringest._metrics import Metric, metrics
from ringest._numbers import BYTES_MAX, flag, whole

if TYPE_CHECKING:
    from ringest.aio import AsyncWriter, Channel, Channels

# A class that has a method `list` cannot name the type.
Items = list[Item]
Buffers = list[Buffer]
Generations = list[int]
Errors = list[Exception]
Uploads = list[tuple[str, str, str | None]]

# The most deletes in one request, by <ringest/objects.h>.
_DELETES_MAX = 100
# Requests that a bulk call has out at once, by default.
_BULK_REQUESTS = 64
_BULK_REQUESTS_MAX = 65536

# The default of <ringest/runtime.h>, if the machine has four times as much.
_MEMORY_DEFAULT = 1 << 30
# What the option `pinned` has for all of the memory, and for none of it.
_PINNED_ALL, _PINNED_NONE = 2**63 - 1, 1

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(value: int | str, what: str) -> int:
    """Bytes of "64MiB", "1G", 4096 and the like; units are powers of 1024."""
    if not isinstance(value, str):
        return whole(value, what, 0, BYTES_MAX)
    found = re.fullmatch(r"\s*(\d+)\s*([KMGT]?)(i?B)?\s*", value, re.IGNORECASE)
    size = int(found[1]) * _UNITS[found[2].upper()] if found is not None else -1
    if not 0 <= size <= BYTES_MAX:
        raise ValueError(f"{what} must be a size such as 64MiB, got {value!r}")
    return size


# A scheme that is known, or none, and a host; what else is wrong the library tells when it opens the client.
_ENDPOINT = re.compile(r"(https?://)?(\[[^\s\[\]]+\]|[^\s/:@?#\[\]]+)(:\d+)?/?", re.IGNORECASE)


def _check_endpoint(endpoint: str | None) -> str | None:
    if endpoint is None or (isinstance(endpoint, str) and _ENDPOINT.fullmatch(endpoint)):
        return endpoint
    # What has an "@" may have a password, which is not repeated.
    shown = "a user name or password" if "@" in str(endpoint) else repr(endpoint)
    raise ValueError(
        f"endpoint must be https://HOST[:PORT], http://HOST[:PORT] or HOST:PORT, got {shown}; without it, "
        "STORAGE_EMULATOR_HOST is used, else Cloud Storage"
    )


def _check_proxy(proxy: str | None) -> str | None:
    """What has neither a scheme nor a port is more likely a mistake than a host."""
    if isinstance(proxy, str) and proxy and ":" not in proxy:
        raise ValueError(f"proxy is {proxy!r}; expected http://[USER:PASSWORD@]HOST[:PORT], or HOST:PORT")
    return proxy


@functools.cache  # once each
def _say_that_idle(credentials: str) -> None:
    _log.logger.warning(
        "credentials=%r is not used: STORAGE_EMULATOR_HOST is set, and no token is sent to an emulator; unset it, or name "
        "the server with endpoint=",
        credentials,
    )


def _say_what_is_idle(endpoint: str | None, credentials: str | None) -> None:
    is_emulated = endpoint is None and bool(os.environ.get("STORAGE_EMULATOR_HOST"))
    if is_emulated and credentials and credentials != "anonymous":
        _say_that_idle(credentials)


def _header_lines(headers: Mapping[str, str] | None) -> str | None:
    """One "Name: value" a line, as <ringest/gcs.h> has them."""
    return None if headers is None else "\n".join(f"{name}: {value}" for name, value in headers.items())


def _user_agent(given: str | None) -> str:
    if not isinstance(given, str | None):
        raise TypeError(f"user_agent must be a str or None, got {given!r}")
    own = os.environ.get("RINGEST_USER_AGENT") if given is None else given
    return f"{own} ringest-python" if own else "ringest-python"


def _path(given: Any, what: str) -> str | bytes | None:
    if given is not None and not isinstance(given, str | bytes | os.PathLike):
        raise TypeError(f"{what} must be a path or None, got {given!r}")
    return None if given is None else os.fspath(given)


def _size(given: int | str | None, what: str) -> int | None:
    return None if given is None else parse_size(given, what)


def _pinned(given: bool | int | str | None) -> int | None:
    """As the option has it: bytes, of which less than a piece of 2 MiB are none."""
    if isinstance(given, bool):
        return _PINNED_ALL if given else _PINNED_NONE
    return None if given is None else parse_size(given, "pinned") or _PINNED_NONE


_PATHS = ("ca", "cache", "credentials", "client_cert", "client_key")


class Client(_core.Client):
    """Requests to one endpoint; every argument has a default from the environment.

    Server and identity:
    endpoint: "https://HOST[:PORT]" or "http://..."; STORAGE_EMULATOR_HOST, else Cloud Storage. connect_to:
    "HOST[:PORT]" to connect to, while certificates and requests name the endpoint. ca: PEM file of trusted
    certificates (SSL_CERT_FILE, SSL_CERT_DIR, else the system's). token: an OAuth 2.0 access token. credentials: where
    tokens come from without one: "default" (Application Default Credentials), "anonymous", or the path of a
    credential file. scope: OAuth scopes, separated by spaces. sharing=False: share no tokens, limits and latencies with
    other processes of this host; or the folder in memory by which they do (/dev/shm). user_project: the project to
    charge. headers: fields that are added to every request (RINGEST_HEADERS). user_agent: put before the library's own.
    proxy: "http[s]://[USER:PASSWORD@]HOST[:PORT]", "" for none; HTTPS_PROXY and NO_PROXY. client_cert, client_key: PEM
    files for mutual TLS, both or neither. local_address, local_device: of this machine, to connect from.

    Limits:
    threads: event loops. connections: open at once (256). requests: submitted and not done (8192). prewarm: connections
    that are opened before there are requests. memory: bytes of bodies that are held at once ("1GiB").
    pinned: how many of them are registered with CUDA when they are first used ("512MiB"; True: all), so that devices
    copy from Buffers directly; without CUDA there is a warning, and none are. adapting=False: do
    not slow down after 429, 503 and rising latency. reads_per_s, writes_per_s: requests that this client begins per
    second and bucket, at most (no limit). ramp="gcs": the whole job begins 5,000 reads and 1,000 writes a second in a
    bucket, and doubles that in 20 minutes, as Google's guide asks for; job_processes: processes of the job, which share
    the ramp (WORLD_SIZE and the like, else 1; times the workers of a DataLoader, in these). If they are more than 64,
    they begin with 5,000 reads and 1,000 writes a second in all without a ramp, too, and double that in each half second
    until the service answers 429. hedging=False: do not send late reads a second time; hedges_per_1000: second requests
    for 1,000 requests, at most (20); hedge_size: bodies that are expected to be larger are never requested twice ("1MiB").

    Cache:
    cache: a folder of yours on a local or shared disk, where what is read is kept for the next time: no byte of it is
    sent again while the object stays the same. cache_size: bytes that the folder may have, of all processes ("2TB"; nine
    tenths of what is free). cache_memory: bytes of memory for the same, which the processes of the host share ("16GB";
    none). docs/CACHE.md has the details.

    Time-outs in seconds; math.inf is no limit:
    connect_timeout: one attempt to connect, TLS included (10). first_byte_timeout: from a request sent to the first
    byte (30). stall_timeout: without a byte moving (20). idle_timeout: an unused connection is closed after it (60).
    backoff_min, backoff_max: before a request is tried again (0.1 and 30). attempts: requests that are sent for one call
    before it fails (8); 1: no second try. memory_timeout: that any call waits for memory which Buffers of this process
    hold before MemoryError (30; 0: not at all).

    checksum=False: do not compute and compare CRC32C. backend: "auto", "uring" or "epoll". numa: where loops and their
    memory go on machines of several nodes: "auto", "compact", "spread" or "none". local_rank, local_world_size: which of
    how many ranks of a job on this host, which divide its CPUs; None: as torchrun, MPI or Slurm say in the
    environment. Workers of a DataLoader divide the event loops of their rank.

    None is RINGEST_<NAME> in the environment, such as RINGEST_STALL_TIMEOUT=5, else the default. Of these there is no
    such variable: endpoint, token, credentials, checksum, memory_timeout.

    ValueError, TypeError: an argument is wrong. Nothing is opened before the first request; errors that only the system
    finds, such as a missing file, are raised then. After fork() a child opens its own connections. A pickled client is its
    settings, without the token, but with headers and the proxy's password. Any thread may use a client.

    Methods whose names begin with "a" are for asyncio and compatible loops such as uvloop's. Any number of event loops
    in any number of threads may await them. Cancelling the task cancels the request.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        *,
        token: str | None = None,
        user_project: str | None = None,
        credentials: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        connections: int | None = None,
        memory: int | str | None = None,
        memory_timeout: float = 30.0,
        pinned: bool | int | str | None = None,
        attempts: int | None = None,
        connect_to: str | None = None,
        scope: str | None = None,
        headers: Mapping[str, str] | None = None,
        user_agent: str | None = None,
        proxy: str | None = None,
        client_cert: str | os.PathLike[str] | None = None,
        client_key: str | os.PathLike[str] | None = None,
        local_address: str | None = None,
        local_device: str | None = None,
        requests: int | None = None,
        prewarm: int | None = None,
        reads_per_s: int | None = None,
        writes_per_s: int | None = None,
        ramp: Literal["none", "gcs"] | None = None,
        job_processes: int | None = None,
        adapting: bool | None = None,
        hedging: bool | None = None,
        sharing: bool | str | None = None,
        hedges_per_1000: int | None = None,
        hedge_size: int | str | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        cache_memory: int | str | None = None,
        connect_timeout: float | None = None,
        first_byte_timeout: float | None = None,
        stall_timeout: float | None = None,
        idle_timeout: float | None = None,
        backoff_min: float | None = None,
        backoff_max: float | None = None,
        checksum: bool | None = None,
        backend: Literal["auto", "uring", "epoll"] | None = None,
        numa: Literal["auto", "compact", "spread", "none"] | None = None,
        local_rank: int | None = None,
        local_world_size: int | None = None,
    ):
        settings = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        settings["headers"] = None if headers is None else _fields.fields(headers)  # a copy
        given = {
            **settings,
            "endpoint": _check_endpoint(endpoint),
            "proxy": _check_proxy(proxy),
            "headers": _header_lines(settings["headers"]),
            "user_agent": _user_agent(user_agent),
            "pinned": _pinned(pinned),
            **{name: _size(settings[name], name) for name in ("memory", "hedge_size", "cache_size", "cache_memory")},
        }
        given |= {name: _path(settings[name], name) for name in _PATHS}
        if (client_cert is None) != (client_key is None):
            raise ValueError("client_cert and client_key belong together: give both or neither")
        super().__init__(**given)
        _log.begin()
        _say_what_is_idle(endpoint, given["credentials"])
        del settings["token"]
        self._settings: dict[str, Any] = settings
        self._channels: Channels | None = None  # of event loops
        _collate.register()  # for datasets that are not ours

    @property
    def memory(self) -> int:
        """Bytes of bodies that may be held at once."""
        memory = self._settings["memory"] or os.environ.get("RINGEST_MEMORY")
        return parse_size(memory, "memory") if memory else _MEMORY_DEFAULT

    def writer(
        self,
        uri: str,
        *,
        part_size: int | str = 0,
        parts_in_flight: int = 0,
        if_generation_match: int | None = None,
        content_type: str | None = None,
        size_hint: int = 0,
        exclusive: bool = True,
        storage_class: str | None = None,
    ) -> _core.Writer:
        """A stream into one object, which appears, whole, when the stream is finished.

        part_size: of the parts that are uploaded in parallel ("16MiB"); parts_in_flight: how many of them are
        there at once. 0: both adapt, to size and throughput, within 256 MiB of memory. if_generation_match: the
        generation to replace, 0: there must be no such object; parts are temporary objects then. exclusive: as of
        put.
        size_hint: bytes that are to be expected, if known; it may be wrong. Without it an object may have about
        1 TiB, and 5 TiB with it. storage_class: such as NEARLINE; None: the default of the bucket.
        """
        return _core.Writer(
            self,
            uri,
            part_size=parse_size(part_size, "part_size"),
            parts_in_flight=parts_in_flight,
            if_generation_match=if_generation_match,
            content_type=content_type,
            size_hint=size_hint,
            exclusive=exclusive,
            storage_class=storage_class,
        )

    def metrics(self) -> builtins.list[Metric]:
        """What this client has counted, with names, kinds and units: ringest.metrics(client)."""
        return metrics(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._settings,)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the client. Buffers stay valid, and awaited calls fail. Calls in other threads, iterators and streams
        continue to their ends."""
        if self._channels is not None:
            self._channels.close()
        super().close()

    @overload
    def get_many(
        self, uris: Iterable[str], *, ordered: bool = False, batch: int | None = None, progress: Literal[False] = False
    ) -> GetMany: ...
    @overload
    def get_many(
        self, uris: Iterable[str], *, ordered: bool = False, batch: int | None = None, progress: bool | str
    ) -> Iterator[Items]: ...
    def get_many(
        self, uris: Iterable[str], *, ordered: bool = False, batch: int | None = None, progress: bool | str = False
    ) -> Iterator[Items]:
        """Reads many objects: yields lists of `batch` Items, as they arrive or in the order of `uris`.

        A list is shorter at the end, when it has 64 MiB, and when memory is short. Without `batch` it has at most 256
        Items, and no more when it has 4 MiB: so that they are still in the processor's cache. A failure is an Item with an
        error. `progress`: a bar of tqdm, where that is installed; a text is its title.

        If next() raises because of a signal handler or of `uris`, the next call returns the Items that had arrived.
        """
        many = super().get_many(_many(uris), ordered=ordered, batch=batch)
        return _progress.counting(many, progress, "get", _progress.length(uris)) if progress else many

    # In the extension `progress` is a function.
    def list(  # type: ignore[override]
        self,
        uri: str,
        *,
        progress: bool | str = False,
        folder_markers: bool = True,
        glob: str | None = None,
        start_offset: str | None = None,
        end_offset: str | None = None,
        versions: bool = False,
    ) -> Objects:
        """The objects whose names begin with the URI's, found by several requests at once.

        That is literal, as in the service: gs://bucket/data is also database/x; end it in "/" for a folder.
        folder_markers: also empty ones whose names end in "/", which some tools make for folders. glob: only names that
        match this, as a whole ("**.jpg"; the service's matchGlob). start_offset, end_offset: only names from the first
        on, and before the second. versions: all generations, not only the live ones."""
        filters = _filters(folder_markers, glob, start_offset, end_offset, versions)
        if not progress:
            return super().list(uri, **filters)
        with _progress.advancing(progress, uri) as advance:
            seen = 0

            def more(count: int) -> None:
                nonlocal seen
                advance(count - seen)
                seen = count

            return super().list(uri, progress=more, **filters)

    def exists(self, uri: str, *, generation: int = 0) -> bool:
        """Whether there is such an object; False also where there is no such bucket."""
        try:
            self.stat(uri, generation=generation)
        except NotFoundError:
            return False
        return True

    def delete(
        self,
        uri: str | Iterable[str | tuple[str, int]],
        *,
        generation: int = 0,
        if_generation_match: int | None = None,
        missing_ok: bool = False,
        exclusive: bool = False,
    ) -> None:
        """Removes one object, or many, a hundred in a request.

        generation: just this one, for good. if_generation_match: the newest, if it is this one, else
        PreconditionError; of many it stands beside each, as (uri, generation). Of many, all are tried;
        failures are raised together as an ExceptionGroup.
        `missing_ok`: an object that is not there counts as removed. With a generation or a condition, one that
        is gone after an answer was lost counts as removed, too, by this call or by somebody else; exclusive:
        it does not (NotFoundError), so that success means that this call removed it.
        """
        if isinstance(uri, str):
            try:
                super().delete(uri, generation=generation, if_generation_match=if_generation_match, exclusive=exclusive)
            except NotFoundError:
                if not missing_ok:
                    raise
            return
        errors: Errors = []
        calls = _delete_calls(uri, generation, if_generation_match, exclusive)
        for _, failed, error in self._bulk(calls, _BULK_REQUESTS):
            if isinstance(error, ValueError):
                raise error
            errors += failed if error is None else [error]
        _raise_all(errors, "removed", missing_ok)

    def put_many(
        self,
        objects: Iterable[tuple[str, Any]],
        *,
        content_type: str | None = None,
        storage_class: str | None = None,
        requests: int = _BULK_REQUESTS,
        progress: bool | str = False,
    ) -> Generations:
        """Writes many objects, given as (uri, data) with `data` as of put, `requests` at once; returns their
        generations.

        All are tried; what could not be written is raised as an ExceptionGroup.
        """
        generations: dict[int, int] = {}
        errors: Errors = []
        requests = whole(requests, "requests", 1, _BULK_REQUESTS_MAX)
        pairs = enumerate(_pairs(objects))
        said = {"content_type": content_type, "storage_class": storage_class}
        calls = ((index, "put", pair, said) for index, pair in pairs)
        with _progress.advancing(progress, "put", _progress.length(objects)) as advance:
            for index, generation, error in self._bulk(calls, requests):
                advance(1)
                if error is None:
                    generations[index] = generation
                else:
                    errors.append(error)
        _raise_all(errors, "written")
        return [generations[index] for index in range(len(generations))]

    def sign_url(
        self,
        uri: str,
        *,
        method: str = "GET",
        expires: float | datetime.timedelta = 3600,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> str:
        """A URL by which anybody may do this with the object, without credentials, until it expires.

        expires: seconds from now by this machine's clock, up to a week. method: "GET", "HEAD", "PUT", "POST" or
        "DELETE". headers: those that the request must have then, such as {"Content-Type": "image/png"} or
        {"x-goog-if-generation-match": "0"}. query: parameters, such as {"generation": "5"} or
        {"response-content-disposition": "attachment"}. The client's user_project is one of them, unless "userProject" is
        given: whoever uses the URL is not asked who pays.

        It is signed by the key of the service account whose file the client's credentials are (ValueError: they are
        others), and nobody is asked whether the object exists. Whoever has the URL can use it: keep it secret."""
        from ringest import _signing

        credentials, payer = self._settings["credentials"], self._settings["user_project"]
        return _signing.sign_url(
            _signing.find_key(None if credentials is None else os.fspath(credentials)),
            uri,
            endpoint=self._settings["endpoint"],
            method=method,
            expires=expires,
            headers=_fields.fields(headers),
            query=({"userProject": payer} if payer else {}) | _fields.texts(query, "query"),
            now=datetime.datetime.now(datetime.UTC),
        )

    def _bulk(self, calls: Iterable[tuple], requests: int) -> Iterator[tuple]:
        """Makes (tag, name, arguments, keywords) calls; gives (tag, result, error) as they end."""
        queue = _core.Queue(self, requests)
        try:
            for tag, name, arguments, keywords in calls:
                try:
                    while queue.submit(tag, name, *arguments, **keywords) is None:
                        if len(queue) == 0:
                            time.sleep(0.001)  # others have filled the client
                        yield from queue.wait()
                except ValueError as error:
                    yield tag, None, error
            while len(queue) > 0:
                yield from queue.wait()
        finally:
            queue.close()

    def _channel(self) -> Channel:
        with _lock:
            if self._channels is None:
                from ringest.aio import Channels

                self._channels = Channels()
        return self._channels.get(self)

    async def aget(self, uri: str, *, offset: int = 0, length: int = 0, generation: int = 0) -> Buffer:
        """Async version of get."""
        return await self._channel().call("get", uri, offset=offset, length=length, generation=generation)

    async def aget_ranges(
        self, uri: str, ranges: Iterable[tuple[int, int]], *, generation: int = 0, gap: int = 0
    ) -> Buffers:
        """Async version of get_ranges."""
        return await self._channel().call("get_ranges", uri, ranges, generation=generation, gap=gap)

    async def aput(
        self,
        uri: str,
        data: Any,
        *,
        if_generation_match: int | None = None,
        content_type: str | None = None,
        exclusive: bool = True,
        storage_class: str | None = None,
    ) -> int:
        """Async version of put. The memory, or the file, of `data` must not change before it is done, or cancelled."""
        return await self._channel().call(
            "put",
            uri,
            data,
            ends_first=True,
            if_generation_match=if_generation_match,
            content_type=content_type,
            exclusive=exclusive,
            storage_class=storage_class,
        )

    async def astat(self, uri: str, *, generation: int = 0) -> dict[str, Any]:
        """Async version of stat."""
        return await self._channel().call("stat", uri, generation=generation)

    async def aexists(self, uri: str, *, generation: int = 0) -> bool:
        """Async version of exists."""
        try:
            await self.astat(uri, generation=generation)
        except NotFoundError:
            return False
        return True

    async def aget_into(
        self,
        uri: str,
        requests: Sequence[tuple[int, Any]],
        *,
        generation: int = 0,
        verify: bool = True,
        gap_max: int = 0,
        checksums: bool = False,
        whole: bool = False,
        crc32c: int | None = None,
    ) -> Any:
        """Async version of get_into. After the task is cancelled, nothing writes to the buffers."""
        return await self._channel().call(
            "get_into",
            uri,
            requests,
            ends_first=True,
            generation=generation,
            verify=verify,
            gap_max=gap_max,
            checksums=checksums,
            whole=whole,
            crc32c=crc32c,
        )

    async def aput_many(
        self,
        objects: Iterable[tuple[str, Any]],
        *,
        content_type: str | None = None,
        storage_class: str | None = None,
        requests: int = _BULK_REQUESTS,
    ) -> Generations:
        """Async version of put_many."""
        from ringest.aio import put_many

        said = {"content_type": content_type, "storage_class": storage_class}
        requests = whole(requests, "requests", 1, _BULK_REQUESTS_MAX)
        generations, errors = await put_many(self._channel(), _pairs(objects), requests, said)
        _raise_all(errors, "written")
        return [generations[index] for index in range(len(generations))]

    def awriter(self, uri: str, **options: Any) -> AsyncWriter:
        """writer for an event loop, with the same arguments: `async with client.awriter(uri) as stream:
        await stream.write(data)`."""
        from ringest.aio import AsyncWriter

        return AsyncWriter(self.writer(uri, **options))

    async def aupdate(
        self,
        uri: str,
        *,
        content_type: str | None = None,
        metadata: Mapping[str, str | None] | None = None,
        content_encoding: str | None = None,
        cache_control: str | None = None,
        generation: int = 0,
        if_generation_match: int | None = None,
        if_metageneration_match: int | None = None,
        exclusive: bool = True,
    ) -> dict[str, Any]:
        """Async version of update."""
        return await self._channel().call(
            "update",
            uri,
            content_type=content_type,
            metadata=metadata,
            content_encoding=content_encoding,
            cache_control=cache_control,
            generation=generation,
            if_generation_match=if_generation_match,
            if_metageneration_match=if_metageneration_match,
            exclusive=exclusive,
        )

    async def acompose(
        self,
        uri: str,
        sources: Iterable[str | tuple[str, int]],
        *,
        if_generation_match: int | None = None,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        exclusive: bool = True,
        storage_class: str | None = None,
    ) -> dict[str, Any]:
        """Async version of compose."""
        return await self._channel().call(
            "compose",
            uri,
            sources,
            if_generation_match=if_generation_match,
            content_type=content_type,
            metadata=metadata,
            exclusive=exclusive,
            storage_class=storage_class,
        )

    async def alist(
        self,
        uri: str,
        *,
        folder_markers: bool = True,
        glob: str | None = None,
        start_offset: str | None = None,
        end_offset: str | None = None,
        versions: bool = False,
    ) -> Objects:
        """Async version of list."""
        filters = _filters(folder_markers, glob, start_offset, end_offset, versions)
        return await self._channel().call("list", uri, **filters)

    async def alist_folder(self, uri: str, *, limit: int = 0) -> tuple[Objects, Sequence[str]]:
        """Async version of list_folder."""
        return await self._channel().call("list_folder", uri, limit=limit)

    async def acopy(
        self,
        uri: str,
        target: str,
        *,
        generation: int = 0,
        if_generation_match: int | None = None,
        storage_class: str | None = None,
    ) -> dict[str, Any]:
        """Async version of copy."""
        return await self._channel().call(
            "copy",
            uri,
            target,
            generation=generation,
            if_generation_match=if_generation_match,
            storage_class=storage_class,
        )

    async def alist_uploads(self, uri: str) -> Uploads:
        """Async version of list_uploads."""
        return await self._channel().call("list_uploads", uri)

    async def aabort_upload(self, uri: str, upload_id: str) -> None:
        """Async version of abort_upload."""
        await self._channel().call("abort_upload", uri, upload_id)

    async def adelete(
        self,
        uri: str | Iterable[str | tuple[str, int]],
        *,
        generation: int = 0,
        if_generation_match: int | None = None,
        missing_ok: bool = False,
        exclusive: bool = False,
    ) -> None:
        """Async version of delete."""
        import asyncio

        channel = self._channel()
        if isinstance(uri, str):
            try:
                await channel.call(
                    "delete",
                    uri,
                    generation=generation,
                    if_generation_match=if_generation_match,
                    exclusive=exclusive,
                )
            except NotFoundError:
                if not missing_ok:
                    raise
            return
        calls = (
            channel.call(name, *arguments, **keywords)
            for _, name, arguments, keywords in _delete_calls(uri, generation, if_generation_match, exclusive)
        )
        errors: Errors = []
        for failed in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(failed, MemoryError):
                raise failed  # all of them have it
            if isinstance(failed, Exception):
                errors.append(failed)
            elif isinstance(failed, BaseException):
                raise failed  # somebody cancelled a task that is none of the caller's
            else:
                errors += failed
        _raise_all(errors, "removed", missing_ok)

    def aget_many(
        self, uris: Iterable[str], *, ordered: bool = False, batch: int | None = None
    ) -> AsyncIterator[Items]:
        """Async version of get_many: an asynchronous iterator."""
        from ringest.aio import batches

        return batches(super().get_many(_many(uris), ordered=ordered, batch=batch))


def _filters(
    folder_markers: bool, glob: str | None, start_offset: str | None, end_offset: str | None, versions: bool
) -> dict[str, Any]:
    """Those of list."""
    for what, text in (("glob", glob), ("start_offset", start_offset), ("end_offset", end_offset)):
        if not isinstance(text, str | None):
            raise TypeError(f"{what} must be a str or None, got {text!r}")
    return {
        "folder_markers": flag(folder_markers, "folder_markers"),
        "glob": glob,
        "start_offset": start_offset,
        "end_offset": end_offset,
        "versions": flag(versions, "versions"),
    }


def _many(uris: Iterable[str]) -> Iterable[str]:
    if isinstance(uris, str):
        raise TypeError(f"get_many takes a list of URIs, not one: [{uris!r}]")
    return uris


def _pairs(objects: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Those of put_many."""
    form = "put_many takes a list of (uri, data)"
    if not isinstance(objects, Iterable):
        raise TypeError(f"{form}, got {objects!r}")
    if isinstance(objects, Mapping):
        raise TypeError(f"{form}, got a {type(objects).__name__}: give its items()")
    for pair in objects:
        # Data may be large, and is not shown.
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            shown = repr(pair) if isinstance(pair, str) else f"of type {type(pair).__name__}"
            raise TypeError(f"{form}, and one item is {shown}")
        yield pair[0], pair[1]


def _delete_calls(
    uris: Iterable[str | tuple[str, int]], generation: int, condition: int | None, exclusive: bool
) -> Iterator[tuple]:
    if generation or condition is not None:
        raise ValueError(
            "generation and if_generation_match are of one object; for many, give [(uri, generation), ...]"
        )
    if exclusive:
        raise ValueError("exclusive is of one object, with its generation")
    if not isinstance(uris, Iterable):
        raise TypeError(f"delete takes a URI or a list of them, got {uris!r}")
    rest = iter(uris)
    while some := tuple(itertools.islice(rest, _DELETES_MAX)):
        yield None, "delete_many", (some,), {}


def _raise_all(errors: Sequence[Exception], what: str, missing_ok: bool = False) -> None:
    if missing_ok:
        errors = [error for error in errors if not isinstance(error, NotFoundError)]
    if errors:
        how_many = f"{len(errors)} object{'s' * (len(errors) > 1)}"
        raise ExceptionGroup(f"{how_many} could not be {what}, the first: {errors[0]}", errors)


def _rebuild(settings: dict) -> Client:
    return Client(**settings)


_lock = threading.Lock()
_default: Client | None = None


def default_client() -> Client:
    """The client that is used where none is given: one for the process, by the environment."""
    global _default
    with _lock:
        if _default is None:
            _default = Client()
        return _default


def _default_if_open() -> Client | None:
    """The same, but makes none."""
    return _default


def _forget_lock() -> None:
    # The parent may have held it.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def stats(client: Client | None = None) -> dict[str, Any]:
    """Counters and latencies (in ns) of all clients of this process, closed ones too; with `client`, of that one.

    A bucket that answers 429, many 503 or slower than before is slowed down: requests begin at a rate. backoffs counts
    how often one was cut, limited the requests that had to wait for one, and concurrency_limit is about how many are
    out at the lowest now (0: none is slowed down). With `client` there are also "buckets": for each name "reads" and
    "writes" with rate_per_s (requests a second that the client may begin: what is left of it, at most the options
    reads_per_s, writes_per_s and ramp; 0: none), limit (about how many are out at that; 0: not slowed down), in_flight,
    waiting and backoffs, and how many "processes" of this host share the rate (0: none is shared)."""
    if not isinstance(client, Client | None):
        raise TypeError(f"client must be a Client or None, got {client!r}")
    return _core.stats() if client is None else client.stats()
