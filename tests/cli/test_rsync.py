"""`ringest rsync`: what is copied, and what it may remove."""

import json
import os
import pathlib
import tempfile
import unittest

from support import FAILED, USAGE, ServedCase

TREE = ("1.jpg", "a/2.txt", "a/b/3.jpg")


class Sync(ServedCase):
    def setUp(self):
        self.bucket = self.own_bucket()
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "tree"
        self.folder.mkdir()

    def put(self, *names):
        for name in names:
            self.server.put(self.bucket[5:], name, name.encode())

    def write(self, *names):
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)

    def rsync(self, *arguments):
        return self.ringest("rsync", *arguments)

    def names(self):
        lines = self.ok(self.ringest("ls", "-r", self.bucket)).decode().splitlines()
        return [line.removeprefix(self.bucket + "/") for line in lines]

    def files(self):
        return sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())

    def counts(self, *arguments):
        done = self.rsync("--json", *arguments)
        counts = json.loads(done.stdout)
        return tuple(counts[name] for name in ("copied", "removed", "skipped", "failed"))

    def test_to_a_bucket(self):
        self.write(*TREE)
        self.put("other", "t/a/2.txt", "t/b", "t/a/c")
        to = self.bucket + "/t"
        self.assertEqual(self.counts(self.folder, to), (1, 0, 0, 0))
        self.assertEqual(self.counts("-r", self.folder, to), (2, 0, 1, 0))
        self.assertEqual(self.names(), ["other", "t/1.jpg", "t/a/2.txt", "t/a/b/3.jpg", "t/a/c", "t/b"])
        # Without -r only the folder itself.
        self.assertEqual(self.counts("--delete", self.folder, to), (0, 1, 1, 0))
        self.assertEqual(self.counts("-r", "--delete", self.folder, to + "/"), (0, 1, 3, 0))
        self.assertEqual(self.names(), ["other", "t/1.jpg", "t/a/2.txt", "t/a/b/3.jpg"])

    def test_from_a_bucket(self):
        self.put(*("t/" + name for name in TREE), "tt")
        self.write("a/2.txt", "old", "a/old", "sub/old", ".x.ringest-part")
        (self.folder / "a/2.txt").write_text("another")
        self.assertEqual(self.counts("-r", "--delete", self.bucket + "/t", self.folder), (3, 3, 0, 0))
        self.assertEqual(self.files(), [".x.ringest-part", *TREE])
        self.assertEqual((self.folder / "a/2.txt").read_text(), "t/a/2.txt")
        self.assertEqual(self.counts("-r", "--delete", self.bucket + "/t/", str(self.folder) + "/"), (0, 0, 3, 0))

    def test_between_folders_of_a_bucket(self):
        self.put(*("t/" + name for name in TREE), "u/old", "u/a/old", "us")
        self.assertEqual(self.counts("-r", "--delete", self.bucket + "/t", self.bucket + "/u"), (3, 2, 0, 0))
        self.assertEqual(self.names(), ["t/" + name for name in TREE] + ["u/" + name for name in TREE] + ["us"])

    def test_parts_of_uploads_and_markers_stay(self):
        self.write("a")
        self.put(".ringest-parts/0123/00000", "old")
        self.server.put(self.bucket[5:], "folder/", b"")
        self.assertEqual(self.counts("-r", "--delete", self.folder, self.bucket), (1, 1, 0, 0))
        self.assertEqual(self.names(), [".ringest-parts/0123/00000", "a", "folder/"])

    def test_dry_run_does_nothing(self):
        self.write("a", "b")
        self.put("b", "c")
        said = self.ok(self.rsync("--dry-run", "--delete", self.folder, self.bucket)).decode()
        self.assertEqual(said, f"would copy {self.folder}/a to {self.bucket}/a\nwould remove {self.bucket}/c\n")
        said = self.ok(self.rsync("--dry-run", "--delete", self.bucket, self.folder)).decode()
        self.assertEqual(said, f"would copy {self.bucket}/c to {self.folder}/c\nwould remove {self.folder}/a\n")
        self.assertEqual((self.files(), self.names()), (["a", "b"], ["b", "c"]))

    def test_what_is_left_out_is_not_removed(self):
        self.write("a.jpg", "skip/x.jpg", "b.txt")
        self.put("a.jpg", "c.jpg", "skip/y.jpg", "c.txt")
        chosen = ("-r", "--delete", "--include=*.jpg", "--exclude=skip/")
        self.assertEqual(self.counts(*chosen, self.folder, self.bucket), (0, 1, 1, 0))
        self.assertEqual(self.names(), ["a.jpg", "c.txt", "skip/y.jpg"])
        self.assertEqual(self.counts(*chosen, self.bucket, self.folder), (0, 0, 1, 0))
        self.assertEqual(self.files(), ["a.jpg", "b.txt", "skip/x.jpg"])

    def test_links(self):
        """They are neither copied nor followed, and nothing behind them is removed."""
        outside = self.folder.parent / "outside"
        outside.mkdir()
        (outside / "precious").write_text("x")
        self.write("a")
        os.symlink(outside, self.folder / "link")
        os.symlink("a", self.folder / "alias")
        self.put("a", "alias", "link/x", "old")
        self.assertEqual(self.counts("-r", "--delete", self.folder, self.bucket), (0, 1, 1, 0))
        self.assertEqual(self.names(), ["a", "alias", "link/x"])
        self.ok(self.ringest("rm", self.bucket + "/alias", self.bucket + "/link/x"))
        self.assertEqual(self.counts("-r", "--delete", self.bucket, self.folder), (0, 0, 1, 0))
        self.assertTrue((outside / "precious").exists() and (self.folder / "alias").is_symlink())

    def test_a_file_of_two_names(self):
        """One that was kept under one of them stays, however a folder or the file system spells the other."""
        self.write("real/x", "real/old")
        os.symlink("real", self.folder / "link")
        self.server.put(self.bucket[5:], "t/link/x", b"real/x")
        self.assertEqual(self.counts("-r", "--delete", self.bucket + "/t", self.folder), (0, 1, 1, 0))
        self.assertEqual((self.folder / "link/x").read_text(), "real/x")
        done = self.rsync("-r", "--delete", self.bucket + "/t", self.folder)
        self.assertIn("1 file kept, because the source has it by another path", done.stderr)
        self.assertEqual((done.returncode, self.files()), (0, ["real/x"]))

    def test_a_failure_removes_nothing(self):
        self.write("a", "old")
        self.put("t/a", "t/../b")
        done = self.rsync("-r", "--delete", self.bucket + "/t", self.folder)
        self.assertEqual((done.returncode, self.files()), (FAILED, ["a", "old"]))
        self.assertIn("nothing is removed, because not everything could be copied", done.stderr)
        self.assertEqual(list(self.folder.parent.iterdir()), [self.folder])
        done = self.rsync("-r", "--delete", self.folder / "absent", self.bucket)
        self.assertEqual((done.returncode, len(self.names())), (FAILED, 2))

    def test_an_empty_source_removes_nothing(self):
        self.put("t/a")
        self.fails(self.rsync("-r", "--delete", self.folder, self.bucket), FAILED, "the source has nothing")
        self.write("a")
        done = self.rsync("-r", "--delete", self.bucket + "/none", self.folder)
        self.assertEqual((done.returncode, self.files(), self.names()), (FAILED, ["a"], ["t/a"]))
        self.assertIn("there is nothing below it", done.stderr)

    def test_usage(self):
        for places in (("t", "t"), ("t", "t/u/"), ("t/u", ""), ("", "t")):
            source, target = (f"{self.bucket}/{place}" for place in places)
            self.fails(self.rsync("-r", source, target), USAGE, "lies within the other")
        self.fails(self.rsync("a", "b", self.bucket), USAGE, "needs one source")
        self.fails(self.rsync("-", self.bucket), USAGE, "for cp only")
        self.fails(self.rsync("a", "b"), USAGE, "gs://BUCKET/NAME")
        self.write("a")
        self.fails(self.rsync(self.folder / "a", self.bucket), FAILED, "is no folder")


if __name__ == "__main__":
    unittest.main()
