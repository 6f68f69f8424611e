"""Datasets inside DataLoaders: every start method, workers that persist or do not, epochs and states, with PyTorch's
loader and torchdata's."""

import contextlib
import copy
import gc
import itertools
import logging.handlers
import multiprocessing
import os
import pickle
import queue
import signal
import time
import unittest
import unittest.mock

import ringest
import support

try:
    from torch.utils.data import ChainDataset, ConcatDataset, DataLoader, Subset, get_worker_info
    from torch.utils.data import IterableDataset as IterableBase
except ImportError:
    DataLoader, IterableBase = None, object
try:
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError:
    StatefulDataLoader = None

COUNT = 60
BATCH = 4
# Imported once, by the server that workers are forked from.
multiprocessing.set_forkserver_preload(["torch.utils.data", "ringest.dataset", "support"])

WORKERS = [(2, method, persistent) for method in ("fork", "forkserver") for persistent in (False, True)]
EVERY_KIND = [(0, None, False), *WORKERS]
# Where tests/model/test_loader.py has the others.
SOME_KINDS = [(0, None, False), (2, "fork", False), (2, "forkserver", True)]


def numbers(batches):
    return [int(value) for batch in batches for value in batch]


class Plans:
    """Each sample is what the log says of a client's event loops."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        logger = logging.getLogger("ringest")
        # Lines come by a thread, also after the client is closed.
        told = queue.SimpleQueue()
        handler = logging.handlers.QueueHandler(told)
        logger.setLevel(logging.DEBUG)
        logger.addHandler(handler)
        try:
            with ringest.Client("http://localhost:1", local_rank=1, local_world_size=3) as client:
                client.stats()
                while "local rank: " not in (line := told.get(timeout=60).getMessage()):
                    pass
        finally:
            logger.removeHandler(handler)
        return get_worker_info().id, line


@unittest.skipIf(DataLoader is None, "torch is not installed")
class Loops(unittest.TestCase):
    def test_workers_divide_the_loops_of_their_rank(self):
        for method in ("fork", "forkserver", "spawn"):
            with self.subTest(method):
                loader = DataLoader(
                    Plans(), num_workers=2, batch_size=None, collate_fn=list, multiprocessing_context=method
                )
                for worker, line in loader:
                    self.assertIn(f"local rank: 1 of 3, as the program says; its worker {worker} of 2", line)


@unittest.skipIf(DataLoader is None, "torch is not installed")
class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.endpoint, cls.ca = stack.enter_context(support.emulator())
        cls.client = stack.enter_context(ringest.Client(cls.endpoint, cls.ca))
        cls.addClassCleanup(stack.close)

    def dataset(self, **options):
        defaults = {"transform": support.take_name, "manifest": support.entries()[:COUNT], "batch_size": BATCH}
        options = {**defaults, "shuffle": True, "seed": 3, **options}
        return ringest.IterableDataset("gs://data/x-", client=self.client, **options)

    def loader(self, dataset, workers, method, persistent, kind=DataLoader, **options):
        # A map dataset has no batches of its own.
        options = {"batch_size": None, "collate_fn": list, **options}
        return kind(
            dataset, num_workers=workers, multiprocessing_context=method, persistent_workers=persistent, **options
        )

    def order(self, epoch, **options):
        dataset = self.dataset(**options)
        dataset.set_epoch(epoch)
        return numbers(dataset)

    def state_after(self, batches, epoch=0):
        dataset = self.dataset()
        dataset.set_epoch(epoch)
        iteration = iter(dataset)
        given = numbers(next(iteration) for _ in range(batches))
        return given, pickle.loads(pickle.dumps(dataset.state_dict()))


def memory_files():
    """Of ours, that this process has open."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += "memfd:ringest" in os.readlink(f"/proc/self/fd/{fd}")
    return found


class Wrapped:
    """A dataset around one of ours, by a name that nobody knows."""

    def __init__(self, inner):
        self.hidden = inner

    def __len__(self):
        return len(self.hidden)

    def __getitem__(self, index):
        return self.hidden[index]


