"""Presets: workloads as TOML files, those of this package and those of users. The command `presets` lists them."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import importlib.resources
import os
import tomllib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ringest.bench import fields, workloads
from ringest.bench.result import ResultError

SUFFIX = ".toml"
FILE_BYTES_MAX = 1 << 20
_KEYS = ["title", "kind", "source", "data", "work"]


class PresetError(ResultError):
    """A file that is no preset, with its name, the key at fault, and what is allowed; or a name that there is not."""


@dataclass(frozen=True)
class Preset:
    name: str
    title: str
    kind: str
    source: str  # where its figures are from
    data: Any  # the tables, as the workload's module has them
    work: Any
    scale: float = 1.0  # of the data, against what the file says

    @property
    def workload(self) -> ModuleType:
        return workloads.module(self.kind)

    @property
    def ranks(self) -> int:
        """As many processes as it has by itself."""
        return getattr(self.data, "ranks", 1)

    def scaled(self, factor: float, ranks: int) -> Preset:
        work = self.work.scaled(factor) if hasattr(self.work, "scaled") else self.work
        data = self.data.scaled(factor, ranks)
        return dataclasses.replace(self, data=data, work=work, scale=self.scale * factor)

    def parameters(self) -> dict[str, Any]:
        """As a result records them."""
        tables = {"data": self.data, "work": self.work}
        flat = {f"{table}.{key}": value for table, each in tables.items() for key, value in vars(each).items()}
        return {
            "kind": self.kind,
            "source": self.source,
            "scale": self.scale,
            **{key: list(value) if isinstance(value, tuple) else value for key, value in flat.items()},
        }


def _text(given: dict[str, Any], key: str) -> str:
    value = given.get(key, "")
    if not isinstance(value, str) or not (value or key == "source"):
        raise fields.Wrong(f"{key}: must be a text, and is {'missing' if key not in given else 'something else'}")
    return value


def parse(text: str, name: str, path: str) -> Preset:
    """Of the text of a file `path`."""
    try:
        given = tomllib.loads(text)
        fields.refuse_unknown("", given, _KEYS)
        kind = _text(given, "kind")
        if kind not in workloads.KINDS:
            raise fields.Wrong(f'kind: is "{kind}". Allowed: {", ".join(workloads.KINDS)}')
        module = workloads.module(kind)
        data = fields.parse_table(module.Data, given.get("data", {}), "data")
        work = fields.parse_table(module.Work, given.get("work", {}), "work")
        if hasattr(module, "check"):
            module.check(work, data)
        return Preset(name, _text(given, "title"), kind, _text(given, "source"), data, work)
    except fields.Wrong as error:
        raise PresetError(f"{path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise PresetError(f"{path}: not TOML: {error}") from None


def _folder() -> Any:
    return importlib.resources.files("ringest.bench").joinpath("presets")


def names() -> list[str]:
    """Of those that are part of the package."""
    found = [each.name.removesuffix(SUFFIX) for each in _folder().iterdir() if each.name.endswith(SUFFIX)]
    return sorted(found)


def text_of(name: str) -> str:
    """Of the file of a preset of the package."""
    return _folder().joinpath(name + SUFFIX).read_text(encoding="utf-8")


def load(name: str) -> Preset:
    """A preset of the package by its name, or a file by its path, which ends in .toml or has a "/"."""
    if name.endswith(SUFFIX) or os.sep in name:
        try:
            with open(name, "rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
            text = data.decode("utf-8")
        except OSError as error:
            raise PresetError(f"{name}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise PresetError(f"{name}: not TOML: it is not UTF-8") from None
        if len(data) > FILE_BYTES_MAX:
            raise PresetError(f"{name}: is larger than {FILE_BYTES_MAX >> 20} MiB, which no preset is")
        return parse(text, os.path.basename(name).removesuffix(SUFFIX), name)
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        meant = f'; did you mean "{near[0]}"?' if near else ";"
        raise PresetError(
            f'there is no preset "{name}"{meant} `ringest bench presets` lists them, and a file is ./{name}{SUFFIX}'
        )
    return parse(text_of(name), name, name + SUFFIX)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="print the file of this one, to copy and change")


def main(options: argparse.Namespace) -> int:
    if options.name is not None:
        load(options.name)
        if options.name in names():
            print(text_of(options.name), end="")
        return 0
    width = max(map(len, names()))
    for name in names():
        print(f"{name:{width}}  {load(name).title}")
    return 0
