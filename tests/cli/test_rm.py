"""`ringest rm`: named objects, trees, conditions, and what is left alone."""

import contextlib
import http.client
import http.server
import json
import ssl
import threading
import unittest
import urllib.parse

from support import DONE, FAILED, USAGE, ServedCase, closed_port, ringest


class Dated(http.server.BaseHTTPRequestHandler):
    """Has an upload that somebody began, and another idea of the time."""

    def answer(self, status, body=b""):
        self.send_response_only(status)
        self.send_header("Date", self.server.date)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if "uploads" not in self.path:
            return self.answer(200, b"{}")
        self.answer(
            200,
            b"<ListMultipartUploadsResult><Upload><Key>a</Key><UploadId>1</UploadId><Initiated>"
            + self.server.begun.encode()
            + b"</Initiated></Upload></ListMultipartUploadsResult>",
        )

    def do_DELETE(self):
        self.server.ended += 1
        self.answer(204)

    def log_message(self, *_):
        pass


class Garbled(http.server.BaseHTTPRequestHandler):
    """Answers batches in a way that nobody can read, and does what they ask if it is told to."""

    protocol_version = "HTTP/1.1"

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.obeys:
            self.server.objects.clear()
        self.answer(200, "multipart/mixed; boundary=x", b"--x\r\nnothing")

    def do_GET(self):
        items = [{"name": name, "size": "0", "generation": "7"} for name in sorted(self.server.objects)]
        self.answer(200, "application/json", json.dumps({"items": items}).encode())

    def do_DELETE(self):
        self.server.deleted.append(self.path)
        self.server.objects.clear()
        self.answer(204, "text/plain", b"")

    def log_message(self, *_):
        pass


