"""`ringest tar`: an index has what the shards hold, takes over what is known, and says what is wrong."""

import io
import json
import pathlib
import random
import subprocess
import tarfile
import tempfile
import unittest

from support import DONE, FAILED, PATIENCE_S, PROGRAM, USAGE, ServedCase, Terminal, environment

COUNTS = (3, 0, 150)


def shard_of(number, count):
    """A tar archive of samples with a picture of 1,000 bytes and a class of one."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for i in range(count):
            for extension, size in (("jpg", 1000), ("cls", 1)):
                info = tarfile.TarInfo(f"s{number}/{i:04d}.{extension}")
                info.size = size
                archive.addfile(info, io.BytesIO(random.randbytes(size)))
    return out.getvalue()


class Tar(ServedCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "index"
        self.sizes = [self.put(f"train/{i}.tar", shard_of(i, count)) for i, count in enumerate(COUNTS)]
        self.put("train/readme.txt", b"no shard")

    def put(self, name, data):
        self.server.put("shards", name, data)
        return len(data)

    def tar(self, *arguments):
        return self.ringest("tar", *map(str, arguments))

    def index(self, *uris):
        return json.loads(self.ok(self.tar("index", *uris, self.path, "--json")))

    def test_shards_without_samples_are_told_of(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("folder/file"), io.BytesIO())
        self.put("files/0.tar", out.getvalue())
        done = self.tar("index", "gs://shards/files/", self.path)
        self.assertEqual(done.returncode, DONE)
        self.assertIn("note: no samples: the members of one are called KEY.EXTENSION", done.stderr)

    def test_names_cannot_drive_a_terminal(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("s\x1b]0;title\x07.a\x1b[31mb"), io.BytesIO())
        self.put("odd/\x1b]0;title\x07.tar", out.getvalue())
        self.index("gs://shards/odd/")
        for option in ((), ("-l",)):
            terminal = Terminal(80)
            done = self.ringest("tar", "show", *option, str(self.path), stdout=terminal.far)
            self.assertEqual(done.returncode, DONE, done.stderr)
            drawn = terminal.read()
            self.assertIn("gs://shards/odd/?]0;title?.tar", drawn)
            self.assertNotIn("\x1b", drawn)
        self.assertIn("s?]0;title? a?[31mb:0", drawn)

    def test_indexed_and_shown(self):
        self.assertEqual(self.index("gs://shards/train/"), {"shards": 3, "read": 3, "samples": 153})
        shown = json.loads(self.ok(self.tar("show", self.path, "--json")))
        self.assertEqual((shown["bucket"], shown["samples"]), ("shards", 153))
        self.assertEqual([shard["name"] for shard in shown["shards"]], [f"train/{i}.tar" for i in range(3)])
        self.assertEqual([shard["samples"] for shard in shown["shards"]], list(COUNTS))
        self.assertEqual([shard["size"] for shard in shown["shards"]], self.sizes)
        lines = self.ok(self.tar("show", self.path)).decode().splitlines()
        for line, count, size, i in zip(lines, COUNTS, self.sizes, range(3)):
            self.assertEqual(line.split(), [str(count), str(size), f"gs://shards/train/{i}.tar"])
        self.assertEqual(lines[3].split()[:5], ["153", str(sum(self.sizes)), "in", "3", "shards"])
        lines = self.ok(self.tar("show", "-l", self.path)).decode().splitlines()
        self.assertEqual(len(lines), 3 + 153)
        generation = shown["shards"][0]["generation"]
        self.assertEqual(lines[0], f"gs://shards/train/0.tar#{generation}: 3 samples, {self.sizes[0]} bytes")
        self.assertEqual(lines[1], "s0/0000 jpg:1000 cls:1")
        self.assertEqual(lines[-1], "s2/0149 jpg:1000 cls:1")

    def test_names_and_prefixes_together(self):
        uris = ("gs://shards/train/2.tar", "gs://shards/train/0")
        self.assertEqual(self.index(*uris), {"shards": 2, "read": 2, "samples": 153})
        self.assertIn("s2/0149", self.ok(self.tar("show", "--long", self.path)).decode())

    def test_what_is_known_is_taken_over(self):
        self.index("gs://shards/train/")
        self.put("train/1.tar", shard_of(1, 7))
        self.assertEqual(self.index("gs://shards/train/"), {"shards": 3, "read": 1, "samples": 160})

    def test_progress_is_drawn_on_a_terminal(self):
        terminal = Terminal()
        index = subprocess.Popen(
            [PROGRAM, "tar", "index", "gs://shards/train/", str(self.path), *self.server.place],
            env=environment(TERM="xterm"),
            stderr=terminal.far,
        )
        self.assertEqual(index.wait(PATIENCE_S), DONE)
        drawn = terminal.read()
        self.assertIn("0/3 shards", drawn)
        self.assertRegex(drawn, r"\r\033\[K3 shards \(3 read\), 153 samples saved to .*\r\n$")

    def test_failures_leave_what_was_there(self):
        self.index("gs://shards/train/0.tar")
        before = self.path.read_bytes()
        self.put("broken.tar", shard_of(0, 3)[:1700])
        self.fails(self.tar("index", "gs://shards/broken.tar", self.path), FAILED, "broken.tar")
        self.fails(self.tar("index", "gs://shards/absent.tar", self.path), FAILED, "absent.tar")
        self.fails(self.tar("index", "gs://shards/none/", self.path), FAILED, "gs://shards/none/", ".tar")
        self.assertEqual(self.path.read_bytes(), before)

    def test_a_file_that_is_no_index_is_left_alone(self):
        self.path.write_bytes(b"a letter to a friend" * 20)
        self.fails(self.tar("index", "gs://shards/train/", self.path), FAILED, str(self.path), "not a tar index")
        self.assertEqual(self.path.read_bytes(), b"a letter to a friend" * 20)
        self.fails(self.tar("show", self.path), FAILED, str(self.path), "not a tar index")
        self.fails(self.tar("show", self.folder / "absent"), FAILED, "absent", "No such file")

    def test_usage(self):
        uri = "gs://shards/train/"
        for arguments in ([], ["index"], ["index", uri], ["show"], ["list", uri, "x"], ["index", "x", "y"]):
            with self.subTest(arguments):
                self.fails(self.tar(*arguments), USAGE)
        for arguments in ([uri], [uri, "gs://shards/index"]):
            text = f'needs a FILE of this machine at the end, got "{arguments[-1]}"'
            self.fails(self.tar("index", *arguments), USAGE, text)
        self.fails(self.tar("index", uri, "gs://others/x.tar", self.path), USAGE, "shards and others")


if __name__ == "__main__":
    unittest.main()
