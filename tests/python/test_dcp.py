"""torch.distributed.checkpoint over ringest.dcp: what is saved is what is loaded, by any number of ranks and
by torch itself; a complete checkpoint is there at any moment; damage is named."""

import dataclasses
import gc
import os
import pickle
import random
import signal
import tempfile
import time
import traceback
import unittest
import unittest.mock
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import ranks
import ringest
import support
from ringest import _dcp_metadata, retention
from ringest._errors import crc32c_text
from ringest.dcp import CheckpointError, StorageReader, StorageWriter

# Without a process group torch warns that there is none.
warnings.filterwarnings("ignore", category=UserWarning, module="torch")
KILLS = int(os.environ.get("RINGEST_KILLS", "5"))
CHECKPOINT = "gs://new/run/step-1"


def every_kind():
    torch.manual_seed(1)
    return {
        "matrix": torch.randn(300, 400),
        "half": torch.randn(7).half(),
        "bfloat16": torch.randn(5, 5).bfloat16(),
        "float8": torch.randn(33).to(torch.float8_e4m3fn),
        "boolean": torch.randn(9) > 0,
        "complex": torch.randn(4, dtype=torch.complex64).conj(),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "transposed": torch.randn(50, 60).t(),
        "strided": torch.randn(40, 40)[::2, 3:17],
        "quantized": torch.quantize_per_tensor(torch.randn(10, 10), 0.1, 5, torch.qint8),
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "step": 7,
        "name": "x",
        "list": [1, torch.ones(3)],
        "nested": {"a": torch.arange(10), "b": {"c": torch.tensor(1)}},
    }


def blank(value):
    """The same without what is to be loaded."""
    if isinstance(value, torch.Tensor):
        if value.is_quantized:
            return torch.quantize_per_tensor(torch.zeros(value.shape), 0.1, 5, value.dtype)
        return torch.zeros_like(value)
    if isinstance(value, dict):
        return {key: blank(each) for key, each in value.items()}
    if isinstance(value, list):
        return [blank(each) for each in value]
    return type(value)()


def is_same(one, other):
    if isinstance(one, torch.Tensor):
        if one.is_quantized:
            return torch.equal(one.int_repr(), other.int_repr())
        if one.itemsize == 1:
            one, other = one.view(torch.uint8), other.view(torch.uint8)
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return one == other


def save(state, client, uri=CHECKPOINT, **options):
    dcp.save(state, storage_writer=StorageWriter(uri, client=client, **options))


def load(state, client, uri=CHECKPOINT):
    dcp.load(state, storage_reader=StorageReader(uri, client=client))
    return state


def names(client, uri=CHECKPOINT):
    prefix = uri.split("/", 3)[3] + "/"
    return sorted(name.removeprefix(prefix) for name, _, _ in client.list(uri + "/"))


def data_name(client, uri=CHECKPOINT):
    (name,) = [name for name in names(client, uri) if name.endswith(".distcp")]
    return f"{uri}/{name}"


def cause(caught):
    """Of a CheckpointException, what happened on the first rank that failed."""
    return next(iter(caught.exception.failures.values()))[0]


