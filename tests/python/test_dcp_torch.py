"""What PyTorch's own tests (test/distributed/checkpoint) ask of a storage, asked of ringest.dcp in place of its file
system. Its wheel has none of these tests, so they are written anew, after the same list:

    file system, fsspec, checkpoint     plain and sharded tensors, every pair of shardings, overwriting, failures of
                                        each step on each rank, with any coordinator
    dtensor, resharding, 2d, tp, hsdp   every pair of placements and meshes; FSDP with tensor parallelism
    fsdp model, optimizer, e2e          training goes on as if it had not been interrupted: FSDP2, DDP; saved at once,
                                        by a thread and with a stager; a part of what is there
    planner, api, state dict            keys in any order, missing ones, objects with a state of their own, no ranks
    metadata                            what is there, without reading it

Not asked, because it is not the storage's: the planner's and the stager's own insides, Hugging Face's format, stream
transforms (which are refused, see test_dcp.py), torch's converters between local files. The older FSDP needs an
accelerator. By a process checkpointer: test_dcp_reuse.py."""

import io
import itertools
import unittest
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import ChunkShardingSpec, EnumerableShardingSpec, ShardMetadata
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, TensorStorageMetadata
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys
from torch.distributed.checkpoint.state_dict_saver import _save_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import ranks
import ringest
import support
from ringest.dcp import StorageReader, StorageWriter

warnings.filterwarnings("ignore", module="torch")
URI = "gs://new/run"


def save(state, client, **options):
    return dcp.save(state, storage_writer=StorageWriter(URI, client=client), **options)


def load(state, client, **options):
    dcp.load(state, storage_reader=StorageReader(URI, client=client), **options)
    return state


def on_ranks(count):
    """A test as a function of (rank, client), that is run by so many ranks."""

    def decorate(function):
        def test(self):
            with support.emulator() as place:
                ranks.run(count, with_client, function, place)

        test.__name__, test.__doc__ = function.__name__, function.__doc__
        return test

    return decorate


def with_client(rank, function, place):
    with ringest.Client(*place) as client:
        function(rank, client)
        dist.barrier()


class Sharded(unittest.TestCase):
    """Tensors of torch.distributed._shard."""

    @on_ranks(2)
    def test_every_pair_of_shardings(rank, client):
        def rows(*sizes_and_ranks):
            shards, begin = [], 0
            for size, owner in sizes_and_ranks:
                shards.append(ShardMetadata([begin, 0], [size, 20], f"rank:{owner}/cpu"))
                begin += size
            return EnumerableShardingSpec(shards)

        specs = [
            ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu"]),
            ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu", "rank:1/cpu", "rank:0/cpu"]),
            ChunkShardingSpec(1, ["rank:1/cpu", "rank:0/cpu"]),
            rows((2, 0), (1, 1), (3, 0), (3, 1), (1, 0)),
            rows((8, 1), (2, 0)),
            rows((10, 1)),
        ]
        for number, (old, new) in enumerate(itertools.product(specs, specs)):
            torch.manual_seed(100 * number + rank)
            saved = sharded_tensor.rand(old, 10, 20)
            save({"x": saved}, client)
            loaded = sharded_tensor.zeros(new, 10, 20)
            load({"x": loaded}, client)
            whole = torch.full((10, 20), -1.0)
            load({"x": whole}, client)
            for tensor in saved, loaded:
                for shard in tensor.local_shards():
                    part = whole
                    for dim, (begin, size) in enumerate(zip(shard.metadata.shard_offsets, shard.metadata.shard_sizes)):
                        part = part.narrow(dim, begin, size)
                    assert torch.equal(shard.tensor, part), (number, shard.metadata)
            dist.barrier()

    @on_ranks(2)
    def test_a_whole_tensor_is_loaded_sharded(rank, client):
        whole = torch.arange(200.0).view(10, 20)
        save({"x": whole}, client)
        spec = ChunkShardingSpec(0, ["rank:1/cpu", "rank:0/cpu"])
        loaded = sharded_tensor.zeros(spec, 10, 20)
        load({"x": loaded}, client)
        (shard,) = loaded.local_shards()
        assert torch.equal(shard.tensor, whole.narrow(0, shard.metadata.shard_offsets[0], 5))


