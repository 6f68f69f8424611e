"""ringest.torchdata with torchdata's nodes: epochs, states in the middle of them, behind other nodes and threads."""

import contextlib
import importlib.metadata
import itertools
import pickle
import unittest
import unittest.mock

import torchdata.nodes

import ringest
import support
from ringest._needs import needs
from ringest.torchdata import DatasetNode

COUNT = 60
BATCH = 7
BATCHES = -(-COUNT // BATCH)


def number(item):
    return int(item.uri.rsplit("-", 1)[1])


def plain(node):
    return node


def prefetched(node):
    return torchdata.nodes.Prefetcher(node, prefetch_factor=3)


def mapped(node):
    return torchdata.nodes.ParallelMapper(node, sorted, num_workers=2, method="thread", in_order=True)


def regrouped(node):
    if not hasattr(torchdata.nodes, "Unbatcher"):  # of 0.11
        return node
    return torchdata.nodes.Batcher(torchdata.nodes.Unbatcher(node), batch_size=5, drop_last=False)


class Nodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        endpoint, ca = cls.stack.enter_context(support.emulator())
        cls.client = cls.stack.enter_context(ringest.Client(endpoint, ca))

    def dataset(self, **options):
        options = {"shuffle": True, "seed": 5, "batch_size": BATCH, "transform": number, **options}
        entries = support.entries()[:COUNT]
        return ringest.IterableDataset("gs://data/x-", client=self.client, manifest=entries, **options)

    def loader(self, behind=plain, **options):
        return torchdata.nodes.Loader(behind(DatasetNode(self.dataset(**options))))

    def epochs(self, behind, count):
        """What each epoch has to be."""
        found = []
        for epoch in range(count):
            dataset = self.dataset()
            dataset.set_epoch(epoch)
            found.append(list(behind(torchdata.nodes.IterableWrapper(list(dataset)))))
        return found

    def test_each_pass_is_the_next_epoch(self):
        loader = self.loader()
        self.assertEqual([list(loader) for _ in range(3)], self.epochs(plain, 3))

    def test_an_epoch_that_was_chosen_is_the_one(self):
        dataset = self.dataset()
        loader = torchdata.nodes.Loader(DatasetNode(dataset))
        wanted = self.epochs(plain, 4)
        dataset.set_epoch(3)
        self.assertEqual(list(loader), wanted[3])
        for epoch in (0, 2):
            dataset.set_epoch(epoch)
            self.assertEqual(list(loader), wanted[epoch])

    def test_a_state_of_any_place_resumes_with_the_next_batch(self):
        for behind in (plain, prefetched, mapped, regrouped):
            wanted = self.epochs(behind, 2)
            loader = self.loader(behind)
            list(loader)  # epoch 0, so that the state is of another
            for taken in (1, 4, len(wanted[1])):
                with self.subTest(behind=behind.__name__, taken=taken):
                    first = self.loader(behind)
                    list(first)
                    got = list(itertools.islice(first, taken))
                    state = pickle.loads(pickle.dumps(first.state_dict()))
                    again = self.loader(behind)
                    again.load_state_dict(state)
                    rest = list(again)
                    if taken < len(wanted[1]):
                        self.assertEqual(got + rest, wanted[1])
                    else:  # an epoch that is over: its successor follows
                        self.assertEqual(sorted(itertools.chain(*rest)), list(range(COUNT)))
                        self.assertNotIn(rest, wanted)

    def test_a_state_from_before_the_first_batch(self):
        state = self.loader().state_dict()
        again = self.loader()
        again.load_state_dict(state)
        self.assertEqual([list(again), list(again)], self.epochs(plain, 2))

    def test_batches_of_objects_by_index(self):
        dataset = ringest.MapDataset("gs://data/x-", number, self.client, support.entries()[:COUNT])
        indices = torchdata.nodes.Batcher(torchdata.nodes.SamplerWrapper(range(COUNT)), BATCH, drop_last=False)
        node = torchdata.nodes.ParallelMapper(indices, dataset.__getitems__, num_workers=2, method="thread")
        self.assertEqual(list(itertools.chain(*torchdata.nodes.Loader(node))), list(range(COUNT)))
        with self.assertRaisesRegex(TypeError, "got MapDataset; for datasets by index torchdata has MapStyleWrapper"):
            DatasetNode(dataset)


class Versions(unittest.TestCase):
    """What is said of packages that are not those that were tried."""

    def test_a_version_that_is_too_old_is_refused(self):
        text = r"^a part does not work with torchdata 0\.9\.1; known to work: 0\.10 to 0\.11: pip install 'ringest\[tor"
        with unittest.mock.patch.object(importlib.metadata, "version", return_value="0.9.1+cpu"):
            with self.assertRaisesRegex(ImportError, text.replace("0\\.9\\.1", r"0\.9\.1\+cpu")):
                with needs("a part", "torchdata"):
                    pass
        for version in ("0.10.0", "0.12.0", "1.0"):
            with unittest.mock.patch.object(importlib.metadata, "version", return_value=version):
                with needs("a part", "torchdata"):
                    pass

    def test_what_a_version_lacks_is_told_by_versions_that_have_it(self):
        for statement in ("from torchdata.nodes import Nothing", "import torchdata.nothing"):
            with self.assertRaisesRegex(ImportError, r"a part does not work with torchdata 0.*known to work: 0\.10 to"):
                with needs("a part"):
                    exec(statement)

    def test_other_mistakes_are_left_as_they_are(self):
        for statement in ("from ringest import nothing", "from json import nothing", "import ringest.nothing"):
            with self.assertRaisesRegex(ImportError, "nothing") as raised:
                with needs("a part"):
                    exec(statement)
            self.assertNotIn("a part", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