class Remove(ServedCase):
    def setUp(self):
        self.bucket = self.own_bucket()

    def rm(self, *arguments):
        return self.ringest("rm", *arguments)

    def put(self, *names):
        for name in names:
            self.server.put(self.bucket[5:], name, name.encode())

    def names(self):
        return [
            each["name"] for each in json.loads(self.ok(self.ringest("ls", "-r", "--json", self.bucket)))["objects"]
        ]

    def leave_uploads(self, *names):
        """Of another program, which begins them and says no more."""
        place = urllib.parse.urlsplit(self.server.endpoint)
        tls = ssl.create_default_context(cafile=self.server.ca)
        with contextlib.closing(http.client.HTTPSConnection(place.hostname, place.port, context=tls)) as connection:
            for name in names:
                connection.request("POST", f"/{self.bucket[5:]}/{name}?uploads")
                answer = connection.getresponse()
                self.assertEqual((answer.status, b"<UploadId>" in answer.read()), (200, True))

    def test_unfinished_uploads(self):
        # Not every object there is a part of an upload of ours.
        parts = f".ringest-parts/{'0123456789abcdef' * 2}"
        foreign = [".ringest-parts/0123/00000", f"{parts}/notes.txt", f"{parts}x/00001"]
        self.put("a", f"{parts}/00000", f"{parts}/00001", *foreign)
        self.leave_uploads("a", "a", "run/b", "c")
        objects = self.names()
        unfinished = ("--unfinished", "--older-than=0", "--json")

        def report(*arguments):
            done = self.rm(*arguments)
            self.assertEqual(done.returncode, DONE, done.stderr)
            return json.loads(done.stdout)

        # What is young may be somebody's who is at it.
        self.assertEqual(report("--unfinished", "--json", self.bucket)["found"], 0)
        self.assertEqual(report("--unfinished", "--json", "--older-than=1h", self.bucket)["found"], 0)
        planned = self.ok(self.rm("--unfinished", "--older-than", "0s", "--dry-run", self.bucket)).decode()
        self.assertEqual((planned.count("would abort"), planned.count("would remove")), (4, 2))
        self.assertIn(f"{self.bucket}/run/b", planned)
        self.assertEqual(report(*unfinished, self.bucket + "/run"), {"found": 1, "removed": 1, "failed": 0})
        self.assertEqual(self.names(), objects)
        self.assertEqual(report(*unfinished, self.bucket), {"found": 5, "removed": 5, "failed": 0})
        self.assertEqual(self.names(), sorted([*foreign, "a"]))
        self.assertEqual(report(*unfinished, self.bucket), {"found": 0, "removed": 0, "failed": 0})

    def test_old_is_by_the_clock_of_the_server(self):
        """Whatever this machine's says: here it is years ahead, or behind."""
        for date, is_old in (("Fri, 02 Jan 2009 12:00:00 GMT", False), ("Sun, 04 Jan 2009 00:00:01 GMT", True)):
            for begun in ("2009-01-02T00:00:01.000Z", "2039-01-01T00:00:00.000Z"):
                with self.subTest(date, begun=begun), http.server.HTTPServer(("127.0.0.1", 0), Dated) as server:
                    server.date, server.begun, server.ended = date, begun, 0
                    threading.Thread(target=server.serve_forever, daemon=True).start()
                    self.ok(
                        ringest(
                            "rm", "--unfinished", "gs://bucket", "--endpoint", f"http://127.0.0.1:{server.server_port}"
                        )
                    )
                    server.shutdown()
                    self.assertEqual(server.ended, 1 if is_old and begun.startswith("2009") else 0)

    def test_many_unfinished_uploads(self):
        self.put("x")
        self.leave_uploads(*(f"{i:04d}" for i in range(1050)))
        done = self.rm("--unfinished", "--older-than=0", "--json", self.bucket + "/")
        self.assertEqual(json.loads(done.stdout), {"found": 1050, "removed": 1050, "failed": 0})

    def test_unfinished_uploads_and_other_options(self):
        for arguments in (
            ("--unfinished", "-r", self.bucket),
            ("--unfinished", "--if-generation-match=1", self.bucket + "/a"),
            ("--older-than=1d", self.bucket + "/a"),
            ("--unfinished", "--older-than=1w", self.bucket),
            ("--unfinished", "--older-than=-1s", self.bucket),
            ("--unfinished", "--older-than=", self.bucket),
        ):
            done = self.rm(*arguments)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (USAGE, 1), arguments)
        self.assertEqual(self.rm("--unfinished", "gs://no-such-bucket").returncode, FAILED)

    def test_named_objects(self):
        self.put("a", "b", "c d", "ä", "e/")
        self.ok(self.rm(self.bucket + "/a"))
        self.ok(self.rm(self.bucket + "/c d", self.bucket + "/ä", self.bucket + "/e/"))
        self.assertEqual(self.names(), ["b"])

    def test_a_tree(self):
        self.put("a", "a/b", "a/c/d", "ab", "b")
        self.ok(self.rm("-r", self.bucket + "/a"))
        self.assertEqual(self.names(), ["ab", "b"])

    def test_a_tree_by_its_folder(self):
        self.put("a", "a/b", "a/c/d", "ab")
        self.ok(self.rm("-r", self.bucket + "/a/"))
        self.assertEqual(self.names(), ["a", "ab"])

    def test_more_than_one_batch(self):
        self.put(*(f"t/{i:04}" for i in range(450)), "u")
        report = json.loads(self.ok(self.rm("-r", "--json", self.bucket + "/t")))
        self.assertEqual(report, {"found": 450, "removed": 450, "failed": 0})
        self.assertEqual(self.names(), ["u"])

    def test_a_whole_bucket(self):
        self.put("a", "b/c")
        for uri in (self.bucket, self.bucket + "/"):
            self.fails(self.rm(uri), USAGE, "got the bucket", "-r")
        self.assertEqual(self.names(), ["a", "b/c"])
        self.ok(self.rm("-r", self.bucket))
        self.assertEqual(self.names(), [])

    def test_why_something_stays(self):
        """In the service's words: no permission helps where it is held."""
        for name in ("a", "b", "c"):
            self.put(name)
        for name in ("a", "b"):
            path = f"/storage/v1/b/{self.bucket[5:]}/o/{name}"
            self.server.request("PATCH", path, b'{"temporaryHold":true}')
        done = self.rm(self.bucket + "/a")
        self.fails(done, FAILED, f"{self.bucket}/a: permission denied (HTTP 403): Object ", "is under a hold")
        self.assertNotIn("it needs", done.stderr)
        done = self.rm("-r", self.bucket)
        self.assertEqual((done.returncode, done.stderr.count("is under a hold")), (FAILED, 2), done.stderr)

    def test_who_pays_for_it(self):
        self.put("a")
        self.server.request("PATCH", f"/storage/v1/b/{self.bucket[5:]}", b'{"billing":{"requesterPays":true}}')
        self.fails(
            self.rm(self.bucket + "/a"), FAILED, "(HTTP 400): Bucket is a requester pays", "--option user_project="
        )
        self.ok(self.rm(self.bucket + "/a", "--option", "user_project=p"))

    def test_a_prefix_is_no_name(self):
        self.put("a/b")
        self.fails(self.rm(self.bucket + "/a"), FAILED, self.bucket + "/a", "no such object")
        self.assertEqual(self.names(), ["a/b"])

    def rm_garbled(self, *arguments, obeys=False):
        """What rm of gs://bucket/a says to such a server, and the removals that it asked for alone."""
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Garbled) as server:
            server.obeys, server.objects, server.deleted = obeys, {"a"}, []
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            done = ringest("rm", "gs://bucket/a", *arguments, "--endpoint", f"http://127.0.0.1:{server.server_port}")
            server.shutdown()
            thread.join()
            return done, server.deleted

    def test_an_answer_that_cannot_be_read(self):
        done, deleted = self.rm_garbled(obeys=True)
        self.assertEqual((done.returncode, done.stderr, deleted), (DONE, "", []))
        # It may be a new one by now.
        done, deleted = self.rm_garbled()
        self.fails(done, FAILED, "gs://bucket/a", "cannot be read", "--if-generation-match")
        self.assertEqual(deleted, [])
        done, deleted = self.rm_garbled("--if-generation-match=7")
        self.assertEqual((done.returncode, len(deleted)), (DONE, 1), done.stderr)

    def test_what_is_not_there(self):
        self.put("a", "b")
        done = self.rm(self.bucket + "/a", self.bucket + "/absent", self.bucket + "/b")
        self.fails(done, FAILED, self.bucket + "/absent")
        self.assertEqual(self.names(), [])
        self.fails(self.rm("-r", self.bucket + "/absent"), FAILED, "nothing below it")
        self.fails(self.rm("-r", "gs://no-such-bucket-here/x"), FAILED, "no-such-bucket-here")

    def test_nobody_listens(self):
        """Said once, not for each object."""
        names = [f"{self.bucket}/{i}" for i in range(250)]
        done = ringest("rm", *names, "--endpoint", f"http://127.0.0.1:{closed_port()}")
        self.fails(done, FAILED, self.bucket, "Connection refused")

    def test_dry_run_does_nothing(self):
        self.put("a", "t/b")
        said = self.ok(self.rm("--dry-run", self.bucket + "/a")).decode()
        self.assertEqual(said, f"would remove {self.bucket}/a\n")
        said = self.ok(self.rm("--dry-run", "-r", self.bucket)).decode()
        self.assertEqual(said.count("would remove"), 2)
        self.assertEqual(self.names(), ["a", "t/b"])

    def test_generation_conditions(self):
        self.put("a")
        self.fails(self.rm(self.bucket + "/a", "--if-generation-match=5"), FAILED, self.bucket + "/a")
        generation = json.loads(self.ok(self.ringest("stat", self.bucket + "/a", "--json")))["generation"]
        self.ok(self.rm(self.bucket + "/a", f"--if-generation-match={generation}"))
        self.assertEqual(self.names(), [])

    def test_usage(self):
        for arguments in (
            [],
            ["name"],
            [self.bucket + "/a", self.bucket + "/b", "--if-generation-match=1"],
            ["-r", self.bucket + "/a", "--if-generation-match=1"],
            [self.bucket + "/a", "--if-generation-match=-1"],
        ):
            with self.subTest(arguments):
                self.fails(self.rm(*arguments), USAGE)


if __name__ == "__main__":
    unittest.main()
