"""Planners of ringest.dcp: their plans are torch's; one that is kept is used for an equal state only, by any number of
ranks, whatever was saved, or failed, in between."""

import collections
import copy
import dataclasses
import gc
import io
import pickle
import tempfile
import threading
import types
import unittest
import unittest.mock
import warnings
import weakref

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import ChunkShardingSpec
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import ranks
import ringest
import support
from ringest import _dcp_planner
from ringest.dcp import LoadPlanner, SavePlanner, StorageReader, StorageWriter

warnings.filterwarnings("ignore", category=UserWarning, module="torch")
URI = "gs://new/run"
EVERYWHERE = Replicate()


def a_state(**changes):
    model = {
        "a": torch.arange(12.0).view(3, 4),
        "b": torch.nn.Parameter(torch.ones(5)),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "strided": torch.arange(20.0).view(4, 5).t(),
    } | changes
    rest = {"step": 3, "listed": [torch.zeros(2), {"c": torch.ones(1)}], "names": ["x", "y"], "none": None}
    return {"model": {name: each for name, each in model.items() if each is not None}, **rest}


def equal_but_other():
    state = a_state(a=torch.full((3, 4), 9.0), b=torch.nn.Parameter(torch.zeros(5)))
    state["step"], state["names"] = "another kind of object", ["z"]
    return state


def with_keys_in_another_order():
    state = a_state()
    return {**state, "model": dict(reversed(state["model"].items()))}


def with_a_dot_in_its_key():
    state = a_state()
    state["model.a"] = state["model"].pop("a")
    return state


OTHER_STATES = {
    "shape": lambda: a_state(a=torch.zeros(4, 3)),
    "type": lambda: a_state(a=torch.zeros(3, 4, dtype=torch.float64)),
    "a type of as many bytes": lambda: a_state(a=torch.zeros(3, 4, dtype=torch.int32)),
    "device": lambda: a_state(a=torch.zeros(3, 4, device="meta")),
    "gradient": lambda: a_state(a=torch.zeros(3, 4, requires_grad=True)),
    "one more": lambda: a_state(z=torch.zeros(1)),
    "one less": lambda: a_state(b=None),
    "another name": lambda: a_state(b=None, c=torch.nn.Parameter(torch.ones(5))),
    "order": with_keys_in_another_order,
    "place of a key": with_a_dot_in_its_key,
    "no tensor any more": lambda: a_state(a=7),
    "a tensor in place of an object": lambda: {**a_state(), "step": torch.tensor(3)},
    "a longer list": lambda: {**a_state(), "listed": [torch.zeros(2), {"c": torch.ones(1)}, torch.zeros(3)]},
}


def saved_by(planner, state, is_coordinator=True):
    """What torch's save does, alone: the plan, and what the metadata says."""
    planner.set_up_planner(state, is_coordinator=is_coordinator)
    plans, metadata = planner.create_global_plan([planner.create_local_plan()])
    return planner.finish_plan(plans[0]), metadata


def loaded_by(planner, state, metadata):
    planner.set_up_planner(state, metadata, True)
    return planner.create_local_plan()


def every_field(items):
    """With the hints, which do not count where indices are compared."""
    indices = [[each.index] if hasattr(each, "index") else [each.dest_index, each.storage_index] for each in items]
    return [(item, [index.index for index in each]) for item, each in zip(items, indices, strict=True)]


