"""`async for batch in dataset`: the same as `for`, awaited; what was yielded, and no more, is consumed."""

import asyncio
import contextlib
import gc
import io
import itertools
import os
import pickle
import signal
import tarfile
import threading
import unittest

import ringest
import ringest.dataset
import support
from rules import Forked

try:
    import uvloop
except ImportError:
    uvloop = None

COUNT = 60
KINDS = [
    dict(zip(("batch_size", "ordered", "shuffle"), kind))
    for kind in itertools.product((None, 1, 7, 100), (True, False), (True, False))
]
# Bodies of objects are not answered.
HELD = {"bucket": "own", "target": "alt=media", "times": 100_000, "effect": "none", "answer": "held"}


class Stopped(BaseException):
    """What a handler of signals raises."""


def name(index):
    return f"o-{index:04d}"


def number(item):
    return int(bytes(item.data))


def numbers(samples):
    """Of what was yielded: Buffers, or what transforms made; batches or not."""
    flat = [one for sample in samples for one in (sample if isinstance(sample, list) else [sample])]
    return [one if isinstance(one, int) else int(bytes(one)) for one in flat]


async def collect(dataset):
    return [batch async for batch in dataset]


class Datasets(unittest.TestCase):
    loop_factory = None

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.place = cls.stack.enter_context(support.emulator())
        cls.client = cls.stack.enter_context(ringest.Client(*cls.place, hedging=False))
        cls.client.put_many((f"gs://own/{name(i)}", b"%d" % i) for i in range(COUNT))
        for shard in range(3):
            file = io.BytesIO()
            with tarfile.open(fileobj=file, mode="w") as archive:
                for i in range(20 * shard, 20 * shard + 20):
                    info = tarfile.TarInfo(f"{i:04d}.txt")
                    info.size = len(b"%d" % i)
                    archive.addfile(info, io.BytesIO(b"%d" % i))
            cls.client.put(f"gs://tar/train-{shard}.tar", file.getvalue())

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def run_in_loop(self, main):
        with asyncio.Runner(loop_factory=self.loop_factory) as runner:
            return runner.run(main)

    def dataset(self, **options):
        options.setdefault("client", self.client)
        options.setdefault("manifest", [name(i) for i in range(COUNT)])
        return ringest.IterableDataset("gs://own/", **{"transform": number, **options})

    def going_on(self, dataset, **options):
        """What is left, by way of a checkpoint."""
        other = self.dataset(**options)
        other.load_state_dict(pickle.loads(pickle.dumps(dataset.state_dict())))
        return numbers(other)

    def check_all_once(self, got):
        self.assertEqual(sorted(got), list(range(COUNT)))


