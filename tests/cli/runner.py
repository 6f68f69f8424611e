"""Runs the cases of one test file and prints what script/test adds up.

    runner.py FILE [CASE...]

The last line is "N passed, N failed, N skipped"; exit status 0, 1 if any failed, 77 if all were
skipped."""

import importlib.util
import os
import sys
import time
import unittest

SKIPPED = 77


class Result(unittest.TestResult):
    """Prints a line for each case as it ends, and what failed with its traceback."""

    passed = 0

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def say(self, test, word, text=""):
        name = getattr(test, "_testMethodName", str(test))
        seconds = time.monotonic() - getattr(self, "started", time.monotonic())
        print(f"{word} {name} ({seconds:.2f} s)", *([text.rstrip()] if text else []), sep="\n", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1
        self.say(test, "ok")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.say(test, "FAILED", self.failures[-1][1])

    def addError(self, test, error):
        super().addError(test, error)
        self.say(test, "FAILED", self.errors[-1][1])

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            wrong = self.failures if issubclass(error[0], test.failureException) else self.errors
            self.say(test, "FAILED", f"{subtest}\n{wrong[-1][1]}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say(test, "skipped", "  skipped: " + reason)


def main(path, wanted):
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # what it defines is pickled by name
    spec.loader.exec_module(module)
    loader = unittest.TestLoader()
    if wanted:
        loader.testNamePatterns = ["*" + pattern + "*" for pattern in wanted]
    result = Result()
    loader.loadTestsFromModule(module).run(result)
    failed, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    print(f"{result.passed} passed, {failed} failed, {skipped} skipped")
    if failed or not result.testsRun:
        return 1
    return SKIPPED if not result.passed else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main(sys.argv[1], sys.argv[2:]))
