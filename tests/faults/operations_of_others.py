"""The part of the table that other packages' interfaces are: fsspec's, Lightning's, the connector's, webdataset's."""

import asyncio
from typing import Any

from operations import (
    GONE,
    LARGE,
    MANY,
    MANY_OLD,
    NEW,
    NONE,
    OLD,
    TARGET,
    UNGUARDED,
    Operation,
    Saved,
    state,
    torch_file,
)

BELOW = {f"run/tree/{name}": data for name, data in (("a", NEW), ("b/c", NEW + b"c"))}
MOVED = {name.replace("tree", "moved"): data for name, data in BELOW.items()}


def fs(client):
    from ringest.fs import GCSFileSystem

    return GCSFileSystem(client=client, skip_instance_cache=True)


def on(call):
    """A run: `call` gets the stage and a file system."""
    return lambda stage, client: call(stage, fs(client))


def write_text(stage, files, mode, **options):
    with files.open(stage.uri(TARGET), mode, **options) as file:
        file.write(NEW.decode("latin-1") if "b" not in mode else NEW)


def write_awaited(stage, files):
    async def write():
        async with await files.open_async(stage.uri(TARGET), "wb") as file:
            await file.write(NEW)

    asyncio.run(write())


def transact(stage, files):
    with files.transaction:
        for name, data in MANY.items():
            with files.open(stage.uri(name), "wb") as file:
                file.write(data)


def put_file(stage, files, **options):
    local = stage.folder / "local"
    local.write_bytes(LARGE)
    files.put_file(str(local), stage.uri(TARGET), **options)


EXISTS = (FileExistsError,)

