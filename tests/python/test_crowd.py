"""One client and its datasets, used in every way at once: threads that iterate and event loops that await, reads of
checkpoints, windows of get_many, writers, and Buffers that one thread gets and another releases.

model/threads looks for the sequence of calls that harms; here all kinds meet, over TLS, on several event loops. What is
used after it is freed is seen by the address sanitizer."""

import asyncio
import contextlib
import ctypes
import gc
import os
import queue
import random
import threading
import traceback
import unittest

import ringest
import ringest.checkpoint
import support

try:
    import uvloop
except ImportError:
    uvloop = None

ROUNDS = int(os.environ.get("RINGEST_ROUNDS") or 3)
COUNT = 200
SIZE = 3000
# Larger than what a reader of checkpoints asks for at once.
LARGE = 6 << 20
NAMES = [f"x-{i:08d}" for i in range(COUNT)]
# A checkpoint's reads that are awaited at once.
READS = 24


def index_of(item):
    return item.index


class Crowd:
    """Threads that begin together. The first failure of each is kept."""

    def __init__(self):
        self.failures = []
        self._threads = []
        self._works = []

    def add(self, work, *arguments):
        self._works.append((work, arguments))

    def add_loop(self, main, *arguments, factory=None):
        def run():
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(main(*arguments))

        self.add(run)

    def run(self):
        barrier = threading.Barrier(len(self._works))

        def run(work, arguments):
            try:
                barrier.wait()
                work(*arguments)
            except BaseException:
                self.failures.append(traceback.format_exc())

        threads = [threading.Thread(target=run, args=each) for each in self._works]
        self._works.clear()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not self.failures, "\n".join(self.failures)


