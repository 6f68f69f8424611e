"""One client in a process of its own, as `ringest.bench.compare` starts it:

    python3 -m ringest.bench.peers NAME WAY VERB

reads {"work": fields of Work, "cpus": [number] or null, "parent": its process} as JSON from standard input and prints one line
of JSON: what was counted, or {"error"}. It ends with its parent, however that ends. Memory is counted from when its imports were done and its client not yet made."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import json
import os
import signal
import sys
import time
from typing import Any, NoReturn

from ringest.bench import peers
from ringest.bench.peers.work import Work

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


def peak_rss() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024


def said(error: BaseException) -> str:
    """On one line, with the cause where that says more."""
    parts: list[str] = []
    each: BaseException | None = error
    while each is not None and len(parts) < 3:
        text = " ".join(str(each).split())
        name = type(each).__name__
        part = text if isinstance(each, ImportError) else f"{name}: {text}" if text else name
        if not any(text and text in before for before in parts):
            parts.append(part)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    line = "; because of ".join(parts)
    return line if len(line) <= peers.ERROR_CHARACTERS else line[: peers.ERROR_CHARACTERS - 3] + "..."


def run(name: str, way_name: str, verb: str, work: Work) -> dict[str, Any]:
    peer = peers.find(name)
    way = next(each for each in peer.ways if each.name == way_name)
    for module in way.modules:
        importlib.import_module(module)
    before, began = peak_rss(), time.monotonic()
    counted = getattr(way, verb)(work)
    peak = peak_rss()
    if counted.operations == 0:
        raise RuntimeError(f"nothing came within {work.warm_up + work.seconds:g} s")
    first = None if work.first_at is None else work.first_at - began
    # Of a listing, a call is not what is counted.
    told = counted.latencies.told() if counted.latencies and verb != "list" else None
    return {
        **dataclasses.asdict(dataclasses.replace(counted, latencies=None)),
        "latencies": told and {"counts": told.counts, "max": told.max},
        "peak_rss": peak,
        "growth": peak - before,
        "crc": work.crc,
        "first_seconds": first,
    }


def leave(result: dict[str, Any]) -> NoReturn:
    """Ends the process at once: what threads of others do while Python ends is not measured."""
    print(json.dumps(result), flush=True)
    os._exit(0)


def main(arguments: list[str]) -> None:
    name, way, verb = arguments
    told = json.load(sys.stdin)
    end_with(told["parent"])
    if told["cpus"]:
        os.sched_setaffinity(0, told["cpus"])
    try:
        leave(run(name, way, verb, Work(**told["work"])))
    except Exception as error:
        leave({"error": said(error)})


if __name__ == "__main__":
    main(sys.argv[1:])
