"""What checkpoints are called, and what the folders of known kinds hold. cli/ckpt_names.c has the same tables.

In the patterns # stands for digits and @ for the 16 hexadecimal digits of a save of ringest.dcp.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

# Files that are checkpoints, by their endings.
KINDS = {".pt": "torch", ".pth": "torch", ".ckpt": "torch", ".safetensors": "safetensors"}
# Lightning's folders have the ending of its files.
_FOLDER_ENDING = ".ckpt"

# Names with a step, which is the last number of them; that of Lightning's versions comes behind it.
_STEPS = (
    "#",
    "step#",
    "step-#",
    "step=#",
    "step_#",
    "global_step#",
    "global_step-#",
    "global_step=#",
    "global_step_#",
    "checkpoint-#",
    "epoch=#-step=#",
)
_WITH_VERSION = ("step=#", "epoch=#-step=#")

_DCP = (
    ".metadata",
    ".metadata.tmp",
    "__#.metadata",
    "__#_#.distcp",
    "__#_#.@.distcp",
    "__#_#.@.rank.distcp",
    "meta.pt",
)
_DEEPSPEED = (
    "bf16_zero_pp_rank_#_mp_rank_#_optim_states.pt",
    "expert_#_mp_rank_#_model_states.pt",
    "expp_rank_#_mp_rank_#_optim_states.pt",
    "layer_#-model_#-model_states.pt",
    "layer_#-model_states.pt",
    "layer_#_expert_#_mp_rank_#_model_states.pt",
    "mp_rank_#_model_states.pt",
    "zero_pp_rank_#_mp_rank_#_model_states.pt",
    "zero_pp_rank_#_mp_rank_#_optim_states.pt",
)
_HUGGINGFACE = (
    "README.md",
    "adapter_config.json",
    "adapter_model.bin",
    "adapter_model.safetensors",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    "latest",
    "merges.txt",
    "model-#-of-#.safetensors",
    "model.safetensors",
    "model.safetensors.index.json",
    "optimizer.bin",
    "optimizer.pt",
    "preprocessor_config.json",
    "processor_config.json",
    "pytorch_model-#-of-#.bin",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "pytorch_model_fsdp.bin",
    "rng_state.pth",
    "rng_state_#.pth",
    "scaler.pt",
    "scheduler.pt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "trainer_state.json",
    "training_args.bin",
    "video_preprocessor_config.json",
    "vocab.json",
    "vocab.txt",
    "zero_to_fp32.py",
    "zero_to_torch.py",
    *(f"optimizer_#/{name}" for name in _DCP),
    *(f"pytorch_model_fsdp_#/{name}" for name in _DCP),
    *(f"global_step#/{name}" for name in _DEEPSPEED),
)
# One of these is there when a Trainer's folder has weights; a part of many is there with all the others.
_WEIGHTS = {
    "adapter_model.bin",
    "adapter_model.safetensors",
    "model.safetensors",
    "pytorch_model.bin",
    "pytorch_model_fsdp.bin",
    "pytorch_model_fsdp_#/.metadata",
    "global_step#/mp_rank_#_model_states.pt",
    "global_step#/zero_pp_rank_#_mp_rank_#_model_states.pt",
    "mp_rank_#_model_states.pt",
    "zero_pp_rank_#_mp_rank_#_model_states.pt",
}
_PARTS = {"model-#-of-#.safetensors", "pytorch_model-#-of-#.bin"}
_PART = re.compile(r"(.*model-)(\d{1,18})(-of-)(\d{1,18})(\..*)", re.ASCII)
# What a later checkpoint of a run may lack: weights may be cut into parts, and there may be fewer processes.
_MAY_DIFFER = {
    *_WEIGHTS,
    *_PARTS,
    "README.md",
    "rng_state.pth",
    "rng_state_#.pth",
    "zero_to_fp32.py",
    "zero_to_torch.py",
}
# Folders whose names are a number, or end a word so, may each have what one process saved.
_OF_PROCESS = re.compile(r"(?:gpu|host|node|part|proc|process|rank|replica|shard|worker)[-_=]?\d", re.ASCII)


def _compiled(pattern: str, number: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\#", number).replace("@", "[0-9a-f]{16}"), re.ASCII)


_LAYOUTS = {
    layout: [(_compiled(each, r"\d+"), each) for each in patterns]
    for layout, patterns in (("dcp", _DCP), ("deepspeed", _DEEPSPEED), ("huggingface", _HUGGINGFACE))
}
_VERSION = r"(?:-v\d{1,18})?"
_NAMES = [
    (re.compile(_compiled(each, r"(\d{1,18})").pattern + (_VERSION if each in _WITH_VERSION else ""), re.ASCII), each)
    for each in _STEPS
]


class Name(NamedTuple):
    """What a name that is recognised says. series: what names of one series have in common, with the ending."""

    series: str
    step: int

    @property
    def is_number(self) -> bool:
        """Nothing else: a folder of that name may be many things."""
        return self.series.startswith("#")


def _name(stem: str, ending: str) -> Name | None:
    for pattern, series in _NAMES:
        match = pattern.fullmatch(stem)
        if match:
            return Name(series + ending, int(match[match.lastindex or 0]))
    return None


def file_name(last: str) -> Name | None:
    """What the last part of a file's name says."""
    stem, ending = os.path.splitext(last)
    return _name(stem, ending) if ending in KINDS else None


