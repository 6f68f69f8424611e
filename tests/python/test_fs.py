"""ringest.fs: fsspec's interface, and what opens paths by it, as pandas-like callers do. test_lightning.py has
Lightning's ModelCheckpoint, whose import takes longer than all that is here."""

import datetime
import os
import pathlib
import pickle
import shutil
import tempfile
import unittest
from unittest import mock

import fsspec

import ringest.fs
import support
from ringest import _fs_options

FILES = {
    "run/a": b"first",
    "run/b": b"second one",
    "run/deep/c": b"third",
    "run/deep/er/d": b"",
    "run/strange #?%é": b"odd",
    "runaway": b"not in the folder",
}


class Case(unittest.TestCase):
    def setUp(self):
        self.client = self.enterContext(support.client(hedging=False))
        self.fs = ringest.fs.FileSystem(client=self.client)
        self.fs.pipe({f"gs://here/{name}": data for name, data in FILES.items()})
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def local(self, name):
        return os.path.join(self.folder, name)


class Looking(Case):
    def test_a_folder_has_its_objects_and_folders(self):
        self.assertEqual(
            self.fs.ls("gs://here/run", detail=False),
            ["here/run/a", "here/run/b", "here/run/deep", "here/run/strange #?%é"],
        )
        self.assertEqual(self.fs.ls("here/run/deep/er/", detail=False), ["here/run/deep/er/d"])
        self.assertEqual(self.fs.ls("here", detail=False), ["here/run", "here/runaway"])
        found = {entry["name"]: entry for entry in self.fs.ls("here/run")}
        self.assertEqual((found["here/run/b"]["type"], found["here/run/b"]["size"]), ("file", 10))
        self.assertEqual(found["here/run/deep"], {"name": "here/run/deep", "type": "directory", "size": 0})

    def test_an_object_is_its_own_listing(self):
        self.assertEqual([entry["name"] for entry in self.fs.ls("here/run/a")], ["here/run/a"])

    def test_info_tells_objects_from_folders_and_nothing(self):
        self.assertEqual(self.fs.info("gs://here/run/a")["size"], 5)
        for folder in ("here/run", "here/run/", "here"):
            self.assertEqual(self.fs.info(folder)["type"], "directory")
        for nothing in ("here/ru", "here/run/deep/x", "nowhere", "nowhere/x"):
            with self.assertRaises(FileNotFoundError, msg=nothing):
                self.fs.info(nothing)
        self.assertTrue(self.fs.isfile("here/run/a") and self.fs.isdir("here/run") and not self.fs.exists("here/x"))

    def test_info_of_a_large_folder_does_not_list_it(self):
        before = self.client.stats()["requests"]
        self.assertEqual(self.fs.info("data/")["type"], "directory")
        # A page is asked for ahead.
        self.assertLessEqual(self.client.stats()["requests"] - before, 2)

    def test_find_glob_walk_and_du(self):
        under = sorted(f"here/{name}" for name in FILES if name.startswith("run/"))
        self.assertEqual(self.fs.find("here/run"), under)
        self.assertEqual(self.fs.find("here/run/a"), ["here/run/a"])
        self.assertEqual(self.fs.find("here/none"), [])
        self.assertEqual(self.fs.find("here/run", maxdepth=1), ["here/run/a", "here/run/b", "here/run/strange #?%é"])
        self.assertEqual(self.fs.glob("gs://here/run/*/c"), ["here/run/deep/c"])
        self.assertEqual(self.fs.glob("gs://here/run/**/d"), ["here/run/deep/er/d"])
        self.assertEqual(
            [top for top, _, _ in self.fs.walk("here/run")], ["here/run", "here/run/deep", "here/run/deep/er"]
        )
        self.assertEqual(self.fs.du("here/run"), 5 + 10 + 5 + 0 + 3)
        self.assertEqual(len(self.fs.find("data")), support.COUNT)

    def test_a_marker_of_a_folder_is_not_in_it(self):
        self.client.put("gs://here/marked/", b"")
        self.assertEqual(self.fs.ls("here/marked"), [])
        self.assertTrue(self.fs.isdir("here/marked"))

    def test_an_empty_bucket_has_nothing_in_it(self):
        self.fs.pipe_file("empty/a", b"")
        self.fs.rm("empty/a")
        self.assertEqual(self.fs.ls("empty"), [])
        self.assertEqual(list(self.fs.walk("empty")), [("empty", [], [])])
        self.assertEqual((self.fs.find("empty"), self.fs.glob("empty/*"), self.fs.du("empty")), ([], [], 0))
        self.assertEqual(self.fs.info("empty")["type"], "directory")
        for method in (self.fs.ls, self.fs.info, self.fs.find):
            with self.assertRaises(FileNotFoundError):
                method("nowhere")

    def test_names_with_empty_parts(self):
        self.client.put("gs://odd/a//b", b"odd")
        self.assertEqual(self.fs.ls("odd/a"), [])
        self.assertEqual(list(self.fs.walk("odd")), [("odd", ["a"], []), ("odd/a", [], [])])
        self.assertEqual(self.fs.find("odd"), ["odd/a//b"])
        self.assertEqual(self.fs.find("odd", withdirs=True), ["odd", "odd/a", "odd/a//b"])
        self.assertEqual(self.fs.cat_file("odd/a//b"), b"odd")
        self.fs.rm("odd/a", recursive=True)
        self.assertEqual(self.fs.find("odd"), [])

    def test_what_cannot_be_asked_for_is_not_what_is_missing(self):
        with ringest.Client(self.client._settings["endpoint"], attempts=1) as distrustful:
            fs = ringest.fs.FileSystem(client=distrustful)
            for asks in (fs.exists, fs.isfile, fs.isdir, fs.info):
                with self.assertRaises(ringest.Error):
                    asks("here/run/a")

    def test_times_and_what_else_is_known(self):
        before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=1)
        self.fs.pipe_file("here/typed", b"some", content_type="text/x")
        info = self.fs.info("here/typed")
        for name in ("mtime", "created", "ctime"):
            self.assertLess(before, info[name])
        self.assertEqual(info["mtime"], self.fs.modified("here/typed"))
        self.assertEqual(info["created"], self.fs.created("here/typed"))
        self.assertEqual((info["contentType"], info["content_type"]), ("text/x", "text/x"))
        self.assertEqual((info["md5Hash"], info["metadata"]), ("A9WeZjwa+awzqZSdEZNQWg==", {}))
        listed = {entry["name"]: entry for entry in self.fs.ls("here")}["here/typed"]
        found = self.fs.find("here", detail=True)["here/typed"]
        self.assertEqual(listed, found)
        self.assertEqual(listed, {key: info[key] for key in listed})
        self.assertIn("mtime", listed)

    def test_what_is_not_understood_is_refused(self):
        for call in (
            lambda: self.fs.ls("here", acl="private"),
            lambda: self.fs.info("here/run/a", projection="full"),
            lambda: self.fs.find("here", versions=True),
            lambda: self.fs.pipe_file("here/x", b"", metadata={"a": "b"}),
            lambda: self.fs.pipe({"here/x": b""}, acl="private"),
            lambda: self.fs.put_file(__file__, "here/x", metadata={}),
            lambda: self.fs.cat_file("here/run/a", raw=True),
            lambda: self.fs.copy("here/run/a", "here/x", acl="private"),
        ):
            with self.assertRaisesRegex(TypeError, "has no argument"):
                call()
        with self.assertRaisesRegex(ValueError, "version_aware=True"):
            self.fs.ls("here", versions=True)
        with self.assertRaisesRegex(ValueError, "maxdepth"):
            self.fs.find("here", prefix="run", maxdepth=1)
        with self.assertRaisesRegex(ValueError, "overwrite"):
            self.fs.pipe_file("here/x", b"", mode="append")
        self.assertFalse(self.fs.exists("here/x"))

    def test_a_prefix_and_folders_by_one_listing(self):
        self.assertEqual(self.fs.find("here", prefix="runa"), ["here/runaway"])
        self.assertEqual(self.fs.find("here/run", prefix="none"), [])
        under = self.fs.find("here/run", withdirs=True, detail=True)
        self.assertEqual(
            [name for name, entry in under.items() if entry["type"] == "directory"],
            ["here/run", "here/run/deep", "here/run/deep/er"],
        )
        before = self.client.stats()["requests"]
        self.fs.find("here/run", withdirs=True)
        self.assertLessEqual(self.client.stats()["requests"] - before, 2)
        self.assertEqual(self.fs.du("here/run", total=False)["here/run/b"], 10)

    def test_the_time_and_the_checksum_change_with_the_object(self):
        first = self.fs.checksum("here/run/a")
        modified = self.fs.modified("here/run/a")
        self.fs.pipe_file("here/run/a", b"other")
        self.assertNotEqual(self.fs.checksum("here/run/a"), first)
        self.assertGreaterEqual(self.fs.created("here/run/a"), modified)

    def test_buckets_are_not_listed(self):
        for path in ("", "gs://", "/"):
            with self.assertRaisesRegex(ValueError, "buckets are not listed"):
                self.fs.ls(path)


