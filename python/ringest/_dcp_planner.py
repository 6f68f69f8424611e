"""Planners of ringest.dcp: torch's own, less what each save and load would find out anew.

A plan says what is written, or read, of each tensor. torch makes it of every state by a dozen steps of Python for each
tensor, which cost more than to send a small one. The SavePlanner makes it again only of a state that is another one, by all
that a plan is made of. The LoadPlanner is for one load, and takes the short way for tensors that were saved whole."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import io
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
    create_default_local_load_plan,
    create_default_local_save_plan,
)
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem, SavePlan
from torch.distributed.tensor import DTensor

from ringest._dcp_place import PLAIN, PerThread

T = TypeVar("T")

# Of exactly these types: what has no elements of its own to be saved, and what is gone through by its keys.
_LEAVES = frozenset({*PLAIN, DTensor, int, float, bool, str, type(None)})
_DICTS = frozenset({dict, collections.OrderedDict})


class _Told(NamedTuple):
    """What the plan of a rank has for the one that makes the plan of all."""

    token: str  # of this rank's plan
    made: str  # of the plan of all that this rank has its part of; "": none
    mappings: Any


class _Answer(NamedTuple):
    """What the plan of all has for a rank."""

    made: str
    ranks: int


class _Local(NamedTuple):
    """The plan of this rank, of a state that has these facts."""

    facts: Any
    plan: SavePlan
    token: str


class _Final(NamedTuple):
    """This rank's part of a plan of all."""

    answer: _Answer
    plan: SavePlan
    place: tuple[int, int]  # how many ranks the process has, and which it is
    made: dict[Any, Any]  # by others, of this plan, and by what


class _Kept(NamedTuple):
    """What a save leaves for the next one."""

    local: _Local
    final: _Final


class _Global(NamedTuple):
    """The plan of all ranks, made of the plans with these tokens."""

    made: str
    tokens: list[str]
    locals: list[SavePlan]
    plans: list[SavePlan]
    metadata: Metadata


class _OfThread(PerThread[dict[str, Any]]):
    """The attributes that a planner has of one save, or one load: torch makes all calls of one from one thread, and those
    of another thread are of another. A thread that is in none, as the helpers of torch's own writer, sees the last one."""

    def values(self) -> dict[str, Any]:
        values = self.current_or_none()
        if values is None:
            self.begin(values := {})
        return values


def _of_thread(name: str) -> Any:
    def get(planner: Any) -> Any:
        try:
            return planner._of_thread.values()[name]
        except KeyError:
            raise AttributeError(name) from None

    def put(planner: Any, value: Any) -> None:
        planner._of_thread.values()[name] = value

    return property(get, put)


