"""One script for two packages: what a user of the connector's datasets sees, as JSON.

connector_script.py PACKAGE    dataflux_pytorch or ringest.dataflux; the emulator by environment"""

import hashlib
import importlib
import inspect
import json
import multiprocessing
import os
import sys

import torch.utils.data

BUCKET = "data"


def describe(data):
    """A data_format_fn."""
    return [type(data).__name__, len(data), hashlib.sha256(data).hexdigest()]


def signature(call):
    """Names, order and kinds of arguments; defaults as far as they are plain values."""
    plain = (int, str, bool)
    return [
        [
            name,
            str(argument.kind),
            argument.default if isinstance(argument.default, plain) else None,
        ]
        for name, argument in inspect.signature(call).parameters.items()
    ]


def load(dataset, **options):
    return list(torch.utils.data.DataLoader(dataset, collate_fn=list, **options))


def outcome(call):
    """What it returns, or that it raises."""
    try:
        return call()
    except Exception as error:
        return ["raises", isinstance(error, IndexError)]


def by_index(module):
    def make(prefix, function=describe):
        config = module.Config(True, 0, 1, prefix, threads_per_process=2, disable_compose=True)
        return module.DataFluxMapStyleDataset("project", BUCKET, config, function)

    dataset = make("x-")
    small = make("small/")
    for name in ("storage_client", "project_name", "bucket_name", "config", "data_format_fn"):
        assert hasattr(small, name), name
    return {
        "objects": dataset.objects,
        "len": len(dataset),
        "items": [dataset[i] for i in (0, -1, 7)],
        "beyond": outcome(lambda: dataset[len(dataset)]),
        "batch": dataset.__getitems__([5, 1, 5]),
        "batches": load(dataset, batch_size=32),
        "workers": load(dataset, batch_size=32, num_workers=2, multiprocessing_context="forkserver"),
        "names": [small.objects, [small[i] for i in range(len(small))]],
        "gzip": [make("gzip/").objects, load(make("gzip/"), batch_size=4)],
        "default": make("small/", module.data_format_default)[0].decode(),
        "nothing": [make("nothing").objects, len(make("nothing"))],
        "all": make(None).objects,
    }


def as_stream(module):
    def make(prefix, objects=None):
        config = module.Config(True, 0, 1, prefix, 3, True)
        dataset = module.DataFluxIterableDataset(
            project_name="project", bucket_name=BUCKET, config=config, data_format_fn=describe
        )
        if objects is not None:
            dataset.objects = objects
        return dataset

    some = make("x-").objects
    return {
        "objects": some,
        "samples": list(make("x-")),
        "again": [list(dataset) for dataset in [make("x-", some[:10])] for _ in range(2)],
        "batches": load(make("x-"), batch_size=32),
        "workers": load(make("x-", some[:11]), batch_size=4, num_workers=4, multiprocessing_context="forkserver"),
        "few": load(make("x-", some[:5]), batch_size=4, num_workers=4, multiprocessing_context="forkserver"),
        "changed": list(make("x-", some[::7][::-1])),
        "names": list(make("small/")),
        "gzip": list(make("gzip/")),
        "nothing": list(make("nothing")),
    }


def with_client(*modules):
    """Where only a client of google-cloud-storage knows the endpoint."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    endpoint = os.environ.pop("STORAGE_EMULATOR_HOST")
    client = storage.Client("project", AnonymousCredentials(), client_options={"api_endpoint": endpoint})
    seen = []
    for module, kind in modules:
        config = module.Config(True, prefix="small/", num_processes=1, disable_compose=True)
        dataset = getattr(module, kind)("project", BUCKET, config, describe, client)
        seen.append([dataset.storage_client is client, dataset.objects, load(dataset, batch_size=2)])
    return seen


def main(package):
    # Workers start as spawned ones do, but for the imports, which one process does for all.
    multiprocessing.set_forkserver_preload(["torch.utils.data", package + ".dataflux_mapstyle_dataset"])
    mapstyle = importlib.import_module(package + ".dataflux_mapstyle_dataset")
    iterable = importlib.import_module(package + ".dataflux_iterable_dataset")
    top = importlib.import_module(package)
    kinds = ((mapstyle, "DataFluxMapStyleDataset"), (iterable, "DataFluxIterableDataset"))
    signatures = {
        f"{module.__name__.rsplit('.', 1)[1]}.{name}": signature(getattr(module, name))
        for module, kind in kinds
        for name in (kind, "Config", "data_format_default")
    }
    seen = {
        "top": hasattr(top, "dataflux_mapstyle_dataset"),
        "signatures": signatures,
        "settings": sorted(vars(mapstyle.Config())) + sorted(vars(iterable.Config())),
        "constants": [[module.FORK, module.CREATE, module.DELETE] for module in (mapstyle, iterable)],
        "map": by_index(mapstyle),
        "iterable": as_stream(iterable),
        "client": with_client(*kinds),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
