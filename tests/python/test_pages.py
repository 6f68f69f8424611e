"""Lists whose pages come empty at random, with a token: nothing is missed by whatever goes through them."""

import asyncio
import ssl
import unittest
import urllib.request

import ringest
import ringest.fs
from support import SEED, Rule, emulator

NAMES = ["a", "a/1", "a/2/x", "b", "c/1", "d"]
SEEDS = [SEED + each for each in range(4)]


def begin_upload(place, name):
    """One in parts, by other means than ours."""
    request = urllib.request.Request(f"{place[0]}/bucket/{name}?uploads", data=b"", method="POST")
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=place[1])) as answer:
        assert answer.status == 200


class Pages(unittest.TestCase):
    def setUp(self):
        self.place = self.enterContext(emulator())
        self.client = self.enterContext(ringest.Client(*self.place))
        self.client.put_many((f"gs://bucket/{name}", name.encode()) for name in NAMES)

    def seeds(self):
        for seed in SEEDS:
            members = {"method": "storage.objects.list", "effect": "empty", "times": 10**6, "one_in": 2}
            with self.subTest(seed), Rule(self.place, seed=seed, **members):
                yield seed

    def names(self, objects):
        return [name for name, _, _ in objects]

    def test_lists(self):
        async def alist():
            return await self.client.alist("gs://bucket/")

        for _ in self.seeds():
            self.assertEqual(self.names(self.client.list("gs://bucket/")), NAMES)
            self.assertEqual(self.names(asyncio.run(alist())), NAMES)
            objects, folders = self.client.list_folder("gs://bucket/")
            self.assertEqual((self.names(objects), list(folders)), (["a", "b", "d"], ["a/", "c/"]))
            # Folders alone, and one of them.
            self.assertEqual(list(self.client.list_folder("gs://bucket/c", limit=1)[1]), ["c/"])

    def test_uploads(self):
        for name in ("up", "uq", "uq", "ur"):
            begin_upload(self.place, name)
        for _ in self.seeds():
            self.assertEqual(
                [name for name, _, _ in self.client.list_uploads("gs://bucket/")], ["up", "uq", "uq", "ur"]
            )

    def test_datasets(self):
        for _ in self.seeds():
            read = ringest.IterableDataset("gs://bucket/", client=self.client)
            self.assertEqual(sorted(bytes(each).decode() for each in read), NAMES)
            self.assertEqual(len(ringest.MapDataset("gs://bucket/", client=self.client)), len(NAMES))

    def test_file_systems(self):
        fs = ringest.fs.FileSystem(client=self.client, skip_instance_cache=True, use_listings_cache=False)
        for _ in self.seeds():
            self.assertEqual(sorted(fs.find("bucket")), [f"bucket/{name}" for name in NAMES])
            self.assertTrue(fs.isdir("gs://bucket/c"))
            self.assertTrue(fs.exists("gs://bucket/a/2"))
            self.assertEqual(len(fs.ls("gs://bucket")), 5)

    def test_removing(self):
        fs = ringest.fs.FileSystem(client=self.client, skip_instance_cache=True, use_listings_cache=False)
        for seed in self.seeds():
            self.client.put_many((f"gs://other/{seed}/{name}", b"") for name in NAMES)
            fs.rm(f"gs://other/{seed}", recursive=True)
            self.assertEqual(self.names(self.client.list(f"gs://other/{seed}")), [])


if __name__ == "__main__":
    unittest.main()
