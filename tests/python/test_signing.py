"""Signed URLs: what is signed is what the service computes, and a URL works for whoever has nothing else."""

import datetime
import hashlib
import json
import os
import pathlib
import ssl
import subprocess
import tempfile
import unittest
import urllib.request

import ringest
import support
from ringest import _signing

NOW = datetime.datetime(2019, 2, 1, 9, 0, 0, tzinfo=datetime.UTC)
EMAIL = "reader@project.iam.gserviceaccount.com"
CREDENTIAL = "reader%40project.iam.gserviceaccount.com%2F20190201%2Fauto%2Fstorage%2Fgoog4_request"


def openssl(*arguments):
    return subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True).stdout


class Signing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.pem = openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048").decode()
        (cls.folder / "key.pem").write_text(cls.pem)
        (cls.folder / "public.pem").write_bytes(openssl("pkey", "-in", cls.folder / "key.pem", "-pubout"))
        cls.file = cls.write("account.json", type="service_account", client_email=EMAIL, private_key=cls.pem)

    @classmethod
    def write(cls, name, **members):
        path = cls.folder / name
        path.write_text(json.dumps(members))
        return path

    def sign(self, uri, **options):
        defaults = {"endpoint": None, "method": "GET", "expires": 10, "headers": {}, "query": {}, "now": NOW}
        return _signing.sign_url(_signing.Key(EMAIL, self.pem), uri, **{**defaults, **options})

    def check(self, url, request):
        """That the signature is of this canonical request."""
        signature = bytes.fromhex(url.rpartition("=")[2])
        digest = hashlib.sha256(request.encode()).hexdigest()
        scope = "20190201/auto/storage/goog4_request"
        (self.folder / "text").write_text(f"GOOG4-RSA-SHA256\n20190201T090000Z\n{scope}\n{digest}")
        (self.folder / "signature").write_bytes(signature)
        files = ("-verify", self.folder / "public.pem", "-signature", self.folder / "signature", self.folder / "text")
        self.assertEqual(openssl("dgst", "-sha256", *files).strip(), b"Verified OK")

    def test_what_is_signed(self):
        query = f"X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Credential={CREDENTIAL}&X-Goog-Date=20190201T090000Z"
        url = self.sign("gs://test-bucket/path/with/ä&b/file.ext")
        path = "/test-bucket/path/with/%C3%A4%26b/file.ext"
        whole = f"{query}&X-Goog-Expires=10&X-Goog-SignedHeaders=host"
        self.assertTrue(url.startswith(f"https://storage.googleapis.com{path}?{whole}&X-Goog-Signature="))
        self.check(url, f"GET\n{path}\n{whole}\nhost:storage.googleapis.com\n\nhost\nUNSIGNED-PAYLOAD")

        # As in Google's own cases: order and coding of parameters, fields in small letters with single spaces.
        url = self.sign(
            "gs://b/o",
            method="PUT",
            expires=datetime.timedelta(minutes=1),
            headers={"X-Goog-Meta": " a \t b ", "bar": "x"},
            query={"soufflé": "=%-_.~", "prefix": "/foo", "X-Goog-Meta-Foo": "bar"},
            endpoint="http://localhost:99",
        )
        whole = (
            f"{query}&X-Goog-Expires=60&X-Goog-Meta-Foo=bar&X-Goog-SignedHeaders=bar%3Bhost%3Bx-goog-meta"
            "&prefix=%2Ffoo&souffl%C3%A9=%3D%25-_.~"
        )
        self.assertTrue(url.startswith(f"http://localhost:99/b/o?{whole}&X-Goog-Signature="))
        fields = "bar:x\nhost:localhost:99\nx-goog-meta:a b\n"
        self.check(url, f"PUT\n/b/o\n{whole}\n{fields}\nbar;host;x-goog-meta\nUNSIGNED-PAYLOAD")

    def test_the_host_is_signed_as_clients_send_it(self):
        """They leave out the port that a scheme has by default."""
        for endpoint, scheme, host in (
            ("https://storage.googleapis.com:443", "https", "storage.googleapis.com"),
            ("https://Storage.GoogleAPIs.com/", "https", "storage.googleapis.com"),
            ("https://[::1]:443", "https", "[::1]"),
            ("http://[::1]:443", "http", "[::1]:443"),
            ("http://localhost:80", "http", "localhost"),
            ("https://localhost:80", "https", "localhost:80"),
            ("localhost:8443", "http", "localhost:8443"),
        ):
            url = self.sign("gs://b/o", endpoint=endpoint)
            query = url.partition("?")[2].rpartition("&")[0]
            self.assertTrue(url.startswith(f"{scheme}://{host}/b/o?"), url)
            self.check(url, f"GET\n/b/o\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD")

    def test_a_url_works(self):
        with support.emulator() as (endpoint, ca):

            def call(url, data=None, method="GET"):
                request = urllib.request.Request(url, data, method=method)
                return urllib.request.urlopen(request, context=ssl.create_default_context(cafile=ca)).read()

            with ringest.Client(endpoint, ca) as plain:
                plain.put("gs://mine/a b", b"content")
            with ringest.Client(endpoint, ca, credentials=self.file) as client:
                self.assertEqual(call(client.sign_url("gs://mine/a b")), b"content")
                self.assertNotIn("userProject", client.sign_url("gs://mine/a b"))
                call(client.sign_url("gs://mine/c", method="PUT"), b"theirs", "PUT")
            with ringest.Client(endpoint, ca, credentials=self.file, user_project="payer") as client:
                url = client.sign_url("gs://mine/a b")
                self.assertEqual(call(url), b"content")
                self.assertIn("&userProject=payer&X-Goog-Signature=", url)
                self.assertIn("&userProject=other&", client.sign_url("gs://mine/a b", query={"userProject": "other"}))
            with ringest.Client(endpoint, ca) as plain:
                self.assertEqual(plain.get("gs://mine/c"), b"theirs")

    def test_where_the_key_is_found(self):
        before = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
        os.environ["GOOGLE_APPLICATION_CREDENTIALS"] = str(self.file)
        try:
            self.assertIn(CREDENTIAL[:20], ringest.Client().sign_url("gs://bucket/o"))
        finally:
            del os.environ["GOOGLE_APPLICATION_CREDENTIALS"]
            if before is not None:
                os.environ["GOOGLE_APPLICATION_CREDENTIALS"] = before

    def refused(self, kind, text, credentials, uri="gs://bucket/o", **options):
        with self.subTest(text), self.assertRaises(kind) as raised:
            ringest.Client(credentials=credentials).sign_url(uri, **options)
        self.assertIn(text, str(raised.exception))
        self.assertNotIn("PRIVATE KEY", str(raised.exception))

    def test_names_and_fields_that_are_refused(self):
        for name in (".", "..", "a\nb", "a\0", "x" * 1025):
            with self.assertRaisesRegex(ValueError, "no object has this name"):
                self.sign(f"gs://bucket/{name}")
        made = ringest.Client("http://localhost:1", credentials=self.file)
        for options, error, text in (
            ({"headers": {"a b": "c"}}, ValueError, "headers has 'a b'"),
            ({"headers": {"a": "b\nc"}}, ValueError, "headers has 'a'"),
            ({"headers": {"a": 5}}, TypeError, "headers must be a dict of str, and has 'a' of type int"),
            ({"headers": 5}, TypeError, "headers must be a dict of str"),
            ({"query": {"a": 5}}, TypeError, "query must be a dict of str, and has 'a' of type int"),
        ):
            with self.assertRaisesRegex(error, text):
                made.sign_url("gs://bucket/a", **options)

    def test_what_is_refused(self):
        remedy = "sign_url needs the key of a service account: Client(credentials=FILE)"
        user = self.write("user.json", type="authorized_user", client_id="x", refresh_token="secret")
        self.refused(ValueError, f"user.json has credentials of type 'authorized_user'; {remedy}", user)
        self.refused(ValueError, remedy, "anonymous")
        self.refused(FileNotFoundError, remedy, self.folder / "none.json")
        self.refused(ValueError, "is no JSON", self.folder / "key.pem")
        bad = self.write("bad.json", type="service_account", client_email=EMAIL, private_key="text")
        self.refused(ValueError, "no RSA private key in PEM", bad)
        self.refused(ValueError, "expires must be 1 to 604800 seconds (a week), got 604801", self.file, expires=604801)
        self.refused(TypeError, "expires must be a number of seconds, got '1h'", self.file, expires="1h")
        self.refused(ValueError, "method must be one of 'GET'", self.file, method="FETCH")
        self.refused(ValueError, "is not of the form gs://BUCKET/NAME", self.file, "https://bucket/o")


if __name__ == "__main__":
    unittest.main()
