"""URIs of objects and prefixes."""

from __future__ import annotations

from typing import Any

SCHEMES = ("gs://", "gcs://")


def is_uri(text: Any) -> bool:
    """Whether it names something in a bucket."""
    return isinstance(text, str) and text.startswith(SCHEMES)


def split(uri: str, form: str = "gs://BUCKET/NAME") -> tuple[str, str]:
    """The bucket, and the name or prefix behind it, which may be empty. ValueError: it is not of this form."""
    for scheme in SCHEMES:
        if uri.startswith(scheme):
            bucket, _, name = uri[len(scheme) :].partition("/")
            if bucket:
                return bucket, name
    raise ValueError(f"{uri!r} is not of the form {form}")


def join(bucket: str, name: str) -> str:
    return f"gs://{bucket}/{name}"
