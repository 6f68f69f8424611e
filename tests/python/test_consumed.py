"""What is consumed is what was yielded: whatever raises in an epoch, going on from the state loses and repeats nothing."""

import contextlib
import gc
import io
import itertools
import os
import pickle
import random
import signal
import sys
import threading
import unittest
import unittest.mock
import weakref

import ringest.dataset
import support
from ringest import SKIP

COUNT = 48
SIGNALS = 2000

# Every way of iterating.
KINDS = [
    dict(zip(("batch_size", "ordered", "shuffle"), kind))
    for kind in itertools.product((None, 1, 7, 100), (True, False), (True, False))
]


class Stopped(BaseException):
    """What a handler of signals raises, so that no `except Exception` takes it for its own."""


class Local:
    """Of a frame that fails."""


def number(item):
    return int(item.uri.rsplit("-", 1)[1])


def flat(samples):
    return [one for sample in samples for one in (sample if isinstance(sample, list) else [sample])]


class Emulated(unittest.TestCase):
    """One emulator for all cases, with the objects gs://own/o-NUMBER."""

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.endpoint, cls.ca = cls.stack.enter_context(support.emulator())
        cls.client = cls.stack.enter_context(ringest.Client(cls.endpoint, cls.ca))
        cls.client.put_many((cls.uri(i), b"%d" % i) for i in range(COUNT))

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    @staticmethod
    def uri(index):
        return f"gs://own/o-{index:04d}"

    def dataset(self, **options):
        options.setdefault("client", self.client)
        options.setdefault("manifest", [self.uri(i).rsplit("/", 1)[1] for i in range(COUNT)])
        return ringest.IterableDataset("gs://own/", **{"transform": number, **options})

    def going_on(self, dataset, **options):
        """What is left, by way of a checkpoint."""
        other = self.dataset(**options)
        other.load_state_dict(pickle.loads(pickle.dumps(dataset.state_dict())))
        return flat(other)

    def check_all_once(self, got):
        self.assertEqual(sorted(got), list(range(COUNT)))


