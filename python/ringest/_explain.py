"""Why a step of a loop over a dataset took as long as it did."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ringest import _core
from ringest._metrics import metrics_if_open
from ringest.client import Client

_NS_PER_S = 10**9
# A loop that waits less than this part of its time has nothing to gain from faster reading.
_WAIT_THAT_MATTERS = 0.1
# Loops that use more of a CPU than this are what everything waits for, whatever it is at.
_BUSY = 0.85

# What a stage is called besides those of the library.
_DECODE, _OTHER = "decode", "other"

_WHAT = {
    "cache": "looking into the cache",
    "token": "waiting for an access token",
    "throttled": "held back by limits or answers 429 and 503",
    "retry": "waiting to try again after failures",
    "queue": "waiting for a connection, all being busy",
    "dns": "looking up the host",
    "connect": "connecting",
    "tls": "TLS handshakes",
    "first_byte": "until answers began",
    "body": "receiving bodies",
    "memory": "waiting for memory",
    _DECODE: "transforms, and making batches",
    _OTHER: "not known",
}

_OPENING = (
    "Connections were still being opened: keep one Client for all epochs, or open them early by Client(prewarm=)."
)
_ADVICE = {
    "loops": "The threads of the client use {busy:.0%} of a CPU each, so that all else waits for them: raise "
    "Client(threads=), or give the process more CPUs.",
    "consumer": "The loop itself takes {consumer:.0%} of a step, and no option of ringest makes that faster.",
    "cache": "The disk of the cache is slow: give Client(cache=) a folder on a faster one, or none.",
    "token": "Access tokens came late: look at `ringest doctor`, or give Client(credentials=) a key of a service account.",
    "throttled": "The bucket limits the rate: read fewer, larger objects (TarDataset), ask for a larger quota, or raise "
    "Client(reads_per_s=) if you have set it.",
    "retry": "Requests failed and were tried again: the log says why (RINGEST_LOG=info), and Client(backoff_max=) limits "
    "the pauses.",
    "queue": "All connections are busy while samples wait for one: raise Client(connections=).",
    "dns": _OPENING,
    "connect": _OPENING,
    "tls": _OPENING,
    "first_byte": "The service takes long to begin its answers: have more of them on the way, by a larger {ahead}.",
    "body": "The bytes come slowly: have more on the way by a larger {ahead}; if MB/s stays the same, the network is the "
    "limit.",
    "memory": "The client's memory is in use: raise Client(memory=), or let go of earlier batches.",
    _DECODE: "Making samples of bytes takes the time: make transform= faster, or let several processes do it, by "
    "DataLoader(num_workers=).",
    _OTHER: "Nothing was being read while the loop waited: look at what else the client is used for, and raise "
    "Client(requests=).",
}


class Explanation(NamedTuple):
    """Where the time of the last steps went; str() is for people. All times are in seconds."""

    steps: int
    seconds: float  # of these steps together
    consumer: float  # of these: between getting a batch and asking for the next one
    wait: float  # the rest: from asking for a batch until it was there
    parts: Mapping[str, float]  # of the wait, by its cause; "other" is what has none
    loops_busy: float  # which part of a CPU each of the client's threads has used since the iteration began
    advice: str  # a sentence

    @property
    def attributed(self) -> float:
        """Which part of the wait has a known cause, 0 to 1."""
        return 1 - self.parts[_OTHER] / self.wait if self.wait > 0 else 1.0

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return {**self._asdict(), "parts": dict(self.parts), "attributed": self.attributed}

    def __str__(self) -> str:
        def ms(seconds: float) -> str:
            return f"{seconds / self.steps * 1000:.3g} ms"

        found = sorted(((seconds, name) for name, seconds in self.parts.items() if seconds > 0), reverse=True)
        lines = [
            f"{self.steps} steps of {ms(self.seconds)} each: {ms(self.consumer)} in the loop, "
            f"{ms(self.wait)} waiting for data"
        ]
        lines += [
            f"  {seconds / self.wait:5.1%}  {ms(seconds):>9}  {name:<10}  {_WHAT[name]}" for seconds, name in found
        ]
        return "\n".join([*lines, self.advice])


class Cpu(NamedTuple):
    """What the loops of a client have used, and when."""

    used_ns: int
    loops: int
    at_ns: int

    @classmethod
    def of(cls, client: Client) -> Cpu:
        found = {metric.name: metric.value for metric in metrics_if_open(client)}
        return cls(found.get("loop_cpu", 0), found.get("loops", 0), time.monotonic_ns())

    def busy(self, now: Cpu) -> float:
        """Which part of a CPU each has used until then; 0 if that is not known."""
        available = (now.at_ns - self.at_ns) * now.loops
        return (now.used_ns - self.used_ns) / available if available > 0 else 0.0


def _cause(consumer: float, wait: float, parts: Mapping[str, float], busy: float) -> str:
    if wait < _WAIT_THAT_MATTERS * (consumer + wait):
        return "consumer"
    cause = max(parts, key=lambda name: parts[name])
    return "loops" if busy > _BUSY and cause != _DECODE else cause


def explain(sums: tuple[int, int, int, tuple[int, ...]], busy: float, ahead: str) -> Explanation:
    """Of what Reader.steps gave. `ahead` names the option that limits how much is read ahead."""
    steps, away_ns, inside_ns, slept_ns = sums
    parts = {name: ns / _NS_PER_S for name, ns in zip(_core.stages, slept_ns)}
    consumer, wait = away_ns / _NS_PER_S, inside_ns / _NS_PER_S
    # A sleep that one step could not explain, the next may have: then that is below 0, and so much of the causes is of
    # sleeps before these steps.
    other, known = parts.pop("none"), sum(parts.values())
    if known > 0:
        share = min(max(min(known + other, wait), 0.0) / known, 1.0)
        parts = {name: seconds * share for name, seconds in parts.items()}
    other = min(max(other, 0.0), max(wait - sum(parts.values()), 0.0))
    parts[_DECODE] = max(wait - sum(parts.values()) - other, 0.0)
    parts[_OTHER] = other
    seconds = consumer + wait
    text = _ADVICE[_cause(consumer, wait, parts, busy)]
    advice = text.format(consumer=consumer / max(seconds, 1e-9), busy=busy, ahead=ahead)
    return Explanation(steps, seconds, consumer, wait, parts, busy, advice)
