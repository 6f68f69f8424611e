"""Pickles the Metadata of a checkpoint.

Most of it are four small objects for each tensor. pickle takes each apart by its general way, which costs more than
anything else that a save does for a small tensor but to send it. Here their opcodes are put down as pickle would, and
pickle itself has the rest. What is loaded is the same, by the same classes.

One Pickler makes all that is not put down here, in the order of the stream: first what stands there many times, then what
is left. So the numbers by which it finds again what it has memoized are a loader's, too. They are in a stream of protocol 3,
and nothing of that is unknown in one of protocol 4, where all of it is one frame: without one, a loader reads from its file byte
by byte.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import pickle
import struct
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

# The first bytes and the last one of what a Pickler makes.
_PROTOCOL, _HEAD, _END = 3, b"\x80\x03", b"."
_FRAMED = b"\x80\x04\x95"
_POP = b"0"
# An object of the class on the stack, and the beginning of its attributes; their end.
_NEW, _BUILT = b")\x81}(", b"ub"
_DICT, _DICT_END = b"}(", b"u"
_LIST, _LIST_END = b"](", b"e"
_TUPLE_OF_3 = b"\x87"
# A number of eight bytes follows.
_NUMBER = b"\x8a\x08"

# Classes that pickle takes apart by their attributes. _StorageInfo leaves out those that are None.
_FIELDS: dict[Any, tuple[str, ...]] = {
    TensorStorageMetadata: ("properties", "size", "chunks"),
    ChunkStorageMetadata: ("offsets", "sizes"),
    MetadataIndex: ("fqn", "offset", "index"),
    _StorageInfo: ("relative_path", "offset", "length", "transform_descriptors"),
}
_NOTE = "ringest"  # the attribute that info_make adds: three numbers
_NAMES = dict.fromkeys([*(name for names in _FIELDS.values() for name in names), _NOTE])


@functools.lru_cache(maxsize=1)
def is_known() -> bool:
    """Whether the classes of this torch are those that are known here."""
    for kind, names in _FIELDS.items():
        found = tuple(field.name for field in dataclasses.fields(kind))
        ways = [getattr(kind, each, None) is getattr(object, each, None) for each in ("__reduce_ex__", "__reduce__")]
        if found != names or not all(ways) or hasattr(kind, "__setstate__") or hasattr(kind, "__slots__"):
            return False
        if ("__getstate__" in vars(kind)) != (kind is _StorageInfo):
            return False
    return True


def _number(value: int) -> bytes:
    return _NUMBER + value.to_bytes(8, "little", signed=True)


def _get(number: int) -> bytes:
    """Puts on the stack what was memoized."""
    return b"h" + bytes((number,)) if number < 256 else b"j" + number.to_bytes(4, "little")


class _Unknown(Exception):
    """Something is not what it is elsewhere."""


class _Encoder:
    """Of one Metadata, which nobody changes meanwhile. Tensors that differ only by their name and place have the same key."""

    def __init__(self, metadata: Metadata):
        self._metadata = metadata
        self._file = io.BytesIO()
        self._pickler = pickle.Pickler(self._file, _PROTOCOL)
        self._properties: dict[int, TensorProperties] = {}  # by the id of each, one that is equal
        entries, places = metadata.state_dict_metadata, metadata.storage_data
        self._entry_keys = self._keys_of(entries)
        self._place_keys = [(index.offset, index.index, info.relative_path) for index, info in places.items()]
        entry_keys, place_keys = dict.fromkeys(self._entry_keys), dict.fromkeys(self._place_keys)
        sizes = {offset: None for offset, _, _ in place_keys}
        for key in entry_keys:
            if key is not None:
                sizes.update(dict.fromkeys((key[1], *(size for chunk in key[2:] for size in chunk))))
        sizes.pop(None, None)
        texts = {path: path for _, _, path in place_keys}
        texts.update(zip(entries, entries))
        texts |= {fqn: fqn for fqn in {index.fqn for index in places} - texts.keys()}
        if set(map(type, sizes)) - {torch.Size} or set(map(type, texts)) - {str}:
            raise _Unknown
        # The shortest numbers are for what is referred to most.
        kept = (
            *_FIELDS,
            *_NAMES,
            *sizes,
            *{id(each): each for each in self._properties.values()}.values(),
            *texts.values(),
        )
        self._parts = [self._body(kept), _POP]
        get = {i: _get(number) for i, (number, _) in self._pickler.memo.copy().items()}
        self._begin = {kind: get[id(kind)] + _NEW for kind in _FIELDS}
        self._names = {name: get[id(name)] for name in _NAMES}
        self._sizes = {size: get[id(size)] for size in sizes}
        self._get_properties = {i: get[id(each)] for i, each in self._properties.items()}
        self._texts = {text: get[id(each)] for text, each in texts.items()}
        self._entries = {key: self._entry(key) for key in entry_keys if key is not None}
        self._places = {key: self._place(key) for key in place_keys}

    def _keys_of(self, entries: dict[str, Any]) -> list[Any]:
        """None: it is no tensor."""
        equal: dict[Any, TensorProperties] = {}
        properties, keys = self._properties, list[Any]()
        for entry in entries.values():
            if type(entry) is not TensorStorageMetadata:
                keys.append(None)
                continue
            own = entry.properties
            if id(own) not in properties:
                all_of_it = own.dtype, own.layout, own.requires_grad, own.memory_format, own.pin_memory
                properties[id(own)] = equal.setdefault(all_of_it, own)
            chunks = [(chunk.offsets, chunk.sizes) for chunk in entry.chunks]
            keys.append((id(properties[id(own)]), entry.size, *chunks))
        return keys

    def _body(self, thing: Any) -> bytes:
        """What puts anything on the stack, to be added next."""
        self._file.seek(0)
        self._file.truncate()
        self._pickler.dump(thing)
        return self._file.getvalue()[len(_HEAD) : -len(_END)]

    def _entry(self, key: Any) -> bytes:
        """A TensorStorageMetadata."""
        names, sizes, begin = self._names, self._sizes, self._begin[ChunkStorageMetadata]
        found = [self._begin[TensorStorageMetadata], names["properties"], self._get_properties[key[0]]]
        found += [names["size"], sizes[key[1]], names["chunks"], _LIST]
        for offsets, lengths in key[2:]:
            found += [begin, names["offsets"], sizes[offsets], names["sizes"], sizes[lengths], _BUILT]
        return b"".join((*found, _LIST_END, _BUILT))

    def _place(self, key: Any) -> bytes:
        """What is behind the name in a MetadataIndex, and the beginning of the _StorageInfo."""
        names, (offset, hint, path) = self._names, key
        found = [names["index"], b"N" if hint is None else _number(hint)]
        found += [names["offset"], self._sizes[offset]] if offset is not None else []
        found += [_BUILT, self._begin[_StorageInfo], names["relative_path"], self._texts[path]]
        return b"".join((*found, names["offset"], _NUMBER))

    def encoded(self) -> bytes:
        add = self._parts.append
        add(self._body(Metadata) + _NEW)
        for name, value in vars(self._metadata).items():
            add(self._body(name))
            if value is self._metadata.state_dict_metadata:
                self._add_entries(value)
            elif value is self._metadata.storage_data:
                self._add_places(value)
            else:
                add(self._body(value))
        add(_BUILT + _END)
        size = sum(map(len, self._parts))
        return b"".join((_FRAMED, size.to_bytes(8, "little"), *self._parts))

    def _add_entries(self, entries: dict[str, Any]) -> None:
        texts, known = self._texts, self._entries
        self._parts.append(_DICT)
        for (fqn, entry), key in zip(entries.items(), self._entry_keys):
            self._parts += (texts[fqn], known[key] if key is not None else self._body(entry))
        self._parts.append(_DICT_END)

    def _add_places(self, places: dict[MetadataIndex, Any]) -> None:
        texts, known, names = self._texts, self._places, self._names
        before = self._begin[MetadataIndex] + names["fqn"]
        length, note = names["length"] + _NUMBER, names[_NOTE] + _NUMBER
        end = _TUPLE_OF_3 + _BUILT
        pack = struct.Struct(f"<q{len(length)}sq{len(note)}sq2sq2sq{len(end)}s").pack
        self._parts.append(_DICT)
        for (index, info), key in zip(places.items(), self._place_keys):
            layout, inner, crc32c = info.ringest
            numbers = pack(info.offset, length, info.length, note, layout, _NUMBER, inner, _NUMBER, crc32c, end)
            self._parts += (before, texts[index.fqn], known[key], numbers)
        self._parts.append(_DICT_END)


def _is_ours(metadata: Metadata) -> bool:
    """Whether each place is one that info_make has made."""
    places = metadata.storage_data
    return set(map(type, places)) <= {MetadataIndex} and set(map(type, places.values())) <= {_StorageInfo}


def encode(metadata: Metadata) -> bytes:
    """Of one that says where each item lies; pickle.loads makes an equal one of it."""
    if is_known() and _is_ours(metadata):
        try:
            return _Encoder(metadata).encoded()
        except _Unknown:
            pass
    return pickle.dumps(metadata, pickle.HIGHEST_PROTOCOL)
