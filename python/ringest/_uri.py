"""URIs of objects and prefixes: the only place in the package that takes them apart."""

from __future__ import annotations

import os
import re
from typing import Any

SCHEMES = ("gs://", "gcs://")


def is_uri(text: Any) -> bool:
    """Whether it names something in a bucket."""
    return isinstance(text, str) and text.startswith(SCHEMES)


def cut(text: str) -> tuple[str, str] | None:
    """The bucket, and the name or prefix behind it; both may be empty. None: the text has another scheme."""
    for scheme in SCHEMES:
        if text.startswith(scheme):
            bucket, _, name = text[len(scheme) :].partition("/")
            return bucket, name
    return None


def split(uri: str, form: str = "gs://BUCKET/NAME") -> tuple[str, str]:
    """As `cut`, but ValueError unless there is a bucket: the text is not of this form."""
    parts = cut(uri)
    if parts is None or not parts[0]:
        raise ValueError(f"{uri!r} is not of the form {form}")
    return parts


def join(bucket: str, name: str) -> str:
    return f"gs://{bucket}/{name}"


def object_uri(path: str | os.PathLike[str]) -> str | None:
    """The gs:// URI that a path stands for, also after pathlib took one of its slashes; None for another
    place."""
    found = re.match(r"(?:gs|gcs):/+(.*)", os.fspath(path), re.DOTALL)
    return f"gs://{found[1]}" if found else None
