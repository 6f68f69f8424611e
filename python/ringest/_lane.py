"""Copies to a device, in order and beside its other work: a stream of their own, whose events say when they are done.

A lane belongs to one thread at a time. What it copies from must not change, and stays the caller's to keep, until a mark
behind the copy is done; what it copies to may be used by another stream behind hand_over().
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ringest._needs import needs

with needs("ringest.to_device"):
    import torch

# Devices whose memory the CPU fills itself, or that have none.
_WITHOUT_STREAMS = ("cpu", "meta")


class Mark(Protocol):
    """A place behind copies."""

    def wait(self) -> None:
        """Until they are done; other threads of Python's run meanwhile."""


class Lane(Protocol):
    device: torch.device

    def entered(self) -> AbstractContextManager[Any]:
        """What is copied, and allocated on the device, within it belongs to the lane."""

    def follow(self) -> None:
        """What is copied from now on goes behind what the current stream of the calling thread has been given: memory
        that this stream allocated, or wrote to, may be copied into."""

    def copy(self, host: torch.Tensor) -> torch.Tensor:
        """A copy on the device. Within entered()."""

    def copy_into(self, target: torch.Tensor, host: torch.Tensor) -> None:
        """Into memory of the device, which nobody else is given before the copy is done. Within entered()."""

    def mark(self) -> Mark:
        """Behind all copies so far. Within entered()."""

    def hand_over(self, mark: Mark, tensors: Iterable[torch.Tensor]) -> None:
        """The current stream of the calling thread goes on behind the mark, and keeps the tensors' memory while it uses
        it."""

    def staging(self, size: int) -> torch.Tensor:
        """So many bytes of the CPU's memory that copies begin in."""


class _Done:
    def wait(self) -> None:
        pass


# Behind no copies.
NOTHING: Mark = _Done()


class DirectLane:
    """For the CPU, and for devices without streams: each copy is done when the call returns."""

    def __init__(self, device: torch.device):
        self.device = device

    def entered(self) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def follow(self) -> None:
        pass

    def copy(self, host: torch.Tensor) -> torch.Tensor:
        return host.to(self.device, copy=True)

    def copy_into(self, target: torch.Tensor, host: torch.Tensor) -> None:
        target.copy_(host)

    def mark(self) -> Mark:
        return NOTHING

    def hand_over(self, mark: Mark, tensors: Iterable[torch.Tensor]) -> None:
        mark.wait()

    def staging(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device="cpu")


class _Event:
    def __init__(self, event: Any):
        self.event = event

    def wait(self) -> None:
        self.event.synchronize()


class StreamLane:
    """For CUDA, and what has streams and events as CUDA has them."""

    def __init__(self, device: torch.device, module: Any):
        self.device = device
        self._module = module
        self._stream = module.Stream(device)
        # Who waits sleeps; on CUDA it would otherwise spin.
        self._event_options = {"blocking": True} if device.type == "cuda" else {}

    def entered(self) -> AbstractContextManager[Any]:
        return self._module.stream(self._stream)

    def follow(self) -> None:
        self._stream.wait_stream(self._module.current_stream(self.device))

    def copy(self, host: torch.Tensor) -> torch.Tensor:
        return host.to(self.device, non_blocking=True, copy=True)

    def copy_into(self, target: torch.Tensor, host: torch.Tensor) -> None:
        # PyTorch gives memory that was let go of to the stream that allocated it, at once: also if whoever waits for the
        # copy was interrupted. It notes by itself that the copy reads from pinned memory.
        target.record_stream(self._stream)
        target.copy_(host, non_blocking=True)

    def mark(self) -> Mark:
        event = self._module.Event(**self._event_options)
        event.record(self._stream)
        return _Event(event)

    def hand_over(self, mark: Mark, tensors: Iterable[torch.Tensor]) -> None:
        assert isinstance(mark, _Event)
        current = self._module.current_stream(self.device)
        current.wait_event(mark.event)
        for tensor in tensors:
            tensor.record_stream(current)

    def staging(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)


def check_device(device: Any) -> torch.device:
    """With a number, if there may be several: the current one of the calling thread. RuntimeError: it is not there."""
    given = torch.device(device)
    if given.type in _WITHOUT_STREAMS:
        return given
    module = torch.get_device_module(given)
    if not module.is_available():
        raise RuntimeError(f"PyTorch {torch.__version__} finds no device of type {given.type!r} here; use 'cpu'")
    if given.index is None and hasattr(module, "current_device"):
        return torch.device(given.type, module.current_device())
    return given


def _streams(device: torch.device) -> Any:
    """PyTorch's module for the device; None: it has no streams."""
    if device.type in _WITHOUT_STREAMS:
        return None
    module = torch.get_device_module(device)
    return module if hasattr(module, "Stream") and hasattr(module, "current_stream") else None


def has_streams(device: torch.device) -> bool:
    """Whether copies to it may run beside other work. False for one that is not there, too."""
    try:
        module = _streams(device)
    except RuntimeError:
        return False
    return module is not None and module.is_available()


def open_lane(device: torch.device) -> Lane:
    """For a device that check_device gave."""
    module = _streams(device)
    return DirectLane(device) if module is None else StreamLane(device, module)
