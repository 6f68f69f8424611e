"""Every operation of the table with every fault of an answer, at each of its requests: done exactly once or
not at all, and said to be done only if it is. Where RINGEST_SWEEPS is not "all", an operation that is not cheap has
every other fault, and the next one the rest."""

import concurrent.futures
import os
import unittest

from sweep import FAULTS, OPERATIONS, Sweep

# Most of what fails spends its time waiting for another attempt.
AT_ONCE = 4
IS_ALL = os.environ.get("RINGEST_SWEEPS") == "all"


def faults_of(number, operation):
    return FAULTS if IS_ALL or operation.cheap else list(FAULTS)[number % 2 :: 2]


def strike(numbered):
    """(fault, error) of those that went wrong."""
    failed = []
    number, operation = numbered
    with Sweep(operation) as sweep:
        for fault in faults_of(number, operation):
            try:
                requests = sweep.strike(fault)
                assert requests > 0, "it sends no request"
            except Exception as error:
                failed.append((fault, f"{type(error).__name__}: {error}"))
    return failed


class Answers(unittest.TestCase):
    def test_every_operation_bears_its_faults(self):
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for operation, failed in zip(OPERATIONS, pool.map(strike, enumerate(OPERATIONS))):
                for fault, error in failed:
                    with self.subTest(operation.name, fault=fault):
                        self.fail(error)


if __name__ == "__main__":
    unittest.main()
