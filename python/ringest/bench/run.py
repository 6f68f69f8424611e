"""The command `run`: measures the workloads of presets with ringest's client, and removes what it made for that."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ringest
from ringest.bench import emulator, figures, folder, leftovers, machine, presets
from ringest.bench.folder import Folder
from ringest.bench.presets import Preset
from ringest.bench.ranks import Job, RankError, Ranks
from ringest.bench.result import INTERRUPTED as CUT_SHORT
from ringest.bench.result import Document, ResultError, Round, Row, check_place, write
from ringest.client import parse_size

FAILED, INTERRUPTED = 1, 130
RANKS_MAX = 256
ROUNDS_MAX = 1000
# What is uploaded without being asked for: it is paid for, and takes its time.
UPLOAD_BYTES_MAX = 64 << 30
# Memory that a rank's client has besides what a workload holds.
_MEMORY_MIN = 1 << 30
_MEMORY_BESIDE = 256 << 20
_PARQUET = ".parquet"
# Between two lines where there is no terminal.
LINES_S = 10.0
# More are only in the document.
_PHASES_MAX = 12


class UsageError(ResultError):
    """Options that do not fit each other, or the machine."""


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"must be more than 0, is {text}")
    return value


def scale(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"must be more than 0 and at most 1, is {text}")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"must be 0 or more, is {text}")
    return value


# What argparse calls them in its messages.
_positive.__name__ = scale.__name__ = _seconds.__name__ = "number"


def _count(most: int) -> Any:
    def parse(text: str) -> int:
        value = int(text)
        if not 1 <= value <= most:
            raise argparse.ArgumentTypeError(f"must be from 1 to {most:,}, is {text}")
        return value

    parse.__name__ = "number"
    return parse


def _size(text: str) -> int:
    try:
        return parse_size(text, "size")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="a preset, or a file of your own: ./NAME.toml")
    where = parser.add_argument_group("where")
    where.add_argument(
        "--emulate", action="store_true", help="against an emulator that is started for it, on this machine"
    )
    where.add_argument("--endpoint", metavar="URL", help="the server; by default as every client of ringest")
    where.add_argument("--folder", metavar="URI", help=f"make the data in a folder of its own below {folder.FORM}")
    where.add_argument("--data", metavar="URI", help="read the objects below it instead, which stay as they are")
    where.add_argument("--keep", action="store_true", help="leave what was made, and say where, for --data")
    where.add_argument(
        "--upload-max", metavar="SIZE", type=_size, default=UPLOAD_BYTES_MAX, help="refuse to write more (64G)"
    )
    how = parser.add_argument_group("how much")
    how.add_argument("--scale", metavar="FACTOR", type=scale, default=1.0, help="make a part of the data, such as 0.01")
    how.add_argument(
        "--ranks",
        "--processes",
        dest="ranks",
        metavar="N",
        type=_count(RANKS_MAX),
        help="processes; 1, or as the preset has",
    )
    how.add_argument("--rounds", metavar="N", type=_count(ROUNDS_MAX), default=1, help="measure so often (1)")
    how.add_argument("--seconds", metavar="S", type=_positive, help="end a round then, instead of after its epochs")
    how.add_argument(
        "--warm-up", metavar="S", type=_seconds, default=1.0, help="read for so long before the clock starts (1)"
    )
    out = parser.add_argument_group("results")
    out.add_argument("--result", metavar="FILE", help="write the document, which `ringest bench report` reads")
    out.add_argument("--json", action="store_true", help="print the document instead of a table")


class Progress:
    """One line on a terminal, which is wiped at the end. Elsewhere, where it takes longer, a line of its own now
    and then: whoever reads a log sees that it goes on, and how far."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._is_shown = sys.stderr.isatty()
        self._said_s = time.monotonic()

    def say(self, text: str) -> None:
        if self._is_shown:
            columns = shutil.get_terminal_size().columns
            sys.stderr.write(f"\r\033[K{text[: columns - 1]}")
            sys.stderr.flush()
        elif time.monotonic() - self._said_s >= LINES_S:
            self._said_s = time.monotonic()
            print(f"ringest bench {self._command}: {text}", file=sys.stderr, flush=True)

    def wipe(self) -> None:
        if self._is_shown:
            self.say("")


@dataclass(frozen=True)
class Place:
    """Where a preset's objects are."""

    prefix: str
    objects: list[tuple[str, int]] | None
    made: Folder | None
    is_ours: bool


def _sizes(preset: Preset, objects: Sequence[tuple[str, int]] | None) -> list[int]:
    """Of the objects, the largest first; those of the preset if there are no others."""
    if objects is not None:
        return sorted((size for _, size in objects), reverse=True)
    return [preset.data.largest] * preset.data.objects


