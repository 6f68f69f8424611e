"""Operations of the table in a process that is killed at each of their requests: nothing is half there or of
somebody else's gone, a second run repairs it, and what is left is found. Of all of them where RINGEST_SWEEPS is
"all", with the request having no effect, its effect, or its effect when the second run is over."""

import os
import unittest

from sweep import OPERATIONS, Sweep

IS_ALL = os.environ.get("RINGEST_SWEEPS") == "all"
EFFECTS = ("none", "once", "later") if IS_ALL else ("none",)


class Kills(unittest.TestCase):
    def test_what_is_killed_can_be_done_again(self):
        for operation in OPERATIONS:
            for effect in EFFECTS:
                if IS_ALL or operation.cheap:
                    with self.subTest(operation.name, effect=effect), Sweep(operation) as sweep:
                        self.assertGreater(sweep.kill(effect), 0)


if __name__ == "__main__":
    unittest.main()