class Values(unittest.TestCase):
    def test_what_is_saved_is_loaded(self):
        with support.client() as client:
            saved = every_kind()
            save(saved, client)
            self.assertTrue(is_same(saved, load(blank(saved), client)))

    def test_torch_loads_what_is_saved_here(self):
        with support.client() as client, tempfile.TemporaryDirectory() as folder:
            saved = every_kind()
            save(saved, client)
            for name in names(client):
                with open(f"{folder}/{name}", "wb") as file:
                    file.write(client.get(f"{CHECKPOINT}/{name}"))
            loaded = blank(saved)
            dcp.load(loaded, storage_reader=dcp.FileSystemReader(folder))
            self.assertTrue(is_same(saved, loaded))

    def test_what_torch_saved_is_loaded_here(self):
        with support.client() as client, tempfile.TemporaryDirectory() as folder:
            saved = every_kind()
            dcp.save(saved, storage_writer=dcp.FileSystemWriter(folder, thread_count=2))
            for name in os.listdir(folder):
                with open(f"{folder}/{name}", "rb") as file:
                    client.put(f"{CHECKPOINT}/{name}", file.read())
            self.assertTrue(is_same(saved, load(blank(saved), client)))
            # Saving over it leaves nothing of it.
            save(saved, client)
            self.assertEqual(len(names(client)), 2)

    def test_tensors_of_other_types_and_strides_are_loaded_into(self):
        with support.client() as client:
            saved = {"matrix": torch.randn(2500, 1000), "cube": torch.randn(20, 30, 40)}
            save(saved, client)
            into = {
                "matrix": torch.zeros(1000, 2500, dtype=torch.float64).t(),
                "cube": torch.zeros(20, 30, 80)[:, :, ::2],
            }
            load(into, client)
            self.assertTrue(torch.equal(into["matrix"], saved["matrix"].double()))
            self.assertTrue(torch.equal(into["cube"], saved["cube"]))

    def test_tensors_that_share_memory_are_saved_each(self):
        with support.client() as client:
            base = torch.arange(1000.0)
            saved = {"base": base, "view": base[100:200], "same": base, "wide": base[:1].expand(4, 3)}
            save(saved, client)
            into = {name: torch.zeros(each.shape) for name, each in saved.items()}
            self.assertTrue(is_same(saved, load(into, client)))

    def test_tensors_without_content_are_refused(self):
        with support.client() as client:
            client.put("gs://new/other", b"")
            with self.assertRaises(CheckpointException) as caught:
                save({"x": torch.ones(3), "inner": {"y": torch.empty(3, device="meta")}}, client)
            self.assertIsInstance(cause(caught), TypeError)
            self.assertIn("inner.y is on the meta device", str(cause(caught)))
            self.assertEqual(names(client), [])

    def test_a_rank_goes_on_in_another_object(self):
        with support.client() as client:
            saved = {str(i): torch.full((1000,), float(i)) for i in range(20)}
            save(saved, client, file_size_max="10KiB")
            self.assertEqual(len(names(client)), 11)
            self.assertTrue(is_same(saved, load(blank(saved), client)))

    def test_many_small_tensors_take_few_requests(self):
        saved = {f"layer.{i}.weight": torch.randn(500) for i in range(1000)}
        with support.client(hedging=False) as client:
            save(saved, client)
            after_save = client.stats()["requests"]
            self.assertLess(after_save, 10)
            self.assertTrue(is_same(saved, load(blank(saved), client)))
            self.assertLess(client.stats()["requests"] - after_save, 10)

    def test_what_is_equal_stands_in_the_metadata_once(self):
        saved = {f"layer.{i}.weight": torch.randn(50) for i in range(100)}
        saved["other"] = torch.arange(7)
        with support.client() as client:
            for is_enabled in (True, False):
                (gc.enable if is_enabled else gc.disable)()
                try:
                    save(saved, client)
                    metadata = StorageReader(CHECKPOINT, client=client).read_metadata()
                    self.assertEqual(gc.isenabled(), is_enabled)
                finally:
                    gc.enable()
            entries = metadata.state_dict_metadata
            self.assertEqual(len(entries), 101)
            self.assertEqual(len({id(each) for each in entries.values()}), 2)
            offsets = {id(each.chunks[0].offsets) for each in entries.values()}
            self.assertEqual(len(offsets | {id(key.offset) for key in metadata.storage_data}), 1)
            self.assertEqual(entries["other"].properties.dtype, torch.int64)

    def test_what_differs_in_anything_stays_apart_in_the_metadata(self):
        size = torch.Size
        kind, chunk = {"dtype": torch.float32}, ([0, 0], [2, 3])
        made = [
            (kind, [2, 3], [chunk]),
            ({"dtype": torch.int32}, [2, 3], [chunk]),
            (kind | {"layout": torch.sparse_coo}, [2, 3], [chunk]),
            (kind | {"requires_grad": True}, [2, 3], [chunk]),
            (kind | {"memory_format": torch.channels_last}, [2, 3], [chunk]),
            (kind | {"pin_memory": True}, [2, 3], [chunk]),
            (kind, [3, 2], [chunk]),
            (kind, [2, 3], []),
            (kind, [2, 3], [chunk, chunk]),
            (kind, [2, 3], [([1, 0], [2, 3])]),
            (kind, [2, 3], [([0, 0], [1, 3])]),
        ]

        def entries():
            found = {}
            for i in range(2):
                for j, (named, whole, parts) in enumerate(made):
                    chunks = [ChunkStorageMetadata(*map(size, part)) for part in parts]
                    found[f"{i}.{j}"] = TensorStorageMetadata(TensorProperties(**named), size(whole), chunks)
                found[f"{i}.bytes"] = BytesStorageMetadata()
            return found

        def metadata():
            places = {
                MetadataIndex(name, size([0, i]), i): _dcp_metadata.info_make("__0_0.distcp", i, 5, 3, i)
                for i, name in enumerate(entries())
            }
            return Metadata(entries(), planner_data={"a": ("a",)}, storage_data=places)

        given = metadata()
        for _ in range(2):  # again, when all of it is shared
            data = _dcp_metadata.encode(given)
            self.assertEqual(given, metadata())
            for found in pickle.loads(data), _dcp_metadata.decode(data, "gs://new/run/.metadata"):
                wanted = metadata()
                for each in wanted, found:
                    each.storage_meta = None
                self.assertEqual(found, wanted)
                self.assertEqual(
                    [index.index for index in found.storage_data], [index.index for index in wanted.storage_data]
                )
                self.assertEqual(
                    [info.ringest for info in found.storage_data.values()],
                    [info.ringest for info in wanted.storage_data.values()],
                )
                self.assertEqual(len({id(each) for each in found.state_dict_metadata.values()}), len(made) + 2)

    def test_classes_of_torch_that_say_how_they_are_pickled(self):
        for kind in _StorageInfo, MetadataIndex:
            places = {MetadataIndex("a", torch.Size([0])): _dcp_metadata.info_make("__0_0.distcp", 0, 5, 3, 1)}
            metadata = Metadata({}, storage_data=places)
            state = lambda thing: {**vars(thing), "more": 1}
            with unittest.mock.patch.object(kind, "__getstate__", state, create=True):
                ((index, info),) = _dcp_metadata.decode(_dcp_metadata.encode(metadata), "gs://a/b").storage_data.items()
            self.assertEqual(
                [getattr(each, "more", 0) for each in (index, info)], [kind is MetadataIndex, kind is _StorageInfo]
            )

    def test_a_client_with_less_memory_than_the_checkpoint(self):
        saved = {str(i): torch.randn(1 << 20) for i in range(12)}
        with support.client(memory="16MiB") as client:
            save(saved, client)
            self.assertTrue(is_same(saved, load(blank(saved), client)))

    def test_a_writer_and_a_reader_are_pickled(self):
        with support.client() as client:
            saved = {"x": torch.randn(10)}
            made = StorageWriter(CHECKPOINT, client=client), StorageReader(CHECKPOINT, client=client)
            writer, reader = pickle.loads(pickle.dumps(made))
            dcp.save(saved, storage_writer=writer)
            loaded = blank(saved)
            dcp.load(loaded, storage_reader=reader)
            self.assertTrue(is_same(saved, loaded))

    def test_places_that_are_none(self):
        for uri in ("/tmp/x", "gs://bucket", "gs://bucket/", "gs://bucket//", "gs:///x", "s3://bucket/x"):
            with self.subTest(uri), self.assertRaisesRegex(ValueError, uri):
                StorageWriter(uri)


