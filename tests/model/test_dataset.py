"""A dataset's whole life: ranks that stop anywhere and for any reason, go on as others, and find objects replaced or
gone. Each sample comes once, in the order that the states determine, or is accounted for."""

import collections
import contextlib
import dataclasses
import io
import itertools
import logging
import pickle
import signal
import sys
import tarfile
import unittest

import hypothesis.strategies as st
from hypothesis import given

import model

import ringest
import ringest.dataset
import support

COUNT_MAX = 24
WORLD_MAX = 4
BATCHES = (None, 1, 2, 5, 100)
# Where an exception may come from between any two instructions.
FILES = {sys.modules[f"ringest.{name}"].__file__ for name in ("dataset", "_samples", "_state", "_epochs", "_source")}
# Of instructions, and of the time until a signal.
STEPS, SECONDS = 67, 5e-5


class Stopped(BaseException):
    """What a handler of signals raises."""


@dataclasses.dataclass
class Run:
    """An iteration: how it ends, and after how many samples, steps ..."""

    ends: str
    after: int
    batch_size: int | None


@dataclasses.dataclass
class Phase:
    """One assignment: of each rank the runs that it goes on with from its own state; none where it never begins."""

    remainder: str
    ranks: list[list[Run]]
    is_united: bool  # the ranks' states go on as one


@dataclasses.dataclass
class Life:
    kind: str
    count: int
    options: dict
    wrong: set[int]  # whose transform always raises
    events: list[tuple[int, str, int]]  # after so many samples, an object is replaced, deleted or added
    phases: list[list[Phase]]  # of each epoch
    last: Phase

    @property
    def is_exact(self):
        """Nothing may be left out, so that all is known."""
        is_as_listed = all(what == "add" for _, what, _ in self.events)
        return is_as_listed and (not self.wrong or self.options["on_error"] == "handler")


def phases(remainder, ends, runs_min, runs_max):
    run = st.builds(Run, st.sampled_from(ends), st.integers(0, 30), st.sampled_from(BATCHES))
    ranks = st.lists(st.lists(run, min_size=runs_min, max_size=runs_max), min_size=1, max_size=WORLD_MAX)
    return st.builds(Phase, st.sampled_from(remainder), ranks, st.booleans())


@st.composite
def lives(draw):
    kind = draw(st.sampled_from(("objects", "objects", "listed", "tar")))
    count = draw(st.integers(1, COUNT_MAX)) if kind == "objects" else COUNT_MAX
    options = {
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 3)),
        "ordered": draw(st.booleans()),
        "requests": draw(st.sampled_from((1, 2, 5, 1024))),
        "on_error": draw(st.sampled_from(("raise", "skip", "handler"))),
    }
    index, wrong, events = st.integers(0, count - 1), set(), []
    if draw(st.booleans()):
        wrong = draw(st.sets(index, max_size=3))
    if kind == "listed" and draw(st.booleans()):
        events = [(draw(st.integers(0, 30)), "add", COUNT_MAX)]
    if kind == "objects" and draw(st.booleans()):
        events = draw(
            st.lists(st.tuples(st.integers(0, 30), st.sampled_from(("replace", "delete")), index), max_size=3)
        )
        options["changed"] = draw(st.sampled_from(("error", "skip", "newest")))
    life = Life(kind, count, options, wrong, sorted(events), [], Phase("uneven", [], False))
    remainders = ("uneven", "pad", "drop") if life.is_exact else ("uneven",)
    epoch = st.lists(phases(remainders, ("leaving", "leaving", "transform", "step", "signal", "end"), 0, 2), max_size=3)
    life.phases = draw(st.lists(epoch, min_size=1, max_size=2))
    life.last = draw(phases(remainders, ("end",), 1, 1))
    return life


def flat(samples):
    return [one for sample in samples for one in (sample if isinstance(sample, list) else [sample])]