class Kept(unittest.TestCase):
    def test_the_plan_is_torchs_and_stays_where_the_state_is_equal(self):
        planner = SavePlanner()
        plan, metadata = saved_by(planner, a_state())
        wanted, wanted_metadata = saved_by(dcp.DefaultSavePlanner(), a_state())
        self.assertEqual(every_field(plan.items), every_field(wanted.items))
        self.assertEqual((plan.planner_data, metadata), (wanted.planner_data, wanted_metadata))
        again, its_metadata = saved_by(planner, equal_but_other())
        self.assertIs(again.items, plan.items)
        self.assertEqual(its_metadata, metadata)
        its_metadata.storage_data = "of one save"
        self.assertIsNone(metadata.storage_data)

    def test_it_is_made_anew_where_anything_differs(self):
        for what, make in OTHER_STATES.items():
            with self.subTest(what):
                planner = SavePlanner()
                before, _ = saved_by(planner, a_state())
                plan, metadata = saved_by(planner, make())
                wanted, wanted_metadata = saved_by(dcp.DefaultSavePlanner(), make())
                self.assertIsNot(plan.items, before.items)
                self.assertEqual(every_field(plan.items), every_field(wanted.items))
                self.assertEqual((plan.planner_data, metadata), (wanted.planner_data, wanted_metadata))
                back, _ = saved_by(planner, a_state())
                self.assertEqual(every_field(back.items), every_field(before.items))

    def test_states_of_any_nesting_have_the_keys_of_torch(self):
        class Ours(dict):
            pass

        tensor = torch.ones(2)
        states = [
            {},
            {"a": {}, "b": collections.OrderedDict(), "c": [], "d": [[]], "e": [{}], "f": ()},
            {"a": {"b": {"c": tensor, 7: {1.5: tensor, None: 3, True: "x"}}}, 3: tensor, ("p", 1): {"q": tensor}},
            {
                "a": collections.OrderedDict(b=tensor, c=Ours(d=tensor, e={"f": 1})),
                "g": types.MappingProxyType({"h": 1}),
            },
            {
                "a": [1, 2],
                "b": [tensor, [3, {"c": tensor}]],
                "d": (tensor, {"e": tensor}),
                "f": [[1], [2]],
                "g": [Ours()],
            },
            {"a.b": tensor, "a": {"c": tensor}, "": {"": {"": 5}}, "x": io.BytesIO(b"bytes"), "y": object, "z": {1, 2}},
            {"a.b": tensor, "a": {"b": tensor}},
            {1: tensor, "1": tensor},
            {"a": {"b.c": 1}, "a.b": {"c": 2}},
            {"a.0": 1, "a": [tensor]},
            collections.OrderedDict(a={"b": tensor, "c": tensor.to_sparse()}),
            {"p": torch.nn.Parameter(tensor), "m": torch.nn.Linear(1, 1), "f": torch.float16, "n": 1 + 2j},
        ]
        for state in states:
            with self.subTest(state):
                made = []
                for flatten in _dcp_planner._flattened, flatten_state_dict:
                    try:
                        flat, mappings = flatten(state)
                    except ValueError as error:
                        made.append(str(error))
                    else:
                        parts = [tuple(map(type, path)) for path in mappings.values()]
                        made.append(([(name, id(each)) for name, each in flat.items()], list(mappings.items()), parts))
                self.assertEqual(*made)

    def test_what_is_saved_is_the_state_as_it_is(self):
        planner = SavePlanner()
        with support.client() as client:
            for make in (a_state, equal_but_other, *OTHER_STATES.values(), a_state):
                state = make()
                if any(getattr(each, "is_meta", False) for each in state["model"].values()):
                    continue
                dcp.save(state, storage_writer=StorageWriter(URI, client=client), planner=planner)
                found = _load_state_dict_from_keys(storage_reader=StorageReader(URI, client=client))
                self.assertEqual(text_of(found), text_of(state))

    def test_tensors_with_equal_plans_may_lie_otherwise(self):
        numbers = torch.arange(24.0).view(2, 3, 4) * (1 + 2j)
        states = [
            {"a": a, "b": b, "c": torch.nn.Parameter(a.real.clone())}
            for a, b in (
                (numbers, numbers.imag.contiguous()),
                (numbers.clone().conj(), torch._neg_view(numbers.imag.contiguous())),
                (numbers.permute(2, 1, 0).contiguous().permute(2, 1, 0), numbers.imag),
                (numbers[:, :1].expand(2, 3, 4), torch.zeros(1).expand(2, 3, 4)),
                (numbers, numbers.real.contiguous()),
            )
        ]
        planner = SavePlanner()
        plan, _ = saved_by(planner, states[0])
        with support.client() as client:
            for state in states:
                dcp.save(state, storage_writer=StorageWriter(URI, client=client), planner=planner)
                self.assertIs(planner.plan.items, plan.items)
                found = _load_state_dict_from_keys(storage_reader=StorageReader(URI, client=client))
                self.assertEqual(found.keys(), state.keys())
                for name, each in state.items():
                    self.assertTrue(torch.equal(found[name], each), name)

    def test_items_of_every_kind_in_turns_and_more_than_a_writer_is_given_at_once(self):
        """Each has the place that the metadata says, by whatever way it goes: as torch's own reader finds them, too."""
        state = {}
        for i in range(150):
            state |= {
                f"{i} plain": torch.full((i * 37 % 90,), float(i)),
                f"{i} object": {"number": i, "text": "x" * (i * 11 % 50)},
                f"{i} strided": torch.arange(12.0).view(3, 4).t() * i,
                f"{i} large": torch.full((3000,), i),
            }
        planner = SavePlanner()
        for options in {}, {"file_size_max": "300KiB"}:
            for _ in range(2):
                with support.client() as client, tempfile.TemporaryDirectory() as folder:
                    writer = StorageWriter(URI, client=client, **options)
                    dcp.save({"model": state}, storage_writer=writer, planner=planner)
                    for name, _, _ in client.list(URI + "/"):
                        with open(f"{folder}/{name.rsplit('/', 1)[1]}", "wb") as file:
                            file.write(client.get(f"gs://new/{name}"))
                    for reader in StorageReader(URI, client=client), dcp.FileSystemReader(folder):
                        found = _load_state_dict_from_keys(storage_reader=reader)["model"]
                        self.assertEqual(text_of(found), text_of(state))

    def test_a_planner_of_the_program_says_what_is_saved(self):
        class Doubled(SavePlanner):
            def transform_object(self, write_item, object):
                given = super().transform_object(write_item, object)
                return 2 * given if isinstance(given, torch.Tensor) else given

        class Ones(SavePlanner):
            def lookup_object(self, index):
                return torch.ones_like(super().lookup_object(index))

        class Zeros(SavePlanner):
            def resolve_data(self, write_item):
                return torch.zeros_like(super().resolve_data(write_item))

        state, wanted = {"a": torch.full((3,), 5.0)}, {Doubled: 10.0, Ones: 1.0, Zeros: 0.0}
        with support.client() as client:
            for kind, value in wanted.items():
                planner = kind()
                for _ in range(2):
                    dcp.save(state, storage_writer=StorageWriter(URI, client=client), planner=planner)
                    found = _load_state_dict_from_keys(storage_reader=StorageReader(URI, client=client))
                    self.assertEqual(found["a"].tolist(), [value] * 3)

    def test_the_tensors_are_not_kept(self):
        planner = SavePlanner(flatten_state_dict=False)
        with support.client() as client:
            state = {"a": torch.ones(3)}
            gone = weakref.ref(state["a"])
            dcp.save(state, storage_writer=StorageWriter(URI, client=client), planner=planner)
            del state
            gc.collect()
            self.assertIsNone(gone())

    def test_a_copy_has_no_plan(self):
        planner = SavePlanner(dedup_save_to_lowest_rank=True)
        before, _ = saved_by(planner, a_state())
        for other in pickle.loads(pickle.dumps(planner)), copy.deepcopy(planner), copy.copy(planner):
            plan, _ = saved_by(other, a_state())
            self.assertIsNot(plan.items, before.items)
            self.assertEqual(plan.items, before.items)
            self.assertTrue(other.dedup_save_to_lowest_rank)
        self.assertIs(saved_by(planner, a_state())[0].items, before.items)

    def test_a_save_that_failed_before_the_plan_was_made(self):
        planner = SavePlanner()
        before, _ = saved_by(planner, a_state())
        planner.set_up_planner(a_state(), is_coordinator=True)
        planner.create_local_plan()
        plan, _ = saved_by(planner, a_state())
        self.assertIsNot(plan.items, before.items)
        self.assertEqual(plan.items, before.items)

    def test_another_number_of_ranks_or_another_rank(self):
        """Whoever plans for all may not know the plan."""
        with unittest.mock.patch.object(_dcp_planner, "_place", lambda: place):
            for other in (4, 0), (2, 1):
                place = 2, 0
                planner = SavePlanner()
                planner.set_up_planner(a_state(), is_coordinator=True)
                local = planner.create_local_plan()
                told = local.planner_data._replace(token="the other rank's")
                plans, _ = planner.create_global_plan([local, dataclasses.replace(local, planner_data=told)])
                planner.finish_plan(plans[0])
                planner.set_up_planner(a_state(), is_coordinator=True)
                self.assertEqual(planner.create_local_plan().items, [])
                planner.finish_plan(dataclasses.replace(plans[0], items=[], usable=False))
                place = other
                planner.set_up_planner(a_state(), is_coordinator=True)
                self.assertEqual(planner.create_local_plan().items, local.items)

    def test_planners_that_do_not_fit_each_other_are_named(self):
        planner = SavePlanner()
        planner.set_up_planner(a_state(), is_coordinator=True)
        local = planner.create_local_plan()
        with self.assertRaisesRegex(TypeError, "rank 1 saves with another planner: .*ringest.dcp.SavePlanner"):
            planner.create_global_plan([local, dcp.SavePlan([])])

    def test_another_storage(self):
        """Where a rank stores is not kept."""
        planner = SavePlanner()
        with support.client() as client, tempfile.TemporaryDirectory() as folder:
            for _ in range(2):
                dcp.save(a_state(), storage_writer=StorageWriter(URI, client=client), planner=planner)
                dcp.save(a_state(), storage_writer=dcp.FileSystemWriter(folder), planner=planner)
                found = {"model": {"a": torch.zeros(3, 4)}}
                dcp.load(found, storage_reader=dcp.FileSystemReader(folder), planner=LoadPlanner())
                self.assertEqual(text_of(found["model"]["a"]), text_of(a_state()["model"]["a"]))


