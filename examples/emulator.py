"""What the examples share: they start `ringest emulate` if no endpoint is given."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--endpoint", metavar="URL", help="a server; default: an emulator of its own")
    parser.add_argument("--ca", metavar="PEM", help="certificates to trust, of that server")
    parser.add_argument("--ringest", metavar="PROGRAM", default=find_program(), help="the program; %(default)s")


def find_program() -> str:
    """On the PATH, or where script/build leaves it."""
    return shutil.which("ringest") or os.path.join(ROOT, "build", "root", "bin", "ringest")


@contextlib.contextmanager
def endpoint(options: argparse.Namespace, *arguments: str) -> Iterator[tuple[str, str | None]]:
    """The endpoint to use and its certificates: those that were given, or an emulator's, which lives
    as long as the `with`."""
    if options.endpoint:
        yield options.endpoint, options.ca
        return
    if not shutil.which(options.ringest):
        sys.exit(f"{options.ringest} does not exist: run script/build, or name the program by --ringest")
    # If this process is killed, the emulator must end, too: setpriv sends it a signal then.
    command = ["setpriv", "--pdeathsig", "TERM", options.ringest, "emulate", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with process:
        try:
            line = process.stdout.readline() if process.stdout else b""
            if not line:
                sys.exit(f"{' '.join(command)} did not start")
            ready = json.loads(line)
            yield ready["endpoint"], ready["ca"]
        finally:
            process.terminate()
