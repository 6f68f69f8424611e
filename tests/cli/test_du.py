"""`ringest du` and `ringest hash`."""

import base64
import hashlib
import json
import pathlib
import tempfile
import unittest

from support import FAILED, USAGE, ServedCase, ringest

SIZES = {"a/1": 10, "a/b/c/2": 200, "a-b": 7, "a/b/3": 3000, "a": 1, "d/e/": 0, "z": 5}


class Sums(ServedCase):
    buckets = ("sums",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, size in SIZES.items():
            cls.server.put("sums", name, bytes(size))

    def du(self, *arguments):
        lines = self.ok(self.ringest("du", *arguments)).decode().splitlines()
        return {line[14:].replace("gs://sums", ""): line[:12].strip() for line in lines}

    def test_each_folder(self):
        every = {"/a/b/c/": "200", "/a/b/": "3200", "/a/": "3210", "/d/e/": "0", "/d/": "0", "/": "3223"}
        self.assertEqual(self.du("gs://sums"), every)
        self.assertEqual(next(iter(self.du("gs://sums"))), "/a/b/c/")
        self.assertEqual(self.du("gs://sums/a"), {"/a/b/c/": "200", "/a/b/": "3200", "/a": "3211"})
        self.assertEqual(self.du("gs://sums/a/"), {"/a/b/c/": "200", "/a/b/": "3200", "/a/": "3210"})

    def test_sums_only(self):
        self.assertEqual(self.du("-s", "gs://sums/a/b", "gs://sums/z"), {"/a/b": "3200", "/z": "5"})
        self.assertEqual(self.du("-sc", "gs://sums/a*"), {"/a": "1", "/a-b": "7", "/a/": "3210", "total": "3218"})
        self.assertEqual(self.du("-sh", "gs://sums/a/b/"), {"/a/b/": "3.1 KiB"})
        said = self.ok(self.ringest("du", "-s", "--json", "gs://sums/a/", "--total")).decode().splitlines()
        self.assertEqual(
            [json.loads(line) for line in said],
            [{"url": "gs://sums/a/", "objects": 3, "bytes": 3210}, {"url": None, "objects": 3, "bytes": 3210}],
        )

    def test_nothing_there(self):
        self.server.make_bucket("nothing-here")
        self.assertEqual(self.ok(self.ringest("du", "gs://nothing-here")), b"           0  gs://nothing-here/\n")
        self.fails(self.ringest("du", "gs://sums/none"), FAILED, "nothing below it")
        self.fails(self.ringest("du", "gs://sums/none*"), FAILED, "matched")
        self.fails(self.ringest("du"), USAGE, "needs a place")

    def test_hashes(self):
        data = bytes(3000)
        md5 = hashlib.md5(data)
        both = {"base64": base64.b64encode(md5.digest()).decode(), "hex": md5.hexdigest()}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "file")
            path.write_bytes(data)
            for form, options in (("base64", ()), ("hex", ("--hex",))):
                said = self.ok(self.ringest("hash", path, "gs://sums/a/b/3", *options)).decode()
                here, there = (dict(line.split(": ") for line in each.splitlines()) for each in said.split("---\n")[1:])
                self.assertEqual(list(here), ["crc32c_hash", "digest_format", "md5_hash", "url"])
                self.assertEqual((here.pop("url"), there.pop("url")), (str(path), "gs://sums/a/b/3"))
                self.assertEqual(here, there)
                self.assertEqual((here["md5_hash"], here["digest_format"]), (both[form], form))
            # Files need no server.
            said = json.loads(self.ok(ringest("hash", "--json", path)))
            self.assertEqual(said["md5_hash"], both["base64"])
            self.fails(self.ringest("hash", folder), FAILED, "is a folder")
            self.fails(self.ringest("hash", path.parent / "none"), FAILED, "none")
        lines = self.ok(self.ringest("hash", "--json", "gs://sums/a*", "gs://sums/z")).decode().splitlines()
        self.assertEqual([json.loads(line)["url"][10:] for line in lines], ["a", "a-b", "z"])
        self.fails(self.ringest("hash", "gs://sums"), USAGE, "got the bucket")
        self.fails(self.ringest("hash"), USAGE, "needs an object")


if __name__ == "__main__":
    unittest.main()
