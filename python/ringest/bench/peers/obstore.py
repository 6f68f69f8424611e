"""obstore, the object stores of Rust for Python. It checks no checksum."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from ringest.bench.peers.work import Counted, Objects, Peer, Read, Reader, Way, Work, in_tasks, in_threads, iterate

# Others' connections too stay open, however many there are.
IDLE_CONNECTIONS = "4096"


def store(work: Work) -> Any:
    from obstore.store import GCSStore

    options: dict[str, Any] = {"pool_max_idle_per_host": IDLE_CONNECTIONS}
    if work.endpoint is None:
        return GCSStore(work.bucket, client_options=options)
    # With a key that says so it asks nobody for credentials; with skip_signature it does.
    key = {"gcs_base_url": work.endpoint, "disable_oauth": True, "client_email": "",
           "private_key": "", "private_key_id": ""}  # fmt: skip
    if work.ca:
        with open(work.ca, encoding="ascii") as file:
            options["root_certificate"] = file.read()
    else:
        options["allow_http"] = True
    return GCSStore(
        work.bucket, service_account_key=json.dumps(key), client_options=options, retry_config={"max_retries": 0}
    )


def get_in_tasks(work: Work, loop: str = "uvloop") -> Counted:
    async def opened() -> Callable[[], Awaitable[int]]:
        made = store(work)

        async def get() -> int:
            work.check(await (await made.get_async(work.next())).bytes_async())
            return 1

        return get

    return in_tasks(work, opened, loop)


def get_plain(work: Work) -> Counted:
    return get_in_tasks(work, "asyncio")


def put_in_tasks(work: Work) -> Counted:
    body = bytes(work.size)

    async def opened() -> Callable[[], Awaitable[int]]:
        made = store(work)

        async def put() -> int:
            await made.put_async(work.next(), body, use_multipart=False)
            return 1

        return put

    return in_tasks(work, opened)


def get_in_threads(work: Work) -> Counted:
    made = store(work)

    def get() -> int:
        work.check(made.get(work.next()).bytes())
        return 1

    return in_threads(work, get)


def put_in_threads(work: Work) -> Counted:
    made, body = store(work), bytes(work.size)

    def put() -> int:
        made.put(work.next(), body, use_multipart=False)
        return 1

    return in_threads(work, put)


def list_names(work: Work) -> Counted:
    made = store(work)

    def counts() -> Any:
        while True:
            pages = list(made.list(work.prefix, chunk_size=1000))
            count = sum(map(len, pages))
            work.check_listed(count, lambda: (each["path"] for page in pages for each in page))
            yield count

    return iterate(work, counts())


def reader(work: Work) -> Reader:
    made = store(work)
    return lambda name: made.get(name).bytes()


def dataset(work: Work, objects: Objects) -> Read:
    return Read(work, objects, reader)


PEER = Peer(
    "obstore",
    "obstore",
    (
        Way("uvloop", get=get_in_tasks, put=put_in_tasks, modules=("obstore", "uvloop"), needs=("uvloop",)),
        Way("asyncio", get=get_plain, modules=("obstore",), concurrency=(16,)),
        Way("threads", get=get_in_threads, put=put_in_threads, list=list_names, modules=("obstore",)),
        Way("DataLoader", dataset=dataset, modules=("torch.utils.data",), needs=("torch",)),
    ),
)
