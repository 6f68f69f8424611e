"""One list for all ranks of a job, by the store of its process group.

No collective takes part, and no device: whoever asks first makes the list and publishes it in pieces, or why it could
not, and the others wait. So it does not matter which ranks ask, and when. Keys of the store, behind "ringest/":

    KEY/failed               how many attempts have failed
    KEY/N/claim              who makes the list in attempt N: the first to add to it
    KEY/N/heard              changes while that rank is at it
    KEY/N/made               what became of it
    KEY/N/piece/I            its bytes
    KEY/N/HOST/claim, /at    who of a host fetches a large one, and where the others of the host find it
    compare/KEY/I/claim      which rank's digest the others compare theirs with
    compare/KEY/I/digest
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from ringest._core import Objects, TarIndex
from ringest._errors import ListError, error_tell, error_told
from ringest._layout import process_groups
from ringest._log import logger

# A TCPStore ends the connection at more than 8 MiB.
PIECE_BYTES = 4 << 20
# The most that all pieces of a list may have: they lie in the memory of the store's host.
LIST_BYTES_MAX = 8 << 30
# From this on a host has one copy: the extension keeps such lists in memory that has a descriptor.
SHARED_BYTES_MIN = 256 << 10
# How long a rank is waited for that says nothing, and how often one that is at work says something.
PATIENCE_S = 300.0
_HEARD_EVERY_S = 1.0
# Between two looks at the store.
_POLL_S_MIN = 0.002
_POLL_S_MAX = 0.2

List = TypeVar("List", Objects, TarIndex)
# Makes a list, and calls what it is given while it does.
Make = Callable[[Callable[[int], None]], List]


def _hashed(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _machine() -> str:
    """The same for processes on one kernel, in whatever containers they are."""
    try:
        return _hashed(_boot())
    except OSError:
        return uuid.uuid4().hex


def _host() -> str:
    """The same for processes that see each other's descriptors below /proc."""
    try:
        return _hashed(_boot(), os.readlink("/proc/self/ns/pid"), os.readlink("/proc/self/ns/user"), os.getuid())
    except OSError:
        return uuid.uuid4().hex


def _error_of(told: dict[str, Any], rank: int) -> Exception:
    """As nearly what another rank raised as can be told."""
    error = error_told(told, ListError)
    error.add_note(f"so it went for rank {rank}, which was the first to ask for the list of all ranks")
    return error


