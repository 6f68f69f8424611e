"""Checkpoints below a prefix: find them, keep some, remove the others.

    ringest.checkpoint.retain("gs://bucket/run/", keep_last=3, keep_every=1000, dry_run=True)

A checkpoint is one file, by its ending (.pt, .pth and .ckpt of torch.save, .safetensors), or a folder as a whole:
of torch.distributed.checkpoint (`.metadata`, by whatever writer, Lightning's FSDP and TorchTitan's too), of a
Trainer of Hugging Face (`checkpoint-N`), or of DeepSpeed (`global_stepN`).

Only objects that are certainly checkpoints are removed. The name must be a step and nothing else: N.pt, step-N.pt
(also stepN, step=N, step_N), global_stepN, checkpoint-N, epoch=E-step=N.ckpt; with -vN behind it, as Lightning
puts it behind step=N, it is of the same step. Folders are called so without an ending, or with .ckpt. Names of
different kinds in one folder are different series, and each is counted alone. A folder with any object
that does not belong to its kind is kept, as are all other files and folders.

Folders whose names differ in a number that may be that of a process (mp_rank_00 and mp_rank_01, worker1, or 0 and 1)
may have parts of one checkpoint: what is one of the last of one of them is kept in the others, too, as are the last
ones that all have.

A folder is complete when it has what its kind must have: `.metadata` and every object that this names, or that of
each rank where ranks saved without each other, as many as in earlier ones; a `trainer_state.json` with all parts of
the weights; for DeepSpeed, when `latest` beside it names it or a later one. `ringest ckpt ls` and `ringest ckpt prune` do the same as this module.
"""

from __future__ import annotations

import datetime
import itertools
import logging
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ringest import _checkpoint_names as names
from ringest import _dcp_names, _uri
from ringest._chosen import chosen
from ringest._errors import Error, NotFoundError, PreconditionError, UnavailableError
from ringest.client import Client

__all__ = ["Checkpoint", "Retained", "find", "is_sharded", "remove", "retain"]

# Where uploads keep parts that are to be composed: a name for each upload, and a number for each part.
_PARTS_PREFIX = ".ringest-parts/"
_PART_NAME = re.compile(r"\.ringest-parts/([0-9a-f]{32})/\d{5,}", re.ASCII)
_DAY_S = 24 * 3600.0
# Objects beside checkpoints that may say which is the last or the best: `latest` of DeepSpeed, last.txt, best.json ...
_POINTER = re.compile(r"(?:best|last|latest)[^/]*", re.ASCII)
_POINTER_BEGINS = "best", "la"
_POINTER_SIZE_MAX = 4 << 10
_BEST = re.compile(rb'"best_model_checkpoint"\s*:\s*"((?:[^"\\]|\\.)*)"')
# Objects that are removed at once.
_REMOVALS = 32

_log = logging.getLogger("ringest")


class Listed(NamedTuple):
    """An object as it was listed."""

    uri: str
    size: int
    generation: int
    updated: str


@dataclass
class Checkpoint:
    """One that was found. uri: of the folder, without a slash at its end, or of the file."""

    uri: str
    kind: str  # "dcp", "torch", "safetensors", "huggingface", "deepspeed"; "unknown": a folder that is called like one
    step: int | None
    complete: bool = True
    ranks: int = 1
    size: int = 0  # bytes of what belongs to it
    missing: list[str] = field(default_factory=list)  # names of objects below it
    foreign: list[str] = field(default_factory=list)  # the same, of what its kind is not known to have
    objects: list[Listed] = field(default_factory=list)  # all of it but strays
    strays: list[Listed] = field(default_factory=list)  # of our saves that were not finished, or are replaced
    series: str | None = None  # what its name has in common with those that are counted with it
    ranks_alone: int = 0  # of a distributed one that has no metadata of all ranks: how many have metadata

    @property
    def folder(self) -> str:
        """The URI of what it lies in, without a slash."""
        return self.uri.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.uri.rpartition("/")[2]


