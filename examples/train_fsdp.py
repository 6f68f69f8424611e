"""Trains a small language model with FSDP2, its data and its checkpoints in Cloud Storage.

    torchrun --nproc-per-node 2 examples/train_fsdp.py gs://BUCKET/RUN --steps 40
    torchrun --nproc-per-node 3 examples/train_fsdp.py gs://BUCKET/RUN --steps 80

Checkpoints are saved while training continues. Start it again, on any number of ranks that divides the
batch, and it resumes from the last complete checkpoint, whatever had ended it. The losses are those of a
run that was never interrupted, because the objects of a step depend on the seed and the step alone.

It runs on CPUs (gloo). To try it without an account, run it in the shell of `ringest emulate -- bash`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import ringest
from ringest.dcp import StorageReader, StorageWriter

CONTEXT = 32  # bytes of a text


class Block(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(width, 4, batch_first=True)
        self.feed = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )
        self.before_attention = torch.nn.LayerNorm(width)
        self.before_feed = torch.nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.before_attention(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.feed(self.before_feed(x))


class Model(torch.nn.Module):
    """A transformer that tells the next byte."""

    def __init__(self, width: int, layers: int):
        super().__init__()
        self.token = torch.nn.Embedding(256, width)
        self.place = torch.nn.Embedding(CONTEXT, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(layers))
        self.head = torch.nn.Linear(width, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.shape[1]
        mask = torch.full((length, length), float("-inf"), dtype=self.head.weight.dtype).triu(1)
        x = self.token(text) + self.place.weight[:length]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


class Training:
    """The model and its optimizer, as DCP saves and loads them (Stateful)."""

    def __init__(self, options: argparse.Namespace):
        torch.manual_seed(options.seed)
        self.model = Model(options.width, options.layers).to(getattr(torch, options.dtype))
        for block in self.model.blocks:
            fully_shard(block)
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)

    def state_dict(self) -> dict:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: dict) -> None:
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

    def step(self, texts: torch.Tensor) -> float:
        """The mean loss over all ranks."""
        scores = self.model(texts[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), texts[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        mean = loss.detach().double()
        dist.all_reduce(mean)
        return float(mean) / dist.get_world_size()


def prepare(client: ringest.Client, uri: str, count: int) -> None:
    """Puts texts to learn from there, sums, unless there are some."""
    with contextlib.suppress(ringest.NotFoundError):
        if len(client.list(f"{uri}/")):
            return
    chance = random.Random(0)
    for i in range(count):
        a, b = chance.randrange(100), chance.randrange(100)
        text = f"{a} + {b} = {a + b}; {b} + {a} = {a + b}".ljust(CONTEXT + 1)[: CONTEXT + 1]
        client.put(f"{uri}/{i:06d}", text.encode())


def texts_of(dataset: ringest.MapDataset, step: int, options: argparse.Namespace) -> torch.Tensor:
    """This rank's share of the texts of a step."""
    order = random.Random(options.seed * 1_000_003 + step)
    chosen = [order.randrange(len(dataset)) for _ in range(options.batch)]
    own = chosen[dist.get_rank() :: dist.get_world_size()]
    texts = dataset.__getitems__(own)
    return torch.stack([torch.frombuffer(bytearray(text), dtype=torch.uint8).long() for text in texts])


def last_checkpoint(client: ringest.Client, run: str) -> int:
    """The step of the last one that is complete, which is what has metadata; 0: none."""
    found = (name.split("/") for name, _, _ in client.list(f"{run}/step-"))
    return max((int(parts[-2].removeprefix("step-")) for parts in found if parts[-1] == ".metadata"), default=0)


def end_of(saving: Any, step: int) -> None:
    """Waits for a save. A run that was killed may have sent its last request just before, and that may take effect only
    now: then there is a checkpoint of this step, a whole one, and not ours."""
    try:
        saving.result()
    except dcp.CheckpointException as error:
        causes = [cause for cause, _ in error.failures.values()]
        if not all(isinstance(cause, ringest.PreconditionError) for cause in causes):
            raise
        print(f"step {step} was saved by a run before this one", flush=True)


def train(options: argparse.Namespace) -> None:
    client = ringest.Client()
    is_first = dist.get_rank() == 0
    if is_first:
        prepare(client, f"{options.run}/data", 600)
    dist.barrier()
    dataset = ringest.MapDataset(f"{options.run}/data/", client=client)
    training = Training(options)
    begin = [last_checkpoint(client, options.run)]
    dist.broadcast_object_list(begin)
    if begin[0]:
        dcp.load({"training": training}, storage_reader=StorageReader(f"{options.run}/step-{begin[0]}", client=client))
        if is_first:
            print(f"resumed after step {begin[0]} on {dist.get_world_size()} ranks", flush=True)
    # What a save tells the other ranks must not mix with what training does.
    saving_group = dist.new_group(backend="gloo")
    saving: Any = None  # what async_save gives
    saved = 0
    for step in range(begin[0] + 1, options.steps + 1):
        loss = training.step(texts_of(dataset, step, options))
        if is_first:
            print(f"step {step} loss {loss:.9f}", flush=True)
        if step % options.save_every == 0 or step == options.steps:
            if saving is not None:
                end_of(saving, saved)
            if is_first:
                print(f"saving step {step}", flush=True)
            saved = step
            saving = dcp.async_save(
                {"training": training},
                storage_writer=StorageWriter(f"{options.run}/step-{step}", client=client),
                process_group=saving_group,
            )
    if saving is not None:
        end_of(saving, saved)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="where data and checkpoints are: gs://BUCKET/PREFIX")
    parser.add_argument("--steps", type=int, default=40, help="train up to this one (%(default)s)")
    parser.add_argument("--save-every", type=int, default=10, help="steps between checkpoints (%(default)s)")
    parser.add_argument("--batch", type=int, default=24, help="texts of a step, over all ranks (%(default)s)")
    parser.add_argument("--width", type=int, default=64, help="of the model; a multiple of 4 (%(default)s)")
    parser.add_argument("--layers", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"], help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the order (%(default)s)")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("it has no rank: start it with torchrun --nproc-per-node 2")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        if options.batch % dist.get_world_size():
            parser.error(f"--batch {options.batch} cannot be divided among {dist.get_world_size()} ranks")
        train(options)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
