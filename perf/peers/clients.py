"""One client in a process of its own, as measure.py starts it:

    clients.py NAME ENDPOINT CA OBJECT SIZE CONNECTIONS SECONDS

reads gs://bench/OBJECT again and again for a while and prints {"objects", "seconds", "cpu_seconds",
"rss_mb"} as JSON: CPU time is that of all threads, after start, imports and a warm-up; rss_mb is by
how much the process grew at most, counted from when its imports were done and its client not yet made."""

from __future__ import annotations

import asyncio
import collections
import importlib
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn

BUCKET = "bench"
# The first bodies go to memory that was never touched, which is slow to get on some machines.
WARM_UP_S = float(os.environ.get("RINGEST_PERF_WARM_UP_S", "2"))
BATCH = 256
BATCH_BYTES = 64 << 20
# Of a dataset; the objects are all the same one.
EPOCH = 65536


@dataclass(frozen=True)
class Work:
    """What to read: `size` in bytes, at most `connections` at a time, for `seconds` after `warm_up`."""

    endpoint: str
    ca: str
    name: str
    size: int
    connections: int
    seconds: float
    warm_up: float = WARM_UP_S

    @property
    def batch(self) -> int:
        """Objects of a dataset's batch: what a training step could have, not more than memory."""
        return max(1, min(BATCH, BATCH_BYTES // self.size))

    def check(self, data) -> None:
        if len(data) != self.size:
            raise ValueError(f"{len(data)} bytes came instead of {self.size}")


class Meter:
    """Counts objects, and says what they cost between begin() and end()."""

    def __init__(self) -> None:
        self.count = 0

    def snapshot(self) -> tuple[int, float, float]:
        return self.count, time.monotonic(), time.process_time()

    def begin(self) -> None:
        self._begin = self.snapshot()

    def end(self) -> dict[str, float]:
        count, seconds, cpu = (b - a for a, b in zip(self._begin, self.snapshot(), strict=True))
        return {"objects": count, "seconds": seconds, "cpu_seconds": cpu}


def iterate(work: Work, counts: Iterable[int]) -> dict[str, float]:
    """For what yields numbers of objects that came."""
    meter, begin = Meter(), time.monotonic() + work.warm_up
    begun = False
    for count in counts:
        meter.count += count
        now = time.monotonic()
        if not begun and now >= begin:
            meter.begin()
            begun, begin = True, now
        elif begun and now >= begin + work.seconds:
            break
    return meter.end()


def in_threads(work: Work, get: Callable[[], object]) -> dict[str, float]:
    """For what blocks until an object is here."""
    meter, over, lock = Meter(), threading.Event(), threading.Lock()
    errors: list[Exception] = []

    def run() -> None:
        try:
            while not over.is_set():
                work.check(get())
                with lock:
                    meter.count += 1
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(work.connections)]
    for thread in threads:
        thread.start()
    time.sleep(work.warm_up)
    meter.begin()
    time.sleep(work.seconds)
    result = meter.end()
    over.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return result


def in_tasks(
    work: Work,
    opened: Callable[[], Awaitable[Callable[[], Awaitable[object]]]],
    loop: str = "uvloop",
) -> dict[str, float]:
    """For what is awaited. `opened` makes, inside the event loop, the function to get with."""
    meter = Meter()

    async def repeat(get: Callable[[], Awaitable[object]]) -> None:
        while True:
            work.check(await get())
            meter.count += 1

    async def main() -> dict[str, float]:
        get = await opened()
        tasks = [asyncio.create_task(repeat(get)) for _ in range(work.connections)]
        await asyncio.sleep(work.warm_up)
        meter.begin()
        await asyncio.sleep(work.seconds)
        result = meter.end()
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        return result

    factory = importlib.import_module(loop).new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main())


def ringest_client(work: Work):
    import ringest

    return ringest.Client(work.endpoint, work.ca, threads=1, connections=work.connections)


def ringest_get_many(work: Work) -> dict[str, float]:
    def counts() -> Iterator[int]:
        uris = itertools.repeat(f"gs://{BUCKET}/{work.name}")
        for items in ringest_client(work).get_many(uris, batch=work.batch):
            for item in items:
                work.check(item.data)
            yield len(items)

    return iterate(work, counts())


def loaded(work: Work, dataset, **options) -> dict[str, float]:
    """A dataset in a DataLoader without workers."""
    from torch.utils.data import DataLoader

    def counts() -> Iterator[int]:
        while True:
            for batch in DataLoader(dataset, num_workers=0, **options):
                for data in batch:
                    work.check(data)
                yield len(batch)

    return iterate(work, counts())


