"""`ringest bench compare`: clients of others and ringest's do the same work, and what it costs each stands side by side."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ringest
from ringest.bench import compare_presets, emulator, figures, machine, network, peers, result, run
from ringest.bench.folder import connect
from ringest.bench.peers.data import Data, Place
from ringest.bench.peers.measuring import NO_WAY, Cell, How, cells_of, cost, measure_all, row
from ringest.bench.peers.work import VERBS
from ringest.bench.result import Row
from ringest.client import parse_size

FAILED, USAGE, INTERRUPTED = 1, 2, 130
# In the environment of the process that has a network of its own.
INSIDE = "RINGEST_BENCH_INSIDE"
EMULATOR_THREADS_MAX = 4
# Of an object, several of which a client holds; of any option.
SIZE_MAX, NUMBER_MAX = 1 << 30, 10**9


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _some(text: str) -> list[str]:
    words = _words(text)
    if not words:
        raise argparse.ArgumentTypeError("needs one at least, is empty")
    return words


def _sizes(text: str) -> dict[str, int]:
    try:
        sizes = {word: parse_size(word, "a size") for word in _some(text)}
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    for word, size in sizes.items():
        if size > SIZE_MAX:
            raise argparse.ArgumentTypeError(f"a size may be {SIZE_MAX >> 20} MiB at most, is {word}")
    return sizes


def _verbs(text: str) -> list[str]:
    unknown = set(_some(text)) - set(VERBS)
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no {' or '.join(sorted(unknown))}, only {', '.join(VERBS)}")
    return [verb for verb in VERBS if verb in _words(text)]


def _positive(kind: Callable[[str], float], least: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"must be at least {least:g}, is {text}")
        if value > NUMBER_MAX:
            raise argparse.ArgumentTypeError(f"must be at most {NUMBER_MAX:,}, is {text}")
        return value

    parse.__name__ = "number"
    return parse


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(_positive(int, 1)(word)) for word in _some(text))


# What argparse calls it in its messages.
_numbers.__name__ = "list of numbers"


def _uri(text: str) -> str:
    if not re.fullmatch(r"gs://[^/]+/.*", text):
        raise argparse.ArgumentTypeError(f"must be gs://BUCKET/PREFIX, is {text}")
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "uri",
        nargs="?",
        type=_uri,
        metavar="gs://BUCKET/PREFIX",
        help="where the objects are made, and removed at the end",
    )
    add("--peers", metavar="A,B", help='clients, each NAME, NAME:WAY or a file of Python; "list" says which there are; '
        "default: all that are installed")  # fmt: skip
    add("--emulate", action="store_true", help="against an emulator that is started for it, in a network of its own")
    add("--endpoint", metavar="URL", help="default: $STORAGE_EMULATOR_HOST, else Cloud Storage")
    add(
        "--ca",
        metavar="FILE",
        help="the certificates that it is trusted by; default: $SSL_CERT_FILE, else the machine's",
    )
    add("--preset", metavar="NAME", help="the training loop of a preset instead, with others' loaders of PyTorch")
    add("--scale", metavar="FACTOR", type=run.scale, help="of the preset: make a part of the data, such as 0.01")
    add("--ranks", metavar="N", type=_positive(int, 1), help="of the preset: processes; default: 1")
    add("--verbs", type=_verbs, metavar="A,B",
        help="get, load (by a DataLoader of PyTorch), put, list; default: get,load")  # fmt: skip
    add("--sizes", type=_sizes, metavar="A,B", help="of objects; default: 4k,100k,3m")
    add("--concurrency", type=_numbers, metavar="A,B",
        help="requests in flight; the best of them counts for each client; default: 16,64")  # fmt: skip
    add("--seconds", type=_positive(float, 0.01), metavar="S",
        help="of each measurement; default: 1, and the epochs of a preset")  # fmt: skip
    add("--warm-up", type=_positive(float, 0), default=1, metavar="S", help="before each, in seconds; default: 1")
    add("--rounds", type=_positive(int, 1), default=3, metavar="N", help="default: 3")
    add(
        "--objects",
        type=_positive(int, 1),
        metavar="N",
        help="of each size, 256 MiB of them at most; default: 64",
    )
    add("--names", type=_positive(int, 1), metavar="N", help="to list; default: 5000")
    add("--cpus", type=_positive(int, 1), default=1, metavar="N", help="that each client may run on; default: 1")
    add("--limit", type=_positive(float, 0.01), default=60, metavar="S",
        help="what a client may take beyond the measurement, in seconds, before it is ended; default: 60")  # fmt: skip
    add(
        "--existing",
        action="store_true",
        help="read objects PREFIX4k-00000000 and so on that are there already; write nothing",
    )
    add(
        "--verify",
        action="store_true",
        help="compare the CRC32C of every body that others read, as ringest does, and read all that was written; "
        "default: of the first",
    )
    add("--result", metavar="FILE", help='write every figure there, for "ringest bench report"; - is standard output')


# Of objects of one size, where no preset is asked for.
_DEFAULTS: dict[str, Any] = {
    "verbs": ["get", "load"],
    "sizes": _sizes("4k,100k,3m"),
    "concurrency": (16, 64),
    "objects": 64,
    "names": 5000,
}


def _list_peers() -> int:
    pins = peers.pins()
    for peer in peers.known().values():
        version = ringest.__version__ if peer.distribution is None else peers.installed(peer.distribution)
        about = peer.unable or version or f"not installed; tried: {pins.get(peer.distribution or '', 'none')}"
        print(f"{peer.name:<22}{about}")
        for way in () if peer.unable else peer.ways:
            verbs = ", ".join([verb for verb in VERBS if getattr(way, verb)] + ["--preset"] * (way.dataset is not None))
            lacking = [name for name in peers.missing(peer, way) if name != peer.distribution]
            print(f"  {way.name:<20}{verbs}" + (f"; needs {', '.join(lacking)}" if lacking else ""))
    folder = os.path.dirname(os.path.abspath(peers.__file__))
    all_pins, alone = (os.path.join(folder, name) for name in peers.PINS)
    print(f"\nAll of them:\n  pip install -r {all_pins}\n  pip install --no-deps -r {alone}")
    return 0


def _names(options: argparse.Namespace) -> list[str]:
    """ringest, and those that are wanted."""
    if options.peers is not None:
        wanted = _words(options.peers)
    else:
        known = peers.known().values()
        there = [peer for peer in known if peer.distribution is None or peers.installed(peer.distribution)]
        wanted = [peer.name for peer in there if not peer.unable]
    return wanted if peers.OURS in (name.partition(":")[0] for name in wanted) else [peers.OURS, *wanted]


def _cpus(options: argparse.Namespace) -> tuple[list[int] | None, list[int] | None]:
    """For an emulator and for clients; one machine with one CPU has it for all."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) <= options.cpus:
        return None, None
    split = len(available) - options.cpus
    return available[:split], available[split:]


