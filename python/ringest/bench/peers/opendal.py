"""OpenDAL, which speaks the JSON API. It checks no checksum."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from ringest.bench.peers.work import Counted, Peer, Way, Work, in_tasks, in_threads, iterate


def operator(work: Work, kind: str) -> Any:
    import opendal

    settings = {"bucket": work.bucket, "root": "/"}
    if work.endpoint is not None:
        settings |= {
            "endpoint": work.endpoint,
            "skip_signature": "true",
            "allow_anonymous": "true",
            "disable_vm_metadata": "true",
            "disable_config_load": "true",
        }
    return getattr(opendal, kind)("gcs", **settings)


def get_in_tasks(work: Work) -> Counted:
    async def opened() -> Callable[[], Awaitable[int]]:
        made = operator(work, "AsyncOperator")

        async def get() -> int:
            work.check(await made.read(work.next()))
            return 1

        return get

    return in_tasks(work, opened)


def put_in_tasks(work: Work) -> Counted:
    body = bytes(work.size)

    async def opened() -> Callable[[], Awaitable[int]]:
        made = operator(work, "AsyncOperator")

        async def put() -> int:
            await made.write(work.next(), body)
            return 1

        return put

    return in_tasks(work, opened)


def get_in_threads(work: Work) -> Counted:
    made = operator(work, "Operator")

    def get() -> int:
        work.check(made.read(work.next()))
        return 1

    return in_threads(work, get)


def list_names(work: Work) -> Counted:
    made = operator(work, "Operator")

    def counts() -> Iterator[int]:
        while True:
            names = [path for path in (entry.path for entry in made.list(work.prefix)) if not path.endswith("/")]
            work.check_listed(len(names), lambda: names)
            yield len(names)

    return iterate(work, counts())


PEER = Peer(
    "opendal",
    "opendal",
    (
        Way(
            "uvloop",
            get=get_in_tasks,
            put=put_in_tasks,
            list=list_names,
            modules=("opendal", "uvloop"),
            needs=("uvloop",),
        ),
        Way("threads", get=get_in_threads, modules=("opendal",)),
    ),
)