class Reading(Case):
    def test_files_are_read_from_any_place(self):
        with self.fs.open("gs://here/run/b") as file:
            self.assertEqual((file.read(3), file.seek(-3, os.SEEK_END), file.read()), (b"sec", 7, b"one"))
        with self.fs.open("here/run/b", "r", encoding="ascii") as file:
            self.assertEqual(file.read(), "second one")

    def test_ranges(self):
        whole = FILES["run/b"]
        for start, end in (
            (0, 3),
            (2, None),
            (-3, None),
            (None, -2),
            (4, 4),
            (5, 2),
            (3, 100),
            (None, None),
            (0, None),
            (10, 12),
            (10, None),
            (100, None),
            (100, 200),
            (-100, None),
            (-100, 3),
            (None, -100),
            (-3, 100),
            (5, -100),
            (-2, -5),
        ):
            self.assertEqual(self.fs.cat_file("here/run/b", start, end), whole[start:end], (start, end))
            self.assertEqual(self.fs.cat_ranges(["here/run/b"], start, end), [whole[start:end]], (start, end))
            self.assertEqual(self.fs.cat("here/run/b", start=start, end=end), whole[start:end])
            self.assertEqual(self.fs.cat(["here/run/b"], start=start, end=end), {"here/run/b": whole[start:end]})
        for start, end in ((0, 5), (None, None), (-1, None), (3, None)):
            self.assertEqual(self.fs.cat_file("here/run/deep/er/d", start, end), b"")
        self.assertEqual((self.fs.head("here/run/b", 3), self.fs.tail("here/run/b", 3)), (b"sec", b"one"))
        self.assertEqual((self.fs.head("here/run/b", 0), self.fs.tail("here/run/b", 0)), (b"", b""))
        self.assertEqual(self.fs.tail("here/run/b"), whole)
        for start, end in ((5, None), (-5, None)):
            with self.assertRaises(FileNotFoundError):
                self.fs.cat_file("here/none", start, end)

    def test_a_range_from_the_end_of_what_is_replaced(self):
        real = self.client.stat
        sizes = iter([b"longer than before", b"last"])

        def replacing(uri, **options):
            facts = real(uri, **options)
            for data in sizes:
                self.client.put(uri, data)
                break
            return facts

        self.client.stat = replacing
        self.assertEqual(self.fs.cat_file("here/run/b", -4), b"last")

    def test_an_open_file_goes_to_other_processes(self):
        with self.fs.open("here/run/b") as file:
            file.seek(3)
            packed = pickle.dumps(file)
            again = pickle.loads(packed)
            self.assertEqual((again.read(4), again.generation), (b"ond ", file.generation))
            # It is that generation or none.
            self.fs.pipe_file("here/run/b", b"another one")
            with self.assertRaises(FileNotFoundError):
                pickle.loads(packed).read()

    def test_many_are_read_at_once(self):
        self.assertEqual(self.fs.cat("here/run/a"), b"first")
        self.assertEqual(
            self.fs.cat("here/run", recursive=True),
            {f"here/{name}": data for name, data in FILES.items() if name.startswith("run/")},
        )
        self.assertEqual(
            self.fs.cat_ranges(["here/run/a", "here/run/b", "here/run/b"], [0, 1, -3], [2, 4, None]),
            [b"fi", b"eco", b"one"],
        )

    def test_what_is_missing_is_an_error_of_its_own(self):
        found = self.fs.cat_ranges(["here/run/a", "here/none", "here/none"], [0, 0, -1], [1, 1, None])
        self.assertEqual(found[0], b"f")
        self.assertIsInstance(found[1], FileNotFoundError)
        self.assertIsInstance(found[2], FileNotFoundError)
        with self.assertRaises(FileNotFoundError):
            self.fs.cat_ranges(["here/none"], 0, 1, on_error="raise")
        with self.assertRaises(FileNotFoundError):
            self.fs.cat_file("here/none")
        with self.assertRaises(FileNotFoundError):
            self.fs.open("here/none")
        self.assertEqual(self.fs.cat(["here/run/a", "here/none"], on_error="omit"), {"here/run/a": b"first"})

    def test_into_local_files(self):
        self.fs.get("gs://here/run", self.local("copy"), recursive=True)
        for name, data in FILES.items():
            if name.startswith("run/"):
                with open(self.local("copy" + name[3:]), "rb") as file:
                    self.assertEqual(file.read(), data, name)
        self.assertEqual(os.stat(self.local("copy/a")).st_mode & 0o111, 0)

    def test_no_name_leads_out_of_the_folder(self):
        """As with "ringest cp -r": all else is copied, and what cannot be there is named."""
        good = ["a", "sub/b", "sub/..c"]
        bad = ["..", "../../out", "./d", "e/..", "f/../a", "g/./h", "i//j"]
        self.fs.pipe({f"here/up/{name}": name.encode() for name in [*good, *bad]})
        inside = self.local("x/y/copy")
        os.makedirs(inside)
        for target, source in (
            (f"{inside}/", "here/up/"),
            (f"{inside}/", "gs://here/up"),
            (inside + "/new", "here/up"),
        ):
            shutil.rmtree(inside)
            os.makedirs(inside)
            with self.assertRaises(ValueError) as raised:
                self.fs.get(source, target, recursive=True)
            said = "\n".join([str(raised.exception), *raised.exception.__notes__])
            for name in bad:
                self.assertIn(f"gs://here/up/{name}: cannot be a file below {target}: it has ", said)
            self.assertEqual(said.count("cannot be a file"), len(bad), said)
            found = [os.path.join(at, each) for at, _, files in os.walk(self.folder) for each in files]
            self.assertEqual(len(found), len(good), found)
            below = {"gs://here/up": inside + "/up", "here/up/": inside}.get(source, target)
            for name in good:
                with open(f"{below}/{name}", "rb") as file:
                    self.assertEqual(file.read(), name.encode())
        with self.assertRaisesRegex(ValueError, "gs://here/up/e/..: cannot be a file"):
            self.fs.get(["here/up/a", "here/up/e/.."], self.local("flat"))
        self.assertEqual(os.listdir(self.local("flat")), ["a"])
        # Who names each place means it.
        self.fs.get(["here/up/.."], [self.local("named")])
        with open(self.local("named"), "rb") as file:
            self.assertEqual(file.read(), b"..")

    def test_a_local_file_appears_whole_or_not_at_all(self):
        with open(self.local("kept"), "wb") as file:
            file.write(b"before")
        with self.assertRaises(FileNotFoundError):
            self.fs.get_file("here/none", self.local("kept"))
        self.assertEqual(os.listdir(self.folder), ["kept"])


