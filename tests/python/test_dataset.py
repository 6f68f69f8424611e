"""Datasets: by index and as streams, shared, resumed, and inside PyTorch's DataLoader."""

import contextlib
import gc
import io
import os
import pickle
import signal
import unittest
import warnings

import ringest
import support
from ringest.dataset import TransformError

try:
    import torch.utils.data
except ImportError:
    torch = None
try:
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError:
    StatefulDataLoader = None

INDICES = list(range(support.COUNT))


def take_tensor(item):
    return torch.from_dlpack(item.data)


def take_wrongly(item):
    raise KeyError("mine")


def names(values):
    return sorted(int(value) for value in values)


class Map(unittest.TestCase):
    def test_items_by_index(self):
        with support.client() as client:
            dataset = ringest.MapDataset("gs://data/x-", client=client)
            self.assertEqual(len(dataset), support.COUNT)
            self.assertEqual(dataset[7], dataset[7 - support.COUNT])
            self.assertEqual(dataset.objects[7].name, support.name(7))
            self.assertEqual(dataset.objects[-1].size, support.SIZE)
            self.assertEqual(len(dataset.objects[2:5]), 3)
            wanted = [bytes(client.get(support.uri(i))) for i in (5, 1, 5)]
            self.assertEqual([bytes(data) for data in dataset.__getitems__([5, 1, 5])], wanted)
            for index in (support.COUNT, -support.COUNT - 1):
                with self.assertRaises(IndexError):
                    dataset[index]

    def test_a_transform_that_raises_names_the_object(self):
        def transform(item):
            raise KeyError("mine")

        with support.client() as client:
            dataset = ringest.MapDataset("gs://data/", transform, client, [support.name(3)])
            with self.assertRaisesRegex(TransformError, support.name(3)) as caught:
                dataset[0]
            self.assertIsInstance(caught.exception.__cause__, KeyError)

    def test_what_is_not_there(self):
        with support.client() as client:
            with self.assertRaisesRegex(ValueError, "no objects below gs://data/nothing"):
                len(ringest.MapDataset("gs://data/nothing", client=client))
            with self.assertRaises(ringest.NotFoundError):
                len(ringest.MapDataset("gs://absent/", client=client))
            with self.assertRaises(ringest.NotFoundError):
                ringest.MapDataset("gs://data/", client=client, manifest=["gone"])[0]
        for wrong in ("s3://data/", "gs://", "gs:///x", ""):
            with (
                self.subTest(wrong),
                self.assertRaisesRegex(ValueError, f"'{wrong}' is not of the form gs://BUCKET/PREFIX"),
            ):
                ringest.MapDataset(wrong)
        for wrong in (None, ["gs://data/x"]):
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, "gs://BUCKET/PREFIX"):
                ringest.MapDataset(wrong)


