"""Tensors of every kind through ringest.dcp, saved and loaded into: what comes out is what torch's own reader makes of
it, or an error that names the tensor."""

import io
import math
import pickle
import tempfile
import unittest
import unittest.mock
import warnings

import torch
import torch.distributed.checkpoint as dcp

import ringest
import support
from ringest import _dcp_ranges
from ringest.dcp import CheckpointError, SavePlanner, StorageReader, StorageWriter

warnings.filterwarnings("ignore", category=UserWarning, module="torch")
URI = "gs://new/run"
SHAPE = (6, 4)


class Kind(torch.Tensor):
    """Of a program."""


class Thing:
    """It has tensors, and is saved as a whole."""

    def __init__(self, tensor):
        self.tensor = tensor


def quantized(values, scale=0.1):
    return torch.quantize_per_tensor(values, scale, 5, torch.qint8)


def by_channel(values, scale=0.1):
    scales = torch.linspace(scale, 1, len(values))
    return torch.quantize_per_channel(values, scales, torch.zeros(len(values), dtype=torch.long), 0, torch.qint8)


def types():
    """Those that torch can save."""
    for dtype in sorted({each for each in vars(torch).values() if isinstance(each, torch.dtype)}, key=str):
        if dtype.itemsize and not str(dtype).startswith(("torch.q", "torch.bits")):
            tensor = torch.randint(0, 2, (24 * dtype.itemsize,), dtype=torch.uint8).view(dtype).view(SHAPE)
            try:
                torch.save(tensor, io.BytesIO())
            except KeyError:
                continue
            yield dtype, tensor


def bits(tensor):
    """Everything of a tensor that is to be equal."""
    tensor = tensor.detach()
    if tensor.is_quantized:
        return tensor.int_repr().tolist(), tensor.dequantize().tolist()
    tensor = tensor.resolve_conj().resolve_neg().contiguous()
    return tensor.dtype, tensor.shape, tensor.flatten().view(torch.uint8).tolist() if tensor.numel() else []


def cause(error):
    return error.failures[0][0] if isinstance(error, dcp.CheckpointException) else error


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(support.SEED)
        self.place = self.enterContext(support.emulator())
        self.client = self.enterContext(ringest.Client(*self.place))

    def save(self, value, **options):
        dcp.save({"x": value}, storage_writer=StorageWriter(URI, client=self.client), **options)

    def load(self, into, **options):
        state = {"x": into}
        dcp.load(state, storage_reader=StorageReader(URI, client=self.client), **options)
        return state["x"]

    def fails(self, into, pattern, kind=CheckpointError, **options):
        with self.assertRaises(dcp.CheckpointException) as caught:
            self.load(into, **options)
        self.assertIsInstance(cause(caught.exception), kind)
        self.assertRegex(str(cause(caught.exception)), pattern)

    def data_uri(self):
        ((name, _, _),) = self.client.list(URI + "/__")
        return f"gs://new/{name}"


