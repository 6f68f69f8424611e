"""Checkpoints that one of two packages saves are loaded by the other; prints which were the same, as JSON.

connector_checkpoint.py PACKAGE PACKAGE    dataflux_pytorch and ringest.dataflux; the emulator by environment"""

import importlib
import json
import pathlib
import sys
import warnings

import torch
import torch.distributed.checkpoint as dcp

BUCKET = "data"


def state():
    generator = torch.Generator().manual_seed(5)
    return {
        "weight": torch.randn(300, 40, generator=generator),
        "half": torch.randn(7, generator=generator).to(torch.bfloat16),
        "none": torch.zeros(0, 3),
        "step": torch.tensor(7),
    }


def is_same(found):
    return all(torch.equal(found[name], tensor) for name, tensor in state().items())


def patch(module):
    """The connector's writer closes its stream once itself, and PyTorch since 2.6 too: its second close() would
    upload an empty object."""
    buffer = getattr(module, "DatafluxCheckpointBuffer", None)
    if buffer is None:
        return
    close = buffer.close
    buffer.close = lambda self: None if self.closed else close(self)


def places(prefix):
    """Paths of Lightning's checkpoints, and a folder of shards."""
    place = f"gs://{BUCKET}/{prefix}"
    return (f"{place}/a.ckpt", pathlib.Path(f"{place}/b.ckpt")), f"{place}/shards"


def save(package, prefix):
    files, lightning = package
    paths, folder = places(prefix)
    with files.DatafluxCheckpoint("project", BUCKET).writer(prefix + "/file.pt") as file:
        torch.save(state(), file)
    for path in paths:
        lightning.DatafluxLightningCheckpoint("project").save_checkpoint(state(), path)
    dcp.save(state(), storage_writer=lightning.GCSDistributedWriter(folder, "project"))


def load(package, prefix):
    files, lightning = package
    paths, folder = places(prefix)
    with files.DatafluxCheckpoint("project", BUCKET).reader(prefix + "/file.pt") as file:
        seen = {"file": is_same(torch.load(file))}
    plugin = lightning.DatafluxLightningCheckpoint("project")
    for path in paths:
        seen[str(path)[-6:]] = is_same(plugin.load_checkpoint(path))
        plugin.remove_checkpoint(path)
    loaded = {name: torch.zeros_like(tensor) for name, tensor in state().items()}
    dcp.load(loaded, storage_reader=lightning.GCSDistributedReader(folder, "project"))
    seen["shards"] = is_same(loaded)
    return seen


def main(*names):
    warnings.simplefilter("ignore")
    packages = {}
    for name in names:
        modules = [importlib.import_module(f"{name}.{each}") for each in ("dataflux_checkpoint", "lightning")]
        patch(modules[0])
        packages[name] = modules
    seen = {}
    for saving, loading in (names, names[::-1]):
        save(packages[saving], saving)
        seen[f"{loading} loads what {saving} saved"] = load(packages[loading], saving)
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
