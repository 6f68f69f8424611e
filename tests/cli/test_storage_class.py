"""`--storage-class` of cp, mv and rsync: of what is written, of what is there already, and of an object alone."""

import json
import pathlib
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.parse

from support import DONE, FAILED, FAULTS, PATIENCE_S, PROGRAM, USAGE, Rule, ServedCase, environment

DATA = b"the bytes of an object"
# All that a copy of the server takes over from its source.
SAID = {
    "contentType": "text/x-test",
    "contentEncoding": "identity",
    "contentDisposition": "inline",
    "contentLanguage": "de",
    "cacheControl": "no-store",
    "customTime": "2026-01-02T03:04:05Z",
    "metadata": {"k": "v", "ünï": "cödé"},
    "contexts": {"custom": {"team": {"value": "vision"}}},
}


class StorageClass(ServedCase):
    def setUp(self):
        self.bucket = self.own_bucket()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.at = (self.server.endpoint, self.server.ca)

    def put(self, name, data=DATA, said=None):
        self.server.put(self.bucket[5:], name, data)
        if said:
            self.server.request("PATCH", self.path(name), json.dumps(said).encode())
        return self.info(name)["generation"]

    def path(self, name):
        return f"/storage/v1/b/{self.bucket[5:]}/o/{urllib.parse.quote(name, safe='')}"

    def info(self, name):
        return json.loads(self.server.request("GET", self.path(name)))

    def classes(self):
        listed = json.loads(self.server.request("GET", f"/storage/v1/b/{self.bucket[5:]}/o"))
        return {item["name"]: item["storageClass"] for item in listed.get("items", [])}

    def counts(self, command, *arguments):
        done = self.ringest(command, *arguments, "--json")
        self.assertEqual(done.returncode, DONE, done.stderr)
        report = json.loads(done.stdout)
        return report["copied"], report["updated"], report["skipped"]

    def test_of_copies(self):
        self.put("a/1")
        self.put("a/2")
        self.assertEqual(self.counts("cp", "-r", "-s", "NEARLINE", self.bucket + "/a", self.bucket + "/b"), (2, 0, 0))
        self.assertEqual(self.counts("cp", "-r", "-s", "nearline", self.bucket + "/a", self.bucket + "/b"), (0, 0, 2))
        self.assertEqual(self.counts("cp", self.bucket + "/b/1", self.bucket + "/c"), (1, 0, 0))
        self.assertEqual(self.counts("mv", "-s", "ARCHIVE", self.bucket + "/a/1", self.bucket + "/d"), (1, 0, 0))
        self.assertEqual(
            self.classes(),
            {"a/2": "STANDARD", "b/1": "NEARLINE", "b/2": "NEARLINE", "c": "STANDARD", "d": "ARCHIVE"},
        )

    def test_of_files(self):
        (self.folder / "f").write_bytes(DATA)
        for name, command in (("f", "cp"), ("g", "cp"), ("h", "mv")):
            (self.folder / name).write_bytes(DATA)
            self.assertEqual(self.counts(command, "-s", "COLDLINE", self.folder / name, self.bucket), (1, 0, 0))
        self.assertEqual(self.classes(), {"f": "COLDLINE", "g": "COLDLINE", "h": "COLDLINE"})
        # What is there gets another without being sent again, once.
        for updated in (1, 0):
            counted = self.counts("cp", "--storage-class=NEARLINE", self.folder / "f", self.bucket)
            self.assertEqual(counted, (0, updated, 1 - updated))
        self.assertEqual(self.counts("mv", "-s", "NEARLINE", self.folder / "g", self.bucket), (1, 0, 0))
        self.assertFalse((self.folder / "g").exists())
        self.assertEqual(self.classes(), {"f": "NEARLINE", "g": "NEARLINE", "h": "COLDLINE"})

    def test_of_a_sync(self):
        self.put("a/1")
        self.put("a/2")
        self.put("b/1")
        arguments = ("rsync", "-s", "NEARLINE", self.bucket + "/a", self.bucket + "/b")
        self.assertEqual(self.counts(*arguments), (1, 1, 0))
        self.assertEqual(self.counts(*arguments), (0, 0, 2))
        self.assertEqual(self.classes(), {"a/1": "STANDARD", "a/2": "STANDARD", "b/1": "NEARLINE", "b/2": "NEARLINE"})

    def test_of_large_files_with_a_condition(self):
        """No temporary objects of a class that is paid for a month; the service joins only what has one class."""
        (self.folder / "f").write_bytes(bytes(9 << 20))
        for name, options in (("f", ()), ("g", ("--method=compose",))):
            with Rule(self.at, method="storage.objects.compose", nth=0) as rule:
                counted = self.counts(
                    "cp", "-n", "-s", "COLDLINE", *options, self.folder / "f", f"{self.bucket}/{name}"
                )
                self.assertEqual((counted, rule.state()["seen"] > 0), ((1, 0, 0), bool(options)))
        self.assertEqual(self.classes(), {"f": "COLDLINE", "g": "COLDLINE"})

    def test_of_an_object_alone(self):
        """To its own place: the bytes and all else that is said of it stay."""
        self.put("x/o", said=SAID)
        self.put("x/deep/p")
        before = self.info("x/o")
        self.assertEqual(self.counts("cp", "-r", "-s", "NEARLINE", self.bucket + "/x", self.bucket + "/x"), (0, 2, 0))
        after = self.info("x/o")
        self.assertEqual(after["storageClass"], "NEARLINE")
        self.assertNotEqual(after["generation"], before["generation"])
        for name in (*SAID, "size", "crc32c", "md5Hash"):
            if name != "contexts":
                self.assertEqual(after[name], before[name], name)
        self.assertEqual(after["contexts"]["custom"]["team"]["value"], "vision")
        self.assertEqual(self.ringest("cat", self.bucket + "/x/o").stdout, DATA)
        # With metadata beside it, one after the other.
        arguments = ("cp", "-s", "COLDLINE", "--custom-metadata=k=w", "--content-type=text/y")
        self.assertEqual(self.counts(*arguments, self.bucket + "/x/o", self.bucket + "/x/o"), (0, 1, 0))
        last = self.info("x/o")
        self.assertEqual((last["storageClass"], last["contentType"]), ("COLDLINE", "text/y"))
        self.assertEqual(last["metadata"], {**SAID["metadata"], "k": "w"})
        # An object whose name ends in "/" and one without a type.
        self.server.put(self.bucket[5:], "m/", b"")
        self.assertEqual(self.counts("cp", "-r", "-s", "NEARLINE", self.bucket + "/m", self.bucket + "/m"), (0, 1, 0))
        self.assertEqual(self.classes()["m/"], "NEARLINE")

    def run_with(self, rule, change, *arguments):
        """The program, with `change` made while the request that the rule holds waits."""
        with Rule(self.at, answer="held", **rule) as held:
            process = subprocess.Popen(
                [PROGRAM, *arguments, *self.server.place], env=environment(), stderr=subprocess.PIPE
            )
            held.wait()
            change()
        _, errors = process.communicate(timeout=PATIENCE_S)
        return process.returncode, errors.decode()

    def test_somebody_else_s_object_is_not_written_over(self):
        """Whenever it comes: before the class is looked at, before it is changed, and while it is."""
        place = self.bucket + "/o"
        for rule in (
            {"method": "storage.objects.get"},
            {"method": "storage.objects.get", "nth": 2},
            {"method": "storage.objects.rewrite", "effect": "later"},
            {"method": "storage.objects.rewrite", "effect": "none"},
        ):
            self.put("o")
            status, errors = self.run_with(rule, lambda: self.put("o", b"newer"), "cp", "-s", "NEARLINE", place, place)
            self.assertEqual((status, errors.count("\n")), (FAILED, 1), (rule, errors))
            self.assertIn("changed by somebody else", errors)
            self.assertEqual(self.ringest("cat", place).stdout, b"newer", rule)
            self.assertEqual(self.info("o")["storageClass"], "STANDARD")

    def test_somebody_else_s_metadata_are_not_written_over(self):
        place = self.bucket + "/o"
        self.put("o", said=SAID)

        def change():
            self.server.request("PATCH", self.path("o"), b'{"metadata":{"k":"newer"}}')

        rule = {"method": "storage.objects.rewrite", "effect": "later"}
        status, errors = self.run_with(rule, change, "cp", "-s", "NEARLINE", place, place)
        self.assertEqual(status, FAILED)
        self.assertIn("changed by somebody else", errors)
        self.assertEqual(self.info("o")["metadata"]["k"], "newer")

    def test_an_old_version_does_not_come_back(self):
        """Of a bucket that keeps versions, the one that was listed is still there when somebody has written another."""
        self.server.request("PATCH", f"/storage/v1/b/{self.bucket[5:]}", b'{"versioning":{"enabled":true}}')
        place = self.bucket + "/o"
        for arguments in (("-s", "NEARLINE"), ()):
            for name in ("o", "p"):
                self.put(name)
            # The source is looked for first, then what is at the destination.
            rule = {"method": "storage.objects.list"}
            status, errors = self.run_with(rule, lambda: self.put("o", b"newer"), "cp", *arguments, place, place)
            self.assertEqual(self.ringest("cat", place).stdout, b"newer", (arguments, errors))
            self.assertEqual(status, FAILED, errors)

    def make_bucket(self, name, **settings):
        """One more, with these settings; returns its URI."""
        name = f"{self.bucket[5:]}-{name}"
        self.server.request("POST", "/storage/v1/b", json.dumps({"name": name, **settings}).encode())
        return f"gs://{name}"

    def test_autoclass(self):
        """The bucket chooses: it is said once, and nothing more is copied for nothing."""
        bucket = self.make_bucket("auto", autoclass={"enabled": True})
        for name in range(200):
            self.server.put(bucket[5:], f"x/{name}", DATA)
        self.put("o")
        path = f"/storage/v1/b/{bucket[5:]}/o"

        def untouched():
            listed = json.loads(self.server.request("GET", f"{path}?prefix=x/"))["items"]
            self.assertEqual({item["storageClass"] for item in listed}, {"STANDARD"})
            return sum(item["generation"] == before[item["name"]] for item in listed)

        before = {item["name"]: item["generation"] for item in json.loads(self.server.request("GET", path))["items"]}
        for arguments in (
            ("cp", "-r", "-s", "NEARLINE", "--concurrency=4", bucket + "/x", bucket + "/x"),
            ("cp", "-s", "NEARLINE", self.bucket + "/o", bucket),
            ("mv", "-s", "NEARLINE", self.bucket + "/o", bucket),
        ):
            done = self.ringest(*arguments)
            self.fails(done, FAILED, "the storage class STANDARD instead of NEARLINE", "leave --storage-class out")
        self.assertGreater(untouched(), 150)
        self.assertEqual(self.classes(), {"o": "STANDARD"})  # the source of the move
        for name in range(200):
            (self.folder / str(name)).write_bytes(DATA)
        for command in ("cp", "mv"):
            done = self.ringest(command, "-r", "-s", "NEARLINE", "--concurrency=4", self.folder, f"{bucket}/{command}")
            self.fails(done, FAILED, "the storage class STANDARD instead of NEARLINE", "leave --storage-class out")
        kept = list(self.folder.iterdir())
        self.assertGreater(len(kept), 150)
        left = kept[0]
        # Who may write and not read is not told.
        with Rule(self.at, bucket=bucket[5:], method="storage.objects.get", answer="failed", status=403):
            self.assertEqual(self.counts("cp", "-s", "NEARLINE", left, bucket + "/y"), (1, 0, 0))
        self.assertEqual(self.counts("mv", self.bucket + "/o", bucket), (1, 0, 0))

    def from_input(self, *arguments):
        command = [PROGRAM, "cp", "-", *arguments, *self.server.place]
        done = subprocess.run(command, input=DATA, env=environment(), capture_output=True, timeout=PATIENCE_S)
        return done.returncode, done.stderr.decode()

    def test_of_standard_input(self):
        """It is looked at, as files are."""
        status, errors = self.from_input(self.bucket + "/o", "-s", "NEARLINE")
        self.assertEqual((status, self.classes()), (DONE, {"o": "NEARLINE"}), errors)
        bucket = self.make_bucket("auto", autoclass={"enabled": True})
        for arguments in ((), ("--json",), ("-n",)):
            status, errors = self.from_input(bucket + "/o", "-s", "NEARLINE", *arguments)
            if arguments == ("-n",):
                self.assertEqual(status, DONE, errors)  # what is there is somebody's
                continue
            self.assertEqual(status, FAILED, errors)
            self.assertIn("the storage class STANDARD instead of NEARLINE", errors)
            self.assertEqual(self.ringest("cat", bucket + "/o").stdout, DATA)
        # Who may write and not read is not told.
        with Rule(self.at, bucket=bucket[5:], method="storage.objects.get", answer="failed", status=403, times=2):
            self.assertEqual(self.from_input(bucket + "/y", "-s", "NEARLINE")[0], DONE)

    def test_autoclass_after_a_lost_answer(self):
        """What is there then is ours, and has the bucket's class: nobody else has changed anything."""
        bucket = self.make_bucket("lost", autoclass={"enabled": True})
        for arguments in (("cp", bucket + "/o", bucket + "/o"), ("cp", self.bucket + "/o", bucket + "/p")):
            self.put("o")
            self.server.put(bucket[5:], "o", DATA)
            with Rule(self.at, method="storage.objects.rewrite", answer="dropped") as rule:
                done = self.ringest(*arguments, "-s", "NEARLINE")
                self.assertEqual(rule.state()["struck"], 1)
            self.fails(done, FAILED, "the storage class STANDARD instead of NEARLINE", "leave --storage-class out")
            self.assertNotIn("somebody else", done.stderr)
            self.assertEqual(self.ringest("cat", arguments[-1]).stdout, DATA)

    def test_dry_run(self):
        """Says what would get another class, and what has it."""
        for name in ("a/1", "a/2", "a/3", "b/1", "b/2"):
            self.put(name)
        self.counts("cp", "-s", "NEARLINE", self.bucket + "/b/2", self.bucket + "/b/2")
        (self.folder / "1").write_bytes(DATA)
        (self.folder / "2").write_bytes(DATA)
        before = self.classes()
        one = f"would update {self.bucket}/b/1\n"
        arguments = ("-s", "NEARLINE", self.bucket + "/a", self.bucket + "/b")
        for command in ("rsync", "cp"):
            options = ("-r",) if command == "cp" else ()
            done = self.ringest(command, "--dry-run", *options, *arguments)
            self.assertEqual(done.returncode, DONE, done.stderr)
            self.assertEqual(done.summary, "dry run: 1 would be copied (22 B), 1 updated, 1 skipped, 0 failed\n")
            copied = f"would copy {self.bucket}/a/3 to {self.bucket}/b/3\n"
            self.assertEqual(sorted(done.stdout.decode().splitlines(True)), [copied, one])
            report = json.loads(
                self.ringest(command, "--dry-run", "--json", *options, *arguments).stdout.splitlines()[-1]
            )
            self.assertEqual([report[key] for key in ("planned", "copied", "updated", "skipped")], [1, 0, 1, 1])
        done = self.ringest("rsync", "--dry-run", "-s", "NEARLINE", self.folder, self.bucket + "/b")
        self.assertEqual(done.stdout.decode(), one)
        self.assertEqual(done.summary, "dry run: 0 would be copied (0 B), 1 updated, 1 skipped, 0 failed\n")
        self.assertEqual(self.classes(), before)
        # What it said is what happens.
        self.assertEqual(self.counts("rsync", "-s", "NEARLINE", self.folder, self.bucket + "/b"), (0, 1, 1))
        self.assertEqual(self.counts("rsync", *arguments), (1, 0, 2))

    def test_access_stays(self):
        """An object's own list, where it may be read: a copy would have the bucket's default."""
        said = {"acl": [{"entity": "allUsers", "role": "READER"}, {"entity": "user-a@example.com", "role": "OWNER"}]}
        self.put("o", said=said)

        def access(name):
            info = json.loads(self.server.request("GET", self.path(name) + "?projection=full"))
            return {(entry["entity"], entry["role"]) for entry in info.get("acl", [])}

        before = access("o")
        self.assertIn(("allUsers", "READER"), before)
        self.assertEqual(self.counts("cp", "-s", "NEARLINE", self.bucket + "/o", self.bucket + "/o"), (0, 1, 0))
        self.assertEqual((access("o"), self.classes()["o"]), (before, "NEARLINE"))
        # To another place it is the bucket's, as of every copy.
        self.assertEqual(self.counts("cp", "-s", "NEARLINE", self.bucket + "/o", self.bucket + "/p"), (1, 0, 0))
        self.assertNotIn(("allUsers", "READER"), access("p"))
        # One whose buckets alone say who has access.
        uniform = self.make_bucket("uniform", iamConfiguration={"uniformBucketLevelAccess": {"enabled": True}})
        self.server.put(uniform[5:], "o", DATA)
        self.assertEqual(self.counts("cp", "-s", "NEARLINE", uniform + "/o", uniform + "/o"), (0, 1, 0))

    def test_with_every_fault(self):
        place = self.bucket + "/o"
        for name, fault in FAULTS.items():
            for nth in (1, 2, 3, 4):
                self.put("o", DATA + name.encode(), said=SAID)
                # A class is told at the second try, too, where the first one's answer was lost.
                with Rule(self.at, bucket=self.bucket[5:], nth=nth, **fault):
                    done = self.ringest("cp", "-s", "NEARLINE", place, place)
                    self.assertEqual(done.returncode, DONE, (name, nth, done.stderr))
                info = self.info("o")
                self.assertEqual((info["storageClass"], info["metadata"]), ("NEARLINE", SAID["metadata"]), (name, nth))
                self.assertEqual(self.ringest("cat", place).stdout, DATA + name.encode())

    def test_what_does_not_work(self):
        self.put("o")
        place = self.bucket + "/o"
        for arguments, status, text in (
            (("cp", "-s", "", place, place), USAGE, "--storage-class needs a class, such as NEARLINE"),
            (("cp", "-s", "NEARLINE", place, self.folder), USAGE, "is a file"),
            (("cp", "-s", "nearlin", place, place), FAILED, "The storage class is not STANDARD, NEARLINE"),
            (("cp", "-s", "NEAR LINE", place, self.bucket + "/p"), USAGE, "--storage-class is one word"),
            (("mv", "-s", "NEARLINE", place, place), FAILED, "cannot be moved to itself"),
            (("cp", "-s", "NEARLINE", self.bucket + "/none", self.bucket + "/none"), FAILED, "/none"),
        ):
            done = self.ringest(*arguments)
            self.assertEqual(done.returncode, status, (arguments, done.stderr))
            self.assertIn(text, done.stderr)
        self.assertEqual(self.classes(), {"o": "STANDARD"})
        self.assertRaises(urllib.error.HTTPError, self.info, "p")


if __name__ == "__main__":
    unittest.main()