class MadeInWorker(IterableBase):
    """Makes its dataset in each worker."""

    def __init__(self, endpoint, ca, **options):
        self.made = endpoint, ca, options

    def __iter__(self):
        endpoint, ca, options = self.made
        with ringest.Client(endpoint, ca) as client:
            yield from ringest.IterableDataset("gs://data/x-", client=client, transform=support.take_name, **options)


class WithEquality(ringest.MapDataset):
    """Cannot be hashed."""

    def __eq__(self, other):
        return self is other


class Begun:
    """Has a worker say that it has begun an iteration."""

    def __init__(self, told):
        self.told = told

    def __call__(self, worker):
        dataset = get_worker_info().dataset
        begin = dataset._epochs.begin

        def begin_and_tell():
            beginning = begin()
            self.told.send(worker)
            return beginning

        dataset._epochs.begin = begin_and_tell


def told_in_another_process(dataset, told):
    """Not of a DataLoader."""
    os.environ.update(RANK="1", WORLD_SIZE="2")
    told.send((dataset.state_dict()["epoch"], numbers(dataset)))


class Lists(Case):
    def setUp(self):
        self.listings = []
        listing, here = ringest._core.Client.list, os.getpid()

        def counted(client, *arguments, **options):
            assert os.getpid() == here, "a worker lists"
            self.listings.append(here)
            return listing(client, *arguments, **options)

        patched = unittest.mock.patch.object(ringest._core.Client, "list", counted)
        patched.start()
        self.addCleanup(patched.stop)

    def test_the_process_that_has_the_loader_lists_before_workers_start(self):
        """No worker has a list of its own, whatever is around the dataset, and whoever asks first."""
        map_style = lambda: ringest.MapDataset("gs://data/x-", support.take_name, self.client)
        for method in ("fork", "forkserver"):
            for make in (
                map_style,
                lambda: self.dataset(manifest=None, batch_size=None),
                lambda: Subset(map_style(), range(support.COUNT)),
                lambda: ConcatDataset(
                    [Subset(map_style(), range(100)), Subset(map_style(), range(100, support.COUNT))]
                ),
                lambda: ChainDataset([self.dataset(manifest=None, batch_size=None)]),
                lambda: Wrapped(map_style()),
                lambda: WithEquality("gs://data/x-", support.take_name, self.client),
            ):
                with self.subTest(method, made=make()):
                    dataset = make()
                    loader = self.loader(dataset, 2, method, False, batch_size=50)
                    self.listings.clear()
                    self.assertEqual(sorted(numbers(loader)), list(range(support.COUNT)))
                    # Of the wrapped ones, those of other cases may still be there, too.
                    self.assertEqual(set(self.listings), {os.getpid()})

    def test_datasets_that_have_attributes_of_their_own(self):
        """What is looked through for datasets is what others have made."""

        class Odd:
            def __init__(self, inner):
                self.hidden, self.datasets = inner, []
                self.datasets.append(self.datasets)

            @property
            def dataset(self):
                raise KeyError("mine")

            __len__ = Wrapped.__len__
            __getitem__ = Wrapped.__getitem__

        loader = self.loader(
            Odd(ringest.MapDataset("gs://data/x-", support.take_name, self.client)), 2, "fork", False, batch_size=50
        )
        self.assertEqual(sorted(numbers(loader)), list(range(support.COUNT)))

    def test_what_cannot_be_listed_is_raised_in_the_worker_as_it_is(self):
        for method in ("fork", "forkserver"):
            for kind in (ringest.MapDataset, ringest.IterableDataset):
                dataset = kind("gs://absent/", client=self.client)
                sampler = {"sampler": range(3)} if kind is ringest.MapDataset else {}
                with self.subTest(method, kind=kind), self.assertRaisesRegex(ringest.NotFoundError, "gs://absent/"):
                    list(self.loader(dataset, 1, method, False, **sampler))

    def test_a_worker_that_has_no_list_says_what_to_do(self):
        with unittest.mock.patch("ringest._workers._starting_iterator", return_value=None):
            for method in ("fork", "forkserver"):
                dataset = self.dataset(manifest=None)
                with (
                    self.subTest(method),
                    self.assertRaisesRegex(ringest.ListError, r"gs://data/x-.*ask for its len\(\)"),
                ):
                    list(self.loader(dataset, 2, method, False))
                # What it says is enough.
                len(dataset)
                self.assertEqual(sorted(numbers(self.loader(dataset, 2, method, False))), list(range(support.COUNT)))

    def test_a_state_that_cannot_be_shared_out_is_refused(self):
        _, state = self.state_after(7)
        with unittest.mock.patch("ringest._workers._starting_iterator", return_value=None):
            for method in ("fork", "forkserver"):
                dataset = self.dataset()
                dataset.load_state_dict(state)
                with (
                    self.subTest(method),
                    self.assertRaisesRegex(RuntimeError, "not started by a DataLoader of PyTorch"),
                ):
                    list(self.loader(dataset, 2, method, False))

    def test_a_dataset_that_is_made_in_a_worker(self):
        with self.assertRaisesRegex(ringest.ListError, "make the dataset where the DataLoader is made"):
            list(self.loader(MadeInWorker(self.endpoint, self.ca), 2, "fork", False, batch_size=BATCH))
        made = MadeInWorker(self.endpoint, self.ca, manifest=support.entries()[:COUNT])
        self.assertEqual(sorted(numbers(self.loader(made, 2, "fork", False, batch_size=BATCH))), list(range(COUNT)))

    def test_processes_that_are_no_workers_are_on_their_own(self):
        """They are ranks, perhaps, with an environment of their own."""
        for method in ("fork", "forkserver"):
            context = multiprocessing.get_context(method)
            dataset = self.dataset(shuffle=False)
            # It has had workers before.
            self.assertEqual(len(numbers(self.loader(dataset, 1, "fork", False))), COUNT)
            dataset.set_epoch(7)
            heard, told = context.Pipe(duplex=False)
            process = context.Process(target=told_in_another_process, args=(dataset, told))
            process.start()
            self.assertEqual(heard.recv(), (7, list(range(1, COUNT, 2))))
            process.join()
            dataset.set_epoch(8)
            self.assertEqual(dataset.state_dict()["epoch"], 8)

    def test_descriptors_and_memory_come_back(self):
        # Those of other tests may lie in cycles.
        gc.collect()
        self.assertEqual(memory_files(), 0)
        for method in ("fork", "forkserver"):
            dataset = self.dataset(manifest=None)
            self.assertEqual(len(numbers(self.loader(dataset, 2, method, False))), support.COUNT)
            self.assertEqual(memory_files(), 1)
            del dataset
            gc.collect()
            self.assertEqual(memory_files(), 0)


