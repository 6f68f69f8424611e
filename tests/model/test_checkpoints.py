"""The life of a folder of checkpoints: saves of every kind, by writers that are new, used again or copies, saves and
retentions that are killed between any two calls, what other tools put there, retention with any arguments. Against an
oracle of a few lines: what was complete and was not to go loads bit for bit, and nothing else is gone.

A kill is made in this process: from a certain call of the client on, that call included or not, nothing reaches the
server any more. Processes that are killed are in tests/python/test_dcp.py and test_dcp_reuse.py."""

import copy
import dataclasses
import json
import pickle
import subprocess
import unittest
import warnings

import torch
import torch.distributed.checkpoint as dcp
from hypothesis import given, note
from hypothesis import strategies as st

import model

import checkpoint_cases as cases
import ringest
import support
from ringest import checkpoint, retention
from ringest.dcp import StorageReader, StorageWriter
from ringest.safetensors import load_file, save_file

warnings.filterwarnings("ignore", module="torch")
NEVER = 1 << 30
# The program is asked this often whether it would do the same: a process takes as long as many requests.
PROGRAM_EVERY = 8


class Killed(BaseException):
    pass


class Mortal(ringest.Client):
    """A client of a process that is killed before its nth call, or behind it."""

    left, is_behind = NEVER, False

    def live(self, calls, is_behind):
        self.left, self.is_behind = calls, is_behind
        return self

    def call(self, function, *args, **keywords):
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.is_behind):
            raise Killed
        result = function(*args, **keywords)
        if self.left == 0:
            raise Killed
        return result

    def writer(self, *args, **keywords):
        return Pen(self, self.call(super().writer, *args, **keywords))

    def _bulk(self, calls, requests):
        for each in calls:
            yield from self.call(lambda one: list(super(Mortal, self)._bulk([one], 1)), each)

    def get_many(self, *args, **keywords):
        return iter(self.call(lambda: list(super(Mortal, self).get_many(*args, **keywords))))


def _counted(name):
    def method(self, *args, **keywords):
        return self.call(getattr(super(Mortal, self), name), *args, **keywords)

    return method


for _name in ("stat", "get", "put", "delete", "list", "_list_details", "list_uploads", "abort_upload"):
    setattr(Mortal, _name, _counted(_name))


class Pen:
    """A writer of a Mortal."""

    def __init__(self, client, writer):
        self._client, self._writer = client, writer

    def __getattr__(self, name):
        thing = getattr(self._writer, name)
        if name not in ("write", "_write_address", "_write_framed", "finish", "abort"):
            return thing
        return lambda *args, **keywords: self._client.call(thing, *args, **keywords)

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        if kind is not Killed:
            self._writer.__exit__(kind, *rest)


class Alone(StorageReader):
    """Of what a rank saved alone, where there is metadata of all ranks, too."""

    def read_metadata(self, *args, **kwargs):
        return super().read_metadata(rank=0)


def state_of(value, size):
    generator = torch.Generator().manual_seed(value)
    return {"x": torch.randn(size, generator=generator), "value": torch.tensor(value)}


def is_same(state, value):
    wanted = state_of(value, len(state["x"]))
    return all(torch.equal(state[key], wanted[key]) for key in wanted)


# How each kind is called, saved and loaded; a step of None: a name that no retention takes.
SERIES = {
    "together": "step-{}",
    "alone": "step-{}",
    "torch": "step-{}.pt",
    "lightning": "epoch=1-step={}.ckpt",
    "safetensors": "{}.safetensors",
    "last": "last",
    "best": "best-v{}.ckpt",
}
WITHOUT_STEP = {"last", "best"}

