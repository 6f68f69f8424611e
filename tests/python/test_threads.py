"""No sequence of calls, from any number of threads, from within each other, or half done, harms the interpreter:
each object has one user at a time, and who closes it ends that use."""

import contextlib
import gc
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import unittest
import weakref

import ringest
import support
from ringest import _core

# No answer comes as long as a test lasts.
NEVER = ("--latency-ms", "600000")
USED = "in use by another thread|being advanced already, by another thread"
# More than a part.
LARGE = bytes(12 << 20)
CLOSED = "was closed while it was in use"
WITHIN = "in use by a call that this one is made from"


class Slow(unittest.TestCase):
    """A server that does not answer, so that whoever waits does so until somebody ends it."""

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.endpoint, cls.ca = cls.stack.enter_context(support.emulator(*NEVER))

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def client(self, **options):
        return ringest.Client(self.endpoint, self.ca, threads=1, **options)

    def waits(self, call):
        """Runs the call in a thread until it has let others run; gives the thread and what it raised."""
        begun, raised = threading.Event(), []

        def run():
            begun.set()
            try:
                call()
            except Exception as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        begun.wait()
        return thread, raised

    def reader(self, client):
        return _core.Reader(client, _core.Objects("data", support.entries()), indices=[1, 2, 3])

    def each(self, client):
        """What can wait: its name, the object, a call that waits, and how it is ended."""
        many = client.get_many([support.uri(i) for i in range(10)])
        yield "many", many, lambda: next(many), many.close
        samples = iter(ringest.IterableDataset("gs://data/", client=client, manifest=support.entries()))
        yield "iteration", samples, lambda: next(samples), samples.close
        reader = self.reader(client)
        yield "reader", reader, lambda: reader.take(1), reader.close
        file = _core.ObjectReader(client, support.uri(1))
        yield "file", file, lambda: file.read_at(0, bytearray(100)), file.close
        large = _core.ObjectReader(client, support.uri(1))
        yield "large", large, lambda: large.read_at(0, bytearray(4 << 20)), large.close
        queue = _core.Queue(client, 8)
        queue.submit("tag", "get", support.uri(1))
        yield "queue", queue, queue.wait, queue.close
        full = client.writer("gs://mine/full", part_size="5MiB", parts_in_flight=1)
        yield "full", full, lambda: full.write(LARGE), full.abort

    def test_closing_ends_the_call_of_another_thread(self):
        with self.client() as client:
            for name, thing, call, close in self.each(client):
                with self.subTest(name):
                    thread, raised = self.waits(call)
                    close()
                    thread.join()
                    self.assertRegex(str(raised[0]), "closed")
                    close()
                    with self.assertRaisesRegex((ValueError, RuntimeError), "closed"):
                        call()
                del thing
            gc.collect()
            self.assertEqual(client.stats()["leased_bytes"], 0)

    def test_a_second_thread_is_told_so(self):
        with self.client() as client:
            for name, thing, call, close in self.each(client):
                with self.subTest(name):
                    threads = [self.waits(call) for _ in range(2)]
                    # One of them waits for ever.
                    while all(thread.is_alive() for thread, _ in threads):
                        threads[0][0].join(0.01)
                    close()
                    for thread, _ in threads:
                        thread.join()
                    told = [str(error) for _, raised in threads for error in raised]
                    told.sort(key=lambda text: CLOSED in text)
                    self.assertEqual(len(told), 2)
                    self.assertRegex(told[0], USED)
                    self.assertRegex(told[1], CLOSED)
                del thing

    def test_a_state_is_told_while_another_thread_waits(self):
        with self.client() as client:
            dataset = ringest.IterableDataset("gs://data/", client=client, manifest=support.entries())
            iteration = iter(dataset)
            thread, raised = self.waits(lambda: next(iteration))
            for _ in range(20):
                self.assertIsInstance(dataset.state_dict()["state"], bytes)
                self.assertEqual(dataset.skipped, 0)
            dataset._reader.close()
            thread.join()
            self.assertIn(CLOSED, str(raised[0]))
            self.assertIsInstance(dataset.state_dict()["state"], bytes)

    def test_a_signal_handler_closes_what_the_main_thread_waits_for(self):
        with self.client() as client:
            for name, thing, call, close in self.each(client):
                with self.subTest(name):
                    before = signal.signal(signal.SIGALRM, lambda *_: close())
                    signal.setitimer(signal.ITIMER_REAL, 0.02)
                    try:
                        with self.assertRaisesRegex(ValueError, "closed"):
                            call()
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                        signal.signal(signal.SIGALRM, before)
                del thing

    def test_closing_the_client_leaves_calls_to_their_end(self):
        client = self.client()
        reader = self.reader(client)
        thread, _ = self.waits(lambda: reader.take(1))
        client.close()
        self.assertTrue(thread.is_alive())
        reader.close()
        thread.join()
        with self.assertRaisesRegex(ValueError, "the client is closed"):
            client.get(support.uri(1))

    def test_a_child_lets_go_of_what_another_thread_waits_for(self):
        with self.client() as client:
            for name, thing, call, close in self.each(client):
                with self.subTest(name):
                    thread, _ = self.waits(call)
                    for _ in range(3):
                        support.until_it_sleeps(thread.native_id)
                        pid = os.fork()
                        if pid == 0:
                            code = 1
                            try:
                                try:
                                    call()
                                except (OSError, ValueError):
                                    code = 0
                                close()
                                gc.collect()
                            finally:
                                os._exit(code)
                        self.assertEqual(os.waitpid(pid, 0)[1], 0)
                    close()
                    thread.join()
                del thing

    def test_what_refers_to_itself_is_collected(self):
        class Uris:
            def __iter__(self):
                return self

            def __next__(self):
                return support.uri(1)

        class Data(bytearray):
            pass

        with self.client() as client:
            uris = Uris()
            uris.many = client.get_many(uris)
            uris.many.poll()
            queue = _core.Queue(client, 4)
            tag = Uris()
            tag.queue = queue
            queue.submit(tag, "get", support.uri(1))
            data = Data(1 << 20)
            data.writer = client.writer("gs://mine/lent")
            data.writer.write(data, borrow=True)
            refs = [weakref.ref(each) for each in (uris, tag, data)]
            del uris, queue, tag, data
            gc.collect()
            self.assertEqual([ref() for ref in refs], [None] * 3)
            self.assertEqual(client.stats()["in_flight"], 0)

    def test_the_interpreter_ends_with_threads_inside(self):
        program = """
            import sys, threading
            sys.path.insert(0, sys.argv[1])
            import test_threads
            test_threads.Slow.endpoint, test_threads.Slow.ca = sys.argv[2:]
            slow = test_threads.Slow()
            client = slow.client()
            kept = list(slow.each(client))
            calls = [*(call for _, _, call, _ in kept), lambda: client.get("gs://data/x-00000001"),
                     lambda: client.get_into("gs://data/x-00000001", [(0, bytearray(2000))]),
                     lambda: client.list("gs://data/")]
            threads = [threading.Thread(target=call, daemon=True) for call in calls]
            for thread in threads:
                thread.start()
            for thread in threads:
                test_threads.support.until_it_sleeps(thread.native_id)
            print("here", flush=True)
        """
        arguments = [os.path.dirname(os.path.abspath(__file__)), self.endpoint, self.ca]
        for _ in range(3):
            done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), *arguments],
                                  capture_output=True, text=True)  # fmt: skip
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "here\n", ""))


