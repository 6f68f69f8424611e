"""The system tests of google-cloud-storage, as a plugin of pytest: they find the emulator instead of the service."""

import os
import sys
import time
import types

import pytest

from support import DONE, Emulator

# What the service takes a while to do is done at once; who waits for a time of its own, waits.
_WAITS = ("await_config_changes_propagate",)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    emulator = early_config.emulator = Emulator().__enter__()
    for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        os.environ[name] = emulator.ca
    os.environ["STORAGE_EMULATOR_HOST"] = emulator.endpoint
    os.environ["GOOGLE_CLOUD_PROJECT"] = "suite-project"
    os.environ["GOOGLE_CLOUD_TESTS_USER_PROJECT"] = "suite-project"
    # Of another package, and imported for a service that is not here.
    kms = types.ModuleType("google.cloud.kms")
    sys.modules[kms.__name__] = kms
    import google.cloud

    google.cloud.kms = kms
    sys.path.insert(0, os.path.join(os.environ["RINGEST_SUITE_SOURCES"], "google-cloud-storage"))
    from tests.system import _helpers

    # Tests are left out of emulators that lack things; of ours expected.txt says what it lacks.
    _helpers.is_api_endpoint_override = False
    for name in _WAITS:
        setattr(_helpers, name, lambda sec=0: time.sleep(sec))


def pytest_sessionfinish(session):
    """It has nothing to say, and sanitizers have not either."""
    emulator = session.config.emulator
    ended = (emulator.end(), emulator.stderr())
    if ended != (DONE, ""):
        print(f"the emulator ended so: {ended}")
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def pytest_unconfigure(config):
    config.emulator.__exit__()