def ringest_iterable(work: Work) -> dict[str, float]:
    import ringest

    manifest = [(work.name, work.size, 0)] * EPOCH
    dataset = ringest.IterableDataset(
        f"gs://{BUCKET}/", manifest=manifest, batch_size=work.batch, client=ringest_client(work)
    )
    return loaded(work, dataset, batch_size=None)


def map_style(work: Work, package: str, storage_client, threads: int = 1) -> dict[str, float]:
    module = importlib.import_module(package + ".dataflux_mapstyle_dataset")
    config = module.Config(
        prefix=work.name,
        num_processes=1,
        threads_per_process=threads,
        disable_compose=True,
    )
    dataset = module.DataFluxMapStyleDataset("p", BUCKET, config, storage_client=storage_client)
    dataset.objects = [(work.name, work.size)] * EPOCH
    return loaded(work, dataset, batch_size=work.batch, collate_fn=list)


def ringest_dataflux(work: Work) -> dict[str, float]:
    return map_style(work, "ringest.dataflux", ringest_client(work))


def google_client(work: Work):
    import requests.adapters
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client(
        project="p",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": work.endpoint},
    )
    adapter = requests.adapters.HTTPAdapter(pool_connections=4, pool_maxsize=work.connections)
    client._http.mount("https://", adapter)
    return client


def connector(work: Work) -> dict[str, float]:
    return map_style(work, "dataflux_pytorch", google_client(work))


def connector_threads(work: Work) -> dict[str, float]:
    return map_style(work, "dataflux_pytorch", google_client(work), work.connections)


def google_cloud_storage(work: Work) -> dict[str, float]:
    bucket = google_client(work).bucket(BUCKET)
    return in_threads(work, lambda: bucket.blob(work.name).download_as_bytes(checksum=None))


def obstore_store(work: Work):
    from obstore.store import GCSStore

    key = {"gcs_base_url": work.endpoint, "disable_oauth": True, "client_email": "",
           "private_key": "", "private_key_id": ""}  # fmt: skip
    with open(work.ca, encoding="ascii") as file:
        options = {"root_certificate": file.read(), "pool_max_idle_per_host": "4096"}
    return GCSStore(
        BUCKET,
        service_account_key=json.dumps(key),
        client_options=options,
        retry_config={"max_retries": 0},
    )


def obstore_tasks(work: Work, loop: str = "uvloop") -> dict[str, float]:
    async def opened():
        store = obstore_store(work)

        async def get():
            return await (await store.get_async(work.name)).bytes_async()

        return get

    return in_tasks(work, opened, loop)


def obstore_plain(work: Work) -> dict[str, float]:
    return obstore_tasks(work, "asyncio")


def obstore_threads(work: Work) -> dict[str, float]:
    store = obstore_store(work)
    return in_threads(work, lambda: store.get(work.name).bytes())


def opendal_operator(work: Work, kind: str):
    import opendal

    return getattr(opendal, kind)(
        "gcs",
        bucket=BUCKET,
        root="/",
        endpoint=work.endpoint,
        skip_signature="true",
        allow_anonymous="true",
        disable_vm_metadata="true",
        disable_config_load="true",
    )


def opendal_tasks(work: Work) -> dict[str, float]:
    async def opened():
        operator = opendal_operator(work, "AsyncOperator")
        return lambda: operator.read(work.name)

    return in_tasks(work, opened)


def opendal_threads(work: Work) -> dict[str, float]:
    operator = opendal_operator(work, "Operator")
    return in_threads(work, lambda: operator.read(work.name))


def gcsfs_tasks(work: Work) -> dict[str, float]:
    async def opened():
        import aiohttp
        import gcsfs

        fs = gcsfs.GCSFileSystem(
            project="p",
            token="anon",
            endpoint_url=work.endpoint,
            cache_timeout=0,
            skip_instance_cache=True,
            asynchronous=True,
            session_kwargs={"connector": aiohttp.TCPConnector(limit=0)},
        )
        await fs._set_session()
        return lambda: fs._cat_file(f"{BUCKET}/{work.name}")

    return in_tasks(work, opened)


