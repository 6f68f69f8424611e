"""Saved states: what state_dict() gives and load_state_dict() takes, of one rank or of all.

A state is {"epoch": number, "state": bytes or None}, and "base" if the epoch had been resumed. "base" says what was
consumed before that, "state" what one reader has consumed since; without "state" that is nothing. "parts" says what was
consumed of row groups of which the rest was not (ParquetDataset).
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Sequence
from typing import Any

from ringest import _core
from ringest._needs import needs
from ringest._parquet_rows import Parts, unite_parts

# What StatefulDataLoader's states have, of version 0.11 of torchdata, with workers and without.
_SNAPSHOT, _WORKERS, _STEPS_SINCE = "_snapshot", "_worker_snapshots", "_steps_since_snapshot"
_DATASET, _YIELDED = "dataset_state", "_num_yielded"


class Place:
    """Where in an epoch: the bytes of one reader's state and of its base, either of which may be None."""

    def __init__(
        self, epoch: int, state: bytes | None = None, base: bytes | None = None, parts: Parts | None = None
    ) -> None:
        self.epoch, self.state, self.base, self.parts = epoch, state, base, parts

    def to_dict(self) -> dict[str, Any]:
        packed = {} if self.base is None else {"base": _pack(self.base)}
        parts = {} if self.parts in (None, Parts()) else {"parts": self.parts.to_plain()}
        return {"epoch": self.epoch, "state": self.state, **packed, **parts}

    @property
    def is_beginning(self) -> bool:
        return self.state is None and self.base is None


class Told:
    """The state behind what was handed out of an iteration, by somebody who takes from it ahead of the loop."""

    def __init__(self, place: Any) -> None:
        self.place = place


# All states of one epoch have the same base: one is kept.
@functools.lru_cache(maxsize=1)
def _pack(base: bytes) -> bytes:
    # Ranks that stopped apart leave patterns behind.
    return zlib.compress(base)


def _unpack(base: bytes | None) -> bytes | None:
    try:
        return None if base is None else zlib.decompress(base)
    except zlib.error as error:
        raise ValueError(f"the base of a state is damaged: {error}") from None


def _check_intact(data: bytes | None, what: str) -> bytes | None:
    """What a reader has saved ends in its CRC32C; what it says is looked at when an iteration begins."""
    if data is not None and (len(data) < 8 or _core.crc32c(data[:-4]) != int.from_bytes(data[-4:], "little")):
        raise ValueError(
            f"{what} is damaged: its {len(data)} bytes do not have the checksum that they end in; load another "
            "one, or begin the epoch anew with set_epoch()"
        )
    return data


def _place(state: Any) -> Place:
    """The place that a state of our own says."""
    if isinstance(state, dict) and isinstance(state.get("epoch"), int) and 0 <= state["epoch"] < 1 << 64:
        saved, base = state.get("state", 0), state.get("base")
        if isinstance(saved, bytes | None) and isinstance(base, bytes | None):
            saved = _check_intact(saved, "the state")
            parts = Parts.of_plain(state["parts"]) if "parts" in state else None
            return Place(state["epoch"], saved, _check_intact(_unpack(base), "the base of a state"), parts)
    raise ValueError(f"{_shown(state)} is not a state that state_dict() gave")


def _shown(state: Any) -> str:
    text = repr(state)
    return text if len(text) < 100 else f"{text[:100]}..."


def _places_of_workers(state: dict[str, Any]) -> list[Place]:
    """The places that the state of a StatefulDataLoader with workers says."""
    if state.get(_STEPS_SINCE):
        raise ValueError(
            f"the state of a StatefulDataLoader is {state[_STEPS_SINCE]} batches older than what it had given: save "
            "after a multiple of its snapshot_every_n_steps, or leave that at 1"
        )
    workers = state[_SNAPSHOT].get(_WORKERS, {})
    return [_place(worker[_DATASET]) for worker in workers.values()]


def _places_of_rank(state: Any) -> list[Place]:
    """What a rank saved: a state of ours, or that of a StatefulDataLoader, which has those of its workers."""
    if isinstance(state, dict) and _SNAPSHOT in state:
        places = _places_of_workers(state)
    elif isinstance(state, dict) and _DATASET in state and _YIELDED in state:
        places = [_place(state[_DATASET])]
    else:
        places = [_place(state)]
    # Workers of which none has begun are a rank that has not begun.
    return places if any(place.state is not None for place in places) else places[:1]


def unite(states: Any) -> Place:
    """What load_state_dict() was given, as one place: a rank's own state, or a list of all ranks'."""
    is_list = isinstance(states, Sequence) and not isinstance(states, (str, bytes))
    places = [place for state in (states if is_list else [states]) for place in _places_of_rank(state)]
    epochs = sorted({place.epoch for place in places})
    if len(epochs) != 1:
        found = " and ".join(map(str, epochs)) or "none at all"
        raise ValueError(f"states of one epoch are needed, and these are of {found}")
    if all(place.is_beginning for place in places):
        return places[0]
    if len(places) == 1 and not is_list:
        return places[0]
    base = _core.unite([(place.state, place.base) for place in places], is_list)
    return Place(epochs[0], None, base, unite_parts([place.parts for place in places]))


def gather_state(state: dict[str, Any]) -> dict[str, Any]:
    """One state of what all ranks have consumed, from the state that each has: of a dataset, or of torchdata's
    StatefulDataLoader. Every rank of the process group calls it and gets the same, which any number of ranks and
    workers can go on from. With Lightning return it from LightningDataModule.state_dict(), which is called on every
    rank, and give it to the dataset in load_state_dict()."""
    with needs("gather_state"):
        import torch.distributed as distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return unite([state]).to_dict()
    states: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(states, state)
    return unite(states).to_dict()