@dataclass
class Retained:
    """What retain did, or with dry_run would do."""

    kept: list[str]  # URIs of checkpoints
    removed: list[str]
    strays: list[str]  # URIs of objects
    size: int  # bytes that were removed; those of uploads are not told
    uploads: list[str] = field(default_factory=list)  # URIs of objects that had unfinished uploads, one for each
    reasons: dict[str, str] = field(default_factory=dict)  # why each of `kept` is, by its URI
    uploads_left: list[str] = field(default_factory=list)  # as uploads: whoever began them, see all_uploads


def is_sharded(uri: str, client: Client | None = None) -> bool:
    """Whether this is a complete checkpoint in a folder."""
    try:
        chosen(client).stat(f"{uri}/{_dcp_names.METADATA_NAME}")
    except NotFoundError:
        return False
    return True


def _canonical(uri_prefix: str) -> str:
    if not _uri.is_uri(uri_prefix):
        raise ValueError(f"{uri_prefix!r} is not of the form gs://BUCKET/PREFIX")
    return _uri.join(*_uri.split(uri_prefix, "gs://BUCKET/PREFIX"))


def _split(uri_prefix: str) -> tuple[str, str]:
    """The bucket's URI, and the prefix of names."""
    bucket, prefix = _uri.split(uri_prefix)
    return f"gs://{bucket}", prefix


def _listed(uri_prefix: str, client: Client) -> list[Listed]:
    bucket, _ = _split(uri_prefix)
    found, _ = client._list_details(uri_prefix)
    return [Listed(f"{bucket}/{name}", size, generation, updated or "") for name, size, generation, _, updated in found]


def find(uri_prefix: str, client: Client | None = None) -> list[Checkpoint]:
    """Every checkpoint whose objects begin with "gs://bucket/prefix", by folder and step.

    Raises ringest.Error."""
    client = chosen(client)
    uri_prefix = _canonical(uri_prefix)
    return _Search(client, uri_prefix).find(_listed(uri_prefix, client))


