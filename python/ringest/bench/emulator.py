"""An emulator of this run's own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

from ringest.bench.result import ResultError

BUCKET = "bench"
# The emulator ends with this command, and that with its standard input: however this process ends.
_SAY_AND_WAIT = 'echo "$STORAGE_EMULATOR_HOST $SSL_CERT_FILE"; exec cat'
_PATIENCE_S = 30


class EmulatorError(ResultError):
    """It cannot be started."""


def about(cpus: Sequence[int] | None = None) -> str:
    """What a result says of the server. cpus: those that are its own."""
    if cpus:
        return f"the emulator, on CPUs of its own ({len(cpus):,})"
    shared = len(os.sched_getaffinity(0))
    return f"the emulator, on the client's own CPUs ({shared:,}): compare with other such runs only"


def program() -> str:
    """The program ringest: RINGEST_PROGRAM, else the one on PATH."""
    named = os.environ.get("RINGEST_PROGRAM") or shutil.which("ringest")
    if named is None:
        raise EmulatorError("--emulate needs the program ringest: put it on PATH, or name it in RINGEST_PROGRAM")
    return named


@contextlib.contextmanager
def running(
    synthetic: Sequence[str], *, threads: int | None = None, cpus: Sequence[int] | None = None
) -> Iterator[tuple[str, str]]:
    """Endpoint and certificate, while the `with` lasts. synthetic: BUCKET/PREFIX:COUNT:SIZE each. threads: its event loops,
    one for each CPU. cpus: those that it runs on."""
    command = [program(), "emulate", "--bucket", BUCKET]
    if threads is not None:
        command += ["--threads", str(threads)]
    for each in synthetic:
        command += ["--synthetic", each]
    # A session of its own: Ctrl-C is this program's business first, which removes what it has made.
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus or before)  # what this thread starts has its CPUs
        process = subprocess.Popen(
            [*command, "--", "sh", "-c", _SAY_AND_WAIT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    except OSError as error:
        raise EmulatorError(f"--emulate: {command[0]} cannot be run: {error.strerror}") from None
    finally:
        os.sched_setaffinity(0, before)
    assert process.stdin is not None and process.stdout is not None
    try:
        endpoint, _, ca = process.stdout.readline().strip().partition(" ")
        if not endpoint:
            raise EmulatorError("--emulate: the emulator did not start; its message is above")
        yield endpoint, ca
    finally:
        process.stdin.close()
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
