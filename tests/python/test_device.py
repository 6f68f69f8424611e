"""Batches on a device: what is handed out, in which order and when, and what a state says of it. The device is the CPU, or
one that stands in, whose copies are done when the test says so."""

import collections
import contextlib
import gc
import io
import itertools
import os
import tarfile
import threading
import unittest
import unittest.mock
import weakref

import numpy
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader

import ringest
import support
from ringest import _lane
from waiting import until

COUNT = 60
Pair = collections.namedtuple("Pair", "left right")


def uri(index):
    return f"gs://own/o-{index:03d}"


def numbers(batches):
    """What the objects of batches of tensors say."""
    return [int(bytes(tensor.tolist())) for batch in batches for tensor in batch]


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "ringest-device"]


class Mark:
    def __init__(self, lane, number):
        self.lane = lane
        self.number = number
        self.event = threading.Event()

    def wait(self):
        self.lane.told.append(("wait", self.number))
        assert self.event.wait(support.PATIENCE_S)


class Lane(_lane.DirectLane):
    """Copies at once, and says that it has when `allow` is called."""

    def __init__(self):
        super().__init__(torch.device("cpu"))
        self.told = []  # in order
        self.marks = []
        self.is_open = False

    def copy(self, host):
        self.told.append(("copy", len(self.marks)))
        return super().copy(host)

    def mark(self):
        mark = Mark(self, len(self.marks))
        self.marks.append(mark)
        if self.is_open:
            mark.event.set()
        return mark

    def hand_over(self, mark, tensors):
        self.told.append(("hand over", mark.number, len(list(tensors))))

    def allow(self):
        self.is_open = True
        for mark in self.marks:
            mark.event.set()


def on(lane):
    return unittest.mock.patch.object(_lane, "open_lane", lambda device: lane)


class Values(unittest.TestCase):
    def setUp(self):
        self.addCleanup(lambda: self.assertEqual(threads(), []))

    def moved(self, value):
        (found,) = ringest.to_device([value], "cpu")
        return found

    def test_what_is_nested_is_moved_and_the_rest_is_as_it_was(self):
        array = numpy.arange(6.0).reshape(2, 3)[:, ::-1]
        fixed = numpy.arange(3)
        fixed.flags.writeable = False
        counted = collections.defaultdict(list, {"a": array})
        tensor = torch.ones(2)
        found = self.moved({"t": tensor, "l": [array, "text"], "p": Pair(fixed, (1, b"bytes")), "c": counted})
        self.assertIs(found["t"], tensor)
        self.assertTrue(torch.equal(found["l"][0], torch.from_numpy(array.copy())))
        self.assertEqual(found["l"][1], "text")
        self.assertIs(type(found["p"]), Pair)
        self.assertEqual(found["p"].left.tolist(), [0, 1, 2])
        self.assertEqual(found["p"].right, (1, b"bytes"))
        self.assertIs(type(found["c"]), collections.defaultdict)
        self.assertEqual(found["c"]["new"], [])
        names = numpy.array(["a", "b"])
        self.assertIs(self.moved(names), names)

    def test_arrays_that_pytorch_takes_only_as_a_copy(self):
        packed = numpy.array([(1, 2), (3, 4)], dtype=[("a", "i1"), ("b", "i4")])
        for array in (numpy.arange(3, dtype=">i4"), numpy.arange(3, dtype=">f8")[::-1], packed["b"]):
            self.assertEqual(self.moved(array).tolist(), array.tolist())

    def test_sizes_of_a_packed_sequence_stay_on_the_cpu(self):
        packed = pack_sequence([torch.ones(2, 3), torch.ones(4, 3)], enforce_sorted=False)
        (found,) = ringest.to_device([packed], "meta")
        self.assertIs(type(found), type(packed))
        self.assertEqual(found.batch_sizes.tolist(), packed.batch_sizes.tolist())
        self.assertEqual([each.device.type for each in (found.data, *found[2:])], ["meta"] * 3)
        (found,) = ringest.to_device([pack_sequence([torch.ones(2, 3)])], "meta")
        self.assertIsNone(found.sorted_indices)

    def test_what_is_handed_out_has_memory_of_its_own(self):
        array = numpy.zeros(3)
        found = self.moved(array)
        array[:] = 1
        self.assertEqual(found.tolist(), [0, 0, 0])

    def test_order_length_and_end_are_the_source_s(self):
        for depth in (1, 2, 7):
            batches = [torch.tensor([i]) for i in range(20)]
            moved = ringest.to_device(batches, "cpu", depth=depth)
            self.assertEqual(len(moved), 20)
            for _ in range(2):
                self.assertEqual([int(one) for one in moved], list(range(20)))
        self.assertEqual(list(ringest.to_device([], "cpu")), [])

    def test_wrong_arguments_are_refused(self):
        for depth in (0, -1, 1.5, "2"):
            with self.assertRaises((ValueError, TypeError)):
                ringest.to_device([], "cpu", depth=depth)
        with self.assertRaisesRegex(TypeError, "list has no state_dict"):
            ringest.to_device([], "cpu").state_dict()
        if not torch.cuda.is_available():
            with self.assertRaisesRegex(RuntimeError, "no device of type 'cuda' here; use 'cpu'"):
                ringest.to_device([])

    def test_meta_has_no_content(self):
        (found,) = ringest.to_device([numpy.zeros((2, 3))], "meta")
        self.assertEqual((found.device.type, found.shape), ("meta", (2, 3)))