def text_of(value):
    """Of a state, for comparing."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} {value.detach().tolist()}"
    if isinstance(value, dict):
        return {name: text_of(each) for name, each in value.items()}
    return [text_of(each) for each in value] if isinstance(value, list) else value


class Loads(unittest.TestCase):
    def test_the_plan_is_torchs(self):
        _, metadata = saved_by(dcp.DefaultSavePlanner(), a_state())
        partial = a_state(b=None)
        del partial["step"]
        into_others = a_state(a=torch.zeros(3, 4, dtype=torch.int64))
        for state in a_state(), into_others, partial:
            for options in {}, {"flatten_sharded_tensors": False}, {"allow_partial_load": True}:
                plan = loaded_by(LoadPlanner(**options), copy.deepcopy(state), metadata)
                wanted = loaded_by(dcp.DefaultLoadPlanner(**options), copy.deepcopy(state), metadata)
                self.assertEqual(every_field(plan.items), every_field(wanted.items))
        flat = {"model.a": torch.zeros(3, 4)}
        self.assertEqual(*(loaded_by(kind(False), flat, metadata) for kind in (LoadPlanner, dcp.DefaultLoadPlanner)))

    def test_what_does_not_fit_is_told_as_torch_does(self):
        _, metadata = saved_by(dcp.DefaultSavePlanner(), a_state())
        for state in a_state(z=torch.zeros(1)), a_state(a=torch.zeros(4, 3)), a_state(a=7), a_state(a=io.StringIO()):
            told = []
            for kind in LoadPlanner, dcp.DefaultLoadPlanner:
                with self.assertRaises(Exception) as caught:
                    loaded_by(kind(), state, metadata)
                told.append((type(caught.exception), str(caught.exception)))
            self.assertEqual(*told)

    def test_a_part_of_a_checkpoint_into_tensors_of_every_kind(self):
        with support.client() as client:
            dcp.save(a_state(), storage_writer=StorageWriter(URI, client=client))
            state = a_state(a=torch.zeros(3, 4).double(), b=None, strided=torch.zeros(5, 4))
            state["model"]["empty"].fill_(1)
            del state["listed"]
            state["step"] = 0
            dcp.load(state, storage_reader=StorageReader(URI, client=client), planner=LoadPlanner())
            wanted = a_state(a=torch.arange(12.0).view(3, 4).double(), b=None)
            del wanted["listed"]
            self.assertEqual(text_of(state), text_of(wanted))

    def test_checkpoints_of_the_same_keys(self):
        """One planner for all of them: nothing of one load is left for the next."""
        planner = LoadPlanner()
        with support.client() as client:
            states = [
                a_state(),
                a_state(a=torch.full((3, 4), 7.0)),
                a_state(a=torch.arange(12.0).view(4, 3)),
                a_state(a=torch.arange(12).view(3, 4)),
                {**a_state(z=torch.ones(2)), "first": torch.full((1000,), 3.0)},
            ]
            for i, state in enumerate(states):
                dcp.save(state, storage_writer=StorageWriter(f"{URI}/{i}", client=client))
            for i, state in [*enumerate(states), *reversed([*enumerate(states)])]:
                found = zeroed(state)
                dcp.load(found, storage_reader=StorageReader(f"{URI}/{i}", client=client), planner=planner)
                self.assertEqual(text_of(found), text_of(state))
            with self.assertRaisesRegex(dcp.CheckpointException, "Size mismatch"):
                dcp.load(a_state(), storage_reader=StorageReader(f"{URI}/2", client=client), planner=planner)
            with self.assertRaisesRegex(dcp.CheckpointException, "Missing key"):
                dcp.load(
                    a_state(y=torch.ones(2)), storage_reader=StorageReader(f"{URI}/4", client=client), planner=planner
                )


def zeroed(value):
    """A state of the same kind."""
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if isinstance(value, dict):
        return {name: zeroed(each) for name, each in value.items()}
    return [zeroed(each) for each in value] if isinstance(value, list) else value


class Held:
    """A writer or a reader which comes to its data, and stays there until it may go on."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.came, self.go_on = threading.Event(), threading.Event()

    def hold(self):
        self.came.set()
        assert self.go_on.wait(support.PATIENCE_S)


