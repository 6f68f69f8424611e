"""`ringest bench get`, the library without Python, as a client of `ringest bench compare`."""

from __future__ import annotations

import json
import os
import subprocess

from ringest.bench.peers import ours
from ringest.bench.peers.work import Counted, Peer, Way, Work

# Others' variables than RINGEST_..., which clients do not get, name the program.
PROGRAM = "PERF_PROGRAM"


def get(work: Work) -> Counted:
    with ours.client(work) as client:
        work.check(client.get(f"gs://{work.bucket}/{work.next()}"))
    command = [os.environ[PROGRAM], "bench", "get", f"gs://{work.bucket}/{work.next()}", "--threads", "1", "--json"]
    command += ["--endpoint", work.endpoint or "", *(["--ca", work.ca] if work.ca else [])]
    command += ["--seconds", str(work.warm_up + work.seconds), "--concurrency", str(work.concurrency)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    told = json.loads(done.stdout)
    # It counts from when its connections are open, and says only the sum.
    return Counted(told["requests"], told["seconds"], told["requests"] * told["cpu_us_per_request"] / 1e6, 0.0)


PEER = Peer("ringest bench", None, (Way("get", get=get),))
