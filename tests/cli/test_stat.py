"""`ringest stat`: what is stored about an object."""

import json
import unittest

from support import FAILED, USAGE, ServedCase


class Stat(ServedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.stored = cls.server.put("bucket", "a b/ä", b"123456789")

    def test_json(self):
        done = self.ringest("stat", "gs://bucket/a b/ä", "--json")
        info = json.loads(self.ok(done))
        self.assertEqual(done.stdout.count(b"\n"), 1)
        self.assertEqual((info["name"], info["bucket"], info["size"]), ("a b/ä", "bucket", 9))
        self.assertEqual((info["crc32c"], info["md5"]), ("4waSgw==", "JfnnlDI7RTiF9RgfG2JNCw=="))
        self.assertEqual((info["generation"], info["metageneration"]), (self.stored["generation"], "1"))
        self.assertEqual(info["metadata"], {})
        for field in ("md5", "etag", "content_type", "storage_class", "time_created", "updated", "cache_control"):
            self.assertIn(field, info)

    def test_text(self):
        text = self.ok(self.ringest("stat", "gs://bucket/a b/ä")).decode()
        self.assertTrue(text.startswith("gs://bucket/a b/ä\n"), text)
        for line in (r"size +9", r"crc32c +4waSgw==", rf"generation +{self.stored['generation']}"):
            self.assertRegex(text, line + "\n")

    def test_checksums_in_hexadecimal_digits(self):
        info = json.loads(self.ok(self.ringest("stat", "gs://bucket/a b/ä", "--json", "--hex")))
        self.assertEqual((info["crc32c"], info["md5"]), ("e3069283", "25f9e794323b453885f5181f1b624d0b"))

    def test_several(self):
        names = [f"many/{i:03}" for i in range(40)]
        for name in names:
            self.server.put("bucket", name, name.encode())
        uris = ["gs://bucket/" + name for name in names]
        lines = self.ok(self.ringest("stat", "--json", *uris)).decode().splitlines()
        self.assertEqual([json.loads(line)["name"] for line in lines], names)
        # What is not there is said, and the others are shown.
        done = self.ringest("stat", uris[0], "gs://bucket/absent", uris[1])
        self.fails(done, FAILED, "gs://bucket/absent")
        self.assertEqual(done.stdout.count(b"gs://bucket/many/"), 2)

    def test_what_is_not_there(self):
        self.fails(self.ringest("stat", "gs://bucket/absent"), FAILED, "gs://bucket/absent", "404")
        self.fails(self.ringest("stat", "gs://no-such-bucket/o"), FAILED, "gs://no-such-bucket/o")

    def test_usage(self):
        for arguments in ([], ["gs://bucket"], ["gs://bucket/a", "gs://bucket"], ["file"]):
            with self.subTest(arguments):
                self.fails(self.ringest("stat", *arguments), USAGE)


if __name__ == "__main__":
    unittest.main()
