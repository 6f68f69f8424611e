"""The objects of a client, used by several threads in any order, closed by any of them and dropped: what a call gives
is right, or says that another thread uses the object or has closed it; nothing is lost, and nothing is left.

A step of Hypothesis hands a piece of work to one of the threads and does not wait for it, so that what a program does
is fixed and how its threads interleave is not. With the address sanitizer it finds what is used after it is freed."""

import asyncio
import contextlib
import ctypes
import gc
import itertools
import os
import queue
import threading
import traceback
import unittest

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, multiple, precondition, rule

from model import EXAMPLES, run_machine

import ringest
import support
from ringest import _core

COUNT = 40
SIZE = 3000
# Long enough for any machine; a thread that takes longer waits for ever.
PATIENCE_S = 60
REFUSALS = ("in use by another thread", "in use by a call", "closed", "being advanced already", "ended with")


def uri(index):
    return f"gs://model/x-{index:08d}"


class World:
    """One emulator for all examples, and what its objects are."""

    stack = contextlib.ExitStack()

    @classmethod
    def begin(cls):
        place = cls.stack.enter_context(
            support.emulator("--plain", "--latency-ms", "1:4", "--synthetic", f"model/x-:{COUNT}:{SIZE}")
        )
        cls.endpoint = place[0]
        with ringest.Client(cls.endpoint) as client:
            cls.bodies = [bytes(client.get(uri(i))) for i in range(COUNT)]
            cls.entries = [(f"x-{i:08d}", SIZE, 0) for i in range(COUNT)]
            # What the first iteration imports is of no interest to the garbage collector, which looks often.
            for _ in Iterating(client, _core.Objects("model", cls.entries)).made:
                pass
        gc.collect()
        gc.freeze()
        cls.names = 0

    @classmethod
    def name(cls):
        cls.names += 1
        return f"gs://mine/{cls.names}"


class Thing:
    """Something that threads share, and what they were given by it."""

    def __init__(self, made):
        self.made = made
        self.given = []  # appending is atomic
        self.is_over = self.is_closed = False

    def close(self):
        self.is_closed = True
        self.made.close()

    def check(self):
        """After all threads have done their work."""


class Many(Thing):
    def __init__(self, client, count, ordered, batch):
        self.count, self.ordered = count, ordered
        super().__init__(client.get_many((uri(i) for i in range(count)), ordered=ordered, batch=batch))

    def use(self, number):
        items = next(self.made, None)
        if items is None:
            self.is_over = True
            return
        for item in items:
            assert item.error is None, item.error
            assert item.data == World.bodies[item.index]
            assert item.uri == uri(item.index)
        indices = [item.index for item in items]
        assert not self.ordered or indices == list(range(indices[0], indices[0] + len(indices)))
        self.given.append(indices)

    def check(self):
        given = sorted(index for indices in self.given for index in indices)
        assert len(given) == len(set(given)), given
        if self.is_over and not self.is_closed:
            assert given == list(range(self.count))


class Reading(Thing):
    def __init__(self, client, objects, unordered):
        super().__init__(_core.Reader(client, objects, unordered=unordered, window_requests=7))

    def use(self, number):
        if number % 4 == 0:
            assert 0 <= self.made.taken <= self.made.total == COUNT and self.made.skipped == 0
            assert len(self.made.state()) >= 84
            return
        if number % 4 == 1:
            self.made.consume()
            return
        items = self.made.take(5) if number % 4 == 2 else self.made.take_some(9)
        self.is_over |= not items
        for item in items:
            assert item.data == World.bodies[item.index]
        self.given.append([item.index for item in items])

    def check(self):
        given = sorted(index for indices in self.given for index in indices)
        assert len(given) == len(set(given)), given
        if self.is_over and not self.is_closed:
            assert given == list(range(COUNT))


