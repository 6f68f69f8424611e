"""Going on with other ranks and workers, wherever each had stopped: what nobody had consumed comes exactly once."""

import contextlib
import itertools
import pickle
import random
import unittest
import zlib

import ringest
import ringest.dataset
import support

try:
    import torch.utils.data

    import ranks
except ImportError:
    torch = None
try:
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError:
    StatefulDataLoader = None

COUNT = 120


def number(item):
    return int(item.uri.rsplit("-", 1)[1])


def flat(samples):
    return [one for sample in samples for one in (sample if isinstance(sample, list) else [sample])]


def saved(state):
    """By way of a checkpoint."""
    return pickle.loads(pickle.dumps(state))


class Emulated(unittest.TestCase):
    """One emulator for all cases."""

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.endpoint, cls.ca = cls.stack.enter_context(support.emulator())
        cls.client = cls.stack.enter_context(ringest.Client(cls.endpoint, cls.ca))

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def dataset(self, rank=0, world_size=1, **options):
        options = {"shuffle": True, "seed": 5, "manifest": support.entries()[:COUNT], "transform": number, **options}
        return ringest.IterableDataset("gs://data/x-", client=self.client, rank=rank, world_size=world_size, **options)

    def check_all_once(self, got):
        self.assertEqual(sorted(got), list(range(COUNT)))

    def read(self, dataset, count):
        """So many samples or batches, and the state after them."""
        got = flat(itertools.islice(dataset, count))
        return got, saved(dataset.state_dict())

    def read_ranks(self, counts, state=None, **options):
        """What ranks read, each its number of samples or batches (None: all), and their states."""
        read, states = [], []
        for rank, count in enumerate(counts):
            dataset = self.dataset(rank, len(counts), **options)
            if state is not None:
                dataset.load_state_dict(state)
            got, after = self.read(dataset, count)
            read.append(got)
            states.append(after)
        return read, states


