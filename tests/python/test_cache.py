"""A cache of objects on disk: what is read once is not sent again, by whatever reads it; what has changed is read anew; and
nothing that happens to the folder is ever seen by a program."""

import asyncio
import os
import pathlib
import random
import resource
import shutil
import signal
import tempfile
import unittest

import torch

import ringest
import support
from ringest import checkpoint
from ringest.fs import FileSystem
from ringest.safetensors import load_file, save_file
from rules import Forked, Rule
from test_tar import shard_of, tar_of

DATA = random.Random(support.SEED).randbytes(3_000_000)


def contents(dataset):
    return sorted((item.uri, bytes(item.data)) for item in dataset)


def pair(item):
    return item.uri, bytes(item.data)


class Cached(unittest.TestCase):
    def setUp(self):
        self.place = self.enterContext(support.emulator())
        self.folder = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "kept")

    def client(self, **options):
        settings = {"hedging": False, "cache": self.folder, "cache_size": "64MiB", **options}
        return ringest.Client(*self.place, **settings)

    def bodies(self):
        """Counts requests for bodies."""
        return Rule(self.place, target="alt=media")

    def twice(self, read):
        """What `read(client)` gives is always the same, and another client soon asks for no body: when it has found
        out what the folder has."""
        with self.client() as client:
            once = read(client)

        def is_quiet():
            with self.bodies() as rule:
                self.assertEqual(read(client), once)
            return rule.end()["seen"] == 0

        with self.client() as client:
            support.until(is_quiet, "a read of the cache alone")
            self.assertGreater(client.stats()["cache_hits"], 0)
            self.assertEqual(client.stats()["cache_bad"], 0)
        return once


class EverythingThatReads(Cached):
    def test_datasets_by_index(self):
        def read(client):
            dataset = ringest.MapDataset("gs://data/x-", pair, client)
            return dataset.__getitems__(list(range(support.COUNT)))

        self.twice(read)

    def test_datasets_as_streams(self):
        def read(client):
            return sorted(ringest.IterableDataset("gs://data/", transform=pair, client=client, shuffle=True))

        self.assertEqual(len(self.twice(read)), support.COUNT)

    def test_two_epochs_of_one_client(self):
        with self.client() as client:
            dataset = ringest.IterableDataset("gs://data/", transform=pair, client=client, shuffle=True)
            once = sorted(dataset)
            support.until(lambda: client.stats()["cache_writes"] == support.COUNT, "all is handed over")
            self.assertEqual(sorted(dataset), once)

    def test_a_cache_of_half_the_size_answers_half_the_reads(self):
        with self.client(cache_size="32MiB") as client:
            for i in range(64):
                client.put(f"gs://many/{i}", DATA[:1_000_000])
            dataset = ringest.IterableDataset(
                "gs://many/", transform=lambda item: len(item.data), client=client, shuffle=True, requests=4
            )

            def hits(epoch):
                dataset.set_epoch(epoch)
                before = client.stats()["cache_hits"]
                self.assertEqual(list(dataset), [1_000_000] * 64)
                return client.stats()["cache_hits"] - before

            epochs = (hits(epoch) for epoch in range(1_000_000))
            support.until(lambda: next(epochs) >= 0.4 * 64, "it is full")
            # An open segment is not full, and these are few and large.
            self.assertGreaterEqual(max(next(epochs) for _ in range(3)), 0.4 * 64)

    def test_tar_samples(self):
        with self.client() as client:
            for number in range(3):
                client.put(f"gs://shards/{number}.tar", tar_of(shard_of(number, 100, 30_000)))

        def read(client):
            samples = ringest.TarDataset("gs://shards/", client=client, shuffle=True)
            return sorted((sample["__key__"], bytes(sample["jpg"]), bytes(sample["cls"])) for sample in samples)

        self.assertEqual(len(self.twice(read)), 300)

    def test_ranges(self):
        with self.client() as client:
            generation = client.put("gs://bucket/large", DATA)
        places = [(10, 100), (1_000_000, 200_000), (2_999_999, 1), (1_300_000, 900_000)]

        def read(client):
            parts = client.get_ranges("gs://bucket/large", places, generation=generation)
            return [bytes(part) for part in parts]

        self.assertEqual(self.twice(read), [DATA[at : at + size] for at, size in places])

    def test_ranges_like_those_of_tables(self):
        """Many small ones, overlapping and coalesced, never the same twice."""
        source = random.Random(support.SEED)
        with self.client() as client:
            generation = client.put("gs://bucket/table", DATA)

            def read_some():
                begins = sorted(source.randrange(len(DATA)) for _ in range(30))
                places = [(at, min(source.choice((1, 500, 60_000)), len(DATA) - at)) for at in begins]
                for _ in range(2):
                    parts = client.get_ranges("gs://bucket/table", places, generation=generation)
                    self.assertEqual([bytes(part) for part in parts], [DATA[at : at + size] for at, size in places])
                return client.stats()["cache_hits"]

            for _ in range(30):
                read_some()
            self.assertEqual(bytes(client.get("gs://bucket/table", generation=generation)), DATA)
            before = client.stats()["cache_hits"]
            support.until(lambda: read_some() > before, "whole blocks that answer any range")
            for _ in range(30):
                read_some()
            self.assertEqual(client.stats()["cache_bad"], 0)

    def test_files(self):
        with self.client() as client:
            client.put("gs://bucket/large", DATA)

        def read(client):
            with checkpoint.open("gs://bucket/large", client=client) as file:
                whole = file.read()
            fs = FileSystem(client=client, skip_instance_cache=True)
            with fs.open("gs://bucket/large", "rb") as file:
                file.seek(2_000_000)
                return whole, file.read(500_000)

        self.assertEqual(self.twice(read), (DATA, DATA[2_000_000:2_500_000]))

    def test_checkpoints(self):
        state = {"weights": torch.arange(500_000), "step": 7}
        with self.client() as client:
            checkpoint.save(state, "gs://bucket/model.pt", client=client)
            save_file({"weights": state["weights"]}, "gs://bucket/model.safetensors", client=client)

        def read(client):
            loaded = checkpoint.load("gs://bucket/model.pt", client=client)
            tensors = load_file("gs://bucket/model.safetensors", client=client)
            return loaded["step"], loaded["weights"].tolist(), tensors["weights"].tolist()

        self.assertEqual(self.twice(read)[0], 7)


