"""Clients of others, and ringest's, for `ringest bench compare`: one module for each, with a `PEER` (ringest.bench.peers.work).

A client runs in a process of its own (`ringest.bench.peers.__main__`), and only there its packages are imported."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os

from ringest.bench.peers.work import Peer, Way

OURS = "ringest"
# Files of versions: the second is of what is installed without dependencies.
PINS = ("requirements.txt", "alone.txt")
# Of an error that a row keeps; some say a whole answer.
ERROR_CHARACTERS = 300
# The modules, in the order of tables; a result compares all with the first.
_MODULES = (
    "ours",
    "obstore",
    "opendal",
    "tensorstore",
    "gcsfs",
    "google_cloud_storage",
    "s3dlio",
    "dataflux",
    "litdata",
)


# A comparison that names them has a row that says why.
_UNABLE = (
    Peer("webdataset", "webdataset", (Way(""),), "reads samples out of tar shards, and no objects"),
    Peer(
        "mosaicml-streaming",
        "mosaicml-streaming",
        (Way(""),),
        "reads gs:// from Google's own endpoint only, and only shards that it wrote itself",
    ),
)


class PeerError(ValueError):
    """A name that is no client, or a file that has none."""


def known() -> dict[str, Peer]:
    peers = [importlib.import_module(f"{__name__}.{module}").PEER for module in _MODULES]
    return {peer.name: peer for peer in [*peers, *_UNABLE]}


def _of_file(path: str) -> Peer:
    spec = importlib.util.spec_from_file_location("ringest_bench_peer", path)
    if spec is None or spec.loader is None:
        raise PeerError(f"{path}: no file of Python")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PeerError(f"{path}: {type(error).__name__}: {error}") from error
    peer = getattr(module, "PEER", None)
    if not isinstance(peer, Peer):
        raise PeerError(f"{path}: has no PEER, a ringest.bench.peers.work.Peer")
    return peer


def find(name: str) -> Peer:
    """By its name, or the path of a file NAME.py with an adapter of the user's own."""
    if name.endswith(".py"):
        return _of_file(os.path.abspath(name))
    peers = known()
    if name not in peers:
        raise PeerError(f"there is no client {name}; there are {', '.join(peers)}, and files NAME.py")
    return peers[name]


def missing(peer: Peer, way: Way) -> list[str]:
    """The distributions that it needs and that are not installed."""
    wanted = [*([peer.distribution] if peer.distribution else []), *way.needs]
    return [name for name in wanted if installed(name) is None]


def installed(distribution: str) -> str | None:
    """Its version."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def pins() -> dict[str, str]:
    """{distribution: what pip is told}, of the versions that were tried."""
    found: dict[str, str] = {}
    for name in PINS:
        with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
            lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
        found |= {line.partition("==")[0]: line for line in lines}
    return found
