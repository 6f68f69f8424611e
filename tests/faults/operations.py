"""The table of all that writes or removes: how it is run, what is there before and after it, and what may go
wrong with it. See test_table.py for who has to be in it."""

import asyncio
import datetime
import io
import pathlib
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stage import PROGRAM, Stage

import ringest
import ringest.checkpoint
from rules import FAULTS
from waiting import until

TARGET = "run/target"
OLD, NEW = b"old", bytes(range(256)) * 8
# Above what one request takes, and more than one part of a writer's.
LARGE = bytes(range(256)) * (9 << 12)
PART_SIZE = "5MiB"

EVERY = frozenset(FAULTS)
# Without a condition, a request whose answer is lost may not be sent again.
UNGUARDED = EVERY - {"lost", "failed", "refused", "doubled and lost", "overtaken"}
# One that is done twice on its way is refused the second time, and nobody can tell that the first was ours.
UNPROVEN = EVERY - {"doubled"}
NONE = frozenset({"late"})

Content = bytes | Callable[[bytes], bool]


@dataclass
class Operation:
    name: str
    covers: tuple[str, ...]  # names of the interface, see test_table.py
    run: Callable[[Stage, Any], Any]
    before: Mapping[str, bytes] = field(default_factory=dict)  # objects that are there
    after: Mapping[str, Content] = field(default_factory=dict)  # what of ours is there when it is done
    files: Mapping[str, Content] = field(default_factory=dict)  # local ones that it makes
    prepare: Callable[[Stage], None] | None = None  # beside `before`
    look: Callable[[Stage], str] | None = None  # "before" or "after"; by objects and files if it is None
    sure: frozenset[str] = EVERY  # the faults of one request that it has to bear
    guarded: bool = False  # written exactly once, even if the request is doubled on its way
    proves: bool = False  # what may be another's after a lost answer is written once more
    piecemeal: bool = False  # of several objects: each is there as before or as after it
    reads: bool = False  # its requests only read
    again: tuple[type[BaseException], ...] = ()  # what a second run may raise, because it was done
    leaves_parts: bool = False  # temporary objects, when it is killed
    leaves_uploads: bool = False  # uploads in parts, when it is killed or the answer that names one is lost
    leaves_shards: bool = False  # data of a save that nothing names, until the next one
    unfinished: bool = False  # what others have begun and not finished is what it removes
    cheap: bool = False  # is killed in script/test, too
    command: bool = False  # `run` gives the arguments of the program

    def start(self, stage):
        """The program as a process."""
        ca = ["--ca", stage.place[1]] if stage.place[1] else []
        arguments = [PROGRAM, *map(str, self.run(stage, None)), "--endpoint", stage.place[0], *ca]
        return subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def __call__(self, stage):
        if self.command:
            process = self.start(stage)
            _, said = process.communicate(timeout=100)
            if process.returncode != 0:
                raise CommandError(said.decode())
            return None
        with stage.client() as client:
            return self.run(stage, client)


class CommandError(Exception):
    """What the program said before it failed."""


def awaited(call):
    """As a run: `call` gives what is awaited."""

    def run(stage, client):
        async def main():
            return await call(stage, client)

        return asyncio.run(main())

    return run


def write(stage, client, **options):
    with client.writer(stage.uri(TARGET), part_size=PART_SIZE, **options) as writer:
        writer.write(LARGE)
    return writer.finish()["generation"]


def put_path(stage, client):
    with tempfile.NamedTemporaryFile() as file:
        file.write(LARGE)
        file.flush()
        return client.put(stage.uri(TARGET), pathlib.Path(file.name))


async def awrite(stage, client):
    async with client.awriter(stage.uri(TARGET), part_size=PART_SIZE, if_generation_match=0) as writer:
        await writer.write(LARGE)
        await writer.finish()


