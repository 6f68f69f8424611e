"""gcsfs, the file system of fsspec."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ringest.bench.peers.work import Counted, Objects, Peer, Read, Reader, Way, Work, in_tasks

# Its cost is that of Python, whatever the connections.
CONCURRENCY = (16,)


def made(work: Work, **options: Any) -> Any:
    import gcsfs

    place = {} if work.endpoint is None else {"project": "p", "token": "anon", "endpoint_url": work.endpoint}
    return gcsfs.GCSFileSystem(cache_timeout=0, use_listings_cache=False, skip_instance_cache=True, **options, **place)


async def file_system(work: Work) -> Any:
    import aiohttp

    fs = made(work, asynchronous=True, session_kwargs={"connector": aiohttp.TCPConnector(limit=0)})
    await fs._set_session()
    return fs


def in_fs(work: Work, call: Callable[[Any], Awaitable[int]], loop: str) -> Counted:
    async def opened() -> Callable[[], Awaitable[int]]:
        fs = await file_system(work)
        return lambda: call(fs)

    return in_tasks(work, opened, loop)


def get(work: Work, loop: str = "uvloop") -> Counted:
    async def call(fs: Any) -> int:
        work.check(await fs._cat_file(f"{work.bucket}/{work.next()}"))
        return 1

    return in_fs(work, call, loop)


def get_plain(work: Work) -> Counted:
    return get(work, "asyncio")


def put(work: Work) -> Counted:
    body = bytes(work.size)

    async def call(fs: Any) -> int:
        await fs._pipe_file(f"{work.bucket}/{work.next()}", body)
        return 1

    return in_fs(work, call, "asyncio")


def list_names(work: Work) -> Counted:
    async def call(fs: Any) -> int:
        found = await fs._find(f"{work.bucket}/{work.prefix}")
        work.check_listed(len(found), lambda: (name.removeprefix(f"{work.bucket}/") for name in found))
        return len(found)

    return in_fs(work, call, "asyncio")


def reader(work: Work) -> Reader:
    fs = made(work)
    return lambda name: fs.cat_file(f"{work.bucket}/{name}")


def dataset(work: Work, objects: Objects) -> Read:
    return Read(work, objects, reader)


PEER = Peer(
    "gcsfs",
    "gcsfs",
    (
        Way("uvloop", get=get, modules=("gcsfs", "uvloop"), needs=("uvloop",), concurrency=CONCURRENCY),
        Way("DataLoader", dataset=dataset, modules=("torch.utils.data",), needs=("torch",)),
        Way("asyncio", get=get_plain, put=put, list=list_names, modules=("gcsfs",), concurrency=CONCURRENCY),
    ),
)