@contextlib.contextmanager
def _place(options: argparse.Namespace, cpus: list[int] | None) -> Iterator[Place]:
    if options.emulate:
        threads = min(EMULATOR_THREADS_MAX, len(cpus or [0]))
        with emulator.running((), threads=threads, cpus=cpus) as (endpoint, ca):
            # Clients would first try another address of localhost.
            yield Place(endpoint.replace("//localhost", "//127.0.0.1"), ca)
    else:
        yield Place.given(options.endpoint, options.ca)


def _wrong_use(options: argparse.Namespace) -> str | None:
    given = [f"--{name}" for name in _DEFAULTS if getattr(options, name) is not None]
    if options.preset is not None and (given or options.existing):
        return f"--preset has its own work: leave {' and '.join(given or ['--existing'])} away"
    if options.preset is None and (options.scale or options.ranks):
        return "--scale and --ranks are of a --preset"
    if options.emulate and (options.endpoint or options.ca or options.uri or options.existing):
        return "--emulate has its own endpoint and objects: leave --endpoint, --ca, --existing and gs:// away"
    if not options.emulate and options.uri is None:
        return "needs gs://BUCKET/PREFIX, or --emulate"
    if options.existing and {"put", "list"} & set(options.verbs or ()):
        return "--existing writes nothing, and put and list need objects of their own"
    return None


@contextlib.contextmanager
def _saying() -> Iterator[Callable[[str], None]]:
    """What is measured now."""
    progress = run.Progress("compare")
    try:
        yield progress.say
    finally:
        progress.wipe()


def _measure(cells: list[Cell], options: argparse.Namespace, places: list[Place]) -> None:
    """Adds the place as soon as it is known. KeyboardInterrupt passes, after everything is removed."""
    server_cpus, client_cpus = _cpus(options)
    how = How(options.concurrency, options.seconds, options.warm_up, options.rounds, options.limit, client_cpus)
    with _place(options, server_cpus) as place, connect(place.endpoint, place.ca) as client:
        places.append(place)
        data = Data(
            client,
            place,
            options.uri or f"gs://{emulator.BUCKET}/",
            options.objects,
            options.names,
            options.existing,
            options.verify,
        )
        verbs = list(dict.fromkeys(cell.verb for cell in cells))
        for text in data.left_by_others():
            _complain(text)
        try:
            with _saying() as say:
                say("making the objects")
                data.make(verbs, options.sizes)
                measure_all(cells, data, how, say)
        finally:
            _remove(data)


