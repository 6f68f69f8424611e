"""The document that a benchmark writes and a report reads: JSON, one file a run.

`read` refuses what is no such document with the file and the field at fault. Unknown fields are ignored, so that a later
version may add some, and a missing one is null. `write` replaces the file at once or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import functools
import itertools
import json
import math
import os
import sys
import tempfile
import types
import typing
from dataclasses import dataclass, field
from typing import Any

FORMAT = "ringest-bench/1"
_FAMILY = FORMAT.partition("/")[0] + "/"
# How the error of a row begins that Ctrl-C or a signal left without all its measurements.
INTERRUPTED = "interrupted"
# A metric of a round: bytes that were asked for and came when its time was over, so that no operation has them.
UNUSED_BYTES = "bytes_unused"
# How the error of a row begins of a client that was not made for what was asked for: it has not failed.
LACKING = "has no way to "
# Of a file to read; a run of an hour with a series and a histogram for each round has some MiB.
MAX_FILE_BYTES = 256 << 20
# Of one histogram: three significant digits from 1 ns to an hour are some 50,000 buckets.
MAX_BUCKETS = 1_000_000


class ResultError(ValueError):
    """A file that is no result, with its name and the field at fault."""


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Machine:
    """Where it was measured; `cpus` are those that the run could use."""

    cpu: str | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    kernel: str | None = None
    hypervisor: str | None = None


@dataclass(frozen=True)
class Latency:
    """A histogram. `counts` are (upper bound, how many were at most that and more than the bound before), ascending;
    a latency counts `from` when its request was due ("scheduled") or from when it was sent ("sent")."""

    counts: list[tuple[int, int]]
    unit: str = "ns"
    significant_digits: int | None = None
    max: int | None = None
    origin: str | None = field(default=None, metadata={"name": "from"})

    def check(self) -> typing.Iterator[tuple[str, str]]:
        if self.unit != "ns":
            yield "unit", f'is "{self.unit}", must be "ns"'
        if self.origin not in (None, "scheduled", "sent"):
            yield "from", f'is "{self.origin}", must be "scheduled" or "sent"'
        if len(self.counts) > MAX_BUCKETS:
            yield "counts", f"has {len(self.counts):,} buckets, at most {MAX_BUCKETS:,} are read"
        bounds = [bound for bound, _ in self.counts]
        for i, (before, after) in enumerate(itertools.pairwise(bounds), 1):
            if after <= before:
                yield f"counts[{i}]", f"has the bound {after:,} after {before:,}; they must ascend"
                return

    @property
    def total(self) -> int:
        return sum(count for _, count in self.counts)


@dataclass(frozen=True)
class Point:
    """What happened in the time up to `at_seconds`, since the point before; a round's series is of such."""

    at_seconds: float
    operations: int | None = None
    bytes: int | None = None
    p50_ns: float | None = None
    p99_ns: float | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True)
class Phase:
    """A part of a round: "warm-up", "measured", "epoch 2", "save"."""

    name: str
    seconds: float
    operations: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Round:
    """One measurement. An operation is what the workload counts: an object read or written, a page listed, a step. CPU
    time is the client's, all its processes together, while it measured."""

    seconds: float
    operations: int
    errors: int = 0
    bytes: int | None = None
    requests: int | None = None
    wire_received_bytes: int | None = None
    wire_sent_bytes: int | None = None
    cpu_user_seconds: float | None = None
    cpu_system_seconds: float | None = None
    peak_rss_bytes: int | None = None
    time_to_first_seconds: float | None = None
    latency: Latency | None = None
    series: list[Point] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)

    def check(self) -> typing.Iterator[tuple[str, str]]:
        for i, (before, after) in enumerate(itertools.pairwise(self.series), 1):
            if after.at_seconds < before.at_seconds:
                yield f"series[{i}].at_seconds", f"is {after.at_seconds:g} after {before.at_seconds:g}; must ascend"
                return

    @property
    def cpu_seconds(self) -> float | None:
        if self.cpu_user_seconds is None or self.cpu_system_seconds is None:
            return None
        return self.cpu_user_seconds + self.cpu_system_seconds