async def awrite_and_abort(stage, client):
    writer = client.awriter(stage.uri(TARGET), part_size=PART_SIZE)
    await writer.write(LARGE)
    await asyncio.to_thread(await_part, stage)
    await writer.abort()


def content_type(stage):
    """Whether the update has been made: the content stays as it is."""
    return "after" if stage.observer.stat(stage.uri(TARGET))["content_type"] == "text/new" else "before"


def update(stage, client):
    at = stage.observer.stat(stage.uri(TARGET))["metageneration"]
    return client.update(stage.uri(TARGET), content_type="text/new", if_metageneration_match=at)


def sources(stage):
    return [stage.uri("run/source"), stage.uri("run/source")]


def write_and_abort(stage, client):
    writer = client.writer(stage.uri(TARGET), part_size=PART_SIZE)
    writer.write(LARGE)
    await_part(stage)
    writer.abort()


def await_part(stage):
    """Until the service has one of an upload: before, there is hardly anything that could be ended."""
    until(lambda: any(stage.parts_of(*upload) for upload in stage.new_uploads()), "a part at the service")


def generation(stage, name=TARGET):
    """Of what is there or was; one that nothing had where nothing was."""
    return max(stage.versions().get(name, [1]))


def begin_upload(stage):
    from rules import ask

    ask(stage.place, "POST", f"/{stage.bucket}/run/begun?uploads", b"")


def abort_uploads(stage, client, abort):
    for name, upload in stage.new_uploads():
        assert name == "run/begun"
        abort(stage.uri(name), upload)


async def aabort_uploads(stage, client):
    for name, upload in stage.new_uploads():
        await client.aabort_upload(stage.uri(name), upload)


GONE = (FileNotFoundError, ExceptionGroup)  # ringest.NotFoundError is one of the former
TAKEN = (ringest.PreconditionError,)
MANY = {f"run/many/{i}": NEW + bytes([i]) for i in range(3)}
MANY_OLD = dict.fromkeys(MANY, OLD)

