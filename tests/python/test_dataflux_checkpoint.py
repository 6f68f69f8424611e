"""The checkpoint half of ringest.dataflux, alone; test_connector.py compares it with the connector."""

import io
import pathlib
import pickle
import shutil
import unittest
from unittest import mock

import numpy
import torch
import torch.distributed.checkpoint as dcp

import ringest
import support
from ringest.dataflux import dataflux_checkpoint
from ringest.dataflux import lightning as ours
from ringest.dataflux.lightning import path_utils

URI = "gs://run/a//b.ckpt"


def state():
    return {"x": torch.arange(1000.0), "y": [1, "two"], "z": torch.zeros(3, 0)}


class Case(unittest.TestCase):
    def assertSame(self, found):
        wanted = state()
        self.assertEqual(found["y"], wanted["y"])
        self.assertTrue(torch.equal(found["x"], wanted["x"]))
        self.assertEqual(found["z"].shape, wanted["z"].shape)


class Files(Case):
    def test_torch_and_others_write_and_read(self):
        with support.client() as client:
            files = dataflux_checkpoint.DatafluxCheckpoint("project", "run", client)
            with files.writer("x.pt") as file:
                torch.save(state(), file)
            with files.reader("x.pt") as file:
                self.assertSame(torch.load(file))
            with files.writer("x.npy") as file:
                numpy.save(file, numpy.arange(10))
            with files.reader("x.npy") as file:
                self.assertEqual(numpy.load(file).tolist(), list(range(10)))
            file = files.writer("x.pickle")
            pickle.dump({"a": 1}, file)
            file.close()
            file.close()
            self.assertEqual(pickle.load(files.reader("x.pickle")), {"a": 1})
            with self.assertRaises(FileNotFoundError):
                files.reader("none")

    def test_an_exception_writes_nothing(self):
        with support.client() as client:
            files = dataflux_checkpoint.DatafluxCheckpoint("project", "run", client)
            with files.writer("x") as file:
                file.write(b"good")
            with self.assertRaises(RuntimeError), files.writer("x") as file:
                file.write(b"bad")
                raise RuntimeError
            self.assertEqual(files.reader("x").read(), b"good")


class Paths(unittest.TestCase):
    def test_paths(self):
        for path, parsed in (
            ("gs://b/a/c", ("b", "a/c")),
            ("gcs://b/a", ("b", "a")),
            ("gs://b", ("b", "")),
            ("gs://b/", ("b", "")),
            (pathlib.Path("gs://b/a/c"), ("b", "a/c")),
            (pathlib.Path("gs://b/a:/c"), ("b", "a:/c")),
            ("gs://b/a//c", ("b", "a//c")),
        ):
            self.assertEqual(path_utils.parse_gcs_path(path), parsed)
        for path in ("", "b/a", "/b/a", "s3://b/a", "gs://", "gs:///a", pathlib.Path("b/a"), "gs:/b/a"):
            with self.assertRaises(ValueError, msg=path):
                path_utils.parse_gcs_path(path)
        with self.assertRaises(TypeError):
            path_utils.parse_gcs_path(b"gs://b/a")
        self.assertEqual(path_utils.process_input_path(pathlib.Path("gs://b/a")), "gs://b/a")


class Lightning(Case):
    def test_saved_loaded_and_removed(self):
        with support.client() as client:
            for kind in (ours.DatafluxLightningCheckpoint, ours.DatafluxLightningAsyncCheckpoint):
                plugin = kind("project", client, True)
                for path in (URI, pathlib.Path("gs://run/c/d.ckpt")):
                    plugin.save_checkpoint(state(), path, None)
                    self.assertSame(plugin.load_checkpoint(path, None))
                    plugin.remove_checkpoint(path)
                    plugin.teardown()
                    with self.assertRaises(FileNotFoundError):
                        plugin.load_checkpoint(path)
            self.assertEqual(len(client.list("gs://run/")), 0)

    def test_a_failure_is_told(self):
        with support.client() as client:
            plugin = ours.DatafluxLightningAsyncCheckpoint("project", client)
            plugin.save_checkpoint({"x": io.BytesIO}, "gs://run/a")
            plugin.teardown()
            plugin.save_checkpoint({"x": (i for i in "ab")}, "gs://run/a")
            with self.assertRaises(TypeError):
                plugin.teardown()


class FileSystem(unittest.TestCase):
    def test_streams_and_names(self):
        with support.client() as client:
            fs = ours.GCSFileSystem("project", False, client)
            folder = fs.init_path("gs://run/folder")
            fs.mkdir(folder)
            path = fs.concat_path(folder, "x")
            self.assertFalse(fs.exists(path))
            with fs.create_stream(path, "wb") as stream:
                stream.write(b"some")
                stream.close()
            with self.assertRaises(RuntimeError), fs.create_stream(path, "wb") as stream:
                raise RuntimeError
            fs.rename(path, "gs://run/folder/y")
            fs.rename("gs://run/folder/y", "gs://run/folder/y")
            self.assertEqual([fs.exists(path), fs.exists("gs://run/folder/y")], [False, True])
            with fs.create_stream("gs://run/folder/y", "rb") as stream:
                self.assertEqual(stream.read(), b"some")
            fs.rm_file("gs://run/folder/y")
            self.assertFalse(fs.exists("gs://run/folder/y"))
            with self.assertRaises(ringest.NotFoundError):
                fs.rm_file("gs://run/folder/y")
            with self.assertRaises(ValueError), fs.create_stream(path, "ab"):
                pass
            with self.assertRaises(ValueError):
                fs.rename(path, "gs://other/x")
            self.assertTrue(fs.validate_checkpoint_id("gs://run/x"))
            with self.assertRaises(ValueError):
                fs.validate_checkpoint_id("run/x")

    def test_a_rename_leaves_what_came_meanwhile(self):
        with support.client() as client:
            fs = ours.GCSFileSystem("project", False, client)
            client.put("gs://run/x", b"before")

            def copy(source, target, size):
                target.write(source.read())
                client.put("gs://run/x", b"meanwhile")

            with mock.patch.object(shutil, "copyfileobj", copy):
                fs.rename("gs://run/x", "gs://run/y")
            self.assertEqual((client.get("gs://run/x"), client.get("gs://run/y")), (b"meanwhile", b"before"))

    def test_distributed_checkpoints(self):
        with support.client() as client:
            saved = {"x": torch.arange(1000.0), "n": torch.tensor(3)}
            for path in ("gs://run/dcp", pathlib.Path("gs://run/dcp2")):
                writer = ours.GCSDistributedWriter(path, "project", client, single_file_per_rank=False, thread_count=2)
                dcp.save(saved, checkpoint_id=path, storage_writer=writer)
                loaded = {"x": torch.zeros(1000), "n": torch.tensor(0)}
                reader = ours.GCSDistributedReader(path, "project", client)
                dcp.load(loaded, checkpoint_id=path, storage_reader=reader)
                self.assertTrue(all(torch.equal(loaded[name], saved[name]) for name in saved))
                with reader.fs.create_stream(pathlib.Path(path) / ".metadata", "rb") as stream:
                    self.assertGreater(len(stream.read()), 0)
            writer = ours.GCSDistributedWriter("gs://run/dcp", "project", client, overwrite=False)
            with self.assertRaisesRegex(dcp.CheckpointException, "overwrite=True"):
                dcp.save(saved, storage_writer=writer)
            with self.assertRaises(TypeError):
                ours.GCSDistributedWriter("gs://run/dcp", "project", client, unknown=1)


if __name__ == "__main__":
    unittest.main()
