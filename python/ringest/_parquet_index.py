"""Where the row groups of Parquet files lie: footers, read once, become an index of ranges.

The index is a TarIndex, which is a list of samples that are ranges of objects (docs/TAR_INDEX.md). A sample is a row
group: its members are the pieces of the file that hold the chosen columns, each from the beginning of a block of 512
bytes on. Each row group is a shard of its own in it, since row groups need not begin at blocks. A sample's key says
what is needed to decode it: row group, rows, where the footer begins, size of the file, and which columns."""

from __future__ import annotations

import difflib
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ringest import _core, _uri
from ringest._core import TarIndex
from ringest._needs import needs

with needs("ringest.ParquetDataset", "pyarrow"):
    import pyarrow
    import pyarrow.parquet as parquet

# A footer that is no longer than that comes with the first request.
TAIL_BYTES = 64 << 10
# Columns that are no further apart are read by one request.
GAP_BYTES = 64 << 10
# Of a TarIndex: <ringest/tar.h>.
_PIECES_MAX = 64
_BLOCK = 512
_MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
# Old writers of parquet-mr say a few bytes too few, and readers read on.
_PADDING = 100
# Parsed footers that a process keeps, by the bytes they had.
_KEPT_BYTES = 64 << 20
_AT_ONCE = 256


class File(NamedTuple):
    name: str
    size: int
    generation: int


class RowGroup(NamedTuple):
    """What the key of a sample says."""

    number: int
    rows: int
    footer: int  # where it begins
    size: int  # of the file
    columns: int  # a checksum of those that were chosen

    @classmethod
    def of_key(cls, key: str) -> RowGroup:
        return cls(*map(int, key.split(":")))

    @property
    def key(self) -> str:
        return ":".join(map(str, self))


def _refuse(uri: str, cause: str) -> ValueError:
    return ValueError(f"{uri}: {cause}")


def footer_begin(uri: str, size: int, tail: bytes) -> int:
    """Where the footer begins, by the last bytes of the file."""
    if size < 12:
        raise _refuse(uri, f"it is not a Parquet file, or cut off: it has {size} bytes, and the smallest has more")
    if tail[-4:] == _ENCRYPTED:
        raise _refuse(uri, "its footer is encrypted, which ParquetDataset cannot read")
    if tail[-4:] != _MAGIC:
        raise _refuse(
            uri, f"it is not a Parquet file, or cut off: it ends in {bytes(tail[-4:])!r}, and not in {_MAGIC!r}"
        )
    length = int.from_bytes(tail[-8:-4], "little")
    if length > size - 12:
        raise _refuse(uri, f"it is damaged: a footer of {length} bytes does not fit a file of {size}")
    return size - 8 - length


def parse_footer(uri: str, footer: Any) -> Any:
    """pyarrow's FileMetaData of a footer with the eight bytes behind it."""
    try:
        return parquet.read_metadata(pyarrow.BufferReader(pyarrow.py_buffer(footer)))
    except (pyarrow.ArrowException, OSError) as error:
        raise _refuse(uri, f"its footer is damaged: {error}") from error


def _paths(metadata: Any) -> list[str]:
    schema = metadata.schema
    return [schema.column(i).path for i in range(len(schema))]


def _is_of(path: str, column: str) -> bool:
    return path == column or path.startswith(f"{column}.")


def choose(uri: str, metadata: Any, columns: Sequence[str] | None) -> list[int]:
    """The numbers of the chunks that hold the columns."""
    paths = _paths(metadata)
    if columns is None:
        return list(range(len(paths)))
    for column in columns:
        if not any(_is_of(path, column) for path in paths):
            known = list(dict.fromkeys([*metadata.schema.to_arrow_schema().names, *paths]))
            lower = {name.lower(): name for name in known}
            close = [lower[name] for name in difflib.get_close_matches(column.lower(), lower, n=3)]
            hint = f"did you mean {' or '.join(map(repr, close))}" if close else f"it has {', '.join(known[:20])}"
            raise _refuse(uri, f"it has no column {column!r}; {hint}")
    return [i for i, path in enumerate(paths) if any(_is_of(path, column) for column in columns)]


