"""The exceptions of requests. Each names the object, the status and the cause."""

from __future__ import annotations

import base64
from typing import Any


class Error(OSError):
    """A request that failed.

    uri: the object. status: the name of the status in <ringest/error.h>, such as
    "NOT_FOUND". http_status: of the server's last answer, 0 without one. os_error: errno of the
    system call that failed, 0 without one. detail: the cause, for people.
    """

    def __init__(
        self,
        uri: str,
        status: str | None = None,
        text: str = "",
        http_status: int = 0,
        os_error: int = 0,
        detail: str | None = None,
    ):
        if status is None:
            # A DataLoader makes what a worker raised anew, of the class and a text.
            uri, status, detail = "", "UNEXPECTED", uri
        told = detail or text
        super().__init__(os_error or None, told if uri in told else f"{uri}: {told}")
        self.uri = uri
        self.status = status
        self.http_status = http_status
        self.os_error = os_error
        self.detail = detail or text
        self._arguments = (uri, status, text, http_status, os_error, detail)

    def __str__(self) -> str:
        return self.detail if self.uri in self.detail else f"{self.uri}: {self.detail}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Workers of a DataLoader send their exceptions to the parent by pickle.
        return type(self), self._arguments


class NotFoundError(Error, FileNotFoundError):
    """No such object or bucket, or not that generation of it."""


class PermissionDeniedError(Error, PermissionError):
    """Credentials are missing, not valid, or do not allow this."""


class PreconditionError(Error):
    """A condition of the request failed: the object was changed, or exists already."""


class ChecksumError(Error):
    """In every attempt, the bytes differed from the CRC32C of the object."""


class UnavailableError(Error, ConnectionError):
    """In every attempt, the server could not be reached or failed."""


class ListError(RuntimeError):
    """Ranks or workers of a job have no list of objects in common, so that nothing is read."""


class GroupError(RuntimeError):
    """Ranks of a process group did not load together: one of them failed, or was lost. None has anything of it."""

    __module__ = "ringest.checkpoint"


class CheckpointError(ValueError):
    """An object is not a checkpoint, or is damaged, or is another one than expected. The text names it, the cause and
    the remedy."""

    __module__ = "ringest.checkpoint"


class SafetensorError(ValueError):
    """What is there is no safetensors file, or has not what was asked for; the message names it."""

    __module__ = "ringest.safetensors"


def crc32c_text(crc32c: int) -> str:
    """As the service and its tools write it."""
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def checksum_error(uri: str, detail: str) -> ChecksumError:
    """For what was found out here."""
    return ChecksumError(uri, "CHECKSUM", "checksum", 0, 0, f"{uri}: {detail}")


def check_crc32c(uri: str, generation: int, size: int, wanted: int | None, found: int) -> None:
    """ChecksumError unless the bytes of a generation that came have the CRC32C that the server tells."""
    if wanted is None:
        detail = f"of {size} bytes could not be compared with its CRC32C: the server does not tell it"
        raise checksum_error(uri, f"generation {generation} {detail}")
    if found != wanted:
        detail = f"{crc32c_text(wanted)}, but bytes 0 to {size - 1} that came have {crc32c_text(found)}"
        raise checksum_error(uri, f"generation {generation} has the CRC32C {detail}")


def is_gzip(head: Any) -> bool:
    """By the bytes with which such a file begins (RFC 1952, 2.3.1)."""
    return bytes(head[:3]) == b"\x1f\x8b\x08"


def gzip_told(uri: str) -> str:
    """What to do with what was to be loaded and is compressed."""
    return (
        "is compressed with gzip, as what is uploaded with Content-Encoding: gzip, and is read as it is stored; unpack it "
        f"into another object and load that: ringest cat {uri} | gunzip | ringest cp - gs://BUCKET/ANOTHER"
    )


_CLASSES = {
    "NOT_FOUND": NotFoundError,
    "PERMISSION": PermissionDeniedError,
    "UNAUTHENTICATED": PermissionDeniedError,
    "CREDENTIALS": PermissionDeniedError,
    "PRECONDITION": PreconditionError,
    "CHECKSUM": ChecksumError,
    "RESOLVE": UnavailableError,
    "CONNECT": UnavailableError,
    "CONNECTION_LOST": UnavailableError,
    "STALLED": UnavailableError,
    "TRUNCATED": UnavailableError,
    "THROTTLED": UnavailableError,
    "SERVER": UnavailableError,
}


def make(uri: str, status: str, text: str, http_status: int, os_error: int, detail: str | None) -> Error:
    """Called by the extension."""
    return _CLASSES.get(status, Error)(uri, status, text, http_status, os_error, detail)


def error_tell(error: BaseException) -> dict[str, Any]:
    """An exception as JSON, for other ranks: what they get of each other is not unpickled."""
    arguments = error._arguments if isinstance(error, Error) else [str(error)]
    return {"type": type(error).__name__, "arguments": arguments}


_TOLD = (CheckpointError, Error, GroupError, ListError, MemoryError, OSError, SafetensorError, ValueError)
_KINDS: dict[str, type[Exception]] = {kind.__name__: kind for kind in (*_CLASSES.values(), *_TOLD)}


def error_told(told: dict[str, Any], otherwise: type[Exception]) -> Exception:
    """As nearly that exception as can be told; `otherwise` where there is none of its type."""
    kind = _KINDS.get(told["type"])
    if kind is not None:
        return kind(*told["arguments"])
    return otherwise(f"{told['type']}: {told['arguments'][0]}")