class Iterations(Datasets):
    def check_equal(self, make):
        """Two epochs, and the states at their ends."""
        one, other = make(), make()
        for epoch in range(2):
            one.set_epoch(epoch)
            other.set_epoch(epoch)
            expected = list(one)
            got = self.run_in_loop(collect(other))
            if one._ordered:
                self.assertEqual(list(map(numbers, ([x] for x in got))), list(map(numbers, ([x] for x in expected))))
                self.assertEqual(other.state_dict(), one.state_dict())
            else:
                self.assertEqual(sorted(numbers(got)), sorted(numbers(expected)))
                sizes = [[len(batch) for batch in which if isinstance(batch, list)] for which in (got, expected)]
                self.assertEqual(*sizes)
            self.assertEqual((len(got), other.skipped), (len(expected), one.skipped))

    def test_they_are_those_of_the_synchronous_one(self):
        def odd(item):
            if number(item) % 2 == 0:
                raise KeyError("even")
            return number(item)

        def leave_out(item, error):
            return ringest.SKIP

        for kind in KINDS:
            for more in ({}, {"transform": None}, {"transform": odd, "on_error": leave_out}, {"requests": 2}):
                with self.subTest(**kind, **more):
                    self.check_equal(lambda: self.dataset(**{"seed": 5, **kind, **more}))

    def test_ranks_and_states(self):
        for rank in range(3):
            self.check_equal(lambda: self.dataset(rank=rank, world_size=3, batch_size=4, remainder="pad"))
        dataset = self.dataset(batch_size=7, shuffle=True)
        whole = list(dataset)
        dataset = self.dataset(batch_size=7, shuffle=True)
        it = iter(dataset)
        got = [next(it), next(it)]
        dataset.load_state_dict(dataset.state_dict())
        self.assertEqual(got + self.run_in_loop(collect(dataset)), whole)

    def test_tar(self):
        def text(sample):
            return int(bytes(sample["txt"]))

        for kind in KINDS:
            for more in ({"transform": text}, {"transform": text, "members": ["txt"], "coalesce": 1}):
                with self.subTest(**kind, **more):
                    self.check_equal(lambda: ringest.TarDataset("gs://tar/", client=self.client, **kind, **more))

        async def main():
            dataset = ringest.TarDataset("gs://tar/", client=self.client, batch_size=3)
            return [[(one["__key__"], bytes(one["txt"])) for one in batch] async for batch in dataset]

        batches = self.run_in_loop(main())
        self.assertEqual(batches[0], [(f"{i:04d}", b"%d" % i) for i in range(3)])
        self.assertEqual(len(batches), 20)

    def test_samples_that_are_no_samples(self):
        """A transform may give anything, as tuples and exceptions, which a StopIteration takes apart."""
        for value in (None, (), (1, 2), StopIteration(3), KeyError(4), NotImplemented, []):

            async def main():
                got = []
                it = aiter(self.dataset(transform=lambda item: value))
                with contextlib.suppress(StopAsyncIteration):
                    while True:
                        got.append(await asyncio.create_task(anext(it)))
                return got + [one async for one in self.dataset(transform=lambda item: value)]

            got = self.run_in_loop(main())
            self.assertTrue(all(one is value for one in got))
            self.assertEqual(len(got), 2 * COUNT)

    def test_progress_counts_samples(self):
        for batch_size in (None, 7):
            shown = io.StringIO()
            with contextlib.redirect_stderr(shown):
                got = self.run_in_loop(collect(self.dataset(batch_size=batch_size, progress="mine")))
            self.check_all_once(numbers(got))

    def test_states_during_and_after(self):
        for kind in KINDS:
            dataset, got = self.dataset(**kind), []

            async def main():
                async for batch in dataset:
                    got.append(batch)
                    self.check_all_once(numbers(got) + self.going_on(dataset, **kind))

            with self.subTest(**kind):
                self.run_in_loop(main())
                self.assertEqual(self.going_on(dataset, **kind), [])

    def test_an_end_stays_the_end(self):
        async def main():
            it = aiter(self.dataset())
            self.assertIs(aiter(it), it)
            self.check_all_once([one async for one in it])
            for _ in range(2):
                self.assertEqual(await anext(it, "over"), "over")
            await it.aclose()
            await it.aclose()

        self.run_in_loop(main())

    def test_two_datasets_take_turns_and_two_iterations_of_one_are_independent(self):
        order = []

        async def consume(dataset, which):
            got = []
            async for batch in dataset:
                got.append(batch)
                order.append(which)
            return numbers(got)

        async def main():
            one, other = self.dataset(batch_size=2), self.dataset(shuffle=True)
            return await asyncio.gather(consume(one, 0), consume(other, 1), consume(one, 2))

        for got in self.run_in_loop(main()):
            self.check_all_once(got)
        self.assertEqual(set(order), {0, 1, 2})

    def test_others_run_though_samples_are_always_there(self):
        """A loop whose body takes long, without awaiting anything, does not keep its neighbours from running."""

        async def main():
            ran = asyncio.Event()
            dataset = self.dataset()
            it = aiter(dataset)
            await anext(it)
            asyncio.get_running_loop().call_soon(ran.set)
            async for _ in it:
                self.client.get(support.uri(0))
                if ran.is_set():
                    break
            else:
                self.fail("nothing else has run")
            await it.aclose()

        self.run_in_loop(main())


