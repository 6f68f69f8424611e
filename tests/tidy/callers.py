"""Symbols that leave their object for nobody. Reads the objects of a build folder that compile_commands.json names,
so that what an earlier configuration left is not looked at. All of them have to be there: a caller that is not
compiled would be missed."""

import json
import os
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

# The interpreter and the C library call these by name.
CALLED_BY_OTHERS = re.compile(r"main|PyInit_\w+")


class NotCompiled(Exception):
    """Objects that a build folder names are not there."""


@dataclass
class Object:
    """What one source file defines for others, and what it wants of them."""

    defines: set[str] = field(default_factory=set)
    wants: set[str] = field(default_factory=set)


def read_objects(paths: Iterable[str]) -> dict[str, Object]:
    """By path, of one run of nm. Weak symbols are those that several objects have: inline functions of C++."""
    command = ["nm", "--extern-only", "--format=posix", "--print-file-name", *paths]
    found: dict[str, Object] = {}
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        path, _, symbol = line.partition(": ")
        name, kind = symbol.split()[:2]
        each = found.setdefault(path, Object())
        if kind == "U":
            each.wants.add(name)
        elif kind in "BCDGRST":
            each.defines.add(name)
    return found


def exports_of(library: str) -> set[str]:
    command = ["nm", "--dynamic", "--defined-only", "--format=posix", library]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.split()[0].partition("@")[0] for line in lines}


def objects_of(build: str, root: str) -> dict[str, Object]:
    """By source file below the root; what is made of subprojects is left out. A file that is compiled twice counts
    once."""
    sources: dict[str, str] = {}
    missing = []
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as commands:
        for command in json.load(commands):
            source = os.path.relpath(os.path.join(command["directory"], command["file"]), root)
            path = os.path.join(command["directory"], command["output"])
            if not source.startswith(("..", "subprojects" + os.sep)):
                sources[path] = source
                if not os.path.exists(path):
                    missing.append(source)
    if missing:
        raise NotCompiled(f"{len(missing)} files are not compiled, {missing[0]} for one: run ninja -C {build}")
    objects: dict[str, Object] = {}
    for path, one in read_objects(sources).items():
        more = objects.setdefault(sources[path], Object())
        more.defines |= one.defines
        more.wants |= one.wants
    return objects


def is_test(source: str) -> bool:
    return source.startswith("tests/")


def wanted_by(objects: Mapping[str, Object], tests: bool) -> set[str]:
    return {name for source, each in objects.items() if is_test(source) == tests for name in each.wants - each.defines}


def check_callers(
    objects: Mapping[str, Object], public: Collection[str], for_tests: Iterable[str] = ()
) -> Iterator[str]:
    """Every symbol that is not public needs a caller in another file. Those in `for_tests` have theirs in tests
    only; one that has another, or is gone, is a finding too."""
    called, tested, left = wanted_by(objects, False), wanted_by(objects, True), set(for_tests)
    for source, each in sorted(objects.items()):
        if is_test(source):
            continue
        for name in sorted(each.defines - called - set(public)):
            if CALLED_BY_OTHERS.fullmatch(name) or not re.fullmatch(r"\w+", name):
                continue
            if name not in tested:
                yield f"{source}: {name} has no caller in another file: make it static, or remove it"
            elif name in left:
                left.remove(name)
            else:
                yield f"{source}: {name} has no caller but tests"
    for name in sorted(left):
        yield f"{name}: has a caller, or is gone; it may leave the list in tidy.py"
