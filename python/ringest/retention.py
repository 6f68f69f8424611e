"""Checkpoints below a prefix: which there are, which to keep, and the removal of the others.

    ringest.checkpoint.retain("gs://bucket/run/", keep_last=3, keep_every=1000)

A checkpoint is a folder with `.metadata`, as torch.distributed.checkpoint has it (by whatever writer), or one
file, by its ending: .pt, .pth and .ckpt of torch.save, .safetensors. Its step is the number behind "step" in
its name, or else the last number there: step-100, epoch=3-step=100.ckpt, 100.pt. Objects that are called
otherwise are never touched.

A folder is complete when it has `.metadata` and every object that this names. `ringest ckpt ls` shows the
same.
"""

from __future__ import annotations

import datetime
import logging
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ringest import _uri
from ringest._dcp_names import DATA_NAME, METADATA_NAME, named_in
from ringest._errors import Error, NotFoundError, PreconditionError, UnavailableError
from ringest.client import Client, default_client

__all__ = ["Checkpoint", "Retained", "find", "is_sharded", "remove", "retain"]

# Beside the shards: metadata of ranks that save alone, data, and what Lightning and torch leave.
_MEMBER = re.compile(rf"(?:__\d+)?\.metadata(?:\.tmp)?|{DATA_NAME.pattern}|meta\.pt", re.ASCII)
_KINDS = {".pt": "torch", ".pth": "torch", ".ckpt": "torch", ".safetensors": "safetensors"}
# Where uploads keep parts that are to be composed.
_PARTS_PREFIX = ".ringest-parts/"
_DAY_S = 24 * 3600.0

_log = logging.getLogger("ringest")


@dataclass
class Checkpoint:
    """One that was found. uri: of the folder, without a slash at its end, or of the file."""

    uri: str
    kind: str  # "dcp", "torch", "safetensors"
    step: int | None
    complete: bool = True
    ranks: int = 1
    size: int = 0  # bytes of what belongs to it
    missing: list[str] = field(default_factory=list)  # names of objects below it
    objects: list[tuple[str, int, int]] = field(default_factory=list)  # (uri, size, generation) of what belongs to it
    strays: list[tuple[str, int, int]] = field(default_factory=list)  # of saves that were not finished, or are replaced


@dataclass
class Retained:
    """What retain did, or with dry_run would do."""

    kept: list[str]  # URIs of checkpoints
    removed: list[str]
    strays: list[str]  # URIs of objects
    size: int  # bytes that were removed; those of uploads are not told
    uploads: list[str] = field(default_factory=list)  # URIs of objects that had unfinished uploads, one for each


def step_of(name: str) -> int | None:
    """The step that a checkpoint's name says."""
    name = name.rsplit("/", 1)[-1]
    ending = os.path.splitext(name)[1]
    if ending in _KINDS:
        name = name[: -len(ending)]
    found = re.findall(r"step\D?([0-9]+)", name) or re.findall(r"[0-9]+", name)
    return int(found[-1]) if found else None


def is_sharded(uri: str, client: Client | None = None) -> bool:
    """Whether this is a complete checkpoint in a folder."""
    try:
        (client or default_client()).stat(f"{uri}/{METADATA_NAME}")
    except NotFoundError:
        return False
    return True


def find(uri_prefix: str, client: Client | None = None) -> list[Checkpoint]:
    """Every checkpoint whose objects begin with "gs://bucket/prefix", by folder and step.

    Raises ringest.Error."""
    if not _uri.is_uri(uri_prefix):
        raise ValueError(f"{uri_prefix!r} is not of the form gs://BUCKET/PREFIX")
    client = client or default_client()
    bucket = "/".join(uri_prefix.split("/", 3)[:3])
    folders: dict[str, list[tuple[str, int, int]]] = {}
    found = []
    for name, size, generation in client.list(uri_prefix):
        folder, _, last = name.rpartition("/")
        uri = f"{bucket}/{name}"
        if folder and _MEMBER.fullmatch(last):
            folders.setdefault(f"{bucket}/{folder}", []).append((uri, size, generation))
        elif os.path.splitext(last)[1] in _KINDS:
            kind = _KINDS[os.path.splitext(last)[1]]
            found.append(Checkpoint(uri, kind, step_of(last), size=size, objects=[(uri, size, generation)]))
    for uri, objects in folders.items():
        if any(DATA_NAME.fullmatch(each[0].rsplit("/", 1)[1]) or each[0].endswith(METADATA_NAME) for each in objects):
            found.append(_folder(uri, objects, client))
    found.sort(key=lambda each: (each.uri.rpartition("/")[0], -1 if each.step is None else each.step, each.uri))
    return found


