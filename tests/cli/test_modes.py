"""Files and folders that commands make: what they hold may be private, so nobody may read them whom the
umask keeps from it."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from support import PATIENCE_S, PROGRAM, Emulator, ServedCase, environment
from test_tar import shard_of


class Modes(ServedCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_under(self, mask, *arguments):
        done = subprocess.run(
            [PROGRAM, *map(str, arguments), *self.server.place],
            umask=mask,
            env=environment(),
            capture_output=True,
            timeout=PATIENCE_S,
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def check(self, path, mask):
        mode = path.stat().st_mode & 0o777
        self.assertEqual(oct(mode), oct((0o777 if path.is_dir() else 0o666) & ~mask), path)

    def test_what_commands_make(self):
        self.server.put("modes", "a/small", b"x")
        self.server.put("modes", "a/large", bytes(20 << 20))
        self.server.put("modes", "t/1.tar", shard_of(1, 2))
        for mask in (0o000, 0o022, 0o027, 0o077):
            root = self.folder / oct(mask)
            root.mkdir()
            commands = {
                "tree": ("cp", "-r", "gs://modes/a", root / "tree"),
                "tree/small": None,
                "tree/large": None,
                "one": ("cp", "gs://modes/a/small", root / "one"),
                "below/it": ("cp", "gs://modes/a/small", root / "below/it"),
                "manifest": ("manifest", "save", "gs://modes/a/", root / "manifest"),
                "index": ("tar", "index", "gs://modes/t/", root / "index"),
            }
            for name, command in commands.items():
                if command is not None:
                    self.run_under(mask, *command)
                self.check(root / name, mask)
            # A file that is replaced keeps its own.
            for name, content in (("manifest", b"old"), ("one", b"old"), ("tree/large", b"old"), ("index", None)):
                command = commands["tree" if "/" in name else name]
                (root / name).chmod(0o640)
                if content is not None:
                    (root / name).write_bytes(content)
                self.run_under(mask, *command)
                self.assertEqual(oct((root / name).stat().st_mode & 0o777), oct(0o640), name)
                self.assertNotEqual((root / name).read_bytes(), content)

    def test_what_is_no_file_stays(self):
        self.server.put("modes", "some", b"x")
        self.server.put("modes", "t/1.tar", shard_of(1, 2))
        pipe, link = self.folder / "pipe", self.folder / "link"
        os.mkfifo(pipe)
        link.symlink_to(pipe)
        for place in (pipe, link):
            for command in (
                ("cp", "gs://modes/some", place),
                ("manifest", "save", "gs://modes/some", place),
            ):
                done = subprocess.run(
                    [PROGRAM, *map(str, command), *self.server.place],
                    env=environment(),
                    capture_output=True,
                    timeout=PATIENCE_S,
                    text=True,
                )
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"{place}: not a regular file", done.stderr)
        self.assertTrue(pipe.is_fifo() and link.is_symlink())

    def test_what_the_emulator_makes(self):
        for mask in (0o022, 0o077):
            root, tls = self.folder / f"root-{mask}", self.folder / f"tls-{mask}"
            with Emulator("--root", str(root), "--tls-dir", str(tls), umask=mask) as emulator:
                emulator.put("bucket", "a/b", b"secret")
            made = [path for path in root.rglob("*") if path.name != "a"]
            self.assertGreater(len(made), 1)
            for path in made:
                self.assertEqual(path.stat().st_mode & mask, 0, path)
            self.assertEqual((tls / "key.pem").stat().st_mode & 0o777, 0o600)
            self.assertEqual((tls / "ca.pem").stat().st_mode & 0o777, 0o644 & ~mask)


if __name__ == "__main__":
    unittest.main()
