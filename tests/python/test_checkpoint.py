"""Writing and reading large objects: streams, ranges into memory, and checkpoints of PyTorch."""

import array
import base64
import fractions
import gc
import gzip
import http.server
import io
import itertools
import math
import mmap
import os
import pickle
import random
import re
import tempfile
import threading
import types
import unittest
import warnings
import weakref
import zipfile

import numpy
import torch
import torch.distributed.checkpoint as dcp

import ringest
import support
from ringest import _core, _torch_pickle, _torch_zip, checkpoint, safetensors
from ringest._errors import crc32c_text
from ringest.dcp import StorageReader, StorageWriter

MIB = 1 << 20


def noise(size, seed=1):
    return random.Random(seed).randbytes(size)


class Storage(http.server.BaseHTTPRequestHandler):
    """One object, in ranges, that is stored with a checksum of the test's."""

    protocol_version = "HTTP/1.1"
    data, crc32c = b"", 0

    def do_GET(self):
        match = re.fullmatch(r"bytes=(\d+)-(\d+)?", self.headers.get("Range", "bytes=0-"))
        begin, end = int(match[1]), int(match[2] or len(self.data) - 1) + 1
        body = self.data[begin:end]
        self.send_response(206)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Range", f"bytes {begin}-{begin + len(body) - 1}/{len(self.data)}")
        self.send_header("x-goog-generation", "7")
        self.send_header("x-goog-stored-content-length", str(len(self.data)))
        checksum = base64.b64encode(self.crc32c.to_bytes(4, "big")).decode()
        self.send_header("x-goog-hash", f"crc32c={checksum}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Writer(unittest.TestCase):
    def test_what_is_written_is_there(self):
        with support.client() as client:
            for size in (0, 1, 5 * MIB, 17 * MIB + 3):
                data = noise(size)
                writer = client.writer("gs://new/o", part_size="5MiB", parts_in_flight=2)
                self.assertEqual(sum(writer.write(data[at : at + 700001]) for at in range(0, size, 700001)), size)
                result = writer.finish()
                self.assertEqual(result, writer.finish())
                self.assertEqual((result["size"], writer.size, writer.ended), (size, size, True))
                facts = client.stat("gs://new/o")
                self.assertEqual((facts["generation"], facts["crc32c"]), (result["generation"], result["crc32c"]))
                self.assertEqual(bytes(client.get("gs://new/o")), data)

    def test_any_contiguous_memory_is_taken(self):
        with support.client() as client:
            with client.writer("gs://new/o", content_type="text/x") as writer:
                writer.write(bytearray(b"one"))
                writer.write(memoryview(b"-two-")[1:4])
                writer.write(array.array("d", [1.0]))
                with self.assertRaises(BufferError):
                    writer.write(memoryview(b"abcdef")[::2])
                with self.assertRaises(TypeError):
                    writer.write("text")
            self.assertEqual(bytes(client.get("gs://new/o")), b"onetwo" + array.array("d", [1.0]).tobytes())
            self.assertEqual(client.stat("gs://new/o")["content_type"], "text/x")

    def test_what_is_borrowed_is_kept_until_the_end(self):
        with support.client() as client:
            for end in ("finish", "abort"):
                data = bytearray(noise(7 * MIB))
                writer = client.writer("gs://new/o", part_size="5MiB")
                writer.write(b"head")
                writer.write(data, borrow=True)
                writer.write(memoryview(data)[5:20], borrow=True)
                with self.assertRaises(BufferError):
                    data.append(1)
                getattr(writer, end)()
                if end == "finish":
                    self.assertEqual(bytes(client.get("gs://new/o")), b"head" + data + data[5:20])
                data.append(1)

    def test_memory_between_bytes(self):
        """What ringest.dcp gives a writer."""
        sizes = [0, 1, 4095, 4096, 100_000, 7 * MIB, 0, 3]
        memories = [numpy.frombuffer(noise(size), "u1") for size in sizes]
        kept = [weakref.ref(each) for each in memories]
        pieces = [(b"before%d" % i, each.ctypes.data, each.size, each, b"") for i, each in enumerate(memories)]
        pieces[3] = (b"", *pieces[3][1:4], b"behind")
        wanted = b"".join(
            before + bytes(each) + behind for (before, *_, behind), each in zip(pieces, memories, strict=True)
        )
        sums = [_core.crc32c(bytes(each)) for each in memories]
        with support.client() as client:
            writer = client.writer("gs://new/o", part_size="5MiB")
            writer.write(b"head")
            self.assertEqual(writer._write_framed(pieces[:5]), sums[:5])
            self.assertEqual(writer._write_framed([]), [])
            self.assertEqual(writer._write_framed(tuple(pieces[5:])), sums[5:])
            self.assertEqual(writer.size, 4 + len(wanted))
            del memories, pieces
            self.assertIsNotNone(kept[-1]())
            writer.finish()
            self.assertEqual([ref() for ref in kept], [None] * len(kept))
            self.assertEqual(bytes(client.get("gs://new/o")), b"head" + wanted)
            with self.assertRaises(ValueError):
                writer._write_framed([(b"", 0, 0, None, b"")])

    def test_pieces_that_are_none_end_the_stream(self):
        with support.client() as client:
            for piece in b"bytes", (b"", 0, 0, None), ("text", 0, 0, None, b""), (b"", "0", 0, None, b""):
                writer = client.writer("gs://new/o")
                with self.assertRaises(TypeError):
                    writer._write_framed([(b"good", 0, 0, None, b""), piece])
                self.assertTrue(writer.ended)
            self.assertEqual(list(client.list("gs://new/")), [])

    def test_what_was_sent_is_let_go_of(self):
        # One part at a time: of two, the second may be there long before the first, and so on.
        with support.client() as client:
            with client.writer("gs://new/o", part_size="5MiB", parts_in_flight=1) as writer:
                kept = []
                for _ in range(20):
                    data = numpy.zeros(2 * MIB, "u1")
                    kept.append(weakref.ref(data))
                    writer.write(data, borrow=True)
                    del data
                    # Two parts, and as much again behind one that is slow: 20 MiB, with what begins and ends
                    # within them, and what was written last.
                    self.assertLessEqual(sum(ref() is not None for ref in kept), 12)

    def test_an_exception_leaves_nothing(self):
        with support.client() as client:
            for size in (10, 11 * MIB):
                with self.assertRaises(RuntimeError), client.writer("gs://new/o", part_size="5MiB") as writer:
                    writer.write(noise(size))
                    raise RuntimeError
                self.assertTrue(writer.ended)
                writer.abort()
                with self.assertRaisesRegex(ValueError, "gs://new/o"):
                    writer.write(b"more")
                with self.assertRaisesRegex(ValueError, "gs://new/o"):
                    writer.finish()
            client.writer("gs://new/o").abort()
            client.writer("gs://new/o").write(noise(11 * MIB))
            client.put("gs://new/other", b"")
            self.assertEqual([entry[0] for entry in client.list("gs://new/")], ["other"])

    def test_conditions(self):
        with support.client() as client:
            for size in (3, 11 * MIB):
                uri = f"gs://new/{size}"
                with client.writer(uri, if_generation_match=0) as writer:
                    writer.write(noise(size))
                with self.assertRaises(ringest.PreconditionError):
                    with client.writer(uri, if_generation_match=0) as again:
                        again.write(noise(size, 2))
                with client.writer(uri, if_generation_match=writer.finish()["generation"]) as again:
                    again.write(noise(size, 2))
                self.assertEqual(bytes(client.get(uri)), noise(size, 2))

    def test_a_failure_says_why_and_ends_the_writer(self):
        with support.client() as client:
            with self.assertRaises(ringest.PreconditionError) as caught:
                with client.writer("gs://new/o", part_size="5MiB", parts_in_flight=1, if_generation_match=7) as writer:
                    for _ in range(100):
                        writer.write(bytes(MIB))
                self.fail("100 MiB went nowhere")
            self.assertEqual(caught.exception.uri, "gs://new/o")
            self.assertTrue(writer.ended)
            for bad in ({"part_size": 1 << 60}, {"parts_in_flight": 1000}):
                with self.assertRaises(ValueError):
                    client.writer("gs://new/o", **bad)
            with self.assertRaises(ValueError):
                client.writer("new/o")

    def test_writers_of_several_threads(self):
        with support.client() as client:

            def write(index):
                with client.writer(f"gs://new/{index}", part_size="5MiB", parts_in_flight=2) as writer:
                    for at in range(11):
                        writer.write(noise(MIB, index * 100 + at))

            threads = [threading.Thread(target=write, args=(i,)) for i in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for index in range(3):
                want = b"".join(noise(MIB, index * 100 + at) for at in range(11))
                self.assertEqual(bytes(client.get(f"gs://new/{index}")), want)


class GetInto(unittest.TestCase):
    def test_ranges_land_in_their_buffers(self):
        with support.client(memory="16MiB") as client:
            data = noise(20 * MIB + 5)
            with client.writer("gs://new/o") as writer:
                writer.write(data)
            generation = writer.finish()["generation"]
            ranges = random.Random(support.SEED)
            requests = [(0, bytearray(12 * MIB)), (7, bytearray(0)), (len(data) - 1, bytearray(1))]
            for _ in range(5000):
                at = ranges.randrange(len(data) - 9000)
                requests.append((at, bytearray(ranges.randrange(9000))))
            self.assertEqual(client.get_into("gs://new/o", requests), generation)
            for at, buffer in requests:
                self.assertEqual(buffer, data[at : at + len(buffer)])
            whole = bytearray(len(data))
            view = memoryview(whole)
            parts = [(at, view[at : at + 300001]) for at in range(0, len(data), 300001)]
            client.get_into("gs://new/o", parts, generation=generation)
            self.assertEqual(whole, data)
            self.assertEqual(client.get_into("gs://new/o", [], generation=generation), generation)

    def test_errors(self):
        with support.client() as client:
            client.put("gs://new/o", b"0123456789")
            with self.assertRaisesRegex(EOFError, "gs://new/o has 10 bytes.*byte 12"):
                client.get_into("gs://new/o", [(8, bytearray(4))])
            with self.assertRaises(ringest.Error) as caught:
                client.get_into("gs://new/o", [(10, bytearray(4))])
            self.assertEqual(caught.exception.status, "RANGE")
            with self.assertRaises(ringest.NotFoundError):
                client.get_into("gs://new/nothing", [(0, bytearray(4))])
            with self.assertRaises(ringest.NotFoundError):
                client.get_into("gs://new/o", [(0, bytearray(4))], generation=1)
            with self.assertRaises(BufferError):
                client.get_into("gs://new/o", [(0, b"read only")])
            for bad in ([5], [(1,)], [("x", bytearray(1))], 7):
                with self.assertRaises(TypeError):
                    client.get_into("gs://new/o", bad)

    def test_a_whole_object_in_many_operations_is_checked(self):
        size, count = 16, 9000
        Storage.data = noise(size * count)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Storage) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            with ringest.Client(f"http://127.0.0.1:{server.server_address[1]}", attempts=1) as client:
                for wrong in (0, 1):
                    Storage.crc32c = _core.crc32c(Storage.data) ^ wrong
                    into = bytearray(size * count)
                    view = memoryview(into)
                    requests = [(at, view[at : at + size]) for at in range(0, size * count, size)]
                    if wrong:
                        client.get_into("gs://new/o", requests, verify=False)
                        with self.assertRaisesRegex(
                            ringest.ChecksumError, f"gs://new/o.*{re.escape(crc32c_text(Storage.crc32c))}"
                        ):
                            client.get_into("gs://new/o", requests)
                        client.get_into("gs://new/o", requests[:-1])
                    else:
                        client.get_into("gs://new/o", requests)
                    self.assertEqual(into[: -size or None], Storage.data[: -size or None])
            server.shutdown()

    def test_a_broken_buffer_list_keeps_nothing(self):
        with support.client() as client:
            client.put("gs://new/o", b"0123456789")
            good = bytearray(4)
            with self.assertRaises(BufferError):
                client.get_into("gs://new/o", [(0, good), (0, b"bad")])
            good.extend(b"x")
            client.get_into("gs://new/o", [(0, memoryview(good)[:4])])
            good.extend(b"x")


warnings.filterwarnings("ignore", category=UserWarning, module="torch")


class Files(unittest.TestCase):
    def test_reading_and_seeking(self):
        data = noise(3 * MIB + 11)
        with support.client() as client:
            client.put("gs://new/o", data)
            with checkpoint.open("gs://new/o", client=client) as file:
                self.assertEqual(
                    (file.size, file.readable(), file.seekable(), file.writable()), (len(data), True, True, False)
                )
                self.assertEqual(file.read(10), data[:10])
                self.assertEqual(file.tell(), 10)
                self.assertEqual(file.seek(-7, os.SEEK_END), len(data) - 7)
                self.assertEqual(file.read(), data[-7:])
                self.assertEqual(file.read(), b"")
                self.assertEqual(file.seek(5), 5)
                self.assertEqual(file.seek(5, os.SEEK_CUR), 10)
                room = bytearray(MIB)
                self.assertEqual(file.readinto(room), MIB)
                self.assertEqual(room, data[10 : 10 + MIB])
                with self.assertRaises(ValueError):
                    file.seek(-1)
                file.seek(len(data) + 5)
                self.assertEqual(file.read(3), b"")
            with self.assertRaises(ValueError):
                file.read(1)
            with self.assertRaises(ringest.NotFoundError):
                checkpoint.open("gs://new/nothing", client=client)
            with self.assertRaisesRegex(ValueError, "gs://new/o.*'r'"):
                checkpoint.open("gs://new/o", "r", client=client)

    def test_what_is_read_stays_of_one_generation(self):
        with support.client() as client:
            first = client.put("gs://new/o", noise(MIB))
            file = checkpoint.open("gs://new/o", client=client)
            client.put("gs://new/o", noise(MIB, 2))
            with self.assertRaises(ringest.NotFoundError):
                file.read()
            self.assertEqual(file.generation, first)

    def test_a_writer_publishes_once(self):
        with support.client() as client:
            with checkpoint.open("gs://new/o", "wb", client=client, content_type="a/b") as file:
                self.assertEqual(file.write(b"hello"), 5)
                self.assertEqual((file.tell(), file.writable(), file.readable()), (5, True, False))
                file.close()
                file.close()
            with self.assertRaises(ValueError):
                file.write(b"more")
            file.abort()
            self.assertEqual(bytes(client.get("gs://new/o")), b"hello")
            self.assertEqual(file.result["generation"], client.stat("gs://new/o")["generation"])

    def test_what_is_not_closed_is_not_published(self):
        with support.client() as client:
            with self.assertRaises(RuntimeError), checkpoint.open("gs://new/o", "wb", client=client) as file:
                file.write(noise(100))
                raise RuntimeError
            self.assertTrue(file.closed)
            file = checkpoint.open("gs://new/o", "wb", client=client)
            file.write(noise(100))
            del file
            gc.collect()
            client.put("gs://new/other", b"")
            self.assertEqual([entry[0] for entry in client.list("gs://new/")], ["other"])

    def test_formats_of_others(self):
        array_ = numpy.arange(100000, dtype="f8").reshape(100, 1000)
        things = {"a": [1, "two", None], "b": array_}
        with support.client() as client:
            with checkpoint.open("gs://new/p", "wb", client=client) as file:
                pickle.dump(things, file)
            with checkpoint.open("gs://new/p", client=client) as file:
                self.assertTrue(numpy.array_equal(pickle.load(file)["b"], array_))
            with checkpoint.open("gs://new/n", "wb", client=client) as file:
                numpy.save(file, array_)
            with checkpoint.open("gs://new/n", client=client) as file:
                self.assertTrue(numpy.array_equal(numpy.load(file), array_))
            with checkpoint.open("gs://new/t", "wb", client=client) as file:
                torch.save({"x": torch.arange(1000000)}, file)
            with checkpoint.open("gs://new/t", client=client) as file:
                self.assertTrue(torch.equal(torch.load(file)["x"], torch.arange(1000000)))


def state():
    torch.manual_seed(7)
    base = torch.randn(1000)
    with warnings.catch_warnings(action="ignore"):
        quantized = torch.quantize_per_tensor(torch.randn(50), 0.1, 3, torch.qint8)
    return {
        "plain": torch.randn(300, 1001),
        "large": torch.randn(3_000_000),
        "view": base[10:20],
        "base": base,
        "zero size": torch.zeros(0, 3),
        "zero dimensions": torch.tensor(3.5),
        "transposed": torch.randn(30, 40).t(),
        "strided": torch.randn(100)[::3],
        "expanded": torch.randn(1, 5).expand(4, 5),
        "half": torch.randn(7).half(),
        "bfloat16": torch.randn(7).bfloat16(),
        "float8": torch.randn(7).to(torch.float8_e4m3fn),
        "bool": torch.tensor([True, False]),
        "complex": torch.randn(3, dtype=torch.complex64),
        "quantized": quantized,
        "sparse": torch.eye(3).to_sparse(),
        "parameter": torch.nn.Parameter(torch.randn(4)),
        "other": {"lr": 0.1, "steps": [1, 2, 3], "name": "ü", "none": None},
    }


def freed(*shape, offset=0):
    """As FSDP leaves a parameter of which it has gathered more."""
    tensor = torch.ones(100)[offset : offset + math.prod(shape)].view(shape)
    tensor.untyped_storage().resize_(0)
    return tensor


class SaveAndLoad(unittest.TestCase):
    def test_tensors_whose_memory_was_freed(self):
        module = torch.nn.Linear(2, 3)
        module.bias.untyped_storage().resize_(0)
        hidden = types.SimpleNamespace(inside=freed(4, 5))
        empty = {"empty": torch.zeros(0, 3), "of an array": numpy.zeros(3)}
        with support.client() as client:
            checkpoint.save(empty, "gs://new/model.pt", client=client)
            kept = client.stat("gs://new/model.pt")["generation"]
            for saved, name in (
                (freed(3), "a tensor of the shape \\(3,\\)"),
                (
                    {**empty, "large": torch.ones(3_000_000), "model": {"layers": [torch.ones(2), {1: freed(3)}]}},
                    "model.layers.1.1",
                ),
                ({"view": freed(2, 1, offset=7)}, "view"),
                ({"p": torch.nn.Parameter(freed(6))}, "p"),
                ({"module": module}, "module.bias"),
                ([empty, hidden], "a tensor of the shape \\(4, 5\\)"),
            ):
                with self.subTest(name):
                    with self.assertRaisesRegex(ValueError, f"^{name} has no content any more"):
                        checkpoint.save(saved, "gs://new/model.pt", client=client)
                    with checkpoint.AsyncSaver(client=client) as saver:
                        with self.assertRaisesRegex(ValueError, f"^{name} has no content any more"):
                            saver.save(saved, "gs://new/model.pt")
                        saver.save(empty, "gs://new/another.pt")
            self.assertEqual(client.stat("gs://new/model.pt")["generation"], kept)
            self.assertEqual(
                checkpoint.load("gs://new/another.pt", client=client, weights_only=False)["empty"].shape, (0, 3)
            )

    def test_tensors_that_are_larger_than_what_was_saved_of_them(self):
        """torch.save writes such files without a word; to load one must not give what memory happens to hold."""
        short = torch.arange(100.0)
        short.untyped_storage().resize_(40)
        with support.client() as client:
            for tensor, cause in (
                (freed(3), "data/0 has 0 bytes, and a tensor of it needs 12 .*memory was freed before it was saved"),
                (short, "data/0 has 40 bytes, and a tensor of it needs 400;"),
            ):
                for saved in {"x": tensor}, {"x": tensor, "other": types.SimpleNamespace()}:
                    with checkpoint.open("gs://new/o", "wb", client=client) as file:
                        torch.save({**saved, "whole": torch.ones(5), "empty": torch.zeros(0, 3)}, file)
                    for weights_only in [True, False] if len(saved) == 1 else [False]:
                        for place in None, "cpu", lambda storage, _: storage:
                            with self.subTest(cause, weights_only=weights_only, place=place, saved=len(saved)):
                                with self.assertRaisesRegex(
                                    checkpoint.CheckpointError, f"gs://new/o .*damaged: .*{cause}"
                                ):
                                    checkpoint.load(
                                        "gs://new/o", client=client, weights_only=weights_only, map_location=place
                                    )

    def check(self, got, want):
        self.assertEqual(set(got), set(want))
        self.assertEqual(got["other"], want["other"])
        for name in set(want) - {"other"}:
            with self.subTest(name):
                a, b = got[name], want[name]
                self.assertEqual((type(a), a.dtype, a.layout, a.shape), (type(b), b.dtype, b.layout, b.shape))
                if b.is_sparse:
                    a, b = a.to_dense(), b.to_dense()
                self.assertEqual(a.stride(), b.stride())
                if b.is_quantized:
                    self.assertEqual(a.q_scale(), b.q_scale())
                    a, b = a.int_repr(), b.int_repr()
                a, b = (t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for t in (a, b))
                self.assertEqual(a, b)
        view, base = got["view"], got["base"]
        self.assertEqual(view.untyped_storage().data_ptr(), base.untyped_storage().data_ptr())

    def test_the_file_is_that_of_torch(self):
        want = io.BytesIO()
        torch.save(state(), want)
        want = want.getvalue()
        with support.client() as client:
            result = checkpoint.save(state(), "gs://new/o", client=client)
            got = bytes(client.get("gs://new/o"))
            self.assertEqual((result["size"], len(got)), (len(want), len(want)))
            id_begin = want.rindex(b"serialization_id", 0, want.index(b"PK\1\2"))
            self.assertEqual(got[:id_begin], want[:id_begin])
            with zipfile.ZipFile(io.BytesIO(got)) as file:
                self.assertIsNone(file.testzip())
            self.check(torch.load(io.BytesIO(got)), state())

    def test_what_was_saved_loads(self):
        with support.client() as client:
            checkpoint.save(state(), "gs://new/ours", client=client)
            with checkpoint.open("gs://new/torch", "wb", client=client) as file:
                torch.save(state(), file)
            for name in ("ours", "torch"):
                for options in ({}, {"map_location": "cpu"}, {"map_location": lambda s, _: s}, {"weights_only": False}):
                    self.check(checkpoint.load(f"gs://new/{name}", client=client, **options), state())

    def test_tensors_without_memory(self):
        with support.client() as client:
            checkpoint.save({"x": torch.arange(70000)}, "gs://new/o", client=client)
            found = checkpoint.load("gs://new/o", client=client, map_location="meta")["x"]
            self.assertEqual((found.device.type, found.shape), ("meta", (70000,)))
            at = found.untyped_storage()._checkpoint_offset
            self.assertEqual(bytes(client.get("gs://new/o", offset=at + 8, length=8)), (1).to_bytes(8, "little"))

    def test_memory_smaller_than_the_checkpoint(self):
        with support.client(memory="16MiB") as client:
            want = {str(i): torch.randn(500_000 + i) for i in range(40)}
            checkpoint.save(want, "gs://new/o", client=client, part_size="5MiB", parts_in_flight=2)
            got = checkpoint.load("gs://new/o", client=client)
            self.assertTrue(all(torch.equal(got[key], want[key]) for key in want))

    def test_many_small_tensors(self):
        with support.client() as client:
            want = {str(i): torch.full((1 + i % 50,), i) for i in range(9000)}
            checkpoint.save(want, "gs://new/o", client=client)
            got = checkpoint.load("gs://new/o", client=client)
            self.assertTrue(all(torch.equal(got[key], want[key]) for key in want))

    def test_other_layouts(self):
        old, packed = io.BytesIO(), io.BytesIO()
        torch.save(state()["large"], old, _use_new_zipfile_serialization=False)
        plain = io.BytesIO()
        torch.save(state()["large"], plain)
        with zipfile.ZipFile(plain) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
            for entry in source.infolist():
                target.writestr(entry.filename, source.read(entry))
        with support.client() as client:
            for data in (old, packed):
                client.put("gs://new/o", data.getvalue())
                self.assertTrue(torch.equal(checkpoint.load("gs://new/o", client=client), state()["large"]))

    def test_alignments_and_checksums_of_torch(self):
        from torch.utils.serialization import config

        with support.client() as client:
            try:
                config.save.storage_alignment = 4096
                torch.serialization.set_crc32_options(False)
                checkpoint.save(state(), "gs://new/ours", client=client)
                want = io.BytesIO()
                torch.save(state(), want)
            finally:
                config.save.storage_alignment = 64
                torch.serialization.set_crc32_options(True)
            self.assertEqual(len(want.getvalue()), client.stat("gs://new/ours")["size"])
            client.put("gs://new/torch", want.getvalue())
            for name in ("ours", "torch"):
                self.check(checkpoint.load(f"gs://new/{name}", client=client), state())

    def test_what_is_compressed_is_not_called_damaged(self):
        def compress(uri, mtime):
            client.put(uri, gzip.compress(bytes(client.get(uri)), mtime=mtime))
            client.update(uri, content_encoding="gzip")

        def why(uri):
            return f"{uri}\\b.* is compressed with gzip, .*unpack it.* ringest cat {uri} [|] gunzip"

        into = {"x": torch.zeros(5000), "y": torch.zeros(2, 3)}
        with support.client() as client:
            for mtime in 0, 1_700_000_000:  # the first four bytes behind look like the length of a header
                checkpoint.save(into, "gs://new/o.pt", client=client)
                safetensors.save_file(into, "gs://new/o.st", client=client)
                for uri in "gs://new/o.pt", "gs://new/o.st":
                    compress(uri, mtime)
                for weights_only in True, False:
                    for place in None, "meta":
                        with self.assertRaisesRegex(checkpoint.CheckpointError, why("gs://new/o.pt")):
                            checkpoint.load(
                                "gs://new/o.pt", client=client, weights_only=weights_only, map_location=place
                            )
                with self.assertRaisesRegex(safetensors.SafetensorError, why("gs://new/o.st")):
                    safetensors.load_file("gs://new/o.st", client=client)
                dcp.save(into, storage_writer=StorageWriter("gs://new/run", client=client, overwrite=True))
                # Of the data first, then of the metadata, too.
                for name, *_ in sorted(client.list("gs://new/run/"), reverse=True):
                    compress(f"gs://new/{name}", mtime)
                    with self.assertRaises(dcp.CheckpointException) as caught:
                        dcp.load(into, storage_reader=StorageReader("gs://new/run", client=client))
                    cause = caught.exception.failures[0][0]
                    self.assertIsInstance(cause, checkpoint.CheckpointError)
                    self.assertRegex(str(cause), why(f"gs://new/{name}"))

    def test_damage_is_named(self):
        with support.client() as client:
            checkpoint.save({**state(), "name to be broken": 1}, "gs://new/o", client=client)
            good = bytes(client.get("gs://new/o"))
            directory = good.index(b"PK\1\2")
            entry = good.index(b"archive/data/2", directory)
            damages = {
                "nothing": b"",
                "cut": good[: len(good) // 2],
                "cut at the end": good[:-1],
                "no directory": good[:directory] + good[-98:],
                "an entry's name": good[:entry] + b"archive/data/X" + good[entry + 14 :],
                "an entry's place": good[: entry - 4] + b"\0\1\0\0" + good[entry:],
                "an entry's header": good.replace(b"PK\3\4", b"PK\3\5"),
                "not one at all": noise(5000),
                "a name that is no text": good.replace(b"name to be broken", b"\xffame to be broken"),
                # Torch's unpickler takes text for a pickle, and stumbles over it.
                "text": b"tmp/train/0000755",
            }
            for what, data in damages.items():
                client.put("gs://new/o", data)
                with self.subTest(what), self.assertRaisesRegex(checkpoint.CheckpointError, "gs://new/o .generation"):
                    checkpoint.load("gs://new/o", client=client)
            with self.assertRaisesRegex(checkpoint.CheckpointError, "no file of torch.save, it begins with b'tmp/'"):
                checkpoint.load("gs://new/o", client=client)

    def test_unsafe_contents_are_refused(self):
        with support.client() as client:
            checkpoint.save({"x": fractions.Fraction(1, 3)}, "gs://new/o", client=client)
            with self.assertRaises(pickle.UnpicklingError) as caught:
                checkpoint.load("gs://new/o", client=client)
            self.assertIn("gs://new/o", caught.exception.__notes__[0])
            self.assertIsInstance(
                checkpoint.load("gs://new/o", client=client, weights_only=False)["x"], fractions.Fraction
            )

    def test_only_plain_pickles_are_read_fast(self):
        plain = {
            "x": torch.arange(5),
            "parameter": torch.nn.Parameter(torch.randn(3)),
            "model": torch.nn.Linear(3, 4).state_dict(),
            "list": [1, 2.5, "three", None, (True, {})],
        }
        for what, is_plain in ((plain, True), (state(), False), ({"x": torch.float16}, False), ({"x": len}, False)):
            with support.client() as client:
                checkpoint.save(what, "gs://new/o", client=client)
                facts = client.stat("gs://new/o")
                archive = _torch_zip.ArchiveReader(client, "gs://new/o", facts, True)
                if not is_plain:
                    with self.assertRaises(_torch_pickle.NotPlain):
                        _torch_pickle.load(archive, None)
                    continue
                found = _torch_pickle.load(archive, "cpu")
                self.assertTrue(torch.equal(found["x"], what["x"]))
                self.assertTrue(torch.equal(found["parameter"], what["parameter"]))
                self.assertIs(type(found["parameter"]), torch.nn.Parameter)
                self.assertTrue(torch.equal(found["model"]["weight"], what["model"]["weight"]))
                self.assertEqual((type(found["model"]), found["list"]), (type(what["model"]), what["list"]))
                with self.assertRaises(_torch_pickle.NotPlain):
                    _torch_pickle.load(archive, "meta")

    def test_a_pickle_cannot_change_what_it_was_given(self):
        before = torch._utils._rebuild_tensor_v2.__defaults__
        attack = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}U\x0c__defaults__(K\x01ts\x86b."
        archive = types.SimpleNamespace(device=None, is_native=lambda: True, get_record=lambda name: attack)
        found = _torch_pickle.load(archive, None)
        self.assertEqual(found.__defaults__, (1,))
        self.assertEqual(torch._utils._rebuild_tensor_v2.__defaults__, before)

    def test_failures_leave_what_was_there(self):
        with support.client() as client:
            first = checkpoint.save({"x": torch.arange(10)}, "gs://new/o", client=client, if_generation_match=0)
            with self.assertRaises(ringest.PreconditionError):
                checkpoint.save(state(), "gs://new/o", client=client, if_generation_match=0)
            with self.assertRaises((pickle.PicklingError, AttributeError)):
                checkpoint.save({"x": state(), "y": lambda: 1}, "gs://new/o", client=client)
            self.assertEqual(client.stat("gs://new/o")["generation"], first["generation"])
            self.assertEqual([entry[0] for entry in client.list("gs://new/")], ["o"])

    def test_a_save_that_is_refused_names_the_object(self):
        """Without rights, replaced by another, or asked to slow down for longer than it is tried."""
        saved = {"x": torch.arange(10)}
        ways = {
            "save": lambda client: checkpoint.save(saved, "gs://new/o", client=client),
            "open": self.save_by_torch,
            "safetensors": lambda client: safetensors.save_file(saved, "gs://new/o", client=client),
        }
        kinds = {403: ringest.PermissionDeniedError, 412: ringest.PreconditionError, 429: ringest.Error}
        with support.emulator() as (endpoint, ca), ringest.Client(endpoint, ca) as untroubled:
            first = untroubled.put("gs://new/o", b"as it was")
            for (way, save), (status, kind) in itertools.product(ways.items(), kinds.items()):
                instructions = {"storage.objects.insert": [f"return-{status}"]}
                with (
                    self.subTest(way, status=status),
                    support.faults(endpoint, ca, instructions) as left,
                    ringest.Client(endpoint, ca, attempts=1) as client,
                ):
                    with self.assertRaisesRegex(kind, "gs://new/o") as caught:
                        save(client)
                    self.assertEqual((caught.exception.uri, caught.exception.http_status), ("gs://new/o", status))
                    self.assertTrue(left()["completed"])
                self.assertEqual(untroubled.stat("gs://new/o")["generation"], first)

    @staticmethod
    def save_by_torch(client):
        with checkpoint.open("gs://new/o", "wb", client=client) as file:
            torch.save({"x": torch.arange(10)}, file)

    def test_tensors_on_the_meta_device_are_kept_as_such(self):
        saved = {"x": torch.empty(3, 4, device="meta"), "y": torch.arange(5)}
        with support.client() as client:
            checkpoint.save(saved, "gs://new/ours", client=client)
            with checkpoint.open("gs://new/torch", "wb", client=client) as file:
                torch.save(saved, file)
            for name in ("ours", "torch"):
                found = checkpoint.load(f"gs://new/{name}", client=client)
                self.assertEqual((found["x"].device.type, found["x"].shape), ("meta", (3, 4)))
                self.assertTrue(torch.equal(found["y"], saved["y"]))

    def test_tensors_above_4_gib_lie_as_torch_puts_them(self):
        # Memory that nobody touches; the C library may be told to fill its own.
        room = torch.frombuffer(mmap.mmap(-1, (4 << 30) + 5), dtype=torch.uint8)
        large = {"small": torch.zeros(3), "large": room, "last": torch.zeros(9)}
        stream = Holes()
        archive = _torch_zip.ArchiveWriter(stream, False, 64)
        torch.serialization._save(large, archive, pickle, 2, False)
        archive.finish()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "archive.pt")
            with torch.serialization.skip_data():
                torch.save(large, path)
            size = os.path.getsize(path)
            with zipfile.ZipFile(path) as found:
                want = [(e.filename, e.header_offset, e.file_size) for e in found.infolist()]
        at, end = stream.pieces[-1]
        self.assertEqual(stream.at, size)
        begin = end.index(b"PK\1\2")
        reader = object.__new__(_torch_zip.ArchiveReader)
        entries = reader._parse_directory(bytearray(end[begin:]), len(want), at + begin)
        self.assertEqual([(e.name, e.header, e.size) for e in entries], want)
        storages = [(begin, length) for begin, length in stream.lent]
        self.assertEqual([(e.begin, e.size) for e in entries if "/data/" in e.name and ".data" not in e.name], storages)


class Holes:
    """Takes the place of a stream, and remembers where what would lie."""

    def __init__(self):
        self.at = 0
        self.pieces = []
        self.lent = []

    def write(self, data):
        self.pieces.append((self.at, bytes(data)))
        self.at += len(data)

    def _write_address(self, address, size, owner, checksum):
        self.lent.append((self.at, size))
        self.at += size
        return 0


if __name__ == "__main__":
    unittest.main()
