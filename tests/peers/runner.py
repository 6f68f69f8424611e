"""Runs the cases of one test file with another's client or server, in a network of its own.

    runner.py VENV FILE [CASE...]

VENV is the virtual environment that script/test makes of requirements.txt. The network has only the loopback device, so that
no client reaches the address where clouds keep their metadata. Exit status as tests/cli/runner.py;
77 where that folder or such a network cannot be had."""

import importlib.util
import os
import subprocess
import sys

SKIPPED = 77
INSIDE = "--inside"


def skip(reason):
    print(f"skipped: {reason}\n0 passed, 0 failed, 1 skipped")
    return SKIPPED


def load(name, *path):
    """A module by its file."""
    file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", *path)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The package itself need not be there.
network = load("bench_network", "python", "ringest", "bench", "network.py")
raise_loopback, unshare = network.raise_loopback, network.unshare


def run_inside(path, wanted):
    raise_loopback()
    # The runner and the helpers of the black-box tests.
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
    cli_runner = load("cli_runner", "tests", "cli", "runner.py")
    return cli_runner.main(path, wanted)


def main(arguments):
    if arguments[0] == INSIDE:
        return run_inside(arguments[1], arguments[2:])
    python = os.path.join(arguments[0], "bin", "python")
    if not os.path.exists(python):
        return skip(f"there is no {python}: script/test makes it")
    command = unshare()
    if command is None:
        return skip("no network namespace can be made here")
    here = os.path.abspath(__file__)
    return subprocess.run([*command, python, "-B", here, INSIDE, *arguments[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
