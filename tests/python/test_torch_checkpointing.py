"""ringest.torch_checkpointing: what torch_checkpointing demands of a storage, and checkpoints of its manager."""

import io
import itertools
import os
import pathlib
import pickle
import unittest
from unittest import mock

import torch
from torch_checkpointing import CheckpointManager
from torch_checkpointing.storage.base_storage import ReadArgs

import ringest
import support
from ringest.torch_checkpointing import StorageConfig

_numbers = itertools.count()


class Emulated(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.endpoint, cls.ca = cls.enterClassContext(support.emulator())
        cls.client = cls.enterClassContext(ringest.Client(cls.endpoint, cls.ca, hedging=False))
        cls.storage = StorageConfig(cls.client).create_storage()

    def setUp(self):
        self.root = pathlib.Path(f"gs://run/{next(_numbers)}")

    def put(self, **files):
        for name, text in files.items():
            self.storage.write(self.root / name.replace("_", "/"), text.encode())

    def there(self):
        start = len(str(self.root)) + 1
        found = self.client.list(self.storage.remap_path(self.root) + "/")
        uris = {f"gs:/run/{name}" for name, _, _ in found}
        return {uri[start:]: self.storage.read(pathlib.Path(uri)).decode() for uri in sorted(uris)}


class Files(Emulated):
    def test_what_is_written_is_read(self):
        path = self.root / "a" / "b.bin"
        with self.storage.stream_write(path) as file:
            for part in (b"bytes", bytearray(b" and "), torch.arange(3, dtype=torch.uint8).numpy()):
                file.write(part)
        data = b"bytes and \0\1\2"
        self.assertEqual((self.storage.read(path), self.storage.getsize(path)), (data, len(data)))
        for args in (None, ReadArgs(), ReadArgs(pre_read_full_file=False)):
            with self.storage.stream_read(path, args) as file:
                self.assertEqual(file.seek(6), 6)
                room = bytearray(3)
                self.assertEqual((file.readinto(room), bytes(room), file.read()), (3, b"and", data[9:]))
        self.storage.write(path, memoryview(b"other"))
        self.assertEqual(self.storage.read(path), b"other")
        self.storage.delete(path)
        for call in (self.storage.read, self.storage.stream_read, self.storage.getsize, self.storage.delete):
            with self.assertRaises(FileNotFoundError):
                call(path)

    def test_a_file_that_is_not_finished_is_not_there(self):
        with self.assertRaises(KeyError), self.storage.stream_write(self.root / "x") as file:
            file.write(b"half")
            raise KeyError
        self.assertFalse(self.storage.exists(self.root / "x"))

    def test_directories_are_what_lies_below_them(self):
        self.storage.mkdir(self.root / "empty")
        self.assertFalse(self.storage.exists(self.root / "empty"))
        self.put(a="1", d_b="2", d_e_c="3", dd="4")
        self.assertEqual(self.storage.ls(self.root), ["a", "d", "dd"])
        self.assertEqual(self.storage.ls(self.root / "d"), ["b", "e"])
        self.assertEqual(self.storage.glob(str(self.root / "d*")), [str(self.root / "d"), str(self.root / "dd")])
        for name, is_there, is_directory in (
            ("a", True, False),
            ("d", True, True),
            ("d/e", True, True),
            ("e", False, False),
        ):
            self.assertEqual(self.storage.exists(self.root / name), is_there)
            self.assertEqual(self.storage.isdir(self.root / name), is_directory)
        self.storage.rmdir(self.root / "d")
        self.assertEqual(self.there(), {"a": "1", "dd": "4"})
        for call in (self.storage.ls, self.storage.rmdir):
            with self.assertRaises(FileNotFoundError):
                call(self.root / "d")

    def test_other_places_are_refused(self):
        for call in (self.storage.read, self.storage.mkdir, self.storage.exists):
            with self.assertRaisesRegex(ValueError, "/tmp/x is not below gs://BUCKET/"):
                call(pathlib.Path("/tmp/x"))

    def test_it_reaches_other_processes(self):
        self.put(a="1")
        storage = pickle.loads(pickle.dumps(StorageConfig(self.client))).create_storage()
        self.assertEqual(storage.read(self.root / "a"), b"1")


class Renames(Emulated):
    """The table in the docstring of its Storage.rename."""

    def rename(self, source, target, **options):
        self.storage.rename(self.root / source, self.root / target, **options)

    def test_a_directory_lands_at_its_destination(self):
        self.put(s_a="1", s_e_b="2", s_metadata="m", ss="3")
        self.rename("s", "t", is_directory=True)
        self.assertEqual(self.there(), {"t/a": "1", "t/e/b": "2", "t/metadata": "m", "ss": "3"})

    def test_a_file_replaces_a_file(self):
        self.put(a="1", b="2", c="3")
        self.rename("a", "d")
        self.rename("b", "c")
        self.rename("c", "c")
        self.assertEqual(self.there(), {"c": "2", "d": "1"})

    def test_what_is_occupied_is_left_alone(self):
        self.put(s_a="1", t_a="2", f="3", g="4")
        before = self.there()
        for source, target in (("s", "t"), ("s", "f"), ("g", "t")):
            with self.assertRaisesRegex(FileExistsError, "was not renamed.*something is there"):
                self.rename(source, target)
            self.assertEqual(self.there(), before)
        with self.assertRaises(FileNotFoundError):
            self.rename("none", "x")

    def test_a_rename_that_is_interrupted_leaves_nothing_complete(self):
        self.storage.write(self.root / "s" / "metadata.pkl", b"m")
        self.put(s_a="1", s_z="2")
        with support.faults(self.endpoint, self.ca, {"storage.objects.rewrite": [support.PASS, "return-403"]}):
            with ringest.Client(self.endpoint, self.ca, hedging=False) as client:
                with self.assertRaises(ringest.Error):
                    StorageConfig(client).create_storage().rename(self.root / "s", self.root / "t")
        there = self.there()
        self.assertEqual({name for name in there if name.startswith("s/")}, {"s/a", "s/metadata.pkl", "s/z"})
        self.assertNotIn("t/metadata.pkl", there)

    def test_a_removal_that_is_interrupted_leaves_nothing_complete(self):
        for remove in (lambda s, t: self.storage.rename(s, t), lambda s, _: self.storage.rmdir(s)):
            self.setUp()
            self.storage.write(self.root / "s" / "metadata.pkl", b"m")
            self.put(s_a="1", s_z="2")
            bulk, removals = self.client._bulk, []

            def until_second_removal(calls, requests, bulk=bulk, removals=removals):
                calls = list(calls)
                removals.extend(["delete"] * (calls[0][1] == "delete"))
                if len(removals) > 1:
                    raise KeyboardInterrupt
                return bulk(calls, requests)

            with mock.patch.object(self.client, "_bulk", until_second_removal), self.assertRaises(KeyboardInterrupt):
                remove(self.root / "s", self.root / "t")
            left = {name for name in self.there() if name.startswith("s/")}
            self.assertEqual(left, {"s/a", "s/z"})


def state(step):
    torch.manual_seed(step)
    return {"model": {"weight": torch.randn(50, 20), "bias": torch.randn(20)}, "step": {"step": step}}


class Manager(Emulated):
    # Saving from another process takes seconds to start one.
    WAYS = (True, False) if os.environ.get("RINGEST_EXAMPLES") else (True,)

    def config(self, is_sync):
        config = CheckpointManager.Config.with_sync_save() if is_sync else CheckpointManager.Config.with_async_save()
        config.storage_config = StorageConfig(self.client)
        return config

    def test_what_is_saved_is_loaded(self):
        for is_sync in self.WAYS:
            with self.subTest(is_sync=is_sync):
                uri = f"gs://run/{next(_numbers)}/step-3"
                manager = self.config(is_sync).build()
                try:
                    done = manager.save(uri, state(3))
                    if done is not None:
                        done.result(120)
                    found = manager.load(uri, into=state(4))
                finally:
                    manager.close()
                torch.testing.assert_close(found, state(3), rtol=0, atol=0)
                # The files are torch's.
                data = self.client.get(f"{uri}/model_0.pt")
                weight = torch.load(io.BytesIO(data), weights_only=True)["weight"]
                self.assertTrue(torch.equal(weight, state(3)["model"]["weight"]))

    def test_a_checkpoint_that_is_not_there(self):
        manager = self.config(True).build()
        with self.assertRaises(FileNotFoundError):
            manager.load("gs://run/none/step-1", into=state(1))
        manager.close()


if __name__ == "__main__":
    unittest.main()
