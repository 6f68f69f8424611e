"""The awaited side of ringest.fs, and what it has of gcsfs's: versions, signed URLs, caches, attributes."""

import asyncio
import contextlib
import json
import os
import pathlib
import pickle
import signal
import ssl
import subprocess
import tempfile
import threading
import unittest
import unittest.mock
import urllib.request

import fsspec
from fsspec.asyn import AsyncFileSystem, sync
from fsspec.caching import caches

import ringest.fs
import support
from ringest import _fs_async, aio

FILES = {"run/a": b"first", "run/b": b"second one", "run/deep/c": b"third", "run/[1]?": b"odd", "top": b"t"}
LARGE = bytes(range(256)) * 5000


class Case(unittest.TestCase):
    def setUp(self):
        self.client = self.enterContext(support.client())
        self.fs = ringest.fs.GCSFileSystem(client=self.client)
        self.fs.pipe({f"here/{name}": data for name, data in FILES.items()})
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def local(self, name):
        return os.path.join(self.folder, name)


def outcome(call):
    try:
        return call()
    except (OSError, ValueError, TypeError, NotImplementedError) as error:
        return type(error).__name__, str(error)


class Awaited(Case):
    READING = (
        ("info", "here/run/a"),
        ("info", "here/run"),
        ("info", "here"),
        ("info", "here/none"),
        ("info", "here/run/a", {"acl": 1}),
        ("exists", "here/run/a"),
        ("exists", "here/none"),
        ("isfile", "here/run/a"),
        ("isfile", "here/run"),
        ("isdir", "here/run"),
        ("isdir", "here/run/a"),
        ("ls", "here/run"),
        ("ls", "gs://here/run", {"detail": False}),
        ("ls", "here/run/a"),
        ("ls", "here/none"),
        ("ls", ""),
        ("find", "here"),
        ("find", "here/run", {"withdirs": True, "detail": True}),
        ("find", "here", {"maxdepth": 1}),
        ("find", "here", {"prefix": "run/d"}),
        ("find", "here/none"),
        ("du", "here"),
        ("du", "here/run", {"total": False}),
        ("glob", "here/run/*"),
        ("glob", "here/**/c"),
        ("size", "here/run/b"),
        ("cat_file", "here/run/b"),
        ("cat_file", "here/run/b", {"start": 2, "end": 6}),
        ("cat_file", "here/run/b", {"start": -3}),
        ("cat_file", "here/run/b", {"start": 30, "end": 40}),
        ("cat_file", "here/none"),
        ("cat_file", "here"),
        ("cat", "here/run/a"),
        ("cat", "here/run/[1]?"),
        ("cat", ["here/run/a", "here/top"]),
        ("cat", "here/run", {"recursive": True}),
        ("cat", "here/none"),
        ("expand_path", "here/run", {"recursive": True}),
    )

    def test_what_is_awaited_is_what_is_called(self):
        for name, path, *options in self.READING:
            options = options[0] if options else {}
            with self.subTest(f"{name} {path} {options}"):
                called = outcome(lambda: getattr(self.fs, name)(path, **options))
                awaited = outcome(lambda: asyncio.run(getattr(self.fs, f"_{name}")(path, **options)))
                self.assertEqual(awaited, called)

    def test_ranges(self):
        arguments = (["here/run/b"] * 4 + ["here/none"], [0, -3, 4, 50, 0], [4, None, 6, 60, 1])
        called = self.fs.cat_ranges(*arguments)
        awaited = asyncio.run(self.fs._cat_ranges(*arguments, batch_size=3))
        self.assertEqual(called[:4], [b"seco", b"one", b"nd", b""])
        self.assertEqual(awaited[:4], called[:4])
        for results in (called, awaited):
            self.assertIsInstance(results[4], FileNotFoundError)
        with self.assertRaises(FileNotFoundError):
            asyncio.run(self.fs._cat_ranges(*arguments, on_error="raise"))

    def test_writing_copying_and_removing(self):
        async def main():
            fs = self.fs
            await fs._pipe_file("here/new", b"new", content_type="text/x")
            assert (await fs._info("here/new"))["contentType"] == "text/x"
            with self.assertRaises(FileExistsError):
                await fs._pipe_file("here/new", b"newer", mode="create")
            await fs._pipe({f"here/many/{i}": b"%d" % i for i in range(100)})
            assert await fs._cat_file("here/many/99") == b"99"
            await fs._cp_file("here/new", "here/copied")
            await fs._copy("here/many", "here/twin", recursive=True, batch_size=5)
            await fs._rm_file("here/new")
            assert not await fs._exists("here/new") and await fs._exists("here/copied")
            await fs._rm("here/many", recursive=True, batch_size=5)
            assert await fs._find("here/many") == [] and len(await fs._find("here/twin")) == 100
            with self.assertRaises(FileNotFoundError):
                await fs._rm("here/new")
            await fs._rm(["here/copied", "here/top"])
            await fs._mv("here/twin/1", "here/moved")
            pathlib.Path(self.local("up")).write_bytes(b"up")
            await fs._put_file(self.local("up"), "here/up")
            await fs._put(self.local("up"), "here/up/", batch_size=2)
            await fs._get_file("here/moved", self.local("down"))
            await fs._get("here/run", self.local("tree"), recursive=True)
            await fs._touch("here/touched")
            assert pathlib.Path(self.local("down")).read_bytes() == b"1"
            assert pathlib.Path(self.local("tree/deep/c")).read_bytes() == b"third"
            assert [top async for top, _, _ in fs._walk("here/run")] == ["here/run", "here/run/deep"]

        asyncio.run(main())

    def test_any_number_of_loops_and_threads(self):
        fs = ringest.fs.GCSFileSystem(client=self.client, asynchronous=True)
        raised = []

        async def main(number):
            await fs._pipe_file(f"here/by-{number}", b"%d" % number)
            found = await asyncio.gather(*(fs._cat_file(f"here/{name}") for name in FILES))
            assert found == list(FILES.values())
            assert await fs._cat_file(f"here/by-{number}") == b"%d" % number

        def run(number):
            try:
                asyncio.run(main(number))
            except BaseException as error:
                raised.append(error)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(raised, [])
        # Synchronous calls are those of any filesystem, also beside a loop.
        self.assertEqual(fs.cat_file("here/run/a"), b"first")

    def test_a_child_of_fork_has_a_loop_of_its_own(self):
        async def seven():
            return 7

        self.assertEqual(sync(self.fs.loop, seven), 7)
        pid = os.fork()
        if pid == 0:
            signal.alarm(int(support.PATIENCE_S))
            os._exit(sync(self.fs.loop, seven))
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 7)

    def test_a_task_that_is_cancelled(self):
        with support.emulator("--latency-ms", "600000") as (endpoint, ca), ringest.Client(endpoint, ca) as slow:
            fs = ringest.fs.GCSFileSystem(client=slow)

            async def main():
                tasks = [
                    asyncio.create_task(call)
                    for call in (
                        fs._cat_file("data/x-00000001"),
                        fs._find("data"),
                        fs._cat_ranges(["data/x-00000001"] * 9, 0, 5),
                    )
                ]
                await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await task

            asyncio.run(main())

    def test_a_task_that_is_cancelled_while_a_thread_works_for_it(self):
        """It goes on when the thread has ended; and a copy ends at its next piece."""
        cancelled, done = threading.Event(), []

        class Callback(fsspec.callbacks.Callback):
            def relative_update(self, inc=1):
                loop.call_soon_threadsafe(task.cancel)
                assert cancelled.wait(support.PATIENCE_S)
                done.append(inc)

        async def waits(*futures):
            cancelled.set()
            await aio._wait_for_all(*futures)

        def mv(*paths, **options):
            Callback().relative_update(7)

        async def main(call):
            nonlocal loop, task
            cancelled.clear()
            loop, task = asyncio.get_running_loop(), asyncio.create_task(call)
            with self.assertRaises(asyncio.CancelledError):
                await task

        loop = task = None
        local = pathlib.Path(self.local("cancelled"))
        local.write_bytes(bytes(1000))
        self.fs.pipe_file("here/there", bytes(1000))
        with (
            unittest.mock.patch.object(ringest.fs, "_COPY_SIZE", 100),
            unittest.mock.patch.object(_fs_async, "_wait_for_all", waits),
            unittest.mock.patch.object(self.fs, "mv", mv),
        ):
            asyncio.run(main(self.fs._put_file(local, "here/cancelled", callback=Callback())))
            local.unlink()
            asyncio.run(main(self.fs._get_file("here/there", local, callback=Callback())))
            asyncio.run(main(self.fs._mv("here/there", "here/then")))
        self.assertEqual(done, [100, 100, 7])
        self.assertFalse(self.fs.exists("here/cancelled") or local.exists())

    def test_files_that_are_awaited(self):
        async def main():
            fs = self.fs
            async with await fs.open_async("here/out", "wb") as file:
                self.assertEqual(await file.write(LARGE), len(LARGE))
                await file.write(b"end")
                self.assertFalse(await fs._exists("here/out"))
                self.assertEqual(file.tell(), len(LARGE) + 3)
            self.assertEqual(file.result["size"], len(LARGE) + 3)
            async with await fs.open_async("gs://here/out") as file:
                self.assertEqual(
                    (file.size, file.generation), (len(LARGE) + 3, (await fs._info("here/out"))["generation"])
                )
                self.assertEqual(
                    [await file.read(5), await file.read(), await file.read(3)], [LARGE[:5], LARGE[5:] + b"end", b""]
                )
                file.seek(-3, os.SEEK_END)
                self.assertEqual(await file.read(100), b"end")
                file.seek(-2, os.SEEK_CUR)
                self.assertEqual(await file.read(None), b"nd")
                with self.assertRaisesRegex(ValueError, "before the start"):
                    file.seek(-1)
            with self.assertRaisesRegex(ValueError, "is closed"):
                await file.read()
            with self.assertRaisesRegex(KeyError, "mine"):
                async with await fs.open_async("here/never", "wb") as file:
                    await file.write(b"half")
                    raise KeyError("mine")
            self.assertFalse(await fs._exists("here/never"))
            with self.assertRaisesRegex(FileExistsError, "gs://here/out: exists already"):
                await fs.open_async("here/out", "xb")
            file = await fs.open_async("here/race", "xb")
            await fs._pipe_file("here/race", b"first")
            await file.write(b"second")
            with self.assertRaisesRegex(FileExistsError, "gs://here/race: exists already"):
                await file.close()
            self.assertEqual(await fs._cat_file("here/race"), b"first")
            with self.assertRaisesRegex(NotImplementedError, "mode is"):
                await fs.open_async("here/out", "ab")
            with self.assertRaises(FileNotFoundError):
                await fs.open_async("here/none")

        asyncio.run(main())

    def test_it_is_an_asynchronous_filesystem_to_others(self):
        ringest.fs.register(self.client)
        fs = fsspec.filesystem("gs", asynchronous=True)
        self.assertIsInstance(fs, AsyncFileSystem)
        self.assertTrue(fs.async_impl and fs.asynchronous)
        self.assertIs(fs.client, self.client)
        # Of synchronous code that runs coroutines by itself.
        self.assertEqual(fsspec.asyn.sync(self.fs.loop, self.fs._cat_file, "here/run/a"), b"first")
        within = fsspec.filesystem("dir", path="here/run", fs=self.fs)
        self.assertEqual((within.cat("a"), asyncio.run(within._cat_file("b"))), (b"first", b"second one"))
        for made in (self.fs, fs):
            again = fsspec.AbstractFileSystem.from_json(made.to_json())
            self.assertIs(again.client, self.client)
            self.assertEqual((again, again.asynchronous), (made, made.asynchronous))
        self.assertEqual(pickle.loads(pickle.dumps(fs)).asynchronous, True)

    def test_json_for_another_process_has_the_settings(self):
        made = json.loads(self.fs.to_json())
        made["session"] = "another process's"
        again = fsspec.AbstractFileSystem.from_json(json.dumps(made))
        self.assertIsNot(again.client, self.client)
        self.assertEqual(again.cat("here/run/a"), b"first")
        again.client.close()


