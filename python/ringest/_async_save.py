"""Saving while training goes on: AsyncSaver of ringest.checkpoint.

    AsyncSaver -> save (pickles, and copies storages) -> a thread sends the copy -> Saving.result

torch pickles in the caller's thread, into an archive that keeps its entries. Only their memory is copied, storage by
storage, so that what shares memory still does. The copies' memory is used again by later saves."""

from __future__ import annotations

import atexit
import concurrent.futures
import io
import os
import pickle
import threading
import types
from typing import TYPE_CHECKING, Any

from ringest._log import logger
from ringest._needs import needs
from ringest._numbers import whole
from ringest._torch_zip import ArchiveWriter, torch_alignment, torch_checksums
from ringest.client import Client, default_client, parse_size

if TYPE_CHECKING:
    import torch

# How many states may be copied and not yet sent.
COPIES_MAX = 64


class Saving:
    """A save that goes on."""

    def __init__(self, uri: str):
        self.uri = uri
        self._future: concurrent.futures.Future[dict[str, int]] | None = None

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._future is not None and self._future.done()

    def result(self, timeout: float | None = None) -> dict[str, int]:
        """Waits, and gives the object's generation, size and crc32c, or raises what went wrong. TimeoutError after
        `timeout` seconds."""
        assert self._future is not None
        concurrent.futures.wait([self._future], timeout)
        if not self._future.done():
            raise TimeoutError(f"{self.uri}: is still being saved after {timeout} s")
        _untold.discard(self)
        return self._future.result()

    def _failure(self) -> BaseException | None:
        return self._future.exception() if self._future is not None and self._future.done() else None


# Saves that go on, or that failed and nobody knows.
_untold: set[Saving] = set()


class _Copy:
    """Memory for one state. Invariant: between two saves all of it is in `_free`; what the last state did not need is
    gone."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, bool], list[torch.UntypedStorage]] = {}
        self._used: list[tuple[int, bool, torch.UntypedStorage]] = []

    def take(self, size: int, is_pinned: bool) -> torch.UntypedStorage:
        import torch

        free = self._free.get((size, is_pinned))
        storage = free.pop() if free else torch.empty(size, dtype=torch.uint8, pin_memory=is_pinned).untyped_storage()
        self._used.append((size, is_pinned, storage))
        return storage

    def drop_free(self) -> None:
        self._free.clear()

    def give_back(self) -> None:
        for size, is_pinned, storage in self._used:
            self._free.setdefault((size, is_pinned), []).append(storage)
        self._used.clear()


class _Records:
    """What torch.serialization takes for its ZIP writer: keeps entries, and copies of storages."""

    def __init__(self, copy: _Copy):
        self.entries: list[tuple[str, Any, int]] = []
        self.whole: memoryview | None = None  # all of the file, where torch does not give its entries
        self._copy = copy
        self._fetched: set[int] = set()  # addresses of copies
        self._devices: set[torch.device] = set()  # which they come from
        self._watched: list[torch.UntypedStorage] = []

    def write_record(self, name: str, data: Any, size: int) -> None:
        if size == 0:
            data = b""
        elif not isinstance(data, (str, bytes, bytearray, memoryview)) and data.data_ptr() not in self._fetched:
            data = self._copy.take(size, False).copy_(data)
        self.entries.append((name, data, size))

    def write_record_metadata(self, name: str, size: int) -> None:
        raise NotImplementedError("torch.serialization.skip_data while saving to an object, which cannot have holes")

    def drop(self) -> None:
        self.entries.clear()
        self.whole = None

    def watch(self, storage: torch.UntypedStorage) -> None:
        """Of a device. torch will call its cpu(), which would allocate: this one uses memory that is there, and does not
        wait."""

        def cpu() -> torch.UntypedStorage:
            copy = self._copy.take(storage.nbytes(), True).copy_(storage, non_blocking=True)
            self._fetched.add(copy.data_ptr())
            self._devices.add(storage.device)
            return copy

        storage.cpu = cpu  # type: ignore[method-assign]
        self._watched.append(storage)

    def end(self) -> None:
        """When this returns, nothing of the caller's is read any more."""
        for storage in self._watched:
            storage.__dict__.pop("cpu", None)
        self._watched.clear()
        for device in self._devices:
            import torch

            torch.cuda.synchronize(device)


def _is_of_device(tensor: Any) -> bool:
    import torch

    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.is_cuda and tensor.layout is torch.strided


def _watching(pickle_module: Any, records: _Records) -> Any:
    """The module, with a pickler that shows tensors of devices before torch takes their storages."""

    class Pickler(pickle_module.Pickler):
        def reducer_override(self, value: Any) -> Any:
            if _is_of_device(value):
                records.watch(value.untyped_storage())
            inherited: Any = getattr(super(), "reducer_override", None)
            return inherited(value) if inherited is not None else NotImplemented

    return types.SimpleNamespace(Pickler=Pickler)