class Epochs(Case):
    def test_set_epoch_reaches_all_workers(self):
        orders = [self.order(epoch) for epoch in range(3)]
        self.assertEqual(len({tuple(order) for order in orders}), 3)
        for kind in EVERY_KIND:
            with self.subTest(kind):
                dataset = self.dataset()
                loader = self.loader(dataset, *kind)
                seen = []
                for epoch in (0, 1, 2, 2, 0):
                    dataset.set_epoch(epoch)
                    seen.append(numbers(loader))
                self.assertEqual(seen, [orders[epoch] for epoch in (0, 1, 2, 2, 0)])

    def test_only_the_first_iteration_after_a_load_goes_on_in_the_middle(self):
        first, later = self.order(5), self.order(6)
        begin, state = self.state_after(7, epoch=5)
        for kind in EVERY_KIND:
            with self.subTest(kind):
                dataset = self.dataset()
                dataset.load_state_dict(state)
                loader = self.loader(dataset, *kind)
                self.assertEqual(begin + numbers(loader), first)
                self.assertEqual(numbers(loader), first)
                dataset.set_epoch(6)
                self.assertEqual(numbers(loader), later)
                # And once more, of workers that are there already.
                dataset.load_state_dict(state)
                self.assertEqual(begin + numbers(loader), first)
                self.assertEqual(numbers(loader), first)

    def test_a_state_is_forgotten_with_another_epoch(self):
        _, state = self.state_after(7)
        for kind in SOME_KINDS:
            with self.subTest(kind):
                dataset = self.dataset()
                dataset.load_state_dict(state)
                dataset.set_epoch(1)
                self.assertEqual(numbers(self.loader(dataset, *kind)), self.order(1))

    def test_what_is_left_early_is_not_gone_on_with(self):
        whole = self.order(0)
        begin, state = self.state_after(7)
        for kind in SOME_KINDS:
            with self.subTest(kind):
                dataset = self.dataset()
                dataset.load_state_dict(state)
                loader = self.loader(dataset, *kind)
                for batch in loader:
                    self.assertEqual(numbers([batch]), whole[len(begin) : len(begin) + BATCH])
                    break
                self.assertEqual(numbers(loader), whole)

    def test_a_worker_that_is_started_when_another_one_has_begun(self):
        """All of a loader go on, however long it takes to start them."""
        begin, state = self.state_after(7)
        for method in ("fork", "forkserver"):
            heard, told = multiprocessing.get_context(method).Pipe(duplex=False)
            dataset = self.dataset()
            dataset.load_state_dict(state)
            prepare = dataset._source.prepare

            def prepare_late(started=[]):  # noqa: B006
                if started:
                    heard.recv()  # the first one has begun
                started.append(True)
                prepare()

            with unittest.mock.patch.object(type(dataset._source), "prepare", lambda source: prepare_late()):
                loader = self.loader(dataset, 2, method, False, worker_init_fn=Begun(told))
                self.assertEqual(begin + numbers(loader), self.order(0))

    def test_two_iterations_at_once_do_not_share_a_state(self):
        whole = self.order(0)
        begin, state = self.state_after(7)
        for kind in SOME_KINDS:
            with self.subTest(kind):
                dataset = self.dataset()
                dataset.load_state_dict(state)
                first, second = iter(self.loader(dataset, *kind)), iter(self.loader(dataset, *kind))
                # Of workers it is not known which ones come first.
                got = sorted([numbers(first), numbers(second)], key=len)
                self.assertEqual([begin + got[0], got[1]], [whole, whole])

    def test_workers_begin_one_epoch_though_it_is_changed_meanwhile(self):
        orders = [self.order(epoch) for epoch in range(2)]
        for kind in SOME_KINDS[1:]:
            with self.subTest(kind):
                dataset = self.dataset()
                loader = self.loader(dataset, *kind)
                for _ in range(2):
                    iteration = iter(loader)
                    dataset.set_epoch(1)
                    self.assertIn(numbers(iteration), orders)
                    dataset.set_epoch(0)

    def test_the_place_is_not_told_where_it_is_not_known(self):
        for kind in SOME_KINDS[1:]:
            with self.subTest(kind):
                dataset = self.dataset()
                loader = self.loader(dataset, *kind)
                before = dataset.state_dict()
                iteration = iter(loader)
                next(iteration)
                for _ in range(2):
                    with self.assertRaisesRegex(RuntimeError, "StatefulDataLoader.*num_workers=0"):
                        dataset.state_dict()
                    rest = list(iteration)
                self.assertEqual(rest, [])
                dataset.set_epoch(1)
                self.assertEqual(dataset.state_dict(), {"epoch": 1, "state": None})
                dataset.set_epoch(0)
                dataset.load_state_dict(before)
                self.assertEqual(dataset.state_dict(), before)
                # What this process reads itself it knows.
                samples = iter(dataset)
                next(samples)
                self.assertIsInstance(dataset.state_dict()["state"], bytes)

    def test_a_handler_of_signals_may_ask_for_a_state(self):
        dataset = self.dataset()
        states, before = [], signal.getsignal(signal.SIGALRM)
        signal.signal(signal.SIGALRM, lambda *_: states.append(dataset.state_dict()["epoch"]))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
            end = time.monotonic() + 0.5
            epoch = 0
            while time.monotonic() < end:
                dataset.set_epoch(epoch := epoch + 1)
                iter(dataset)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertEqual(states, sorted(states))

    def test_epochs_that_are_none(self):
        dataset = self.dataset()
        for wrong in (-1, 1 << 64):
            with self.assertRaisesRegex(ValueError, f"epoch must be .*, got {wrong}$"):
                dataset.set_epoch(wrong)
        with self.assertRaises(TypeError):
            dataset.set_epoch("1")

    def test_copies_have_epochs_of_their_own(self):
        dataset = self.dataset()
        dataset.set_epoch(1)
        for made in (copy.copy(dataset), copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):
            self.assertEqual(numbers(made), self.order(1))
            made.set_epoch(2)
            self.assertEqual(dataset.state_dict()["epoch"], 1)

    def test_workers_by_spawn(self):
        """What the other tests show of forkserver, once by the method that takes the longest."""
        begin, state = self.state_after(7, epoch=5)
        dataset = self.dataset()
        dataset.load_state_dict(state)
        loader = self.loader(dataset, 2, "spawn", True)
        self.assertEqual(begin + numbers(loader), self.order(5))
        dataset.set_epoch(6)
        self.assertEqual(numbers(loader), self.order(6))
        with self.assertRaisesRegex(RuntimeError, "StatefulDataLoader"):
            dataset.state_dict()
        dataset.load_state_dict(state)
        self.assertEqual(begin + numbers(loader), self.order(5))


