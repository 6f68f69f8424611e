"""script/screenshots finds what script/build has made, or says what is missing before anything is measured: in a made-up
repository, whose programs only say that they were called."""

import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CALLED = """#!/bin/sh
echo "$0 $1 $2 $3" >>"$CALLS"
"""
# A Python that has nothing, and a call of one that has everything.
BARE = (
    CALLED
    + """[ "$1" != -c ]
"""
)


class Screenshots(unittest.TestCase):
    def setUp(self):
        self.root = self.enterContext(tempfile.TemporaryDirectory())
        self.calls = os.path.join(self.root, "calls")
        for name in ("lib.sh", "screenshots"):
            os.makedirs(os.path.join(self.root, "script"), exist_ok=True)
            shutil.copy(os.path.join(ROOT, "script", name), os.path.join(self.root, "script"))
        self.program("script/setup")
        self.program("bin/chromium")

    def program(self, name, text=CALLED):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def run_it(self, **more):
        """Its status, its errors, and the calls."""
        if os.path.exists(self.calls):
            os.unlink(self.calls)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("RINGEST_", "PYTHON"))}
        env |= {"CALLS": self.calls, "PATH": f"{self.root}/bin:{env['PATH']}", **more}
        done = subprocess.run([os.path.join(self.root, "script/screenshots")], env=env, capture_output=True, text=True)
        calls = []
        if os.path.exists(self.calls):
            with open(self.calls, encoding="utf-8") as file:
                calls = file.read().splitlines()
        return done.returncode, done.stderr, calls

    def test_what_is_missing_is_said_before_anything_is_measured(self):
        status, errors, calls = self.run_it()
        self.assertEqual((status, calls), (1, []))
        self.assertIn("build/root/bin/ringest: run script/build", errors)
        program = self.program("build/root/bin/ringest")
        self.program(".venv/bin/python", BARE)
        status, errors, calls = self.run_it()
        self.assertEqual(status, 1)
        self.assertIn("no Python with ringest, matplotlib and Pillow", errors)
        self.assertIn(".venv/bin/pip install", errors)
        self.assertEqual([each for each in calls if each.startswith(program)], [])

    def test_the_python_that_has_all_is_found(self):
        program = self.program("build/root/bin/ringest")
        self.program(".venv/bin/python", BARE)
        other = self.program("build/venv/bin/python")
        status, errors, calls = self.run_it()
        self.assertEqual((status, errors), (0, ""))
        self.assertEqual(len([each for each in calls if each.startswith(f"{program} emulate")]), 1)
        self.assertEqual(len([each for each in calls if each.startswith(f"{other} -m ringest.bench report")]), 1)
        own = self.program("own/python")
        status, errors, calls = self.run_it(RINGEST_PYTHON=own)
        self.assertEqual((status, errors), (0, ""))
        self.assertEqual(len([each for each in calls if each.startswith(f"{own} -m ringest.bench report")]), 1)
        self.assertEqual([each for each in calls if each.startswith(other)], [])


if __name__ == "__main__":
    unittest.main()
