"""The examples that train, whole: training resumes exactly where it stopped."""

import importlib.util
import json
import re
import signal
import tempfile
import unittest

from test_examples import MISSING, run

LEFT = re.compile(r"^epoch (\d+): (?:([\d,]+) before the stop, )?([\d,]+) by (\d+) rank", re.M)


def epochs(text):
    """[(epoch, before the stop, now, ranks)]"""
    return [tuple(int((n or "0").replace(",", "")) for n in found) for found in LEFT.findall(text)]


@unittest.skipIf(MISSING, f"the examples need {', '.join(MISSING)}")
class Training(unittest.TestCase):
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

    @unittest.skipIf(importlib.util.find_spec("lightning") is None, "it needs lightning")
    def test_a_lightning_run_that_was_killed_goes_on_exactly(self):
        with tempfile.TemporaryDirectory() as folder:
            place = ("--folder", folder, "--epochs", "2")
            run("train_lightning.py", *place, "--kill-after", "25", expect=-signal.SIGKILL)
            _, err = run("train_lightning.py", *place, "--resume")
            self.assertIn("going on from gs://examples/lightning/epoch=0-step=15.ckpt", err)
            self.assertIn("epoch 1: every sample once\nepoch 2: every sample once", err)


if __name__ == "__main__":
    unittest.main()
