"""Paths of the connector: "gs://bucket/name" or "gcs://bucket/name", also as pathlib.Path, which takes one of
their slashes."""

from __future__ import annotations

import os
from pathlib import Path

from ringest import _uri


def process_input_path(path: str | os.PathLike[str]) -> str:
    """The path as a string with both slashes. TypeError for what is neither str nor Path."""
    if isinstance(path, str):
        return path
    if not isinstance(path, Path):
        raise TypeError(f"a path is a str or a pathlib.Path, not a {type(path).__name__}")
    scheme, colon, rest = str(path).partition(":/")
    return f"{scheme}://{rest}" if colon else scheme


def parse_gcs_path(path: str | os.PathLike[str]) -> tuple[str, str]:
    """(bucket, name). ValueError for other places, and for a path without a bucket."""
    if not path:
        raise ValueError("a path is empty")
    parts = _uri.cut(process_input_path(path))
    if parts is None:
        raise ValueError(f"{str(path)!r} does not begin with gs:// or gcs://")
    if not parts[0]:
        raise ValueError(f"{str(path)!r} has no bucket")
    return parts


def object_uri(path: str | os.PathLike[str]) -> str:
    """gs://BUCKET/NAME, as the rest of ringest has it."""
    return _uri.join(*parse_gcs_path(path))
