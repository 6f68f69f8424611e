"""Hugging Face datasets: what it loads, streams, resumes and saves at gs://, by ringest.fs; the lines of docs/FSSPEC.md."""

import io
import tarfile

import datasets
import numpy
import pandas
import pyarrow
import pyarrow.parquet
import pytest
import zarr
from PIL import Image

ROWS, FILES = 100, 3
CLASSES, PICTURES = 2, 5


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    """Nothing of it is kept, and nobody is told."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setattr(datasets.config, "DOWNLOADED_DATASETS_PATH", tmp_path / "downloads")
    monkeypatch.setattr(datasets.config, "HF_UPDATE_DOWNLOAD_COUNTS", False, raising=False)
    datasets.disable_progress_bars()


def picture(number, kind):
    """Of a colour that tells its class."""
    values = numpy.random.default_rng(number).integers(0, 60, (8, 8, 3)) + 120 * numpy.eye(3, dtype=int)[kind]
    out = io.BytesIO()
    Image.fromarray(values.astype(numpy.uint8)).save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def rows(ringest_fs, bucket, client):
    for i in range(FILES):
        table = pyarrow.table({"id": range(ROWS * i, ROWS * i + ROWS), "text": [f"text {j}" for j in range(ROWS)]})
        out = io.BytesIO()
        pyarrow.parquet.write_table(table, out, row_group_size=30)
        client.put(f"gs://{bucket}/rows/{i}.parquet", out.getvalue())
    return f"gs://{bucket}/rows/*.parquet"


@pytest.fixture
def pictures(ringest_fs, bucket, client):
    for kind in range(CLASSES):
        for i in range(PICTURES):
            client.put(f"gs://{bucket}/pictures/train/kind-{kind}/{i}.png", picture(i, kind))
    return f"gs://{bucket}/pictures/train/**"


@pytest.fixture
def shard(ringest_fs, bucket, client):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for i in range(PICTURES):
            for extension, data in (("png", picture(i, 0)), ("cls", b"%d" % i)):
                info = tarfile.TarInfo(f"{i:03}.{extension}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    client.put(f"gs://{bucket}/shards/0.tar", out.getvalue())
    return f"gs://{bucket}/shards/*.tar"


def load(kind, files, **options):
    return datasets.load_dataset(kind, data_files=files, split="train", **options)


def test_parquet(rows, client):
    before = client.stats()["requests"]
    assert load("parquet", rows)["id"][:] == list(range(ROWS * FILES))
    assert client.stats()["requests"] >= before + FILES


@pytest.mark.parametrize("taken", [0, 1, 137, 299])
def test_parquet_streams_and_resumes(rows, taken):
    stream = iter(first := load("parquet", rows, streaming=True))
    seen = [next(stream)["id"] for _ in range(taken)]
    state = first.state_dict()
    again = load("parquet", rows, streaming=True)
    again.load_state_dict(state)
    assert seen + [row["id"] for row in again] == list(range(ROWS * FILES))


def test_columns_and_shares_of_a_stream(rows):
    stream = load("parquet", rows, streaming=True, columns=["id"])
    assert next(iter(stream)) == {"id": 0}
    assert stream.num_shards == FILES
    ids = [row["id"] for i in range(FILES) for row in stream.shard(FILES, i)]
    assert sorted(ids) == list(range(ROWS * FILES))


@pytest.mark.parametrize("streaming", [False, True])
def test_imagefolder(pictures, streaming):
    found = list(load("imagefolder", pictures, streaming=streaming))
    assert sorted(row["label"] for row in found) == sorted(list(range(CLASSES)) * PICTURES)
    for row in found:
        assert numpy.asarray(row["image"]).mean((0, 1)).argmax() == row["label"]


@pytest.mark.parametrize("streaming", [False, True])
def test_webdataset(shard, streaming):
    found = list(load("webdataset", shard, streaming=streaming))
    assert [(row["__key__"], row["cls"]) for row in found] == [(f"{i:03}", i) for i in range(PICTURES)]
    assert numpy.asarray(found[2]["png"]).shape == (8, 8, 3)


def test_what_is_saved_is_loaded(ringest_fs, bucket):
    made = datasets.Dataset.from_dict({"a": list(range(1000))})
    made.save_to_disk(f"gs://{bucket}/saved", num_shards=3)
    assert len(ringest_fs.glob(f"gs://{bucket}/saved/*.arrow")) == 3
    assert datasets.load_from_disk(f"gs://{bucket}/saved")["a"][:] == made["a"][:]
    made.to_parquet(f"gs://{bucket}/one.parquet")
    assert load("parquet", f"gs://{bucket}/one.parquet")["a"][:] == made["a"][:]


def test_options_that_it_has_added_to_are_taken_again(rows, bucket, client):
    """It adds what is for the Hub's filesystem to the dict that it is given."""
    options = {"client": client}
    load("parquet", rows, streaming=True, storage_options=options)
    datasets.Dataset.from_dict({"a": [1]}).save_to_disk(f"gs://{bucket}/with", storage_options=options)
    again = load("parquet", rows, streaming=True, storage_options=options)
    assert next(iter(again))["id"] == 0


