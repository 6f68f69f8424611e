"""s3dlio, whose wheels speak the S3 dialect of the XML API."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ringest.bench.peers.work import Counted, Peer, Way, Work, iterate


def get_many(work: Work) -> Counted:
    os.environ.update(AWS_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true", S3DLIO_ENABLE_RANGE_OPTIMIZATION="0")
    os.environ["AWS_ENDPOINT_URL"] = work.endpoint or "https://storage.googleapis.com"
    if work.endpoint is not None:
        # It signs, and nobody looks at the signature.
        os.environ.update(AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none")
    if work.ca is not None:
        os.environ["AWS_CA_BUNDLE"] = work.ca
    import s3dlio

    def counts() -> Iterator[int]:
        while True:
            uris = [f"s3://{work.bucket}/{work.next()}" for _ in range(work.batch)]
            for found in s3dlio.get_many(uris, work.concurrency):
                work.check(memoryview(found[1] if isinstance(found, tuple) else found))
            yield len(uris)

    return iterate(work, counts())


PEER = Peer("s3dlio", "s3dlio", (Way("get_many", get=get_many),))