CLIENT = [
    Operation(
        "put", ("Client.put",), lambda stage, client: client.put(stage.uri(TARGET), NEW),
        before={TARGET: OLD}, after={TARGET: NEW}, sure=UNGUARDED, cheap=True,
    ),
    Operation(
        "put where nothing is", ("Client.put",),
        lambda stage, client: client.put(stage.uri(TARGET), NEW, if_generation_match=0),
        after={TARGET: NEW}, guarded=True, again=TAKEN, cheap=True,
    ),
    Operation(
        "put in the place of one generation", ("Client.put",),
        lambda stage, client: client.put(stage.uri(TARGET), NEW, if_generation_match=generation(stage)),
        before={TARGET: OLD}, after={TARGET: NEW}, guarded=True,
    ),
    Operation(
        "put that is not exclusive", ("Client.put",),
        lambda stage, client: client.put(stage.uri(TARGET), NEW, if_generation_match=0, exclusive=False),
        after={TARGET: NEW}, sure=UNPROVEN, guarded=True, again=TAKEN,
    ),
    Operation(
        "put in parts", ("Client.put",), lambda stage, client: client.put(stage.uri(TARGET), LARGE),
        before={TARGET: OLD}, after={TARGET: LARGE}, guarded=True, leaves_uploads=True,
    ),
    Operation(
        "put in joined parts", ("Client.put",),
        lambda stage, client: client.put(stage.uri(TARGET), LARGE, if_generation_match=0),
        after={TARGET: LARGE}, guarded=True, again=TAKEN, leaves_parts=True,
    ),
    Operation(
        "aput", ("Client.aput",),
        awaited(lambda stage, client: client.aput(stage.uri(TARGET), NEW, if_generation_match=0)),
        after={TARGET: NEW}, guarded=True, again=TAKEN,
    ),
    Operation(
        "put_many", ("Client.put_many",),
        lambda stage, client: client.put_many([(stage.uri(name), data) for name, data in MANY.items()]),
        before=MANY_OLD, after=MANY, sure=UNGUARDED, piecemeal=True, cheap=True,
    ),
    Operation(
        "writer", ("Client.writer", "Writer.write", "Writer.finish"), write,
        before={TARGET: OLD}, after={TARGET: LARGE}, guarded=True, leaves_uploads=True, cheap=True,
    ),
    Operation(
        "writer where nothing is", ("Client.writer", "Writer.write", "Writer.finish"),
        lambda stage, client: write(stage, client, if_generation_match=0),
        after={TARGET: LARGE}, guarded=True, again=TAKEN, leaves_parts=True, cheap=True,
    ),
    Operation(
        "writer that is aborted", ("Writer.abort",), write_and_abort,
        before={TARGET: OLD}, after={TARGET: OLD}, leaves_uploads=True,
    ),
    Operation(
        "copy", ("Client.copy",), lambda stage, client: client.copy(stage.uri("run/source"), stage.uri(TARGET)),
        before={TARGET: OLD, "run/source": NEW}, after={TARGET: NEW, "run/source": NEW}, sure=UNGUARDED, cheap=True,
    ),
    Operation(
        "acopy where nothing is", ("Client.acopy",),
        awaited(
            lambda stage, client: client.acopy(stage.uri("run/source"), stage.uri(TARGET), if_generation_match=0)
        ),
        before={"run/source": NEW}, after={TARGET: NEW, "run/source": NEW}, sure=UNPROVEN, guarded=True, again=TAKEN,
    ),
    Operation(
        "put of a file", ("Client.put",), put_path,
        before={TARGET: OLD}, after={TARGET: LARGE}, guarded=True, leaves_uploads=True,
    ),
    Operation(
        "aput_many", ("Client.aput_many", "aio.put_many"),
        awaited(
            lambda stage, client: client.aput_many([(stage.uri(name), data) for name, data in MANY.items()])
        ),
        before=MANY_OLD, after=MANY, sure=UNGUARDED, piecemeal=True,
    ),
    Operation(
        "awriter where nothing is", ("Client.awriter", "aio.AsyncWriter.write", "aio.AsyncWriter.finish"),
        awaited(awrite), after={TARGET: LARGE}, guarded=True, again=TAKEN, leaves_parts=True,
    ),
    Operation(
        "awriter that is aborted", ("aio.AsyncWriter.abort",), awaited(awrite_and_abort),
        before={TARGET: OLD}, after={TARGET: OLD}, leaves_uploads=True,
    ),
    Operation(
        "compose where nothing is", ("Client.compose",),
        lambda stage, client: client.compose(stage.uri(TARGET), sources(stage), if_generation_match=0),
        before={"run/source": NEW}, after={TARGET: NEW + NEW, "run/source": NEW}, guarded=True, again=TAKEN,
    ),
    Operation(
        "acompose", ("Client.acompose",),
        awaited(lambda stage, client: client.acompose(stage.uri(TARGET), sources(stage))),
        before={TARGET: OLD, "run/source": NEW}, after={TARGET: NEW + NEW, "run/source": NEW}, sure=UNGUARDED,
    ),
    Operation(
        "update of one metageneration", ("Client.update",), update,
        before={TARGET: OLD}, after={TARGET: OLD}, look=content_type, again=TAKEN,
    ),
    Operation(
        "aupdate", ("Client.aupdate",),
        awaited(lambda stage, client: client.aupdate(stage.uri(TARGET), content_type="text/new")),
        before={TARGET: OLD}, after={TARGET: OLD}, look=content_type, sure=UNGUARDED,
    ),
    Operation(
        "delete", ("Client.delete",), lambda stage, client: client.delete(stage.uri(TARGET)),
        before={TARGET: OLD}, sure=NONE, again=GONE, cheap=True,
    ),
    Operation(
        "delete of a generation", ("Client.delete",),
        lambda stage, client: client.delete(stage.uri(TARGET), generation=generation(stage)),
        before={TARGET: OLD}, sure=UNPROVEN, again=GONE,
    ),
    Operation(
        "delete on a condition", ("Client.delete",),
        lambda stage, client: client.delete(stage.uri(TARGET), if_generation_match=generation(stage)),
        before={TARGET: OLD}, sure=UNPROVEN, again=(*GONE, *TAKEN),
    ),
    Operation(
        "adelete", ("Client.adelete",), awaited(lambda stage, client: client.adelete(stage.uri(TARGET))),
        before={TARGET: OLD}, sure=NONE, again=GONE,
    ),
    Operation(
        "delete of many", ("Client.delete",),
        lambda stage, client: client.delete([stage.uri(name) for name in MANY], missing_ok=True),
        before=MANY_OLD, sure=UNGUARDED, piecemeal=True, cheap=True,
    ),
    Operation(
        "delete of many generations", ("Client.delete",),
        lambda stage, client: client.delete([(stage.uri(name), generation(stage, name)) for name in MANY]),
        before=MANY_OLD, sure=UNPROVEN, piecemeal=True, again=(*GONE, *TAKEN),
    ),
    Operation(
        "adelete of many", ("Client.adelete",),
        awaited(lambda stage, client: client.adelete([stage.uri(name) for name in MANY], missing_ok=True)),
        before=MANY_OLD, sure=UNGUARDED, piecemeal=True,
    ),
    Operation(
        "abort_upload", ("Client.abort_upload",),
        lambda stage, client: abort_uploads(stage, client, client.abort_upload),
        prepare=begin_upload, look=lambda stage: "before" if stage.new_uploads() else "after",
        sure=UNPROVEN, again=GONE, leaves_uploads=True,
    ),
    Operation(
        "aabort_upload", ("Client.aabort_upload",), awaited(aabort_uploads),
        prepare=begin_upload, look=lambda stage: "before" if stage.new_uploads() else "after",
        sure=UNPROVEN, again=GONE, leaves_uploads=True,
    ),
]


