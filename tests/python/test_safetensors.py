"""ringest.safetensors, against the safetensors package: each reads what the other has written."""

import contextlib
import itertools
import json
import os
import random
import tempfile
import unittest
import unittest.mock

import safetensors
import safetensors.torch
import torch

import ringest
import support
from ringest import safetensors as ours

URI = "gs://new/model.safetensors"
# Of each kind; more where the environment names a seed, as script/soak does.
INDICES = 12 if os.environ.get("RINGEST_TEST_SEED") else 4
TYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
]


def noise(shape, kind=torch.float32, seed=1):
    """Of random bits, hence with NaN where the type has them."""
    made = torch.empty(shape, dtype=kind)
    if made.nbytes == 0:
        return made
    data = torch.frombuffer(bytearray(random.Random(seed).randbytes(made.nbytes)), dtype=torch.uint8)
    if kind is torch.bool:
        data &= 1
    return data.view(kind).reshape(shape)


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def known_there(kind):
    """safetensors before 0.8 has not the types of AMD, float8_e4m3fnuz and float8_e5m2fnuz."""
    try:
        safetensors.torch.save({"a": torch.empty(1, dtype=kind)})
    except KeyError:
        return False
    return True


def everything():
    state = {str(kind): noise((3, 5), kind, i) for i, kind in enumerate(TYPES) if known_there(kind)}
    state["packed"] = noise((3, 4), torch.uint8).view(torch.float4_e2m1fn_x2)
    state["none"] = torch.empty(0, 7)
    state["one"] = noise((), torch.bfloat16)
    state["snow \N{SNOWMAN} \"'\\"] = noise(11)
    return state


def header(**described):
    text = json.dumps(described).encode()
    return len(text).to_bytes(8, "little") + text