class Ahead(unittest.TestCase):
    """With a source that counts, and a lane that stands in."""

    def setUp(self):
        self.addCleanup(lambda: self.assertEqual(threads(), []))
        self.taken = 0
        self.most = 0  # taken, and not received
        self.received = 0
        self.ended = threading.Event()

    def source(self, count, error=None):
        try:
            for i in range(count):
                self.taken += 1
                self.most = max(self.most, self.taken - self.received)
                yield torch.tensor([i])
            if error is not None:
                raise error
        finally:
            self.ended.set()

    def test_no_more_than_depth_is_ahead(self):
        for depth in (1, 3):
            with self.subTest(depth):
                self.taken = self.most = self.received = 0
                iterator = iter(ringest.to_device(self.source(40), "cpu", depth=depth))
                for _ in range(10):
                    next(iterator)
                    self.received += 1
                    until(lambda: self.taken == self.received + depth)
                for _ in iterator:
                    self.received += 1
                self.assertEqual((self.taken, self.received), (40, 40))
                self.assertLessEqual(self.most, depth + 1)

    def test_errors_come_in_their_turn(self):
        iterator = iter(ringest.to_device(self.source(3, ValueError("the fourth")), "cpu", depth=9))
        self.assertEqual(int(next(iterator)), 0)
        self.assertTrue(self.ended.wait(support.PATIENCE_S))
        self.assertEqual([int(next(iterator)) for _ in range(2)], [1, 2])
        with self.assertRaisesRegex(ValueError, "the fourth"):
            next(iterator)
        self.assertRaises(StopIteration, next, iterator)

    def test_closing_ends_the_source_and_the_thread(self):
        for leave in (lambda iterator: iterator.close(), lambda iterator: None):
            self.ended.clear()
            iterator = iter(ringest.to_device(self.source(1000), "cpu", depth=2))
            next(iterator)
            leave(iterator)
            del iterator
            gc.collect()
            self.assertTrue(self.ended.is_set())
            self.assertEqual(threads(), [])
            self.assertLess(self.taken, 10)
            self.taken = 0

    def test_what_was_not_begun_takes_nothing(self):
        iterator = iter(ringest.to_device(self.source(5), "cpu"))
        iterator.close()
        self.assertEqual(self.taken, 0)

    def test_a_batch_is_handed_out_before_its_copy_is_done_and_kept_until_then(self):
        lane = Lane()
        kept = []

        def source():
            for i in range(4):
                array = numpy.full(8, i)
                kept.append(weakref.ref(array))
                made = [[array]]
                del array
                yield made.pop()

        with on(lane):
            iterator = iter(ringest.to_device(source(), "cpu", depth=2))
            self.assertEqual(int(next(iterator)[0][0]), 0)
            self.assertIn(("hand over", 0, 1), lane.told)
            # The source makes the next one meanwhile.
            until(lambda: ("wait", 0) in lane.told)
            self.assertEqual(len(kept), 2)
            self.assertIsNotNone(kept[0]())
            self.assertNotIn(("copy", 1), lane.told)
            lane.marks[0].event.set()
            until(lambda: ("copy", 1) in lane.told)
            self.assertIsNone(kept[0]())
            lane.allow()
            self.assertEqual([int(batch[0][0]) for batch in iterator], [1, 2, 3])
        self.assertEqual([one() for one in kept], [None] * 4)

    def test_who_waits_for_room_keeps_no_memory(self):
        lane = Lane()
        lane.allow()
        kept = []

        def source():
            for i in range(9):
                array = numpy.full(8, i)
                kept.append(weakref.ref(array))
                made = [array]
                del array
                yield made.pop()

        with on(lane):
            iterator = iter(ringest.to_device(source(), "cpu", depth=3))
            next(iterator)
            until(lambda: len(kept) == 4 and kept[3]() is None)
            iterator.close()

    def test_closing_waits_for_the_copy_that_is_under_way(self):
        lane = Lane()
        kept = []

        def source():
            array = numpy.zeros(8)
            kept.append(weakref.ref(array))
            made = [array]
            del array
            yield made.pop()
            yield numpy.zeros(8)

        with on(lane):
            iterator = iter(ringest.to_device(source(), "cpu", depth=1))
            next(iterator)
            until(lambda: lane.told.count(("wait", 0)) > 0)
            closing = threading.Thread(target=iterator.close)
            closing.start()
            self.assertIsNotNone(kept[0]())
            lane.allow()
            closing.join()
            self.assertIsNone(kept[0]())

    def test_what_fails_in_the_middle_of_a_copy_waits_for_the_rest(self):
        lane = Lane()
        lane.allow()

        def copy(host):
            if host.numel() == 2:
                raise MemoryError("the device is full")
            return _lane.DirectLane.copy(lane, host)

        lane.copy = copy
        with on(lane):
            moved = ringest.to_device([[numpy.zeros(3), numpy.zeros(2)]], "cpu")
            with self.assertRaisesRegex(MemoryError, "the device is full"):
                list(moved)
        self.assertIn(("wait", 0), lane.told)

    def test_a_child_of_fork_is_told(self):
        iterator = iter(ringest.to_device(self.source(50), "cpu"))
        next(iterator)
        pid = os.fork()
        if pid == 0:
            try:
                next(iterator)
            except RuntimeError:
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        iterator.close()


