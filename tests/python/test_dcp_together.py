"""torch.distributed.checkpoint, loaded by ranks together: what several of them want comes once from the bucket."""

import os
import signal
import unittest
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import ranks
import ringest
import support
from ringest import _together
from ringest.dcp import StorageReader, StorageWriter

warnings.filterwarnings("ignore", category=UserWarning, module="torch")
URI = "gs://new/dcp"
MIB = 1 << 20


def replicated(seed=1):
    torch.manual_seed(seed)
    state = {f"layer{i}": torch.randn(200, 1000 + i) for i in range(12)}
    state |= {f"small{i}": torch.randn(i + 1) for i in range(300)}
    return state | {"transposed": torch.randn(300, 400).t(), "half": torch.randn(100, 100).half(), "step": 7}


def mixed(world_size):
    """Of every kind: what a rank has alone, what all have, and what some have."""
    torch.manual_seed(2)
    flat = init_device_mesh("cpu", (world_size,))
    whole = {name: torch.randn(410, 600) for name in ("rows", "columns", "all", "pairs", "plain")}
    state = {
        "rows": distribute_tensor(whole["rows"], flat, [Shard(0)]),
        "columns": distribute_tensor(whole["columns"], flat, [Shard(1)]),
        "all": distribute_tensor(whole["all"], flat, [Replicate()]),
        "plain": whole["plain"].clone(),
        "step": 9,
    }
    if world_size % 2 == 0:
        square = init_device_mesh("cpu", (2, world_size // 2))
        state["pairs"] = distribute_tensor(whole["pairs"], square, [Replicate(), Shard(0)])
    else:
        state["pairs"] = distribute_tensor(whole["pairs"], flat, [Shard(0)])
    return state


def local(value):
    return value.to_local() if hasattr(value, "to_local") else value


def blank(state):
    for name, each in state.items():
        if isinstance(each, torch.Tensor):
            local(each).zero_()
        else:
            state[name] = type(each)()
    return state


def check(loaded, good):
    for name, each in good.items():
        found = loaded[name]
        assert torch.equal(local(found), local(each)) if isinstance(each, torch.Tensor) else found == each, name


def small_rounds():
    _together.SET_BYTES, _together.PIECE_BYTES_MIN, _together.PIECE_BYTES_MAX = MIB, 64 << 10, 256 << 10


def save(rank, place, make):
    with ringest.Client(*place) as client:
        dcp.save(make(), storage_writer=StorageWriter(URI, client=client))


def save_mixed(rank, place, world_size):
    save(rank, place, lambda: mixed(world_size))


def load(rank, place, make=replicated, is_together=True, **options):
    """Bytes that this rank received."""
    small_rounds()
    state = blank(make())
    with ringest.Client(*place, hedging=False, **options) as client:
        group = dist.group.WORLD if is_together else None
        dcp.load(state, storage_reader=StorageReader(URI, client=client, process_group=group))
        check(state, make())
        return client.stats()["recv_bytes"]


def load_mixed(rank, place, world_size, is_together=True):
    return load(rank, place, lambda: mixed(world_size), is_together)


def load_on_hosts(rank, place, hosts):
    _together._job._host = _together._job._machine = lambda: f"host {rank % hosts}"
    return load(rank, place)


def load_different_parts(rank, place):
    """Some keys of all ranks, some of one, in other types."""
    good = replicated()
    names = {0: ["layer0", "layer1", "small7"], 1: ["layer1", "layer2", "transposed"], 2: ["layer5"]}[rank]
    state = {name: torch.zeros_like(good[name]) for name in names}
    state["half"] = torch.zeros(100, 100)
    with ringest.Client(*place, hedging=False) as client:
        dcp.load(state, storage_reader=StorageReader(URI, client=client, process_group=dist.group.WORLD))
        for name in names:
            assert torch.equal(state[name], good[name]), name
        assert torch.equal(state["half"], good["half"].float())


def little(count, seed=1):
    return {f"small{i}": torch.full((count,), float(i + seed)) for i in range(4)} | {"step": seed}


def load_little(rank, place, count, names, damage=None):
    """Exchanges, and bytes that came, of loads of little, or of not much, or what a load has failed of."""
    found = []
    give = _together.Team.tell_given
    with ringest.Client(*place, hedging=False) as client:
        for number in range(6):
            good = little(count)
            state = blank(little(count))
            state = {name: state[name] for name in names[rank % len(names)]}
            if number == 5 and damage is not None and rank == 1:
                _together.Team.tell_given = lambda *arguments: damage(*give(*arguments))
            before = client.stats()["recv_bytes"]
            reader = StorageReader(URI, client=client, process_group=dist.group.WORLD)
            try:
                exchanges, _ = ranks.exchanges_of(lambda s=state, r=reader: dcp.load(s, storage_reader=r))
            except BaseException as error:
                return " ".join(str(each) for each, _ in getattr(error, "failures", {}).values()) or str(error)
            for name in state:
                assert state[name] == good[name] if name == "step" else torch.equal(state[name], good[name]), name
            found.append((exchanges, client.stats()["recv_bytes"] - before))
    return found[-1]


def damage(told, came):
    return told, came[:-1] + b"x" if len(came) > 200_000 else came


def error_of(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except BaseException as error:
        failures = [each for each, _ in getattr(error, "failures", {}).values()] or [error]
        return type(error).__name__, " ".join(f"{type(each).__name__}: {each}" for each in failures)
    raise AssertionError("it has loaded")


def load_with_a_fault(rank, place):
    if rank == 1:
        with support.faults(*place, {"storage.objects.get": ["return-503"] * 100}):
            return error_of(load, rank, place, attempts=1)
    return error_of(load, rank, place, attempts=1)


def load_until_killed(rank, place, number):
    if rank == 1:
        ranks.before_meeting(number, lambda: os.kill(os.getpid(), signal.SIGKILL))
    return error_of(load, rank, place)


def load_of_what_is_replaced(rank, place):
    """After the metadata was read."""

    def replace():
        with ringest.Client(*place) as client:
            dcp.save(replicated(2), storage_writer=StorageWriter(URI, client=client), no_dist=True)

    if rank == 1:
        ranks.before_meeting(2, replace)
    return error_of(load, rank, place)


class Loads(unittest.TestCase):
    def setUp(self):
        self.place = self.enterContext(support.emulator())

    def save(self):
        with ringest.Client(*self.place) as client:
            dcp.save(replicated(), storage_writer=StorageWriter(URI, client=client))

    def assert_once(self, received):
        with ringest.Client(*self.place) as client:
            self.assertLessEqual(sum(received), 1.02 * sum(size for _, size, _ in client.list(f"{URI}/")))

    def test_what_all_ranks_want_comes_once(self):
        self.save()
        for count in (2, 4):
            with self.subTest(count=count):
                self.assert_once(ranks.run(count, load, self.place))

    def test_ranks_of_several_hosts(self):
        self.save()
        self.assert_once(ranks.run(3, load_on_hosts, self.place, 2))

    def test_what_only_some_ranks_want(self):
        ranks.run(4, save_mixed, self.place, 4)
        for count in (3, 4):
            with self.subTest(count=count):
                self.assert_once(ranks.run(count, load_mixed, self.place, count))

    def save_little(self, count):
        with ringest.Client(*self.place) as client:
            dcp.save(little(count), storage_writer=StorageWriter(URI, client=client), no_dist=True)

    def test_little_takes_few_exchanges(self):
        names = [list(little(1))]
        for count, most in ((100, 2), (30_000, 3)):
            self.save_little(count)
            found = ranks.run(3, load_little, self.place, count, names)
            for exchanges, _ in found:
                self.assertEqual(exchanges, most)
            # Not much comes once; little, each reads.
            received = sum(received for _, received in found)
            self.assertLess(received, 16 * count + 30_000 if count > 100 else 120_000)

    def test_ranks_that_want_little_of_different_kinds(self):
        for names in ([["small0"], ["small1", "small0"]], [["small0"], []], [["small0", "small1"], ["small2"]]):
            for count in (100, 30_000):
                self.save_little(count)
                ranks.run(3, load_little, self.place, count, names)

    def test_little_that_changes_on_the_way_is_refused(self):
        self.save_little(30_000)
        for text in ranks.run(2, load_little, self.place, 30_000, [list(little(1))], damage):
            self.assertIn("other than it had read them", text)

    def test_ranks_that_want_different_things(self):
        self.save()
        ranks.run(3, load_different_parts, self.place)

    def test_a_fault_of_one_rank_is_one_of_all(self):
        self.save()
        for kind, text in ranks.run(2, load_with_a_fault, self.place):
            self.assertEqual(kind, "CheckpointException")
            self.assertIn("UnavailableError", text)

    def test_a_killed_rank_is_missed(self):
        self.save()
        for number in (2, 5):
            with self.subTest(number=number):
                # What torch makes of it, when its own collectives fail too, is its business.
                (kind, _), _ = ranks.run(2, load_until_killed, self.place, number, killed=(1,))
                self.assertNotEqual(kind, "AssertionError")

    def test_a_checkpoint_that_is_replaced_is_not_mixed(self):
        self.save()
        for kind, text in ranks.run(2, load_of_what_is_replaced, self.place):
            self.assertEqual(kind, "CheckpointException")
            self.assertIn("was replaced", text)

    def test_there_is_none(self):
        for kind, text in ranks.run(2, lambda rank: error_of(load, rank, self.place)):
            self.assertEqual(kind, "CheckpointException")
            self.assertIn(".metadata", text)


if __name__ == "__main__":
    unittest.main()