class _Search:
    """What checkpoints a listing has."""

    def __init__(self, client: Client, uri_prefix: str):
        self._client = client
        self._uri_prefix = uri_prefix
        self._bucket, prefix = _split(uri_prefix)
        self._given = prefix.count("/")  # folders that the prefix names
        self._folders: dict[str, list[Listed]] = {}  # by URI; of a folder that is a checkpoint all that is below it
        self._names: dict[str, names.Name] = {}  # of those that are called like one

    def find(self, listed: list[Listed]) -> list[Checkpoint]:
        dcp_folders = {uri.rpartition("/")[0] for uri, *_ in listed if names.is_dcp(uri.rpartition("/")[2])}
        found = []
        for each in listed:
            file = self._take(each, dcp_folders)
            if file is not None:
                found.append(file)
        found += [self._folder(uri, objects) for uri, objects in self._folders.items()]
        found.sort(key=lambda each: (each.folder, -1 if each.step is None else each.step, each.uri))
        return found

    def _take(self, each: Listed, dcp_folders: set[str]) -> Checkpoint | None:
        """A file that is a checkpoint, or None: it is noted for its folder, or none at all."""
        parts = each.uri[len(self._bucket) + 1 :].split("/")
        path, is_below_number = self._bucket, False
        for i, part in enumerate(parts[:-1]):
            path += "/" + part
            name = names.folder_name(part)
            if name is not None and name.is_number and path not in dcp_folders:
                # A run, a year, a rank: only what is a checkpoint by itself is one. Below it numbers say nothing.
                is_below_number |= i >= self._given
            elif name is not None and not (name.is_number and is_below_number):
                self._names[path] = name
                self._folders.setdefault(path, []).append(each)
                return None
        ending = os.path.splitext(parts[-1])[1]
        if len(parts) > 1 and (path in dcp_folders and names.foreign("dcp", [parts[-1]]) == []):
            self._folders.setdefault(path, []).append(each)
            return None
        if ending not in names.KINDS or parts[-1] == "meta.pt":
            return None
        name = names.file_name(parts[-1])
        if name is not None and name.is_number and is_below_number:
            name = None
        series, step = (name.series, name.step) if name is not None else (None, None)
        return Checkpoint(each.uri, names.KINDS[ending], step, size=each.size, objects=[each], series=series)

    def _folder(self, uri: str, objects: list[Listed]) -> Checkpoint:
        by_name = {each.uri[len(uri) + 1 :]: each for each in objects}
        if "" in by_name and not by_name[""].size:
            del by_name[""]  # the mark of an empty folder
        name = self._names.get(uri)
        series, step = (name.series, name.step) if name is not None else ("", None)
        layout = names.layout_of(series, by_name)
        found = Checkpoint(uri, layout, step, objects=objects, series=series or None)
        found.foreign = names.foreign(layout, by_name)
        found.size = sum(each.size for each in objects)
        if layout == "dcp":
            self._dcp(found, by_name)
        elif layout == "unknown":
            found.complete, found.foreign = False, []
        else:
            found.missing = names.missing(layout, by_name)
            for folder in {each.rpartition("/")[0] for each in by_name if names.is_dcp(each.rpartition("/")[2])}:
                found.missing += self._missing_within(folder, by_name)
            found.missing.sort()
            found.complete = not found.missing
        return found

    def _missing_within(self, folder: str, by_name: dict[str, Listed]) -> list[str]:
        """What a distributed checkpoint in a folder of a checkpoint lacks."""
        parts = {name.rpartition("/")[2]: each for name, each in by_name.items() if name.startswith(folder + "/")}
        heads, named = self._named(parts)
        return [f"{folder}/{name}" for name in (named if heads else {_dcp_names.METADATA_NAME}) - parts.keys()]

    def _named(self, by_name: dict[str, Listed]) -> tuple[set[str], set[str]]:
        """Metadata of a folder, and what it names. It is only searched for names, so nothing is unpickled."""
        named: set[str] = set()
        heads = {name for name in by_name if _dcp_names.is_metadata(name)}
        for name in heads:
            each = by_name[name]
            try:
                content = self._client.get(each.uri, generation=each.generation)
            except NotFoundError:  # replaced since it was listed
                content = self._client.get(each.uri)
            named |= _dcp_names.named_in(bytes(content))
        return heads, named

    def _dcp(self, found: Checkpoint, by_name: dict[str, Listed]) -> None:
        heads, named = self._named(by_name)
        # Where only a part of the folder was listed, what its metadata names is not known.
        is_listed = f"{found.uri}/".startswith(self._uri_prefix)
        kept = heads | named | ({"meta.pt"} if heads else set())
        ranks = set() if _dcp_names.METADATA_NAME in heads else _dcp_names.ranks_of(heads)
        # Each rank of one that was saved without the others has metadata of its own.
        saved = ranks | (_dcp_names.ranks_alone(by_name) if ranks else set())
        lacking = [rank for rank in range(min(max(saved, default=-1), len(by_name)) + 1) if rank not in ranks]
        strays = {name for name in by_name.keys() - named if is_listed and _is_ours(name)}
        found.missing = sorted((named - by_name.keys()) | {_dcp_names.metadata_name(rank) for rank in lacking})
        found.complete = bool(heads) and not found.missing
        found.ranks_alone = len(ranks)
        found.size = sum(each.size for name, each in by_name.items() if name in kept)
        found.objects = [each for each in found.objects if each.uri[len(found.uri) + 1 :] not in strays]
        found.strays = [by_name[name] for name in sorted(strays)]
        found.ranks = len({match[1] for name in named or by_name if (match := _dcp_names.DATA_NAME.fullmatch(name))})


def _is_ours(name: str) -> bool:
    """Whether only ringest.dcp has data of such a name."""
    return _dcp_names.is_of_save(name, False) or _dcp_names.is_of_save(name, True)