FILE_SYSTEM = [
    Operation(
        "pipe_file", ("fs.GCSFileSystem.pipe_file",), on(lambda stage, files: files.pipe_file(stage.uri(TARGET), NEW)),
        before={TARGET: OLD}, after={TARGET: NEW}, sure=UNGUARDED,
    ),
    Operation(
        "pipe_file that creates", ("fs.GCSFileSystem.pipe_file",),
        on(lambda stage, files: files.pipe_file(stage.uri(TARGET), NEW, mode="create")),
        after={TARGET: NEW}, guarded=True, again=EXISTS,
    ),
    Operation(
        "pipe", ("fs.GCSFileSystem.pipe",),
        on(lambda stage, files: files.pipe({stage.uri(name): data for name, data in MANY.items()})),
        before=MANY_OLD, after=MANY, sure=UNGUARDED, piecemeal=True,
    ),
    Operation(
        "touch", ("fs.GCSFileSystem.touch",), on(lambda stage, files: files.touch(stage.uri(TARGET), truncate=False)),
        after={TARGET: b""}, guarded=True,
    ),
    Operation(
        "put_file", ("fs.GCSFileSystem.put_file",), on(put_file), before={TARGET: OLD}, after={TARGET: LARGE},
        guarded=True, leaves_uploads=True, files={"local": LARGE},
    ),
    Operation(
        "open for writing", ("fs.GCSFileSystem.open",),
        on(lambda stage, files: write_text(stage, files, "w", encoding="latin-1", newline="")),
        before={TARGET: OLD}, after={TARGET: NEW}, sure=UNGUARDED,
    ),
    Operation(
        "open for creating", ("fs.GCSFileSystem.open",), on(lambda stage, files: write_text(stage, files, "xb")),
        after={TARGET: NEW}, guarded=True, again=EXISTS,
    ),
    Operation(
        "open_async", ("fs.GCSFileSystem.open_async",), on(write_awaited),
        before={TARGET: OLD}, after={TARGET: NEW}, sure=UNGUARDED,
    ),
    Operation(
        "a transaction", ("fs.GCSFileSystem.open",), on(transact),
        before=MANY_OLD, after=MANY, sure=UNGUARDED, piecemeal=True,
    ),
    Operation(
        "cp_file", ("fs.GCSFileSystem.cp_file",),
        on(lambda stage, files: files.cp_file(stage.uri("run/source"), stage.uri(TARGET))),
        before={TARGET: OLD, "run/source": NEW}, after={TARGET: NEW, "run/source": NEW}, sure=UNGUARDED,
    ),
    Operation(
        "copy of a tree", ("fs.GCSFileSystem.copy",),
        on(lambda stage, files: files.copy(stage.uri("run/tree/"), stage.uri("run/moved/"), recursive=True)),
        before=BELOW, after={**BELOW, **MOVED}, sure=UNGUARDED, piecemeal=True,
    ),
    Operation(
        "mv", ("fs.GCSFileSystem.mv",),
        on(lambda stage, files: files.mv(stage.uri("run/source"), stage.uri("run/moved"))),
        before={"run/source": NEW}, after={"run/moved": NEW}, sure=UNGUARDED, piecemeal=True, again=GONE,
    ),
    Operation(
        "rename of a tree", ("fs.GCSFileSystem.rename",),
        on(lambda stage, files: files.rename(stage.uri("run/tree/"), stage.uri("run/moved/"), recursive=True)),
        before=BELOW, after=MOVED, sure=UNGUARDED, piecemeal=True, again=GONE,
    ),
    Operation(
        "rm_file", ("fs.GCSFileSystem.rm_file",), on(lambda stage, files: files.rm_file(stage.uri(TARGET))),
        before={TARGET: OLD}, sure=NONE, again=GONE,
    ),
    Operation(
        "rm of a tree", ("fs.GCSFileSystem.rm",), on(lambda stage, files: files.rm(stage.uri("run/tree"), recursive=True)),
        before=BELOW, piecemeal=True, again=GONE,
    ),
    Operation(
        "rmdir", ("fs.GCSFileSystem.rmdir",), on(lambda stage, files: files.rmdir(stage.uri("run/empty"))),
        before={"run/empty/": b""},
    ),
    Operation(
        "get_file", ("fs.GCSFileSystem.get_file",),
        on(lambda stage, files: files.get_file(stage.uri(TARGET), str(stage.folder / "file"))),
        before={TARGET: LARGE}, after={TARGET: LARGE}, files={"file": LARGE}, reads=True,
    ),
    Operation(
        "get", ("fs.GCSFileSystem.get",),
        on(lambda stage, files: files.get(stage.uri(TARGET), str(stage.folder / "file"))),
        before={TARGET: LARGE}, after={TARGET: LARGE}, files={"file": LARGE}, reads=True,
    ),
]


def lightning(client):
    from ringest.lightning import CheckpointIO

    return CheckpointIO(client)


def save_async(stage, client):
    from ringest.lightning import AsyncCheckpointIO

    saver = AsyncCheckpointIO(lightning(client))
    saver.save_checkpoint(state(2), stage.uri(TARGET))
    saver.teardown()


def remove_async(stage, client):
    from ringest.lightning import AsyncCheckpointIO

    saver = AsyncCheckpointIO(lightning(client))
    saver.remove_checkpoint(stage.uri(TARGET))
    saver.teardown()


def connector_io(client):
    from ringest.dataflux.lightning import DatafluxLightningCheckpoint

    return DatafluxLightningCheckpoint(None, client)


def connector_io_async(client):
    from ringest.dataflux.lightning import DatafluxLightningAsyncCheckpoint

    return DatafluxLightningAsyncCheckpoint(None, client)


def connector_save_async(stage, client):
    saver = connector_io_async(client)
    saver.save_checkpoint(state(2), stage.uri(TARGET))
    saver.teardown()


def connector_write(stage, client):
    from ringest.dataflux.dataflux_checkpoint import DatafluxCheckpoint

    with DatafluxCheckpoint(None, stage.bucket, client).writer(TARGET) as file:
        file.write(NEW)


