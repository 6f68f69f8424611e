"""`ringest bench run` and `presets`: every preset against the emulator over TLS, what it counts, and what it leaves."""

import dataclasses
import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unicodedata
import unittest

import ringest
import support
from ringest.bench import adapter, figures, folder, leftovers, measure, objects, presets, result, run
from ringest.bench import task as tasks
from ringest.bench.workloads import checkpoints, formats, reading, training
from support import PATIENCE_S, bench_in_child, emulator, until

TINY = {
    "list": ("objects = 300\nsize = 0\nfolders = 7\ndepth = 3", "passes = 2"),
    "read": ("objects = 101\nsize = 3000\nsize_deviation = 900", "epochs = 2\nbatch_size = 10"),
    "train": ("objects = 64\nsize = 5000", "epochs = 2\nbatch_size = 8\ncompute_seconds = 0.002"),
    "parquet": ("objects = 3\nrows = 200\nrow_group_rows = 60\ncolumns = {a = 10, b = 200}", 'columns = ["a"]\nbatch_size = 64'),
    "checkpoint": (
        "layers = 2\nhidden = 64\nfeed_forward = 128\nheads = 4\nkey_value_heads = 2\nvocabulary = 500",
        "saves = 2\nloads = 2",
    ),
    "mixed": ("objects = 20\nsize = 2000", "writes_percent = 25\nbatch_size = 8\nbatches = 5\nwrite_size = 500"),
}  # fmt: skip


def preset(kind, data=None, work=None):
    default = TINY[kind]
    return f'title = "tiny"\nkind = "{kind}"\n[data]\n{data or default[0]}\n[work]\n{work or default[1]}\n'


def command(*arguments):
    return [sys.executable, "-m", "ringest.bench", *map(str, arguments)]


def bench(*arguments, env=None):
    done = subprocess.run(
        command(*arguments), env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=4 * PATIENCE_S
    )
    return done.returncode, done.stdout, done.stderr


class Files(unittest.TestCase):
    def wrong(self, text, *words):
        with self.assertRaises(presets.PresetError) as caught:
            presets.parse(text, "mine", "./mine.toml")
        for word in ("./mine.toml", *words):
            self.assertIn(word, str(caught.exception))

    def test_all_of_the_package_are_read(self):
        found = presets.names()
        self.assertGreaterEqual(len(found), 20)
        kinds = {presets.load(name).kind for name in found}
        self.assertEqual(kinds, set(TINY))
        for name in found:
            self.assertTrue(presets.load(name).source, name)

    def test_wrong_files_say_what_is_allowed(self):
        self.wrong("title = 1\nkind =", "not TOML")
        self.wrong("kind = 'read'\ntitle = 'x'", "data.objects: is missing", "a whole number from 1")
        self.wrong("kind = 'reed'\ntitle = 'x'", "kind", '"reed"', "list, read, train")
        self.wrong(preset("read") + "epoch = 3", "work.epoch", 'did you mean "epochs"?', "batch_size")
        self.wrong("sise = 3\n" + preset("read"), "sise: is not a key", "title, kind, source, data, work")
        self.wrong(preset("read", "objects = 3\nsize = '4 parsecs'"), "data.size", "4096 or", '"4 parsecs"')
        self.wrong(preset("read", "objects = 0\nsize = 1"), "data.objects", "from 1 to", "is 0")
        self.wrong(preset("read", "objects = true\nsize = 1"), "data.objects", "is true")
        self.wrong(preset("read", work="shuffle = 1"), "work.shuffle", "true or false", "is 1")
        self.wrong(preset("train", work="batch_size = 1\ncompute_seconds = nan"), "work.compute_seconds", "NaN")
        self.wrong(preset("checkpoint", work='format = "pickle"'), "work.format", "one of bytes, torch, dcp", "pickle")
        self.wrong(preset("parquet", work='columns = ["c"]'), "work.columns", "c is no column", "a, b")
        self.wrong(preset("parquet", work="columns = []"), "work.columns", "a list of names")
        self.wrong("kind = 'read'\ntitle = 'x'\ndata = 3", "data: must be a table, is 3")

    def test_wrong_names(self):
        for name, words in (("unet", ("unet3d", "./unet.toml")), ("./none.toml", ("./none.toml", "No such file"))):
            status, said, errors = bench("run", name, "--emulate")
            self.assertEqual((status, said), (2, ""))
            for word in words:
                self.assertIn(word, errors)

    def test_a_file_is_shown_and_is_what_it_was(self):
        status, said, _ = bench("presets", "unet3d")
        self.assertEqual(status, 0)
        self.assertEqual(presets.parse(said, "unet3d", "-"), presets.load("unet3d"))
        status, said, _ = bench("presets")
        self.assertEqual([line.split()[0] for line in said.splitlines()], presets.names())