def write_file(stage, client, **options):
    with ringest.checkpoint.open(stage.uri(TARGET), "wb", client=client, part_size=PART_SIZE, **options) as file:
        file.write(LARGE)


def abort_file(stage, client):
    file = ringest.checkpoint.open(stage.uri(TARGET), "wb", client=client, part_size=PART_SIZE)
    file.write(LARGE)
    await_part(stage)
    file.abort()


def state(value):
    import torch

    return {"weight": torch.full((7, 5), float(value)), "step": value}


def torch_file(value):
    """Whether bytes are what torch.save makes of that state."""

    def holds(data):
        import torch

        found = torch.load(io.BytesIO(data), weights_only=True)
        return found["step"] == value and bool((found["weight"] == float(value)).all())

    return holds


def saved(value):
    import torch

    out = io.BytesIO()
    torch.save(state(value), out)
    return out.getvalue()


class Saved(Mapping):
    """What torch.save makes, when somebody asks: its import takes seconds."""

    def __init__(self, values):
        self._values = values

    def __getitem__(self, name):
        return saved(self._values[name])

    def __iter__(self):
        return iter(self._values)

    def __len__(self):
        return len(self._values)


def safetensors_file(value):
    def holds(data):
        import safetensors.torch

        if data == OLD:
            return False
        return bool((safetensors.torch.load(data)["weight"] == float(value)).all())

    return holds


def save_async(stage, client):
    with ringest.checkpoint.AsyncSaver(client=client) as saver:
        saver.save(state(2), stage.uri(TARGET)).result()


def save_safetensors(stage, client):
    from ringest import safetensors

    safetensors.save_file({"weight": state(2)["weight"]}, stage.uri(TARGET), client=client)