def _schema_with_parts(uri: str, metadata: Any, columns: Sequence[str]) -> Any:
    """That of some fields of structs, which pyarrow knows."""
    try:
        with parquet.ParquetFile(pyarrow.BufferReader(b""), metadata=metadata) as file:
            return file.read_row_groups([], columns=columns).schema
    except OSError:
        text = f"columns of structs, as in {', '.join(columns)}, need a newer pyarrow than {pyarrow.__version__}"
        raise _refuse(uri, text) from None


def schema_of(uri: str, metadata: Any, columns: Sequence[str] | None) -> Any:
    """What batches have, without what only describes the file: metadata, and whether there may be nulls."""
    schema = metadata.schema.to_arrow_schema()
    names = schema.names if columns is None else columns
    twice = [name for name in names if len(schema.get_all_field_indices(name)) > 1]
    if twice:
        raise _refuse(
            uri, f"it has several columns {twice[0]!r}; choose others, or write it anew with names that differ"
        )
    if not all(name in schema.names for name in names):
        schema = _schema_with_parts(uri, metadata, names)
        names = schema.names
    return pyarrow.schema([pyarrow.field(name, schema.field(name).type) for name in names])


def _check_same(first: tuple[str, Any], second: tuple[str, Any]) -> None:
    (uri, schema), (other_uri, other) = first, second
    for name in [*schema.names, *other.names]:
        has, other_has = name in schema.names, name in other.names
        if not (has and other_has):
            has_it, has_not = (uri, other_uri) if has else (other_uri, uri)
            raise ValueError(f"the files have different columns: {has_it} has {name!r}, and {has_not} has not")
        kind, other_kind = schema.field(name).type, other.field(name).type
        if kind != other_kind:
            raise ValueError(
                f"the files have different types of the column {name!r}: {kind} in {uri}, and {other_kind} in {other_uri}"
            )
    raise ValueError(
        f"the files have their columns in different orders: {', '.join(schema.names)} in {uri}, and "
        f"{', '.join(other.names)} in {other_uri}; give columns= in the order that batches are to have"
    )


def pieces_of(uri: str, metadata: Any, row_group: int, chosen: Sequence[int], footer: int) -> list[tuple[int, int]]:
    """(begin, end) of what is read of a row group, before the footer, ascending and without a common block."""
    group = metadata.row_group(row_group)
    padding = _PADDING if str(metadata.created_by or "").startswith("parquet-mr") else 0
    ranges = []
    for i in chosen:
        column = group.column(i)
        if column.file_path:
            raise _refuse(
                uri, f"its columns are in another file, {column.file_path}, which ParquetDataset cannot follow"
            )
        begin = column.data_page_offset
        if column.has_dictionary_page and column.dictionary_page_offset:
            begin = min(begin, column.dictionary_page_offset)
        end = begin + column.total_compressed_size
        if begin < 4 or end < begin or end > footer:
            raise _refuse(
                uri, f"it is damaged or cut off: row group {row_group} is said to lie at bytes {begin} to {end}"
            )
        ranges.append((begin, min(end + padding, footer)))
    return _join(sorted(ranges))


