"""Tar archives as datasets, as WebDataset makes them: samples by index or as a stream."""

from __future__ import annotations

import logging
import os
import re
from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ringest import _core, _uri
from ringest._chosen import chosen
from ringest._core import Item, TarIndex
from ringest._samples import OnError, Samples, TransformError, check_on_error, check_transform
from ringest._source import Source, Tell
from ringest._torch import MapBase
from ringest._workers import WorkerReady, register
from ringest.client import Client, parse_size
from ringest.dataset import IterableDataset, _numbers, take_all

SampleTransform = Callable[[dict], Any]
Shard = namedtuple("Shard", "name size generation first count")

_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar.lz4")

_log = logging.getLogger("ringest")


def _closing(text: str, begin: int) -> int:
    """Where the brace that opens at `begin` closes; -1: nowhere."""
    depth = 0
    for i in range(begin, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i
    return -1


def _alternatives(text: str) -> list[str]:
    """The inside of braces, cut at its own commas."""
    parts, depth, begin = [], 0, 0
    for i, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    return [*parts, text[begin:]]


def _sequence(text: str) -> list[str] | None:
    """What "0007..0012" or "a..f", with "..STEP" behind it or not, stands for; None: it is something else."""
    found = re.fullmatch(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?|([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d+))?", text)
    if found is None:
        return None
    is_number = found[1] is not None
    first, last = (int(found[1]), int(found[2])) if is_number else (ord(found[4]), ord(found[5]))
    step = abs(int(found[3] or found[6] or 1)) or 1
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    if not is_number:
        return [chr(number) for number in numbers]
    padded = any(re.match(r"-?0\d", end) for end in found.group(1, 2))
    width = max(len(found[1]), len(found[2])) if padded else 0
    return [f"{number:0{width}d}" for number in numbers]


def expand_braces(text: str) -> list[str]:
    """As a shell does: "s-{00..02}.tar", "{a,b}/{0..9}". A brace without its twin, or with neither
    commas nor two dots inside, stands for itself."""
    begin = text.find("{")
    end = _closing(text, begin) if begin >= 0 else -1
    if end < 0:
        return [text]
    inside, rests = text[begin + 1 : end], expand_braces(text[end + 1 :])
    choices = _sequence(inside)
    if choices is None:
        parts = _alternatives(inside)
        choices = [choice for part in parts for choice in expand_braces(part)]
        if len(parts) == 1:
            choices = [f"{{{choice}}}" for choice in choices]
    return [text[:begin] + choice + rest for choice in choices for rest in rests]


def _expand(uri: str | Sequence[str]) -> list[tuple[str, str]]:
    """(bucket, name) of every shard or prefix that is meant: of one bucket, and none that cannot be read."""
    found: list[tuple[str, str]] = []
    for each in [uri] if isinstance(uri, str) else list(uri):
        for expanded in expand_braces(each):
            bucket, name = _uri.split(expanded, "gs://BUCKET/NAME.tar or gs://BUCKET/PREFIX")
            if name.endswith(_COMPRESSED):
                raise ValueError(f"{expanded} is compressed; only plain tar can be read by index")
            found.append((bucket, name))
    buckets = dict.fromkeys(bucket for bucket, _ in found)
    if len(buckets) != 1:
        raise ValueError(f"all shards must be in one bucket, got {', '.join(buckets) or 'none'}")
    return found


def _find_shards(places: Iterable[tuple[str, str]], client: Client) -> list[tuple[str, int, int]]:
    """(name, size, generation) of each shard; zeros where that is not known yet."""
    shards: list[tuple[str, int, int]] = []
    for bucket, name in places:
        if name.endswith(".tar"):
            shards.append((name, 0, 0))
            continue
        uri = _uri.join(bucket, name)
        listed = [entry for entry in client.list(uri) if entry[0].endswith(".tar")]
        if not listed:
            raise ValueError(f"there are no objects below {uri} whose names end in .tar")
        shards += listed
    return shards


def _open_index(path: str | os.PathLike | None) -> TarIndex | None:
    if path is None or not os.path.exists(path):
        return None
    try:
        return TarIndex(path)
    except ValueError as error:
        _log.warning("%s; it is made anew", error)
        return None


def make_index(
    uri: str | Sequence[str],
    *,
    index: str | os.PathLike | None = None,
    client: Client | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> TarIndex:
    """Where the samples of shards lie: `uri` as TarDataset has it. `index` is a file that is taken over as
    far as its shards still have their generations, and written if anything was read. `progress` is called with the
    shards that are done, and those of them that were read."""
    client = chosen(client)
    places = _expand(uri)
    shards = _find_shards(places, client)
    known = _open_index(index)
    found = TarIndex.scan(client, places[0][0], shards, known=known, progress=progress)
    _log.debug("%d samples in %d shards of %s", len(found), len(shards), uri)
    if index is not None and (known is None or known.shards() != found.shards()):
        found.save(index)
    return found


class TarSource(Source[TarIndex]):
    """The index of shards. `index` is the file that keeps it."""

    kind = TarIndex
    noun = "samples"
    entries = "samples in the shards of"

    def __init__(
        self,
        uri: str | Sequence[str] | TarIndex,
        client: Client | None,
        index: str | os.PathLike | None,
        **layout: Any,
    ) -> None:
        self._by_hand = uri if isinstance(uri, TarIndex) else None
        uris = [uri] if isinstance(uri, str) else [] if isinstance(uri, TarIndex) else list(uri)
        what = f"gs://{uri.bucket}" if isinstance(uri, TarIndex) else ", ".join(uris)
        super().__init__(what, client, **layout)
        if not isinstance(uri, TarIndex):
            _expand(uris)
        self._uris = uris
        self._index = index
        self.made_once = "make the index once (ringest tar index) where all ranks can read it and give it as index="

    def key(self) -> tuple[Any, ...]:
        return "tar", self._uris, self.endpoint

    def identity(self) -> tuple[Any, ...]:
        return "tar", self._uris

    def given(self) -> TarIndex | None:
        return self._by_hand

    def size(self, found: TarIndex) -> int:
        return sum(shard[1] for shard in found.shards())

    def common_file(self) -> TarIndex | None:
        return TarIndex(self._index) if self._index is not None and os.path.exists(self._index) else None

    def make(self, tell: Tell) -> TarIndex:
        return make_index(self._uris, index=self._index, client=self.client, progress=lambda done, read: tell(done))


def _sample(item: Item[dict[str, Any]], transform: SampleTransform | None) -> Any:
    if item.error is not None:
        raise item.error
    if transform is None:
        return item.data
    try:
        return transform(item.data)
    except Exception as error:
        key = item.data.get("__key__")
        raise TransformError(f"the transform of {key!r} of {item.uri} raised {error!r}") from error


def _members(members: Sequence[str] | None) -> list[str] | None:
    if isinstance(members, str) or not all(isinstance(member, str) for member in members or ()):
        raise ValueError(f"members must be a sequence of extensions such as ('jpg', 'cls'), got {members!r}")
    if members is not None and len(members) == 0:
        raise ValueError("members is empty; use None for all members")
    return list(members) if members is not None else None


def _read(source: TarSource, indices: Sequence[int], samples: Samples, members: list[str] | None) -> list:
    found = source.checked
    numbers = _numbers(indices, len(found), "samples")
    return take_all(_core.Reader(source.client, found, indices=numbers, members=members), samples)


class TarMapDataset(WorkerReady, MapBase):
    """The samples of tar shards by index, in the order of the shards; see TarDataset. A sample is one ranged request;
    neighbours in one batch share a request. The requests of a DataLoader's batch are sent together.

    on_error: as of MapDataset."""

    def __init__(
        self,
        uri: str | Sequence[str] | TarIndex,
        transform: SampleTransform | None = None,
        client: Client | None = None,
        *,
        index: str | os.PathLike | None = None,
        members: Sequence[str] | None = None,
        on_error: OnError = "raise",
        shared: bool = True,
    ):
        self._members = _members(members)
        self._source = TarSource(uri, client, index, is_shared=shared)
        self._transform = check_transform(transform)
        self._on_error = check_on_error(on_error)
        self.skipped = 0
        register(self)

    @property
    def digest(self) -> str:
        """SHA-256 of the index: the same on all ranks."""
        return self._source.found.digest

    @property
    def index(self) -> TarIndex:
        return self._source.found

    @property
    def shards(self) -> list[Shard]:
        return [Shard(*shard) for shard in self.index.shards()]

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list:
        samples = Samples(lambda item: _sample(item, self._transform), self._on_error)
        try:
            return _read(self._source, indices, samples, self._members)
        finally:
            self.skipped += samples.skipped


class TarDataset(IterableDataset):
    """The samples of tar shards as a stream that is read ahead.

    A sample is a dict: {"__key__": name, "__url__": the shard's, "jpg": Buffer, "cls": Buffer, ...}. Its members follow
    each other in a shard and have the same name up to the first dot. `transform` gets that dict.

    uri: "gs://bucket/train-{0000..0009}.tar", a prefix (all objects below it that end in .tar), a list of these, or a
        TarIndex.
    index: a file that keeps where the samples are. Shards are scanned at first use; if members are large, little more
        than headers is read. Later only shards that were replaced are scanned again. One rank scans for the whole
        job and shares the result through the process group; workers get it with the dataset. Without a process
        group, several ranks need a complete index, and use it as it is.
    members: the extensions to read, such as ("jpg", "cls"). Others are left out of samples. They are not read, except
        for gaps of up to 16 KiB. A sample without any of them has only "__key__" and "__url__".
    coalesce: without `shuffle`, neighbouring samples share a request of up to so many bytes, and of at most a 16th of
        `requests` and `prefetch`. Their Buffers share its memory, which is free when all of them are gone. Copy
        samples that you keep for long, as in a shuffle buffer, or give coalesce=1.

    With `shuffle`, the order goes over all samples of all shards, and each sample is a request. Everything else is as of
    IterableDataset, except that `changed` cannot be "newest". dataset[i] is the sample with that number in the order of
    the shards.
    """

    _is_data = False

    def __init__(
        self,
        uri: str | Sequence[str] | TarIndex,
        *,
        index: str | os.PathLike | None = None,
        changed: str = "error",
        client: Client | None = None,
        transform: SampleTransform | None = None,
        members: Sequence[str] | None = None,
        coalesce: int | str = "1MiB",
        **options: Any,
    ):
        if changed == "newest":
            raise ValueError("changed must be 'error' or 'skip', got 'newest', which a tar index cannot follow")
        self._index_path = index
        self._members = _members(members)
        self._coalesce = max(parse_size(coalesce, "coalesce"), 1)
        # The source and the samples are our own, and so are what they are made of and what is done with them.
        super().__init__(uri, changed=changed, client=client, transform=transform, **options)  # type: ignore[arg-type]

    def _make_source(
        self, uri: Any, client: Client | None, manifest: Any, folder_markers: bool = False, **options: Any
    ) -> Any:
        if manifest is not None or folder_markers:
            raise TypeError(
                "a TarDataset has neither manifest= nor folder_markers=; index= is the file that says where samples are"
            )
        return TarSource(uri, client, self._index_path, **options)

    def _reader_options(self) -> dict[str, Any]:
        return {**super()._reader_options(), "members": self._members, "request_bytes": self._coalesce}

    def _convert(self, item: Item[Any]) -> Any:
        return _sample(item, self._transform)

    @property
    def index(self) -> TarIndex:
        return self._source.found

    @property
    def shards(self) -> list[Shard]:
        return [Shard(*shard) for shard in self.index.shards()]

    def __getitem__(self, index: int) -> Any:
        return _read(self._source, [index], Samples(self._convert, self._on_error), self._members)[0]