class Asynchronous(unittest.TestCase):
    def test_the_tensors_may_change_at_once(self):
        with support.client() as client:
            for cache in (False, True):
                writer = StorageWriter(CHECKPOINT, client=client, cache_staged_state_dict=cache)
                for value in (1.0, 2.0):
                    state = {"x": torch.full((100_000,), value), "quantized": every_kind()["quantized"]}
                    future = dcp.async_save(state, storage_writer=writer)
                    state["x"].fill_(9)
                    future.result()
                    self.assertEqual(float(load(blank(state), client)["x"].sum()), 100_000 * value)

    def test_each_tensor_is_copied_once(self):
        state = {"x": torch.ones(1 << 20), "view": torch.ones(1 << 20)[:100]}
        writer = StorageWriter(CHECKPOINT, cache_staged_state_dict=True)
        staged = writer.stage(state)
        self.assertEqual(staged["view"].untyped_storage().nbytes(), 400)
        memory = staged["x"].data_ptr()
        del staged
        self.assertEqual(writer.stage(state)["x"].data_ptr(), memory)

    def test_a_failure_is_told_by_the_future(self):
        with support.emulator() as (endpoint, ca):
            with support.faults(endpoint, ca, {"storage.objects.insert": ["return-403"]}):
                with ringest.Client(endpoint, ca) as client:
                    writer = StorageWriter(CHECKPOINT, client=client)
                    future = dcp.async_save({"x": torch.ones(5)}, storage_writer=writer)
                    with self.assertRaises(CheckpointException) as caught:
                        future.result()
            self.assertIsInstance(cause(caught), ringest.PermissionDeniedError)
            self.assertIn(CHECKPOINT, str(cause(caught)))