@unittest.skipIf(StatefulDataLoader is None, "torchdata is not installed")
class Stateful(Case):
    def make(self, kind, own_batches=True, every=1, **options):
        """A loader as a process would make it that has just begun, and its dataset."""
        dataset = self.dataset(batch_size=BATCH if own_batches else None, **options)
        loader = self.loader(
            dataset, *kind, kind=StatefulDataLoader, batch_size=None if own_batches else BATCH, collate_fn=list,
            snapshot_every_n_steps=every,
        )  # fmt: skip
        return loader, dataset

    def test_it_goes_on_after_any_step(self):
        for kind in EVERY_KIND:
            for own_batches, every in ((True, 3), (False, 1)) if kind[2] else ((True, 1), (False, 4)):
                with self.subTest(kind, own_batches=own_batches, every=every):
                    loader, dataset = self.make(kind, own_batches, every)
                    wholes = []
                    for epoch in range(3):
                        dataset.set_epoch(epoch)
                        wholes.append(numbers(loader))
                        self.assertEqual(sorted(wholes[-1]), list(range(COUNT)))
                    for stop in (5,) if own_batches else (0, COUNT // BATCH - 1):
                        loader, dataset = self.make(kind, own_batches, every)
                        dataset.set_epoch(1)
                        batches = iter(loader)
                        begin = numbers(next(batches) for _ in range(stop))
                        state = pickle.loads(pickle.dumps(loader.state_dict()))
                        del batches
                        other, dataset = self.make(kind, own_batches, every)
                        dataset.set_epoch(1)
                        other.load_state_dict(state)
                        self.assertEqual(begin + numbers(other), wholes[1])
                        # The same again, and the next.
                        self.assertEqual(numbers(other), wholes[1])
                        dataset.set_epoch(2)
                        self.assertEqual(numbers(other), wholes[2])

    def test_a_sample_that_raises_loses_no_neighbour(self):
        """Not so with batches of the loader and without workers: those it had of a batch are gone with it."""

        def transform(item):
            if int(support.take_name(item)) in (7, 43):
                raise KeyError("mine")
            return support.take_name(item)

        for kind, own_batches in ((EVERY_KIND[0], True), *itertools.product(WORKERS[:1], (True, False))):
            with self.subTest(kind, own_batches=own_batches):
                loader, _ = self.make(kind, own_batches, transform=transform)
                got = []
                with self.assertRaisesRegex(ringest.TransformError, "mine"):
                    got.extend(loader)
                state = pickle.loads(pickle.dumps(loader.state_dict()))
                other, _ = self.make(kind, own_batches)
                other.load_state_dict(state)
                self.assertEqual(sorted(numbers(got) + numbers(other)), list(range(COUNT)))

    def test_the_state_says_which_epoch_it_is_of(self):
        """As in one process: whoever does not call set_epoch() stays in the epoch that was loaded."""
        for kind in SOME_KINDS:
            with self.subTest(kind):
                loader, dataset = self.make(kind)
                dataset.set_epoch(4)
                batches = iter(loader)
                begin = numbers(next(batches) for _ in range(3))
                state = loader.state_dict()
                del batches
                other, dataset = self.make(kind)
                other.load_state_dict(state)
                self.assertEqual(begin + numbers(other), self.order(4))
                self.assertEqual(numbers(other), self.order(4))
                dataset.set_epoch(4)
                self.assertEqual(numbers(other), self.order(4))

    def test_the_end_of_an_epoch(self):
        for kind in EVERY_KIND:
            with self.subTest(kind):
                loader, dataset = self.make(kind)
                whole = numbers(loader)
                state = pickle.loads(pickle.dumps(loader.state_dict()))
                other, dataset = self.make(kind)
                other.load_state_dict(state)
                self.assertEqual(numbers(other), whole)
                dataset.set_epoch(1)
                self.assertEqual(numbers(other), self.order(1))

    def test_states_before_and_in_the_middle_of_several_epochs(self):
        for kind in SOME_KINDS:
            with self.subTest(kind):
                loader, dataset = self.make(kind)
                states, expected = [], []
                for epoch in range(3):
                    dataset.set_epoch(epoch)
                    states.append(pickle.dumps(loader.state_dict()) if epoch == 0 else None)
                    seen = []
                    for step, batch in enumerate(loader):
                        seen += numbers([batch])
                        if step == 6:
                            states.append(pickle.dumps(loader.state_dict()))
                            expected.append(seen[:])
                    self.assertEqual(seen, self.order(epoch))
                first = pickle.loads(states[0])
                other, dataset = self.make(kind)
                other.load_state_dict(first)
                self.assertEqual(numbers(other), self.order(0))
                for epoch, (state, begin) in enumerate(zip(filter(None, states[1:]), expected, strict=True)):
                    other, dataset = self.make(kind)
                    dataset.set_epoch(epoch)
                    other.load_state_dict(pickle.loads(state))
                    self.assertEqual(begin + numbers(other), self.order(epoch))

    def test_what_is_left_early_and_loaded_again(self):
        """A state is loaded into a loader that is in the middle of something else."""
        for kind in SOME_KINDS:
            with self.subTest(kind):
                loader, dataset = self.make(kind)
                batches = iter(loader)
                begin = numbers(next(batches) for _ in range(5))
                state = pickle.loads(pickle.dumps(loader.state_dict()))
                next(batches)
                del batches
                loader.load_state_dict(state)
                self.assertEqual(begin + numbers(loader), self.order(0))
                for batch in loader:
                    self.assertEqual(numbers([batch]), self.order(0)[:BATCH])
                    break
                dataset.set_epoch(1)
                self.assertEqual(numbers(loader), self.order(1))

    def test_chains_of_states(self):
        for kind in SOME_KINDS:
            with self.subTest(kind):
                state, seen = None, []
                while len(seen) < COUNT:
                    loader, _ = self.make(kind)
                    if state is not None:
                        loader.load_state_dict(state)
                    batches = iter(loader)
                    seen += numbers(next(batches) for _ in range(min(4, (COUNT - len(seen)) // BATCH)))
                    state = pickle.loads(pickle.dumps(loader.state_dict()))
                    del batches
                self.assertEqual(seen, self.order(0))

    def test_map_datasets(self):
        for kind in SOME_KINDS:
            with self.subTest(kind):
                dataset = ringest.MapDataset("gs://data/x-", support.take_name, self.client, support.entries()[:COUNT])
                make = lambda: self.loader(dataset, *kind, kind=StatefulDataLoader, batch_size=BATCH)
                loader = make()
                batches = iter(loader)
                begin = numbers(next(batches) for _ in range(5))
                state = loader.state_dict()
                del batches
                other = make()
                other.load_state_dict(state)
                self.assertEqual(begin + numbers(other), list(range(COUNT)))
                self.assertEqual(numbers(other), list(range(COUNT)))


if __name__ == "__main__":
    unittest.main()
