"""examples/train_food.py: pictures that Hugging Face's datasets streams, and training that resumes exactly."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import support

EXAMPLE = pathlib.Path(os.environ["RINGEST_TESTS"]).parent / "examples" / "train_food.py"


def run(*arguments):
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [sys.executable, "-B", str(EXAMPLE), "--ringest", support.PROGRAM, "--epochs", "3", *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": home},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout, re.findall(r"epoch (\d+): ([\d,]+) pictures", done.stderr)


class TrainFood(unittest.TestCase):
    def test_a_run_that_stops_and_goes_on_learns_what_a_whole_one_does(self):
        with tempfile.TemporaryDirectory() as folder:
            out, epochs = run("--folder", folder, "--stop-after", "40")
            self.assertEqual((out, epochs), ("", [("1", "808")]))
            resumed, epochs = run("--folder", folder, "--resume")
            self.assertEqual(epochs, [("2", "808"), ("3", "808")])
        whole, _ = run()
        self.assertEqual(resumed, whole)
        result = json.loads(whole)
        self.assertEqual((result["pictures"], result["steps"]), (808, 78))
        # By chance it would be 1 in 101.
        self.assertGreater(result["accuracy"], 0.3)


if __name__ == "__main__":
    unittest.main()
