"""Trains on scikit-learn's digits with Lightning, is killed, and goes on exactly where its last checkpoint was.

    python examples/train_lightning.py --folder digits --kill-after 50
    python examples/train_lightning.py --folder digits --resume

ringest.lightning.DataModule says what was consumed, and Lightning saves that with the weights. After a resume, every
sample of the epoch that was left comes exactly once, which is checked here. The weights become those of a run that was
never killed: the digests that are printed are the same."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import Any

import emulator
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn import functional
from train_digits import BATCH, TRAIN_COUNT, Net, decode, stack, upload_digits, weights_digest

import ringest
import ringest.fs
from ringest import retention
from ringest.lightning import CheckpointIO, DataModule

SAVE_EVERY = 15  # steps; an epoch has 30


class Model(LightningModule):
    """The network, and which samples of this epoch it was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()
        self.consumed: list[int] = []

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=2e-3)

    def training_step(self, batch: Any, batch_index: int) -> torch.Tensor:
        indices, images, labels = batch
        self.consumed += indices
        return functional.cross_entropy(self.net(images), labels)

    def on_train_epoch_end(self) -> None:
        if sorted(self.consumed) != list(range(TRAIN_COUNT)):
            sys.exit(f"epoch {self.current_epoch + 1}: {len(set(self.consumed))} samples, and not each of them once")
        print(f"epoch {self.current_epoch + 1}: every sample once", file=sys.stderr, flush=True)
        self.consumed = []

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["consumed"] = [] if self.trainer.is_last_batch else list(self.consumed)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.consumed = checkpoint["consumed"]


class Killed(Callback):
    """As a machine that is taken away does it: nobody is told."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: Trainer, *arguments: Any) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def newest(prefix: str, client: ringest.Client) -> str:
    found = [each for each in retention.find(prefix, client) if each.complete and each.step is not None]
    if not found:
        sys.exit(f"there is no checkpoint below {prefix}: run without --resume first")
    return max(found, key=lambda each: each.step or 0).uri


def train(options: argparse.Namespace, client: ringest.Client) -> None:
    place = f"gs://{options.bucket}/lightning/"
    torch.manual_seed(options.seed)
    model = Model()
    dataset = ringest.IterableDataset(
        f"gs://{options.bucket}/digits/train/",
        shuffle=True,
        seed=options.seed,
        batch_size=BATCH,
        transform=decode,
        client=client,
    )
    saving = ModelCheckpoint(place, every_n_train_steps=SAVE_EVERY, save_top_k=-1)
    callbacks: list[Callback] = [saving]
    if options.kill_after is not None:
        callbacks.append(Killed(options.kill_after))
    trainer = Trainer(
        accelerator="cpu", devices=1, max_epochs=options.epochs, plugins=[CheckpointIO(client)], callbacks=callbacks,
        logger=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    path = newest(place, client) if options.resume else None
    if path is not None:
        print(f"going on from {path}", file=sys.stderr, flush=True)
    trainer.fit(model, DataModule(dataset, collate_fn=stack), ckpt_path=path)
    print(json.dumps({"steps": trainer.global_step, "weights": weights_digest(model.net)}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill-after", type=int, metavar="STEPS", help="the process kills itself then")
    parser.add_argument("--resume", action="store_true", help="from the newest checkpoint in the bucket")
    parser.add_argument("--folder", metavar="DIR", help="of the emulator's buckets", required=True)
    parser.add_argument("--bucket", default="examples", help="of digits and checkpoints; %(default)s")
    emulator.add_options(parser)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    os.makedirs(options.folder, exist_ok=True)
    with emulator.endpoint(options, "--root", options.folder, "--bucket", options.bucket) as (endpoint, ca):
        if not options.resume:
            upload_digits(options, endpoint, ca)
        with ringest.Client(endpoint, ca) as client:
            ringest.fs.register(client)  # where Lightning's ModelCheckpoint looks for files
            train(options, client)


if __name__ == "__main__":
    main()
