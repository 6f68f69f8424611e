"""What a workload asks of a client, and ringest's own. Adapters of other clients subclass `Client`: list, read and write are
all that most workloads need. What a client cannot do raises `Unsupported`, and is a row with that error.

Objects are named by URIs, gs://BUCKET/NAME. `read`, `read_ranges` and `write_many` are called by several threads at once where a
workload reads batches ahead, or writes beside its reads; everything else by one."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
# (offset, length) of one object, by its URI.
Range = tuple[str, int, int]
# Requests of read_ranges and write_many that are out at once.
REQUESTS = 64
# Of ringest's writes: what is not larger is one request, which may be repeated if its name has to be new.
_ONE_REQUEST_MAX = 8 << 20


class Unsupported(Exception):
    """This client has no such operation."""


@contextlib.contextmanager
def closed(iterator: T) -> Iterator[T]:
    """Ends what is behind an iterator that is left early; not all have something."""
    try:
        yield iterator
    finally:
        getattr(iterator, "close", lambda: None)()


class Client(abc.ABC):
    name = "client"

    @abc.abstractmethod
    def list(self, prefix: str) -> Iterable[tuple[str, int]]:
        """URI and size of each object whose URI begins with that."""

    @abc.abstractmethod
    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """URI and body (it has a length) of each, as they arrive, many requests at once. An error is raised."""

    def steps(self, steps: Sequence[Sequence[str]], ahead: int) -> Iterator[Sequence[Any]] | None:
        """The bodies of each step in turn, of which so many are read ahead. None: it has no loader, and read() is called by
        so many threads."""
        return None

    @abc.abstractmethod
    def write(self, name: str, data: Any) -> None:
        """One whole object."""

    def write_many(self, objects: Iterable[tuple[str, Any]]) -> None:
        for name, data in objects:
            self.write(name, data)

    def read_ranges(self, ranges: Iterable[Range]) -> Iterator[tuple[Range, Any]]:
        """Parts of objects, as they arrive."""
        raise Unsupported(f"{self.name} reads no ranges here")

    def save(self, name: str, parts: Sequence[Any]) -> None:
        """An object of these pieces of memory, one after the other."""
        raise Unsupported(f"{self.name} saves no checkpoints here")

    def load(self, name: str, parts: Sequence[Any]) -> None:
        """That object into memory of the same sizes."""
        raise Unsupported(f"{self.name} loads no checkpoints here")

    def save_torch(self, name: str, state: dict[str, Any]) -> None:
        """An object of what torch.save(state) writes."""
        raise Unsupported(f"{self.name} saves no checkpoints of PyTorch here")

    def load_torch(self, name: str) -> dict[str, Any]:
        """The same as torch.load gives it."""
        raise Unsupported(f"{self.name} loads no checkpoints of PyTorch here")

    def save_dcp(self, folder: str, state: dict[str, Any], alone: bool) -> None:
        """By torch.distributed.checkpoint; alone: without a process group."""
        raise Unsupported(f"{self.name} saves no distributed checkpoints here")

    def load_dcp(self, folder: str, state: dict[str, Any], alone: bool) -> None:
        """Into the tensors of the state."""
        raise Unsupported(f"{self.name} loads no distributed checkpoints here")

    def parquet(self, names: Sequence[str], columns: Sequence[str], rows: int) -> Iterator[tuple[int, int]]:
        """Batches of rows: how many, and their bytes in memory."""
        raise Unsupported(f"{self.name} reads no Parquet here")

    def counters(self) -> dict[str, float]:
        """What it has counted since it was opened. `requests`, `wire_received_bytes` and `wire_sent_bytes` become fields
        of the round, and what else is there its metrics."""
        return {}

    def close(self) -> None:  # noqa: B027 (not all have something to end)
        """Ends its connections."""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


def put_new(client: Any, objects: Iterable[tuple[str, Any]], requests: int = REQUESTS) -> None:
    """Writes objects that may not be there yet, by ringest's client. After the first that could not be written no more are
    begun; an ExceptionGroup has the errors, each of which names its object."""
    errors: list[Exception] = []

    def calls() -> Iterator[tuple[Any, ...]]:
        for each in objects:
            if errors:
                return
            yield each[0], "put", each, {"if_generation_match": 0, "exclusive": False}

    for _, _, error in client._bulk(calls(), requests):
        if error is not None:
            errors.append(error)
    if errors:
        raise ExceptionGroup(f"not all objects could be written: {errors[0]}", errors)


class Ringest(Client):
    name = "ringest"

    def __init__(self, **settings: Any) -> None:
        import ringest

        self.client = ringest.Client(**settings)

    def list(self, prefix: str) -> Iterable[tuple[str, int]]:
        found = self.client.list(prefix)
        bucket = f"gs://{found.bucket}/"
        return ((bucket + name, size) for name, size, _ in found)

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
        with contextlib.closing(self.client.get_many(names)) as many:
            for items in many:
                for item in items:
                    if item.error is not None:
                        raise item.error
                    yield item.uri, item.data

    def write(self, name: str, data: Any) -> None:
        self.client.put(name, data, if_generation_match=0, exclusive=False)

    def write_many(self, objects: Iterable[tuple[str, Any]]) -> None:
        put_new(self.client, objects)

    def read_ranges(self, ranges: Iterable[Range]) -> Iterator[tuple[Range, Any]]:
        calls = ((each, "get", (each[0],), {"offset": each[1], "length": each[2]}) for each in ranges)
        for each, body, error in self.client._bulk(calls, REQUESTS):
            if error is not None:
                raise error
            yield each, body

    def save(self, name: str, parts: Sequence[Any]) -> None:
        size = sum(len(part) for part in parts)
        # With a condition, parts would be temporary objects outside of the folder, which a killed rank would leave.
        condition = 0 if size <= _ONE_REQUEST_MAX else None
        with self.client.writer(name, if_generation_match=condition, exclusive=False, size_hint=size) as stream:
            for part in parts:
                stream.write(part, borrow=True)

    def load(self, name: str, parts: Sequence[Any]) -> None:
        requests, offset = [], 0
        for part in parts:
            requests.append((offset, part))
            offset += len(part)
        self.client.get_into(name, requests)

    def save_torch(self, name: str, state: dict[str, Any]) -> None:
        from ringest import checkpoint

        checkpoint.save(state, name, client=self.client)

    def load_torch(self, name: str) -> dict[str, Any]:
        from ringest import checkpoint

        state: dict[str, Any] = checkpoint.load(name, client=self.client)
        return state

    def save_dcp(self, folder: str, state: dict[str, Any], alone: bool) -> None:
        import torch.distributed.checkpoint as dcp

        from ringest.dcp import StorageWriter

        dcp.save(state, storage_writer=StorageWriter(folder, client=self.client), no_dist=alone)

    def load_dcp(self, folder: str, state: dict[str, Any], alone: bool) -> None:
        import torch.distributed.checkpoint as dcp

        from ringest.dcp import StorageReader

        dcp.load(state, storage_reader=StorageReader(folder, client=self.client), no_dist=alone)

    def parquet(self, names: Sequence[str], columns: Sequence[str], rows: int) -> Iterator[tuple[int, int]]:
        from ringest import ParquetDataset

        for batch in ParquetDataset(list(names), columns=list(columns), batch_size=rows, client=self.client):
            yield batch.num_rows, batch.nbytes

    def counters(self) -> dict[str, float]:
        found: dict[str, float] = {}
        named = {"attempts": "requests", "recv_bytes": "wire_received_bytes", "sent_bytes": "wire_sent_bytes"}
        kept = {"retries", "hedges", "connections_opened", "cache_hits", "cache_misses"}
        for metric in self.client.metrics():
            if metric.name in named or metric.name in kept:
                name = named.get(metric.name, metric.name)
                found[name] = found.get(name, 0) + metric.value
        return found

    def close(self) -> None:
        self.client.close()