def folder_name(last: str) -> Name | None:
    """What the last part of a folder's name says, without a slash."""
    stem = last.removesuffix(_FOLDER_ENDING)
    return _name(stem, last[len(stem) :] + "/")


def as_pattern(last: str) -> str:
    return re.sub(r"\d+", "#", last, flags=re.ASCII)


def may_be_of_process(last: str) -> bool:
    """Whether a folder of that name, without a slash, may have no more than one process's part of checkpoints."""
    return as_pattern(last) == "#" or _OF_PROCESS.search(last) is not None


def _pattern(layout: str, name: str) -> str | None:
    """The pattern that the name of a part of such a folder matches; None: it is no known part."""
    return next((pattern for compiled, pattern in _LAYOUTS[layout] if compiled.fullmatch(name)), None)


def is_dcp(name: str) -> bool:
    """Whether it makes the folder that it lies in a distributed checkpoint."""
    return _pattern("dcp", name) not in (None, "meta.pt", ".metadata.tmp")


def layout_of(series: str, names: Iterable[str]) -> str:
    """A folder's layout, by its series and the names in it; "unknown" unless it is certain."""
    names = set(names)
    if series.startswith("checkpoint-#") and "trainer_state.json" in names:
        return "huggingface"
    if any(is_dcp(each) for each in names):
        return "dcp"
    if series.startswith("global_step") and any(_pattern("deepspeed", each) for each in names):
        return "deepspeed"
    return "unknown"


def foreign(layout: str, names: Iterable[str]) -> list[str]:
    """What is not known to be part of such a folder."""
    return sorted(each for each in names if layout not in _LAYOUTS or _pattern(layout, each) is None)


def lasting(layout: str, names: Iterable[str]) -> set[str]:
    """What a later checkpoint of the same run has, too, if it is complete; as patterns."""
    return {pattern for each in names if (pattern := _pattern(layout, each))} - _MAY_DIFFER


def missing(layout: str, names: Iterable[str]) -> list[str]:
    """What a folder that is not of DCP lacks, as far as its names tell."""
    names = set(names)
    patterns = {_pattern(layout, each) for each in names}
    if layout == "deepspeed":
        has_model = any(pattern and "model_states" in pattern for pattern in patterns)
        return [] if has_model else ["mp_rank_#_model_states.pt"]
    lacking = set()
    for name in names:
        match = _PART.fullmatch(name) if _pattern(layout, name) in _PARTS else None
        # More than there are names is told by as many.
        if match is None:
            continue
        for number in range(1, min(int(match[4]), len(names) + 1) + 1):
            part = f"{match[1]}{number:0{len(match[2])}}{match[3]}{match[4]}{match[5]}"
            if part not in names:
                lacking.add(part)
    if not patterns & (_WEIGHTS | _PARTS):
        lacking.add("model.safetensors")
    return sorted(lacking)