FOREIGN = {
    "trainer": lambda n: cases.trainer(f"checkpoint-{n}"),
    "trainer with code": lambda n: cases.trainer(f"checkpoint-{n}", "modeling.py"),
    "trainer that is not all there": lambda n: cases.trainer(f"checkpoint-{n}", lacks=["optimizer.pt"]),
    "deepspeed": lambda n: {**cases.deepspeed(f"global_step{n}"), "latest": f"global_step{n}".encode()},
    "torch's dcp": lambda n: cases.dcp(f"step_{n}"),
    "torch's dcp that is not all there": lambda n: cases.dcp(f"step_{n}", there=False),
    "orbax": lambda n: cases.orbax(f"{n}"),
    "megatron": lambda n: cases.megatron(f"iter_{n:07}"),
    "weights": lambda n: cases.files("resnet50.pt", f"llama-{n}b.safetensors", f"last-v{n}.ckpt", f"rng_state_{n}.pth"),
    "shards": lambda n: cases.files(*(f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)), "notes.txt"),
    "ranks": lambda n: cases.files(f"custom/step-{n}/0.pt", f"custom/step-{n}/1.pt", f"{n}/{n}.pt"),
    "in a checkpoint": lambda n: cases.files(f"step-{n}/notes.txt"),
    "pointer": lambda n: {"last.txt": f"step-{n}".encode()},
}
# What a retention may remove of these: only as a whole, and never the last.
REMOVABLE = ("checkpoint-", "global_step", "step_")

