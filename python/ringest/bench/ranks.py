"""The processes of a run, ranks of one job: started afresh, with a barrier. One that fails or dies ends them all.

A rank ends by SIGTERM with an exception, so that it closes what it has open, and by itself when its parent is gone."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from ringest.bench.adapter import Client, Ringest, Unsupported
from ringest.bench.measure import Meter, merged
from ringest.bench.presets import Preset
from ringest.bench.result import Round
from ringest.bench.task import EPOCHS_MAX, Last, Object, Task, WorkloadError

# How long a rank that was asked to end may take.
_PATIENCE_S = 15
_spawn = multiprocessing.get_context("spawn")
Make = Callable[..., Client]


class RankError(Exception):
    """A rank failed; the text says why."""


@dataclass(frozen=True)
class Job:
    """What all ranks get. `make` and `settings` make a client, in the rank."""

    preset: Preset
    objects: Sequence[Object] | None  # None: those of the preset's data below `prefix`
    prefix: str
    folder: str
    is_ours: bool
    settings: dict[str, Any]
    ranks: int
    rounds: int
    seconds: float | None
    warm_up: float
    make: Make = Ringest
    crcs: dict[str, int] | None = None
    verify: bool = False
    limit: float | None = None  # seconds that may pass without a word of any rank
    meeting: str = ""  # a folder on the disk, for ranks that have a process group


@dataclass(frozen=True)
class Shared:
    """Among the ranks."""

    barrier: Any
    epochs: Any  # the last one of each round (task.Last)


class _Ended(BaseException):
    """By SIGTERM."""


def _end(number: int, frame: Any) -> None:
    raise _Ended


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _tell_environment(job: Job, rank: int) -> None:
    """Clients divide the CPUs and the rates of the job. Datasets do not divide what a workload has divided: they know
    nothing of other ranks."""
    if job.ranks == 1:
        return
    for name in ("RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)
    os.environ["RINGEST_LOCAL_RANK"] = str(rank)
    os.environ["RINGEST_LOCAL_WORLD_SIZE"] = os.environ["RINGEST_JOB_PROCESSES"] = str(job.ranks)


def _round(job: Job, rank: int, number: int, settings: dict[str, Any], shared: Shared, tell: Any) -> Round:
    preset = job.preset
    entries = job.objects
    if entries is None:
        entries = preset.data.entries(job.prefix) if hasattr(preset.data, "entries") else []
    with job.make(**settings) as client:
        task = Task(
            work=preset.work,
            data=preset.data,
            objects=entries,
            prefix=job.prefix,
            # Of each round its own, so that none finds what another has written.
            folder=f"{job.folder}round-{number}/",
            meter=Meter(client.counters, tell),
            crcs=job.crcs,
            verify=job.verify,
            meeting=os.path.join(job.meeting, f"round-{number}"),
            is_ours=job.is_ours,
            rank=rank,
            ranks=job.ranks,
            seed=number,
            seconds=job.seconds,
            warm_up=job.warm_up,
            meet=shared.barrier.wait,
            last=Last(shared.epochs, number),
        )
        return preset.workload.run(task, client)


def _main(job: Job, rank: int, pipe: Connection, shared: Shared, caches: Sequence[str | None]) -> None:
    try:
        _serve(job, rank, pipe, shared, caches)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    except _Ended:
        os._exit(1)


def _serve(job: Job, rank: int, pipe: Connection, shared: Shared, caches: Sequence[str | None]) -> None:
    signal.signal(signal.SIGTERM, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    threading.Thread(target=_follow_parent, daemon=True).start()
    _tell_environment(job, rank)

    def tell(phase: str, done: int) -> None:
        pipe.send(("progress", (phase, done)))

    try:
        for number in range(job.rounds):
            settings = {**job.settings, **({"cache": caches[number]} if caches[number] else {})}
            pipe.send(("round", _round(job, rank, number, settings, shared, tell)))
            pipe.recv()  # what lies between two rounds is done
    except _Ended:
        raise
    except (WorkloadError, Unsupported, ImportError, OSError, ExceptionGroup, MemoryError, ValueError) as error:
        cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
        pipe.send(("error", f"{type(cause).__name__}: {cause}"))
    except BaseException:
        pipe.send(("error", traceback.format_exc()))


class Ranks:
    def __init__(self, job: Job, caches: Sequence[str | None]) -> None:
        self._job = job
        self._is_done = False
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        # Kept: without it, no rank that starts later would find it.
        self._shared = Shared(_spawn.Barrier(job.ranks), _spawn.Array("q", [EPOCHS_MAX] * job.rounds))
        # Ctrl-C is the parent's business. It waits while ranks start, and they have it blocked for good.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        try:
            self._start(caches)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:
            self.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise

    def _start(self, caches: Sequence[str | None]) -> None:
        for rank in range(self._job.ranks):
            ours, theirs = _spawn.Pipe()
            process = _spawn.Process(
                target=_main, args=(self._job, rank, theirs, self._shared, caches), name=f"ringest bench rank {rank}"
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def rounds(self, tell: Callable[[int, str, int], None]) -> Iterator[Round]:
        """Merged, as they end. tell(round, phase, operations of all ranks) in between."""
        for number in range(self._job.rounds):
            parts: dict[int, Round] = {}
            done = dict.fromkeys(range(len(self._pipes)), 0)
            while len(parts) < len(self._pipes):
                ready = wait(self._pipes, self._job.limit)
                if not ready:
                    raise RankError(f"nothing came for {self._job.limit:g} s (--limit)")
                for pipe in ready:
                    rank = self._pipes.index(pipe)  # type: ignore[arg-type]
                    what, value = self._take(rank)
                    if what == "round":
                        parts[rank] = value
                    else:
                        done[rank] = value[1]
                        tell(number, value[0], sum(done.values()))
            yield merged([parts[rank] for rank in sorted(parts)])
            for pipe in self._pipes:
                pipe.send(None)
        self._is_done = True

    def _take(self, rank: int) -> tuple[str, Any]:
        try:
            what, value = self._pipes[rank].recv()
        except (EOFError, ConnectionResetError):
            process = self._processes[rank]
            process.join(_PATIENCE_S)
            code = process.exitcode
            how = f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"with status {code}"
            raise RankError(f"rank {rank} of {self._job.ranks} ended {how}") from None
        if what == "error":
            where = f"rank {rank} of {self._job.ranks}: " if self._job.ranks > 1 else ""
            raise RankError(where + value)
        return what, value

    def close(self) -> None:
        """Ends those that run still. What interrupts the run waits for that, for _PATIENCE_S at most: what they have
        written can only be removed when they write no more."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        try:
            self._end()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _end(self) -> None:
        for process in self._processes:
            if not self._is_done and process.is_alive():
                process.terminate()
        until = time.monotonic() + _PATIENCE_S
        for process in self._processes:
            process.join(max(until - time.monotonic(), 0.1))
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.close()
