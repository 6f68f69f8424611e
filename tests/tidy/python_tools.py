"""Ruff and mypy over all the Python of the tree, as pyproject.toml says.

    python_tools.py ruff ROOT         its rules, and how it formats
    python_tools.py types ROOT BUILD  mypy over what is not in the package, for which tests/python/test_types.py is

Prints what they find and exits with 1, or with 77 where they are not installed."""

import glob
import importlib.util
import os
import subprocess
import sys

SKIPPED = 77

# What is looked at together, since modules are told by their names: (files, where else modules are). In code
# without annotations mypy looks at what is outside of functions; CHECKED are those where it looks inside too.
GROUPS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("perf/*.py",), ()),
    (("perf/peers/*.py",), ("perf", "tests/peers")),
    (("tests/cli/*.py",), ("tests/support",)),
    (("tests/python/*.py", "tests/faults/*.py"), ("tests/support", "tests/peers")),
    (("tests/model/*.py",), ("tests/python", "tests/support")),
    (("tests/peers/*.py",), ("tests/support", "tests/cli")),
    (("tests/suites/*.py",), ("tests/support", "tests/cli")),
    (("tests/site/*.py",), ()),
)
CHECKED: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("examples/*.py",), ()),
    (("docs/site/*.py",), ()),
    (("script/*.py", "tests/tidy/*.py", "tests/support/*.py", "tests/sim/fleet/*.py"), ()),
)

# PyTorch is no matter here: to read it takes twice as long as all the rest. tests/python/test_types.py does read it.
WITHOUT_TORCH = """
[[tool.mypy.overrides]]
module = ["torch.*"]
follow_imports = "skip"
"""


def run(module: str, *arguments: str, root: str, **environment: str) -> int:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=root, env={**os.environ, **environment}, check=False).returncode


def ruff(root: str) -> int:
    results = [
        run("ruff", "check", "--quiet", ".", root=root),
        run("ruff", "format", "--check", "--quiet", ".", root=root),
    ]
    return int(any(results))


def types(root: str, build: str) -> int:
    config = os.path.join(build, "mypy-of-the-tree.toml")
    with open(os.path.join(root, "pyproject.toml"), encoding="utf-8") as common:
        text = common.read() + WITHOUT_TORCH
    with open(config, "w", encoding="utf-8") as written:
        written.write(text)
    options = ["--config-file", config, "--allow-untyped-defs", "--no-error-summary"]
    # Many packages of others are installed for some tests only.
    options += ["--disable-error-code", "import-not-found", "--disable-error-code", "import-untyped"]
    options += ["--disable-error-code", "annotation-unchecked", "--follow-imports", "silent"]
    options += ["--cache-dir", os.path.join(build, "mypy-cache-of-the-tree")]
    failed = False
    # A module that is not installed is None.
    loose = ("--disable-error-code", "assignment", "--disable-error-code", "misc")
    for groups, more in ((GROUPS, loose), (CHECKED, ("--check-untyped-defs",))):
        for patterns, folders in groups:
            files = sorted(os.path.relpath(f, root) for each in patterns for f in glob.glob(os.path.join(root, each)))
            own = {os.path.dirname(each) for each in files}
            path = os.pathsep.join(["python", *sorted(own), *folders])
            failed |= run("mypy", *options, *more, *files, root=root, MYPYPATH=path) != 0
    return int(failed)


def main(arguments: list[str]) -> int:
    what, *rest = arguments
    module = {"ruff": "ruff", "types": "mypy"}[what]
    if importlib.util.find_spec(module) is None:
        print(f"{module} is not installed")
        return SKIPPED
    return ruff(*rest) if what == "ruff" else types(*rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
