"""A shell or an interpreter that is told what to do on its standard input: what documents and manual pages tell
their readers to type."""

import os
import re
import select
import subprocess
import time

# What is typed trains or compiles; the machine may be slow.
PATIENCE_S = 900
DONE = re.compile(rb"<<done (\d+)>>\n")


class Talk:
    """A program that is told what to do on its standard input, and says when it is done."""

    def __init__(self, command, folder, environment):
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.input, self.output = self.process.stdin, self.process.stdout

    def run(self, text):
        """What it prints until it is done. AssertionError: it ended, or says nothing."""
        self.input.write(text.encode())
        self.input.flush()
        said, end = b"", time.monotonic() + PATIENCE_S
        while not (done := DONE.search(said)):
            ready, _, _ = select.select([self.output], [], [], max(0, end - time.monotonic()))
            piece = os.read(self.output.fileno(), 1 << 16) if ready else b""
            if not piece:
                what = "ended" if ready else "is not done"
                raise AssertionError(f"it {what}, and printed:\n{said.decode(errors='replace')}")
            said += piece
        printed = said[: done.start()].decode(errors="replace")
        if done[1] != b"0":
            raise AssertionError(f"the last command ended with status {done[1].decode()}, and printed:\n{printed}")
        return printed

    def close(self):
        self.input.close()
        self.output.read()
        self.output.close()
        return self.process.wait(PATIENCE_S)
