"""Runs clients, each in a process of its own, round after round.

The first round tries each number of requests in flight, the others the one that cost the client least. Every second round
goes the other way round, so that no client is always next to the same."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ringest
from ringest.bench import leftovers, peers
from ringest.bench.measure import SIGNIFICANT_DIGITS
from ringest.bench.peers.data import Data, Place
from ringest.bench.peers.work import Peer, Way
from ringest.bench.result import LACKING, Latency, Phase, Round, Row

# What would send a client elsewhere, or tell it who we are.
FOREIGN_PREFIXES = ("RINGEST_", "STORAGE_EMULATOR_HOST", "GOOGLE_", "CLOUDSDK_", "AWS_", "TENSORSTORE_")
FOREIGN = ("service_account", "http_proxy", "https_proxy", "all_proxy")
# Of a client that cannot do what is asked for.
NO_WAY = Way("")
# Where nobody listens.
NOWHERE = "127.0.0.1:1"


@dataclass(frozen=True)
class How:
    """How long and how wide: `limit` is what a process may take beyond the time that it measures, in seconds; `cpus` are
    those that a client runs on, any where it is None."""

    concurrency: tuple[int, ...]
    seconds: float
    warm_up: float
    rounds: int
    limit: float
    cpus: list[int] | None


@dataclass
class Cell:
    """A way to use a client, in one workload. `name` is how the user called the client."""

    name: str
    peer: Peer
    way: Way
    verb: str
    label: str  # of the size; none of a listing
    size: int
    rounds: list[tuple[int, Round]] = field(default_factory=list)
    error: str | None = None
    is_partial: bool = False  # the run was interrupted before it had all its measurements

    @property
    def is_measured(self) -> bool:
        return bool(self.rounds) and (self.error is None or self.is_partial)

    @property
    def is_lacking(self) -> bool:
        return self.error is not None and self.error.startswith(LACKING)

    @property
    def workload(self) -> str:
        return f"{self.verb}-{self.label}" if self.label else self.verb

    @property
    def client(self) -> str:
        return f"{self.peer.name} {self.way.name}".strip()

    def best(self) -> int:
        return min(self.rounds, key=lambda each: cost(each[1]))[0]


def cost(measured: Round) -> float:
    """CPU seconds of an operation."""
    return (measured.cpu_seconds or 0) / measured.operations


def environment(place: Place, home: str) -> dict[str, str]:
    """Of a client. Where there is an endpoint, nothing sends it elsewhere, and it finds no credentials."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(ringest.__file__)))
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    if place.endpoint is None:
        return {**os.environ, "PYTHONPATH": path}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN_PREFIXES) and k.lower() not in FOREIGN}
    trusted = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if place.ca else ()
    return {
        **kept,
        **{name: place.ca for name in trusted if place.ca},
        "PYTHONPATH": path,
        "HOME": home,
        "NO_PROXY": "*",
        # Addresses of a cloud's metadata.
        "NO_GCE_CHECK": "true",
        "GCE_METADATA_HOST": NOWHERE,
        "GCE_METADATA_IP": NOWHERE,
        "GCE_METADATA_ROOT": NOWHERE,
        "AWS_EC2_METADATA_DISABLED": "true",
        # gcsfs: no calls by gRPC, and no stat before each get.
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        "DEFAULT_GCSFS_CONCURRENCY": "1",
    }


