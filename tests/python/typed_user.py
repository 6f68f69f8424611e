"""What users write, for the checker of types: test_types runs mypy on it and imports it, but calls nothing of it."""

import pickle
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, assert_type

import torch
import torch.distributed.checkpoint as dcp

import ringest
import ringest.checkpoint
import ringest.safetensors
from ringest.checkpoint import CheckpointError, ReadFile, WriteFile
from ringest.dcp import StorageReader, StorageWriter

URI = "gs://bucket/object"


def objects(client: ringest.Client, title: str) -> int:
    assert_type(client.get(URI), ringest.Buffer)
    data = client.get(URI, offset=5, length=10)
    assert_type(data[0], int)
    assert_type(data[1:3], memoryview)
    assert_type(len(data), int)
    text = bytes(data).decode() + str(memoryview(data), "utf-8")
    torch.frombuffer(data, dtype=torch.uint8)
    assert_type(torch.from_dlpack(data), torch.Tensor)
    assert_type(client.get_ranges(URI, [(0, 5), (7, 1)], gap=10), list[ringest.Buffer])
    assert_type(client.get_into(URI, [(0, bytearray(5))]), int)
    assert_type(client.get_into(URI, [(0, bytearray(5))], checksums=True), tuple[int, list[int]])
    assert_type(client.put(URI, data, if_generation_match=0, content_type="text/plain", exclusive=True), int)
    assert_type(client.put(URI, text.encode()), int)
    assert_type(client.put_many([(URI, b"x"), (URI, data)]), list[int])
    assert_type(client.stat(URI), dict[str, Any])
    assert_type(client.copy(URI, URI + "2"), dict[str, Any])
    assert_type(client.exists(URI), bool)
    assert_type(client.sign_url(URI, method="PUT", expires=60, headers={"Content-Type": "a/b"}), str)
    assert_type(client.put(URI, Path("file")), int)
    assert_type(client.update(URI, metadata={"a": None}, if_metageneration_match=3), dict[str, Any])
    assert_type(client.compose(URI, [URI, (URI, 7)], if_generation_match=0), dict[str, Any])
    assert_type((data.to_bytes(), data.decode()), tuple[bytes, str])
    client.delete(URI, generation=7, exclusive=True)
    client.delete([URI, (URI + "2", 7)], missing_ok=True)
    client.delete(uri for uri in (URI,))
    with client.writer(URI, part_size="16MiB") as writer:
        assert_type(writer.write(data), int)
        assert_type(writer.finish(), dict[str, int])
    return ringest.Client("http://localhost:80", memory="1GiB", credentials=Path("key.json"), hedging=False).memory


def many(client: ringest.Client, uris: Iterator[str], title: str) -> None:
    for items in client.get_many(uris, ordered=True, batch=10):
        assert_type(items, list[ringest.Item])
        for item in items:
            assert_type(item, ringest.Item)
            assert_type(item.error, Exception | None)
            assert_type(item.data, ringest.Buffer)
            assert_type((item.uri, item.index, item.generation, item.is_gzip), tuple[str, int, int, bool])
    many = client.get_many([URI])
    assert_type(next(many), list[ringest.Item])
    many.close()
    for items in client.get_many([URI], progress=title):
        assert_type(items, list[ringest.Item])


def listed(client: ringest.Client) -> None:
    found = client.list("gs://bucket/", progress=True)
    assert_type(found, ringest.Objects)
    for name, size, generation in found:
        assert_type((name, size, generation), tuple[str, int, int])
    assert_type(found[0], tuple[str, int, int])
    found.save(Path("manifest"))
    client.list("gs://bucket/", glob="**.jpg", start_offset="a", end_offset="b", versions=True)
    inside, folders = client.list_folder("gs://bucket/")
    assert_type(inside, ringest.Objects)
    assert_type(folders, Sequence[str])
    ringest.Objects(manifest="manifest")
    ringest.Objects("bucket", [("name", 5, 0)])


async def awaited(client: ringest.Client) -> None:
    async with client:
        assert_type(await client.aget(URI), ringest.Buffer)
        assert_type(await client.aget_ranges(URI, [(0, 1)]), list[ringest.Buffer])
        assert_type(await client.aput(URI, b"x"), int)
        assert_type(await client.astat(URI), dict[str, Any])
        assert_type(await client.alist(URI), ringest.Objects)
        assert_type(await client.aexists(URI), bool)
        assert_type(await client.aput_many([(URI, b"x")]), list[int])
        assert_type(await client.aupdate(URI, content_type="a/b"), dict[str, Any])
        assert_type(await client.acompose(URI, [URI]), dict[str, Any])
        await client.aget_into(URI, [(0, bytearray(5))])
        async with client.awriter(URI, part_size="16MiB") as writer:
            assert_type(await writer.write(b"x"), int)
        assert_type(await writer.finish(), dict[str, Any])
        async with await ringest.checkpoint.aopen(URI, client=client, generation=5) as file:
            assert_type(await file.read(10, offset=5), bytearray)
            assert_type(await file.readinto(bytearray(5)), int)
            assert_type((file.size, file.generation), tuple[int, int])
        await client.adelete([URI], missing_ok=True)
        batches = client.aget_many([URI])
        assert_type(batches, AsyncIterator[list[ringest.Item]])
        async for items in batches:
            assert_type(items[0].data, ringest.Buffer)
        async for batch in ringest.IterableDataset("gs://bucket/train/", batch_size=64, client=client):
            print(len(batch))
        it = aiter(ringest.TarDataset("gs://bucket/train-{0..9}.tar", client=client))
        assert_type(await anext(it), Any)
        await it.aclose()