class Replacing(unittest.TestCase):
    def test_the_old_one_goes_when_the_new_one_is_there(self):
        with support.client() as client:
            save({"x": torch.ones(10)}, client)
            first = names(client)
            save({"x": torch.full((10,), 2.0)}, client)
            self.assertEqual(len(names(client)), 2)
            self.assertNotEqual(names(client), first)
            self.assertEqual(float(load({"x": torch.zeros(10)}, client)["x"][0]), 2)

    def test_only_what_a_save_has_left_is_deleted(self):
        with support.client() as client:
            save({"x": torch.ones(10)}, client)
            for name in ("__3_0.0123456789abcdef.distcp", "__notes.txt", "__0_0.distcp.txt", "deeper/__0_0.distcp"):
                client.put(f"{CHECKPOINT}/{name}", b"?")
            save({"x": torch.ones(10)}, client)
            left = names(client)
            self.assertLessEqual({"__0_0.distcp.txt", "__notes.txt", "deeper/__0_0.distcp", ".metadata"}, set(left))
            self.assertEqual(len(left), 5)

    def test_a_bucket_that_keeps_versions_keeps_the_one_before(self):
        with support.emulator(buckets=()) as place, ringest.Client(*place) as client:
            support.make_bucket(*place, CHECKPOINT.split("/")[2], versioning={"enabled": True})
            save({"x": torch.ones(10)}, client)
            data = [(name, client.stat(f"{CHECKPOINT}/{name}")["generation"]) for name in names(client)]
            save({"x": torch.zeros(10)}, client)
            for name, generation in data:
                self.assertGreater(len(client.get(f"{CHECKPOINT}/{name}", generation=generation)), 0)
            self.assertEqual(len(names(client)), len(data))

    def test_not_unless_it_is_wanted(self):
        with support.client() as client:
            save({"x": torch.ones(10)}, client, overwrite=False)
            with self.assertRaises(CheckpointException) as caught:
                save({"x": torch.ones(10)}, client, overwrite=False)
            self.assertIsInstance(cause(caught), FileExistsError)
            self.assertIn(CHECKPOINT, str(cause(caught)))

    def test_somebody_else_was_faster(self):
        """Of two that began with the same checkpoint, the second fails, and nothing of the first is lost."""
        with support.client() as client:
            save({"x": torch.zeros(10)}, client)

            class Slow(StorageWriter):
                def finish(self, metadata, results):
                    save({"x": torch.ones(10)}, client)
                    super().finish(metadata, results)

            with self.assertRaises(CheckpointException) as caught:
                dcp.save({"x": torch.full((10,), 2.0)}, storage_writer=Slow(CHECKPOINT, client=client))
            self.assertIsInstance(cause(caught), ringest.PreconditionError)
            self.assertEqual(float(load({"x": torch.zeros(10)}, client)["x"][0]), 1)

    def test_while_it_is_loaded(self):
        with support.client() as client:
            save({"x": torch.zeros(10)}, client)

            class Slow(StorageReader):
                def read_data(self, plan, planner):
                    save({"x": torch.ones(10)}, client)
                    return super().read_data(plan, planner)

            with self.assertRaises(CheckpointException) as caught:
                dcp.load({"x": torch.zeros(10)}, storage_reader=Slow(CHECKPOINT, client=client))
            self.assertIsInstance(cause(caught), CheckpointError)
            self.assertIn("load it again", str(cause(caught)))


