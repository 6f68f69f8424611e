"""What the writer and the reader of ringest.dcp share."""

from __future__ import annotations

import os
import threading
from typing import Any, Generic, TypeVar

import torch
from torch.futures import Future

from ringest import _uri
from ringest._chosen import chosen
from ringest._errors import NotFoundError
from ringest.client import Client

T = TypeVar("T")

# Tensors that have nothing of their own but elements.
PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_quantized


def detached(tensor: torch.Tensor) -> torch.Tensor:
    """Itself where it is a tensor of no other class and without a gradient, as most are."""
    return tensor if type(tensor) is torch.Tensor and not tensor.requires_grad else tensor.detach()


def future_of(value: Any) -> Future:
    future: Future = Future()
    future.set_result(value)
    return future


def checkpoint_uri(uri: str | os.PathLike[str]) -> str:
    """Raises ValueError for what is none."""
    if not isinstance(uri, str | os.PathLike):
        raise TypeError(f"uri must be a str or a path, gs://bucket/prefix, got {uri!r}")
    text = os.fspath(uri)
    stripped = text.rstrip("/")
    parts = _uri.cut(stripped)
    if parts is None or not all(parts):
        raise ValueError(f"{text!r} is not the URI of a checkpoint: gs://bucket/prefix")
    return stripped


class Place:
    """A checkpoint's URI and the client, of one save or load."""

    def __init__(self, uri: str, client: Client | None):
        self.uri = uri
        self._client = client

    def __call__(self) -> Client:
        return chosen(self._client)

    def file(self, name: str) -> str:
        return f"{self.uri}/{name}"

    def has(self, name: str) -> bool:
        try:
            self().stat(self.file(name))
        except NotFoundError:
            return False
        return True


class PerThread(Generic[T]):
    """The save or the load that each thread is in: torch makes all calls of one from one thread. A thread that is in
    none gets the one that was begun last, for programs that make these calls themselves, from several."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._last: T | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy begins anew.
        return type(self), ()

    def begin(self, one: T) -> None:
        self._local.one = self._last = one

    def current_or_none(self) -> T | None:
        return getattr(self._local, "one", self._last)

    def current(self) -> T:
        one = self.current_or_none()
        if one is None:
            raise RuntimeError("nothing was begun: set_up_storage_writer, or read_metadata, comes first")
        return one

    def note(self, name: str, value: str) -> None:
        """For what this thread begins next."""
        setattr(self._local, name, value)

    def take(self, name: str, default: str) -> str:
        value = getattr(self._local, name, default)
        self._local.__dict__.pop(name, None)
        return value
