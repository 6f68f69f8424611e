"""The client: one request, many requests, errors, memory, threads, signals and forks."""

import contextlib
import ctypes
import gc
import io
import logging
import os
import pickle
import signal
import threading
import time
import unittest

import ringest
import ringest.checkpoint
import support


class One(unittest.TestCase):
    def test_get_and_put(self):
        with support.client() as client:
            generation = client.put("gs://new/a b/ü", b"hello", content_type="text/plain")
            self.assertEqual(bytes(client.get("gs://new/a b/ü")), b"hello")
            self.assertEqual(bytes(client.get("gs://new/a b/ü", offset=1, length=3)), b"ell")
            self.assertEqual(bytes(client.get("gs://new/a b/ü", generation=generation)), b"hello")
            with self.assertRaises(ringest.PreconditionError):
                client.put("gs://new/a b/ü", b"again", if_generation_match=0)
            self.assertGreater(client.put("gs://new/a b/ü", b"", if_generation_match=generation), generation)
            self.assertEqual(len(client.get("gs://new/a b/ü")), 0)

    def test_storage_classes(self):
        """Of every way to write, in one request and in parts, and what is no class is named."""
        with support.client() as client:
            at = "gs://new/classes/"
            client.put(at + "small", b"x", storage_class="NEARLINE")
            client.put(at + "guarded", b"x", storage_class="NEARLINE", if_generation_match=0)
            client.put(at + "large", bytes(9 << 20), storage_class="NEARLINE")
            client.put(at + "large guarded", bytes(9 << 20), storage_class="NEARLINE", if_generation_match=0)
            client.put_many([(at + "many", b"x")], storage_class="NEARLINE")
            for name, options in (("stream", {}), ("new stream", {"if_generation_match": 0})):
                with client.writer(at + name, storage_class="NEARLINE", **options) as writer:
                    writer.write(bytes(9 << 20))
            with ringest.checkpoint.open(at + "file", "wb", client=client, storage_class="NEARLINE") as file:
                file.write(b"x")
            with self.assertRaisesRegex(ringest.Error, "have different storage classes"):
                client.compose(at + "joined", [at + "small", at + "many"])
            client.compose(at + "joined", [at + "small", at + "many"], storage_class="NEARLINE")
            names = [f"gs://new/{entry[0]}" for entry in client.list(at)]
            self.assertEqual(len(names), 9)
            self.assertEqual({client.stat(name)["storage_class"] for name in names}, {"NEARLINE"})
            for wrong in ("", "NEAR LINE", "NEAR\nLINE"):
                for call in (
                    lambda wrong=wrong: client.put(at + "w", b"x", storage_class=wrong),
                    lambda wrong=wrong: client.writer(at + "w", storage_class=wrong),
                    lambda wrong=wrong: client.copy(at + "small", at + "w", storage_class=wrong),
                ):
                    with self.assertRaisesRegex(ValueError, "storage_class must be a class such as 'NEARLINE'"):
                        call()
            with self.assertRaisesRegex(TypeError, "storage_class must be a str or None"):
                client.put(at + "w", b"x", storage_class=5)

    def test_stat_list_and_delete(self):
        with support.client() as client:
            client.put("gs://new/a/1", b"one")
            client.put("gs://new/a/2", b"two")
            facts = client.stat("gs://new/a/2")
            self.assertEqual((facts["name"], facts["size"]), ("a/2", 3))
            found = client.list("gs://new/a/")
            self.assertEqual([(entry[0], entry[1]) for entry in found], [("a/1", 3), ("a/2", 3)])
            client.delete("gs://new/a/2")
            self.assertEqual(len(client.list("gs://new/a/")), 1)
            self.assertEqual(len(client.list("gs://data/")), support.COUNT)

    def test_errors_whose_text_is_cut_within_a_character(self):
        with support.client() as one:
            for before in ("", "x", "xx"):
                with self.assertRaises(ringest.NotFoundError):
                    one.get(f"gs://data/{before}{'日' * 340}")

    def test_ranges_of_one_object(self):
        with support.client() as client:
            whole = bytes(client.get(support.uri(1)))
            ranges = [(1990, 100), (0, 0), (5, 10), (0, 7), (500, 1)]
            parts = client.get_ranges(support.uri(1), ranges)
            self.assertEqual(parts, [whole[a : a + n] for a, n in ranges])
            # They share memory, which stays as long as one of them.
            self.assertGreater(client.stats()["leased_bytes"], 0)
            last = memoryview(parts.pop())
            del parts
            gc.collect()
            self.assertEqual(bytes(last), whole[500:501])
            del last
            gc.collect()
            self.assertEqual(client.stats()["leased_bytes"], 0)
            self.assertEqual(client.get_ranges(support.uri(1), iter([(0, 2000)])), [whole])
            self.assertEqual(client.get_ranges(support.uri(1), []), [])
            with self.assertRaisesRegex(ringest.Error, support.name(1)) as caught:
                client.get_ranges(support.uri(1), [(0, 1), (5000, 1)])
            self.assertEqual(caught.exception.status, "RANGE")
            with self.assertRaises(ringest.NotFoundError):
                client.get_ranges(support.uri(1), [(0, 1)], generation=7)
            for wrong in ([1], [(1,)], [(0, -1)], [("a", 1)], 7):
                with self.subTest(wrong), self.assertRaises((TypeError, OverflowError, ValueError)):
                    client.get_ranges(support.uri(1), wrong)
            with self.assertRaisesRegex(ValueError, "5000 ranges.*at most 4096"):
                client.get_ranges(support.uri(1), [(0, 1)] * 5000)

    def test_a_large_object_is_put_in_parts(self):
        with support.client() as client:
            data = os.urandom(9 << 20)
            generation = client.put("gs://new/large", data)
            self.assertEqual(client.get("gs://new/large"), data)
            self.assertEqual(client.stat("gs://new/large")["generation"], generation)
            with self.assertRaises(ringest.PreconditionError):
                client.put("gs://new/large", data, if_generation_match=0)

    def test_errors_name_the_object_and_the_cause(self):
        with support.client() as client:
            with self.assertRaises(ringest.NotFoundError) as caught:
                client.get("gs://data/nothing")
            error = caught.exception
            self.assertIsInstance(error, FileNotFoundError)
            self.assertEqual((error.uri, error.status, error.http_status), ("gs://data/nothing", "NOT_FOUND", 404))
            self.assertIn("gs://data/nothing", str(error))
            self.assertEqual(type(error).__module__, "ringest")
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), str(again), again.uri), (type(error), str(error), error.uri))

    def test_what_cannot_be_asked_for_is_refused(self):
        with support.client() as client:
            for uri in (
                "data/x",
                "gs://data",
                "gs:///x",
                "gs://" + "b" * 300 + "/x",
                "gs://b/" + "o" * 1025,
                "gs://b/\0",
            ):
                with self.subTest(uri), self.assertRaises(ValueError):
                    client.get(uri)
            with self.assertRaises(TypeError):
                client.get(1)
            for wrong in ({"offset": -1}, {"length": -5}, {"offset": 1 << 64}):
                ((name, number),) = wrong.items()
                with self.subTest(wrong), self.assertRaisesRegex(ValueError, f"^{name} must be 0 to .*, got {number}$"):
                    client.get(support.uri(0), **wrong)
            with self.assertRaisesRegex(ValueError, "^'s3://b/x' is not of the form gs://BUCKET/NAME$"):
                client.list("s3://b/x")
            with self.assertRaisesRegex(
                ValueError, "^the URI that begins with gs://b/o+ has .* a name of 1025 bytes; 222 and 1024"
            ):
                client.get("gs://b/" + "o" * 1025)
            with self.assertRaisesRegex(TypeError, "a list of URIs"):
                client.get_many(support.uri(0))
            ((item,),) = client.get_many(["gs://bucket/two\nlines"])
            self.assertIn("without line breaks", str(item.error))
        with self.assertRaises(ValueError):
            client.get("gs://data/x")

    def test_bad_settings_are_explained(self):
        with self.assertRaisesRegex(ValueError, "^memory_timeout must be 0 to .*, got -1$"):
            ringest.Client(memory_timeout=-1)
        for name in ("threads", "connections", "attempts"):
            with self.subTest(name), self.assertRaisesRegex(ValueError, f'^{name} must be 1 to .*, got "-1"$'):
                ringest.Client(**{name: -1})
        for name, most in (("threads", 256), ("connections", 65536), ("attempts", 1000)):
            with self.subTest(name), self.assertRaisesRegex(ValueError, f"^{name} must be 1 to {most}, got 70000$"):
                ringest.Client(**{name: 70000})
        with self.assertRaisesRegex(FileNotFoundError, "manifest /nowhere: No such file"):
            ringest.Objects(manifest="/nowhere")
        with self.assertRaisesRegex(ValueError, "memory.*64 parsecs"):
            ringest.Client(memory="64 parsecs")
        with self.assertRaisesRegex(OSError, "/nowhere/ca.pem"):
            ringest.Client("https://localhost:1", "/nowhere/ca.pem").get("gs://b/o")
        with self.assertRaisesRegex(OSError, "/nowhere/key.json"):
            ringest.Client(credentials="/nowhere/key.json").get("gs://b/o")