def dcp_state(value):
    import torch

    return {"a": torch.full((100, 3), float(value)), "b": torch.full((5,), float(value)), "step": torch.tensor(value)}


def dcp_save(stage, client, value=2, writer=None):
    import warnings

    import torch.distributed.checkpoint as dcp

    from ringest.dcp import StorageWriter

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is no process group
        dcp.save(dcp_state(value), storage_writer=(writer or StorageWriter)(stage.uri("run/ckpt"), client=client))


def dcp_prepare(stage):
    dcp_save(stage, stage.observer, 1)


def dcp_look(stage):
    import warnings

    import torch.distributed.checkpoint as dcp

    from ringest.dcp import StorageReader

    found = dcp_state(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(found, storage_reader=StorageReader(stage.uri("run/ckpt"), client=stage.observer))
    values = {float(value) for tensor in found.values() for value in tensor.flatten().tolist()}
    assert values in ({1.0}, {2.0}), f"what is there is half of each: {values}"
    return "before" if values == {1.0} else "after"


def connector_writer(uri, client):
    from ringest.dataflux.lightning.gcs_filesystem import GCSDistributedWriter

    return GCSDistributedWriter(uri, None, client)


def retain(stage, client):
    ringest.checkpoint.retain(stage.uri("run/"), keep_last=1, client=client, unfinished_age=datetime.timedelta(days=1))


STEPS = {f"run/step-{step}.ckpt": OLD for step in (100, 200, 300)}

CHECKPOINTS = [
    Operation(
        "checkpoint.open", ("checkpoint.open", "checkpoint.WriteFile.write", "checkpoint.WriteFile.close"), write_file,
        before={TARGET: OLD}, after={TARGET: LARGE}, guarded=True, leaves_uploads=True,
    ),
    Operation(
        "checkpoint.open that is aborted", ("checkpoint.WriteFile.abort",), abort_file,
        before={TARGET: OLD}, after={TARGET: OLD}, leaves_uploads=True,
    ),
    Operation(
        "checkpoint.save", ("checkpoint.save",),
        lambda stage, client: ringest.checkpoint.save(state(2), stage.uri(TARGET), client=client),
        before=Saved({TARGET: 1}), after={TARGET: torch_file(2)}, sure=UNGUARDED,
    ),
    Operation(
        "checkpoint.save in the place of one generation", ("checkpoint.save",),
        lambda stage, client: ringest.checkpoint.save(
            state(2), stage.uri(TARGET), client=client, if_generation_match=generation(stage)
        ),
        before=Saved({TARGET: 1}), after={TARGET: torch_file(2)}, guarded=True,
    ),
    Operation(
        "checkpoint.AsyncSaver.save", ("checkpoint.AsyncSaver.save",), save_async,
        before=Saved({TARGET: 1}), after={TARGET: torch_file(2)}, sure=UNGUARDED,
    ),
    Operation(
        "safetensors.save_file", ("safetensors.save_file",), save_safetensors,
        before={TARGET: OLD}, after={TARGET: safetensors_file(2)}, sure=UNGUARDED,
    ),
    Operation(
        "checkpoint.retain", ("retention.retain",), retain,
        before=STEPS, after={"run/step-300.ckpt": OLD}, piecemeal=True,
    ),
    Operation(
        "retention.remove", ("retention.remove",),
        lambda stage, client: ringest.retention.remove(stage.uri("run/step-100.ckpt"), client=client),
        before={"run/step-100.ckpt": OLD},
    ),
    Operation(
        "a distributed save", ("dcp.StorageWriter",), dcp_save,
        prepare=dcp_prepare, look=dcp_look, leaves_shards=True,
    ),
    Operation(
        "a distributed save by the connector's name", ("dataflux.lightning.gcs_filesystem.GCSDistributedWriter",),
        lambda stage, client: dcp_save(stage, client, writer=connector_writer),
        prepare=dcp_prepare, look=dcp_look, leaves_shards=True,
    ),
]
