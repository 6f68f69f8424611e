"""ringest.dataflux: the connector's datasets by its names, and what they do otherwise."""

import gzip
import inspect
import os
import pickle
import subprocess
import sys
import unittest
import urllib.parse
import urllib.request
from unittest import mock

import ringest
import support
from ringest import dataflux
from ringest.dataflux import dataflux_iterable_dataset as iterable
from ringest.dataflux import dataflux_mapstyle_dataset as mapstyle

try:
    import torch.utils.data
except ImportError:
    torch = None

INDICES = list(range(support.COUNT))
KINDS = (mapstyle.DataFluxMapStyleDataset, iterable.DataFluxIterableDataset)


def samples(dataset):
    if isinstance(dataset, mapstyle.DataFluxMapStyleDataset):
        return dataset.__getitems__(range(len(dataset)))
    return list(dataset)


class Names(unittest.TestCase):
    def test_modules_and_arguments(self):
        self.assertIs(dataflux.dataflux_mapstyle_dataset, mapstyle)
        self.assertIs(dataflux.dataflux_iterable_dataset, iterable)
        arguments = ["project_name", "bucket_name", "config", "data_format_fn", "storage_client"]
        for kind in KINDS:
            self.assertEqual(list(inspect.signature(kind).parameters), arguments)
        fields = [
            "sort_listing_results",
            "max_composite_object_size",
            "num_processes",
            "prefix",
            "max_listing_retries",
            "disable_compose",
            "list_retry_config",
            "download_retry_config",
        ]
        self.assertEqual(list(inspect.signature(iterable.Config).parameters), fields)
        fields.insert(5, "threads_per_process")
        self.assertEqual(list(inspect.signature(mapstyle.Config).parameters), fields)
        for module in (mapstyle, iterable):
            self.assertEqual(module.data_format_default(b"x"), b"x")
            self.assertEqual((module.FORK, module.CREATE), ("fork", "storage.objects.create"))

    def test_settings(self):
        for module in (mapstyle, iterable):
            config = module.Config()
            self.assertEqual(
                (config.sort_listing_results, config.max_composite_object_size, config.prefix),
                (False, 100000000, None),
            )
            self.assertEqual((config.num_processes, config.max_listing_retries), (os.cpu_count(), 3))
            self.assertEqual(module.Config(disable_compose=True).max_composite_object_size, 0)
        self.assertEqual(mapstyle.Config().threads_per_process, 1)


