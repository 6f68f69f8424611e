"""The examples in Python, small: what they print. test_examples_train.py has them train."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

import support

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
TIMEOUT_S = 240

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


@unittest.skipIf(MISSING, f"the examples need {', '.join(MISSING)}")
class Examples(unittest.TestCase):
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
