"""Trains a small network on scikit-learn's digits, which it reads from a bucket as PNG files.

    python examples/train_digits.py
    torchrun --nproc-per-node 2 examples/train_digits.py

It writes the 1,797 images of 8 x 8 pixels as files, copies them to a bucket with `ringest cp -r`, and
trains with ringest.IterableDataset, alone or as one of several ranks. After each epoch the ranks
gather the samples that each of them has trained on, and check that every sample came exactly once.

With --stop-after STEPS it stops in the middle of an epoch and leaves a checkpoint in the bucket. With
--resume it continues from there, on the same or another number of ranks. It checks again: before and
after the stop together, every sample must have come exactly once."""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import emulator
import numpy
import PIL.Image
import torch
import torch.distributed as distributed
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

import ringest

# Of 1,797: a number that 1 to 6 ranks divide.
TRAIN_COUNT = 1440
# Of all ranks together, so that another number of them takes the same steps.
BATCH = 48
# What the images' values, 0 to 16, are multiplied with in PNG.
SCALE = 15
ACCURACY = 0.96


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )


def write_images(folder: str) -> None:
    """train/INDEX-LABEL.png and test/INDEX-LABEL.png, in an order of their own."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = numpy.random.default_rng(0).permutation(len(digits.images))
    for part in ("train", "test"):
        os.makedirs(os.path.join(folder, part), exist_ok=True)
    for place, index in enumerate(order):
        part = "train" if place < TRAIN_COUNT else "test"
        pixels = (digits.images[index] * SCALE).astype(numpy.uint8)
        name = f"{place:04d}-{digits.target[index]}.png"
        PIL.Image.fromarray(pixels).save(os.path.join(folder, part, name))


def decode(item: ringest.Item) -> tuple[int, torch.Tensor, int]:
    """The transform: index, image and label, which the name says."""
    with PIL.Image.open(io.BytesIO(item.data)) as image:
        pixels = torch.from_numpy(numpy.array(image)).float() / (16 * SCALE)
    return item.index, pixels.unsqueeze(0), int(item.uri[-len("0.png")])


def stack(samples: list[tuple[int, torch.Tensor, int]]) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    indices, images, labels = zip(*samples)
    return list(indices), torch.stack(images), torch.tensor(labels)


class Progress:
    """One line that is rewritten on a terminal; elsewhere a line for each epoch."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def step(self, text: str) -> None:
        if self.rank == 0 and sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def line(self, text: str) -> None:
        if self.rank == 0:
            print(("\r\x1b[K" if sys.stderr.isatty() else "") + text, file=sys.stderr, flush=True)


