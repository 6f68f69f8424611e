"""`ringest manifest`: what is saved is what was listed."""

import json
import os
import pathlib
import tempfile
import unittest

from support import FAILED, USAGE, ServedCase


class Manifest(ServedCase):
    emulator_arguments = ("--synthetic", "made/part-:2500:1KiB")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "file"

    def manifest(self, *arguments):
        return self.ringest("manifest", *map(str, arguments))

    def test_saved_and_shown(self):
        self.assertEqual(
            json.loads(self.ok(self.manifest("save", "gs://made/part-", self.path, "--json"))), {"objects": 2500}
        )
        shown = json.loads(self.ok(self.manifest("show", self.path, "--json")))
        listed = json.loads(self.ok(self.ringest("ls", "-r", "gs://made/", "--json")))["objects"]
        self.assertEqual(shown["bucket"], "made")
        for field in ("name", "size", "generation", "crc32c"):
            self.assertEqual([each[field] for each in shown["objects"]], [each[field] for each in listed])
        lines = self.ok(self.manifest("show", self.path)).decode()
        self.assertEqual(lines, self.ok(self.ringest("ls", "-r", "gs://made/")).decode())
        self.assertIn("  1024  ", "  " + self.ok(self.manifest("show", "-l", self.path)).decode())

    def test_folder_markers_are_left_out_unless_they_are_asked_for(self):
        for name, data in (("a/", b""), ("a/b", b""), ("a/c/", b"x")):
            self.server.put("marked", name, data)
        for options, names in (([], ["a/b", "a/c/"]), (["--folder-markers"], ["a/", "a/b", "a/c/"])):
            said = json.loads(self.ok(self.manifest("save", "gs://marked/", self.path, "--json", *options)))
            shown = json.loads(self.ok(self.manifest("show", self.path, "--json")))["objects"]
            self.assertEqual((said["objects"], [each["name"] for each in shown]), (len(names), names))

    def test_what_is_no_manifest(self):
        self.path.write_bytes(b"some text that is no manifest at all" * 10)
        self.fails(self.manifest("show", self.path), FAILED, str(self.path), "manifest")
        self.fails(self.manifest("show", str(self.path) + ".absent"), FAILED, "absent", "No such file")

    def test_damage(self):
        self.ok(self.manifest("save", "gs://made/", self.path))
        data = bytearray(self.path.read_bytes())
        data[len(data) // 2] ^= 1
        self.path.write_bytes(data)
        self.fails(self.manifest("show", self.path), FAILED, str(self.path))

    def test_a_failure_leaves_no_file(self):
        self.fails(self.manifest("save", "gs://no-such-bucket/", self.path), FAILED, "no-such-bucket")
        self.assertEqual(os.listdir(self.path.parent), [])
        self.fails(self.manifest("save", "gs://made/", self.path / "x"), FAILED, str(self.path))

    def test_usage(self):
        for arguments in ([], ["save"], ["save", "gs://made/"], ["show"], ["load", "x"], ["save", "file", "file"]):
            with self.subTest(arguments):
                self.fails(self.manifest(*arguments), USAGE)
        text = 'needs a FILE of this machine at the end, got "gs://made/x"'
        self.fails(self.manifest("save", "gs://made/", "gs://made/x"), USAGE, text)


if __name__ == "__main__":
    unittest.main()
