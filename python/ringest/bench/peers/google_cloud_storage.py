"""Google's own client, without its checksums, which cost it CPU time that others do not spend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ringest.bench.peers.work import Counted, Objects, Peer, Read, Reader, Way, Work, in_threads, iterate


def client(work: Work) -> Any:
    import requests.adapters
    from google.cloud import storage

    if work.endpoint is None:
        made = storage.Client()
    else:
        from google.auth.credentials import AnonymousCredentials

        made = storage.Client(
            project="p", credentials=AnonymousCredentials(), client_options={"api_endpoint": work.endpoint}
        )
    adapter = requests.adapters.HTTPAdapter(pool_connections=4, pool_maxsize=work.concurrency)
    for scheme in ("https://", "http://"):
        made._http.mount(scheme, adapter)
    return made


def get(work: Work) -> Counted:
    bucket = client(work).bucket(work.bucket)

    def call() -> int:
        work.check(bucket.blob(work.next()).download_as_bytes(checksum=None))
        return 1

    return in_threads(work, call)


def put(work: Work) -> Counted:
    bucket, body = client(work).bucket(work.bucket), bytes(work.size)

    def call() -> int:
        bucket.blob(work.next()).upload_from_string(body, checksum=None)
        return 1

    return in_threads(work, call)


def list_names(work: Work) -> Counted:
    made = client(work)

    def counts() -> Iterator[int]:
        while True:
            blobs = list(made.list_blobs(work.bucket, prefix=work.prefix))
            work.check_listed(len(blobs), lambda: (blob.name for blob in blobs))
            yield len(blobs)

    return iterate(work, counts())


def reader(work: Work) -> Reader:
    bucket = client(work).bucket(work.bucket)
    return lambda name: bucket.blob(name).download_as_bytes(checksum=None)


def dataset(work: Work, objects: Objects) -> Read:
    return Read(work, objects, reader)


PEER = Peer(
    "google-cloud-storage",
    "google-cloud-storage",
    # Its cost is that of Python, whatever the connections.
    (
        Way("threads", get=get, put=put, list=list_names, modules=("google.cloud.storage",), concurrency=(16,)),
        Way("DataLoader", dataset=dataset, modules=("torch.utils.data",), needs=("torch",)),
    ),
)
