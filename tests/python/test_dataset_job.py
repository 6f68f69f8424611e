"""One list for all ranks of a job: who makes it, who gets it, and what becomes of ranks that have another one."""

import contextlib
import io
import os
import pickle
import tarfile
import tempfile
import threading
import unittest
import unittest.mock

import ringest
import support
from ringest import _job, _layout, retention, tar

try:
    import torch.distributed

    # A backend that takes everything and does nothing, in the place of NCCL: what it is given for the CPU is lost.
    import torch.testing._internal.distributed.fake_pg
    import torch.utils.data

    import ranks
except ImportError:
    torch = None

COUNT = 40
# What a launcher may leave in the environment.
VARIABLES = [name for pair in (("RANK", "WORLD_SIZE"), *_layout._LAUNCHERS) for name in pair]


@contextlib.contextmanager
def environment(**variables):
    """Only these of the variables that say which rank this is."""
    cleared = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    with unittest.mock.patch.dict(os.environ, {**cleared, **variables}, clear=True):
        yield


def name_of(item):
    return item.uri.rsplit("/", 1)[1]


class Layout(unittest.TestCase):
    def find(self, **variables):
        with environment(**variables):
            return tuple(_layout.find_layout())

    def test_launchers_in_the_order_in_which_they_start_each_other(self):
        torchrun = {"RANK": "1", "WORLD_SIZE": "4"}
        mpi = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "5"}
        hydra = {"PMI_RANK": "3", "PMI_SIZE": "6"}
        slurm = {"SLURM_PROCID": "4", "SLURM_STEP_NUM_TASKS": "7"}
        self.assertEqual(self.find(), (0, 1))
        self.assertEqual(self.find(**torchrun, **mpi, **hydra, **slurm), (1, 4))
        self.assertEqual(self.find(**mpi, **hydra, **slurm), (2, 5))
        self.assertEqual(self.find(**hydra, **slurm), (3, 6))
        self.assertEqual(self.find(**slurm), (4, 7))

    def test_a_process_in_an_allocation_that_is_no_step(self):
        batch_script = {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_NPROCS": "4"}
        self.assertEqual(self.find(**batch_script), (0, 1))
        shell = {**batch_script, "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}
        self.assertEqual(self.find(**shell), (0, 1))
        # PMIx says no size.
        self.assertEqual(self.find(PMIX_RANK="3"), (0, 1))

    def test_what_is_wrong_is_named(self):
        for variables, texts in (
            ({"RANK": "1"}, ("RANK=1 is in the environment", "WORLD_SIZE is not")),
            ({"WORLD_SIZE": "4"}, ("WORLD_SIZE=4 is in the environment", "RANK is not")),
            ({"RANK": "4", "WORLD_SIZE": "4"}, ("RANK=4", "WORLD_SIZE=4")),
            ({"RANK": "-1", "WORLD_SIZE": "4"}, ("RANK=-1",)),
            ({"RANK": "0", "WORLD_SIZE": "0"}, ("WORLD_SIZE=0",)),
            ({"RANK": "one", "WORLD_SIZE": "4"}, ("RANK is 'one'", "not a number")),
            ({"RANK": "", "WORLD_SIZE": "4"}, ("RANK is ''", "not a number")),
            ({"OMPI_COMM_WORLD_SIZE": "4"}, ("OMPI_COMM_WORLD_RANK is not",)),
            ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "x"}, ("SLURM_PROCID is 'x'",)),
        ):
            with self.subTest(variables):
                with self.assertRaises(ValueError) as raised:
                    self.find(**variables)
                for text in (*texts, "rank= and world_size="):
                    self.assertIn(text, str(raised.exception))

    def test_what_is_given_wins(self):
        with environment(RANK="1", WORLD_SIZE="4"):
            self.assertEqual(tuple(_layout.find_layout(0, 2)), (0, 2))
        for wrong in ((0, None), (None, 2), (2, 2), (-1, 2), (0, 0)):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "rank"):
                ringest.IterableDataset("gs://data/", rank=wrong[0], world_size=wrong[1])