class Exceptions(Emulated):
    def test_a_transform_that_raises_loses_no_neighbour(self):
        for kind, place in itertools.product(KINDS, range(0, COUNT, 6)):

            def transform(item):
                if number(item) == place:
                    raise KeyError("mine")
                return number(item)

            got, dataset = [], self.dataset(transform=transform, **kind)
            with self.subTest(place=place, **kind):
                with self.assertRaisesRegex(ringest.TransformError, f"{self.uri(place)} .*mine"):
                    got.extend(dataset)
                self.check_all_once(flat(got) + self.going_on(dataset, **kind))

    def test_an_object_that_is_gone_loses_no_neighbour(self):
        for kind, place in itertools.product(KINDS, (0, 20, COUNT - 1)):
            for transform in (number, None):
                if transform is None:
                    kind = {**kind, "ordered": True}
                got, dataset = [], self.dataset(**{**kind, "transform": transform})
                self.client.delete(self.uri(place))
                with self.subTest(place=place, transform=transform, **kind):
                    with self.assertRaisesRegex(ringest.NotFoundError, self.uri(place)):
                        got.extend(dataset)
                    self.client.put(self.uri(place), b"%d" % place)
                    got = [int(bytes(one)) if transform is None else one for one in flat(got)]
                    self.check_all_once(got + self.going_on(dataset, **kind))

    def test_an_exception_between_any_two_steps_loses_nothing(self):
        """Raised before every instruction of the package's code in turn, as a signal's handler may."""
        files = [ringest.dataset.__file__, ringest._samples.__file__]
        names = [f"o-{i:04d}" for i in range(5)]
        for kind in ({"batch_size": 3}, {"batch_size": None, "ordered": False}, {"on_error": "skip"}):
            kind = {**kind, "manifest": names}
            instructions = self.steps_of(files, kind, None)[0]
            self.assertGreater(instructions, 100)
            for step in range(instructions):
                _, got = self.steps_of(files, kind, step)
                self.assertEqual((step, sorted(got)), (step, list(range(5))))

    def steps_of(self, files, kind, step):
        """How many instructions an epoch takes, and its samples; an exception is raised before one of them."""
        count, got, dataset = 0, [], self.dataset(**kind)

        def trace(frame, event, argument):
            nonlocal count
            if frame.f_code.co_filename not in files or frame.f_code.co_name in ("state_dict", "load_state_dict"):
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                count += 1
                if count - 1 == step:
                    raise Stopped
            return trace

        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12 looks at this when tracing begins
        sys.settrace(trace)
        try:
            for sample in dataset:
                got.append(sample)
        except Stopped:
            pass
        finally:
            sys.settrace(before)
        return count, flat(got) + (self.going_on(dataset, **kind) if step is not None else [])

    def test_handlers_of_signals_that_raise(self):
        chance = random.Random(support.SEED)
        armed = False

        def handle(number, frame):
            nonlocal armed
            if armed:
                armed = False
                raise chance.choice((Stopped, RuntimeError))

        before = signal.signal(signal.SIGALRM, handle)
        try:
            kinds, raised = itertools.cycle(KINDS), 0
            while raised < SIGNALS:
                kind, got, ended = next(kinds), [], False
                dataset = self.dataset(**kind)
                while not ended:
                    try:
                        armed = True
                        signal.setitimer(signal.ITIMER_REAL, chance.uniform(5e-5, 2e-3))
                        for sample in dataset:
                            got.append(sample)
                        armed, ended = False, True
                    except (Stopped, RuntimeError):  # of which a TransformError is one
                        raised += 1
                    state = pickle.dumps(dataset.state_dict())
                    dataset = self.dataset(**kind)
                    dataset.load_state_dict(pickle.loads(state))
                self.check_all_once(flat(got))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def test_an_interrupt_while_it_waits(self):
        with support.client("--latency-ms", "20") as client:
            client.put_many((self.uri(i), b"x") for i in range(COUNT))
            for batch_size in (None, 20):
                kind = {"batch_size": batch_size, "client": client, "requests": 4}
                got, dataset = [], self.dataset(**kind)
                with self.assertRaises(KeyboardInterrupt):
                    for sample in dataset:
                        got.append(sample)
                        if len(got) == 1:
                            threading.Timer(0.005, os.kill, [os.getpid(), signal.SIGINT]).start()
                self.assertGreater(len(got), 0)
                self.check_all_once(flat(got) + self.going_on(dataset, **kind))

    def test_an_iteration_that_is_left_or_closed(self):
        for kind, stop in itertools.product(KINDS, (0, 1, 3)):
            for progress in (False, True):
                kind = {**kind, "progress": progress}
                with self.subTest(stop=stop, **kind), contextlib.redirect_stderr(io.StringIO()):
                    dataset = self.dataset(**kind)
                    iteration = iter(dataset)
                    got = flat(itertools.islice(iteration, stop))
                    self.check_all_once(got + self.going_on(dataset, **kind))
                    iteration.close()
                    self.check_all_once(got + self.going_on(dataset, **kind))
                    self.assertEqual(list(iteration), [])
                    del iteration
                    self.check_all_once(got + self.going_on(dataset, **kind))

    def test_a_batch_larger_than_the_window(self):
        for ordered in (True, False):
            kind = {"batch_size": 20, "requests": 4, "ordered": ordered}
            dataset = self.dataset(**kind)
            iteration = iter(dataset)
            got = flat([next(iteration)])
            self.check_all_once(got + self.going_on(dataset, **kind))

    def test_a_state_that_was_loaded_outlasts_what_raises_before_the_first_sample(self):
        dataset = self.dataset()
        got = flat(itertools.islice(dataset, 10))
        other = self.dataset()
        other.load_state_dict(dataset.state_dict())
        for _ in range(2):
            self.check_all_once(got + self.going_on(other))
            iter(other)  # of which nothing is asked
        self.check_all_once(list(other))


