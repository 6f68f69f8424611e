"""A tensor beyond 4 GiB, and more tensors behind it in the same file, saved and loaded by each interface and read
by torch's own loaders. RINGEST_LARGE is the size of the tensor in MiB; without it the same is done with a small
one, and with 6144 (script/soak) it takes about 8 GiB of memory and 7 GiB of disk."""

import os
import tempfile
import unittest
import warnings

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp

import support
from ringest import checkpoint
from ringest import safetensors as ours
from ringest.dcp import StorageReader, StorageWriter

warnings.filterwarnings("ignore", category=UserWarning, module="torch")
MIB = 1 << 20
LARGE = int(os.environ.get("RINGEST_LARGE", "24"))
# Behind the large one, so that they lie where an offset has more than 32 bits.
BEHIND = 40 if LARGE > 4096 else 8
ROW = MIB // 8


def base():
    generator = torch.Generator().manual_seed(LARGE)
    return torch.randint(-(1 << 62), 1 << 62, (ROW,), generator=generator)


def filled(rows):
    """Rows of 1 MiB that are told apart."""
    made = torch.empty(rows, ROW, dtype=torch.int64)
    one = base()
    for i in range(rows):
        torch.add(one, i, out=made[i])
    return made


def state():
    return {
        "before": torch.arange(1001, dtype=torch.int16),
        "large": filled(LARGE),
        **{f"tail.{i:02d}": base() - i for i in range(BEHIND)},
    }


class Large(unittest.TestCase):
    def check(self, found):
        self.assertEqual(len(found), BEHIND + 2)
        one = base()
        self.assertTrue(torch.equal(found["before"], torch.arange(1001, dtype=torch.int16)))
        self.assertEqual(found["large"].shape, (LARGE, ROW))
        # A row at a time, so that there is no second one in memory.
        for i, row in enumerate(found["large"]):
            self.assertTrue(torch.equal(row, one + i), i)
        for i in range(BEHIND):
            self.assertTrue(torch.equal(found[f"tail.{i:02d}"], one - i), i)

    def run_with(self, save, load, load_by_torch=None):
        """save(state, client), load(client) and, of the folder in which the objects lie, load_by_torch(folder)."""
        with tempfile.TemporaryDirectory(dir=os.environ.get("RINGEST_LARGE_DIR")) as folder:
            with support.client("--root", folder) as client:
                save(state(), client)
                self.check(load(client))
            if load_by_torch is not None:
                self.check(load_by_torch(os.path.join(folder, "new")))

    def test_checkpoint(self):
        self.run_with(
            lambda saved, client: checkpoint.save(saved, "gs://new/o", client=client),
            lambda client: checkpoint.load("gs://new/o", client=client),
            lambda folder: torch.load(os.path.join(folder, "o"), mmap=True),
        )

    def test_files(self):
        def save(saved, client):
            with checkpoint.open("gs://new/o", "wb", client=client) as file:
                torch.save(saved, file)

        def load(client):
            with checkpoint.open("gs://new/o", client=client) as file:
                return torch.load(file)

        self.run_with(save, load, lambda folder: torch.load(os.path.join(folder, "o"), mmap=True))

    def test_what_torch_saved(self):
        def save(saved, client):
            with checkpoint.open("gs://new/o", "wb", client=client) as file:
                torch.save(saved, file)

        self.run_with(save, lambda client: checkpoint.load("gs://new/o", client=client))

    def test_dcp(self):
        def blank():
            return {name: torch.zeros_like(each, device="cpu") for name, each in shapes.items()}

        shapes = {
            "before": torch.empty(1001, dtype=torch.int16, device="meta"),
            "large": torch.empty(LARGE, ROW, dtype=torch.int64, device="meta"),
            **{f"tail.{i:02d}": torch.empty(ROW, dtype=torch.int64, device="meta") for i in range(BEHIND)},
        }

        def load(reader):
            into = blank()
            dcp.load(into, storage_reader=reader)
            return into

        self.run_with(
            lambda saved, client: dcp.save(saved, storage_writer=StorageWriter("gs://new/o", client=client)),
            lambda client: load(StorageReader("gs://new/o", client=client)),
            lambda folder: load(dcp.FileSystemReader(os.path.join(folder, "o"))),
        )

    def test_safetensors(self):
        def slices(client):
            with ours.safe_open("gs://new/o", client=client) as file:
                part = file.get_slice("large")
                for i in (0, LARGE // 2, LARGE - 1):
                    self.assertTrue(torch.equal(part[i, 5:99], base()[5:99] + i))
                self.assertTrue(torch.equal(file.get_tensor("tail.07"), base() - 7))
            return ours.load_file("gs://new/o", client=client)

        self.run_with(
            lambda saved, client: ours.save_file(saved, "gs://new/o", client=client),
            slices,
            lambda folder: safetensors.torch.load_file(os.path.join(folder, "o")),
        )