class Targets(Case):
    def test_every_type_and_view(self):
        views = {
            "plain": lambda zero: zero(SHAPE),
            "transposed": lambda zero: zero(SHAPE[::-1]).t(),
            "strided": lambda zero: zero((12, 8))[::2, ::2],
            "a part": lambda zero: zero((8, 4))[1:7],
            "interleaved": lambda zero: zero((48,)).as_strided(SHAPE, (3, 11)),
            "conjugated": lambda zero: zero(SHAPE).conj(),
            "negated": lambda zero: torch._neg_view(zero(SHAPE)),
            "leaf": lambda zero: zero(SHAPE).requires_grad_() if zero(()).is_floating_point() else zero(SHAPE),
        }
        for dtype, value in types():
            self.save(value)

            def zero(shape, dtype=dtype):
                return (
                    torch.zeros(torch.Size(shape).numel() * dtype.itemsize, dtype=torch.uint8).view(dtype).view(shape)
                )

            for name, view in views.items():
                if (name == "conjugated" and not dtype.is_complex) or (name == "negated" and dtype is torch.bool):
                    continue
                with self.subTest(f"{name} {dtype}"):
                    try:
                        into = view(zero)
                        view(zero).detach().copy_(value)
                        bits(into)
                    except (RuntimeError, NotImplementedError):
                        continue  # torch itself cannot
                    self.assertEqual(bits(self.load(into)), bits(value))

    def test_saved_views(self):
        base = torch.randn(12, 8, dtype=torch.complex64)
        for name, value in {
            "conjugated": base.conj(),
            "imaginary parts of conjugated": base.conj().imag,
            "transposed": base.t(),
            "expanded": base[:1].expand(5, 8),
            "overlapping": torch.randn(9).as_strided(SHAPE, (1, 1)),
            "empty": base[:0],
            "scalar": base[0, 0],
            "quantized": quantized(torch.randn(SHAPE)),
            "quantized by channel": by_channel(torch.randn(SHAPE)),
        }.items():
            with self.subTest(name):
                self.save(value)
                into = torch.zeros(value.shape, dtype=torch.float32 if value.is_quantized else value.dtype)
                if value.is_quantized:
                    into = (quantized if name == "quantized" else by_channel)(into)
                self.assertEqual(bits(self.load(into)), bits(value))

    def test_other_types_are_converted(self):
        value = torch.randn(SHAPE)
        self.save(value)
        for dtype in torch.float64, torch.bfloat16, torch.complex64:
            self.assertEqual(bits(self.load(torch.zeros(SHAPE, dtype=dtype))), bits(value.to(dtype)))

    def test_what_nothing_can_be_loaded_into(self):
        self.save(torch.randn(SHAPE))
        for into, pattern in (
            (torch.zeros(6, 1).expand(SHAPE), "overlap"),
            (torch.zeros(9).as_strided(SHAPE, (1, 1)), "overlap"),
            (torch.zeros(30).as_strided(SHAPE, (3, 2)), "overlap"),
            (torch.zeros(SHAPE).to_sparse(), "sparse"),
        ):
            with self.subTest(pattern):
                self.fails(into, f"{URI}: x is to be loaded into .*{pattern}")

        class Planner(dcp.DefaultLoadPlanner):
            def resolve_tensor(self, item):
                return torch.empty(SHAPE, device="meta")

        self.fails(torch.zeros(SHAPE), "x is to be loaded into .*meta device", planner=Planner())

    def test_tensors_of_classes_of_the_program(self):
        """They are pickled, as torch does it. So whoever loads them has to trust their class."""

        class Inner(torch.Tensor):
            pass

        values = torch.randn(SHAPE)
        for planner in None, SavePlanner():
            with self.assertRaises(dcp.CheckpointException) as caught:
                self.save(values.as_subclass(Inner), planner=planner)
            self.assertIsInstance(cause(caught.exception), TypeError)
            self.assertRegex(
                str(cause(caught.exception)), "^x is a .*<locals>.Inner that cannot be pickled .*in a module"
            )
            self.save(values.as_subclass(Kind), planner=planner)
            self.fails(torch.zeros(SHAPE), "(?s)x cannot be read .*safe_globals")
            with torch.serialization.safe_globals([Kind]):
                for into in torch.zeros(SHAPE), torch.zeros(SHAPE).as_subclass(Kind):
                    self.assertTrue(torch.equal(self.load(into), values))

    def test_tensors_whose_memory_was_freed(self):
        self.save(torch.randn(SHAPE))
        for view in (
            lambda flat: flat[: math.prod(SHAPE)].view(SHAPE),
            lambda flat: flat[7 : 7 + math.prod(SHAPE)].view(SHAPE),
            lambda flat: flat[: math.prod(SHAPE)].view(SHAPE[::-1]).t(),
        ):
            flat = torch.randn(100)
            freed = view(flat)
            # Of all but one element there is memory.
            cut = view(torch.randn(100))
            size = (cut.storage_offset() + math.prod(SHAPE) - 1) * cut.itemsize
            cut.untyped_storage().resize_(size)
            flat.untyped_storage().resize_(0)
            for tensor, what, bytes_left in (freed, "no content", 0), (cut, "not all of its content", size):
                self.fails(tensor, f"{URI}: x is to be loaded into a tensor whose memory was freed")
                for planner in None, SavePlanner():
                    with self.assertRaises(dcp.CheckpointException) as caught:
                        self.save(tensor, planner=planner)
                    told = f"x has {what} any more: its storage was resized to {bytes_left} bytes"
                    self.assertRegex(str(cause(caught.exception)), told)
            for is_kept in False, True:
                writer = StorageWriter(URI, client=self.client, cache_staged_state_dict=is_kept)
                for each in freed, torch.nn.Parameter(freed), freed.as_subclass(Kind):
                    state = {"model": {"whole": torch.ones(2), "of": [torch.ones(2), each]}}
                    with self.assertRaisesRegex(ValueError, "^model.of.1 has no content any more"):
                        dcp.async_save(state, storage_writer=writer)
                dcp.async_save({"x": torch.ones(SHAPE)}, storage_writer=writer).result()
        with self.assertRaises(dcp.CheckpointException) as caught:
            self.save(freed.as_subclass(Kind))
        self.assertRegex(str(cause(caught.exception)), "x has no content any more")

    def test_an_object_that_is_cut(self):
        first, second = torch.ones(2000), torch.ones(3000)
        self.save({"first": first, "second": second})
        [name] = [name for name, *_ in self.client.list(URI + "/") if name.endswith(".distcp")]
        whole = bytes(self.client.get(f"gs://new/{name}"))
        for size in len(whole) - 4000, 9000, 10, 0:  # within the second, between both, within the first, nothing
            self.client.put(f"gs://new/{name}", whole[:size])
            with self.subTest(size):
                for value in second, {"first": first, "second": second}:
                    key = "x" if value is not second else "x.second"
                    with self.assertRaises(dcp.CheckpointException) as caught:
                        dcp.load({key: value}, storage_reader=StorageReader(URI, client=self.client))
                    self.assertIsInstance(cause(caught.exception), CheckpointError)
                    self.assertRegex(str(cause(caught.exception)), f"gs://new/{name}.* it is truncated; load another")

    def test_tensors_whose_memory_was_freed_inside_of_objects(self):
        """The planner pickles these, without a word of what it lost."""
        freed = torch.ones(3)
        freed.untyped_storage().resize_(0)
        module = torch.nn.Linear(2, 3)
        module.bias.untyped_storage().resize_(0)
        optimizer = torch.optim.Adagrad([torch.nn.Parameter(torch.ones(2))])
        next(iter(optimizer.state.values()))["sum"].untyped_storage().resize_(0)
        large = torch.ones(100_000)
        for value, is_flat, name in (
            (Thing(freed), True, r"a tensor of the shape \(3,\) in x"),
            ([Thing(freed), large], True, r"a tensor of the shape \(3,\) in x.0"),
            (Thing(torch.nn.Parameter(freed)), True, r"a tensor of the shape \(3,\) in x"),
            (Thing(module), True, r"a tensor of the shape \(3,\) in x"),
            (optimizer, True, "x.state.0.sum"),
            ({"large": large, "of": [large, {"it": freed}]}, False, "x.of.1.it"),
            ({"module": module}, False, "x.module.bias"),
        ):
            plain = dcp.DefaultSavePlanner(flatten_state_dict=is_flat)
            for planner in (plain, SavePlanner(flatten_state_dict=is_flat)):
                with self.subTest(name, planner=type(planner)), self.assertRaises(dcp.CheckpointException) as caught:
                    self.save(value, planner=planner)
                self.assertRegex(str(cause(caught.exception)), f"^{name} has no content any more")
            with self.subTest(name), self.assertRaisesRegex(ValueError, f"^{name} has no content any more"):
                dcp.async_save({"x": value}, storage_writer=StorageWriter(URI, client=self.client))
        self.assertEqual(list(self.client.list(URI + "/")), [])
        # Some have no elements by right, and some files of pickles are none of torch's.
        for planner in dcp.DefaultSavePlanner(), SavePlanner(), dcp.DefaultSavePlanner(flatten_state_dict=False):
            self.save({"empty": torch.zeros(0, 3), "thing": Thing(torch.zeros(0)), "large": large}, planner=planner)
        with unittest.mock.patch.object(SavePlanner, "transform_object", lambda *_: io.BytesIO(b"archive/data/0")):
            self.save(Thing(freed), planner=SavePlanner())

    def test_quantized_by_other_parameters(self):
        for make in quantized, by_channel:
            self.save(make(torch.randn(SHAPE)))
            self.fails(make(torch.zeros(SHAPE), 0.7), "x is quantized by .*0.1.*0.7.*the saved parameters")
            self.fails(torch.zeros(SHAPE), "x, of torch.qint8, cannot be copied into a tensor of torch.float32")

    def test_layouts_that_cannot_be_loaded_are_not_saved(self):
        dense = torch.randn(SHAPE).relu()
        for value in dense.to_sparse(), dense.to_sparse_csr():
            with self.assertRaises(dcp.CheckpointException) as caught:
                self.save(value)
            self.assertRegex(str(cause(caught.exception)), "x is a tensor of the layout torch.sparse_.*save it dense")
        self.client.put("gs://new/other", b"")
        self.assertEqual(len(self.client.list(URI)), 0)

    def test_whether_a_tensor_overlaps_itself(self):
        base = torch.zeros(100)
        for shape, stride, wanted in (
            ((3, 4), (4, 1), False), ((3, 4), (1, 3), False), ((3, 4), (3, 1), True), ((3, 4), (0, 1), True),
            ((1, 4), (0, 1), False), ((0, 4), (0, 0), False), ((2, 3), (3, 2), False), ((4, 4), (3, 2), True),
            ((2, 2, 2), (1, 2, 4), False), ((2, 2, 2), (1, 2, 3), True), ((), (), False),
        ):  # fmt: skip
            with self.subTest(f"{shape} {stride}"):
                self.assertEqual(_dcp_ranges.overlaps_itself(base.as_strided(shape, stride)), wanted)


