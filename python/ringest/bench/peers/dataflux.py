"""Google's connector for PyTorch, gcs-torch-dataflux."""

from __future__ import annotations

import importlib
from typing import Any

from ringest.bench.peers import google_cloud_storage
from ringest.bench.peers.work import Counted, Objects, Peer, Way, Work, in_loader

MODULES = ("dataflux_pytorch.dataflux_mapstyle_dataset", "torch.utils.data")
NEEDS = ("google-cloud-storage", "torch")


def dataset_of(work: Work, objects: Objects, package: str, storage_client: Any, threads: int = 1) -> Any:
    """Of the package, or of one with the same interface. It lists when it is made, which is not what is measured: one
    name."""
    module = importlib.import_module(package + ".dataflux_mapstyle_dataset")
    config = module.Config(prefix=objects[0][0], num_processes=1, threads_per_process=threads, disable_compose=True)
    dataset = module.DataFluxMapStyleDataset("p", work.bucket, config, storage_client=storage_client)
    dataset.objects = objects
    return dataset


def dataset(work: Work, objects: Objects) -> Any:
    return dataset_of(work, objects, "dataflux_pytorch", google_cloud_storage.client(work))


def map_style(work: Work, package: str, storage_client: Any, threads: int = 1) -> Counted:
    dataset = dataset_of(work, [(name, work.size) for name in work.epoch()], package, storage_client, threads)
    return in_loader(work, dataset, batch_size=work.batch, collate_fn=list)


def one_at_a_time(work: Work) -> Counted:
    return map_style(work, "dataflux_pytorch", google_cloud_storage.client(work))


def in_its_threads(work: Work) -> Counted:
    return map_style(work, "dataflux_pytorch", google_cloud_storage.client(work), work.concurrency)


PEER = Peer(
    "dataflux",
    "gcs-torch-dataflux",
    (
        Way("map-style", load=one_at_a_time, dataset=dataset, modules=MODULES, needs=NEEDS, concurrency=(1,)),
        Way("threads", load=in_its_threads, modules=MODULES, needs=NEEDS, concurrency=(16,)),
    ),
)
