import builtins
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from types import GenericAlias, ModuleType
from typing import Any, Generic, Literal, final, overload

from typing_extensions import TypeVar

version: str

# What an Item has: a Buffer, or of a TarIndex a dict of the sample.
_Data_co = TypeVar("_Data_co", covariant=True, default=Buffer)

def crc32c(data: Any, crc: int = 0, /) -> int:
    """The CRC32C of bytes that come behind others which have `crc`."""

def crc32c_combine(first: int, second: int, size: int, /) -> int:
    """The CRC32C of two pieces, the second of `size` bytes, by those of each."""

def stats() -> dict[str, Any]: ...
def metrics() -> list[tuple[Any, ...]]: ...
def trace_begin(events: int, /) -> None: ...
def trace_end() -> tuple[list[tuple[int, int, int, int, str | None, str, int, int, str]], int]:
    """Events (at_ns, took_ns, request, connection, operation, what, thread, attempts, name), and how many were dropped."""

def _log_begin(level: int, /) -> None:
    """Keeps lines of the library's log: 1 error, 2 warn, 3 info, 4 debug, 5 none."""

def _log_end() -> None:
    """Keeps no more; who waits for a line gets None."""

def _log_forget() -> None:
    """In a child of fork: its parent's lines and locks."""

def _log_take() -> tuple[int, str, str, int] | None:
    """Level, place, text, and how many lines were lost before it. Waits; None at the end."""

def _buffer_of(data: Any, /) -> Buffer:
    """A Buffer with a copy of the bytes: what a pickled one becomes."""

def _rsa_sha256_sign(pem: str, data: bytes, /) -> bytes:
    """The signature of RS256, with an RSA private key. ValueError: it is none."""

def _hypervisor() -> str | None:
    """What this machine is a guest of, as systemd-detect-virt names it; None: of nothing."""

def unite(saved: list[tuple[bytes | None, bytes | None]], all_ranks: bool, /) -> bytes:
    """What readers of one epoch have consumed, each given as its state and its base, as a base to go on
    from: of one rank, or with `all_ranks` of all. ValueError: what is missing, doubled or of something else."""