class Memory(unittest.TestCase):
    def test_a_buffer_is_bytes_like(self):
        with support.client() as client:
            data = client.get(support.uri(7))
            whole = bytes(data)
            self.assertEqual(len(data), support.SIZE)
            self.assertEqual(data, whole)
            self.assertNotEqual(data, whole[:-1])
            self.assertEqual(data[3], whole[3])
            self.assertEqual(bytes(data[10:20]), whole[10:20])
            self.assertIn(str(support.SIZE), repr(data))
            self.assertEqual(pickle.loads(pickle.dumps(data)), whole)

    def test_views_keep_the_memory(self):
        with support.client(memory="64MiB") as client:
            view = memoryview(client.get(support.uri(1)))
            whole = bytes(view)
            del client
            gc.collect()
            self.assertEqual(bytes(view), whole)

    def test_memory_comes_back(self):
        with support.client() as client:
            held = [client.get(support.uri(i)) for i in range(20)]
            self.assertGreaterEqual(client.stats()["leased_bytes"], 20 * support.SIZE)
            del held
            gc.collect()
            self.assertEqual(client.stats()["leased_bytes"], 0)

    def test_dlpack_is_a_view(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        with support.client() as client:
            data = client.get(support.uri(2))
            array = numpy.from_dlpack(data)
            self.assertEqual((array.dtype, array.shape), (numpy.uint8, (support.SIZE,)))
            self.assertEqual(array.tobytes(), bytes(data))
            address = ctypes.addressof(ctypes.c_char.from_buffer(data))
            self.assertEqual(array.__array_interface__["data"][0], address)
            del data
            gc.collect()
            self.assertGreater(client.stats()["leased_bytes"], 0)
            del array
            gc.collect()


class Many(unittest.TestCase):
    def test_every_item_comes_once(self):
        uris = [support.uri(i % support.COUNT) for i in range(2500)]
        with support.client() as client:
            for ordered in (False, True):
                seen = []
                for batch in client.get_many(iter(uris), ordered=ordered, batch=100):
                    self.assertLessEqual(len(batch), 100)
                    for item in batch:
                        self.assertIsNone(item.error)
                        self.assertEqual(item.uri, uris[item.index])
                        self.assertEqual(len(item.data), support.SIZE)
                        seen.append(item.index)
                self.assertEqual(seen if ordered else sorted(seen), list(range(2500)))

    def test_errors_are_in_their_items(self):
        uris = [support.uri(0), "gs://data/nothing", support.uri(1), "gs://data/."]
        with support.client() as client:
            (items,) = client.get_many(uris, ordered=True)
            self.assertEqual([item.error is None for item in items], [True, False, True, False])
            self.assertIsInstance(items[1].error, ringest.NotFoundError)
            self.assertIsNone(items[1].data)

    def test_lists_are_short_of_more_bytes_than_memory_has_room_for(self):
        count, size = 80, 8 << 20
        with support.client("--synthetic", f"data/big-:{count}:{size}", memory="512MiB") as client:
            for ordered in (False, True):
                uris = (f"gs://data/big-{i:08d}" for i in range(count))
                lengths = []
                for items in client.get_many(uris, ordered=ordered, batch=count):
                    self.assertTrue(all(len(item.data) == size for item in items))
                    lengths.append(len(items))
                self.assertEqual(sum(lengths), count)
                self.assertGreater(len(lengths), 1)

    def test_lists_are_small_if_their_length_is_not_given(self):
        count, size = 40, 256 << 10
        with support.client("--synthetic", f"data/part-:{count}:{size}") as client:
            uris = [f"gs://data/part-{i:08d}" for i in range(count)]
            for batch in (None, 256):
                lengths = [len(items) for items in client.get_many(uris, ordered=True, batch=batch)]
                self.assertEqual(lengths, [16, 16, 8] if batch is None else [count])
            lengths = [len(items) for items in client.get_many(uris)]
            self.assertEqual(sum(lengths), count)
            # What sizes are is known when the first have come.
            self.assertLessEqual(max(lengths[1:], default=0), 16)

    def test_it_may_be_left_early(self):
        with support.client() as client:
            for _ in range(5):
                batches = client.get_many([support.uri(i) for i in range(support.COUNT)], batch=3)
                next(batches)
                del batches
            gc.collect()
            self.assertEqual(client.stats()["leased_bytes"], 0)

    def test_a_bad_iterator_raises(self):
        def uris():
            yield support.uri(0)
            raise KeyError("mine")

        with support.client() as client:
            with self.assertRaisesRegex(KeyError, "mine"):
                list(client.get_many(uris()))
            with self.assertRaises(TypeError):
                list(client.get_many([7]))
            self.assertEqual(list(client.get_many([])), [])

    def test_many_are_written_and_removed(self):
        with support.client() as client:
            objects = [(f"gs://new/{i}", str(i).encode()) for i in range(350)]
            generations = client.put_many(iter(objects), content_type="text/plain")
            self.assertEqual(client.stat(objects[-1][0])["generation"], generations[-1])
            self.assertEqual(client.get(objects[77][0]), b"77")
            with self.assertRaisesRegex(
                ExceptionGroup, "^1 object could not be written, the first: 'nothing' is not"
            ) as caught:
                client.put_many([("nothing", b""), ("gs://new/good", b"1")])
            self.assertIsInstance(caught.exception.exceptions[0], ValueError)
            self.assertEqual(client.get("gs://new/good"), b"1")
            client.delete(["gs://new/good"])
            client.delete(uri for uri, _ in objects[1:])
            self.assertEqual([name for name, _, _ in client.list("gs://new/")], ["0"])
            with self.assertRaisesRegex(
                ExceptionGroup, "^1 object could not be removed, the first: gs://new/1"
            ) as caught:
                client.delete(["gs://new/0", "gs://new/1"])
            self.assertIsInstance(caught.exception.exceptions[0], ringest.NotFoundError)
            client.delete(["gs://new/0", "gs://new/1"], missing_ok=True)
            client.delete([])
            generation = client.put("gs://new/one", b"1")
            client.put("gs://new/one", b"2")
            with self.assertRaises(ringest.PreconditionError):
                client.delete("gs://new/one", if_generation_match=generation)
            self.assertEqual(client.get("gs://new/one"), b"2")
            client.delete("gs://new/one", if_generation_match=client.stat("gs://new/one")["generation"])
            with self.assertRaisesRegex(ValueError, "of one object"):
                client.delete(["gs://new/one"], if_generation_match=1)
            known = [(f"gs://new/{i}", client.put(f"gs://new/{i}", b"old")) for i in range(3)]
            client.put("gs://new/1", b"new")
            with self.assertRaises(ExceptionGroup) as caught:
                client.delete(known)
            self.assertEqual([error.uri for error in caught.exception.exceptions], ["gs://new/1"])
            self.assertIsInstance(caught.exception.exceptions[0], ringest.PreconditionError)
            self.assertEqual([name for name, _, _ in client.list("gs://new/")], ["1"])
            for wrong in (("gs://new/1",), ("gs://new/1", 0), ("gs://new/1", -1), ("gs://new/1", 2, 3), (1, 2)):
                with self.assertRaises((ValueError, TypeError)):
                    client.delete([wrong])
            client.delete(["gs://new/1"])
            with self.assertRaises(ValueError):
                client.delete(["nothing"])

    def test_progress_is_shown_where_tqdm_is(self):
        try:
            import tqdm  # noqa: F401
        except ImportError:
            self.skipTest("tqdm is not installed")
        with support.client() as client, contextlib.redirect_stderr(io.StringIO()) as shown:
            uris = [support.uri(i) for i in range(support.COUNT)]
            self.assertEqual(sum(map(len, client.get_many(uris, progress="reading"))), support.COUNT)
            client.list("gs://data/", progress=True)
            client.put_many([("gs://new/1", b"")], progress=True)
        for text in ("reading", "500/500", "gs://data/", "1/1"):
            self.assertIn(text, shown.getvalue())


class Pressure(unittest.TestCase):
    """More is asked for than memory holds: what was let go of is used again, and nothing waits for
    ever."""

    SIZE = 1 << 20
    COUNT = 60

    def client(self, **options):
        return support.client("--synthetic", f"large/x-:{self.COUNT}:{self.SIZE}", memory="8MiB", threads=1, **options)

    def uris(self):
        return [f"gs://large/x-{i:08d}" for i in range(self.COUNT)]

    def test_lists_are_shorter_than_a_batch(self):
        with self.client() as client:
            for ordered in (False, True):
                seen, batches = [], 0
                for items in client.get_many(self.uris(), ordered=ordered):
                    batches += 1
                    seen += [item.index for item in items if len(item.data) == self.SIZE]
                    del items
                self.assertEqual(seen if ordered else sorted(seen), list(range(self.COUNT)))
                self.assertGreater(batches, self.COUNT // 8)

    def test_the_first_in_order_comes_though_others_fill_memory(self):
        # The first is large and slow, the rest small enough that many of them fill memory before it.
        with support.client(
            "--synthetic",
            "large/first:1:3145728",
            "--synthetic",
            f"large/x-:{self.COUNT}:{self.SIZE}",
            memory="8MiB",
            threads=1,
        ) as client:
            uris = ["gs://large/first00000000", *self.uris()] * 2
            seen = []
            for items in client.get_many(uris, ordered=True, batch=4):
                seen += [item.index for item in items if item.error is None]
                del items
            self.assertEqual(seen, list(range(len(uris))))

    def test_what_the_caller_keeps_ends_in_an_error(self):
        for what in ("get", "unordered", "ordered"):
            with self.subTest(what), self.client(memory_timeout=0.3) as client:
                kept = []
                with self.assertRaisesRegex(MemoryError, "still referred to.*memory="):
                    if what == "get":
                        for uri in self.uris():
                            kept.append(client.get(uri))
                    else:
                        kept += client.get_many(self.uris(), ordered=what == "ordered")
                self.assertGreater(client.stats()["held_bytes"], 1 << 20)
                kept.clear()
                gc.collect()
                self.assertEqual(client.stats()["held_bytes"], 0)
                self.assertEqual(len(client.get(self.uris()[0])), self.SIZE)


class Log(unittest.TestCase):
    def test_it_says_what_is_out_of_the_common(self):
        with self.assertLogs("ringest", "DEBUG") as told:
            with support.client("--latency-ms", "1500") as client:
                client.get(support.uri(0))
                self.assertEqual(len(list(client.get_many([support.uri(0)]))), 1)
            with support.client() as client:
                client.get(support.uri(0))
        ours = [line for line in told.output if line.startswith("DEBUG:ringest:")]
        self.assertRegex(ours[0], "DEBUG:ringest:backend (uring|epoll), [0-9]+ event loops")
        slow = [line for line in ours if support.uri(0) in line]
        self.assertEqual(len(slow), 2, told.output)
        self.assertRegex(slow[0], "1 attempts, [1-9][0-9.]* s, OK")

    def test_it_says_nothing_of_each_object_at_level_info(self):
        with self.assertLogs("ringest", "INFO") as told, support.client() as client:
            for i in range(20):
                client.get(support.uri(i))
        self.assertLess(len(told.output), 10)
        self.assertEqual([line for line in told.output if "gs://" in line], [])


class Process(unittest.TestCase):
    def test_threads_share_a_client(self):
        failures = []

        def run(client, number):
            try:
                for i in range(50):
                    assert len(client.get(support.uri((number * 50 + i) % support.COUNT))) == support.SIZE
            except Exception as error:
                failures.append(error)

        with support.client() as client:
            threads = [threading.Thread(target=run, args=(client, i)) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(failures, [])

    def test_each_call_gets_its_own_answer(self):
        """Calls use queues of others that have ended."""
        with support.client() as client:
            whole = {i: bytes(client.get(support.uri(i))) for i in range(8)}
            wrong = []

            def run(number):
                for i in range(200):
                    at = (number + i) % 8
                    if bytes(client.get(support.uri(at))) != whole[at]:
                        wrong.append(at)

            threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(len(set(whole.values())), 8)
            self.assertEqual(wrong, [])

    def test_the_call_after_one_that_was_ended_gets_its_own_answer(self):
        class Ended(Exception):
            pass

        def end(*_):
            raise Ended

        before = signal.signal(signal.SIGALRM, end)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        with support.client("--latency-ms", "5") as client:
            whole = {i: bytes(client.get(support.uri(i))) for i in range(2)}
            for i in range(30):
                with contextlib.suppress(Ended):
                    signal.setitimer(signal.ITIMER_REAL, 0.001 + i / 10000)
                    client.get(support.uri(0))
                    signal.setitimer(signal.ITIMER_REAL, 0)
                self.assertEqual(bytes(client.get(support.uri(1))), whole[1])
            self.assertNotEqual(whole[0], whole[1])

    def test_a_client_is_closed_while_a_call_waits(self):
        got = []
        with support.emulator() as place:
            client = ringest.Client(*place, hedging=False)
            client.get(support.uri(0))
            with support.Rule(place, effect="none", answer="held") as held:
                thread = threading.Thread(target=lambda: got.append(client.get(support.uri(0))))
                thread.start()
                held.wait()
                client.close()
            thread.join()
        self.assertEqual([len(each) for each in got], [support.SIZE])

    def test_a_handler_forks_while_a_call_waits(self):
        """The request stays the parent's; the child's next call has all of its own."""
        children = []

        def fork(*_):
            children.append(os.fork())
            if children != [0]:
                held.end()

        before = signal.signal(signal.SIGUSR1, fork)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        with support.emulator() as place, ringest.Client(*place, hedging=False) as client:
            client.get(support.uri(0))
            with support.Rule(place, effect="none", answer="held") as held:
                teller = threading.Thread(target=lambda: (held.wait(), os.kill(os.getpid(), signal.SIGUSR1)))
                teller.start()
                try:
                    size = len(client.get(support.uri(0)))
                except OSError:
                    os._exit(0 if children == [0] and len(client.get(support.uri(0))) == support.SIZE else 1)
                finally:
                    if children == [0]:
                        os._exit(1)
                teller.join()
            self.assertEqual(size, support.SIZE)
            self.assertEqual([os.waitpid(child, 0)[1] for child in children], [0])

    def test_ctrl_c_ends_a_wait(self):
        # Answers take a minute.
        with support.client("--latency-ms", "60000") as client:
            timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            started = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                client.get(support.uri(0))
            with self.assertRaises(KeyboardInterrupt):
                again = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
                again.start()
                list(client.get_many([support.uri(i) for i in range(100)]))
            self.assertLess(time.monotonic() - started, 55)

    def test_ctrl_c_says_what_it_waits_for(self):
        """Whether a write that was sent is stored is asked for, of a server that does not answer."""
        said = []

        class Freeing(logging.Handler):
            def emit(self, record):
                if record.name == "ringest":
                    said.append(record.getMessage())
                    held.end()

        handler = Freeing(logging.WARNING)
        logging.getLogger("ringest").addHandler(handler)
        self.addCleanup(logging.getLogger("ringest").removeHandler, handler)
        with support.emulator() as place, ringest.Client(*place, hedging=False) as client:
            writer = client.writer("gs://mine/a")
            held = support.Rule(place, effect="none", answer="held", times=10**6)
            interrupt = threading.Thread(target=lambda: (held.wait(), os.kill(os.getpid(), signal.SIGINT)))
            interrupt.start()
            with held, self.assertRaises(KeyboardInterrupt):
                writer.finish()
            interrupt.join()
        self.assertEqual(
            said,
            ["waiting up to 30 s for the end of 1 cancelled request: what an upload has left on the server is removed"],
        )

    def test_a_child_opens_its_own(self):
        with support.client() as client:
            held = client.get(support.uri(3))
            batches = client.get_many([support.uri(i) for i in range(support.COUNT)], batch=10)
            next(batches)
            whole = bytes(held)
            child = os.fork()
            if child == 0:
                good = False
                try:
                    good = bytes(client.get(support.uri(3))) == whole == bytes(held)
                    del held, batches
                    gc.collect()
                finally:
                    os._exit(0 if good else 1)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.assertEqual(sum(len(batch) for batch in batches), support.COUNT - 10)
            self.assertEqual(bytes(client.get(support.uri(3))), whole)

    def test_everything_is_given_back(self):
        with support.emulator() as (endpoint, ca):
            ringest.Client(endpoint, ca).get(support.uri(0))
            gc.collect()
            files, threads = support.files_open(), support.threads_running()
            for _ in range(3):
                with ringest.Client(endpoint, ca) as client:
                    client.get(support.uri(0))
            self.assertEqual((support.files_open(), support.threads_running()), (files, threads))

    def test_statistics_are_of_all_clients(self):
        before = ringest.stats()
        with support.emulator() as (endpoint, ca):
            with (
                ringest.Client(endpoint, ca, hedging=False) as one,
                ringest.Client(endpoint, ca, hedging=False) as other,
            ):
                one.get(support.uri(0))
                for index in range(3):
                    other.get(support.uri(index))
                self.assertEqual((one.stats()["requests"], ringest.stats(other)["requests"]), (1, 3))
                self.assertEqual(ringest.stats()["connections"] - before["connections"], 2)
            now = ringest.stats()
        self.assertEqual(now["requests"] - before["requests"], 4)
        self.assertEqual(now["total"]["count"] - before["total"]["count"], 4)
        self.assertEqual(now["connections"], before["connections"])
        self.assertEqual((now["concurrency_limit"], now["backoffs"]), (0, before["backoffs"]))

    def test_what_has_ended_keeps_no_client_open(self):
        """test_dataset.py does the same with a dataset: this file does without PyTorch, whose import takes longer."""

        def written(client):
            writer = client.writer("gs://new/written")
            writer.write(b"one")
            writer.finish()
            return writer

        def taken(client):
            items = client.get_many([support.uri(0), support.uri(1)])
            self.assertEqual(sum(len(batch) for batch in items), 2)
            return items

        def read(client):
            with ringest.checkpoint.open(support.uri(0), client=client) as file:
                file.read(3)
            return file

        with support.emulator() as (endpoint, ca):
            with ringest.Client(endpoint, ca) as client:
                taken(client)
            gc.collect()
            files, threads = support.files_open(), support.threads_running()
            for use in (written, taken, read):
                with self.subTest(use.__name__):
                    with ringest.Client(endpoint, ca) as client:
                        kept = use(client)
                    self.assertEqual((support.files_open(), support.threads_running()), (files, threads))
                    del kept

    def test_two_stacks_of_tls_in_one_process(self):
        import ssl
        import urllib.request

        with support.emulator() as (endpoint, ca):
            with ringest.Client(endpoint, ca) as client:
                ours = bytes(client.get(support.uri(9)))
                context = ssl.create_default_context(cafile=ca)
                address = f"{endpoint}/storage/v1/b/data/o/{support.name(9)}?alt=media"
                with urllib.request.urlopen(address, context=context) as answer:
                    self.assertEqual(answer.read(), ours)
                self.assertEqual(bytes(client.get(support.uri(9))), ours)


if __name__ == "__main__":
    unittest.main()
