"""The awaited side of FileSystem: fsspec's coroutines, and files that are awaited.

What consists of requests only is awaited itself (_fs_steps.py). What walks local folders, or is a long sequence of
decisions, runs as the synchronous call in a thread of the loop's executor, so that both sides do the same. Whoever
cancels one of these goes on when its thread has ended: nothing is written or removed behind its back."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Callable, Mapping
from glob import has_magic
from types import TracebackType
from typing import Any

from ringest import _core, checkpoint
from ringest._errors import PreconditionError
from ringest._fs_steps import arun
from ringest._needs import needs
from ringest.aio import AsyncWriter, _wait_for_all

with needs("ringest.fs"):
    from fsspec.asyn import AsyncFileSystem, get_loop
    from fsspec.callbacks import DEFAULT_CALLBACK, Callback


async def _in_thread(call: Callable[[], Any], end: Callable[[], None] = lambda: None) -> Any:
    """end: is called when the task is cancelled meanwhile, so that the call ends early; that it has ended is waited for."""
    turn = threading.Lock()  # of whoever is first: the thread that calls, or what cancels before that
    context = contextvars.copy_context()

    def call_in_turn() -> Any:
        return context.run(call) if turn.acquire(blocking=False) else None

    running = asyncio.get_running_loop().run_in_executor(None, call_in_turn)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        end()
        if not turn.acquire(blocking=False):
            await _wait_for_all(running)
        raise


class _Ended(Exception):
    """Nobody waits any more for what is being copied."""


class _Advance(Callback):
    """Tells a callback how far a file is copied; after end(), copying raises at its next piece."""

    def __init__(self, callback: Callback):
        super().__init__()
        self._callback = callback
        self._is_ended = False

    def end(self) -> None:
        self._is_ended = True

    def set_size(self, size: int) -> None:
        self._callback.set_size(size)

    def relative_update(self, inc: int = 1) -> None:
        if self._is_ended:
            raise _Ended
        self._callback.relative_update(inc)


class AwaitedFileSystem(AsyncFileSystem):
    """Coroutines over the steps of the class that is made of it. Any event loop may await them."""

    # Synchronous calls need no thread with an event loop, and the sync methods are our own.
    mirror_sync_methods = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Of fsspec: where others run our coroutines from synchronous code. Asked for each time, because a child of fork()
        has another one."""
        return get_loop()

    async def _info(self, path: str, **options: Any) -> Any:
        return await arun(self.client, self._info_steps(path, **options))

    async def _exists(self, path: str, **_options: Any) -> bool:
        return await arun(self.client, self._type_steps(path)) is not None

    async def _isfile(self, path: str) -> bool:
        return await arun(self.client, self._type_steps(path)) == "file"

    async def _isdir(self, path: str) -> bool:
        return await arun(self.client, self._type_steps(path)) == "directory"

    async def _ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        if options.get("versions"):
            return await _in_thread(functools.partial(self.ls, path, detail, **options))
        return await arun(self.client, self._ls_steps(path, detail, **options))

    async def _find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any
    ) -> Any:
        if maxdepth is not None:
            return await _in_thread(functools.partial(self.find, path, maxdepth, withdirs, detail, **options))
        return await arun(self.client, self._find_steps(path, withdirs, detail, **options))

    async def _du(
        self, path: str, total: bool = True, maxdepth: int | None = None, withdirs: bool = False, **options: Any
    ) -> Any:
        found = await self._find(path, maxdepth, withdirs, True, **options)
        sizes = {name: entry["size"] for name, entry in found.items()}
        return sum(sizes.values()) if total else sizes

    async def _expand_path(
        self, path: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any
    ) -> Any:
        return await _in_thread(functools.partial(self.expand_path, path, recursive, maxdepth, **options))

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        return await arun(self.client, self._cat_file_steps(path, start, end, **options))

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **options: Any,
    ) -> list[Any]:
        return await arun(
            self.client, self._cat_ranges_steps(paths, starts, ends, max_gap=max_gap, on_error=on_error, **options)
        )

    async def _cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any) -> Any:
        if isinstance(path, (str, os.PathLike)) and not recursive and not has_magic(os.fspath(path)):
            return await self._cat_file(os.fspath(path), **options)
        return await _in_thread(functools.partial(self.cat, path, recursive, on_error, **options))

    async def _pipe_file(
        self, path: str, value: bytes, mode: str = "overwrite", content_type: str | None = None, **options: Any
    ) -> None:
        await arun(self.client, self._pipe_steps({path: value}, mode=mode, content_type=content_type, **options))

    async def _pipe(self, path: Any, value: bytes | None = None, **options: Any) -> None:
        await arun(self.client, self._pipe_steps(self._named(path, value), **options))

    async def _cp_file(self, path1: str, path2: str, **options: Any) -> None:
        await arun(self.client, self._cp_file_steps(path1, path2, **options))

    async def _rm_file(self, path: str, **options: Any) -> None:
        await arun(self.client, self._rm_file_steps(path, **options))

    async def _rm(
        self, path: Any, recursive: bool = False, batch_size: int | None = None, maxdepth: int | None = None, **_: Any
    ) -> None:
        if isinstance(path, str) and not recursive and not has_magic(path):
            await self._rm_file(path)
        else:
            await _in_thread(functools.partial(self.rm, path, recursive, maxdepth))

    async def _copy(self, path1: Any, path2: Any, **options: Any) -> None:
        await _in_thread(functools.partial(self.copy, path1, path2, **_known(options)))

    async def _mv(self, path1: Any, path2: Any, **options: Any) -> None:
        await _in_thread(functools.partial(self.mv, path1, path2, **_known(options)))

    async def _mv_file(self, path1: str, path2: str) -> None:
        await _in_thread(functools.partial(self.mv, path1, path2))

    async def _get_file(self, rpath: str, lpath: Any, callback: Callback = DEFAULT_CALLBACK, **options: Any) -> None:
        told = _Advance(callback)
        await _in_thread(functools.partial(self.get_file, rpath, lpath, callback=told, **options), told.end)

    async def _put_file(self, lpath: str, rpath: str, callback: Callback = DEFAULT_CALLBACK, **options: Any) -> None:
        told = _Advance(callback)
        await _in_thread(functools.partial(self.put_file, lpath, rpath, callback=told, **options), told.end)

    async def _get(self, rpath: Any, lpath: Any, **options: Any) -> Any:
        return await _in_thread(functools.partial(self.get, rpath, lpath, **_known(options)))

    async def _put(self, lpath: Any, rpath: Any, **options: Any) -> Any:
        return await _in_thread(functools.partial(self.put, lpath, rpath, **_known(options)))

    async def _touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        await _in_thread(functools.partial(self.touch, path, truncate, **options))

    async def _checksum(self, path: str) -> int:
        return (await self._info_of_object(path))["generation"]

    async def _info_of_object(self, path: str) -> Mapping[str, Any]:
        return await arun(self.client, self._stat_steps(path))

    async def _mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        self.mkdir(path, create_parents, **options)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.makedirs(path, exist_ok)

    async def _rmdir(self, path: str) -> None:
        await _in_thread(functools.partial(self.rmdir, path))

    async def open_async(self, path: str, mode: str = "rb", **options: Any) -> ReadStream | WriteStream:
        """An object as a file whose read, write and close are awaited: "rb", "wb", or "xb" where nothing may be there.
        What is written appears, whole, when the file is closed; not if an exception leaves its `async with`."""
        uri, generation = self._place(path)
        options = self._file_options(options)
        if mode == "rb":
            options.setdefault("generation", generation)
            return ReadStream(await checkpoint.aopen(uri, client=self.client, **options))
        if mode not in ("wb", "xb"):
            raise NotImplementedError(f'{uri}: mode is "rb", "wb" or "xb", and not {mode!r}: objects are written whole')
        if mode == "xb":
            self._check_created(uri, options)
            if await self._isfile(path):
                raise FileExistsError(f"{uri}: exists already")
        return WriteStream(self.client.writer(uri, **options), uri, mode)


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """Without how many are done at once, which fsspec says of coroutines only."""
    return {name: value for name, value in options.items() if name != "batch_size"}


