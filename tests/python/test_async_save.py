"""Saves that go on while training does: what is saved is what was there at the call; memory is used again; what fails is
told."""

import collections
import concurrent.futures
import contextlib
import io
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import unittest
import unittest.mock
import weakref

import torch

import ringest
import support
from ringest import _async_save, checkpoint

URI = "gs://new/model.pt"


def state(seed=1, count=6):
    torch.manual_seed(seed)
    made = {f"layer{i}": torch.randn(100 + i, 1000) for i in range(count)}
    made["view"] = made["layer0"][10:20]
    made |= {"half": torch.randn(40).bfloat16(), "empty": torch.zeros(0, 3), "sparse": torch.eye(5).to_sparse()}
    return made | {"step": seed, "meta": torch.empty(3, device="meta"), "parameter": torch.nn.Parameter(torch.ones(7))}


@contextlib.contextmanager
def held():
    """Until the Event is set, or the `with` ends, no save is complete. The Semaphore counts those that have come so far."""
    finish, go_on, came = _async_save.ArchiveWriter.finish, threading.Event(), threading.Semaphore(0)

    def waiting(archive):
        came.release()
        go_on.wait(support.PATIENCE_S)
        finish(archive)

    with unittest.mock.patch.object(_async_save.ArchiveWriter, "finish", waiting):
        try:
            yield go_on, came
        finally:
            go_on.set()


def addresses(saver):
    return {storage.data_ptr() for copy in saver._copies for _, _, storage in copy._used}


