"""pyarrow's tests of filesystems: ours by its FSSpecHandler, and its own client, in C++, against the emulator."""

import os

import fsspec
import pyarrow.parquet
import pytest
from pyarrow.fs import FSSpecHandler, PyFileSystem
from pyarrow.tests import test_fs
from pyarrow.tests.test_fs import *  # noqa: F403

pytest_plugins = ["pyarrow.tests.conftest"]


@pytest.fixture(scope="session", autouse=True)
def testbench(tmp_path_factory):
    """What it starts as Google's testbench is the emulator."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "storage-testbench"
    script.write_text(
        "#!/bin/sh\n"
        f'exec "{os.environ["RINGEST_PROGRAM"]}" emulate --plain --threads 1 --listen "127.0.0.1:$2" >/dev/null\n'
    )
    script.chmod(0o755)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


@pytest.fixture
def ringest_filesystem(ringest_fs, bucket):
    yield {
        "fs": PyFileSystem(FSSpecHandler(ringest_fs)),
        "pathfn": f"{bucket}/".__add__,
        "allow_move_dir": True,
        "allow_append_to_file": False,
    }
    ringest_fs.rm(bucket, recursive=True) if ringest_fs.find(bucket) else None


@pytest.fixture(
    params=[
        pytest.param("ringest_filesystem", id="ringest.fs"),
        pytest.param("gcsfs", id="GcsFileSystem", marks=pytest.mark.gcs),
    ]
)
def filesystem_config(request):
    return request.getfixturevalue(request.param)


# Of those that take no filesystem, only these are of Cloud Storage.
for _name in [name for name in dir(test_fs) if name.startswith("test_")]:
    _code = getattr(test_fs, _name).__code__
    _arguments = _code.co_varnames[: _code.co_argcount]
    if not {"fs", "filesystem_config", "gcsfs", "gcs_server"} & set(_arguments) and "gcs" not in _name:
        del globals()[_name]


def test_parquet_goes_by_ringest_where_it_is_told_to(ringest_fs, bucket, client):
    """The lines of docs/FSSPEC.md."""
    pandas = pytest.importorskip("pandas")
    table = pyarrow.table({"a": [1, 2, 3]})
    ways = (
        lambda: pyarrow.parquet.read_table(f"{bucket}/table.parquet", filesystem=ringest_fs),
        lambda: pyarrow.parquet.read_table(f"fsspec+gs://{bucket}/table.parquet"),
        lambda: pyarrow.Table.from_pandas(pandas.read_parquet(f"gs://{bucket}/table.parquet", filesystem=ringest_fs)),
    )
    pyarrow.parquet.write_table(table, f"{bucket}/table.parquet", filesystem=ringest_fs)
    for way in ways:
        before = client.stats()["requests"]
        assert way()["a"].to_pylist() == [1, 2, 3]
        assert client.stats()["requests"] > before
    pandas.DataFrame({"a": [1, 2]}).to_csv(f"gs://{bucket}/table.csv", index=False)
    assert ringest_fs.cat(f"{bucket}/table.csv") == b"a\n1\n2\n"
    assert pandas.read_csv(f"gs://{bucket}/table.csv")["a"].tolist() == [1, 2]
    with fsspec.open(f"gs://{bucket}/table.csv", "rb") as file:
        assert pandas.read_csv(file)["a"].tolist() == [1, 2]
