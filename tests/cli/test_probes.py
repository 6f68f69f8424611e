"""The notes of probes in the program: those that the manual lists, with as many arguments."""

import os
import re
import subprocess
import unittest

from support import PROGRAM

MANUAL = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "man", "ringest.1")


class Probes(unittest.TestCase):
    def test_the_program_has_those_of_the_manual(self):
        shown = subprocess.run(["readelf", "-nW", PROGRAM], capture_output=True, text=True, check=True).stdout
        notes = re.findall(r"Provider: ringest\s+Name: (\w+)\s.*?Arguments: ([^\n]*)", shown, re.DOTALL)
        found = {name: len(arguments.split()) for name, arguments in notes}
        with open(MANUAL, encoding="utf-8") as file:
            listed = re.findall(r'^\.It Fn (\w+)((?: "\w+")+)$', file.read(), re.MULTILINE)
        self.assertEqual(found, {name: arguments.count(" ") for name, arguments in listed})
        self.assertIn("request_begin", found)


if __name__ == "__main__":
    unittest.main()