class AsyncSaver:
    """Saves what ringest.checkpoint.save would, while training goes on.

        with ringest.checkpoint.AsyncSaver() as saver:
            for step, batch in enumerate(batches):
                train(batch)
                if step % 1000 == 0:
                    saver.save(model.state_dict(), f"gs://bucket/run/step-{step}.pt")

    save() copies the tensors once, into memory of the CPU (pinned for those of a CUDA device), and returns. That memory
    is used again: a saver takes as much as `copies` states have, and save() waits while that many are being sent. Make
    one saver, and keep it for the whole run.

    Saves are sent one after the other, in the order of the calls. An object appears when it is complete, so that a
    process that is killed leaves the one before. If a save fails, its Saving's result() raises why; where nobody has
    asked, the next save(), or wait(), does, once, and that save() saves nothing. The end of the interpreter waits for
    saves, and what could not be saved is logged as an error.

    client: a ringest.Client, by default the process's; it must stay open until the last save has ended. copies: states
    in memory at a time. Any thread may use it. A child of fork() has no part in saves of its parent; it needs a saver of its
    own.
    """

    def __init__(self, *, client: Client | None = None, copies: int = 1):
        with needs("ringest.checkpoint.AsyncSaver"):
            import torch  # noqa: F401

        self._client = client
        self._process = os.getpid()
        self._copies = [_Copy() for _ in range(whole(copies, "copies", 1, COPIES_MAX))]
        self._at_work: list[Saving] = []  # not one of them has ended when it is put in, in order
        self._lock = threading.Lock()
        self._sender: concurrent.futures.ThreadPoolExecutor | None = concurrent.futures.ThreadPoolExecutor(
            1, "ringest-save"
        )
        self._free = list(self._copies)
        self._is_free = threading.Condition()

    def save(
        self,
        obj: Any,
        uri: str,
        *,
        part_size: int | str = 0,
        parts_in_flight: int = 0,
        if_generation_match: int | None = None,
        content_type: str | None = None,
        pickle_module: Any = pickle,
        pickle_protocol: int = 2,
    ) -> Saving:
        """Returns when all is copied: what is in `obj` may change then. The options are those of
        ringest.checkpoint.save. Raises what an earlier save failed of."""
        options = {
            "part_size": parse_size(part_size, "part_size"),
            "parts_in_flight": parts_in_flight,
            "if_generation_match": if_generation_match,
            "content_type": content_type,
        }
        with self._lock:
            copy = self._take_copy(uri)
            try:
                self._raise_failure()
                records = self._copied(copy, obj, pickle_module, pickle_protocol)
                return self._begin(uri, copy, records, options)
            except BaseException:
                self._free_copy(copy)
                raise

    def _take_copy(self, uri: str) -> _Copy:
        if self._process != os.getpid():
            raise ValueError(f"{uri}: the saver is of the process that this one was forked from; make another one")
        with self._is_free:
            while self._sender is not None and not self._free:
                self._is_free.wait()
            if self._sender is None:
                raise ValueError(f"{uri}: the saver is closed")
            return self._free.pop()

    def _free_copy(self, copy: _Copy) -> None:
        copy.give_back()
        with self._is_free:
            self._free.append(copy)
            self._is_free.notify_all()

    def _copied(self, copy: _Copy, obj: Any, pickle_module: Any, pickle_protocol: int) -> _Records:
        import torch

        records = _Records(copy)
        pickling = getattr(torch.serialization, "_save", None)
        try:
            if pickling is None:
                file = io.BytesIO()
                torch.save(obj, file, pickle_module=pickle_module, pickle_protocol=pickle_protocol)
                records.whole = file.getbuffer()
            else:
                chosen = _watching(pickle_module, records) if torch.cuda.is_available() else pickle_module
                pickling(obj, records, chosen, pickle_protocol, False)
        finally:
            records.end()
        copy.drop_free()
        return records

    def _begin(self, uri: str, copy: _Copy, records: _Records, options: dict[str, Any]) -> Saving:
        assert self._sender is not None
        # The options of torch are global, and meant as they are now.
        form = torch_checksums(), torch_alignment()
        client = self._client or default_client()
        saving = Saving(uri)
        saving._future = self._sender.submit(_send, client, uri, records, form, options)
        _untold.add(saving)
        self._at_work.append(saving)

        def ended(future: concurrent.futures.Future[dict[str, int]]) -> None:
            records.drop()
            if not future.cancelled() and future.exception() is None:
                _untold.discard(saving)
            self._free_copy(copy)

        saving._future.add_done_callback(ended)
        return saving

    def _raise_failure(self) -> None:
        """The first one that nobody knows."""
        self._at_work = [each for each in self._at_work if each in _untold]
        for each in self._at_work:
            failure = each._failure()
            if failure is not None:
                _untold.discard(each)
                raise failure

    def wait(self) -> None:
        """Returns when nothing is under way; raises what a save failed of, unless that was raised before."""
        with self._lock:
            concurrent.futures.wait([each._future for each in self._at_work if each._future is not None])
            self._raise_failure()

    def close(self) -> None:
        """Waits as wait() does, and frees the memory. Again: nothing."""
        with self._is_free:
            sender, self._sender = self._sender, None
            self._is_free.notify_all()
        try:
            self.wait()
        finally:
            if sender is not None:
                sender.shutdown()
                with self._is_free:
                    self._free.clear()
                    self._copies.clear()

    def __enter__(self) -> AsyncSaver:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


def _send(
    client: Client, uri: str, records: _Records, form: tuple[bool, int], options: dict[str, Any]
) -> dict[str, int]:
    with client.writer(uri, **options) as writer:
        if records.whole is not None:
            writer.write(records.whole)
            return writer.finish()
        archive = ArchiveWriter(writer, *form)
        for name, data, size in records.entries:
            archive.write_record(name, data, size)
        archive.finish()
        return writer.finish()


def _tell_lost() -> None:
    """Threads have ended by now, unless waiting for them was interrupted."""
    for saving in list(_untold):
        failure = saving._failure()
        why = f": {failure}" if failure is not None else ", because the process ends before all of it was sent"
        logger.error("%s was not saved%s", saving.uri, why)


atexit.register(_tell_lost)
os.register_at_fork(after_in_child=_untold.clear)