steps = st.integers(1, 4)
budgets = st.one_of(st.just((NEVER, False)), st.tuples(st.integers(1, 9), st.booleans()))
sizes = st.sampled_from([10] * 12 + [1000] * 4 + [(9 << 20) // 4])
# Of the two or three kinds that a life has; so that series become long.
save = st.tuples(st.just("save"), st.integers(0, 2), steps, sizes, st.integers(0, 3), budgets)
events = st.one_of(
    save,
    save,
    st.tuples(st.just("meanwhile"), st.integers(0, 2), steps, st.booleans()),
    st.tuples(st.just("foreign"), st.integers(0, 2), steps),
    st.tuples(st.just("retain"), st.sampled_from([1, 1, 2, 3]), st.sampled_from([0, 0, 2, 3]), st.booleans(), budgets),
    st.tuples(st.just("retain"), st.just(1), st.just(0), st.just(True), budgets),
    st.tuples(st.just("remove"), st.sampled_from(["together", "torch", "best"]), steps),
)
lives = st.fixed_dictionaries(
    {
        "kinds": st.lists(st.sampled_from(sorted(SERIES)), min_size=1, max_size=3, unique=True),
        "foreign": st.lists(st.sampled_from(sorted(FOREIGN)), min_size=1, max_size=3, unique=True),
        # What is there at the beginning: steps of each kind.
        "saved": st.lists(steps, max_size=4, unique=True),
        "laid": st.lists(steps, max_size=3, unique=True),
        "events": st.lists(events, min_size=1, max_size=8),
    }
)


class Life:
    def __init__(self, client, mortal, place, bucket):
        self.client, self.mortal, self.place, self.bucket = client, mortal, place, bucket
        self.there = {}  # (kind, name): the value that it has
        self.foreign = {}  # name: generation, of what nobody may remove
        self.writers = {}
        self.value = 0

    def uri(self, name=""):
        return f"{self.bucket}/run/{name}"

    def listed(self):
        return {name.removeprefix("run/"): generation for name, _, generation in self.client.list(self.uri())}

    def save(self, kind, step, size, how, budget):
        name = SERIES[kind].format(step)
        self.value += 1
        state = state_of(self.value, size)
        mortal = self.mortal.live(*budget)
        try:
            if kind == "safetensors":
                save_file(state, self.uri(name), client=mortal)
            elif kind in ("torch", "lightning", "best"):
                checkpoint.save(state, self.uri(name), client=mortal)
            else:
                # torch wraps everything that is raised.
                options = {"use_collectives": False} if kind == "alone" else {}
                dcp.save(state, storage_writer=self.writer(name, how), no_dist=True, **options)
        except (Killed, dcp.CheckpointException):
            assert budget[0] != NEVER, "a save failed"
            before = self.there.get((kind, name))
            found = self.load(kind, name)
            assert found in (before, self.value), f"{name} has {found}, {before} was there and {self.value} was saved"
            if found is not None:
                self.there[kind, name] = found
        else:
            self.there[kind, name] = self.value

    def meanwhile(self, kind, step, is_same_kind):
        """Two saves that began from the same checkpoint: of one kind the second one is told that it is late, of two
        kinds neither harms the other."""
        if kind not in ("together", "alone", "last"):
            return
        name = SERIES[kind].format(step)
        other = kind if is_same_kind or kind == "last" else {"together": "alone", "alone": "together"}[kind]
        life = self

        class Slow(StorageWriter):
            def finish(self, metadata, results):
                life.save(other, step, 10, 0, (NEVER, False))
                super().finish(metadata, results)

        self.value += 1
        value, self.value = self.value, self.value + 1
        options = {"use_collectives": False} if kind == "alone" else {}
        try:
            writer = Slow(self.uri(name), client=self.client)
            dcp.save(state_of(value, 10), storage_writer=writer, no_dist=True, **options)
        except (dcp.CheckpointException, ringest.PreconditionError) as error:
            # Without collectives torch raises what was raised.
            cause = error.failures[0][0] if isinstance(error, dcp.CheckpointException) else error
            assert isinstance(cause, ringest.PreconditionError) and other == kind, error
        else:
            assert other != kind, "two saves of one kind are done"
            self.there[kind, name] = value

    def writer(self, name, how):
        """A new one, the one of the last time, or a copy, as of a process checkpointer."""
        made = self.writers.setdefault(name, StorageWriter(self.uri(name), client=self.mortal))
        if how == 0:
            return StorageWriter(self.uri(name), client=self.mortal)
        if how == 1:
            return made
        if how == 2:
            return copy.copy(made)
        # The client of a copy is another one; this is the one that dies.
        twin = pickle.loads(pickle.dumps(StorageWriter(self.uri(name))))
        twin.__dict__ |= {**made.__getstate__(), "_given_client": self.mortal}
        return twin

    def load(self, kind, name):
        """The value, or None where there is none; anything else is a failure."""
        try:
            if kind == "safetensors":
                state = load_file(self.uri(name), client=self.client)
            elif kind in ("torch", "lightning", "best"):
                state = checkpoint.load(self.uri(name), client=self.client)
            else:
                reader = (Alone if kind == "alone" else StorageReader)(self.uri(name), client=self.client)
                metadata = reader.read_metadata()
                if kind != "alone" and not reader._loads.current().metadata_uri.endswith("/.metadata"):
                    return None
                size = metadata.state_dict_metadata["x"].size
                state = {"x": torch.zeros(size), "value": torch.tensor(0)}
                dcp.load(state, storage_reader=reader, no_dist=True)
        except ringest.NotFoundError:
            return None
        value = int(state["value"])
        assert is_same(state, value), f"{name} is no checkpoint that was saved"
        return value

    def add_foreign(self, kind, step):
        for name, data in FOREIGN[kind](step).items():
            generation = self.client.put(self.uri(name), data)
            if not name.startswith(REMOVABLE) or kind == "trainer with code":
                self.foreign[name] = generation
            else:
                self.foreign.pop(name, None)
            if kind == "trainer":
                # Of an earlier one with something foreign what is known may go, when that is gone; it never is.
                code = f"checkpoint-{step}/modeling.py"
                if code in self.foreign:
                    self.foreign[name] = generation

    def pinned(self):
        """Names of folders that may not go."""
        return {name.split("/")[0] for name in self.foreign if name.endswith("/notes.txt")}

    def to_go(self, keep_last, keep_every):
        """What a retention is to remove of ours."""
        series = {}
        for kind, name in self.there:
            if kind not in WITHOUT_STEP:
                step = int("".join(c for c in name.rsplit("step", 1)[-1] if c.isdigit()))
                series.setdefault(SERIES[kind], {})[step] = name
        gone = set()
        for found in series.values():
            last = sorted(found)[-keep_last:]
            gone |= {name for step, name in found.items() if step not in last and (not keep_every or step % keep_every)}
        return {name for name in gone if not {name, name.removesuffix(".pt")} & self.pointed()} - self.pinned()

    def pointed(self):
        try:
            return {bytes(self.client.get(self.uri("last.txt"))).decode()}
        except ringest.NotFoundError:
            return set()

    def retain(self, keep_last, keep_every, is_old, budget, asks_program):
        age = -3600.0 if is_old else 3600.0
        no_uploads = {"uploads": [], "uploads_left": []}
        before = self.listed()
        options = {"client": self.client, "unfinished_age": age}
        planned = retention.retain(self.uri(), keep_last, keep_every, dry_run=True, **options)
        assert self.listed() == before
        if asks_program:
            self.ask_program(planned, keep_last, keep_every, is_old)
        try:
            done = retention.retain(
                self.uri(), keep_last, keep_every, **{**options, "client": self.mortal.live(*budget)}
            )
        except Killed:
            done = None
        else:
            # The uploads of a writer that was killed in this process end when it is collected.
            assert dataclasses.replace(done, **no_uploads) == dataclasses.replace(planned, **no_uploads)
        after = self.listed()
        wanted = self.to_go(keep_last, keep_every)
        strays = {uri[len(self.uri()) :] for uri in planned.strays}
        removed = {uri[len(self.uri()) :] for uri in planned.removed}
        # Where strays of a killed save are not old, a save may be under way.
        young = {name for name in wanted if "not old" in planned.reasons.get(self.uri(name), "")}
        assert {name for name in removed if not name.startswith(REMOVABLE)} == wanted - young, (removed, wanted, young)
        for name in before.keys() - after.keys():
            assert name in strays or name in removed or name.split("/")[0] in removed, f"{name} is gone"
        assert not after.keys() - before.keys()
        for kind, name in list(self.there):
            if name in removed:
                value = self.load(kind, name) if done is None else None
                if value is None:
                    del self.there[kind, name]
        if done is not None:
            assert not {name for name in after if name in removed or name.split("/")[0] in removed}

    def ask_program(self, planned, keep_last, keep_every, is_old):
        endpoint, ca = self.place
        command = [support.PROGRAM, "ckpt", "prune", self.uri(), "--dry-run", "--json", "--keep-last", str(keep_last)]
        command += ["--older-than", "0" if is_old else "1h", "--endpoint", endpoint, "--ca", ca]
        command += ["--keep-every", str(keep_every)] if keep_every else []
        told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        assert {each["uri"]: each["reason"] for each in told["kept"]} == planned.reasons
        assert (told["removed"], told["strays"], told["size"]) == (planned.removed, planned.strays, planned.size)

    def remove(self, kind, step):
        name = SERIES[kind].format(step)
        retention.remove(self.uri(name), self.client)
        for each in list(self.there):
            if each[1] == name:
                del self.there[each]

    def check(self):
        after = self.listed()
        for name, generation in self.foreign.items():
            assert after.get(name) == generation, f"{name} is gone"
        for (kind, name), value in self.there.items():
            assert self.load(kind, name) == value, f"{name} of {kind} is not as it was saved"


class Checkpoints(unittest.TestCase):
    def setUp(self):
        self.place = self.enterContext(support.emulator(buckets=[f"life-{n}" for n in range(4)]))
        self.client = self.enterContext(ringest.Client(*self.place))
        self.mortal = self.enterContext(Mortal(*self.place))
        self.count = self.asked = 0

    def test_lives(self):
        model.checked()(given(lives)(self.live))()
        self.assertGreaterEqual(self.count, min(model.EXAMPLES, 10))

    def live(self, story):
        self.count += 1
        bucket = f"gs://life-{self.count % 4}"
        self.client.put(f"{bucket}/other/step-1.pt", b"not below the prefix")
        life = Life(self.client, self.mortal, self.place, bucket)
        kinds, foreign = story["kinds"], story["foreign"]
        happened = [("save", i, step, 10, 1, (NEVER, False)) for step in story["saved"] for i in range(len(kinds))]
        happened += [("foreign", i, step) for step in story["laid"] for i in range(len(foreign))]
        try:
            for number, (what, *arguments) in enumerate([*happened, *story["events"]]):
                note(f"{number}: {what} {arguments}")
                if what == "save":
                    life.save(kinds[arguments[0] % len(kinds)], *arguments[1:])
                elif what == "meanwhile":
                    life.meanwhile(kinds[arguments[0] % len(kinds)], *arguments[1:])
                elif what == "foreign":
                    life.add_foreign(foreign[arguments[0] % len(foreign)], *arguments[1:])
                elif what == "retain":
                    self.asked += 1
                    life.retain(*arguments, asks_program=self.asked % PROGRAM_EVERY == 0)
                    life.check()
                else:
                    life.remove(*arguments)
            life.check()
            assert bytes(self.client.get(f"{bucket}/other/step-1.pt")) == b"not below the prefix"
        finally:
            names = [f"{bucket}/{name}" for name, _, _ in self.client.list(f"{bucket}/")]
            self.client.delete(names, missing_ok=True)


if __name__ == "__main__":
    unittest.main()
