"""Whatever waits for memory that Buffers of the process hold ends with a MemoryError at the limit."""

import asyncio
import contextlib
import gc
import io
import tarfile
import threading
import unittest

import ringest
import ringest.checkpoint
import support
from ringest import _core

SIZE = 1 << 20
LIMIT_S = 0.1
# Far above the limit, and above what a busy machine takes to notice it.
PATIENCE_S = 60


def uri(index, kind="large"):
    return f"gs://{kind}/x-{index:08d}"


class Full(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        made = ("--synthetic", f"large/x-:40:{SIZE}", "--synthetic", "small/x-:5000:100")
        cls.endpoint, cls.ca = cls.stack.enter_context(support.emulator(*made))
        with ringest.Client(cls.endpoint, cls.ca) as client:
            client.put("gs://mine/there", b"there")
            shard = io.BytesIO()
            with tarfile.open(fileobj=shard, mode="w") as tar:
                tar.addfile(tarfile.TarInfo("a.txt"))
            client.put("gs://mine/shard.tar", shard.getvalue())
            cls.stat = client.stat("gs://mine/shard.tar")

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def setUp(self):
        self.client = ringest.Client(self.endpoint, self.ca, threads=1, memory="8MiB", memory_timeout=LIMIT_S)
        self.addCleanup(self.client.close)
        self.kept = []
        for kind, count in (("large", 40), ("small", 5000)):
            with self.assertRaisesRegex(MemoryError, "still referred to.*memory="):
                for index in range(count):
                    self.kept.append(self.client.get(uri(index, kind)))

    def calls(self):
        client = self.client
        objects = _core.Objects("large", [(f"x-{i:08d}", SIZE, 0) for i in range(40)])

        def write(size):
            with client.writer("gs://mine/written", part_size="5MiB", parts_in_flight=2) as writer:
                for _ in range(size >> 20):
                    writer.write(bytes(1 << 20))

        def read(size):
            reader = _core.ObjectReader(client, uri(0))
            try:
                return reader.read_at(0, bytearray(size))
            finally:
                reader.close()

        def awaited(call):
            async def main():
                return await call()

            return lambda: asyncio.run(main())

        async def batches():
            return [items async for items in client.aget_many(map(uri, range(40)))]

        async def gathered():
            return await asyncio.gather(*(client.aget(uri(i)) for i in range(10)))

        there = "gs://mine/there"
        return {
            "get": lambda: client.get(uri(0)),
            "get of a part": lambda: client.get(uri(0), offset=5, length=10),
            "get_ranges": lambda: client.get_ranges(uri(0), [(0, 10), (500000, 10)]),
            "get_into": lambda: client.get_into(uri(0), [(0, bytearray(100)), (SIZE - 10, bytearray(10))]),
            "get_into of all": lambda: client.get_into(uri(0), [(0, bytearray(SIZE))]),
            "get_many": lambda: list(client.get_many(map(uri, range(40)))),
            "get_many in order": lambda: list(client.get_many(map(uri, range(40)), ordered=True)),
            "put": lambda: client.put(there, b"there"),
            "put in parts": lambda: client.put(there, bytes(20 << 20)),
            "put_many": lambda: client.put_many([(f"gs://mine/{i}", b"") for i in range(200)]),
            "delete": lambda: client.delete(["gs://mine/nothing"], missing_ok=True),
            "delete of many": lambda: client.delete([f"gs://mine/no-{i}" for i in range(1000)], missing_ok=True),
            "stat": lambda: client.stat(there),
            "copy": lambda: client.copy(there, "gs://mine/copy"),
            "list": lambda: client.list("gs://large/"),
            "list_folder": lambda: client.list_folder("gs://large/"),
            "list_uploads": lambda: client.list_uploads("gs://mine/"),
            "aget": awaited(lambda: client.aget(uri(0))),
            "aget of many": awaited(gathered),
            "aget_many": awaited(batches),
            "aput": awaited(lambda: client.aput(there, b"there")),
            "adelete": awaited(lambda: client.adelete([f"gs://mine/no-{i}" for i in range(300)], missing_ok=True)),
            "alist": awaited(lambda: client.alist("gs://large/")),
            "writer": lambda: write(1 << 20),
            "writer of parts": lambda: write(30 << 20),
            "reader of a small piece": lambda: read(100),
            "reader of a large piece": lambda: read(SIZE),
            "checkpoint": lambda: ringest.checkpoint.open(uri(0), client=client).read(),
            "Reader": lambda: _core.Reader(client, objects).take(3),
            "IterableDataset": lambda: list(ringest.IterableDataset("gs://large/", client=client, manifest=objects)),
            "MapDataset": lambda: ringest.MapDataset("gs://large/", client=client, manifest=objects)[3],
            "scan": lambda: _core.TarIndex.scan(client, "mine", [("shard.tar", self.stat["size"], 0)]),
        }

    def ends(self, call):
        """What becomes of a call, which does not wait for ever."""
        outcome = []

        def run():
            try:
                call()
                outcome.append(None)
            except BaseException as error:
                error.__traceback__ = None
                outcome.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        self.assertTrue(outcome, "it still waits")
        return outcome[0]

    def test_every_wait_ends(self):
        raised = {}
        for name, call in self.calls().items():
            with self.subTest(name):
                error = raised[name] = self.ends(call)
                self.assertIsInstance(error, MemoryError | None)
        without = {name for name, error in raised.items() if error is None}
        # These have places of their own for all that they need.
        self.assertLessEqual(without, {"put in parts", "reader of a large piece", "writer", "writer of parts"})
        held = self.client.stats()["held_bytes"]
        self.assertEqual(held, sum(map(len, self.kept)))
        self.kept.clear()
        gc.collect()
        self.assertEqual(self.client.stats()["leased_bytes"], 0)
        self.assertEqual(len(self.client.get(uri(0))), SIZE)

    def test_a_wait_goes_on_when_memory_comes_back_in_time(self):
        patient = ringest.Client(self.endpoint, self.ca, threads=1, memory="8MiB", memory_timeout=PATIENCE_S)
        with patient:
            kept = []
            while patient.stats()["held_bytes"] < 3 << 20:
                kept.append(patient.get(uri(0)))
            got = []
            thread = threading.Thread(target=lambda: got.extend(patient.get(uri(i)) for i in range(3)))
            thread.start()
            while not patient.stats()["lease_waits"]:
                pass
            kept.clear()
            thread.join()
            self.assertEqual([len(data) for data in got], [SIZE] * 3)


if __name__ == "__main__":
    unittest.main()
