"""The library's log as records of Python's loggers."""

import contextlib
import io
import logging
import os
import subprocess
import sys
import unittest

import ringest
from support import Rule, emulator, until


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)

    def find(self, part):
        return [record for record in list(self.records) if part in record.getMessage()]


class Log(unittest.TestCase):
    def setUp(self):
        self.kept = Kept()
        self.logger = logging.getLogger("ringest")
        self.level = self.logger.level
        self.logger.addHandler(self.kept)
        at = emulator()
        self.place = at.__enter__()
        self.addCleanup(at.__exit__, None, None, None)

    def tearDown(self):
        self.logger.removeHandler(self.kept)
        self.logger.setLevel(self.level)

    def test_lines_are_records_of_loggers_by_place(self):
        self.logger.setLevel(logging.DEBUG)
        with (
            ringest.Client(*self.place, token="hidden") as client,
            Rule(self.place, times=1, effect="none", answer="failed", status=429),
        ):
            client.get("gs://data/x-00000000")
        until(lambda: self.kept.find("connection 0 closed"))
        retry = self.kept.find("attempt 1 of 8 failed")[0]
        self.assertEqual((retry.name, retry.levelno), ("ringest.gcs.request", logging.INFO))
        self.assertIn("get gs://data/x-00000000", retry.getMessage())
        throttled = self.kept.find("slowed down")[0]
        self.assertEqual((throttled.name, throttled.levelno), ("ringest.gcs.request", logging.WARNING))
        opened = self.kept.find("connection 0 to ")[0]
        self.assertEqual((opened.name, opened.levelno), ("ringest.http", logging.INFO))
        self.assertEqual(self.kept.find("pool -> out")[0].levelno, logging.DEBUG)
        self.assertEqual(self.kept.find("hidden"), [])

    def test_levels_choose_what_comes(self):
        self.logger.setLevel(logging.INFO)
        with ringest.Client(*self.place) as client:
            client.get("gs://data/x-00000000")
        until(lambda: self.kept.find("connection 0 to "))
        self.assertEqual(self.kept.find("->"), [])

    def test_the_last_lines_come_before_the_process_ends(self):
        script = (
            "import logging, sys, ringest\n"
            "logging.basicConfig(level=logging.INFO, format='%(levelname)s %(name)s %(message)s')\n"
            "ringest.Client(*sys.argv[1:]).get('gs://data/x-00000000')\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, *self.place], stderr=subprocess.PIPE, text=True, check=True
        )
        self.assertIn("INFO ringest.http localhost: connection 0 to ", done.stderr)

    def test_a_handler_that_raises_gets_the_next_line(self):
        class Broken(logging.Handler):
            def emit(self, record):
                raise RuntimeError("mine")

        broken, http = Broken(), logging.getLogger("ringest.http")
        self.logger.setLevel(logging.DEBUG)
        http.addHandler(broken)
        self.logger.addHandler(broken)
        self.addCleanup(http.removeHandler, broken)
        self.addCleanup(self.logger.removeHandler, broken)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            client = ringest.Client(*self.place)
            for _ in range(2):
                with contextlib.suppress(RuntimeError):  # some lines are told by the calling thread
                    client.get("gs://data/x-00000000")
            until(lambda: said.getvalue().count("RuntimeError: mine") > 4)
            self.logger.removeHandler(broken)
            http.removeHandler(broken)
            client.close()
            until(lambda: self.kept.find("connection 0 closed"))

    def test_nothing_is_told_without_a_handler(self):
        script = "import sys, ringest, threading; ringest.Client(*sys.argv[1:]).get('gs://data/x-00000000')\n"
        script += "assert all(thread.name != 'ringest-log' for thread in threading.enumerate())\n"
        done = subprocess.run(
            [sys.executable, "-c", script, *self.place], stderr=subprocess.PIPE, text=True, check=True
        )
        self.assertEqual(done.stderr, "")

    def test_a_child_of_fork_has_its_own(self):
        self.logger.setLevel(logging.INFO)
        client = self.enterContext(ringest.Client(*self.place))
        client.get("gs://data/x-00000000")
        until(lambda: self.kept.find("connection 0 to "))
        for child_uses in (lambda: ringest.Client(*self.place), lambda: client):
            child = os.fork()
            if child == 0:
                try:
                    self.kept.records.clear()
                    child_uses().get("gs://data/x-00000000")
                    until(lambda: self.kept.find("connection 0 to "))
                    os._exit(0)
                finally:
                    os._exit(1)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_a_fork_before_the_thread_begins(self):
        """What the parent's ring holds is the parent's, and its mutex may be locked."""
        script = """
import logging, os, sys, ringest
lines, children = [], []
class Kept(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())
first = ringest.Client(*sys.argv[1:])
logging.getLogger("ringest").addHandler(Kept())
logging.getLogger("ringest").setLevel(logging.DEBUG)
begin = ringest._core._log_begin
def forking(level):
    ringest._core._log_begin = begin
    begin(level)
    first.get("gs://data/x-00000000")
    children.append(os.fork())
ringest._core._log_begin = forking
second = ringest.Client(*sys.argv[1:])
second.get("gs://data/x-00000001")
ringest._log._end()
is_parent = children[0] != 0
for number, is_told in ("00000000", is_parent), ("00000001", True):
    assert is_told == any(f"x-{number}" in line for line in lines), (is_parent, lines)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) if is_parent else 0)
"""
        subprocess.run([sys.executable, "-c", script, *self.place], check=True, timeout=60)


if __name__ == "__main__":
    unittest.main()