class Iterating(Thing):
    def __init__(self, client, objects, dataset=None):
        self.dataset = dataset or ringest.IterableDataset(
            "gs://model/", client=client, manifest=objects, transform=lambda item: item.index, requests=7, batch_size=3
        )
        super().__init__(iter(self.dataset))

    def use(self, number):
        if number % 3 == 0:
            self.dataset.state_dict()
            return
        batch = next(self.made, None)
        if batch is None:
            self.is_over = True
        else:
            assert batch == list(range(batch[0], batch[0] + len(batch)))
            self.given.append(batch)

    def check(self):
        given = sorted(index for batch in self.given for index in batch)
        assert len(given) == len(set(given)), given
        if self.is_over and not self.is_closed:
            assert given == list(range(COUNT))


class File(Thing):
    def __init__(self, client, index):
        self.body = World.bodies[index]
        super().__init__(_core.ObjectReader(client, uri(index)))

    def use(self, number):
        offset, memory = number * 37 % (SIZE + 100), bytearray(number * 11 % 500)
        got = self.made.read_at(offset, memory)
        assert memory[:got] == self.body[offset : offset + got]
        assert got == len(memory) or offset + got >= SIZE


class Queued(Thing):
    def __init__(self, client):
        super().__init__(_core.Queue(client, 8))
        self.tickets = []

    def use(self, number):
        if number % 4 == 0:
            outcomes = self.made.take()
        elif number % 4 == 1:
            outcomes = self.made.wait()
        elif number % 4 == 2:
            if self.tickets:
                self.made.cancel(self.tickets[number % len(self.tickets)])
            return
        else:
            ticket = self.made.submit(number, "get", uri(number % COUNT))
            if ticket is not None:
                self.tickets.append(ticket)
            return
        for tag, result, error in outcomes:
            if error is None:
                assert result == World.bodies[tag % COUNT]
            else:
                assert isinstance(error, ringest.Error) and error.status == "CANCELLED", error


class Writing(Thing):
    def __init__(self, client, large):
        self.uri = World.name()
        self.large = large
        self.facts = None
        self.numbers, self.wrote = itertools.count(), []
        super().__init__(client.writer(self.uri, part_size="5MiB" if large else 0))

    def use(self, number):
        if number % 8 == 0:
            self.facts = self.made.finish()
            return
        piece = b"%08d" % next(self.numbers) * (1 + number % 5) * (40000 if self.large else 1)
        self.made.write(piece, borrow=number % 2 == 1)
        self.wrote.append(piece)

    def close(self):
        self.is_closed = True
        self.made.abort()

    def check(self):
        assert self.made.ended or self.facts is None
        if self.facts is not None:
            assert self.facts["size"] == sum(map(len, self.wrote)) == self.made.size
            with ringest.Client(World.endpoint) as client:
                body = bytes(client.get(self.uri))
            # Each piece is there once, whole, in the order in which the writes were taken.
            pieces, begin = {piece[:8]: piece for piece in self.wrote}, 0
            while begin < len(body):
                piece = pieces.pop(body[begin : begin + 8])
                assert body[begin : begin + len(piece)] == piece
                begin += len(piece)
            assert not pieces


class Held(Thing):
    """A Buffer, its views, and what DLPack's consumers would have."""

    def __init__(self, client, index):
        self.body = World.bodies[index]
        super().__init__(client.get(uri(index)))

    def use(self, number):
        if number % 3 == 0:
            assert bytes(memoryview(self.made)[5:50]) == self.body[5:50]
        elif number % 3 == 1:
            capsule = self.made.__dlpack__()
            if number % 2:
                address, deleter = support.consumed(capsule)
                ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(address)
        else:
            assert self.made == self.body

    def close(self):
        pass


class Within(Thing):
    """An iterator that uses, and closes, what it feeds."""

    def __init__(self, client, at, what):
        def uris():
            for index in range(COUNT):
                if index == at:
                    with contextlib.suppress(ValueError):
                        next(self.made) if what == "next" else self.made.close()
                yield uri(index)

        self.made = None
        super().__init__(client.get_many(uris(), batch=7))

    def use(self, number):
        for item in next(self.made, ()):
            assert item.data == World.bodies[item.index]