class Iterable(unittest.TestCase):
    def dataset(self, client, **options):
        options.setdefault("manifest", support.entries())
        return ringest.IterableDataset("gs://data/x-", client=client, transform=support.take_name, **options)

    def test_an_epoch_gives_each_object_once(self):
        with support.client() as client:
            for options in ({}, {"shuffle": True}, {"ordered": False}, {"manifest": None}):
                dataset = self.dataset(client, **options)
                self.assertEqual(len(dataset), support.COUNT)
                self.assertEqual(names(dataset), INDICES)
            self.assertEqual([int(value) for value in self.dataset(client)], INDICES)
            shuffled = self.dataset(client, shuffle=True)
            first, again = list(shuffled), list(shuffled)
            self.assertEqual(first, again)
            shuffled.set_epoch(1)
            self.assertNotEqual(first, list(shuffled))

    def test_batches(self):
        with support.client() as client:
            dataset = self.dataset(client, batch_size=64, shuffle=True)
            batches = list(dataset)
            self.assertEqual([len(batch) for batch in batches], [64] * 7 + [52])
            self.assertEqual(len(dataset), 8)
            self.assertEqual(names(sum(batches, [])), INDICES)

    def test_ranks_share_an_epoch(self):
        with support.client() as client:
            for remainder, total in (("uneven", 500), ("pad", 501), ("drop", 498)):
                parts = [
                    list(self.dataset(client, shuffle=True, rank=rank, world_size=3, remainder=remainder))
                    for rank in range(3)
                ]
                lengths = [len(self.dataset(client, rank=rank, world_size=3, remainder=remainder)) for rank in range(3)]
                self.assertEqual([len(part) for part in parts], lengths)
                self.assertEqual(sum(lengths), total)
                self.assertEqual(len(set(sum(parts, []))), min(total, 500))

    def test_it_goes_on_after_any_sample(self):
        with support.client() as client:
            whole = list(self.dataset(client, shuffle=True, seed=5))
            for stop in (0, 1, 37, 499, 500):
                dataset = self.dataset(client, shuffle=True, seed=5)
                samples = iter(dataset)
                begin = [next(samples) for _ in range(stop)]
                state = pickle.loads(pickle.dumps(dataset.state_dict()))
                samples.close()
                other = self.dataset(client, shuffle=True, seed=5)
                other.load_state_dict(state)
                self.assertEqual(begin + list(other), whole)

    def test_a_state_may_be_taken_after_the_iteration(self):
        with support.client() as client:
            dataset = self.dataset(client, shuffle=True)
            begin = []
            for value in dataset:
                begin.append(value)
                if len(begin) == 33:
                    break
            other = self.dataset(client, shuffle=True)
            other.load_state_dict(dataset.state_dict())
            whole = list(dataset)
            self.assertEqual(begin + list(other), whole)
            # At the end of an epoch nothing of it is left, and the next iteration is a whole one.
            other.load_state_dict(dataset.state_dict())
            self.assertEqual([list(other), list(other)], [[], whole])
            dataset.set_epoch(1)
            self.assertEqual(dataset.state_dict(), {"epoch": 1, "state": None})

    def test_a_state_of_something_else_is_refused(self):
        with support.client() as client:
            dataset = self.dataset(client, seed=1, shuffle=True)
            next(iter(dataset))
            state = dataset.state_dict()
        with support.client() as client:
            samples = iter(self.dataset(client, seed=1, shuffle=True))
            next(samples)
            for options, text in (
                ({"seed": 2, "shuffle": True}, "seed"),
                ({"seed": 1}, "shuffled"),
                ({"seed": 1, "shuffle": True, "manifest": support.entries()[:-1]}, "objects"),
            ):
                other = self.dataset(client, **options)
                good = self.dataset(client, seed=1, shuffle=True)
                running = iter(good)
                next(running)
                other.load_state_dict(good.state_dict())
                with self.assertRaisesRegex(ValueError, text):
                    next(iter(other))
        self.assertEqual(state["epoch"], 0)

    def test_changed_objects(self):
        with support.client() as client:
            entries = [(name, size, 1 if i % 100 == 0 else 0) for i, (name, size, _) in enumerate(support.entries())]
            with self.assertRaises(ringest.NotFoundError):
                list(self.dataset(client, manifest=entries))
            self.assertEqual(len(list(self.dataset(client, manifest=entries, changed="skip"))), 495)
            self.assertEqual(len(list(self.dataset(client, manifest=entries, changed="newest"))), 500)
            with self.assertRaisesRegex(ValueError, "changed must be one of 'error', 'skip', 'newest', got 'maybe'"):
                self.dataset(client, changed="maybe")

    def test_a_rank_outside_of_the_world_is_refused(self):
        for rank in (-1, 2):
            with self.assertRaisesRegex(ValueError, f"rank is {rank}, and must be below world_size, which is 2"):
                ringest.IterableDataset("gs://data/small/", rank=rank, world_size=2)

    def test_a_state_of_another_dataset_is_refused(self):
        with support.client() as client:
            samples = iter(dataset := self.dataset(client, manifest=support.entries()[:400]))
            next(samples)
            state = dataset.state_dict()
            for entries, text in (
                (support.entries()[:399], "saved with 400 objects, and now there are 399"),
                (support.entries()[100:], "with other objects"),
                ([(name, size + 1, 0) for name, size, _ in support.entries()[:400]], "sizes or generations differ"),
            ):
                other = self.dataset(client, manifest=entries)
                other.load_state_dict(state)
                with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                    next(iter(other))
            other = self.dataset(client, manifest=support.entries()[:400])
            for wrong in ({}, {"epoch": 0}, {"epoch": 0, "state": "text"}, None):
                with self.subTest(wrong), self.assertRaisesRegex((ValueError, TypeError), "state"):
                    other.load_state_dict(wrong)
            with self.assertRaisesRegex(ValueError, "damaged"):
                other.load_state_dict({"epoch": 0, "state": state["state"][:-1]})

    def test_buckets_and_prefixes_that_are_not_there(self):
        with support.client() as client:
            for uri, error, text in (
                ("gs://absent/x", ringest.NotFoundError, "absent"),
                ("gs://data/nothing", ValueError, "no objects below gs://data/nothing"),
            ):
                with self.subTest(uri), self.assertRaisesRegex(error, text):
                    next(iter(ringest.IterableDataset(uri, client=client)))

    def test_an_object_that_is_removed_during_the_epoch(self):
        with support.client() as client:
            client.put_many((f"gs://new/{i:03d}", b"x") for i in range(100))
            for changed in ("error", "skip", "newest"):
                dataset = ringest.IterableDataset("gs://new/", client=client, requests=4, changed=changed)
                samples = iter(dataset)
                next(samples)
                client.delete("gs://new/090")
                if changed == "skip":
                    self.assertEqual(len(list(samples)), 98)
                else:
                    with self.assertRaisesRegex(ringest.NotFoundError, "gs://new/090"):
                        list(samples)
                client.put("gs://new/090", b"x")

    def test_a_transform_that_raises_names_the_object(self):
        def transform(item):
            raise KeyError("mine")

        with support.client() as client:
            for batch_size in (None, 7):
                dataset = ringest.IterableDataset(
                    "gs://data/x-", client=client, transform=transform, batch_size=batch_size
                )
                with self.assertRaisesRegex(TransformError, f"gs://data/{support.name(0)}.*mine") as caught:
                    next(iter(dataset))
                self.assertIsInstance(caught.exception.__cause__, KeyError)

    def test_a_pickled_dataset_needs_no_network_before_it_reads(self):
        with support.client("--plain", attempts=2) as client:
            datasets = [self.dataset(client, manifest=None), ringest.MapDataset("gs://data/x-", client=client)]
            pickled = [(len(dataset), pickle.dumps(dataset))[1] for dataset in datasets]
        for text in pickled:
            dataset = pickle.loads(text)
            self.assertEqual(len(dataset), support.COUNT)
            self.assertEqual(dataset.objects[3], (support.name(3), support.SIZE, dataset.objects[3].generation))
            with self.assertRaisesRegex(ringest.UnavailableError, support.name(0)):
                next(iter(dataset)) if isinstance(dataset, ringest.IterableDataset) else dataset[0]

    def test_progress_is_shown_where_tqdm_is(self):
        try:
            import tqdm  # noqa: F401
        except ImportError:
            self.skipTest("tqdm is not installed")
        with support.client() as client, contextlib.redirect_stderr(io.StringIO()) as shown:
            for batch_size in (None, 64):
                self.assertGreater(len(list(self.dataset(client, progress=True, batch_size=batch_size))), 0)
        # How often a bar is drawn depends on the time; what is left of each is its end.
        bars = [line for line in shown.getvalue().splitlines(keepends=True) if line.endswith("\n")]
        self.assertEqual(["500/500" in bar for bar in bars], [True, True], shown.getvalue())

    def test_files_and_threads_return_to_their_numbers(self):
        with support.emulator() as (endpoint, ca):
            ringest.Client(endpoint, ca).get(support.uri(0))
            gc.collect()
            files, threads = support.files_open(), support.threads_running()
            for _ in range(2):
                with ringest.Client(endpoint, ca) as client:
                    list(self.dataset(client))
                    samples = iter(self.dataset(client))
                    next(samples)
                del samples, client
                gc.collect()
            self.assertEqual((support.files_open(), support.threads_running()), (files, threads))

    def test_what_has_ended_keeps_no_client_open(self):
        def iterated(client):
            dataset = ringest.IterableDataset("gs://data/", client=client, batch_size=64)
            self.assertEqual(sum(len(batch) for batch in dataset), support.COUNT)
            return dataset  # knows how far it got

        def left(client):
            iteration = iter(dataset := ringest.IterableDataset("gs://data/", client=client))
            next(iteration)
            iteration.close()
            return dataset, iteration

        with support.emulator() as (endpoint, ca):
            with ringest.Client(endpoint, ca) as client:
                iterated(client)
            gc.collect()
            files, threads = support.files_open(), support.threads_running()
            for use in (iterated, left):
                with self.subTest(use.__name__):
                    with ringest.Client(endpoint, ca) as client:
                        kept = use(client)
                    self.assertEqual((support.files_open(), support.threads_running()), (files, threads))
                    del kept

    def test_what_is_kept_of_an_epoch_ends_in_an_error(self):
        with support.client(
            "--synthetic", "large/x-:40:1048576", memory="8MiB", threads=1, memory_timeout=0.3
        ) as client:
            with self.assertRaisesRegex(MemoryError, "still referred to"):
                list(ringest.IterableDataset("gs://large/x-", client=client))

    def test_a_batch_by_index_may_be_larger_than_the_memory_if_it_is_transformed(self):
        with support.client("--synthetic", "large/x-:40:1048576", memory="8MiB", threads=1) as client:
            found = [(support.name(i), 1 << 20, 0) for i in range(40)]
            dataset = ringest.MapDataset("gs://large/", lambda item: (item.uri, len(item.data)), client, found)
            order = list(range(39, -1, -1))
            expected = [(f"gs://large/{support.name(i)}", 1 << 20) for i in order]
            self.assertEqual(dataset.__getitems__(order), expected)

    def test_a_batch_that_memory_cannot_hold_is_refused(self):
        with support.client(memory="8MiB") as client:
            entries = [(name, 1 << 20, 0) for name, _, _ in support.entries()]
            with self.assertRaisesRegex(ValueError, "smaller batches"):
                next(iter(self.dataset(client, manifest=entries, batch_size=16)))
            next(iter(self.dataset(client, manifest=entries, batch_size=4)))

    def test_leaving_early_gives_everything_back(self):
        with support.client() as client:
            for _ in range(5):
                for _ in self.dataset(client):
                    break
            gc.collect()
            self.assertEqual(client.stats()["leased_bytes"], 0)


