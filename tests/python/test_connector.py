"""The same script with Google's connector and with ringest.dataflux sees the same.

The connector is installed here, into build/connector of the source tree; it runs with the PyTorch
of the interpreter that runs the tests, in a network with nothing but loopback."""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "peers"))

import runner  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

FOLDER = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "connector")
REQUIREMENTS = os.path.join(HERE, "connector.txt")
# With which the connector's checkpoint half can be imported; in a folder of its own.
OLDER = "google-cloud-storage==2.19.0"
INSTALL_S = 300
COMPARE_S = 500


def wanted():
    """What the folder depends on."""
    with open(REQUIREMENTS) as file:
        return "\n".join([sys.version, sys.prefix, OLDER, file.read()])


def make(stamp):
    """The virtual environment, with the packages of this one behind its own."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    packages = sysconfig.get_path("purelib", vars={"base": FOLDER, "platbase": FOLDER})
    pip = [
        os.path.join(FOLDER, "bin", "python"),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
    ]
    pip += ["--quiet", "--no-deps", "--only-binary", ":all:"]
    for command in (
        [sys.executable, "-m", "venv", FOLDER],
        [*pip, "-r", REQUIREMENTS],
        [*pip, "--target", os.path.join(FOLDER, "older"), OLDER],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S)
        if done.returncode != 0:
            raise unittest.SkipTest("not to be installed here: " + (done.stderr.strip().splitlines() or ["?"])[-1])
    with open(os.path.join(packages, "tests.pth"), "w") as file:
        file.write(sysconfig.get_path("purelib") + "\n")
    with open(stamp, "w") as file:
        file.write(wanted())


def install():
    """Makes the folder where it is not there yet; other runs of this test wait."""
    os.makedirs(os.path.dirname(FOLDER), exist_ok=True)
    stamp = os.path.join(FOLDER, "stamp")
    with open(FOLDER + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(OSError), open(stamp) as file:
            if file.read() == wanted():
                return
        make(stamp)


@unittest.skipIf(torch is None, "torch is not installed")
class Connector(unittest.TestCase):
    maxDiff = 3000

    @classmethod
    def setUpClass(cls):
        isolated = runner.unshare()
        if isolated is None:
            raise unittest.SkipTest("no network namespace can be made here")
        install()
        command = [*isolated, sys.executable, "-B", os.path.join(HERE, "connector.py"), FOLDER]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPARE_S)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        seen = json.loads(done.stdout)
        cls.checkpoints = seen["checkpoints"]
        cls.theirs, cls.ours = seen["dataflux_pytorch"], seen["ringest.dataflux"]

    def same(self, *path):
        theirs, ours = self.theirs, self.ours
        for key in path:
            theirs, ours = theirs[key], ours[key]
        self.assertEqual(ours, theirs)
        return ours

    def test_modules_and_settings(self):
        self.assertTrue(self.same("top"))
        self.same("constants")
        self.same("settings")

    def test_names_of_arguments(self):
        self.assertEqual(len(self.same("signatures")), 6)

    def test_map_style(self):
        for key in self.theirs["map"]:
            with self.subTest(key):
                self.same("map", key)

    def test_iterable(self):
        for key in self.theirs["iterable"]:
            with self.subTest(key):
                self.same("iterable", key)

    def test_checkpoints_of_one_load_in_the_other(self):
        self.assertEqual(len(self.checkpoints), 2)
        for what, seen in self.checkpoints.items():
            self.assertEqual(seen, dict.fromkeys(["file", "a.ckpt", "b.ckpt", "shards"], True), what)

    def test_a_client_of_google_cloud_storage(self):
        self.assertEqual(len(self.same("client")), 2)


if __name__ == "__main__":
    unittest.main()