class Damage(unittest.TestCase):
    def fails(self, client, kind, *words, state=None):
        with self.assertRaises(CheckpointException) as caught:
            load({"x": torch.zeros(1000)} if state is None else state, client)
        error = cause(caught)
        if kind is not None:
            self.assertIsInstance(error, kind)
        for word in words:
            self.assertIn(word, str(error))

    def test_a_byte_of_a_tensor(self):
        with support.client() as client:
            saved = {"x": torch.randn(1000)}
            save(saved, client)
            uri = data_name(client)
            data = bytearray(client.get(uri))
            at = data.index(saved["x"].numpy().tobytes())
            good = crc32c_text(ringest._core.crc32c(data[at : at + 4000]))
            data[at + 5] ^= 1
            client.put(uri, data)
            bad = crc32c_text(ringest._core.crc32c(data[at : at + 4000]))
            self.fails(client, ringest.ChecksumError, uri, f"bytes {at} to {at + 4000}", good, bad)

    def test_a_byte_of_an_object(self):
        with support.client() as client:
            save({"x": 5}, client)
            uri = data_name(client)
            data = bytearray(client.get(uri))
            data[50] ^= 1
            client.put(uri, data)
            self.fails(client, ringest.ChecksumError, uri, "x", state={"x": 0})

    def test_the_end_is_missing(self):
        with support.client() as client:
            save({"x": torch.randn(1000), "y": torch.randn(1000)}, client)
            uri = data_name(client)
            for size in (5000, 100):
                client.put(uri, bytes(client.get(uri, length=size)))
                self.fails(client, None, uri, state={"x": torch.zeros(1000), "y": torch.zeros(1000)})

    def test_an_object_is_missing(self):
        with support.client() as client:
            save({"x": torch.randn(1000)}, client)
            uri = data_name(client)
            client.delete(uri)
            self.fails(client, ringest.NotFoundError, uri, ".metadata", "is missing")

    def test_nothing_was_saved(self):
        with support.client() as client:
            self.fails(client, ringest.NotFoundError, CHECKPOINT + "/.metadata")
            with self.assertRaises(ringest.NotFoundError):
                StorageReader(CHECKPOINT, client=client).read_metadata()

    def test_a_rank_that_saved_alone_and_its_metadata(self):
        uri = CHECKPOINT + "/__0.metadata"
        with support.client() as client:
            client.put(uri, b"nonsense")
            self.fails(client, CheckpointError, uri, "damaged")
            client.put(CHECKPOINT + "/.metadata", b"nonsense")
            client.delete(uri)
            self.fails(client, CheckpointError, CHECKPOINT + "/.metadata", "damaged")

    def test_who_looks_into_metadata_that_is_none(self):
        """As the planner does that loads whatever is there."""
        with support.client() as client, self.assertRaises(CheckpointException) as caught:
            _load_state_dict_from_keys(storage_reader=StorageReader(CHECKPOINT, client=client))
        self.assertIsInstance(cause(caught), ringest.NotFoundError)

    def change(self, client, change):
        uri = CHECKPOINT + "/.metadata"
        save({"x": torch.randn(1000)}, client)
        metadata = pickle.loads(client.get(uri))
        client.put(uri, pickle.dumps(change(metadata) or metadata))

    def test_metadata_of_another_version(self):
        def version(metadata):
            metadata.version = "2.0.0"

        def layout(metadata):
            for info in metadata.storage_data.values():
                info.ringest = (9, 0, 0)

        with support.client() as client:
            self.change(client, version)
            self.fails(client, CheckpointError, ".metadata", "version 2.0.0", "1.0.0", "update")
            self.change(client, layout)
            self.fails(client, CheckpointError, "layout 9", "update")

    def test_metadata_that_points_elsewhere(self):
        def escape(metadata):
            for info in metadata.storage_data.values():
                info.relative_path = "../secret"

        def transformed(metadata):
            for info in metadata.storage_data.values():
                info.transform_descriptors = ["zstd"]

        with support.client() as client:
            self.change(client, escape)
            self.fails(client, CheckpointError, "../secret")
            self.change(client, transformed)
            self.fails(client, CheckpointError, "zstd")
            self.change(client, lambda metadata: {"x": 1})
            self.fails(client, CheckpointError, CHECKPOINT + "/.metadata", "dict")
            client.put(CHECKPOINT + "/.metadata", b"nonsense")
            self.fails(client, CheckpointError, CHECKPOINT + "/.metadata", "damaged")

    def test_metadata_that_runs_code_does_not(self):
        class Evil:
            def __reduce__(self):
                return os.mkdir, (folder + "/was-run",)

        with support.client() as client, tempfile.TemporaryDirectory() as folder:
            client.put(CHECKPOINT + "/.metadata", pickle.dumps(Evil()))
            self.fails(client, CheckpointError, "posix.mkdir", "add_safe_globals")
            self.assertEqual(os.listdir(folder), [])

    def test_shapes_that_do_not_fit(self):
        with support.client() as client:
            save({"x": torch.randn(1000)}, client)
            self.fails(client, None, "x", state={"x": torch.zeros(999)})

    def test_what_was_saved_as_no_tensor_is_not_loaded_as_one(self):
        class Planner(DefaultLoadPlanner):
            def create_local_plan(self):
                plan = super().create_local_plan()
                items = [dataclasses.replace(item, type=LoadItemType.TENSOR) for item in plan.items]
                return dataclasses.replace(plan, items=items)

        with support.client() as client:
            save({"x": 7}, client)
            reader = StorageReader(CHECKPOINT, client=client)
            with self.assertRaises(CheckpointException) as caught:
                dcp.load({"x": torch.zeros(1)}, storage_reader=reader, planner=Planner(), no_dist=True)
            self.assertIsInstance(cause(caught), CheckpointError)
            self.assertIn("x is no tensor there", str(cause(caught)))


class Faults(unittest.TestCase):
    def test_what_passes_is_tried_again(self):
        saved = {"x": torch.randn(100_000), "step": 3}
        instructions = {
            "storage.objects.insert": ["return-503", "return-429", "return-reset-connection"],
            "storage.objects.get": ["return-503", "return-broken-stream", "return-429"],
            "storage.objects.list": ["return-503"],
        }
        with support.emulator() as (endpoint, ca), support.faults(endpoint, ca, instructions) as left:
            with ringest.Client(endpoint, ca) as client:
                save(saved, client)
                self.assertTrue(is_same(saved, load(blank(saved), client)))
                self.assertTrue(left()["completed"], left())

    def test_what_does_not_leaves_the_last_one(self):
        """Without rights or room to write: told with the object, and the checkpoint that is there stays."""
        with support.emulator() as (endpoint, ca), ringest.Client(endpoint, ca) as untroubled:
            save({"x": torch.ones(1000)}, untroubled)
            before = names(untroubled)
            kinds = {403: ringest.PermissionDeniedError, 412: ringest.PreconditionError, 429: ringest.Error}
            for status, kind in kinds.items():
                for count in range(2):  # of the data, and of the metadata
                    instructions = {"storage.objects.insert": [support.PASS] * count + [f"return-{status}"]}
                    with support.faults(endpoint, ca, instructions), ringest.Client(endpoint, ca, attempts=1) as client:
                        with self.subTest(f"{status} {count}"), self.assertRaises(CheckpointException) as caught:
                            save({"x": torch.zeros(1000)}, client)
                        self.assertIsInstance(cause(caught), kind)
                        self.assertIn(CHECKPOINT, str(cause(caught)))
                    self.assertEqual(float(load({"x": torch.zeros(1000)}, untroubled)["x"].sum()), 1000)
            self.assertLessEqual(set(before), set(names(untroubled)))