def _client_settings(preset: Preset, objects: Any, endpoint: str | None, ca: str | None) -> dict[str, Any]:
    workload = preset.workload
    held = workload.memory(preset.work, _sizes(preset, objects)) if hasattr(workload, "memory") else 0
    settings: dict[str, Any] = {"endpoint": endpoint, "ca": ca}
    if held + _MEMORY_BESIDE > _MEMORY_MIN:
        settings["memory"] = held + _MEMORY_BESIDE
    return settings


def check_memory(preset: Preset, options: argparse.Namespace, ranks: int, objects: Any = None) -> None:
    """What the workload holds must fit: a machine that swaps measures its disk. objects: the user's."""
    workload = preset.workload
    if hasattr(workload, "memory_needed"):
        needed = workload.memory_needed(preset.work, preset.data)
        stored = preset.work.saves * needed // 2 if options.emulate else 0
    elif hasattr(workload, "memory"):
        needed, stored = workload.memory(preset.work, _sizes(preset, objects), ranks), 0
    else:
        return
    have = machine.memory_available()
    if have is not None and needed + stored > have:
        text = f"needs {(needed + stored) / 1e9:.1f} GB of memory, and {have / 1e9:.1f} GB are free"
        if objects is not None:
            raise UsageError(
                f"{preset.name} {text}, by the sizes of the objects below {options.data}: use fewer --ranks, or "
                "a file of your own with a smaller batch_size or prefetch"
            )
        hint = options.scale * have / (needed + stored) / 2
        raise UsageError(f"{preset.name} at --scale {options.scale:g} {text}: try --scale {hint:.1g}, or fewer --ranks")


def _upload(preset: Preset) -> int:
    return getattr(preset.data, "total_bytes", 0)


@contextlib.contextmanager
def _place(preset: Preset, options: argparse.Namespace, client: ringest.Client, synthetic: bool, made: Folder | None,
           progress: Progress) -> Iterator[Place]:  # fmt: skip
    """The objects, made if need be. What was made is gone afterwards."""
    is_parquet = hasattr(preset.data, "make")
    if options.data is not None:
        found = folder.given(client, options.data, _PARQUET if is_parquet else "")
        yield Place(options.data, found, made, False)
        return
    assert made is not None

    def tell(done: int, total: int) -> None:
        if done % 64 == 0 or done == total:
            progress.say(f"{preset.name}: making the data: {done:,} of {total:,} objects")

    if not synthetic:
        made.claim()
    objects = None
    if is_parquet:
        objects = made.fill_with(preset.data.make(), preset.data.objects, tell)
    elif hasattr(preset.data, "groups") and not synthetic:
        made.fill(preset.data, tell)
    yield Place(made.data, objects, made, True)


def _measure(preset: Preset, options: argparse.Namespace, place: Place, settings: dict[str, Any], ranks: int,
             progress: Progress, rounds: list[Round]) -> None:  # fmt: skip
    """Adds rounds as they end."""

    def tell(number: int, phase: str, done: int) -> None:
        progress.say(f"{preset.name}: round {number + 1} of {options.rounds}, {phase}: {done:,}")

    with contextlib.ExitStack() as stack:

        def temporary() -> str:
            return stack.enter_context(tempfile.TemporaryDirectory(prefix=leftovers.temporary_prefix()))

        is_cached = getattr(preset.work, "cache", False)
        caches = [temporary() if is_cached else None for _ in range(options.rounds)]
        job = Job(
            preset=preset,
            objects=place.objects,
            prefix=place.prefix,
            folder=place.made.uri if place.made is not None else "",
            is_ours=place.is_ours,
            settings=settings,
            ranks=ranks,
            rounds=options.rounds,
            seconds=options.seconds,
            warm_up=options.warm_up,
            meeting=temporary() if ranks > 1 and preset.kind == "checkpoint" else "",
        )
        running = Ranks(job, caches)
        try:
            for number, each in enumerate(running.rounds(tell)):
                rounds.append(each)
                if place.made is not None and number + 1 < options.rounds:
                    place.made.remove(f"round-{number}/")
        finally:
            running.close()


def _keeps_time(preset: Preset) -> bool:
    """A checkpoint is saved and loaded as often as its preset says."""
    return preset.kind != "checkpoint"


def _parameters(preset: Preset, options: argparse.Namespace, place: Place | None, ranks: int) -> dict[str, Any]:
    found = {**preset.parameters(), "ranks": ranks, "warm_up_seconds": options.warm_up}
    if options.seconds is not None and _keeps_time(preset):
        found["seconds"] = options.seconds
    if place is not None and not place.is_ours:
        assert place.objects is not None
        found |= {"data": options.data, "objects": len(place.objects), "bytes": sum(size for _, size in place.objects)}
    return found


