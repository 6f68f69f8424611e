"""ringest.retention: which checkpoints are found, and what is removed of them."""

import datetime
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest
import unittest.mock

import torch
import torch.distributed.checkpoint as dcp

import ringest
import support
from checkpoint_cases import CASES
from ringest import retention
from ringest.dcp import StorageReader, StorageWriter

OLD = 0
YOUNG = 3600.0
ENDING = ".0123456789abcdef.distcp"


def names(client, uri="gs://run/"):
    return [name for name, _, _ in client.list(uri)]


def folder(client, name, *data, there=None):
    """A checkpoint of shards: its metadata names `data`, of which those in `there` exist."""
    for each in data if there is None else there:
        client.put(f"gs://run/{name}/{each}", b"12345")
    client.put(f"gs://run/{name}/.metadata", b"\x80\x05" + b"\x94".join(each.encode() for each in data))


class Found(unittest.TestCase):
    def test_checkpoints_of_every_kind(self):
        with support.client() as client:
            client.put("gs://run/a/step-20.safetensors", b"1" * 7)
            client.put("gs://run/a/step-3.ckpt", b"1")
            client.put("gs://run/a/notes.txt", b"1")
            client.put("gs://run/lone/meta.pt", b"1")
            folder(client, "b/step-1", "__0_0" + ENDING, "__1_0" + ENDING)
            client.put("gs://run/b/step-1/meta.pt", b"123")
            client.put("gs://run/b/step-1/__0_0.fedcba9876543210.distcp", b"1")
            client.put("gs://run/b/step-1/other", b"1")
            folder(client, "b/step-2", "__0_0.distcp", "__1_0.distcp", there=["__1_0.distcp"])
            client.put("gs://run/b/step-3/__0_0" + ENDING, b"1")
            found = retention.find("gs://run/", client)
            self.assertEqual(
                [(each.uri[len("gs://run/") :], each.kind, each.step, each.complete, each.ranks) for each in found],
                [
                    ("a/step-3.ckpt", "torch", 3, True, 1),
                    ("a/step-20.safetensors", "safetensors", 20, True, 1),
                    ("b/step-1", "dcp", 1, True, 2),
                    ("b/step-2", "dcp", 2, False, 2),
                    ("b/step-3", "dcp", 3, False, 1),
                ],
            )
            whole, cut, unfinished = found[2:]
            metadata_size = client.stat("gs://run/b/step-1/.metadata")["size"]
            self.assertEqual((whole.size, whole.missing, len(whole.strays)), (10 + 3 + metadata_size, [], 1))
            self.assertEqual((cut.missing, cut.strays), (["__0_0.distcp"], []))
            self.assertEqual((unfinished.size, len(unfinished.strays)), (0, 1))
            self.assertEqual([each.uri for each in retention.find("gs://run/b/step-1", client)], ["gs://run/b/step-1"])
            alone = "__0_0" + ENDING.replace(".distcp", ".rank.distcp")
            client.put("gs://run/c/4/__0.metadata", alone.encode())
            client.put("gs://run/c/4/" + alone, b"12")
            (found,) = retention.find("gs://run/c/", client)
            self.assertEqual((found.complete, found.size, found.strays), (True, 2 + len(alone), []))
            # Data of another rank that is not there yet, and as much as names can say.
            client.put("gs://run/c/4/__3_0.distcp", b"12")
            client.put("gs://run/c/4/__99999999999999999999999.metadata", b"")
            (found,) = retention.find("gs://run/c/", client)
            missing = [f"__{rank}.metadata" for rank in (1, 2, 3, 4)]
            self.assertEqual((found.complete, found.missing), (False, missing))

    def test_the_program_shows_the_same(self):
        with support.emulator() as (endpoint, ca), ringest.Client(endpoint, ca) as client:
            folder(client, "b/step-1", "__0_0" + ENDING, "__1_0" + ENDING)
            folder(client, "b/step-2", "__0_0.distcp", there=[])
            client.put("gs://run/b/step-2/__0_0" + ENDING, b"123")
            client.put("gs://run/b/step-3.pt", b"1")
            dcp.save({"x": torch.zeros(3)}, storage_writer=StorageWriter("gs://run/c/7", client=client))
            client.put("gs://run/d/checkpoint-4/trainer_state.json", b"{}")
            client.put("gs://run/d/checkpoint-4/what.py", b"1")
            client.put("gs://run/d/100/metadata", b"1")
            client.put("gs://run/d/step-5/0.pt", b"1")
            shown = subprocess.run(
                [support.PROGRAM, "ckpt", "ls", "gs://run/", "--json", "--endpoint", endpoint, "--ca", ca],
                check=True,
                capture_output=True,
            )
            fields = ("uri", "kind", "step", "ranks", "size", "complete", "missing", "foreign")
            self.assertEqual(
                [[each[name] for name in fields] for each in json.loads(shown.stdout)["checkpoints"]],
                [[getattr(each, name) for name in fields] for each in retention.find("gs://run/", client)],
            )


