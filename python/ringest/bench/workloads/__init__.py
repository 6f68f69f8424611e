"""The kinds of workloads. Each is a module with

Data          a dataclass: the preset's table [data]; scaled(factor, ranks) makes less of it
Work          a dataclass: the preset's table [work]
run(task, client) -> Round     what one rank does

so that the same workload runs with any client (`ringest.bench.adapter`)."""

from __future__ import annotations

import importlib
from types import ModuleType

KINDS = {
    "list": "names below a prefix",
    "read": "whole objects, as fast as they come or with a pause for each batch",
    "train": "batches for steps of a training loop that computes for a given time, with accelerator utilisation",
    "parquet": "batches of rows of some columns",
    "checkpoint": "a model's state, saved and loaded",
    "mixed": "reads beside writes",
}
_MODULES = {"list": "listing", "read": "reading", "train": "training", "checkpoint": "checkpoints"}


def module(kind: str) -> ModuleType:
    return importlib.import_module(f"ringest.bench.workloads.{_MODULES.get(kind, kind)}")