def test_a_folder_of_a_bucket_is_named_by_its_files(pictures):
    """data_dir= is a path of this machine to it."""
    with pytest.raises(Exception, match="doesn't contain any data files"):
        datasets.load_dataset("imagefolder", data_dir=pictures.removesuffix("/train/**"))


def test_a_classifier_learns_from_a_stream_that_is_left_and_resumed(pictures):
    """Batches of decoded pictures, as food101 has them; training goes on where it stopped."""

    def decode(rows):
        return {"x": [numpy.asarray(image, "float32").mean((0, 1)) / 255 for image in rows["image"]]}

    def stream():
        made = load("imagefolder", pictures, streaming=True).shuffle(seed=1, buffer_size=4)
        return made.map(decode, batched=True, batch_size=4, remove_columns=["image"])

    weights, seen = numpy.zeros((3, CLASSES)), []
    for epoch in range(20):
        epoch_stream = stream()
        epoch_stream.set_epoch(epoch)
        stopped = None
        for part in range(2):
            if stopped is not None:
                epoch_stream = stream()
                epoch_stream.set_epoch(epoch)
                epoch_stream.load_state_dict(stopped)
            for step, batch in enumerate(epoch_stream.batch(2)):
                x, labels = numpy.stack(batch["x"]), numpy.asarray(batch["label"])
                scores = numpy.exp(x @ weights)
                gradient = scores / scores.sum(1, keepdims=True) - numpy.eye(CLASSES)[labels]
                weights -= 0.5 * x.T @ gradient
                seen += labels.tolist()
                if part == 0 and step == 1:
                    stopped = epoch_stream.state_dict()
                    break
    rows = list(stream())
    right = [int((numpy.asarray(row["x"]) @ weights).argmax()) == row["label"] for row in rows]
    assert sum(right) == len(rows) == CLASSES * PICTURES


@pytest.mark.parametrize("case", ["object", "pattern", "bucket", "damaged", "option", "saved"])
def test_wrong_inputs(ringest_fs, bucket, client, case):
    """What is wrong is in the message, or the name of the object that it is about."""
    none = f"gs://{bucket}/none.parquet"
    client.put(f"gs://{bucket}/bad.parquet", b"nonsense" * 100)
    call, kind, text = {
        "object": (lambda: load("parquet", none), FileNotFoundError, none),
        # Version 4.0 of datasets says less.
        "pattern": (lambda: load("parquet", f"gs://{bucket}/none/*"), Exception, r"data.files|generating the dataset"),
        "bucket": (
            lambda: load("parquet", "gs://no-such-bucket/a.parquet"),
            FileNotFoundError,
            "gs://no-such-bucket/a",
        ),
        "damaged": (
            lambda: next(iter(load("parquet", f"gs://{bucket}/bad.parquet", streaming=True))),
            pyarrow.ArrowInvalid,
            "this is not a parquet file",
        ),
        "option": (
            lambda: load("parquet", none, storage_options={"hedgin": True}),
            TypeError,
            "has no argument hedgin .* did you mean hedging",
        ),
        "saved": (lambda: datasets.load_from_disk(f"gs://{bucket}/none"), FileNotFoundError, f"gs://{bucket}/none"),
    }[case]
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("case", ["object", "bucket", "mode", "option"])
def test_wrong_inputs_of_pandas(ringest_fs, bucket, case):
    none, table = f"gs://{bucket}/none.csv", pandas.DataFrame({"a": [1]})
    call, kind, text = {
        "object": (lambda: pandas.read_csv(none), FileNotFoundError, none),
        "bucket": (lambda: table.to_csv("gs://no-such-bucket/a.csv"), FileNotFoundError, "gs://no-such-bucket/a.csv"),
        "mode": (lambda: table.to_csv(none, mode="a"), NotImplementedError, f"{none}: mode is .* not 'ab'"),
        "option": (lambda: pandas.read_csv(none, storage_options={"hedgin": 1}), TypeError, "did you mean hedging"),
    }[case]
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("case", ["array", "bucket", "option", "damaged"])
def test_wrong_inputs_of_zarr(ringest_fs, bucket, client, case):
    client.put(f"gs://{bucket}/bad.zarr/zarr.json", b"nonsense")
    call, kind, text = {
        "array": (lambda: zarr.open(f"gs://{bucket}/none.zarr", mode="r"), FileNotFoundError, f"{bucket}/none.zarr"),
        "bucket": (
            lambda: zarr.open("gs://no-such-bucket/a.zarr", mode="w", shape=(2,), dtype="i4"),
            FileNotFoundError,
            "gs://no-such-bucket/a.zarr",
        ),
        "option": (
            lambda: zarr.open(f"gs://{bucket}/a.zarr", mode="r", storage_options={"hedgin": 1}),
            TypeError,
            "did you mean hedging",
        ),
        "damaged": (lambda: zarr.open(f"gs://{bucket}/bad.zarr", mode="r"), ValueError, "Expecting value"),
    }[case]
    with pytest.raises(kind, match=text):
        call()
