"""How PyTorch makes a batch of Buffers: a list of them, as of str and bytes, whether or not workers made it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ringest._core import Buffer


def _collate(batch: Sequence[Buffer], *, collate_fn_map: Any = None) -> list[Buffer]:
    return list(batch)


def register() -> None:
    """Tells PyTorch's default_collate, if PyTorch has been imported; this does not import it."""
    collate = sys.modules.get("torch.utils.data._utils.collate")
    functions = getattr(collate, "default_collate_fn_map", None)
    if isinstance(functions, dict):
        functions.setdefault(Buffer, _collate)
