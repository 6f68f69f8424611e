"""Which URIs are taken, side by side: by the program, by requests, by what names prefixes, by checkpoints in folders, and
by the paths of the connector. They have one parser in C and one in Python; what each of them needs of a URI differs."""

import subprocess
import unittest

import ringest
import support
from ringest import _uri
from ringest._dcp_place import checkpoint_uri
from ringest.dataflux.lightning import path_utils

LONG_BUCKET, LONG_NAME = "b" * 222, "n" * 1024
USAGE = 2
# The text; whether the program, a request, a prefix, a folder of a checkpoint and a path of the connector may be it.
# None: it cannot be given to that one.
ROWS = [
    ("gs://bucket/name", True, True, True, True, True),
    ("gs://bucket/a/b c?d#e%20", True, True, True, True, True),
    ("gs://bucket//name", True, True, True, True, True),
    ("gs://bucket/\u00e9", True, True, True, True, True),
    ("gs://my_bucket-1.x/name", True, True, True, True, True),
    ("gs://Bucket/name", True, True, True, True, True),  # the service refuses it
    # A bucket alone: `ls` takes it, `stat` and requests need an object.
    ("gs://bucket/", True, True, True, False, True),
    ("gs://bucket", True, False, True, False, True),
    # Buckets have 3 characters at least, which only the program checks.
    ("gs://ab/name", False, True, True, True, True),
    (f"gs://{LONG_BUCKET}/name", True, True, True, True, True),
    (f"gs://{LONG_BUCKET}b/name", False, False, True, True, True),
    (f"gs://bucket/{LONG_NAME}", True, True, True, True, True),
    (f"gs://bucket/{LONG_NAME}n", False, False, True, True, True),
    # fsspec's other scheme, in Python only.
    ("gcs://bucket/name", False, True, True, True, True),
    ("gcs://bucket", False, False, True, False, True),
    ("gs:///name", False, False, False, False, False),
    ("gs://", False, False, False, False, False),
    ("gcs:///name", False, False, False, False, False),
    ("", False, False, False, False, False),
    ("gs:", False, False, False, False, False),
    ("gs:/bucket/name", False, False, False, False, False),
    ("GS://bucket/name", False, False, False, False, False),
    (" gs://bucket/name", False, False, False, False, False),
    ("s3://bucket/name", False, False, False, False, False),
    ("gcss://bucket/name", False, False, False, False, False),
    ("bucket/name", False, False, False, False, False),
    ("gs://bucket/a\0b", None, False, True, True, True),
    ("gs://bu\0cket/name", None, False, True, True, True),
]


def takes(function, text):
    try:
        function(text)
    except ValueError:
        return False
    return True


class Uris(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.endpoint, cls.ca = cls.enterClassContext(support.emulator())
        cls.client = cls.enterClassContext(ringest.Client(cls.endpoint, cls.ca))

    def program_takes(self, text):
        command = [support.PROGRAM, "ls", "--endpoint", self.endpoint, "--ca", self.ca, "--", text]
        return subprocess.run(command, capture_output=True, check=False).returncode != USAGE

    def request_takes(self, text):
        try:
            self.client.get(text)
        except ValueError as error:
            # The service's limits on names are said in other words, after the URI was taken apart.
            return "is not of the form" not in str(error) and "are allowed" not in str(error)
        except ringest.Error:
            pass
        return True

    def test_each_is_taken_by_whom_it_suits(self):
        for text, program, request, prefix, folder, path in ROWS:
            with self.subTest(text[:80]):
                if program is not None:
                    self.assertEqual(self.program_takes(text), program)
                self.assertEqual(self.request_takes(text), request)
                self.assertEqual(takes(_uri.split, text), prefix)
                self.assertEqual(takes(checkpoint_uri, text), folder)
                self.assertEqual(takes(path_utils.parse_gcs_path, text), path)

    def test_what_is_put_by_one_scheme_is_got_by_the_other(self):
        for text in "gs://bucket/a/b c?d#e%20", "gs://bucket//name", "gs://bucket/\u00e9", "gcs://bucket/name":
            with self.subTest(text):
                bucket, name = _uri.split(text)
                self.assertEqual(path_utils.parse_gcs_path(text), (bucket, name))
                self.client.put(text, name.encode())
                self.assertEqual(bytes(self.client.get(_uri.join(bucket, name))), name.encode())
                self.assertEqual(bytes(self.client.get(f"gcs://{bucket}/{name}")), name.encode())


if __name__ == "__main__":
    unittest.main()
