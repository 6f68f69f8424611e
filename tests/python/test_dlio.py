"""ringest.dlio: DLIO itself, started by MPI, reads from a bucket and writes its checkpoints there."""

import collections
import glob
import io
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
import zlib

import numpy
import torch

import ringest
import support
from ringest import dlio

FILES, SAMPLES, BATCH, EPOCHS = 12, 3, 4, 2
MODEL = 100_000
SETTINGS = {
    "dataset.num_files_train": FILES,
    "dataset.num_samples_per_file": SAMPLES,
    "dataset.record_length": 10_000,
    "dataset.record_length_stdev": 1000,
    "dataset.record_length_resize": 4096,
    "reader.batch_size": BATCH,
    "train.epochs": EPOCHS,
    "train.computation_time": 0.001,
    "workflow.checkpoint": False,
}


def words(settings):
    return ["workload=unet3d_a100", *(f"++workload.{name}={value}" for name, value in settings.items())]


def run(command, folder, **environment):
    """DLIO's output; its own folders are made in this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.pathsep.join([here, os.environ["PYTHONPATH"]])
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout


class Arrays(unittest.TestCase):
    """What is decoded in place is what NumPy reads."""

    def saved(self, save, **arrays):
        file = io.BytesIO()
        save(file, **arrays)
        return file.getvalue()

    def test_arrays_of_each_kind(self):
        for array in (
            numpy.arange(60, dtype="u1").reshape(3, 4, 5),
            numpy.asfortranarray(numpy.arange(12.0).reshape(3, 4)),
            numpy.arange(6, dtype=">i4"),
            numpy.zeros((0, 3), dtype="f2"),
            numpy.array(7),
        ):
            for save in (numpy.savez, numpy.savez_compressed):
                with self.subTest(shape=array.shape, save=save.__name__):
                    read = dlio._npz(self.saved(save, x=array, y=numpy.arange(3)))
                    self.assertEqual((read.dtype, read.shape), (array.dtype, array.shape))
                    self.assertEqual(read.tolist(), array.tolist())

    def test_an_array_that_would_run_code_is_refused(self):
        data = self.saved(numpy.savez, x=numpy.array([{}], dtype=object))
        with self.assertRaisesRegex(ValueError, "any code"):
            dlio._npz(data)

    def test_what_is_cut_is_refused(self):
        data = self.saved(numpy.savez, x=numpy.arange(1000))
        with self.assertRaises(zipfile.BadZipFile):
            dlio._npz(data[:-100])


class Shares(unittest.TestCase):
    def test_each_sample_is_one_ranks(self):
        for files, samples, ranks in ((1, 1, 1), (7, 1, 2), (5, 3, 4), (2, 10, 8), (3, 1, 8)):
            with self.subTest(files=files, samples=samples, ranks=ranks):
                names = [str(i) for i in range(files)]
                shares = [list(dlio._share(names, samples, rank, ranks)) for rank in range(ranks)]
                taken = collections.Counter((name, i) for share in shares for name, part in share for i in part)
                self.assertEqual(set(taken.values()) - {1}, set())
                self.assertEqual(len(taken), files * samples // ranks * ranks)
                self.assertEqual({sum(len(part) for _, part in share) for share in shares}, {files * samples // ranks})


class Dlio(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.endpoint, ca = cls.enterClassContext(support.emulator())
        cls.client = cls.enterClassContext(ringest.Client(cls.endpoint, ca, threads=1))
        cls.reached = {"STORAGE_EMULATOR_HOST": cls.endpoint, "SSL_CERT_FILE": ca}
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        program = os.path.join(os.path.dirname(sys.executable), "dlio_benchmark")
        generated = {
            **SETTINGS,
            "dataset.data_folder": f"{cls.folder}/data",
            "workflow.generate_data": True,
            "workflow.train": False,
        }
        status, said = run([program, *words(generated)], cls.folder)
        assert status == 0, said
        cls.samples = collections.Counter()
        for path in glob.glob(f"{cls.folder}/data/train/*.npz"):
            with open(path, "rb") as file:
                cls.client.put(f"gs://mine/data/train/{os.path.basename(path)}", file.read())
            array = numpy.load(path)["x"]
            cls.samples.update(zlib.crc32(array[..., i].tobytes()) for i in range(SAMPLES))
        assert cls.samples.total() == FILES * SAMPLES

    def dlio(self, ranks, settings):
        mpiexec = os.path.join(os.path.dirname(sys.executable), "mpiexec")
        command = [mpiexec, "-n", str(ranks), sys.executable, "-m", "ringest.dlio"]
        records = self.enterContext(tempfile.TemporaryDirectory())
        where = {"storage.storage_root": "gs://mine", "dataset.data_folder": "data"}
        given = words({**SETTINGS, **where, **settings})
        status, said = run([*command, *given], self.folder, RINGEST_RECORDS=records, **self.reached)
        return status, said, records

    def recorded(self, records, epoch, rank):
        with open(f"{records}/{epoch}-{rank}") as file:
            return [int(line) for line in file]

    def test_each_sample_comes_once_in_an_epoch(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                reader = {"data_loader_classname": "dlio_recording.Recording", "data_loader_sampler": "index"}
                status, said, records = self.dlio(ranks, {f"reader.{name}": value for name, value in reader.items()})
                self.assertEqual(status, 0, said)
                self.assertIn("Training Accelerator Utilization", said)
                orders = []
                for epoch in range(1, EPOCHS + 1):
                    order = [crc for rank in range(ranks) for crc in self.recorded(records, epoch, rank)]
                    steps = FILES * SAMPLES // ranks // BATCH * ranks * BATCH
                    self.assertEqual(len(order), steps)
                    self.assertEqual(collections.Counter(order) - self.samples, collections.Counter())
                    orders.append(order)
                self.assertNotEqual(*orders)

    def test_workers_of_dlios_own_loader(self):
        status, said, _ = self.dlio(1, {"reader.reader_classname": "ringest.dlio.Reader", "reader.read_threads": 2})
        self.assertEqual(status, 0, said)
        self.assertIn("Training Accelerator Utilization", said)

    def test_checkpoints_are_torchs(self):
        settings = {
            "workflow.checkpoint": True,
            "checkpoint.checkpoint_folder": "gs://mine/checkpoints",
            "checkpoint.checkpoint_after_epoch": 1,
            "checkpoint.model_size": MODEL,
            "checkpoint.checkpoint_mechanism_classname": "ringest.dlio.Checkpointing",
            "reader.data_loader_classname": "ringest.dlio.DataLoader",
            "reader.data_loader_sampler": "index",
        }
        status, said, _ = self.dlio(1, settings)
        self.assertEqual(status, 0, said)
        names = [name for name, _, _ in self.client.list("gs://mine/checkpoints/") if "model" in name]
        self.assertTrue(names)
        state = torch.load(io.BytesIO(self.client.get(f"gs://mine/{names[0]}")))
        self.assertEqual(state["a"].shape, (MODEL,))

    def test_what_cannot_be_done_is_said(self):
        for settings, message in (
            ({"workflow.generate_data": True}, "ringest cp -r FOLDER"),
            (
                {
                    "workflow.checkpoint": True,
                    "checkpoint.checkpoint_folder": "here",
                    "checkpoint.checkpoint_mechanism_classname": "ringest.dlio.Checkpointing",
                },
                "checkpoint_folder is here",
            ),
            ({"dataset.data_folder": "elsewhere"}, "Not enough training dataset"),
        ):
            with self.subTest(message=message):
                reader = {"data_loader_classname": "ringest.dlio.DataLoader", "data_loader_sampler": "index"}
                given = {f"reader.{name}": value for name, value in reader.items()}
                status, said, _ = self.dlio(1, {**given, **settings})
                self.assertNotEqual(status, 0)
                self.assertIn(message, said)


if __name__ == "__main__":
    unittest.main()
