"""Every example of every manual page is run: in order, as written, by one shell for each page, in a folder and with
buckets such as the examples speak of.

Only the port differs, which may be somebody else's here."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

from support import PROGRAM, WITH_PARENT, closed_port, environment, until
from typed import Talk

ROOT = pathlib.Path(os.environ["RINGEST_TESTS"]).parent
PORT = "9000"
BUCKETS = ("bucket", "other", "photos", "shards")
# What the examples speak of.
FILES = {
    "model.pt": b"weights",
    "folder/0001.jpg": b"jpg",
    "folder/0001.cls": b"1",
}
OBJECTS = {
    "bucket/model.pt": b"weights",
    "bucket/a/1": b"1",
    "bucket/dataset/1": b"1",
    "bucket/dataset/more/2": b"2",
    "bucket/old/1": b"1",
    "bucket/runs/17/log": b"log",
    "bucket/train/1": b"1",
    **{f"bucket/run/epoch=0-step={step}.ckpt": b"weights" for step in (500, 1000, 1500, 2000, 2500)},
    "photos/2024/summer.jpg": b"jpg",
}
SHARDS = 100
# The reader's own program, by which objects make no buckets.
WRAPPER = f"""#!/bin/sh
[ "$1" != emulate ] || {{ shift; set -- emulate --strict-buckets "$@"; }}
exec '{PROGRAM}' "$@"
"""


def examples(page):
    """What stands behind "$ ", with the lines that go on behind a backslash."""
    text = page.read_text().partition("\n.Sh EXAMPLES\n")[2].partition("\n.Sh ")[0]
    lines = [line.removeprefix(".Dl ") for line in text.replace("\\e", "\\").splitlines()]
    found, goes_on = [], False
    for line in lines:
        if line.startswith("$ "):
            found.append(line[2:])
        elif goes_on:
            found[-1] += "\n" + line
        goes_on = line.endswith("\\")
    return found


def is_server(command):
    """It runs until it is told to end."""
    return command.startswith("ringest emulate ") and " -- " not in command and not command.endswith("&")


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


class Manuals(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.port = closed_port()
        tools, work = self.folder / "tools", self.folder / "work"
        tools.mkdir()
        (tools / "ringest").write_text(WRAPPER)
        (tools / "ringest").chmod(0o755)
        for path, data in {**FILES, **{f"made/{name}": data for name, data in OBJECTS.items()}}.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_bytes(data)
        path = os.pathsep.join((str(tools), os.environ.get("PATH", "")))
        # Also of shells that examples start: the first command that fails ends them.
        options = "braceexpand:errexit:hashall:pipefail"
        self.environment = environment(PATH=path, SHELLOPTS=options, HOME=str(work))
        self.work = work

    def type(self, command):
        said = self.shell.run(f"{command}\necho '<<done '$?'>>'\n")
        print("".join(f"    {line}\n" for line in said.splitlines()[-3:]), end="", flush=True)

    def serve(self, command):
        """Until it says that it is ready."""
        server = subprocess.Popen(
            [*WITH_PARENT, "bash", "-c", f"exec {command}"],
            cwd=self.work,
            env=self.environment,
            stdout=subprocess.PIPE,
        )
        self.assertIn(b'"endpoint"', server.stdout.readline())
        server.send_signal(signal.SIGTERM)
        server.stdout.close()
        self.assertEqual(server.wait(), 0)

    def make_world(self):
        for bucket in sorted({name.partition("/")[0] for name in OBJECTS}):
            self.type(f"ringest cp -q -r made/{bucket}/. gs://{bucket}/")
        self.type("tar c folder >made/shard")
        copies = " ".join(f"made/tars/train-{number:03d}.tar" for number in range(SHARDS))
        self.type(f"mkdir made/tars && for i in {copies}; do cp made/shard $i; done")
        self.type("ringest cp -q -r made/tars/. gs://bucket/ && ringest cp -q -r made/tars/. gs://shards/")
        self.type("rm -r made")

    def run_page(self, page):
        buckets = [word for bucket in BUCKETS for word in ("--bucket", bucket)]
        command = [PROGRAM, "emulate", "--strict-buckets", *buckets, "--synthetic", "train/:500:10KiB", "--", "bash"]
        self.shell = Talk(command, self.work, self.environment)
        self.make_world()
        for command in examples(page):
            print(f"  $ {command}", flush=True)
            command = command.replace(PORT, str(self.port))
            missing = [tool for tool in re.findall(r"\| (\w+)", command) if shutil.which(tool) is None]
            if missing:
                print(f"    is not run: there is no {missing[0]} here")
            elif is_server(command):
                self.serve(command)
            else:
                self.type(command)
            if command.endswith("&"):
                until(lambda: listens(self.port), "a server that listens")
        self.type("kill $(jobs -p) 2>/dev/null || :")
        self.shell.close()

    def test_what_counts_as_an_example(self):
        page = self.folder / "page"
        page.write_text(
            "\n.Sh EXAMPLES\nOne:\n.Dl $ one\n.Bd\n$ two \\e\n    more\n$ three &\n.Ed\n.Sh SEE ALSO\n$ no\n"
        )
        self.assertEqual(examples(page), ["one", "two \\\n    more", "three &"])


def _add(page):
    setattr(Manuals, f"test_{page.stem.replace('-', '_')}", lambda self: self.run_page(page))


for each in sorted((ROOT / "docs/man").glob("*.1")):
    if examples(each):
        _add(each)


if __name__ == "__main__":
    unittest.main()
