"""Wildcards in arguments: what matches, what is asked of the server for it, and names that have such characters."""

import json
import pathlib
import tempfile
import unittest

from support import DONE, FAILED, USAGE, ServedCase

NAMES = ("a/1.jpg", "a/2.txt", "a/b/3.jpg", "b/1.jpg", "b/x/y/1.jpg", "q?", "st*r", "star", "top.jpg")


class Wildcards(ServedCase):
    def setUp(self):
        self.bucket = self.own_bucket()
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in NAMES:
            self.server.put(self.bucket[5:], name, name.encode())

    def ls(self, pattern, *options):
        lines = self.ok(self.ringest("ls", f"{self.bucket}/{pattern}", *options)).decode().splitlines()
        return [line.removeprefix(self.bucket + "/") for line in lines]

    def files(self):
        return {
            path.relative_to(self.folder).as_posix(): path.read_text()
            for path in self.folder.rglob("*")
            if path.is_file()
        }

    def test_what_is_listed(self):
        for pattern, matched in (
            ("*", ["q?", "st*r", "star", "top.jpg", "a/", "b/"]),
            ("**", list(NAMES)),
            ("**.jpg", [name for name in NAMES if name.endswith(".jpg")]),
            ("**/1.jpg", ["a/1.jpg", "b/1.jpg", "b/x/y/1.jpg"]),
            ("*/1.jpg", ["a/1.jpg", "b/1.jpg"]),
            ("*/*", ["a/1.jpg", "a/2.txt", "a/b/", "b/1.jpg", "b/x/"]),
            ("[ab]/?/", ["a/b/3.jpg", "b/x/y/"]),
            ("*/x/y/[0-9].jpg", ["b/x/y/1.jpg"]),
            ("*/x/y", ["b/x/y/"]),
            ("a/[!1]*", ["a/2.txt", "a/b/"]),
            ("st?r", ["st*r", "star"]),
            ("st[*]r", ["st*r"]),
            ("q[?]", ["q?"]),
        ):
            with self.subTest(pattern):
                self.assertEqual(self.ls(pattern), matched)
        self.assertEqual(self.ls("a*", "-r"), ["a/1.jpg", "a/2.txt", "a/b/3.jpg"])
        self.assertEqual(self.ls("st*r", "--literal"), ["st*r"])
        listed = json.loads(self.ok(self.ringest("ls", "--json", self.bucket + "/*/1.jpg", "--hex")))
        self.assertEqual([each["name"] for each in listed["objects"]], ["a/1.jpg", "b/1.jpg"])

    def test_what_is_asked_of_the_server(self):
        """Folders that do not match are not read: a page for the level, and one for each that does."""

        def requests(*words):
            done = self.ringest(*words, "--log", "debug", "--option", "hedging=false")
            self.assertEqual(done.returncode, DONE, done.stderr)
            return done.stderr.count(": pool -> out")

        many = {f"deep/{i}/{j}" for i in range(3) for j in range(4)}
        for name in many:
            self.server.put(self.bucket[5:], name, b"")
        before = requests("ls", f"{self.bucket}/none", "--json")
        self.assertEqual(requests("ls", f"{self.bucket}/de*"), before)
        self.assertEqual(requests("ls", f"{self.bucket}/a/*"), before)
        self.assertEqual(requests("ls", f"{self.bucket}/deep/*/1"), 4 * before)

    def test_objects_are_read(self):
        self.assertEqual(
            self.ok(self.ringest("cat", self.bucket + "/a/*", self.bucket + "/star")), b"a/1.jpga/2.txtstar"
        )
        self.assertEqual(self.ok(self.ringest("cat", "--literal", self.bucket + "/st*r")), b"st*r")
        lines = self.ok(self.ringest("stat", "--json", self.bucket + "/*/1.jpg")).decode().splitlines()
        self.assertEqual([json.loads(line)["name"] for line in lines], ["a/1.jpg", "b/1.jpg"])

    def test_copies(self):
        done = self.ringest("cp", self.bucket + "/**.txt", self.bucket + "/st*r", self.folder)
        self.ok(done)
        self.assertEqual(self.files(), {"2.txt": "a/2.txt", "st*r": "st*r", "star": "star"})

    def test_folders_are_copied_with_r_only(self):
        done = self.ringest("cp", self.bucket + "/[ab]*", self.folder / "out")
        self.fails(done, FAILED, "only folders match; copy them with -r")
        self.assertEqual(self.files(), {})
        done = self.ringest("cp", self.bucket + "/[abt]*", self.folder / "top")
        self.assertEqual((done.returncode, self.files()), (DONE, {"top/top.jpg": "top.jpg"}))
        self.assertIn("2 folders skipped; -r copies", done.stderr)
        self.ok(self.ringest("cp", "-r", self.bucket + "/[ab]*", self.folder / "out"))
        self.assertEqual(
            set(self.files()) - {"top/top.jpg"}, {"out/" + name for name in NAMES if name[:2] in ("a/", "b/")}
        )

    def test_two_that_go_to_one_file(self):
        """The first one stays, and the others are said."""
        done = self.ringest("cp", self.bucket + "/**/1.jpg", self.folder / "out")
        self.assertEqual((done.returncode, self.files()), (FAILED, {"out/1.jpg": "a/1.jpg"}))
        self.assertEqual(done.stderr.count("is taken by another source"), 2)

    def test_between_buckets(self):
        other = self.bucket + "-2"
        self.server.make_bucket(other[5:])
        self.ok(self.ringest("cp", "-r", self.bucket + "/[ab]", other))
        self.assertEqual(
            self.ok(self.ringest("ls", "-r", other)).decode().splitlines(),
            [f"{other}/{name}" for name in NAMES if name[:2] in ("a/", "b/")],
        )

    def test_names_that_lead_elsewhere(self):
        for name in ("e/..", "e/.", "e//f", "e/../../out", "e/.x.ringest-part", "../up", "/root"):
            self.server.put(self.bucket[5:], name, b"x")
        target = self.folder / "in" / "side"
        for words in (
            ("cp", "-r", self.bucket + "/*"),
            ("cp", self.bucket + "/e/**"),
            ("cp", "-r", self.bucket + "/e*/*"),
        ):
            done = self.ringest(*words, target)
            self.assertEqual(done.returncode, FAILED)
            self.assertEqual([name for name in self.files() if not name.startswith("in/side/")], [], words)

    def test_removes(self):
        self.assertEqual(
            self.ok(self.ringest("rm", "--dry-run", self.bucket + "/**.jpg", self.bucket + "/a/1.jpg")).count(b"\n"), 5
        )
        done = self.ringest("rm", self.bucket + "/*", self.bucket + "/st*", "--json")
        self.assertEqual(json.loads(done.stdout), {"found": 4, "removed": 4, "failed": 0})
        self.assertIn("2 folders skipped; -r removes", done.stderr)
        self.assertEqual(self.ls("**"), [name for name in NAMES if name[:2] in ("a/", "b/")])
        done = self.ringest("rm", "-r", self.bucket + "/b*", self.bucket + "/b", self.bucket + "/none", "--json")
        self.assertEqual(json.loads(done.stdout), {"found": 2, "removed": 2, "failed": 1})
        self.assertEqual(self.ls("**"), ["a/1.jpg", "a/2.txt", "a/b/3.jpg"])

    def test_a_name_from_a_list_is_itself_only(self):
        self.ok(self.ringest("rm", "--literal", self.bucket + "/st*r"))
        self.assertEqual(self.ls("st*"), ["star"])

    def test_usage(self):
        self.fails(self.ringest("cat", "gs://buck*/a"), USAGE, "the name of a bucket cannot have wildcards")
        self.fails(self.ringest("rm", self.bucket + "/a*"), FAILED, "only folders match; -r removes")
        self.fails(self.ringest("rm", self.bucket + "/*", "--if-generation-match=5"), USAGE, "wildcards")
        self.fails(self.ringest("cp", self.bucket + "/*", "-"), USAGE, "wildcards")
        self.fails(self.ringest("cp", self.bucket + "/none*", self.folder), FAILED, 'matched by "none*"')


if __name__ == "__main__":
    unittest.main()