class HeldWriter(Held, StorageWriter):
    def write_data(self, plan, planner):
        self.hold()
        return super().write_data(plan, planner)


class HeldReader(Held, StorageReader):
    def read_data(self, plan, planner):
        self.hold()
        return super().read_data(plan, planner)


class Threads(unittest.TestCase):
    """Saves and loads at the same time, with one planner."""

    def setUp(self):
        self.client = self.enterContext(support.client())

    def assert_saved(self, uri, state):
        found = zeroed(state)
        dcp.load(found, storage_reader=StorageReader(uri, client=self.client))
        self.assertEqual(text_of(found), text_of(state))

    def test_saves_that_overlap(self):
        planner, more = SavePlanner(), {"step": 4}
        states = {
            f"{URI}/{i}": each
            for i, each in enumerate([a_state(), a_state(a=torch.full((3, 4), 9.0)), a_state() | more])
        }
        for turn in range(3):  # the first with no plan that is kept
            writers = [HeldWriter(uri, client=self.client, pace=None) for uri in states]
            saves = []
            for writer, state in zip(writers, states.values()):
                saves.append(dcp.async_save(state, storage_writer=writer, planner=planner))
                self.assertTrue(writer.came.wait(support.PATIENCE_S))
            for writer, save in [*zip(writers, saves)][:: -1 if turn else 1]:
                writer.go_on.set()
                save.result()
            for uri, state in states.items():
                self.assert_saved(uri, state)

    def test_a_save_that_begins_while_another_plans(self):
        planner, other = SavePlanner(), a_state(a=torch.zeros(5, 5))
        saved_by(planner, other)
        planner.set_up_planner(a_state(), is_coordinator=True)
        told = planner.create_local_plan()
        thread = threading.Thread(target=saved_by, args=(planner, other))
        thread.start()
        thread.join()
        plans, metadata = planner.create_global_plan([told])
        plan = planner.finish_plan(plans[0])
        wanted, wanted_metadata = saved_by(dcp.DefaultSavePlanner(), a_state())
        self.assertEqual((every_field(plan.items), metadata), (every_field(wanted.items), wanted_metadata))
        again, metadata = saved_by(planner, a_state())
        self.assertEqual((every_field(again.items), metadata), (every_field(wanted.items), wanted_metadata))

    def test_a_plan_is_kept_from_one_thread_to_the_next(self):
        planner, plans = SavePlanner(), []
        finish = planner.finish_plan
        planner.finish_plan = lambda plan: plans.append(finish(plan)) or plans[-1]
        for value in range(3):
            state = a_state(a=torch.full((3, 4), float(value)))
            writer = StorageWriter(URI, client=self.client, pace=None)
            dcp.async_save(state, storage_writer=writer, planner=planner).result()
            self.assert_saved(URI, state)
        self.assertIs(plans[0].items, plans[1].items)
        self.assertIs(plans[0].items, plans[2].items)

    def test_loads_that_overlap(self):
        planner = LoadPlanner()
        states = {f"{URI}/{i}": a_state(a=torch.full((3, 4), float(i))) for i in range(3)}
        for uri, state in states.items():
            dcp.save(state, storage_writer=StorageWriter(uri, client=self.client))
        readers = [HeldReader(uri, client=self.client) for uri in states]
        found = [zeroed(state) for state in states.values()]
        threads = []
        for reader, into in zip(readers, found):
            options = {"storage_reader": reader, "planner": planner}
            threads.append(threading.Thread(target=dcp.load, args=(into,), kwargs=options))
            threads[-1].start()
            self.assertTrue(reader.came.wait(support.PATIENCE_S))
        for reader in readers:
            reader.go_on.set()
        for thread in threads:
            thread.join()
        self.assertEqual([text_of(each) for each in found], [text_of(each) for each in states.values()])


