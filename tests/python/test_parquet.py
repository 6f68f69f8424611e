"""Parquet files: every row once, over ranks, workers and resumes at every batch; columns, files that differ, are empty,
damaged or replaced."""

import asyncio
import io
import itertools
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import numpy
import pyarrow
import pyarrow.parquet as parquet
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import ringest
import ringest.dataset
import support
from ringest import _parquet_index, _parquet_rows

BUCKET = "gs://tar"


def table_of(first, rows):
    numbers = range(first, first + rows)
    return pyarrow.table(
        {
            "id": pyarrow.array(numbers, pyarrow.int64()),
            "text": [f"text of {i}" if i % 7 else None for i in numbers],
            "nested": [{"a": i, "b": {"c": [i] * (i % 3)}} for i in numbers],
            "kind": pyarrow.array([f"kind {i % (3 + first % 5)}" for i in numbers]).dictionary_encode(),
            "nothing": pyarrow.nulls(rows),
            "vector": pyarrow.array([[i, i + 1] for i in numbers], pyarrow.list_(pyarrow.float32(), 2)),
        }
    )


def file_of(table, row_group_size=7, **options):
    out = io.BytesIO()
    parquet.write_table(table, out, row_group_size=row_group_size, **options)
    return out.getvalue()


def ids_of(batches):
    return [i for batch in batches for i in batch["id"].to_pylist()]


