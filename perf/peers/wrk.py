"""wrk as a client of `ringest bench compare`: it throws the bytes away, and shows what there is to reach."""

from __future__ import annotations

import argparse
import os
import resource
import ssl
import sys
import urllib.request

from ringest.bench.peers.work import Counted, Peer, Way, Work

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import compare as server

# wrk knows whole seconds only.
START_S = 1


def _run(url: str, seconds: int, work: Work) -> tuple[float, float, float]:
    """Requests, and CPU seconds of user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    requests, read, _ = server.run_wrk(url, seconds, argparse.Namespace(connections=work.concurrency))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if work.size >= server.MIB:
        # What had arrived of an answer when the time was over counts for its part.
        requests = read / work.size
    return requests, after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime


def get(work: Work) -> Counted:
    url = f"{work.endpoint}{server.object_path(work.next())}"
    tls = ssl.create_default_context(cafile=work.ca) if work.ca else None
    with urllib.request.urlopen(url, context=tls) as answer:
        work.check(answer.read())
    # Start and handshakes are not counted.
    _, start_user, start_system = _run(f"{work.endpoint}{server.NEVER}", START_S, work)
    seconds = max(1, round(work.seconds))
    requests, user, system = _run(url, seconds, work)
    return Counted(round(requests), seconds, max(0.0, user - start_user), max(0.0, system - start_system))


PEER = Peer("wrk", None, (Way("", get=get),))