def _delete(objects: Iterable[Listed], client: Client) -> None:
    """Just the generations that were listed. What makes it a checkpoint goes first, so that what is left by a crash
    is not taken for one."""
    marks: list[Listed] = []
    others: list[Listed] = []
    for each in objects:
        last = each.uri.rpartition("/")[2]
        (marks if _dcp_names.is_metadata(last) or last == "trainer_state.json" else others).append(each)
    for some in marks, others:
        calls = ((each, "delete", (each.uri,), {"if_generation_match": each.generation}) for each in some)
        for each, _, error in client._bulk(calls, _REMOVALS):
            if isinstance(error, (NotFoundError, PreconditionError)):
                _log.info("%s: is gone, or another one by now", each.uri)
            elif error is not None:
                raise error
            else:
                _log.info("%s: removed", each.uri)


def remove(uri: str, client: Client | None = None) -> None:
    """Deletes a checkpoint: a file, or of a folder what makes up a distributed checkpoint and nothing else; nothing
    where there is none."""
    client = chosen(client)
    uri = _canonical(uri).rstrip("/")
    try:
        client.delete(uri, if_generation_match=client.stat(uri)["generation"])
    except (NotFoundError, PreconditionError):
        pass
    listed = {each.uri[len(uri) + 1 :]: each for each in _listed(f"{uri}/", client)}
    inner = {name: each for name, each in listed.items() if "/" not in name}
    heads, named = _Search(client, f"{uri}/")._named(inner)
    wanted = heads | named | {name for name in inner if _is_ours(name)} | ({"meta.pt"} if heads else set())
    _delete((inner[name] for name in sorted(wanted & inner.keys())), client)


def _seconds(age: float | datetime.timedelta) -> float:
    return age.total_seconds() if isinstance(age, datetime.timedelta) else float(age)


def _is_past(told: str | None, age_s: float, client: Client) -> bool:
    """Whether a time that the server has told is longer ago, by its own clock; only where it tells none, by this
    machine's."""
    if not told:
        return False
    if age_s <= 0:
        return True
    now = client._server_time()
    since = (time.time() if now is None else now) - datetime.datetime.fromisoformat(told).timestamp()
    return since > age_s


def retain(
    uri_prefix: str,
    keep_last: int,
    keep_every: int = 0,
    *,
    client: Client | None = None,
    dry_run: bool = False,
    unfinished_age: float | datetime.timedelta = _DAY_S,
    all_uploads: bool = False,
) -> Retained:
    """Removes complete checkpoints below "gs://bucket/prefix", except the last ones, and what unfinished saves left.

    keep_last: how many steps to keep, at least 1; of each series in each folder, by their steps, not by
    their age. keep_every: steps that are multiples of it are kept too; 0: none. dry_run: only reports what would be
    removed. unfinished_age: seconds or a timedelta; younger objects are never taken for left behind. It must be longer
    than a save takes, because objects of a running save look the same.

    Only what is certainly a checkpoint is removed, a folder as a whole; the module's text says how it is recognised.
    Everything else is kept, and `reasons` of the result says why: names without a step (last.ckpt, best-v2.ckpt,
    resnet50.pt), incomplete checkpoints, folders with foreign objects, checkpoints that `latest`, best.txt or similar
    files name, the best one by a trainer_state.json. Objects that were replaced since they were listed are kept, too.
    In a bucket with versions, removed objects become noncurrent. Each removal is logged at level info. Run it in one
    process at a time.

    Unfinished saves with ringest.dcp leave data that no metadata names, and unfinished uploads of such data. Composed
    uploads leave parts in `.ringest-parts/` of the bucket. Both are removed when they are old enough, parts after at
    least a day. An unfinished upload to a name like step-100.pt may be of any program: all_uploads=True aborts these,
    too; otherwise `uploads_left` lists them. If uploads cannot be listed, because a permission is missing or the
    server has no such uploads, a warning is logged; a lifecycle rule of the bucket (AbortIncompleteMultipartUpload) also
    removes them.

    A prefix ends in "/", or in what names of checkpoints begin with, as in gs://bucket/run/step-. If it also begins the
    names of other folders, as gs://bucket/run begins gs://bucket/run2/, and these hold checkpoints, it is refused.

    Raises ValueError for bad arguments, ringest.Error; what was removed until then is gone.
    """
    for what, number, least in (("keep_last", keep_last, 1), ("keep_every", keep_every, 0)):
        if number < least:
            raise ValueError(f"{what} must be at least {least}, got {number}")
    uri_prefix = _canonical(uri_prefix)
    bucket, prefix = _split(uri_prefix)
    for part in prefix.split("/")[:-1]:
        name = names.folder_name(part)
        if name is not None and not name.is_number:
            raise ValueError(f"{uri_prefix} lies in a checkpoint, {part}/; name the folder that checkpoints lie in")
    client = chosen(client)
    age_s = _seconds(unfinished_age)
    listed = _listed(uri_prefix, client)
    found = _Search(client, uri_prefix).find(listed)
    for each in found:
        if _is_beside(uri_prefix, each.uri):
            raise ValueError(
                f"{each.uri} is not in {uri_prefix}/, but in a folder whose name begins alike, so nothing was removed; "
                f"end the prefix in '/', and name each folder by itself"
            )
    done = Retained([], [], [], 0)
    rules = _Rules(client, uri_prefix, keep_last, keep_every, age_s)
    for each in found:
        rules.note(each)
    # All is decided before anything is removed.
    for each, reason in [(each, rules.reason_to_keep(each)) for each in found]:
        _retain_one(each, reason, age_s, done, client, dry_run)
    # These are of the whole bucket, and not all of saves whose length the caller knows.
    _remove_parts(bucket, max(age_s, _DAY_S), done, client, dry_run)
    _abort_uploads(uri_prefix, age_s, done, client, dry_run, all_uploads)
    return done


