"""Signed URLs: whoever has one may do one thing with one object for a time (Cloud Storage, "V4 signing process with
your own program"). Made by the key of a service account; nobody is asked."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import urllib.parse
from collections.abc import Mapping
from typing import Any, NamedTuple

from ringest import _core, _uri

_ALGORITHM = "GOOG4-RSA-SHA256"
# The service's longest, a week.
_EXPIRES_MAX = 7 * 24 * 3600
_NAME_MAX = 1024
_METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE")
_DEFAULT = "https://storage.googleapis.com"


class Key(NamedTuple):
    """Of a service account."""

    email: str
    pem: str


def _file_of(credentials: str | None) -> str:
    if credentials not in (None, "default"):
        return str(credentials)
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.join(os.path.expanduser("~"), ".config", "gcloud")
    return os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or os.path.join(
        folder, "application_default_credentials.json"
    )


def find_key(credentials: str | None) -> Key:
    """The key in the file that the client has its tokens from."""
    remedy = "sign_url needs the key of a service account: Client(credentials=FILE), or GOOGLE_APPLICATION_CREDENTIALS"
    if credentials == "anonymous":
        raise ValueError(f"credentials is 'anonymous'; {remedy}")
    path = _file_of(credentials)
    try:
        with open(path, "rb") as file:
            found = json.load(file)
    except OSError as error:
        raise type(error)(error.errno, f"{error.strerror}; {remedy}", path) from None
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}; {remedy}") from None
    kind = found.get("type") if isinstance(found, dict) else None
    email, pem = (found.get(name) for name in ("client_email", "private_key")) if kind is not None else (None, None)
    if kind != "service_account" or not isinstance(email, str) or not isinstance(pem, str):
        raise ValueError(f"{path} has credentials of type {kind!r}; {remedy}")
    return Key(email, pem)


def _quote(text: str, safe: str = "") -> str:
    return urllib.parse.quote(text, safe=safe)


def _check_name(uri: str, name: str) -> None:
    """Of names that no object has some would be taken for another path by whoever follows the URL."""
    if name in (".", "..") or re.search(r"[\r\n\0]", name) or len(name.encode()) > _NAME_MAX:
        raise ValueError(
            f"{uri[:80]!r}: no object has this name; names have 1 to {_NAME_MAX:,} bytes of UTF-8 without line breaks, and "
            "are not '.' or '..'"
        )


def _place(endpoint: str | None) -> tuple[str, str]:
    """Scheme and host as clients send them: the host is signed, and they leave a scheme's own port out of it."""
    text = endpoint or os.environ.get("STORAGE_EMULATOR_HOST") or _DEFAULT
    place = urllib.parse.urlsplit(text if "://" in text else f"http://{text}")
    return place.scheme, place.netloc.lower().removesuffix({"http": ":80", "https": ":443"}.get(place.scheme, ":"))


def _seconds(expires: float | datetime.timedelta) -> int:
    seconds = expires.total_seconds() if isinstance(expires, datetime.timedelta) else expires
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"expires must be a number of seconds, got {expires!r}")
    if not 1 <= seconds <= _EXPIRES_MAX:
        raise ValueError(f"expires must be 1 to {_EXPIRES_MAX} seconds (a week), got {expires}")
    return int(seconds)


def _fields(headers: Mapping[str, str], host: str) -> dict[str, str]:
    """As they are signed: names in small letters, sorted, and each run of spaces one space."""
    fields = {name.lower(): re.sub(r"\s+", " ", value).strip() for name, value in headers.items()}
    return dict(sorted({**fields, "host": host}.items()))


def sign_url(
    key: Key,
    uri: str,
    *,
    endpoint: str | None,
    method: str,
    expires: float | datetime.timedelta,
    headers: Mapping[str, str],
    query: Mapping[str, str],
    now: datetime.datetime,
) -> str:
    bucket, name = _uri.split(uri)
    _check_name(uri, name)
    if method not in _METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, _METHODS))}, got {method!r}")
    scheme, host = _place(endpoint)
    fields = _fields(headers, host)
    signed = ";".join(fields)
    time, scope = now.strftime("%Y%m%dT%H%M%SZ"), f"{now:%Y%m%d}/auto/storage/goog4_request"
    parameters: dict[str, Any] = {
        **query,
        "X-Goog-Algorithm": _ALGORITHM,
        "X-Goog-Credential": f"{key.email}/{scope}",
        "X-Goog-Date": time,
        "X-Goog-Expires": str(_seconds(expires)),
        "X-Goog-SignedHeaders": signed,
    }
    pairs = sorted((_quote(parameter), _quote(value)) for parameter, value in parameters.items())
    text = "&".join(f"{parameter}={value}" for parameter, value in pairs)
    path = f"/{bucket}/{_quote(name, '/')}" if name else f"/{bucket}"
    lines = "".join(f"{field}:{value}\n" for field, value in fields.items())
    payload = fields.get("x-goog-content-sha256", "UNSIGNED-PAYLOAD")
    request = "\n".join((method, path, text, lines, signed, payload))
    digest = hashlib.sha256(request.encode()).hexdigest()
    signature = _core._rsa_sha256_sign(key.pem, "\n".join((_ALGORITHM, time, scope, digest)).encode())
    return f"{scheme}://{host}{path}?{text}&X-Goog-Signature={signature.hex()}"