class TheNextEpoch(Cached):
    """Rank 0 of 2 reads in an epoch objects that it has not read in the one before."""

    settings = {"shuffle": True, "seed": 3, "batch_size": 50, "rank": 0, "world_size": 2, "requests": 200}

    def setUp(self):
        super().setUp()
        with ringest.Client(*self.place) as client:
            self.manifest = client.list("gs://data/")

    def dataset(self, client, **options):
        return ringest.IterableDataset(
            "gs://data/", transform=pair, client=client, manifest=self.manifest, **{**self.settings, **options}
        )

    def shares(self):
        """Of epoch 0 and 1, the names in their order."""
        with ringest.Client(*self.place) as client:
            dataset = self.dataset(client)
            first = [uri for batch in dataset for uri, _ in batch]
            dataset.set_epoch(1)
            return first, [uri for batch in dataset for uri, _ in batch]

    def test_its_beginning_is_read_while_this_one_ends(self):
        first, second = self.shares()
        fresh = len(set(second[:100]) - set(first))
        self.assertGreater(fresh, 0)
        with self.client() as client:
            dataset = self.dataset(client, epochs=2)
            batches = iter(dataset)
            seen = [uri for _ in range(3) for uri, _ in next(batches)]
            support.until(lambda: client.stats()["cache_writes"] >= len(first), "all of this epoch")
            state = dataset.state_dict()
            seen += [uri for uri, _ in next(batches)]
            support.until(lambda: client.stats()["cache_writes"] >= len(first) + fresh, "the next one's beginning")
            seen += [uri for batch in batches for uri, _ in batch]
            self.assertEqual(seen, first)
            dataset.load_state_dict(state)
            self.assertEqual([uri for batch in dataset for uri, _ in batch], first[150:])
            dataset.set_epoch(1)
            self.assertEqual([uri for batch in dataset for uri, _ in batch], second)

    def requests_of_an_epoch(self, client, **options):
        with self.bodies() as rule:
            self.assertEqual(sum(len(batch) for batch in self.dataset(client, **options)), 250)
        return rule.end()["seen"]

    def test_nothing_is_read_that_will_not_be_of_use(self):
        with self.client() as client:
            self.assertEqual(self.requests_of_an_epoch(client, epochs=1), 250)
        with self.client(cache=None, cache_size=None) as client:
            self.assertEqual(self.requests_of_an_epoch(client, epochs=2), 250)
        for epochs in (0, -1, 1.5, "2"):
            with self.assertRaisesRegex((ValueError, TypeError), "epochs"):
                ringest.IterableDataset("gs://data/", epochs=epochs)

    def test_an_iteration_that_is_left_leaves_nothing_behind(self):
        with self.client() as client:
            for left in (5, 4, 3):
                batches = iter(self.dataset(client))
                for _ in range(left):
                    next(batches)
                del batches
            support.until(lambda: client.stats()["leased_bytes"] == 0, "all memory is given back")

    def test_event_loops_too(self):
        first, second = self.shares()
        fresh = len(set(second[:100]) - set(first))

        async def run(client):
            batches = aiter(self.dataset(client))
            seen = [uri for _ in range(4) for uri, _ in await anext(batches)]
            support.until(lambda: client.stats()["cache_writes"] >= len(first) + fresh, "the next one's beginning")
            return seen + [uri async for batch in batches for uri, _ in batch]

        with self.client() as client:
            self.assertEqual(asyncio.run(run(client)), first)


