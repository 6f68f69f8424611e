"""The examples in Python, small: what they print, and that training resumes exactly where it stopped."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import support

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
TIMEOUT_S = 240
LEFT = re.compile(r"^epoch (\d+): (?:([\d,]+) before the stop, )?([\d,]+) by (\d+) rank", re.M)

MISSING = [name for name in ("PIL", "sklearn", "torch") if importlib.util.find_spec(name) is None]


def run(script, *arguments, ranks=None, expect=0):
    """Standard output and standard error of an example."""
    command = [sys.executable, "-B"]
    if ranks is not None:
        # torchrun, on a port of its own, so that two runs at a time do not meet.
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += [os.path.join(EXAMPLES, script), "--ringest", support.PROGRAM, *arguments]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != expect:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def epochs(text):
    """[(epoch, before the stop, now, ranks)]"""
    return [tuple(int((n or "0").replace(",", "")) for n in found) for found in LEFT.findall(text)]


@unittest.skipIf(MISSING, f"the examples need {', '.join(MISSING)}")
class Examples(unittest.TestCase):
    def test_digits_are_learnt_by_ranks_that_stop_and_by_others_that_go_on(self):
        with tempfile.TemporaryDirectory() as folder:
            place = ("--folder", folder, "--epochs", "4")
            out, err = run("train_digits.py", *place, "--stop-after", "40", ranks=2)
            self.assertEqual(out, "")
            self.assertEqual(epochs(err), [(1, 0, 1440, 2)])
            self.assertIn("in epoch 2 with 480 of 1,440 samples consumed", err)

            two, err = run("train_digits.py", *place, "--resume", ranks=2)
            self.assertEqual(epochs(err), [(2, 480, 960, 2), *((epoch, 0, 1440, 2) for epoch in (3, 4))])
            one, err = run("train_digits.py", *place, "--resume")
            self.assertEqual(epochs(err), [(2, 480, 960, 1), *((epoch, 0, 1440, 1) for epoch in (3, 4))])
            whole, err = run("train_digits.py", *place, ranks=2)
            self.assertEqual(epochs(err), [(epoch, 0, 1440, 2) for epoch in range(1, 5)])
        for result in map(json.loads, (one, two, whole)):
            self.assertEqual(result["steps"], 120)
            self.assertGreaterEqual(result["accuracy"], 0.96)
        self.assertEqual(two, whole, "a stop shall not change what is learnt")

    def test_what_cannot_go_on_says_why(self):
        with tempfile.TemporaryDirectory() as folder:
            _, err = run("train_digits.py", "--folder", folder, "--resume", expect=1)
        self.assertEqual(
            err,
            "there is no checkpoint gs://examples/digits/checkpoint.pt: run with --stop-after first, and the same place\n",
        )
        command = [sys.executable, "-B", os.path.join(EXAMPLES, "train_fsdp.py"), "gs://mine/run"]
        environment = {name: value for name, value in os.environ.items() if name != "RANK"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("start it with torchrun --nproc-per-node", done.stderr)

    @unittest.skipIf(importlib.util.find_spec("lightning") is None, "it needs lightning")
    def test_a_lightning_run_that_was_killed_goes_on_exactly(self):
        with tempfile.TemporaryDirectory() as folder:
            place = ("--folder", folder, "--epochs", "2")
            run("train_lightning.py", *place, "--kill-after", "25", expect=-signal.SIGKILL)
            _, err = run("train_lightning.py", *place, "--resume")
            self.assertIn("going on from gs://examples/lightning/epoch=0-step=15.ckpt", err)
            self.assertIn("epoch 1: every sample once\nepoch 2: every sample once", err)

    def test_what_a_sample_of_an_image_costs_is_said(self):
        out, _ = run("imagenet_shaped.py", "--count", "300", "--epochs", "1")
        for name in ("IterableDataset", "MapDataset"):
            self.assertRegex(out, name + r": 300 samples, [\d,]+ samples/s, .* µs of CPU time per sample")

    def test_what_a_decoded_image_costs_is_said_with_a_cache_and_without(self):
        out, _ = run("decode_images.py", "--count", "150", "--batch-size", "32", "--threads", "2")
        lines = out.splitlines()
        self.assertEqual(len(lines), 6)
        for number, line in enumerate(lines):
            name = ("without a cache", "with a cache")[number // 3]
            wanted = (
                f"{name}, epoch {number % 3 + 1}: 150 images, " + r"[\d,]+ images/s, [\d,]+ µs of CPU time per image, "
            )
            self.assertRegex(line, wanted + r"[\d,]+ from the cache$")
            if number < 3:
                self.assertTrue(line.endswith(", 0 from the cache"), line)


if __name__ == "__main__":
    unittest.main()