class Worker:
    def __init__(self, failures):
        self.failures = failures
        self.work = queue.SimpleQueue()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while (piece := self.work.get()) is not None:
            try:
                piece()
            except ValueError as error:
                if not any(text in str(error) for text in REFUSALS):
                    self.failures.append(traceback.format_exc())
            except RuntimeError as error:  # of an iteration that has raised
                if "ended with" not in str(error):
                    self.failures.append(traceback.format_exc())
            except BaseException:
                self.failures.append(traceback.format_exc())
            piece = None  # it may hold the last reference to what it was done with


def in_a_child(things):
    """A child touches all that its parent has, and leaves."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for thing in things:
                with contextlib.suppress(ValueError, OSError, AssertionError, RuntimeError, StopIteration):
                    thing.use(2)
                with contextlib.suppress(ValueError, OSError):
                    thing.close()
            things.clear()
            gc.collect()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


# What there is to be made, of the state, a number and a flag.
KINDS = {
    "many": lambda state, number, flag: Many(state.client, number % (COUNT + 1), flag, 1 + number % 50),
    "reader": lambda state, number, flag: Reading(state.client, state.objects, flag),
    "iteration": lambda state, number, flag: Iterating(state.client, state.objects, state.some_dataset(flag)),
    "file": lambda state, number, flag: File(state.client, number % COUNT),
    "buffer": lambda state, number, flag: Held(state.client, number % COUNT),
    "queue": lambda state, number, flag: Queued(state.client),
    "writer": lambda state, number, flag: Writing(state.client, flag),
    "within": lambda state, number, flag: Within(state.client, number % COUNT, "next" if flag else "close"),
}


class Threads(RuleBasedStateMachine):
    things = Bundle("things")
    numbers = st.integers(0, 200)
    kinds = st.sampled_from(sorted(KINDS))

    @initialize(
        target=things,
        count=st.integers(2, 4),
        memory=st.sampled_from([None, "16MiB"]),
        first=st.lists(st.tuples(kinds, numbers, st.booleans()), min_size=1, max_size=4),
    )
    def begin(self, count, memory, first):
        self.failures = []
        self.files = support.files_open()
        self.client = ringest.Client(World.endpoint, threads=1, connections=8, memory=memory, memory_timeout=60)
        self.objects = _core.Objects("model", World.entries)
        self.workers = [Worker(self.failures) for _ in range(count)]
        self.made = {}
        self.is_open = True
        return multiple(*(self.keep(*each) for each in first))

    def hand(self, worker, piece):
        self.workers[worker % len(self.workers)].work.put(piece)

    def keep(self, kind, number, flag):
        """Hypothesis has numbers of things, and the things are freed when nobody works with them."""
        self.made[len(self.made)] = KINDS[kind](self, number, flag)
        return len(self.made) - 1

    def some_dataset(self, is_shared):
        datasets = [thing.dataset for thing in self.made.values() if isinstance(thing, Iterating)]
        return datasets[-1] if is_shared and datasets else None

    def hand_use(self, which, worker, number, times):
        thing = self.made[which]

        def work():
            for place in range(times):
                thing.use(number + place)

        self.hand(worker, work)

    @precondition(lambda self: self.is_open)
    @rule(target=things, kind=kinds, number=numbers, flag=st.booleans())
    def make(self, kind, number, flag):
        return self.keep(kind, number, flag)

    @rule(which=things, worker=numbers, number=numbers, times=st.integers(1, 5))
    def use(self, which, worker, number, times):
        self.hand_use(which, worker, number, times)

    @rule(which=things, numbers=st.lists(numbers, min_size=2, max_size=4), times=st.integers(1, 5))
    def use_at_once(self, which, numbers, times):
        for worker, number in enumerate(numbers):
            self.hand_use(which, worker, number, times)

    @rule(which=things, numbers=st.lists(numbers, min_size=1, max_size=3), is_here=st.booleans())
    def close_in_use(self, which, numbers, is_here):
        self.use_at_once(which, numbers, 1)
        if is_here:
            with contextlib.suppress(ValueError):
                self.made[which].close()
        else:
            self.hand(len(numbers), self.made[which].close)

    @rule(which=things, worker=numbers)
    def close(self, which, worker):
        self.hand(worker, self.made[which].close)

    @rule(which=consumes(things), numbers=st.lists(numbers, max_size=2), worker=numbers)
    def drop(self, which, numbers, worker):
        """The thread that comes to it last frees it."""
        self.use_at_once(which, numbers, 1)
        thing, self.made[which] = self.made[which], None
        self.hand(worker, [thing].clear)

    @rule(worker=numbers, number=st.integers(0, COUNT - 1), what=st.integers(0, 7))
    def call(self, worker, number, what):
        client, body = self.client, World.bodies[number]

        async def awaited():
            return await asyncio.gather(*(client.aget(uri(number)) for _ in range(3)))

        def work():
            if what == 0:
                assert client.get(uri(number)) == body
            elif what == 1:
                parts = client.get_ranges(uri(number), [(0, 9), (5, 9)])
                assert [bytes(part) for part in parts] == [body[:9], body[5:14]]
            elif what == 2:
                memory = bytearray(SIZE)
                client.get_into(uri(number), [(0, memory)])
                assert memory == body
            elif what == 3:
                place = World.name()
                client.put(place, body)
                assert client.stat(place)["size"] == SIZE
            elif what == 4:
                assert len(client.list("gs://model/")) == COUNT
            elif what == 5:
                client.stats()
            elif what == 6:
                assert all(data == body for data in asyncio.run(awaited()))
            else:
                assert client.put_many((World.name(), body) for _ in range(5))

        self.hand(worker, work)

    @rule(worker=numbers, chance=st.integers(0, 15))
    def disturb(self, worker, chance):
        if chance == 0:
            things = [thing for thing in self.made.values() if thing is not None]
            self.hand(worker, lambda: in_a_child(things))
        elif chance == 1:
            self.is_open = False
            client = self.client
            client.close()
            self.hand(worker, client.close)
        elif chance < 6:
            self.settle()
        else:
            self.hand(worker, gc.collect)

    def settle(self):
        self.wait()
        assert not self.failures, self.failures[0]

    def wait(self):
        """Until every thread has done what it was given."""
        done = [threading.Event() for _ in self.workers]
        for worker, event in zip(self.workers, done, strict=True):
            worker.work.put(event.set)
        for event in done:
            assert event.wait(PATIENCE_S), "a thread waits for ever"

    def teardown(self):
        if not hasattr(self, "workers"):
            return
        try:
            self.wait()
            assert not self.failures, self.failures[0]
            things = [thing for thing in self.made.values() if thing is not None]
            thing = None
            for thing in things:
                thing.check()
            for thing in things:
                with contextlib.suppress(ValueError):
                    thing.close()
        finally:
            for worker in self.workers:
                worker.work.put(None)
            for worker in self.workers:
                worker.thread.join(PATIENCE_S)
        del thing, things
        self.made.clear()
        self.check_nothing_is_left()

    def check_nothing_is_left(self):
        gc.collect()
        if self.is_open:
            stats = self.client.stats()
            assert (stats["leased_bytes"], stats["held_bytes"], stats["in_flight"]) == (0, 0, 0), stats
            self.client.close()
        self.client = None
        gc.collect()
        assert support.files_open() == self.files, "the session of a closed client is still there"


class Model(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        World.begin()

    @classmethod
    def tearDownClass(cls):
        World.stack.close()

    def test_any_threads_in_any_order(self):
        # Threads take long, and the address sanitizer sees more of them.
        run_machine(Threads, examples=EXAMPLES if os.environ.get("RINGEST_EXAMPLES") else 40, steps=30)


if __name__ == "__main__":
    unittest.main()
