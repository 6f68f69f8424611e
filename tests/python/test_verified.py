"""What was promised to be compared with a checksum is, in whatever order and number it is read; and where it cannot
be, that is an error."""

import base64
import http.server
import io
import json
import re
import threading
import unittest
import unittest.mock
import urllib.parse
import warnings
import zipfile

import torch

import ringest
from ringest import _core, checkpoint, safetensors

warnings.filterwarnings("ignore", category=UserWarning, module="torch")
URI = "gs://bucket/object"


class Storage(http.server.BaseHTTPRequestHandler):
    """One object. A bit of it may be wrong, in all answers, or only in those that begin at a certain byte."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        server = self.server
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        digest = base64.b64encode(_core.crc32c(server.data).to_bytes(4, "big")).decode()
        if "media" not in query.get("alt", []):
            facts = {"name": "object", "bucket": "bucket", "size": str(len(server.data)), "generation": "7"}
            facts |= {"metageneration": "1", "updated": "2026-01-01T00:00:00Z", "timeCreated": "2026-01-01T00:00:00Z"}
            if server.tells or server.stat_tells:
                facts["crc32c"] = digest
            self.answer(200, {"Content-Type": "application/json"}, json.dumps(facts).encode())
            return
        match = re.fullmatch(r"bytes=(\d+)-(\d+)?", self.headers.get("Range", "bytes=0-"))
        begin, end = int(match[1]), min(int(match[2] or len(server.data)), len(server.data) - 1) + 1
        body = bytearray(server.data[begin:end])
        if server.flips is not None and begin <= server.flips < end and server.only in (None, begin):
            body[server.flips - begin] ^= server.bit
        headers = {"Content-Range": f"bytes {begin}-{end - 1}/{len(server.data)}", "x-goog-generation": "7"}
        headers["x-goog-stored-content-length"] = str(len(server.data))
        if server.tells:
            headers["x-goog-hash"] = f"crc32c={digest}"
        self.answer(206, headers, body)

    def answer(self, status, headers, body):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Case(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Storage))
        self.server.data, self.server.flips, self.server.only = b"", None, None
        self.server.bit, self.server.tells, self.server.stat_tells = 1, True, False
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.shutdown)
        endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.client = self.enterContext(ringest.Client(endpoint, attempts=1))

    def flip(self, at, only=None, bit=1):
        self.server.flips, self.server.only, self.server.bit = at, only, bit

    def saved(self, value, **options):
        file = io.BytesIO()
        torch.save(value, file, **options)
        self.server.data = file.getvalue()
        return self.server.data


class Ranges(Case):
    def setUp(self):
        super().setUp()
        self.server.data = bytes(range(256)) * 400

    def read(self, ranges, **options):
        memory = [bytearray(length) for _, length in ranges]
        result = self.client.get_into(URI, [(begin, each) for (begin, _), each in zip(ranges, memory)], **options)
        for (begin, length), each in zip(ranges, memory):
            self.assertEqual(each, self.server.data[begin : begin + length])
        return result

    def fails(self, ranges, **options):
        with self.assertRaisesRegex(ringest.ChecksumError, URI):
            self.client.get_into(URI, [(begin, bytearray(length)) for begin, length in ranges], **options)

    def tables(self):
        size = len(self.server.data)
        inorder = [(at, 20) for at in range(0, size, 20)]
        yield "in order", inorder
        yield "backwards", inorder[::-1]
        yield "the odd ones first", inorder[1::2] + inorder[::2]
        yield (
            "of several times as many",
            [(at, 10) for at in range(0, size, 20)] + [(at, 10) for at in range(10, size, 20)],
        )
        yield "that overlap", [(at, min(30, size - at)) for at in range(0, size, 20)]
        yield "few that overlap", [(size // 2, size - size // 2), (0, size // 2 + 100)]
        yield "one in another", [(100, 50), (0, size)]

    def test_all_of_an_object_in_any_order(self):
        for name, ranges in self.tables():
            with self.subTest(name):
                self.flip(None)
                self.assertEqual(self.read(ranges), 7)
                self.read(ranges, whole=True)
                _, found = self.read(ranges, checksums=True)
                self.assertEqual(found, [_core.crc32c(self.server.data[at : at + length]) for at, length in ranges])
                for at in (0, 5000, len(self.server.data) - 1):
                    self.flip(at)
                    self.fails(ranges)

    def test_what_is_not_all_of_it(self):
        ranges = [(at, 20) for at in range(20, len(self.server.data), 20)]
        self.read(ranges)
        self.fails(ranges, whole=True)
        self.fails([(0, 100), (200, len(self.server.data) - 200)], whole=True)
        self.assertEqual(self.client.get_into(URI, [], whole=True, generation=7), 7)
        with self.assertRaisesRegex(ValueError, "verify=False"):
            self.read(ranges, whole=True, verify=False)

    def test_a_server_that_tells_no_checksum(self):
        self.server.tells = False
        ranges = [(0, len(self.server.data))]
        self.read(ranges)
        with self.assertRaisesRegex(ringest.ChecksumError, f"{URI}.*the server does not tell it"):
            self.read(ranges, whole=True)
        # Where somebody else does.
        self.read(ranges, whole=True, crc32c=_core.crc32c(self.server.data))
        for whole in False, True:
            self.fails(ranges, whole=whole, crc32c=_core.crc32c(self.server.data) ^ 1)
        self.read(ranges, whole=True, verify=True, crc32c=_core.crc32c(self.server.data), checksums=True)
        for bad in (-1, 1 << 32):
            with self.assertRaisesRegex(ValueError, "crc32c"):
                self.read(ranges, crc32c=bad)


class Checkpoints(Case):
    def test_one_bit_of_many_tensors(self):
        for count in (1, 2040, 2050, 5000):
            with self.subTest(count):
                state = {str(i): torch.full((3,), float(i)) for i in range(count)}
                data = self.saved(state)
                self.flip(None)
                loaded = checkpoint.load(URI, client=self.client)
                self.assertTrue(all(torch.equal(state[key], loaded[key]) for key in state))
                self.flip(data.index(state[str(count - 1)].numpy().tobytes()))
                with self.assertRaisesRegex(ringest.ChecksumError, URI):
                    checkpoint.load(URI, client=self.client)

    def test_a_directory_that_was_read_wrong(self):
        """It is read first, alone, and again with all the rest, which is compared."""
        state = {"a": torch.arange(100_000.0), "b": torch.arange(10)}
        data = self.saved(state)
        begin = len(data) - (256 << 10)
        directory = data.index(b"PK\1\2")
        self.assertGreater(begin, 0)
        refused = 0
        for at in range(directory, len(data), 5):
            self.flip(at, only=begin, bit=1 << at % 8)
            try:
                loaded = checkpoint.load(URI, client=self.client)
            except (ringest.ChecksumError, checkpoint.CheckpointError) as error:
                self.assertIn(URI, str(error))
                refused += 1
            else:
                # As one of another layout, which torch reads out of memory.
                self.assertTrue(all(torch.equal(state[key], loaded[key]) for key in state), at)
        self.assertGreater(refused, 50)

    def test_files_of_other_layouts(self):
        state = {"a": torch.arange(1000), "b": torch.arange(70000.0)}
        needle = state["a"].numpy().tobytes()
        for name in ("legacy", "compressed"):
            with self.subTest(name):
                data = self.saved(state, _use_new_zipfile_serialization=name != "legacy")
                if name == "compressed":
                    packed = io.BytesIO()
                    with (
                        zipfile.ZipFile(io.BytesIO(data)) as old,
                        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new,
                    ):
                        for each in old.namelist():
                            new.writestr(each, old.read(each), None if each.endswith("data/0") else zipfile.ZIP_STORED)
                    data = self.server.data = packed.getvalue()
                self.flip(None)
                loaded = checkpoint.load(URI, client=self.client)
                self.assertTrue(all(torch.equal(state[key], loaded[key]) for key in state))
                self.flip(data.index(needle) + 100 if name == "legacy" else len(data) // 2)
                with self.assertRaisesRegex(ringest.ChecksumError, URI):
                    checkpoint.load(URI, client=self.client)
                # What has no content reads none.
                self.flip(None)
                self.assertTrue(checkpoint.load(URI, client=self.client, map_location="meta")["a"].is_meta)

    def test_a_server_that_tells_no_checksum(self):
        self.server.tells = False
        for modern in (True, False):
            self.saved({"a": torch.arange(3)}, _use_new_zipfile_serialization=modern)
            with self.subTest(modern):
                with self.assertRaisesRegex(ringest.ChecksumError, f"{URI}.*the server does not tell it"):
                    checkpoint.load(URI, client=self.client)
                self.assertEqual(checkpoint.load(URI, client=self.client, verify=False)["a"].tolist(), [0, 1, 2])
                # As long as somebody tells it.
                self.server.stat_tells = True
                self.assertEqual(checkpoint.load(URI, client=self.client)["a"].tolist(), [0, 1, 2])
                self.flip(len(self.server.data) // 2)
                with self.assertRaisesRegex(ringest.ChecksumError, URI):
                    checkpoint.load(URI, client=self.client)
                self.flip(None)
                self.server.stat_tells = False


class Safetensors(Case):
    def save(self, state):
        text = safetensors._header_make(list(state.items()), None)
        self.server.data = text + b"".join(each.numpy().tobytes() for each in state.values())
        return text

    def test_one_bit(self):
        self.enterContext(unittest.mock.patch.object(safetensors, "STAGED_SIZE", 100_000))
        for count, size in (1, 3), (1, 100_000), (5000, 30):
            state = {str(i): torch.full((size,), float(i)) for i in range(count)}
            header = self.save(state)
            for device in ("cpu", "meta"):
                with self.subTest(f"{count} of {size} for {device}"):
                    self.flip(None)
                    loaded = safetensors.load_file(URI, device, client=self.client)
                    self.assertEqual(loaded.keys(), state.keys())
                    if device == "cpu":
                        self.assertTrue(all(torch.equal(state[key], loaded[key]) for key in state))
                    for at in (len(header), len(self.server.data) - 1):
                        self.flip(at)
                        with self.assertRaisesRegex(ringest.ChecksumError, URI):
                            safetensors.load_file(URI, device, client=self.client)

    def test_a_header_that_was_read_wrong(self):
        """It is read first, alone, and again with all the rest."""
        header = self.save({"a": torch.zeros(100_000), "b": torch.zeros(7)})
        at = header.index(b'"a"') + 1
        self.flip(at)
        for device in ("cpu", "meta"):
            with self.subTest(device), self.assertRaisesRegex(ringest.ChecksumError, URI):
                safetensors.load_file(URI, device, client=self.client)
        with safetensors.safe_open(URI, client=self.client) as file:
            self.flip(None)
            with self.assertRaisesRegex(ringest.ChecksumError, URI):
                file.get_tensors()

    def test_a_server_that_tells_no_checksum(self):
        self.server.tells = False
        for size in (3, 100_000):
            self.save({"a": torch.ones(size)})
            with self.subTest(size):
                with self.assertRaisesRegex(ringest.ChecksumError, f"{URI}.*the server does not tell it"):
                    safetensors.load_file(URI, client=self.client)
                found = safetensors.load_file(URI, client=self.client, verify=False)
                self.assertEqual(float(found["a"].sum()), size)
                with safetensors.safe_open(URI, client=self.client) as file:
                    self.assertEqual(float(file.get_tensor("a").sum()), size)


if __name__ == "__main__":
    unittest.main()