def _remove(data: Data) -> None:
    try:
        left = data.remove()
    except KeyboardInterrupt:
        left = f"interrupted: {data.folder} is left; `ringest rm -r` removes it"
    if left:
        _complain(left)


def _complain(error: object) -> None:
    print(f"ringest bench compare: {figures.lines(error)}", file=sys.stderr)


def _note_interruption(cells: list[Cell], options: argparse.Namespace) -> None:
    """Rows that lack measurements say so."""
    for cell in cells:
        wanted = len(cell.way.concurrency or options.concurrency) + options.rounds - 1
        if cell.error is None and len(cell.rounds) < wanted:
            cell.error, cell.is_partial = (
                f"{result.INTERRUPTED} after {len(cell.rounds)} of {wanted} measurements",
                True,
            )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"


def _median(cell: Cell) -> float:
    """CPU time of an operation, in µs."""
    best = cell.best()
    return 1e6 * statistics.median(cost(measured) for concurrency, measured in cell.rounds if concurrency == best)


def _figure(cell: Cell, first: Cell) -> str:
    if not cell.is_measured:
        return "-" if cell.is_partial or cell.is_lacking else "failed"
    text = f"{_number(_median(cell))} ({cell.best()})"
    return text if not first.is_measured else f"{text} x {_median(cell) / _median(first):.2f}"


def _percentiles(cell: Cell, first: Cell) -> str:
    """Medians of the rounds' 50th and 99th, in ms; none where requests cannot be told apart."""
    if not cell.is_measured:
        return "-"
    best = cell.best()
    latencies = [measured.latency for concurrency, measured in cell.rounds if concurrency == best]
    found = [[figures.quantile(each, share) for each in latencies] for share in (0.5, 0.99)]
    known = [[each for each in of_rounds if each is not None] for of_rounds in found]
    return " / ".join(_number(statistics.median(each) / 1e6) if each else "-" for each in known) if known[0] else "-"