class Writing(Case):
    def test_a_file_appears_when_it_is_closed(self):
        with self.fs.open("gs://here/new", "wb") as file:
            file.write(b"some")
            self.assertFalse(self.fs.exists("here/new"))
        self.assertEqual(self.fs.cat_file("here/new"), b"some")
        with self.assertRaises(KeyError), self.fs.open("gs://here/left", "wb") as file:
            file.write(b"some")
            raise KeyError
        self.assertFalse(self.fs.exists("here/left"))
        with self.fs.open("here/text", "w", encoding="utf-8") as file:
            file.write("grün")
        self.assertEqual(self.fs.cat_file("here/text"), "grün".encode())

    def test_what_is_there_is_not_created(self):
        with self.assertRaises(FileExistsError), self.fs.open("here/run/a", "xb") as file:
            file.write(b"x")
        with self.assertRaises(FileExistsError):
            self.fs.pipe_file("here/run/a", b"x", mode="create")
        self.fs.touch("here/run/a", truncate=False)
        self.assertEqual(self.fs.cat_file("here/run/a"), b"first")
        self.fs.touch("here/run/a")
        self.assertEqual(self.fs.cat_file("here/run/a"), b"")
        with self.fs.open("here/fresh", "xb") as file:
            file.write(b"x")
        self.assertEqual(self.fs.cat_file("here/fresh"), b"x")

    def test_nothing_is_no_content(self):
        self.fs.pipe_file("here/x", b"before")
        with self.assertRaisesRegex(TypeError, "nothing to write"):
            self.fs.pipe("here/x")
        for nothing in (None, "text", 5):
            with self.assertRaises(TypeError):
                self.fs.pipe_file("here/x", nothing)
        self.assertEqual(self.fs.cat_file("here/x"), b"before")
        self.fs.pipe(pathlib.PurePosixPath("here/x"), b"")
        self.assertEqual(self.fs.cat_file("here/x"), b"")

    def test_many_are_created_or_not(self):
        with self.assertRaisesRegex(FileExistsError, "gs://here/run/a"):
            self.fs.pipe({"here/run/a": b"x", "here/new": b"new"}, mode="create")
        self.assertEqual((self.fs.cat_file("here/run/a"), self.fs.cat_file("here/new")), (b"first", b"new"))
        with self.assertRaises(FileExistsError) as caught:
            self.fs.pipe({"here/run/a": b"x", "here/run/b": b"x"}, mode="create")
        self.assertEqual(len(caught.exception.__notes__), 1)
        self.fs.pipe({"here/one": b"1", "here/two": b"2"}, mode="create", content_type="text/x")
        self.assertEqual(self.fs.info("here/two")["contentType"], "text/x")
        with open(self.local("file"), "wb") as file:
            file.write(b"up")
        with self.assertRaises(FileExistsError):
            self.fs.put_file(self.local("file"), "here/run/a", mode="create")
        self.assertEqual(self.fs.cat_file("here/run/a"), b"first")
        self.fs.put_file(self.local("file"), "here/fresh", mode="create", content_type="text/y")
        self.assertEqual(self.fs.info("here/fresh")["contentType"], "text/y")
        self.fs.put(self.local("file"), "here/run/a", mode="overwrite")
        self.assertEqual(self.fs.cat_file("here/run/a"), b"up")

    def test_files_are_as_the_umask_says(self):
        self.fs.pipe_file("bucket/private", b"x")
        before = os.umask(0o027)
        try:
            # It is the process's: whoever asks for it by setting it opens a gap for others.
            with mock.patch("os.umask", side_effect=AssertionError):
                self.fs.get_file("bucket/private", self.local("private"))
        finally:
            os.umask(before)
        self.assertEqual(os.stat(self.local("private")).st_mode & 0o777, 0o640)

    def test_a_file_that_is_replaced_keeps_its_mode(self):
        self.fs.pipe_file("bucket/private", b"new")
        for mode in (0o600, 0o664, 0o666):
            with open(self.local("private"), "wb"):
                os.chmod(self.local("private"), mode)
            self.fs.get_file("bucket/private", self.local("private"))
            self.assertEqual(oct(os.stat(self.local("private")).st_mode & 0o777), oct(mode))

    def test_a_group_that_cannot_be_kept_is_not_another(self):
        self.fs.pipe_file("bucket/private", b"new")
        with open(self.local("private"), "wb"):
            os.chmod(self.local("private"), 0o664)
        there = os.stat(self.local("private"))
        other = os.stat_result([*there[:5], there.st_gid + 1, *there[6:]])
        stat = os.stat
        with mock.patch("os.stat", lambda path, **o: other if path == self.local("private") else stat(path, **o)):
            with mock.patch("os.fchown", side_effect=PermissionError):
                self.fs.get_file("bucket/private", self.local("private"))
        self.assertEqual(oct(os.stat(self.local("private")).st_mode & 0o777), oct(0o644))

    def test_links_and_pipes_stay(self):
        self.fs.pipe_file("bucket/some", b"new")
        os.symlink("target", self.local("link"))
        for _ in range(2):
            self.fs.get_file("bucket/some", self.local("link"))
            self.assertTrue(os.path.islink(self.local("link")))
            with open(self.local("target"), "rb") as file:
                self.assertEqual(file.read(), b"new")
        os.mkfifo(self.local("pipe"))
        heard = os.open(self.local("pipe"), os.O_RDONLY | os.O_NONBLOCK)
        try:
            self.fs.get_file("bucket/some", self.local("pipe"))
            self.assertEqual(os.read(heard, 10), b"new")
        finally:
            os.close(heard)
        self.assertEqual(sorted(os.listdir(self.folder)), ["link", "pipe", "target"])

    def test_modes_that_objects_do_not_have(self):
        for mode in ("ab", "r+b"):
            with self.assertRaisesRegex(NotImplementedError, "written whole"):
                self.fs.open("here/run/a", mode)
        with self.assertRaisesRegex(ValueError, "not gs://BUCKET/OBJECT"):
            self.fs.open("gs://here", "wb")

    def test_local_files_go_up(self):
        for name in ("one", "sub/two"):
            os.makedirs(os.path.dirname(self.local(name)), exist_ok=True)
            with open(self.local(name), "wb") as file:
                file.write(name.encode())
        self.fs.put(self.folder, "gs://here/up", recursive=True)
        found = self.fs.cat("here/up", recursive=True)
        self.assertEqual(sorted(found.values()), [b"one", b"sub/two"])

    def test_copies_moves_and_removals(self):
        self.fs.copy("gs://here/run", "gs://here/twin", recursive=True)
        self.assertEqual(self.fs.cat_file("here/twin/deep/c"), b"third")
        self.fs.mv("here/twin/a", "here/twin/z")
        self.assertFalse(self.fs.exists("here/twin/a"))
        self.assertEqual(self.fs.cat_file("here/twin/z"), b"first")
        self.fs.rm("gs://here/twin", recursive=True)
        self.assertFalse(self.fs.exists("here/twin"))
        self.fs.rm(["here/run/a", "here/run/b"])
        self.assertEqual(self.fs.find("here/run"), ["here/run/deep/c", "here/run/deep/er/d", "here/run/strange #?%é"])
        self.assertTrue(self.fs.exists("here/runaway"))
        for recursive in (False, True):
            with self.assertRaises(FileNotFoundError):
                self.fs.rm("here/twin", recursive=recursive)

    def test_markers_of_folders_go_with_them(self):
        for name in ("tree/", "tree/deep/", "tree/deep/a", "bare/", "emptied/"):
            self.client.put(f"gs://here/{name}", b"")
        self.client.put("gs://here/tree", b"an object of that name")
        self.fs.rm("here/tree", recursive=True)
        self.assertEqual([name for name, _, _ in self.client.list("gs://here/tree")], [])
        self.assertTrue(self.fs.isdir("here/bare"))
        self.fs.rm("here/bare", recursive=True)
        self.assertFalse(self.fs.exists("here/bare"))
        self.fs.rmdir("here/emptied")
        self.assertFalse(self.fs.exists("here/emptied"))
        self.fs.rmdir("here/run")
        self.fs.rmdir("here/none")
        self.assertTrue(self.fs.exists("here/run/a"))
        self.client.put("gs://here/some/", b"")
        self.client.put("gs://here/some/a", b"")
        self.fs.rm("here/s*", recursive=True)
        self.assertEqual([name for name, _, _ in self.client.list("gs://here/s")], [])
        self.fs.rm("here", recursive=True)
        self.assertEqual(len(self.client.list("gs://here/")), 0)

    def test_a_move_removes_only_what_it_copied(self):
        copy = self.fs._copy_pairs

        def meanwhile(*arguments):
            moved = copy(*arguments)
            self.fs.pipe({"here/run/late": b"late", "here/run/a": b"replaced"})
            return moved

        self.fs._copy_pairs = meanwhile
        self.client.put("gs://here/run/deep/", b"")
        self.fs.mv("here/run", "here/moved", recursive=True)
        self.assertEqual(self.fs.find("here/run"), ["here/run/a", "here/run/late"])
        self.assertEqual((self.fs.cat_file("here/run/a"), self.fs.cat_file("here/moved/a")), (b"replaced", b"first"))
        self.assertEqual(self.fs.cat_file("here/moved/deep/c"), b"third")
        self.assertFalse(self.fs.exists("here/run/deep"))

    def test_a_move_of_a_certain_depth_leaves_the_rest(self):
        self.fs.mv("here/run", "here/moved", recursive=True, maxdepth=1)
        self.assertEqual(self.fs.find("here/run"), ["here/run/deep/c", "here/run/deep/er/d"])
        self.assertEqual(self.fs.cat_file("here/moved/a"), b"first")

    def test_to_its_own_place_nothing_changes(self):
        """A copy would have the bucket's storage class, and be another generation."""
        self.client.put("gs://here/own/a", b"some", storage_class="NEARLINE")
        before = self.fs.info("here/own/a")
        self.fs.mv("here/own/a", "gs://here/own/a")
        self.fs.copy("here/own/a", "gs://here/own/a")
        self.fs.mv("here/own/", "gs://here/own/", recursive=True)
        after = self.fs.info("here/own/a")
        self.assertEqual((after["generation"], after["storage_class"]), (before["generation"], "NEARLINE"))

    def test_a_bucket_is_a_folder(self):
        for name in ("many/a", "many/in/b"):
            self.fs.pipe_file(name, b"some")
        self.client.put("gs://many/in/", b"")
        self.fs.copy("many", "here/copied", recursive=True)
        self.assertEqual(self.fs.find("here/copied"), ["here/copied/a", "here/copied/in/b"])
        self.fs.mv("gs://many", "here/moved", recursive=True)
        self.assertEqual(self.fs.find("here/moved"), ["here/moved/a", "here/moved/in/b"])
        self.assertEqual(self.fs.find("many"), [])
        with self.assertRaisesRegex(ValueError, "1 sources and 2 targets"):
            self.fs.copy(["here/moved/a"], ["here/x", "here/y"])

    def test_a_folder_is_not_moved_without_a_word(self):
        self.fs.pipe_file("here/folder/a", b"some")
        for source in ("here/folder", "here/folder/", "here/fold*"):
            with self.assertRaisesRegex(IsADirectoryError, "moved with recursive=True"):
                self.fs.mv(source, "here/elsewhere")
        self.fs.mv("here/folder", "here/elsewhere", recursive=True)
        self.assertEqual(self.fs.find("here/elsewhere"), ["here/elsewhere/a"])

    def test_storage_classes(self):
        self.fs.pipe_file("here/a", b"some", storage_class="NEARLINE")
        self.fs.pipe({"here/b": b"some"}, storage_class="NEARLINE")
        with self.fs.open("here/c", "w", storage_class="NEARLINE") as file:
            file.write("some")
        self.fs.put_file(__file__, "here/d", storage_class="NEARLINE")
        self.assertEqual({self.fs.info(f"here/{name}")["storageClass"] for name in "abcd"}, {"NEARLINE"})

    def test_a_move_that_fails_removes_nothing(self):
        with self.assertRaises(FileNotFoundError):
            self.fs.mv(["here/run/a", "here/none"], ["here/x", "here/y"])
        self.assertTrue(self.fs.exists("here/run/a"))
        self.fs.mv("here/run/a", "gs://here/run/a")
        self.assertEqual(self.fs.cat_file("here/run/a"), b"first")

    def test_a_removal_takes_only_what_it_found(self):
        delete = self.client.delete

        def meanwhile(items, **options):
            self.client.put("gs://here/run/a", b"replaced")
            self.client.delete("gs://here/run/b")
            return delete(items, **options)

        with mock.patch.object(
            ringest.Client,
            "delete",
            lambda client, items, **options: (
                delete(items, **options) if isinstance(items, str) else meanwhile(items, **options)
            ),
        ):
            self.fs.rm("here/run", recursive=True)
        self.assertEqual((self.fs.find("here/run"), self.fs.cat_file("here/run/a")), (["here/run/a"], b"replaced"))
        self.fs.rm("here/run", recursive=True, maxdepth=1)
        self.assertFalse(self.fs.exists("here/run"))

    def test_what_cannot_be_asked_for_is_not_left_without_a_word(self):
        self.client.put("gs://here/run", b"an object of that name")
        self.client.put("gs://here/run/", b"")
        stat = ringest.PermissionDeniedError("gs://here/run", "PERMISSION", "no", 403, 0, None)
        with mock.patch.object(type(self.fs), "_stats", lambda fs, uris: dict.fromkeys(uris, stat)):
            for call in (
                lambda: self.fs.rm("here/run", recursive=True),
                lambda: self.fs._markers(["here/run"]),
            ):
                with self.assertRaises(ringest.PermissionDeniedError):
                    call()
        self.assertTrue(self.fs.exists("here/run/a"))

    def test_copies_that_would_meet_are_refused(self):
        meeting = (
            (["here/run/a", "here/run/deep/a"], "here/one/"),
            (["here/run/a", "here/run/b"], ["here/run/b", "here/run/a"]),
            (["here/run/a", "here/run/b"], ["here/run/b", "here/run/x"]),
            (["here/run/a", "here/run/b"], ["gs://here/run/x", "here/run/x"]),
        )
        self.fs.pipe({"here/run/deep/a": b"other", "here/run/run/a": b"below"})
        before = self.fs.cat("here/run", recursive=True)
        for call in (self.fs.mv, self.fs.copy):
            for path1, path2 in meeting:
                with (
                    self.subTest(call.__name__, path1=path1, path2=path2),
                    self.assertRaisesRegex(ValueError, "gs://here/"),
                ):
                    call(path1, path2)
            with self.assertRaisesRegex(ValueError, "gs://here/run/run/a"):
                call("here/run/", "here/run/run/", recursive=True)
            self.assertEqual(self.fs.cat("here", recursive=True), self.fs.cat("here", recursive=True) | before)
            self.assertEqual(self.fs.find("here/one"), [])
        self.fs.copy(["here/run/a", "here/run/a"], ["here/x", "here/y"])
        self.assertEqual((self.fs.cat_file("here/x"), self.fs.cat_file("here/y")), (b"first", b"first"))

    def test_a_tree_goes_into_itself(self):
        self.fs.mv("here/run", "here/run/deep", recursive=True)
        self.assertEqual(self.fs.cat_file("here/run/deep/run/deep/c"), b"third")
        self.assertFalse(self.fs.exists("here/run/a"))

    def test_empty_folders_go_along(self):
        for name in ("tree/", "tree/bare/", "tree/bare/er/", "there/bare/"):
            self.client.put(f"gs://here/{name}", b"")
        self.client.put("gs://here/tree/a", b"some")
        self.client.put("gs://here/tree/odd/", b"content")
        self.fs.copy("here/tree", "here/copy", recursive=True)
        self.fs.mv("here/tree/", "here/there/", recursive=True)
        found = [name for name, _, _ in self.client.list("gs://here/") if name.startswith(("tree", "copy", "there"))]
        whole = ["", "a", "bare/", "bare/er/"]
        expected = [f"copy/{name}" for name in whole] + [f"there/{name}" for name in whole] + ["tree/odd/"]
        self.assertEqual(found, expected)
        self.fs.pipe_file("other/x", b"")
        self.fs.mv("here/there/", "other/", recursive=True)
        self.assertEqual([name for name, _, _ in self.client.list("gs://other/")], [*whole[1:], "x"])

    def test_names_that_look_like_patterns(self):
        names = ["odd/a1.txt", "odd/a[1].txt", "odd/run1/f", "odd/run[1]/f", "odd/*", "odd/q?", "odd/qq"]
        self.fs.pipe({f"here/{name}": name.encode() for name in names})
        self.assertEqual(self.fs.cat("here/odd/a[1].txt"), b"odd/a[1].txt")
        self.assertEqual(self.fs.cat(["here/odd/*"]), {"here/odd/*": b"odd/*"})
        self.fs.get("here/odd/run[1]", self.local("got"), recursive=True)
        self.assertEqual(os.listdir(self.folder), ["got"])
        self.fs.copy("here/odd/q?", "here/odd/copied")
        self.fs.mv("here/odd/a[1].txt", "here/odd/moved")
        self.assertEqual(
            (self.fs.cat_file("here/odd/copied"), self.fs.cat_file("here/odd/moved")), (b"odd/q?", b"odd/a[1].txt")
        )
        self.fs.rm("here/odd/run[1]", recursive=True)
        self.fs.rm(["here/odd/*", "here/odd/q?"])
        self.assertEqual(
            self.fs.find("here/odd"), [f"here/odd/{name}" for name in ("a1.txt", "copied", "moved", "qq", "run1/f")]
        )
        self.fs.rm("here/odd/a[1].txt")  # Nothing is named so now: it is a pattern.
        self.fs.rm("here/odd/*", recursive=True)
        self.assertEqual(self.fs.find("here/odd"), [])

    def test_several_failures_are_one_error(self):
        with self.assertRaises(FileNotFoundError) as caught:
            self.fs.rm(["here/none", "here/run/a", "here/nothing"])
        self.assertEqual(len(caught.exception.__notes__), 1)
        self.assertFalse(self.fs.exists("here/run/a"))

    def test_folders_are_parts_of_names(self):
        self.fs.makedirs("here/made/up", exist_ok=True)
        self.fs.mkdir("here/made")
        self.assertFalse(self.fs.exists("here/made"))