def sent(planner):
    """How many items this rank's next plan has, as the others see it."""
    plan = planner.create_local_plan
    counts = []

    def counted():
        made = plan()
        counts.append(len(made.items))
        return made

    planner.create_local_plan = counted
    return counts


class Member:
    """A rank, which saves and loads states of every kind of tensor."""

    whole = torch.arange(60.0).view(10, 6)

    def __init__(self, rank, client):
        self.rank, self.client = rank, client
        self.mesh = init_device_mesh("cpu", (2,))

    def state(self, value, placement, **more):
        placed = distribute_tensor(self.whole + value, self.mesh, [placement])
        shards = sharded_tensor.full(ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu"]), (6, 2), float(value))
        own = {f"own {self.rank}": torch.full((3,), float(value + self.rank))}
        return {"placed": placed, "shards": shards, "both": torch.full((4,), float(value)), **own, **more}

    def save(self, planner, value, placement=EVERYWHERE, **more):
        """And looks whether all of it was saved."""
        saved = self.state(value, placement, **more)
        dcp.save(saved, storage_writer=StorageWriter(URI, client=self.client), planner=planner)
        dist.barrier()
        loaded = self.state(-1, EVERYWHERE, **{name: torch.zeros_like(each) for name, each in more.items()})
        dcp.load(loaded, storage_reader=StorageReader(URI, client=self.client), planner=LoadPlanner())
        assert torch.equal(loaded["placed"].full_tensor(), self.whole + value), value
        assert set(loaded["shards"].local_shards()[0].tensor.flatten().tolist()) == {float(value)}
        for name in ("both", f"own {self.rank}", *more):
            assert torch.equal(loaded[name], saved[name]), (name, value)
        dist.barrier()

    def fail(self, planner, text):
        try:
            self.save(planner, 0)
        except dcp.CheckpointException as error:
            assert text in str(error), error
        else:
            raise AssertionError("nothing failed")
        dist.barrier()

    def save_alone(self, planner):
        uri = f"{URI}/{self.rank}"
        writer = StorageWriter(uri, client=self.client)
        dcp.save({"alone": torch.full((2,), float(self.rank))}, storage_writer=writer, planner=planner, no_dist=True)
        found = {"alone": torch.zeros(2)}
        dcp.load(found, storage_reader=StorageReader(uri, client=self.client), no_dist=True)
        assert found["alone"].tolist() == [self.rank] * 2
        dcp.save(self.state(0, EVERYWHERE), storage_writer=writer, planner=planner, use_collectives=False)


def with_changing_states(rank, place):
    with ringest.Client(*place) as client:
        member, planner = Member(rank, client), SavePlanner()
        counts = sent(planner)
        for value, placement in enumerate([Shard(0), Shard(0), Shard(1), EVERYWHERE, EVERYWHERE]):
            member.save(planner, value, placement)
        assert counts == [4, 0, 4, 4, 0], counts
        # One rank has something more, then less; the other one sends nothing.
        member.save(planner, 6, **({"more": torch.ones(2)} if rank else {}))
        member.save(planner, 7)
        assert counts[5:] == ([5, 4] if rank else [0, 0]), counts
        # Each rank alone, with the planner of all, in between.
        member.save_alone(planner)
        member.save(planner, 8)
        member.save(planner, 9)
        assert counts[-2:] == [4, 0], counts


def with_failures(rank, place):
    def raises(*_, **__):
        raise OSError("no state")

    with ringest.Client(*place) as client:
        member, planner = Member(rank, client), SavePlanner()
        counts = sent(planner)
        member.save(planner, 1)
        if rank:
            planner.set_up_planner = raises
        member.fail(planner, "no state")
        if rank:
            del planner.set_up_planner
        member.save(planner, 2)
        member.save(planner, 3)
        assert counts[-1] == 0, counts
        # Ranks that begin with a new planner: one that is asked nothing by the others, and then the one that plans for all.
        planner = SavePlanner() if rank else planner
        member.save(planner, 4)
        planner = planner if rank else SavePlanner()
        member.fail(planner, "a ringest.dcp.SavePlanner of its own")
        member.save(planner, 5, Shard(0))
        member.save(planner, 6, Shard(0))


class Ranks(unittest.TestCase):
    def test_states_that_change_on_some_ranks(self):
        with support.emulator() as place:
            ranks.run(2, with_changing_states, place)

    def test_saves_that_fail_and_planners_that_are_new(self):
        with support.emulator() as place:
            ranks.run(2, with_failures, place)

    def test_one_rank_of_a_group(self):
        with support.emulator() as place:
            ranks.run(1, with_one_rank, place)


def with_one_rank(rank, place):
    planner = SavePlanner()
    counts = sent(planner)
    with ringest.Client(*place) as client:
        for value in 1.0, 2.0, 3.0:
            state = {"a": torch.full((3,), value), "b": torch.full((2, 2), value)}
            options = {"no_dist": True} if value == 3 else {}
            dcp.save(state, storage_writer=StorageWriter(URI, client=client), planner=planner, **options)
            found = {"a": torch.zeros(3), "b": torch.zeros(2, 2)}
            dcp.load(found, storage_reader=StorageReader(URI, client=client), planner=LoadPlanner())
            assert text_of(found) == text_of(state)
        # Tensors without memory, which torch's planner gives some.
        found = {"inner": {"a": torch.zeros(3, device="meta")}}
        dcp.save({"inner": state}, storage_writer=StorageWriter(URI, client=client))
        dcp.load(found, storage_reader=StorageReader(URI, client=client), planner=LoadPlanner())
        assert found["inner"]["a"].tolist() == [3, 3, 3]
    assert counts == [2, 0, 0], counts


if __name__ == "__main__":
    unittest.main()
