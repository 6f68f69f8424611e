"""What FileSystem.open returns: objects that are written, and layers of text and compression over them.

A file appears when it is closed, and does not when an exception leaves its `with` statement, whatever layers it has.
"""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from ringest import _leaving, checkpoint
from ringest._errors import PreconditionError
from ringest._needs import needs
from ringest.client import parse_size

with needs("ringest.fs"):
    from fsspec import transaction
    from fsspec.caching import caches
    from fsspec.spec import AbstractBufferedFile


class CachedFile(AbstractBufferedFile):
    """An object behind a cache of fsspec's. What the cache asks for is read from one generation; all of it, in order,
    is compared with the object's CRC32C, as of checkpoint.ReadFile."""

    def __init__(
        self,
        fs: Any,
        path: str,
        file: checkpoint.ReadFile,
        block_size: int | str | None,
        cache_type: str,
        cache_options: Mapping[str, Any] | None,
    ):
        self._file = file
        self._turn = threading.Lock()  # some caches fetch in a thread of their own
        try:
            if cache_type not in caches:
                raise ValueError(f"{path}: cache_type is one of {', '.join(map(str, caches))}, not {cache_type!r}")
            size = "default" if block_size is None else parse_size(block_size, "block_size")
            super().__init__(
                fs, path, "rb", size, cache_type=cache_type, cache_options=dict(cache_options or {}), size=file.size
            )
        except BaseException:
            file.close()
            raise

    @property
    def generation(self) -> int:
        return self._file.generation

    def _fetch_range(self, start: int, end: int) -> bytes:
        data = bytearray(max(min(end, self.size) - start, 0))  # some caches ask for what lies behind the end
        got = 0
        with self._turn:
            self._file.raw.seek(start)
            while got < len(data) and (length := self._file.raw.readinto(memoryview(data)[got:])):
                got += length
        return bytes(data[:got])

    def close(self) -> None:
        super().close()
        self._file.close()


class CreatedFile(checkpoint.WriteFile):
    """One that must not be there yet."""

    mode = "xb"

    def _publish(self) -> dict[str, int]:
        try:
            return super()._publish()
        except PreconditionError as error:
            raise FileExistsError(f"{self.name}: exists already") from error


class _Pending(checkpoint.WriteFile):
    """One of a transaction: closed, it waits for commit() or discard(). An exception in its `with` discards it."""

    def close(self) -> None:
        if not self.closed and _leaving.by_exception():
            self.abort()
        io.BufferedIOBase.close(self)

    def commit(self) -> None:
        io.BufferedIOBase.close(self)
        if not self._writer.ended:
            self.result = self._publish()

    def discard(self) -> None:
        self.abort()


class PendingFile(_Pending):
    pass


class PendingCreatedFile(_Pending, CreatedFile):
    pass


class Transaction(transaction.Transaction):
    """One that ends whether its files could be published or not. Older versions of fsspec left it open after a failure:
    nothing that was written then appeared."""

    def complete(self, commit: bool = True) -> None:
        filesystem, files = self.fs, list(self.files)
        try:
            super().complete(commit)
        except BaseException:
            for file in files:
                file.discard()  # nothing, where it was published
            raise
        finally:
            filesystem._intrans = False
            filesystem._transaction = None


class _Layer(io.IOBase):
    """What files over an object have in common; `_file` is the one below."""

    _file: Any

    def _abandon(self) -> None:
        if hasattr(self._file, "_abandon"):
            self._file._abandon()

    def abort(self) -> None:
        """Ends the file without an object. After close: nothing."""
        self._abandon()
        with contextlib.suppress(Exception):
            self.close()

    def commit(self) -> None:
        """Called by a transaction. Takes along what is still in the layers of a file that nobody has closed."""
        self.close()
        self._file.commit()

    def discard(self) -> None:
        self.abort()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class TextFile(_Layer, io.TextIOWrapper):
    """Text; what is not closed is not written: see WriteFile."""

    def __init__(self, file: Any, mode: str, **options: Any):
        self._file = file
        self.__dict__["mode"] = mode  # As the built-in open does.
        super().__init__(file, **options)


class CompressedFile(_Layer, io.BufferedIOBase):
    """What a compressor of fsspec makes of a file. Most of them leave that open when they are closed; this does not."""

    def __init__(self, compress: Any, file: Any, mode: str):
        self._compressor: Any = None
        self._file = file
        self.name = file.name
        self.mode = mode
        self._compressor = compress(file, mode=mode[0])

    def readable(self) -> bool:
        return self.mode[0] == "r"

    def writable(self) -> bool:
        return self.mode[0] == "w"

    def seekable(self) -> bool:
        return bool(self._compressor.seekable())

    def read(self, size: int | None = -1) -> bytes:
        return self._compressor.read(-1 if size is None else size)

    def read1(self, size: int = -1) -> bytes:
        return getattr(self._compressor, "read1", self._compressor.read)(size)

    def readline(self, size: int | None = -1) -> bytes:
        return self._compressor.readline(-1 if size is None else size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._compressor.seek(offset, whence)

    def tell(self) -> int:
        return self._compressor.tell()

    def write(self, data: Any) -> int:
        return self._compressor.write(data)

    def flush(self) -> None:
        if self.writable() and not self._file.closed:
            self._compressor.flush()

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._compressor is not None:
                self._compressor.close()
        except BaseException:
            self._abandon()
            raise
        finally:
            self._file.close()
            super().close()

    def _dealloc_warn(self, layer: Any) -> None:
        if self.writable() and not self.closed:
            self.abort()
            self._file._warn()

    def __del__(self) -> None:
        # io.IOBase would close, which publishes.
        self._dealloc_warn(self)