def tensorstore_futures(work: Work) -> dict[str, float]:
    # It reads these when it is imported or first used.
    os.environ.update(
        TENSORSTORE_GCS_HTTP_URL=work.endpoint,
        TENSORSTORE_CA_BUNDLE=work.ca,
        TENSORSTORE_GCS_REQUEST_CONCURRENCY=str(work.connections),
        TENSORSTORE_HTTP_THREADS="1",
        TENSORSTORE_GCS_HTTP_VERSION="1",
        GOOGLE_AUTH_TOKEN_FOR_TESTING="anonymous",
    )
    import tensorstore

    store = tensorstore.KvStore.open({"driver": "gcs", "bucket": BUCKET, "path": ""}).result()

    def counts() -> Iterator[int]:
        pending = collections.deque(store.read(work.name) for _ in range(work.connections))
        while True:
            work.check(pending.popleft().result().value)
            pending.append(store.read(work.name))
            yield 1

    return iterate(work, counts())


def litdata_raw(work: Work, batch: int | None = None) -> dict[str, float]:
    from litdata import StreamingRawDataset
    from litdata.raw.indexer import BaseIndexer, FileMetadata
    from litdata.streaming import downloader

    class Index(BaseIndexer):
        def discover_files(self, input_dir, storage_options):
            return [FileMetadata(f"gs://{BUCKET}/{work.name}", work.size)] * EPOCH

        def build_or_load_index(self, input_dir, cache_dir, storage_options, recompute_index=False):
            return self.discover_files(input_dir, storage_options)

    # It has no option for another endpoint; its own store is made of Google's credentials.
    downloader.GCPDownloader._get_store = lambda self, bucket: downloader._cached_obstore_store(
        self, lambda: obstore_store(work)
    )
    dataset = StreamingRawDataset(f"gs://{BUCKET}/", indexer=Index(), max_concurrent_downloads=work.connections)
    return loaded(work, dataset, batch_size=batch or work.batch, collate_fn=list)


@dataclass(frozen=True)
class Client:
    """`kind` is what its figures are compared within; `modules` is imported before anything is
    counted; `connections` is how many are tried, None for what measure.py was told."""

    kind: str
    run: Callable[[Work], dict[str, float]]
    modules: tuple[str, ...] = ()
    connections: tuple[int, ...] | None = None


LOADER = ("torch.utils.data",)
CONNECTOR = ("dataflux_pytorch.dataflux_mapstyle_dataset", *LOADER)
# In the order of the table; the first of a kind is what the others are compared with.
CLIENTS: dict[str, Client] = {
    "ringest get_many": Client("get", ringest_get_many, ("ringest",)),
    "obstore, uvloop": Client("get", obstore_tasks, ("obstore", "uvloop")),
    "obstore, asyncio": Client("get", obstore_plain, ("obstore",), (16,)),
    "obstore, threads": Client("get", obstore_threads, ("obstore",)),
    "opendal, uvloop": Client("get", opendal_tasks, ("opendal", "uvloop")),
    "opendal, threads": Client("get", opendal_threads, ("opendal",)),
    "tensorstore, futures": Client("get", tensorstore_futures),
    # Their cost is that of Python, whatever the connections.
    "gcsfs, uvloop": Client("get", gcsfs_tasks, ("gcsfs", "uvloop"), (16,)),
    "google-cloud-storage, threads": Client("get", google_cloud_storage, ("google.cloud.storage",), (16,)),
    "ringest IterableDataset": Client("loader", ringest_iterable, ("ringest", *LOADER)),
    "ringest.dataflux map-style": Client("loader", ringest_dataflux, ("ringest.dataflux", *LOADER), (16,)),
    # One object at a time.
    "gcs-torch-dataflux map-style": Client("loader", connector, CONNECTOR, (1,)),
    "gcs-torch-dataflux, threads": Client("loader", connector_threads, CONNECTOR, (16,)),
    "litdata StreamingRawDataset": Client("loader", litdata_raw, ("litdata", "obstore", *LOADER)),
}


def peak_rss_mb() -> float:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024 / 1e6


def leave(result: dict[str, float]) -> NoReturn:
    """Ends the process at once: what threads of others do while Python ends is not measured."""
    print(json.dumps(result), flush=True)
    os._exit(0)


def main(arguments: list[str]) -> None:
    name, endpoint, ca, key, size, connections, seconds = arguments
    work = Work(endpoint, ca, key, int(size), int(connections), float(seconds))
    for module in CLIENTS[name].modules:
        importlib.import_module(module)
    before = peak_rss_mb()
    result = CLIENTS[name].run(work)
    leave({**result, "rss_mb": peak_rss_mb() - before})


if __name__ == "__main__":
    main(sys.argv[1:])
