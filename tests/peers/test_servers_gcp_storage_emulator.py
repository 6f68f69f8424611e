"""Our program against gcp-storage-emulator (oittaa's, in Python), which speaks HTTP/1.0 and ends the
connection after every answer. What it cannot do is in WhatItCannotDo, so that we notice when it can."""

import http.client
import os
import sys
import unittest
import urllib.request

import servers
from servers import LARGE, SMALL, Common, ServerCase
from support import PATIENCE_S

PROGRAM = os.path.join(sys.prefix, "bin", "gcp-storage-emulator")


class GcpStorageEmulator(ServerCase):
    sizes = {"small": SMALL, "large": LARGE}
    # It serves one connection after the other, and a connection opened ahead keeps it from all others.
    concurrency = ("--concurrency", "1")
    verify = ()  # wants generations

    @classmethod
    def setUpClass(cls):
        port = servers.free_port()
        cls.endpoint = f"http://127.0.0.1:{port}"
        command = [PROGRAM, "start", "--host", "127.0.0.1", "--port", str(port), "--in-memory"]
        cls.port = cls.enterClassContext(servers.Server(command, port)).port
        cls.fill()


class TheProgram(GcpStorageEmulator, Common):
    pass


class WhatItCannotDo(GcpStorageEmulator):
    def test_connections_are_not_kept(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET", "/storage/v1/b/bucket/o/sizes%2Fsmall?alt=media")
        answer = connection.getresponse()
        self.assertEqual((answer.version, answer.status), (10, 200))
        self.assertTrue(answer.will_close)
        connection.close()

    def test_empty_objects_end_the_connection_without_an_answer(self):
        with self.assertRaises(ConnectionError):
            self.store("bucket", "empty", b"")

    def test_reads_tell_no_generation(self):
        with urllib.request.urlopen(self.endpoint + "/storage/v1/b/bucket/o/sizes%2Fsmall?alt=media") as answer:
            self.assertIsNone(answer.headers["x-goog-generation"])

    def test_conditions_are_ignored(self):
        self.store("bucket", "kept", b"x")
        self.assertEqual(self.request("GET", "/storage/v1/b/bucket/o/kept?ifGenerationMatch=1")[0], 200)

    def test_answers_of_a_batch_do_not_tell_whose_they_are(self):
        self.store("bucket", "gone", b"x")
        part = "Content-Type: application/http\r\nContent-ID: <1>\r\n\r\nDELETE /storage/v1/b/bucket/o/gone HTTP/1.1\r\n\r\n"
        body = f"--x\r\n{part}\r\n--x--\r\n".encode()
        status, answer = self.request(
            "POST", "/batch/storage/v1", body, {"Content-Type": "multipart/mixed; boundary=x"}
        )
        self.assertEqual(status, 200)
        self.assertNotIn(b"Content-ID", answer)

    def test_multipart_uploads_of_the_xml_api(self):
        self.assertEqual(self.request("POST", "/bucket/parts?uploads", b"")[0], 501)

    def test_there_are_no_pages(self):
        _, body = self.request("GET", "/storage/v1/b/bucket/o?maxResults=2&prefix=names/")
        self.assertEqual(body.count(b'"storage#object"'), 6)


if __name__ == "__main__":
    unittest.main()
