"""What of other packages a part of this one needs, said where it is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

# What pip is to be told for a module.
_REMEDIES = {
    "torch": "'ringest[torch]'",
    "fsspec": "'ringest[fs]'",
    "opentelemetry": "'ringest[opentelemetry]'",
    "pyarrow": "'ringest[parquet]'",
    "prometheus_client": "'ringest[prometheus]'",
}


@contextlib.contextmanager
def needs(what: str) -> Iterator[None]:
    """Around imports: a package that is not there is an error that names what needs it, and how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing == "ringest":
            raise
        remedy = _REMEDIES.get(missing, missing)
        text = f"{what} needs the package {missing}, which is not installed: pip install {remedy}"
        raise ModuleNotFoundError(text, name=error.name) from error