class SavePlanner(DefaultSavePlanner):
    """torch's DefaultSavePlanner, which keeps its plan for the next save of the same state.

        planner = SavePlanner()
        for step in ...:
            dcp.save(state, storage_writer=StorageWriter(f"gs://bucket/run/step-{step}"), planner=planner)

    A plan is made anew where anything is not as it was that a plan depends on: the keys and their order, the shape, type,
    layout, device and memory of a tensor, whether it requires a gradient, and the mesh and the placements of a DTensor. What
    is no tensor is not compared: it is saved as it is at each save. With a process group, ranks whose state is
    as it was send no plan, and get none.

    Use one for all saves of one state, in every rank; another state gets a planner of its own. Saves that go on at the same
    time, as dcp.async_save begins them, do not meet: one of them has the plan that was kept, and the others make one. That is
    so for ringest.dcp.StorageWriter, and for others that ask the planner in the thread that calls them. The arguments are
    those of DefaultSavePlanner. A copy, or another process, has no plan yet.
    """

    state_dict = _of_thread("state_dict")
    mappings = _of_thread("mappings")
    is_coordinator = _of_thread("is_coordinator")
    plan = _of_thread("plan")
    global_plan = _of_thread("global_plan")
    metadata = _of_thread("metadata")
    _local = _of_thread("local")
    _final = _of_thread("final")

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_save_to_lowest_rank: bool = False,
    ):
        self._forget()
        super().__init__(
            flatten_state_dict, flatten_sharded_tensors, dedup_save_to_lowest_rank=dedup_save_to_lowest_rank
        )

    def _forget(self) -> None:
        self._of_thread = _OfThread()
        # Nothing while a save has it, or where one failed that had it. A save takes it, or finds nothing, in one step.
        self._kept: collections.deque[_Kept] = collections.deque(maxlen=1)
        # By the number of ranks: a rank may save alone in between.
        self._globals: dict[int, _Global] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_of_thread", "_kept", "_globals")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._forget()
        self.__dict__.update(state)

    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        self._of_thread.begin({"mappings": {}})
        if self.flatten_state_dict:
            flat, mappings = _flattened(state_dict)
            # Otherwise torch goes through all of the state twice more.
            if not any(issubclass(kind, ShardedTensor) for kind in set(map(type, flat.values()))):
                self.state_dict, self.mappings = flat, mappings
                self.is_coordinator = is_coordinator
                return
        super().set_up_planner(state_dict, storage_meta, is_coordinator)

    def create_local_plan(self) -> SavePlan:
        facts, kept = self._facts(), None
        with contextlib.suppress(IndexError):
            kept = self._kept.pop()
        if kept is not None and kept.local.facts == facts:
            self._local, self._final = kept
        else:
            self._local, self._final = _Local(facts, super().create_local_plan(), secrets.token_hex(8)), None
        local, final = self._local, self._final
        # What a rank has planned alone, or as another one, the others do not know.
        is_known = final is not None and final.place == _place() and (final.answer.ranks > 1 or final.place[0] == 1)
        told = _Told(local.token, final.answer.made if final is not None else "", None if is_known else self.mappings)
        self.plan = dataclasses.replace(
            local.plan, items=[] if is_known else local.plan.items, planner_data=told, usable=not is_known
        )
        return self.plan

    def _facts(self) -> Any:
        """What a plan depends on. Equal facts have equal plans."""
        state_dict, is_coordinator = self.state_dict, self.is_coordinator
        with torch.no_grad():
            each = [_facts_of(fqn, value, is_coordinator) for fqn, value in state_dict.items()]
        return is_coordinator, list(state_dict), self.mappings, each

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        told: list[_Told] = [plan.planner_data for plan in all_plans]
        for rank, each in enumerate(told):
            if not isinstance(each, _Told):
                raise TypeError(f"rank {rank} saves with another planner: give all ranks a ringest.dcp.SavePlanner")
        known = self._globals.get(len(all_plans))
        if known is None or known.tokens != [each.token for each in told]:
            known = self._globals[len(all_plans)] = self._make(all_plans, told, known)
        answer = _Answer(known.made, len(all_plans))
        self.global_plan = known.plans
        # Of each save its own, because what is stored where is noted there.
        self.metadata = copy.copy(known.metadata)
        return [
            SavePlan([], sent.storage_data, answer, usable=False)
            if each.made == known.made
            else dataclasses.replace(plan, storage_data=sent.storage_data, planner_data=answer)
            for sent, each, plan in zip(all_plans, told, known.plans, strict=True)
        ], self.metadata

    def _make(self, all_plans: list[SavePlan], told: list[_Told], before: _Global | None) -> _Global:
        whole = []
        for rank, (plan, each) in enumerate(zip(all_plans, told, strict=True)):
            if plan.usable:
                whole.append(dataclasses.replace(plan, planner_data=each.mappings))
            elif before is not None and before.tokens[rank] == each.token:
                whole.append(before.locals[rank])
            elif self._local.token == each.token:
                whole.append(self._local.plan)
            else:
                raise RuntimeError(
                    f"the plan of rank {rank} is not known here any more: save again, and give each process group a "
                    "ringest.dcp.SavePlanner of its own"
                )
        plans, metadata = super().create_global_plan(whole)
        return _Global(secrets.token_hex(8), [each.token for each in told], whole, plans, metadata)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        answer: _Answer = new_plan.planner_data
        if new_plan.usable:
            self._final = _Final(answer, dataclasses.replace(new_plan, planner_data=self.mappings), _place(), {})
        assert self._final is not None and self._final.answer == answer
        self._kept.append(_Kept(self._local, self._final))
        # Where a rank stores is told anew: it may be another kind of storage.
        self.plan = dataclasses.replace(self._final.plan, storage_data=new_plan.storage_data)
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Any:
        found = _looked_up(self.state_dict, index)
        return super().lookup_object(index) if found is None else found

    def of_plan(self, plan: SavePlan, make: Callable[[SavePlan], T]) -> T:
        """What `make` makes of a plan, by nothing else: once, as long as the plan is kept."""
        final = getattr(self, "_final", None)
        if final is None or final.plan.items is not plan.items:
            return make(plan)
        if make not in final.made:
            final.made[make] = make(plan)
        return final.made[make]

    def held(self) -> dict[str, Any]:
        """The state dict, flat: resolve_data gives the plain tensors that are in it, when they are meant as a whole. Nothing
        where a subclass may give something else."""
        own = "resolve_data", "lookup_object", "transform_object"
        is_own = all(getattr(type(self), each) is getattr(SavePlanner, each) for each in own)
        return self.state_dict if is_own else {}

    def release(self) -> None:
        """When all was written: lets go of the tensors, not of the plan."""
        self.state_dict = {}


