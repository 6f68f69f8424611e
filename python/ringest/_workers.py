"""The workers of PyTorch's DataLoader, seen from the process that starts them.

A dataset is made ready before a worker is started, so that the worker gets its list and never makes one: before a
fork by a hook, and else when it is pickled. Neither is told of by the DataLoader, so the frames of whoever starts the
process are looked at: one of them is the loader's iterator that makes its workers."""

from __future__ import annotations

import copyreg
import functools
import itertools
import os
import pickle
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from ringest._log import logger
from ringest._share import is_starting_a_process

# Attributes by which datasets of PyTorch refer to those that they are made of.
_INNER = ("dataset", "datasets")
_DEPTH_MAX = 8
# Longer ones are samples.
_PARTS_MAX = 1000


class Prepared(Protocol):
    """A dataset."""

    def prepare_for_worker(self, group: str) -> None:
        """Before a worker is started. `group` is the same for all workers of an iterator, and for no others."""

    def worker_was_started(self) -> None:
        """In the process that forked it, behind it."""


def _is_pickled_by_attributes(given: Any) -> bool:
    kind = type(given)
    plain = all(getattr(kind, name) is getattr(object, name) for name in ("__reduce__", "__reduce_ex__"))
    own_state = getattr(kind, "__getstate__", None) is not getattr(object, "__getstate__", None)
    return plain and not own_state and hasattr(given, "__dict__") and kind not in copyreg.dispatch_table


def _named(given: Any, depth: int = 0) -> Iterator[Any]:
    """The functions and classes that it is pickled with, which go by their names. Only what is called is looked at, and
    what that has: the rest may be large."""
    if isinstance(given, (types.FunctionType, type)):
        yield given
        return
    parts: Iterable[Any] = ()
    if isinstance(given, functools.partial):
        parts = (given.func, *given.args, *given.keywords.values())
    elif isinstance(given, types.MethodType):
        parts = (given.__self__,)
    elif isinstance(given, (list, tuple)):
        parts = given
    elif isinstance(given, dict):
        parts = given.values()
    elif callable(given) and _is_pickled_by_attributes(given):
        yield type(given)
        parts = vars(given).values()
    if depth < _DEPTH_MAX and len(parts := tuple(itertools.islice(parts, _PARTS_MAX + 1))) <= _PARTS_MAX:
        for part in parts:
            yield from _named(part, depth + 1)


def _check_pickled(option: str, given: Any) -> None:
    """To a process that is started functions go by their names, which not all have."""
    from multiprocessing.reduction import ForkingPickler

    for named in _named(given):
        try:
            ForkingPickler.dumps(named)
        except Exception as error:
            verb = "is" if named is given or isinstance(given, functools.partial) else "has"
            raise pickle.PicklingError(
                f"{option}= {verb} {named!r}, which cannot be sent to workers that are started anew (spawn, forkserver): "
                f"{error}. Define it at the top level of a module, or give the DataLoader multiprocessing_context='fork'"
            ) from error


class WorkerReady:
    """A dataset with a source, which workers get with it."""

    _source: Any
    # Functions of the caller's, by the names of the options and of the attributes.
    _given = (("transform", "_transform"), ("on_error", "_on_error"))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._source}>"

    def prepare_for_worker(self, group: str) -> None:
        self._source.prepare()

    def worker_was_started(self) -> None:
        pass

    def __getstate__(self) -> dict[str, Any]:
        if is_starting_a_process():
            for option, attribute in self._given:
                _check_pickled(option, getattr(self, attribute, None))
        group = starting_group() if is_starting_a_process() else None
        if group is not None:
            self.prepare_for_worker(group)
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        register(self)


_datasets: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_groups: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def register(dataset: Prepared) -> None:
    """From now on it is made ready for workers that are forked."""
    _datasets[id(dataset)] = dataset


def _starting_iterator() -> Any:
    """The iterator of a DataLoader that is starting a worker in this thread; None: it is another process."""
    loaders = sys.modules.get("torch.utils.data.dataloader")
    kind = getattr(loaders, "_BaseDataLoaderIter", None)
    if kind is None:
        return None
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__init__":
            iterator = frame.f_locals.get("self")
            if isinstance(iterator, kind):
                return iterator
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _group(iterator: Any) -> str:
    return _groups.setdefault(iterator, uuid.uuid4().hex)


def starting_group() -> str | None:
    """The group of the worker that is being started; None: what is being started is no worker."""
    iterator = _starting_iterator()
    return _group(iterator) if iterator is not None else None


def _parts(dataset: Any, depth: int = 0) -> Iterator[Any]:
    """The registered ones that a dataset is, or is made of."""
    if dataset is None:
        return
    if _datasets.get(id(dataset)) is dataset:
        yield dataset
    elif depth < _DEPTH_MAX:
        inner: Any = [getattr(dataset, name, None) for name in _INNER]
        if isinstance(dataset, (list, tuple)):
            inner = dataset if len(dataset) <= _PARTS_MAX else ()
        for part in inner:
            yield from _parts(part, depth + 1)


def _datasets_of(iterator: Any) -> list[Any]:
    """Where it cannot be seen which ones the worker has, it may have any."""
    try:
        found = list(_parts(iterator._dataset))
    except Exception:  # of attributes that others have made
        found = []
    return found or list(_datasets.values())


class _Forking(threading.local):
    """What was made ready for the fork that this thread is at."""

    def __init__(self) -> None:
        self.prepared: list[Prepared] = []
        self.has_lock = False


_forking = _Forking()
# Held from before a fork until behind it: a dataset is made ready for one worker at a time.
_lock = threading.RLock()


def _before_fork() -> None:
    iterator = _starting_iterator()
    if iterator is None:
        return
    _lock.acquire()
    for dataset in _datasets_of(iterator):
        try:
            dataset.prepare_for_worker(_group(iterator))
            _forking.prepared.append(dataset)
        except Exception:
            logger.exception("a dataset could not be made ready for a worker")
    _forking.has_lock = True


def _after_fork_in_parent() -> None:
    for dataset in _forking.prepared:
        dataset.worker_was_started()
    _forking.prepared.clear()
    if _forking.has_lock:
        _forking.has_lock = False
        _lock.release()


def _after_fork_in_child() -> None:
    global _lock
    _forking.prepared.clear()
    _forking.has_lock = False
    _lock = threading.RLock()  # another thread of the parent may have it


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