def placements(dims):
    return list(itertools.product([Replicate(), Shard(0), Shard(1)], repeat=dims))


class Placed(unittest.TestCase):
    """DTensors."""

    @on_ranks(4)
    def test_every_pair_of_placements_and_meshes(rank, client):
        meshes = {1: init_device_mesh("cpu", (4,)), 2: init_device_mesh("cpu", (2, 2))}
        torch.manual_seed(3)
        whole = torch.randn(9, 14)  # which four do not divide
        kinds = [(dims, each) for dims in meshes for each in placements(dims)]
        for dims, old in kinds:
            save({"x": distribute_tensor(whole, meshes[dims], old)}, client)
            for other, new in kinds:
                state = {"x": distribute_tensor(torch.zeros(9, 14), meshes[other], new)}
                load(state, client)
                assert torch.equal(state["x"].full_tensor(), whole), (old, new)
            dist.barrier()
        # Shards that are empty.
        save({"x": distribute_tensor(whole[:2], meshes[1], [Shard(0)])}, client)
        state = {"x": distribute_tensor(torch.zeros(2, 14), meshes[1], [Replicate()])}
        load(state, client)
        assert torch.equal(state["x"].full_tensor(), whole[:2])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net1, self.net2, self.net3 = nn.Linear(8, 16), nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.net3(torch.relu(self.net2(torch.relu(self.net1(x)))))


def plain():
    return Model()


def data_parallel():
    return DistributedDataParallel(Model())


def sharded():
    model = Model()
    for each in model.net1, model.net2, model.net3:
        fully_shard(each)
    return fully_shard(model)


def hybrid():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    return fully_shard(Model(), mesh=mesh)


def tensor_parallel():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = parallelize_module(Model(), mesh["tensor"], {"net1": ColwiseParallel(), "net2": RowwiseParallel()})
    return fully_shard(model, mesh=mesh["data"])