def _flattened(state_dict: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What torch's flatten_state_dict makes of it. The steps for what most of a state is are here, which are a fourth of
    torch's; the rest is torch's business."""
    flat: dict[str, Any] = {}
    mappings: dict[str, Any] = {}
    _flatten_into(flat, mappings, "", (), state_dict)
    return flat, mappings


def _flatten_into(
    flat: dict[str, Any], mappings: dict[str, Any], prefix: str, path: tuple[Any, ...], given: dict[str, Any]
) -> None:
    some: dict[str, Any]
    paths: dict[str, Any]
    for key, value in given.items():
        kind, name = type(value), str(key)
        if kind in _DICTS:
            _flatten_into(flat, mappings, f"{prefix}{name}.", (*path, name), value)
            continue
        if kind in _LEAVES:
            some, paths = {name: value}, {name: (name,)}
        else:
            some, paths = flatten_state_dict({key: value})
        for rest, each in some.items():
            fqn = prefix + rest
            if fqn in flat:
                raise ValueError(f"duplicated flatten key {fqn}")
            flat[fqn] = each
            mappings[fqn] = (*path, *paths[rest])


def _place() -> tuple[int, int]:
    """How many ranks there are, and which this one is."""
    here = torch.distributed
    return (here.get_world_size(), here.get_rank()) if here.is_initialized() else (1, 0)


def _looked_up(state_dict: dict[str, Any], index: MetadataIndex) -> Any:
    """The tensor, if it is a plain one and all of it is meant; else None."""
    found: Any = state_dict.get(index.fqn)
    offset = index.offset
    if type(found) in PLAIN and offset is not None and len(offset) == found.dim() and not any(offset):
        return found
    return None


def _facts_of(fqn: str, value: Any, is_coordinator: bool) -> Any:
    """Of one entry of a flat state dict; without a gradient."""
    if type(value) in PLAIN:
        return value.shape, value.dtype, value.device, value.requires_grad, value.layout, value.is_pinned()
    if type(value) is DTensor:
        local = value.to_local()
        place = value.device_mesh, value.placements, value.shape, value.requires_grad
        return place, local.shape, local.dtype, local.device, local.layout, local.is_pinned()
    if isinstance(value, torch.Tensor) or hasattr(value, "__create_write_items__"):
        return create_default_local_save_plan({fqn: value}, is_coordinator).items
    return None


def _is_ready(value: Any) -> bool:
    """Whether torch's DefaultLoadPlanner, too, takes it as it is."""
    if isinstance(value, torch.Tensor):
        return not isinstance(value, ShardedTensor) and not value.is_meta
    if isinstance(value, (list, tuple)):
        return all(map(_is_ready, value))
    return value is None or isinstance(value, (int, float, str, bytes, io.BytesIO))


def _read_whole(fqn: str, value: Any, entry: Any) -> ReadItem | None:
    """What torch plans for a plain tensor that was saved in one piece; None: it is something else."""
    if type(value) not in PLAIN or type(entry) is not TensorStorageMetadata or len(entry.chunks) != 1:
        return None
    chunk, size = entry.chunks[0], value.size()
    if not size == entry.size == chunk.sizes or any(chunk.offsets) or 0 in size:
        return None
    # That of the saved tensor, which begins at 0 as this one does.
    index = MetadataIndex(fqn, chunk.offsets, 0)
    return ReadItem(LoadItemType.TENSOR, index, chunk.offsets, index, chunk.offsets, size)


class LoadPlanner(DefaultLoadPlanner):
    """torch's DefaultLoadPlanner, with fewer steps where tensors were saved in one piece and are loaded into one. The plan is
    the same, and so are the arguments. Loads of several threads may have one."""

    original_state_dict = _of_thread("original_state_dict")
    state_dict = _of_thread("state_dict")
    mappings = _of_thread("mappings")
    metadata = _of_thread("metadata")
    is_coordinator = _of_thread("is_coordinator")

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ):
        self._of_thread = _OfThread()
        super().__init__(flatten_state_dict, flatten_sharded_tensors, allow_partial_load)

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        self._of_thread.begin({"mappings": {}})
        if self.flatten_state_dict:
            flat, mappings = _flattened(state_dict)
            if all(map(_is_ready, flat.values())):
                self.original_state_dict = state_dict
                self.state_dict, self.mappings = flat, mappings
                self.metadata = metadata
                self.is_coordinator = is_coordinator
                return
        super().set_up_planner(state_dict, metadata, is_coordinator)

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        entries = self.metadata.state_dict_metadata
        if not self.flatten_state_dict or not entries.keys() <= self.state_dict.keys():
            # What is missing may have another name in an older checkpoint.
            return super().create_local_plan()
        items: list[ReadItem] = []
        for fqn, value in self.state_dict.items():
            whole = _read_whole(fqn, value, entries.get(fqn))
            if whole is not None:
                items.append(whole)
            else:
                items += create_default_local_load_plan({fqn: value}, self.metadata, not self.allow_partial_load).items
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        found = _looked_up(self.state_dict, index)
        return super().lookup_tensor(index) if found is None else found
