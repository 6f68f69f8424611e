"""Tensors whose memory was freed, though they are there: FSDP resizes the storage of parameters to 0 bytes. One that was cut
short is freed as well: what is left is not the tensor.

They are refused where they would be saved. To touch their elements would end the process or take what lies behind, and
torch.save writes a file without them, which cannot be loaded."""

from __future__ import annotations

import copy
import io
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# So large a file is looked through for names of storages faster than its directory is read.
_LOOKED_THROUGH_MAX = 64 << 10


def reach(tensor: torch.Tensor) -> int:
    """Bytes from the first element of a dense tensor to the end of the last in its memory; it has elements."""
    if tensor.is_contiguous():
        return tensor.nbytes
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.itemsize * (1 + sum((size - 1) * stride for size, stride in steps))


def _reaches_beyond(tensor: torch.Tensor) -> bool:
    """Whether an element of a dense tensor lies behind the end of its storage."""
    size = tensor.untyped_storage().nbytes()
    if tensor.is_quantized:  # some have two elements in a byte
        return not size
    return tensor.storage_offset() * tensor.itemsize + reach(tensor) > size


def is_freed(tensor: torch.Tensor) -> bool:
    """Whether a dense tensor of the CPU has elements, and not for all of them memory any more."""
    return tensor.is_cpu and tensor.numel() > 0 and _reaches_beyond(tensor)


def has_lost_its_memory(tensor: torch.Tensor) -> bool:
    """The same of any tensor. One whose class makes it of other tensors has no memory of its own."""
    is_made_of_others = type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    if is_made_of_others or tensor.layout is not torch.strided or not (tensor.is_cpu or tensor.is_cuda):
        return False
    return tensor.numel() > 0 and _reaches_beyond(tensor)


def refuse(name: str, tensors: Iterable[torch.Tensor]) -> None:
    for each in tensors:
        if has_lost_its_memory(each):
            size = each.untyped_storage().nbytes()
            what = "not all of its content" if size else "no content"
            raise ValueError(f"{name} has {what} any more: its storage was resized to {size} bytes")


def has_empty_storage(content: bytes) -> bool:
    """Whether a file of torch.save has a storage without bytes, by its directory: most have no storage at all."""
    if len(content) <= _LOOKED_THROUGH_MAX and b"/data/" not in content:
        return False
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            return any(each.file_size == 0 and "/data/" in each.filename for each in file.infolist())
    except zipfile.BadZipFile:
        return False


def refuse_in(thing: Any, pickle_module: Any, protocol: int, within: str = "") -> None:
    """Goes through all that would be pickled of a thing: it was seen that a storage is empty, and some are by right.
    within: where the tensors are that the keys of the thing do not lead to."""

    class Pickler(pickle_module.Pickler):
        def persistent_id(self, value: Any) -> Any:
            is_storage = isinstance(value, torch.storage.TypedStorage) or torch.is_storage(value)
            return "storage" if is_storage else None

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, torch.Tensor) and has_lost_its_memory(value):
                refuse(_name_of(thing, value) or _hidden(value, within), [value])
            inherited: Any = getattr(super(), "reducer_override", None)
            return inherited(value) if inherited is not None else NotImplemented

    Pickler(_Nowhere(), protocol).dump(thing)


class _Refusing(TorchFunctionMode):
    """Refuses, before torch does anything with them."""

    def __init__(self, name: str, thing: Any):
        super().__init__()
        self._name = name
        self._thing = thing

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for each in args:
            if isinstance(each, torch.Tensor) and has_lost_its_memory(each):
                refuse(_name_of({self._name: self._thing}, each) or _hidden(each, self._name), [each])
        return function(*args, **(kwargs or {}))


def deepcopy(name: str, thing: Any) -> Any:
    """A copy, unless it would be of what is in such memory: of some tensors that ends the process, and of others the copy
    has whatever its new memory held before."""
    with _Refusing(name, thing):
        return copy.deepcopy(thing)


def _hidden(tensor: torch.Tensor, within: str) -> str:
    """What no keys lead to."""
    return f"a tensor of the shape {tuple(tensor.shape)}" + (f" in {within}" if within else "")


class _Nowhere:
    """A file for what nobody wants."""

    def write(self, data: Any) -> int:
        return len(data)


def _name_of(thing: Any, tensor: torch.Tensor) -> str | None:
    """By the keys that lead to it. None: it is in something else than containers and modules."""
    left: list[tuple[str, Any]] = [("", thing)]
    seen = set()
    while left:
        name, each = left.pop()
        if each is tensor:
            return name.removeprefix(".") or None
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, torch.nn.Module):
            each = {**dict(each.named_parameters()), **dict(each.named_buffers())}
        if isinstance(each, Mapping):
            left += [(f"{name}.{key}", value) for key, value in each.items()]
        elif isinstance(each, (list, tuple)):
            left += [(f"{name}.{i}", value) for i, value in enumerate(each)]
    return None
