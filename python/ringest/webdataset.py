"""gs:// and gcs:// for the webdataset package: after `import ringest.webdataset` it reads and writes through ringest.

    import ringest.webdataset, webdataset

    dataset = webdataset.WebDataset("gs://bucket/train-{0000..0009}.tar")
    with webdataset.TarWriter("gs://bucket/train-0010.tar") as writer: ...

register(client) has it use another client than the process's default one.
"""

from __future__ import annotations

import importlib
from typing import IO, Any

from ringest import checkpoint
from ringest._chosen import checked
from ringest._needs import needs
from ringest.client import Client

_client: Client | None = None


def gopen(url: str, mode: str = "rb", bufsize: int = 0, **_options: Any) -> IO[bytes]:
    """What webdataset's gopen calls for them. An object that is written appears when it is closed."""
    if mode[:1] == "r":
        read = checkpoint.open(url, "rb", client=_client)
        read.raw.counting = None  # it is no checkpoint
        return read
    if mode[:1] == "w":
        written = checkpoint.open(url, "wb", client=_client)
        written.counting = None
        return written
    raise ValueError(f"{url}: mode must be 'rb' or 'wb', got {mode!r}")


def register(client: Client | None = None) -> None:
    """Makes webdataset open gs:// by us, with this client."""
    global _client
    _client = checked(client)
    with needs(__name__):
        schemes = importlib.import_module("webdataset.gopen").gopen_schemes
    schemes["gs"] = schemes["gcs"] = gopen


register()
