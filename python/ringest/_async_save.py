"""Saving while training goes on: AsyncSaver of ringest.checkpoint.

    AsyncSaver -> save (pickles, and copies storages) -> a thread sends the copy -> Saving.result

torch pickles in the caller's thread, into an archive that keeps its entries. Only their memory is copied, storage by
storage, so that what shares memory still does. The copies' memory is used again by later saves."""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import io
import mmap
import os
import pickle
import threading
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ringest import _pace
from ringest._chosen import chosen
from ringest._log import logger
from ringest._needs import needs
from ringest._numbers import whole
from ringest._stages import Part, at
from ringest._torch_zip import ArchiveWriter, torch_alignment, torch_checksums
from ringest.client import Client, parse_size

if TYPE_CHECKING:
    import torch

# How many states may be copied and not yet sent.
COPIES_MAX = 64
# Two huge pages: wherever it begins, one of them fits.
_HUGE_SIZE_MIN = 4 << 20


class Saving:
    """A save that goes on."""

    def __init__(self, uri: str, paces: _pace.Paces):
        self.uri = uri
        self._paces = paces
        self._process = os.getpid()
        # Cancelled where the call of save() was interrupted before the thread had begun.
        self._future: concurrent.futures.Future[dict[str, int]] = concurrent.futures.Future()

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> dict[str, int]:
        """Waits, and gives the object's generation, size and crc32c, or raises what went wrong. TimeoutError after
        `timeout` seconds. ValueError: it goes on in the process that this one was forked from."""
        if not self._future.done():
            _check_process(self._process, self.uri)
        with self._paces.hurried():
            concurrent.futures.wait([self._future], timeout)
        if not self._future.done():
            raise TimeoutError(f"{self.uri}: is still being saved after {timeout} s")
        _untold.discard(self)
        return self._future.result()

    def _failure(self) -> BaseException | None:
        return self._future.exception() if self._future.done() and not self._future.cancelled() else None


def _check_process(process: int, what: str) -> None:
    if process != os.getpid():
        raise ValueError(f"{what}: the saver is of the process that this one was forked from; make another one")


# Saves that go on, or that failed and nobody knows.
_untold: set[Saving] = set()


def _empty(size: int, is_pinned: bool) -> torch.UntypedStorage:
    """New memory. Training waits until it is written to for the first time, which takes 0.6 times as long with huge
    pages."""
    import torch

    if is_pinned or size < _HUGE_SIZE_MIN:
        return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=is_pinned).untyped_storage()
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()