class Saves(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = cls.enterClassContext(support.emulator())
        cls.client = cls.enterClassContext(ringest.Client(*cls.place, hedging=False))

    def setUp(self):
        self.addCleanup(_async_save._untold.clear)

    def saver(self, **options):
        return self.enterContext(checkpoint.AsyncSaver(client=self.client, **options))

    def test_the_file_is_that_of_save(self):
        want = checkpoint.save(state(), "gs://new/want.pt", client=self.client)
        found = self.saver().save(state(), URI).result()
        self.assertEqual((found["size"], found["crc32c"]), (want["size"], want["crc32c"]))

    def test_the_file_where_torch_gives_no_entries(self):
        whole = io.BytesIO()
        torch.save({"x": torch.arange(5)}, whole)

        def save(obj, file, **options):
            file.write(whole.getvalue())

        with unittest.mock.patch.object(torch.serialization, "_save"), unittest.mock.patch.object(torch, "save", save):
            del torch.serialization._save
            self.saver().save({"x": torch.arange(5)}, URI).result()
        self.assertTrue(torch.equal(checkpoint.load(URI, client=self.client)["x"], torch.arange(5)))

    def test_what_changes_after_the_call_is_not_saved(self):
        saved, good = state(), state()
        with held() as (go_on, came):
            saving = self.saver().save(saved, URI)
            came.acquire()
            self.assertFalse(saving.done())
            with self.assertRaises(TimeoutError):
                saving.result(timeout=0)
            for name in ("layer0", "half", "parameter"):
                saved[name].detach().fill_(9)
            saved["step"] = 9
            go_on.set()
            saving.result()
        self.assertTrue(saving.done())
        found = checkpoint.load(URI, client=self.client)
        for name in ("layer0", "layer5", "view", "half", "parameter"):
            self.assertTrue(torch.equal(found[name], good[name]), name)
        self.assertEqual(found["step"], 1)
        self.assertEqual(found["view"].untyped_storage().data_ptr(), found["layer0"].untyped_storage().data_ptr())

    def test_memory_is_used_again(self):
        seen = []
        with held() as (go_on, came):
            saver = self.saver()
            for seed in range(5):
                go_on.clear()
                saver.save(state(seed), URI)
                came.acquire()
                seen.append(addresses(saver))
                go_on.set()
                saver.wait()
        self.assertEqual(len(set().union(*seen)), len(seen[0]))
        # What another state has no use for is not kept.
        saver.save({"x": torch.ones(10)}, URI).result()
        saver.wait()
        self.assertEqual((len(saver._copies[0]._used), saver._copies[0]._free), (1, {}))

    def test_no_more_states_in_memory_than_copies(self):
        with held() as (go_on, came):
            saver = self.saver(copies=2)
            first, second = saver.save(state(1), URI), saver.save(state(2), URI)
            came.acquire()
            third = []
            thread = threading.Thread(target=lambda: third.append(saver.save(state(3), URI)))
            thread.start()
            support.until_it_sleeps(thread.native_id)
            self.assertEqual((third, first.done(), second.done()), ([], False, False))
            go_on.set()
            thread.join()
            results = [each.result()["generation"] for each in (first, second, *third)]
        # In the order of the calls.
        self.assertEqual(results, sorted(results))
        self.assertEqual(checkpoint.load(URI, client=self.client)["step"], 3)

    def test_saves_of_several_threads(self):
        saver = self.saver(copies=3)

        def save(number):
            for seed in range(5):
                saver.save(state(seed), f"gs://new/thread{number}.pt")

        threads = [threading.Thread(target=save, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        saver.wait()
        for number in range(4):
            self.assertEqual(checkpoint.load(f"gs://new/thread{number}.pt", client=self.client)["step"], 4)

    def test_a_failure_is_told_once_by_the_next_save(self):
        saver = self.saver()
        first = saver.save(state(1), URI).result()
        saver.save(state(2), URI, if_generation_match=7)
        with self.assertRaises(ringest.PreconditionError) as caught:
            saver.save(state(3), URI)
        self.assertIn(URI, str(caught.exception))
        self.assertEqual(self.client.stat(URI)["generation"], first["generation"])
        saver.save(state(4), URI)
        saver.wait()
        self.assertEqual(checkpoint.load(URI, client=self.client)["step"], 4)

    def test_a_failure_is_told_by_wait_or_the_end_or_the_result(self):
        saver = self.saver()
        saver.save(state(), URI, if_generation_match=7)
        with self.assertRaises(ringest.PreconditionError):
            saver.wait()
        saver.wait()
        with self.assertRaises(ringest.PreconditionError):
            with checkpoint.AsyncSaver(client=self.client) as other:
                other.save(state(), URI, if_generation_match=7)
        saving = saver.save(state(), URI, if_generation_match=7)
        with self.assertRaises(ringest.PreconditionError):
            saving.result()
        saver.wait()
        self.assertFalse(_async_save._untold)

    def test_what_cannot_be_pickled_is_told_at_once(self):
        saver = self.saver()
        with self.assertRaises(Exception) as caught:
            saver.save({"x": torch.ones(100), "y": lambda: 1}, URI)
        self.assertIn("lambda", str(caught.exception))
        saver.save(state(), URI).result()

    def test_a_saver_that_is_closed_or_of_another_process(self):
        saver = checkpoint.AsyncSaver(client=self.client)
        saver.save(state(), URI)
        saver.close()
        saver.close()
        self.assertEqual(saver._copies, [])
        with self.assertRaisesRegex(ValueError, "closed"):
            saver.save(state(), URI)
        saver = self.saver()
        saver._process += 1
        with self.assertRaisesRegex(ValueError, "make another one"):
            saver.save(state(), URI)
        for wrong in (0, -1, 65, "1"):
            with self.assertRaises((TypeError, ValueError)):
                checkpoint.AsyncSaver(copies=wrong)
        with self.assertRaisesRegex(TypeError, "client must be"):
            checkpoint.AsyncSaver(client=self.place[0])

    def test_wrong_arguments_are_told_at_once(self):
        saver = self.saver()
        for wrong in (None, 5, "model.pt", "gs://new/"):
            with self.assertRaises((TypeError, ValueError)):
                saver.save(state(), wrong)
        with self.assertRaises((TypeError, ValueError)):
            saver.save(state(), URI, parts_in_flight=-1)
        saver.wait()

    def test_a_call_that_is_interrupted_when_its_save_has_begun(self):
        """The copy stays that save's: the next one must not write to it."""
        submit = concurrent.futures.ThreadPoolExecutor.submit
        begun, go_on, send = threading.Event(), threading.Event(), _async_save._send

        def sending(*arguments):
            begun.set()
            go_on.wait(support.PATIENCE_S)
            return send(*arguments)

        def interrupted(*arguments):
            submit(*arguments)
            begun.wait(support.PATIENCE_S)
            raise KeyboardInterrupt

        saver = self.saver()
        with unittest.mock.patch.object(_async_save, "_send", sending):
            with unittest.mock.patch.object(concurrent.futures.ThreadPoolExecutor, "submit", interrupted):
                with self.assertRaises(KeyboardInterrupt):
                    saver.save({"x": torch.full((1000,), 1.0)}, "gs://new/interrupted.pt")
            self.assertFalse(saver._copies[0].is_free())
            thread = threading.Thread(target=saver.save, args=({"x": torch.full((1000,), 2.0)}, URI))
            thread.start()
            support.until_it_sleeps(thread.native_id)
            go_on.set()
            thread.join()
            saver.wait()
        for uri, value in (("gs://new/interrupted.pt", 1.0), (URI, 2.0)):
            self.assertEqual(checkpoint.load(uri, client=self.client)["x"].unique().tolist(), [value])

    def test_a_call_that_is_interrupted_before_its_save_has_begun(self):
        for has_come in (False, True):
            saver, submit = self.saver(), concurrent.futures.ThreadPoolExecutor.submit
            with held() as (go_on, _):
                first = saver.save(state(), URI) if has_come else None
                saver._copies.append(_async_save._Copy())

                def interrupted(*arguments):
                    if has_come:  # and waits in the queue
                        submit(*arguments)
                    raise KeyboardInterrupt

                with unittest.mock.patch.object(concurrent.futures.ThreadPoolExecutor, "submit", interrupted):
                    with self.assertRaises(KeyboardInterrupt):
                        saver.save(state(2), "gs://new/never.pt")
                self.assertTrue(saver._copies[-1].is_free())
                go_on.set()
                self.assertTrue(first is None or first.result())
            saver.wait()
            saver.save(state(3), URI)
            saver.wait()
            with self.assertRaises(ringest.NotFoundError):
                self.client.stat("gs://new/never.pt")

    def test_a_saving_that_is_kept_keeps_no_memory(self):
        saver = self.saver()
        kept = [saver.save(state(), URI), saver.save(state(), URI, if_generation_match=7)]
        copy = weakref.ref(saver._copies[0])
        with self.assertRaises(ringest.PreconditionError):
            saver.close()
        self.assertIsNone(copy())
        self.assertTrue(kept[0].result())

    def test_a_child_of_fork_has_no_part_in_saves(self):
        with held() as (go_on, came):
            saver = self.saver()
            saving = saver.save(state(), URI)
            came.acquire()
            with saver._lock:  # as another thread of the parent's may have
                pid = os.fork()
                if pid == 0:
                    signal.alarm(int(support.PATIENCE_S))
                    told = 0
                    for call in (saver.wait, saving.result, lambda: saver.save(state(), URI)):
                        try:
                            call()
                        except ValueError:
                            told += 1
                    saver.close()
                    os._exit(told)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 3)
            go_on.set()
        self.assertTrue(saving.result())

    def test_tensors_of_devices_are_copied_once(self):
        """torch asks the storage of a device for a copy: there is none here, so it is asked in its place."""
        given = {"a": torch.arange(1000.0), "b": torch.ones(10)}

        class Copying(_async_save._Records):
            def write_record(self, name, data, size):
                if isinstance(data, torch.UntypedStorage):
                    data = data.cpu()
                super().write_record(name, data, size)

        records = Copying(_async_save._Copy())
        empty = torch.empty
        with (
            unittest.mock.patch.object(_async_save, "_is_of_device", lambda value: isinstance(value, torch.Tensor)),
            unittest.mock.patch.object(torch, "empty", lambda *a, pin_memory=False, **o: empty(*a, **o)),
            unittest.mock.patch.object(torch.cuda, "synchronize") as synchronize,
        ):
            torch.serialization._save(given, records, _async_save._watching(pickle, records), 2, False)
            records.end()
        synchronize.assert_called_once_with(torch.device("cpu"))
        self.assertEqual([is_pinned for _, is_pinned, _ in records._copy._used], [True, True])
        copies = [data for _, data, _ in records.entries if isinstance(data, torch.UntypedStorage)]
        self.assertEqual(
            [each.data_ptr() for each in copies], [storage.data_ptr() for _, _, storage in records._copy._used]
        )
        self.assertTrue(torch.equal(torch.frombuffer(bytearray(copies[0]), dtype=torch.float32), given["a"]))
        self.assertNotIn("cpu", vars(given["a"].untyped_storage()))


class HeldBack(unittest.TestCase):
    """A byte a second: a save ends when somebody waits, or never."""

    @classmethod
    def setUpClass(cls):
        cls.place = cls.enterClassContext(support.emulator())
        cls.client = cls.enterClassContext(ringest.Client(*cls.place, hedging=False))

    def setUp(self):
        self.addCleanup(_async_save._untold.clear)
        self.saver = checkpoint.AsyncSaver(client=self.client, pace=1)
        self.addCleanup(self.saver.close)

    def save(self, value, **options):
        saving = self.saver.save({"x": torch.full((3_000_000,), float(value))}, URI, **options)
        self.assertFalse(saving.done())
        return saving

    def check(self, value):
        self.assertEqual(checkpoint.load(URI, client=self.client)["x"].unique().tolist(), [value])

    def test_by_the_result(self):
        self.save(1).result()
        self.check(1)

    def test_by_the_result_when_all_is_with_the_loop(self):
        """The saver's thread has nothing to hold back any more, and only waits for the end."""
        saving = self.saver.save({"x": torch.full((150_000,), 6.0)}, URI)
        (thread,) = self.saver._sender._threads
        support.until_it_sleeps(thread.native_id)
        for _ in range(20):
            self.client.put("gs://new/other", b"x")
        self.assertFalse(saving.done())
        saving.result()
        self.check(6)

    def test_by_wait(self):
        saving = self.save(2)
        self.saver.wait()
        self.assertTrue(saving.done())
        self.check(2)

    def test_by_the_next_save_that_has_no_memory(self):
        first = self.save(3)
        second = self.save(4)
        self.assertTrue(first.done())
        self.assertGreater(second.result()["generation"], first.result()["generation"])
        self.check(4)

    def test_by_an_exception_that_leaves_the_with(self):
        with self.assertRaises(ZeroDivisionError), self.saver:
            saving = self.save(5)
            raise ZeroDivisionError
        self.assertTrue(saving.done())
        self.check(5)

    def test_by_a_close_that_is_interrupted(self):
        """It waits for what is queued, too."""
        with contextlib.closing(checkpoint.AsyncSaver(client=self.client, pace=1, copies=2)) as saver:
            savings = [saver.save({"x": torch.full((3_000_000,), 9.0)}, URI) for _ in range(2)]
            interrupted = unittest.mock.patch.object(
                _async_save.concurrent.futures, "wait", side_effect=KeyboardInterrupt
            )
            with interrupted, self.assertRaises(KeyboardInterrupt):
                saver.close()
        self.assertEqual([each.done() for each in savings], [True, True])
        self.check(9)

    def test_by_a_signal_handler_that_interrupts_save(self):
        first, refused = self.save(10), []

        def handler(number, frame):
            self.saver.wait()
            try:
                self.saver.save({"x": torch.zeros(3_000_000)}, "gs://new/refused.pt")
            except ValueError as error:
                refused.append(str(error))

        class Signals:
            def __reduce__(self):
                signal.raise_signal(signal.SIGUSR1)
                return collections.OrderedDict, ()

        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, handler))
        second = self.saver.save({"x": torch.full((3_000_000,), 11.0), "signals": Signals()}, URI)
        self.assertTrue(first.done())
        self.assertRegex(refused[0], "gs://new/refused.pt: a signal handler called save")
        second.result()
        self.check(11)

    def test_by_a_signal_handler_that_interrupts_the_begin(self):
        """It waits for what the thread has, not for what it is about to get."""
        real = self.saver._sender.submit

        def submit(*arguments):
            self.saver.wait()
            return real(*arguments)

        with unittest.mock.patch.object(self.saver._sender, "submit", submit):
            saving = self.save(12)
        self.saver.wait()
        self.assertTrue(saving.done())
        self.check(12)

    def test_a_failure_is_told(self):
        saving = self.save(6, if_generation_match=7)
        with self.assertRaises(ringest.PreconditionError):
            saving.result()

    def test_a_time_out_lets_it_go_on_unheld(self):
        saving = self.save(7)
        with self.assertRaises(TimeoutError):
            saving.result(timeout=0)
        with concurrent.futures.ThreadPoolExecutor(1) as other:
            other.submit(concurrent.futures.wait, [saving._future]).result(support.PATIENCE_S)
        self.check(7)

    def test_with_a_child_of_fork(self):
        saving = self.save(8)
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertFalse(saving.done())
        saving.result()
        self.check(8)

    def test_the_sum_of_pieces_is_that_of_all(self):
        want = checkpoint.save(state(), "gs://new/want.pt", client=self.client)
        for size in (1000, 4096, 300_001):
            with unittest.mock.patch.object(_async_save._pace, "PIECE", size):
                with checkpoint.AsyncSaver(client=self.client, pace="1G") as saver:
                    found = saver.save(state(), URI).result()
            self.assertEqual((found["size"], found["crc32c"]), (want["size"], want["crc32c"]))