class Many(Emulated):
    """get_many, which goes on behind what raised."""

    def test_a_handler_of_signals_that_raises(self):
        chance = random.Random(support.SEED)
        armed = False

        def handle(number, frame):
            nonlocal armed
            if armed:
                armed = False
                raise Stopped

        uris = [support.uri(i) for i in range(support.COUNT)]
        before = signal.signal(signal.SIGALRM, handle)
        try:
            raised = 0
            for ordered in itertools.cycle((False, True)):
                many, got = self.client.get_many(uris, ordered=ordered, batch=40), []
                while True:
                    try:
                        armed = True
                        signal.setitimer(signal.ITIMER_REAL, chance.uniform(5e-5, 1e-3))
                        for items in many:
                            got.append(items)
                        armed = False
                        break
                    except Stopped:
                        raised += 1
                numbers = [int(item.uri.rsplit("-", 1)[1]) for items in got for item in items]
                self.assertEqual(numbers if ordered else sorted(numbers), list(range(support.COUNT)))
                if raised > SIGNALS // 4:
                    break
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def test_an_iterator_of_uris_that_raises(self):
        class Uris:
            next = 0

            def __iter__(self):
                return self

            def __next__(self):
                self.next += 1
                if self.next % 30 == 0:
                    raise LookupError(self.next)
                if self.next > 300:
                    raise StopIteration
                return support.uri(self.next)

        for ordered in (False, True):
            got, raised, many = [], 0, self.client.get_many(Uris(), ordered=ordered, batch=500)
            while True:
                try:
                    got += next(many)
                except LookupError:
                    raised += 1
                except StopIteration:
                    break
            numbers = [int(item.uri.rsplit("-", 1)[1]) for item in got]
            self.assertEqual((raised, sorted(numbers)), (10, [i for i in range(300) if i % 30]))

    def test_a_handler_that_raises_while_a_line_is_logged(self):
        def is_enabled(level):
            calls.append(level)
            if len(calls) % 2 == 1:
                raise Stopped
            return False

        for ordered in (False, True):
            calls, got, raised = [], [], 0
            with (
                support.faults(self.endpoint, self.ca, {"storage.objects.get": ["return-503"] * 12}),
                ringest.Client(self.endpoint, self.ca) as client,
                unittest.mock.patch.object(ringest._log.logger, "isEnabledFor", is_enabled),
            ):
                with self.assertRaises(Stopped):
                    client.list("gs://own/")  # the session says that it is open
                calls.clear()
                many = client.get_many([self.uri(i) for i in range(COUNT)], ordered=ordered)
                while len(got) < COUNT:
                    try:
                        got += [number(item) for item in next(many)]
                    except Stopped:
                        raised += 1
            self.assertGreater(raised, 0)
            self.assertEqual(got if ordered else sorted(got), list(range(COUNT)))


class Iterations(Emulated):
    def test_after_an_error_it_does_not_look_like_the_end(self):
        def transform(item):
            if number(item) == 5:
                raise KeyError("mine")
            return number(item)

        iteration = iter(self.dataset(transform=transform))
        self.assertEqual([next(iteration) for _ in range(5)], list(range(5)))
        with self.assertRaises(ringest.TransformError):
            next(iteration)
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, "mine.*load_state_dict"):
                next(iteration)
        iteration.close()
        del iteration
        gc.collect()
        self.assertEqual(self.client.stats()["leased_bytes"], 0)

    def test_it_is_not_advanced_from_within(self):
        iteration = iter(self.dataset(transform=lambda item: next(iteration)))
        with self.assertRaisesRegex(ringest.TransformError, "being advanced already"):
            next(iteration)

    def test_they_are_independent(self):
        dataset = self.dataset()
        first = iter(dataset)
        next(first)
        second = iter(dataset)
        self.assertEqual([next(second) for _ in range(3)], [0, 1, 2])
        self.assertEqual(list(first), list(range(1, COUNT)))
        other = self.dataset()
        other.load_state_dict(dataset.state_dict())  # of the one that began last
        self.assertEqual(list(other), list(range(3, COUNT)))
        self.assertEqual(list(second), list(range(3, COUNT)))

    def test_one_that_refers_to_itself_is_collected(self):
        dataset = self.dataset(transform=None)
        dataset.iteration = iter(dataset)
        next(dataset.iteration)
        del dataset
        gc.collect()
        self.assertEqual(self.client.stats()["leased_bytes"], 0)