class Interpreters(unittest.TestCase):
    def test_another_interpreter_does_not_get_the_extension(self):
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        program = f"""
            import sys
            sys.path[:0] = {sys.path!r}
            try:
                import ringest
            except ImportError as error:
                assert "subinterpreters" in str(error), error
            else:
                raise AssertionError("it was imported")
        """
        other = interpreters.create()
        try:
            self.assertIsNone(interpreters.run_string(other, textwrap.dedent(program)))
        finally:
            interpreters.destroy(other)

    @unittest.skipIf("free-threading" in sys.version, "this one has an extension")
    def test_a_free_threaded_build_is_told_what_to_use(self):
        program = """
            import sys
            sys.version = "3.14.0 free-threading build (main)"
            import ringest
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("or use python3.14 instead of python3.14t", done.stderr)

    def test_a_second_import_is_of_the_same_types(self):
        first = sys.modules.pop("ringest._core")
        try:
            import ringest._core as second

            self.assertIsNot(first, second)
            self.assertTrue(issubclass(ringest.Client, second.Client))
            self.assertIs(first.Buffer, second.Buffer)
            with support.client() as client:
                self.assertIsInstance(client.get(support.uri(1)), second.Buffer)
        finally:
            sys.modules["ringest._core"] = first
            ringest._core = first


class Quick(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.endpoint, cls.ca = cls.stack.enter_context(support.emulator())

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def setUp(self):
        self.client = ringest.Client(self.endpoint, self.ca, threads=1)
        self.addCleanup(self.client.close)
        self.uris = [support.uri(i) for i in range(support.COUNT)]

    def test_iterations_of_a_dataset_in_several_threads(self):
        dataset = ringest.IterableDataset("gs://data/", client=self.client, transform=support.take_name, requests=16)
        taken, raised = [], []

        def run():
            try:
                for _ in range(3):
                    taken.append(list(dataset))
            except Exception as error:
                raised.append(error)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            dataset.state_dict()
        for thread in threads:
            thread.join()
        self.assertEqual(raised, [])
        wanted = [f"{i:08d}" for i in range(support.COUNT)]
        self.assertEqual(taken, [wanted] * 12)

    def test_an_iteration_is_closed_once_whoever_closes_it(self):
        begun, may_end = threading.Event(), threading.Event()

        def values():
            try:
                yield 1
            finally:
                begun.set()
                may_end.wait()
                iteration.close()

        iteration = _core.Iteration(values(), _core.Reader(self.client, _core.Objects("data", support.entries())))
        self.assertEqual(next(iteration), 1)
        raised = []

        def close():
            try:
                iteration.close()
            except Exception as error:
                raised.append(error)

        thread = threading.Thread(target=close)
        thread.start()
        begun.wait()
        iteration.close()
        self.assertEqual(list(iteration), [])
        may_end.set()
        thread.join()
        self.assertEqual(raised, [])

    def test_the_uris_of_get_many_are_code_of_the_callers(self):
        def advance():
            yield self.uris[0]
            next(many)

        def close():
            yield self.uris[0]
            many.close()
            yield self.uris[1]

        def close_the_client():
            yield self.uris[0]
            self.client.close()
            yield self.uris[1]

        many = self.client.get_many(advance())
        with self.assertRaisesRegex(ValueError, WITHIN):
            next(many)
        many = self.client.get_many(close())
        with self.assertRaisesRegex(ValueError, CLOSED):
            next(many)
        with self.assertRaisesRegex(ValueError, "closed"):
            next(many)
        many = self.client.get_many(close_the_client())
        self.assertEqual(sorted(item.uri for items in many for item in items), self.uris[:2])

    def test_a_client_is_closed_by_what_it_is_given(self):
        class Closing:
            def __init__(self, client, value):
                self.client, self.value = client, value

            def __iter__(self):
                self.client.close()
                return iter(self.value)

            def __index__(self):
                self.client.close()
                return self.value

        uri = self.uris[0]
        into = bytearray(100)
        calls = {
            "get_many": (lambda c: list(c.get_many(Closing(c, [uri]))), None),
            "get_into": (lambda c: c.get_into(uri, Closing(c, [(0, into)])), None),
            "get_ranges": (lambda c: c.get_ranges(uri, Closing(c, [(0, 10)])), "closed"),
            "scan": (lambda c: _core.TarIndex.scan(c, "data", [("x-00000000", 0, Closing(c, 1))]), None),
            "list": (lambda c: _core.Client.list(c, "gs://data/", progress=lambda count: c.close()), None),
        }
        for name, (call, message) in calls.items():
            with self.subTest(name), ringest.Client(self.endpoint, self.ca, threads=1) as client:
                client.stat(uri)
                if message is not None:
                    with self.assertRaisesRegex(ValueError, message):
                        call(client)
                else:
                    with contextlib.suppress(ringest.NotFoundError):
                        call(client)

    def test_a_client_is_closed_by_what_logs_its_beginning(self):
        class Closing(logging.Handler):
            def emit(self, record):
                client.close()

        logger = logging.getLogger("ringest")
        handler, level = Closing(), logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        try:
            client = ringest.Client(self.endpoint, self.ca, threads=1)
            with self.assertRaisesRegex(ValueError, "closed"):
                client.get(self.uris[0])
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)

    def test_what_is_being_made_is_of_no_use(self):
        """The garbage collector knows an object before it is whole, and shows it to anybody."""
        calls = ("__next__", "poll", "fileno", "submit", "take", "wait", "write", "finish", "__len__", "close", "abort")
        arguments = {"submit": (1, "stat", support.uri(1)), "write": (b"x",)}
        met = set()

        def meddle(*_):
            for thing in gc.get_objects():
                if type(thing).__module__ == "ringest._core" and type(thing).__name__ in ("GetMany", "Queue", "Writer"):
                    met.add(type(thing).__name__)
                    for name in calls:
                        if hasattr(thing, name):
                            with contextlib.suppress(ValueError, StopIteration):
                                getattr(thing, name)(*arguments.get(name, ()))

        class Uris(list):
            def __iter__(self):
                meddle()
                return super().__iter__()

        logger = logging.getLogger("ringest")
        handler = logging.Handler()
        handler.emit = meddle
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)
        self.addCleanup(logger.setLevel, logger.level)
        for make, use in (
            (lambda client: client.get_many(Uris(self.uris)), lambda many: self.assertEqual(len(list(many)), 2)),
            (lambda client: _core.Queue(client, 4), lambda queue: queue.submit(1, "stat", self.uris[0])),
            (lambda client: client.writer("gs://mine/made"), lambda writer: (writer.write(b"x"), writer.finish())),
        ):
            with ringest.Client(self.endpoint, self.ca, threads=1) as client:
                logger.setLevel(logging.DEBUG)
                made = make(client)
                logger.setLevel(logging.WARNING)
                use(made)
        self.assertEqual(met, {"GetMany", "Queue", "Writer"})

    def test_lists_that_change_while_they_are_read(self):
        class Emptying:
            def __init__(self, victim, value):
                self.victim, self.value = victim, value

            def __index__(self):
                self.victim.clear()
                gc.collect()
                return self.value

        indices = []
        indices += [Emptying(indices, 1), 10**9 - 999999999, 2]
        reader = _core.Reader(self.client, _core.Objects("data", support.entries()), indices=indices)
        self.assertEqual([item.index for item in reader.take(9)], [1, 1, 2])
        shards = []
        shards += [("x-" + "1".zfill(8), 2000, Emptying(shards, 0)), ("y-" + "2".zfill(8), 1, 0)]
        with self.assertRaises(ValueError):
            _core.TarIndex.scan(self.client, "data", shards)
        entries = []
        entries += [("x-" + "1".zfill(8), 2000, Emptying(entries, 7)), ("y-" + "2".zfill(8), 3, 0)]
        self.assertEqual(_core.Objects("data", entries)[0], ("x-00000001", 2000, 7))

    def test_what_is_made_is_made_once(self):
        objects = _core.Objects("data", support.entries())
        made = [
            _core.Queue(self.client, 4),
            _core.Reader(self.client, objects),
            _core.ObjectReader(self.client, self.uris[0]),
            _core.Writer(self.client, "gs://mine/once"),
            objects,
        ]
        for thing in made:
            with self.subTest(thing):
                thing.__init__()
                with self.assertRaises(TypeError):
                    type(thing).__new__(type(thing))
        self.assertEqual(len(objects), support.COUNT)
        self.assertEqual(len(made[1].take(3)), 3)
        with self.assertRaisesRegex(ValueError, "made once"):
            self.client.__init__(self.endpoint, self.ca)
        half = ringest.Client.__new__(ringest.Client)
        with self.assertRaisesRegex(ValueError, "__init__ was not called"):
            half.get(self.uris[0])
        for kind in (_core.Buffer, _core.Item, _core.GetMany):
            with self.assertRaises(TypeError):
                kind()

    def test_a_write_that_was_interrupted_ends_the_stream(self):
        def handler(*_):
            raise KeyboardInterrupt

        with support.emulator("--latency-ms", "600000") as (endpoint, ca), ringest.Client(endpoint, ca) as client:
            writer = client.writer("gs://mine/stream", part_size="5MiB", parts_in_flight=1)
            before = signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                with self.assertRaises(KeyboardInterrupt):
                    writer.write(LARGE)
            finally:
                signal.signal(signal.SIGALRM, before)
            self.assertTrue(writer.ended)
            with self.assertRaisesRegex(ValueError, "the writer of gs://mine/stream is closed"):
                writer.write(b"more")
            with self.assertRaisesRegex(ValueError, "nothing is published"), writer:
                pass

    def test_an_error_and_what_it_names_are_collected(self):
        def fail():
            (items,) = self.client.get_many(["gs://data/nothing", self.uris[0]], ordered=True)
            with contextlib.suppress(ringest.NotFoundError):
                raise items[0].error  # whose traceback refers to this frame, and that to the items

        fail()
        gc.collect()
        self.assertEqual(self.client.stats()["held_bytes"], 0)


if __name__ == "__main__":
    unittest.main()