class Datasets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        endpoint, ca = cls.enterClassContext(support.emulator())
        cls.client = cls.enterClassContext(ringest.Client(endpoint, ca))
        cls.endpoint, cls.ca = endpoint, ca
        for index in INDICES:
            cls.put(f"small/{index:04d}", b"%d" % index)

    @classmethod
    def put(cls, name, data):
        cls.client.put("gs://data/" + name, data)

    def dataset(self, kind, prefix, data_format_fn=dataflux.data_format_default, **options):
        config = inspect.getmodule(kind).Config(prefix=prefix, **options)
        return kind("project", "data", config, data_format_fn, self.client)

    def test_samples_are_bytes_in_the_order_of_names(self):
        for kind in KINDS:
            dataset = self.dataset(kind, "x-")
            self.assertEqual(dataset.objects, [(support.name(i), support.SIZE) for i in INDICES])
            got = samples(dataset)
            self.assertTrue(all(type(data) is bytes for data in got))
            for index in (0, 7, support.COUNT - 1):
                self.assertEqual(got[index], bytes(self.client.get(support.uri(index))))
            self.assertEqual(samples(self.dataset(kind, "small/", support.take_number)), INDICES)

    def test_by_index(self):
        dataset = self.dataset(mapstyle.DataFluxMapStyleDataset, "small/", support.take_number)
        self.assertEqual(len(dataset), support.COUNT)
        self.assertEqual((dataset[3], dataset[-1]), (3, support.COUNT - 1))
        self.assertEqual(dataset.__getitems__([5, 1, 5]), [5, 1, 5])
        self.assertEqual(dataset.__getitems__([]), [])
        with self.assertRaises(IndexError):
            dataset[support.COUNT]

    def test_the_objects_may_be_changed(self):
        for kind in KINDS:
            dataset = self.dataset(kind, "small/", support.take_number)
            dataset.objects = dataset.objects[2:9:3]
            self.assertEqual(samples(dataset), [2, 5, 8])
            dataset.objects.reverse()
            self.assertEqual(samples(dataset), [8, 5, 2])

    def test_what_was_replaced_comes_as_it_is_now(self):
        for kind in KINDS:
            self.put("replaced", b"1")
            dataset = self.dataset(kind, "replaced", support.take_number)
            self.put("replaced", b"2" * 9)
            self.assertEqual((dataset.objects, samples(dataset)), ([("replaced", 1)], [222222222]))

    def test_which_objects_there_are(self):
        for name in (
            "which/",
            "which/b",
            "which/sub/",
            "which/sub/a",
            "dataflux-composed-objects/1",
        ):
            self.put(name, b"1")
        for kind in KINDS:
            names = [name for name, _ in self.dataset(kind, "which").objects]
            self.assertEqual(names, ["which/b", "which/sub/a"])
            self.assertEqual(samples(self.dataset(kind, "dataflux-composed-objects/")), [])
            self.assertEqual(self.dataset(kind, "nothing").objects, [])
            everything = {name.split("/")[0] for name, _ in self.dataset(kind, None).objects}
            self.assertFalse(everything & {"dataflux-composed-objects"})
            self.assertTrue({"small", "which"} <= everything)

    def test_empty_objects_and_odd_names(self):
        for name in ("odd/", "odd/a b", "odd/ha#sh?x&y", "odd/uni\N{SNOWMAN}", "odd//two"):
            self.put(name, b"")
        for kind in KINDS:
            dataset = self.dataset(kind, "odd/")
            self.assertEqual(len(dataset.objects), 4)
            self.assertEqual(samples(dataset), [b""] * 4)

    def test_gzip_is_undone_only_where_the_server_names_it(self):
        content = b"content " * 1000
        packed = gzip.compress(content)
        query = urllib.parse.urlencode({"uploadType": "media", "name": "gzip/named", "contentEncoding": "gzip"})
        with support.emulator("--plain") as (endpoint, _), ringest.Client(endpoint) as client:
            request = urllib.request.Request(f"{endpoint}/upload/storage/v1/b/data/o?{query}", packed, method="POST")
            urllib.request.urlopen(request).close()
            client.put("gs://data/gzip/plain.gz", packed)
            self.assertEqual([item.is_gzip for item in self.items(client, "named", "plain.gz")], [True, False])
            for kind in KINDS:
                config = inspect.getmodule(kind).Config(prefix="gzip/")
                dataset = kind("project", "data", config, storage_client=client)
                self.assertEqual(samples(dataset), [content, packed])

    def items(self, client, *names):
        uris = ["gs://data/gzip/" + name for name in names]
        return [item for batch in client.get_many(uris, ordered=True) for item in batch]

    def test_what_cannot_be_read_raises(self):
        for kind in KINDS:
            with self.assertRaises(ringest.NotFoundError):
                kind("project", "absent", storage_client=self.client)
            dataset = self.dataset(kind, "small/", support.take_number)
            dataset.objects[4] = ("small/gone", 1)
            with self.assertRaisesRegex(ringest.NotFoundError, "small/gone"):
                samples(dataset)
            with self.assertRaises(TypeError):
                kind("project", "data", storage_client="client")

    def test_what_the_format_raises_is_not_wrapped(self):
        class Mine(Exception):
            pass

        for kind in KINDS:
            with self.assertRaises(Mine) as caught:
                samples(self.dataset(kind, "small/", mock.Mock(side_effect=Mine)))
            self.assertRegex(caught.exception.__notes__[0], "gs://data/small/")

    def test_the_client_by_the_environment(self):
        script = """if True:
            from ringest.dataflux import dataflux_mapstyle_dataset as mapstyle
            config = mapstyle.Config(prefix="small/")
            print(len(mapstyle.DataFluxMapStyleDataset("project", "data", config)))
        """
        place = {"STORAGE_EMULATOR_HOST": self.endpoint, "SSL_CERT_FILE": self.ca}
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, **place},
            stdout=subprocess.PIPE,
            check=True,
        )
        self.assertEqual(int(done.stdout), support.COUNT)

    def test_pickled(self):
        for kind in KINDS:
            dataset = pickle.loads(pickle.dumps(self.dataset(kind, "small/", support.take_number)))
            self.assertEqual(samples(dataset), INDICES)

    def test_leaving_early_gives_everything_back(self):
        for _ in range(3):
            stream = iter(self.dataset(iterable.DataFluxIterableDataset, "x-"))
            next(stream)
            stream.close()
        self.assertEqual(self.client.stats()["leased_bytes"], 0)

    def test_ranks_are_not_told_apart(self):
        with mock.patch.dict(os.environ, RANK="1", WORLD_SIZE="2"):
            self.assertEqual(
                samples(self.dataset(iterable.DataFluxIterableDataset, "small/", support.take_number)),
                INDICES,
            )

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_in_every_kind_of_worker(self):
        for kind in KINDS:
            dataset = self.dataset(kind, "small/", support.take_number)
            self.assertIsInstance(dataset, torch.utils.data.Dataset)
            for workers, context in ((0, None), (3, "fork"), (1, "spawn"), (2, "forkserver")):
                # The parent has connections and threads when it forks.
                self.client.get("gs://data/small/0000")
                loader = torch.utils.data.DataLoader(
                    dataset,
                    batch_size=20,
                    collate_fn=list,
                    num_workers=workers,
                    multiprocessing_context=context,
                )
                with self.subTest(kind=kind, workers=workers, context=context):
                    self.assertEqual(sorted(sum(loader, [])), INDICES)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_each_worker_has_one_part(self):
        dataset = self.dataset(iterable.DataFluxIterableDataset, "small/", support.take_number)
        dataset.objects = dataset.objects[:11]
        loader = torch.utils.data.DataLoader(dataset, batch_size=100, collate_fn=list, num_workers=4)
        self.assertEqual(list(loader), [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]])
        dataset.objects = dataset.objects[:5]
        self.assertEqual(list(loader), [[0, 1], [2, 3], [4]])


