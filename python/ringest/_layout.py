"""Which rank of how many this process is."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import NamedTuple

# What starts processes tells them by these, the innermost first: torchrun may be started by mpirun, and mpirun's
# daemons by srun. A rank without a size is none: a batch script of Slurm has SLURM_PROCID, but is no task of a step,
# which alone has SLURM_STEP_NUM_TASKS.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
_REMEDY = "correct the environment, or give rank= and world_size="


class Layout(NamedTuple):
    rank: int
    world_size: int


def process_groups() -> ModuleType | None:
    """torch.distributed, where there is a process group: nothing is imported to find out."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def check_layout(rank: int | None, world_size: int | None) -> None:
    """What was given by hand."""
    if (rank is None) != (world_size is None):
        raise ValueError("rank and world_size are given together or not at all")
    if rank is not None and world_size is not None and not 0 <= rank < world_size:
        raise ValueError(f"rank is {rank}, and must be below world_size, which is {world_size}")


def _number(name: str) -> int | None:
    text = os.environ.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r} in the environment, not a number; {_REMEDY}") from None


def _of_variables(rank_name: str, size_name: str) -> Layout:
    rank, world_size = _number(rank_name), _number(size_name)
    if rank is None or world_size is None:
        there, lacking = (rank_name, size_name) if world_size is None else (size_name, rank_name)
        raise ValueError(
            f"{there}={os.environ[there]} is in the environment, but {lacking} is not: without a process group, rank "
            f"and world size are not known; {_REMEDY}"
        )
    if not 0 <= rank < world_size:
        raise ValueError(f"the environment says {rank_name}={rank} and {size_name}={world_size}; {_REMEDY}")
    return Layout(rank, world_size)


def _of_group(distributed: ModuleType) -> Layout:
    """Half of RANK and WORLD_SIZE, as Lightning sets it, is no contradiction where it agrees."""
    layout = Layout(distributed.get_rank(), distributed.get_world_size())
    for name, number in (("RANK", layout.rank), ("WORLD_SIZE", layout.world_size)):
        said = _number(name)
        if said is not None and said != number:
            raise ValueError(
                f"the process group says that this is rank {layout.rank} of {layout.world_size}, and the environment "
                f"says {name}={said}; {_REMEDY}"
            )
    return layout


def find_layout(rank: int | None = None, world_size: int | None = None) -> Layout:
    """What was given, else what the process group says, else RANK and WORLD_SIZE, else MPI's and Slurm's variables,
    else rank 0 of 1. ValueError: they contradict each other, or are no rank of a world."""
    if rank is not None and world_size is not None:
        return Layout(rank, world_size)
    distributed = process_groups()
    if distributed is not None:
        return _of_group(distributed)
    if "RANK" in os.environ or "WORLD_SIZE" in os.environ:
        return _of_variables("RANK", "WORLD_SIZE")
    for rank_name, size_name in _LAUNCHERS:
        if size_name in os.environ:
            return _of_variables(rank_name, size_name)
    return Layout(0, 1)