def _is_beside(uri_prefix: str, uri: str) -> bool:
    """Whether it lies in a folder whose name only begins with the end of the prefix: in run2/, for a prefix run."""
    rest = uri.removeprefix(uri_prefix)
    return rest != uri and not uri_prefix.endswith("/") and not rest.startswith("/") and "/" in rest


def _is_in_checkpoint(uri_prefix: str, uri: str) -> bool:
    """Whether the folder whose name begins with the end of the prefix is called like a checkpoint."""
    return names.folder_name(uri[: uri.index("/", len(uri_prefix))].rpartition("/")[2]) is not None


class _Rules:
    """Why a checkpoint is kept."""

    def __init__(self, client: Client, uri_prefix: str, keep_last: int, keep_every: int, age_s: float):
        self._client = client
        self._first_part = uri_prefix.count("/")  # of URIs: behind those that the prefix names
        self._keep_last = keep_last
        self._keep_every = keep_every
        self._age_s = age_s
        self._series: dict[tuple[str, str], list[Checkpoint]] = {}
        self._last: dict[tuple[str, str], set[int]] = {}
        self._pointers: dict[str, list[tuple[str, bytes]]] = {}
        self._elsewhere: dict[str, str] | None = None
        self._best: dict[str, str] = {}  # by the URI of a trainer_state.json, the name of the checkpoint

    def note(self, each: Checkpoint) -> None:
        if each.series is not None:
            self._series.setdefault((each.folder, each.series), []).append(each)

    def reason_to_keep(self, each: Checkpoint) -> str | None:
        """None: it goes."""
        if each.series is None or each.step is None:
            return "its name says no step in a way that is known"
        if each.kind == "unknown":
            return "a folder of no known layout"
        last = self._last_steps(each)
        if not each.complete:
            return f"not complete, {each.missing[0]} is missing" if each.missing else "not complete"
        if each.step in last:
            return f"one of the last {self._keep_last} of {each.series}"
        if self._keep_every and each.step % self._keep_every == 0:
            return f"its step is a multiple of {self._keep_every}"
        if each.foreign:
            return f"holds what is no part of such a checkpoint: {each.foreign[0]}"
        young = [stray for stray in each.strays if not _is_past(stray.updated, self._age_s, self._client)]
        if young:
            return f"a save may be under way: {young[0].uri.rpartition('/')[2]} is not old"
        return self._kept_elsewhere().get(each.uri) or self._pointed_at(each) or self._is_best(each)

    def _last_steps(self, each: Checkpoint) -> set[int]:
        assert each.series is not None
        return self._last_of(each.folder, each.series)

    def _last_of(self, folder: str, series: str) -> set[int]:
        """The last steps of a series. Its checkpoints are looked at once, from the first one on."""
        key = folder, series
        if key not in self._last:
            lasting: set[str] = set()
            ranks_alone = 0
            for one in sorted(self._series[key], key=lambda one: (one.step or 0, one.uri)):
                if one.kind == "deepspeed" and not self._is_announced(one):
                    one.complete, one.missing = False, ["../latest that names it or a later one"]
                elif one.complete and one.kind in ("huggingface", "deepspeed"):
                    has = names.lasting(one.kind, (part.uri[len(one.uri) + 1 :] for part in one.objects))
                    one.missing = sorted(lasting - has)
                    one.complete = not one.missing
                    lasting |= has
                elif one.complete and one.ranks_alone:
                    if one.ranks_alone < ranks_alone:
                        one.complete, one.missing = False, [_dcp_names.metadata_name(one.ranks_alone)]
                    ranks_alone = max(ranks_alone, one.ranks_alone)
            steps = {one.step for one in self._series[key] if one.complete and one.step is not None}
            self._last[key] = set(sorted(steps)[-self._keep_last :])
        return self._last[key]

    def _kept_elsewhere(self) -> dict[str, str]:
        """By URI, why those are kept whose folder may have one process's part, and the others' parts are elsewhere: a
        run that was killed has saved the last ones of some, and nothing can be done with these alone."""
        if self._elsewhere is None:
            self._elsewhere = {}
            groups: dict[tuple[str, ...], set[tuple[str, str]]] = {}
            for folder, series in self._series:
                parts = folder.split("/")
                for i in range(self._first_part, len(parts)):
                    if names.may_be_of_process(parts[i]):
                        rest = "/".join(parts[:i]), "/".join(parts[i + 1 :])
                        groups.setdefault((str(i), names.as_pattern(parts[i]), series, *rest), set()).add(
                            (folder, series)
                        )
            for (_, pattern, *_), keys in sorted(groups.items(), key=lambda group: int(group[0][0])):
                if len(keys) > 1:
                    self._keep_of_all(pattern, keys, self._elsewhere)
        return self._elsewhere

    def _keep_of_all(self, pattern: str, keys: set[tuple[str, str]], reasons: dict[str, str]) -> None:
        """Keeps the last ones of folders whose names differ in a number."""
        last = set().union(*(self._last_of(*key) for key in keys))
        common = set.intersection(
            *({one.step for one in self._series[key] if one.complete and one.step is not None} for key in keys)
        )
        last_common = sorted(common)[-self._keep_last :]
        for key in keys:
            for one in self._series[key]:
                if one.step in last:
                    where = "in another folder"
                elif one.step in last_common:
                    where = "in all folders"
                else:
                    continue
                reasons.setdefault(one.uri, f"one of the last {self._keep_last} {where} called {pattern}")

    def _is_announced(self, each: Checkpoint) -> bool:
        """DeepSpeed says in `latest` that all ranks have saved."""
        for name, content in self._beside(each.folder):
            tag = names.folder_name(content.decode(errors="replace").strip()) if name == "latest" else None
            if tag is not None and tag.series == each.series and each.step is not None and tag.step >= each.step:
                return True
        return False

    def _pointed_at(self, each: Checkpoint) -> str | None:
        """By its name, also without the ending unless that is a number, or a text that is its step and nothing else."""
        stem, ending = os.path.splitext(each.name)
        known = (each.name, stem) if ending in names.KINDS and not stem.isdecimal() else (each.name,)
        called = b"|".join(re.escape(one.encode()) for one in known)
        pattern = re.compile(rb"(?<![\w.=-])(?:" + called + rb")(?![\w.=-])")
        for name, content in self._beside(each.folder):
            text = content.strip()
            is_number = os.path.splitext(name)[1] not in names.KINDS and re.fullmatch(rb"\d{1,18}", text)
            if pattern.search(content) or (is_number and int(text) == each.step):
                return f"{name} names it"
        return None

    def _beside(self, folder: str) -> list[tuple[str, bytes]]:
        """Small objects in a folder that may say which checkpoint is the last or the best: their names and bytes."""
        if folder not in self._pointers:
            self._pointers[folder] = found = []
            for each in itertools.chain(*(_listed(f"{folder}/{begin}", self._client) for begin in _POINTER_BEGINS)):
                name = each.uri[len(folder) + 1 :]
                if _POINTER.fullmatch(name) and each.size <= _POINTER_SIZE_MAX:
                    try:
                        found.append((name, bytes(self._client.get(each.uri)) if each.size else b""))
                    except NotFoundError:
                        pass
        return self._pointers[folder]

    def _is_best(self, each: Checkpoint) -> str | None:
        if each.kind != "huggingface":
            return None
        assert each.series is not None
        for one in self._series[each.folder, each.series]:
            if one.complete and one.step in self._last_steps(one) and self._best_by(one) == each.name:
                return f"{one.name}/trainer_state.json names it as the best"
        return None

    def _best_by(self, each: Checkpoint) -> str:
        uri = f"{each.uri}/trainer_state.json"
        if uri not in self._best:
            try:
                match = _BEST.search(bytes(self._client.get(uri)))
            except NotFoundError:
                match = None
            path = match[1].decode(errors="replace") if match else ""
            self._best[uri] = re.split(r"[/\\]+", path.rstrip("/\\"))[-1]
        return self._best[uri]


