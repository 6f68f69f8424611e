"""s3dlio, whose wheels speak the S3 dialect of the XML API."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ringest.bench.peers.work import Counted, Peer, Way, Work, in_threads, iterate


def begin(work: Work) -> Any:
    """The module, which reads these when it is imported."""
    os.environ.update(AWS_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true", S3DLIO_ENABLE_RANGE_OPTIMIZATION="0")
    os.environ["AWS_ENDPOINT_URL"] = work.endpoint or "https://storage.googleapis.com"
    if work.endpoint is not None:
        # It signs, and nobody looks at the signature.
        os.environ.update(AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none")
    if work.ca is not None:
        os.environ["AWS_CA_BUNDLE"] = work.ca
    import s3dlio

    return s3dlio


def get_in_threads(work: Work) -> Counted:
    s3dlio = begin(work)

    def get() -> int:
        work.check(memoryview(s3dlio.get(f"s3://{work.bucket}/{work.next()}")))
        return 1

    return in_threads(work, get)


def get_many(work: Work) -> Counted:
    s3dlio = begin(work)

    def counts() -> Iterator[int]:
        while True:
            uris = [f"s3://{work.bucket}/{work.next()}" for _ in range(work.batch)]
            for found in s3dlio.get_many(uris, work.concurrency):
                work.check(memoryview(found[1] if isinstance(found, tuple) else found))
            yield len(uris)

    return iterate(work, counts())


PEER = Peer("s3dlio", "s3dlio", (Way("get_many", get=get_many), Way("threads", get=get_in_threads)))
