"""Every operation of the table with every fault of an answer, at each of its requests: done exactly once or
not at all, and said to be done only if it is."""

import concurrent.futures
import unittest

from sweep import FAULTS, OPERATIONS, Sweep

# Most of what fails spends its time waiting for another attempt.
AT_ONCE = 4


def strike(operation):
    """(fault, error) of those that went wrong."""
    failed = []
    with Sweep(operation) as sweep:
        for fault in FAULTS:
            try:
                requests = sweep.strike(fault)
                assert requests > 0, "it sends no request"
            except Exception as error:
                failed.append((fault, f"{type(error).__name__}: {error}"))
    return failed


class Answers(unittest.TestCase):
    def test_every_operation_bears_its_faults(self):
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for operation, failed in zip(OPERATIONS, pool.map(strike, OPERATIONS)):
                for fault, error in failed:
                    with self.subTest(operation.name, fault=fault):
                        self.fail(error)


if __name__ == "__main__":
    unittest.main()
