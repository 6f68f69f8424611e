"""Epochs and states of a dataset, in the process that has it and in workers.

The process that has the dataset decides which epoch comes next, and which state to resume from. Workers that were
started for one iteration get that with the dataset. Persistent workers look it up when an iteration begins, in a file
in memory that they share with that process. There they also note what they have started: the first iteration resumes
from a state, and all workers of an iteration start the same epoch.

    change    counts what set_epoch and load_state_dict have changed
    group     the workers of one DataLoader's iterator; "" is the process itself
    pass      the Nth iteration of a group, 1 being the only one of workers that do not persist
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import tempfile
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from ringest._share import hand_over, is_starting_a_process
from ringest._torch import worker_info
from ringest._workers import starting_group

# What is noted takes one page of the file, which is written at once. Behind it lie the states of the last changes, for
# workers that are late, in a file with holes.
_PAGE = 4096
_SLOTS = 4
_SLOT_BYTES = 1 << 30
# A flag of Linux 6.3, where vm.memfd_noexec may demand it.
_MFD_NOEXEC_SEAL = 8
# So many changes and groups are remembered.
_NOTED_MAX = 16
_LATE = (
    "set_epoch() or load_state_dict() was called while workers began with another epoch: call them before the "
    "iteration over the DataLoader begins"
)


class Beginning(NamedTuple):
    """What an iteration begins with."""

    epoch: int
    state: Any  # None: the whole epoch
    change: int


def _open_file() -> int:
    """In memory, or where that is forbidden on disk, without a name."""
    for flags in (os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL, os.MFD_CLOEXEC):
        with contextlib.suppress(OSError):
            return os.memfd_create("ringest-epochs", flags)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Epochs:
    def __init__(self) -> None:
        self._adopt({"change": 0, "epoch": 0, "sizes": {}, "begun": None, "users": {}, "passes": {}}, None)

    def _adopt(self, noted: dict[str, Any], state: Any) -> None:
        """As a process that has the dataset for itself."""
        self._pid = os.getpid()
        self._renew_lock()
        self._fd = -1  # none before there are workers
        self._noted = noted  # where there is no file
        self._state = state  # that this process loaded with the last change
        self._is_inherited = state is not None  # it was loaded in another process
        self._ticket: tuple[str, Beginning] | None = None  # of a worker: its group, and what comes first
        self._pass = 0
        self._own: tuple[int, Any] | None = None  # epoch and state, set in a worker
        self._begun = 0  # the epoch that this worker has begun

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)

    def _renew_lock(self) -> None:
        # A handler of signals may ask for a state wherever the thread that it interrupts is.
        self._lock = threading.RLock()
        self._depth = 0

    def _is_worker(self) -> bool:
        self._check_process()
        return self._ticket is not None and worker_info() is not None

    def _check_process(self) -> None:
        """A child that is no worker has epochs of its own."""
        if self._pid == os.getpid():
            return
        if self._ticket is not None and worker_info() is not None:
            self._pid = os.getpid()
            self._renew_lock()
            return
        noted, fd = self._read(), self._fd
        self._adopt(noted, self._state)
        if fd >= 0:
            os.close(fd)

    def _read(self) -> dict[str, Any]:
        return self._noted if self._fd < 0 else json.loads(os.pread(self._fd, _PAGE, 0))

    def _write(self, noted: dict[str, Any]) -> None:
        if self._fd < 0:
            return
        for name in ("users", "passes", "sizes"):
            while len(noted[name]) > (_SLOTS if name == "sizes" else _NOTED_MAX):
                del noted[name][next(iter(noted[name]))]
        page = json.dumps(noted).encode().ljust(_PAGE)
        assert len(page) == _PAGE
        os.pwrite(self._fd, page, 0)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[dict[str, Any]]:
        """What is noted, which is written unless the block raises. One process and thread at a time."""
        self._check_process()
        with self._lock:
            # The file's lock belongs to the process, so that forked children exclude each other too.
            if self._fd >= 0:
                fcntl.lockf(self._fd, fcntl.LOCK_EX)
            self._depth += 1
            try:
                noted = self._read()
                yield noted
                self._write(noted)
            finally:
                self._depth -= 1
                if self._fd >= 0 and self._depth == 0:
                    fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def _change(self, noted: dict[str, Any], epoch: int, state: Any) -> None:
        self._state, self._is_inherited = state, False
        noted.update(change=noted["change"] + 1, epoch=epoch)
        if self._fd >= 0 and state is not None:
            self._write_state(noted)

    def _write_state(self, noted: dict[str, Any]) -> None:
        data, change = pickle.dumps(self._state), noted["change"]
        if len(data) > _SLOT_BYTES:
            raise ValueError(f"a state has {len(data):,} bytes, and at most {_SLOT_BYTES:,} reach workers")
        # Nobody reads it before its size is noted.
        os.pwrite(self._fd, data, _PAGE + change % _SLOTS * _SLOT_BYTES)
        noted["sizes"][str(change)] = len(data)

    def _read_state(self, noted: dict[str, Any], change: int) -> Any:
        size = noted["sizes"].get(str(change))
        if size is None or change <= noted["change"] - _SLOTS:
            raise RuntimeError(_LATE)
        return pickle.loads(os.pread(self._fd, size, _PAGE + change % _SLOTS * _SLOT_BYTES))

    @property
    def epoch(self) -> int:
        """That comes next, or in a worker that has begun."""
        if self._is_worker():
            return self._own[0] if self._own is not None else self._begun
        with self._noting() as noted:
            return noted["epoch"]

    def set_epoch(self, epoch: int) -> bool:
        """Whether it is another one: then a state that was loaded is forgotten."""
        if self._is_worker():
            is_another = epoch != self.epoch
            if is_another:
                self._own = epoch, None
            return is_another
        with self._noting() as noted:
            is_another = epoch != noted["epoch"]
            if is_another:
                self._change(noted, epoch, None)
            return is_another

    def load(self, epoch: int, state: Any) -> None:
        """What the next iteration begins with; in a worker, what its own part of it does."""
        if self._is_worker():
            self._own = epoch, state
            return
        with self._noting() as noted:
            self._change(noted, epoch, state)

    def check_told(self) -> None:
        """Raises where workers are at the epoch, of whom nobody here knows how far they are."""
        if self._is_worker():
            return
        with self._noting() as noted:
            if noted["begun"] == noted["change"]:
                raise RuntimeError(
                    "workers of a DataLoader have started this epoch, and this process does not know how "
                    "far they are: save the state_dict() of torchdata's StatefulDataLoader, or use num_workers=0"
                )

    def begin(self) -> Beginning:
        """For an iteration. A state is given to one."""
        if self._is_worker():
            with self._noting() as noted:
                return self._begin_in_worker(noted)
        with self._noting() as noted:
            change = noted["change"]
            state = self._state if str(change) not in noted["users"] else None
            if state is not None and self._is_inherited and worker_info() is not None:
                raise RuntimeError(
                    "a state was loaded, but this worker was not started by a DataLoader of PyTorch or torchdata, so that "
                    "its share of the state is not known"
                )
            noted["users"][str(change)] = ""
            noted["begun"] = None
            return Beginning(noted["epoch"], state, change)

    def _begin_in_worker(self, noted: dict[str, Any]) -> Beginning:
        assert self._ticket is not None
        group, first = self._ticket
        self._pass += 1
        if self._own is not None:
            beginning = self._begin_with_own(noted, group, first)
        else:
            beginning = self._begin_with_others(noted, group, first)
        if beginning.change == noted["change"]:
            noted["begun"] = beginning.change
        self._begun = beginning.epoch
        return beginning

    def _begin_with_own(self, noted: dict[str, Any], group: str, first: Beginning) -> Beginning:
        """A loader has given each worker its own state. As in one process, that says which epoch it is."""
        assert self._own is not None
        (epoch, state), self._own = self._own, None
        change = first.change if self._pass == 1 else noted["change"]
        if change == noted["change"]:
            noted["epoch"] = epoch
        noted["users"][str(change)] = group
        noted["passes"][group] = [self._pass, change, epoch, False]
        return Beginning(epoch, state, change)

    def _begin_with_others(self, noted: dict[str, Any], group: str, first: Beginning) -> Beginning:
        known = noted["passes"].get(group, [0, 0, 0, False])
        if known[0] > self._pass:
            # The others are at the next iteration already: what this one gives is thrown away.
            return Beginning(noted["epoch"], None, noted["change"])
        if known[0] < self._pass:
            known = noted["passes"][group] = self._first_of_group(noted, group, first)
        _, change, epoch, has_state = known
        if self._pass == 1 and change != first.change:
            raise RuntimeError(_LATE)
        if not has_state:
            return Beginning(epoch, None, change)
        state = first.state if change == first.change else self._read_state(noted, change)
        assert state is not None
        return Beginning(epoch, state, change)

    def _first_of_group(self, noted: dict[str, Any], group: str, first: Beginning) -> list[Any]:
        """Whichever worker comes first says what all of them begin with."""
        if self._pass == 1:
            change, epoch, has_state = first.change, first.epoch, first.state is not None
        else:
            change, epoch, has_state = noted["change"], noted["epoch"], str(noted["change"]) in noted["sizes"]
        has_state = has_state and str(change) not in noted["users"]
        if has_state:
            noted["users"][str(change)] = group
        return [self._pass, change, epoch, has_state]

    def undo(self, beginning: Beginning) -> None:
        """The iteration could not begin: the next one has to resume from the state."""
        group = self._ticket[0] if self._is_worker() and self._ticket is not None else ""
        with self._noting() as noted:
            if beginning.state is not None and noted["users"].get(str(beginning.change)) == group:
                del noted["users"][str(beginning.change)]
                noted["passes"].pop(group, None)

    def prepare_for_worker(self, group: str) -> None:
        """In the process that starts the worker, before it does: with what it then has it is one of the group."""
        self._check_process()
        if self._fd < 0:
            with self._lock:
                self._fd = _open_file()
                if self._state is not None:
                    self._write_state(self._noted)
                self._write(self._noted)
        with self._noting() as noted:
            change = noted["change"]
            # Workers of the group that were started before may have begun already.
            state = self._state if noted["users"].get(str(change), group) == group else None
            self._ticket = group, Beginning(noted["epoch"], state, change)
            self._begun = noted["epoch"]

    def worker_was_started(self) -> None:
        """In the process that forked it: the next one gets a ticket of its own."""
        self._ticket = None

    def __getstate__(self) -> dict[str, Any]:
        if self._ticket is not None and is_starting_a_process() and starting_group() == self._ticket[0]:
            return {"fd": hand_over(self._fd), "ticket": self._ticket}
        with self._noting() as noted:
            is_used = str(noted["change"]) in noted["users"]
            epoch = self._begun if self._is_worker() else noted["epoch"]
            return {"epoch": epoch, "state": None if is_used else self._state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        if "ticket" in state:
            self._ticket = state["ticket"]
            self._begun = state["ticket"][1].epoch
            self._fd = state["fd"].detach()
            os.set_inheritable(self._fd, False)
        else:
            self._noted["epoch"], self._state = state["epoch"], state["state"]
            self._is_inherited = self._state is not None
