"""What datasets read from: a client, and the list that all ranks and workers share."""

from __future__ import annotations

import abc
import bisect
import logging
import os
import pickle
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from ringest import _core, _uri
from ringest._chosen import checked, chosen
from ringest._core import Objects, TarIndex
from ringest._errors import ListError
from ringest._job import Job, current_job
from ringest._layout import Layout, check_layout, find_layout
from ringest._log import logger
from ringest._numbers import flag
from ringest._share import is_starting_a_process
from ringest._torch import worker_info
from ringest.client import Client

# A file, in a folder or a bucket, or objects: names, or (name, size, generation).
Manifest = str | os.PathLike[str] | Objects | Sequence[str | tuple[str, int, int]]

List = TypeVar("List", Objects, TarIndex)
Tell = Callable[[int], None]


class Source(abc.ABC, Generic[List]):
    """A client and a list, which is found when it is first needed.

    One rank makes it for the job; the workers of a DataLoader get their parent's and make none. `rank` and
    `world_size` are what was given by hand. `is_dealt`: ranks read shares of the list, and not what they are asked
    for. `is_shared`: other ranks have the same one; where each is said to be the only one, lists that were given may
    differ."""

    kind: type[List]
    noun: str  # what is in it
    entries: str  # what there are none of
    made_once: str  # how ranks without a process group come to one list

    def __init__(
        self,
        what: str,
        client: Client | None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        is_dealt: bool = False,
        is_shared: bool = True,
    ) -> None:
        check_layout(rank, world_size)
        self.what = what
        self._client = checked(client)
        self._given = (rank, world_size)
        self._is_dealt = is_dealt
        self._is_shared = flag(is_shared, "shared")
        self._found: List | None = None
        self._of_job: Job | None = None  # that the list is of
        self._is_compared = False  # in that job
        self._numbered: tuple[Job, int] | None = None  # under which number it is
        self._of_parent: Layout | None = None  # a worker's
        self._failure: BaseException | None = None  # why the parent of a worker had no list
        self._lock = threading.RLock()
        _sources.add(self)

    @property
    def client(self) -> Client:
        return chosen(self._client)

    @property
    def endpoint(self) -> str:
        return self.client._settings["endpoint"] or os.environ.get("STORAGE_EMULATOR_HOST", "")

    @abc.abstractmethod
    def key(self) -> tuple[Any, ...]:
        """What the list of a job is asked for by."""

    @abc.abstractmethod
    def identity(self) -> tuple[Any, ...]:
        """What lists are compared under: the same on all ranks, also where they were given different ones."""

    @abc.abstractmethod
    def given(self) -> List | None:
        """The list that was given by hand; None: it is to be made."""

    @abc.abstractmethod
    def make(self, tell: Tell) -> List:
        """Asks the service, telling how far it is."""

    @abc.abstractmethod
    def size(self, found: List) -> int:
        """Bytes of all that the list names."""

    @property
    def layout(self) -> Layout:
        """Read anew each time: there may be a process group that was not there before."""
        if self._of_parent is not None and worker_info() is not None:
            return self._of_parent
        return find_layout(*self._given)

    @property
    def found(self) -> List:
        """The list."""
        with self._lock:
            if worker_info() is not None:
                return self._of_worker()
            job = current_job() if self._is_shared else None
            if self._found is None or (job is not None and job is not self._of_job):
                self._found = self._find(job)
                self._of_job, self._is_compared = job, False
            return self._found

    @property
    def checked(self) -> List:
        """The list, compared with those of other ranks: what samples are read by."""
        with self._lock:
            found, job = self.found, self._of_job
            if job is not None and not self._is_compared and self._given[1] != 1:
                if self._numbered is None or self._numbered[0] is not job:
                    self._numbered = job, job.number(self.identity())
                job.compare(self.what, self.identity(), self._numbered[1], found)
                self._is_compared = True
            return found

    def _of_worker(self) -> List:
        if self._failure is not None:
            raise self._failure
        self._found = self._found if self._found is not None else self.given()
        if self._found is None:
            raise ListError(
                f"this worker of a DataLoader has no list of {self.what}, and makes none, which could differ from "
                "the others': make the dataset where the DataLoader is made, and ask for its len() before workers start"
            )
        return self._found

    def _find(self, job: Job | None) -> List:
        found = self.given()
        if found is not None:
            return self._check(found)
        if job is None:
            common = self._in_common()
            return self._check(common if common is not None else self.make(lambda count: None))
        before = self._found  # of no job, or of one that is over

        def make(tell: Tell) -> List:
            return before if before is not None else self.make(tell)

        return self._check(job.list_once(self.what, self.key(), self.kind, make))

    def _check(self, found: List) -> List:
        if len(found) == 0:
            raise ValueError(f"there are no {self.entries} {self.what}")
        if logger.isEnabledFor(logging.INFO):
            logger.info("%s: %s", self.what, self._extent(found))
        return found

    def common_file(self) -> List | None:
        """What ranks that do not know of each other find in the same place, taken as it is."""
        return None

    def _in_common(self) -> List | None:
        """Without a process group nobody gives this rank a list, and nobody sees that its own is another one. None:
        it is the only rank."""
        if not self._is_shared:
            return None
        try:
            layout = self.layout
        except ValueError:
            if self._is_dealt:
                raise
            return None  # ranks are no matter of a dataset that is read by index
        if layout.world_size == 1:
            return None
        common = self.common_file()
        if common is not None:
            return common
        told = (
            f"{self.what}: this is rank {layout.rank} of {layout.world_size}, and without the store of a process group "
            "ranks have no list in common, so that samples would be lost or come twice. Call torch.distributed."
            f"init_process_group in this process first, or {self.made_once}"
        )
        if self._is_dealt:
            raise ListError(told)
        logger.warning("%s", told)
        return None

    def renew_locks(self) -> None:
        """In a child that was forked."""
        self._lock = threading.RLock()

    def __str__(self) -> str:
        """What is known of the list without asking anybody."""
        if self._found is None:
            return f"{self.what!r}, no list yet"
        digest = self._found._digest
        return f"{self.what!r}, {self._extent(self._found)}" + (f", digest {digest[:16]}" if digest else "")

    def _extent(self, found: List) -> str:
        count, size = len(found), self.size(found)
        noun = self.noun if count != 1 else self.noun.removesuffix("s")
        return f"{count:,} {noun}" + (f" of {size_text(size)}" if size > 0 else "")

    def prepare(self) -> None:
        """In the parent of a worker, before that starts. What goes wrong is raised where it is seen: in the
        worker."""
        try:
            found = self.checked
            if self._is_dealt:
                self._of_parent = self.layout
                found.digest
            self._failure = None
        except Exception as error:
            error.add_note("where the DataLoader was made, before this worker was started")
            self._failure = error.with_traceback(None)

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_is_compared": False}
        for of_this_process in ("_lock", "_of_job", "_numbered"):
            del state[of_this_process]
        if not is_starting_a_process():
            state.update(_of_parent=None, _failure=None)
        elif not _is_pickled(self._failure):
            state["_failure"] = ListError(f"the list of {self.what} could not be made: {self._failure!r}")
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock(), _of_job=None, _numbered=None)
        _sources.add(self)


