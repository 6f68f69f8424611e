"""Unpickling plain state dicts fast, and nothing else.

torch.load(weights_only=True) interprets pickles in Python, which takes longer than receiving small tensors
does. Most checkpoints refer to no more than tensors, parameters, and containers: these are read here by
Python's own unpickler, to which a handful of names exists. What refers to any other name is not plain, and
goes through torch's unpickler, which decides about it.

Why this is safe: a pickle calls nothing but what find_class returns, and there are the two functions that
make a tensor or a parameter out of a storage, as wrappers made for this one pickle (a pickle may set
attributes of what it was given), names of storage types, and OrderedDict.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringest._torch_zip import ArchiveReader


class NotPlain(Exception):
    """More than tensors in containers, or not for this processor."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, archive: ArchiveReader):
        import torch

        super().__init__(file, encoding="utf-8")
        self._archive = archive
        self._torch = torch
        self._storages: dict[str, Any] = {}
        tensor, parameter = torch._utils._rebuild_tensor_v2, torch._utils._rebuild_parameter
        self._names = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): lambda *arguments: tensor(*arguments),
            ("torch._utils", "_rebuild_parameter"): lambda *arguments: parameter(*arguments),
        }

    def find_class(self, module: str, name: str) -> Any:
        found = self._names.get((module, name))
        if found is None:
            if module != "torch" or not name.endswith("Storage"):
                raise NotPlain
            try:
                found = self._names[module, name] = self._torch.serialization.StorageType(name)
            except KeyError:
                raise NotPlain from None
        return found

    def persistent_load(self, pid: Any) -> Any:
        kind, storage_type, key, location, count = pid
        # On a device that was asked for, they are already.
        if kind != "storage" or (location != "cpu" and self._archive.device is None):
            raise NotPlain
        found = self._storages.get(key)
        if found is None:
            dtype = storage_type.dtype
            size = count * self._torch._utils._element_size(dtype)
            filled = self._archive.get_storage_from_record(f"data/{key}", size, None)
            found = self._torch.storage.TypedStorage(wrap_storage=filled._untyped_storage, dtype=dtype, _internal=True)
            self._storages[key] = found
        return found


def load(archive: ArchiveReader, map_location: Any) -> Any:
    """What torch would make of the archive, where its storages are to stay where they are; NotPlain where torch has
    to."""
    import torch

    here = map_location is None or (
        isinstance(map_location, (str, torch.device)) and torch.device(map_location).type == "cpu"
    )
    if not (here or archive.device is not None) or not archive.is_native():
        raise NotPlain
    try:
        return _Unpickler(io.BytesIO(archive.get_record("data.pkl")), archive).load()
    except Exception as error:
        # Whatever is wrong, torch's own unpickler says it in its words.
        raise NotPlain from error
