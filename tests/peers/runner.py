"""Runs the cases of one test file with another's client or server, in a network of its own.

    runner.py VENV FILE [CASE...]

VENV is the virtual environment that script/test makes of requirements.txt. The network has only the loopback device, so that
no client reaches the address where clouds keep their metadata. Exit status as tests/cli/runner.py;
77 where that folder or such a network cannot be had."""

import fcntl
import importlib.util
import os
import socket
import struct
import subprocess
import sys

SKIPPED = 77
INSIDE = "--inside"
IFF_UP, SIOCGIFFLAGS, SIOCSIFFLAGS = 1, 0x8913, 0x8914


def skip(reason):
    print(f"skipped: {reason}\n0 passed, 0 failed, 1 skipped")
    return SKIPPED


def raise_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        (flags,) = struct.unpack_from("h", request, 16)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def unshare():
    """The command that makes a network namespace; None where that is not allowed."""
    for options in (["-n"], ["-rn"]):
        command = ["unshare", *options]
        try:
            if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return command
        except FileNotFoundError:
            return None
    return None


def run_inside(path, wanted):
    raise_loopback()
    # The runner and the helpers of the black-box tests.
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli")
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location("cli_runner", os.path.join(folder, "runner.py"))
    cli_runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cli_runner)
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
