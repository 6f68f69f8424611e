"""`ringest bench compare`: clients of others and ringest's do the same work, and what it costs each stands side by side."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import statistics
import sys
from collections.abc import Callable, Iterator

import ringest
from ringest.bench import emulator, machine, network, peers, result
from ringest.bench.peers.data import Data, Place
from ringest.bench.peers.measuring import Cell, How, cells_of, cost, measure_all, row
from ringest.bench.peers.work import VERBS
from ringest.client import parse_size

FAILED, USAGE = 1, 2
# In the environment of the process that has a network of its own.
INSIDE = "RINGEST_BENCH_INSIDE"
EMULATOR_THREADS_MAX = 4
UNITS = {"list": "name"}


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _sizes(text: str) -> dict[str, int]:
    try:
        return {word: parse_size(word, "a size") for word in _words(text)}
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _verbs(text: str) -> list[str]:
    unknown = set(_words(text)) - set(VERBS)
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no {' or '.join(unknown)}, only {', '.join(VERBS)}")
    return [verb for verb in VERBS if verb in _words(text)]


def _positive(kind: Callable[[str], float], least: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"must be at least {least:g}, is {text}")
        return value

    parse.__name__ = "number"
    return parse


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(_positive(int, 1)(word)) for word in _words(text))


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
    add("--verbs", type=_verbs, default=["get", "load"], metavar="A,B",
        help="get, load (by a DataLoader of PyTorch), put, list; default: get,load")  # fmt: skip
    add("--sizes", type=_sizes, default=_sizes("4k,100k,3m"), metavar="A,B", help="of objects; default: 4k,100k,3m")
    add("--concurrency", type=_numbers, default=(16, 64), metavar="A,B",
        help="requests in flight; the best of them counts for each client; default: 16,64")  # fmt: skip
    add("--seconds", type=_positive(float, 0.01), default=1, metavar="S", help="of each measurement; default: 1")
    add("--warm-up", type=_positive(float, 0), default=1, metavar="S", help="before each, in seconds; default: 1")
    add("--rounds", type=_positive(int, 1), default=3, metavar="N", help="default: 3")
    add(
        "--objects",
        type=_positive(int, 1),
        default=64,
        metavar="N",
        help="of each size, 256 MiB of them at most; default: 64",
    )
    add("--names", type=_positive(int, 1), default=5000, metavar="N", help="to list; default: 5000")
    add("--cpus", type=_positive(int, 1), default=1, metavar="N", help="that each client may run on; default: 1")
    add("--limit", type=_positive(float, 0.01), default=60, metavar="S",
        help="what a client may take beyond the measurement, in seconds, before it is ended; default: 60")  # fmt: skip
    add(
        "--existing",
        action="store_true",
        help="read objects PREFIX4k-00000000 and so on that are there already; write nothing",
    )
    add("--result", metavar="FILE", help='write every figure there, for "ringest bench report"; - is standard output')


def _list_peers() -> int:
    pins = peers.pins()
    for peer in peers.known().values():
        version = ringest.__version__ if peer.distribution is None else peers.installed(peer.distribution)
        about = peer.unable or version or f"not installed; tried: {pins.get(peer.distribution or '', 'none')}"
        print(f"{peer.name:<22}{about}")
        for way in () if peer.unable else peer.ways:
            verbs = ", ".join(verb for verb in VERBS if getattr(way, verb))
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
        given = options.endpoint or os.environ.get("STORAGE_EMULATOR_HOST")
        yield Place(given, options.ca or (os.environ.get("SSL_CERT_FILE") if given else None))


def _wrong_use(options: argparse.Namespace) -> str | None:
    if options.emulate and (options.endpoint or options.ca or options.uri or options.existing):
        return "--emulate has its own endpoint and objects: leave --endpoint, --ca, --existing and gs:// away"
    if not options.emulate and options.uri is None:
        return "needs gs://BUCKET/PREFIX, or --emulate"
    if options.existing and {"put", "list"} & set(options.verbs):
        return "--existing writes nothing, and put and list need objects of their own"
    return None


@contextlib.contextmanager
def _saying() -> Iterator[Callable[[str], None]]:
    """What is measured now, on one line of a terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    yield lambda text: print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    print("\r\033[K", end="", file=sys.stderr, flush=True)


