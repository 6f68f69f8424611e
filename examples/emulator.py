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

import ringest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--endpoint", metavar="URL", help="a server; default: an emulator of its own")
    parser.add_argument("--ca", metavar="PEM", help="certificates to trust, of that server")
    parser.add_argument("--ringest", metavar="PROGRAM", default=find_program(), help="the program; %(default)s")


def add_resume_options(parser: argparse.ArgumentParser) -> None:
    """Of a program that can stop in the middle of an epoch, and go on in another process."""
    parser.add_argument("--stop-after", type=int, metavar="STEPS", help="leave a checkpoint and end")
    parser.add_argument("--resume", action="store_true", help="from the checkpoint in the bucket")
    parser.add_argument(
        "--folder", metavar="DIR", help="of the emulator's buckets, for runs that go on; default: temporary"
    )
    parser.add_argument("--bucket", default="examples", help="of data and checkpoint; %(default)s")


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """With the options of add_options and add_resume_options."""
    options = parser.parse_args()
    if not (options.folder or options.endpoint) and (options.resume or options.stop_after):
        parser.error("to go on later, the bucket has to stay: give --folder or --endpoint")
    return options


def expect_checkpoint(client: ringest.Client, uri: str) -> None:
    if not client.exists(uri):
        sys.exit(f"there is no checkpoint {uri}: run with --stop-after first, and the same place")


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
