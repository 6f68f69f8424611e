"""`ringest signurl`: who has such a URL needs nothing else. Byte for byte it is compared with the official client's by
tests/gcs/credentials/test_sign_url.c."""

import json
import pathlib
import ssl
import subprocess
import tempfile
import unittest
import urllib.request

from support import FAILED, USAGE, ServedCase, environment, ringest


class Sign(ServedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        command = ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]
        pem = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        cls.key = cls.write("key.json", type="service_account", client_email="a@b.iam", private_key=pem)

    @classmethod
    def write(cls, name, **members):
        path = cls.folder / name
        path.write_text(json.dumps(members))
        return str(path)

    def sign(self, *arguments, **changes):
        return ringest("signurl", "--endpoint", self.server.endpoint, *arguments, env=environment(**changes))

    def call(self, url, data=None, method="GET"):
        request = urllib.request.Request(url, data=data, method=method)
        with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=self.server.ca)) as answer:
            return answer.read()

    def test_a_url_works(self):
        self.server.put("bucket", "a/b c%\u00e4", b"content")
        url = self.ok(self.sign("gs://bucket/a/b c%\u00e4", "--credentials", self.key)).decode().strip()
        self.assertEqual(self.call(url), b"content")
        self.assertIn("X-Goog-Expires=3600&", url)
        said = self.ok(
            self.sign(
                "gs://bucket/c",
                "gs://bucket/d*",
                "--method=PUT",
                "--duration=7d",
                GOOGLE_APPLICATION_CREDENTIALS=self.key,
            )
        )
        first, second = said.decode().splitlines()
        self.call(first, b"theirs", "PUT")
        self.assertEqual(self.ok(self.ringest("cat", "gs://bucket/c")), b"theirs")
        self.assertIn("/bucket/d%2A?", second)
        self.assertIn("X-Goog-Expires=604800&", second)

    def test_the_payer_is_signed(self):
        self.server.put("bucket", "paid", b"content")
        arguments = ["gs://bucket/paid", "--credentials", self.key, "--option", "user_project=my project"]
        url = self.ok(self.sign(*arguments)).decode().strip()
        self.assertIn("&X-Goog-SignedHeaders=host&userProject=my%20project&X-Goog-Signature=", url)
        self.assertEqual(self.call(url), b"content")
        without = self.ok(self.sign(*arguments[:3], RINGEST_USER_PROJECT="other")).decode()
        self.assertNotIn("userProject", without)

    def test_the_host_is_as_clients_send_it(self):
        for endpoint, begins in (
            ("HTTPS://Example.com:443/", "https://example.com/bucket/o?"),
            ("localhost:80", "http://localhost/bucket/o?"),
            ("http://localhost:99", "http://localhost:99/bucket/o?"),
        ):
            said = self.ok(ringest("signurl", "gs://bucket/o", "--credentials", self.key, "--endpoint", endpoint))
            self.assertTrue(said.decode().startswith(begins), said)
        said = self.ok(
            ringest("signurl", "gs://bucket/o", "--credentials", self.key, env=environment(STORAGE_EMULATOR_HOST=None))
        )
        self.assertTrue(said.startswith(b"https://storage.googleapis.com/bucket/o?"))

    def test_without_a_key(self):
        user = self.write("user.json", type="authorized_user")
        bad = self.write("bad.json", type="service_account", client_email="a@b.iam", private_key="no key")
        (self.folder / "none.json").write_text("x")
        for credentials, words in (
            (user, "has credentials of type authorized_user"),
            (bad, "private key of the service account cannot be read"),
            (str(self.folder / "none.json"), "needs the key file of a service account"),
            (str(self.folder / "absent"), "needs the key file of a service account"),
            ("anonymous", "needs the key file of a service account"),
        ):
            self.fails(self.sign("gs://bucket/o", "--credentials", credentials), FAILED, words)

    def test_usage(self):
        for arguments, words in (
            (["gs://bucket"], "needs an object"),
            ([], "needs an object"),
            (["gs://bucket/.."], "no object has the name"),
            (["gs://bucket/o", "--duration=8d"], "1s to 7d"),
            (["gs://bucket/o", "--duration=0"], "1s to 7d"),
            (["gs://bucket/o", "--duration=soon"], "--duration must be"),
            (["gs://bucket/o", "--method=get"], "--method must be"),
            (["gs://bucket/o", "--option=user_project="], "--option must be user_project=PROJECT"),
            (["gs://bucket/o", "--option=writes_per_s=3"], "--option must be user_project=PROJECT"),
            (["gs://bucket/o", "--content-type=a\nb"], "control characters"),
            (["gs://bucket/o", "--endpoint=ftp://x"], "--endpoint must be"),
        ):
            self.fails(self.sign(*arguments), USAGE, words)


if __name__ == "__main__":
    unittest.main()
