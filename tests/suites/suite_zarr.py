"""zarr's tests of stores, over its store of fsspec, and its machines of Hypothesis."""

import os

import fsspec
import numpy
import pytest
import zarr
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from zarr.core.buffer import Buffer, cpu
from zarr.storage import FsspecStore
from zarr.testing.stateful import ZarrHierarchyStateMachine, ZarrStoreStateMachine
from zarr.testing.store import StoreTests

EXAMPLES = int(os.environ.get("RINGEST_EXAMPLES") or 10)


class TestStore(StoreTests[FsspecStore, cpu.Buffer]):
    store_cls = FsspecStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, ringest_fs, bucket):
        fs, path = fsspec.url_to_fs(f"gs://{bucket}/store", asynchronous=True)
        return {"fs": fs, "path": path}

    async def set(self, store: FsspecStore, key: str, value: Buffer) -> None:
        await store.fs._pipe_file(f"{store.path}/{key}", value.to_bytes())

    async def get(self, store: FsspecStore, key: str) -> Buffer:
        return self.buffer_cls.from_bytes(await store.fs._cat_file(f"{store.path}/{key}"))

    def test_store_repr(self, store: FsspecStore) -> None:
        assert "FsspecStore" in str(store)

    def test_store_supports_writes(self, store: FsspecStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: FsspecStore) -> None:
        assert store.supports_listing


class ClearedStore(FsspecStore):
    """Its own clear() ends at the first folder that went with the one above it: fsspec's rm says that it is not there."""

    async def clear(self) -> None:
        try:
            await self.fs._rm(self.path, recursive=True)
        except FileNotFoundError:
            pass


@pytest.mark.parametrize("is_registered", [True, False])
def test_an_array(ringest_fs, bucket, client, is_registered):
    """By a URL, and by a filesystem, which zarr makes an asynchronous one of: it has the same client."""
    if is_registered:
        store = FsspecStore.from_url(f"gs://{bucket}/array.zarr")
    else:
        store = FsspecStore.from_mapper(ringest_fs.get_mapper(f"{bucket}/array.zarr"))
    assert store.fs.async_impl and store.fs.client is client
    data = numpy.arange(100 * 70, dtype="float32").reshape(100, 70)
    array = zarr.create_array(store=store, shape=data.shape, chunks=(30, 20), dtype=data.dtype, fill_value=-1)
    array[:60] = data[:60]
    again = zarr.open_array(store=store, mode="r")
    assert numpy.array_equal(again[:60], data[:60])
    assert (again[60:] == -1).all()
    assert numpy.array_equal(again[10:40:3, ::7], data[10:40:3, ::7])


def test_the_lines_of_the_documentation(ringest_fs, bucket, client):
    """Those of docs/FSSPEC.md."""
    array = zarr.create_array(f"gs://{bucket}/weather.zarr", shape=(1000, 1000), chunks=(100, 100), dtype="float32")
    array[:100, :100] = 1
    assert client.exists(f"gs://{bucket}/weather.zarr/zarr.json")
    before = client.stats()["requests"]
    assert zarr.open_array(f"gs://{bucket}/weather.zarr", mode="r")[:100, :200].sum() == 10_000
    assert client.stats()["requests"] > before


@pytest.mark.parametrize("machine", [ZarrStoreStateMachine, ZarrHierarchyStateMachine])
def test_machine(machine, ringest_fs, bucket):
    store = ClearedStore.from_url(f"gs://{bucket}/store")
    run_state_machine_as_test(
        lambda: machine(store), settings=settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
    )
