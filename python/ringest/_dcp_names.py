"""What the objects of a distributed checkpoint are called.

`.metadata` says what is in a checkpoint that all ranks saved together, `__RANK.metadata` what a rank saved that
used no collectives. Data are `__RANK_NUMBER.distcp` of torch's writers, `__RANK_NUMBER.SAVE.distcp` of ours, and
`__RANK_NUMBER.SAVE.rank.distcp` of our ranks that save alone: so that whoever removes what killed saves left
knows those of his own kind, and no save of the other kind that is under way is harmed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

METADATA_NAME = ".metadata"

_DATA = r"__(\d+)_(\d+)(?:\.([0-9a-f]{16})(\.rank)?)?\.distcp"
DATA_NAME = re.compile(_DATA, re.ASCII)
_RANK_METADATA = re.compile(r"__(\d+)\.metadata", re.ASCII)
# In the bytes of metadata, a pickle, which holds strings as they are.
_NAMED = re.compile(_DATA.replace("(", "(?:").replace("(?:?:", "(?:").encode())


def metadata_name(rank: int | None) -> str:
    """The name of a checkpoint's one metadata, or of that of a rank which saved without the others."""
    return METADATA_NAME if rank is None else f"__{rank}{METADATA_NAME}"


def is_metadata(name: str) -> bool:
    return name == METADATA_NAME or _RANK_METADATA.fullmatch(name) is not None


def ranks_of(heads: Iterable[str]) -> set[int]:
    """The ranks that have metadata of their own."""
    return {int(match[1]) for name in heads if (match := _RANK_METADATA.fullmatch(name))}


def ranks_alone(names: Iterable[str]) -> set[int]:
    """The ranks that may have saved alone, by the names of data."""
    matches = (DATA_NAME.fullmatch(name) for name in names)
    return {int(match[1]) for match in matches if match and (match[3] is None or match[4])}


def data_name(rank: int, number: int, save: str, is_alone: bool) -> str:
    return f"__{rank}_{number}.{save}{'.rank' if is_alone else ''}.distcp"


def is_of_save(name: str, is_alone: bool) -> bool:
    """Whether only our saves of that kind have data of such a name."""
    match = DATA_NAME.fullmatch(name)
    return match is not None and match[3] is not None and (match[4] is not None) == is_alone


def named_in(metadata: bytes) -> set[str]:
    """The data that metadata names; nothing is unpickled."""
    return {each.decode() for each in _NAMED.findall(metadata)}
