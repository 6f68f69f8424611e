"""What of other packages a part of this one needs, said where it is missing or another version than those that were
tried."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import NamedTuple


class _Package(NamedTuple):
    install: str  # what pip is to be told
    lowest: str  # versions that were tried
    newest: str
    distribution: str = ""  # whose version it is; "": of the same name


# By modules.
_PACKAGES = {
    "dlio_benchmark": _Package("--no-deps dlio-benchmark", "2.0", "2.0", "dlio-benchmark"),
    "fsspec": _Package("'ringest[fs]'", "2024.2", "2026.9"),
    "lightning": _Package("'ringest[lightning]'", "2.6", "2.6"),
    "matplotlib": _Package("'ringest[bench]'", "3.11", "3.11"),
    "opentelemetry": _Package("'ringest[opentelemetry]'", "1.30", "1.45", "opentelemetry-api"),
    "prometheus_client": _Package("'ringest[prometheus]'", "0.20", "0.26", "prometheus-client"),
    "pyarrow": _Package("'ringest[parquet]'", "18", "26"),
    "ray": _Package("'ringest[ray]'", "2.60", "2.60"),
    "torch": _Package("'ringest[torch]'", "2.11", "2.13"),
    "torch_checkpointing": _Package("'ringest[torch-checkpointing]'", "0.1", "0.1", "torch-checkpointing"),
    "torchdata": _Package("'ringest[torchdata]'", "0.10", "0.11"),
}


def _version(module: str) -> str | None:
    """Of what is installed, if it says."""
    import importlib.metadata  # a third of what importing ringest would take

    package = _PACKAGES.get(module)
    try:
        return importlib.metadata.version((package.distribution if package else "") or module)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]


def _wrong_version(what: str, module: str) -> str:
    package = _PACKAGES[module]
    known = package.lowest if package.lowest == package.newest else f"{package.lowest} to {package.newest}"
    found = _version(module) or "of this version"
    return f"{what} does not work with {module} {found}; known to work: {known}: pip install {package.install}"


def _check(what: str, module: str) -> None:
    """Refuses what is older than the lowest that was tried. A newer one may well work."""
    found = _version(module)
    if found is not None and _numbers(found) < _numbers(_PACKAGES[module].lowest):
        raise ImportError(_wrong_version(what, module), name=module)


@contextlib.contextmanager
def needs(what: str, *modules: str) -> Iterator[None]:
    """Around imports: a package that is not there is an error that names what needs it, and how to install it. One that
    lacks what is imported, or is one of `modules` and too old, is an error that names the versions known to work."""
    try:
        yield
    except ImportError as error:
        root, _, inner = (error.name or "").partition(".")
        if not root or root == "ringest":
            raise
        is_there = not isinstance(error, ModuleNotFoundError) or (inner and _version(root))
        if not is_there:
            remedy = _PACKAGES[root].install if root in _PACKAGES else root
            text = f"{what} needs the package {root}, which is not installed: pip install {remedy}"
            raise ModuleNotFoundError(text, name=error.name) from error
        if root not in _PACKAGES:
            raise
        raise ImportError(_wrong_version(what, root), name=error.name) from error
    for module in modules:
        _check(what, module)