class Run:
    """Of one preset: a row, and what is to be said about its end."""

    def __init__(self, preset: Preset, options: argparse.Namespace, progress: Progress) -> None:
        self.ranks = options.ranks or preset.ranks
        self.preset = preset.scaled(options.scale, self.ranks)
        self._options, self._progress = options, progress
        self.rounds: list[Round] = []
        self.error: str | None = None
        self.said: list[str] = []
        self.place: Place | None = None
        self.endpoint: str | None = None

    def run(self) -> None:
        """KeyboardInterrupt passes, after everything is removed."""
        if self._options.data is None:
            check_memory(self.preset, self._options, self.ranks)
        with contextlib.ExitStack() as stack:
            endpoint, ca, made = self._options.endpoint, None, None
            synthetic: list[str] = []
            where = f"gs://{emulator.BUCKET}/" if self._options.emulate else self._options.folder
            if where is not None:
                # The name of the folder comes before the emulator, which is told what lies in it.
                idle = stack.enter_context(contextlib.closing(folder.connect(endpoint)))
                below = {"round": self._options.rounds, "rank": self.ranks, "part": self.ranks}
                made = Folder(idle, where, **below)
            if self._options.emulate:
                assert made is not None
                if hasattr(self.preset.data, "groups") and self._options.data is None:
                    at = made.data.removeprefix("gs://")
                    synthetic = [f"{at}{each.prefix}:{each.count}:{each.size}" for each in self.preset.data.groups()]
                endpoint, ca = stack.enter_context(emulator.running(synthetic))
            self.endpoint = endpoint
            client = stack.enter_context(contextlib.closing(folder.connect(endpoint, ca)))
            if made is not None:
                made.use(client)
            place = made.place if made is not None and not self._options.emulate else None
            for text in leftovers.warnings(client, place):
                print(f"ringest bench run: {figures.line(text)}", file=sys.stderr)
            self._run(client, made, bool(synthetic), endpoint, ca)

    def _run(self, client: ringest.Client, made: Folder | None, synthetic: bool, endpoint: Any, ca: Any) -> None:
        try:
            with _place(self.preset, self._options, client, synthetic, made, self._progress) as place:
                self.place = place
                given = None if place.is_ours else place.objects
                if given is not None:
                    check_memory(self.preset, self._options, self.ranks, given)
                settings = _client_settings(self.preset, given, endpoint, ca)
                _measure(self.preset, self._options, place, settings, self.ranks, self._progress, self.rounds)
        except (RankError, ringest.Error, ImportError, OSError, ExceptionGroup) as error:
            cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            self.error = str(cause)
        finally:
            self._progress.wipe()
            if made is not None and not self._options.emulate:
                self._clean(made)

    def _clean(self, made: Folder) -> None:
        if self._options.keep:
            self.said.append(f"{self.preset.name}: kept {made.uri}; read it again with --data {made.data}")
            return
        self._progress.say(f"{self.preset.name}: removing what it made")
        try:
            left = made.remove()
        except KeyboardInterrupt:
            left = f"interrupted: {made.uri} is left"
        self._progress.wipe()
        if left is not None:
            self.said.append(f"{self.preset.name}: {left}")
            self.error = self.error or left

    def row(self) -> Row:
        parameters = _parameters(self.preset, self._options, self.place, self.ranks)
        return Row(self.preset.name, "ringest", parameters, self.error, self.rounds)


def _check(options: argparse.Namespace, found: Sequence[Preset]) -> None:
    if options.emulate and (options.endpoint or options.folder or options.data or options.keep):
        raise UsageError("--emulate makes a server of its own: without --endpoint, --folder, --data and --keep")
    if options.result is not None:
        check_place(options.result)
        if options.json and options.result == "-":
            raise UsageError("--json and --result - print the same: give one of them")
    if options.data is not None and options.scale != 1:
        raise UsageError("--scale makes less of what is made, and --data reads what is there: leave one of them away")
    if options.keep and options.folder is None:
        raise UsageError("--keep needs --folder, where the data are made")
    for preset in found:
        writes = preset.kind in ("checkpoint", "mixed")
        if options.data is not None and preset.kind == "checkpoint":
            raise UsageError(f"{preset.name} reads nothing that could be given by --data")
        if not options.emulate and options.folder is None and (writes or options.data is None):
            what = "writes" if writes else "makes its data"
            raise UsageError(
                f"{preset.name} {what} in a bucket: say where with --folder gs://BUCKET/, use --emulate"
                + ("" if writes else ", or give objects with --data")
            )
        size = _upload(preset.scaled(options.scale, options.ranks or preset.ranks))
        if not options.emulate and options.data is None and size > options.upload_max:
            raise UsageError(
                f"{preset.name} would write {size / 1e9:,.0f} GB, and --upload-max is {options.upload_max / 1e9:,.0f}: give a "
                f"smaller --scale ({options.scale * options.upload_max / size:.1g}), or --data"
            )


