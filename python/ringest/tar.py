"""Tar archives as datasets, as WebDataset makes them: samples by index or as a stream."""

from __future__ import annotations

import logging
import os
import re
from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ringest import _core
from ringest._core import Item, TarIndex
from ringest._samples import OnError, Samples, TransformError, check_on_error
from ringest._torch import MapBase
from ringest.client import Client, default_client, parse_size
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
    """Of "0007..0012" or "a..f", with "..STEP" behind it or not; None: it is something else."""
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


def _find_shards(uris: Iterable[str], client: Client) -> tuple[str, list[tuple[str, int, int]]]:
    """The bucket, and (name, size, generation) of each shard; zeros where that is not known yet."""
    buckets: dict[str, None] = {}
    shards: list[tuple[str, int, int]] = []
    for uri in uris:
        bucket, _, name = uri.removeprefix("gs://").partition("/")
        buckets[bucket] = None
        if name.endswith(".tar"):
            shards.append((name, 0, 0))
            continue
        if name.endswith(_COMPRESSED):
            raise ValueError(f"{uri} is compressed; only plain tar can be read by index")
        listed = [entry for entry in client.list(f"gs://{bucket}/{name}") if entry[0].endswith(".tar")]
        if not listed:
            raise ValueError(f"there are no objects below {uri} whose names end in .tar")
        shards += listed
    if len(buckets) != 1:
        raise ValueError(f"shards lie in one bucket, and not in {', '.join(buckets) or 'none'}")
    return next(iter(buckets)), shards


def _open_index(path: str | os.PathLike | None) -> TarIndex | None:
    if path is None or not os.path.exists(path):
        return None
    try:
        return TarIndex(path)
    except ValueError as error:
        _log.warning("%s; it is made anew", error)
        return None


def make_index(
    uri: str | Sequence[str], *, index: str | os.PathLike | None = None, client: Client | None = None
) -> TarIndex:
    """Where the samples of shards lie: `uri` as TarDataset has it. `index` is a file that is taken over as
    far as its shards still have their generations, and written if anything was read."""
    client = client or default_client()
    uris = [uri] if isinstance(uri, str) else list(uri)
    for each in uris:
        if not each.startswith("gs://"):
            raise ValueError(f"{each!r} is not gs://BUCKET/NAME.tar or gs://BUCKET/PREFIX")
    bucket, shards = _find_shards([found for each in uris for found in expand_braces(each)], client)
    known = _open_index(index)
    found = TarIndex.scan(client, bucket, shards, known=known)
    _log.debug("%d samples in %d shards of %s", len(found), len(shards), uri)
    if index is not None and (known is None or known.shards() != found.shards()):
        found.save(index)
    return found


class _Source:
    """A client and the index. It is made at once, so that workers get it instead of each making their
    own, and pickles."""

    def __init__(
        self, uri: str | Sequence[str] | TarIndex, client: Client | None, index: str | os.PathLike | None
    ) -> None:
        self._client = client
        self.found = uri if isinstance(uri, TarIndex) else make_index(uri, index=index, client=self.client)
        if len(self.found) == 0:
            raise ValueError(f"there are no samples in the shards of {uri}")

    @property
    def client(self) -> Client:
        return self._client or default_client()


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
        raise ValueError(f"members is {members!r}; it is a sequence of extensions, such as ('jpg', 'cls')")
    if members is not None and len(members) == 0:
        raise ValueError("members is empty; None means all")
    return list(members) if members is not None else None


def _read(source: _Source, indices: Sequence[int], samples: Samples, members: list[str] | None) -> list:
    numbers = _numbers(indices, len(source.found), "samples")
    return take_all(_core.Reader(source.client, source.found, indices=numbers, members=members), samples)


class TarMapDataset(MapBase):
    """The samples of tar shards by index, in the order of the shards: see TarDataset. Each is one
    ranged request, neighbours that are asked for together share one, and a DataLoader's batch is one
    submission. `on_error` as with MapDataset."""

    def __init__(
        self,
        uri: str | Sequence[str] | TarIndex,
        transform: SampleTransform | None = None,
        client: Client | None = None,
        *,
        index: str | os.PathLike | None = None,
        members: Sequence[str] | None = None,
        on_error: OnError = "raise",
    ):
        self._members = _members(members)
        self._source = _Source(uri, client, index)
        self._transform = transform
        self._on_error = check_on_error(on_error)
        self.skipped = 0

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

    `uri`: "gs://bucket/train-{0000..0009}.tar", a prefix whose objects with names in .tar are meant, a
    list of such, or a TarIndex. Members of a shard that follow each other and share their name up to
    the first dot make a sample: {"__key__": name, "__url__": the shard's, "jpg": Buffer, "cls": Buffer,
    ...}. `transform` is given that dict.

    Shards are scanned when the dataset is made, reading little but headers where members are large.
    `index`: a file that keeps the result; shards that were replaced since are scanned again. Workers get the
    result with the dataset; ranks share the file, or each scan.

    `members`: the extensions that are wanted, such as ("jpg", "cls"): the others are left out of samples and,
    but for what is cheaper to read than to pass over (16 KiB), not read. A sample that has none of them is
    there with its "__key__" and "__url__" alone.

    Without `shuffle`, samples that follow each other in a shard are read by one request of up to
    `coalesce` bytes, and of a 16th of `requests` and `prefetch`; their Buffers share its memory, which is
    free when none of them is left. Copy what is kept for long, as in a shuffle buffer, or give coalesce=1.

    With `shuffle`, samples of all shards come in one order, which `seed` and the epoch determine, and
    not shard by shard, each by a request of its own. The rest is as with IterableDataset, but `changed` may not be "newest". By index,
    dataset[i] is the sample with that number in the order of the shards.
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
            raise ValueError("changed is 'newest', which an index cannot follow; it is 'error' or 'skip'")
        self._index_path = index
        self._members = _members(members)
        self._coalesce = max(parse_size(coalesce, "coalesce"), 1)
        # The source and the samples are our own, and so are what they are made of and what is done with them.
        super().__init__(uri, changed=changed, client=client, transform=transform, **options)  # type: ignore[arg-type]

    def _make_source(self, uri: Any, client: Client | None, manifest: Any) -> Any:
        if manifest is not None:
            raise TypeError("a TarDataset takes no manifest; index= is where it keeps where samples lie")
        return _Source(uri, client, self._index_path)

    def _reader_options(self) -> dict[str, Any]:
        return {"members": self._members, "request_bytes": self._coalesce}

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