SCRIPT = """
    import sys, ringest
    from ringest import _async_save, checkpoint
    import torch  # which imports much, after that: what is called at the end is called in its order

    client = ringest.Client(sys.argv[1], sys.argv[2], hedging=False)
    saver = checkpoint.AsyncSaver(client=client)
    state = {"x": torch.full((3_000_000,), 2.0)}
"""


def lose(place, stderr):
    os.dup2(stderr, 2)
    os.close(stderr)
    saver = checkpoint.AsyncSaver(client=ringest.Client(*place, hedging=False))
    saver.save({"x": torch.ones(3)}, "gs://new/lost.pt", if_generation_match=7)


class Ends(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = cls.enterClassContext(support.emulator())
        cls.client = cls.enterClassContext(ringest.Client(*cls.place, hedging=False))

    def run_script(self, script, **options):
        text = textwrap.dedent(SCRIPT) + textwrap.dedent(script)
        return subprocess.Popen([sys.executable, "-c", text, *self.place], text=True, **options)

    def test_the_interpreter_waits(self):
        script = self.run_script(
            """
            slow = checkpoint.AsyncSaver(client=client, pace=1)
            slow.save(state, "gs://new/end.pt")
            """
        )
        self.assertEqual(script.wait(support.PATIENCE_S), 0)
        self.assertEqual(float(checkpoint.load("gs://new/end.pt", client=self.client)["x"][-1]), 2)

    def test_the_interpreter_says_what_is_lost(self):
        script = self.run_script('saver.save(state, "gs://new/lost.pt", if_generation_match=7)', stderr=subprocess.PIPE)
        _, told = script.communicate(timeout=support.PATIENCE_S)
        self.assertIn("gs://new/lost.pt was not saved: ", told)

    def test_a_process_of_multiprocessing_says_what_is_lost(self):
        """Which comes to no atexit."""
        said, stderr = os.pipe()
        process = multiprocessing.get_context("fork").Process(target=lose, args=(self.place, stderr))
        process.start()
        os.close(stderr)
        with open(said, encoding="utf-8") as told:
            self.assertIn("gs://new/lost.pt was not saved: ", told.read())
        process.join(support.PATIENCE_S)
        self.assertEqual(process.exitcode, 0)

    def test_a_process_that_is_killed_leaves_what_was_there(self):
        checkpoint.save({"x": torch.ones(3)}, "gs://new/killed.pt", client=self.client)
        script = self.run_script(
            """
            def held(archive):
                print("now", flush=True)
                sys.stdin.read()

            _async_save.ArchiveWriter.finish = held
            saver.save(state, "gs://new/killed.pt")
            """,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with script:
            self.assertEqual(script.stdout.readline(), "now\n")
            os.kill(script.pid, signal.SIGKILL)
        self.assertEqual(checkpoint.load("gs://new/killed.pt", client=self.client)["x"].tolist(), [1, 1, 1])

    def test_a_process_that_is_ended_while_a_save_is_held_back(self):
        checkpoint.save({"x": torch.ones(3)}, "gs://new/ended.pt", client=self.client)
        script = self.run_script(
            """
            slow = checkpoint.AsyncSaver(client=client, pace=1)
            slow.save(state, "gs://new/ended.pt")
            print("now", flush=True)
            sys.stdin.read()
            """,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with script:
            self.assertEqual(script.stdout.readline(), "now\n")
            script.terminate()
        self.assertEqual(script.returncode, -signal.SIGTERM)
        self.assertEqual(checkpoint.load("gs://new/ended.pt", client=self.client)["x"].tolist(), [1, 1, 1])


if __name__ == "__main__":
    unittest.main()
