"""The metadata of ringest.dcp: what its own way to pickle writes is loaded as what pickle writes."""

import io
import pickle
import unittest
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from ringest import _dcp_metadata, _dcp_pickle

MANY = 700
CHECKSUMS = (0, 1, 255, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
PROPERTIES: tuple[dict[str, Any], ...] = (
    {},
    {"dtype": torch.bfloat16},
    {"requires_grad": True},
    {"pin_memory": True},
    {"memory_format": torch.channels_last},
    {"layout": torch.sparse_csr},
    {"dtype": torch.complex64, "requires_grad": True},
    {"memory_format": torch.channels_last, "pin_memory": True},
    {"layout": torch.sparse_coo, "memory_format": torch.preserve_format},
)
SHAPES = ((), (0, 3), (5,), (1 << 33, 2), (4, 3, 2, 1))


class Text(str):
    pass


class Index(MetadataIndex):
    pass


class Info(_StorageInfo):
    pass


def tensor_entry(number, chunks=1):
    shape = torch.Size(SHAPES[number % len(SHAPES)])
    parts = [ChunkStorageMetadata(torch.Size([each] * len(shape)), torch.Size(list(shape))) for each in range(chunks)]
    # Each has its own, as torch makes them.
    return TensorStorageMetadata(TensorProperties(**PROPERTIES[number % len(PROPERTIES)]), shape, parts)


def a_place(number):
    return _dcp_metadata.info_make(
        f"__{number % 3}_0.0123456789abcdef.distcp",
        number << 40,
        100 + number,
        number,
        CHECKSUMS[number % len(CHECKSUMS)],
    )


def a_metadata():
    entries, places = {}, {}
    for number in range(MANY):
        name = f"layer.{number}.weight"
        entries[name] = tensor_entry(number, number % 4)
        for hint, chunk in enumerate(entries[name].chunks):
            places[MetadataIndex(name, chunk.offsets, hint)] = a_place(len(places))
    # Names of attributes, an empty one, and one that is no ASCII; and what is no tensor.
    for name in "offset", "fqn", "ringest", "", "größe\N{SNOWMAN}":
        entries[name] = BytesStorageMetadata()
        places[MetadataIndex(name)] = a_place(len(places))
    places[MetadataIndex("nowhere else", [], -1)] = a_place(7)
    mappings = {name: ("model", *name.split("."), 3) for name in entries}
    return Metadata(entries, mappings, places, StorageMeta("gs://bucket/run", "0123"), _dcp_metadata.VERSION)


def details(thing):
    """All that it is made of, the attributes too that do not count where two are compared."""
    if isinstance(thing, dict):
        return dict, [(details(key), details(each)) for key, each in thing.items()]
    if isinstance(thing, (list, tuple)):
        return type(thing), [details(each) for each in thing]
    return (type(thing), details(vars(thing))) if hasattr(thing, "__dict__") else (type(thing), thing)


def changed(change):
    metadata = a_metadata()
    change(metadata)
    return metadata


def rename(entries, kind):
    entries[kind("layer.1.weight")] = entries.pop("layer.1.weight")


def replace_key(places, make):
    index, info = places.popitem()
    places[make(index)] = info


OTHERS = {
    "nothing": lambda: Metadata({}, None, {}, None),
    "a name of another type": lambda: changed(lambda it: rename(it.state_dict_metadata, Text)),
    "an index of another type": lambda: changed(lambda it: replace_key(it.storage_data, lambda one: Index(one.fqn))),
    "a place of another type": lambda: changed(
        lambda it: it.storage_data.update({MetadataIndex("other"): Info("__0_0.distcp", 0, 1, ["zstd"])})
    ),
    "a shape of another type": lambda: changed(
        lambda it: setattr(it.state_dict_metadata["layer.1.weight"], "size", (7, 7))
    ),
    "an attribute more": lambda: changed(lambda it: setattr(it, "more", {"of": "it"})),
}


class CountedFile(io.BytesIO):
    reads = 0

    def read(self, *size):
        self.reads += 1
        return super().read(*size)

    def readinto(self, memory):
        self.reads += 1
        return super().readinto(memory)


class Pickled(unittest.TestCase):
    def test_this_torch_is_known(self):
        self.assertTrue(_dcp_pickle.is_known())

    def test_it_is_loaded_as_what_pickle_writes(self):
        metadata = a_metadata()
        wanted = details(pickle.loads(pickle.dumps(metadata)))
        encoded = _dcp_metadata.encode(metadata)
        self.assertLess(len(encoded), len(pickle.dumps(metadata)))
        for load in pickle.loads, pickle._loads, lambda data: _dcp_metadata.decode(data, "gs://here"):
            # A message would compare them word by word, which takes a minute.
            self.assertTrue(details(load(encoded)) == wanted)
        self.assertEqual(metadata, a_metadata())

    def test_whatever_is_not_known_is_pickled_by_pickle(self):
        for what, make in OTHERS.items():
            with self.subTest(what):
                found = pickle.loads(_dcp_metadata.encode(make()))
                self.assertTrue(details(found) == details(pickle.loads(pickle.dumps(make()))))

    def test_tensors_do_not_share_what_may_be_changed(self):
        found = pickle.loads(_dcp_metadata.encode(a_metadata()))
        tensors = [each for each in found.state_dict_metadata.values() if isinstance(each, TensorStorageMetadata)]
        lists = [each.chunks for each in tensors]
        for things in tensors, lists, sum(lists, []), list(found.storage_data.values()):
            self.assertEqual(len({id(each) for each in things}), len(things))

    def test_a_loader_reads_it_in_few_pieces(self):
        file = CountedFile(_dcp_metadata.encode(a_metadata()))
        pickle.load(file)
        self.assertLess(file.reads, 10)


if __name__ == "__main__":
    unittest.main()
