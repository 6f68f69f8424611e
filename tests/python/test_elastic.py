"""A training on several hosts: one is killed and its link cut, the rest go on, and more hosts join later."""

import collections
import contextlib
import os
import re
import socketserver
import subprocess
import sys
import threading
import unittest

import hosts_training
import ringest
import support
import test_hosts
from test_hosts import BUCKET, HERE, PATIENCE_S, PORT, RUN

TRAINING = os.path.join(HERE, "hosts_training.py")
BATCH, STEPS, SAVE_EVERY = 12, 36, 10
# For each number of ranks, the steps that are taken with it: all that an uninterrupted run takes, and those again that
# came after the last checkpoint.
STEPS_OF = {4: range(1, 16), 2: range(11, 26), 6: range(21, STEPS + 1)}
LINE = re.compile(r"(?:\[\w+\]:)?rank (\d+) of (\d+) step (\d+) loss (\S+) numbers (\S+)")


class Gate(socketserver.ThreadingUnixStreamServer):
    """Lets ranks take steps while there are as many of them as are wanted now, and knows who waits."""

    daemon_threads = True

    def __init__(self, path):
        super().__init__(path, _Asked)
        self.last = {}  # for each number of ranks, the last step that is open to them
        self.waiting = collections.Counter()  # by number of ranks and the step that they wait for
        self.changed = threading.Condition()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def open(self, last):
        with self.changed:
            self.last = last
            self.changed.notify_all()

    def until_waiting(self, world, step):
        with self.changed:
            if not self.changed.wait_for(lambda: self.waiting[world, step] == world, PATIENCE_S):
                raise AssertionError(f"{world} ranks did not come to step {step}: {dict(self.waiting)}")


class _Asked(socketserver.StreamRequestHandler):
    def handle(self):
        gate = self.server
        for line in self.rfile:
            world, step = map(int, line.split())
            with gate.changed:
                gate.waiting[world, step] += 1
                gate.changed.notify_all()
                gate.changed.wait_for(lambda key=world, wanted=step: wanted <= gate.last.get(key, 0))
                gate.waiting[world, step] -= 1
            with contextlib.suppress(BrokenPipeError):  # torchrun has ended the rank
                self.wfile.write(b"go\n")


class Run:
    """torchrun on one host, and what it has printed so far."""

    def __init__(self, host, first, gate, place):
        is_first = host is first
        conf = f"is_host={int(is_first)},last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=3"
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:3", "--nproc-per-node", "2"]
        command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{first.address}:{PORT}", "--rdzv-id", "job"]
        command += [
            "--rdzv-conf",
            conf,
            "--local-addr",
            host.address,
            "--max-restarts",
            "9",
            "--monitor-interval",
            "0.2",
        ]
        command += [TRAINING, RUN, gate, str(STEPS), str(SAVE_EVERY), str(BATCH)]
        environment = {
            "STORAGE_EMULATOR_HOST": place["endpoint"],
            "SSL_CERT_FILE": place["ca"],
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": "1",
            # Each attempt has a store of its own, in which no address of the attempt before is found.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        self.process = host.start(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines = []
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def finish(self):
        code = self.process.wait(PATIENCE_S)
        self.thread.join()
        if code != 0:
            raise AssertionError(f"exit status {code}\n" + "\n".join(self.lines))


def expected_losses():
    """Of one process that is never interrupted, by its own reading of the objects."""
    with support.emulator(buckets=(BUCKET,)) as place, ringest.Client(*place) as client:
        for number in range(BATCH * STEPS):
            client.put(f"{RUN}/data/{number:04d}", str(number).encode())
        dataset = ringest.IterableDataset(f"{RUN}/data/", client=client, shuffle=True, seed=3, batch_size=BATCH)
        weight, losses = 0.0, []
        for texts in dataset:
            loss = gradient = 0.0
            for number in map(int, map(bytes, texts)):
                x, y = number % 7 - 3, number % 11
                loss += hosts_training.exact((weight * x - y) ** 2)
                gradient += hosts_training.exact(2 * (weight * x - y) * x)
            weight -= 0.05 * gradient / BATCH
            losses.append(loss)
        return losses


class Elastic(test_hosts.Case):
    def setUp(self):
        super().setUp()
        self.gate = self.enterContext(Gate(os.path.join(self.folder, "gate")))
        self.addCleanup(self.gate.shutdown)
        self.runs = []

    def put_data(self):
        data = os.path.join(self.folder, "data")
        os.mkdir(data)
        for number in range(BATCH * STEPS):
            with open(os.path.join(data, f"{number:04d}"), "w", encoding="ascii") as file:
                file.write(str(number))
        self.copy("-r", data, f"{RUN}/")

    def start(self, host, first):
        run = Run(host, first, os.path.join(self.folder, "gate"), self.place)
        self.runs.append(run)
        return run

    def steps(self):
        """For each step and number of ranks that took it: the loss that they told, and the samples."""
        losses, numbers = collections.defaultdict(set), collections.defaultdict(list)
        for run in self.runs:
            for line in run.lines:
                match = LINE.fullmatch(line)
                if match:
                    key = int(match[3]), int(match[2])
                    losses[key].add(float(match[4]))
                    numbers[key] += map(int, match[5].split(","))
        return losses, numbers

    def test_a_host_is_killed_and_more_join(self):
        self.put_data()
        first, second = self.network.host("first"), self.network.host("second")
        try:
            self.gate.open({4: 15})
            survivor = self.start(first, first)
            self.start(second, first)
            self.gate.until_waiting(4, 16)
            second.kill()
            second.cut()
            # Those that are left meet the loss of the others in the next step.
            self.gate.open({4: 16, 2: 25})
            self.gate.until_waiting(2, 26)
            self.gate.open({6: STEPS})
            others = [self.start(self.network.host(name), first) for name in ("third", "fourth")]
            for run in (survivor, *others):
                run.finish()
        except BaseException:
            for run in self.runs:
                print(*run.lines, sep="\n", end="\n\n")
            raise
        self.check()

    def check(self):
        losses, numbers = self.steps()
        # From the newest checkpoint each time, with no step left out.
        taken = {world: sorted(step for step, by in losses if by == world) for world in STEPS_OF}
        self.assertEqual(taken, {world: list(steps) for world, steps in STEPS_OF.items()})
        expected = expected_losses()
        for (step, world), told in losses.items():
            self.assertEqual(told, {expected[step - 1]}, f"step {step} on {world} ranks")
        # The steps that led to the end had every sample exactly once.
        led = [(step, 4 if step <= 10 else 2 if step <= 20 else 6) for step in range(1, STEPS + 1)]
        self.assertEqual(sorted(sum((numbers[key] for key in led), [])), [*range(BATCH * STEPS)])


if __name__ == "__main__":
    unittest.main()