def assign(left, order, phase):
    """The oracle: which samples each rank gets of those that are left."""
    world = len(phase.ranks)
    if phase.remainder == "drop":
        left = left[: len(left) // world * world]
    if phase.remainder == "pad" and left:
        left = left + [order[i % len(order)] for i in range(-len(left) % world)]
    return [left[rank::world] for rank in range(world)]


class Living:
    """A life while it is lived, and what is known of its present epoch."""

    def __init__(self, case, life):
        self.case, self.life = case, life
        self.entries = [case.entries[i] for i in range(life.count)]
        self.events = list(life.events)
        self.listing = case.client.list("gs://life/o-") if life.kind == "listed" else None
        self.is_listing_old = False
        self.may_lack = set() if life.options["on_error"] == "handler" else set(life.wrong)
        self.given = []  # of this epoch
        self.consumed = set()
        self.good_left = -1  # transforms until one raises; negative: none will

    def index_of(self, data):
        return int(data["__key__"]) if self.life.kind == "tar" else int(data.uri.rsplit("-", 1)[1])

    def transform(self, data):
        if self.good_left == 0:
            raise InterruptedError if self.life.options["on_error"] == "raise" else Stopped
        self.good_left -= 1
        index = self.index_of(data)
        if index in self.life.wrong:
            raise ValueError("always")
        return index

    def handle(self, item, error):
        return self.index_of(item.data if self.life.kind == "tar" else item)

    def dataset(self, epoch, **options):
        options = {**self.life.options, "transform": self.transform, "client": self.case.client, **options}
        if options["on_error"] == "handler":
            options["on_error"] = self.handle
        if self.life.kind == "tar":
            made = ringest.TarDataset(self.case.index, **options)
        else:
            manifest = self.entries
            if self.life.kind == "listed":
                manifest = self.listing if self.is_listing_old else None
            made = ringest.IterableDataset("gs://life/o-", manifest=manifest, shared=False, **options)
        made.set_epoch(epoch)
        return made

    def happen(self):
        while self.events and len(self.given) >= self.events[0][0]:
            _, what, index = self.events.pop(0)
            self.case.delete(index) if what == "delete" else self.case.put(index)
            self.is_listing_old = what == "add"
            if what == "delete" or (what == "replace" and self.life.options["changed"] != "newest"):
                self.may_lack.add(index)

    def read(self, dataset, run):
        """What an iteration gives until it ends, whatever ends it."""
        got = []
        self.good_left = run.after if run.ends == "transform" else -1
        samples = itertools.islice(dataset, run.after) if run.ends == "leaving" else dataset
        with contextlib.suppress(Stopped, ringest.Error, ringest.TransformError), self.case.stopping(run):
            for sample in samples:
                got.append(sample)
                if run.ends not in ("step", "signal"):
                    self.given += flat([sample])
                    self.happen()
        if run.ends in ("step", "signal"):
            self.given += flat(got)
        for batch in got[:-1] if run.batch_size else []:
            self.case.assertEqual(len(batch), run.batch_size)
        self.happen()
        return flat(got)

    def read_rank(self, epoch, phase, rank, state):
        """What a rank gives in a phase, and its state then."""
        got, options = [], {"rank": rank, "world_size": len(phase.ranks), "remainder": phase.remainder}
        if phase is self.life.last and self.life.options["on_error"] == "raise" and not self.life.is_exact:
            options["on_error"] = "skip"  # or it would not come to its end
        if not phase.ranks[rank]:
            return got, {"epoch": epoch, "state": None} if state is None else self.loaded(epoch, state).state_dict()
        for run in phase.ranks[rank]:
            dataset = self.dataset(epoch, batch_size=run.batch_size, **options)
            if state is not None:
                dataset.load_state_dict(state)
            got += self.read(dataset, run)
            state = pickle.loads(pickle.dumps(dataset.state_dict()))
        return got, state

    def check_listed_anew(self, epoch, state):
        """A state is not gone on with in another list than its own."""
        dataset = ringest.IterableDataset("gs://life/o-", client=self.case.client, shared=False)
        dataset.load_state_dict(state)
        with self.case.assertRaisesRegex(
            ValueError, f"saved with {COUNT_MAX} objects, and now there are {COUNT_MAX + 1}"
        ):
            iter(dataset)

    def loaded(self, epoch, state):
        dataset = self.dataset(epoch)
        dataset.load_state_dict(state)
        return dataset

    def live_phase(self, epoch, order, phase, state):
        """The state of all ranks after a phase."""
        assigned = assign([i for i in order if i not in self.consumed], order, phase)
        read, states = zip(*[self.read_rank(epoch, phase, rank, state) for rank in range(len(phase.ranks))])
        for got, own in zip(read, assigned):
            self.consumed.update(got)
            if self.life.is_exact and self.life.options["ordered"]:
                self.case.assertEqual(got, own[: len(got)])
            elif self.life.is_exact:
                self.case.assertEqual(collections.Counter(got) - collections.Counter(own), {})
        has_begun = any(state["state"] is not None for state in states)
        if has_begun and all(len(got) == len(own) for got, own in zip(read, assigned)):
            self.consumed.update(order)  # what was to be dropped, too
        states = list(reversed(states))
        return self.loaded(epoch, states).state_dict() if phase.is_united else states

    def live_epoch(self, epoch, phases):
        self.given, self.consumed, state = [], set(), None
        options = {"ordered": True, "changed": "error", "on_error": "handler"}
        order = list(self.dataset(epoch, **options))
        self.case.assertEqual(sorted(order), list(range(self.life.count)))
        for phase in [*phases, self.life.last]:
            state = self.live_phase(epoch, order, phase, state)
        if self.is_listing_old:
            self.check_listed_anew(epoch, state)
        # What is over has nothing left.
        self.case.assertEqual(flat(self.loaded(epoch, state)), [])
        self.check_given()

    def check_given(self):
        if not self.life.is_exact:
            counts = collections.Counter(self.given)
            self.case.assertEqual(max(counts.values(), default=1), 1)
            self.case.assertLessEqual({*range(self.life.count)} - {*counts}, self.may_lack)
        elif self.life.last.remainder == "drop":
            self.case.assertLess(self.life.count - len(self.consumed), WORLD_MAX)
        else:
            self.case.assertEqual(self.consumed, {*range(self.life.count)})

    def live(self):
        for epoch, epoch_phases in enumerate(self.life.phases):
            self.live_epoch(epoch, epoch_phases)


class Dataset(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        logging.getLogger("ringest").setLevel(logging.ERROR)
        cls.stack = contextlib.ExitStack()
        endpoint, ca = cls.stack.enter_context(support.emulator(buckets=("life",)))
        cls.client = cls.stack.enter_context(ringest.Client(endpoint, ca))
        cls.entries, cls.touched = {}, set()
        for index in range(COUNT_MAX):
            cls.put(index)
        cls.index = cls.make_shards()
        cls.armed = False
        before = signal.signal(signal.SIGALRM, cls.handle_signal)
        cls.stack.callback(signal.signal, signal.SIGALRM, before)

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    @classmethod
    def put(cls, index):
        cls.touched.add(index)
        data = b"%d" % index
        cls.entries[index] = (f"o-{index:04d}", len(data), cls.client.put(f"gs://life/o-{index:04d}", data))

    @classmethod
    def delete(cls, index):
        cls.touched.add(index)
        with contextlib.suppress(ringest.NotFoundError):
            cls.client.delete(f"gs://life/o-{index:04d}")

    @classmethod
    def make_shards(cls):
        for shard in range(3):
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode="w") as archive:
                for i in range(shard * COUNT_MAX // 3, (shard + 1) * COUNT_MAX // 3):
                    info = tarfile.TarInfo(f"{i:04d}.txt")
                    info.size = 7 * i
                    archive.addfile(info, io.BytesIO(bytes(7 * i)))
            cls.client.put(f"gs://life/s-{shard}.tar", out.getvalue())
        return ringest.TarDataset("gs://life/s-{0..2}.tar", client=cls.client).index

    @classmethod
    def handle_signal(cls, number, frame):
        if cls.armed:
            cls.armed = False
            raise Stopped

    @contextlib.contextmanager
    def stopping(self, run):
        """An exception comes within it, where the run ends by one that nobody raises."""
        if run.ends == "signal":
            type(self).armed = True
            signal.setitimer(signal.ITIMER_REAL, SECONDS * (run.after + 1))
        if run.ends == "step":
            sys._getframe().f_trace_opcodes = True  # Python 3.12 looks at this when tracing begins
            sys.settrace(self.tracer(STEPS * run.after))
        try:
            yield
        finally:
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_REAL, 0)
            type(self).armed = False

    @staticmethod
    def tracer(steps):
        def trace(frame, event, argument):
            nonlocal steps
            if frame.f_code.co_filename not in FILES:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                steps -= 1
                if steps < 0:
                    raise Stopped
            return trace

        return trace

    @model.checked()
    @given(lives())
    def test_each_sample_comes_once_in_a_life(self, life):
        try:
            Living(self, life).live()
        finally:
            self.delete(COUNT_MAX)
            for index in self.touched - {COUNT_MAX}:
                self.put(index)
            self.touched.clear()


if __name__ == "__main__":
    unittest.main()
