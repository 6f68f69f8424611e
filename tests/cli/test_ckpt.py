"""`ringest ckpt ls`: which checkpoints there are, and what they lack. That ringest.retention finds the same is
tested in tests/python."""

import json
import pathlib
import tempfile
import unittest

from support import FAILED, USAGE, Case, Emulator, ringest

SAVE = ".0123456789abcdef.distcp"


class Ckpt(Case):
    """Objects are files below the emulator's root."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bucket = pathlib.Path(folder.name) / "run"
        self.bucket.mkdir()
        self.server = self.enterContext(Emulator("--root", folder.name))

    def put(self, name, data=b"12345"):
        path = self.bucket / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def folder(self, name, *named, there=None):
        for each in named if there is None else there:
            self.put(f"{name}/{each}")
        self.put(f"{name}/.metadata", b"\x80\x05X" + b"\0_\x94__".join(each.encode() for each in named) + b"__1_")

    def ckpt(self, *arguments):
        return ringest("ckpt", *arguments, "--endpoint", self.server.endpoint, "--ca", self.server.ca)

    def listed(self, prefix=""):
        shown = json.loads(self.ok(self.ckpt("ls", "gs://run/" + prefix, "--json")))["checkpoints"]
        return {each.pop("uri")[len("gs://run/") :]: each for each in shown}

    def test_kinds_and_steps(self):
        for name in ("a/last.ckpt", "a/epoch=2-step=30.ckpt", "a/step-4-v1.pth", "5.pt", "x-6.safetensors"):
            self.put(name)
        for name in ("a/notes.txt", "a/.pt", "a/meta.pt", "__0_0.distcp", ".metadata", "a/pt", "a/__0_0.distcp2"):
            self.put(name)
        found = self.listed()
        self.assertEqual(
            [(name, each["kind"], each["step"]) for name, each in found.items()],
            [
                ("5.pt", "torch", 5),
                ("x-6.safetensors", "safetensors", 6),
                ("a/last.ckpt", "torch", None),
                ("a/step-4-v1.pth", "torch", 4),
                ("a/epoch=2-step=30.ckpt", "torch", 30),
            ],
        )
        for each in found.values():
            self.assertEqual((each["size"], each["ranks"], each["complete"], each["missing"]), (5, 1, True, []))

    def test_folders(self):
        names = ["__0_0" + SAVE, "__1_0" + SAVE, "__1_1" + SAVE, "__10_0" + SAVE]
        self.folder("s/step-1", *names)
        self.put("s/step-1/meta.pt")
        self.put("s/step-1/other")
        self.put("s/step-1/sub/7.pt")
        for stray in ("__0_0.fedcba9876543210.distcp", ".metadata.tmp"):
            self.put("s/step-1/" + stray, b"123")
        self.folder("s/step-2", "__0_0.distcp", "__1_0.distcp", "__2_0.distcp", there=["__1_0.distcp"])
        self.put("s/step-3/__0_0" + SAVE)
        self.put("s/step-3/__4_0" + SAVE)
        alone = "__3_0" + SAVE.replace(".distcp", ".rank.distcp")
        self.put("s/step-4/__3.metadata", alone.encode())
        self.put("s/step-4/" + alone)
        found = self.listed("s/")
        self.assertEqual(list(found), ["s/step-1", "s/step-2", "s/step-3", "s/step-4", "s/step-1/sub/7.pt"])
        metadata_size = (self.bucket / "s/step-1/.metadata").stat().st_size
        facts = [
            (each["complete"], each["ranks"], each["missing"], each["stray_count"], each["stray_size"])
            for each in found.values()
        ]
        self.assertEqual(
            facts,
            [
                (True, 3, [], 2, 6),
                (False, 3, ["__0_0.distcp", "__2_0.distcp"], 0, 0),
                (False, 2, [], 2, 10),
                (True, 1, [], 0, 0),
                (True, 1, [], 0, 0),
            ],
        )
        self.assertEqual(found["s/step-1"]["size"], 25 + metadata_size)
        self.assertEqual(found["s/step-3"]["size"], 0)
        self.assertRegex(found["s/step-1"]["updated"], r"^\d{4}-\d\d-\d\dT")
        self.assertEqual(list(self.listed("s/step-2")), ["s/step-2"])

    def test_many(self):
        for step in range(40):
            self.folder(f"s/{step}", *(f"__{rank}_0{SAVE}" for rank in range(20)))
        found = self.listed("s/")
        self.assertEqual([each["step"] for each in found.values()], list(range(40)))
        self.assertEqual({(each["complete"], each["ranks"]) for each in found.values()}, {(True, 20)})

    def test_text(self):
        self.folder("s/step-1", "__0_0" + SAVE, "__1_0" + SAVE)
        self.folder("s/step-20", "__0_0" + SAVE, there=[])
        self.put("s/step-20/__0_0.distcp", b"1234")
        lines = self.ok(self.ckpt("ls", "gs://run/s")).decode().splitlines()
        self.assertEqual(len(lines), 4)
        self.assertRegex(lines[0], r"^ +1  dcp +2 +\S+ \S+  complete +\S+  gs://run/s/step-1$")
        self.assertRegex(lines[1], r"^ +20  dcp +1 +\S+ \S+  incomplete +\S+  gs://run/s/step-20$")
        self.assertEqual(lines[2].strip(), "missing: __0_0" + SAVE)
        self.assertEqual(lines[3].strip(), "of no complete save: 1 object, 4 B")

    def test_nothing_and_usage(self):
        self.assertEqual(self.listed("none"), {})
        self.fails(self.ckpt("ls", "gs://run/none"), FAILED, "no checkpoint in gs://run", "none")
        self.fails(self.ckpt("ls", "gs://no-such-bucket/"), FAILED, "no-such-bucket")
        for arguments in ([], ["ls"], ["ls", "file"], ["rm", "gs://run/"], ["ls", "gs://run/", "x"]):
            with self.subTest(arguments):
                self.fails(self.ckpt(*arguments), USAGE)


if __name__ == "__main__":
    unittest.main()