@final
class Buffer:
    """Bytes of an object, in memory of the library: bytes-like, freed with the last view. Writable, but for
    those of get_ranges that have bytes in common with another: these are read-only, and DLPack gives a copy of
    them only (copy=True).

    What takes bytes-like objects takes it as it is: io.BytesIO(data), numpy.frombuffer, torch.frombuffer,
    pickle.loads, hashlib, write() of files. What takes only bytes or str wants a copy: json.loads(data.decode()),
    dictionary.get(data.to_bytes()).

    Unpickled, as from the workers of a DataLoader, it is a Buffer with a copy of the bytes in memory of its own,
    which the client's memory does not count. Any thread may use it; who writes to it while others read looks after
    that.
    """

    def __reduce__(self) -> tuple[Callable[[Any], Buffer], tuple[bytes]]: ...
    def to_bytes(self) -> bytes:
        """A copy."""

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The text that the bytes are."""

    def is_pinned(self) -> bool:
        """Whether CUDA knows this memory (Client(pinned=...)), so that devices copy from it directly. Keep the Buffer
        until such a copy is done. DLPack tells it as memory of the CPU, and as kDLCUDAHost (3, 0) if that is asked
        for."""

    def __iter__(self) -> Iterator[int]: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> int: ...
    @overload
    def __getitem__(self, key: slice, /) -> memoryview: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class Item(Generic[_Data_co]):
    """One object that was read. data is None where error is not."""

    def __class_getitem__(cls, data: Any, /) -> GenericAlias: ...
    @property
    def uri(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def data(self) -> _Data_co: ...
    @property
    def generation(self) -> int: ...
    @property
    def is_gzip(self) -> bool: ...
    @property
    def error(self) -> Exception | None: ...

@final
class Objects:
    """Names, sizes and generations: a sequence of (name, size, generation), which never changes.

    Its bytes are those of a manifest file (memoryview, Client.put). Lists in memory keep the order they were
    given in. To a process that is started (spawn, forkserver) a large one travels as sealed memory that both
    map, and else as its bytes."""

    def __new__(
        cls,
        bucket: str | None = None,
        entries: list[tuple[str, int, int]] | None = None,
        *,
        manifest: str | PathLike[str] = ...,
        data: Any = ...,
        fd: int = -1,
    ) -> Objects: ...
    @property
    def bucket(self) -> str: ...
    @property
    def size(self) -> int:
        """Bytes of all objects together, counted once; those of names that were given by hand are not known and
        count as 0."""

    @property
    def _totals(self) -> tuple[int, int]:
        """That, and how many are folder markers: empty, with a name that ends in "/"."""

    @property
    def _digest(self) -> str | None: ...
    @_digest.setter
    def _digest(self, digest: str, /) -> None: ...
    @property
    def digest(self) -> str:
        """SHA-256 of its bytes, in hexadecimal: the same objects in the same order have the same one."""

    @property
    def fd(self) -> int:
        """The descriptor of its memory or file; -1: it is small, and memory of this process alone."""

    def save(self, path: str | PathLike[str], /) -> None:
        """Writes a manifest file, in the order of names: datasets open it at once, without listing,
        and processes share it. ValueError: an object is there twice."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> tuple[str, int, int]: ...
    def __iter__(self) -> Iterator[tuple[str, int, int]]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Client:
    def __init__(self, **settings: Any) -> None:
        """ringest.Client names the settings and says what they are."""

    def get_ranges(
        self, uri: str, ranges: Iterable[tuple[int, int]], *, generation: int = 0, gap: int = 0
    ) -> list[Buffer]: ...
    def get(self, uri: str, *, offset: int = 0, length: int = 0, generation: int = 0) -> Buffer:
        """length 0: to the end. Here and elsewhere, generation 0 is the newest; if_generation_match None is no
        condition, and 0 that there must be no such object."""

    def _get_told(
        self, uri: str, *, offset: int = 0, length: int = 0, generation: int = 0
    ) -> tuple[Buffer, int, int | None, int | None, int]:
        """As get, with what its answer tells of the object: the bytes, the generation, the size and the CRC32C of all of
        it, None where they are not told, and the CRC32C of the bytes."""

    def put(
        self,
        uri: str,
        data: Any,
        *,
        if_generation_match: int | None = None,
        content_type: str | None = None,
        exclusive: bool = True,
        storage_class: str | None = None,
    ) -> int:
        """Writes an object and returns its generation. data: bytes-like, or a pathlib.Path of a regular file, which is
        read as it is sent; neither may change before the call returns. if_generation_match: the generation to replace, 0:
        there must be no such object; otherwise PreconditionError.

        exclusive: with a condition, success means that this call wrote the object, as locks, counters and
        commits need it. A nonce in the object's metadata ("ringest-nonce") proves that where an answer was
        lost; without it, somebody else who has written the same bytes would look the same. False: that is good
        enough. PreconditionError also where this call wrote it and somebody has replaced it since.

        storage_class: such as NEARLINE; None: the default of the bucket."""

    def get_many(self, uris: Iterable[str], *, ordered: bool = False, batch: int | None = None) -> GetMany: ...
    @overload
    def get_into(
        self,
        uri: str,
        requests: Sequence[tuple[int, Any]],
        *,
        generation: int = 0,
        verify: bool = True,
        gap_max: int = 0,
        whole: bool = False,
        crc32c: int | None = None,
    ) -> int: ...
    @overload
    def get_into(
        self,
        uri: str,
        requests: Sequence[tuple[int, Any]],
        *,
        generation: int = 0,
        verify: bool = True,
        gap_max: int = 0,
        checksums: Literal[True],
        whole: bool = False,
        crc32c: int | None = None,
    ) -> tuple[int, list[int]]:
        """Reads ranges of one object straight into memory: each request is an offset and a writable,
        contiguous buffer, which is filled. All bytes are of one generation, which is returned. No two buffers
        may have memory in common.

        Ranges that are no further apart than gap_max bytes (0: 64 KiB) share a request. With checksums,
        the CRC32C of each range that is not empty comes too.

        With verify, what came is compared with the object's CRC32C where the requests cover all of it, in any
        order. With whole, too, ChecksumError is raised where that could not be done. crc32c: the object's, from
        stat, for servers that do not tell it with the bytes.
        EOFError: a range ends behind the object. Lets other threads run meanwhile."""

    def _get_into_addresses(self, uri: str, requests: Any, **keywords: Any) -> Any:
        """get_into, with a table of (offset, length, address) as 64-bit numbers, for memory that has no
        buffer interface. The caller keeps it alive."""

    def stat(self, uri: str, *, generation: int = 0) -> dict[str, Any]: ...
    def delete(
        self,
        uri: str,
        *,
        generation: int = 0,
        if_generation_match: int | None = None,
        exclusive: bool = False,
    ) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def _metrics(self) -> builtins.list[tuple[Any, ...]]: ...
    def _checkpoint_took(self, part: int, ns: int, /) -> None: ...
    def _server_time(self) -> int | None: ...
    def close(self) -> None: ...
    def list(
        self,
        uri: str,
        *,
        progress: Callable[[int], Any] | None = None,
        folder_markers: bool = True,
        glob: str | None = None,
        start_offset: str | None = None,
        end_offset: str | None = None,
        versions: bool = False,
    ) -> Objects: ...
    def list_folder(self, uri: str, *, limit: int = 0) -> tuple[Objects, Sequence[str]]:
        """The objects whose names begin with the URI's and have no "/" behind that, and the folders: what
        other names have up to that "/". limit: stop at so many, or a few more; 0: all."""

    def _list_details(
        self, uri: str, *, folder: bool = False, limit: int = 0
    ) -> tuple[builtins.list[tuple[str, int, int, int | None, str | None]], builtins.list[str] | None]:
        """As list, or with `folder` as list_folder, but with all that is told of each object: (name, size,
        generation, CRC32C, time of its last change as RFC 3339)."""

    def copy(
        self,
        uri: str,
        target: str,
        *,
        generation: int = 0,
        if_generation_match: int | None = None,
        storage_class: str | None = None,
    ) -> dict[str, Any]:
        """Has the service copy an object, with its metadata; what stat says of the target, and found_done: true
        where an answer was lost and somebody else may have copied the same.

        generation: of the source, 0: the newest. if_generation_match: of what is at the target, 0: nothing. storage_class:
        such as NEARLINE; None: the default of the target's bucket. To its own place, an object gets the class, unless
        somebody else replaces or changes it meanwhile (PreconditionError)."""

    def update(
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
        """Changes what is stored about an object; what stat says of it then, and found_done as of copy. None leaves a
        field alone, "" removes it; of metadata, the pairs that are named change, and None removes one.

        if_metageneration_match: the metageneration that stat said, otherwise PreconditionError; only with it can the
        request be sent again when an answer was lost. exclusive: with it, success means that this call has made the
        change, by a nonce in the metadata, as of put."""

    def compose(
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
        """Has the service join 1 to 32 objects of one bucket, which stay; what stat says of the result, and found_done
        as of copy. sources: URIs, or (uri, generation). The result may be one of them. if_generation_match, exclusive:
        as of put. storage_class: all sources must have it; None: the default of the bucket."""

    def list_uploads(self, uri: str) -> builtins.list[tuple[str, str, str | None]]:
        """Multipart uploads that were begun and neither completed nor aborted, of objects whose names begin
        with the URI's: (name, id, time of its beginning as RFC 3339, None where it was not told), in the order
        of names. Killed programs leave them; those that a program is still at look the same."""

    def abort_upload(self, uri: str, upload_id: str) -> None:
        """Ends an upload of the object and removes its parts; the object stays as it is. NotFoundError: there
        is no such upload any more."""

@final
class GetMany(Iterator[list[Item]]):
    """The iterator of get_many; for event loops: poll() when fileno() is readable."""

    def __next__(self) -> list[Item]: ...
    def poll(self) -> list[Item] | Literal[False] | None: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...

@final
class Queue:
    """Requests that are awaited: submit with a tag, take what has ended."""

    def __new__(cls, client: Client, capacity: int) -> Queue: ...
    def submit(self, tag: Any, name: str, /, *arguments: Any, **keywords: Any) -> int | None: ...
    def take(self) -> list[tuple[Any, Any, Exception | None]]: ...
    def wait(self) -> list[tuple[Any, Any, Exception | None]]: ...
    def cancel(self, ticket: int, /) -> None: ...
    def fileno(self) -> int: ...
    def close(self) -> list[Any]: ...
    def __len__(self) -> int: ...

@final
class Writer:
    """A stream into one object, which appears, whole, when it is finished. One thread at a time.

    Left by an exception as a context manager it is aborted, otherwise finished. After a failure nothing
    is left of it in the bucket."""

    def __new__(
        cls,
        client: Client,
        uri: str,
        *,
        part_size: int = 0,
        parts_in_flight: int = 0,
        if_generation_match: int | None = None,
        content_type: str | None = None,
        size_hint: int = 0,
        exclusive: bool = True,
        storage_class: str | None = None,
    ) -> Writer: ...
    def write(self, data: Any, *, borrow: bool = False) -> int:
        """Takes all of any contiguous bytes-like object, waiting for room where there is none. One that
        raises ends the stream, of which nothing is published.

        borrow: the bytes are sent from where they are, without a copy; they must stay as they are, and
        are kept alive, until finish or abort."""

    def _write_address(self, address: int, size: int, owner: Any, sum: int, before: int = 0, /) -> int:
        """Lends memory that has no buffer interface and is kept alive by its owner. Returns, for a `sum` of 0,
        0; of 1, its CRC-32 (of ZIP); of 2, its CRC32C, which the upload needs anyway; `before`: the sum that it continues."""

    def _write_framed(self, pieces: Sequence[tuple[bytes, int, int, Any, bytes]], /) -> list[int]:
        """Of each (before, address, size, owner, behind): two copies of bytes, and between them memory that is lent, as by
        _write_address. Returns the CRC32C of each memory."""

    def _set_rate(self, bytes_per_s: int, /) -> None:
        """From now on sends no more in a second, in small pieces; 0: as fast as it goes. Of any thread, also while
        another one writes or finishes."""

    def finish(self) -> dict[str, int]:
        """Publishes the object: its generation, size and crc32c, and found_done: true where an answer was lost
        and somebody else may have written the same bytes, never with `exclusive`. Again: the same answer."""

    def abort(self) -> None:
        """Ends the upload and removes what it left; nothing after finish, or again."""

    def __enter__(self) -> Writer: ...
    def __exit__(self, *exception: Any) -> None: ...
    @property
    def size(self) -> int:
        """Bytes written."""

    @property
    def ended(self) -> bool:
        """True after finish, abort or a failure."""

@final
class ObjectReader:
    """Reads one generation of an object, from any place. What goes on where the last read ended is read
    ahead; large pieces go straight into the caller's memory. One thread at a time."""

    def __new__(cls, client: Client, uri: str, *, generation: int = 0) -> ObjectReader: ...
    def read_at(self, offset: int, buffer: Any, /) -> int:
        """Fills the buffer, but for the object's end: how many bytes."""

    def close(self) -> None:
        """Gives back what was read ahead."""

@final
class Reader:
    def __new__(
        cls,
        client: Client,
        objects: Objects | TarIndex,
        *,
        shuffle: bool = False,
        seed: int = 0,
        epoch: int = 0,
        rank: int = 0,
        world_size: int = 1,
        worker: int = 0,
        worker_count: int = 1,
        batch_size: int = 1,
        remainder: int = 0,
        changed: int = 0,
        unordered: bool = False,
        window_requests: int = 0,
        window_bytes: int = 0,
        state: bytes | None = None,
        members: list[str] | None = None,
        request_bytes: int = 0,
        indices: list[int] | None = None,
        base: bytes | None = None,
        digest: bytes | None = None,
        prefetch_next: bool = False,
    ) -> Reader: ...
    def take(self, count: int, /) -> list[Item[Any]]: ...
    def take_some(self, count: int, /) -> list[Item[Any]]: ...
    def take_data(self, count: int, /) -> list[Buffer]: ...
    def start(self) -> None: ...
    def poll(self, count: int, /) -> list[Item[Any]] | None: ...
    def poll_data(self, count: int, /) -> list[Buffer] | None: ...
    def fileno(self) -> int: ...
    def consume(self) -> None: ...
    def introduce(self, dataset: str, source: str, ahead: str, /) -> None: ...
    def explain(
        self, count: int, ahead: str, /
    ) -> tuple[int, float, float, dict[str, float], float, float, str, str]: ...
    def pend(self, place: tuple[Any, ...], /) -> None: ...
    def state(self) -> bytes: ...
    def close(self) -> None: ...
    @property
    def base(self) -> bytes | None: ...
    @property
    def told(self) -> tuple[Any, ...] | None: ...
    @property
    def total(self) -> int: ...
    @property
    def taken(self) -> int: ...
    @property
    def skipped(self) -> int: ...

@final
class Iteration(Iterator[Any]):
    """What iter() of a dataset gives: the values of an iterator, each consumed when it goes out."""

    def __new__(
        cls, values: Iterator[Any], reader: Reader, profiler: ModuleType | None = None, title: str = "", /
    ) -> Iteration:
        """profiler: torch.autograd.profiler, which is told of each step by this title while it runs."""

    def __next__(self) -> Any: ...
    def close(self) -> None:
        """Ends it, as a generator's does. A call that another thread is in fails."""

@final
class AsyncIterationStep(Coroutine[Any, Any, Any]):
    """What anext() and aclose() of an AsyncIteration give, to be awaited. Left by an exception it takes nothing."""

    def __await__(self) -> AsyncIterationStep: ...
    def __iter__(self) -> AsyncIterationStep: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any, /) -> Any: ...
    def throw(self, *arguments: Any) -> Any: ...
    def close(self) -> None: ...

@final
class AsyncIteration(AsyncIterator[Any]):
    """What aiter() of a dataset gives: the values of an iterator, each consumed when it goes out. A value that is the
    reader itself says that there is none yet: then what `wait` gives is awaited."""

    def __new__(
        cls, values: Iterator[Any], reader: Reader, wait: Callable[[], Awaitable[None]], /
    ) -> AsyncIteration: ...
    def __anext__(self) -> AsyncIterationStep: ...
    def aclose(self) -> AsyncIterationStep:
        """Ends it, as an asynchronous generator's does. What another task awaits of it fails."""

@final
class TarIndex:
    """Where the samples of tar archives lie: opened from a file, or made by scan()."""

    @overload
    def __new__(cls, path: str | PathLike[str]) -> TarIndex: ...
    @overload
    def __new__(cls, *, data: Any) -> TarIndex: ...
    @overload
    def __new__(cls, *, fd: int) -> TarIndex: ...
    @staticmethod
    def scan(
        client: Client,
        bucket: str,
        shards: list[tuple[str, int, int]],
        *,
        known: TarIndex | None = None,
        at_once: int = 0,
        progress: Callable[[int, int], Any] | None = None,
    ) -> TarIndex: ...
    @classmethod
    def from_data(cls, data: Any, /) -> TarIndex: ...
    @property
    def bucket(self) -> str: ...
    @property
    def _digest(self) -> str | None: ...
    @_digest.setter
    def _digest(self, digest: str, /) -> None: ...
    @property
    def digest(self) -> str:
        """SHA-256 of its bytes, in hexadecimal."""

    @property
    def fd(self) -> int:
        """The descriptor of its memory or file; -1: it is small, and memory of this process alone."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> tuple[str, int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def save(self, path: str | PathLike[str], /) -> None: ...
    def data(self) -> bytes: ...
    def shards(self) -> list[tuple[str, int, int, int, int]]: ...
    def sample(self, index: int, /) -> tuple[str, str, list[tuple[str, int, int]]]: ...