class Datasets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.endpoint, cls.ca = cls.stack.enter_context(support.emulator())
        cls.client = cls.stack.enter_context(ringest.Client(cls.endpoint, cls.ca, hedging=False))
        cls.client.put_many((uri(i), b"%d" % i) for i in range(COUNT))

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def tearDown(self):
        self.assertEqual(threads(), [])

    def dataset(self, **options):
        options = {"batch_size": 7, "shuffle": True, "client": self.client, **options}
        return ringest.IterableDataset("gs://own/o-", **options)

    def test_the_batches_are_the_dataset_s(self):
        for options in ({}, {"ordered": False}, {"on_error": "skip"}, {"transform": lambda item: item.data}):
            dataset = self.dataset(**options)
            wanted = [[int(bytes(one)) for one in batch] for batch in dataset]
            moved = dataset.to_device("cpu", depth=3)
            self.assertEqual(len(moved), len(wanted))
            found = [numbers([batch]) for batch in moved]
            if options.get("ordered", True):
                self.assertEqual(found, wanted)
            self.assertEqual(sorted(itertools.chain(*found)), list(range(COUNT)))

    def test_a_state_has_what_was_handed_out_and_no_more(self):
        for depth, stop, ordered in itertools.product((1, 2, 5), (0, 1, 4, 8, 9), (True, False)):
            with self.subTest(depth=depth, stop=stop, ordered=ordered):
                dataset = self.dataset(ordered=ordered)
                moved = dataset.to_device("cpu", depth=depth)
                iterator = iter(moved)
                first = numbers(itertools.islice(iterator, stop))
                states = [dataset.state_dict(), moved.state_dict()]
                self.assertEqual(*states)
                iterator.close()
                self.assertEqual(dataset.state_dict(), states[0])
                for resumed in (self.dataset(ordered=ordered), self.dataset(ordered=ordered).to_device("cpu")):
                    resumed.load_state_dict(states[0])
                    rest = [int(bytes(list(one))) for batch in resumed for one in batch]
                    self.assertEqual(sorted(first + rest), list(range(COUNT)))

    def test_a_state_of_the_end_has_all_and_the_next_epoch_is_another(self):
        dataset = self.dataset()
        moved = dataset.to_device("cpu")
        orders = []
        for epoch in range(3):
            moved.set_epoch(epoch)
            orders.append(numbers(moved))
            state = moved.state_dict()
            resumed = self.dataset()
            resumed.load_state_dict(state)
            self.assertEqual(list(resumed), [])
        self.assertEqual(len({tuple(order) for order in orders}), 3)

    def test_another_iteration_is_what_a_state_tells_from_then_on(self):
        dataset = self.dataset()
        ahead = iter(dataset.to_device("cpu"))
        next(ahead)
        plain = iter(dataset)
        next(plain)
        state = dataset.state_dict()
        next(ahead)
        self.assertEqual(dataset.state_dict(), state)
        ahead.close()

    def test_what_fails_comes_in_its_turn_and_the_rest_after_it(self):
        def number(item):
            if int(bytes(item.data)) == 30 and is_broken:
                raise ValueError("the 31st")
            return item.data

        is_broken = True
        dataset = self.dataset(shuffle=False, transform=number)
        found = []
        with self.assertRaisesRegex(ringest.TransformError, "the 31st"):
            for batch in dataset.to_device("cpu", depth=9):
                found += numbers([batch])
        self.assertEqual(found, list(range(28)))
        state = dataset.state_dict()
        is_broken = False
        dataset.load_state_dict(state)
        self.assertEqual(numbers(dataset.to_device("cpu")), list(range(28, COUNT)))

    def test_memory_comes_back_when_an_iteration_is_left(self):
        client = self.stack.enter_context(ringest.Client(self.endpoint, self.ca, hedging=False))
        iterator = iter(self.dataset(client=client).to_device("cpu"))
        next(iterator)
        iterator.close()
        gc.collect()
        self.assertEqual(client.stats()["held_bytes"], 0)

    def test_little_memory_is_enough(self):
        client = self.stack.enter_context(ringest.Client(self.endpoint, self.ca, memory="8MiB", threads=1))
        self.client.put_many((f"gs://large/o-{i:02d}", bytes([i]) * (1 << 20)) for i in range(16))
        dataset = ringest.IterableDataset("gs://large/o-", batch_size=2, client=client)
        self.assertEqual([int(batch[0][5]) for batch in dataset.to_device("cpu", depth=4)], list(range(0, 16, 2)))

    def test_tar_samples_are_dicts(self):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as shard:
            for i in range(10):
                for suffix in ("jpg", "cls"):
                    member = tarfile.TarInfo(f"{i:03d}.{suffix}")
                    member.size = 2
                    shard.addfile(member, io.BytesIO(b"%02d" % i))
        self.client.put("gs://tar/a.tar", archive.getvalue())
        dataset = ringest.TarDataset("gs://tar/a.tar", batch_size=4, client=self.client)
        samples = [sample for batch in dataset.to_device("cpu") for sample in batch]
        self.assertEqual([sample["__key__"] for sample in samples], [f"{i:03d}" for i in range(10)])
        self.assertEqual([int(bytes(sample["jpg"].tolist())) for sample in samples], list(range(10)))

    def test_loaders_are_sources(self):
        dataset = ringest.MapDataset("gs://own/o-", transform=lambda item: int(bytes(item.data)), client=self.client)
        for workers in (0, 2):
            loader = DataLoader(dataset, batch_size=8, num_workers=workers)
            found = [one for batch in ringest.to_device(loader, "cpu") for one in batch.tolist()]
            self.assertEqual(found, list(range(COUNT)))

    def test_a_loader_with_states_tells_them_of_what_was_handed_out(self):
        from torchdata.stateful_dataloader import StatefulDataLoader

        def loader(workers):
            dataset = self.dataset(transform=lambda item: int(bytes(item.data)))
            return StatefulDataLoader(dataset, batch_size=None, collate_fn=torch.tensor, num_workers=workers)

        for workers in (0, 2):
            moved = ringest.to_device(loader(workers), "cpu", depth=3)
            iterator = iter(moved)
            first = [int(one) for batch in itertools.islice(iterator, 3) for one in batch]
            state = moved.state_dict()
            iterator.close()
            resumed = ringest.to_device(loader(workers), "cpu")
            resumed.load_state_dict(state)
            rest = [int(one) for batch in resumed for one in batch]
            self.assertEqual(sorted(first + rest), list(range(COUNT)))


if __name__ == "__main__":
    unittest.main()