class _Copy:
    """Memory for one state. It belongs to the save that it was last taken for, until that has ended. Invariant: then
    nothing of what the state before did not need is left."""

    def __init__(self) -> None:
        self.saving: Saving | None = None
        self._free: dict[tuple[int, bool], list[torch.UntypedStorage]] = {}
        self._used: list[tuple[int, bool, torch.UntypedStorage]] = []

    def is_free(self) -> bool:
        return self.saving is None or self.saving.done()

    def take(self, size: int, is_pinned: bool) -> torch.UntypedStorage:
        free = self._free.get((size, is_pinned))
        storage = free.pop() if free else _empty(size, is_pinned)
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
        self.has_empty_storage = False

    def write_record(self, name: str, data: Any, size: int) -> None:
        if size == 0:
            self.has_empty_storage |= not isinstance(data, (str, bytes, bytearray, memoryview))
            data = b""
        elif not isinstance(data, (str, bytes, bytearray, memoryview)) and data.data_ptr() not in self._fetched:
            data = self._copy.take(size, False).copy_(data)
        self.entries.append((name, data, size))

    def write_record_metadata(self, name: str, size: int) -> None:
        raise NotImplementedError("torch.serialization.skip_data while saving to an object, which cannot have holes")

    def drop(self) -> None:
        """When all is sent: who keeps a Saving, or what it raised, keeps no memory."""
        self._copy = _Copy()
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

    Sending takes CPU time. pace="auto": what is idle, and where the training uses all CPUs, an 80th of one, which sends
    16 MiB a second. Or bytes in a second, such as "200MiB"; None: as fast as it goes. Nothing is held back when somebody
    waits: in result(), wait(), close(), in a save() that has no memory, and at the end of the interpreter.

    client: a ringest.Client, by default the process's; it must stay open until the last save has ended. copies: states
    in memory at a time. Any thread may use it. A child of fork() has no part in saves of its parent; it needs a saver of its
    own.
    """

    def __init__(self, *, client: Client | None = None, copies: int = 1, pace: int | str | None = "auto"):
        with needs("ringest.checkpoint.AsyncSaver"):
            import torch  # noqa: F401

        if client is not None and not isinstance(client, Client):
            raise TypeError(f"client must be a ringest.Client, got {client!r}")
        self._client = client
        self._paces = _pace.paces(_pace.parse(pace))
        self._process = os.getpid()
        self._copies = [_Copy() for _ in range(whole(copies, "copies", 1, COPIES_MAX))]
        self._at_work: list[Saving] = []  # not one of them has ended when it is put in, in order
        # Of save() and wait(). A signal handler may come, and wait, while its thread has it.
        self._lock = threading.RLock()
        self._is_saving = False
        self._beginning: Saving | None = None  # in _at_work, and perhaps not yet given to the thread
        self._sender: concurrent.futures.ThreadPoolExecutor | None = concurrent.futures.ThreadPoolExecutor(
            1, "ringest-save"
        )
        self._has_ended = threading.Condition()  # a save, or the saver

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
        options: dict[str, Any] = {
            "part_size": parse_size(part_size, "part_size"),
            "parts_in_flight": parts_in_flight,
            "if_generation_match": if_generation_match,
            "content_type": content_type,
        }
        _check_process(self._process, uri)
        client = chosen(self._client)
        client.writer(uri, **options).abort()  # what is wrong with arguments is said now; nothing is sent
        with self._lock, self._saving_alone(uri):
            copy = self._free_copy(uri)
            self._raise_failure()
            with at(Part.STAGE, client):
                records = self._copied(copy, obj, pickle_module, pickle_protocol)
            return self._begin(client, uri, copy, records, options)

    @contextlib.contextmanager
    def _saving_alone(self, uri: str) -> Iterator[None]:
        """Who has the lock again would copy to the memory that the call below copies to."""
        if self._is_saving:
            raise ValueError(
                f"{uri}: a signal handler called save() of an AsyncSaver whose save() it has interrupted; save with "
                "ringest.checkpoint.save there, or when that call has returned"
            )
        self._is_saving = True
        try:
            yield
        finally:
            self._is_saving = False

    def _free_copy(self, uri: str) -> _Copy:
        """It stays free until a save has begun with it, so that an exception between cannot lose it."""
        with self._has_ended:
            while self._sender is not None:
                for copy in self._copies:
                    if copy.is_free():
                        return copy
                with self._paces.hurried():
                    self._has_ended.wait()
        raise ValueError(f"{uri}: the saver is closed")

    def _copied(self, copy: _Copy, obj: Any, pickle_module: Any, pickle_protocol: int) -> _Records:
        import torch

        from ringest import _freed

        copy.give_back()
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
                if records.has_empty_storage:
                    _freed.refuse_in(obj, pickle_module, pickle_protocol)
        finally:
            records.end()
        copy.drop_free()
        return records

    def _begin(self, client: Client, uri: str, copy: _Copy, records: _Records, options: dict[str, Any]) -> Saving:
        sender = self._sender
        if sender is None:  # by another thread, meanwhile
            raise ValueError(f"{uri}: the saver is closed")
        # The options of torch are global, and meant as they are now.
        form = torch_checksums(), torch_alignment()
        saving = Saving(uri, self._paces)
        try:
            _untold.add(saving)
            self._beginning = saving
            self._at_work.append(saving)
            copy.saving = saving
            sender.submit(self._run, saving, client, records, form, options)
        except BaseException:
            # An interrupt may come when the thread has it already: then the copy is that thread's, and stays as it is.
            if saving._future.cancel():
                _untold.discard(saving)
            raise
        finally:
            self._beginning = None
        return saving

    def _run(
        self, saving: Saving, client: Client, records: _Records, form: tuple[bool, int], options: dict[str, Any]
    ) -> None:
        """By the thread."""
        if not saving._future.set_running_or_notify_cancel():
            return
        try:
            with self._paces.one() as pace:
                result = _send(client, saving.uri, records, form, options, pace)
        except BaseException as error:
            records.drop()
            trace = error.__traceback__  # without this frame, which refers to the future
            saving._future.set_exception(error.with_traceback(trace.tb_next if trace is not None else None))
        else:
            records.drop()
            _untold.discard(saving)
            saving._future.set_result(result)
        with self._has_ended:
            self._has_ended.notify_all()

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
        _check_process(self._process, "wait()")
        with self._lock:
            begun = (each._future for each in self._at_work if each is not self._beginning)
            with self._paces.hurried():
                concurrent.futures.wait([future for future in begun if not future.cancelled()])
            self._raise_failure()

    def close(self) -> None:
        """Waits as wait() does, and frees the memory. Again, or in a child of fork(): nothing."""
        if self._process != os.getpid():
            return
        with self._has_ended:
            sender, self._sender = self._sender, None
            self._has_ended.notify_all()
        if sender is not None:
            # An exception may end wait() before all that is queued has begun.
            self._paces.hurry_for_good()
        try:
            self.wait()
        finally:
            if sender is not None:
                sender.shutdown()
                self._copies.clear()

    def __enter__(self) -> AsyncSaver:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


def _send(
    client: Client,
    uri: str,
    records: _Records,
    form: tuple[bool, int],
    options: dict[str, Any],
    pace: _pace.Pace,
) -> dict[str, int]:
    with client.writer(uri, **options) as stream, at(Part.UPLOAD, client):
        writer = _pace.PacedWriter(stream, pace)
        if records.whole is not None:
            writer.write(records.whole)
        else:
            archive = ArchiveWriter(writer, *form)
            for name, data, size in records.entries:
                archive.write_record(name, data, size)
            archive.finish()
        with at(Part.COMMIT, client):
            return writer.finish()


def _tell_lost() -> None:
    """Threads have ended by now, unless waiting for them was interrupted."""
    for saving in list(_untold):
        failure = saving._failure()
        why = f": {failure}" if failure is not None else ", because the process ends before all of it was sent"
        logger.error("%s was not saved%s", saving.uri, why)
        _untold.discard(saving)


def _end() -> None:
    _pace.hurry_all()
    ends = [saving._future for saving in list(_untold)]
    concurrent.futures.wait([each for each in ends if not each.cancelled()])
    _tell_lost()


atexit.register(_tell_lost)
# Before executors' threads are joined; and processes of multiprocessing do not come to atexit.
getattr(threading, "_register_atexit", lambda call: None)(_end)
os.register_at_fork(after_in_child=_untold.clear)