def _measure(cells: list[Cell], options: argparse.Namespace) -> Place:
    server_cpus, client_cpus = _cpus(options)
    how = How(options.concurrency, options.seconds, options.warm_up, options.rounds, options.limit, client_cpus)
    with _place(options, server_cpus) as place, ringest.Client(place.endpoint, place.ca) as client:
        data = Data(
            client, place, options.uri or f"gs://{emulator.BUCKET}/", options.objects, options.names, options.existing
        )
        verbs = list(dict.fromkeys(cell.verb for cell in cells))
        try:
            data.make(verbs, options.sizes)
            with _saying() as say:
                measure_all(cells, data, how, say)
        finally:
            left = data.remove()
            if left:
                print(f"ringest bench compare: {left}", file=sys.stderr)
    return place


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"


def _median(cell: Cell) -> float:
    """CPU time of an operation, in µs."""
    best = cell.best()
    return 1e6 * statistics.median(cost(measured) for concurrency, measured in cell.rounds if concurrency == best)


def _figure(cell: Cell, first: Cell) -> str:
    if not cell.rounds or cell.error:
        return "failed"
    text = f"{_number(_median(cell))} ({cell.best()})"
    return text if first.error or not first.rounds else f"{text} x {_median(cell) / _median(first):.2f}"


def _table(cells: list[Cell]) -> Iterator[str]:
    """A line for each client, a column for each workload."""
    workloads = list(dict.fromkeys(cell.workload for cell in cells))
    found = {(cell.client, cell.workload): cell for cell in cells}
    clients = list(dict.fromkeys(cell.client for cell in cells))
    first = {workload: next(cell for cell in cells if cell.workload == workload) for workload in workloads}
    lines = [["", *workloads]]
    for client in clients:
        figures = [(found.get((client, workload)), first[workload]) for workload in workloads]
        lines.append([client, *("" if cell is None else _figure(cell, against) for cell, against in figures)])
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
    say(f"behind x its cost / the first client's. Median of {options.rounds:g} rounds of {options.seconds:g} s.\n")
    for line in _table(cells):
        say(line)
    failed = [cell for cell in cells if cell.error]
    if failed:
        say("\nFailed:")
    for cell in failed:
        say(f"  {cell.workload}, {cell.client}: {cell.error}")


def _versions(cells: list[Cell]) -> dict[str, str]:
    wanted = [name for cell in cells for name in (cell.peer.distribution, *cell.way.needs) if name]
    return machine.versions(dict.fromkeys(wanted))


def _isolate(cells: list[Cell]) -> None:
    """Others' clients, with the emulator, in a network of their own."""
    if all(cell.peer.name == peers.OURS for cell in cells):
        return
    network.restart([sys.executable, *sys.orig_argv[1:]], INSIDE)
    if not network.is_alone():
        text = "no network namespace can be made here: clients of others may ask for a cloud's metadata address"
        print(f"ringest bench compare: {text}", file=sys.stderr)


def main(options: argparse.Namespace) -> int:
    if options.peers == "list":
        return _list_peers()
    try:
        wrong = _wrong_use(options)
        if wrong:
            raise peers.PeerError(wrong)
        cells = list(cells_of(_names(options), options.verbs, options.sizes))
        if not cells:
            raise peers.PeerError(f"none of these clients can {' or '.join(options.verbs)}")
    except peers.PeerError as error:
        print(f"ringest bench compare: {error}", file=sys.stderr)
        return USAGE
    if options.result:
        result.check_place(options.result)
    if options.emulate:
        _isolate(cells)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # what was made is removed, as after Ctrl-C
    try:
        place = _measure(cells, options)
    except (ringest.Error, ExceptionGroup) as error:
        print(f"ringest bench compare: {error}", file=sys.stderr)
        return FAILED
    _print(cells, options, sys.stderr if options.result == "-" else sys.stdout)
    if options.result:
        document = result.Document(
            rows=[row(cell) for cell in cells],
            machine=machine.describe(),
            versions=_versions(cells),
            command=["ringest", "bench", *sys.argv[1:]],
            endpoint=place.endpoint,
        )
        result.write(document, options.result)
    return FAILED if any(cell.error for cell in cells if cell.peer.name == peers.OURS) else 0