class AsGcsfs(Case):
    def test_names(self):
        self.assertIs(ringest.fs.FileSystem, ringest.fs.GCSFileSystem)
        self.assertIn("GCSFileSystem(", repr(self.fs))

    def test_versions(self):
        old = self.fs.info("here/run/a")["generation"]
        with support.emulator() as (endpoint, ca), ringest.Client(endpoint, ca) as client:
            support.make_bucket(endpoint, ca, "versioned", versioning={"enabled": True})
            plain = ringest.fs.GCSFileSystem(client=client)
            fs = ringest.fs.GCSFileSystem(client=client, version_aware=True)
            generations = []
            for data in (b"one", b"two!"):
                fs.pipe_file("versioned/d/a", data)
                generations.append(fs.info("versioned/d/a")["generation"])
            fs.pipe_file("versioned/d/e/f", b"deep")
            first = f"versioned/d/a#{generations[0]}"
            self.assertEqual((fs.cat_file(first), fs.cat_file("versioned/d/a")), (b"one", b"two!"))
            self.assertEqual(fs.cat_file(f"gs://versioned/d/a?generation={generations[0]}", -2), b"ne")
            self.assertEqual(fs.cat_ranges([first, "versioned/d/a"], [0, -1], [2, None]), [b"on", b"!"])
            self.assertEqual((fs.info(first)["size"], fs.exists(first), fs.checksum(first)), (3, True, generations[0]))
            self.assertFalse(fs.exists("versioned/d/a#1"))
            with fs.open(first) as file:
                self.assertEqual(file.read(), b"one")
            self.assertEqual(asyncio.run(fs._cat_file(first)), b"one")
            self.assertEqual(
                fs.ls("versioned/d", detail=False, versions=True), [first, f"versioned/d/a#{generations[1]}"]
            )
            self.assertEqual(
                fs.ls("versioned/d/a", detail=False, versions=True), [first, f"versioned/d/a#{generations[1]}"]
            )
            self.assertEqual([entry["size"] for entry in asyncio.run(fs._ls("versioned/d", versions=True))], [3, 4])
            with self.assertRaises(FileNotFoundError):
                fs.ls("versioned/none", versions=True)
            fs.cp_file(first, "versioned/d/back")
            fs.get_file(first, self.local("old"))
            self.assertEqual(
                (fs.cat("versioned/d/back"), pathlib.Path(self.local("old")).read_bytes()), (b"one", b"one")
            )
            self.assertEqual(plain.cat_file("versioned/d/a", generation=generations[0]), b"one")
            self.assertEqual(plain.info("versioned/d/a", generation=generations[0])["size"], 3)
            with plain.open("versioned/d/a", generation=generations[0]) as file:
                self.assertEqual(file.read(), b"one")
            # Without being aware of versions, it is a name like any other.
            self.assertFalse(plain.exists(first))
            fs.rm_file(first)
            self.assertEqual((fs.exists(first), fs.cat("versioned/d/a")), (False, b"two!"))
        self.assertEqual(self.fs.info("here/run/a")["generation"], old)

    def test_urls(self):
        context = ssl.create_default_context(cafile=self.client._settings["ca"])
        with urllib.request.urlopen(self.fs.url("here/run/[1]?"), context=context) as answer:
            self.assertEqual(answer.read(), b"odd")
        pem = subprocess.run(
            ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
            check=True,
            capture_output=True,
        ).stdout.decode()
        account = {"type": "service_account", "client_email": "a@b.iam.gserviceaccount.com", "private_key": pem}
        pathlib.Path(self.local("key.json")).write_text(json.dumps(account))
        fs = ringest.fs.GCSFileSystem(
            endpoint=self.client._settings["endpoint"],
            ca=self.client._settings["ca"],
            credentials=self.local("key.json"),
        )
        url = fs.sign("gs://here/run/a", expiration=50)
        self.assertIn("X-Goog-Expires=50", url)
        with urllib.request.urlopen(url, context=context) as answer:
            self.assertEqual(answer.read(), b"first")
        self.assertIn("X-Goog-Expires=100", fs.sign("here/run/a"))
        with self.assertRaisesRegex(ValueError, "expires must be 1 to"):
            fs.sign("here/run/a", expiration=0)
        with self.assertRaisesRegex(ValueError, "this is not gs://BUCKET/OBJECT"):
            fs.sign("here")

    def test_attributes_and_merges(self):
        self.assertEqual(self.fs.setxattrs("here/run/a", content_type="text/x", key="value", other="o")["key"], "value")
        self.assertEqual(self.fs.getxattr("here/run/a", "key"), "value")
        self.fs.setxattrs("here/run/a", key=None, fixed_key_metadata={"cache_control": "no-store"})
        info = self.fs.info("here/run/a")
        self.assertEqual(
            (info["metadata"], info["contentType"], info["cacheControl"]), ({"other": "o"}, "text/x", "no-store")
        )
        self.assertIsNone(self.fs.getxattr("here/run/a", "key"))
        with self.assertRaisesRegex(ValueError, "only cache_control is known here, not custom_time"):
            self.fs.setxattrs("here/run/a", fixed_key_metadata={"custom_time": "x"})
        self.fs.merge("here/both", ["here/run/a", "here/run/b"])
        self.assertEqual(self.fs.cat("here/both"), b"firstsecond one")

    def test_a_folder_in_the_place_of_an_object(self):
        for call in (self.fs.cat, self.fs.open, self.fs.checksum, self.fs.created, self.fs.modified, self.fs.ukey):
            with self.assertRaisesRegex(IsADirectoryError, "gs://here/run: no such object, but a folder"):
                call("here/run")
            with self.assertRaises(FileNotFoundError):
                call("here/none")

    def test_caches_of_fsspec(self):
        self.fs.pipe_file("here/large", LARGE)
        for name in caches:
            if name is None:
                continue
            options = {"data": {(0, 100): LARGE[:100]}} if name == "parts" else {}
            with (
                self.subTest(name),
                self.fs.open("here/large", cache_type=name, block_size=100_000, cache_options=options) as file,
            ):
                if name == "parts":
                    self.assertEqual(file.read(10), LARGE[:10])
                    continue
                self.assertEqual(
                    (file.read(10), file.seek(500_000), file.read(7)), (LARGE[:10], 500_000, LARGE[500_000:500_007])
                )
                file.seek(0)
                self.assertEqual(file.read(), LARGE)
                self.assertEqual((file.size, file.tell(), file.read(1)), (len(LARGE), len(LARGE), b""))
            self.assertTrue(file.closed)
        with self.assertRaisesRegex(ValueError, "cache_type is one of .*blockcache"):
            self.fs.open("here/large", cache_type="foo")
        with self.assertRaisesRegex(ValueError, "block_size"):
            self.fs.open("here/large", cache_type="bytes", block_size="large")

    def test_a_cached_file_is_of_one_generation(self):
        self.fs.pipe_file("here/large", LARGE)
        with self.fs.open("here/large", cache_type="blockcache", block_size=100_000) as file:
            file.read(10)
            self.fs.pipe_file("here/large", b"replaced")
            file.seek(900_000)
            # It may have been read ahead.
            with contextlib.suppress(FileNotFoundError):
                self.assertEqual(file.read(10), LARGE[900_000:900_010])

    def test_caches_on_disk(self):
        ringest.fs.register(self.client)
        self.fs.pipe_file("here/large", LARGE)
        for name in ("blockcache", "filecache", "simplecache"):
            with self.subTest(name):
                options = {name: {"cache_storage": self.local(name)}}
                for _ in range(2):
                    with fsspec.open(f"{name}::gs://here/large", "rb", **options) as file:
                        file.seek(1000)
                        self.assertEqual(file.read(300), LARGE[1000:1300])
        with fsspec.open(
            "filecache::gs://here/run/a", filecache={"cache_storage": self.local("f"), "check_files": True}
        ) as file:
            self.assertEqual(file.read(), b"first")
        self.fs.pipe_file("here/run/a", b"other")
        with fsspec.open(
            "filecache::gs://here/run/a", filecache={"cache_storage": self.local("f"), "check_files": True}
        ) as file:
            self.assertEqual(file.read(), b"other")

    def test_a_child_of_fork(self):
        self.assertEqual(asyncio.run(self.fs._cat_file("here/run/a")), b"first")
        with contextlib.suppress(RuntimeError):
            self.assertIsNotNone(self.fs.loop)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if self.fs.cat_file("here/run/b") == b"second one" else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)


if __name__ == "__main__":
    unittest.main()