def _folder(uri: str, objects: list[tuple[str, int, int]], client: Client) -> Checkpoint:
    """A checkpoint of shards. Metadata is only searched for names, so nothing is unpickled."""
    by_name = {each[0].rsplit("/", 1)[1]: each for each in objects}
    named: set[str] = set()
    heads = {name for name in by_name if name.endswith(METADATA_NAME)}
    for name in heads:
        try:
            content = client.get(by_name[name][0], generation=by_name[name][2])
        except NotFoundError:  # replaced since it was listed
            content = client.get(by_name[name][0])
        named |= named_in(bytes(content))
    missing = sorted(named - by_name.keys())
    kept = heads | named | ({"meta.pt"} if heads else set())
    mine = [each for name, each in by_name.items() if name in kept]
    strays = [each for name, each in by_name.items() if name not in kept]
    ranks = {match[1] for name in named or by_name if (match := DATA_NAME.fullmatch(name))}
    return Checkpoint(
        uri=uri,
        kind="dcp",
        step=step_of(uri),
        complete=bool(heads) and not missing,
        ranks=len(ranks),
        size=sum(size for _, size, _ in mine),
        missing=missing,
        objects=mine,
        strays=strays,
    )


def _delete(objects: Iterable[tuple[str, int, int]], client: Client) -> None:
    """Metadata first, so that what is left by a crash is not taken for a checkpoint. Only the generations that were
    listed."""
    for uri, _, generation in sorted(objects, key=lambda each: not each[0].endswith(METADATA_NAME)):
        try:
            client.delete(uri, generation=generation)
        except (NotFoundError, PreconditionError):
            pass


def remove(uri: str, client: Client | None = None) -> None:
    """Deletes a checkpoint, a file or the objects of a folder that are part of one; nothing where there is none."""
    client = client or default_client()
    uri = uri.rstrip("/")
    bucket = "/".join(uri.split("/", 3)[:3])
    name = uri[len(bucket) + 1 :]
    _delete(
        (
            (f"{bucket}/{each}", size, generation)
            for each, size, generation in client.list(uri)
            if each == name or (each.startswith(name + "/") and _MEMBER.fullmatch(each[len(name) + 1 :]))
        ),
        client,
    )


def _seconds(age: float | datetime.timedelta) -> float:
    return age.total_seconds() if isinstance(age, datetime.timedelta) else float(age)


def _is_past(time: str, age_s: float) -> bool:
    """By the server's clock: its time of what is asked now is not known, so the local one must be about right."""
    since = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(time)
    return since.total_seconds() > age_s


def _is_older(uri: str, age_s: float, client: Client) -> bool:
    try:
        return _is_past(client.stat(uri)["updated"], age_s)
    except NotFoundError:
        return False


def _to_keep(found: list[Checkpoint], keep_last: int, keep_every: int) -> set[int]:
    """Steps of one folder."""
    steps = sorted({each.step for each in found if each.step is not None and each.complete})
    return set(steps[-keep_last:]) | {step for step in steps if keep_every and step % keep_every == 0}