class Lists(Emulated):
    def test_ranks_that_stopped_anywhere(self):
        chance = random.Random(support.SEED)
        for options in (
            {"batch_size": 7},
            {"batch_size": None, "ordered": False},
            {"batch_size": 3, "shuffle": False, "ordered": False, "requests": 8},
        ):
            with self.subTest(**options):
                got, state = [], None
                for world in (3, 4, 1, 2):
                    read, state = self.read_ranks([chance.randrange(4) for _ in range(world)], state, **options)
                    got += flat(read)
                    chance.shuffle(state)
                read, state = self.read_ranks([None] * 5, state, **options)
                self.check_all_once(got + flat(read))
                self.assertEqual(flat(self.read_ranks([None] * 2, state, **options)[0]), [])

    def test_ranks_that_stopped_alike_go_on_in_the_same_order(self):
        whole = list(self.dataset())
        _, states = self.read_ranks([4, 4, 4], batch_size=5)
        for world in (1, 2, 3):
            read, _ = self.read_ranks([None] * world, states, batch_size=5)
            self.assertEqual(read, [whole[60 + rank :: world] for rank in range(world)])

    def test_what_is_left_comes_in_an_order_that_the_states_determine(self):
        _, states = self.read_ranks([10, 3, 17])
        first, _ = self.read_ranks([None] * 2, states)
        again, _ = self.read_ranks([None] * 2, states[::-1])
        self.assertEqual(first, again)
        in_turn = list(itertools.chain.from_iterable(zip(*first)))
        self.assertEqual(in_turn, [one for one in self.dataset() if one in flat(first)])

    def test_ranks_that_skipped_what_had_changed(self):
        entries = [(name, size, 1 if i % 3 == 0 else 0) for i, (name, size, _) in enumerate(support.entries()[:COUNT])]
        options = {"manifest": entries, "changed": "skip", "batch_size": 10}
        got, states = self.read_ranks([1, 2, 3], **options)
        read, _ = self.read_ranks([None] * 2, states, **options)
        self.assertEqual(sorted(flat(got) + flat(read)), [i for i in range(COUNT) if i % 3])

    def test_ranks_that_were_killed_in_the_middle_of_a_batch(self):
        def transform(item):
            if number(item) == wrong:
                raise KeyError("mine")
            return number(item)

        wrong, got, states = 77, [], []
        for rank in range(2):
            dataset = self.dataset(rank, 2, batch_size=9, transform=transform)
            with contextlib.suppress(ringest.TransformError):
                for batch in dataset:
                    got += batch
            states.append(dataset.state_dict())
        self.check_all_once(got + flat(self.read_ranks([None] * 3, states)[0]))

    def test_a_rank_that_never_began(self):
        unbegun = self.dataset(2, 3).state_dict()
        self.assertEqual(unbegun, {"epoch": 0, "state": None})
        got, states = self.read_ranks([5, 2, 0])
        for third in (unbegun, states[2]):
            read, later = self.read_ranks([6, 6], [states[0], third, states[1]])
            # And one that did not begin again.
            dataset = self.dataset(1, 2)
            dataset.load_state_dict([states[0], third, states[1]])
            last, _ = self.read_ranks([None], [later[0], saved(dataset.state_dict())])
            self.check_all_once(flat(got) + read[0] + last[0])
        read, _ = self.read_ranks([None] * 2, [unbegun, unbegun])
        self.check_all_once(flat(read))

    def test_epochs_after_it_are_whole(self):
        got, states = self.read_ranks([5, 9])
        dataset = self.dataset(0, 1)
        dataset.load_state_dict(states)
        self.check_all_once(flat(got) + list(dataset))
        self.check_all_once(list(dataset))
        dataset.set_epoch(1)
        self.check_all_once(list(dataset))

    def test_remainders_are_of_what_is_left(self):
        got, states = self.read_ranks([5, 8, 1])  # 106 are left
        for remainder, lengths in (("uneven", [27, 27, 26, 26]), ("pad", [27] * 4), ("drop", [26] * 4)):
            read, _ = self.read_ranks([None] * 4, states, remainder=remainder)
            self.assertEqual([len(each) for each in read], lengths)
            self.assertEqual(len({*flat(got), *flat(read)}), COUNT - 2 * (remainder == "drop"))

    def test_states_are_small(self):
        _, states = self.read_ranks([10, 3, 17])
        self.assertEqual({len(state["state"]) for state in states}, {112})
        self.assertEqual({*states[0]}, {"epoch", "state"})
        _, states = self.read_ranks([1, 1], states)
        # A bit for each position from the fourth of the second rank to the 17th of the third.
        self.assertEqual(len(zlib.decompress(states[0]["base"])), 116 + -(-(3 * 16 + 2 + 1 - (3 * 3 + 1)) // 8))
        self.assertLess(len(states[0]["base"]), 116)


class OwnStates(Emulated):
    def test_a_rank_goes_on_with_its_own_and_with_no_other(self):
        whole = list(self.dataset(1, 2))
        for batch_size in (None, 4):
            got, state = self.read(self.dataset(1, 2, batch_size=5), 3)
            dataset = self.dataset(1, 2, batch_size=batch_size)
            dataset.load_state_dict(state)
            self.assertEqual(got + flat(dataset), whole)
        for rank, world in ((0, 2), (1, 3), (0, 1)):
            dataset = self.dataset(rank, world)
            dataset.load_state_dict(state)
            with self.assertRaisesRegex(ValueError, f"rank 1 of 2, and this is rank {rank} of {world}.*of all ranks"):
                iter(dataset)

    def test_of_one_rank_it_is_all_there_is(self):
        got, state = self.read(self.dataset(), 37)
        read, states = self.read_ranks([5, 1, 7], state)
        last, _ = self.read_ranks([None] * 2, states)
        self.check_all_once(got + flat(read) + flat(last))

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_another_number_of_workers(self):
        got, state = self.read(self.dataset(1, 2, batch_size=5), 3)
        whole = list(self.dataset(1, 2))
        for workers in (0, 2):
            dataset = self.dataset(1, 2, batch_size=5)
            dataset.load_state_dict(state)
            loader = torch.utils.data.DataLoader(dataset, batch_size=None, collate_fn=list, num_workers=workers)
            self.assertEqual(got + flat(loader), whole)


class Refusals(Emulated):
    def test_states_that_are_not_all_of_one_run(self):
        _, states = self.read_ranks([5, 7])
        _, others = self.read_ranks([1, 1, 1], states)
        damaged = {**others[0], "base": others[0]["base"][:-1]}
        for wrong, text in (
            ([states[0]], "states of 1 of the 2 ranks are missing, for instance of rank 1"),
            ([states[0], states[0]], "two states of rank 0 of 2"),
            ([states[0], {**states[1], "epoch": 3}], "one epoch are needed, and these are of 0 and 3"),
            ([states[0], others[1]], "not of one run"),
            ([{"epoch": 0, "state": None}] * 2 + [states[0]], "but only 1 of 2 ranks"),
            ([others[0], others[1], {**others[2], "base": None}], "needs the base"),
            ([others[0], others[1], damaged], "damaged"),
            ([], "none at all"),
            ([states[0], {"epoch": 0, "state": states[1]["state"][:-1]}], "damaged"),
            ([states[0], 5], "5 is not a state that"),
            ("text", "'text' is not a state"),
            ({"epoch": 0, "state": None, "base": 5}, "not a state"),
        ):
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                self.dataset().load_state_dict(wrong)

    def test_states_of_another_list(self):
        _, states = self.read_ranks([5, 7])
        entries = support.entries()[:COUNT]
        entries[COUNT - 2] = ("x-00000200", 2000, 0)  # the fingerprint looks at the first 64 of so few
        dataset = self.dataset(manifest=entries)
        dataset.load_state_dict(states)
        with self.assertRaisesRegex(ValueError, "with other objects"):
            iter(dataset)

    def test_a_refusal_leaves_the_dataset_as_it_was(self):
        dataset = self.dataset()
        _, state = self.read(dataset, 10)
        with self.assertRaises(ValueError):
            dataset.load_state_dict([state, state])
        self.assertEqual(saved(dataset.state_dict()), state)


@unittest.skipIf(torch is None, "torch is not installed")
class ProcessGroup(Emulated):
    def test_all_ranks_states_at_once(self):
        stops = [4, 0, 9]

        def run(rank):
            with ringest.Client(self.endpoint, self.ca) as client:
                self.client = client
                dataset = self.dataset(rank, 3, batch_size=4)
                iteration = iter(dataset)
                got = flat([next(iteration) for _ in range(stops[rank])])
                return got, saved(dataset.state_dict(all_ranks=True))

        results = ranks.run(3, run)
        states = [state for _, state in results]
        self.assertEqual(states, [states[0]] * 3)
        read, _ = self.read_ranks([None] * 2, states[0])
        self.check_all_once(flat(got for got, _ in results) + flat(read))
        self.assertEqual(self.read_ranks([None] * 2, states)[0], read)

    def test_without_a_group_the_other_ranks_are_missing(self):
        got, _ = self.read(dataset := self.dataset(), 7)
        read, _ = self.read_ranks([None] * 2, dataset.state_dict(all_ranks=True))
        self.check_all_once(got + flat(read))
        dataset = self.dataset(0, 2)
        next(iter(dataset))
        with self.assertRaisesRegex(ValueError, "for instance of rank 1") as caught:
            dataset.state_dict(all_ranks=True)
        self.assertIn("process group", caught.exception.__notes__[0])


@unittest.skipIf(StatefulDataLoader is None, "torchdata is not installed")
class StatefulLoaders(Emulated):
    def loader(self, rank, world, workers, own_batches=True, **options):
        dataset = self.dataset(rank, world, batch_size=5 if own_batches else None)
        options = {"batch_size": None if own_batches else 5, "collate_fn": list, "num_workers": workers, **options}
        return StatefulDataLoader(dataset, **options)

    def test_their_states_stand_for_ranks(self):
        for workers, own_batches in (((2, 0), True), ((0, 2), False)):
            with self.subTest(workers=workers, own_batches=own_batches):
                got, states = [], []
                for rank in range(2):
                    loader = self.loader(rank, 2, workers[rank], own_batches)
                    got += flat(itertools.islice(loader, 3 + 2 * rank))
                    states.append(saved(loader.state_dict()))
                read, _ = self.read_ranks([None] * 3, states)
                self.check_all_once(got + flat(read))
                # A rank's own, in a loader of other kind.
                dataset = self.dataset(1, 2)
                dataset.load_state_dict(states[1])
                read = self.read_ranks([None], [states[0], saved(dataset.state_dict())])[0]
                self.check_all_once(got + flat(read))

    def test_they_go_on_from_the_states_of_all_ranks(self):
        got, state = self.read_ranks([3, 8, 1])
        for workers in (2, 0):
            states = []
            for rank in range(2):
                loader = self.loader(rank, 2, workers)
                loader.dataset.load_state_dict(state)
                got.append(flat(itertools.islice(loader, 2 + rank)))
                states.append(saved(loader.state_dict()))
            state = states
        # The same loader goes on within its assignment.
        loader = self.loader(0, 2, 0)
        loader.load_state_dict(states[0])
        got.append(flat(itertools.islice(loader, 2)))
        read, _ = self.read_ranks([None] * 3, [saved(loader.state_dict()), states[1]])
        self.check_all_once(flat(got) + flat(read))

    def test_a_snapshot_that_is_older_than_what_was_given_is_refused(self):
        loader = self.loader(0, 1, 2, snapshot_every_n_steps=4)
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        with self.assertRaisesRegex(ValueError, "1 batches older.*snapshot_every_n_steps"):
            self.dataset().load_state_dict([loader.state_dict()])


if __name__ == "__main__":
    unittest.main()