class Job:
    """A process group of several ranks, as long as it lasts."""

    def __init__(self, store: Any, rank: int, world_size: int) -> None:
        from torch.distributed import PrefixStore

        self.group = store
        self.rank = rank
        self.world_size = world_size
        self._store = PrefixStore("ringest", store)
        self._compared: dict[str, int] = {}
        self._has_said_alone = False

    def _wait(self, key: str, what: str, heard: str | None = None) -> bytes:
        """A value that another rank sets. `heard` is a key whose value changes as long as it lives."""
        last, patience, pause = b"", time.monotonic() + PATIENCE_S, _POLL_S_MIN
        while not self._store.check([key]):
            if time.monotonic() > patience:
                raise ListError(f"{what} has said nothing for {PATIENCE_S:.0f} s")
            time.sleep(pause)
            pause = min(2 * pause, _POLL_S_MAX)
            if heard is not None and self._store.check([heard]):
                now = self._store.get(heard)
                if now != last:
                    last, patience = now, time.monotonic() + PATIENCE_S
        return self._store.get(key)

    def list_once(self, what: str, key: tuple[Any, ...], kind: type[List], make: Make[List]) -> List:
        """The job's list: made here, if no rank has begun to make it, and else what that rank has made."""
        name = _hashed(*key)
        attempt = f"{name}/{self._store.add(f'{name}/failed', 0)}"
        if self._store.add(f"{attempt}/claim", 1) == 1:
            return self._make(what, name, attempt, make)
        made = json.loads(
            self._wait(f"{attempt}/made", f"the rank that was the first to ask for {what}", f"{attempt}/heard")
        )
        if "error" in made:
            raise _error_of(made["error"], made["rank"])
        return self._take(what, attempt, kind, made)

    def _make(self, what: str, name: str, attempt: str, make: Make[List]) -> List:
        said = 0.0

        def tell(count: int) -> None:
            nonlocal said
            if time.monotonic() > said + _HEARD_EVERY_S:
                said = time.monotonic()
                self._store.set(f"{attempt}/heard", str(count))

        try:
            made = make(tell)
            self._publish(what, attempt, made, tell)
        except BaseException as error:
            # Before the others are told, so that one that asks again begins another attempt.
            self._store.add(f"{name}/failed", 1)
            self._store.set(f"{attempt}/made", json.dumps({"rank": self.rank, "error": error_tell(error)}, default=str))
            raise
        return made

    def _publish(self, what: str, attempt: str, made: List, tell: Callable[[int], None]) -> None:
        data = memoryview(made)
        if len(data) > LIST_BYTES_MAX:
            raise ListError(
                f"{what} has {len(data):,} bytes, and a store holds lists of up to {LIST_BYTES_MAX:,}: save it once "
                "(ringest manifest save, ringest tar index) where all ranks can read it"
            )
        pieces = -(-len(data) // PIECE_BYTES)
        for i in range(pieces):
            # The stub says str, and bytes it takes as they are.
            piece: Any = bytes(data[i * PIECE_BYTES : (i + 1) * PIECE_BYTES])
            self._store.set(f"{attempt}/piece/{i}", piece)
            tell(i)
        about = {"rank": self.rank, "pieces": pieces, "bytes": len(data), "digest": made.digest}
        if len(data) >= SHARED_BYTES_MIN:
            self._store.add(f"{attempt}/{_host()}/claim", 1)
            self._place(attempt, made)
        self._store.set(f"{attempt}/made", json.dumps(about))
        logger.debug("%s: %d entries in %d bytes for %d ranks", what, len(made), len(data), self.world_size)

    def _place(self, attempt: str, made: List) -> None:
        """Tells the others of this host where they find it."""
        self._store.set(f"{attempt}/{_host()}/at", f"{os.getpid()} {made.fd}")

    def _take(self, what: str, attempt: str, kind: type[List], made: dict[str, Any]) -> List:
        place = f"{attempt}/{_host()}"
        is_large = made["bytes"] >= SHARED_BYTES_MIN
        if is_large and self._store.add(f"{place}/claim", 1) > 1:
            at = self._wait(f"{place}/at", f"the rank of this host that fetches {what}")
            found = self._open_at(at, kind, made["digest"])
            if found is not None:
                return found
        data = bytearray(made["bytes"])
        for i in range(made["pieces"]):
            data[i * PIECE_BYTES : (i + 1) * PIECE_BYTES] = self._store.get(f"{attempt}/piece/{i}")
        taken = kind(data=data)
        if taken.digest != made["digest"]:
            raise ListError(f"{what} did not arrive as rank {made['rank']} made it: its digest is another one")
        if is_large:
            self._place(attempt, taken)
        return taken

    def _open_at(self, place: bytes, kind: type[List], digest: str) -> List | None:
        """A list of another process of this host, if that process still has it and lets us."""
        pid, fd = map(int, place.split())
        try:
            # By now it may be something else, and wait for a reader.
            opened = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                found = kind(fd=opened)
            finally:
                os.close(opened)
        except (OSError, ValueError) as error:
            if not self._has_said_alone:
                self._has_said_alone = True
                logger.warning(
                    "the list of names that process %d of this host has cannot be opened (%s): this process has a copy of "
                    "its own",
                    pid,
                    error,
                )
            return None
        return found if found.digest == digest else None

    def number(self, key: tuple[Any, ...]) -> int:
        """How many lists with the same key were compared before this one."""
        name = _hashed(*key)
        self._compared[name] = self._compared.get(name, -1) + 1
        return self._compared[name]

    def compare(self, what: str, key: tuple[Any, ...], number: int, listed: Objects | TarIndex) -> None:
        """ListError unless this is the list that the first rank to come has, of the same number."""
        place = f"compare/{_hashed(*key)}/{number}"
        mine = {"rank": self.rank, "digest": listed.digest, "count": len(listed)}
        if self._store.add(f"{place}/claim", 1) == 1:
            self._store.set(f"{place}/digest", json.dumps(mine))
            return
        first = json.loads(self._wait(f"{place}/digest", f"the rank that was the first to read {what}"))
        if first["digest"] != mine["digest"]:
            raise ListError(
                f"ranks have different lists of {what}: rank {first['rank']} has {first['count']:,} entries with the "
                f"digest {first['digest']}, and rank {self.rank} has {mine['count']:,} with {mine['digest']}. Give all "
                "ranks one manifest, or none, so that one rank lists for all; or, if this dataset is none that ranks "
                "share, shared=False"
            )


_current: Job | None = None
# A child that was forked has the connection of its parent, which it must not use.
_inherited: Any = None


def _default_store(distributed: ModuleType) -> Any:
    """None: the group has none, as with MPI."""
    try:
        return distributed.distributed_c10d._get_default_store()
    except (AttributeError, KeyError, ValueError):
        return None


def current_job() -> Job | None:
    """The job that this process is a rank of; None without a process group, or in one of a single rank."""
    global _current
    distributed = process_groups()
    if distributed is None or distributed.get_world_size() == 1:
        return None
    store = _default_store(distributed)
    if store is None or store is _inherited:
        return None
    if _current is None or _current.group is not store:
        _current = Job(store, distributed.get_rank(), distributed.get_world_size())
    return _current


def _forget_store() -> None:
    global _current, _inherited
    distributed = process_groups()
    _inherited = _default_store(distributed) if distributed is not None else None
    _current = None


os.register_at_fork(after_in_child=_forget_store)
