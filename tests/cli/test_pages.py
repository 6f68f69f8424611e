"""Pages of lists come short, or empty with a token, as the service may send them: nothing that a command
goes through is missed, and nothing is taken for absent that is there."""

import http.server
import json
import pathlib
import tempfile
import threading
import unittest

from support import DONE, FAILED, SEED, Case, Rule, ServedCase, ringest

NAMES = ["a", "a/1", "a/2/x", "a/2/y", "b", "c/1", "c/1/deep", "d", "e.tar", "f"]
# Of the pages, each may be empty.
SEEDS = [SEED + each for each in range(4)]


class Pages(ServedCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def empty(self, seed):
        return Rule(
            (self.server.endpoint, self.server.ca),
            method="storage.objects.list",
            effect="empty",
            times=10**6,
            one_in=2,
            seed=seed,
        )

    def bucket(self, seed, names=NAMES):
        bucket = self.id().rsplit(".", 1)[1].replace("_", "-")[:50] + f"-{seed}"
        for name in names:
            self.server.put(bucket, name, name.encode())
        return "gs://" + bucket

    def names(self, bucket):
        return [each["name"] for each in json.loads(self.ok(self.ringest("ls", "-r", "--json", bucket)))["objects"]]

    def test_lists(self):
        for seed in SEEDS:
            bucket = self.bucket(seed)
            with self.empty(seed):
                self.assertEqual(self.names(bucket), NAMES)
                listed = json.loads(self.ok(self.ringest("ls", "--json", bucket)))
                self.assertEqual(listed["prefixes"], ["a/", "c/"])
                self.assertEqual([each["name"] for each in listed["objects"]], ["a", "b", "d", "e.tar", "f"])

    def test_removing_a_tree(self):
        for seed in SEEDS:
            bucket = self.bucket(seed)
            with self.empty(seed):
                self.ok(self.ringest("rm", "-r", bucket + "/a"))
            self.assertEqual(self.names(bucket), NAMES[4:])
            with self.empty(seed):
                self.ok(self.ringest("rm", "-r", bucket))
            self.assertEqual(self.names(bucket), [])

    def test_removing_what_is_one_object(self):
        for seed in SEEDS:
            bucket = self.bucket(seed)
            with self.empty(seed):
                self.ok(self.ringest("rm", "-r", bucket + "/f"))
            self.assertEqual(self.names(bucket), NAMES[:-1])
            with self.empty(seed):
                self.fails(self.ringest("rm", "-r", bucket + "/f"), FAILED, bucket + "/f")

    def test_copying_down_up_and_across(self):
        for seed in SEEDS:
            bucket = self.bucket(seed, NAMES[1:])
            with self.empty(seed):
                down = self.folder / f"down-{seed}"
                # A file and a folder of one name cannot be.
                self.assertEqual(self.ringest("cp", "-r", bucket + "/a", str(down)).returncode, DONE)
                self.assertEqual(len([each for each in down.rglob("*") if each.is_file()]), 3)
                for more in ("-copy", "-up"):
                    self.server.make_bucket(bucket[5:] + more)
                self.ok(self.ringest("cp", "-r", bucket, bucket + "-copy"))
            self.assertEqual(self.names(bucket + "-copy"), [f"{bucket[5:]}/{name}" for name in self.names(bucket)])
            for _ in range(2):
                with self.empty(seed):
                    said = json.loads(self.ok(self.ringest("cp", "-r", str(down), bucket + "-up/", "--json")))
                self.assertEqual(said["failed"], 0)
            # What is there already was found.
            self.assertEqual((said["copied"], said["skipped"]), (0, 3))

    def test_nothing_is_overwritten(self):
        for seed in SEEDS:
            bucket = self.bucket(seed, ["f"])
            path = self.folder / "f"
            path.write_bytes(b"new")
            with self.empty(seed):
                said = json.loads(self.ok(self.ringest("cp", "-n", str(path), bucket, "--json")))
            self.assertEqual((said["copied"], said["skipped"]), (0, 1))
            self.assertEqual(self.ok(self.ringest("cat", bucket + "/f")), b"f")

    def test_manifests_and_unfinished_uploads(self):
        for seed in SEEDS:
            bucket = self.bucket(seed)
            for name in ("up", "uq", "ur"):
                self.server.request("POST", f"/{bucket[5:]}/{name}?uploads", b"")
            with self.empty(seed):
                self.ok(self.ringest("manifest", "save", bucket + "/", str(self.folder / f"m-{seed}")))
                done = self.ringest("rm", "--unfinished", "--older-than=0s", bucket, "--json")
            self.assertEqual(json.loads(self.ok(done))["removed"], 3)
            left = self.server.request("GET", f"/{bucket[5:]}?uploads").decode()
            self.assertNotIn("<Upload>", left)


class Circle(http.server.BaseHTTPRequestHandler):
    """A service whose lists lead back to themselves."""

    def do_GET(self):
        self.server.seen += 1
        if "uploads" in self.path:
            body = (
                "<ListMultipartUploadsResult><NextKeyMarker>a</NextKeyMarker><NextUploadIdMarker>1</NextUploadIdMarker>"
                "<IsTruncated>true</IsTruncated></ListMultipartUploadsResult>"
            )
        else:
            body = json.dumps({"nextPageToken": "a"})
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


class Endless(Case):
    def test_lists_that_do_not_get_on_are_errors(self):
        for command, words in (
            (["rm", "--unfinished", "gs://bucket/"], "the server repeats pages"),
            (["rm", "-r", "gs://bucket/a"], "the server repeats pages"),
            (["rm", "-r", "gs://bucket/a/"], "again and again"),
            (["ls", "gs://bucket/"], "again and again"),
        ):
            with self.subTest(command), http.server.HTTPServer(("127.0.0.1", 0), Circle) as server:
                server.seen = 0
                threading.Thread(target=server.serve_forever, daemon=True).start()
                done = ringest(*command, "--endpoint", f"http://127.0.0.1:{server.server_port}")
                server.shutdown()
                self.fails(done, FAILED, words)
                self.assertLess(server.seen, 200)


if __name__ == "__main__":
    unittest.main()