@dataclass(frozen=True)
class Row:
    """One client with one workload and one set of parameters; `error` is why it did not run, or did not end."""

    workload: str
    client: str
    parameters: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    rounds: list[Round] = field(default_factory=list)

    def check(self) -> typing.Iterator[tuple[str, str]]:
        if self.error is None and not self.rounds:
            yield "rounds", 'is empty; a row without rounds says why in "error"'

    @property
    def is_interrupted(self) -> bool:
        return self.error is not None and self.error.startswith(INTERRUPTED)

    @property
    def is_lacking(self) -> bool:
        return self.error is not None and self.error.startswith(LACKING)


@dataclass(frozen=True)
class Document:
    rows: list[Row]
    machine: Machine = field(default_factory=Machine)
    versions: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    endpoint: str | None = None
    server: str | None = None  # what it is, where the run has started it
    made: str = field(default_factory=_now)
    format: str = FORMAT

    def check(self) -> typing.Iterator[tuple[str, str]]:
        try:
            datetime.datetime.fromisoformat(self.made)
        except ValueError:
            yield "made", f'is "{self.made}", must be a time such as "{_now()}"'


_NAMES: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    dict: "an object",
    list: "a list",
    tuple: "a pair",
}


class _Wrong(Exception):
    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}" if path else what)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _expect(kind: Any, value: Any, path: str) -> None:
    wanted = (int, float) if kind is float else list if kind is tuple else kind
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise _Wrong(path, f"must be {_NAMES[kind]}, is {_shown(value)}")


def _number(kind: Any, value: Any, path: str, *, lowest: float = 0) -> Any:
    _expect(kind, value, path)
    # A whole number of hundreds of digits has no place among floats.
    with contextlib.suppress(OverflowError):
        as_float = float(value)
        if value < lowest:
            raise _Wrong(path, f"must not be negative, is {value}")
        if math.isfinite(as_float):
            return as_float if kind is float else value
    raise _Wrong(path, "is too large a number")


def _parsed(wanted: Any, value: Any, path: str) -> Any:
    """`value`, as JSON has it, as the type `wanted`."""
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is types.UnionType:
        return None if value is None else _parsed(inner[0], value, path)
    if wanted is Any:
        return value
    if wanted in (int, float):
        return _number(wanted, value, path)
    if dataclasses.is_dataclass(wanted):
        return _object(wanted, value, path)
    _expect(origin or wanted, value, path)
    if origin is list:
        return [_parsed(inner[0], each, f"{path}[{i}]") for i, each in enumerate(value)]
    if origin is tuple:
        if len(value) != len(inner):
            raise _Wrong(path, f"must have {len(inner)} members, has {len(value)}")
        return tuple(_parsed(kind, each, f"{path}[{i}]") for i, (kind, each) in enumerate(zip(inner, value)))
    if origin is dict:
        named = {name: (each, f"{path}[{_shown(name)}]") for name, each in value.items()}
        if inner[1] is float:  # metrics, of which some are differences
            return {name: _number(float, *each, lowest=-math.inf) for name, each in named.items()}
        return {name: _parsed(inner[1], *each) for name, each in named.items()}
    return value


def _is_required(each: dataclasses.Field[Any]) -> bool:
    return each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING


# It compiles each annotation, and a series has thousands of points.
_hints_of = functools.cache(typing.get_type_hints)


def _object(kind: Any, value: Any, path: str) -> Any:
    _expect(dict, value, path)
    hints, found = _hints_of(kind), {}
    for each in dataclasses.fields(kind):
        name = each.metadata.get("name", each.name)
        here = f"{path}.{name}" if path else name
        if value.get(name) is not None:
            found[each.name] = _parsed(hints[each.name], value[name], here)
        elif _is_required(each):
            raise _Wrong(here, "is missing")
    made = kind(**found)
    for name, what in made.check() if hasattr(made, "check") else ():
        raise _Wrong(f"{path}.{name}" if path else name, what)
    return made


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _expect_format(found: Any) -> None:
    if found == FORMAT:
        return
    is_ours = isinstance(found, str) and found.startswith(_FAMILY)
    hint = "another version of this program wrote it" if is_ours else "is it a file of this program?"
    raise _Wrong("format", f'must be "{FORMAT}", is {_shown(found)}; {hint}')