class Trainer:
    """One rank: the model, where it is in its data, and what all ranks have consumed of the epoch."""

    def __init__(self, options: argparse.Namespace, client: ringest.Client) -> None:
        self.options, self.client = options, client
        self.checkpoint = f"gs://{options.bucket}/digits/checkpoint.pt"
        self.rank = distributed.get_rank() if distributed.is_initialized() else 0
        self.world_size = distributed.get_world_size() if distributed.is_initialized() else 1
        if BATCH % self.world_size or TRAIN_COUNT % self.world_size:
            sys.exit(f"{self.world_size} ranks do not divide batches of {BATCH} and {TRAIN_COUNT} samples")
        self.progress = Progress(self.rank)
        torch.manual_seed(options.seed)
        self.net = Net()
        self.model = nn.parallel.DistributedDataParallel(self.net) if distributed.is_initialized() else self.net
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        # Rank and world size come from torch.distributed.
        self.dataset = ringest.IterableDataset(
            f"gs://{options.bucket}/digits/train/",
            shuffle=True,
            seed=options.seed,
            batch_size=BATCH // self.world_size,
            transform=decode,
            client=client,
        )
        self.epoch = self.step = 0
        # Of this epoch: by this rank in this run, and by all ranks in the run before.
        self.consumed: list[int] = []
        self.consumed_before: list[int] = []

    def gather(self, value: Any) -> list:
        if not distributed.is_initialized():
            return [value]
        values: list = [None] * self.world_size
        distributed.all_gather_object(values, value)
        return values

    def save(self) -> None:
        """What the ranks have consumed of the epoch is gathered, so that any number of them goes on."""
        consumed = self.consumed_before + sum(self.gather(self.consumed), [])
        state = {
            "model": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "dataset": self.dataset.state_dict(all_ranks=True),
            "consumed": consumed,
        }
        if self.rank == 0:
            file = io.BytesIO()
            torch.save(state, file)
            self.client.put(self.checkpoint, file.getbuffer())
        self.progress.line(
            f"stopped after step {self.step}, in epoch {self.epoch + 1} with {len(consumed):,} of "
            f"{TRAIN_COUNT:,} samples consumed; --resume goes on"
        )

    def load(self) -> None:
        emulator.expect_checkpoint(self.client, self.checkpoint)
        state = torch.load(io.BytesIO(self.client.get(self.checkpoint)), weights_only=True)
        self.net.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        self.dataset.load_state_dict(state["dataset"])
        self.epoch = state["dataset"]["epoch"]
        self.consumed_before = state["consumed"]

    def check_samples(self) -> None:
        """That the epoch was every sample once, counted over ranks and over the stop."""
        now: list[int] = sum(self.gather(self.consumed), [])
        counts = collections.Counter(self.consumed_before + now)
        lost = TRAIN_COUNT - len(counts)
        repeated = sum(count > 1 for count in counts.values())
        where = f"{len(self.consumed_before):,} before the stop, " if self.consumed_before else ""
        self.progress.line(
            f"epoch {self.epoch + 1}: {where}{len(now):,} by {self.world_size} rank(s), "
            f"{lost} lost, {repeated} repeated"
        )
        if lost or repeated:
            sys.exit("an epoch has to be every sample exactly once")

    def train_epoch(self) -> bool:
        """False where it is to stop."""
        self.model.train()
        for indices, images, labels in DataLoader(self.dataset, batch_size=None, collate_fn=stack):
            loss = functional.cross_entropy(self.model(images), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.consumed += indices
            self.step += 1
            self.progress.step(
                f"epoch {self.epoch + 1}/{self.options.epochs}, step {self.step}, loss {loss.item():.3f}"
            )
            if self.step == self.options.stop_after:
                self.save()
                return False
        self.check_samples()
        self.consumed, self.consumed_before = [], []
        return True

    def train(self) -> bool:
        while self.epoch < self.options.epochs:
            self.dataset.set_epoch(self.epoch)
            if not self.train_epoch():
                return False
            self.epoch += 1
        return True

    def test_accuracy(self) -> float:
        dataset = ringest.MapDataset(f"gs://{self.options.bucket}/digits/test/", decode, self.client)
        right = 0
        self.net.eval()
        with torch.no_grad():
            for _, images, labels in DataLoader(dataset, batch_size=120, collate_fn=stack):
                right += int((self.net(images).argmax(1) == labels).sum())
        return right / len(dataset)


def weights_digest(net: nn.Module) -> str:
    """To compare runs by."""
    weights = b"".join(value.numpy().tobytes() for value in net.state_dict().values())
    return hashlib.sha256(weights).hexdigest()[:16]


def upload_digits(options: argparse.Namespace, endpoint: str, ca: str | None) -> None:
    """What is in the bucket already is left alone, so that a second run finds the same objects."""
    with tempfile.TemporaryDirectory() as folder:
        images = os.path.join(folder, "digits")
        write_images(images)
        command = [options.ringest, "cp", "-r", images, f"gs://{options.bucket}/", "--endpoint", endpoint]
        subprocess.run(command + (["--ca", ca] if ca else []), check=True)


@contextlib.contextmanager
def served(options: argparse.Namespace, rank: int) -> Iterator[tuple[str, str | None]]:
    """Endpoint and certificates, the digits in place. Rank 0 starts the emulator for all."""
    with contextlib.ExitStack() as stack:
        place: list = [None]
        if rank == 0:
            folder = options.folder or stack.enter_context(tempfile.TemporaryDirectory())
            os.makedirs(folder, exist_ok=True)
            place[0] = stack.enter_context(emulator.endpoint(options, "--root", folder, "--bucket", options.bucket))
            if not options.resume:
                upload_digits(options, *place[0])
        if distributed.is_initialized():
            distributed.broadcast_object_list(place)
        yield place[0]
        if distributed.is_initialized():
            distributed.barrier()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    emulator.add_resume_options(parser)
    emulator.add_options(parser)
    return emulator.parse(parser)


def main() -> None:
    options = parse()
    # Several ranks of a small network on one machine would only be in each other's way.
    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK", "0"))
    if "WORLD_SIZE" in os.environ:
        distributed.init_process_group("gloo")
    with served(options, rank) as (endpoint, ca), ringest.Client(endpoint, ca) as client:
        trainer = Trainer(options, client)
        if options.resume:
            trainer.load()
        if trainer.train() and rank == 0:
            accuracy = trainer.test_accuracy()
            print(json.dumps({"accuracy": accuracy, "steps": trainer.step, "weights": weights_digest(trainer.net)}))
            if accuracy < ACCURACY:
                print(f"less than {ACCURACY}, which four epochs usually reach", file=sys.stderr)
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