def retain(
    uri_prefix: str,
    keep_last: int,
    keep_every: int = 0,
    *,
    client: Client | None = None,
    dry_run: bool = False,
    unfinished_age: float | datetime.timedelta = _DAY_S,
) -> Retained:
    """Removes complete checkpoints below "gs://bucket/prefix" but the last ones, and what unfinished saves left.

    keep_last: how many steps to keep, at least 1; of each folder that checkpoints lie in, by their steps, not by
    their age. keep_every: steps that are multiples of it are kept too; 0: none. dry_run: only says what would be
    removed. unfinished_age: seconds, or a timedelta, that an object must be old to be taken for left behind: longer
    than a save takes, as objects of one that is under way look the same.

    Never removed: checkpoints without a step in their names (last.ckpt, best.pt), incomplete ones that have
    metadata, and objects that are not of a checkpoint. What was replaced since it was listed stays, too. Run by one
    process at a time. Removed in the end are parts of uploads of this library in the bucket, `.ringest-parts/`, of
    the same age, and multipart uploads that were begun so long ago and not finished, below the prefix and to names
    that checkpoints have. Where those cannot be listed, for want of a permission or because the server knows none,
    a warning is logged; a lifecycle rule of the bucket (AbortIncompleteMultipartUpload) removes them, too.

    Raises ValueError for bad arguments, ringest.Error; what was removed until then is gone.
    """
    if keep_last < 1 or keep_every < 0:
        raise ValueError(f"keep_last is {keep_last} and keep_every {keep_every}; at least 1 and 0 are needed")
    client = client or default_client()
    age_s = _seconds(unfinished_age)
    folders: dict[str, list[Checkpoint]] = {}
    for each in find(uri_prefix, client):
        folders.setdefault(each.uri.rpartition("/")[0], []).append(each)
    done = Retained([], [], [], 0)
    for found in folders.values():
        steps = _to_keep(found, keep_last, keep_every)
        for each in found:
            _retain_one(each, steps, age_s, done, client, dry_run)
    _remove_parts(uri_prefix, age_s, done, client, dry_run)
    _abort_uploads(uri_prefix, age_s, done, client, dry_run)
    return done


def _retain_one(
    each: Checkpoint, steps: set[int], age_s: float, done: Retained, client: Client, dry_run: bool
) -> None:
    strays = [stray for stray in each.strays if _is_older(stray[0], age_s, client)]
    objects = []
    if each.complete and each.step is not None and each.step not in steps:
        done.removed.append(each.uri)
        objects = each.objects
    elif each.objects:
        done.kept.append(each.uri)
    done.strays += [stray[0] for stray in strays]
    _finish([*objects, *strays], done, client, dry_run)


def _remove_parts(uri_prefix: str, age_s: float, done: Retained, client: Client, dry_run: bool) -> None:
    bucket = "/".join(uri_prefix.split("/", 3)[:3])
    parts = [
        (f"{bucket}/{name}", size, generation)
        for name, size, generation in client.list(f"{bucket}/{_PARTS_PREFIX}")
        if _is_older(f"{bucket}/{name}", age_s, client)
    ]
    done.strays += [part[0] for part in parts]
    _finish(parts, done, client, dry_run)


def _is_of_checkpoint(name: str) -> bool:
    folder, _, last = name.rpartition("/")
    return bool(folder and _MEMBER.fullmatch(last)) or os.path.splitext(last)[1] in _KINDS


def _abort_uploads(uri_prefix: str, age_s: float, done: Retained, client: Client, dry_run: bool) -> None:
    bucket = "/".join(uri_prefix.split("/", 3)[:3])
    try:
        uploads = client.list_uploads(uri_prefix)
    except UnavailableError:
        raise
    except Error as error:
        _log.warning("%s: unfinished uploads, if there are any, stay: %s", uri_prefix, error)
        return
    for name, upload_id, begun in uploads:
        if not _is_of_checkpoint(name) or begun is None or not _is_past(begun, age_s):
            continue
        done.uploads.append(f"{bucket}/{name}")
        if not dry_run:
            try:
                client.abort_upload(f"{bucket}/{name}", upload_id)
            except NotFoundError:
                pass


def _finish(objects: list[tuple[str, int, int]], done: Retained, client: Client, dry_run: bool) -> None:
    done.size += sum(size for _, size, _ in objects)
    if not dry_run:
        _delete(objects, client)
