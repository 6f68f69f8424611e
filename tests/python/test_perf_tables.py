"""The table that script/bench writes into docs/PERFORMANCE.md."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

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


if __name__ == "__main__":
    unittest.main()