def train(model, optimizer, steps):
    for step in range(steps):
        torch.manual_seed(step)
        loss = model(torch.randn(8, 8)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


class Training:
    """A model and its optimizer, with a state (Stateful)."""

    def __init__(self, make):
        self.model = make()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def full(value):
    return value.full_tensor() if hasattr(value, "full_tensor") else value


class Trained(unittest.TestCase):
    @on_ranks(4)
    def test_training_goes_on(rank, client):
        """Saved in one kind of parallelism and loaded in another, with the next steps those of a run without a stop."""
        kinds = (plain, data_parallel, sharded, hybrid, tensor_parallel)
        ahead = Training(plain)
        train(ahead.model, ahead.optimizer, 2)
        wanted = train(ahead.model, ahead.optimizer, 3)
        for number, old in enumerate(kinds):
            saved = Training(old)
            train(saved.model, saved.optimizer, 2)
            save({"training": saved}, client)
            loaded = Training(kinds[(number + 1) % len(kinds)])
            load({"training": loaded}, client)
            loss = train(loaded.model, loaded.optimizer, 3)
            torch.testing.assert_close(full(loss), wanted, rtol=1e-3, atol=1e-4)
            dist.barrier()

    @on_ranks(2)
    def test_saved_while_it_goes_on(rank, client):
        training = Training(sharded)
        train(training.model, training.optimizer, 1)
        group = dist.new_group(backend="gloo")
        options = StagingOptions(False, False, False, False)
        for stager, cache in (None, False), (None, True), (DefaultStager(options), False):
            wanted = {key: full(value).clone() for key, value in training.model.state_dict().items()}
            writer = StorageWriter(URI, client=client, cache_staged_state_dict=cache)
            future = dcp.async_save(
                {"training": training}, storage_writer=writer, async_stager=stager, process_group=group
            )
            train(training.model, training.optimizer, 1)
            future.result()
            loaded = Training(sharded)
            load({"training": loaded}, client)
            for key, value in loaded.model.state_dict().items():
                assert torch.equal(full(value), wanted[key]), key
            dist.barrier()

    @on_ranks(2)
    def test_parts_whose_memory_was_freed(rank, client):
        """As fully_shard leaves the parameters that it has gathered others of."""
        spec = ChunkShardingSpec(dim=0, placements=["rank:0/cpu", "rank:1/cpu"])
        parts = distribute_tensor(torch.ones(8), init_device_mesh("cpu", (2,)), [Shard(0)])
        shards = sharded_tensor.ones(spec, 10, 20)
        for part in parts.to_local(), *(each.tensor for each in shards.local_shards()):
            part.untyped_storage().resize_(0)
        group = dist.new_group(backend="gloo")
        for freed in parts, nn.Parameter(parts), shards:
            for call in (
                lambda state: save(state, client),
                lambda state: dcp.async_save(
                    state, storage_writer=StorageWriter(URI, client=client), process_group=group
                ),
            ):
                try:
                    call({"model": {"x": freed}})
                except (ValueError, dcp.CheckpointException) as error:
                    assert "model.x has no content any more" in str(error), error
                else:
                    raise AssertionError("was saved")

    @on_ranks(2)
    def test_a_part_of_what_is_there(rank, client):
        training = Training(sharded)
        train(training.model, training.optimizer, 2)
        save(training.state_dict(), client)
        other = sharded()
        state = {"model": other.state_dict()}
        load(state, client)
        wanted = {key: full(value) for key, value in training.model.state_dict().items()}
        for key, value in state["model"].items():
            assert torch.equal(full(value), wanted[key]), key
        dist.barrier()
        if rank == 0:
            reader = StorageReader(URI, client=client)
            planner = dcp.default_planner._EmptyStateDictLoadPlanner(keys={"model"})
            alone = {}
            dcp.load(alone, storage_reader=reader, planner=planner, no_dist=True)
            assert alone == {} or alone.keys() == {"model"}


class Plans(unittest.TestCase):
    @on_ranks(2)
    def test_keys_in_any_order(rank, client):
        class Waits:
            """Whose state is known when all ranks ask for it."""

            def __init__(self, value):
                self.value = value

            def state_dict(self):
                whole = torch.tensor([self.value])
                dist.all_reduce(whole)
                return {"sum": whole}

            def load_state_dict(self, state):
                whole = state["sum"].clone()
                dist.all_reduce(whole)
                self.value = float(whole)

        state = {"a": Waits(1.0), "b": Waits(10.0), "c": torch.full((4,), 5.0)}
        save(state, client)
        backwards = {key: state[key] for key in (reversed(state) if rank else state)}
        load(backwards, client)
        assert (backwards["a"].value, backwards["b"].value, float(backwards["c"].sum())) == (4.0, 40.0, 20.0)

    def test_objects_with_a_state_of_their_own(self):
        class Counter:
            def __init__(self, value):
                self.value = value

            def state_dict(self):
                blob = io.BytesIO()
                torch.save([self.value], blob)
                return {"value": torch.tensor(self.value), "blob": blob, "text": f"{self.value}"}

            def load_state_dict(self, state):
                state["blob"].seek(0)
                assert torch.load(state["blob"]) == [int(state["text"])]
                self.value = int(state["value"])

        class Noting(dict):
            noted = False

            def __setitem__(self, key, value):
                self.noted = True
                super().__setitem__(key, value)

        with support.client() as client:
            save({"counter": Counter(7), "other": {"list": [1, torch.ones(2)]}}, client, no_dist=True)
            counter = Counter(0)
            state = Noting(counter=counter)
            load(state, client, no_dist=True)
            self.assertEqual((counter.value, state.noted, state["counter"] is counter), (7, False, True))
            state = Noting(other={"list": [0, torch.zeros(2)]})
            load(state, client, no_dist=True)
            self.assertTrue(state.noted)
            self.assertEqual(state["other"]["list"][1].tolist(), [1, 1])

    def test_nothing(self):
        with support.client() as client:
            client.put("gs://new/other", b"")  # makes the bucket
            save({}, client, no_dist=True)
            self.assertEqual(load({}, client, no_dist=True), {})

    def test_keys_that_are_missing(self):
        with support.client() as client:
            save({"a": torch.ones(3)}, client, no_dist=True)
            with self.assertRaises(dcp.CheckpointException) as caught:
                load({"a": torch.zeros(3), "b": torch.zeros(3)}, client, no_dist=True)
            self.assertIn("b", str(caught.exception))
            planner = dcp.DefaultLoadPlanner(allow_partial_load=True)
            state = load({"a": torch.zeros(3), "b": torch.zeros(3)}, client, no_dist=True, planner=planner)
            self.assertEqual((state["a"].tolist(), state["b"].tolist()), ([1, 1, 1], [0, 0, 0]))

    def test_planners_with_options(self):
        nested = {"a": {"b": torch.arange(3), "c": [1, 2]}}
        with support.client() as client:
            for options in {"flatten_state_dict": False}, {"dedup_save_to_lowest_rank": True}:
                save(nested, client, no_dist=True, planner=dcp.DefaultSavePlanner(**options))
                keys = StorageReader(URI, client=client).read_metadata().state_dict_metadata.keys()
                self.assertEqual(set(keys), {"a"} if "flatten_state_dict" in options else {"a.b", "a.c"})

    def test_what_is_there_without_reading_it(self):
        with support.client() as client:
            metadata = save({"x": torch.zeros(4, 5, dtype=torch.float64), "y": [1]}, client, no_dist=True)
            found = StorageReader(URI, client=client).read_metadata().state_dict_metadata
            for each in metadata.state_dict_metadata, found:
                self.assertIsInstance(each["y"], BytesStorageMetadata)
                self.assertIsInstance(each["x"], TensorStorageMetadata)
                self.assertEqual(
                    (each["x"].properties.dtype, each["x"].size, len(each["x"].chunks)), (torch.float64, (4, 5), 1)
                )

    @on_ranks(2)
    def test_all_of_it_by_its_metadata(rank, client):
        save({"model": {"w": torch.arange(5), "n": 3}, "other": torch.ones(2)}, client)
        reader = StorageReader(URI, client=client)
        found = _load_state_dict_from_keys("model", storage_reader=reader)
        assert found["model"]["w"].tolist() == [0, 1, 2, 3, 4]
        assert found["model"]["n"] == 3 and "other" not in found


class Failing:
    """Fails in one step on certain ranks."""

    def fail_in(self, step, bad):
        def fails(*args, **kwargs):
            if dist.get_rank() in bad:
                raise ValueError(f"{step} of {dist.get_rank()}")
            return original(*args, **kwargs)

        original = getattr(self, step)
        setattr(self, step, fails)
        return self


class FailingWriter(Failing, StorageWriter):
    pass


class FailingReader(Failing, StorageReader):
    pass


class Failures(unittest.TestCase):
    @on_ranks(3)
    def test_of_each_step_and_rank(rank, client):
        """They are told by all ranks, with the ranks that failed, and the last checkpoint is whole."""
        state = {"own": torch.full((5,), float(rank)), f"of {rank}": torch.ones(100)}
        for coordinator in 0, 2:
            save(state, client)
            steps = ["set_up_storage_writer", "prepare_local_plan", "write_data", "prepare_global_plan", "finish"]
            for step, bad in itertools.product(steps, ([0], [1, 2])):
                bad = [coordinator] if step in ("prepare_global_plan", "finish") else bad
                try:
                    _save_state_dict(
                        {**state, f"of {rank}": torch.zeros(100)},
                        FailingWriter(URI, client=client).fail_in(step, bad),
                        coordinator_rank=coordinator,
                    )
                except dcp.CheckpointException as error:
                    assert set(error.failures) == set(bad), (step, bad, error)
                    assert all(type(each[0]) is ValueError for each in error.failures.values()), error
                else:
                    raise AssertionError(f"{step} of {bad} did not fail")
                dist.barrier()
                loaded = load({f"of {rank}": torch.zeros(100)}, client)
                assert float(loaded[f"of {rank}"].sum()) == 100, step
                dist.barrier()
        for step in "set_up_storage_reader", "prepare_local_plan", "read_data", "prepare_global_plan":
            bad = [0] if step == "prepare_global_plan" else [1]
            try:
                dcp.load({"own": torch.zeros(5)}, storage_reader=FailingReader(URI, client=client).fail_in(step, bad))
            except dcp.CheckpointException as error:
                assert set(error.failures) == set(bad), (step, error)
            else:
                raise AssertionError(f"{step} did not fail")
            dist.barrier()
        # What is left of them goes with the next save.
        save(state, client)
        if rank == 0:
            assert len(client.list(URI)) == 4, client.list(URI)


if __name__ == "__main__":
    unittest.main()
