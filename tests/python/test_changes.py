"""Objects that are changed, joined, written from files and found by filters; and the awaited calls of these."""

import asyncio
import concurrent.futures
import os
import pathlib
import signal
import tempfile
import threading
import unittest

import ringest
import support
from support import Rule

LARGE = bytes(range(256)) * (5 << 12)


class Emulated(unittest.TestCase):
    arguments = ()

    def setUp(self):
        self.place = self.enterContext(support.emulator(*self.arguments))
        self.client = self.enterContext(ringest.Client(*self.place, hedging=False))
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def file(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return path


class Files(Emulated):
    def test_files_of_any_size(self):
        files = support.files_open()
        for size in (0, 1, 8 << 20, (8 << 20) + 1, 20 << 20):
            with self.subTest(size):
                data = (LARGE * 4)[:size]
                generation = self.client.put("gs://mine/a", self.file("a", data), content_type="text/plain")
                facts = self.client.stat("gs://mine/a")
                self.assertEqual((facts["generation"], facts["content_type"]), (generation, "text/plain"))
                self.assertEqual(self.client.get("gs://mine/a"), data)
        self.assertLessEqual(support.files_open(), files + 30)  # those of the client itself

    def test_no_descriptor_is_left(self):
        path = self.file("a", b"x")
        self.client.put("gs://mine/a", path)
        before = support.files_open()
        for _ in range(5):
            self.client.put("gs://mine/a", path)
            self.assertRaises(ringest.PreconditionError, self.client.put, "gs://mine/a", path, if_generation_match=0)
            self.assertRaises(ValueError, self.client.put, "gs://mine", path)
            self.assertRaises(ValueError, self.client.put, "gs://mine/a", pathlib.Path("/dev/null"))
        self.assertEqual(support.files_open(), before)

    def test_many_files_and_threads(self):
        paths = [self.file(str(i), bytes([i]) * 1000) for i in range(20)]
        self.client.put_many((f"gs://mine/{path.name}", path) for path in paths)
        threads = [threading.Thread(target=self.client.put, args=("gs://mine/one", path)) for path in paths]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for path in paths:
            self.assertEqual(self.client.get(f"gs://mine/{path.name}"), path.read_bytes())
        self.assertIn(self.client.get("gs://mine/one").to_bytes(), [path.read_bytes() for path in paths])

    def test_what_is_no_file(self):
        os.mkfifo(self.folder / "fifo")
        for path, error in (
            (self.folder, (ValueError, "is no regular file")),
            (self.folder / "fifo", (ValueError, "is no regular file")),
            (self.folder / "none", (FileNotFoundError, "none")),
        ):
            with self.subTest(path), self.assertRaisesRegex(*error):
                self.client.put("gs://mine/a", path)
        with self.assertRaisesRegex(TypeError, "gs://mine/a: data of type <class 'str'>: .*encode text"):
            self.client.put("gs://mine/a", "text")
        self.assertFalse(self.client.exists("gs://mine/a"))

    def test_an_interrupt_leaves_nothing(self):
        path = self.file("a", LARGE * 2)

        def interrupt(rule):
            rule.wait()
            signal.raise_signal(signal.SIGINT)

        with Rule(self.place, writes=True, answer="held") as rule:
            thread = threading.Thread(target=interrupt, args=(rule,))
            thread.start()
            with self.assertRaises(KeyboardInterrupt):
                self.client.put("gs://mine/a", path)
            thread.join()
        self.assertFalse(self.client.exists("gs://mine/a"))


class Changes(Emulated):
    def test_existence(self):
        generation = self.client.put("gs://mine/a", b"1")
        self.assertIs(self.client.exists("gs://mine/a"), True)
        self.assertIs(self.client.exists("gs://mine/a", generation=generation), True)
        self.assertIs(self.client.exists("gs://mine/a", generation=generation + 1), False)
        self.assertIs(self.client.exists("gs://mine/b"), False)
        self.assertIs(self.client.exists("gs://none/b"), False)
        self.assertRaises(ValueError, self.client.exists, "mine/a")

    def test_metadata(self):
        self.client.put("gs://mine/a", b"1")
        facts = self.client.update("gs://mine/a", content_type="image/png", metadata={"a": "ä", "b": "c"})
        self.assertEqual((facts["content_type"], facts["metadata"]), ("image/png", {"a": "ä", "b": "c"}))
        facts = self.client.update("gs://mine/a", metadata={"a": None}, cache_control="no-store")
        self.assertEqual((facts["cache_control"], facts["metadata"]), ("no-store", {"b": "c"}))
        facts = self.client.update("gs://mine/a", cache_control="")
        self.assertEqual((facts["content_type"], facts["cache_control"]), ("image/png", None))
        self.assertEqual(self.client.stat("gs://mine/a")["metageneration"], facts["metageneration"])
        with self.assertRaises(ringest.PreconditionError):
            self.client.update("gs://mine/a", metadata={"a": "x"}, if_metageneration_match=1)
        with self.assertRaises(ringest.NotFoundError):
            self.client.update("gs://mine/none", metadata={"a": "x"})

    def test_who_has_changed_it(self):
        """The same change by two, and the answer of the first is lost: success is of one of them."""
        self.client.put("gs://mine/a", b"1")
        at = self.client.stat("gs://mine/a")["metageneration"]
        with Rule(self.place, writes=True, answer="failed") as rule:
            self.client.update("gs://mine/a", metadata={"owner": "x"}, if_metageneration_match=at)
        self.assertEqual(rule.end()["struck"], 1)
        with self.assertRaises(ringest.PreconditionError):
            self.client.update("gs://mine/a", metadata={"owner": "x"}, if_metageneration_match=at)

    def test_joining(self):
        first = self.client.put("gs://mine/a", b"1")
        self.client.put("gs://mine/b", b"2")
        facts = self.client.compose(
            "gs://mine/c", ["gs://mine/b", ("gs://mine/a", first), "gs://mine/b"], metadata={"a": "b"}
        )
        self.assertEqual((self.client.get("gs://mine/c"), facts["metadata"]), (b"212", {"a": "b"}))
        facts = self.client.compose("gs://mine/a", iter(["gs://mine/a", "gs://mine/c"]), if_generation_match=first)
        self.assertEqual((self.client.get("gs://mine/a"), facts["size"]), (b"1212", 4))
        with self.assertRaises(ringest.PreconditionError):
            self.client.compose("gs://mine/a", ["gs://mine/b"], if_generation_match=first)
        with self.assertRaises(ringest.NotFoundError):
            self.client.compose("gs://mine/d", ["gs://mine/none"])

    def test_filters(self):
        support.make_bucket(*self.place, "kept", versioning={"enabled": True})
        for name in ("a/1.jpg", "a/2.png", "b/1.jpg", "c"):
            self.client.put(f"gs://kept/{name}", b"x")
        self.client.put("gs://kept/c", b"y")

        def names(**filters):
            return [name for name, _, _ in self.client.list("gs://kept/", **filters)]

        self.assertEqual(names(), ["a/1.jpg", "a/2.png", "b/1.jpg", "c"])
        self.assertEqual(names(glob="**.jpg"), ["a/1.jpg", "b/1.jpg"])
        self.assertEqual(names(start_offset="a/2.png", end_offset="c"), ["a/2.png", "b/1.jpg"])
        self.assertEqual(names(versions=True), ["a/1.jpg", "a/2.png", "b/1.jpg", "c", "c"])
        for option in ("versions", "folder_markers"):
            with self.assertRaisesRegex(TypeError, f"{option} must be True or False, got 'no'"):
                self.client.list("gs://kept/c", **{option: "no"})
        versions = self.client.list("gs://kept/c", versions=True)
        self.assertEqual(bytes(self.client.get("gs://kept/c", generation=versions[0][2])), b"x")
        versions.save(self.folder / "manifest")
        self.assertEqual(list(ringest.Objects(manifest=self.folder / "manifest")), list(versions))
        self.assertEqual(len(self.client.list("gs://kept/", glob="*.gif")), 0)

    def test_what_cannot_be_meant(self):
        for error, text, call in (
            (ValueError, "gs://mine/a: nothing is to be changed", lambda: self.client.update("gs://mine/a")),
            (TypeError, "metadata must be a dict of str, got 5", lambda: self.client.update("gs://mine/a", metadata=5)),
            (TypeError, "metadata must be a str, got 1", lambda: self.client.update("gs://mine/a", metadata={"a": 1})),
            (TypeError, "is a list of URIs, not one", lambda: self.client.compose("gs://mine/a", "gs://mine/b")),
            (ValueError, "0 sources; one compose joins 1 to 32", lambda: self.client.compose("gs://mine/a", [])),
            (ValueError, "33 sources", lambda: self.client.compose("gs://mine/a", ["gs://mine/b"] * 33)),
            (
                ValueError,
                "gs://mine/a: gs://other/b is in another bucket",
                lambda: self.client.compose("gs://mine/a", ["gs://other/b"]),
            ),
            (TypeError, "a source is a URI or", lambda: self.client.compose("gs://mine/a", [5])),
        ):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                call()


class Awaited(Emulated):
    def run_with(self, main):
        async def opened():
            async with ringest.Client(*self.place, hedging=False) as client:
                return await main(client)

        return asyncio.run(opened())

    def test_every_call(self):
        async def main(client):
            await client.aput("gs://mine/a", self.file("a", b"12345"))
            self.assertIs(await client.aexists("gs://mine/a"), True)
            self.assertIs(await client.aexists("gs://mine/b"), False)
            self.assertEqual((await client.aupdate("gs://mine/a", content_type="a/b"))["content_type"], "a/b")
            self.assertEqual((await client.acompose("gs://mine/b", ["gs://mine/a"] * 2))["size"], 10)
            self.assertEqual([name for name, _, _ in await client.alist("gs://mine/", glob="b*")], ["b"])
            one, two = bytearray(2), bytearray(3)
            generation = (await client.astat("gs://mine/a"))["generation"]
            found = await client.aget_into("gs://mine/a", [(2, two), (0, one)], checksums=True, whole=True)
            self.assertEqual((one, two), (b"12", b"345"))
            self.assertEqual(found, (generation, [client_crc(two), client_crc(one)]))
            self.assertEqual(await client.aget_into("gs://mine/a", [], generation=generation), generation)
            self.assertEqual(client.get_into("gs://mine/a", [], generation=generation), generation)
            with self.assertRaises(EOFError):
                await client.aget_into("gs://mine/a", [(0, bytearray(6))])
            with self.assertRaises(ringest.NotFoundError):
                await client.aget_into("gs://mine/none", [(0, one)])
            with self.assertRaises(ValueError):
                await client.aget_into("gs://mine/a", [(0, one), (1, one)])

        client_crc = ringest._core.crc32c
        self.run_with(main)

    def test_more_ranges_than_one_request_takes(self):
        async def main(client):
            await client.aput("gs://mine/a", LARGE)
            step = 500
            memory = bytearray(len(LARGE))
            view = memoryview(memory)
            requests = [(at, view[at : at + step]) for at in range(0, len(LARGE), step)]
            self.assertGreater(len(requests), 2 * 4096)
            await client.aget_into("gs://mine/a", requests, whole=True)
            self.assertEqual(memory, LARGE)

        self.run_with(main)

    def test_memory_is_the_callers_when_a_read_was_cancelled(self):
        async def main(client):
            await client.aput("gs://mine/a", LARGE)
            memory = bytearray(len(LARGE))
            with Rule(self.place, method="storage.objects.get", answer="held") as rule:
                task = asyncio.ensure_future(client.aget_into("gs://mine/a", [(0, memory)]))
                await asyncio.to_thread(rule.wait)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
            memory.append(1)  # nobody has a view of it any more
            await client.aget_into("gs://mine/a", [(0, memoryview(memory)[:-1])])
            self.assertEqual(memory[:-1], LARGE)

        self.run_with(main)

    def test_memory_is_the_callers_when_a_write_was_cancelled(self):
        async def main(client):
            for size in (100, 1 << 20, 9 << 20):
                memory = bytearray(size)
                for call, arguments in (
                    (client.aput, ("gs://mine/a", memory)),
                    (client.aput_many, ([("gs://mine/a", memory)],)),
                ):
                    with self.subTest(size=size), Rule(self.place, writes=True, answer="held") as rule:
                        task = asyncio.ensure_future(call(*arguments))
                        await asyncio.to_thread(rule.wait)
                        task.cancel()
                        with self.assertRaises(asyncio.CancelledError):
                            await task
                        memory.append(1)  # nobody has a view of it any more

        self.run_with(main)

    def test_writing_many(self):
        async def main(client):
            objects = [(f"gs://mine/{i}", bytes([i])) for i in range(100)]
            generations = await client.aput_many(objects, requests=7)
            self.assertEqual([self.client.stat(uri)["generation"] for uri, _ in objects], generations)
            with self.assertRaises(ExceptionGroup) as raised:
                await client.aput_many([("gs://mine/x", b"x"), ("gs://mi", b"y"), ("gs://mine/y", b"x")])
            self.assertEqual(len(raised.exception.exceptions), 1)
            self.assertTrue(await client.aexists("gs://mine/y"))

            def broken():
                yield "gs://mine/z", b"z"
                raise KeyError("mine")

            with self.assertRaisesRegex(KeyError, "mine"):
                await client.aput_many(broken())

        self.run_with(main)

    def test_a_stream(self):
        async def main(client):
            async with client.awriter("gs://mine/a", part_size="5MiB") as stream:
                for _ in range(4):
                    self.assertEqual(await stream.write(LARGE), len(LARGE))
            self.assertEqual((stream.size, stream.ended), (4 * len(LARGE), True))
            self.assertEqual((await stream.finish())["size"], 4 * len(LARGE))
            self.assertEqual(await client.aget("gs://mine/a"), 4 * LARGE)
            with self.assertRaisesRegex(KeyError, "mine"):
                async with client.awriter("gs://mine/b") as stream:
                    await stream.write(LARGE)
                    raise KeyError("mine")
            self.assertFalse(await client.aexists("gs://mine/b"))
            streams = [client.awriter(f"gs://mine/many-{i}") for i in range(50)]
            await asyncio.gather(*(stream.write(b"x") for stream in streams))
            await asyncio.gather(*(stream.finish() for stream in streams))
            self.assertEqual(len(await client.alist("gs://mine/many-")), 50)

        self.run_with(main)

    def test_a_stream_that_is_cancelled(self):
        async def main(client):
            stream = client.awriter("gs://mine/a", part_size="5MiB", parts_in_flight=1)
            data = bytearray(LARGE * 4)
            with Rule(self.place, writes=True, answer="held") as rule:
                task = asyncio.ensure_future(stream.write(data))
                await asyncio.to_thread(rule.wait)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
            data.append(1)  # nobody has a view of it any more
            self.assertTrue(stream.ended)
            with self.assertRaises(ValueError):
                await stream.write(b"x")
            self.assertFalse(await client.aexists("gs://mine/a"))

        self.run_with(main)

    def test_streams_that_are_cancelled_while_all_threads_are_taken(self):
        async def main(client):
            with concurrent.futures.ThreadPoolExecutor(1) as threads:
                asyncio.get_running_loop().set_default_executor(threads)
                data = bytearray(LARGE * 4)

                async def write(name):
                    async with client.awriter(name, part_size="5MiB", parts_in_flight=1) as stream:
                        await stream.write(data)

                with Rule(self.place, writes=True, answer="held") as rule:
                    first = asyncio.ensure_future(write("gs://mine/a"))
                    with concurrent.futures.ThreadPoolExecutor(1) as own:
                        await asyncio.get_running_loop().run_in_executor(own, rule.wait)
                    second = asyncio.ensure_future(write("gs://mine/b"))
                    await asyncio.sleep(0)  # it waits for the thread
                    for task in (second, first):
                        task.cancel()
                        with self.assertRaises(asyncio.CancelledError):
                            await task
                data.append(1)

        self.run_with(main)


if __name__ == "__main__":
    unittest.main()
