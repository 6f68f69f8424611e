"""`ringest ls`: names, prefixes, pages, and names that are hard to print."""

import json
import os
import subprocess
import tempfile
import unittest

from support import DONE, FAILED, PROGRAM, Case, Emulator, ServedCase, Terminal, environment, ringest

NAMES = ("with space", "per%20cent%", "ha#sh?x=1&y", "uni/ä€😀", 'quo"te\\', "tab\there\x7f", "a/b/c", "a/d")


class Listing(ServedCase):
    emulator_arguments = ("--synthetic", "made/part-:2500:1KiB", "--synthetic", "many/o:50000:1")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name in NAMES:
            cls.server.put("bucket", name, name.encode())

    def ls(self, uri, *arguments):
        return self.ok(self.ringest("ls", uri, *arguments)).decode()

    def ls_json(self, uri, *arguments):
        return json.loads(self.ls(uri, "--json", *arguments))

    def test_names_are_cut_behind_the_next_slash(self):
        listed = self.ls_json("gs://bucket/")
        self.assertEqual(sorted(listed["prefixes"]), ["a/", "uni/"])
        wanted = sorted(name for name in NAMES if "/" not in name)
        self.assertEqual([each["name"] for each in listed["objects"]], wanted)

    def test_recursive_gives_all_names_in_order(self):
        for option in ("--recursive", "-r"):
            listed = self.ls_json("gs://bucket/", option)
            self.assertEqual([each["name"] for each in listed["objects"]], sorted(NAMES, key=str.encode))
            self.assertEqual(listed["prefixes"], [])

    def test_fields_of_an_object(self):
        listed = {each["name"]: each for each in self.ls_json("gs://bucket/", "-r")["objects"]}
        for name in NAMES:
            self.assertEqual(set(listed[name]), {"name", "size", "generation", "crc32c", "updated"})
            self.assertEqual(listed[name]["size"], len(name.encode()))
            self.assertGreater(int(listed[name]["generation"]), 0)
            self.assertRegex(listed[name]["crc32c"], r"^[\w+/]{6}==$")
            self.assertRegex(listed[name]["updated"], r"^\d{4}-\d\d-\d\dT.*Z$")

    def test_a_bucket_without_slash(self):
        self.assertEqual(self.ls("gs://bucket"), self.ls("gs://bucket/"))

    def test_lines(self):
        self.assertEqual(self.ls("gs://bucket/a/"), "gs://bucket/a/b/\ngs://bucket/a/d\n")
        self.assertEqual(self.ls("gs://bucket/a", "-r"), "gs://bucket/a/b/c\ngs://bucket/a/d\n")

    def test_a_reader_that_goes_away(self):
        for arguments in ([], ["--json"], ["--long"]):
            with subprocess.Popen(
                [PROGRAM, "ls", "-r", "gs://many/", *arguments, *self.server.place],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as ls:
                ls.stdout.read(1)
                ls.stdout.close()
                self.assertEqual((ls.wait(60), ls.stderr.read()), (FAILED, b""))

    def test_names_cannot_drive_a_terminal(self):
        self.server.put("hostile", "a\x1b]0;title\x07", b"x")
        for words in (("ls", "-l"), ("stat",), ("rm", "-r", "--dry-run"), ("cp", "-r", "--dry-run")):
            terminal = Terminal(80)
            place = "gs://hostile/" if words[0] != "stat" else "gs://hostile/a\x1b]0;title\x07"
            to = ("gs://hostile-2/",) if words[0] == "cp" else ()
            done = self.ringest(*words, place, *to, stdout=terminal.far)
            self.assertEqual(done.returncode, DONE, done.stderr)
            drawn = terminal.read()
            self.assertIn("gs://hostile/a?]0;title?", drawn)
            self.assertNotIn("\x1b", drawn)
        self.assertEqual(self.ls("gs://hostile/"), "gs://hostile/a\x1b]0;title\x07\n")
        self.server.put("hostile", "run/a\x1b]0;title\x07/epoch=0-step=1.ckpt", b"x")
        self.server.put("hostile", "run/a\x1b]0;title\x07/epoch=0-step=2.ckpt", b"x")
        for words in (
            ("ckpt", "ls", "gs://hostile/run/"),
            ("ckpt", "prune", "gs://hostile/run/a\x1b]0;title\x07/", "--keep-last", "1", "--dry-run"),
            ("cp", "--dry-run", "-", "gs://hostile/a\x1b]0;title\x07"),
        ):
            terminal = Terminal(80)
            done = self.ringest(*words, stdout=terminal.far)
            self.assertEqual(done.returncode, DONE, done.stderr)
            drawn = terminal.read()
            self.assertIn("a?]0;title?", drawn)
            self.assertNotIn("\x1b", drawn)

    def test_a_prefix_is_literal(self):
        self.assertEqual(self.ls("gs://bucket/with"), "gs://bucket/with space\n")
        self.assertEqual(self.ls("gs://bucket/per%2"), "gs://bucket/per%20cent%\n")
        self.fails(self.ringest("ls", "-q", "--literal", "gs://bucket/*"), FAILED, '"*"')

    def test_long_lines_and_their_sum(self):
        *lines, last = self.ls("gs://bucket/a/d", "--long").splitlines()
        self.assertEqual(len(lines), 1)
        self.assertRegex(lines[0], r"^ +3  \d{4}-\S+Z +\d+  gs://bucket/a/d$")
        self.assertEqual(last, "1 object, 3 B")

    def test_several_pages(self):
        listed = self.ls_json("gs://made/", "-r")["objects"]
        self.assertEqual([each["name"] for each in listed], [f"part-{i:08}" for i in range(2500)])
        self.assertEqual({each["size"] for each in listed}, {1024})
        self.assertEqual(self.ls("gs://made/part-", "-l").splitlines()[-1], "2500 objects, 2.4 MiB")

    def test_nothing_begins_with_the_prefix(self):
        self.fails(self.ringest("ls", "gs://bucket/zzz"), FAILED, "gs://bucket", '"zzz"')
        self.assertEqual(self.ls_json("gs://bucket/zzz"), {"objects": [], "prefixes": []})

    def test_a_missing_bucket(self):
        done = self.ringest("ls", "gs://no-such-bucket/")
        self.fails(done, FAILED, "gs://no-such-bucket/", "404")
        self.assertEqual(done.stdout, b"")

    def test_json_of_a_missing_bucket_is_an_error_only(self):
        done = self.ringest("ls", "gs://no-such-bucket/", "--json")
        self.fails(done, FAILED, "gs://no-such-bucket/")
        self.assertEqual(done.stdout, b"")

    def test_a_full_device(self):
        with open("/dev/full", "wb") as full:
            done = self.ringest("ls", "-r", "gs://made/", stdout=full)
        self.fails(done, FAILED, "No space left")


class Hierarchical(ServedCase):
    """A bucket with folders of its own, whose listing is compared with what was put there."""

    FOLDERS = ("empty/", "empty/in/side/", "full/none/", "last/")
    COUNT = 2500

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.create_hierarchical("tree")
        for folder in cls.FOLDERS:
            cls.server.create_folder("tree", folder)
        cls.objects = sorted(["top", "full/a", "full/b/c", *(f"many/{i % 50:02}/{i:05}" for i in range(cls.COUNT))])
        for name in cls.objects:
            cls.server.put("tree", name, b"")
        cls.folders = {
            "/".join(name.split("/")[:i]) + "/"
            for name in (*cls.objects, *cls.FOLDERS)
            for i in range(1, name.count("/") + 1)
        }

    def check_level(self, prefix, *arguments):
        done = self.ok(self.ringest("ls", "gs://tree/" + prefix, "--json", *arguments))
        listed = json.loads(done)
        below = {name for name in self.folders if name.startswith(prefix) and name[len(prefix) :].count("/") == 1}
        self.assertEqual(listed["prefixes"], sorted(below))
        wanted = [name for name in self.objects if name.startswith(prefix) and "/" not in name[len(prefix) :]]
        self.assertEqual([each["name"] for each in listed["objects"]], wanted)

    def test_folders_are_shown_at_each_level(self):
        for prefix in ("", "f", *sorted(self.folders)[:8], "many/", "many/07/"):
            with self.subTest(prefix):
                self.check_level(prefix)
        lines = self.ok(self.ringest("ls", "gs://tree/empty/")).decode()
        self.assertEqual(lines, "gs://tree/empty/in/\n")

    def test_recursive_lists_objects_only(self):
        for arguments in ([], ["--threads", "2"]):
            done = self.ok(self.ringest("ls", "-r", "--json", "gs://tree/", *arguments))
            listed = json.loads(done)
            self.assertEqual([each["name"] for each in listed["objects"]], self.objects)
            self.assertEqual(listed["prefixes"], [])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "manifest")
            self.ok(self.ringest("manifest", "save", "gs://tree/", path))
            shown = self.ok(ringest("manifest", "show", path, "--json"))
            self.assertEqual([each["name"] for each in json.loads(shown)["objects"]], self.objects)


