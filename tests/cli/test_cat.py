"""`ringest cat`: the bytes, whole and in part."""

import subprocess
import unittest

from support import FAILED, PROGRAM, ServedCase, environment, scatter

SMALL = scatter(1000)
# More than what one request of cat asks for, and not a multiple of it.
LARGE = scatter((20 << 20) + 12345, seed=2)
NAMES = ("with space", "per%20cent%", "ha#sh?query=1&b", "uni/ä€😀", "tab\there", "a//b/", "+plus+", ";,:@=!$'()*")


class Cat(ServedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, data in (("empty", b""), ("one", b"x"), ("small", SMALL), ("large", LARGE)):
            cls.server.put("bucket", name, data)

    def cat(self, name, *arguments):
        return self.ringest("cat", f"gs://bucket/{name}", *arguments)

    def range(self, name, text):
        return self.ok(self.cat(name, f"--range={text}"))

    def test_whole_objects(self):
        for name, data in (("empty", b""), ("one", b"x"), ("small", SMALL), ("large", LARGE)):
            with self.subTest(name):
                self.assertTrue(self.ok(self.cat(name)) == data)

    def test_ranges_of_a_small_object(self):
        for first, last in ((0, 0), (0, 9), (10, 19), (999, 999), (0, 999)):
            with self.subTest((first, last)):
                self.assertEqual(self.range("small", f"{first}-{last}"), SMALL[first : last + 1])

    def test_a_range_without_end(self):
        for first in (0, 1, 500, 999):
            self.assertEqual(self.range("small", f"{first}-"), SMALL[first:])

    def test_a_range_that_ends_behind_the_object(self):
        self.assertEqual(self.range("small", "990-5000"), SMALL[990:])
        self.assertEqual(self.range("small", "0-18446744073709551614"), SMALL)

    def test_ranges_of_a_large_object(self):
        part = 8 << 20
        for first, last in (
            (0, part - 1),
            (0, part),
            (part - 1, part),
            (part, 2 * part - 1),
            (12345, 3 * part),
            (len(LARGE) - 1, len(LARGE) - 1),
            (17, len(LARGE) + 17),
        ):
            with self.subTest((first, last)):
                self.assertTrue(self.range("large", f"{first}-{last}") == LARGE[first : last + 1])
        self.assertTrue(self.range("large", f"{part + 1}-") == LARGE[part + 1 :])

    def test_a_range_that_begins_behind_the_object(self):
        for text in ("1000-", "1000-2000", "5000-"):
            with self.subTest(text):
                self.fails(self.cat("small", f"--range={text}"), FAILED, "gs://bucket/small", "range")

    def test_names_that_need_encoding(self):
        for number, name in enumerate(NAMES):
            with self.subTest(name):
                data = scatter(100, seed=number)
                self.server.put("bucket", name, data)
                self.assertEqual(self.ok(self.cat(name)), data)

    def test_names_that_the_service_refuses(self):
        for name in ("new\nline", "carriage\rreturn", ".", ".."):
            with self.subTest(name):
                self.fails(self.cat(name), FAILED, "not a valid name")

    def test_a_missing_object(self):
        done = self.cat("nowhere")
        self.fails(done, FAILED, "gs://bucket/nowhere", "no such object", "404")
        self.assertEqual(done.stdout, b"")

    def test_a_missing_bucket(self):
        self.fails(self.ringest("cat", "gs://no-such-bucket/o"), FAILED, "gs://no-such-bucket/o")

    def test_the_endpoint_from_the_environment(self):
        env = environment(STORAGE_EMULATOR_HOST=self.server.endpoint, SSL_CERT_FILE=self.server.ca)
        done = subprocess.run(
            [PROGRAM, "cat", "gs://bucket/small"], env=env, capture_output=True, timeout=60, check=True
        )
        self.assertEqual(done.stdout, SMALL)

    def test_a_reader_that_goes_away(self):
        cat = subprocess.Popen(
            [PROGRAM, "cat", "gs://bucket/large", *self.server.place],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.assertEqual(cat.stdout.read(10), LARGE[:10])
        cat.stdout.close()
        errors = cat.stderr.read().decode()
        cat.stderr.close()
        self.assertEqual(cat.wait(60), FAILED)
        self.assertEqual(errors, "")

    def test_a_full_device(self):
        with open("/dev/full", "wb") as full:
            done = self.ringest("cat", "gs://bucket/small", stdout=full)
        self.fails(done, FAILED, "No space left")


class Several(ServedCase):
    def test_several_objects_one_after_the_other(self):
        for name in ("a", "b", "c"):
            self.server.put("bucket", name, 3 * name.encode())
        uris = [f"gs://bucket/{name}" for name in "cab"]
        self.assertEqual(self.ok(self.ringest("cat", *uris)), b"cccaaabbb")
        self.assertEqual(self.ok(self.ringest("cat", "--range=1-1", *uris)), b"cab")
        # What comes behind one that cannot be read would stand in its place.
        done = self.ringest("cat", uris[0], "gs://bucket/absent", uris[1])
        self.fails(done, FAILED, "gs://bucket/absent")
        self.assertEqual(done.stdout, b"ccc")


if __name__ == "__main__":
    unittest.main()