class _Stream:
    """What both kinds have in common: a name, a position, and that they are closed."""

    mode: str

    def __init__(self, name: str) -> None:
        self.name = self.path = name
        self.loc = 0
        self.closed = False

    def tell(self) -> int:
        return self.loc

    def _check(self) -> None:
        if self.closed:
            raise ValueError(f"{self.name}: the file is closed")

    async def __aenter__(self) -> Any:
        return self


class ReadStream(_Stream):
    """Bytes one after the other, of the generation that was opened."""

    mode = "rb"

    def __init__(self, file: checkpoint.AsyncReadFile) -> None:
        super().__init__(file.name)
        self._file = file
        self.size, self.generation = file.size, file.generation

    async def read(self, length: int | None = -1) -> bytes:
        """Fewer than asked for only at the end."""
        self._check()
        data = bytes(await self._file.read(-1 if length is None else length, self.loc))
        self.loc += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check()
        begins = {os.SEEK_SET: 0, os.SEEK_CUR: self.loc, os.SEEK_END: self.size}
        if whence not in begins or begins[whence] + offset < 0:
            raise ValueError(f"{self.name}: seek({offset}, {whence}) is before the start of the file")
        self.loc = begins[whence] + offset
        return self.loc

    async def close(self) -> None:
        self.closed = True
        self._file.close()

    async def __aexit__(self, *exception: Any) -> None:
        await self.close()


class WriteStream(_Stream):
    """Bytes that become an object when it is closed."""

    def __init__(self, writer: _core.Writer, uri: str, mode: str) -> None:
        super().__init__(uri)
        self.mode = mode
        self._writer = AsyncWriter(writer)
        self.result: dict[str, Any] | None = None

    async def write(self, data: Any) -> int:
        self._check()
        written = await self._writer.write(data)
        self.loc = self._writer.size
        return written

    async def close(self) -> None:
        """Publishes the object; `result` has its generation, size and crc32c then. Again: nothing."""
        if self.closed:
            return
        self.closed = True
        try:
            self.result = await self._writer.finish()
        except PreconditionError as error:
            if self.mode == "xb":
                raise FileExistsError(f"{self.name}: exists already") from error
            raise

    async def abort(self) -> None:
        """Ends the file without an object. After close: nothing."""
        self.closed = True
        await self._writer.abort()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.close() if kind is None else self.abort())