class Copying(Case):
    def test_the_client_copies_on_condition(self):
        facts = self.client.copy("gs://here/run/a", "gs://here/copied", if_generation_match=0)
        self.assertEqual(facts["storage_class"], "STANDARD")
        facts = self.client.copy("gs://here/copied", "gs://here/copied", storage_class="NEARLINE")
        self.assertEqual((facts["storage_class"], facts["found_done"]), ("NEARLINE", False))
        with self.assertRaisesRegex(TypeError, "storage_class must be a str or None, got 5"):
            self.client.copy("gs://here/run/a", "gs://here/copied", storage_class=5)
        self.assertEqual((facts["name"], facts["size"]), ("copied", 5))
        with self.assertRaises(ringest.PreconditionError):
            self.client.copy("gs://here/run/b", "gs://here/copied", if_generation_match=0)
        self.client.copy("gs://here/run/b", "gs://here/copied", if_generation_match=facts["generation"])
        self.assertEqual(bytes(self.client.get("gs://here/copied")), b"second one")
        with self.assertRaises(FileNotFoundError):
            self.client.copy("gs://here/none", "gs://here/copied")
        with self.assertRaises(ValueError):
            self.client.copy("gs://here/run/b", "copied")

    def test_a_folder_is_listed_in_part(self):
        objects, folders = self.client.list_folder("gs://here/run/")
        self.assertEqual(
            ([name for name, _, _ in objects], list(folders)), (["run/a", "run/b", "run/strange #?%é"], ["run/deep/"])
        )
        objects, folders = self.client.list_folder("gs://data/", limit=3)
        self.assertEqual((len(objects), list(folders)), (3, []))


