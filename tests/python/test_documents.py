"""Every block of every document is run: in order, as written, by a shell, an interpreter and a compiler.

A document is one session. Blocks of `sh` are typed into one bash. Blocks of `python` are run by one interpreter,
which starts in that shell's environment and folder at the first of them. A block whose first line names a file
(```c get.c) is saved under that name instead. Other blocks show something (`text`), or this line above them says why they are not run:

    <!-- not run: why -->

A block that is none of these is an error. The log counts them."""

import dataclasses
import importlib.util
import os
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from typed import Talk

ROOT = pathlib.Path(os.environ["RINGEST_TESTS"]).parent
PROGRAM = pathlib.Path(os.environ["RINGEST_PROGRAM"])
BUILD = PROGRAM.parent.parent

FENCE = re.compile(r"^( *)```(.*)$")
NOT_RUN = re.compile(r"^ *<!-- not run: (\S.*) -->$")
RUN, SHOWN = {"sh", "python"}, {"text"}
NEEDED = ("PIL", "lightning", "safetensors", "sklearn", "torch", "torch_checkpointing", "torchdata", "webdataset")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]

# What runs the blocks of Python of a document: reads the path of one from each line, and says when it is done.
INTERPRETER = """
import sys
names = {"__name__": "__main__"}
for line in sys.stdin:
    path = line.rstrip("\\n")
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), names)
    print("<<done 0>>", flush=True)
"""
# Commands of documents write to buckets that their reader has. A mistyped name is found.
PROGRAM_OF_A_USER = f"""#!/bin/sh
if [ "$1" = emulate ]; then
    shift
    set -- emulate --strict-buckets --bucket mine "$@"
fi
exec '{PROGRAM}' "$@"
"""


@dataclasses.dataclass
class Block:
    line: int
    language: str
    file: str
    text: str
    reason: str  # why it is not run; "" if it is


def blocks(text):
    found, lines = [], text.split("\n")
    number = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        if fence is None:
            number += 1
            continue
        indent, (language, _, file) = len(fence[1]), fence[2].partition(" ")
        above = NOT_RUN.match(lines[number - 1]) if number else None
        end = next(i for i in range(number + 1, len(lines)) if lines[i].strip() == "```")
        body = "".join(line[indent:] + "\n" for line in lines[number + 1 : end])
        found.append(Block(number + 1, language, file, body, above[1] if above else ""))
        number = end + 1
    return found


def documents():
    """Those that people read; others are generated, or of tests."""
    folders = (ROOT, ROOT / "docs", ROOT / "docs" / "internals")
    return sorted(path for folder in folders for path in folder.glob("*.md"))


class Session:
    """One document's shell and interpreter, in a folder that looks like a clone."""

    def __init__(self, folder):
        self.folder = folder
        for path in ROOT.iterdir():
            if path.name not in {".git", "build"}:
                (folder / path.name).symlink_to(path)
        self.made = folder / "build"
        self.made.mkdir()
        self.shell = Talk(["bash"], folder, self._environment())
        self.interpreter = None

    def _environment(self):
        """That of a user who has installed this build."""
        (self.made / "bin").mkdir()
        program = self.made / "bin" / "ringest"
        program.write_text(PROGRAM_OF_A_USER)
        program.chmod(0o755)
        (self.made / "ringest.pc").write_text(
            f"libdir={BUILD}\nName: ringest\nDescription: -\nVersion: 0\nLibs: -L{BUILD} -lringest\n"
            f"Cflags: -I{ROOT}/include\n"
        )
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RINGEST_", "SSL_CERT_", "STORAGE_", "GOOGLE_", "CLOUDSDK_", "GCE_"))
            if not name.lower().endswith("_proxy")
        }
        path = os.pathsep.join([str(self.made / "bin"), os.path.dirname(sys.executable), kept.get("PATH", "")])
        return {
            **kept,
            "PATH": path,
            "PKG_CONFIG_PATH": str(self.made),
            "HOME": str(self.made),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            # What the processes of a host share would outlast the folders that are made here.
            "RINGEST_SHARING": "0",
            # Also of shells that blocks start: the first command that fails ends them.
            "SHELLOPTS": "braceexpand:errexit:hashall:pipefail",
        }

    def run(self, block):
        if block.file:
            (self.folder / block.file).write_text(block.text)
            return ""
        if block.language == "sh":
            return self.shell.run(f"{block.text}\necho '<<done '$?'>>'\n")
        if self.interpreter is None:
            self.interpreter = self._start_interpreter()
        path = self.made / f"line {block.line}.py"
        path.write_text(block.text)
        return self.interpreter.run(f"{path}\n")

    def _start_interpreter(self):
        place = self.made / "place"
        self.shell.run(f"env -0 >'{place}'; pwd >>'{place}'; echo '<<done '$?'>>'\n")
        *variables, folder = place.read_text().split("\0")
        environment = dict(each.split("=", 1) for each in variables)
        return Talk([sys.executable, "-u", "-c", INTERPRETER], folder.strip(), environment)

    def close(self):
        if self.interpreter is not None and (status := self.interpreter.close()):
            raise AssertionError(f"the interpreter ended with status {status}")
        self.shell.close()


class Documents(unittest.TestCase):
    def test_what_counts_as_a_block(self):
        text = "a\n```sh\nls\n```\n<!-- not run: it needs a cloud -->\n```sh\nrm\n```\n\n```c get.c\nint x;\n```\n"
        self.assertEqual(
            blocks(text),
            [
                Block(2, "sh", "", "ls\n", ""),
                Block(6, "sh", "", "rm\n", "it needs a cloud"),
                Block(10, "c", "get.c", "int x;\n", ""),
            ],
        )

    def test_every_block_says_what_it_is(self):
        for path in documents():
            for block in blocks(path.read_text()):
                with self.subTest(f"{path.name}:{block.line}"):
                    known = block.language in RUN | SHOWN or block.file or block.reason
                    self.assertTrue(known, f"a block of {block.language or 'no language'} is not run and not marked")

    def run_document(self, path):
        if MISSING:
            self.skipTest(f"the documents need {', '.join(MISSING)}")
        found = [block for block in blocks(path.read_text()) if block.language in RUN or block.file]
        for block in found:
            if block.reason:
                print(f"  {path.name}:{block.line} is not run: {block.reason}")
        found = [block for block in found if not block.reason]
        with tempfile.TemporaryDirectory() as folder:
            session = Session(pathlib.Path(folder))
            for block in found:
                print(f"  {path.name}:{block.line}", flush=True)
                try:
                    said = session.run(block)
                except AssertionError as error:
                    self.fail(f"{path.name}:{block.line}: {error}\nThe block:\n{block.text}")
                print("".join(f"    {line}\n" for line in said.splitlines()), end="", flush=True)
            session.close()
        print(f"  {path.name}: {len(found)} blocks run", flush=True)


def _add(path):
    name = "_".join(path.relative_to(ROOT).with_suffix("").parts).replace("-", "_")
    setattr(Documents, f"test_{name}", lambda self: self.run_document(path))


for each in documents():
    if any(block.language in RUN for block in blocks(each.read_text())):
        _add(each)


if __name__ == "__main__":
    unittest.main()