class Ends(Datasets):
    def setUp(self):
        self.run_in_loop(asyncio.sleep(0))  # the first loop of a process may keep descriptors for those to come

    @contextlib.contextmanager
    def leaving_nothing(self):
        """A client in whose `with` the work is done; then no descriptor and no thread may be left."""
        gc.collect()
        files, threads = support.files_open(), support.threads_running()
        with ringest.Client(*self.place, hedging=False) as client:
            self.client = client  # no other one opens connections meanwhile
            try:
                yield client
            finally:
                del self.client, client
        gc.collect()
        support.until(lambda: support.files_open() <= files, "the end of all descriptors")
        support.until(lambda: support.threads_running() <= threads, "the end of all threads")

    def check_rest(self, dataset, got, **options):
        self.check_all_once(numbers(got) + self.going_on(dataset, **options))

    def test_left_by_a_break(self):
        ways = itertools.product(KINDS, (0, 1, 3), (True, False))
        with self.leaving_nothing() as client:
            for kind, stop, closes in ways:
                dataset, got = self.dataset(client=client, **kind), []

                async def main():
                    it = aiter(dataset)
                    if stop > 0:
                        async for batch in it:
                            got.append(batch)
                            if len(got) == stop:
                                break
                    if closes:
                        await it.aclose()
                        self.assertEqual([one async for one in it], [])

                self.run_in_loop(main())
                self.check_rest(dataset, got, **kind)

    def test_an_iteration_of_which_nothing_was_asked(self):
        with self.leaving_nothing() as client:
            dataset = self.dataset(client=client)
            it = aiter(dataset)  # which needs no loop, and sends nothing
            self.assertEqual(client.stats()["requests"], 0)
            self.check_rest(dataset, [])
            del dataset, it

    def test_exceptions_of_a_body_and_of_a_transform(self):
        def transform(item):
            if armed and number(item) == 23:
                raise KeyError("mine")
            return number(item)

        with self.leaving_nothing() as client:
            for kind, armed in itertools.product(KINDS, (True, False)):
                dataset, got = self.dataset(client=client, transform=transform, **kind), []

                async def main():
                    it = aiter(dataset)
                    with self.assertRaisesRegex((KeyError, ringest.TransformError), "mine"):
                        async for batch in it:
                            got.append(batch)
                            if not armed and 23 in numbers([batch]):
                                raise KeyError("mine")
                    if armed:
                        with self.assertRaisesRegex(RuntimeError, "ended with .*mine"):
                            await anext(it)

                self.run_in_loop(main())
                self.check_rest(dataset, got, **kind)

    def test_an_object_that_is_gone(self):
        names = [name(i) for i in range(COUNT)] + ["missing"]
        for transform in (number, None):
            dataset, got = self.dataset(manifest=names, batch_size=10, transform=transform), []

            async def main():
                with self.assertRaisesRegex(ringest.NotFoundError, "gs://own/missing"):
                    async for batch in dataset:
                        got.append(batch)

            self.run_in_loop(main())
            self.check_all_once(numbers(got))

    def test_a_task_that_is_cancelled_while_it_waits_loses_nothing(self):
        """The same iteration goes on, and so does another one from its state."""
        for batch_size, goes_on in itertools.product((None, 7), (True, False)):
            with self.subTest(batch_size=batch_size, goes_on=goes_on), self.leaving_nothing() as client:
                kind = {"batch_size": batch_size, "requests": 4}
                dataset, got, states = self.dataset(client=client, **kind), [], []

                async def main():
                    it = aiter(dataset)
                    for _ in range(2):
                        got.append(await anext(it))
                    with support.Rule(self.place, **HELD) as rule:
                        while rule.state()["struck"] < 4:  # until the window is full of what does not come
                            task = asyncio.create_task(anext(it))
                            await asyncio.wait([task], timeout=support.INTERVAL_S)
                            task.cancel()
                            with contextlib.suppress(asyncio.CancelledError):
                                got.append(await task)
                        for _ in range(3):
                            task = asyncio.create_task(anext(it))
                            await asyncio.wait([task], timeout=support.INTERVAL_S)
                            task.cancel()
                            with contextlib.suppress(asyncio.CancelledError):
                                got.append(await task)
                            states.append((dataset.state_dict(), len(numbers(got))))
                        task = asyncio.create_task(anext(it))
                        await asyncio.sleep(support.INTERVAL_S)
                        with self.assertRaisesRegex(ValueError, "awaited already, by another task"):
                            await anext(it)
                        task.cancel()
                        with self.assertRaises(asyncio.CancelledError):
                            await task
                    if goes_on:
                        got.extend([batch async for batch in it])

                self.run_in_loop(main())
                self.assertEqual(len(states), 3)
                for state, count in states:
                    other = self.dataset()
                    other.load_state_dict(state)
                    self.assertEqual(list(other), list(range(count, COUNT)))
                if goes_on:
                    self.assertEqual(numbers(got), list(range(COUNT)))
                self.check_rest(dataset, got, batch_size=batch_size)

    def test_a_timeout_around_the_loop(self):
        with self.leaving_nothing() as client, support.Rule(self.place, **HELD):
            dataset = self.dataset(client=client)

            async def main():
                with self.assertRaises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await collect(dataset)

            self.run_in_loop(main())
        self.check_rest(dataset, [])

    def test_closed_while_another_task_awaits(self):
        with self.leaving_nothing() as client, support.Rule(self.place, **HELD) as rule:
            dataset = self.dataset(client=client)

            async def main():
                it = aiter(dataset)
                task = asyncio.create_task(anext(it))
                await asyncio.to_thread(rule.wait)
                await it.aclose()
                with self.assertRaisesRegex(ValueError, "closed while it was awaited"):
                    await task

            self.run_in_loop(main())

    def test_a_loop_that_is_closed_in_the_middle(self):
        """With a task that waits, which asyncio.run cancels, and whether or not somebody keeps the iteration."""
        for keeps in (True, False):
            with self.leaving_nothing() as client:
                dataset, got, kept = self.dataset(client=client, requests=4), [], []

                async def main():
                    it = aiter(dataset)
                    for _ in range(10):
                        got.append(await anext(it))
                    with support.Rule(self.place, **HELD) as rule:
                        task = asyncio.create_task(collect(it))
                        await asyncio.to_thread(rule.wait)
                        kept.extend([it, task] if keeps else [])

                # The rule ends with main, and what the task then gets to see is nobody's.
                self.run_in_loop(main())
                self.assertEqual(got, list(range(10)))
                dataset.state_dict()
                kept.clear()

    def test_another_loop_is_refused_where_it_would_wait(self):
        with self.leaving_nothing() as client, support.Rule(self.place, **HELD) as rule:
            its = [aiter(self.dataset(client=client))]

            async def wait():
                task = asyncio.create_task(anext(its[0]))
                await asyncio.to_thread(rule.wait)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task

            async def wait_again():
                with self.assertRaisesRegex(RuntimeError, "belongs to another event loop"):
                    await anext(its[0])

            self.run_in_loop(wait())
            self.run_in_loop(wait_again())
            its.clear()

    def test_a_client_that_is_closed_in_the_middle(self):
        """It stays open for what it has begun, as for the synchronous iteration."""
        for ways in ("for", "async for"):
            with self.leaving_nothing() as client:
                dataset = self.dataset(client=client, requests=4)

                async def main():
                    got = []
                    async for one in dataset:
                        got.append(one)
                        client.close()
                    return got

                def run():
                    got = []
                    for one in dataset:
                        got.append(one)
                        client.close()
                    return got

                self.check_all_once(self.run_in_loop(main()) if ways == "async for" else run())

    def test_fork(self):
        """The child leaves the iteration alone, and begins its own; the parent goes on."""
        with self.leaving_nothing() as client:
            dataset, got, its = self.dataset(client=client, requests=4, batch_size=2), [], []

            def check():
                step = anext(its[0])
                with self.assertRaisesRegex(OSError, "child of fork"):
                    for _ in range(2):  # the first one may give way to other tasks
                        step.send(None)
                del step
                its.clear()
                whole = []
                # The child may not touch its parent's loop, but may run another one.
                thread = threading.Thread(target=lambda: whole.extend(self.run_in_loop(collect(self.dataset()))))
                thread.start()
                thread.join()
                self.check_all_once(whole)

            async def main():
                its.append(aiter(dataset))
                async for batch in its[0]:
                    got.append(batch)
                    if len(got) == 3:
                        self.assertEqual(Forked(check).wait(), 0)

            self.run_in_loop(main())
            its.clear()
        self.check_all_once(numbers(got))

    def test_handlers_of_signals_that_raise(self):
        """In the loop's body, in the iteration, or between the two: nothing is lost or repeated."""
        files = [__file__, ringest.dataset.__file__]  # of what a loop calls back, asyncio catches it
        strikes = 0

        def handle(number, frame):
            nonlocal strikes
            if strikes == 0:
                return
            if frame.f_code.co_filename in files and frame.f_code.co_name != "handle":
                strikes -= 1
                raise Stopped
            signal.setitimer(signal.ITIMER_REAL, 1e-4)  # what is asyncio's own may not survive it

        before = signal.signal(signal.SIGALRM, handle)
        try:
            for kind in KINDS:
                got, ended, strikes = [], False, 10
                dataset = self.dataset(**kind)

                async def main():
                    nonlocal ended, strikes
                    signal.setitimer(signal.ITIMER_REAL, 2e-4)
                    async for batch in dataset:
                        got.append(batch)
                    ended, strikes = True, 0

                while not ended:
                    with contextlib.suppress(Stopped):
                        self.run_in_loop(main())
                    left, strikes = strikes, 0
                    state = pickle.dumps(dataset.state_dict())
                    dataset = self.dataset(**kind)
                    dataset.load_state_dict(pickle.loads(state))
                    strikes = left
                strikes = 0
                with self.subTest(**kind):
                    self.check_all_once(numbers(got))
        finally:
            strikes = 0
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def test_a_handler_of_the_loop_runs_while_it_waits(self):
        async def main():
            ran = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, ran.set)
            with support.Rule(self.place, **HELD) as rule:
                it = aiter(self.dataset())
                task = asyncio.create_task(anext(it))
                await asyncio.to_thread(rule.wait)
                os.kill(os.getpid(), signal.SIGUSR1)
                await ran.wait()
                self.assertFalse(task.done())
            self.assertEqual(await task, 0)
            self.assertEqual([one async for one in it], list(range(1, COUNT)))
            asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)

        self.run_in_loop(main())

    def test_collected_by_another_thread(self):
        with self.leaving_nothing() as client, support.Rule(self.place, **HELD) as rule:
            kept = []

            async def main():
                it = aiter(self.dataset(client=client))
                task = asyncio.create_task(anext(it))
                await asyncio.to_thread(rule.wait)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                kept.append(it)
                del it, task
                await asyncio.to_thread(kept.clear)
                await asyncio.sleep(0)

            self.run_in_loop(main())


if uvloop is not None:

    class IterationsOfUvloop(Iterations):
        loop_factory = staticmethod(uvloop.new_event_loop)

    class EndsOfUvloop(Ends):
        loop_factory = staticmethod(uvloop.new_event_loop)
        test_handlers_of_signals_that_raise = None  # what they raise stays in uvloop


if __name__ == "__main__":
    unittest.main()
