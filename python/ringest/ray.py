"""Objects and Parquet files of Cloud Storage for Ray Data.

    import ray
    from ringest.ray import Objects, Parquet

    images = ray.data.read_datasource(Objects("gs://bucket/images/", decode))
    rows = ray.data.read_datasource(Parquet("gs://bucket/rows/", columns=["text", "label"]))

The prefix is listed where the datasource is made. Ray's tasks get shares of that list, wherever they run, and read them
as ringest's datasets do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ringest import _uri
from ringest._core import Item
from ringest._needs import needs
from ringest.client import Client
from ringest.dataset import IterableDataset, MapDataset

with needs(__name__, "ray", "pyarrow"):
    from ray.data import Datasource, ReadTask
    from ray.data.block import BlockAccessor, BlockMetadata

    from ringest.parquet import ParquetDataset

__all__ = ["Objects", "Parquet"]

_Entry = tuple[str, int, int]

# Samples that are read together, and rows of a block of Parquet files.
_BATCH = 64
_ROWS = 8192


def _row(item: Item) -> dict[str, Any]:
    return {"uri": item.uri, "bytes": bytes(item.data)}


def _shares(entries: Sequence[_Entry], count: int) -> Iterator[Sequence[_Entry]]:
    """Neighbours, as many in each as in the others, but for one."""
    count = max(1, min(count, len(entries)))
    for i in range(count):
        yield entries[i * len(entries) // count : (i + 1) * len(entries) // count]


class _Source(Datasource):
    def __init__(self, uri: str, client: Client | None) -> None:
        super().__init__()
        self._uri, self._client = uri, client
        self._entries: list[_Entry] = list(MapDataset(uri, client=client, shared=False).objects)

    def estimate_inmemory_data_size(self) -> int:
        return sum(size for _, size, _ in self._entries)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        return [self._task(share, per_task_row_limit) for share in _shares(self._entries, parallelism) if share]

    def _task(self, share: Sequence[_Entry], row_limit: int | None) -> ReadTask:
        size = sum(size for _, size, _ in share)
        about = BlockMetadata(num_rows=self._rows_of(share), size_bytes=size, input_files=None, exec_stats=None)
        return ReadTask(self._reader(share), about, per_task_row_limit=row_limit)

    def _rows_of(self, share: Sequence[_Entry]) -> int | None:
        """None: that is known when they are read."""
        return None

    def _reader(self, share: Sequence[_Entry]) -> Callable[[], Iterator[Any]]:
        """What a task runs, on any host: it gives blocks."""
        raise NotImplementedError


class Objects(_Source):
    """A row for each object below gs://BUCKET/PREFIX.

    transform: Item to a dict, whose keys are columns; numpy arrays of one shape become a tensor column. Without it, the
        columns are `uri` and `bytes`. It is pickled by Ray.
    client: by default each process's own, by the environment of its host.
    options: `on_error` and `changed` of ringest.IterableDataset, and others of it.

    An object that was replaced since it was listed is an error, unless `changed` says otherwise.
    """

    def __init__(
        self,
        uri: str,
        transform: Callable[[Item], dict[str, Any]] | None = None,
        client: Client | None = None,
        **options: Any,
    ) -> None:
        super().__init__(uri, client)
        self._transform, self._options = transform or _row, options

    def _rows_of(self, share: Sequence[_Entry]) -> int | None:
        return len(share) if self._options.get("on_error", "raise") == "raise" else None

    def _reader(self, share: Sequence[_Entry]) -> Callable[[], Iterator[Any]]:
        uri, client, transform, options = self._uri, self._client, self._transform, self._options

        def read() -> Iterator[Any]:
            dataset = IterableDataset(
                uri,
                manifest=list(share),
                client=client,
                transform=transform,
                batch_size=_BATCH,
                rank=0,
                world_size=1,
                **options,
            )
            for batch in dataset:
                yield BlockAccessor.batch_to_block({name: [row[name] for row in batch] for name in batch[0]})

        return read


class Parquet(_Source):
    """The rows of the Parquet files (.parquet) below gs://BUCKET/PREFIX; a task reads one or more files.

    columns: as of ringest.ParquetDataset. client: as of Objects. options: others of ParquetDataset.
    """

    def __init__(
        self, uri: str, columns: Sequence[str] | None = None, client: Client | None = None, **options: Any
    ) -> None:
        super().__init__(uri, client)
        self._entries = [entry for entry in self._entries if entry[0].endswith(".parquet")]
        if not self._entries:
            raise ValueError(f"no object below {uri} ends in .parquet")
        self._columns, self._options = columns, {"batch_size": _ROWS, **options}

    def _reader(self, share: Sequence[_Entry]) -> Callable[[], Iterator[Any]]:
        bucket, _ = _uri.split(self._uri)
        uris = [_uri.join(bucket, name) for name, _, _ in share]
        client, columns, options = self._client, self._columns, self._options

        def read() -> Iterator[Any]:
            import pyarrow

            dataset = ParquetDataset(
                uris, client=client, columns=columns, rank=0, world_size=1, shared=False, **options
            )
            for batch in dataset:
                yield pyarrow.Table.from_batches([batch])

        return read
