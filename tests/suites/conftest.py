"""What the suites share: an emulator, and ringest.fs in it."""

import itertools
import os

import pytest

from support import DONE, Emulator

_numbers = itertools.count()


@pytest.fixture(scope="session")
def emulator():
    with Emulator() as server:
        for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
            os.environ[name] = server.ca
        yield server
        assert (server.end(), server.stderr()) == (DONE, "")


@pytest.fixture(scope="session")
def client(emulator):
    import ringest

    with ringest.Client(emulator.endpoint, emulator.ca) as client:
        yield client


@pytest.fixture
def bucket(emulator):
    """The name of one of its own, which is there and empty."""
    name = f"suite-{next(_numbers)}"
    emulator.make_bucket(name)
    return name


@pytest.fixture
def ringest_fs(client):
    """gs:// is ours while it lasts."""
    import ringest.fs

    ringest.fs.register(client)
    return ringest.fs.FileSystem(client=client)