class Shared(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.place = cls.stack.enter_context(
            support.emulator("--latency-ms", "1:4", "--synthetic", f"crowd/x-:{COUNT}:{SIZE}", "--bucket", "crowd")
        )
        if uvloop is not None:
            uvloop.new_event_loop().close()  # the first one opens what all of the process share
        cls.large = random.Random(support.SEED).randbytes(LARGE)
        with ringest.Client(*cls.place) as client:
            cls.bodies = [bytes(client.get(f"gs://crowd/{name}")) for name in NAMES]
            client.put("gs://mine/checkpoint", cls.large)

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def setUp(self):
        self.client = self.enterContext(ringest.Client(*self.place, threads=2, connections=32))
        self.crowd = Crowd()
        # Buffers on their way from the thread that got them to one that releases them.
        self.given = queue.SimpleQueue()
        self.names = iter(range(1 << 30))

    def dataset(self, **options):
        entries = [(name, SIZE, 0) for name in NAMES]
        return ringest.IterableDataset("gs://crowd/", client=self.client, manifest=entries, requests=16, **options)

    def check_epoch(self, samples, ordered):
        self.assertEqual(sorted(samples) if not ordered else samples, list(range(COUNT)))

    # What a thread does.

    def iterate(self, dataset, ordered):
        for _ in range(ROUNDS):
            self.check_epoch([index for batch in dataset for index in batch], ordered)

    async def iterate_awaited(self, dataset, ordered):
        async def epoch():
            self.check_epoch([index async for batch in dataset for index in batch], ordered)

        for _ in range(ROUNDS):
            await asyncio.gather(epoch(), epoch())

    async def leave_awaited(self, dataset):
        """Tasks that are cancelled at any await."""
        for number in range(8 * ROUNDS):

            async def some():
                async for _ in dataset:
                    pass

            task = asyncio.create_task(some())
            for _ in range(number % 8):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def look(self, *datasets):
        for _ in range(20 * ROUNDS):
            for dataset in datasets:
                dataset.state_dict()
            self.client.stats()
            ringest.stats()

    async def read_checkpoint(self, seed):
        """Reads of one file by tasks of one loop; some are cancelled, and then nothing writes to their memory."""
        chance = random.Random(support.SEED + seed)

        async def read(file, is_cancelled):
            offset, memory = chance.randrange(LARGE), bytearray(chance.choice((100, 70_000, 1 << 20)))
            task = asyncio.create_task(file.readinto(memory, offset))
            if is_cancelled:
                await asyncio.sleep(0)
                task.cancel()
            try:
                got = await task
            except asyncio.CancelledError:
                memory.clear()  # it would refuse to while somebody has its bytes
                return
            assert memory[:got] == self.large[offset : offset + got]
            assert got == min(len(memory), LARGE - offset)

        for _ in range(ROUNDS):
            async with await ringest.checkpoint.aopen("gs://mine/checkpoint", client=self.client) as file:
                await asyncio.gather(*(read(file, number % 4 == 0) for number in range(READS)))
                assert await file.read() == self.large

    def get_many(self, ordered):
        for _ in range(ROUNDS):
            indices = []
            for items in self.client.get_many((f"gs://crowd/{name}" for name in NAMES), ordered=ordered, batch=9):
                for item in items:
                    assert item.error is None, item.error
                    indices.append(item.index)
                    self.given.put((item.index, item.data))
            self.check_epoch(indices, ordered)

    async def get_awaited(self):
        for _ in range(ROUNDS):

            async def get(index):
                self.given.put((index, await self.client.aget(f"gs://crowd/{NAMES[index]}")))

            await asyncio.gather(*map(get, range(COUNT)))

    def release(self, count, others):
        """Looks at Buffers by each way there is, hands their views on to another thread, and drops them."""
        release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        for number in range(count):
            index, data = self.given.get()
            view = memoryview(data)
            assert view == self.bodies[index]
            if number % 3 == 0:
                address, deleter = support.consumed(data.__dlpack__())
                others.put(lambda address=address, deleter=deleter: release(deleter)(address))
            elif number % 3 == 1:
                others.put(view[5:50].release)
            del data, view
            with contextlib.suppress(queue.Empty):
                others.get_nowait()()

    def write(self, size):
        for number in range(2 * ROUNDS):
            uri = f"gs://mine/w-{next(self.names)}"
            piece = random.Random(number).randbytes(size)
            with self.client.writer(uri, part_size="5MiB") as writer:
                for place in range(6):
                    writer.write(piece, borrow=place % 2 == 0)
            assert self.client.get(uri) == piece * 6

    async def write_awaited(self, size):
        async def write(number):
            uri = f"gs://mine/a-{next(self.names)}"
            piece = random.Random(number).randbytes(size)
            async with self.client.awriter(uri) as writer:
                for _ in range(4):
                    await writer.write(piece)
            assert await self.client.aget(uri) == piece * 4

        for _ in range(ROUNDS):
            await asyncio.gather(*map(write, range(3)))

    # What happens together.

    def test_everything_at_once(self):
        files = support.files_open()
        datasets = {
            ordered: self.dataset(ordered=ordered, batch_size=7, transform=index_of) for ordered in (True, False)
        }
        factories = [None, uvloop.new_event_loop if uvloop is not None else None]
        for ordered, dataset in datasets.items():
            self.crowd.add(self.iterate, dataset, ordered)
            self.crowd.add(self.get_many, ordered)
            for factory in factories:
                self.crowd.add_loop(self.iterate_awaited, dataset, ordered, factory=factory)
        for factory in factories:
            self.crowd.add_loop(self.read_checkpoint, len(factories), factory=factory)
            self.crowd.add_loop(self.get_awaited, factory=factory)
            self.crowd.add_loop(self.leave_awaited, datasets[False], factory=factory)
        self.crowd.add_loop(self.write_awaited, 100_000)
        for size in (1000, 2 << 20):
            self.crowd.add(self.write, size)
        self.crowd.add(self.look, *datasets.values())
        others = queue.SimpleQueue()
        for _ in range(2):
            self.crowd.add(self.release, 2 * ROUNDS * COUNT, others)
        self.crowd.run()
        while not others.empty():
            others.get()()
        del datasets, others
        gc.collect()
        stats = self.client.stats()
        self.assertEqual((stats["leased_bytes"], stats["in_flight"]), (0, 0))
        self.client.close()
        self.assertEqual(support.files_open(), files)

    def test_a_client_that_is_closed_among_them(self):
        """What has begun ends, or says that the client is closed; nothing waits for ever, and nothing is left."""
        allowed = ("closed", "CLOSED", "CANCELLED")

        def tolerant(work):
            def run(*arguments):
                try:
                    work(*arguments)
                except (ValueError, RuntimeError, ringest.Error, ExceptionGroup) as error:
                    text = f"{error} {getattr(error, 'exceptions', '')} {getattr(error, 'status', '')}"
                    assert any(word in text for word in allowed), text

            return run

        def in_loop(main):
            def run(*arguments):
                with asyncio.Runner() as runner:
                    runner.run(main(*arguments))

            return run

        files = support.files_open()
        for turn in range(2 * ROUNDS):
            self.client = ringest.Client(*self.place, threads=2, connections=16)
            dataset = self.dataset(ordered=False, batch_size=7, transform=index_of)
            self.crowd.add(tolerant(self.iterate), dataset, False)
            self.crowd.add(tolerant(in_loop(self.iterate_awaited)), dataset, False)
            self.crowd.add(tolerant(in_loop(self.read_checkpoint)), turn)
            self.crowd.add(tolerant(self.get_many), turn % 2 == 0)
            self.crowd.add(tolerant(in_loop(self.get_awaited)))
            self.crowd.add(tolerant(self.write), 100_000)
            self.crowd.add(self.close_after, 40 * turn)
            self.crowd.run()
            while not self.given.empty():
                self.given.get()
            del dataset
            gc.collect()
        self.assertEqual(support.files_open(), files)

    def close_after(self, requests):
        support.until(lambda: self.client.stats()["requests"] >= requests, f"{requests} requests")
        self.client.close()


if __name__ == "__main__":
    unittest.main()
