"""`ringest mv`, and which files of a tree are meant."""

import json
import os
import pathlib
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

from support import FAILED, USAGE, Rule, ServedCase

TREE = ("1.jpg", "a/2.txt", "a/b/3.jpg", "skip/4.jpg")


class Move(ServedCase):
    def setUp(self):
        self.bucket = self.own_bucket()
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def put(self, *names):
        for name in names:
            self.server.put(self.bucket[5:], name, name.encode())

    def write(self, *names):
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)

    def mv(self, *arguments):
        return self.ringest("mv", *arguments)

    def names(self):
        lines = self.ok(self.ringest("ls", "-r", self.bucket)).decode().splitlines()
        return [line.removeprefix(self.bucket + "/") for line in lines]

    def files(self):
        return sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())

    def test_there_and_back(self):
        self.write(*("tree/" + name for name in TREE))
        self.ok(self.mv(self.folder / "tree", self.bucket + "/t"))
        self.assertEqual((self.files(), self.names()), ([], ["t/" + name for name in TREE]))
        self.ok(self.mv(self.bucket + "/t", self.bucket + "/u/"))
        self.assertEqual(self.names(), ["u/t/" + name for name in TREE])
        self.ok(self.mv(self.bucket + "/u/t", self.folder / "back"))
        self.assertEqual((self.files(), self.names()), (["back/" + name for name in TREE], []))
        self.assertEqual((self.folder / "back/a/2.txt").read_text(), "tree/a/2.txt")

    def test_one_object(self):
        self.put("a", "b")
        self.ok(self.mv(self.bucket + "/a", self.folder))
        self.ok(self.mv(self.bucket + "/b", self.folder / "named"))
        self.assertEqual((self.files(), self.names()), (["a", "named"], []))
        self.ok(self.mv(self.folder / "a", self.folder / "named", self.bucket + "/in/"))
        self.assertEqual((self.files(), self.names()), ([], ["in/a", "in/named"]))

    def test_an_object_and_a_folder_of_one_name(self):
        self.put("a", "a/b", "ab")
        self.ok(self.mv(self.bucket + "/a", self.bucket + "/c"))
        self.assertEqual(self.names(), ["a/b", "ab", "c"])
        self.ok(self.mv(self.bucket + "/a", self.bucket + "/d"))
        self.assertEqual(self.names(), ["ab", "c", "d/b"])

    def test_what_is_there_already(self):
        """The same bytes finish a move that was cut short; others are replaced, or stay with -n."""
        self.put("a", "same/a", "b", "c")
        self.server.put(self.bucket[5:], "same/a", b"a")
        self.server.put(self.bucket[5:], "other/b", b"another")
        (self.folder / "c").write_text("c")
        self.ok(self.mv(self.bucket + "/a", self.bucket + "/same/"))
        self.ok(self.mv("-n", self.bucket + "/b", self.bucket + "/other/"))
        self.ok(self.mv(self.bucket + "/c", self.folder))
        self.assertEqual(self.names(), ["b", "other/b", "same/a"])
        self.assertEqual(self.ok(self.ringest("cat", self.bucket + "/other/b")), b"another")
        self.ok(self.mv(self.bucket + "/b", self.bucket + "/other/"))
        self.assertEqual(self.ok(self.ringest("cat", self.bucket + "/other/b")), b"b")
        self.write("d")
        self.server.put(self.bucket[5:], "d", b"d")
        self.ok(self.mv(self.folder / "d", self.bucket))
        self.assertEqual((self.files(), self.names()), (["c"], ["d", "other/b", "same/a"]))

    def test_itself(self):
        self.put("a/a/x", "a/x", "b")
        for source, target in (("b", "b"), ("a", "a"), ("a", "a/"), ("a", "a/in")):
            done = self.mv(f"{self.bucket}/{source}", f"{self.bucket}/{target}")
            self.assertEqual(done.returncode, FAILED, (source, target))
            self.assertIn("cannot be moved to itself, or below its own folder", done.stderr)
        self.assertEqual(self.names(), ["a/a/x", "a/x", "b"])
        # Up: what would replace one that has not been moved yet stays.
        self.put("a/a/a/x")
        self.assertEqual(self.mv(self.bucket + "/a/a", self.bucket + "/a").returncode, FAILED)
        self.assertEqual(self.ok(self.ringest("cat", self.bucket + "/a/x", self.bucket + "/a/a/a/x")), b"a/a/xa/a/a/x")

    def mv_while(self, change, source, target, looked_at):
        """The move, and a change right after it has seen what is at the destination."""
        place = (self.server.endpoint, self.server.ca)
        with Rule(place, target=looked_at, answer="held") as rule, ThreadPoolExecutor() as pool:
            done = pool.submit(self.mv, source, target)
            rule.wait()
            change()
            rule.end()
            return done.result()

    def remove(self, name):
        self.server.request("DELETE", f"/storage/v1/b/{self.bucket[5:]}/o/{quote(name, safe='')}")

    def test_what_was_there_is_gone(self):
        """A source stays while nothing else has its bytes, whatever was seen before."""
        for name in ("a", "in/a"):
            self.server.put(self.bucket[5:], name, b"same")
        self.ok(self.mv_while(lambda: self.remove("in/a"), self.bucket + "/a", self.bucket + "/in/", "=in%2Fa"))
        self.assertEqual(self.names(), ["in/a"])
        (self.folder / "a").write_text("same")
        self.fails(
            self.mv_while(lambda: self.remove("in/a"), self.folder / "a", self.bucket + "/in/", "=in%2Fa"),
            FAILED,
            "not removed, because gs://",
        )
        self.assertEqual((self.files(), self.names()), (["a"], []))
        self.ok(self.mv(self.folder / "a", self.bucket + "/in/"))
        self.assertEqual((self.files(), self.names()), ([], ["in/a"]))

    def test_there_and_back_at_once(self):
        """Of two that move the same bytes into each other's place, none removes the last."""
        for name in ("a", "b"):
            self.server.put(self.bucket[5:], name, b"same")
        other = []

        def change():
            other.append(self.mv(self.bucket + "/b", self.bucket + "/a"))

        self.mv_while(change, self.bucket + "/a", self.bucket + "/b", "startOffset=b")
        self.assertEqual(len(self.names()), 1)

    def mv_while_lost(self, change, command, *arguments, **rule):
        """The command, whose first copy is lost, and a change before it is tried again."""
        place = (self.server.endpoint, self.server.ca)
        lost = {"method": "storage.objects.rewrite", "effect": "none", "answer": "held", **rule}
        with Rule(place, **lost) as held, ThreadPoolExecutor() as pool:
            done = pool.submit(self.ringest, command, *arguments)
            held.wait()
            change()
            held.end()
            return done.result()

    def test_a_copy_of_somebody_else(self):
        """The same bytes are no proof: a source goes when the copy is ours, with what is said of it."""
        source, target = self.bucket + "/a", self.bucket + "/b"
        said = json.dumps({"contentType": "text/ours", "metadata": {"k": "ours"}}).encode()

        def begin():
            self.server.put(self.bucket[5:], "a", b"same")
            self.server.request("PATCH", f"/storage/v1/b/{self.bucket[5:]}/o/a", said)

        def other():
            self.server.put(self.bucket[5:], "b", b"same")

        begin()
        self.ok(self.mv_while_lost(other, "mv", source, target))
        info = json.loads(self.ok(self.ringest("stat", "--json", target)))
        self.assertEqual((info["content_type"], info["metadata"]), ("text/ours", {"k": "ours"}))
        # Nor is it a success for who wants to know.
        for command in (("mv", "-n"), ("cp", "--if-generation-match=0")):
            begin()
            self.remove("b")
            done = self.mv_while_lost(other, *command, source, target)
            self.fails(done, FAILED, "somebody else may have written what is there")
            self.assertEqual(self.names(), ["a", "b"])

    def test_two_names_of_one_file(self):
        """As folders that are links, and file systems that ignore case, make them."""
        (self.folder / "in/real").mkdir(parents=True)
        os.symlink("real", self.folder / "in/link")
        for same in (False, True):
            self.put("t/link/x", "t/real/x")
            if same:
                self.server.put(self.bucket[5:], "t/link/x", b"t/real/x")
            done = self.mv(self.bucket + "/t", self.folder / "in", "--concurrency=1")
            self.assertEqual((done.returncode, len(self.names())), (FAILED, 1), done.stderr)
            self.assertIn("another source was moved to", done.stderr)
            self.ok(self.ringest("rm", "-r", self.bucket))

    def test_parts_of_uploads_stay(self):
        """They are somebody's who will compose them; who names their folder means them."""
        part = ".ringest-parts/0123/00000"
        self.put("a", part)
        for command in ("cp", "rsync", "mv"):
            done = self.ringest(command, "-r", self.bucket, self.folder / command)
            self.assertEqual((done.returncode, done.stderr.count("1 temporary")), (0, 1), done.stderr)
        self.assertEqual((self.files(), self.names()), (["cp/a", "mv/a", "rsync/a"], [part]))
        self.put("b")
        self.ok(self.mv(self.bucket + "/*", self.folder / "mv"))
        self.assertEqual(self.names(), [part])
        self.ok(self.mv(self.bucket + "/.ringest-parts/0123", self.folder / "named"))
        self.assertEqual(self.names(), [])

    def test_two_that_have_one_name(self):
        self.put("1/f", "2/f", "3/f")
        self.assertEqual(self.mv(self.bucket + "/?/f", self.bucket + "/in/").returncode, FAILED)
        self.assertEqual(self.names(), ["2/f", "3/f", "in/f"])

    def test_links_stay(self):
        self.write("file")
        os.symlink("file", self.folder / "link")
        self.fails(self.mv(self.folder / "link", self.bucket), FAILED, "copied, and kept: it is a symbolic link")
        self.assertEqual((self.files(), self.names()), (["file", "link"], ["link"]))

    def test_names_that_cannot_be_files(self):
        self.put("t/../x", "t//y", "t/ok", "t/.x.ringest-part")
        done = self.mv(self.bucket + "/t", self.folder / "in")
        self.assertEqual((done.returncode, self.files()), (FAILED, ["in/ok"]))
        self.assertEqual(self.names(), ["t/../x", "t/.x.ringest-part", "t//y"])

    def test_a_folder_in_the_way(self):
        self.put("a")
        (self.folder / "a").mkdir()
        self.fails(self.mv(self.bucket + "/a", self.folder), FAILED, "a folder has this name")
        self.assertEqual(self.names(), ["a"])

    def test_which_are_meant(self):
        self.write(*("tree/" + name for name in TREE))
        chosen = ("--include", "*.jpg", "--exclude", "skip/")
        said = self.ok(self.mv("--dry-run", *chosen, self.folder / "tree", self.bucket)).decode()
        self.assertEqual(said.count("would move"), 2)
        self.ok(self.mv(*chosen, self.folder / "tree", self.bucket))
        self.assertEqual(
            (self.files(), self.names()), (["tree/a/2.txt", "tree/skip/4.jpg"], ["tree/1.jpg", "tree/a/b/3.jpg"])
        )
        self.ok(self.ringest("cp", "-r", "--exclude=a/*", self.bucket + "/tree", self.folder / "down"))
        self.assertEqual([name for name in self.files() if "down" in name], ["down/1.jpg"])
        self.ok(self.ringest("cp", "--exclude=1*", self.bucket + "/**.jpg", self.bucket + "/flat/"))
        self.assertEqual(self.names(), ["flat/3.jpg", "tree/1.jpg", "tree/a/b/3.jpg"])
        self.fails(self.ringest("cp", "--include=", "a", self.bucket), USAGE, "--include needs a pattern")

    def test_metadata(self):
        self.write("a")
        given = ("--cache-control=no-store", "--content-encoding=identity", "--custom-metadata=k=v=w", "-s", "NEARLINE")

        def stat(name):
            return json.loads(self.ok(self.ringest("stat", "--json", f"{self.bucket}/{name}")))

        self.ok(self.ringest("cp", *given, self.folder / "a", self.bucket))
        info = stat("a")
        self.assertEqual((info["cache_control"], info["content_encoding"]), ("no-store", "identity"))
        self.assertEqual((info["storage_class"], info["metadata"]), ("NEARLINE", {"k": "v=w"}))
        # What has its bytes gets the rest without being copied, once.
        for updated in (1, 0):
            said = self.ok(self.ringest("cp", "--custom-metadata=l=m", self.folder / "a", self.bucket, "--json"))
            self.assertEqual((json.loads(said)["copied"], json.loads(said)["updated"]), (0, updated))
        self.assertEqual((stat("a")["metadata"], stat("a")["generation"]), ({"k": "v=w", "l": "m"}, info["generation"]))
        # Copies of the server have those of the source, and what is given.
        self.ok(self.ringest("cp", "--cache-control=public", self.bucket + "/a", self.bucket + "/b"))
        self.assertEqual((stat("b")["cache_control"], stat("b")["metadata"]), ("public", {"k": "v=w", "l": "m"}))
        self.ok(self.mv(self.bucket + "/b", self.bucket + "/c"))
        self.assertEqual((stat("c")["cache_control"], stat("c")["metadata"]), ("public", {"k": "v=w", "l": "m"}))
        # Of what is moved and kept alike, too.
        self.ok(self.mv("--cache-control=no-store", "--custom-metadata=n=o", self.bucket + "/c", self.bucket + "/d"))
        self.assertEqual((stat("d")["cache_control"], stat("d")["metadata"]["n"]), ("no-store", "o"))
        self.ok(self.mv("--content-encoding=identity", self.folder / "a", self.bucket + "/e"))
        self.assertEqual((stat("e")["content_encoding"], self.files()), ("identity", []))
        self.write("in/a")
        for _ in range(2):
            self.ok(self.ringest("rsync", "--custom-metadata=p=q", self.folder / "in", self.bucket + "/in"))
        self.assertEqual((stat("in/a")["metadata"], stat("in/a")["metageneration"]), ({"p": "q"}, "1"))
        # What gcloud takes for two.
        done = self.ringest("cp", "--custom-metadata=k=v,l=m", self.folder / "in/a", self.bucket + "/f")
        self.assertIn('"k" gets the value "v,l=m"', done.stderr)
        self.write("a")
        self.fails(self.ringest("cp", "--custom-metadata=k", self.folder / "a", self.bucket), USAGE, "KEY=VALUE")
        self.fails(self.ringest("cp", "--cache-control=x", self.bucket + "/a", self.folder), USAGE, "is a file")

    def test_usage(self):
        self.fails(self.mv(self.bucket + "/a"), USAGE, "a source and a destination")
        self.fails(self.mv("-", self.bucket + "/a"), USAGE, "are for cp only")
        self.fails(self.mv(self.bucket + "/none", self.folder), FAILED, "no such object")


if __name__ == "__main__":
    unittest.main()