def _end(process: subprocess.Popen[str]) -> None:
    """And what it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def run(cell: Cell, work: dict[str, Any], place: Place, how: How) -> dict[str, Any]:
    """What the client's process prints, or {"error"}."""
    name = os.path.abspath(cell.name) if cell.name.endswith(".py") else cell.name
    command = [sys.executable, "-m", "ringest.bench.peers", name, cell.way.name, cell.verb]
    limit = how.warm_up + how.seconds + how.limit
    told = {"work": work, "cpus": how.cpus, "parent": os.getpid()}
    with tempfile.TemporaryDirectory(prefix=leftovers.temporary_prefix()) as home:
        process = subprocess.Popen(
            command,
            env=environment(place, home),
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            out, err = process.communicate(json.dumps(told), timeout=limit)
        except subprocess.TimeoutExpired:
            return {"error": f"was not done after {limit:g} s (--limit)"}
        finally:
            _end(process)
    lines = out.strip().splitlines()
    if process.returncode or not lines:
        said = (err.strip().splitlines() or [""])[-1]
        return {"error": said[: peers.ERROR_CHARACTERS] or f"its process ended with {process.returncode}"}
    return json.loads(lines[-1])


def _latency(told: dict[str, Any] | None) -> Latency | None:
    if told is None:
        return None
    return Latency([(bound, count) for bound, count in told["counts"]], "ns", SIGNIFICANT_DIGITS, told["max"], "sent")


def _round(told: dict[str, Any], cell: Cell, how: How) -> Round:
    return Round(
        seconds=told["seconds"],
        operations=told["operations"],
        bytes=told["operations"] * cell.size,
        cpu_user_seconds=told["cpu_user"],
        cpu_system_seconds=told["cpu_system"],
        peak_rss_bytes=told["peak_rss"],
        time_to_first_seconds=told["first_seconds"],
        latency=_latency(told["latencies"]),
        phases=[Phase("warm-up", how.warm_up), Phase("measured", told["seconds"], told["operations"])],
        metrics={"rss_growth_bytes": told["growth"]},
    )


def measure(cell: Cell, concurrency: int, data: Data, how: How) -> Round | str:
    """One round, or why there is none."""
    work = {
        "bucket": data.bucket,
        "size": cell.size,
        "concurrency": concurrency,
        "seconds": how.seconds,
        "warm_up": how.warm_up,
        "endpoint": data.place.endpoint,
        "ca": data.place.ca,
    }
    with data.of(cell.verb, cell.label, cell.size, cell.peer.name == peers.OURS) as what:
        told = run(cell, {**work, **what.fields}, data.place, how)
        if "error" in told:
            return str(told["error"])
        wrong = what.wrong(told)
    return wrong or _round(told, cell, how)


def measure_all(cells: list[Cell], data: Data, how: How, say: Callable[[str], None]) -> None:
    for number in range(how.rounds):
        if number:
            cells = [cell for cell in reversed(cells) if cell.rounds]
        trials = [
            (cell, concurrency)
            for cell in cells
            if cell.error is None
            for concurrency in ([cell.best()] if number else cell.way.concurrency or how.concurrency)
        ]
        for done, (cell, concurrency) in enumerate(trials, 1):
            say(f"round {number + 1}/{how.rounds} [{done}/{len(trials)}] {cell.workload}: {cell.client}, {concurrency}")
            found = measure(cell, concurrency, data, how)
            if isinstance(found, Round):
                cell.rounds.append((concurrency, found))
            else:
                cell.error = f"{found} (with {concurrency} requests in flight)"


def row(cell: Cell, verify: bool) -> Row:
    """Its rounds with the number of requests in flight that suits it best. A round that failed is an error of all."""
    parameters: dict[str, Any] = {"verb": cell.verb}
    if verify:
        parameters["verify"] = True
    if cell.label:
        parameters["object_size"] = cell.size
    if not cell.rounds:
        return Row(cell.workload, cell.client, parameters, cell.error)
    best = cell.best()
    rounds = [measured for concurrency, measured in cell.rounds if concurrency == best]
    return Row(cell.workload, cell.client, {**parameters, "concurrency": best}, cell.error, rounds)


def cells_of(names: list[str], verbs: list[str], sizes: dict[str, int]) -> Iterator[Cell]:
    """In the order of the table. A name may be NAME:WAY. A client that can do nothing of it has rows that say so."""
    found = []
    for name in names:
        whose, _, way_name = name.partition(":")
        peer = peers.find(whose)
        ways = [way for way in peer.ways if way_name in ("", way.name)]
        if not ways:
            raise peers.PeerError(f"{whose} has no way {way_name}; it has {', '.join(way.name for way in peer.ways)}")
        found += [(whose, peer, way) for way in ways]
    able = {whose for whose, peer, way in found if peer.unable or any(getattr(way, verb) for verb in verbs)}
    lacking = {whose: peer for whose, peer, _ in found if whose not in able}
    for verb in verbs:
        for label, size in sizes.items() if verb != "list" else [("", 0)]:
            for whose, peer, way in found:
                if peer.unable or getattr(way, verb) is not None:
                    yield Cell(whose, peer, way, verb, label, size, error=unable(peer, verb) or absent(peer, way))
            for whose, peer in lacking.items():
                yield Cell(whose, peer, NO_WAY, verb, label, size, error=f"{LACKING}{verb}")


def unable(peer: Peer, work: str) -> str | None:
    return f"{LACKING}{work}: it {peer.unable}" if peer.unable else None


def absent(peer: Peer, way: Way) -> str | None:
    lacking = peers.missing(peer, way)
    if not lacking:
        return None
    pins = peers.pins()
    return f"{' and '.join(lacking)} not installed: pip install {' '.join(pins.get(each, each) for each in lacking)}"