@unittest.skipIf(torch is None, "torch is not installed")
class Loader(unittest.TestCase):
    def load(self, dataset, **options):
        options.setdefault("batch_size", 16)
        options.setdefault("collate_fn", list)
        return torch.utils.data.DataLoader(dataset, **options)

    def test_map_datasets_in_every_kind_of_worker(self):
        with support.client() as client:
            for workers, context in ((0, None), (1, "fork"), (3, "fork"), (1, "spawn"), (2, "forkserver")):
                dataset = ringest.MapDataset("gs://data/x-", support.take_name, client)
                client.get(support.uri(0))  # the parent has connections and threads when it forks
                loader = self.load(dataset, shuffle=True, num_workers=workers, multiprocessing_context=context)
                with self.subTest(workers=workers, context=context):
                    self.assertEqual(names(sum(loader, [])), INDICES)

    def test_streams_in_every_kind_of_worker(self):
        with support.client() as client:
            for workers, context in ((0, None), (1, "fork"), (3, "fork"), (1, "spawn")):
                dataset = ringest.IterableDataset(
                    "gs://data/x-", shuffle=True, transform=support.take_name, batch_size=16, client=client
                )
                loader = self.load(dataset, batch_size=None, num_workers=workers, multiprocessing_context=context)
                with self.subTest(workers=workers, context=context):
                    whole = sum(dataset, [])
                    self.assertEqual(sum(loader, []), whole)

    def test_workers_give_what_no_transform_has_made_anything_of(self):
        with support.client() as client:
            for kind in (ringest.MapDataset, ringest.IterableDataset):
                dataset = kind("gs://data/x-", client=client)
                whole = [bytes(data) for data in self.load(dataset, batch_size=None, collate_fn=None)]
                loader = self.load(dataset, num_workers=1, timeout=60)
                with self.subTest(kind):
                    batches = list(loader)
                    self.assertIsInstance(batches[0][0], ringest.Buffer)
                    self.assertEqual(sum(batches, []), whole)

    def test_persistent_workers_and_early_exit(self):
        with support.client() as client:
            dataset = ringest.IterableDataset(
                "gs://data/x-", transform=support.take_name, batch_size=16, client=client, manifest=support.entries()
            )
            loader = self.load(dataset, batch_size=None, num_workers=2, persistent_workers=True)
            next(iter(loader))
            for _ in range(2):
                self.assertEqual(names(sum(loader, [])), INDICES)

    def test_pinning_of_memory_may_be_asked_for(self):
        with support.client() as client, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where there is no accelerator
            dataset = ringest.IterableDataset("gs://data/x-", transform=take_tensor, client=client)
            for workers in (0, 2):
                loader = torch.utils.data.DataLoader(dataset, batch_size=50, num_workers=workers, pin_memory=True)
                self.assertEqual(sum(len(batch) for batch in loader), support.COUNT)

    def test_a_worker_that_is_killed(self):
        with support.client() as client:
            for dataset in (
                ringest.MapDataset("gs://data/x-", support.take_name, client),
                ringest.IterableDataset("gs://data/x-", transform=support.take_name, client=client),
            ):
                batches = iter(self.load(dataset, batch_size=4, num_workers=2))
                next(batches)
                os.kill(batches._workers[0].pid, signal.SIGKILL)
                with self.assertRaisesRegex(RuntimeError, "DataLoader worker"):
                    list(batches)
                del batches
                self.assertEqual(names(sum(self.load(dataset, num_workers=2), [])), INDICES)
                self.assertEqual(len(client.get(support.uri(0))), support.SIZE)

    def test_errors_of_workers_keep_their_class_and_name_the_object(self):
        with support.client() as client:
            for kind in (ringest.MapDataset, ringest.IterableDataset):
                dataset = kind("gs://data/", client=client, manifest=["gone"])
                with self.assertRaisesRegex(ringest.NotFoundError, "gs://data/gone"):
                    list(self.load(dataset, num_workers=1))
                dataset = kind("gs://data/x-", transform=take_wrongly, client=client)
                with self.assertRaisesRegex(TransformError, "gs://data/x-00000.*mine"):
                    list(self.load(dataset, num_workers=1))

    @unittest.skipIf(StatefulDataLoader is None, "torchdata is not installed")
    def test_stateful_loaders_go_on_in_mid_epoch(self):
        with support.client() as client:
            for workers, own_batches, persistent in (
                (0, True, False),
                (0, False, False),
                (2, True, False),
                (2, False, True),
            ):

                def make():
                    dataset = ringest.IterableDataset(
                        "gs://data/x-",
                        shuffle=True,
                        seed=3,
                        transform=support.take_name,
                        client=client,
                        batch_size=16 if own_batches else None,
                        manifest=support.entries(),
                    )
                    return StatefulDataLoader(
                        dataset,
                        batch_size=None if own_batches else 16,
                        collate_fn=list,
                        num_workers=workers,
                        persistent_workers=persistent,
                    )

                with self.subTest(workers=workers, own_batches=own_batches):
                    whole = sum(make(), [])
                    self.assertEqual(names(whole), INDICES)
                    for stop in (7, 31):
                        loader = make()
                        batches = iter(loader)
                        begin = sum((next(batches) for _ in range(stop)), [])
                        state = pickle.loads(pickle.dumps(loader.state_dict()))
                        del batches
                        other = make()
                        other.load_state_dict(state)
                        self.assertEqual(begin + sum(other, []), whole)
                        # The epoch after it is a whole one.
                        self.assertEqual(names(sum(other, [])), INDICES)

    def test_tensors_without_a_copy(self):
        with support.client() as client:
            data = client.get(support.uri(0))
            tensor = torch.from_dlpack(data)
            self.assertEqual((tensor.dtype, tuple(tensor.shape)), (torch.uint8, (support.SIZE,)))
            self.assertEqual(tensor.numpy().tobytes(), bytes(data))


if __name__ == "__main__":
    unittest.main()
