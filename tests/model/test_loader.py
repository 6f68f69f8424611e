"""The life of a dataset in DataLoaders: epochs, states that are loaded and saved, iterations that are left, with PyTorch's
loader and torchdata's, in workers of every kind, against lists."""

import contextlib
import os
import pickle
import unittest

from hypothesis import given, note
from hypothesis import strategies as st

import model

import ringest
import support

try:
    import torch.utils.data
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError:
    torch = None

COUNT = 41
BATCH = 4
EPOCHS = 3
# Each takes some processes, and seconds where these are spawned.
EXAMPLES = min(max(model.EXAMPLES // 10, 1), 2000)
METHODS = ["fork", "forkserver"] + (["spawn"] if os.environ.get("RINGEST_EXAMPLES") else [])

steps = st.one_of(
    st.tuples(st.just("epoch"), st.integers(0, EPOCHS - 1)),
    st.tuples(st.just("load"), st.integers(0, EPOCHS - 1), st.integers(0, COUNT // BATCH)),
    st.tuples(st.just("iterate"), st.integers(1, 2 * COUNT)),
    st.tuples(st.just("save"), st.integers(0, COUNT // BATCH)),
    st.tuples(st.just("renew")),
    st.tuples(st.just("ask")),
)
lives = st.fixed_dictionaries(
    {
        "is_stateful": st.booleans(),
        "workers": st.integers(0, 3),
        "method": st.sampled_from(METHODS),
        "is_persistent": st.booleans(),
        "has_own_batches": st.booleans(),
        "every": st.integers(1, 3),
        "steps": st.lists(steps, min_size=1, max_size=8),
    }
)


def assigned(samples, workers, has_own_batches):
    """The batches of a loader: workers take batches of the dataset in turn, or samples, of which the loader makes
    batches for each worker."""
    size = BATCH if has_own_batches else 1
    blocks = [samples[i : i + size] for i in range(0, len(samples), size)]
    streams = []
    for worker in range(max(workers, 1)):
        own = blocks[worker :: max(workers, 1)]
        flat = [sample for block in own for sample in block]
        streams.append(own if has_own_batches else [flat[i : i + BATCH] for i in range(0, len(flat), BATCH)])
    batches = []
    while any(streams):
        batches += [stream.pop(0) for stream in streams if stream]
    return batches


class Life:
    """A dataset in a loader, and what has to come of it."""

    def __init__(self, case, life):
        self.case, self.life = case, life
        self.epoch, self.left = 0, None  # `left`: of a state that was loaded, and not gone on with yet
        self.is_begun = self.is_changed = False  # since something was changed, by workers; since the last iteration
        self.batches = None  # of a loader's state
        self.rest = None  # of the last iteration of this loader, if nothing was changed since, and its epoch
        self.dataset = case.dataset(life)
        self.renew()

    def renew(self):
        self.rest = None
        life = self.life
        workers = {}
        if life["workers"] > 0:
            workers = {"multiprocessing_context": life["method"], "persistent_workers": life["is_persistent"]}
        kind = StatefulDataLoader if life["is_stateful"] else torch.utils.data.DataLoader
        if life["is_stateful"]:
            workers["snapshot_every_n_steps"] = life["every"]
        size = None if life["has_own_batches"] else BATCH
        self.loader = kind(
            self.dataset, batch_size=size, collate_fn=list, num_workers=life["workers"], timeout=120 if life["workers"] else 0, **workers
        )  # fmt: skip

    def forget(self):
        """Another loader, to which no state is given."""
        self.batches = None
        self.renew()

    def expected(self):
        """Batches of the iteration that begins now."""
        if self.batches is not None:
            batches, self.batches = self.batches, None
            self.epoch, self.left = self.saved_epoch, None
            return batches
        left, self.left = self.left, None
        return self.whole() if left is None else assigned(left, self.life["workers"], self.life["has_own_batches"])

    def whole(self):
        return assigned(self.case.orders[self.epoch], self.life["workers"], self.life["has_own_batches"])

    def iterate(self, count):
        expected = self.expected()
        seen, iteration = [], iter(self.loader)
        for batch in iteration:
            seen.append([int(sample) for sample in batch])
            if len(seen) == count:
                self.rest = expected[count:], self.epoch
                break
        else:  # what is gone on with at the end of an epoch is a whole one
            self.rest = self.whole(), self.epoch
        self.case.assertEqual(seen, expected[:count])
        self.is_begun, self.is_changed = self.life["workers"] > 0, False
        return iteration

    def set_epoch(self, epoch):
        self.dataset.set_epoch(epoch)
        if epoch != self.epoch:
            self.left, self.is_begun, self.is_changed = None, False, True
        self.epoch = epoch

    def load(self, epoch, batches):
        self.dataset.load_state_dict(self.case.state(self.life, epoch, batches))
        self.epoch, self.left, self.is_begun = epoch, self.case.orders[epoch][batches * BATCH :], False
        self.is_changed = True

    def save(self, count):
        """Saved by a loader after some batches, or where it has come to, and loaded by another process."""
        if not self.life["is_stateful"] or self.batches is not None:
            return
        if count > 0 or self.rest is None:
            left, expected = self.left, self.expected()
            count = min(count, len(expected))
            self.left = left
            if count > 0:
                kept = self.iterate(count)  # noqa: F841 (what ends it would be another state)
            rest = expected[count:], self.epoch
        elif self.is_changed:
            return  # which of the two is meant, the loader's state or the dataset's?
        else:
            rest = self.rest
        state = pickle.loads(pickle.dumps(self.loader.state_dict()))
        del self.loader
        self.dataset = self.case.dataset(self.life)
        self.renew()
        self.loader.load_state_dict(state)
        self.batches, self.saved_epoch = rest
        self.epoch, self.left, self.is_begun = 0, None, False

    def ask(self):
        if self.is_begun:
            with self.case.assertRaisesRegex(RuntimeError, "StatefulDataLoader"):
                self.dataset.state_dict()
        else:
            self.case.assertEqual(self.dataset.state_dict()["epoch"], self.epoch)

    def run(self):
        calls = {"epoch": self.set_epoch, "load": self.load, "iterate": self.iterate, "save": self.save,
                 "renew": self.forget, "ask": self.ask}  # fmt: skip
        for name, *arguments in self.life["steps"]:
            calls[name](*arguments)
        self.iterate(2 * COUNT)
        self.iterate(2 * COUNT)


@unittest.skipIf(torch is None, "torch or torchdata is not installed")
class Loader(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import multiprocessing

        # Imported once, by the server that workers are forked from.
        multiprocessing.set_forkserver_preload(["torch.utils.data", "ringest.dataset", "support"])
        stack = contextlib.ExitStack()
        endpoint, ca = stack.enter_context(support.emulator())
        cls.client = stack.enter_context(ringest.Client(endpoint, ca))
        cls.addClassCleanup(stack.close)
        cls.orders, cls.states = [], {}
        for epoch in range(EPOCHS):
            dataset = cls.dataset({"has_own_batches": True})
            dataset.set_epoch(epoch)
            cls.orders.append([int(sample) for batch in dataset for sample in batch])
            assert sorted(cls.orders[-1]) == list(range(COUNT))

    @classmethod
    def dataset(cls, life):
        return ringest.IterableDataset(
            "gs://data/x-", batch_size=BATCH if life["has_own_batches"] else None, shuffle=True, seed=5, client=cls.client,
            manifest=support.entries()[:COUNT], transform=support.take_name,
        )  # fmt: skip

    def state(self, life, epoch, batches):
        """Of a dataset without workers, after so many batches."""
        key = life["has_own_batches"], epoch, batches
        if key not in self.states:
            dataset = self.dataset(life)
            dataset.set_epoch(epoch)
            iteration = iter(dataset)
            for _ in range(batches if life["has_own_batches"] else batches * BATCH):
                next(iteration)
            self.states[key] = pickle.dumps(dataset.state_dict())
        return pickle.loads(self.states[key])

    def test_every_sample_comes_once_and_in_order(self):
        @model.checked(EXAMPLES)
        @given(lives)
        def check(life):
            note(life)
            Life(self, life).run()

        check()


if __name__ == "__main__":
    unittest.main()
