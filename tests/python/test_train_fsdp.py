"""examples/train_fsdp.py: killed in the middle of a save, and resumed on another number of ranks."""

import os
import re
import signal
import subprocess
import sys
import unittest

import ringest
import support

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "train_fsdp.py")
PATIENCE_S = 300
RUN = "gs://trials/run"
SAVE_EVERY = 3
OPTIONS = ["--save-every", str(SAVE_EVERY), "--width", "16", "--layers", "1", "--dtype", "float64"]


class Training:
    """torchrun, and what it has said so far."""

    def __init__(self, place, ranks, steps, **environment):
        endpoint, ca = place
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        self.process = subprocess.Popen(
            [*command, EXAMPLE, RUN, "--steps", str(steps), *OPTIONS],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "STORAGE_EMULATOR_HOST": endpoint,
                "SSL_CERT_FILE": ca,
                "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1",
                **environment,
            },
        )
        self.lines = []

    def read_until(self, wanted):
        """To the first line that begins so. Raises at the end of the output."""
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith(wanted):
                return
        raise AssertionError(f"no {wanted!r} in:\n" + "\n".join(self.lines))

    def kill(self):
        """All ranks at once, as when the machine is taken away. torchrun starts them in sessions of their own, so a signal
        to its group is none to them. Waits until all are gone: they have its standard output, too."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            ranks = [int(pid) for pid in file.read().split()]
        for pid in (self.process.pid, *ranks):
            os.kill(pid, signal.SIGKILL)
        self.lines += self.process.stdout.read().splitlines()
        self.process.wait()
        self.process.stdout.close()

    def finish(self):
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        self.lines += output.splitlines()
        if self.process.returncode != 0:
            raise AssertionError("\n".join(self.lines))

    def resumed_after(self):
        found = (re.fullmatch(r"resumed after step (\d+) on 3 ranks", line) for line in self.lines)
        return next((int(match[1]) for match in found if match), None)

    def losses(self):
        found = (re.fullmatch(r"step (\d+) loss (\S+)", line) for line in self.lines)
        return {int(match[1]): match[2] for match in found if match}


class Kill(unittest.TestCase):
    def test_a_run_goes_on_where_the_last_complete_checkpoint_is(self):
        # A checkpoint is three objects: what two ranks have, and the metadata. The answer to the
        # second one's first stays away.
        instructions = {"storage.objects.insert": [support.PASS] * 3 + ["stall-for-3600s-after-0K"]}
        with support.emulator(buckets=("trials",)) as place, ringest.Client(*place) as client:
            # By a client that meets no faults.
            self.put_texts(client)
            with support.faults(*place, instructions) as left:
                killed = Training(place, 2, 1000, RINGEST_HEADERS=os.environ["RINGEST_HEADERS"])
                try:
                    # The next save waits for the one that is stuck; up to there training goes on.
                    killed.read_until(f"step {3 * SAVE_EVERY} ")
                    support.until(lambda: left()["completed"], "the request that is stuck", PATIENCE_S)
                finally:
                    killed.kill()
            resumed = Training(place, 3, 3 * SAVE_EVERY)
            resumed.finish()
            last = resumed.resumed_after()
            # The save that is stuck is not there, unless it was tried once more on a slow machine.
            self.assertIn(last, (SAVE_EVERY, 2 * SAVE_EVERY))
            first, second = killed.losses(), resumed.losses()
            self.assertEqual(list(second), list(range(last + 1, 3 * SAVE_EVERY + 1)))
            self.assertEqual({step: first[step] for step in second}, second)
            self.assertEqual(len(set(second.values())), len(second))
            if last == SAVE_EVERY and f"step {2 * SAVE_EVERY} was saved by a run before this one" not in resumed.lines:
                # What the kill left behind is gone with the next save there. (On a slow machine the save that was stuck
                # may have been tried again, its last request been sent before the kill, and taken effect after it.)
                names = [name for name, _, _ in client.list(f"{RUN}/step-{2 * SAVE_EVERY}/")]
                self.assertEqual(len(names), 4, "\n".join([*names, *resumed.lines]))

    def put_texts(self, client):
        for i in range(50):
            client.put(f"{RUN}/data/{i:06d}", f"{i} + {i} = {2 * i}".ljust(33).encode())
