"""`ringest ckpt`: which checkpoints there are, and what they lack, and what the program says of those it removes. That
ringest.retention finds and removes the same is tested in tests/python."""

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
        for name in ("a/last.ckpt", "a/epoch=2-step=30.ckpt", "a/step=4-v1.pth", "5.pt", "x-6.safetensors"):
            self.put(name)
        for name in ("a/notes.txt", "a/.pt", "a/meta.pt", "__0_0.distcp", ".metadata", "a/pt", "a/__0_0.distcp2"):
            self.put(name)
        found = self.listed()
        self.assertEqual(
            [(name, each["kind"], each["step"]) for name, each in found.items()],
            [
                ("x-6.safetensors", "safetensors", None),
                ("5.pt", "torch", 5),
                ("a/last.ckpt", "torch", None),
                ("a/step=4-v1.pth", "torch", 4),
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
        for stray in ("__0_0.fedcba9876543210.distcp", "__0_0.fedcba9876543210.rank.distcp"):
            self.put("s/step-1/" + stray, b"123")
        self.put("s/step-1/.metadata.tmp")
        self.folder("s/step-2", "__0_0.distcp", "__1_0.distcp", "__2_0.distcp", there=["__1_0.distcp"])
        self.put("s/step-3/__0_0" + SAVE)
        self.put("s/step-3/__4_0" + SAVE)
        alone = "__0_0" + SAVE.replace(".distcp", ".rank.distcp")
        self.put("s/step-4/__0.metadata", alone.encode())
        self.put("s/step-4/" + alone)
        found = self.listed("s/")
        self.assertEqual(list(found), ["s/step-1", "s/step-2", "s/step-3", "s/step-4"])
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
            ],
        )
        self.assertEqual(found["s/step-1"]["foreign"], ["other", "sub/7.pt"])
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
        self.put("s/step-20/__0_0.fedcba9876543210.distcp", b"1234")
        self.put("s/step-20/notes.txt", b"1234")
        lines = self.ok(self.ckpt("ls", "gs://run/s")).decode().splitlines()
        self.assertEqual(len(lines), 5)
        self.assertRegex(lines[0], r"^ +1  dcp +2 +\S+ \S+  complete +\S+  gs://run/s/step-1$")
        self.assertRegex(lines[1], r"^ +20  dcp +1 +\S+ \S+  incomplete +\S+  gs://run/s/step-20$")
        self.assertEqual(lines[2].strip(), "missing: __0_0" + SAVE)
        self.assertEqual(lines[3].strip(), "not part of it: notes.txt")
        self.assertEqual(lines[4].strip(), "of incomplete saves: 1 object, 4 B")

    def test_nothing_and_usage(self):
        self.assertEqual(self.listed("none"), {})
        self.fails(self.ckpt("ls", "gs://run/none"), FAILED, "no checkpoint in gs://run", "none")
        self.fails(self.ckpt("ls", "gs://no-such-bucket/"), FAILED, "no-such-bucket")
        for arguments in (
            [], ["ls"], ["ls", "file"], ["rm", "gs://run/"], ["ls", "gs://run/", "x"], ["prune", "gs://run/"],
            ["prune", "--keep-last", "2"], ["ls", "gs://run/", "--keep-last", "2"], ["ls", "gs://run/", "--dry-run"],
            ["prune", "gs://run/", "--keep-last", "0"], ["prune", "gs://run/", "--keep-last", "-1"],
            ["prune", "gs://run/", "--keep-last", "1", "--keep-every", "0"],
            ["prune", "gs://run/", "--keep-last", "1", "--older-than", "soon"],
        ):  # fmt: skip
            with self.subTest(arguments):
                self.fails(self.ckpt(*arguments), USAGE)
        self.fails(
            self.ckpt("prune", "gs://run/step-100/", "--keep-last", "1"),
            USAGE,
            "gs://run/step-100/ lies in a checkpoint",
        )

    def test_prune(self):
        for step in (1, 2, 3):
            self.folder(f"s/step-{step}", "__0_0.distcp")
            self.put(f"s/step-{step}.pt")
        self.put("s/last-v1.ckpt")
        self.put("s/step-1/notes.txt")
        self.put("s/step-3/__0_0.fedcba9876543210.distcp")
        options = "--keep-last", "1", "--older-than", "0"
        metadata_size = (self.bucket / "s/step-1/.metadata").stat().st_size
        planned = self.ok(self.ckpt("prune", "gs://run/", *options, "--dry-run")).decode().splitlines()
        self.assertEqual(
            sorted(planned[:-1]),
            [
                "keep gs://run/s/last-v1.ckpt: its name says no step in a way that is known",
                "keep gs://run/s/step-1: holds what is no part of such a checkpoint: notes.txt",
                "keep gs://run/s/step-3.pt: one of the last 1 of step-#.pt",
                "keep gs://run/s/step-3: one of the last 1 of step-#/",
                "would remove gs://run/s/step-1.pt: 1 object, 5 B",
                "would remove gs://run/s/step-2.pt: 1 object, 5 B",
                f"would remove gs://run/s/step-2: 2 objects, {5 + metadata_size} B",
                "would remove gs://run/s/step-3/__0_0.fedcba9876543210.distcp: of a save that was not finished",
            ],
        )
        self.assertEqual(planned[-1], f"would remove 3 checkpoints, {20 + metadata_size} B in all")
        self.assertTrue((self.bucket / "s/step-2/.metadata").exists())
        done = self.ok(self.ckpt("prune", "gs://run/", *options)).decode().splitlines()
        self.assertEqual(done, [line.removeprefix("would ") for line in planned])
        left = sorted(path.relative_to(self.bucket).as_posix() for path in self.bucket.rglob("*") if path.is_file())
        self.assertEqual(
            [name for name in left if not name.startswith(".ringest/")],
            ["s/last-v1.ckpt", "s/step-1/.metadata", "s/step-1/__0_0.distcp", "s/step-1/notes.txt", "s/step-3.pt",
             "s/step-3/.metadata", "s/step-3/__0_0.distcp"],
        )  # fmt: skip


if __name__ == "__main__":
    unittest.main()
