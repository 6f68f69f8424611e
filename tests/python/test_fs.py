"""ringest.fs: fsspec's interface, and what opens paths by it: pandas-like callers and Lightning's ModelCheckpoint."""

import os
import pickle
import tempfile
import unittest
import warnings

import fsspec
import lightning
import ringest.fs
import support
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from ringest.lightning import CheckpointIO

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
        self.client = self.enterContext(support.client())
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
        ):
            self.assertEqual(self.fs.cat_file("here/run/b", start, end), whole[start:end], (start, end))

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

    def test_folders_are_parts_of_names(self):
        self.fs.makedirs("here/made/up", exist_ok=True)
        self.fs.mkdir("here/made")
        self.assertFalse(self.fs.exists("here/made"))


class Copying(Case):
    def test_the_client_copies_on_condition(self):
        facts = self.client.copy("gs://here/run/a", "gs://here/copied", if_generation_match=0)
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

    def test_it_goes_to_other_processes(self):
        fs = pickle.loads(pickle.dumps(self.fs))
        self.assertEqual(fs.cat("here/run/a"), b"first")

    def test_lightnings_model_checkpoint_keeps_the_best(self):
        keeper = ModelCheckpoint(
            "gs://here/best", "{step}", every_n_train_steps=2, save_top_k=2, monitor="step", mode="max"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = lightning.Trainer(
                accelerator="cpu", devices=1, max_steps=8, logger=False, callbacks=[keeper],
                plugins=[CheckpointIO(self.client)], default_root_dir="gs://here/root",
                enable_progress_bar=False, enable_model_summary=False,
            )  # fmt: skip
            trainer.fit(BoringModel())
            self.assertEqual(self.fs.ls("here/best", detail=False), ["here/best/step=6.ckpt", "here/best/step=8.ckpt"])
            self.assertEqual(keeper.best_model_path, "gs://here/best/step=8.ckpt")
            again = lightning.Trainer(
                accelerator="cpu", devices=1, max_steps=10, logger=False, plugins=[CheckpointIO(self.client)],
                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                default_root_dir=self.folder,
            )  # fmt: skip
            again.fit(BoringModel(), ckpt_path=keeper.best_model_path)
            self.assertEqual(again.global_step, 10)


if __name__ == "__main__":
    unittest.main()
