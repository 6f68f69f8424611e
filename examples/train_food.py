"""Trains a small network on pictures in the shape of Food-101, which Hugging Face's datasets streams from a bucket.

    python examples/train_food.py
    python examples/train_food.py --folder DIR --stop-after 40
    python examples/train_food.py --folder DIR --resume

It makes pictures of 101 classes, small ones, and saves them as Parquet files with the columns of the Hub's food101, `image`
and `label`. The rows are in an order by chance, so that a stream needs no shuffle buffer: what is in one is lost when a
stream is resumed. To train on other data, give --data gs://BUCKET/PREFIX/*.parquet.

With --stop-after STEPS it stops in the middle of an epoch and leaves a checkpoint with the state of the stream in the
bucket. With --resume it goes on from there: every picture of the epoch comes once, before or after the stop."""

from __future__ import annotations

import argparse
import colorsys
import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
from typing import Any

import datasets
import emulator
import numpy
import PIL.Image
import torch
from torch import nn
from torch.nn import functional

import ringest
from ringest import checkpoint, fs

CLASSES = 101
PICTURES = 8  # of each class
FILES = 4
SIZE = 24  # pixels
BATCH = 32


def draw(label: int, chance: numpy.random.Generator) -> bytes:
    """A plate of the colour of its class on a table of another, somewhere, under some light."""
    colours = [numpy.array(colorsys.hsv_to_rgb(hue / CLASSES, 0.9, 1)) for hue in (label, label * 31 % CLASSES)]
    rows, columns = numpy.mgrid[:SIZE, :SIZE] - SIZE / 2 + chance.integers(-2, 3, (2, 1, 1))
    plate = (rows**2 + columns**2 < (SIZE / 3) ** 2)[..., None]
    pixels = numpy.where(plate, *colours) * chance.uniform(0.9, 1) + chance.normal(0, 0.02, (SIZE, SIZE, 3))
    out = io.BytesIO()
    PIL.Image.fromarray((pixels.clip(0, 1) * 255).astype(numpy.uint8)).save(out, "JPEG", quality=95)
    return out.getvalue()


def make_pictures(folder: str) -> None:
    """FOLDER/train-0.parquet and so on, as datasets writes them."""
    chance = numpy.random.default_rng(0)
    labels = chance.permutation(numpy.repeat(numpy.arange(CLASSES), PICTURES)).tolist()
    rows = {"image": [{"bytes": draw(label, chance), "path": None} for label in labels], "label": labels}
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=[f"food {i}" for i in range(CLASSES)])}
    )
    table = datasets.Dataset.from_dict(rows, features)
    for i in range(FILES):
        table.shard(FILES, i).to_parquet(f"{folder}/train-{i}.parquet")


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(4),
            nn.Flatten(),
            nn.Linear(32 * (SIZE // 4) ** 2, 256),
            nn.ReLU(),
            nn.Linear(256, CLASSES),
        )


def stack(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Pictures of any size, decoded by datasets, as the network wants them."""
    pictures = [numpy.asarray(image.convert("RGB").resize((SIZE, SIZE)), "float32") / 255 for image in rows["image"]]
    return {"pixels": [picture.transpose(2, 0, 1) for picture in pictures], "label": rows["label"]}


class Trainer:
    def __init__(self, options: argparse.Namespace, client: ringest.Client) -> None:
        self.options, self.client = options, client
        self.checkpoint = f"gs://{options.bucket}/food/checkpoint.pt"
        if options.resume:
            emulator.expect_checkpoint(client, self.checkpoint)
        torch.manual_seed(1)
        self.net = Net()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=2e-3)
        self.stream = self.make_stream()
        self.epoch = self.step = self.seen = 0  # seen: pictures of this epoch

    def make_stream(self) -> datasets.IterableDataset:
        """For one epoch: one that has loaded a state would begin each epoch there."""
        made = datasets.load_dataset("parquet", data_files=self.options.data, split="train", streaming=True)
        return made.map(stack, batched=True, batch_size=BATCH, remove_columns=["image"])

    def save(self) -> None:
        state = {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "stream": self.stream.state_dict(),
            "epoch": self.epoch,
            "step": self.step,
            "seen": self.seen,
        }
        checkpoint.save(state, self.checkpoint, client=self.client)
        print(f"stopped after step {self.step}: {self.seen:,} pictures of epoch {self.epoch + 1}", file=sys.stderr)

    def load(self) -> None:
        state = checkpoint.load(self.checkpoint, client=self.client)
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.stream.load_state_dict(state["stream"])
        self.epoch, self.step, self.seen = state["epoch"], state["step"], state["seen"]

    def train_epoch(self) -> bool:
        """False where it is to stop."""
        right = 0
        for rows in self.stream.iter(BATCH):
            pixels, labels = torch.from_numpy(numpy.stack(rows["pixels"])), torch.tensor(rows["label"])
            scores = self.net(pixels)
            loss = functional.cross_entropy(scores, labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            right += int((scores.argmax(1) == labels).sum())
            self.step += 1
            self.seen += len(labels)
            if sys.stderr.isatty():
                print(f"\rstep {self.step}, loss {loss.item():.3f} ", end="", file=sys.stderr, flush=True)
            if self.step == self.options.stop_after:
                self.save()
                return False
        print(f"epoch {self.epoch + 1}: {self.seen:,} pictures, {right:,} recognized", file=sys.stderr)
        return True

    def train(self) -> bool:
        while self.epoch < self.options.epochs:
            if not self.train_epoch():
                return False
            self.epoch += 1
            self.seen = 0
            self.stream = self.make_stream()
        return True

    def result(self) -> dict[str, Any]:
        """The digest is to compare runs by."""
        right = count = 0
        with torch.no_grad():
            for rows in self.stream.iter(BATCH):
                labels = torch.tensor(rows["label"])
                right += int((self.net(torch.from_numpy(numpy.stack(rows["pixels"]))).argmax(1) == labels).sum())
                count += len(labels)
        weights = b"".join(value.numpy().tobytes() for value in self.net.state_dict().values())
        digest = hashlib.sha256(weights).hexdigest()[:16]
        return {"pictures": count, "accuracy": round(right / count, 4), "steps": self.step, "weights": digest}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--data", metavar="GLOB", help="Parquet files in a bucket; default: they are made")
    emulator.add_resume_options(parser)
    emulator.add_options(parser)
    return emulator.parse(parser)


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    with contextlib.ExitStack() as stack_:
        folder = options.folder or stack_.enter_context(tempfile.TemporaryDirectory())
        os.makedirs(folder, exist_ok=True)
        place = stack_.enter_context(emulator.endpoint(options, "--root", folder, "--bucket", options.bucket))
        client = stack_.enter_context(ringest.Client(*place))
        fs.register(client)  # datasets opens gs:// by fsspec, and fsspec now by us
        if options.data is None:
            options.data = f"gs://{options.bucket}/food/train-*.parquet"
            if not options.resume:
                make_pictures(f"gs://{options.bucket}/food")
        trainer = Trainer(options, client)
        if options.resume:
            trainer.load()
        if trainer.train():
            print(json.dumps(trainer.result()))


if __name__ == "__main__":
    main()