def parse(text: str | bytes, name: str = "the result") -> Document:
    """Of the text of a file `name`."""
    if not text or text.isspace():
        raise ResultError(f"{name}: is empty; did the benchmark end before it wrote it?")
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        _expect(dict, value, "")
        _expect_format(value.get("format"))
        return _object(Document, value, "")
    except _Wrong as error:
        raise ResultError(f"{name}: {error}") from None
    except RecursionError:
        raise ResultError(f"{name}: not JSON of a benchmark: nested too deeply") from None
    except ValueError as error:
        raise ResultError(f"{name}: not JSON: {error}; was it written to its end?") from None


def read(path: str) -> Document:
    """Of a file; "-" is standard input."""
    if path == "-":
        text, name = sys.stdin.buffer.read(MAX_FILE_BYTES + 1), "standard input"
    else:
        try:
            with open(path, "rb") as file:
                text, name = file.read(MAX_FILE_BYTES + 1), path
        except OSError as error:
            raise ResultError(f"{path}: cannot be read: {error.strerror}") from None
    if len(text) > MAX_FILE_BYTES:
        raise ResultError(f"{name}: is larger than {MAX_FILE_BYTES >> 20} MiB, which no result is")
    return parse(text, name)


def _plain(value: Any) -> Any:
    """As JSON has it, by the names in the file."""
    if dataclasses.is_dataclass(value):
        named = {each.metadata.get("name", each.name): getattr(value, each.name) for each in dataclasses.fields(value)}
        return {name: _plain(each) for name, each in named.items()}
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


def to_json(document: Document) -> str:
    """What `parse` would refuse is refused here, too: nothing is written that cannot be read."""
    plain = {"format": document.format, **_plain(document)}
    text = json.dumps(plain, indent=1, allow_nan=False) + "\n"
    parse(text, "the result to be written")
    return text


def _stream(path: str) -> int | None:
    """The standard stream to which a link leads, as /dev/stdout does. Where that is a file, the link would be lost for all
    programs if it were replaced."""
    for number in (1, 2) if os.path.islink(path) else ():
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(path), os.fstat(number)):
                return number
    return None


def _is_replaced(path: str) -> bool:
    return _stream(path) is None and (not os.path.exists(path) or os.path.isfile(path))


def write_text(path: str, text: str) -> None:
    """Replaces the file at once: who reads it meanwhile sees the old one or the new one. What is no file, such as
    /dev/null, is written to."""
    if path == "-":
        sys.stdout.write(text)
        return
    folder = os.path.dirname(os.path.abspath(path))
    try:
        if not _is_replaced(path):
            sys.stdout.flush()
            sys.stderr.flush()
            stream = _stream(path)
            # A stream by its own descriptor: it goes on behind what was written.
            with open(path if stream is None else stream, "w", encoding="utf-8", closefd=stream is None) as file:
                file.write(text)
            return
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, prefix=".ringest-", delete=False) as file:
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                mask = os.umask(0)
                os.umask(mask)
                os.fchmod(file.fileno(), 0o666 & ~mask)
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise ResultError(f"{path}: cannot be written: {error.strerror}") from None


def check_place(path: str) -> None:
    """Before anything is measured: whether a file can be written there."""
    if path == "-":
        return
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not _is_replaced(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(os.path.abspath(path)), prefix=".ringest-"):
            pass
    except OSError as error:
        raise ResultError(f"{path}: cannot be written: {error.strerror}") from None


def write(document: Document, path: str) -> None:
    """ "-" is standard output."""
    write_text(path, to_json(document))