def _middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _quantile(share: float) -> Callable[[Round], float | None]:
    """In milliseconds."""
    return lambda each: figures.per(figures.quantile(each.latency, share), 1e6)


# Heading, how a value is written, and the value of a round.
_COLUMNS: list[tuple[str, str, Any]] = [
    ("per s", ",.0f", lambda each: each.operations / each.seconds if each.seconds else None),
    ("MB/s", ",.1f", lambda each: each.bytes / each.seconds / 1e6 if each.bytes and each.seconds else None),
    ("p50 ms", ",.2f", _quantile(0.5)),
    ("p99 ms", ",.2f", _quantile(0.99)),
    ("first s", ".3f", lambda each: each.time_to_first_seconds),
    ("CPU s", ",.2f", lambda each: each.cpu_seconds),
    ("CPU s/GB", ".2f", lambda each: each.cpu_seconds / each.bytes * 1e9 if each.bytes and each.cpu_seconds is not None else None),
    ("wire/asked", ".3f", figures.WIRE.of),
    ("peak MB", ",.0f", lambda each: each.peak_rss_bytes / 1e6 if each.peak_rss_bytes else None),
    ("AU %", ".1f", lambda each: each.metrics.get("au_percent")),
]  # fmt: skip


def _phases(row: Row) -> list[str]:
    """Where a round has several."""
    names = list(dict.fromkeys(phase.name for each in row.rounds for phase in each.phases))
    lines = []
    for name in names if 1 < len(names) <= _PHASES_MAX else ():
        phases = [phase for each in row.rounds for phase in each.phases if phase.name == name and phase.seconds]
        rate = _middle([(phase.operations or 0) / phase.seconds for phase in phases]) or 0
        megabytes = _middle([(phase.bytes or 0) / phase.seconds / 1e6 for phase in phases]) or 0
        lines.append(
            f"{row.workload}, {name}: {rate:{',.0f' if rate >= 1000 else ',.4g'}} per s, {megabytes:,.1f} MB/s"
        )
    return lines


def table(rows: Sequence[Row], server: str | None = None) -> str:
    """Medians of the rounds. server: what it is, where that matters."""
    lines = [["preset", *(heading for heading, _, _ in _COLUMNS)]]
    for row in rows:
        values = [_middle([of(each) for each in row.rounds]) for _, _, of in _COLUMNS]
        lines.append(
            [row.workload, *("-" if v is None else format(v, form) for v, (_, form, _) in zip(values, _COLUMNS))]
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    shown = [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:]))])
        for line in lines
    ]
    for row in rows:
        shown += _phases(row)
    for row in rows:
        if row.error is not None:
            shown.append(f"{row.workload}: {figures.lines(row.error)}")
        if row.parameters["scale"] != 1:
            shown.append(f"{row.workload}: {row.parameters['scale']:g} of its data (--scale)")
    if server is not None:
        shown.append(f"server: {server}")
    return "\n".join(shown) + "\n"


def _on_signal(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def main(options: argparse.Namespace) -> int:
    found = [presets.load(name) for name in options.names]
    _check(options, found)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _on_signal)
    progress, runs, status = Progress("run"), [], 0
    endpoint = None
    for preset in found:
        each = Run(preset, options, progress)
        if options.seconds is not None and not _keeps_time(preset):
            each.said.append(f"{preset.name}: has its number of saves and loads, whatever --seconds says")
        try:
            runs.append(each)
            each.run()
        except KeyboardInterrupt:
            status = INTERRUPTED
            each.error = each.error or CUT_SHORT
        except ResultError as error:
            if not any(one.rounds for one in runs):
                raise
            each.error = str(error)  # what was measured before it is not lost
        endpoint = each.endpoint
        for text in each.said:
            print(figures.lines(text), file=sys.stderr)
        if status:
            break
    rows = [each.row() for each in runs]
    server = emulator.about() if options.emulate else None
    document = Document(
        rows, machine.describe(), machine.versions(["pyarrow"]), ["ringest", "bench", *sys.argv[1:]], endpoint, server
    )
    if options.result is not None:
        write(document, options.result)
    if options.json:
        write(document, "-")
    else:
        print(table(rows, server), end="", file=sys.stderr if options.result == "-" else sys.stdout)
    return status or (FAILED if any(row.error is not None for row in rows) else 0)