class Sweeps(unittest.TestCase):
    """Each request of a save meets each fault, and a kill: there is the old checkpoint or the new one, and the next save
    leaves just one."""

    KINDS = {"together": {}, "alone": {"use_collectives": False}}

    def save(self, client, value, kind):
        state = {"x": torch.full((1000,), float(value)), "step": value}
        dcp.save(state, storage_writer=StorageWriter(CHECKPOINT, client=client), **self.KINDS[kind])

    def value(self, client):
        state = load({"x": torch.zeros(1000), "step": 0}, client)
        self.assertEqual(set(state["x"].tolist()), {float(state["step"])})
        return state["step"]

    def test_faults(self):
        for kind in self.KINDS:
            for fault in support.FAULTS:
                with self.subTest(f"{kind} {fault}"), support.emulator() as place, ringest.Client(*place) as client:
                    self.save(client, 0, kind)
                    last = 0

                    def run(n):
                        with ringest.Client(*place) as made:
                            self.save(made, n, kind)

                    def check(n, outcome, request):
                        nonlocal last
                        self.assertIsNone(outcome)
                        last = self.value(client)
                        self.assertEqual(last, n)

                    # Data, metadata, and the removal of the old data.
                    self.assertGreaterEqual(support.strike_each(place, run, check, fault, writes=True), 3)
                    self.save(client, 99, kind)
                    self.assertEqual((self.value(client), len(names(client))), (99, 2))

    def test_kills(self):
        for kind in self.KINDS:
            with self.subTest(kind), support.emulator() as place, ringest.Client(*place) as client:
                self.save(client, 0, kind)
                last = 0

                def run(n):
                    with ringest.Client(*place) as made:
                        self.save(made, n, kind)

                def check(n, request):
                    nonlocal last
                    found = self.value(client)
                    self.assertIn(found, (last, n))
                    self.assertTrue(request is not None or found == n)
                    last = found

                self.assertGreaterEqual(support.kill_each(place, run, check), 4)
                self.save(client, 99, kind)
                self.assertEqual((self.value(client), len(names(client))), (99, 2))

    def test_a_commit_of_somebody_else_with_a_lost_answer(self):
        """What is there has another author: that is told, and nothing of it is removed."""
        with support.emulator() as place, ringest.Client(*place) as client:
            save({"x": torch.zeros(10)}, client)
            rules = []

            class Slow(StorageWriter):
                def finish(self, metadata, results):
                    save({"x": torch.ones(10)}, client)
                    rules.append(support.Rule(place, nth=1, effect="none", answer="dropped", writes=True))
                    super().finish(metadata, results)

            with self.assertRaises(CheckpointException) as caught:
                dcp.save({"x": torch.full((10,), 2.0)}, storage_writer=Slow(CHECKPOINT, client=client))
            self.assertIsInstance(cause(caught), ringest.PreconditionError)
            self.assertIn("another save was completed here", str(cause(caught)))
            rules[0].end()
            self.assertEqual(float(load({"x": torch.zeros(10)}, client)["x"][0]), 1)

    def test_a_commit_that_takes_effect_after_the_next_save_has_begun(self):
        """As the last request of a killed process may: one of the two is there, whole, and the other knows."""
        with support.emulator() as place, ringest.Client(*place) as client, ringest.Client(*place, attempts=1) as hasty:
            save({"x": torch.zeros(10)}, client)
            late = []

            class Killed(StorageWriter):
                def finish(self, metadata, results):
                    late.append(support.Rule(place, nth=1, effect="later", answer="dropped", writes=True))
                    super().finish(metadata, results)

            class Next(StorageWriter):
                def finish(self, metadata, results):
                    late[0].end()  # now it takes effect
                    super().finish(metadata, results)

            with self.assertRaises(CheckpointException):
                dcp.save({"x": torch.ones(10)}, storage_writer=Killed(CHECKPOINT, client=hasty))
            self.assertEqual(float(load({"x": torch.zeros(10)}, client)["x"][0]), 0)
            with self.assertRaises(CheckpointException) as caught:
                dcp.save({"x": torch.full((10,), 2.0)}, storage_writer=Next(CHECKPOINT, client=client))
            self.assertIsInstance(cause(caught), ringest.PreconditionError)
            self.assertIn("came late", str(cause(caught)))
            self.assertEqual(float(load({"x": torch.zeros(10)}, client)["x"][0]), 1)
            save({"x": torch.full((10,), 3.0)}, client)
            self.assertEqual((float(load({"x": torch.zeros(10)}, client)["x"][0]), len(names(client))), (3, 2))


