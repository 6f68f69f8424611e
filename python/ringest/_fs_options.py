"""What FileSystem is given: arguments of its client, ours and gcsfs's names for them, and which arguments mean nothing here."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Mapping
from typing import Any

from ringest.client import Client

# Those of Client, but for those that callers of fsspec mean otherwise.
_CLIENT_OPTIONS = frozenset(inspect.signature(Client).parameters) - {"requests"}

# Arguments of other filesystems that say how, and not what: we do it in a way of our own.
HINTS = frozenset(
    {
        "batch_size",
        "block_size",
        "cache_options",
        "cache_source",
        "cache_type",
        "chunksize",
        "concurrency",
        "consistency",
        "fill_cache",
        "max_prefetch_size",
        "size",
    }
)

# Options of a filesystem: fsspec's own, those of gcsfs that ask for what is done anyway, and what Hugging Face's datasets
# adds to everybody's options for its own filesystem.
OPTIONS = HINTS | {
    "cache_timeout",
    "check_connection",
    "hf",
    "listings_expiry_time",
    "loop",
    "max_paths",
    "project",
    "refresh",
    "skip_instance_cache",
    "use_listings_cache",
}
# What gcsfs calls them, where its `token` is none.
_CREDENTIALS = {"anon": "anonymous", "google_default": "default", "cloud": "default"}


def _token(token: Any) -> dict[str, Any]:
    """What gcsfs takes for `token`, and we for others of our arguments."""
    if isinstance(token, os.PathLike):
        token = os.fspath(token)
    if token is not None and not isinstance(token, str):
        raise TypeError(
            f"gs://: token is a str here, got {type(token).__name__}: write a key into a file, and give credentials=FILE"
        )
    if token in _CREDENTIALS:
        return {"credentials": _CREDENTIALS[token]}
    if token in ("browser", "cache"):
        raise ValueError(
            f"gs://: token={token!r} is a login of gcsfs; leave it out after `gcloud auth application-default login`"
        )
    # It would be sent as if it were an access token, which no file is called like.
    if token is not None and (token.endswith(".json") or os.path.isfile(token)):
        return {"credentials": token}
    return {"token": token}


def client_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of a client, under our names, and the others."""
    storage: dict[str, Any] = {}
    others = dict(options)
    project = options.get("project")
    if "endpoint_url" in others:
        storage["endpoint"] = others.pop("endpoint_url")
    if "token" in others:
        storage |= _token(others.pop("token"))
    if pays := others.pop("requester_pays", None):
        storage["user_project"] = project if pays is True else pays
        if not isinstance(storage["user_project"], str):
            raise ValueError("gs://: requester_pays without a project that pays")
    for name in _CLIENT_OPTIONS & others.keys():
        if name in storage:
            raise ValueError(f"gs://: {name} is given twice, by gcsfs's name too")
        storage[name] = others.pop(name)
    return storage, others


def refuse_options(options: Mapping[str, Any]) -> None:
    """What the filesystem is given, by others as their storage_options, and does not understand."""
    for name in sorted(options.keys() - OPTIONS):
        known = sorted(_CLIENT_OPTIONS | {"endpoint_url", "requester_pays", "token"})
        near = difflib.get_close_matches(name, known, 1)
        meant = f"; did you mean {near[0]}?" if near else f": it has {', '.join(known)}"
        raise TypeError(f"gs://: GCSFileSystem has no argument {name} (also given as storage_options){meant}")


def refuse(method: str, path: Any, options: Mapping[str, Any], *known: str) -> None:
    """What is not understood would be ignored, and the caller believe that it was done."""
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise TypeError(f"{path}: {method} has no argument {', '.join(unknown)} here")


def condition(mode: str) -> int | None:
    if mode not in ("create", "overwrite"):
        raise ValueError(f'mode is "create" or "overwrite", not {mode!r}')
    return 0 if mode == "create" else None
