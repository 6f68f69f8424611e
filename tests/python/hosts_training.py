"""A rank of the training that test_hosts.py runs on several hosts: hosts_training.py RUN GATE STEPS SAVE_EVERY BATCH

It fits one weight by gradients whose sums are exact in float64, whatever their order. So the losses are those of any
other number of ranks, to the last bit. It resumes from the newest checkpoint, and asks GATE, a socket, before each step."""

import contextlib
import re
import socket
import sys

import torch
import torch.distributed as dist

import ringest
import ringest.checkpoint

UNIT = 2.0**-20  # what gradients and losses are multiples of


def say(line):
    """As one write: the ranks of a host share a pipe."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def newest(client, run):
    """The step of the newest checkpoint; 0: none."""
    found = (re.search(r"/step-(\d+)$", name) for name, _, _ in client.list(f"{run}/checkpoints/"))
    return max((int(match[1]) for match in found if match), default=0)


def total(value):
    both = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(both)
    return both


def exact(value):
    return round(value / UNIT) * UNIT


class Training:
    def __init__(self, client, run, batch):
        self.client, self.run, self.batch = client, run, batch
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.dataset = ringest.IterableDataset(
            f"{run}/data/", client=client, shuffle=True, seed=3, batch_size=batch // self.world
        )
        self.weight, self.done = 0.0, 0

    def resume(self):
        last = [newest(self.client, self.run)]
        dist.broadcast_object_list(last)
        if last[0]:
            saved = ringest.checkpoint.load(f"{self.run}/checkpoints/step-{last[0]}", client=self.client)
            self.weight, self.done = saved["weight"], saved["step"]
            self.dataset.load_state_dict(saved["dataset"])
        say(f"rank {self.rank} of {self.world} begins after step {self.done}")

    def step(self, texts):
        loss = gradient = 0.0
        numbers = []
        for text in texts:
            number = int(bytes(text))
            numbers.append(number)
            x, y = number % 7 - 3, number % 11
            error = self.weight * x - y
            loss += exact(error * error)
            gradient += exact(2 * error * x)
        loss, gradient = total([loss, gradient])
        self.weight -= 0.05 * float(gradient) / self.batch
        self.done += 1
        joined = ",".join(map(str, numbers))
        say(f"rank {self.rank} of {self.world} step {self.done} loss {float(loss)!r} numbers {joined}")

    def save(self):
        state = self.dataset.state_dict(all_ranks=True)
        if self.rank == 0:
            uri = f"{self.run}/checkpoints/step-{self.done}"
            ringest.checkpoint.save(
                {"weight": self.weight, "step": self.done, "dataset": state}, uri, client=self.client
            )
            say(f"saved step {self.done}")
        dist.barrier()


def main(run, gate, steps, save_every, batch):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with ringest.Client() as client, contextlib.closing(socket.socket(socket.AF_UNIX)) as asked:
        training = Training(client, run, int(batch))
        training.resume()
        asked.connect(gate)
        answers = asked.makefile("rb")
        samples = iter(training.dataset)
        while training.done < int(steps):
            asked.sendall(f"{training.world} {training.done + 1}\n".encode())
            answers.readline()
            training.step(next(samples))
            if training.done % int(save_every) == 0 or training.done == int(steps):
                training.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