class Alone(unittest.TestCase):
    """Ranks without a process group."""

    def test_several_ranks_need_a_manifest(self):
        with support.client() as client, environment(RANK="1", WORLD_SIZE="4"):
            dataset = ringest.IterableDataset("gs://data/x-", client=client)
            for ask in (len, lambda dataset: next(iter(dataset))):
                with self.assertRaisesRegex(
                    ringest.ListError, "rank 1 of 4.*init_process_group.*ringest manifest save"
                ):
                    ask(dataset)
            with self.assertRaisesRegex(ringest.ListError, "rank 0 of 2"):
                len(ringest.IterableDataset("gs://data/x-", client=client, rank=0, world_size=2))
            # Not of several ranks, whatever the environment says.
            self.assertEqual(len(ringest.IterableDataset("gs://data/x-", client=client, rank=0, world_size=1)), 500)
            dataset = ringest.IterableDataset("gs://data/x-", client=client, shared=False)
            self.assertEqual(len(dataset), 125)
            with self.assertLogs("ringest", "WARNING") as logs:
                self.assertEqual(len(ringest.MapDataset("gs://data/x-", client=client)), 500)
            self.assertIn("rank 1 of 4", logs.output[0])

    def test_a_manifest_in_a_folder_or_a_bucket(self):
        with support.client() as client, tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.manifest")
            listed = client.list("gs://data/x-")
            listed.save(path)
            client.put("gs://mine/x.manifest", listed)
            for manifest in (path, "gs://mine/x.manifest", "gcs://mine/x.manifest"):
                seen = []
                for rank in range(3):
                    with environment(RANK=str(rank), WORLD_SIZE="3"):
                        dataset = ringest.IterableDataset(
                            "gs://data/x-", client=client, manifest=manifest, transform=name_of
                        )
                        self.assertEqual(dataset.digest, listed.digest)
                        seen += dataset
                self.assertEqual(sorted(seen), [name for name, _, _ in listed])
            client.put("gs://mine/none", b"x" * 100)
            with self.assertRaisesRegex(ValueError, "gs://mine/none.*not a manifest"):
                len(ringest.IterableDataset("gs://data/x-", client=client, manifest="gs://mine/none"))
            with self.assertRaisesRegex(ringest.NotFoundError, "gs://mine/absent"):
                len(ringest.IterableDataset("gs://data/x-", client=client, manifest="gs://mine/absent"))

    def test_rank_and_world_size_are_read_when_an_iteration_begins(self):
        with support.client() as client:
            with environment():
                dataset = ringest.IterableDataset(
                    "gs://data/x-", client=client, manifest=support.entries(), transform=support.take_name
                )
                self.assertEqual(len(dataset), 500)
            with environment(RANK="1", WORLD_SIZE="2"):
                self.assertEqual(len(dataset), 250)
                self.assertEqual([int(value) for value in dataset], list(range(1, 500, 2)))
            with environment(RANK="1"):
                with self.assertRaisesRegex(ValueError, "WORLD_SIZE is not"):
                    iter(dataset)

    def test_a_manifest_that_has_changed_since_a_dataset_was_pickled(self):
        with support.client() as client, tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.manifest")
            client.list("gs://data/x-").save(path)
            dataset = ringest.IterableDataset("gs://data/x-", client=client, manifest=path)
            digest = dataset.digest
            pickled = pickle.dumps(dataset)
            self.assertLess(len(pickled), 2000)
            self.assertEqual(pickle.loads(pickled).digest, digest)
            client.list("gs://data/x-0000000").save(path)
            self.assertEqual(dataset.digest, digest)
            with self.assertRaisesRegex(ringest.ListError, digest):
                len(pickle.loads(pickled))

    def test_a_dataset_shows_its_list(self):
        with support.client() as client:
            for kind in (ringest.IterableDataset, ringest.MapDataset):
                dataset = kind("gs://data/x-", client=client)
                self.assertEqual(repr(dataset), f"<{kind.__name__} 'gs://data/x-', no list yet>")
                digest = dataset.digest
                self.assertEqual(
                    repr(dataset), f"<{kind.__name__} 'gs://data/x-', 500 objects of 976.6 KiB, digest {digest[:16]}>"
                )

    def test_two_threads_find_one_list(self):
        with support.client(hedging=False) as client:
            client.put_many((f"gs://new/{i}", b"x") for i in range(COUNT))
            dataset = ringest.MapDataset("gs://new/", client=client)
            digests = []
            threads = [threading.Thread(target=lambda: digests.append(dataset.digest)) for _ in range(4)]
            before = client.stats()["requests"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual((len(set(digests)), client.stats()["requests"] - before), (1, 1))


class Markers(unittest.TestCase):
    def test_folder_markers_are_left_out_unless_they_are_asked_for(self):
        with support.client() as client:
            client.put_many(
                [("gs://new/a/", b""), ("gs://new/a/b", b"x"), ("gs://new/a/c/", b"not empty"), ("gs://new/d", b"")]
            )
            names = ["a/b", "a/c/", "d"]
            for kind in (ringest.IterableDataset, ringest.MapDataset):
                dataset = kind("gs://new/", client=client)
                self.assertEqual([entry.name for entry in dataset.objects], names)
                self.assertEqual(
                    [entry.name for entry in kind("gs://new/", client=client, folder_markers=True).objects],
                    ["a/", *names],
                )
                # What is named by hand is meant.
                given = kind("gs://new/", client=client, manifest=client.list("gs://new/"))
                self.assertEqual(len(given), 4)

    def test_gcs_is_gs(self):
        with support.client() as client:
            for kind in (ringest.IterableDataset, ringest.MapDataset):
                dataset = kind("gcs://data/x-", client=client)
                self.assertEqual((len(dataset), dataset.digest), (500, kind("gs://data/x-", client=client).digest))
                self.assertEqual(len(kind("gcs://data", client=client)), 500)
            client.put("gcs://mine/run/step-1.ckpt", b"x")
            self.assertEqual(bytes(client.get("gs://mine/run/step-1.ckpt")), b"x")
            self.assertEqual(client.stat("gcs://mine/run/step-1.ckpt")["size"], 1)
            self.assertEqual([found.step for found in retention.find("gcs://mine/run/", client)], [1])
            for wrong in ("gcs:/mine/x", "gcs://", "xgs://mine/x", "gs://gcs://mine/x/y z"):
                with self.subTest(wrong), self.assertRaises((ValueError, ringest.Error)):
                    client.get(wrong)


def with_group(function):
    """Of ranks whose environment says nothing."""
    for name in VARIABLES:
        os.environ.pop(name, None)
    return function()


def read_share(endpoint, ca, **options):
    with ringest.Client(endpoint, ca) as client:
        dataset = ringest.IterableDataset("gs://new/", client=client, transform=name_of, **options)
        return list(dataset), dataset.digest


def rank_lists_while_the_bucket_changes(rank, endpoint, ca):
    """Rank 0 lists, then an object appears, then the others ask."""
    if rank > 0:
        torch.distributed.barrier()
    with ringest.Client(endpoint, ca, hedging=False) as client:
        dataset = ringest.IterableDataset("gs://new/", client=client, transform=name_of)
        count = len(dataset)
        if rank == 0:
            client.put("gs://new/0-first", b"x")
            torch.distributed.barrier()
        requests = client.stats()["requests"]
        return list(dataset), count, requests, dataset.digest


def rank_with_workers(rank, endpoint, ca):
    """Workers begin before anybody has asked for the list, and on the other rank after the bucket has changed."""
    with ringest.Client(endpoint, ca) as client:
        dataset = ringest.IterableDataset("gs://new/", client=client, transform=name_of, shuffle=True)
        loader = torch.utils.data.DataLoader(dataset, batch_size=4, collate_fn=list, num_workers=2)
        if rank > 0:
            torch.distributed.barrier()
        batches = iter(loader)
        seen = list(next(batches))
        if rank == 0:
            client.put("gs://new/0-first", b"x")
            torch.distributed.barrier()
        return seen + sum(batches, [])


def rank_zero_alone_asks(rank, endpoint, ca):
    if rank > 0:
        return None
    with ringest.Client(endpoint, ca) as client:
        return len(ringest.IterableDataset("gs://new/", client=client)), len(
            ringest.MapDataset("gs://new/", client=client)
        )


def rank_made_before_the_group(dataset):
    return len(dataset), list(dataset)


def rank_with_its_own_names(rank, endpoint, ca, kind, shared):
    names = [f"{i:03d}" for i in range(COUNT)] + ([] if rank == 0 else ["more"])
    with ringest.Client(endpoint, ca, hedging=False) as client:
        options = {"transform": name_of, "client": client, "manifest": names, "shared": shared}
        if kind == "iterable":
            dataset = ringest.IterableDataset("gs://new/", **options)
            read = lambda: len(list(dataset))
        else:
            dataset = ringest.MapDataset("gs://new/", **options)
            read = lambda: len(dataset.__getitems__([0, 1]))
        torch.distributed.barrier()
        if rank > 0:
            torch.distributed.barrier()
        try:
            result = read()
        except ringest.ListError as error:
            result = str(error)
        if rank == 0:
            torch.distributed.barrier()
        return result, dataset.digest, client.stats()["requests"]


def rank_with_a_manifest_on_one_host(rank, endpoint, ca, path):
    """Rank 0 finds the file and rank 1 does not, so that it lists."""
    with ringest.Client(endpoint, ca) as client:
        dataset = ringest.IterableDataset("gs://new/", client=client, manifest=path if rank == 0 else None)
        try:
            return len(list(dataset))
        except ringest.ListError as error:
            return str(error)


def rank_of_a_bucket_that_is_missing(rank, endpoint, ca):
    with ringest.Client(endpoint, ca) as client:
        try:
            return len(ringest.IterableDataset("gs://absent/", client=client))
        except ringest.NotFoundError as error:
            torch.distributed.barrier()
            if rank == 0:
                support.make_bucket(endpoint, ca, "absent")
            torch.distributed.barrier()
            client.put_many((f"gs://absent/{rank}-{i}", b"x") for i in range(10))
            torch.distributed.barrier()
            dataset = ringest.IterableDataset("gs://absent/", client=client)
            return str(error), error.uri, error.status, len(dataset), dataset.digest


def rank_with_many_names(rank, endpoint, ca, piece):
    _job.PIECE_BYTES = piece
    warnings = unittest.mock.patch.object(_job.logger, "warning").start()
    with ringest.Client(endpoint, ca, hedging=False) as client:
        dataset = ringest.MapDataset("gs://many/", client=client)
        before = client.stats()["requests"]
        digest, inode = dataset.digest, os.fstat(dataset._source.found.fd).st_ino
        torch.distributed.barrier()  # nobody's list is gone before all have it
        return digest, len(dataset), inode, client.stats()["requests"] - before, warnings.call_count


def refuse_others_memory(real):
    def refusing(path, *arguments, **options):
        if str(path).startswith("/proc/"):
            raise PermissionError(path)
        return real(path, *arguments, **options)

    return refusing


def rank_that_says_something_else(rank, variables):
    with environment(**variables):
        try:
            return len(ringest.IterableDataset("gs://data/", manifest=["a", "b", "c"]))
        except ValueError as error:
            return str(error)


def rank_whose_lister_dies(rank, endpoint, ca):
    _job.PATIENCE_S = 0.5
    with ringest.Client(endpoint, ca) as client:
        dataset = ringest.IterableDataset("gs://new/", client=client)
        job = _job.current_job()
        if rank == 0:  # has said that it lists, and is never heard of again
            name = _job._hashed(*dataset._source.key())
            job._store.add(f"{name}/0/claim", 1)
            torch.distributed.barrier()
            return None
        torch.distributed.barrier()
        try:
            return len(dataset)
        except ringest.ListError as error:
            return str(error)


def rank_forks(rank, endpoint, ca):
    """A child that is no worker has its parent's connection to the store, and must leave it alone."""
    heard, say = os.pipe()
    if os.fork() == 0:
        try:
            with ringest.Client(endpoint, ca) as client:
                len(ringest.IterableDataset("gs://new/", client=client))
            os.write(say, b"listed")
        except ringest.ListError:
            os.write(say, b"refused")
        finally:
            os._exit(0)
    os.close(say)
    with open(heard, "rb") as told:
        child = told.read()
    with ringest.Client(endpoint, ca) as client:
        return child, len(ringest.IterableDataset("gs://new/", client=client))


def rank_of_two_lives(rank, endpoint, ca, folder):
    """Another process group after the first one is over."""
    with ringest.Client(endpoint, ca) as client:
        dataset = ringest.IterableDataset("gs://new/", client=client, transform=name_of)
        first = dataset.digest
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/again", rank=rank, world_size=2)
        return first, dataset.digest, list(dataset)


def rank_of_a_part_of_the_group(rank, endpoint, ca):
    """Pairs of ranks have the same share, as with tensor parallelism; and one has a dataset of its own."""
    shares = read_share(endpoint, ca, rank=rank // 2, world_size=2)
    own = read_share(endpoint, ca, rank=0, world_size=1) if rank == 3 else None
    return shares, own


def rank_with_a_part_of_its_own(rank, endpoint, ca):
    """Dealt by hand, or by a trainer: then each rank is told that it is the only one, and lists are shared."""
    with ringest.Client(endpoint, ca) as client:
        options = {"client": client, "transform": name_of, "rank": 0, "world_size": 1}
        own = ringest.IterableDataset("gs://new/", manifest=[f"{i:03d}" for i in range(rank, COUNT, 2)], **options)
        given = list(own)
        if rank > 0:
            torch.distributed.barrier()
        whole = list(ringest.IterableDataset("gs://new/", **options))
        if rank == 0:
            client.put("gs://new/more", b"x")
            torch.distributed.barrier()
        return given, whole


def rank_with_the_connector(rank, endpoint, ca):
    from ringest.dataflux import dataflux_mapstyle_dataset as mapstyle

    if rank > 0:
        torch.distributed.barrier()
    with ringest.Client(endpoint, ca) as client:
        dataset = mapstyle.DataFluxMapStyleDataset("project", "new", mapstyle.Config(prefix="0"), storage_client=client)
        if rank == 0:
            client.put("gs://new/0-first", b"x")
            torch.distributed.barrier()
        return dataset.objects


def shard(number):
    """Ten samples of two members each."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for i in range(10):
            for extension in ("txt", "cls"):
                info = tarfile.TarInfo(f"{number}-{i}.{extension}")
                info.size = 3
                tar.addfile(info, io.BytesIO(b"abc"))
    return made.getvalue()


def key_of(sample):
    return sample["__key__"]


def rank_with_shards(rank, endpoint, ca, index):
    """Rank 1 asks first; a shard appears before rank 0 does."""
    if rank == 0:
        torch.distributed.barrier()
    with ringest.Client(endpoint, ca, hedging=False) as client:
        dataset = ringest.TarDataset("gs://tar/", index=index, client=client, transform=key_of)
        count, requests = len(dataset), client.stats()["requests"]
        if rank == 1:
            client.put("gs://tar/0.tar", shard(0))
            torch.distributed.barrier()
        keys = ringest.TarMapDataset("gs://tar/", client=client, transform=key_of).__getitems__([0, 19])
        return count, requests, list(dataset), dataset.digest, keys


def rank_with_its_own_index(rank, endpoint, ca):
    with ringest.Client(endpoint, ca) as client:
        index = tar.make_index([f"gs://tar/{number}.tar" for number in range(1, 3 - rank)], client=client)
        dataset = ringest.TarDataset(index, client=client, transform=key_of)
        try:
            return len(list(dataset))
        except ringest.ListError as error:
            return str(error)


def rank_of_another_backend(rank, endpoint, ca, has_cpu):
    """Shares, samples by their index, a state of all ranks, and what cannot be done without a backend for the CPU."""
    from ringest import checkpoint, safetensors

    with ringest.Client(endpoint, ca, hedging=False) as client:
        make = lambda: ringest.IterableDataset("gs://new/", client=client, transform=name_of)
        dataset = make()
        batches = iter(dataset)
        seen = [next(batches) for _ in range(5 + 3 * rank)]
        if has_cpu:
            rest = make()
            rest.load_state_dict(dataset.state_dict(all_ranks=True))
            seen += rest
        else:
            seen += batches
        shards = list(ringest.TarDataset("gs://tar/", client=client, transform=key_of))
        by_index = ringest.MapDataset("gs://new/", client=client, transform=name_of).__getitems__([0, COUNT - 1])
        errors = []
        for load in (checkpoint.load, safetensors.load_file):
            try:
                load("gs://new/none", client=client, process_group=torch.distributed.group.WORLD)
            except (ValueError, ringest.NotFoundError) as error:
                errors.append(f"{type(error).__name__}: {error}")
        return seen, shards, by_index, errors, dataset.digest


class Shards(unittest.TestCase):
    def setUp(self):
        for entered in (environment(), support.client()):
            self.client = entered.__enter__()
            self.addCleanup(entered.__exit__, None, None, None)
        for number in (1, 2):
            self.client.put(f"gs://tar/{number}.tar", shard(number))
        self.place = self.client._settings["endpoint"], self.client._settings["ca"]

    def test_ranks_without_a_group_need_an_index_that_is_there(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "index")
            make = lambda: ringest.TarDataset("gs://tar/", index=path, client=self.client, transform=key_of)
            with environment(RANK="0", WORLD_SIZE="2"):
                with self.assertRaisesRegex(ringest.ListError, "gs://tar/: this is rank 0 of 2.*ringest tar index"):
                    len(make())
            self.assertEqual(len(make()), 20)
            # It is taken as it is: another rank may see another bucket.
            self.client.put("gs://tar/3.tar", shard(3))
            seen = []
            for rank in "01":
                with environment(RANK=rank, WORLD_SIZE="2"):
                    seen += make()
            self.assertEqual(len(set(seen)), 20)
            self.assertEqual(len(make()), 30)

    def test_what_is_wrong_is_told_when_the_dataset_is_made(self):
        for uri in ("file.tar", "gs://tar/a.tar.gz", ["gs://tar/a.tar", "gs://others/a.tar"], []):
            with self.subTest(uri), self.assertRaises(ValueError):
                ringest.TarDataset(uri, client=self.client)
        for options in ({"manifest": ["a"]}, {"folder_markers": True}):
            with self.assertRaisesRegex(TypeError, "index="):
                ringest.TarDataset("gs://tar/", client=self.client, **options)
        self.assertEqual(len(ringest.TarDataset("gcs://tar/", client=self.client)), 20)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_one_rank_scans_for_all(self):
        with tempfile.TemporaryDirectory() as folder:
            for index in (None, os.path.join(folder, "index")):
                told = ranks.run(2, rank_with_shards, *self.place, index)
                self.client.delete("gs://tar/0.tar")
                self.assertEqual([count for count, _, _, _, _ in told], [10, 10])
                self.assertEqual(sorted(told[0][2] + told[1][2]), sorted(f"{n}-{i}" for n in (1, 2) for i in range(10)))
                self.assertEqual((told[0][1], told[0][3], told[0][4]), (0, told[1][3], told[1][4]))
            self.assertEqual(len(ringest.TarIndex(index)), 20)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_indexes_that_are_given_are_compared(self):
        told = ranks.run(2, rank_with_its_own_index, *self.place)
        self.assertEqual(sum(isinstance(result, int) for result in told), 1)
        self.assertIn("ranks have different lists", next(result for result in told if isinstance(result, str)))


@unittest.skipIf(torch is None, "torch is not installed")
class Group(unittest.TestCase):
    def setUp(self):
        for entered in (environment(), support.emulator()):
            value = entered.__enter__()
            self.addCleanup(entered.__exit__, None, None, None)
        self.endpoint, self.ca = value
        with ringest.Client(self.endpoint, self.ca) as client:
            client.put_many((f"gs://new/{i:03d}", b"x") for i in range(COUNT))
        self.names = [f"{i:03d}" for i in range(COUNT)]

    def run_ranks(self, world_size, function, *arguments):
        return ranks.run(world_size, function, self.endpoint, self.ca, *arguments)

    def test_an_object_that_appears_between_two_ranks(self):
        told = self.run_ranks(3, rank_lists_while_the_bucket_changes)
        self.assertEqual(sorted(sum((names for names, _, _, _ in told), [])), self.names)
        self.assertEqual([count for _, count, _, _ in told], [14, 13, 13])
        self.assertEqual([requests for _, _, requests, _ in told][1:], [0, 0])
        self.assertEqual(len({digest for _, _, _, digest in told}), 1)

    def test_workers_of_several_ranks(self):
        told = self.run_ranks(2, rank_with_workers)
        self.assertEqual(sorted(sum(told, [])), self.names)

    def test_one_rank_alone_may_ask(self):
        self.assertEqual(self.run_ranks(3, rank_zero_alone_asks), [(14, 40), None, None])

    def test_a_dataset_that_was_made_before_the_group(self):
        with ringest.Client(self.endpoint, self.ca) as client:
            dataset = ringest.IterableDataset("gs://new/", client=client, transform=name_of)
            self.assertEqual(len(dataset), COUNT)
            # Of the time before; the job has one list, and it is that of who asks first.
            client.put("gs://new/more", b"x")
            told = ranks.run(2, lambda rank: rank_made_before_the_group(dataset))
        self.assertEqual([count for count, _ in told], [20, 20])
        self.assertEqual(sorted(sum((names for _, names in told), [])), self.names)

    def test_groups_of_other_backends(self):
        """Lists go by the store, and what ranks tell each other by the backend for the CPU."""
        with ringest.Client(self.endpoint, self.ca) as client:
            for number in (1, 2):
                client.put(f"gs://tar/{number}.tar", shard(number))
        for backend, has_cpu in (("cpu:gloo,cuda:fake", True), ("cuda:fake", False)):
            with self.subTest(backend):
                told = ranks.run(2, rank_of_another_backend, self.endpoint, self.ca, has_cpu, backend=backend)
                self.assertEqual(sorted(sum((seen for seen, *_ in told), [])), self.names)
                shards = sorted(sum((each[1] for each in told), []))
                self.assertEqual(shards, sorted(f"{n}-{i}" for n in (1, 2) for i in range(10)))
                self.assertEqual([each[2] for each in told], [[self.names[0], self.names[-1]]] * 2)
                self.assertEqual(len({each[4] for each in told}), 1)
                for error in sum((each[3] for each in told), []):
                    self.assertRegex(error, "NotFoundError.*gs://new/none" if has_cpu else "ValueError.*backend.*gloo")

    def test_lists_that_are_given_are_compared(self):
        for kind in ("iterable", "map"):
            (first, digest, _), (error, other, requests) = self.run_ranks(2, rank_with_its_own_names, kind, True)
            with self.subTest(kind):
                self.assertEqual(first, 20 if kind == "iterable" else 2)
                for text in ("rank 0 has 40 entries", digest, "rank 1 has 41", other, "shared=False"):
                    self.assertIn(text, error)
                self.assertEqual(requests, 0)

    def test_lists_that_are_not_shared_are_not_compared(self):
        told = self.run_ranks(2, rank_with_its_own_names, "map", False)
        self.assertEqual([result for result, _, _ in told], [2, 2])

    def test_a_manifest_that_only_one_rank_has(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "manifest")
            ringest.Objects("new", [(name, 1, 0) for name in self.names[1:]]).save(path)
            told = self.run_ranks(2, rank_with_a_manifest_on_one_host, path)
        self.assertEqual(sum(isinstance(result, int) for result in told), 1)
        self.assertIn("ranks have different lists", next(result for result in told if isinstance(result, str)))

    def test_what_one_rank_cannot_list_none_can(self):
        told = self.run_ranks(2, rank_of_a_bucket_that_is_missing)
        for text, uri, status, _, _ in told:
            self.assertEqual((uri, status), ("gs://absent/", "NOT_FOUND"))
            self.assertIn("absent", text)
        # Who asks again begins anew.
        self.assertEqual([length for _, _, _, length, _ in told], [10, 10])
        self.assertEqual(told[0][4], told[1][4])

    def test_large_lists_are_in_the_memory_of_a_host_once(self):
        with support.emulator("--synthetic", "many/x-:30000:10") as (endpoint, ca):
            # In one piece of the store, or in several: from 256 KiB on it is worth sharing.
            for piece in (100000, _job.PIECE_BYTES):
                told = ranks.run(3, rank_with_many_names, endpoint, ca, piece)
                digests, counts, inodes, requests, warnings = zip(*told)
                self.assertEqual(counts, (30000,) * 3)
                self.assertEqual(sum(each > 0 for each in requests), 1)
                # The same digest, and the same memory.
                self.assertEqual((len(set(digests)), len(set(inodes)), sum(warnings)), (1, 1, 0))
            # What a rank cannot open it fetches, and says so.
            with unittest.mock.patch.object(_job.os, "open", side_effect=refuse_others_memory(os.open)):
                told = ranks.run(3, rank_with_many_names, endpoint, ca, 100000)
            digests, _, inodes, _, warnings = zip(*told)
            self.assertEqual((len(set(digests)), len(set(inodes))), (1, 3))
            self.assertEqual(sorted(warnings), [0, 1, 1])

    def test_contradictions_name_both_sides(self):
        for variables, text in (
            ({"RANK": "1", "WORLD_SIZE": "4"}, "WORLD_SIZE=4|RANK=1"),
            ({"WORLD_SIZE": "4"}, "rank 0 of 2.*WORLD_SIZE=4|rank 1 of 2.*WORLD_SIZE=4"),
        ):
            for error in ranks.run(2, rank_that_says_something_else, variables):
                self.assertRegex(error, "the process group says")
                self.assertRegex(error, text)
        # Lightning sets the one and not the other.
        self.assertEqual(ranks.run(2, rank_that_says_something_else, {"WORLD_SIZE": "2"}), [2, 1])
        # Of what has started torchrun or the ranks nothing is said that would count.
        slurm = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"}
        self.assertEqual(ranks.run(2, rank_that_says_something_else, slurm), [2, 1])

    def test_a_rank_that_dies_while_it_lists(self):
        _, error = self.run_ranks(2, rank_whose_lister_dies)
        self.assertRegex(error, "first to ask for gs://new/ has said nothing for")

    def test_a_child_leaves_the_store_alone(self):
        self.assertEqual(self.run_ranks(2, rank_forks), [(b"refused", 20), (b"refused", 20)])

    def test_another_group_after_the_first(self):
        with tempfile.TemporaryDirectory() as folder:
            told = self.run_ranks(2, rank_of_two_lives, folder)
        self.assertEqual(len({digest for first, second, _ in told for digest in (first, second)}), 1)
        self.assertEqual(sorted(told[0][2] + told[1][2]), self.names)

    def test_ranks_that_are_told_to_be_the_only_one(self):
        told = self.run_ranks(2, rank_with_a_part_of_its_own)
        self.assertEqual([given for given, _ in told], [self.names[0::2], self.names[1::2]])
        self.assertEqual([whole for _, whole in told], [self.names, self.names])

    def test_the_connectors_datasets_have_one_list_too(self):
        told = self.run_ranks(2, rank_with_the_connector)
        self.assertEqual(told, [[(name, 1) for name in self.names]] * 2)

    def test_parts_of_the_group(self):
        told = self.run_ranks(4, rank_of_a_part_of_the_group)
        shares = [names for (names, _), _ in told]
        self.assertEqual((shares[0], shares[2]), (shares[1], shares[3]))
        self.assertEqual(sorted(shares[0] + shares[2]), self.names)
        self.assertEqual(told[3][1][0], self.names)


if __name__ == "__main__":
    unittest.main()