class Memory(Cached):
    """Beside the folder, or alone: bytes that all processes of the host read, and none of them can change."""

    URI = support.uri(0)

    def setUp(self):
        super().setUp()
        self.share = self.enterContext(tempfile.TemporaryDirectory(dir="/dev/shm"))

    def client(self, **options):
        settings = {"cache": None, "cache_size": None, "cache_memory": "64MiB", "sharing": self.share, **options}
        return super().client(**settings)

    def kept(self, client):
        """An object that comes from memory, and its generation."""
        generation = client.put("gs://bucket/kept", DATA[:100_000])
        client.get("gs://bucket/kept", generation=generation)
        data = client.get("gs://bucket/kept", generation=generation)
        self.assertGreater(client.stats()["cache_memory_hits"], 0)
        return data, generation

    def test_epochs_of_several_processes(self):
        def read():
            with self.client() as client:
                dataset = ringest.IterableDataset("gs://data/", transform=pair, client=client, shuffle=True)
                support.until(
                    lambda: sorted(dataset) == once and client.stats()["cache_memory_hits"] > 0, "what another has read"
                )

        with self.client() as client:
            dataset = ringest.IterableDataset("gs://data/", transform=pair, client=client, shuffle=True)
            once = sorted(dataset)
            self.assertEqual(sorted(dataset), once)
            self.assertEqual(client.stats()["cache_memory_hits"], support.COUNT)
            self.assertEqual(Forked(read).wait(), 0)

    def test_beside_a_folder(self):
        with ringest.Client(*self.place) as client:
            once = bytes(client.get(self.URI))
        for options in ({}, {"cache_memory": None}, {}):
            with self.client(cache=self.folder, cache_size="64MiB", **options) as client:
                for _ in range(3):
                    self.assertEqual(bytes(client.get(self.URI)), once)

    def test_readers_share_the_bytes_and_writers_have_their_own(self):
        with self.client() as client:
            data, generation = self.kept(client)
            view = memoryview(data)
            self.assertTrue(view.readonly and view == DATA[:100_000])
            with self.assertRaises(TypeError):
                view[0] = 1
            array = torch.frombuffer(data, dtype=torch.uint8)
            array += 1
            self.assertEqual(view, DATA[:100_000])
            self.assertFalse(memoryview(data).readonly)
            self.assertEqual(memoryview(data)[0], (DATA[0] + 1) % 256)
            again = client.get("gs://bucket/kept", generation=generation)
            self.assertEqual(bytes(again), DATA[:100_000])
            tensor = torch.from_dlpack(again)
            tensor.zero_()
            self.assertEqual(bytes(again), bytes(100_000))
            self.assertEqual(bytes(client.get("gs://bucket/kept", generation=generation)), DATA[:100_000])
            self.assertFalse(again.is_pinned())

    def test_a_buffer_outlives_its_client(self):
        with self.client() as client:
            data, _ = self.kept(client)
        del client
        self.assertEqual(bytes(data), DATA[:100_000])
        self.assertEqual(data[5:9].tobytes(), DATA[5:9])

    def test_sizes(self):
        for size in ("much", -1, 1.5, "1MiB"):
            with self.assertRaises((ValueError, TypeError, ringest.Error)):
                with self.client(cache_memory=size) as client:
                    client.get(self.URI)


class WhatHasChanged(Cached):
    URI = "gs://bucket/object"

    def test_an_object_that_is_replaced_is_read_anew_at_once(self):
        with self.client() as client:
            old = client.put(self.URI, b"old" * 1000)
            for data in (b"old" * 1000, b"new", b"", b"newer" * 300_000):
                new = client.put(self.URI, data)
                for _ in range(3):
                    self.assertEqual(bytes(client.get(self.URI)), data)
                    if data:
                        self.assertEqual(bytes(client.get_ranges(self.URI, [(0, 2)])[0]), data[:2])
            self.assertNotEqual(old, new)

    def test_the_newest_is_asked_for_and_not_sent(self):
        with self.client() as client:
            client.put(self.URI, DATA)
            self.assertEqual(bytes(client.get(self.URI)), DATA)
            support.until(lambda: client.stats()["cache_writes"] == 3, "all is handed over")
            before = client.stats()["recv_bytes"]
            support.until(lambda: bytes(client.get(self.URI)) == DATA and client.stats()["cache_hits"] > 0, "a hit")
            received = client.stats()["recv_bytes"]
            self.assertEqual(bytes(client.get(self.URI)), DATA)
            self.assertLess(client.stats()["recv_bytes"] - received, 10_000)
            self.assertGreater(received, before)

    def test_what_is_deleted_is_not_there(self):
        with self.client() as client:
            client.put(self.URI, b"data")
            for _ in range(2):
                self.assertEqual(bytes(client.get(self.URI)), b"data")
            client.delete(self.URI)
            for _ in range(2):
                with self.assertRaises(ringest.NotFoundError):
                    client.get(self.URI)
            client.put(self.URI, b"again")
            self.assertEqual(bytes(client.get(self.URI)), b"again")


