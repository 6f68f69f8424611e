"""zarr's tests of stores, over its store of fsspec, and its machines of Hypothesis."""

import os

import fsspec
import pytest
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
        from zarr.storage._fsspec import _make_async

        return {"fs": _make_async(fs), "path": path}

    async def set(self, store: FsspecStore, key: str, value: Buffer) -> None:
        store.fs.sync_fs.pipe_file(f"{store.path}/{key}", value.to_bytes())

    async def get(self, store: FsspecStore, key: str) -> Buffer:
        return self.buffer_cls.from_bytes(store.fs.sync_fs.cat_file(f"{store.path}/{key}"))

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


@pytest.mark.parametrize("machine", [ZarrStoreStateMachine, ZarrHierarchyStateMachine])
def test_machine(machine, ringest_fs, bucket):
    store = ClearedStore.from_url(f"gs://{bucket}/store")
    run_state_machine_as_test(
        lambda: machine(store), settings=settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
    )