class Table(unittest.TestCase):
    """The module and the program do the same, and what the table says."""

    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        old = time.time() - 2 * 86400
        for number, case in enumerate(CASES.values()):
            for name, data in case["objects"].items():
                for tool in "module", "program":
                    # As the emulator calls files, emulator/store/disk/file_name.h.
                    file = re.sub("^[.]ringest", "%2Eringest", name) + ("%-" if name.endswith("/") else "")
                    path = pathlib.Path(folder, f"{tool}-{number}", file)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data)
                    if name not in case.get("young", ()):
                        os.utime(path, (old, old))
        self.place = self.enterContext(support.emulator("--root", folder))
        self.client = self.enterContext(ringest.Client(*self.place))

    def prune(self, uri, case, *options):
        endpoint, ca = self.place
        command = [support.PROGRAM, "ckpt", "prune", uri, "--json", "--endpoint", endpoint, "--ca", ca, *options]
        command += ["--keep-last", str(case["keep_last"])]
        command += ["--keep-every", str(case["keep_every"])] if "keep_every" in case else []
        done = subprocess.run(command, check=True, capture_output=True)
        self.assertEqual(done.stderr, b"")
        told = json.loads(done.stdout)
        reasons = {each["uri"]: each["reason"] for each in told["kept"]}
        return retention.Retained(
            list(reasons), told["removed"], told["strays"], told["size"], told["uploads"], reasons, told["uploads_left"]
        )

    def test_every_case(self):
        for number, (title, case) in enumerate(CASES.items()):
            with self.subTest(title):
                prefix = case.get("prefix", "")
                module, program = f"gs://module-{number}/", f"gs://program-{number}/"
                arguments = case["keep_last"], case.get("keep_every", 0)
                planned = retention.retain(module + prefix, *arguments, client=self.client, dry_run=True)
                self.check(planned, module, case)
                self.assertEqual(vars(self.prune(module + prefix, case, "--dry-run")), vars(planned))
                self.assertEqual(self.left(module), sorted(case["objects"]))
                self.assertEqual(retention.retain(module + prefix, *arguments, client=self.client), planned)
                self.check(self.prune(program + prefix, case), program, case)
                gone = (*case["removed"], *case.get("strays", ()))
                wanted = sorted(
                    name for name in case["objects"]
                    if not any(name == each or name.startswith(each + "/") for each in gone)
                )  # fmt: skip
                self.assertEqual(self.left(module), wanted)
                self.assertEqual(self.left(program), wanted)
                # Once more: nothing is left to be done.
                again = retention.retain(module + prefix, *arguments, client=self.client)
                self.assertEqual((again.removed, again.strays), ([], []))

    def left(self, bucket):
        return [name for name, _, _ in self.client.list(bucket)]

    def check(self, done, bucket, case):
        self.assertEqual(sorted(done.removed), sorted(bucket + each for each in case["removed"]))
        self.assertEqual(sorted(done.strays), sorted(bucket + each for each in case.get("strays", ())))
        self.assertEqual(done.kept, list(done.reasons))
        for name, reason in case.get("reasons", {}).items():
            self.assertRegex(done.reasons[bucket + name], reason)


