"""A server that tells no CRC32C of an object, or tells it only in listings: what is promised to be compared with it is, or
the command fails."""

import base64
import http.server
import json
import os
import pathlib
import re
import tempfile
import threading
import unittest
import urllib.parse

from support import DONE, FAILED, Case, ringest

SMALL, LARGE = b"small object", bytes(range(256)) * 100_000


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return base64.b64encode((crc ^ 0xFFFFFFFF).to_bytes(4, "big")).decode()


class Storage(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    objects = {"small": SMALL, "empty": b"", "large": LARGE, "folder/small": SMALL}
    listed = None  # the CRC32C of what is small, as listings tell it

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        if url.path.endswith("/o"):
            prefix = query.get("prefix", [""])[0]
            items = [self.facts(name) for name in sorted(self.objects) if name.startswith(prefix)]
            return self.answer(200, {}, json.dumps({"kind": "storage#objects", "items": items}).encode())
        name = urllib.parse.unquote(url.path.rsplit("/o/", 1)[1])
        if "media" not in query.get("alt", []):
            return self.answer(200, {}, json.dumps(self.facts(name)).encode())
        data = self.objects[name]
        match = re.fullmatch(r"bytes=(\d+)-(\d+)?", self.headers.get("Range", ""))
        if match and int(match[1]) >= len(data):
            return self.answer(416, {"Content-Range": f"bytes */{len(data)}"}, b"")
        begin, end = (int(match[1]), min(int(match[2] or len(data)), len(data) - 1) + 1) if match else (0, len(data))
        headers = {"x-goog-generation": "7", "x-goog-stored-content-length": str(len(data))}
        if match:
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
        return self.answer(206 if match else 200, headers, data[begin:end])

    def facts(self, name):
        facts = {"name": name, "bucket": "bucket", "size": str(len(self.objects[name])), "generation": "7"}
        facts |= {"metageneration": "1", "updated": "2026-01-01T00:00:00Z", "timeCreated": "2026-01-01T00:00:00Z"}
        return facts | ({"crc32c": self.listed} if self.listed and name.endswith("small") else {})

    def answer(self, status, headers, body):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Unchecked(Case):
    def setUp(self):
        server = self.enterContext(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Storage))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        self.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.addCleanup(setattr, Storage, "listed", None)

    def run_it(self, *arguments):
        return ringest(*arguments, "--endpoint", self.endpoint)

    def test_files_get_no_name(self):
        for name in "small", "large":
            with self.subTest(name):
                done = self.run_it("cp", f"gs://bucket/{name}", self.folder)
                self.fails(done, FAILED, f"gs://bucket/{name}: the server sends no CRC32C")
                self.assertEqual(os.listdir(self.folder), [])
        self.assertEqual(self.run_it("cp", "gs://bucket/empty", self.folder).returncode, DONE)

    def test_what_the_listing_tells_will_do(self):
        Storage.listed = crc32c(SMALL)
        copy = "cp", "-rq", "gs://bucket/folder/", self.folder
        self.assertEqual(self.run_it(*copy).returncode, DONE)
        (path,) = pathlib.Path(self.folder).rglob("small")
        self.assertEqual(path.read_bytes(), SMALL)
        path.unlink()
        self.assertEqual(self.run_it("cp", "gs://bucket/small", self.folder).returncode, DONE)
        self.assertEqual(self.ok(self.run_it("cat", "gs://bucket/small")), SMALL)
        os.remove(f"{self.folder}/small")
        Storage.listed = crc32c(b"other")
        said = f"the object {Storage.listed}"
        self.fails(
            self.run_it("cp", "gs://bucket/small", self.folder), FAILED, "gs://bucket/small: what was read has CRC32C"
        )
        self.fails(self.run_it("cat", "gs://bucket/small"), FAILED, "gs://bucket/small: the output has CRC32C", said)
        self.fails(self.run_it(*copy), FAILED, "gs://bucket/folder/small: what was read has CRC32C")
        self.assertEqual([each for each in pathlib.Path(self.folder).rglob("*") if each.is_file()], [])

    def test_what_was_written_to_standard_output(self):
        done = self.run_it("cat", "gs://bucket/small")
        self.assertEqual(done.stdout, SMALL)
        self.fails(done, FAILED, "gs://bucket/small: the server sends no CRC32C")
        self.assertEqual(self.run_it("cat", "gs://bucket/empty").returncode, DONE)
        # A part has none.
        self.assertEqual(self.ok(self.run_it("cat", "gs://bucket/small", "--range", "0-4")), SMALL[:5])


if __name__ == "__main__":
    unittest.main()
