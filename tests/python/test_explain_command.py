"""`ringest explain`: what it says from outside of loops that run is what their dataset says inside."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from support import PROGRAM, Rule, emulator, until

# Answers that do not come.
HELD = {"bucket": "data", "target": "alt=media", "times": 100_000, "effect": "none", "answer": "held"}
# Steps until the parent has seen enough, and then what the dataset says itself.
LOOP = """
import json, os, sys, threading, time
import ringest

endpoint, ca, mode = sys.argv[1:]
ends = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), ends.set()), daemon=True).start()
transform = (lambda item: time.sleep(0.02)) if mode == "decode" else None
client = ringest.Client(endpoint, ca or None, hedging=False, connections=8)
dataset = ringest.IterableDataset("gs://data/x-", client=client, batch_size=2, requests=4, transform=transform)
for _ in dataset:
    pass  # connections are open now
while not ends.is_set():
    for batch in dataset:
        if mode == "consumer":
            time.sleep(0.05)
        if mode == "fork" and os.fork() == 0:
            next(iter(ringest.IterableDataset("gs://data/x-", client=ringest.Client(endpoint, ca or None))))
            os._exit(0)
        if mode == "fork":
            os.wait()
        if ends.is_set():
            break
print(json.dumps(dataset.explain().to_dict()))
"""

# A loop that is left, of a process that goes on.
LEFT = """
import sys, time
import ringest

client = ringest.Client(sys.argv[1], sys.argv[2] or None)
dataset = ringest.IterableDataset("gs://data/x-", client=client, batch_size=2, requests=4)
for step, _ in enumerate(dataset):
    if step == 2:
        break
time.sleep(1000)
"""

# A model that is trained, whose data come from workers.
TRAINING = """
import sys
import torch
import ringest

def sample(item):
    return torch.frombuffer(bytearray(bytes(item.data)[:64]), dtype=torch.uint8).float() / 255

if __name__ == "__main__":
    client = ringest.Client(sys.argv[1], sys.argv[2] or None, hedging=False)
    dataset = ringest.IterableDataset("gs://data/x-", client=client, batch_size=4, transform=sample, requests=4)
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2)
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        for batch in loader:
            optimizer.zero_grad()
            model(torch.stack(batch)).square().mean().backward()
            optimizer.step()
"""


class Explained(unittest.TestCase):
    def setUp(self):
        if not os.access("/dev/shm", os.W_OK):
            self.skipTest("there is no /dev/shm to write to")
        self.folder = tempfile.mkdtemp(dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.folder)
        self.env = {**os.environ, "RINGEST_SHARING": self.folder}

    def explain(self, *arguments):
        time.sleep(0.1)  # it is asked again and again
        command = [PROGRAM, "explain", "--once", "--json", *arguments]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True)
        return json.loads(done.stdout)["iterations"] if done.returncode == 0 else []

    @contextlib.contextmanager
    def running(self, script, *arguments):
        command = ["setpriv", "--pdeathsig", "TERM", sys.executable, "-c", script, *arguments]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=self.env, stdin=pipe, stdout=pipe, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def check(self, mode, cause, advice, *arguments):
        """The command and the dataset name the same cause, and say the same of it."""

        def is_seen():
            found = [one for one in self.explain(str(process.pid)) if one["steps"] >= 4]
            return found if found and said in found[0]["advice"] and found[0]["attributed"] >= 0.95 else None

        said = advice
        with emulator(*arguments) as place, self.running(LOOP, place[0], place[1] or "", mode) as process:
            (seen,) = until(is_seen)
            inside = json.loads(process.communicate("\n")[0])
        self.assertEqual(self.explain(), [])
        if cause is not None:
            self.assertGreater(seen["parts"][cause], 0.5 * seen["wait"])
        self.assertAlmostEqual(sum(seen["parts"].values()), seen["wait"], places=6)
        self.assertAlmostEqual(seen["consumer"] + seen["wait"], seen["seconds"], places=6)
        self.assertEqual(set(inside), set(inside) & set(seen))
        self.assertEqual(list(inside["parts"]), list(seen["parts"]))
        self.assertEqual((seen["dataset"], seen["source"]), ("IterableDataset", "gs://data/x-"))
        return seen, inside

    def test_a_server_that_throttles(self):
        seen, inside = self.check("", "throttled", "Client(reads_per_s=)", "--rate-limit", "100")
        self.assertEqual(inside["advice"], seen["advice"])

    def test_a_slow_loop(self):
        self.check("consumer", None, "The loop itself takes")

    def test_a_slow_transform(self):
        seen, inside = self.check("decode", "decode", "num_workers=")
        self.assertEqual(inside["advice"], seen["advice"])

    def test_children_of_the_loop_do_it_no_harm(self):
        self.check("fork", None, "")

    def test_a_training_loop_with_workers(self):
        with emulator("--latency-ms", "100") as place, self.running(TRAINING, place[0], place[1] or "") as process:
            # In the first steps the connections are still being opened, and the advice says so.
            said = "requests= (now 4)"

            def both():
                found = [one for one in self.explain() if one["attributed"] >= 0.95 and said in one["advice"]]
                return found if len(found) == 2 else None

            seen = until(both)
            self.assertEqual({(one["worker"], one["workers"]) for one in seen}, {(0, 2), (1, 2)})
            self.assertNotIn(process.pid, [one["pid"] for one in seen])

    def test_a_loop_that_is_left_is_over(self):
        with emulator("--latency-ms", "150") as place, self.running(LEFT, place[0], place[1] or "") as process:
            (seen,) = until(lambda: [one for one in self.explain(str(process.pid)) if one["state"] == "over"])
            self.assertGreater(seen["steps"], 0)

    def test_one_that_hangs_is_seen_to_wait(self):
        with emulator() as place, self.running(LOOP, place[0], place[1] or "", "") as process:
            until(lambda: any(one["steps"] for one in self.explain(str(process.pid))))
            with Rule(place, **HELD):

                def waits():
                    return [one for one in self.explain() if one["waiting_s"] > 1 and one["attributed"] >= 0.95]

                (seen,) = until(waits)
                self.assertEqual(seen["state"], "waiting")
                self.assertGreater(seen["parts"]["first_byte"], 0.5 * seen["wait"])
                process.send_signal(signal.SIGKILL)
                process.wait()
                self.assertEqual(self.explain(), [])


if __name__ == "__main__":
    unittest.main()