class Session:
    verify = True


class Anonymous:
    quota_project_id = None


class Tokens:
    """Credentials of google-auth whose tokens are good for some looks at them."""

    quota_project_id = "payer"

    def __init__(self, uses):
        self.uses, self.left, self.count, self.token = uses, 0, 0, None

    @property
    def valid(self):
        self.left -= 1
        return self.left >= 0

    def refresh(self, request):
        self.count += 1
        self.left, self.token = self.uses, f"token-{self.count}"


class GoogleClient:
    """As much of google.cloud.storage.Client as is looked at."""

    def __init__(self, endpoint, ca, credentials):
        self.api_endpoint, self._credentials = endpoint, credentials
        self._http = Session()
        self._http.verify = ca or True

    def __reduce__(self):
        raise pickle.PicklingError("clients do not pickle")


def google_modules():
    modules = {name: mock.MagicMock() for name in ("google", "google.auth", "google.auth.transport")}
    modules["google.auth.credentials"] = mock.Mock(AnonymousCredentials=Anonymous)
    modules["google.auth.transport.requests"] = mock.Mock()
    return mock.patch.dict("sys.modules", modules)


class GoogleClients(unittest.TestCase):
    def dataset(self, kind, client):
        return kind("project", "data", data_format_fn=len, storage_client=client)

    def test_endpoint_and_certificates_are_taken_over(self):
        with google_modules(), support.emulator() as (endpoint, ca):
            client = GoogleClient(endpoint, ca, Anonymous())
            for kind in KINDS:
                dataset = self.dataset(kind, client)
                self.assertIs(dataset.storage_client, client)
                self.assertEqual(samples(dataset), [support.SIZE] * support.COUNT)
                other = pickle.loads(pickle.dumps(dataset))
                self.assertIsNone(other.storage_client)
                self.assertEqual(samples(other), [support.SIZE] * support.COUNT)

    def test_tokens_are_renewed_in_the_middle_of_an_epoch(self):
        with google_modules(), support.emulator() as (endpoint, ca):
            for uses, count in ((1, 200), (3, 300)):
                credentials = Tokens(uses)
                dataset = self.dataset(iterable.DataFluxIterableDataset, GoogleClient(endpoint, ca, credentials))
                dataset.objects = dataset.objects[:count]
                dataset.data_format_fn = lambda data: data
                with ringest.Client(endpoint, ca) as client:
                    wanted = [bytes(client.get(support.uri(i))) for i in range(count)]
                self.assertEqual(list(dataset), wanted)
                self.assertGreater(credentials.count, 2)


if __name__ == "__main__":
    unittest.main()
