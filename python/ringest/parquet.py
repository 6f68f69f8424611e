"""Parquet files as a dataset: batches of rows, as a stream that is read ahead."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

from ringest import _core, _uri
from ringest._core import Item, TarIndex
from ringest._epochs import Beginning
from ringest._errors import Error
from ringest._numbers import whole
from ringest._parquet_index import File, Footers, RowGroup, columns_sum, decode, scan
from ringest._parquet_rows import Parts, Record, Rows
from ringest._samples import SKIP, Samples, TransformError
from ringest._source import Source, Tell
from ringest._state import Place, Told
from ringest.client import Client
from ringest.dataset import _CHANGED, IterableDataset, _choose
from ringest.tar import Shard, expand_braces

import pyarrow  # isort: skip (_parquet_index, imported before, says what to install without it)

Batch = Any
_SKIPS_CHANGED = _CHANGED["skip"]
_FORMATS = {"arrow": 0, "numpy": 1, "torch": 2}
_SUFFIX = ".parquet"
_FORM = f"gs://BUCKET/NAME{_SUFFIX} or gs://BUCKET/PREFIX"
# What a request gets where a file was replaced, or is gone.
_CHANGED_STATUSES = ("NOT_FOUND", "PRECONDITION")


def _columns(columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    # Not a set: the order of the names is that of the batches, and the same on all ranks.
    if not isinstance(columns, list | tuple) or not all(isinstance(column, str) for column in columns):
        raise TypeError(f"columns must be a list of names such as ['text', 'label'], got {columns!r}")
    if len(columns) == 0:
        raise ValueError("columns is empty; use None for all columns")
    return list(dict.fromkeys(columns))


def _uris(uri: str | Sequence[str]) -> list[str]:
    uris = [uri] if isinstance(uri, str) else list(uri) if isinstance(uri, Iterable) else [uri]
    for each in uris:
        if not isinstance(each, str):
            raise TypeError(f"{each!r} is not a str of the form {_FORM}")
    if not uris:
        raise ValueError(f"the list of files is empty; give names of the form {_FORM}")
    return uris


def _expand(uris: Sequence[str]) -> list[tuple[str, str]]:
    """(bucket, name) of every file or prefix that is meant: of one bucket."""
    found = [_uri.split(expanded, _FORM) for uri in uris for expanded in expand_braces(uri)]
    buckets = dict.fromkeys(bucket for bucket, _ in found)
    if len(buckets) != 1:
        raise ValueError(f"all files must be in one bucket, got {', '.join(buckets)}")
    return found


def _find_files(client: Client, places: Sequence[tuple[str, str]]) -> list[File]:
    files: list[File | None] = []
    named: list[tuple[int, str]] = []
    for bucket, name in places:
        uri = _uri.join(bucket, name)
        if name.endswith(_SUFFIX):
            named.append((len(files), uri))
            files.append(None)
            continue
        listed = [File(*entry) for entry in client.list(uri) if entry[0].endswith(_SUFFIX)]
        if not listed:
            raise ValueError(f"there are no objects below {uri} whose names end in {_SUFFIX}")
        files += listed
    names = dict(named)
    for i, info, error in client._bulk(((i, "stat", (uri,), {}) for i, uri in named), 256):
        if error is not None:
            if "*" in names[i]:
                error.add_note(
                    "patterns are not expanded here: give a prefix, or names such as train-{0000..0009}.parquet"
                )
            raise error
        files[i] = File(_uri.split(names[i], "")[1], info["size"], info["generation"])
    return [file for file in files if file is not None]


def _begins(prefix: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(prefix)


class ParquetSource(Source[TarIndex]):
    """The row groups of files. `index` is the file that keeps where they are."""

    kind = TarIndex
    noun = "row groups"
    entries = "row groups in the files of"

    def __init__(
        self,
        uri: str | Sequence[str],
        client: Client | None,
        columns: list[str] | None,
        index: str | os.PathLike[str] | None,
        **layout: Any,
    ) -> None:
        self._uris = _uris(uri)
        _expand(self._uris)
        super().__init__(", ".join(self._uris), client, **layout)
        self.columns = columns
        self._index = index
        self.footers = Footers()
        self.made_once = "make the index once, by one process, and give it to all as index="

    def key(self) -> tuple[Any, ...]:
        return "parquet", self._uris, self.columns, self.endpoint

    def identity(self) -> tuple[Any, ...]:
        return "parquet", self._uris

    def given(self) -> TarIndex | None:
        return None

    def size(self, found: TarIndex) -> int:
        return sum({shard[0]: shard[1] for shard in found.shards()}.values())

    def common_file(self) -> TarIndex | None:
        if self._index is None or not os.path.exists(self._index):
            return None
        try:
            found = TarIndex(self._index)
        except ValueError as error:
            raise ValueError(f"index={os.fspath(self._index)!r} keeps no row groups: {error}") from None
        other = self._other_files(found)
        if not other and len(found) > 0 and self.row_group(found, 0).columns != columns_sum(self.columns):
            other = "other columns"
        if other:
            raise ValueError(
                f"the index {os.fspath(self._index)} was made for {other}: remove it, or name another file"
            )
        return found

    def renew_locks(self) -> None:
        super().renew_locks()
        self.footers.renew_lock()

    def _other_files(self, found: TarIndex) -> str:
        """Which files of an index are not those that are meant; "" where they are."""
        places = _expand(self._uris)
        names = {shard[0] for shard in found.shards()}
        files = {name for _, name in places if name.endswith(_SUFFIX)}
        prefixes = tuple({name for _, name in places} - files)
        unknown = next((name for name in sorted(names - files) if not name.startswith(prefixes)), None)
        if found.bucket != places[0][0] or unknown is not None:
            has = "" if unknown is None else f", such as {_uri.join(found.bucket, unknown)}"
            return f"other files, of gs://{found.bucket}{has}"
        absent = [*sorted(files - names), *(each for each in prefixes if not any(map(_begins(each), names)))]
        return f"other files, without {_uri.join(found.bucket, absent[0])}" if absent else ""

    def make(self, tell: Tell) -> TarIndex:
        found = self.common_file()
        if found is not None:
            return found
        places = _expand(self._uris)
        found = scan(self.client, places[0][0], _find_files(self.client, places), self.columns, self.footers, tell)
        if self._index is not None:
            found.save(self._index)
        return found

    def row_group(self, found: TarIndex, number: int) -> RowGroup:
        return RowGroup.of_key(found.sample(number)[0])


class _Told(Told):
    """What the iteration of a reader has handed out."""

    def __init__(self, reader: _core.Reader, epoch: int, parts: Parts) -> None:
        self._reader, self._epoch, self._layers = reader, epoch, parts.layers
        self._begun = reader.state(), parts.pool

    @property
    def place(self) -> Place:
        state, pool = self._reader.told or self._begun
        return Place(self._epoch, state, self._reader.base, Parts(self._layers, pool))


class _Pool:
    """Row groups whose rows are being handed out. Invariant: of the order, the first `done` were."""

    def __init__(self, ids: tuple[int, ...], table: Any, order: Any, done: int) -> None:
        self._ids, self._table, self._order, self._done = ids, table, order, done

    @property
    def left(self) -> int:
        return len(self._order) - self._done

    @property
    def record(self) -> Record:
        return self._ids, self._done

    def take(self, count: int) -> Any:
        """A table of the next rows."""
        chosen = self._order[self._done : self._done + count]
        self._done += count
        if isinstance(chosen, range):
            return self._table.slice(chosen.start, len(chosen))
        return self._table.take(pyarrow.array(chosen))


class _RowGroups(Samples):
    """Makes tables of the row groups that were read, and pools of them."""

    def __init__(self, dataset: ParquetDataset, parts: Parts, rows: Rows) -> None:
        super().__init__(self._table, dataset._on_error)
        self.rows = rows
        self._make_table = dataset._convert
        self._skips_changed = dataset._changed == _SKIPS_CHANGED
        self._resumed = parts.pool
        self._is_shuffled = dataset._shuffle
        self._rows_wanted = dataset._shuffle_buffer if dataset._batch_size is not None else 1

    def _table(self, item: Item[Any]) -> Any:
        try:
            return self._make_table(item)
        except Error as error:
            # A row group was read ahead, and its footer is asked for behind it.
            if not self._skips_changed or error.status not in _CHANGED_STATUSES:
                raise
            self.skipped += 1
            return SKIP

    def gather(
        self, reader: _core.Reader, take: Callable[[int], list[Item[Any]] | None]
    ) -> Generator[Any, None, _Pool | None]:
        """Gives the reader while what comes next is not there; returns a pool, or None at the end."""
        resumed, self._resumed = self._resumed, None
        ids: list[int] = []
        tables: list[Any] = []
        rows = 0
        while (items := take(1)) is None or items:
            if items is None:
                yield reader
                continue
            made, number = [table for table in self.make(items) if table is not SKIP], items[0].index
            del items  # while the next are waited for, their memory may be all there is
            ids += [number] * len(made)
            tables += made
            rows += len(self.rows.left(number)) * len(made)
            if self._is_gathered(ids, rows, resumed):
                break
        return self._pool(ids, tables, resumed) if ids else None

    def _is_gathered(self, ids: list[int], rows: int, resumed: Record | None) -> bool:
        if resumed is None:
            return len(ids) > 0 and (rows >= self._rows_wanted or not self._is_shuffled)
        if tuple(ids) != resumed[0][: len(ids)]:
            raise RuntimeError("the rows that were left do not come in the order in which the state was saved")
        return len(ids) == len(resumed[0])

    def _pool(self, ids: list[int], tables: list[Any], resumed: Record | None) -> _Pool:
        table = tables[0] if len(tables) == 1 else pyarrow.concat_tables(tables)
        if self._is_shuffled:
            table = table.combine_chunks()  # so that rows are found at once
        order, done = self.rows.order(ids), resumed[1] if resumed is not None else 0
        if done > len(order):
            raise ValueError(f"the parts of a state are damaged: {done} rows were given of {len(order)}")
        return _Pool(tuple(ids), table, order, done)


def _batch_of(tables: list[Any]) -> Any:
    """One RecordBatch."""
    table = pyarrow.concat_tables(tables).combine_chunks()
    batches = table.to_batches()
    if len(batches) > 1:
        raise ValueError("a column of this batch has more than 2 GiB: use a smaller batch_size")
    return batches[0] if batches else pyarrow.RecordBatch.from_arrays([[] for _ in table.schema], schema=table.schema)


def _array(column: Any) -> Any:
    kind = column.type
    if (
        pyarrow.types.is_fixed_size_list(kind)
        and column.null_count == 0
        and pyarrow.types.is_primitive(kind.value_type)
    ):
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), kind.list_size)
    return column.to_numpy(zero_copy_only=False)


def _tensor(column: Any) -> Any:
    import torch

    array = _array(column)
    if array.dtype.kind not in "biuf":
        return column.to_pylist()
    return torch.from_numpy(array if array.flags.writeable else array.copy())


class ParquetDataset(IterableDataset):
    """The rows of Parquet files as a stream of batches that is read ahead.

    A batch is a pyarrow.RecordBatch of `batch_size` rows, the last one of fewer; without `batch_size`, of one row group.
    `transform` gets the batch, in the `format`.

    uri: "gs://bucket/train-{0000..0009}.parquet", a prefix (all objects below it that end in .parquet), or a list of
        these, of one bucket. All files have the same columns, of the same types; in another order only if `columns`
        names them.
    columns: the names of those to read, all others are not read. "a.b" is a field of a struct. Batches have them in
        this order.
    format: "arrow" for a RecordBatch; "numpy" for a dict of arrays (numbers with nulls become floats with NaN, lists of
        a fixed size a second dimension, texts and everything else arrays of objects); "torch" for a dict of tensors
        that have their own memory, and lists of what is no number.
    shuffle, shuffle_buffer: row groups come in an order that `seed` and the epoch determine. Their rows are mixed
        among as many row groups as have `shuffle_buffer` rows together. Without batch_size, only within a row group.
    index: a file that keeps where the row groups are. If it exists it is used as it is, without files that were added
        below a prefix since, and a file that was replaced since is an error; otherwise it is made. One of other files or
        columns is refused. Without a process group, several ranks need one.
    changed, on_error: "error" or "skip", and "raise" or "skip"; a row group is what is left out. A batch is left
        out if its transform raises.
    remainder: "uneven", or "drop" of row groups. Ranks and workers get whole row groups, and those need not have the
        same number of rows: so ranks get different numbers of batches, and each worker its own last batch.

    Memory: compressed row groups are read ahead within `prefetch`, or one that is larger; it must fit the client's
    memory. Decoded, there is one row group at a time, and with `shuffle` up to `shuffle_buffer` rows more, twice while
    they are joined.

    Order, shares of ranks and workers, epochs, resuming and asyncio are as of IterableDataset. A state has a place
    within the row groups that were begun, so that every row comes once, also after a resume with other ranks, workers,
    batch_size or shuffle_buffer. A state belongs to the columns that were read. Needs the extra `parquet` (pyarrow).
    """

    def __init__(
        self,
        uri: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        batch_size: int | None = None,
        shuffle: bool = False,
        shuffle_buffer: int = 65536,
        format: str = "arrow",
        index: str | os.PathLike[str] | None = None,
        changed: str = "error",
        on_error: str = "raise",
        remainder: str = "uneven",
        client: Client | None = None,
        transform: Callable[[Batch], Any] | None = None,
        **options: Any,
    ):
        _choose({"error": 0, "skip": _SKIPS_CHANGED}, changed, "changed")
        _choose({"raise": 0, "skip": 1}, on_error, "on_error")
        _choose({"uneven": 0, "drop": 1}, remainder, "remainder")
        _choose(_FORMATS, format, "format")
        self._format = format
        self._columns = _columns(columns)
        self._index_path = index
        self._shuffle_buffer = whole(shuffle_buffer, "shuffle_buffer", 1, 1 << 31)
        super().__init__(
            uri,  # type: ignore[arg-type]  # the source is our own
            batch_size=batch_size,
            shuffle=shuffle,
            changed=changed,
            on_error=on_error,
            remainder=remainder,
            client=client,
            transform=transform,
            **options,
        )

    def _make_source(
        self, uri: Any, client: Client | None, manifest: Any, folder_markers: bool = False, **options: Any
    ) -> Any:
        if manifest is not None or folder_markers:
            raise TypeError(
                "a ParquetDataset has neither manifest= nor folder_markers=; index= says where row groups are"
            )
        return ParquetSource(uri, client, self._columns, self._index_path, **options)

    @property
    def files(self) -> list[Shard]:
        """Of each file with rows: name, size, generation, and its first row group and how many it has."""
        found: dict[tuple[str, int, int], list[int]] = {}
        for name, size, generation, first, count in self._source.found.shards():
            if count > 0:
                found.setdefault((name, size, generation), []).append(first)
        return [Shard(*file, numbers[0], len(numbers)) for file, numbers in found.items()]

    def _rows_of(self, row_group: int) -> int:
        return self._source.row_group(self._source.found, row_group).rows

    @property
    def rows(self) -> int:
        """Of all files."""
        return sum(map(self._rows_of, range(len(self._source.found))))

    def __len__(self) -> int:
        """Batches of this rank in an epoch, if one process reads them without workers; TypeError where that depends on
        the order: with batch_size and several ranks."""
        if self._batch_size is None:
            return super().__len__()
        if self._source.layout.world_size > 1:
            raise TypeError(
                "how many batches a rank of several gets depends on the sizes of its row groups: count steps"
            )
        return math.ceil(self.rows / self._batch_size)

    def _check_memory(self) -> None:
        """A row group that the client's memory cannot hold fails when it is read, and says so."""

    def _reader_options(self) -> dict[str, Any]:
        # Row groups are read whole, which the pieces of the index are.
        return {"batch_size": 1, "members": [str(i) for i in range(64)], "request_bytes": 1}

    def _begin_samples(self, reader: _core.Reader, beginning: Beginning) -> tuple[Samples, Told]:
        place: Place = beginning.state or Place(beginning.epoch)
        parts = place.parts or Parts()
        # The same rows follow in the same order if nothing was divided anew, and nothing may be missing.
        is_same = reader.base == place.base and self._ordered
        if parts.pool is not None and not (is_same and self._on_error == "raise" and not self._changed):
            parts = Parts(parts.settled())
        rows = Rows(self._rows_of, parts.layers, shuffle=self._shuffle, seed=self._seed, epoch=beginning.epoch)
        return _RowGroups(self, parts, rows), _Told(reader, beginning.epoch, parts)

    def _convert(self, item: Item[Any]) -> Any:
        """The table of a row group."""
        if item.error is not None:
            if getattr(item.error, "status", None) == "TOO_LARGE":
                item.error.add_note(
                    f"a row group must fit the client's memory of {self._source.client.memory} bytes: write smaller row "
                    "groups, choose fewer columns, or give Client(memory=...)"
                )
            raise item.error
        row_group = RowGroup.of_key(item.data["__key__"])
        footers: Footers = self._source.footers
        metadata = footers.get(self._source.client, item.uri, item.generation, row_group)
        try:
            return decode(item.uri, metadata, row_group, self._columns, item.data)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            text = f"row group {row_group.number} of {item.uri} cannot be decoded: {error}"
            raise TransformError(text) from error

    def _yielded(self, reader: _core.Reader, samples: Samples) -> Iterator:
        return self._batches(reader, samples, reader.take)

    def _polled(self, reader: _core.Reader, samples: Samples) -> Iterator:
        reader.start()
        return self._batches(reader, samples, reader.poll)

    def _batches(
        self, reader: _core.Reader, samples: Any, take: Callable[[int], list[Item[Any]] | None]
    ) -> Iterator[Any]:
        """Says with each batch which place is behind it: what the reader has consumed, and how far the pool is."""
        tables: list[Any] = []
        missing = wanted = self._batch_size
        while (pool := (yield from samples.gather(reader, take))) is not None:
            before = reader.state()  # in which nothing of the pool is consumed
            while pool.left > 0:
                count = pool.left if missing is None else min(missing, pool.left)
                tables.append(pool.take(count))
                if pool.left == 0:
                    reader.consume()
                    before = reader.state()
                if missing is not None and (missing := missing - count) > 0:
                    continue
                yield from self._handed(reader, samples, tables, (before, pool.record if pool.left > 0 else None))
                tables, missing = [], wanted
            reader.consume()
        if tables:
            yield from self._handed(reader, samples, tables, (reader.state(), None))

    def _handed(self, reader: _core.Reader, samples: Any, tables: list[Any], place: tuple[Any, ...]) -> Iterator[Any]:
        try:
            batch = self._made(_batch_of(tables))
        except TransformError as error:
            samples.leave_out(error)
            return
        reader.pend(place)
        yield batch

    def _made(self, batch: Any) -> Any:
        if self._format != "arrow":
            make = _array if self._format == "numpy" else _tensor
            batch = {name: make(column) for name, column in zip(batch.schema.names, batch.columns)}
        if self._transform is None:
            return batch
        try:
            return self._transform(batch)
        except Exception as error:
            raise TransformError(f"the transform of a batch of {self._source.what} raised {error!r}") from error