class Shared(Case):
    """Targets that share memory."""

    def both(self, saved, into):
        state = dict(zip("ab", saved))
        dcp.save(state, storage_writer=StorageWriter(URI, client=self.client))
        state = dict(zip("ab", into))
        dcp.load(state, storage_reader=StorageReader(URI, client=self.client))

    def test_parts_of_one_storage(self):
        base = torch.zeros(20)
        self.both([torch.full((10,), 1.0), torch.full((10,), 2.0)], base.view(2, 10))
        self.assertEqual(base.tolist(), [1.0] * 10 + [2.0] * 10)
        self.assertEqual(_dcp_ranges.sharing(list(base.view(2, 10))), set())

    def test_columns_of_one_storage(self):
        base = torch.zeros(10, 2)
        self.both([torch.full((10,), 1.0), torch.full((10,), 2.0)], base.t())
        self.assertEqual(base.t().tolist(), [[1.0] * 10, [2.0] * 10])

    def test_tied_tensors(self):
        weight = torch.randn(1000)
        into = torch.zeros(1000)
        self.both([weight, weight], [into, into])
        self.assertEqual(bits(into), bits(weight))

    def test_tied_tensors_that_were_not(self):
        into = torch.zeros(1000)
        with self.assertRaises(dcp.CheckpointException) as caught:
            self.both([torch.ones(1000), torch.full((1000,), 2.0)], [into, into])
        self.assertRegex(str(cause(caught.exception)), "[ab] is to be loaded into memory that another tensor shares")

    def test_who_shares(self):
        base = torch.zeros(100)
        tensors = [base[:10], base[10:20], base[15:16], torch.zeros(3), base[90:], base[40:].view(6, 10)[:, 0]]
        self.assertEqual(_dcp_ranges.sharing(tensors), {1, 2, 4, 5})