class Several(ServedCase):
    def test_several_places(self):
        for name in ("a/1", "a/2", "b/1"):
            self.server.put("bucket", name, bytes(3000))
        self.server.put("other", "x", b"x")
        places = ("gs://other", "gs://bucket/b/", "gs://bucket/a/")
        text = self.ok(self.ringest("ls", *places)).decode()
        self.assertEqual(text, "gs://other/x\ngs://bucket/b/1\ngs://bucket/a/1\ngs://bucket/a/2\n")
        self.assertTrue(self.ok(self.ringest("ls", "-l", *places)).endswith(b"\n4 objects, 8.8 KiB\n"))
        lines = self.ok(self.ringest("ls", "--json", *places)).decode().splitlines()
        names = [[each["name"] for each in json.loads(line)["objects"]] for line in lines]
        self.assertEqual(names, [["x"], ["b/1"], ["a/1", "a/2"]])
        done = self.ringest("ls", "gs://other/absent", "gs://bucket/b/")
        self.fails(done, FAILED, "gs://other", '"absent"')
        self.assertEqual(done.stdout, b"gs://bucket/b/1\n")

    def test_habits_of_other_programs(self):
        self.server.put("habits", "a/1", bytes(3000))
        for arguments in (["-R"], ["-r"], ["--recursive"]):
            self.assertEqual(self.ok(self.ringest("ls", *arguments, "gs://habits")), b"gs://habits/a/1\n")
        self.assertRegex(self.ok(self.ringest("ls", "-lh", "gs://habits/a/")).decode(), r"^ +2\.9 KiB  20")
        self.assertRegex(self.ok(self.ringest("ls", "-h", "gs://habits/a/")).decode(), r"^ +2\.9 KiB  20")
        self.assertIn(b"Usage: ringest ls", self.ok(self.ringest("ls", "-h")))
        listed = json.loads(self.ok(self.ringest("ls", "--json", "--hex", "gs://habits/a/")))
        self.assertRegex(listed["objects"][0]["crc32c"], r"^[0-9a-f]{8}$")