class Registered(Case):
    def setUp(self):
        super().setUp()
        ringest.fs.register(self.client)

    def test_paths_open_by_us(self):
        with fsspec.open("gs://here/run/a", "rb") as file:
            self.assertEqual(file.read(), b"first")
        fs, path = fsspec.core.url_to_fs("gcs://here/run/a")
        self.assertIsInstance(fs, ringest.fs.FileSystem)
        self.assertEqual(fs.cat(path), b"first")
        self.assertEqual(fs.unstrip_protocol(path), "gs://here/run/a")

    def test_options_make_another_client(self):
        endpoint, ca = self.client._settings["endpoint"], self.client._settings["ca"]
        other = fsspec.filesystem("gs", endpoint=endpoint, ca=ca)
        self.assertIsNot(other.client, self.client)
        self.assertEqual(other.cat("here/run/a"), b"first")
        with self.assertRaisesRegex(ValueError, "a client is given"):
            ringest.fs.FileSystem(client=self.client, endpoint=endpoint)

    def test_the_arguments_of_gcsfs_are_understood_or_refused(self):
        endpoint, ca = self.client._settings["endpoint"], self.client._settings["ca"]
        fs = fsspec.filesystem("gcs", endpoint_url=endpoint, token="anon", project="p", ca=ca, use_listings_cache=False)
        self.assertEqual(fs.cat("here/run/a"), b"first")
        self.assertEqual(fs.client._settings["credentials"], "anonymous")
        # What gcsfs logs in with, which would be sent as if it were an access token.
        with tempfile.NamedTemporaryFile(suffix=".txt") as file:
            for path in ("/none/key.json", file.name, pathlib.Path(file.name)):
                storage, others = _fs_options.client_options({"token": path, "consistency": "md5"})
                self.assertEqual((storage, others), ({"credentials": str(path)}, {"consistency": "md5"}))
        self.assertEqual(_fs_options.client_options({"token": "ya29.a"})[0], {"token": "ya29.a"})
        self.assertEqual(_fs_options.client_options({"token": None})[0], {"token": None})
        for token in ("browser", "cache"):
            with self.assertRaisesRegex(ValueError, f"token='{token}' is a login of gcsfs; leave it out after `gcloud"):
                ringest.fs.FileSystem(token=token)
        with self.assertRaisesRegex(TypeError, "token is a str here, got dict: write a key into a file"):
            ringest.fs.FileSystem(token={"type": "service_account"})
        with self.assertRaisesRegex(ValueError, "given twice"):
            ringest.fs.FileSystem(token="/none/key.json", credentials="anonymous")
        payer = ringest.fs.FileSystem(requester_pays="payer")
        self.assertEqual(payer.client._settings["user_project"], "payer")
        payer = ringest.fs.FileSystem(requester_pays=True, project="payer")
        self.assertEqual(payer.client._settings["user_project"], "payer")
        with self.assertRaisesRegex(TypeError, "default_location"):
            fsspec.filesystem("gs", default_location="eu")
        with self.assertRaisesRegex(ValueError, "project that pays"):
            ringest.fs.FileSystem(requester_pays=True)
        with self.assertRaisesRegex(ValueError, "given twice"):
            ringest.fs.FileSystem(endpoint=endpoint, endpoint_url=endpoint)

    def test_it_goes_to_other_processes(self):
        for one in (self.fs, fsspec.filesystem("gs")):
            fs = pickle.loads(pickle.dumps(one))
            self.assertEqual(fs.cat("here/run/a"), b"first")
            self.assertEqual((fs, hash(fs), repr(fs)), (one, hash(one), repr(one)))
        self.assertNotEqual(self.fs, ringest.fs.FileSystem())
        self.assertNotIn("0x", repr(self.fs))


if __name__ == "__main__":
    unittest.main()