class Parquet(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.context = support.client(hedging=False)
        cls.client = cls.context.__enter__()
        cls.tables = [table_of(100 * i, 20 + i) for i in range(4)]
        for i, table in enumerate(cls.tables):
            cls.put(f"four/{i}.parquet", file_of(table))
        cls.put("four/0.txt", b"no Parquet")
        cls.uri = f"{BUCKET}/four/"
        cls.ids = [i for table in cls.tables for i in table["id"].to_pylist()]

    @classmethod
    def tearDownClass(cls):
        cls.context.__exit__(None, None, None)

    @classmethod
    def put(cls, name, data):
        cls.client.put(f"{BUCKET}/{name}", data)
        return f"{BUCKET}/{name}"

    def dataset(self, uri=None, **options):
        return ringest.ParquetDataset(self.uri if uri is None else uri, client=self.client, **options)


class Batches(Parquet):
    def test_rows_are_those_of_the_files(self):
        whole = pyarrow.concat_tables(self.tables)
        for batch_size in (None, 1, 5, 7, 40, 1000):
            with self.subTest(batch_size=batch_size):
                dataset = self.dataset(batch_size=batch_size)
                batches = list(dataset)
                self.assertTrue(all(isinstance(batch, pyarrow.RecordBatch) for batch in batches))
                self.assertEqual(pyarrow.Table.from_batches(batches).to_pylist(), whole.to_pylist())
                self.assertEqual(len(dataset), len(batches))
                if batch_size is not None:
                    self.assertEqual({batch.num_rows for batch in batches[:-1]} - {batch_size}, set())
        self.assertEqual(dataset.rows, whole.num_rows)
        self.assertEqual([(file.first, file.count) for file in dataset.files], [(0, 3), (3, 3), (6, 4), (10, 4)])

    def test_columns_are_chosen_and_others_are_not_read(self):
        rows = 20_000
        table = pyarrow.table({name: numpy.random.default_rng(i).random(rows) for i, name in enumerate("abcd")})
        uri = self.put("wide.parquet", file_of(table, rows, compression="none"))
        before = self.client.stats()["recv_bytes"]
        (batch,) = self.dataset(uri, columns=["d", "b"])
        self.assertEqual(batch.schema.names, ["d", "b"])
        self.assertEqual(batch.to_pydict(), table.select(["d", "b"]).to_pydict())
        chunk = 8 * rows
        self.assertLess(self.client.stats()["recv_bytes"] - before, 2.5 * chunk + _parquet_index.TAIL_BYTES)
        (batch,) = self.dataset(columns=["nested.b", "id"], batch_size=1000)
        self.assertEqual(batch["nested"][5].as_py(), {"b": {"c": [5, 5]}})

    def test_a_file_takes_one_request_and_its_row_groups_one_each(self):
        before = self.client.stats()["requests"]
        dataset = self.dataset(columns=["id", "text"])
        self.assertEqual(len(dataset), 14)
        self.assertEqual(self.client.stats()["requests"] - before, 1 + 4)
        list(dataset)
        self.assertEqual(self.client.stats()["requests"] - before, 1 + 4 + 14)

    def test_a_long_footer_takes_another_request(self):
        names = [f"a column whose name is long {i}" for i in range(700)]
        uri = self.put("long.parquet", file_of(pyarrow.table({name: [1, 2] for name in names}), 1))
        before = self.client.stats()["requests"]
        (one, two) = self.dataset(uri, columns=names[::9])
        self.assertEqual(self.client.stats()["requests"] - before, 1 + 2 + 2)
        self.assertEqual(two.to_pydict(), {name: [2] for name in names[::9]})
        # More pieces than a row group may have.
        with mock.patch.object(_parquet_index, "GAP_BYTES", _parquet_index._BLOCK):
            (one, two) = self.dataset(uri, columns=names[::9])
        self.assertEqual(one.to_pydict(), {name: [1] for name in names[::9]})

    def test_formats(self):
        arrays, *_ = self.dataset(columns=["id", "text", "vector"], batch_size=5, format="numpy")
        self.assertEqual(arrays["vector"].tolist(), [[i, i + 1] for i in range(5)])
        self.assertEqual(list(arrays["text"]), [None, *(f"text of {i}" for i in range(1, 5))])
        tensors, *_ = self.dataset(columns=["id", "text", "vector"], batch_size=5, format="torch")
        self.assertTrue(torch.equal(tensors["id"], torch.arange(5)))
        self.assertEqual(tensors["vector"].dtype, torch.float32)
        self.assertEqual(tensors["text"][1], "text of 1")
        tensors["id"] += 1

    def test_a_transform_gets_batches(self):
        self.assertEqual(list(self.dataset(batch_size=80, transform=lambda batch: batch.num_rows)), [80, 6])

        def transform(batch):
            if batch["id"][0].as_py() == 10:
                raise KeyError("mine")
            return batch

        with self.assertRaisesRegex(ringest.TransformError, r"a batch of gs://tar/four/ raised KeyError\('mine'\)"):
            list(self.dataset(batch_size=5, transform=transform))
        dataset = self.dataset(batch_size=5, transform=transform, on_error="skip")
        with self.assertLogs("ringest", "WARNING"):
            self.assertEqual(ids_of(dataset), [i for i in self.ids if i not in range(10, 15)])
        self.assertEqual(dataset.skipped, 1)

    def test_nothing_stays_leased(self):
        batch = next(iter(self.dataset(batch_size=3)))
        self.assertEqual(batch["id"].to_pylist(), [0, 1, 2])
        list(self.dataset(shuffle=True, batch_size=9))
        self.assertEqual(self.client.stats()["leased_bytes"], 0)

    def test_asyncio_gives_the_same(self):
        async def take(dataset):
            return [batch async for batch in dataset]

        for options in ({}, {"shuffle": True, "shuffle_buffer": 30}):
            dataset = self.dataset(batch_size=9, **options)
            self.assertEqual(ids_of(asyncio.run(take(dataset))), ids_of(dataset))

    def test_a_row_group_larger_than_the_window_and_than_memory(self):
        data = numpy.random.default_rng(1).integers(0, 1 << 62, 1 << 21)
        uri = self.put("huge.parquet", file_of(pyarrow.table({"x": data}), len(data), compression="none"))
        count = sum(batch.num_rows for batch in self.dataset(uri, batch_size=1 << 16, prefetch="1MiB"))
        self.assertEqual(count, len(data))
        settings = {name: value for name, value in self.client._settings.items() if value is not None}
        with ringest.Client(**{**settings, "memory": "8MiB"}) as small:
            with self.assertRaisesRegex(ringest.Error, r"huge\.parquet.* does not fit") as raised:
                list(ringest.ParquetDataset(uri, client=small))
            self.assertRegex(raised.exception.__notes__[0], "write smaller row groups, choose fewer columns, or give")


class Order(Parquet):
    def test_a_shuffle_is_over_row_groups_and_rows(self):
        options = {"shuffle": True, "batch_size": 10, "shuffle_buffer": 40, "seed": support.SEED}
        dataset = self.dataset(**options)
        first = ids_of(dataset)
        self.assertEqual(sorted(first), self.ids)
        self.assertGreater(len({i // 7 for i in first[:10]}), 2)
        self.assertEqual(ids_of(dataset), first)
        dataset.set_epoch(1)
        second = ids_of(dataset)
        self.assertEqual(sorted(second), self.ids)
        self.assertNotEqual(second, first)
        self.assertEqual(sorted(ids_of(self.dataset(shuffle=True))), self.ids)

    def test_an_order_never_changes_between_versions(self):
        rows = _parquet_rows.Rows({3: 4, 1: 5}.get, (), shuffle=True, seed=7, epoch=2)
        self.assertEqual(rows.order([3, 1]).tolist(), ORDER)

    def test_layers_leave_what_was_not_given(self):
        source = random.Random(support.SEED)
        counts = {i: source.randrange(1, 9) for i in range(12)}
        layers, given = (), []
        for _ in range(4):
            rows = _parquet_rows.Rows(counts.get, layers, shuffle=True, seed=1, epoch=0)
            ids = source.sample(sorted(counts), 9)
            records = []
            for pool in (ids[:4], ids[4:]):
                places = [(i, row) for i in pool for row in range(counts[i])]
                order = [places[place] for place in rows.order(pool)]
                done = source.randrange(len(order) + 1)
                given += order[:done]
                records.append((tuple(pool), done))
            layers = (*layers, tuple(records))
        rows = _parquet_rows.Rows(counts.get, layers, shuffle=True, seed=1, epoch=0)
        left = [(i, int(row)) for i in counts for row in rows.left(i)]
        self.assertEqual(sorted(given + left), [(i, row) for i in counts for row in range(counts[i])])


class Resume(Parquet):
    cases: tuple[dict, ...] = (
        {},
        {"shuffle": True, "shuffle_buffer": 20},
        {"shuffle": True, "shuffle_buffer": 20, "ordered": False},
    )

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.index = os.path.join(cls.folder.name, "index")
        ringest.ParquetDataset(cls.uri, client=cls.client, index=cls.index).digest

    def dataset(self, uri=None, **options):
        # Ranks without a process group have the list in common by it.
        if not options.keys() & {"columns", "uri"} and uri is None:
            options["index"] = self.index
        return super().dataset(uri, **options)

    def begun(self, dataset, count, worker=None):
        """The rows of so many batches, and the state behind them."""
        info = types.SimpleNamespace(id=worker[0], num_workers=worker[1]) if worker is not None else None
        with mock.patch.object(ringest.dataset, "worker_info", lambda: info):
            batches = iter(dataset)
            taken = ids_of(itertools.islice(batches, count))
            state = dataset.state_dict()
            batches.close()
        return taken, pickle.loads(pickle.dumps(state))

    def rest(self, dataset, state, worker=None):
        dataset.load_state_dict(state)
        return self.begun(dataset, 1000, worker)[0]

    def test_the_same_follows_at_every_batch(self):
        for options in self.cases:
            whole = ids_of(self.dataset(batch_size=9, **options))
            for count in range(11):
                with self.subTest(count=count, **options):
                    taken, state = self.begun(self.dataset(batch_size=9, **options), count)
                    taken += self.rest(self.dataset(batch_size=9, **options), json_like(state))
                    self.assertEqual(sorted(taken), self.ids)
                    if options.get("ordered", True):
                        self.assertEqual(taken, whole)

    def test_again_and_again_with_other_batches_and_buffers(self):
        source = random.Random(support.SEED)
        for options in self.cases:
            taken, state = [], None
            while True:
                given = {**options, "shuffle_buffer": source.randrange(1, 60), "batch_size": source.randrange(1, 9)}
                dataset = self.dataset(**given)
                if state is not None:
                    dataset.load_state_dict(state)
                more, state = self.begun(dataset, source.randrange(1, 3))
                taken += more
                if not more:
                    break
            self.assertEqual(sorted(taken), self.ids)

    def test_every_row_once_over_ranks_and_workers_and_resumes(self):
        source = random.Random(support.SEED)
        worlds = [(1, 1), (2, 1), (1, 3), (3, 2), (2, 2)]
        for options in self.cases:
            for count in range(5):
                taken, states = [], None
                for step in range(4):
                    world, workers = worlds[(count + step) % len(worlds)]
                    saved = []
                    for rank, worker in itertools.product(range(world), range(workers)):
                        dataset = self.dataset(batch_size=3, rank=rank, world_size=world, **options)
                        if states is not None:
                            dataset.load_state_dict(states)
                        most = 1000 if step == 3 else count + source.randrange(2)
                        more, state = self.begun(dataset, most, (worker, workers))
                        taken += more
                        saved.append(state)
                    states = saved
                with self.subTest(count=count, **options):
                    self.assertEqual(sorted(taken), self.ids)

    def test_a_rank_goes_on_with_other_workers(self):
        for options in self.cases:
            for count in range(6):
                taken, states = [], []
                for rank in range(2):
                    dataset = self.dataset(batch_size=4, rank=rank, world_size=2, **options)
                    more, state = self.begun(dataset, count)
                    taken += more
                    for worker in range(2):
                        again = self.dataset(batch_size=4, rank=rank, world_size=2, **options)
                        again.load_state_dict(state)
                        more, saved = self.begun(again, count % 3, (worker, 2))
                        taken += more
                        states.append(saved)
                taken += self.rest(self.dataset(batch_size=4, **options), states)
                with self.subTest(count=count, **options):
                    self.assertEqual(sorted(taken), self.ids)

    def test_workers_of_a_loader(self):
        dataset = self.dataset(batch_size=4, shuffle=True, shuffle_buffer=20)
        dataset.digest
        for count in (0, 1, 5):
            loader = StatefulDataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="fork")
            batches = iter(loader)
            taken = ids_of(itertools.islice(batches, count))
            state = loader.state_dict()
            del batches
            again = StatefulDataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="fork")
            again.load_state_dict(state)
            self.assertEqual(sorted(taken + ids_of(again)), self.ids, count)
            # The rank goes on without workers.
            alone = self.dataset(batch_size=4, shuffle=True)
            self.assertEqual(sorted(taken + self.rest(alone, state)), self.ids, count)

    def test_a_fork_while_another_thread_keeps_a_footer(self):
        dataset = self.dataset(batch_size=4)
        dataset.digest
        with dataset._source.footers._lock:
            loader = StatefulDataLoader(
                dataset, batch_size=None, num_workers=1, multiprocessing_context="fork", timeout=60
            )
            self.assertEqual(ids_of(loader), self.ids)

    def test_what_raises_takes_nothing(self):
        dataset = self.dataset(batch_size=4, transform=lambda batch: batch if fails.pop() == 0 else 1 / 0)
        fails = [0, 1, 0, 0]
        batches = iter(dataset)
        taken = ids_of([next(batches), next(batches)])
        with self.assertRaises(ringest.TransformError):
            next(batches)
        fails += [0] * 100
        self.assertEqual(taken + self.rest(dataset, dataset.state_dict()), self.ids)

    def test_other_states_are_refused(self):
        _, state = self.begun(self.dataset(batch_size=4), 1)
        for options in ({"columns": ["id"]}, {"shuffle": True}, {"uri": f"{self.uri}{{0..2}}.parquet"}):
            with self.subTest(**options), self.assertRaises(ValueError):
                self.rest(self.dataset(batch_size=4, **options), state)
        for parts in ({}, {"layers": [], "pool": [[], 0]}, {"layers": [[["a", 0]]], "pool": None}, 5):
            with self.subTest(parts=parts), self.assertRaisesRegex(ValueError, "parts of a state are damaged"):
                self.dataset(batch_size=4).load_state_dict({**state, "parts": parts})
        dataset = self.dataset(batch_size=4)
        dataset.load_state_dict({**state, "parts": {"layers": [], "pool": [[0], 100]}})
        with self.assertRaisesRegex(ValueError, "parts of a state are damaged: 100 rows were given of 7"):
            next(iter(dataset))


class Files(Parquet):
    def refused(self, uri, pattern, error=ValueError, **options):
        with self.assertRaisesRegex(error, pattern):
            list(self.dataset(uri, **options))

    def test_files_without_rows_are_passed_over(self):
        empty = table_of(0, 5).slice(0, 0)
        none = self.put("some/a.parquet", file_of(empty))
        self.put("some/b.parquet", file_of(self.tables[0]))
        with parquet.ParquetWriter(out := io.BytesIO(), empty.schema) as writer:
            for table in (empty, self.tables[1], empty):
                writer.write_table(table)
        self.put("some/c.parquet", out.getvalue())
        found = ids_of(self.dataset(f"{BUCKET}/some/", batch_size=8))
        self.assertEqual(found, ids_of(self.tables[:2]))
        self.refused(none, "there are no row groups in the files of gs://tar/some/a.parquet")

    def test_what_is_no_parquet_file(self):
        whole = file_of(self.tables[0])
        damaged = bytearray(whole)
        begin = len(whole) - 8 - parquet.read_metadata(io.BytesIO(whole)).serialized_size
        damaged[begin : begin + 30] = bytes(30)
        for name, data, pattern in (
            ("empty", b"", "it has 0 bytes"),
            ("short", b"PAR1", "it has 4 bytes"),
            ("text", b"hello, world\n" * 9, "not a Parquet file, or cut off: it ends in b'rld.n'"),
            ("cut", whole[:-100], "not a Parquet file, or cut off"),
            ("length", whole[:-8] + b"\xff\xff\xff\x7fPAR1", "a footer of 2147483647 bytes does not fit"),
            ("footer", bytes(damaged), "its footer is damaged"),
            ("head-lost", whole[400:], "damaged or cut off: row group"),
            ("secret", whole[:-4] + b"PARE", "its footer is encrypted"),
        ):
            with self.subTest(name):
                uri = self.put(f"bad-{name}.parquet", data)
                self.refused([uri, f"{self.uri}0.parquet"], f"gs://tar/bad-{name}.parquet: .*({pattern})")

    def test_a_damaged_row_group(self):
        whole = bytearray(file_of(self.tables[0], compression="zstd", use_dictionary=False))
        first = parquet.read_metadata(io.BytesIO(whole)).row_group(1).column(0)
        begin = first.data_page_offset
        whole[begin : begin + 12] = bytes(12)
        uri = self.put("group.parquet", bytes(whole))
        self.refused(uri, "row group 1 of gs://tar/group.parquet cannot be decoded", ringest.TransformError)
        with self.assertLogs("ringest", "WARNING"):
            dataset = self.dataset(uri, on_error="skip", batch_size=5)
            self.assertEqual(ids_of(dataset), [*range(7), *range(14, 20)])

    def test_files_that_differ(self):
        one = self.put("differ/1.parquet", file_of(pyarrow.table({"a": [1], "b": ["x"]})))
        self.put("differ/2.parquet", file_of(pyarrow.table({"a": [1.5], "b": ["x"]})))
        self.put("differ/3.parquet", file_of(pyarrow.table({"a": [1]})))
        both = r"'a': int64 in gs://tar/differ/1.parquet, and double in gs://tar/differ/2.parquet"
        self.refused(f"{BUCKET}/differ/{{1,2}}.parquet", both)
        missing = r"gs://tar/differ/1.parquet has 'b', and gs://tar/differ/3.parquet has not"
        self.refused(f"{BUCKET}/differ/{{1,3}}.parquet", missing)
        same = self.dataset(f"{BUCKET}/differ/{{1,3}}.parquet", columns=["a"], batch_size=2)
        self.assertEqual([batch.to_pydict() for batch in same], [{"a": [1, 1]}])
        self.refused(one, r"differ/1.parquet: it has no column 'A'; did you mean 'a'", columns=["A"])

    def test_columns_in_another_order(self):
        self.put("order/1.parquet", file_of(pyarrow.table({"a": [1], "b": ["x"]})))
        self.put("order/2.parquet", file_of(pyarrow.table({"b": ["y"], "a": [2]})))
        self.refused(f"{BUCKET}/order/", "a, b in gs://tar/order/1.parquet, and b, a in gs://tar/order/2.parquet")
        (batch,) = self.dataset(f"{BUCKET}/order/", columns=["b", "a"], batch_size=2)
        self.assertEqual(batch.to_pydict(), {"b": ["x", "y"], "a": [1, 2]})
        table = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
        self.refused(self.put("twice.parquet", file_of(table)), "twice.parquet: it has several columns 'a'")

    def test_columns_that_are_not_there(self):
        self.refused(None, r"no column 'txt'; did you mean 'text'", columns=["id", "txt"])
        self.refused(None, r"no column 'nested.d'; did you mean 'nested.a' or 'nested'", columns=["nested.d"])
        self.refused(None, r"no column 'qqq'; it has id, text, nested", columns=["qqq"])
        for columns, error in (
            ([], ValueError),
            ("id", TypeError),
            ([1], TypeError),
            ({"id"}, TypeError),
            (5, TypeError),
        ):
            with self.assertRaisesRegex(error, "columns"):
                self.dataset(columns=columns)

    def test_a_file_that_was_replaced_is_an_error_or_left_out(self):
        for i in range(3):
            self.put(f"new/{i}.parquet", file_of(table_of(100 * i, 7)))
        dataset = self.dataset(f"{BUCKET}/new/", batch_size=4)
        dataset.digest
        self.put("new/1.parquet", file_of(table_of(500, 7)))
        with self.assertRaisesRegex(ringest.NotFoundError, "gs://tar/new/1.parquet"):
            list(dataset)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "index")
            options = {"batch_size": 4, "index": path, "changed": "skip"}
            self.dataset(f"{BUCKET}/new/", **options).digest
            self.put("new/1.parquet", file_of(table_of(600, 7)))
            before = self.client.stats()["requests"]
            dataset = self.dataset(f"{BUCKET}/new/", **options)
            self.assertEqual(len(dataset), 6)
            self.assertEqual(self.client.stats()["requests"], before)
            self.assertEqual(ids_of(dataset), [*range(7), *range(200, 207)])
            self.assertEqual(dataset.skipped, 1)
            with self.assertRaisesRegex(ValueError, "made for other columns"):
                len(self.dataset(f"{BUCKET}/new/", index=path, columns=["id"]))

    def test_a_file_that_is_replaced_before_its_footer_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            options = {"index": os.path.join(folder, "index"), "batch_size": 2}
            for i in range(3):
                self.put(f"race/{i}.parquet", file_of(table_of(100 * i, 7)))
            self.dataset(f"{BUCKET}/race/", **options).digest
            for changed in ("error", "skip"):
                dataset = self.dataset(f"{BUCKET}/race/", changed=changed, **options)
                get = dataset._source.footers.get

                def replaced(client, uri, generation, row_group, get=get):
                    # The row group has come, and then the file goes.
                    if uri.endswith("/1.parquet"):
                        client.put(uri, file_of(table_of(500, 7)))
                    return get(client, uri, generation, row_group)

                with mock.patch.object(dataset._source.footers, "get", replaced):
                    if changed == "error":
                        with self.assertRaisesRegex(ringest.NotFoundError, "gs://tar/race/1.parquet"):
                            list(dataset)
                        os.unlink(options["index"])
                        self.dataset(f"{BUCKET}/race/", **options).digest
                    else:
                        self.assertEqual(ids_of(dataset), [*range(7), *range(200, 207)])
                        self.assertEqual(dataset.skipped, 1)

    def test_an_index_of_other_files_is_refused(self):
        for name in ("ours/0", "ours/1", "theirs/0"):
            self.put(f"{name}.parquet", file_of(self.tables[0]))
        self.put("ours/2.parquet", file_of(self.tables[0].slice(0, 0)))
        self.client.put("gs://mine/ours/0.parquet", file_of(self.tables[0]))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "index")
            dataset = self.dataset(f"{BUCKET}/ours/", index=path)
            self.assertEqual([file.name for file in dataset.files], ["ours/0.parquet", "ours/1.parquet"])
            for uri in ([f"{BUCKET}/ours/", f"{BUCKET}/ours/0.parquet"], f"{BUCKET}/ours/{{0..2}}.parquet"):
                self.assertEqual(self.dataset(uri, index=path).digest, dataset.digest)
            for uri, text in (
                (f"{BUCKET}/theirs/", "such as gs://tar/ours/0.parquet"),
                (f"{BUCKET}/ours/0.parquet", "such as gs://tar/ours/1.parquet"),
                (f"{BUCKET}/ours/{{0..3}}.parquet", "without gs://tar/ours/3.parquet"),
                ([f"{BUCKET}/ours/", f"{BUCKET}/theirs/"], "without gs://tar/theirs/"),
                ("gs://mine/ours/0.parquet", "of gs://tar, such as"),
            ):
                with self.subTest(uri=uri):
                    self.refused(uri, f"{path} was made for other files.*{text}.*: remove it", index=path)
            with open(path, "w") as file:
                file.write("no index")
            self.refused(f"{BUCKET}/ours/", f"index='{path}' keeps no row groups: .*not a tar index", index=path)

    def test_names_that_cannot_be(self):
        for uri in (None, 5, [5]):
            with self.subTest(uri=uri), self.assertRaisesRegex(TypeError, "not a str of the form gs://BUCKET/NAME"):
                ringest.ParquetDataset(uri, client=self.client)
        self.refused([], "the list of files is empty")
        with self.assertRaises(ringest.NotFoundError) as raised:
            len(self.dataset(f"{BUCKET}/four/*.parquet"))
        self.assertIn("patterns are not expanded here: give a prefix", raised.exception.__notes__[0])
        self.refused(f"{BUCKET}/nothing-", r"no objects below gs://tar/nothing- whose names end in \.parquet")
        self.refused(f"{BUCKET}/nothing.parquet", "gs://tar/nothing.parquet", ringest.NotFoundError)
        self.refused(["gs://tar/a.parquet", "gs://mine/a.parquet"], "one bucket")
        self.refused("file.parquet", "not of the form gs://")
        for options in ({"changed": "newest"}, {"remainder": "pad"}, {"on_error": len}, {"format": "pandas"}):
            with self.subTest(**options), self.assertRaises(ValueError):
                self.dataset(**options)
        with self.assertRaises(TypeError):
            self.dataset(manifest=["a"])
        with self.assertRaises(TypeError):
            len(self.dataset(batch_size=3, world_size=2, rank=0))

    def test_without_pyarrow_the_extra_is_named(self):
        code = "import sys; sys.modules['pyarrow'] = None; import ringest; ringest.ParquetDataset"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertIn("ringest.ParquetDataset needs the package pyarrow, which is not installed", found.stderr)
        self.assertIn("pip install 'ringest[parquet]'", found.stderr)


def json_like(state):
    """The parts of a state are as JSON has them."""
    return {**state, "parts": json.loads(json.dumps(state["parts"]))} if "parts" in state else state


ORDER = [7, 1, 6, 0, 2, 3, 8, 4, 5]


if __name__ == "__main__":
    unittest.main()