def _retain_one(
    each: Checkpoint, reason: str | None, age_s: float, done: Retained, client: Client, dry_run: bool
) -> None:
    strays = [stray for stray in each.strays if _is_past(stray.updated, age_s, client)]
    done.strays += [stray.uri for stray in strays]
    objects = []
    if reason is None:
        done.removed.append(each.uri)
        objects = each.objects
        _log.info("%s: %s", each.uri, "would be removed" if dry_run else "is removed")
    elif each.objects:
        done.kept.append(each.uri)
        done.reasons[each.uri] = reason
    _finish([*objects, *strays], done, client, dry_run)


def _remove_parts(bucket: str, age_s: float, done: Retained, client: Client, dry_run: bool) -> None:
    """Removes the parts of uploads that have written nothing for so long."""
    uploads: dict[str, list[Listed]] = {}
    for each in _listed(f"{bucket}/{_PARTS_PREFIX}", client):
        match = _PART_NAME.fullmatch(each.uri[len(bucket) + 1 :])
        if match:
            uploads.setdefault(match[1], []).append(each)
    for parts in uploads.values():
        if all(_is_past(each.updated, age_s, client) for each in parts):
            done.strays += [each.uri for each in parts]
            _finish(parts, done, client, dry_run)


def _abort_uploads(
    uri_prefix: str, age_s: float, done: Retained, client: Client, dry_run: bool, all_uploads: bool
) -> None:
    bucket, _ = _split(uri_prefix)
    try:
        uploads = client.list_uploads(uri_prefix)
    except UnavailableError:
        raise
    except Error as error:
        _log.warning("%s: unfinished uploads, if there are any, stay: %s", uri_prefix, error)
        return
    for name, upload_id, begun in uploads:
        last = name.rpartition("/")[2]
        if _is_beside(uri_prefix, f"{bucket}/{name}") and not _is_in_checkpoint(uri_prefix, f"{bucket}/{name}"):
            continue
        is_ours = _dcp_names.is_of_save(last, False) or _dcp_names.is_of_save(last, True)
        if not _is_past(begun, age_s, client) or not (is_ours or names.is_dcp(last) or names.file_name(last)):
            continue
        if not (is_ours or all_uploads):
            done.uploads_left.append(f"{bucket}/{name}")
            continue
        done.uploads.append(f"{bucket}/{name}")
        if not dry_run:
            try:
                client.abort_upload(f"{bucket}/{name}", upload_id)
                _log.info("%s/%s: an unfinished upload was aborted", bucket, name)
            except NotFoundError:
                pass


def _finish(objects: list[Listed], done: Retained, client: Client, dry_run: bool) -> None:
    done.size += sum(each.size for each in objects)
    if not dry_run:
        _delete(objects, client)
