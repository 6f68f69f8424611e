"""What script/bench says before it begins, and the table that it writes into docs/PERFORMANCE.md."""

import contextlib
import importlib
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(os.environ["RINGEST_TESTS"]).parent
SCRIPT = ROOT / "perf" / "tables.py"
PAGE = ROOT / "docs" / "PERFORMANCE.md"
FIGURES = {
    "machine": {
        "cpu": "Some CPU",
        "cores": 2,
        "load": 5.2,
        "kernel": "6.1.0-9",
        "nginx": "nginx version: nginx/1.22.1",
        "time": "2026-11-28T07:00:00Z",
    },
    "cells": {
        "4 KiB TLS": {
            "wrk": [{"cpu_us_per_request": us} for us in (10, 30, 20)],
            "uring": [{"cpu_us_per_request": us} for us in (5, 7, 6)],
        },
        "3 MiB TLS": {
            "wrk": [{"cpu_us_per_request": us} for us in (2000, 2001, 2002)],
            "uring": [{"cpu_us_per_request": us} for us in (1000, 1001, 1002)],
        },
    },
    "ratios_to_wrk": {"4 KiB TLS": {"wrk": 1, "uring": 0.3}, "3 MiB TLS": {"wrk": 1, "uring": 0.5}},
}
TABLE = """
| | 4 KiB TLS | 3 MiB TLS |
|---|---|---|
| wrk | 20.0 | 2,001 |
| **ringest, io_uring** | **6.0 · 0.30** | **1,001 · 0.50** |

Machine: Some CPU, 2 virtual CPUs (load 5 from other work), Linux 6.1.0, nginx/1.22.1; 2026-11-28. Each figure is the median \
of 3 rounds.
"""


class Tables(unittest.TestCase):
    def run_script(self, page):
        """Its exit status and message, and what the page is then."""
        with tempfile.TemporaryDirectory() as folder:
            figures, copy = os.path.join(folder, "figures.json"), os.path.join(folder, "page.md")
            for path, text in ((figures, json.dumps(FIGURES)), (copy, page)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            command = [sys.executable, "-B", str(SCRIPT), figures, copy]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            with open(copy, encoding="utf-8") as file:
                return done.returncode, done.stderr, file.read()

    def test_only_what_is_between_the_marks_is_replaced(self):
        spec = importlib.util.spec_from_file_location("tables", SCRIPT)
        tables = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(tables)
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(tables.BEGIN)
        _, _, after = rest.partition(tables.END)
        self.assertTrue(before and after)
        status, _, written = self.run_script(page)
        self.assertEqual(status, 0)
        self.assertEqual(written, before + tables.BEGIN + TABLE + "\n" + tables.END + after)

    def test_a_page_without_marks_stays_as_it_is(self):
        status, message, written = self.run_script("# A page\n")
        self.assertEqual((status, written), (1, "# A page\n"))
        self.assertIn("page.md: has not the marks <!-- script/bench wrk writes this -->", message)


class Words(unittest.TestCase):
    def test_help_installs_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            ran = os.path.join(folder, "ran")
            for name in ("dpkg-query", "apt-get", "meson", "ninja"):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="ascii") as file:
                    file.write(f"#!/bin/sh\ntouch {ran}\nexit 1\n")
                os.chmod(path, 0o755)
            environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
            for words, text in (
                (["--help"], "usage: script/bench [wrk | peers]"),
                (["wrk", "-h"], "--floor PROGRAM"),
                (["peers", "--rounds", "3", "--help"], "--scenarios"),
            ):
                command = [ROOT / "script" / "bench", *words]
                done = subprocess.run(command, env=environment, capture_output=True, text=True)
                self.assertEqual((done.returncode, os.path.exists(ran)), (0, False), done.stderr)
                self.assertIn(text, done.stdout)

    def test_too_few_rounds_of_instructions_are_refused(self):
        command = [sys.executable, ROOT / "perf" / "instructions.py", "--rounds", "1", "--ringest", "/none"]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--rounds 1: 3 at least, of which the medians are taken", done.stderr)


class Wrk(unittest.TestCase):
    def setUp(self):
        self.enterContext(unittest.mock.patch.object(sys, "path", [str(ROOT / "perf"), *sys.path]))
        self.compare = importlib.import_module("compare")
        self.options = unittest.mock.Mock(seconds=1, wrk_start_s={True: 0.1})
        self.nginx = unittest.mock.Mock(url=lambda tls: "https://localhost")

    def time(self, name, *runs):
        with (
            unittest.mock.patch.object(self.compare, "run_wrk", side_effect=runs) as run,
            contextlib.redirect_stderr(io.StringIO()),
        ):
            return self.compare.time_wrk(self.nginx, name, True, self.options), [
                each.args[1] for each in run.mock_calls
            ]

    def test_where_no_answer_came_it_is_asked_for_longer(self):
        found, seconds = self.time("3m", (0, 0.0, 0.2), (0, 0.0, 0.2), (1, 6.0 * (1 << 20), 0.3))
        self.assertEqual((found["requests"], found["requests_per_s"], seconds), (2, 0.5, [1, 2, 4]))
        self.assertAlmostEqual(found["cpu_us_per_request"], 1e5)

    def test_where_none_comes_it_says_so(self):
        with self.assertRaisesRegex(SystemExit, "wrk had no answer within 16 s"):
            self.time("4k", *[(0, 100.0, 0.2)] * 5)


class Peers(unittest.TestCase):
    def test_what_a_client_has_no_way_to_do_is_no_failure(self):
        """As `ringest bench compare` says it, of a client that can do nothing of what is asked."""
        from ringest.bench.peers import measuring

        (cell,) = measuring.cells_of(["dataflux"], ["get"], {"4k": 4096})
        self.enterContext(unittest.mock.patch.object(sys, "path", [str(ROOT / "perf" / "peers"), *sys.path]))
        measure = importlib.import_module("measure")
        rows = [{"error": cell.error}, {"error": None}, {"error": "s3dlio not installed"}]
        self.assertEqual(measure.able(rows), rows[1:])


if __name__ == "__main__":
    unittest.main()
