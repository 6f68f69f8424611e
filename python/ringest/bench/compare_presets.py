"""`ringest bench compare --preset NAME`: the training loop of a preset, with the loaders of others beside ringest.

The data are made once. Each client runs the preset's ranks, round after round, in an environment that sends it nowhere else;
every second round goes the other way round. A client that fails is a row that says why, and the others go on."""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ringest
from ringest.bench import emulator, figures, leftovers, peers, presets, run
from ringest.bench.adapter import Ringest
from ringest.bench.folder import Folder, connect
from ringest.bench.peers.data import Place
from ringest.bench.peers.loaders import Loader
from ringest.bench.peers.measuring import NO_WAY, absent, environment, unable
from ringest.bench.peers.work import Peer, Way
from ringest.bench.presets import Preset
from ringest.bench.ranks import Job, RankError, Ranks
from ringest.bench.result import INTERRUPTED, LACKING, Round, Row

KIND = "train"
# ringest's own reads, without a loader of PyTorch.
OURS = Way("get_many")
Say = Callable[[str], None]
WORK = "load what presets ask for"


@dataclass
class Entry:
    """A client with its way, and what it has measured."""

    name: str  # as the user called it
    peer: Peer
    way: Way
    rounds: list[Round] = field(default_factory=list)
    error: str | None = None
    is_partial: bool = False

    @property
    def client(self) -> str:
        return f"{self.peer.name} {self.way.name}".strip()

    def settings(self, place: Place, bucket: str, sizes: dict[str, int]) -> dict[str, Any]:
        if self.way is OURS:
            return {"endpoint": place.endpoint, "ca": place.ca}
        name = os.path.abspath(self.name) if self.name.endswith(".py") else self.name
        work = {"bucket": bucket, "endpoint": place.endpoint, "ca": place.ca}
        return {"peer": name, "way": self.way.name, "work": work, "sizes": sizes}


def load(name: str, scale: float, ranks: int) -> Preset:
    preset = presets.load(name)
    if preset.kind != KIND or preset.work.sample_size:
        raise peers.PeerError(
            f"--preset {name}: others' loaders read whole objects for a training loop: a preset of kind {KIND} without sample_size"
        )
    return preset.scaled(scale, ranks)


def entries_of(names: Sequence[str]) -> list[Entry]:
    found = []
    for each in names:
        name, _, way_name = each.partition(":")
        peer = peers.find(name)
        ways = [*([OURS] if peer.name == peers.OURS else []), *(way for way in peer.ways if way.dataset)]
        wanted = [way for way in ways if way_name in ("", way.name)]
        if peer.unable:
            found.append(Entry(name, peer, NO_WAY, error=unable(peer, WORK)))
        elif way_name and not wanted:
            raise peers.PeerError(
                f"{name} has no loader {way_name}; it has {', '.join(way.name for way in ways) or 'none'}"
            )
        elif not wanted:
            found.append(Entry(name, peer, NO_WAY, error=f"{LACKING}{WORK}"))
        else:
            found += [Entry(name, peer, way, error=absent(peer, way) if way is not OURS else None) for way in wanted]
    return found


@contextlib.contextmanager
def _as_client(place: Place, cpus: list[int] | None) -> Iterator[None]:
    """What is started within it has the environment and the CPUs of a client."""
    before, allowed = dict(os.environ), os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory(prefix=leftovers.temporary_prefix()) as home:
        try:
            os.environ.clear()
            os.environ.update(environment(place, home))
            os.sched_setaffinity(0, cpus or allowed)
            yield
        finally:
            os.sched_setaffinity(0, allowed)
            os.environ.clear()
            os.environ.update(before)