class TheFolder(Cached):
    def test_one_that_cannot_be_used_is_an_error(self):
        with tempfile.NamedTemporaryFile() as file:
            for folder in (file.name, file.name + "/below", os.path.join(self.folder, "a", "b")):
                with self.assertRaisesRegex((ValueError, OSError, ringest.Error), "below|a/b|" + file.name):
                    with self.client(cache=folder) as client:
                        client.get(support.uri(0))

    def test_sizes_are_read_as_elsewhere(self):
        for size in ("much", -1, 1.5):
            with self.assertRaises((ValueError, TypeError)):
                self.client(cache_size=size)

    def test_it_may_be_removed_while_it_is_used(self):
        with self.client() as client:
            dataset = ringest.IterableDataset("gs://data/", transform=pair, client=client)
            once = sorted(dataset)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.assertEqual(sorted(dataset), once)
            self.assertEqual(sorted(dataset), once)

    def test_a_disk_that_takes_nothing(self):
        def run():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))
            with self.client() as client:
                dataset = ringest.IterableDataset("gs://data/", transform=pair, client=client)
                assert len(sorted(dataset)) == support.COUNT
                assert sorted(dataset) == sorted(dataset)

        self.assertEqual(Forked(run).wait(), 0)

    def test_damaged_files_are_read_from_the_bucket(self):
        def read(client):
            return sorted(ringest.IterableDataset("gs://data/", transform=pair, client=client))

        with self.client() as client:
            once = read(client)
        source = random.Random(support.SEED)
        for path in pathlib.Path(self.folder).iterdir():
            if path.is_file() and path.stat().st_size > 100_000:
                with path.open("r+b") as file:
                    for _ in range(200):
                        file.seek(source.randrange(path.stat().st_size))
                        file.write(source.randbytes(8))
        with self.client() as client:
            self.assertEqual(read(client), once)
            self.assertGreater(client.stats()["cache_bad"] + client.stats()["cache_misses"], 0)

    def test_two_processes_share_one(self):
        def run():
            with self.client() as client:
                for _ in range(3):
                    found = list(ringest.IterableDataset("gs://data/", transform=pair, client=client, shuffle=True))
                    assert len({uri for uri, _ in found}) == support.COUNT
                    assert all(len(data) == support.SIZE for _, data in found)

        processes = [Forked(run) for _ in range(2)]
        self.assertEqual([process.wait() for process in processes], [0, 0])
        self.twice(lambda client: sorted(ringest.IterableDataset("gs://data/", transform=pair, client=client)))

    def test_a_killed_training_goes_on_with_what_it_left(self):
        """Exactly the samples that nobody had consumed, whatever was being written when it died."""
        dataset = {"shuffle": True, "seed": 5}
        with ringest.Client(*self.place) as client:
            order = [uri for uri, _ in ringest.IterableDataset("gs://data/", transform=pair, client=client, **dataset)]
            data = dict(ringest.IterableDataset("gs://data/", transform=pair, client=client))
        for at in (1, 50, 333):
            heard, say = os.pipe()

            def run():
                with self.client() as client:
                    for i, _ in enumerate(
                        ringest.IterableDataset("gs://data/", transform=pair, client=client, **dataset)
                    ):
                        if i == at:
                            os.write(say, b"x")
                            signal.pause()

            process = Forked(run)
            os.close(say)
            self.assertEqual(os.read(heard, 1), b"x")
            os.close(heard)
            process.kill()
            self.assertEqual(process.wait(), -signal.SIGKILL)
            with self.client() as client:
                found = list(ringest.IterableDataset("gs://data/", transform=pair, client=client, **dataset))
                self.assertEqual([uri for uri, _ in found], order)
                self.assertEqual(dict(found), data)

    def test_a_child_of_fork_has_a_cache_of_its_own(self):
        with self.client() as client:
            self.assertEqual(len(bytes(client.get(support.uri(0)))), support.SIZE)

            def run():
                assert len(bytes(client.get(support.uri(1)))) == support.SIZE

            self.assertEqual(Forked(run).wait(), 0)
            self.assertEqual(len(bytes(client.get(support.uri(2)))), support.SIZE)


if __name__ == "__main__":
    unittest.main()
