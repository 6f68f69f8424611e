"""Runs a suite that others wrote, with ours in place of what it was written for, in a network of its own.

    run_suite.py VENV SOURCES SUITE [ARGUMENT of pytest...]

VENV and SOURCES are made by script/test: the virtual environment of requirements.txt, and the unpacked source
distributions of those whose tests are in no wheel. A suite is suite_NAME.py beside this file, or a folder of SOURCES.

What cannot hold stands in expected.txt, with the reason: "fails" of what is expected to, so that it is an error when it
passes; "skips" of what is not run. An entry that no case has is an error, too. Prints a line for each case; the last
line counts them, those of expected.txt as skipped. Exit status as tests/cli/runner.py; 77 where VENV or a network with
only the loopback device cannot be had."""

import fnmatch
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("peers", "cli"):
    sys.path.append(os.path.join(HERE, "..", folder))

import runner as peers_runner  # noqa: E402

INSIDE = "--inside"
EXPECTED = os.path.join(HERE, "expected.txt")
# Where the cases are in SOURCES; suite_NAME.py is a plugin then. Of Google's the others are of keys, signatures,
# messages, traces and gRPC; of torch_checkpointing's, of what has no storage, of what only
# local files have, of many processes and of GPUs.
_OF_GOOGLE = ("blob", "bucket", "client", "fileio", "transfer_manager")
_OF_CHECKPOINTING = (
    "builder", "checkpoint_loader", "checkpoint_manager", "checkpoint_reader", "checkpoint_reader_mmap",
    "checkpoint_writer", "default_resharder_unit", "hf_loading", "metadata_serialization",
    "safetensors_serialization",
)  # fmt: skip
FOLDERS = {
    "google": ("google-cloud-storage/tests/system", _OF_GOOGLE),
    "torch_checkpointing": ("torch-checkpointing/tests", _OF_CHECKPOINTING),
}
# Seconds after which it is said where a case is, which may wait for what does not come; 0: never.
CASE_PATIENCE = 0 if "RINGEST_EXAMPLES" in os.environ else 120


class Expectations:
    """The lines of expected.txt of one suite."""

    def __init__(self, suite):
        self.entries = {}
        self.unused = set()
        with open(EXPECTED, encoding="utf-8") as file:
            for line in file:
                fields = line.split(maxsplit=3)
                if not fields or fields[0].startswith("#"):
                    continue
                word, of, pattern, reason = fields
                if word not in ("fails", "skips"):
                    raise SystemExit(f"{EXPECTED}: {line.strip()}: begins with neither fails nor skips")
                if of == suite:
                    self.entries[pattern] = (word, reason.strip())
                    self.unused.add(pattern)

    def find(self, name):
        """What is expected of a case: (word, reason), or None."""
        for pattern, expectation in self.entries.items():
            if name == pattern or fnmatch.fnmatchcase(name, pattern.replace("[", "[[]")):
                self.unused.discard(pattern)
                return expectation
        return None


class Report:
    """The plugin of pytest that compares with the expectations and says what happened."""

    def __init__(self, suite, is_whole):
        self.expectations = Expectations(suite)
        self.is_whole = is_whole
        self.counts = {"ok": 0, "FAILED": 0, "skipped": 0, "expected": 0}
        self.worst = {}

    @staticmethod
    def name(node_id):
        """Without the file, where there is only one, and without the folders before it."""
        file, _, rest = node_id.partition("::")
        file = os.path.basename(file).removesuffix(".py")
        return rest if file.startswith("suite_") else f"{file}::{rest}"

    def pytest_collection_modifyitems(self, items):
        import pytest

        for item in items:
            expectation = self.expectations.find(self.name(item.nodeid))
            if expectation is None:
                continue
            word, reason = expectation
            if word == "skips":
                item.add_marker(pytest.mark.skip(reason="expected: " + reason))
            else:
                item.add_marker(pytest.mark.xfail(reason="expected: " + reason, strict=True))

    def pytest_collectreport(self, report):
        if report.failed:
            self.say("FAILED", report.nodeid, 0, report.longreprtext)

    def pytest_runtest_logreport(self, report):
        text = ""
        if report.failed:
            word, text = "FAILED", report.longreprtext
        elif report.skipped:
            reason = getattr(report, "wasxfail", None) or report.longrepr[2]
            word = "expected" if "expected: " in reason else "skipped"
            text = "" if word == "expected" else f"  skipped: {reason.removeprefix('Skipped: ')}"
        else:
            word = "ok"
        # Of set-up, call and tear-down.
        if (word != "ok" or report.when == "call") and self.worst.get(report.nodeid) != "FAILED":
            self.worst[report.nodeid] = word
            self.say(word, self.name(report.nodeid), report.duration, text)

    def say(self, word, name, seconds, text):
        self.counts[word] += 1
        print(f"{word} {name} ({seconds:.2f} s)", *([text.rstrip()] if text else []), sep="\n", flush=True)

    def finish(self):
        if self.is_whole:
            for pattern in sorted(self.expectations.unused):
                self.say("FAILED", f"{pattern}: there is no such case; see expected.txt", 0, "")
        skipped = self.counts["skipped"] + self.counts["expected"]
        print(f"{self.counts['ok']} passed, {self.counts['FAILED']} failed, {skipped} skipped")
        return 1 if self.counts["FAILED"] or not self.counts["ok"] else 0


def run_inside(sources, suite, arguments):
    import faulthandler

    peers_runner.raise_loopback()
    import pytest

    sys.path[:0] = [HERE]
    os.environ["RINGEST_SUITE_SOURCES"] = os.path.abspath(sources)
    if suite in FOLDERS:
        folder, names = FOLDERS[suite]
        path = os.path.join(sources, folder)
        where = ["-p", f"suite_{suite}", "--import-mode", "prepend", "--rootdir", path]
        where += [os.path.join(path, f"test_{name}.py") for name in names]
    else:
        path = os.path.join(HERE, f"suite_{suite}.py")
        where = ["--import-mode", "importlib", "--rootdir", HERE, path]
    report = Report(suite, is_whole=not arguments)
    faulthandler.enable()
    status = pytest.main(
        ["-p", "no:terminal", "-p", "no:cacheprovider", "-c", os.path.join(HERE, "pytest.ini"),
         "-o", f"faulthandler_timeout={CASE_PATIENCE}", *where, *arguments],
        plugins=[report],
    )  # fmt: skip
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        print(f"pytest: {status!r}")
        report.counts["FAILED"] += 1
    return report.finish()


def main(arguments):
    if arguments[0] == INSIDE:
        return run_inside(arguments[1], arguments[2], arguments[3:])
    venv, sources, suite, *rest = arguments
    python = os.path.join(venv, "bin", "python")
    if not os.path.exists(python) or not os.path.isdir(sources):
        return peers_runner.skip(f"there is no {python}, or no {sources}: script/test makes them")
    command = peers_runner.unshare()
    if command is None:
        return peers_runner.skip("no network namespace can be made here")
    here = os.path.abspath(__file__)
    return subprocess.run([*command, python, "-B", here, INSIDE, sources, suite, *rest], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