class Planned(Case):
    """By planners of other kinds than torch's own."""

    def test_elements_of_another_type_than_the_metadata_says(self):
        class Planner(dcp.DefaultSavePlanner):
            def resolve_data(self, item):
                return super().resolve_data(item).to(torch.float16)

        value = torch.arange(24).view(SHAPE).to(torch.bfloat16)
        self.save(value, planner=Planner())
        self.assertEqual(bits(self.load(torch.zeros(SHAPE, dtype=torch.bfloat16))), bits(value))

    def test_bytes_that_are_none(self):
        class Saver(dcp.DefaultSavePlanner):
            def resolve_data(self, item):
                return io.BytesIO() if item.index.fqn == "a" else super().resolve_data(item)

        class Loader(dcp.DefaultLoadPlanner):
            def load_bytes(self, item, value):
                if item.dest_index.fqn == "a":
                    self.state_dict["a"] = self.original_state_dict["a"] = value.read()
                else:
                    super().load_bytes(item, value)

        state = {"a": 1, "b": 2, "c": 3}
        dcp.save(state, storage_writer=StorageWriter(URI, client=self.client), planner=Saver())
        state = {"a": 0, "b": 0, "c": 0}
        dcp.load(state, storage_reader=StorageReader(URI, client=self.client), planner=Loader())
        self.assertEqual(state, {"a": b"", "b": 2, "c": 3})