def entry(begin, end, shape=None, kind="U8"):
    return {"dtype": kind, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


class Case(unittest.TestCase):
    def assertSame(self, found, wanted):
        self.assertEqual(sorted(found), sorted(wanted))
        for name, tensor in wanted.items():
            self.assertEqual((found[name].dtype, found[name].shape), (tensor.dtype, tensor.shape), name)
            self.assertTrue(torch.equal(bits(found[name]), bits(tensor)), name)

    @contextlib.contextmanager
    def downloaded(self, client):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file")
            data = bytearray(client.stat(URI)["size"])
            client.get_into(URI, [(0, data)])
            with open(path, "wb") as file:
                file.write(data)
            yield path


class Whole(Case):
    def test_what_is_saved_here_loads_there(self):
        with support.client() as client:
            state = everything()
            generation = ours.save_file(state, URI, {"step": "7"}, client=client)
            self.assertEqual(client.stat(URI)["generation"], generation)
            with self.downloaded(client) as path:
                found = safetensors.torch.load_file(path)
                self.assertSame(found, state)
                with safetensors.safe_open(path, "pt") as file:
                    self.assertEqual(file.metadata(), {"step": "7"})
            self.assertSame(ours.load_file(URI, client=client), state)

    def test_what_is_saved_there_loads_here(self):
        with support.client() as client:
            state = everything()
            client.put(URI, safetensors.torch.save(state, {"step": "7"}))
            self.assertSame(ours.load_file(URI, client=client), state)
            with ours.safe_open(URI, client=client) as file:
                self.assertEqual(file.metadata(), {"step": "7"})
                self.assertEqual(file.keys(), sorted(state))
                names = file.keys()
                self.assertSame({name: file.get_tensor(name) for name in names}, state)
                self.assertSame(file.get_tensors(), state)

    def test_each_type_is_loaded_as_it_was_saved(self):
        """Whatever the safetensors knows that is installed."""
        with support.client() as client:
            state = {str(kind): noise((3, 5), kind, i) for i, kind in enumerate(TYPES)}
            ours.save_file(state, URI, client=client)
            self.assertSame(ours.load_file(URI, client=client), state)

    def test_files_are_the_same_to_the_byte_where_the_order_is(self):
        with support.client() as client:
            state = {"b": noise((2, 3)), "a": noise(5), "c": noise(3, torch.int8)}
            ours.save_file(state, URI, {"x": "y"}, client=client)
            self.assertEqual(bytes(client.get(URI)), safetensors.torch.save(state, {"x": "y"}))

    def test_large_files_and_long_headers(self):
        with support.client("--threads", "1", memory="64MiB") as client:
            state = {f"layer.{i:05d}.{'long' * 20}": noise(300 + i % 7, torch.int16, i) for i in range(3000)}
            state["large"] = torch.arange(9 << 20).reshape(9, -1)
            ours.save_file(state, URI, client=client)
            with ours.safe_open(URI, client=client) as file:
                self.assertGreater(file._file.header.size, ours.HEADER_SIZE_GUESS)
                self.assertSame(file.get_tensors(), state)
            self.assertSame(ours.load_file(URI, client=client), state)
            with self.downloaded(client) as path:
                self.assertSame(safetensors.torch.load_file(path), state)

    def test_nothing_at_all(self):
        with support.client() as client:
            ours.save_file({}, URI, client=client)
            self.assertEqual(ours.load_file(URI, client=client), {})
            with self.downloaded(client) as path:
                self.assertEqual(safetensors.torch.load_file(path), {})
                client.put(URI, safetensors.torch.save({}))
            with ours.safe_open(URI, client=client) as file:
                self.assertEqual((file.keys(), file.metadata()), ([], None))

    def test_tensors_that_are_not_as_they_lie(self):
        with support.client() as client:
            base = noise((40, 50))
            complex_one = noise(6, torch.complex64)
            state = {
                "turned": base.t(),
                "stepped": base[::2, 1::3],
                "shared": base[3:5],
                "wide": base[0, :1].expand(4, 3),
                "conjugated": complex_one.conj(),
                "parameter": torch.nn.Parameter(noise(4)),
            }
            ours.save_file(state, URI, client=client)
            wanted = {name: tensor.detach().resolve_conj() for name, tensor in state.items()}
            self.assertSame(ours.load_file(URI, client=client), wanted)

    def test_another_device_gets_it_in_steps(self):
        with support.client() as client, unittest.mock.patch.object(ours, "STAGED_SIZE", 1000):
            state = {str(i): noise(300 * 1000) for i in range(3)}
            ours.save_file(state, URI, client=client)
            found = ours.load_file(URI, "meta", client=client)
            self.assertEqual(
                {name: (tensor.device.type, tensor.shape) for name, tensor in found.items()},
                {name: ("meta", tensor.shape) for name, tensor in state.items()},
            )

    def test_tensors_without_names(self):
        with self.assertRaisesRegex(TypeError, "a dict, not list"):
            ours.save_file([torch.ones(3)], URI)

    def test_what_the_format_has_not(self):
        with support.client() as client:
            for wrong, text in (
                ({"x": noise((2, 2)).to_sparse()}, "x is a Tensor of layout torch.sparse_coo"),
                ({"x": torch.zeros(2, dtype=torch.complex128)}, "x is of torch.complex128"),
                ({"x": [1]}, "'x' is of type list"),
                ({"x": torch.empty(3, device="meta")}, "x is on the meta device"),
                ({"x": torch.quantize_per_tensor(torch.zeros(3), 0.1, 5, torch.qint8)}, "x is of torch.qint8"),
            ):
                with self.assertRaisesRegex(TypeError, text):
                    ours.save_file(wrong, URI, client=client)
            with self.assertRaisesRegex(ValueError, "__metadata__"):
                ours.save_file({"__metadata__": torch.zeros(1)}, URI, client=client)
            with self.assertRaisesRegex(TypeError, "metadata"):
                ours.save_file({}, URI, {"step": 1}, client=client)
            freed = torch.ones(9)[3:]
            freed.untyped_storage().resize_(0)
            with self.assertRaisesRegex(ValueError, "x has no content any more"):
                ours.save_file({"x": freed}, URI, client=client)
            with self.assertRaises(ringest.NotFoundError):
                client.stat(URI)

    def test_conditions_and_replaced_files(self):
        with support.client() as client:
            first = ours.save_file({"x": noise(200000)}, URI, client=client, if_generation_match=0)
            with self.assertRaises(ringest.PreconditionError):
                ours.save_file({"x": noise(4)}, URI, client=client, if_generation_match=0)
            with ours.safe_open(URI, client=client) as file:
                ours.save_file({"x": noise(200000, seed=2)}, URI, client=client, if_generation_match=first)
                with self.assertRaisesRegex(ringest.NotFoundError, URI):
                    file.get_tensor("x")
            with self.assertRaisesRegex(ValueError, "closed"):
                file.keys()
            with self.assertRaises(ringest.NotFoundError):
                ours.load_file("gs://new/none", client=client)


class Slices(Case):
    SHAPES = [(), (7,), (0, 3), (6, 5), (3, 4, 5), (2, 1, 3, 4)]

    def indices(self, shape, chance):
        """Some, of every kind."""
        for _ in range(INDICES):
            index = []
            left, right = sorted(chance.choices(range(len(shape) + 1), k=2))
            for length in (*shape[:left], *shape[right:]):
                begin, end = sorted(chance.choices(range(-length - 1, length + 2), k=2))
                kinds = [slice(begin, end, chance.choice([None, 1, 2, 3])), slice(None)]
                if length:
                    kinds.append(chance.randrange(-length, length))
                index.append(chance.choice(kinds))
            if right < len(shape) or chance.random() < 0.2:
                index.insert(left, ...)
            yield tuple(index)

    def test_every_index_gives_what_the_tensor_would(self):
        chance = random.Random(support.SEED)
        kinds = itertools.cycle(TYPES)
        state = {f"{shape}{i}": noise(shape, next(kinds), i) for shape in self.SHAPES for i in range(4)}
        # So that the file is more than what the first read takes.
        state["rest"] = noise(100000)
        with support.client() as client:
            ours.save_file(state, URI, client=client)
            for gap_max, block_size, staged_size in (
                (64 << 10, 8 << 20, 64 << 20),
                (0, 8, 16),
                (4, 16, 16),
                (1 << 20, 8, 100),
            ):
                with (
                    unittest.mock.patch.multiple(ours, GAP_MAX=gap_max, BLOCK_SIZE=block_size, STAGED_SIZE=staged_size),
                    ours.safe_open(URI, client=client) as file,
                ):
                    for name, tensor in state.items():
                        part = file.get_slice(name)
                        self.assertEqual(part.get_shape(), list(tensor.shape))
                        for index in self.indices(tensor.shape, chance):
                            with self.subTest(shape=tensor.shape, index=index, gap_max=gap_max):
                                wanted = bits(tensor).reshape(*tensor.shape, tensor.itemsize)
                                spread = index if ... in index else (*index, ...)
                                wanted = wanted[(*spread, slice(None))] if tensor.dim() else wanted
                                found = part[index]
                                self.assertEqual(found.dtype, tensor.dtype)
                                self.assertEqual(list(found.shape), list(wanted.shape[:-1]))
                                self.assertTrue(torch.equal(bits(found), wanted.reshape(-1)))

    def test_bad_indices(self):
        with support.client() as client:
            ours.save_file({"x": noise((4, 5))}, URI, client=client)
            part = ours.safe_open(URI, client=client).get_slice("x")
            for index, error in (
                (4, IndexError),
                ((0, 0, 0), IndexError),
                ((..., ...), IndexError),
                (slice(None, None, -1), ValueError),
                ("a", TypeError),
                (1.5, TypeError),
            ):
                with self.assertRaises(error):
                    part[index]

    def test_only_what_is_wanted_is_read(self):
        shape = (64, 64, 1024)  # 16 MiB; rows of 256 KiB
        state = {"x": torch.arange(64 * 64 * 1024, dtype=torch.int32).reshape(shape)}
        with support.client(hedging=False) as client:
            ours.save_file(state, URI, client=client)
            file = ours.safe_open(URI, client=client)
            part = file.get_slice("x")
            for index, bytes_max, requests_max in (
                ((slice(8, 16),), 2 << 20, 2),
                ((slice(None), slice(0, 4)), 1 << 20, 64),
                ((slice(0, 2), slice(None), slice(0, 512)), 512 << 10, 2),
                # 60 KiB between rows are read with them, 68 KiB are not.
                ((slice(0, 1), slice(None, None, 16)), 256 << 10, 1),
                ((slice(0, 1), slice(None, None, 18)), 16 << 10, 4),
                ((5, 5, 5), 4, 1),
                ((slice(0, 0),), 0, 0),
            ):
                before = client.stats()
                self.assertTrue(torch.equal(part[index], state["x"][index]), index)
                after = client.stats()
                # Handshakes and heads come on top.
                self.assertLessEqual(after["recv_bytes"] - before["recv_bytes"], bytes_max + (128 << 10), index)
                self.assertLessEqual(after["requests"] - before["requests"], requests_max, index)

    def test_tensors_outlive_the_file(self):
        with support.client() as client:
            state = {"x": noise(100000)}
            ours.save_file(state, URI, client=client)
            with ours.safe_open(URI, client=client) as file:
                found = {"x": file.get_slice("x")[:]}
            whole = ours.load_file(URI, client=client)
        del file
        self.assertSame(found, state)
        self.assertSame(whole, state)


class Damaged(Case):
    def refused(self, client, data, text):
        client.put(URI, data)
        for call in (ours.load_file, ours.safe_open):
            with self.assertRaisesRegex(ours.SafetensorError, text) as caught:
                call(URI, client=client)
            self.assertIn(URI, str(caught.exception))
        # The same is refused by the package.
        with self.assertRaises(safetensors.SafetensorError):
            safetensors.torch.load(data)

    def test_headers_that_are_none(self):
        good = header(x=entry(0, 4)) + b"1234"
        with support.client() as client:
            self.refused(client, b"", "it has 0 bytes")
            self.refused(client, b"1234567", "it has 7 bytes")
            self.refused(client, (100_000_001).to_bytes(8, "little") + b"{}", "100000000 are allowed")
            self.refused(client, (3).to_bytes(8, "little") + b"{}", "would end at byte 11")
            self.refused(client, (2).to_bytes(8, "little") + b"[]", "does not begin with")
            self.refused(client, (2).to_bytes(8, "little") + b"{x", "property name")
            self.refused(client, (3).to_bytes(8, "little") + b'{"\xff', "decode")
            self.refused(client, good[:-1], "end at byte")
            self.refused(client, good + b"5", "end at byte")
            deep = b'{"x":' + b"[" * 100000
            self.refused(client, len(deep).to_bytes(8, "little") + deep, "recursion")

    def test_tensors_that_do_not_fit(self):
        with support.client() as client:
            for described, size, text in (
                (header(x=entry(1, 4)), 4, "x begins at byte"),
                (header(x=entry(0, 4), y=entry(5, 6)), 6, "y begins at byte"),
                (header(x=entry(0, 4), y=entry(3, 6)), 6, "y begins at byte"),
                (header(x=entry(0, 4, [5])), 4, r"shape \[5\] of U8"),
                (header(x=entry(0, 4, [2], "F32")), 4, r"shape \[2\] of F32"),
                (header(x=entry(0, 4, [4], "F128")), 4, "F128"),
                (header(x=entry(0, 4, [-4])), 4, r"shape \[-4\]"),
                (header(x=entry(0, 4, [2**63, 2])), 4, "shape"),
                (header(x=entry(0, 2, [3], "F4")), 2, r"shape \[3\] of F4"),
                (header(x={"dtype": "U8", "shape": [4]}), 4, "is not described"),
                (header(x=entry(0, 4), __metadata__={"a": 1}), 4, "__metadata__ is not"),
                (header(x={"dtype": "U8", "shape": [4], "data_offsets": [4, 0]}), 4, "bytes 4 to 0"),
            ):
                with self.subTest(text):
                    self.refused(client, described + b"x" * size, text)

    def test_a_name_that_is_there_twice(self):
        text = (
            b'{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
        )
        with support.client() as client:
            client.put(URI, len(text).to_bytes(8, "little") + text + b"1")
            with self.assertRaisesRegex(ours.SafetensorError, "'x' is there twice"):
                ours.load_file(URI, client=client)

    def test_types_that_torch_has_not(self):
        with support.client() as client:
            client.put(URI, header(x=entry(0, 3, [4], "F6_E2M3"), y=entry(3, 5)) + b"12345")
            with ours.safe_open(URI, client=client) as file:
                self.assertEqual(file.get_tensor("y").tolist(), [52, 53])
                self.assertEqual((file.get_slice("x").get_dtype(), file.get_slice("x").get_shape()), ("F6_E2M3", [4]))
                with self.assertRaisesRegex(ours.SafetensorError, f"{URI}: x is of type F6_E2M3"):
                    file.get_tensor("x")
                with self.assertRaisesRegex(ours.SafetensorError, f"{URI}: has no tensor z"):
                    file.get_tensor("z")

    def test_what_came_is_compared_with_the_checksum(self):
        headers = {"RINGEST_HEADERS": "x-goog-emulator-instructions: return-corrupted-data"}
        with support.emulator() as (endpoint, ca), ringest.Client(endpoint, ca) as client:
            ours.save_file({"x": noise(100000)}, URI, client=client)
            with ours.safe_open(URI, client=client) as file, unittest.mock.patch.dict(os.environ, headers):
                with ringest.Client(endpoint, ca) as damaging:
                    file._file.client = damaging
                    with self.assertRaisesRegex(ringest.ChecksumError, URI):
                        file.get_tensors()

    def test_random_damage_is_an_error_or_another_file(self):
        chance = random.Random(support.SEED)
        good = safetensors.torch.save({"a": noise((3, 4)), "b": noise(5, torch.int8), "c": noise(())})
        with support.client() as client:
            for _ in range(150):
                data = bytearray(good)
                for _ in range(chance.randint(1, 3)):
                    data[chance.randrange(len(data) - 57)] = chance.choice(b'0129"{}[],:ab\x00\xff')
                client.put(URI, bytes(data))
                try:
                    wanted = safetensors.torch.load(bytes(data))
                except Exception:
                    wanted = None
                try:
                    found = ours.load_file(URI, client=client)
                except ours.SafetensorError:
                    found = None
                if wanted is not None and found is not None:
                    self.assertSame(found, wanted)
                # Nothing is taken that the package refuses.
                self.assertFalse(wanted is None and found is not None, bytes(data))


if __name__ == "__main__":
    unittest.main()