def size_text(size: int) -> str:
    """As the program writes it: "1.5 GiB"."""
    number, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            break
        number /= 1024
    return f"{size} B" if unit == "B" else f"{number:.1f} {unit}"


def _is_pickled(error: BaseException | None) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


_sources: weakref.WeakSet[Source[Any]] = weakref.WeakSet()


def _forget_locks() -> None:
    # Another thread of the parent may have held them.
    for source in list(_sources):
        source.renew_locks()


os.register_at_fork(after_in_child=_forget_locks)


class ObjectSource(Source[Objects]):
    """Objects below a prefix, or of a manifest. `folder_markers`: also those that only stand for a folder, when
    the prefix is listed; what a manifest names is taken as it is."""

    kind = Objects
    noun = "objects"
    entries = "objects below"

    def __init__(
        self,
        uri: str,
        client: Client | None,
        manifest: Manifest | None,
        *,
        folder_markers: bool = False,
        **layout: Any,
    ) -> None:
        if not isinstance(uri, str):
            raise TypeError(f"{uri!r} is not a str of the form gs://BUCKET/PREFIX; a list of names is a manifest")
        self.bucket, self._prefix = _uri.split(uri, "gs://BUCKET/PREFIX")
        self.uri = _uri.join(self.bucket, self._prefix)
        self._has_markers = flag(folder_markers, "folder_markers")
        super().__init__(self.uri, client, **layout)
        if not isinstance(manifest, str | os.PathLike | Objects | Iterable | None):
            raise TypeError(
                f"manifest must be a file, a gs:// URI, names, or (name, size, generation), got {manifest!r}"
            )
        if isinstance(manifest, Objects):
            self._check_manifest(manifest, "the manifest")
        self._manifest = manifest
        self._digest: str | None = None  # that a manifest of another process had
        self.made_once = (
            f"save a manifest once where all ranks can read it (ringest manifest save {self.uri} FILE) and give "
            "manifest=, which may be a gs:// URI"
        )

    def key(self) -> tuple[Any, ...]:
        return "objects", self.uri, self.endpoint, self._has_markers

    def identity(self) -> tuple[Any, ...]:
        return "objects", self.uri

    def given(self) -> Objects | None:
        manifest = self._manifest
        if manifest is None or isinstance(manifest, Objects):
            return manifest
        if isinstance(manifest, (str, os.PathLike)):
            if self._found is None:
                self._found = self._open(manifest)
            return self._found
        entries: list[Any] = [(name, 0, 0) if isinstance(name, str) else tuple(name) for name in manifest]
        # The names need not be kept twice.
        self._manifest = objects = Objects(self.bucket, entries)
        return objects

    def _open(self, manifest: str | os.PathLike[str]) -> Objects:
        if isinstance(manifest, str) and _uri.is_uri(manifest):
            objects = _read_manifest(self.client, manifest)
        else:
            objects = Objects(manifest=manifest)
        self._check_manifest(objects, f"manifest {os.fspath(manifest)}")
        if self._digest is not None and objects.digest != self._digest:
            raise ListError(
                f"the manifest {os.fspath(manifest)} is not what it was when this dataset was pickled: its digest is "
                f"{objects.digest}, and was {self._digest}"
            )
        return objects

    def _check_manifest(self, objects: Objects, name: str) -> None:
        """A list that was given is taken as it is, but not for another bucket's."""
        if objects.bucket != self.bucket:
            raise ValueError(
                f"{name} is of gs://{objects.bucket}/, and the dataset of {self.uri}: give it to a dataset of its own "
                f"bucket, or make one of this (ringest manifest save {self.uri} FILE)"
            )
        markers = 0 if self._has_markers else objects._totals[1]
        if markers > 0 and _is_first(("markers", self.uri, name)):
            logger.warning(
                "%s of %s has %d folder marker%s (empty objects whose names end in '/'), which are samples, too; without: "
                "client.list(uri, folder_markers=False), or `ringest manifest save`. folder_markers=True: that is meant",
                name,
                self.uri,
                markers,
                "" if markers == 1 else "s",
            )

    def size(self, found: Objects) -> int:
        return found.size

    def make(self, tell: Tell) -> Objects:
        # The extension's method: its `progress` is a function.
        objects = _core.Client.list(self.client, self.uri, progress=tell, folder_markers=self._has_markers)
        self._look_at_prefix(objects)
        return objects

    def _look_at_prefix(self, objects: Objects) -> None:
        """A prefix is literal. Where there is a folder of that name, and more, maybe only the folder was meant."""
        prefix = self._prefix
        if prefix == "" or prefix.endswith("/"):
            return
        # In the order of names those of the folder are together, up to what follows "/".
        begin, end = (
            bisect.bisect_left(range(len(objects)), prefix + character, key=lambda i: objects[i][0])
            for character in ("/", "0")
        )
        others = len(objects) - (end - begin)
        if end > begin and others > 0 and _is_first(("prefix", self.uri)):
            logger.warning(
                "%s is a prefix and taken literally: %d of %d objects are not in %s/, such as %s; end it in '/' if that "
                "folder is meant",
                self.uri,
                others,
                len(objects),
                self.uri,
                _uri.join(self.bucket, objects[0 if begin > 0 else end][0]),
            )

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if isinstance(self._manifest, (str, os.PathLike)) and not is_starting_a_process():
            # The file is there for others, too.
            state.update(_found=None, _digest=self._found.digest if self._found is not None else self._digest)
        return state


_said: set[tuple[str, ...]] = set()


def _is_first(key: tuple[str, ...]) -> bool:
    """Whether this process has not said that yet."""
    if key in _said:
        return False
    _said.add(key)
    return True


def _read_manifest(client: Client, uri: str) -> Objects:
    """A manifest that lies in a bucket, compared with its CRC32C."""
    info = client.stat(uri)
    data = bytearray(info["size"])
    client.get_into(uri, [(0, data)], generation=info["generation"])
    try:
        return Objects(data=data)
    except ValueError as error:
        raise ValueError(f"manifest {uri}: {error}") from None


class ObjectView(Sequence):
    """What dataset.objects shows: .objects[i].name, .size, .generation."""

    class Entry(tuple):
        """(name, size, generation)"""

        __slots__ = ()
        name = property(lambda self: self[0])
        size = property(lambda self: self[1])
        generation = property(lambda self: self[2])

    def __init__(self, objects: Objects):
        self._objects = objects

    def __len__(self) -> int:
        return len(self._objects)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.Entry(self._objects[index])