class Checked(Case):
    def damage(self, uri, at):
        data = bytearray(self.client.get(uri))
        data[at] ^= 4
        self.client.put(uri, data)

    def test_elements_whose_place_is_not_known(self):
        """They are read as torch wrote them, and compared all the same."""
        value = torch.randn(1000)
        self.save(value)

        def forget(metadata):
            for info in metadata.storage_data.values():
                info.ringest = (1, 64, info.ringest[2])

        metadata = pickle.loads(self.client.get(URI + "/.metadata"))
        forget(metadata)
        self.client.put(URI + "/.metadata", pickle.dumps(metadata))
        self.assertEqual(bits(self.load(torch.zeros(1000))), bits(value))
        self.damage(self.data_uri(), 1000)
        self.fails(torch.zeros(1000), "__0_0.*x.*CRC32C", ringest.ChecksumError)

    def test_what_torch_wrote(self):
        """It has no checksums of items; the object has one, where all of it is read and a byte comes wrong."""
        state = {"a": torch.randn(1000), "b": torch.arange(10), "c": 3}
        with tempfile.TemporaryDirectory() as folder:
            dcp.save(state, storage_writer=dcp.FileSystemWriter(folder))
            for name in ".metadata", "__0_0.distcp":
                with open(f"{folder}/{name}", "rb") as file:
                    self.client.put(f"{URI}/{name}", file.read())

        class Damaged(ringest.Client):
            def _get_into_addresses(self, *args, **keywords):
                generation, checksums = super()._get_into_addresses(*args, **keywords)
                return generation, [checksums[0] ^ 1, *checksums[1:]]

        # The client's own comparison is of what it reads by one call.
        self.enterContext(unittest.mock.patch.object(_dcp_ranges, "RANGES_AT_ONCE", 2))
        damaged = self.enterContext(Damaged(*self.place))
        for client, is_good in (self.client, True), (damaged, False):
            loaded = {"a": torch.zeros(1000), "b": torch.zeros(10, dtype=torch.long), "c": 0}
            reader = StorageReader(URI, client=client)
            if is_good:
                dcp.load(loaded, storage_reader=reader)
                self.assertEqual((bits(loaded["a"]), loaded["c"]), (bits(state["a"]), 3))
                continue
            with self.assertRaises(dcp.CheckpointException) as caught:
                dcp.load(loaded, storage_reader=reader)
            self.assertIsInstance(cause(caught.exception), ringest.ChecksumError)
            self.assertIn(f"{URI}/__0_0.distcp", str(cause(caught.exception)))

    def test_a_checksum_that_was_not_compared(self):
        check = _dcp_ranges.Check(URI, "x", 0, 10, 5)
        check.add(0, 4)
        with self.assertRaisesRegex(ringest.ChecksumError, f"{URI}: 6 of 10 bytes of x"):
            check.end()


if __name__ == "__main__":
    unittest.main()
