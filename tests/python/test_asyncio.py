"""Requests that are awaited: results, many at once, cancellation, several loops, and what is left."""

import asyncio
import datetime
import gc
import os
import random
import signal
import threading
import unittest

import ringest
import ringest.checkpoint
import support
from ringest import aio

try:
    import uvloop
except ImportError:
    uvloop = None

FILE, SIZE = "gs://new/file", 1_000_000
# Bodies of objects are not answered.
HELD = {"bucket": "new", "target": "alt=media", "times": 1000, "effect": "none", "answer": "held"}
# Answers that no test waits for.
NEVER = ("--latency-ms", "600000")


def run(main, loop_factory=None):
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main)


async def until_awaited(ask):
    """Asks again and again until the answer is true, and gives it."""
    async with asyncio.timeout(support.PATIENCE_S):
        while not (answer := await ask()):
            await asyncio.sleep(support.INTERVAL_S)
    return answer


async def until(condition):
    async def ask():
        return condition()

    await until_awaited(ask)


class Awaited(unittest.TestCase):
    loop_factory = None

    def run_with_client(self, main, *arguments, **options):
        async def opened():
            with support.emulator(*arguments) as (endpoint, ca):
                async with ringest.Client(endpoint, ca, **options) as client:
                    return await main(client)

        return run(opened(), self.loop_factory)

    def run_with_place(self, main):
        """Gives it the endpoint and certificate, too, for rules."""

        async def opened():
            with support.emulator() as place:
                async with ringest.Client(*place, hedging=False) as client:
                    return await main(client, place)

        return run(opened(), self.loop_factory)

    def test_reads_of_one_object(self):
        data = random.Random(1).randbytes(SIZE)

        async def main(client):
            await client.aput(FILE, data)
            async with await ringest.checkpoint.aopen(FILE, client=client) as file:
                self.assertEqual((file.size, file.name), (SIZE, FILE))
                pieces = await asyncio.gather(*(file.read(100_003, at) for at in range(0, SIZE, 100_003)))
                self.assertEqual(b"".join(pieces), data)
                self.assertEqual(await file.read(), data)
                self.assertEqual(await file.read(offset=SIZE - 5), data[-5:])
                self.assertEqual(await file.read(10, offset=SIZE + 5), b"")
                buffer = bytearray(20)
                self.assertEqual(await file.readinto(buffer, SIZE - 7), 7)
                self.assertEqual(buffer, data[-7:] + bytes(13))
                for wrong in (b"1234", [1], None):
                    with self.assertRaises((TypeError, BufferError)):
                        await file.readinto(wrong)
                with self.assertRaises(ValueError):
                    await file.readinto(buffer, -1)
                await client.aput(FILE, b"another")
                with self.assertRaisesRegex(ringest.NotFoundError, FILE):
                    await file.read(5)
            with self.assertRaisesRegex(ValueError, "closed"):
                await file.read(5)
            file.close()
            with self.assertRaises(ringest.NotFoundError):
                await ringest.checkpoint.aopen("gs://new/missing", client=client)

        self.run_with_client(main)

    def test_reads_that_are_cancelled_write_nothing_later(self):
        """When its request is out, by an exception of another task, and before it is sent."""

        async def main(client, place):
            await client.aput(FILE, b"x" * SIZE)
            file = await ringest.checkpoint.aopen(FILE, client=client)
            buffers = [bytearray(SIZE // 2) for _ in range(3)]
            with support.Rule(place, **HELD) as rule:
                task = asyncio.create_task(file.readinto(buffers[0]))
                await asyncio.to_thread(rule.wait)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                with self.assertRaises(ExceptionGroup):
                    async with asyncio.TaskGroup() as group:
                        group.create_task(file.readinto(buffers[1]))
                        await asyncio.sleep(0)
                        raise KeyError
                for task in [asyncio.create_task(file.readinto(buffers[2], at)) for at in (0, 5)]:
                    await asyncio.sleep(0)
                    task.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await task
                self.assertGreaterEqual(rule.state()["struck"], 1)
                # They are the caller's again: nobody has them exported.
                for buffer in buffers:
                    buffer.append(1)
            self.assertEqual(await file.read(10), b"x" * 10)
            for buffer in buffers:
                self.assertEqual(buffer, bytes(SIZE // 2) + b"\1")
            file.close()

        self.run_with_place(main)

    def test_a_file_that_is_closed_with_reads_under_way(self):
        async def main(client, place):
            await client.aput(FILE, b"x" * SIZE)
            file = await ringest.checkpoint.aopen(FILE, client=client)
            with support.Rule(place, **HELD):
                buffers = [bytearray(SIZE // 2) for _ in range(20)]
                tasks = [asyncio.create_task(file.readinto(buffer)) for buffer in buffers]
                await asyncio.sleep(0)
                file.close()
                for ended in await asyncio.gather(*tasks, return_exceptions=True):
                    self.assertIsInstance(ended, ValueError)
                    self.assertIn("closed", str(ended))
                for buffer in buffers:
                    buffer.append(1)

        self.run_with_place(main)

    def test_every_call(self):
        async def main(client):
            generation = await client.aput("gs://new/a", b"0123456789", content_type="text/plain")
            self.assertEqual(bytes(await client.aget("gs://new/a")), b"0123456789")
            self.assertEqual(bytes(await client.aget("gs://new/a", offset=2, length=3)), b"234")
            parts = await client.aget_ranges("gs://new/a", [(8, 5), (0, 2), (4, 0)])
            self.assertEqual([bytes(part) for part in parts], [b"89", b"01", b""])
            facts = await client.astat("gs://new/a")
            self.assertEqual((facts["size"], facts["generation"]), (10, generation))
            with self.assertRaises(ringest.PreconditionError):
                await client.aput("gs://new/a", b"x", if_generation_match=0)
            with client.writer("gs://new/a", part_size="5MiB") as writer:
                writer.write(bytes(6 << 20))
                uploads = await until_awaited(lambda: client.alist_uploads("gs://new/"))
                self.assertEqual(await client.alist_uploads("gs://new/b"), [])
                self.assertEqual((len(uploads), uploads[0][0]), (1, "a"))
                datetime.datetime.fromisoformat(uploads[0][2])
                await client.aabort_upload("gs://new/a", uploads[0][1])
                with self.assertRaises(ringest.NotFoundError):
                    await client.aabort_upload("gs://new/a", uploads[0][1])
                self.assertEqual(await client.alist_uploads("gs://new/"), [])
                writer.abort()
            await client.adelete("gs://new/a")
            with self.assertRaisesRegex(ringest.NotFoundError, "gs://new/a"):
                await client.aget("gs://new/a")
            with self.assertRaises(ringest.NotFoundError):
                await client.adelete("gs://new/a")
            await client.adelete("gs://new/a", missing_ok=True)

        self.run_with_client(main)

    def test_lists_and_deletes_of_many_pages(self):
        async def main(client):
            uris = [f"gs://new/{i:04d}" for i in range(1201)]
            for first in range(0, len(uris), 100):
                await asyncio.gather(*(client.aput(uri, b"x") for uri in uris[first : first + 100]))
            self.assertEqual(len(await client.alist("gs://new/")), 1201)
            self.assertEqual(len(await client.alist("gs://data/")), support.COUNT)
            await client.adelete(uris[:-1])
            self.assertEqual([name for name, _, _ in await client.alist("gs://new/")], ["1200"])
            with self.assertRaises(ExceptionGroup) as caught:
                await client.adelete(uris[-3:])
            self.assertEqual([error.uri for error in caught.exception.exceptions], uris[-3:-1])
            with self.assertRaises(ringest.NotFoundError):
                await client.alist("gs://absent/")

        self.run_with_client(main)

    def test_more_at_once_than_a_queue_has_room_for(self):
        async def main(client):
            uris = [support.uri(i % support.COUNT) for i in range(6000)]
            bodies = await asyncio.gather(*map(client.aget, uris))
            self.assertEqual({len(body) for body in bodies}, {support.SIZE})

        self.run_with_client(main)

    def test_many_as_an_iterator(self):
        async def main(client):
            uris = [support.uri(i) for i in range(support.COUNT)] * 5
            for ordered in (False, True):
                seen = []
                async for items in client.aget_many(iter(uris), ordered=ordered, batch=100):
                    self.assertLessEqual(len(items), 100)
                    for item in items:
                        self.assertEqual(item.uri, uris[item.index])
                        seen.append(item.index)
                self.assertEqual(seen if ordered else sorted(seen), list(range(len(uris))))
            async for _ in client.aget_many(uris):
                break
            with self.assertRaises(TypeError):
                async for _ in client.aget_many([7]):
                    pass

        self.run_with_client(main)

    def test_the_loop_goes_on_while_requests_are_out(self):
        async def main(client):
            task = asyncio.create_task(client.aget(support.uri(0)))
            many = client.aget_many([support.uri(i) for i in range(10)])
            batch = asyncio.create_task(anext(many))
            for _ in range(1000):
                await asyncio.sleep(0)
            self.assertFalse(task.done() or batch.done())
            for waiting in (task, batch):
                waiting.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waiting
            await many.aclose()

        self.run_with_client(main, *NEVER)

    def test_cancelling_a_task_cancels_its_request(self):
        async def main(client):
            tasks = [asyncio.create_task(client.aget(support.uri(i))) for i in range(20)]
            tasks.append(asyncio.create_task(client.alist("gs://data/")))
            tasks.append(asyncio.create_task(client.aput("gs://new/x", bytes(1000))))
            await until(lambda: client.stats()["in_flight"] == len(tasks))
            for task in tasks:
                task.cancel()
            await until(lambda: client.stats()["in_flight"] == 0)
            for task in tasks:
                with self.assertRaises(asyncio.CancelledError):
                    await task
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.aget(support.uri(0))

        self.run_with_client(main, *NEVER)

    def test_cancelling_a_part_of_what_is_removed(self):
        async def main(client):
            task = asyncio.create_task(client.adelete(["gs://new/a", "gs://new/b"]))
            await until(lambda: client.stats()["in_flight"] == 1)
            for part in asyncio.all_tasks() - {asyncio.current_task(), task}:
                part.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        self.run_with_client(main, *NEVER)

    def test_closing_ends_what_is_awaited(self):
        async def main(client):
            task = asyncio.create_task(client.aget(support.uri(0)))
            await until(lambda: client.stats()["in_flight"] == 1)
            client.close()
            with self.assertRaisesRegex(ValueError, "closed"):
                await task
            with self.assertRaisesRegex(ValueError, "closed"):
                await client.aget(support.uri(0))

        self.run_with_client(main, *NEVER)


@unittest.skipIf(uvloop is None, "uvloop is not installed")
class AwaitedOnUvloop(Awaited):
    loop_factory = staticmethod(uvloop.new_event_loop) if uvloop else None


class Loops(unittest.TestCase):
    def test_one_after_the_other(self):
        with support.client() as client:
            bodies = [bytes(run(client.aget(support.uri(1)))) for _ in range(5)]
            self.assertEqual(len(set(bodies)), 1)

    def test_several_threads(self):
        failures = []

        def work(client):
            async def main():
                bodies = await asyncio.gather(*(client.aget(support.uri(i)) for i in range(200)))
                assert all(len(body) == support.SIZE for body in bodies)
                assert sum([len(items) async for items in client.aget_many(map(support.uri, range(200)))]) == 200

            try:
                for _ in range(3):
                    run(main())
            except BaseException as error:
                failures.append(error)

        with support.client() as client:
            threads = [threading.Thread(target=work, args=(client,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(failures, [])

    def test_who_gives_up_waiting_for_a_turn_passes_it_on(self):
        async def main(client):
            first = asyncio.create_task(client.aget(support.uri(0)))
            await until(lambda: client.stats()["in_flight"] == 1)
            waiting = [asyncio.create_task(client.aget(support.uri(i))) for i in range(1, 6)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            first.cancel()
            await asyncio.wait([first])
            # The turn of the first went to one that is cancelled before it has been told so.
            for task in waiting[1:3]:
                task.cancel()
            bodies = await asyncio.gather(*waiting, return_exceptions=True)
            return [type(body) for body in bodies]

        before = aio.CAPACITY
        aio.CAPACITY = 1
        try:
            # Long enough that the first is seen to be out on a busy machine.
            with support.client("--latency-ms", "300") as client:
                gone, got = asyncio.CancelledError, ringest.Buffer
                for _ in range(5):
                    self.assertEqual(run(main(client)), [gone, gone, gone, got, got])
        finally:
            aio.CAPACITY = before

    def test_loops_that_begin_and_end_while_the_client_is_closed(self):
        def work(client, outcomes):
            async def main():
                return await asyncio.gather(*(client.aget(support.uri(i)) for i in range(3)), return_exceptions=True)

            for _ in range(5):
                try:
                    outcomes += run(main())
                except ValueError as error:
                    outcomes.append(error)

        with support.emulator() as (endpoint, ca):
            for pause in range(10):
                client = ringest.Client(endpoint, ca, threads=1)
                outcomes = []
                threads = [threading.Thread(target=work, args=(client, outcomes)) for _ in range(3)]
                for thread in threads:
                    thread.start()
                threads[0].join(pause * 0.005)
                client.close()
                for thread in threads:
                    thread.join()
                for outcome in outcomes:
                    if not isinstance(outcome, ringest.Buffer):
                        self.assertRegex(str(outcome), "closed")
                del outcome
            del client, outcomes
            gc.collect()

    def test_what_is_told_of_progress_closes_the_client(self):
        complaints = []

        async def main(client):
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
            channel = client._channel()
            told = asyncio.create_task(channel.call("list", "gs://data/", progress=lambda count: client.close()))
            with self.assertRaisesRegex(ValueError, "the client was closed"):
                await told
            with self.assertRaisesRegex(ValueError, "closed"):
                await channel.call("get", support.uri(0))

        with support.client() as client:
            run(main(client))
        self.assertEqual(complaints, [])

    def test_closing_by_another_thread(self):
        caught = []

        def work(client):
            try:
                run(client.aget(support.uri(0)))
            except ValueError as error:
                caught.append(str(error))

        with support.client(*NEVER) as client:
            thread = threading.Thread(target=work, args=(client,))
            thread.start()
            while thread.is_alive() and client.stats()["in_flight"] == 0:
                thread.join(0.01)
            client.close()
            thread.join()
        self.assertEqual(caught, ["the client was closed"])

    def test_a_loop_that_was_closed_leaves_nothing(self):
        async def abandon(client):
            task = asyncio.create_task(client.aget(support.uri(0)))
            await until(lambda: client.stats()["in_flight"] == 1)
            return task

        with support.emulator(*NEVER) as (endpoint, ca):
            with ringest.Client(endpoint, ca) as client:
                run(abandon(client))
            gc.collect()
            files, threads = support.files_open(), support.threads_running()
            for _ in range(3):
                with ringest.Client(endpoint, ca) as client:
                    run(abandon(client))
                    run(abandon(client))
                gc.collect()
            self.assertEqual((support.files_open(), support.threads_running()), (files, threads))

    def test_ctrl_c(self):
        async def main(client):
            task = asyncio.create_task(client.aget(support.uri(0)))
            await until(lambda: client.stats()["in_flight"] == 1)
            os.kill(os.getpid(), signal.SIGINT)
            await task

        with support.client(*NEVER) as client:
            with self.assertRaises(KeyboardInterrupt):
                run(main(client))

    def test_a_child_has_loops_of_its_own(self):
        async def main(client):
            whole = bytes(await client.aget(support.uri(3)))
            child = os.fork()
            if child == 0:
                good = False
                try:
                    # The child may not touch its parent's loop, but may run another one.
                    other = threading.Thread(target=lambda: results.append(run(client.aget(support.uri(3)))))
                    results = []
                    other.start()
                    other.join()
                    good = bytes(results[0]) == whole
                finally:
                    os._exit(0 if good else 1)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.assertEqual(bytes(await client.aget(support.uri(3))), whole)

        with support.client() as client:
            run(main(client))


if __name__ == "__main__":
    unittest.main()