class OnError(Emulated):
    def wrong(self, *places):
        def transform(item):
            if number(item) in places:
                raise KeyError("mine")
            return number(item)

        return transform

    def test_skip_leaves_out_what_is_wrong_with_one_object(self):
        self.client.delete(self.uri(11))
        try:
            for kind in KINDS:
                dataset = self.dataset(transform=self.wrong(3, 4, COUNT - 1), on_error="skip", **kind)
                with self.subTest(**kind), self.assertLogs("ringest", "WARNING") as logs:
                    samples = list(dataset)
                self.assertEqual(sorted(flat(samples)), sorted({*range(COUNT)} - {3, 4, 11, COUNT - 1}))
                if kind["batch_size"] == 7:
                    self.assertEqual([len(batch) for batch in samples], [7] * 6 + [2])
                self.assertEqual((dataset.skipped, len(logs.output)), (4, 4))
                for place in (3, 4, 11, COUNT - 1):
                    self.assertIn(self.uri(place), "".join(logs.output))
                self.assertEqual(self.going_on(dataset, **kind), [])
        finally:
            self.client.put(self.uri(11), b"11")

    def test_what_was_left_out_keeps_nothing_in_memory(self):
        """Whichever way the errors of a transform refer to each other; those of the caller stay as they are."""
        held = weakref.WeakSet()

        def transform(item):
            try:
                local = Local()
                held.add(local)
                raise KeyError(item.uri)
            except KeyError as error:
                if number(item) == 1:
                    raise error from error
                raise ValueError(item.uri)  # noqa: B904 (the context is what is tried)

        gc.disable()
        try:
            raise LookupError("the caller's")
        except LookupError as error:
            with self.assertLogs("ringest", "WARNING"):
                samples = iter(self.dataset(transform=transform, on_error="skip"))
                self.assertEqual(list(samples), [])
            self.assertEqual(len(held), 0)
            self.assertIsNotNone(error.__traceback__)
        finally:
            gc.enable()

    def test_what_was_left_out_does_not_come_again(self):
        for kind, stop in itertools.product(KINDS, (1, 4)):
            kind = {**kind, "transform": self.wrong(*range(5, 25)), "on_error": lambda item, error: SKIP}
            dataset = self.dataset(**kind)
            got = flat(itertools.islice(dataset, stop))
            self.assertEqual(sorted(got + self.going_on(dataset, **kind)), [*range(5), *range(25, COUNT)])

    def test_what_was_left_out_behind_the_last_sample_is_consumed_too(self):
        entries = [(name, size, 1 if i > 400 else 0) for i, (name, size, _) in enumerate(support.entries())]
        options = {"manifest": entries, "changed": "skip"}
        for transform, batch_size in itertools.product((None, number), (None, 7)):
            kind = {**options, "transform": transform, "batch_size": batch_size}
            dataset = ringest.IterableDataset("gs://data/", client=self.client, **kind)
            self.assertEqual((len(flat(dataset)), dataset.skipped), (401, 99))
            other = ringest.IterableDataset("gs://data/", client=self.client, **kind)
            other.load_state_dict(dataset.state_dict())
            self.assertEqual((list(other), other.skipped), ([], 0))

    def test_a_handler_gives_another_sample_or_leaves_out_or_raises(self):
        self.client.delete(self.uri(11))
        try:
            seen = []

            def handle(item, error):
                seen.append((number(item), item.data is None, type(error)))
                return SKIP if number(item) == 11 else -number(item)

            for transform_is_none in (False, True):
                seen.clear()
                options = {"transform": None} if transform_is_none else {"transform": self.wrong(3)}
                dataset = self.dataset(on_error=handle, batch_size=10, **options)
                samples = flat(dataset)
                self.assertEqual((len(samples), dataset.skipped), (COUNT - 1, 1))
                expected = [] if transform_is_none else [(3, False, ringest.TransformError)]
                self.assertEqual(seen, [*expected, (11, True, ringest.NotFoundError)])
            self.assertEqual(dataset.skipped, 1)

            def refuse(item, error):
                raise LookupError(item.uri)

            dataset = self.dataset(on_error=refuse, batch_size=10)
            with self.assertRaisesRegex(LookupError, self.uri(11)):
                list(dataset)
            self.assertEqual(self.going_on(dataset, on_error="skip"), [10, *range(12, COUNT)])
        finally:
            self.client.put(self.uri(11), b"11")

    def test_what_is_not_about_one_object_is_never_left_out(self):
        for fault, error in (
            ("return-401", ringest.PermissionDeniedError),
            ("return-403", ringest.PermissionDeniedError),
            ("return-503", ringest.UnavailableError),
        ):
            with (
                self.subTest(fault),
                support.faults(self.endpoint, self.ca, {"storage.objects.get": [fault] * 9}),
                ringest.Client(self.endpoint, self.ca, attempts=1) as client,
            ):
                dataset = self.dataset(client=client, on_error="skip", requests=1)
                with self.assertRaises(error) as caught:
                    list(dataset)
                self.assertIn("on_error='skip'", caught.exception.__notes__[0])
                self.assertEqual(dataset.skipped, 0)

        def transform(item):
            raise MemoryError

        with self.assertRaises(ringest.TransformError):
            list(self.dataset(on_error="skip", transform=transform))
        self.assertEqual(set(self.dataset(on_error=lambda item, error: "x", transform=transform)), {"x"})

    def test_what_fails_for_every_object_is_not_left_out_for_ever(self):
        entries = support.entries() * 3

        def transform(item):
            raise KeyError("mine")

        dataset = ringest.IterableDataset(
            "gs://data/", client=self.client, manifest=entries, transform=transform, on_error="skip", batch_size=64
        )
        with self.assertLogs("ringest", "WARNING"), self.assertRaises(ringest.TransformError) as caught:
            list(dataset)
        self.assertIn("1,000 samples before it", caught.exception.__notes__[0])
        self.assertEqual(dataset.skipped, 1000)

    def test_by_index_a_batch_lacks_what_is_left_out(self):
        names = [self.uri(i).rsplit("/", 1)[1] for i in range(COUNT)]
        dataset = ringest.MapDataset("gs://own/", self.wrong(3, 4), self.client, names, on_error="skip")
        with self.assertLogs("ringest", "WARNING"):
            self.assertEqual(dataset.__getitems__([2, 3, 4, 5, 3]), [2, 5])
            self.assertEqual(dataset.skipped, 3)
            for ask in (lambda: dataset[3], lambda: dataset.__getitems__([4, 3])):
                with self.assertRaisesRegex(ringest.TransformError, self.uri(3)):
                    ask()
        self.assertEqual(dataset.__getitems__([]), [])
        dataset = ringest.MapDataset("gs://own/", self.wrong(3), self.client, names, on_error=lambda item, error: "x")
        self.assertEqual((dataset[3], dataset.skipped), ("x", 0))
        self.assertEqual(dataset.__getitems__([2, 3]), [2, "x"])

    def test_it_is_one_of_the_three(self):
        for make in (ringest.IterableDataset, ringest.MapDataset):
            with self.assertRaisesRegex(ValueError, "on_error must be 'raise', 'skip' or a function.*got 'ignore'"):
                make("gs://own/", on_error="ignore")
        self.assertIs(pickle.loads(pickle.dumps(SKIP)), SKIP)


if __name__ == "__main__":
    unittest.main()
