"""`ringest cache`: a folder is filled, shown, checked and emptied, and what is asked for wrongly is said."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from support import DONE, FAILED, PATIENCE_S, PROGRAM, USAGE, ServedCase, Terminal, environment


class Cache(ServedCase):
    emulator_arguments = ("--synthetic", "made/part-:300:10KiB")

    def setUp(self):
        above = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.folder, self.path = above / "kept", above / "manifest"

    def cache(self, *arguments):
        return self.ringest("cache", *map(str, arguments))

    def warm(self, *arguments):
        option = f"cache={self.folder}"
        return json.loads(self.ok(self.cache("warm", *arguments, "--option", option, "--json")))

    def test_a_prefix(self):
        done = self.warm("gs://made/part-")
        self.assertEqual((done["objects"], done["bytes"], done["errors"]), (300, 300 * 10240, 0))
        self.assertGreaterEqual(done["blocks_written"], 300)
        self.assertEqual(done["blocks_left_out"], 0)
        listed = json.loads(self.ok(self.cache("ls", self.folder, "--json")))["blocks"]
        names = {f"part-{i:08d}" for i in range(300)}
        self.assertEqual({block["name"] for block in listed}, names)
        self.assertEqual(
            {(block["first"], block["size"], block["object_size"]) for block in listed}, {(0, 10240, 10240)}
        )
        self.assertEqual(len(self.ok(self.cache("ls", self.folder)).splitlines()), 300)
        stats = json.loads(self.ok(self.cache("stats", self.folder, "--json")))
        self.assertEqual((stats["blocks"], stats["damaged"], stats["left_alone"]), (300, 0, 0))
        self.assertIn(b"300 blocks", self.ok(self.cache("stats", self.folder)))
        self.assertIn(b"in memory: 0 segments", self.ok(self.cache("stats")))
        self.assertEqual(stats["memory_bytes"], 0)

    def test_a_manifest_and_large_objects(self):
        self.server.put("large", "one", os.urandom(20_000_000))
        self.server.put("large", "none", b"")
        self.ok(self.ringest("manifest", "save", "gs://large/", str(self.path)))
        done = self.warm("--manifest", self.path)
        self.assertEqual((done["objects"], done["bytes"]), (1, 20_000_000))
        self.assertGreaterEqual(done["blocks_written"], 20)  # more where a pass was repeated
        self.fails(
            self.cache("warm", "--manifest", str(self.path) + "x", "--option", f"cache={self.folder}"),
            FAILED,
            "No such",
        )

    def test_damage(self):
        self.warm("gs://made/part-")
        self.ok(self.cache("verify", self.folder))
        for path in self.folder.iterdir():
            data = bytearray(path.read_bytes())
            data[50_000] ^= 1
            path.write_bytes(data)
        self.fails(self.cache("verify", self.folder), FAILED, "damaged")
        damaged = json.loads(self.cache("verify", self.folder, "--json").stdout)
        self.assertEqual((len(damaged["damaged_blocks"]), damaged["damaged"]), (1, 1))
        self.fails(self.cache("verify", self.folder, "--remove"), FAILED, "removed")
        self.assertEqual(self.cache("verify", self.folder).returncode, DONE)

    def test_verify_draws_its_progress_on_a_terminal(self):
        self.warm("gs://made/part-")
        terminal = Terminal()
        verify = subprocess.Popen(
            [PROGRAM, "cache", "verify", str(self.folder)],
            env=environment(TERM="xterm"),
            stderr=terminal.far,
            stdout=subprocess.DEVNULL,
        )
        self.assertEqual(verify.wait(PATIENCE_S), DONE)
        self.assertRegex(terminal.read(), r"\r.*1 blocks.*\r\033\[K")

    def test_prune(self):
        self.warm("gs://made/part-")
        self.ok(self.cache("prune", self.folder, "--to", "100G"))
        self.assertEqual(len(self.ok(self.cache("ls", self.folder)).splitlines()), 300)
        self.ok(self.cache("prune", self.folder, "--to", "0"))
        self.assertEqual(self.cache("ls", self.folder).stdout, b"")

    def test_a_folder_without_a_cache_is_named(self):
        """Nothing is damaged there, either."""
        other = self.folder.parent / "other"
        other.mkdir()
        for action in ("ls", "stats", "verify"):
            done = self.cache(action, other)
            self.assertEqual(done.returncode, DONE)
            self.assertIn(f"note: {other} has no files of a cache", done.stderr)

    def test_what_is_wrong(self):
        option = ("--option", f"cache={self.folder}")
        self.fails(self.cache(), USAGE, "warm, ls, verify, prune or stats")
        self.fails(self.cache("fill"), USAGE, "fill")
        self.fails(self.cache("warm", "gs://made/"), USAGE, "RINGEST_CACHE")
        self.fails(self.cache("warm", *option), USAGE, "gs://BUCKET/PREFIX")
        self.fails(self.cache("warm", "gs://made/", "--manifest", "x", *option), USAGE, "--manifest")
        self.fails(self.cache("warm", "made/", *option), USAGE, "made/")
        self.fails(self.cache("warm", "gs://absent-bucket/", *option), FAILED, "absent-bucket")
        self.fails(self.cache("ls"), USAGE, "FOLDER")
        self.fails(self.cache("ls", self.folder / "absent"), FAILED, "absent", "No such file", "--option cache=")
        self.path.write_bytes(b"")
        for action in (["ls"], ["stats"], ["verify"], ["prune", "--to", "0"]):
            self.fails(self.cache(*action, self.path), FAILED, str(self.path), "not a file")
            self.folder.mkdir(exist_ok=True)
            self.folder.chmod(0o777)
            self.fails(self.cache(*action, self.folder), FAILED, str(self.folder), "0777", "chmod go-w")
        self.fails(self.cache("prune", self.folder), USAGE, "--to")
        self.fails(self.cache("prune", self.folder, "--to", "much"), USAGE, "--to")
        below = self.path / "below"
        self.fails(self.cache("warm", "gs://made/", "--option", f"cache={below}"), FAILED, "below")

    def test_commands_use_one(self):
        self.server.put("own", "object", b"x" * 100_000)
        for _ in range(2):
            option = ("--option", f"cache={self.folder}")
            self.assertEqual(self.ok(self.ringest("cat", "gs://own/object", *option)), b"x" * 100_000)


if __name__ == "__main__":
    unittest.main()
