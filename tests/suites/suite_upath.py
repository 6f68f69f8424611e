"""universal_pathlib's tests, with its class of gs:// over ours."""

import os
import pathlib

import fsspec
import pytest
import upath

upath.__path__.append(os.path.join(os.environ["RINGEST_SUITE_SOURCES"], "universal_pathlib", "upath"))

from upath import UPath  # noqa: E402
from upath.implementations.cloud import GCSPath  # noqa: E402
from upath.tests.cases import BaseTests  # noqa: E402


@pytest.fixture
def local_testdir(tmp_path):
    """The files that the tests are about, as its conftest makes them; that wants clients of every kind of server."""
    (tmp_path / "folder1").mkdir()
    for name, text in (("folder1/file1.txt", "file1.txt"), ("folder1/file2.txt", "file2.txt")):
        (tmp_path / name).write_text(text)
    for name in ("file1.txt", "file2.txt"):
        (tmp_path / name).write_text("hello world")
    return str(tmp_path)


@pytest.fixture
def clear_fsspec_memory_cache():
    memory = fsspec.get_filesystem_class("memory")
    before = dict(memory.store), list(memory.pseudo_dirs)
    yield
    memory.store.clear()
    memory.store.update(before[0])
    memory.pseudo_dirs[:] = before[1]


@pytest.fixture
def pathlib_base(local_testdir):
    return pathlib.Path(local_testdir)


class TestGCSPath(BaseTests):
    SUPPORTS_EMPTY_DIRS = False

    @pytest.fixture(autouse=True)
    def path(self, ringest_fs, bucket, local_testdir):
        ringest_fs.put(f"{local_testdir}/", bucket, recursive=True)
        self.path = UPath(f"gs://{bucket}")

    def test_is_correct_class(self):
        assert isinstance(self.path, GCSPath)


def test_the_lines_of_the_documentation(ringest_fs, bucket, client):
    """Those of docs/FSSPEC.md."""
    (UPath(f"gs://{bucket}") / "run" / "notes.txt").write_text("loss 0.1")
    assert bytes(client.get(f"gs://{bucket}/run/notes.txt")) == b"loss 0.1"
    assert [path.name for path in UPath(f"gs://{bucket}/run").glob("*.txt")] == ["notes.txt"]
