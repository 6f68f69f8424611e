"""The types that the package tells: they hold together, users can rely on them, and the extension has what its
stub says."""

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import ringest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILT = os.environ["PYTHONPATH"]
USER = "tests/python/typed_user.py"

# Where the stub says more than can be seen in the extension.
UNSEEN = ["ringest._core.Client.__init__"]  # the names of its arguments, which are by keyword only
if sys.version_info < (3, 12):
    # Memory, before that was a method's business.
    UNSEEN += [f"ringest._core.{kind}.__buffer__" for kind in ("Buffer", "Objects", "TarIndex")]


def run(module, *arguments, path):
    environment = {
        **os.environ,
        "MYPYPATH": path,
        # Of the build: what is known of PyTorch is learnt once.
        "MYPY_CACHE_DIR": os.path.join(os.path.dirname(BUILT), "mypy-cache"),
    }
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)


class Types(unittest.TestCase):
    maxDiff = None

    def test_the_package_and_a_user_of_it(self):
        done = run("mypy", "--config-file", "pyproject.toml", "python/ringest", USER, path="python")
        self.assertEqual((done.stderr, done.returncode), ("", 0), done.stdout)

    def test_the_stub_is_what_was_built(self):
        with tempfile.TemporaryDirectory() as folder:
            # The stub alone, or else all that the package imports is looked at too.
            package = os.path.join(folder, "ringest")
            os.mkdir(package)
            shutil.copy(os.path.join(ROOT, "python/ringest/_core.pyi"), package)
            open(os.path.join(package, "__init__.pyi"), "w").close()
            with open(os.path.join(folder, "unseen"), "w") as file:
                file.write("\n".join(UNSEEN))
            # Which classes may be bases together says nothing to users of these.
            arguments = ("--ignore-disjoint-bases", "--mypy-config-file", "pyproject.toml", "--allowlist", file.name)
            done = run("mypy.stubtest", "ringest._core", *arguments, path=folder)
        self.assertEqual((done.stderr, done.returncode), ("", 0), done.stdout)

    def test_annotations_hold_at_run_time_too(self):
        user = importlib.import_module(os.path.splitext(os.path.basename(USER))[0])
        self.assertEqual(user.take_type.__annotations__["item"].__args__, (ringest.Buffer,))


if __name__ == "__main__":
    unittest.main()