class Ranks(unittest.TestCase):
    """Saved by some ranks and loaded by others."""

    def test_fully_sharded_on_four_ranks_and_then_three(self):
        with support.emulator() as (endpoint, ca):
            place = (endpoint, ca)
            ranks.run(4, save_sharded, place)
            reports = ranks.run(3, load_sharded, place)
            with ringest.Client(*place) as client:
                self.assertEqual(len(names(client)), 5)
                # And by one, without a process group.
                model, _ = sharded_model(shard=False)
                state = {"model": blank(model.state_dict())}
                load(state, client)
                self.assertTrue(is_same(state["model"], dict(model.state_dict())))
            for read, needed in reports:
                self.assertGreater(needed, 8 << 20)
                self.assertLessEqual(read, 1.05 * needed)

    def test_tensor_parallel_and_replicated(self):
        with support.emulator() as (endpoint, ca):
            ranks.run(4, save_placements, (endpoint, ca))
            with ringest.Client(endpoint, ca) as client:
                stored = sum(size for _, size, _ in client.list(CHECKPOINT + "/__"))
            whole = sum(each.nbytes for each in placements_state().values())
            # What all have is stored once.
            self.assertLess(stored, whole + 40_000)
            ranks.run(3, load_placements, (endpoint, ca))

    def test_columns_that_are_far_apart_are_read_alone(self):
        with support.emulator() as (endpoint, ca):
            ranks.run(4, save_columns, (endpoint, ca))
            for read, needed in ranks.run(3, load_columns, (endpoint, ca)):
                # What may be read along of each of four objects, and the heads of a request for each row.
                self.assertLessEqual(read, 1.05 * needed + 4 * (256 << 10) + 32 * 2000)

    def test_a_rank_that_fails_fails_all_and_the_last_one_stays(self):
        with support.emulator() as (endpoint, ca):
            ranks.run(2, save_and_fail, (endpoint, ca))
            with ringest.Client(endpoint, ca) as client:
                self.assertEqual(float(load({"0": torch.zeros(1000)}, client)["0"][0]), 1)
                # The next save removes what the failed one has left.
                save({"0": torch.ones(1000)}, client)
                self.assertEqual(len(names(client)), 2)

    def test_plans_that_are_cached(self):
        with support.emulator() as (endpoint, ca):
            ranks.run(2, save_with_cached_plans, (endpoint, ca))


def sharded_model(shard=True):
    torch.manual_seed(5)
    # Rows that no number of ranks divides.
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1031) for _ in range(6)))
    if shard:
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return model, optimizer


def save_sharded(rank, place):
    model, optimizer = sharded_model()
    model_state, optimizer_state = get_state_dict(model, optimizer)
    with ringest.Client(*place) as client:
        save({"model": model_state, "optimizer": optimizer_state}, client)


def load_sharded(rank, place):
    """Bytes received, and bytes of the shards."""
    model, optimizer = sharded_model()
    good, _ = get_state_dict(model, optimizer)
    good = {name: each.to_local().clone() for name, each in good.items()}
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    model_state, _ = get_state_dict(model, optimizer)
    with ringest.Client(*place) as client:
        load({"model": model_state}, client)
        read = client.stats()["recv_bytes"]
    for name, each in model_state.items():
        assert torch.equal(each.to_local(), good[name]), name
    return read, sum(each.nbytes for each in good.values())


def placements_state():
    torch.manual_seed(6)
    return {name: torch.randn(130, 96) for name in ("rows", "columns", "both", "replicated", "plain")}


