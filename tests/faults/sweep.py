"""What the tests of the table share: an operation with a fault at each of its requests, or killed before it,
and whether what must hold then does."""

import contextlib
import itertools
import subprocess

from stage import FOREIGN, PARTIAL_FILES, PARTS, PROGRAM, SHARDS, Stage, emulator

import ringest
from operations import CHECKPOINTS, CLIENT, CommandError
from operations_of_others import FILE_SYSTEM, TRAINING
from operations_of_the_program import FILES
from operations_of_the_program import PROGRAM as COMMANDS
from rules import FAULTS, kill_each, strike_each

OPERATIONS = [*CLIENT, *CHECKPOINTS, *FILE_SYSTEM, *TRAINING, *FILES, *COMMANDS]

# What an operation that fails may raise: nothing else has a meaning to a caller.
FAILURES = (ringest.Error, ExceptionGroup, FileExistsError, CommandError)


def matches(data, content):
    if data is None or content is None:
        return data is content
    return content(data) if callable(content) else data == content


def side_of(found, before, after, piecemeal):
    """ "before", "after", "both" where there is no difference, or "between"; AssertionError for what is none."""
    sides = []
    for name in before.keys() | after.keys():
        is_before = matches(found.get(name), before.get(name))
        is_after = matches(found.get(name), after.get(name))
        assert is_before or is_after, f"{name} is neither as before nor as after: {len(found.get(name) or b'')} bytes"
        sides.append("both" if is_before and is_after else "before" if is_before else "after")
    some = set(sides) - {"both"}
    assert len(some) < 2 or piecemeal, "some of it is as before, some as after"
    return some.pop() if len(some) == 1 else "between" if some else "both"


class Try:
    """An operation on a stage of its own."""

    def __init__(self, operation, place, observer, number):
        self.operation = operation
        self.stage = Stage(place, observer, number)
        self.stage.put(operation.before)
        if operation.prepare is not None:
            operation.prepare(self.stage)
        self.versions = self.stage.versions()
        self.prepared_uploads = self.stage.new_uploads()

    def run(self):
        return self.operation(self.stage)

    def which(self):
        """The rule's members: which requests count."""
        return {"bucket": self.stage.bucket, "writes": not self.operation.reads}

    def look(self):
        """Checks what is there, whatever has happened; "before", "after" or what lies between."""
        operation, stage = self.operation, self.stage
        stage.check_foreign()
        objects = stage.objects()
        ours = operation.before.keys() | operation.after.keys()
        for name in objects.keys() - ours:
            known = (operation.leaves_parts and PARTS.fullmatch(name)) or (
                operation.leaves_shards and (SHARDS.fullmatch(name) or name.startswith("run/ckpt/"))
            )
            assert known, f"{name} is no leftover of a documented kind"
        for path in stage.files().keys() - operation.files.keys():
            last = path.rsplit("/", 1)[-1]
            assert operation.reads and PARTIAL_FILES.fullmatch(last), f"{path} is no leftover of a documented kind"
        assert operation.leaves_uploads or not stage.new_uploads(), "an upload is left"
        if operation.look is not None:
            return operation.look(stage)
        remote = side_of(objects, operation.before, operation.after, operation.piecemeal)
        if not operation.reads:
            return remote
        local = side_of(stage.files(), {}, operation.files, operation.piecemeal)
        return local

    def check_clean(self, fault, request):
        """After a success; `request` is the one that was struck, None: none."""
        operation, stage = self.operation, self.stage
        objects = stage.objects()
        for name in objects.keys() - operation.before.keys() - operation.after.keys():
            # What was on its way when the rest was removed.
            late = request is not None and fault == "overtaken"
            assert not PARTS.fullmatch(name) or late, f"{name} is left"
        if operation.look is None:
            for name, upload in stage.new_uploads():
                # The one whose id nobody was told.
                assert request is not None and "?uploads" in request, f"an upload of {name} is left"
                assert stage.parts_of(name, upload) == 0, f"an upload of {name} is left with its parts"

    def check_once(self, fault):
        """After a success: each object was written once."""
        operation, stage = self.operation, self.stage
        if operation.look is not None or (
            fault in ("doubled", "doubled and lost", "overtaken") and not operation.guarded
        ):
            return
        versions = stage.versions()
        for name, content in operation.after.items():
            if matches(operation.before.get(name), content):
                continue
            made = len(versions.get(name, [])) - len(self.versions.get(name, []))
            most = 2 if operation.proves and fault in ("lost", "failed") else 1
            assert 1 <= made <= most, f"{name} was written {made} times"

    def check_struck(self, fault, outcome, request):
        """After a fault, when all is over that was on its way."""
        side = self.look()
        failed = isinstance(outcome, BaseException)
        if failed:
            assert isinstance(outcome, FAILURES), f"{type(outcome).__name__} is no failure that a caller expects"
            assert request is not None and fault not in self.operation.sure, "it ought to have borne that"
        else:
            assert side in ("after", "both"), f"it was said to be done, and is {side}"
            self.check_clean(fault, request)
            self.check_once(fault if request is not None else None)

    def check_killed(self, request):
        """After a kill, or the whole run at the end; what a second run makes of it."""
        side = self.look()
        if request is None:
            assert side in ("after", "both"), f"a whole run left it {side}"
            return
        try:
            self.run()
        except self.operation.again:
            assert side != "before", "it refuses what it has not done"
        except Exception as error:
            accepted = side != "before" and self.operation.again == (Exception,)
            assert accepted, f"the second run fails: {error}"
        assert self.look() in ("after", "both"), "a second run does not repair it"

    def check_overtaken(self):
        """When the request of the killed process has had its effect, behind the second run."""
        side = self.look()
        assert side in ("after", "both"), f"a request of the process that was killed left it {side}"

    def check_leftovers_are_found(self):
        """By `rm --unfinished`, which removes those of others, too: the stage is over."""
        stage = self.stage
        ca = ["--ca", stage.place[1]] if stage.place[1] else []
        command = [PROGRAM, "rm", "--unfinished", "--older-than=0s", stage.uri(""), "--endpoint", stage.place[0], *ca]
        subprocess.run(command, check=True, capture_output=True, timeout=100)
        assert not stage.uploads(), "uploads are left that rm --unfinished does not find"
        left = [name for name in stage.versions() if PARTS.fullmatch(name) and name in stage.objects()]
        assert not left, f"parts are left that rm --unfinished does not find: {left}"
        if self.operation.leaves_shards:
            stage.put(FOREIGN)
            self.run()
            names = {name for name in stage.objects() if SHARDS.fullmatch(name)}
            metadata = stage.objects()["run/ckpt/.metadata"]
            unnamed = [name for name in names if name.rsplit("/", 1)[1].encode() not in metadata]
            assert not unnamed, f"data is left that the next save does not remove: {unnamed}"