def _join(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for begin, end in ranges:
        if joined and begin - joined[-1][1] <= GAP_BYTES:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin // _BLOCK * _BLOCK, end))
    while len(joined) > _PIECES_MAX:
        gaps = [joined[i + 1][0] - joined[i][1] for i in range(len(joined) - 1)]
        i = gaps.index(min(gaps))
        joined[i : i + 2] = [(joined[i][0], joined[i + 1][1])]
    return joined


def columns_sum(columns: Sequence[str] | None) -> int:
    return 0 if columns is None else zlib.crc32("\0".join(columns).encode()) | 1


class Footers:
    """The footers that were parsed last. Any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self.renew_lock()

    def renew_lock(self) -> None:
        self._lock = threading.Lock()

    def keep(self, uri: str, generation: int, metadata: Any, size: int) -> None:
        with self._lock:
            self._bytes += size - self._kept.pop((uri, generation), (None, 0))[1]
            self._kept[uri, generation] = metadata, size
            while self._bytes > _KEPT_BYTES and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1][1]

    def get(self, client: Any, uri: str, generation: int, row_group: RowGroup) -> Any:
        with self._lock:
            if (uri, generation) in self._kept:
                self._kept.move_to_end((uri, generation))
                return self._kept[uri, generation][0]
        size = row_group.size - row_group.footer
        (footer,) = client.get_ranges(uri, [(row_group.footer, size)], generation=generation)
        metadata = parse_footer(uri, footer)
        self.keep(uri, generation, metadata, size)
        return metadata

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]


class _Scan:
    """What the footers of files say, as they come."""

    def __init__(self, client: Any, bucket: str, columns: Sequence[str] | None, footers: Footers) -> None:
        self._client, self._bucket, self._columns, self._footers = client, bucket, columns, footers
        self._sum = columns_sum(columns)
        self._schemas: list[tuple[str, Any, int]] = []  # those that differ, and of which file they are
        self.found: dict[int, list[tuple[RowGroup, list[tuple[int, int]]]]] = {}

    def run(self, files: Sequence[File], tell: Any) -> None:
        calls = (
            (i, "get_ranges", (self._uri(file), [_tail(file)]), {"generation": file.generation})
            for i, file in enumerate(files)
            if file.size > 0 or self._refuse_empty(file)
        )
        longer = []
        for i, tails, error in self._client._bulk(calls, _AT_ONCE):
            if error is not None:
                raise error
            file = files[i]
            begin = footer_begin(self._uri(file), file.size, bytes(tails[0]))
            if begin < file.size - len(tails[0]):
                longer.append((i, begin))
            else:
                self._take(i, file, begin, memoryview(tails[0])[begin - file.size :])
            tell(len(self.found))
        self._run_longer(files, longer, tell)
        self._check_schemas()

    def _run_longer(self, files: Sequence[File], longer: list[tuple[int, int]], tell: Any) -> None:
        calls = (
            (
                (i, begin),
                "get_ranges",
                (self._uri(files[i]), [(begin, files[i].size - begin)]),
                {"generation": files[i].generation},
            )
            for i, begin in longer
        )
        for (i, begin), footers, error in self._client._bulk(calls, _AT_ONCE):
            if error is not None:
                raise error
            self._take(i, files[i], begin, footers[0])
            tell(len(self.found))

    def _uri(self, file: File) -> str:
        return _uri.join(self._bucket, file.name)

    def _refuse_empty(self, file: File) -> bool:
        footer_begin(self._uri(file), file.size, b"")
        return False

    def _take(self, i: int, file: File, begin: int, footer: Any) -> None:
        uri = self._uri(file)
        metadata = parse_footer(uri, footer)
        chosen = choose(uri, metadata, self._columns)
        self._add_schema(i, uri, schema_of(uri, metadata, self._columns))
        groups = []
        for number in range(metadata.num_row_groups):
            rows = metadata.row_group(number).num_rows
            if rows > 0:
                pieces = pieces_of(uri, metadata, number, chosen, begin)
                groups.append((RowGroup(number, rows, begin, file.size, self._sum), pieces))
        self.found[i] = groups
        self._footers.keep(uri, file.generation, metadata, file.size - begin)

    def _add_schema(self, i: int, uri: str, schema: Any) -> None:
        for at, (_, known, first) in enumerate(self._schemas):
            if known.equals(schema):
                self._schemas[at] = (uri, known, i) if i < first else self._schemas[at]
                return
        self._schemas.append((uri, schema, i))

    def _check_schemas(self) -> None:
        """Files come in any order; what is said of them does not depend on that."""
        by_file = sorted(self._schemas, key=lambda each: each[2])
        for uri, schema, _ in by_file[1:]:
            _check_same(by_file[0][:2], (uri, schema))


def _tail(file: File) -> tuple[int, int]:
    size = min(file.size, TAIL_BYTES)
    return file.size - size, size


def scan(
    client: Any, bucket: str, files: Sequence[File], columns: Sequence[str] | None, footers: Footers, tell: Any
) -> TarIndex:
    """The index of files whose sizes and generations are known."""
    found = _Scan(client, bucket, columns, footers)
    found.run(files, tell)
    return TarIndex(data=_encode(bucket, ((file, found.found.get(i, [])) for i, file in enumerate(files))))


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _encode_sample(group: RowGroup, pieces: list[tuple[int, int]]) -> bytes:
    key = group.key.encode()
    out = [_number(0), _number(len(key)), key, _number(len(pieces))]
    for i in range(len(pieces)):
        extension = str(i).encode()
        out.append(bytes([len(extension)]) + extension)
    before = 0
    for begin, end in pieces:
        out.append(_number(begin // _BLOCK - before) + _number(end - begin))
        before = -(-end // _BLOCK)
    return b"".join(out)


def _encode(bucket: str, files: Iterable[tuple[File, list[tuple[RowGroup, list[tuple[int, int]]]]]]) -> bytes:
    """As docs/TAR_INDEX.md has it. A file without rows is a shard without samples."""
    name = bucket.encode()
    header_size = (64 + len(name) + 7) // 8 * 8
    blocks, table, shards, names = bytearray(), bytearray(), bytearray(), bytearray()
    count, shard_count = 0, 0
    for file, groups in files:
        begin = len(names)
        names += file.name.encode() + b"\0"
        for samples in [[each] for each in groups] or [[]]:
            shards += struct.pack("<QQQII", file.size, file.generation, count, count, begin)
            shard_count += 1
            for group, pieces in samples:
                sample = _encode_sample(group, pieces)
                table += struct.pack("<QII", header_size + len(blocks), len(sample), _core.crc32c(sample))
                blocks += sample
                count += 1
    blocks += bytes(-len(blocks) % 8)
    rest = bytes(blocks + table + shards + names)
    tables = header_size + len(blocks)
    fields = struct.pack(
        "<8sIIQQQIIIII",
        b"\x89RGT\r\n\x1a\n",
        1,
        header_size,
        count,
        header_size + len(rest),
        tables,
        shard_count,
        count,
        len(name),
        len(names),
        _core.crc32c(rest),
    )
    padded = name.ljust(header_size - 64, b"\0")
    return fields + struct.pack("<I", _core.crc32c(fields + bytes(4) + padded)) + padded + rest


class _Pieces:
    """A file of which only pieces are there, for pyarrow."""

    closed = False

    def __init__(self, size: int, pieces: list[tuple[int, Any]]) -> None:
        self._size, self._pieces, self._at = size, pieces, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int = -1) -> Any:
        for begin, data in self._pieces:
            if begin <= self._at < begin + len(data):
                found = memoryview(data)[self._at - begin :][: size if size >= 0 else None]
                self._at += len(found)
                return found
        return b""

    def close(self) -> None:
        pass


def decode(uri: str, metadata: Any, group: RowGroup, columns: Sequence[str] | None, sample: dict[str, Any]) -> Any:
    """The table of a row group, of the pieces that were read of it."""
    places = pieces_of(uri, metadata, group.number, choose(uri, metadata, columns), group.footer)
    pieces = [(begin, sample[str(i)]) for i, (begin, _) in enumerate(places)]
    with parquet.ParquetFile(_Pieces(group.size, pieces), metadata=metadata, pre_buffer=False) as file:
        # Threads of Arrow would let go of Python's objects at any time, also while the interpreter ends, which aborts it.
        table = file.read_row_group(group.number, columns=columns, use_threads=False)
    if table.num_rows != group.rows:
        raise _refuse(uri, f"row group {group.number} has {table.num_rows} rows, and {group.rows} by its footer")
    schema = schema_of(uri, metadata, columns)
    return pyarrow.Table.from_arrays([table.column(name) for name in schema.names], schema=schema)
