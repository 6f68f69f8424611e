"""The part of the table that the program's commands are, and the files that lists and indexes become."""

import io
import random
import tarfile

from operations import EVERY, LARGE, MANY_OLD, NEW, OLD, TARGET, UNGUARDED, UNPROVEN, Operation, begin_upload

TREE = {f"run/tree/{name}": NEW + name.encode() for name in ("a", "b/c", "b/d")}
LOCAL = {name.removeprefix("run/"): data for name, data in TREE.items()}


def shard(seed=1):
    """A tar archive with two samples."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for i in range(2):
            info = tarfile.TarInfo(f"{i}.bin")
            info.size = 100
            archive.addfile(info, io.BytesIO(random.Random(seed).randbytes(100)))
    return out.getvalue()


SHARDS = {"run/shards/1.tar": shard(1), "run/shards/2.tar": shard(2)}


def local(stage, files):
    for name, data in files.items():
        path = stage.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return stage.folder


def is_manifest(stage_names):
    import os
    import tempfile

    import ringest

    def holds(data):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "manifest")
            with open(path, "wb") as file:
                file.write(data)
            return [name for name, _, _ in ringest.Objects(manifest=path)] == stage_names

    return holds


def is_index(data):
    import ringest

    return len(ringest.TarIndex.from_data(data)) == 4


def make_index(stage, client):
    from ringest import tar

    tar.make_index(stage.uri("run/shards/"), index=stage.folder / "index", client=client)


def scan(stage, client):
    import ringest

    shards = list(client.list(stage.uri("run/shards/")))
    ringest.TarIndex.scan(client, stage.bucket, shards).save(stage.folder / "index")


FILES = [
    Operation(
        "Objects.save", ("Objects.save",),
        lambda stage, client: client.list(stage.uri("run/tree/")).save(stage.folder / "list"),
        before=TREE, after=TREE, files={"list": is_manifest(sorted(TREE))}, reads=True,
    ),
    Operation(
        "TarIndex.save", ("TarIndex.save", "TarIndex.scan"), scan,
        before=SHARDS, after=SHARDS, files={"index": is_index}, reads=True,
    ),
    Operation(
        "make_index", ("tar.make_index",), make_index,
        before=SHARDS, after=SHARDS, files={"index": is_index}, reads=True,
    ),
]

def moved_to_a_file(stage):
    """The bytes are at one of both places at least."""
    here, there = stage.objects().get(TARGET) == NEW, stage.files().get("file") == NEW
    assert here or there, "the object is gone, and the file is not whole"
    return "both" if here and there else "after" if there else "before"


PROGRAM = [
    Operation(
        "ringest cp of a file", ("ringest cp",), lambda stage, _: ["cp", local(stage, {"local": NEW}) / "local", stage.uri(TARGET)],
        before={TARGET: OLD}, after={TARGET: NEW}, files={"local": NEW}, command=True, cheap=True, sure=EVERY,
    ),
    Operation(
        "ringest cp of a large file", ("ringest cp",),
        lambda stage, _: ["cp", local(stage, {"local": LARGE}) / "local", stage.uri(TARGET)],
        before={TARGET: OLD}, after={TARGET: LARGE}, files={"local": LARGE}, command=True, leaves_uploads=True,
        guarded=True,
    ),
    Operation(
        "ringest cp on a condition", ("ringest cp",),
        lambda stage, _: ["cp", local(stage, {"local": NEW}) / "local", stage.uri(TARGET), "--if-generation-match=0"],
        after={TARGET: NEW}, files={"local": NEW}, command=True, guarded=True, again=(Exception,), cheap=True,
    ),
    Operation(
        "ringest cp of a tree", ("ringest cp",),
        lambda stage, _: ["cp", "-r", local(stage, LOCAL) / "tree", stage.uri("run/")],
        after=TREE, files=LOCAL, command=True, piecemeal=True,
    ),
    Operation(
        "ringest cp between names", ("ringest cp",),
        lambda stage, _: ["cp", stage.uri("run/source"), stage.uri(TARGET)],
        before={TARGET: OLD, "run/source": NEW}, after={TARGET: NEW, "run/source": NEW}, command=True,
    ),
    Operation(
        "ringest cp to another storage class", ("ringest cp",),
        lambda stage, _: ["cp", "-s", "NEARLINE", stage.uri(TARGET), stage.uri(TARGET)],
        before={TARGET: OLD}, after={TARGET: OLD}, command=True, sure=UNPROVEN, guarded=True, cheap=True,
    ),
    Operation(
        "ringest cp of a tree between names", ("ringest cp",),
        lambda stage, _: ["cp", "-r", stage.uri("run/tree"), stage.uri("run/copy/")],
        before=TREE, after={**TREE, **{name.replace("run/", "run/copy/"): data for name, data in TREE.items()}},
        command=True, piecemeal=True,
    ),
    Operation(
        "ringest cp to a file", ("ringest cp",),
        lambda stage, _: ["cp", stage.uri(TARGET), stage.folder / "file", "--part-size=5M"],
        before={TARGET: LARGE}, after={TARGET: LARGE}, files={"file": LARGE}, command=True, reads=True, cheap=True,
    ),
    Operation(
        "ringest cp of a tree to files", ("ringest cp",),
        lambda stage, _: ["cp", "-r", stage.uri("run/tree"), stage.folder],
        before=TREE, after=TREE, files={name.removeprefix("tree/"): data for name, data in LOCAL.items()},
        command=True, reads=True, piecemeal=True,
    ),
    Operation(
        "ringest mv between names", ("ringest mv",),
        lambda stage, _: ["mv", stage.uri("run/source"), stage.uri(TARGET)],
        before={TARGET: OLD, "run/source": NEW}, after={TARGET: NEW}, command=True, piecemeal=True, again=(Exception,),
        cheap=True, proves=True,
    ),
    Operation(
        "ringest mv to a file", ("ringest mv",), lambda stage, _: ["mv", stage.uri(TARGET), stage.folder / "file"],
        before={TARGET: NEW}, look=moved_to_a_file, files={"file": NEW}, command=True, reads=True,
        again=(Exception,),
    ),
    Operation(
        "ringest mv of a file", ("ringest mv",),
        lambda stage, _: ["mv", local(stage, {"local": NEW}) / "local", stage.uri(TARGET)],
        before={TARGET: OLD}, after={TARGET: NEW}, files={"local": NEW}, command=True,
    ),
    Operation(
        "ringest rsync", ("ringest rsync",),
        lambda stage, _: ["rsync", "-r", "--delete", stage.uri("run/tree"), stage.uri("run/copy/")],
        before={**TREE, "run/copy/old": OLD, "run/copy/a": OLD},
        after={**TREE, **{name.replace("run/tree", "run/copy"): data for name, data in TREE.items()}},
        command=True, piecemeal=True,
    ),
    Operation(
        "ringest rm", ("ringest rm",), lambda stage, _: ["rm", stage.uri(TARGET)],
        before={TARGET: OLD}, command=True, sure=UNGUARDED - {"doubled"}, again=(Exception,), cheap=True,
    ),
    Operation(
        "ringest rm of a tree", ("ringest rm",), lambda stage, _: ["rm", "-r", stage.uri("run/many")],
        before=MANY_OLD, command=True, piecemeal=True, again=(Exception,),
    ),
    Operation(
        "ringest rm of what is not finished", ("ringest rm",),
        lambda stage, _: ["rm", "--unfinished", "--older-than=0s", stage.uri("run/begun")],
        prepare=begin_upload, look=lambda stage: "before" if stage.new_uploads() else "after",
        command=True, leaves_uploads=True,
    ),
    Operation(
        "ringest manifest save", ("ringest manifest",),
        lambda stage, _: ["manifest", "save", stage.uri("run/tree/"), stage.folder / "list"],
        before=TREE, after=TREE, files={"list": is_manifest(sorted(TREE))}, command=True, reads=True, cheap=True,
    ),
    Operation(
        "ringest tar index", ("ringest tar",),
        lambda stage, _: ["tar", "index", stage.uri("run/shards/"), stage.folder / "index"],
        before=SHARDS, after=SHARDS, files={"index": is_index}, command=True, reads=True,
    ),
]