def _table(cells: list[Cell], figure: Callable[[Cell, Cell], str]) -> Iterator[str]:
    """A line for each client, a column for each workload."""
    workloads = list(dict.fromkeys(cell.workload for cell in cells))
    found = {(cell.client, cell.workload): cell for cell in cells}
    clients = list(dict.fromkeys(cell.client for cell in cells))
    first = {workload: next(cell for cell in cells if cell.workload == workload) for workload in workloads}
    lines = [["", *workloads]]
    for client in clients:
        figures = [(found.get((client, workload)), first[workload]) for workload in workloads]
        lines.append([client, *("-" if cell is None else figure(cell, against) for cell, against in figures)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        padded = [line[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(line[1:], widths[1:]))]
        yield "  ".join(padded).rstrip()


def _print(cells: list[Cell], options: argparse.Namespace, file: object) -> None:
    def say(text: str = "") -> None:
        print(text, file=file)  # type: ignore[call-overload]

    say(
        "Client CPU time of an object (of a name, for list) in us; in brackets the requests in flight that suit it best;"
    )
    rounds = f"Median of {options.rounds:g} rounds" if options.rounds > 1 else "One round"
    say(f"behind x its cost / the first client's. {rounds} of {options.seconds:g} s.")
    if options.verify:
        say(
            "Verified: the CRC32C of every body that was read and the names of every listing, which is part of the cost, and "
            "each object that was written."
        )
    if options.emulate:
        say(f"Server: {_server(options)}.")
    partial = [cell for cell in cells if cell.is_partial]
    if partial:
        say(f"Partial: interrupted. Of {len(cells)} rows, {len(partial)} lack measurements.")
    say()
    for line in _table(cells, _figure):
        say(line)
    timed = [cell for cell in cells if cell.is_measured and _percentiles(cell, cell) != "-"]
    if timed:
        say("\nHow long a request took: 50th / 99th percentile in ms, of ways that ask for one object at a time.\n")
        whose = {cell.client for cell in timed}
        for line in _table([cell for cell in cells if cell.client in whose and cell.verb != "list"], _percentiles):
            say(line)
    for heading, listed in (
        ("Failed", [cell for cell in cells if cell.error and not cell.is_partial and not cell.is_lacking]),
        ("Not measured", [cell for cell in cells if cell.is_lacking]),
        ("Partial", partial),
    ):
        if listed:
            say(f"\n{heading}:")
        for cell in listed:
            say(f"  {cell.workload}, {cell.client}: {figures.line(cell.error)}")


def _versions(cells: Sequence[Cell | compare_presets.Entry]) -> dict[str, str]:
    wanted = [name for cell in cells for name in (cell.peer.distribution, *cell.way.needs) if name]
    return machine.versions(dict.fromkeys(wanted))


def _isolate(cells: Sequence[Cell | compare_presets.Entry]) -> None:
    """Others' clients, with the emulator, in a network of their own."""
    if all(cell.peer.name == peers.OURS for cell in cells):
        return
    network.restart([sys.executable, *sys.orig_argv[1:]], INSIDE)
    if not network.is_alone():
        text = "no network namespace can be made here: clients of others may ask for a cloud's metadata address"
        _complain(text)


def _on_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # what was made is removed, as after Ctrl-C


def _server(options: argparse.Namespace) -> str | None:
    return emulator.about(_cpus(options)[0]) if options.emulate else None


def _write(
    rows: list[Row], cells: Sequence[Cell | compare_presets.Entry], place: Place, options: argparse.Namespace
) -> None:
    document = result.Document(
        rows=rows,
        machine=machine.describe(),
        versions=_versions(cells),
        command=["ringest", "bench", *sys.argv[1:]],
        endpoint=place.endpoint,
        server=_server(options),
    )
    result.write(document, options.result)


def _main_of_preset(options: argparse.Namespace) -> int:
    options.scale, options.ranks = options.scale or 1.0, options.ranks or 1
    preset = compare_presets.load(options.preset, options.scale, options.ranks)
    entries = compare_presets.entries_of(_names(options))
    compare_presets.check(preset, options)
    if options.result:
        result.check_place(options.result)
    if options.emulate:
        _isolate(entries)
    _on_signals()
    places: list[Place] = []
    said: list[str] = []
    status = 0
    try:
        with _saying() as say:
            compare_presets.Comparison(preset, options, _cpus(options), say, said).run(entries, places)
    except KeyboardInterrupt:
        if not any(entry.rounds for entry in entries):
            raise
        status = INTERRUPTED
        compare_presets.note_interruption(entries, options.rounds)
    except (ringest.Error, ExceptionGroup) as error:
        _complain(error.exceptions[0] if isinstance(error, ExceptionGroup) else error)
        return FAILED
    finally:
        for text in said:
            _complain(text)
    text = f"{preset.name}, {preset.scale:g} of its data, {options.ranks} ranks. Medians of {options.rounds} rounds.\n"
    text += f"Server: {_server(options)}.\n" if options.emulate else ""
    print(f"{text}\n{compare_presets.table(entries)}", end="", file=sys.stderr if options.result == "-" else sys.stdout)
    if options.result:
        rows = [compare_presets.row(entry, preset, options) for entry in entries]
        _write(rows, entries, places[0], options)
    if status:
        _complain("interrupted; what was measured until then is above")
        return status
    return FAILED if any(entry.error for entry in entries if entry.peer.name == peers.OURS) else 0


def main(options: argparse.Namespace) -> int:
    if options.peers == "list":
        return _list_peers()
    try:
        wrong = _wrong_use(options)
        if wrong:
            raise peers.PeerError(wrong)
        if options.preset is not None:
            return _main_of_preset(options)
        for name, value in {**_DEFAULTS, "seconds": 1.0}.items():
            if getattr(options, name) is None:
                setattr(options, name, value)
        cells = list(cells_of(_names(options), options.verbs, options.sizes))
        if all(cell.way is NO_WAY for cell in cells):
            raise peers.PeerError(f"none of these clients can {' or '.join(options.verbs)}")
    except peers.PeerError as error:
        _complain(error)
        return USAGE
    if options.result:
        result.check_place(options.result)
    if options.emulate:
        _isolate(cells)
    _on_signals()
    places: list[Place] = []
    status = 0
    try:
        _measure(cells, options, places)
    except KeyboardInterrupt:
        if not any(cell.rounds for cell in cells):
            raise
        status = INTERRUPTED
        _note_interruption(cells, options)
    except (ringest.Error, ExceptionGroup) as error:
        _complain(error.exceptions[0] if isinstance(error, ExceptionGroup) else error)
        return FAILED
    _print(cells, options, sys.stderr if options.result == "-" else sys.stdout)
    if options.result:
        _write([row(cell, options.verify) for cell in cells], cells, places[0], options)
    if status:
        _complain("interrupted; what was measured until then is above")
        return status
    return FAILED if any(cell.error for cell in cells if cell.peer.name == peers.OURS) else 0