class Shapes(unittest.TestCase):
    """What a preset becomes, without a server."""

    def test_names_are_as_many_as_the_objects(self):
        for number, folders, depth in ((1, 0, 1), (1000, 0, 1), (100, 7, 3), (5, 5, 16), (4096, 4096, 4)):
            data = objects.Objects(objects=number, size=100, size_deviation=30, folders=folders, depth=depth)
            names = [name for name, _ in data.entries("gs://b/")]
            self.assertEqual(len(set(names)), number)
            self.assertEqual(data.total_bytes, sum(size for _, size in data.entries("")))
            if folders:
                self.assertEqual({name.count("/") for name in names}, {3 + depth})

    def test_sizes_have_the_mean_and_the_deviation(self):
        data = presets.load("unet3d").data
        sizes = [size for _, size in data.entries("")]
        mean = sum(sizes) / len(sizes)
        deviation = (sum((size - mean) ** 2 for size in sizes) / len(sizes)) ** 0.5
        self.assertAlmostEqual(mean / data.size, 1, delta=0.02)
        self.assertAlmostEqual(deviation / data.size_deviation, 1, delta=0.1)

    def test_scaling_keeps_the_share_of_the_bytes(self):
        for name in ("unet3d", "cosmoflow", "small-objects", "download-150m"):
            whole = presets.load(name)
            for scale in (1, 0.5, 0.001):
                part = whole.scaled(scale, 1)
                self.assertAlmostEqual(part.data.total_bytes / whole.data.total_bytes / scale, 1, delta=0.05, msg=name)
                self.assertGreaterEqual(part.data.objects, 32)
                self.assertEqual(part.parameters()["scale"], scale)

    def test_checkpoints_have_the_sizes_of_the_models(self):
        billions = {"checkpoint-7b": 6.74, "checkpoint-70b": 70.55, "checkpoint-405b": 405.8}
        for name, wanted in billions.items():
            data = presets.load(name).data
            self.assertAlmostEqual(sum(data.parameters()) / 1e9, wanted, delta=0.05 * wanted)
            total = sum(data.parts(1.0)) * data.ranks
            self.assertAlmostEqual(total / sum(data.parameters()), 14 if data.optimizer else 2, delta=0.01)
        small = checkpoints.Work().scaled(0.25)
        self.assertAlmostEqual(sum(data.parts(small.scale)) / sum(data.parts(1.0)), 0.25, delta=0.001)

    def test_shares_of_ranks_are_all_objects_once(self):
        made = [(str(i), 1) for i in range(103)]
        for ranks in (1, 2, 7):
            for even in (False, True):
                shares = [
                    tasks.Task(None, None, made, "", "", None, rank=rank, ranks=ranks).share(3, shuffle=True, even=even)
                    for rank in range(ranks)
                ]
                taken = [each for share in shares for each in share]
                self.assertEqual(len(taken), 103 // ranks * ranks if even else 103)
                self.assertEqual(len(set(taken)), len(taken))

    def test_ranks_have_the_same_epochs(self):
        """Though their times end in different ones, and one is far ahead of another that still looks."""
        shared = multiprocessing.Array("q", [tasks.EPOCHS_MAX] * 2)
        barrier, over = threading.Barrier(3), {0: 4, 1: 3, 2: 9}
        seen = {rank: [] for rank in over}

        def rank(number):
            task = tasks.Task(None, None, [], "", "", None, seconds=1.0, meet=barrier.wait, last=tasks.Last(shared, 1))
            task.is_over = lambda: len(seen[number]) >= over[number]
            for epoch in task.epochs(1):
                seen[number].append(epoch)

        threads = [threading.Thread(target=rank, args=(number,), daemon=True) for number in over]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        self.assertEqual(list(seen.values()), [[1, 2, 3]] * 3)
        self.assertEqual(list(shared), [tasks.EPOCHS_MAX, 3])

    def training_task(self, client, work, objects, operations):
        """Of so many objects, which is over after so many operations."""
        task = tasks.Task(
            work,
            None,
            [(f"gs://b/{i}", 8) for i in range(objects)],
            "gs://b/",
            "",
            measure.Meter(client.counters, lambda phase, done: None),
            seconds=1.0,
        )
        task.is_over = lambda: task.meter.operations >= operations
        return task

    def test_utilisation_is_that_of_dlio(self):
        # Three steps of 2 s, the first of which waited 5 s, and the others 1 s: 4 s of 6 without the first.
        self.assertAlmostEqual(training.utilisation([2, 2, 2], [7, 3, 3], 13), 100 * 4 / 6)
        self.assertEqual(training.utilisation([2], [7], 7), 0)

    def test_an_epoch_that_was_cut_before_a_step_counts_has_no_utilisation(self):
        client = Pretended(lambda got: got)
        work = training.Work(batch_size=2, compute_seconds=0.001)
        task = self.training_task(client, work, 8, 10)  # it is over in the first step of the second epoch
        found = training.run(task, client)
        self.assertEqual(found.operations, 10)
        self.assertGreater(found.metrics["au_percent"], 0)
        self.assertEqual(found.metrics["au_percent"], found.metrics["au_percent_epoch_1"])
        self.assertNotIn("au_percent_epoch_2", found.metrics)

    def test_what_was_read_ahead_when_the_time_is_over_counts_as_asked_for(self):
        received = []

        def counted(got):
            received.extend(len(body) for _, body in got)
            return got

        client = Pretended(counted)
        client.counters = lambda: {"wire_received_bytes": 3 * sum(received), "wire_sent_bytes": 0}
        task = self.training_task(client, training.Work(batch_size=2, compute_seconds=0.05, prefetch=4), 20, 4)
        found = training.run(task, client)
        self.assertEqual(found.bytes, 32)
        self.assertGreater(sum(received), 32)
        self.assertEqual(figures.WIRE.of(found), 3)

    def test_what_comes_twice_or_not_is_an_error(self):
        for change in (lambda got: [*got, got[0]], lambda got: got[1:], lambda got: [*got[1:], (got[0][0], b"cut")]):
            client = Pretended(change)
            task = tasks.Task(
                reading.Work(epochs=1, batch_size=3, shuffle=False),
                None,
                [(f"gs://b/{i}", 8) for i in range(10)],
                "gs://b/",
                "",
                measure.Meter(client.counters, lambda phase, done: None),
            )
            with self.assertRaises(tasks.WorkloadError):
                reading.run(task, client)

    def test_a_warm_up_does_not_outlast_its_time_by_what_a_client_reads_ahead(self):
        taken = []

        class Ahead(Pretended):
            def read(self, names):
                taken.append(len(list(itertools.islice(names, 2000))))
                return iter([])

        for size, most in ((150 << 20, 7), (1, 1024)):
            taken.clear()
            objects = [(f"gs://b/{i}", size) for i in range(5)]
            reading.warm_up(tasks.Task(None, None, objects, "gs://b/", "", None, warm_up=0.05), Ahead(None))
            self.assertEqual(set(taken), {most})

    def test_a_meter_of_several_ranks(self):
        rounds = []
        for rank in (1, 2):
            meter = measure.Meter(lambda: {"requests": 5, "hedges": 2}, lambda phase, done: None)
            meter.begin()
            with meter.phase("epoch 1"):
                for _ in range(3):
                    meter.waited(rank * 0.001)
                    meter.done(10 * rank, 100)
            meter.metrics["au_percent"] = 40.0 * rank
            rounds.append(meter.end())
        both = measure.merged(rounds)
        self.assertEqual((both.operations, both.bytes, both.requests), (90, 600, 0))
        self.assertEqual(both.metrics, {"hedges": 0, "au_percent": 60})
        self.assertEqual(both.latency.total, 6)
        self.assertEqual(both.latency.max, 2_000_000)
        self.assertEqual([bound // 1000 for bound, _ in both.latency.counts], [1000, 2000])
        self.assertEqual([(each.name, each.operations) for each in both.phases], [("epoch 1", 90)])
        self.assertEqual(sum(point.operations for point in both.series), 90)

    def test_a_table_does_not_drive_a_terminal(self):
        error = "the server says \x1b]0;title\x07 \x9b2J and\r no more\nTraceback"
        shown = run.table([result.Row("read", "ringest", {"scale": 1}, error)])
        self.assertIn("the server says", shown)
        self.assertIn("no more\nTraceback", shown)
        self.assertEqual([each for each in shown if unicodedata.category(each) == "Cc" and each != "\n"], [])

    def test_percentiles_of_the_table_are_those_of_reports(self):
        """Of so few samples that none lies beyond the 99th there is none."""
        latency = result.Latency([(1_000_000, 5), (2_000_000, 5)], max=1_500_000)
        row = result.Row("read", "ringest", {"scale": 1}, None, [result.Round(1.0, 10, latency=latency)])
        head, figures = (line.split("  ") for line in run.table([row]).splitlines())
        shown = dict(zip([each.strip() for each in head if each], [each.strip() for each in figures if each]))
        self.assertEqual((shown["p50 ms"], shown["p99 ms"]), ("1.00", "-"))

    def test_memory_is_that_of_the_largest_objects(self):
        work = training.Work(batch_size=4, compute_seconds=0, prefetch=1)
        sizes = [1000, *[10] * 20]
        self.assertEqual(training.memory(work, sizes), 1000 + 9 * 10)
        self.assertEqual(training.memory(work, sizes, ranks=2), 1000 + 19 * 10)
        self.assertEqual(training.memory(dataclasses.replace(work, sample_size=5), sizes), 2 * 4 * 5)

    def test_a_checkpoint_that_is_another_is_an_error(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")

        def changed(state):
            return {"state": {name: torch.zeros_like(each) for name, each in state["state"].items()}}

        for name in formats.NAMES:
            client = Keeping(changed)
            work = checkpoints.Work(format=name)
            data = checkpoints.Data(
                layers=1, hidden=8, feed_forward=8, heads=1, key_value_heads=1, vocabulary=10, optimizer=False
            )
            meter = measure.Meter(client.counters, lambda phase, done: None)
            task = tasks.Task(work, data, [], "", "gs://b/", meter)
            self.assertEqual(checkpoints.run(task, client).operations, 2)
            client.is_right = False
            task.meter = measure.Meter(client.counters, lambda phase, done: None)
            with self.assertRaisesRegex(tasks.WorkloadError, "is not what was saved"):
                checkpoints.run(task, client)

    def test_buckets_are_within_a_thousandth(self):
        for value in (0, 1, 999, 1023, 1024, 123_456_789, 10**12 + 1):
            bound = measure._bound(value)
            self.assertLessEqual(value, bound)
            self.assertLessEqual(bound - value, value / 500)
            self.assertEqual(measure._bound(bound), bound)


class Pretended(adapter.Client):
    """Gives what it was asked for, changed."""

    def __init__(self, change):
        self._change = change

    def list(self, prefix):
        return []

    def read(self, names):
        return iter(self._change([(name, b"12345678") for name in names]))

    def write(self, name, data):
        raise AssertionError("nothing is written")


class Keeping(Pretended):
    """Keeps checkpoints in memory, and gives them back, changed unless it is right."""

    is_right = True

    def save(self, name, parts):
        self.kept = [bytes(part) for part in parts]

    def load(self, name, parts):
        for part, kept in zip(parts, self.kept):
            part[:] = kept if self.is_right else bytes(len(kept))

    def save_torch(self, name, state):
        self.kept = state

    def load_torch(self, name):
        return self.kept if self.is_right else self._change(self.kept)

    def save_dcp(self, folder, state, alone):
        self.kept = state

    def load_dcp(self, folder, state, alone):
        for name, tensor in self.load_torch(folder)["state"].items():
            state["state"][name].copy_(tensor)


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.endpoint, ca = cls.enterClassContext(emulator())
        cls.client = cls.enterClassContext(ringest.Client(cls.endpoint, ca, threads=1))
        cls.reached = {"STORAGE_EMULATOR_HOST": cls.endpoint, "SSL_CERT_FILE": ca}
        for name in ("gs://mine/others", "gs://mine/bench/others", "gs://mine/ringest-bench-0/data/00-00000000"):
            cls.client.put(name, b"not ours")
        cls.others = sorted(cls.client.list("gs://mine/"))

    def path(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def run_preset(self, *arguments, status=0, env=None):
        """The rows of its document, by name."""
        path = os.path.join(self.folder, "result.json")
        got, said, errors = bench(
            "run", "--warm-up", 0, "--result", path, *arguments, env={**self.reached, **(env or {})}
        )
        self.assertEqual(got, status, said + errors)
        self.said = said + errors
        document = result.read(path)
        self.assertEqual(document.command[:3], ["ringest", "bench", "run"])
        return {row.workload: row for row in document.rows}

    def tiny(self, kind, *arguments, data=None, work=None, **options):
        path = self.path(f"{kind}.toml", preset(kind, data, work))
        return self.run_preset(path, "--folder", "gs://mine/bench", *arguments, **options)[kind]

    def nothing_is_left(self):
        self.assertEqual(sorted(self.client.list("gs://mine/")), self.others)
        self.assertEqual(support.uploads_in(self.client, "gs://mine/"), 0)

    def test_each_kind_counts_exactly(self):
        wanted = {
            "list": (600, 0, ["pass 1", "pass 2"]),
            "read": (202, None, ["epoch 1", "epoch 2"]),
            "train": (128, 128 * 5000, ["epoch 1", "epoch 2"]),
            "parquet": (600, None, ["epoch 1"]),
            "checkpoint": (4, None, ["save 1", "save 2", "load 1", "load 2"]),
            "mixed": (40, 5 * (6 * 2000 + 2 * 500), ["reads and writes"]),
        }
        for kind, (operations, size, phases) in wanted.items():
            with self.subTest(kind=kind):
                row = self.tiny(kind)
                self.assertIsNone(row.error)
                (each,) = row.rounds
                self.assertEqual(each.operations, operations)
                self.assertEqual([phase.name for phase in each.phases], phases)
                self.assertEqual(sum(point.operations for point in each.series), operations)
                self.assertGreater(each.requests, 0)
                self.assertGreater(each.wire_received_bytes + each.wire_sent_bytes, each.bytes)
                self.assertGreater(each.peak_rss_bytes, 0)
                self.assertGreater(each.cpu_seconds, 0)
                self.assertLessEqual(each.time_to_first_seconds, each.seconds)
                if size is not None:
                    self.assertEqual(each.bytes, size)
                self.nothing_is_left()

    def test_ranks_save_a_checkpoint_of_pytorch_together(self):
        """By one process, and by torch.save, it is a preset's."""
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("torch is not installed")
        row = self.tiny("checkpoint", "--ranks", 2, work='saves = 2\nloads = 2\nformat = "dcp"')
        self.assertIsNone(row.error)
        (each,) = row.rounds
        self.assertEqual(each.operations, 8)
        self.assertEqual([phase.name for phase in each.phases], ["save 1", "save 2", "load 1", "load 2"])
        self.assertGreater(each.wire_received_bytes + each.wire_sent_bytes, each.bytes)
        self.assertEqual(row.parameters["work.format"], "dcp")
        self.nothing_is_left()

    def test_ranks_share_the_objects(self):
        row = self.tiny("read", "--ranks", 3, "--rounds", 2)
        self.assertEqual([each.operations for each in row.rounds], [202, 202])
        self.assertEqual(row.parameters["ranks"], 3)
        row = self.tiny("train", "--processes", 2)
        self.assertEqual(row.rounds[0].operations, 128)
        self.assertIn("au_percent_epoch_2", row.rounds[0].metrics)
        row = self.tiny("read", "--ranks", 3, "--rounds", 2, "--seconds", 0.2)
        self.assertEqual(len(row.rounds), 2)
        row = self.tiny("checkpoint", "--ranks", 2, "--rounds", 2)
        self.assertEqual([each.operations for each in row.rounds], [8, 8])
        self.nothing_is_left()

    def test_samples_within_objects(self):
        """Of whole objects each is read once; of ranges each sample once."""
        row = self.tiny("train", work="epochs = 1\nbatch_size = 24\nsamples_per_object = 10\ncompute_seconds = 0")
        (each,) = row.rounds
        self.assertEqual((each.operations, each.bytes), (64 * 10 // 24 * 24, 63 * 5000))
        row = self.tiny("train", work='epochs = 1\nbatch_size = 16\nsample_size = "1KiB"\ncompute_seconds = 0')
        (each,) = row.rounds
        self.assertEqual((each.operations, each.bytes), (64 * 4, 64 * 4 * 1024))

    def test_a_warm_up_is_not_counted(self):
        for kind, work, operations in (
            ("list", None, 600),
            ("read", None, 202),
            ("train", None, 128),
            ("train", 'epochs = 1\nbatch_size = 16\nsample_size = "1KiB"\ncompute_seconds = 0', 256),
            ("mixed", "writes_percent = 25\nbatch_size = 40\nbatches = 2\nwrite_size = 500", 80),
        ):
            with self.subTest(kind=kind, work=work):
                row = self.tiny(kind, "--warm-up", 0.05, work=work)
                self.assertEqual(row.rounds[0].operations, operations)
                self.assertEqual(row.parameters["warm_up_seconds"], 0.05)

    def test_reads_go_through_the_cache(self):
        """How many it answers is a matter of time: it is filled behind the reads."""
        with tempfile.TemporaryDirectory() as folder:
            row = self.tiny("read", work="epochs = 2\ncache = true", env={"TMPDIR": folder})
            self.assertEqual(os.listdir(folder), [])
        (each,) = row.rounds
        self.assertEqual(each.operations, 202)
        self.assertEqual(each.metrics["cache_hits"] + each.metrics["cache_misses"], 202)
        self.nothing_is_left()

    def test_data_of_the_user_stay(self):
        kept = self.run_preset(self.path("read.toml", preset("read")), "--folder", "gs://own/", "--keep")["read"]
        place = self.said.split("--data ")[1].split()[0]
        before = sorted(self.client.list(place))
        self.assertEqual(len(before), 101)
        row = self.run_preset(self.path("again.toml", preset("read")), "--data", place, "--json")["again"]
        self.assertEqual(row.rounds[0].bytes, kept.rounds[0].bytes)
        self.assertEqual(row.parameters["objects"], 101)
        self.assertEqual(sorted(self.client.list(place)), before)

    def test_memory_is_checked_by_the_objects_that_are_given(self):
        """A preset whose own are small, for which there is room."""
        with emulator("--synthetic", "data/huge-:100:4TiB") as (endpoint, ca):
            status, said, errors = bench(
                "run",
                self.path("train.toml", preset("train")),
                *("--data", "gs://data/huge-", "--seconds", 0.1),
                env={"STORAGE_EMULATOR_HOST": endpoint, "SSL_CERT_FILE": ca},
            )
        self.assertEqual((status, said), (2, ""), errors)
        for word in ("of memory", "by the sizes of the objects below gs://data/huge-", "--ranks"):
            self.assertIn(word, errors)
        # And one whose own are too large for this machine.
        few = "batch_size = 1\ncompute_seconds = 0"
        large = self.path("large.toml", preset("train", "objects = 64\nsize = 1_000_000_000_000", few))
        row = self.run_preset(large, "--data", "gs://mine/", "--seconds", 0.1, status=0)["large"]
        self.assertIsNone(row.error)

    def test_what_stands_for_a_folder_is_listed_and_not_read(self):
        with_folder = ringest.Client(self.endpoint, self.reached["SSL_CERT_FILE"], threads=1)
        with with_folder as client:
            for name in ("gs://own/folders/a", "gs://own/folders/within/", "gs://own/folders/within/b"):
                client.put(name, b"mine")
        rows = self.run_preset(
            self.path("list.toml", preset("list", work="passes = 1")),
            self.path("read.toml", preset("read", work="epochs = 1")),
            "--data",
            "gs://own/folders/",
        )
        self.assertEqual([rows[kind].rounds[0].operations for kind in ("list", "read")], [3, 2])

    def test_what_was_measured_is_kept_when_the_next_cannot_be(self):
        self.client.put("gs://own/one/a", b"mine")
        rows = self.run_preset(
            *(self.path(f"{kind}.toml", preset(kind)) for kind in ("read", "parquet")),
            "--data",
            "gs://own/one/",
            status=1,
        )
        self.assertIsNone(rows["read"].error)
        self.assertEqual(len(rows["read"].rounds), 1)
        self.assertIn(".parquet", rows["parquet"].error)

    def test_where_no_result_can_be_written_nothing_is_measured(self):
        endless = self.path("endless.toml", preset("read", work="epochs = 1000000"))
        for place in (os.path.join(self.folder, "none", "x.json"), self.folder):
            status, said, errors = bench_in_child(
                "run", endless, "--folder", "gs://mine/", "--result", place, env=self.reached
            )
            self.assertEqual((status, said), (2, ""))
            self.assertIn(f"{place}: cannot be written", errors)

    def test_a_result_on_standard_output_is_alone(self):
        status, said, errors = bench(
            "run", self.path("read.toml", preset("read")), "--emulate", "--warm-up", 0, "--result", "-"
        )
        self.assertEqual(status, 0, errors)
        self.assertEqual([row.workload for row in result.parse(said).rows], ["read"])
        self.assertIn("per s", errors)

    def test_every_preset_of_the_package(self):
        """As it is, made small, and ended after a moment."""
        large = [name for name in presets.names() if not name.startswith(("list", "tokens"))]
        for scale, names in ((1e-5, large), (1e-3, [name for name in presets.names() if name not in large])):
            rows = self.run_preset(*names, "--emulate", "--scale", scale, "--seconds", 0.1, "--ranks", 1)
            self.assertEqual(list(rows), names)
            for name, row in rows.items():
                self.assertIsNone(row.error, name)
                self.assertGreater(row.rounds[0].operations, 0, name)
                self.assertIn(f"{name}: {scale:g} of its data", self.said)
                is_checkpoint = name.startswith("checkpoint")
                self.assertEqual("seconds" not in row.parameters, is_checkpoint)
                self.assertEqual(f"{name}: has its number of saves and loads" in self.said, is_checkpoint)
            self.assertIn("server: the emulator, on the client's own CPUs", self.said)
            self.assertNotIn("Warning", self.said)

    def test_wrong_use(self):
        for arguments, words in (
            (["unet3d"], ["--folder", "--emulate"]),
            (["unet3d", "--emulate", "--folder", "gs://mine/"], ["--emulate", "--folder"]),
            (["unet3d", "--data", "gs://mine/none/"], ["--data gs://mine/none/", "no objects"]),
            (["unet3d", "--folder", "mine"], ["--folder"]),
            (["cosmoflow", "--folder", "gs://mine/"], ["would write", "--scale", "--upload-max"]),
            (["checkpoint-7b", "--data", "gs://mine/"], ["reads nothing"]),
            (["checkpoint-405b", "--emulate"], ["of memory", "--scale"]),
            (["unet3d", "--emulate", "--scale", "2"], ["--scale", "at most 1"]),
            (["unet3d", "--data", "gs://mine/", "--scale", "0.5"], ["--scale", "--data", "one of them"]),
            (["unet3d", "--keep", "--data", "gs://mine/"], ["--keep needs --folder"]),
            (["unet3d", "--emulate", "--ranks", "two"], ["--ranks", "invalid number value: 'two'"]),
            (["unet3d", "--emulate", "--seconds", "1m"], ["--seconds", "invalid number value: '1m'"]),
            (["unet3d", "--emulate", "--json", "--result", "-"], ["--json and --result -", "one of them"]),
        ):
            with self.subTest(arguments=arguments):
                status, said, errors = bench_in_child("run", *arguments, env=self.reached)
                self.assertEqual((status, said), (2, ""), errors)
                for word in words:
                    self.assertIn(word, errors)
                self.assertNotIn("Traceback", errors)
        self.nothing_is_left()

    def test_a_server_that_fails_is_a_row_with_its_error(self):
        rows = self.run_preset(
            *(self.path(f"{kind}.toml", preset(kind)) for kind in ("read", "list")),
            "--folder", "gs://no-such-bucket/", status=1,
        )  # fmt: skip
        for row in rows.values():
            self.assertIn("no-such-bucket", row.error)
            self.assertEqual(row.rounds, [])


class Ends(unittest.TestCase):
    """Runs that end too early."""

    def setUp(self):
        self.endpoint, ca = self.enterContext(emulator())
        self.client = self.enterContext(ringest.Client(self.endpoint, ca, threads=1))
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.temporary = os.path.join(self.folder, "temporary")
        os.mkdir(self.temporary)
        place = {"STORAGE_EMULATOR_HOST": self.endpoint, "SSL_CERT_FILE": ca}
        # What a killed run leaves is not for the next ones to name.
        self.environment = {**os.environ, **place, "TMPDIR": self.temporary}
        self.client.put("gs://mine/bench/others", b"not ours")
        self.others = list(self.client.list("gs://mine/"))

    def start(self, kind, *arguments, data=None, work=None):
        """When it has written something in its bucket, and its ranks run."""
        path = os.path.join(self.folder, f"{kind}.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(preset(kind, data, work))
        self.result = os.path.join(self.folder, "result.json")
        line = command("run", path, "--folder", "gs://mine/bench/", "--result", self.result, "--warm-up", 0, *arguments)
        process = subprocess.Popen(
            line,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def children(self, process):
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
            pids = [int(pid) for pid in file.read().split()]
        found = []
        for pid in pids:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"spawn_main" in file.read():
                    found.append(pid)
        return found

    def written(self, word):
        return [name for name, _, _ in self.client.list("gs://mine/bench/") if word in name]

    def test_control_c_leaves_nothing(self):
        for kind, word, work in (
            ("mixed", "written-", "writes_percent = 50\nbatch_size = 8\nbatches = 1000000\nwrite_size = 500"),
            ("read", "data/", "epochs = 1000000"),
        ):
            for number in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(kind=kind, signal=number):
                    process = self.start(kind, "--ranks", 2, work=work)
                    until(lambda: self.written(word) and len(self.children(process)) == 2, "what it writes")
                    ranks = self.children(process)
                    # A terminal sends it to all of them.
                    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
                    self.assertEqual(process.wait(PATIENCE_S), 130, process.stderr.read())
                    self.assertEqual(list(self.client.list("gs://mine/")), self.others)
                    self.assertEqual([pid for pid in ranks if os.path.exists(f"/proc/{pid}")], [])
                    (row,) = result.read(self.result).rows
                    self.assertEqual(row.error, "interrupted")
                    self.assertNotIn("Traceback", process.stderr.read())

    def test_a_dead_rank_ends_the_run(self):
        process = self.start("read", "--ranks", 3, work="epochs = 1000000")
        until(lambda: len(self.children(process)) == 3, "its ranks")
        os.kill(self.children(process)[1], signal.SIGKILL)
        self.assertEqual(process.wait(PATIENCE_S), 1, process.stderr.read())
        (row,) = result.read(self.result).rows
        self.assertRegex(row.error, "rank [0-2] of 3 ended by SIGKILL")
        self.assertEqual(list(self.client.list("gs://mine/")), self.others)

    def test_a_rank_killed_in_a_save_leaves_nothing(self):
        """Of a save that is as large that it has parts, wherever these are."""
        shape = (
            "layers = 2\nhidden = 2048\nfeed_forward = 4096\nheads = 16\nkey_value_heads = 16\nvocabulary = 1000\n"
            "optimizer = false"
        )
        process = self.start("checkpoint", data=shape, work="saves = 1000000")
        until(lambda: self.children(process), "its rank")
        (rank,) = self.children(process)

        def has_parts():
            """While the rank stands still."""
            os.kill(rank, signal.SIGSTOP)
            there = [name for name, _, _ in self.client.list("gs://mine/") if not name.startswith("bench/")]
            if there or support.uploads_in(self.client, "gs://mine/"):
                return True
            os.kill(rank, signal.SIGCONT)
            return False

        until(has_parts, "parts of a save")
        os.kill(rank, signal.SIGKILL)
        self.assertEqual(process.wait(PATIENCE_S), 1, process.stderr.read())
        self.assertEqual(list(self.client.list("gs://mine/")), self.others)
        self.assertEqual(support.uploads_in(self.client, "gs://mine/"), 0)

    def test_ranks_end_with_a_parent_that_is_killed(self):
        process = self.start("read", "--ranks", 2, work="epochs = 1000000")
        until(lambda: len(self.children(process)) == 2, "its ranks")
        ranks = self.children(process)
        process.kill()
        process.wait()
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in ranks), "the end of its ranks")

    def test_what_a_killed_run_left_is_named_by_the_next(self):
        """And nothing of it is removed; a run that lives is not named."""
        self.client.put("gs://mine/bench/ringest-bench-0123456789abcdef/data/00-00000000", b"by an older version")
        process = self.start("read", data="objects = 3\nsize = 1000", work="epochs = 1000000\ncache = true")
        until(lambda: self.written("data/00-00000002") and self.children(process), "its data")
        (made,) = {name.split("/")[1] for name in self.written("data/") if "ringest-bench-0123456789abcdef" not in name}
        path = os.path.join(self.folder, "next.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(preset("list"))

        def next_one():
            status, said, errors = bench("run", path, "--folder", "gs://mine/bench", env=self.environment)
            self.assertEqual(status, 0, said + errors)
            return errors

        self.assertEqual(next_one(), "")
        before = list(self.client.list("gs://mine/"))
        process.kill()
        process.wait()
        text = (
            f"gs://mine/bench/{made}/ is left by a benchmark that was killed, or had --keep; "
            f"`ringest rm -r gs://mine/bench/{made}/`"
        )
        told = next_one().splitlines()
        self.assertIn(text, told[0])
        cache = [each for each in os.listdir(self.temporary) if each.startswith("ringest-bench-")]
        self.assertEqual(len(cache), 1)
        self.assertIn(f"`rm -r {self.temporary}/{cache[0]}` removes it", told[1])
        self.assertEqual(len(told), 2)
        self.assertEqual(list(self.client.list("gs://mine/")), before)

    def test_what_is_there_is_neither_replaced_nor_removed(self):
        made = folder.Folder(self.client, "gs://mine/new/")
        made.claim()
        uri = f"{made.data}00-00000003"
        self.client.put(uri, b"not ours")
        with self.assertRaises(ExceptionGroup) as caught:
            made.fill(objects.Objects(objects=5, size=100), lambda done, total: None)
        (error,) = caught.exception.exceptions
        self.assertIsInstance(error, ringest.PreconditionError)
        self.assertIn(uri, str(error))
        self.assertIn(uri, made.remove())
        self.assertEqual([name for name, _, _ in self.client.list(made.uri)], [uri.removeprefix("gs://mine/")])
        self.assertEqual(bytes(self.client.get(uri)), b"not ours")
        with self.assertRaisesRegex(folder.FolderError, f"{made.uri} has objects"):
            made.claim()
        self.assertIsNone(made.remove())
        self.assertEqual(bytes(self.client.get(uri)), b"not ours")

    def test_whose_a_folder_is(self):
        self.assertFalse(leftovers.is_left(leftovers.new_name()))
        line = "from ringest.bench import leftovers; print(leftovers.new_name())"
        done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
        name = done.stdout.strip()
        self.assertTrue(leftovers.is_left(name))
        here, pid, started, number = name.removeprefix("ringest-bench-").split("-")
        elsewhere = f"{int(here, 16) ^ 1:012x}"
        # Of another machine, of a process that lives, and of one whose number another has now.
        self.assertFalse(leftovers.is_left(f"ringest-bench-{elsewhere}-{pid}-{started}-{number}"))
        ours = leftovers.new_name().removeprefix("ringest-bench-").split("-")
        self.assertFalse(leftovers.is_left(f"ringest-bench-{here}-{ours[1]}-{ours[2]}-{number}"))
        self.assertTrue(leftovers.is_left(f"ringest-bench-{here}-{ours[1]}-{int(ours[2], 16) - 1:x}-{number}"))
        for each in ("ringest-bench-0123456789abcdef", f"mine-{name}", "ringest-bench-"):
            self.assertFalse(leftovers.is_left(each))
        # The program marks its own in the same way.
        put = [os.environ["RINGEST_PROGRAM"], "bench", "put", "gs://mine/", "--count=1", "--json"]
        done = subprocess.run(put, env=self.environment, capture_output=True, text=True, check=True)
        marked = json.loads(done.stdout)["folder"].rstrip("/")
        self.assertTrue(leftovers.is_left(marked), marked)
        self.assertEqual(marked.split("-")[2], leftovers.new_name().split("-")[2])

    def test_what_others_put_into_its_folder_stays_and_is_named(self):
        process = self.start("read", work="epochs = 1000000")
        until(lambda: self.written("data/"), "its data")
        folder = self.written("data/")[0].split("/data/")[0]
        others = [f"{folder}/{name}" for name in (
            "data/00-99999999", "data/00-000000001", "data/00-1", "data/99-00000000", "data/table-00000.parquet",
            "precious", "round-0/rank-7/written-00000000", "round-1/rank-0/save-00000000",
        )]  # fmt: skip
        for each in others:
            self.client.put(f"gs://mine/{each}", b"not ours")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
        self.assertIn(f"gs://mine/{others[0]}", errors)
        self.assertEqual(sorted(self.written(folder)), sorted(others))

    def test_a_server_that_cannot_be_is_named(self):
        for arguments in (
            ("run", "list-flat", "--scale", "0.0001", "--folder", "gs://mine/x/"),
            ("compare", "gs://mine/x/"),
            ("compare", "gs://mine/x/", "--preset", "cosmoflow", "--scale", "0.0001"),
        ):
            for options, place, text in (
                (
                    ["--endpoint", "ftp://x"],
                    {},
                    "endpoint must be https://HOST[:PORT], http://HOST[:PORT] or HOST:PORT, got 'ftp://x'",
                ),
                (
                    [],
                    {"STORAGE_EMULATOR_HOST": "ftp://x"},
                    "https://HOST[:PORT], http://HOST[:PORT] or HOST:PORT",
                ),
                ([], {"RINGEST_THREADS": "x"}, "RINGEST_THREADS must be 1 to"),
                ([], {"SSL_CERT_FILE": "/dev/null/x"}, "CA bundle /dev/null/x: Not a directory"),
            ):
                status, _, errors = bench(*arguments, *options, env={**self.environment, **place})
                self.assertEqual((status, errors.count("\n")), (2, 1), errors)
                self.assertTrue(errors.startswith(f"ringest bench {arguments[0]}: "), errors)
                self.assertIn(text, errors)

    def test_where_nothing_could_be_written_nothing_is_to_be_removed(self):
        for arguments in (("run", "list-flat", "--scale", "0.0001", "--folder"), ("compare",)):
            nobody = {**self.environment, "STORAGE_EMULATOR_HOST": "http://127.0.0.1:1"}
            status, _, errors = bench(*arguments, "gs://mine/x/", env=nobody)
            self.assertEqual(status, 1, errors)
            self.assertNotIn("removed", errors)

    def test_a_place_that_cannot_be_is_named(self):
        for arguments in (("run", "list-flat", "--scale", "0.0001", "--folder"), ("compare",)):
            status, _, errors = bench(*arguments, "gs://b/x/", env=self.environment)
            self.assertEqual((status, errors.count("\n")), (2, 1), errors)
            self.assertIn("'gs://b/x/", errors)
            self.assertIn("buckets have 3 to 222 characters", errors)


if __name__ == "__main__":
    unittest.main()
