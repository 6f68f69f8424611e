"""The tests of torch_checkpointing with ours in place of its local storage, as a plugin of pytest.

They make and look at files themselves. So the bucket is a folder of the emulator's, in which their temporary folders lie:
what ours writes is a file there. What they write or remove is made known to the emulator before ours is asked for it."""

import contextlib
import os
import pathlib
import tempfile

import pytest

from support import DONE, Emulator

BUCKET = "suite"
_ASKED = ("stream_read", "read", "delete", "rmdir", "rename", "ls", "exists", "getsize", "isdir")
# Of the buckets. It goes when the process ends: others have temporary files in it until then.
_folder = tempfile.TemporaryDirectory()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    root = os.path.realpath(_folder.name)
    emulator = early_config.emulator = Emulator("--root", root, "--bucket", BUCKET).__enter__()
    os.environ["SSL_CERT_FILE"] = emulator.ca
    os.environ["STORAGE_EMULATOR_HOST"] = emulator.endpoint
    tempfile.tempdir = os.path.join(root, BUCKET, "tmp")
    os.mkdir(tempfile.tempdir)
    os.environ["TMPDIR"] = tempfile.tempdir
    _put_in_place(root)


def pytest_configure(config):
    config.option.basetemp = os.path.join(tempfile.tempdir, "pytest")


def pytest_sessionfinish(session):
    emulator = session.config.emulator
    ended = (emulator.end(), emulator.stderr())
    if ended != (DONE, ""):
        print(f"the emulator ended so: {ended}")
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def pytest_unconfigure(config):
    config.emulator.__exit__()


def _put_in_place(root):
    from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig

    import ringest
    import ringest.torch_checkpointing as ours

    uri_of = ours._uri
    inside = os.path.join(root, BUCKET)

    def uri(path):
        text = os.fspath(path)
        return uri_of(f"gs://{text[len(root) + 1 :]}" if text.startswith(inside + "/") else text)

    class Storage(ours.Storage):
        """Told of files that tests have made, changed and removed."""

        def tell(self, path):
            place = os.fspath(path)
            files = [place] if os.path.isfile(place) else []
            files += [os.path.join(folder, name) for folder, _, names in os.walk(place) for name in names]
            known = {found for found, _ in self._below(pathlib.Path(place).parent)}
            for file in files:
                data = pathlib.Path(file).read_bytes()
                if uri(file) not in known or self._client.get(uri(file)) != data:
                    self._client.put(uri(file), data)
            for found in known:
                if (found + "/").startswith(uri(path) + "/") and not os.path.exists(os.path.join(root, found[5:])):
                    self._client.delete(found, missing_ok=True)

    def told(name):
        method = getattr(ours.Storage, name)

        def call(self, path, *arguments, **keywords):
            if os.fspath(path).startswith(inside + "/"):
                with contextlib.suppress(ringest.NotFoundError):
                    self.tell(path)
            return method(self, path, *arguments, **keywords)

        return call

    ours._uri = uri
    for name in _ASKED:
        setattr(Storage, name, told(name))
    LocalFileSystemStorageConfig.create_storage = lambda self: Storage()
