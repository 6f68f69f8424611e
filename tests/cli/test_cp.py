"""`ringest cp`: trees both ways, odd names, what is there already, what cannot be done."""

import gzip
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import stat
import subprocess
import tempfile
import unittest

from support import (
    DONE,
    FAILED,
    PATIENCE_S,
    PROGRAM,
    SEED,
    USAGE,
    Emulator,
    Rule,
    ServedCase,
    Terminal,
    environment,
    ringest,
    run_until_held,
    scatter,
    until,
)

# More than one part of a download, and not a multiple of it.
LARGE = scatter((17 << 20) + 4321, seed=5)
LARGE_UPLOAD = (24 << 20) + 99
# Takes seconds on any machine.
HUGE_UPLOAD = 4 << 30
ODD_NAMES = ("with space", "per%20cent%", "ha#sh?x=1&y", "uni/ä€😀", "tab\there", "+plus+", ";,:@=!$'()*", "a-b", "a.b")


def tree(root):
    """Relative path -> bytes of every file."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(pathlib.Path(root).rglob("*"))
        if path.is_file()
    }


def write_tree(root, files):
    for name, data in files.items():
        path = pathlib.Path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def sample_tree():
    files = {f"many/{i:03}": scatter(i * 13, seed=i) for i in range(120)}
    files |= {name: scatter(50 + n, seed=1000 + n) for n, name in enumerate(ODD_NAMES)}
    files |= {"empty": b"", "deep/" * 12 + "file": b"down here", "large": LARGE, "a/b": b"1"}
    return files


class Copying(ServedCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bucket = self.own_bucket()

    def cp(self, *arguments, **options):
        return self.ringest("cp", *map(str, arguments), **options)

    def report(self, *arguments, **options):
        return json.loads(self.ok(self.cp(*arguments, "--json", **options)))

    def counts(self, *arguments, **options):
        report = self.report(*arguments, **options)
        return report["copied"], report["skipped"], report["failed"]

    def names(self, uri=None):
        done = self.ringest("ls", "-r", "--json", uri or self.bucket)
        if done.returncode != DONE:
            self.assertIn("404", done.stderr)
            return []
        return [each["name"] for each in json.loads(done.stdout)["objects"]]

    def cat(self, name):
        return self.ok(self.ringest("cat", f"{self.bucket}/{name}"))

    def put(self, name, data):
        self.server.put(self.bucket[5:], name, data)

    def file(self, name, data=b"data"):
        write_tree(self.folder, {name: data})
        return self.folder / name


class Trees(Copying):
    def test_a_tree_up_and_down(self):
        files = sample_tree()
        write_tree(self.folder / "up", files)
        (self.folder / "up/empty folder").mkdir()
        self.assertEqual(self.counts("-r", self.folder / "up", self.bucket + "/x"), (len(files), 0, 0))
        self.assertEqual(self.names(), sorted(("x/" + name for name in files), key=str.encode))
        self.assertEqual(self.counts("-r", self.bucket + "/x", self.folder / "down"), (len(files), 0, 0))
        self.assertTrue(tree(self.folder / "down") == files)
        self.assertFalse((self.folder / "down/empty folder").exists())

    def test_again_copies_nothing(self):
        files = sample_tree()
        write_tree(self.folder / "up", files)
        self.counts("-r", self.folder / "up", self.bucket)
        self.assertEqual(self.counts("-r", self.folder / "up", self.bucket), (0, len(files), 0))
        self.counts("-r", self.bucket + "/up", self.folder / "down")
        self.assertEqual(self.counts("-r", self.bucket + "/up", self.folder / "down"), (0, len(files), 0))

    def test_what_has_changed_is_copied_again(self):
        files = {"a": b"one", "b": b"two", "c": b"three"}
        write_tree(self.folder / "up", files)
        self.counts("-r", self.folder / "up", self.bucket + "/t")
        files |= {"b": b"TWO", "d": b"new"}
        write_tree(self.folder / "up", files)
        self.assertEqual(self.counts("-r", self.folder / "up", self.bucket + "/t"), (2, 2, 0))
        self.assertEqual(self.cat("t/b"), b"TWO")
        write_tree(self.folder / "down", {"a": b"ONE", "c": b"three"})
        self.assertEqual(self.counts("-r", self.bucket + "/t", self.folder / "down"), (3, 1, 0))
        self.assertEqual(tree(self.folder / "down"), files)

    def test_where_a_tree_goes(self):
        write_tree(self.folder / "src", {"f": b"f", "s/g": b"g"})
        for source, destination, wanted in (
            ("src", "/new", ["new/f", "new/s/g"]),
            ("src", "/into/", ["into/src/f", "into/src/s/g"]),
            ("src/", "", ["src/f", "src/s/g"]),
            ("src/.", "/only/", ["only/f", "only/s/g"]),
        ):
            with self.subTest((source, destination)):
                self.ok(self.cp("-r", f"{self.folder}/{source}", self.bucket + destination))
                top = wanted[0].split("/")[0]
                self.assertEqual([name for name in self.names() if name.split("/")[0] == top], wanted)
        for source, destination, wanted in (
            ("/new", "a", ["a/f", "a/s/g"]),
            ("/new/", "b/", ["b/new/f", "b/new/s/g"]),
            ("/new/s", ".", ["s/g"]),
        ):
            with self.subTest((source, destination)):
                folder = self.folder / "down" / wanted[0].split("/")[0]
                os.makedirs(self.folder / "down", exist_ok=True)
                self.ok(self.cp("-r", self.bucket + source, destination, cwd=self.folder / "down"))
                found = [f"{folder.name}/{name}" for name in tree(folder)]
                self.assertEqual(found, wanted)

    def test_a_name_is_not_a_prefix(self):
        for name in ("a/x", "ab/y", "a", "abc"):
            self.put(name, name.encode())
        self.assertEqual(self.counts("-r", self.bucket + "/ab", self.folder / "d"), (1, 0, 0))
        self.assertEqual(tree(self.folder / "d"), {"y": b"ab/y"})

    def test_names_that_cannot_be_files(self):
        bad = ("../up", "a/../../up", "x//y", "./dot", "a/.", "/rooted", "n" * 300, ".f.ringest-part")
        self.put("t/good", b"good")
        for name in bad:
            self.put("t/" + name, b"bad")
        done = self.cp("-r", self.bucket + "/t", self.folder / "in/d")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (FAILED, len(bad)), done.stderr)
        for line in done.stderr.splitlines():
            self.assertIn("cannot be a file", line)
        self.assertEqual(tree(self.folder), {"in/d/good": b"good"})

    def test_objects_that_stand_for_folders(self):
        self.put("t/", b"")
        self.put("t/sub/", b"")
        self.put("t/sub/f", b"f")
        self.ok(self.cp("-r", self.bucket + "/t", self.folder / "d"))
        self.assertEqual(tree(self.folder / "d"), {"sub/f": b"f"})
        self.put("t/full/", b"bytes")
        self.fails(self.cp("-rq", self.bucket + "/t", self.folder / "d"), FAILED, "t/full/", "cannot be a file")

    def test_a_file_where_a_folder_must_be(self):
        for name in ("t/a", "t/a/b", "t/c"):
            self.put(name, b"x")
        done = self.cp("-r", self.bucket + "/t", self.folder / "d", "--concurrency=1")
        self.fails(done, FAILED, "d/a", "folder")
        self.assertEqual(set(tree(self.folder / "d")) | {"a", "a/b"}, {"a", "a/b", "c"})

    def test_symbolic_links_and_special_files(self):
        write_tree(self.folder / "t", {"f": b"f"})
        os.symlink("f", self.folder / "t/link")
        os.symlink("..", self.folder / "t/loop")
        done = self.cp("-r", self.folder / "t", self.bucket)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (DONE, 1), done.stderr)
        self.assertIn("2 symbolic links", done.stderr)
        self.assertEqual(self.names(), ["t/f"])
        done = self.cp("-r", self.folder / "t", self.bucket + "/l", "--follow-symlinks")
        self.assertEqual(done.returncode, FAILED)
        self.assertIn("a link to a folder above", done.stderr)
        self.assertIn("l/link", self.names())
        os.unlink(self.folder / "t/loop")
        os.unlink(self.folder / "t/link")
        os.mkfifo(self.folder / "t/pipe")
        self.fails(self.cp("-r", self.folder / "t", self.bucket), FAILED, "t/pipe", "skipped")

    def test_names_that_cannot_be_objects(self):
        write_tree(self.folder / "t", {"good": b"1", "new\nline": b"2"})
        with open(os.fsencode(self.folder / "t") + b"/not-utf8-\xff", "wb") as file:
            file.write(b"3")
        long = self.folder / "t" / "/".join(["d" * 200] * 6)
        long.mkdir(parents=True)
        (long / "f").write_bytes(b"4")
        done = self.cp("-r", self.folder / "t", self.bucket)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (FAILED, 3), done.stderr)
        self.assertIn("1024", done.stderr)
        self.assertEqual(self.names(), ["t/good"])

    def test_a_folder_that_exists_gets_the_contents(self):
        """Whoever expects a folder in it, as gcloud makes one, is told."""
        write_tree(self.folder / "src", {"f": b"f"})
        self.put("there/x", b"x")
        (self.folder / "here").mkdir()
        for source, destination in (
            (self.folder / "src", self.bucket + "/there"),
            (self.bucket + "/there", self.folder / "here"),
            (self.bucket + "/there", self.bucket + "/there2"),
        ):
            if destination == self.bucket + "/there2":
                self.ok(self.cp("-r", source, destination))
                source = self.folder / "src"
            base = pathlib.Path(str(source)).name
            done = self.cp("-r", source, destination)
            self.fails(done, DONE, f"note: {destination} exists, and gets the contents of", f'folder "{base}"')
            self.ok(self.cp("-r", "-q", source, destination))
            self.ok(self.cp("-r", source, f"{destination}/"))
        self.assertEqual(self.names(self.bucket + "/there/"), ["there/f", "there/src/f", "there/x"])
        # A folder of the same name is the same folder, and a new one is new.
        self.ok(self.cp("-r", self.folder / "src", self.bucket + "/src"))
        self.ok(self.cp("-r", self.folder / "src", self.bucket + "/src"))
        self.ok(self.cp("-r", self.folder / "src", self.bucket + "/ther"))

    def test_several_sources(self):
        sources = [self.file(name, name.encode()) for name in ("a", "b", "c")]
        self.ok(self.cp(*sources, self.bucket + "/d"))
        self.assertEqual(self.names(), ["d/a", "d/b", "d/c"])
        self.ok(self.cp(self.bucket + "/d/a", self.bucket + "/d/c", self.folder / "out"))
        self.assertEqual(tree(self.folder / "out"), {"a": b"a", "c": b"c"})

    def test_two_sources_do_not_become_one(self):
        first, other = self.file("a/f", b"first"), self.file("b/f", b"other")
        self.fails(
            self.cp(first, other, self.bucket + "/d/"), FAILED, f"{other}: {self.bucket}/d/f is taken by another source"
        )
        self.assertEqual(self.cat("d/f"), b"first")
        self.put("e/f", b"other")
        self.fails(
            self.cp(self.bucket + "/d/f", self.bucket + "/e/f", self.folder / "in/"), FAILED, self.bucket + "/e/f: "
        )
        self.assertEqual(tree(self.folder / "in"), {"f": b"first"})
        self.fails(
            self.cp(self.bucket + "/d/f", self.bucket + "/e/f", self.bucket + "/g/"), FAILED, self.bucket + "/e/f: "
        )
        # Trees of one name become one, but for what is in both.
        write_tree(self.folder, {"x/t/1": b"1", "x/t/2": b"2", "y/t/2": b"other", "y/t/3": b"3"})
        done = self.cp("-r", self.folder / "x/t", self.folder / "y/t", self.bucket)
        self.fails(done, FAILED, f"{self.folder}/y/t/2: {self.bucket}/t/2")
        self.assertEqual([self.cat(f"t/{i}") for i in (1, 2, 3)], [b"1", b"2", b"3"])
        self.fails(self.cp("-r", f"{self.folder}/x/t/.", f"{self.folder}/y/t/.", self.bucket + "/m/"), FAILED, "/m/2")
        self.assertEqual(
            self.counts("-r", "-n", self.folder / "x/t", self.folder / "y/t", self.bucket + "/n/"), (3, 1, 0)
        )

    def test_a_tree_goes_below_itself(self):
        for name in ("t/a", "t/s/b"):
            self.put(name, name.encode())
        for again in range(2):
            done = self.cp("-r", self.bucket + "/t", self.bucket + "/t/s/")
            self.assertEqual(done.returncode, DONE)
            self.assertEqual(
                f"{self.bucket}/t/s/t/: 2 objects are in the destination already" in done.stderr, again == 1
            )
            self.assertEqual(self.names(), ["t/a", "t/s/b", "t/s/t/a", "t/s/t/s/b"])
        self.ok(self.cp("-r", self.bucket + "/t/s", self.bucket))
        self.assertEqual(self.counts("-r", self.bucket + "/t", self.bucket + "/t"), (0, 4, 0))

    def test_a_few_files_beside_many_objects(self):
        with Emulator("--synthetic", "made/m:5000:10") as server:
            sources = [self.file(name) for name in ("a", "m00001500", "m00003000x", "z")]
            for wanted in ((4, 0), (0, 4)):
                done = ringest("cp", *map(str, sources), "gs://made", "--json", *server.place)
                report = json.loads(self.ok(done))
                if wanted == (4, 0):
                    # What is made up cannot be replaced everywhere; what counts is what was decided.
                    wanted = (report["copied"], 4 - report["copied"])
                self.assertEqual((report["copied"], report["skipped"]), wanted)


class Hierarchical(Copying):
    def test_trees_both_ways(self):
        self.server.create_hierarchical("tree")
        self.server.create_folder("tree", "away/empty/")
        files = sample_tree()
        write_tree(self.folder / "up", files)
        self.assertEqual(self.counts("-r", self.folder / "up", "gs://tree/away/old"), (len(files), 0, 0))
        self.server.rename_folder("tree", "away/old/", "new/")
        self.assertEqual(self.counts("-r", "gs://tree/new", self.folder / "down"), (len(files), 0, 0))
        self.assertTrue(tree(self.folder / "down") == files)
        self.assertEqual(self.counts("-r", self.folder / "up", "gs://tree/new"), (0, len(files), 0))
        self.assertEqual(self.names("gs://tree/away/"), [])


class Files(Copying):
    def test_one_file(self):
        for size in (0, 1, 1000, 1 << 20, (1 << 20) + 1, 8 << 20, (8 << 20) + 1):
            with self.subTest(size):
                data = LARGE[:size]
                path = self.file(f"f{size}", data)
                self.assertEqual(self.counts(path, self.bucket), (1, 0, 0))
                self.assertEqual(self.counts(self.bucket + f"/f{size}", self.folder / "back"), (1, 0, 0))
                self.assertTrue((self.folder / "back").read_bytes() == data)

    def test_where_a_file_goes(self):
        path = self.file("name")
        self.ok(self.cp(path, self.bucket + "/other"))
        self.ok(self.cp(path, self.bucket + "/d/"))
        self.ok(self.cp(path, self.bucket))
        self.assertEqual(self.names(), ["d/name", "name", "other"])
        os.makedirs(self.folder / "into")
        self.ok(self.cp(self.bucket + "/other", self.folder / "into"))
        self.ok(self.cp(self.bucket + "/other", str(self.folder / "made") + "/"))
        self.ok(self.cp(self.bucket + "/d/name", "..", cwd=self.folder / "into"))
        self.assertTrue((self.folder / "into/other").exists() and (self.folder / "made/other").exists())

    def test_methods(self):
        path = self.file("f", LARGE)
        for method in ("auto", "single", "resumable", "multipart", "compose"):
            with self.subTest(method):
                self.assertEqual(self.counts(path, f"{self.bucket}/{method}", "--method", method), (1, 0, 0))
                self.assertTrue(self.cat(method) == LARGE)
        self.assertEqual(self.names(), sorted(("auto", "single", "resumable", "multipart", "compose")))

    def test_part_sizes(self):
        path = self.file("f", LARGE)
        self.ok(self.cp(path, self.bucket, "--part-size=5M"))
        self.ok(self.cp(self.bucket + "/f", self.folder / "g", "--part-size=5M", "--concurrency=3"))
        self.assertTrue((self.folder / "g").read_bytes() == LARGE)

    def test_a_small_memory(self):
        path = self.file("f", LARGE)
        self.fails(self.cp(path, self.bucket, "--memory=16M", "--method=single"), FAILED, str(path), "--memory")
        self.ok(self.cp(path, self.bucket, "--memory=64M", "--method=single"))
        self.ok(self.cp(path, self.bucket + "/g", "--memory=16M"))
        self.ok(self.cp(self.file("h", LARGE[: 8 << 20]), self.bucket, "--memory=16M", "--part-size=5M"))
        self.ok(self.cp(self.bucket + "/f", self.folder / "g", "--memory=32M"))
        self.assertTrue((self.folder / "g").read_bytes() == LARGE)

    def test_content_type(self):
        self.ok(self.cp(self.file("f"), self.bucket, "--content-type", "text/plain"))
        info = json.loads(self.ok(self.ringest("stat", self.bucket + "/f", "--json")))
        self.assertEqual(info["content_type"], "text/plain")

    def content_types(self):
        names = self.names()
        lines = self.ok(self.ringest("stat", "--json", *(f"{self.bucket}/{name}" for name in names))).splitlines()
        return {name: json.loads(line)["content_type"] for name, line in zip(names, lines, strict=True)}

    def test_a_type_by_the_name(self):
        octets = "application/octet-stream"
        types = {"a.PNG": "image/png", "b.json": "application/json", "c.tar.gz": "application/gzip", "d": octets}
        write_tree(self.folder / "t", dict.fromkeys(types, b"x" * 10))
        self.ok(self.cp("-r", f"{self.folder}/t/.", self.bucket + "/"))
        self.assertEqual(self.content_types(), types)
        self.bucket += "-2"
        self.server.make_bucket(self.bucket[5:])
        self.ok(self.cp("-r", f"{self.folder}/t/.", self.bucket + "/", "--content-type", ""))
        self.assertEqual(self.content_types(), dict.fromkeys(types, octets))

    def test_a_type_of_standard_input_by_the_name_of_the_object(self):
        command = [PROGRAM, "cp", "-q", "-", self.bucket + "/a.csv", *self.server.place]
        subprocess.run(command, input=b"1,2", env=environment(), check=True, timeout=PATIENCE_S)
        self.assertEqual(self.content_types(), {"a.csv": "text/csv"})

    def test_what_is_stored_compressed(self):
        """Comes as it is stored, which others unpack: so it is said."""
        for name, data in (("t/small", b"small" * 100), ("t/large", LARGE), ("t/none", b"plain")):
            path = self.file("f", data if name == "t/none" else gzip.compress(data, 0))
            encoding = [] if name == "t/none" else ["--content-encoding", "gzip"]
            self.ok(self.cp(path, f"{self.bucket}/{name}", *encoding))
        for source, to, words in (
            (
                "t",
                "one/t",
                "note: 2 objects are stored with Content-Encoding gzip: their files hold the compressed bytes",
            ),
            ("t/small", "two", "note: 1 object is stored with Content-Encoding gzip: its file holds"),
            ("t/none", "three", ""),
            ("t", "one/t", ""),  # there already
        ):
            done = self.cp("-r", f"{self.bucket}/{source}", self.folder / to)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (DONE, bool(words)), done.stderr)
            self.assertIn(words, done.stderr)
        self.assertEqual(gzip.decompress((self.folder / "one/t/large").read_bytes()), LARGE)
        for name, count in (("t/small", 1), ("t/large", 1), ("t/none", 0)):
            done = self.ringest("cat", f"{self.bucket}/{name}")
            self.assertEqual((done.returncode, done.stderr.count("the output is compressed")), (DONE, count))

    def test_a_type_of_what_is_there_already(self):
        """Of the same bytes only the type is changed, once, and only if it is asked for."""
        path = self.file("f.txt", b"the same")
        self.ok(self.cp(path, self.bucket))
        before = json.loads(self.ok(self.ringest("stat", self.bucket + "/f.txt", "--json")))
        self.assertEqual(self.counts(path, self.bucket, "--content-type", "image/png", "-n"), (0, 1, 0))
        done = self.cp(path, self.bucket, "--content-type", "image/png")
        self.ok(done)
        self.assertRegex(done.summary, r"^0 copied, 1 updated, 0 skipped, 0 failed")
        after = json.loads(self.ok(self.ringest("stat", self.bucket + "/f.txt", "--json")))
        self.assertEqual((before["content_type"], after["content_type"]), ("text/plain", "image/png"))
        self.assertEqual(before["generation"], after["generation"])
        for arguments in (["--content-type", "image/png"], ["--content-type", ""], []):
            self.assertEqual(self.counts(path, self.bucket, *arguments), (0, 1, 0))
        last = json.loads(self.ok(self.ringest("stat", self.bucket + "/f.txt", "--json")))
        self.assertEqual(after, last)

    def test_a_type_of_copies_between_buckets(self):
        self.put("t/a", b"a")
        self.put("t/b", b"b")
        self.put("u/a", b"a")
        report = self.report("-r", self.bucket + "/t", self.bucket + "/u", "--content-type", "text/x-test")
        self.assertEqual((report["copied"], report["updated"], report["failed"]), (1, 1, 0))
        types = self.content_types()
        self.assertEqual([types["u/a"], types["u/b"]], 2 * ["text/x-test"])
        self.assertNotEqual(types["t/a"], "text/x-test")

    def test_a_type_is_not_set_on_what_somebody_else_wrote(self):
        path = self.file("f", b"the same")
        self.ok(self.cp(path, self.bucket))
        with Rule((self.server.endpoint, self.server.ca), method="storage.objects.get", answer="held") as rule:
            command = [PROGRAM, "cp", str(path), self.bucket, "--content-type=image/png", *self.server.place]
            process = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE)
            rule.wait()
            self.put("f", b"other")
        # What is there now is not what was compared and looked at.
        _, errors = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, FAILED, errors)
        self.assertIn(b"changed by somebody else", errors)
        self.assertEqual(self.cat("f"), b"other")
        self.assertNotEqual(self.content_types()["f"], "image/png")

    def test_modes_are_not_kept(self):
        path = self.file("f")
        path.chmod(0o4755)
        self.ok(self.cp(path, self.bucket))
        self.ok(self.cp(self.bucket + "/f", self.folder / "g"))
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual(stat.S_IMODE((self.folder / "g").stat().st_mode), 0o666 & ~mask)

    def test_no_clobber(self):
        path = self.file("f", b"new")
        self.put("f", b"old")
        self.assertEqual(self.counts(path, self.bucket, "--no-clobber"), (0, 1, 0))
        self.assertEqual(self.cat("f"), b"old")
        self.assertEqual(self.counts(path, self.bucket + "/g", "-n"), (1, 0, 0))
        self.assertEqual(self.counts(self.bucket + "/f", path, "-n"), (0, 1, 0))
        self.assertEqual(path.read_bytes(), b"new")
        self.assertEqual(self.counts(self.bucket + "/f", self.folder / "h", "-n"), (1, 0, 0))

    def test_folders_that_are_missing_are_made(self):
        """As gcloud and gsutil do; but not for what is not there."""
        self.put("f", b"data")
        path = self.folder / "no/such/folder/f"
        self.fails(self.cp(self.bucket + "/none", path), FAILED, "/none")
        self.assertFalse((self.folder / "no").exists())
        self.ok(self.cp(self.bucket + "/f", path))
        self.assertEqual(path.read_bytes(), b"data")
        self.ok(self.cp(self.bucket + "/f", f"{self.folder}/another/"))
        self.assertEqual((self.folder / "another/f").read_bytes(), b"data")
        for empty in ((self.bucket + "/f", ""), ("", self.bucket + "/g")):
            self.fails(self.cp(*empty), USAGE, "a source or the destination is empty")
        self.fails(self.cp(self.bucket + "/f", path / "g"), FAILED, str(path / "g"), "is a file, not a folder")

    def test_the_least_memory_is_the_library_s(self):
        path = self.file("f", LARGE)
        self.ok(self.cp(path, self.bucket, "--memory=8M"))
        self.ok(self.cp(self.bucket + "/f", self.folder / "g", "--memory=8MiB"))
        self.assertTrue((self.folder / "g").read_bytes() == LARGE)
        self.ok(self.cp(self.bucket + "/f", self.folder / "h", env=environment(RINGEST_MEMORY="8M")))
        self.ok(self.cp("-r", self.folder, self.bucket + "/t", "--memory=8M", "--threads=2"))
        self.ok(self.cp("-r", self.bucket + "/t", self.folder / "t", "--memory=8M", "--threads=2"))
        self.assertTrue((self.folder / "t/h").read_bytes() == LARGE)
        for wrong in ("7M", "0", "x", "8MiBB"):
            for option in (f"--memory={wrong}", f"--option=memory={wrong}"):
                self.fails(self.cp(path, self.bucket, option), USAGE, "memory must be at least 8 MiB", wrong)

    def test_dry_run_does_nothing(self):
        write_tree(self.folder / "t", {"a": b"a", "s/b": b"b"})
        self.put("x/y", b"y")
        said = self.ok(self.cp("-r", self.folder / "t", self.bucket, "--dry-run")).decode()
        self.assertEqual(said.count("would copy"), 2)
        said = self.ok(self.cp("-r", self.bucket + "/x", self.folder / "down", "--dry-run")).decode()
        self.assertEqual(said, f"would copy {self.bucket}/x/y to {self.folder}/down/y\n")
        self.assertEqual(self.names(), ["x/y"])
        self.assertEqual(set(tree(self.folder)), {"t/a", "t/s/b"})

    def test_generation_conditions(self):
        path = self.file("f", b"new")
        self.put("f", b"old")
        generation = json.loads(self.ok(self.ringest("stat", self.bucket + "/f", "--json")))["generation"]
        for wrong in ("0", "12345"):
            done = self.cp(path, self.bucket, f"--if-generation-match={wrong}")
            self.fails(done, FAILED, self.bucket + "/f")
        self.assertEqual(self.cat("f"), b"old")
        self.ok(self.cp(path, self.bucket, f"--if-generation-match={generation}"))
        self.assertEqual(self.cat("f"), b"new")
        self.ok(self.cp(path, self.bucket + "/other", "--if-generation-match=0"))

    def test_a_condition_is_not_met_by_the_same_bytes(self):
        """Of two that want to make one object, one has made it."""
        path = self.file("f", b"")
        other = self.file("other", b"old")
        self.ok(self.cp(other, self.bucket))
        for source in (path, self.bucket + "/other"):
            for condition in ("--if-generation-match=0", "--if-generation-match=12345"):
                place = self.bucket + "/lock"
                if condition.endswith("=0"):
                    self.ok(self.cp(source, place, condition))
                self.fails(self.cp(source, place, condition), FAILED, place)
            self.ok(self.ringest("rm", place))
        command = [PROGRAM, "cp", "-", place, "--if-generation-match=0", *self.server.place]
        feed = {"input": b"", "env": environment(), "capture_output": True, "timeout": PATIENCE_S}
        self.assertEqual([subprocess.run(command, **feed).returncode for _ in range(2)], [DONE, FAILED])

    def test_a_condition_is_not_met_by_who_writes_the_same(self):
        path = self.file("f", b"")
        place = self.bucket + "/lock"
        command = [PROGRAM, "cp", str(path), place, "--if-generation-match=0", *self.server.place]
        with Rule((self.server.endpoint, self.server.ca), writes=True, effect="none", answer="held") as rule:
            first = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE)
            rule.wait()
            self.ok(self.cp(path, place, "--if-generation-match=0"))
        _, said = first.communicate(timeout=PATIENCE_S)
        self.assertEqual(first.returncode, FAILED)
        self.assertIn(place, said.decode())

    def test_standard_output_and_input(self):
        path = self.file("f", LARGE)
        self.ok(self.cp(path, self.bucket))
        self.assertTrue(self.ok(self.cp(self.bucket + "/f", "-")) == LARGE)
        for name, data in (("large", LARGE), ("small", b"x"), ("empty", b"")):
            done = subprocess.run(
                [PROGRAM, "cp", "-q", "-", f"{self.bucket}/{name}", *self.server.place],
                input=data,
                env=environment(),
                capture_output=True,
                timeout=PATIENCE_S,
            )
            self.assertEqual((done.returncode, done.stderr), (DONE, b""))
            self.assertTrue(self.cat(name) == data)

    def test_standard_input_goes_on_after_an_answer_is_lost(self):
        """Of a new object and of one that is replaced, whether the request that failed had written or not."""
        place, bucket = (self.server.endpoint, self.server.ca), self.bucket[5:]
        for size in (0, 5000, 8 << 20, (8 << 20) + 1, len(LARGE)):
            for effect in ("none", "once"):
                for is_new in (True, False):
                    name = f"{size}-{effect}-{is_new}"
                    if not is_new:
                        self.put(name, b"old")
                    with Rule(place, bucket=bucket, writes=True, effect=effect, answer="failed") as rule:
                        done = subprocess.run(
                            [PROGRAM, "cp", "-q", "-", f"{self.bucket}/{name}", *self.server.place],
                            input=LARGE[:size],
                            env=environment(),
                            capture_output=True,
                            timeout=PATIENCE_S,
                        )
                    self.assertEqual((done.returncode, done.stderr, rule.state()["struck"]), (DONE, b"", 1), name)
                    self.assertTrue(self.cat(name) == LARGE[:size], name)

    def test_standard_input_replaces_what_another_writer_put_meanwhile(self):
        self.put("f", b"old")
        place = (self.server.endpoint, self.server.ca)
        command = [PROGRAM, "cp", "-q", "-", self.bucket + "/f", *self.server.place]
        with Rule(place, upload="single", effect="none", answer="held") as rule:
            writer = subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            writer.stdin.write(b"new")
            writer.stdin.close()
            rule.wait()
            self.put("f", b"another's")
        self.assertEqual((writer.wait(PATIENCE_S), writer.stderr.read()), (DONE, b""))
        writer.stderr.close()
        self.assertEqual(self.cat("f"), b"new")

    def test_standard_input_does_not_clobber(self):
        self.put("f", b"old")
        for name, left in (("f", b"old"), ("g", b"new")):
            done = subprocess.run(
                [PROGRAM, "cp", "-", f"{self.bucket}/{name}", "-nq", *self.server.place],
                input=b"new",
                env=environment(),
                capture_output=True,
                timeout=PATIENCE_S,
            )
            self.assertEqual((done.returncode, done.stderr), (DONE, b""))
            self.assertEqual(self.cat(name), left)

    def test_a_terminal_sees_progress(self):
        self.ok(self.cp(self.file("f", LARGE), self.bucket))
        terminal = Terminal()
        done = subprocess.run(
            [PROGRAM, "cp", self.bucket + "/f", str(self.folder / "g"), *self.server.place],
            env=environment(TERM="xterm"),
            stdout=subprocess.PIPE,
            stderr=terminal.far,
            timeout=PATIENCE_S,
        )
        said = terminal.read()
        self.assertEqual((done.returncode, done.stdout), (DONE, b""))
        self.assertRegex(said, r"\r\[[# ]+\] \d/\d\+?")
        self.assertRegex(said, r"1 copied, 0 skipped, 0 failed; 17\.0 MiB in .*/s\r\n$")

    def test_a_narrow_terminal(self):
        """A line that is wider than the terminal wraps, and the next one does not replace it."""
        write_tree(self.folder / "t", {f"{i:04}": b"x" * 1000 for i in range(300)})
        for columns in (40, 20):
            terminal = Terminal(columns)
            done = subprocess.run(
                [
                    PROGRAM,
                    "cp",
                    "-r",
                    str(self.folder / "t"),
                    f"{self.bucket}/{columns}",
                    "--concurrency=1",
                    *self.server.place,
                ],
                env=environment(TERM="xterm"),
                stdout=subprocess.PIPE,
                stderr=terminal.far,
                timeout=PATIENCE_S,
            )
            self.assertEqual(done.returncode, DONE)
            drawn = [
                line.split("\x1b")[0] for line in terminal.read().split("\r") if "/" in line and "copied" not in line
            ]
            self.assertNotEqual(drawn, [])
            self.assertLess(max(map(len, drawn)), columns, drawn)

    def test_between_buckets(self):
        files = {"a": b"a", "s/b": b"bb", "large": LARGE}
        for name, data in files.items():
            self.put("t/" + name, data)
        other = self.bucket + "-2"
        self.server.put(other[5:], "zero", b"")
        self.assertEqual(self.counts("-r", self.bucket + "/t", other), (3, 0, 0))
        self.assertEqual(self.counts("-r", self.bucket + "/t", other), (0, 3, 0))
        self.assertEqual(self.names(other), ["t/a", "t/large", "t/s/b", "zero"])
        self.assertEqual(self.counts(self.bucket + "/t/a", other + "/new"), (1, 0, 0))
        self.assertEqual(self.counts(self.bucket + "/t/a", other + "/t/s/b", "--no-clobber"), (0, 1, 0))
        self.assertTrue(self.ok(self.ringest("cat", other + "/t/large")) == LARGE)
        self.fails(self.cp(self.bucket + "/absent", other), FAILED, self.bucket + "/absent")


class BadLuck(Copying):
    def test_what_is_not_there(self):
        self.put("there", b"x")
        for source in (self.bucket + "/absent", "gs://no-such-bucket-here/o"):
            self.fails(self.cp(source, self.folder / "f"), FAILED, source)
        self.fails(self.cp("-r", self.bucket + "/absent", self.folder / "f"), FAILED, "nothing below it")
        self.fails(self.cp(self.folder / "absent", self.bucket), FAILED, "absent", "No such file")
        self.assertEqual(tree(self.folder), {})

    def test_folders_need_a_word(self):
        self.put("t/f", b"x")
        self.fails(self.cp(self.folder, self.bucket), FAILED, str(self.folder), "-r")
        self.fails(self.cp(self.bucket + "/t/", self.folder), FAILED, "-r")

    def test_one_failure_does_not_stop_the_others(self):
        sources = [self.file("a"), self.folder / "absent", self.file("b")]
        self.fails(self.cp(*sources, self.bucket), FAILED, "absent")
        self.assertEqual(self.names(), ["a", "b"])

    def test_not_a_regular_file(self):
        self.put("f", b"x" * 100)
        os.mkfifo(self.folder / "pipe")
        for path in ("/dev/null", self.folder / "pipe"):
            self.fails(self.cp(self.bucket + "/f", path), FAILED, str(path), "not a regular file")
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
        self.fails(self.cp(self.folder / "pipe", self.bucket), FAILED, "pipe", "not a regular file")

    def test_a_link_to_standard_output_stays(self):
        # As /dev/stdout is one, which leads to a regular file here.
        self.put("f", b"x" * 100)
        link = self.folder / "stdout"
        os.symlink("/proc/self/fd/1", link)
        with open(self.folder / "out", "wb") as out:
            self.fails(self.cp(self.bucket + "/f", link, stdout=out), FAILED, str(link), "not a regular file")
        self.assertEqual(os.readlink(link), "/proc/self/fd/1")

    @unittest.skipIf(os.geteuid() == 0 and not shutil.which("setpriv"), "nothing to give root's rights up with")
    def test_a_folder_that_cannot_be_written(self):
        self.put("f", b"x")
        self.folder.chmod(0o555)
        self.addCleanup(self.folder.chmod, 0o755)
        command = [PROGRAM, "cp", self.bucket + "/f", str(self.folder / "f"), *self.server.place]
        if os.geteuid() == 0:
            command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--reuid=65534", "--clear-groups", *command]
            shutil.copy(self.server.ca, "/tmp/ringest-test-ca.pem")
            self.addCleanup(os.unlink, "/tmp/ringest-test-ca.pem")
            os.chmod("/tmp/ringest-test-ca.pem", 0o644)
            command[command.index("--ca") + 1] = "/tmp/ringest-test-ca.pem"
        done = subprocess.run(command, env=environment(), capture_output=True, timeout=PATIENCE_S)
        done.stderr = done.stderr.decode()
        if "Permission" in done.stderr and PROGRAM in done.stderr:
            self.skipTest("others may not run the program")
        self.fails(done, FAILED, str(self.folder / "f"), "permission denied")
        self.assertEqual(tree(self.folder), {})

    def test_a_file_size_limit_as_a_full_disk(self):
        self.put("small", b"x" * 5000)
        self.put("tiny", b"y")
        self.ok(self.cp(self.file("big", LARGE), self.bucket + "/large"))
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        done = self.cp("-r", self.bucket, self.folder / "d/", preexec_fn=limit)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (FAILED, 2), done.stderr)
        for line in done.stderr.splitlines():
            self.assertIn("ulimit -f", line)
        self.assertEqual(list(tree(self.folder / "d").values()), [b"y"])

    @unittest.skipUnless(os.geteuid() == 0, "mounting needs root")
    def test_a_full_disk(self):
        full = self.folder / "full"
        full.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "none", str(full)], capture_output=True).returncode:
            self.skipTest("no tmpfs can be mounted")
        self.addCleanup(subprocess.run, ["umount", str(full)], check=True)
        self.put("fits", b"y" * 1000)
        for name in ("half", "large"):
            self.ok(self.cp(self.file("big", LARGE), f"{self.bucket}/{name}"))
        done = self.cp("-r", self.bucket, full / "d/")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (FAILED, 2), done.stderr)
        for line in done.stderr.splitlines():
            self.assertIn("no space left", line)
        self.assertEqual([len(data) for data in tree(full).values()], [1000])

    @unittest.skipUnless(os.geteuid() == 0, "mounting needs root")
    def test_a_disk_that_becomes_full_ends_the_copy(self):
        full = self.folder / "full"
        full.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "none", str(full)], capture_output=True).returncode:
            self.skipTest("no tmpfs can be mounted")
        self.addCleanup(subprocess.run, ["umount", str(full)], check=True)
        write_tree(self.folder / "t", {f"{i}": b"x" * 50000 for i in range(100)})
        self.ok(self.cp("-r", self.folder / "t", self.bucket + "/"))
        self.fails(self.cp("-r", self.bucket, full / "d/"), FAILED, str(full / "d"), "no space left")
        self.assertEqual({len(data) for data in tree(full).values()}, {50000})

    def test_a_bucket_that_is_missing_is_said_once(self):
        for number in range(200):
            self.put(f"t/{number}", b"x")
        done = self.cp("-r", self.bucket + "/t", "gs://no-such-bucket-here/")
        self.fails(done, FAILED, "no-such-bucket-here", "404")

    def test_nobody_listens(self):
        write_tree(self.folder / "t", {f"{i}": b"x" for i in range(200)})
        place = ["--endpoint", "http://127.0.0.1:1"]
        done = ringest("cp", "-r", str(self.folder / "t"), "gs://bucket", *place)
        self.assertEqual(done.returncode, FAILED)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_usage(self):
        path = self.file("f")
        for arguments in (
            [path],
            [path, self.folder / "g"],
            ["-", "-"],
            ["-", self.bucket],
            ["-", self.bucket + "/d/"],
            ["-r", "-", self.bucket + "/o"],
            [path, "gs://x/y"],
            [self.bucket + "/f", path, "--content-type=text/plain"],
            [path, self.bucket, "--method=fast"],
            [path, self.bucket, "--part-size=1K"],
            [path, self.bucket, "--concurrency=0"],
            [path, self.bucket, "--memory=1"],
            [path, self.bucket, "--if-generation-match=x"],
            [path, path, self.bucket, "--if-generation-match=7"],
            [self.bucket + "/f", path, "--if-generation-match=7"],
            [path, self.bucket, "--method=multipart", "--no-clobber"],
        ):
            with self.subTest(arguments):
                self.fails(self.cp(*arguments), USAGE)


class Slow(Copying):
    """A server that takes its time, so that there is a middle to be interrupted in."""

    emulator_arguments = ("--conn-mbps", "200", "--synthetic", "made/o:1:200MiB", "--synthetic", "many/o:400:200KiB")

    def start(self, *arguments):
        process = subprocess.Popen(
            [PROGRAM, "cp", *map(str, arguments), *self.server.place],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stdout.close(), process.stderr.close()))
        return process

    def counted(self, nth, **which):
        """A rule that has struck when the emulator has seen so many requests of those."""
        return Rule((self.server.endpoint, self.server.ca), nth=nth, **which)

    def test_interrupted_and_again(self):
        part = self.folder / ".big.ringest-part"
        arguments = ("gs://made/o00000000", self.folder / "big", "--concurrency=4")
        process = self.start(*arguments)
        until(lambda: part.exists() and part.stat().st_size > 200 << 20 and part.stat().st_blocks * 512 > 16 << 20)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=PATIENCE_S)[1].decode()
        self.assertEqual((process.returncode, errors.count("\n")), (128 + signal.SIGINT, 1), errors)
        self.assertIn("interrupted", errors)
        self.assertEqual([path.name for path in self.folder.iterdir()], [part.name] if "kept" in errors else [])
        self.ok(self.cp(*arguments))
        self.assertEqual([path.name for path in self.folder.iterdir()], ["big"])
        self.assertEqual(self.counts(*arguments), (0, 1, 0))

    def test_parts_that_were_damaged(self):
        """A machine that lost power may have kept the table of parts and not the parts."""
        part = self.folder / ".big.ringest-part"
        arguments = ("gs://made/o00000000", self.folder / "big", "--concurrency=4")
        for _ in range(5):
            process = self.start(*arguments)
            until(lambda: process.poll() is not None or (part.exists() and part.stat().st_blocks * 512 > 16 << 20))
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)
            if part.exists():
                break
        with open(part, "r+b") as file:
            for offset in range(0, 200 << 20, 4 << 20):
                file.seek(offset)
                file.write(b"damage")
        self.ok(self.cp(*arguments))
        # Skipped is what was compared, byte for byte.
        self.assertEqual(self.counts(*arguments), (0, 1, 0))

    def test_killed_and_again(self):
        arguments = ("-r", "gs://many", self.folder / "d/")
        for nth in (1, 10, 40, 80, 120):
            rule = self.counted(nth, bucket="many")
            run_until_held(rule, lambda: self.start(*arguments))
            rule.end()
            whole = list(self.folder.rglob("o*"))
            self.assertEqual({path.stat().st_size for path in whole} - {200 << 10}, set())
        report = self.report(*arguments)
        self.assertEqual((report["copied"] + report["skipped"], report["failed"]), (400, 0))
        self.assertEqual(len(list(self.folder.rglob("*"))), 400 + 2 - 1)

    def test_an_upload_killed_and_again(self):
        """The old object or the complete new one, at whatever moment the program ends. How many moments:
        RINGEST_KILLS; script/soak asks for more."""
        chance = random.Random(SEED)
        versions = [scatter(LARGE_UPLOAD, seed=n) for n in range(3)]
        path = self.file("f", versions[0])
        for method in ("multipart", "compose", "resumable", "single"):
            uri = f"{self.bucket}/{method}"
            self.ok(self.cp(path, uri))
            for number in range(int(os.environ.get("RINGEST_KILLS", "2"))):
                path.write_bytes(versions[1 + number % 2])
                # One in ten may be over before.
                rule = self.counted(chance.randint(1, 10), writes=True)
                run_until_held(rule, lambda: self.start(path, uri, "--method", method, "--part-size=5M"))
                rule.end()
                # What the killed program sent last may be taken a little later, also between the two requests of a cat.
                until(lambda: "it was replaced" not in self.ringest("cat", uri).stderr, "one version for a whole cat")
                self.assertIn(self.cat(method), versions)
            self.ok(self.cp(path, uri, "--method", method))
            self.assertTrue(self.cat(method) == path.read_bytes())
        rm = ("rm", "--unfinished", "--older-than=0", "--json", self.bucket)

        def nothing_is_left():
            """What a killed program sent last may be taken by the server a little later."""
            report = json.loads(self.ok(self.ringest(*rm)))
            self.assertEqual(report["failed"], 0)
            return report["found"] == 0

        until(nothing_is_left)
        self.assertEqual(self.names(), ["compose", "multipart", "resumable", "single"])

    def test_an_upload_interrupted(self):
        path = self.file("f")
        os.truncate(path, HUGE_UPLOAD)
        with self.counted(3, writes=True) as sent:
            process = self.start(path, self.bucket)
            sent.wait()
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=PATIENCE_S)[1].decode()
        self.assertEqual((process.returncode, errors.count("\n")), (128 + signal.SIGTERM, 1), errors)
        self.assertIn("interrupted", errors)
        self.assertNotIn("f", self.names())

    def test_a_source_that_shrinks(self):
        path = self.file("f")
        os.truncate(path, HUGE_UPLOAD)
        with self.counted(2, writes=True) as sent:
            process = self.start(path, self.bucket, "--method=resumable")
            sent.wait()
        os.truncate(path, 1000)
        errors = process.communicate(timeout=PATIENCE_S)[1].decode()
        self.assertEqual((process.returncode, errors.count("\n")), (FAILED, 1), errors)
        self.assertIn(str(path), errors)
        self.assertNotIn("f", self.names())


if __name__ == "__main__":
    unittest.main()
