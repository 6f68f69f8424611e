"""ringest, which checks the CRC32C of every object."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ringest.bench.peers.work import Counted, Objects, Peer, Way, Work, in_loader, in_threads, iterate

if TYPE_CHECKING:
    import ringest

# One call of put_many for so many times what it has in flight: else the end of each call would wait for its last. Of large
# objects fewer, so that a call ends before the time to measure is long over.
PUTS, PUT_BYTES = 16, 512 << 20


def client(work: Work) -> ringest.Client:
    import ringest

    return ringest.Client(work.endpoint, work.ca, threads=1, connections=work.concurrency)


def get_many(work: Work) -> Counted:
    def counts() -> Iterator[int]:
        for items in client(work).get_many(work.uris()):
            for item in items:
                work.check(item.data)
            yield len(items)

    return iterate(work, counts())


def put_many(work: Work) -> Counted:
    body, opened, uris = bytes(work.size), client(work), work.uris()

    def counts() -> Iterator[int]:
        count = max(work.concurrency, min(PUTS * work.concurrency, PUT_BYTES // max(1, work.size)))
        while True:
            objects = ((uri, body) for uri in itertools.islice(uris, count))
            yield len(opened.put_many(objects, requests=work.concurrency))

    return iterate(work, counts())


def list_names(work: Work) -> Counted:
    opened, uri = client(work), f"gs://{work.bucket}/{work.prefix}"

    def counts() -> Iterator[int]:
        while True:
            found = opened.list(uri)
            work.check_listed(len(found), lambda: (name for name, _, _ in found))
            yield len(found)

    return iterate(work, counts())


def get_in_threads(work: Work) -> Counted:
    opened = client(work)

    def get() -> int:
        work.check(opened.get(f"gs://{work.bucket}/{work.next()}"))
        return 1

    return in_threads(work, get)


def put_in_threads(work: Work) -> Counted:
    opened, body = client(work), bytes(work.size)

    def put() -> int:
        opened.put(f"gs://{work.bucket}/{work.next()}", body)
        return 1

    return in_threads(work, put)


def iterable(work: Work) -> Counted:
    import ringest

    manifest = [(name, work.size, 0) for name in work.epoch()]
    dataset = ringest.IterableDataset(
        f"gs://{work.bucket}/", manifest=manifest, batch_size=work.batch, client=client(work)
    )
    return in_loader(work, dataset, batch_size=None)


def map_style(work: Work) -> Counted:
    from ringest.bench.peers import dataflux

    return dataflux.map_style(work, "ringest.dataflux", client(work))


def dataset(work: Work, objects: Objects) -> Any:
    from ringest.bench.peers import dataflux

    return dataflux.dataset_of(work, objects, "ringest.dataflux", client(work))


PEER = Peer(
    "ringest",
    None,
    (
        Way("get_many", get=get_many, put=put_many, list=list_names, modules=("ringest",)),
        Way("threads", get=get_in_threads, put=put_in_threads, modules=("ringest",)),
        Way("IterableDataset", load=iterable, modules=("ringest", "torch.utils.data"), needs=("torch",)),
        Way(
            "dataflux map-style",
            load=map_style,
            dataset=dataset,
            modules=("ringest.dataflux", "torch.utils.data"),
            needs=("torch",),
        ),
    ),
)
