"""TensorStore's key-value store. It checks no checksum over HTTP."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Iterator
from typing import Any

from ringest.bench.peers.work import Counted, Peer, Way, Work, in_threads, iterate


def store(work: Work) -> Any:
    # It reads these when it is imported or first used.
    os.environ.update(
        TENSORSTORE_GCS_REQUEST_CONCURRENCY=str(work.concurrency),
        TENSORSTORE_HTTP_THREADS="1",
        TENSORSTORE_GCS_HTTP_VERSION="1",
    )
    if work.endpoint is not None:
        os.environ.update(TENSORSTORE_GCS_HTTP_URL=work.endpoint, GOOGLE_AUTH_TOKEN_FOR_TESTING="anonymous")
    if work.ca is not None:
        os.environ["TENSORSTORE_CA_BUNDLE"] = work.ca
    import tensorstore

    return tensorstore.KvStore.open({"driver": "gcs", "bucket": work.bucket, "path": ""}).result()


def in_futures(work: Work, begin: Callable[[], Any], end: Callable[[Any], None]) -> Counted:
    def counts() -> Iterator[int]:
        pending = collections.deque(begin() for _ in range(work.concurrency))
        while True:
            end(pending.popleft().result())
            pending.append(begin())
            yield 1

    return iterate(work, counts())


def get_futures(work: Work) -> Counted:
    made = store(work)
    return in_futures(work, lambda: made.read(work.next()), lambda result: work.check(result.value))


def put_futures(work: Work) -> Counted:
    made, body = store(work), bytes(work.size)
    return in_futures(work, lambda: made.write(work.next(), body), lambda result: None)


def get_in_threads(work: Work) -> Counted:
    made = store(work)

    def get() -> int:
        work.check(made.read(work.next()).result().value)
        return 1

    return in_threads(work, get)


def put_in_threads(work: Work) -> Counted:
    made, body = store(work), bytes(work.size)

    def put() -> int:
        made.write(work.next(), body).result()
        return 1

    return in_threads(work, put)


def list_names(work: Work) -> Counted:
    made = store(work)
    import tensorstore

    names = tensorstore.KvStore.KeyRange(work.prefix, work.prefix + "\xff")

    def counts() -> Iterator[int]:
        while True:
            keys = made.list(names).result()
            work.check_listed(len(keys), lambda: (key.decode() for key in keys))
            yield len(keys)

    return iterate(work, counts())


PEER = Peer(
    "tensorstore",
    "tensorstore",
    (
        Way("futures", get=get_futures, put=put_futures, list=list_names),
        Way("threads", get=get_in_threads, put=put_in_threads),
    ),
)