class Sweep:
    """One operation, on an emulator of its own."""

    def __init__(self, operation):
        self.operation = operation
        self._numbers = itertools.count()

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        self.place = self._stack.enter_context(emulator())
        self.observer = self._stack.enter_context(ringest.Client(*self.place))
        return self

    def __exit__(self, *exception):
        return self._stack.__exit__(*exception)

    @contextlib.contextmanager
    def _try(self):
        made = Try(self.operation, self.place, self.observer, next(self._numbers))
        try:
            yield made
        finally:
            made.stage.close()

    def strike(self, fault):
        """The fault at each request. Gives how many there are."""
        tries = {}

        def prepare(n):
            with contextlib.ExitStack() as stack:
                tries[n] = stack.enter_context(self._try())
                tries[n].stack = stack.pop_all()
            return tries[n].which()

        def check(n, outcome, request):
            with tries[n].stack:
                tries[n].check_struck(fault, outcome, request)

        return strike_each(self.place, lambda n: tries[n].run(), check, fault, prepare=prepare)

    def kill(self, effect="none"):
        """Killed at each request, which has that effect. Gives how many there are."""
        tries = {}

        def prepare(n):
            with contextlib.ExitStack() as stack:
                tries[n] = stack.enter_context(self._try())
                tries[n].stack = stack.pop_all()
            return tries[n].which()

        def check(n, request):
            tries[n].check_killed(request)

        def later(n):
            with tries[n].stack:
                tries[n].check_overtaken()
                tries[n].check_leftovers_are_found()

        start = (lambda n: self.operation.start(tries[n].stage)) if self.operation.command else None
        return kill_each(
            self.place, lambda n: tries[n].run(), check, effect=effect, start=start, prepare=prepare, later=later
        )


__all__ = ["FAULTS", "OPERATIONS", "Sweep"]