class HierarchicalOnDisk(Case):
    def test_folders_survive_a_kill(self):
        with tempfile.TemporaryDirectory() as root:
            with Emulator("--root", root) as server:
                server.create_hierarchical("tree")
                server.create_folder("tree", "empty/inner/")
                server.put("tree", "old/sub/object", b"data")
                self.assertTrue(server.rename_folder("tree", "old/", "new/")["done"])
                server.kill()
            for _ in range(2):
                with Emulator("--root", root) as server:
                    done = self.ok(ringest("ls", "gs://tree", *server.place)).decode()
                    self.assertEqual(done, "gs://tree/empty/\ngs://tree/new/\n")
                    done = self.ok(ringest("ls", "gs://tree/empty/", *server.place)).decode()
                    self.assertEqual(done, "gs://tree/empty/inner/\n")
                    self.assertEqual(self.ok(ringest("cat", "gs://tree/new/sub/object", *server.place)), b"data")
                    server.kill()


class Disk(Case):
    def test_buckets_that_are_folders(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "photos", "2024"))
            for name in ("2024/one", "two words", "ü"):
                with open(os.path.join(root, "photos", name), "w", encoding="utf-8") as file:
                    file.write(name)
            with Emulator("--root", root) as server:
                done = self.ok(ringest("ls", "-r", "--json", "gs://photos/", *server.place))
                listed = json.loads(done)["objects"]
                self.assertEqual([each["name"] for each in listed], ["2024/one", "two words", "ü"])
                server.put("photos", "new/three", b"333")
                self.assertEqual(self.ok(ringest("cat", "gs://photos/new/three", *server.place)), b"333")
            with Emulator("--root", root) as server:
                done = self.ok(ringest("ls", "gs://photos/new/", *server.place)).decode()
                self.assertEqual(done, "gs://photos/new/three\n")


if __name__ == "__main__":
    unittest.main()