def placed(rank, world_size):
    flat = init_device_mesh("cpu", (world_size,))
    whole = placements_state()
    state = {
        "rows": distribute_tensor(whole["rows"], flat, [Shard(0)]),
        "columns": distribute_tensor(whole["columns"], flat, [Shard(1)]),
        "replicated": distribute_tensor(whole["replicated"], flat, [Replicate()]),
        "plain": whole["plain"].clone(),
    }
    if world_size % 2 == 0:
        square = init_device_mesh("cpu", (2, world_size // 2))
        state["both"] = distribute_tensor(whole["both"], square, [Shard(0), Shard(1)])
    else:
        state["both"] = distribute_tensor(whole["both"], flat, [Shard(1)])
    return state


def save_placements(rank, place):
    with ringest.Client(*place) as client:
        save(placed(rank, 4), client)


def load_placements(rank, place):
    state = placed(rank, 3)
    for each in state.values():
        (each.to_local() if hasattr(each, "to_local") else each).zero_()
    with ringest.Client(*place) as client:
        load(state, client)
    for name, good in placed(rank, 3).items():
        loaded = state[name]
        if hasattr(good, "to_local"):
            good, loaded = good.to_local(), loaded.to_local()
        assert torch.equal(good, loaded), name


def columns():
    torch.manual_seed(7)
    flat = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    return {"columns": distribute_tensor(torch.randn(32, 100_000), flat, [Shard(1)])}


def save_columns(rank, place):
    with ringest.Client(*place) as client:
        save(columns(), client)


def load_columns(rank, place):
    """Bytes received, and bytes of the shard."""
    state = columns()
    local = state["columns"].to_local()
    good = local.clone()
    local.zero_()
    with ringest.Client(*place) as client:
        load(state, client)
        assert torch.equal(local, good)
        return client.stats()["recv_bytes"], local.nbytes


def save_and_fail(rank, place):
    with ringest.Client(*place) as client:
        save({str(rank): torch.ones(1000)}, client)

        class Failing(StorageWriter):
            def write_data(self, plan, planner):
                done = super().write_data(plan, planner)
                if rank == 1:
                    raise OSError("no room")
                return done

        try:
            dcp.save({str(rank): torch.zeros(1000)}, storage_writer=Failing(CHECKPOINT, client=client))
        except CheckpointException as error:
            assert "no room" in str(error), error
        else:
            raise AssertionError("the save succeeded")


def save_with_cached_plans(rank, place):
    with ringest.Client(*place) as client:
        # What the ranks have, which stays or changes from save to save: for all of them, and for one.
        sizes = [(100,) * 3, (100,) * 3, (100,) * 4, (100,) * 2, (50,) * 2, (50, 60) if rank else (50,) * 2, (7,)]
        for value, each in enumerate([*sizes, sizes[0]], 1):
            state = {f"{rank}-{i}": torch.full((size,), float(value)) for i, size in enumerate(each)}
            state["both"] = torch.full((3 + value // 7, 5), float(value))
            if value == 4:
                state = {name: tensor.double() for name, tensor in state.items()}
            state = {"model": state}
            planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
            dcp.save(state, storage_writer=StorageWriter(CHECKPOINT, client=client), planner=planner)
            torch.distributed.barrier()
            loaded = load(blank(state), client)
            assert is_same(loaded, state), value
            torch.distributed.barrier()


class Kills(unittest.TestCase):
    """A save that is killed at any moment, with faults on the side, leaves the last complete checkpoint."""

    def test_the_last_complete_one_is_there(self):
        chance = random.Random(support.SEED)
        bad = ("return-503", "return-reset-connection", "return-429")
        instructions = {
            "storage.objects.insert": [each for one in bad for each in (one, support.PASS)] * 35,
            "storage.objects.delete": ["return-503", support.PASS] * 20,
        }
        with support.emulator() as (endpoint, ca), ringest.Client(endpoint, ca) as client:
            save(kill_state(0), client)
            last = seen = 0
            for kill in range(KILLS):
                with support.faults(endpoint, ca, instructions):
                    # Every other one in a save behind one that was done.
                    last = self.kill(endpoint, ca, last, kill % 2, chance.randint(1, 12))
                loaded = load(blank(kill_state(0)), client)
                step = loaded["step"]
                # Complete, of one save, and none that was told to be there is lost.
                self.assertTrue(is_same(loaded, kill_state(step)), f"seed {support.SEED}, kill {kill}")
                self.assertGreaterEqual(step, last, f"seed {support.SEED}, kill {kill}")
                seen = max(seen, step)
                last = step
            self.assertGreater(seen, 0)
            # At least one that certainly leaves a part.
            support.killed_while_writing(endpoint, ca, [f"{CHECKPOINT}/__0_0.0123456789abcdef.distcp"])
            self.check_that_nothing_stays(client)
            self.assertEqual(load(blank(kill_state(0)), client)["step"], last)
            save(kill_state(last + 1), client)
            self.assertEqual(len(names(client)), 2)
            self.assertEqual(client.list_uploads("gs://new/"), [])

    def check_that_nothing_stays(self, client):
        """After the retention helper: of saves that were killed, neither an object nor a part."""
        self.assertNotEqual(client.list_uploads("gs://new/"), [])
        end = time.monotonic() + ranks.PATIENCE_S
        left = None
        # What a killed process sent last may be taken by the server a little later.
        while left != ([], 2) and time.monotonic() < end:
            retention.retain("gs://new/run/", 1, client=client, unfinished_age=-3600.0)
            left = (client.list_uploads("gs://new/"), len(client.list("gs://new/")))
        self.assertEqual(left, ([], 2))

    def kill(self, endpoint, ca, last, saves, nth):
        """Saves steps after `last` in a child that is killed at its nth write after so many saves; the last
        that it told of."""
        heard, say = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                with ringest.Client(endpoint, ca) as client:
                    step = last
                    os.write(say, b"\n")
                    while True:
                        step += 1
                        save(kill_state(step), client)
                        os.write(say, b"%d\n" % step)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(say)
        with open(heard, "rb") as told:
            lines = [told.readline() for _ in range(1 + saves)]
            with support.Rule((endpoint, ca), nth=nth, writes=True) as struck:
                struck.wait()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            lines = b"".join([*lines, told.read()]).split()
        return int(lines[-1]) if lines else last


def kill_state(step):
    generator = torch.Generator().manual_seed(step)
    return {
        "large": torch.randn(3 << 20, generator=generator),
        "step": step,
        **{f"small.{i}": torch.full((1000,), float(step)) for i in range(50)},
    }