def connector_files(client):
    from ringest.dataflux.lightning.gcs_filesystem import GCSFileSystem

    return GCSFileSystem(None, storage_client=client)


def connector_stream(stage, client):
    with connector_files(client).create_stream(stage.uri(TARGET), "wb") as file:
        file.write(NEW)


def write_shard(stage, client):
    import ringest.webdataset

    ringest.webdataset.register(client)
    with ringest.webdataset.gopen(stage.uri(TARGET), "wb") as file:
        file.write(NEW)


TORCH_NEW: dict[str, Any] = {"before": Saved({TARGET: 1}), "after": {TARGET: torch_file(2)}, "sure": UNGUARDED}

TRAINING = [
    Operation(
        "save_checkpoint", ("lightning.CheckpointIO.save_checkpoint",),
        lambda stage, client: lightning(client).save_checkpoint(state(2), stage.uri(TARGET)), **TORCH_NEW,
    ),
    Operation(
        "remove_checkpoint", ("lightning.CheckpointIO.remove_checkpoint",),
        lambda stage, client: lightning(client).remove_checkpoint(stage.uri("run/step-1.ckpt")),
        before={"run/step-1.ckpt": OLD},
    ),
    Operation(
        "save_checkpoint beside the training",
        ("lightning.AsyncCheckpointIO.save_checkpoint", "lightning.AsyncCheckpointIO.teardown",
         "lightning.AsyncCheckpointIO.wait"),
        save_async, **TORCH_NEW,
    ),
    Operation(
        "remove_checkpoint beside the training", ("lightning.AsyncCheckpointIO.remove_checkpoint",), remove_async,
        before={TARGET: OLD},
    ),
    Operation(
        "save_checkpoint by the connector's name", ("dataflux.lightning.dataflux_lightning_checkpoint.DatafluxLightningCheckpoint.save_checkpoint",),
        lambda stage, client: connector_io(client).save_checkpoint(state(2), stage.uri(TARGET)), **TORCH_NEW,
    ),
    Operation(
        "remove_checkpoint by the connector's name",
        ("dataflux.lightning.dataflux_lightning_checkpoint.DatafluxLightningCheckpoint.remove_checkpoint",),
        lambda stage, client: connector_io(client).remove_checkpoint(stage.uri(TARGET)),
        before={TARGET: OLD}, sure=NONE, again=GONE,
    ),
    Operation(
        "save_checkpoint beside the training by the connector's name",
        ("dataflux.lightning.dataflux_lightning_checkpoint.DatafluxLightningAsyncCheckpoint",), connector_save_async, **TORCH_NEW,
    ),
    Operation(
        "the connector's writer", ("dataflux.dataflux_checkpoint.DatafluxCheckpoint.writer",), connector_write,
        before={TARGET: OLD}, after={TARGET: NEW}, sure=UNGUARDED,
    ),
    Operation(
        "the connector's stream", ("dataflux.lightning.gcs_filesystem.GCSFileSystem.create_stream",), connector_stream,
        before={TARGET: OLD}, after={TARGET: NEW}, sure=UNGUARDED,
    ),
    Operation(
        "the connector's rename", ("dataflux.lightning.gcs_filesystem.GCSFileSystem.rename",),
        lambda stage, client: connector_files(client).rename(
            stage.uri("run/source"), stage.uri(TARGET)
        ),
        before={"run/source": NEW}, after={TARGET: NEW}, sure=NONE, piecemeal=True, again=GONE,
    ),
    Operation(
        "the connector's rm_file", ("dataflux.lightning.gcs_filesystem.GCSFileSystem.rm_file",),
        lambda stage, client: connector_files(client).rm_file(stage.uri(TARGET)),
        before={TARGET: OLD}, sure=NONE, again=GONE,
    ),
    Operation(
        "a shard of webdataset", ("webdataset.gopen",), write_shard,
        before={TARGET: OLD}, after={TARGET: NEW}, sure=UNGUARDED,
    ),
]