def errors(client: ringest.Client) -> str:
    try:
        client.get(URI)
    except (ringest.NotFoundError, ringest.PreconditionError, ringest.ChecksumError) as error:
        assert_type(error.uri, str)
        assert_type((error.status, error.detail), tuple[str, str])
        assert_type((error.http_status, error.os_error), tuple[int, int])
        missing: FileNotFoundError | ringest.Error = error
        return str(missing)
    except ringest.UnavailableError as error:
        lost: ConnectionError = error
        return str(lost)
    except ringest.Error as error:
        return error.detail
    except CheckpointError as error:
        damaged: ValueError = error
        return str(damaged)
    return ""


def take_size(item: ringest.Item) -> int:
    return len(item.data)


def take_type(item: ringest.Item[ringest.Buffer]) -> type:
    return type(item.data)


def take_class(sample: dict[str, Any]) -> int:
    return int(sample["cls"])


def leave_out(item: ringest.Item[Any], error: Exception) -> Any:
    return ringest.SKIP if isinstance(error, ringest.TransformError) else item.uri


def datasets(client: ringest.Client) -> None:
    dataset = ringest.IterableDataset(
        "gs://bucket/train/", transform=take_size, batch_size=64, shuffle=True, prefetch="64MiB", client=client
    )
    for batch in torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2):
        print(batch)
    dataset.load_state_dict(dataset.state_dict())
    dataset.load_state_dict([dataset.state_dict(), {"epoch": 0, "state": None}])
    assert_type(dataset.state_dict(all_ranks=True), dict[Any, Any])
    assert_type(ringest.gather_state({}), dict[str, Any])
    assert_type(len(dataset), int)
    assert_type(dataset.objects[0].name, Any)
    ringest.IterableDataset("gs://bucket/", manifest=["a", ("b", 5, 0)], transform=lambda item: bytes(item.data))
    by_index = ringest.MapDataset("gs://bucket/train/", take_size, manifest=Path("manifest"), on_error="skip")
    assert_type(by_index.skipped, int)
    print(by_index[0], torch.utils.data.DataLoader(by_index, batch_size=64))
    shards = ringest.TarDataset(
        "gs://bucket/{00..99}.tar", transform=take_class, index=Path("index"), batch_size=8, on_error=leave_out
    )
    assert_type(shards.skipped, int)
    assert_type(shards.index, ringest.TarIndex)
    assert_type(shards.shards[0].name, Any)
    ringest.TarMapDataset(["gs://bucket/1.tar", "gs://bucket/2.tar"], take_class)
    ringest.TarMapDataset(shards.index)


def checkpoints(client: ringest.Client, model: torch.nn.Module, mode: str) -> None:
    assert_type(ringest.checkpoint.save(model.state_dict(), URI, part_size="16MiB"), dict[str, int])
    with ringest.checkpoint.AsyncSaver(client=client, copies=2, pace="100MiB") as saver:
        saving = saver.save(model.state_dict(), URI, if_generation_match=0)
        assert_type(saving, ringest.checkpoint.Saving)
        assert_type(saving.result(timeout=10.0), dict[str, int])
    model.load_state_dict(ringest.checkpoint.load(URI, map_location="cpu", client=client))
    with ringest.checkpoint.open(URI) as source:
        assert_type(source, ReadFile)
        assert_type((source.size, source.generation), tuple[int, int])
        torch.load(source)
    with ringest.checkpoint.open(URI, "rb", generation=5) as source:
        pickle.load(source)
    with ringest.checkpoint.open(URI, "wb", if_generation_match=0) as target:
        assert_type(target, WriteFile)
        torch.save(model.state_dict(), target)
        pickle.dump(model, target)
        assert_type(target.name, str)
    assert_type(target.result, dict[str, int] | None)
    assert_type(ringest.checkpoint.open(URI, mode), ReadFile | WriteFile)
    ringest.checkpoint.load(URI, generation=5, verify=False)
    tensors = ringest.safetensors.load_file(URI, "cpu", generation=5, verify=True, process_group=None)
    assert_type(tensors, dict[str, torch.Tensor])
    assert_type(ringest.safetensors.save_file(tensors, URI), int)
    with ringest.safetensors.safe_open(URI, "pt") as file:
        assert_type(file.keys(), list[str])
        assert_type(file.get_slice("weight")[:5, ...], torch.Tensor)
    with ringest.safetensors.safe_open(URI, process_group=torch.distributed.group.WORLD) as file:
        assert_type(file.get_tensor("weight"), torch.Tensor)
    dcp.save(model.state_dict(), storage_writer=StorageWriter(URI, client=client))
    dcp.load(model.state_dict(), storage_reader=StorageReader(URI))


# What is wrong is told: an ignored error that is none is an error, too.
def mistakes(client: ringest.Client) -> None:
    client.get(5)  # type: ignore[arg-type]
    client.get(URI, offset="5")  # type: ignore[arg-type]
    client.got(URI)  # type: ignore[attr-defined]
    for item in client.get_many([URI]):
        item.data  # type: ignore[attr-defined]
    ringest.IterableDataset(URI, transform=take_class)  # type: ignore[arg-type]
    ringest.MapDataset(5)  # type: ignore[arg-type]
    ringest.TarDataset(URI, transform=take_size)  # type: ignore[arg-type]
    ringest.checkpoint.open(URI, "rb").result  # type: ignore[attr-defined]
    ringest.checkpoint.open(URI, "wb").generation  # type: ignore[attr-defined]