class Retained(unittest.TestCase):
    def test_the_last_and_every_so_many(self):
        with support.client() as client:
            for step in (1, 2, 10, 9, 20, 30, 31):
                folder(client, f"step-{step}", "__0_0" + ENDING)
                client.put(f"gs://run/step-{step}.safetensors", b"1")
                client.put(f"gs://run/other/step-{step}.pt", b"1")
            client.put("gs://run/last.ckpt", b"1")
            before = names(client)
            planned = retention.retain("gs://run/step", 2, 10, client=client, dry_run=True)
            self.assertEqual(names(client), before)
            done = retention.retain("gs://run/step", 2, 10, client=client)
            self.assertEqual(planned, done)
            gone = [1, 2, 9]
            self.assertEqual(
                sorted(done.removed), sorted(f"gs://run/step-{i}{end}" for i in gone for end in ("", ".safetensors"))
            )
            self.assertEqual(
                [each for each in before if each not in names(client)],
                [each for each in before if each.startswith(tuple(f"step-{i}{end}" for i in gone for end in "/."))],
            )
            done = retention.retain("gcs://run/", 1, client=client)
            self.assertEqual(
                sorted(done.kept),
                ["gs://run/last.ckpt", "gs://run/other/step-31.pt", "gs://run/step-31", "gs://run/step-31.safetensors"],
            )
            self.assertEqual(
                names(client),
                ["last.ckpt", "other/step-31.pt", "step-31.safetensors", "step-31/.metadata", "step-31/__0_0" + ENDING],
            )

    def test_folders_whose_names_begin_alike_are_refused(self):
        with support.emulator() as (endpoint, ca), ringest.Client(endpoint, ca) as client:
            upload = "gs://run/ab/step-5/__0_0" + ENDING
            support.killed_while_writing(endpoint, ca, [upload])
            for name in ("a", "ab"):
                for step in (1, 2, 3):
                    folder(client, f"{name}/step-{step}", "__0_0" + ENDING)
            before = names(client)
            with self.assertRaisesRegex(ValueError, r"gs://run/ab/step-1 is not in gs://run/a/.*nothing was removed"):
                retention.retain("gs://run/a", 1, client=client, unfinished_age=-YOUNG, all_uploads=True)
            done = self.prune(endpoint, ca, "gs://run/a")
            self.assertEqual((done.returncode, done.stdout), (1, b""))
            self.assertIn(b"gs://run/ab/step-1 is not in gs://run/a/", done.stderr)
            self.assertEqual(names(client), before)
            # Without the checkpoints there, an upload there is still somebody else's.
            for step in (1, 2, 3):
                for name in (".metadata", "__0_0" + ENDING):
                    client.delete(f"gs://run/ab/step-{step}/{name}")
            self.assertEqual(self.prune(endpoint, ca, "gs://run/a", "--dry-run").returncode, 0)
            done = retention.retain("gs://run/a", 1, client=client, unfinished_age=-YOUNG, all_uploads=True)
            self.assertEqual((done.removed, done.uploads), (["gs://run/a/step-1", "gs://run/a/step-2"], []))
            self.assertEqual(self.prune(endpoint, ca, "gs://run/a").returncode, 0)
            self.assertEqual([f"gs://run/{name}" for name, _, _ in client.list_uploads("gs://run/")], [upload])
            # The prefix may end in what names of checkpoints begin with.
            done = retention.retain("gs://run/ab/st", 1, client=client, unfinished_age=-YOUNG)
            self.assertEqual(done.uploads, [upload])

    def prune(self, endpoint, ca, prefix, *options):
        command = [support.PROGRAM, "ckpt", "prune", prefix, "--keep-last", "1", "--older-than", "0", *options]
        return subprocess.run([*command, "--endpoint", endpoint, "--ca", ca], capture_output=True, timeout=60)

    def test_incomplete_ones_are_neither_counted_nor_removed(self):
        with support.client() as client:
            folder(client, "step-1", "__0_0" + ENDING)
            folder(client, "step-2", "__0_0" + ENDING, "__1_0" + ENDING, there=["__1_0" + ENDING])
            client.put("gs://run/step-3/__0_0" + ENDING, b"1")
            before = names(client)
            self.assertEqual(retention.retain("gs://run/", 1, client=client).removed, [])
            self.assertEqual(names(client), before)

    def test_how_old_is_old(self):
        with support.client() as client:
            folder(client, "step-1", "__0_0" + ENDING)
            client.put("gs://run/step-1/__0_0.fedcba9876543210.distcp", b"123")
            before = names(client)
            done = retention.retain("gs://run/", 1, client=client, unfinished_age=datetime.timedelta(hours=1))
            self.assertEqual((names(client), done.strays, done.kept), (before, [], ["gs://run/step-1"]))
            done = retention.retain("gs://run/", 1, client=client, unfinished_age=OLD - YOUNG)
            self.assertEqual(len(done.strays), 1)
            self.assertEqual(done.size, 3)
            self.assertEqual(names(client), ["step-1/.metadata", "step-1/__0_0" + ENDING])

    def test_how_old_is_told_by_the_server(self):
        with support.client() as client:
            folder(client, "step-1", "__0_0" + ENDING)
            client.put("gs://run/step-1/__0_0.fedcba9876543210.distcp", b"123")
            before = names(client)
            with unittest.mock.patch("time.time", return_value=time.time() + 10 * 24 * 3600):
                done = retention.retain("gs://run/", 1, client=client)
            self.assertEqual((names(client), done.strays), (before, []))
            with unittest.mock.patch.object(
                type(client), "_server_time", return_value=int(time.time()) + 10 * 24 * 3600
            ):
                done = retention.retain("gs://run/", 1, client=client)
            self.assertEqual(len(done.strays), 1)

    def test_parts_of_others_are_given_a_day(self):
        """They are of the whole bucket, and whoever asks knows how long his own saves take."""
        with support.emulator() as (endpoint, ca), ringest.Client(endpoint, ca) as client:
            client.put("gs://run/a/step-1.pt", b"1")
            client.put(f"gs://run/.ringest-parts/{'0123456789abcdef' * 2}/00000", b"1")
            before = names(client)
            retention.retain("gs://run/a/", 1, client=client, unfinished_age=-YOUNG)
            subprocess.run(
                [support.PROGRAM, "ckpt", "prune", "gs://run/a/", "--keep-last", "1", "--older-than", "0",
                 "--endpoint", endpoint, "--ca", ca],
                check=True, capture_output=True,
            )  # fmt: skip
            self.assertEqual(names(client), before)

    def test_what_was_replaced_meanwhile_stays(self):
        with support.client() as client:
            for step in (1, 2):
                folder(client, f"step-{step}", "__0_0" + ENDING)
                client.put(f"gs://run/step-{step}.pt", b"old")
            listed = retention._listed

            def late(uri_prefix, client):
                found = listed(uri_prefix, client)
                if uri_prefix == "gs://run/":
                    client.put("gs://run/step-1.pt", b"new")
                    client.put("gs://run/step-1/__0_0" + ENDING, b"new")
                return found

            with unittest.mock.patch.object(retention, "_listed", late):
                retention.retain("gs://run/", 1, client=client)
            self.assertEqual(bytes(client.get("gs://run/step-1.pt")), b"new")
            self.assertEqual(names(client, "gs://run/step-1/"), ["step-1/__0_0" + ENDING])

    def test_versions_are_kept(self):
        """In a bucket that keeps them, what was removed can be had again."""
        with support.emulator(buckets=()) as (endpoint, ca), ringest.Client(endpoint, ca) as client:
            support.make_bucket(endpoint, ca, "run", versioning={"enabled": True})
            generation = client.put("gs://run/step-1.pt", b"1")
            client.put("gs://run/step-2.pt", b"1")
            self.assertEqual(retention.retain("gs://run/", 1, client=client).removed, ["gs://run/step-1.pt"])
            self.assertEqual(names(client), ["step-2.pt"])
            self.assertEqual(bytes(client.get("gs://run/step-1.pt", generation=generation)), b"1")

    def test_each_removal_is_said(self):
        with support.client() as client:
            for step in (1, 2):
                client.put(f"gs://run/step-{step}.pt", b"1")
            with self.assertLogs("ringest", "INFO") as logged:
                retention.retain("gs://run/", 1, client=client)
            self.assertTrue(any("gs://run/step-1.pt: removed" in line for line in logged.output), logged.output)
            self.assertFalse(any("step-2" in line for line in logged.output))

    def test_uploads_that_a_killed_process_left(self):
        with support.emulator() as (endpoint, ca), ringest.Client(endpoint, ca) as client:
            ours = ["step-1.pt", "step-2/__0_0" + ENDING]
            others = ["step-1.txt", "step-2/notes"]
            left = [f"gs://run/{name}" for name in (*ours, *ours, *others)] + ["gs://other/step-1.pt"]
            support.killed_while_writing(endpoint, ca, left)
            folder(client, "step-2", "__0_0" + ENDING)
            found = client.list_uploads("gs://run/")
            self.assertEqual([name for name, _, _ in found], sorted([*ours, *ours, *others]))
            done = retention.retain("gs://run/", 1, client=client)
            self.assertEqual((done.uploads, client.list_uploads("gs://run/")), ([], found))
            # Who began one of a file cannot be told.
            mine, anybodys = f"gs://run/{ours[1]}", f"gs://run/{ours[0]}"
            planned = retention.retain("gs://run/", 1, client=client, unfinished_age=-YOUNG, dry_run=True)
            self.assertEqual(client.list_uploads("gs://run/"), found)
            done = retention.retain("gs://run/", 1, client=client, unfinished_age=-YOUNG)
            self.assertEqual(planned, done)
            self.assertEqual((done.uploads, done.uploads_left), ([mine] * 2, [anybodys] * 2))
            shown = subprocess.run(
                [support.PROGRAM, "ckpt", "prune", "gs://run/", "--keep-last", "1", "--older-than", "0", "--all-uploads",
                 "--json", "--dry-run", "--endpoint", endpoint, "--ca", ca],
                check=True, capture_output=True,
            )  # fmt: skip
            self.assertEqual(json.loads(shown.stdout)["uploads"], [anybodys] * 2)
            done = retention.retain("gs://run/", 1, client=client, unfinished_age=-YOUNG, all_uploads=True)
            self.assertEqual((done.uploads, done.uploads_left), ([anybodys] * 2, []))
            self.assertEqual([name for name, _, _ in client.list_uploads("gs://run/")], others)
            self.assertEqual([name for name, _, _ in client.list_uploads("gs://other/")], ["step-1.pt"])
            self.assertEqual(names(client), ["step-2/.metadata", "step-2/__0_0" + ENDING])

    def test_where_uploads_cannot_be_listed(self):
        with support.emulator() as (endpoint, ca), ringest.Client(endpoint, ca) as client:
            client.put("gs://run/step-1.pt", b"1")
            client.put("gs://run/step-2.pt", b"1")
            with (
                unittest.mock.patch.object(
                    client, "list_uploads", side_effect=ringest.PermissionDeniedError("gs://run/", "PERMISSION", "no")
                ),
                self.assertLogs("ringest", "WARNING") as logged,
            ):
                done = retention.retain("gs://run/", 1, client=client)
            self.assertEqual((done.removed, len(logged.output)), (["gs://run/step-1.pt"], 1))

    def test_bad_arguments(self):
        for arguments in ((0,), (1, -1)):
            with self.assertRaises(ValueError):
                retention.retain("gs://run/", *arguments)
        for uri in ("s3://run/", None, "gs://"):
            with self.subTest(uri), self.assertRaisesRegex(ValueError, "gs://BUCKET/PREFIX"):
                retention.retain(uri, 1)
        for uri in ("gs://run/step-1/", "gs://run/checkpoint-5/rng", "gs://run/epoch=1-step=2.ckpt/x/y"):
            with self.subTest(uri), self.assertRaisesRegex(ValueError, f"{uri} lies in a checkpoint"):
                retention.retain(uri, 1)

    def test_real_checkpoints(self):
        with support.client() as client:
            state = {"x": torch.arange(10000.0), "step": 5}
            for step in (1, 2, 3):
                dcp.save(state, storage_writer=StorageWriter(f"gs://run/{step}", client=client))
            self.assertTrue(all(each.complete for each in retention.find("gs://run/", client)))
            retention.retain("gs://run/", 1, keep_every=2, client=client, unfinished_age=0)
            self.assertEqual([each.step for each in retention.find("gs://run/", client)], [2, 3])
            found = {"x": torch.zeros(10000), "step": 0}
            dcp.load(found, storage_reader=StorageReader("gs://run/2", client=client))
            self.assertTrue(torch.equal(found["x"], state["x"]))
            # A save over it, killed before its metadata was there, leaves a stray.
            stray = names(client, "gs://run/3/__")[0].replace(".", ".f", 1)[:-8] + ".distcp"
            client.put("gs://run/" + stray, b"1")
            self.assertEqual(len(retention.find("gs://run/3", client)[0].strays), 1)
            self.assertEqual(
                retention.retain("gs://run/", 2, client=client, unfinished_age=-YOUNG).strays, ["gs://run/" + stray]
            )
            dcp.load(found, storage_reader=StorageReader("gs://run/3", client=client))

    def test_removal(self):
        with support.client() as client:
            folder(client, "step-1", "__0_0" + ENDING)
            client.put("gs://run/step-1/notes", b"1")
            client.put("gs://run/step-10.pt", b"1")
            self.assertTrue(retention.is_sharded("gs://run/step-1", client))
            retention.remove("gs://run/step-1/", client)
            retention.remove("gs://run/step-1", client)
            self.assertFalse(retention.is_sharded("gs://run/step-1", client))
            self.assertEqual(names(client), ["step-1/notes", "step-10.pt"])
            retention.remove("gs://run/step-10.pt", client)
            self.assertEqual(names(client), ["step-1/notes"])
            # What no metadata names, and is not called as ours, is not known to be of it.
            folder(client, "step-2", "__0_0.distcp")
            for name in ("__1_0.distcp", "meta.pt", "sub/.metadata", "__5_0.0123456789abcdef.distcp"):
                client.put(f"gs://run/step-2/{name}", b"1")
            retention.remove("gs://run/step-2", client)
            self.assertEqual(names(client, "gs://run/step-2/"), ["step-2/__1_0.distcp", "step-2/sub/.metadata"])
            client.put("gs://run/step-3/meta.pt", b"1")
            retention.remove("gs://run/step-3", client)
            self.assertEqual(names(client, "gs://run/step-3/"), ["step-3/meta.pt"])


if __name__ == "__main__":
    unittest.main()