@dataclass(frozen=True)
class Comparison:
    """What all clients have in common. cpus: the emulator's, and the clients'."""

    preset: Preset
    options: argparse.Namespace
    cpus: tuple[list[int] | None, list[int] | None]
    say: Say
    said: list[str]  # what is to be told at the end is added

    def run(self, entries: list[Entry], places: list[Place]) -> None:
        """Adds rounds to the entries, and the place as soon as it is known."""
        where = f"gs://{emulator.BUCKET}/" if self.options.emulate else self.options.uri
        with contextlib.ExitStack() as stack:
            idle = stack.enter_context(contextlib.closing(connect(self.options.endpoint)))
            made = Folder(idle, where, "the place of the objects")
            place = stack.enter_context(self._place(made))
            places.append(place)
            client = stack.enter_context(contextlib.closing(connect(place.endpoint, place.ca)))
            made.use(client)
            if not self.options.emulate:
                self.said.extend(leftovers.warnings(client, made.place))
            try:
                self._fill(made)
                self._measure(entries, client, made, place)
            finally:
                if not self.options.emulate:
                    self.said.extend(self._remove(made))

    @contextlib.contextmanager
    def _place(self, made: Folder) -> Iterator[Place]:
        if not self.options.emulate:
            yield Place.given(self.options.endpoint, self.options.ca)
            return
        at = made.data.removeprefix("gs://")
        sets = [f"{at}{each.prefix}:{each.count}:{each.size}" for each in self.preset.data.groups()]
        server, _ = self.cpus
        with emulator.running(sets, threads=len(server or [0]), cpus=server) as (endpoint, ca):
            yield Place(endpoint.replace("//localhost", "//127.0.0.1"), ca)

    def _fill(self, made: Folder) -> None:
        if self.options.emulate:
            return
        made.claim()
        made.fill(self.preset.data, lambda done, total: self.say(f"making the data: {done:,} of {total:,} objects"))

    def _remove(self, made: Folder) -> list[str]:
        self.say("removing what it made")
        try:
            left = made.remove()
        except KeyboardInterrupt:
            left = f"interrupted: {made.uri} is left; `ringest rm -r` removes it"
        return [left] if left else []

    def _measure(self, entries: list[Entry], client: ringest.Client, made: Folder, place: Place) -> None:
        bucket = made.uri.split("/")[2]
        details, _ = client._list_details(made.data)
        crcs = {f"gs://{bucket}/{each[0]}": each[3] for each in details if each[3] is not None}
        sizes = {f"gs://{bucket}/{each[0]}": each[1] for each in details}
        for number in range(self.options.rounds):
            for entry in entries if number % 2 == 0 else reversed(entries):
                if entry.error is None:
                    self.say(f"round {number + 1}/{self.options.rounds}: {entry.client}")
                    self._round(entry, self._job(entry, made, entry.settings(place, bucket, sizes), crcs), place)

    def _job(self, entry: Entry, made: Folder, settings: dict[str, Any], crcs: dict[str, int]) -> Job:
        return Job(
            preset=self.preset,
            objects=None,
            prefix=made.data,
            folder=made.uri,
            is_ours=True,
            settings=settings,
            ranks=self.options.ranks,
            rounds=1,
            seconds=self.options.seconds,
            warm_up=self.options.warm_up,
            make=Ringest if entry.way is OURS else Loader,
            crcs=crcs,
            verify=self.options.verify and entry.peer.name != peers.OURS,
            limit=self.options.limit,
        )

    def _round(self, entry: Entry, job: Job, place: Place) -> None:
        with _as_client(place, self.cpus[1]):
            running = Ranks(job, [None])
        try:
            entry.rounds += running.rounds(lambda number, phase, done: None)
        except RankError as error:
            text = str(error).strip().splitlines()[-1]
            entry.error = text[: peers.ERROR_CHARACTERS]
        finally:
            running.close()


def row(entry: Entry, preset: Preset, options: argparse.Namespace) -> Row:
    parameters = {**preset.parameters(), "ranks": options.ranks, "warm_up_seconds": options.warm_up}
    if options.seconds is not None:
        parameters["seconds"] = options.seconds
    if options.verify:
        parameters["verify"] = True
    return Row(preset.name, entry.client, parameters, entry.error, entry.rounds)


def note_interruption(entries: list[Entry], rounds: int) -> None:
    for entry in entries:
        if entry.error is None and len(entry.rounds) < rounds:
            entry.error, entry.is_partial = f"{INTERRUPTED} after {len(entry.rounds)} of {rounds} rounds", True


def _median(entry: Entry, of: Callable[[Round], float | None]) -> float | None:
    known = [value for value in map(of, entry.rounds) if value is not None]
    return statistics.median(known) if known else None


_COLUMNS: list[tuple[str, Callable[[Round], float | None]]] = [
    ("samples/s", figures.RATE.of),
    ("AU %", lambda each: each.metrics.get("au_percent")),
    ("p50 ms", figures.LATENCIES[0].of),
    ("p99 ms", figures.LATENCIES[2].of),
    ("CPU s/GB", figures.CPU_BYTES.of),
    ("peak MiB", figures.MEMORY.of),
]


def table(entries: Sequence[Entry]) -> str:
    """Medians of rounds."""
    lines = [["", *(heading for heading, _ in _COLUMNS)]]
    for entry in entries:
        shown = [_median(entry, of) for _, of in _COLUMNS]
        lines.append([entry.client, *("-" if value is None else figures.number(value) for value in shown)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = [
        "  ".join([line[0].ljust(widths[0]), *(each.rjust(w) for each, w in zip(line[1:], widths[1:]))])
        for line in lines
    ]
    for entry in entries:
        if entry.error is not None:
            text.append(f"{entry.client}: {figures.line(entry.error)}")
    return "\n".join(text) + "\n"


def check(preset: Preset, options: argparse.Namespace) -> None:
    """Memory and uploads, as of `ringest bench run`."""
    run.check_memory(preset, options, options.ranks)
    if not options.emulate and preset.data.total_bytes > run.UPLOAD_BYTES_MAX:
        raise peers.PeerError(
            f"{preset.name} would write {preset.data.total_bytes / 1e9:,.0f} GB, at most {run.UPLOAD_BYTES_MAX / 1e9:,.0f} are "
            "written here: give a smaller --scale"
        )
