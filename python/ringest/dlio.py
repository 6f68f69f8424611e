"""DLIO, the benchmark below MLPerf Storage, with data and checkpoints in Cloud Storage.

    mpirun -n 8 python3 -m ringest.dlio workload=unet3d_h100 \\
        ++workload.storage.storage_root=gs://bucket/unet3d \\
        ++workload.reader.data_loader_classname=ringest.dlio.DataLoader \\
        ++workload.reader.data_loader_sampler=index \\
        ++workload.checkpoint.checkpoint_folder=gs://bucket/checkpoints \\
        ++workload.checkpoint.checkpoint_mechanism_classname=ringest.dlio.Checkpointing

DLIO lists its files itself, and knows no storage but its own two. So this module is run instead of dlio_benchmark; it
takes the same arguments. Storage below gs:// is then listed by ringest.

DataLoader reads in the process of the rank, without workers, as ringest's datasets do. Reader
(++workload.reader.reader_classname=ringest.dlio.Reader) is for DLIO's own loader and its workers instead. Checkpointing
writes what DLIO's writes with torch.save. Data is not generated in a bucket: let DLIO generate it in a folder, and copy
that with `ringest cp -r`.
"""

from __future__ import annotations

import csv
import io
import logging
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ringest import _uri, checkpoint
from ringest._memory_file import MemoryFile
from ringest._needs import needs
from ringest.client import default_client

with needs(__name__, "dlio_benchmark"):
    import numpy
    import torch
    from dlio_benchmark import main as dlio
    from dlio_benchmark.checkpointing.pytorch_checkpointing import PyTorchCheckpointing
    from dlio_benchmark.common.enumerations import DataLoaderType, DatasetType, MetadataType, NamespaceType, Shuffle
    from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader
    from dlio_benchmark.reader.reader_handler import FormatReader
    from dlio_benchmark.storage.storage_factory import StorageFactory
    from dlio_benchmark.storage.storage_handler import DataStorage, Namespace
    from dlio_benchmark.utils.config import ConfigArguments

__all__ = ["Checkpointing", "DataLoader", "Reader", "Storage", "main"]

_SCHEME = "gs://"

# A file's samples: one of them is [..., i], or [i].
_Samples = Any


def _npy(data: Any) -> _Samples:
    """The array of an .npy file, in the memory that the file is in."""
    view = memoryview(data)
    head = io.BytesIO(view[: 1 << 16])
    version = numpy.lib.format.read_magic(head)
    read = {(1, 0): numpy.lib.format.read_array_header_1_0, (2, 0): numpy.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        return numpy.load(io.BytesIO(view), allow_pickle=False)
    shape, fortran, dtype = read(head)
    if dtype.hasobject:
        raise ValueError("an array of Python objects is not read, because that could run any code")
    array = numpy.frombuffer(view, dtype, math.prod(shape), head.tell())
    return array.reshape(shape, order="F" if fortran else "C")


def _npz(data: Any) -> _Samples:
    """The array x of an .npz file. One that is not compressed stays in the memory that the file is in."""
    view = memoryview(data)
    with zipfile.ZipFile(MemoryFile(view)) as archive:
        entry = archive.getinfo("x.npy")
        if entry.compress_type != zipfile.ZIP_STORED:
            return _npy(archive.read(entry))
    # APPNOTE.TXT 4.3.7: the local header has 30 bytes, then a name and extra fields of its own lengths.
    at = entry.header_offset
    begin = (
        at + 30 + int.from_bytes(view[at + 26 : at + 28], "little") + int.from_bytes(view[at + 28 : at + 30], "little")
    )
    return _npy(view[begin : begin + entry.file_size])


def _image(data: Any) -> _Samples:
    with needs(f"{__name__} with images"):
        from PIL import Image
    return numpy.asarray(Image.open(io.BufferedReader(MemoryFile(memoryview(data)))))


def _csv(data: Any) -> _Samples:
    return list(csv.reader(io.StringIO(bytes(data).decode())))[1:]


def _hdf5(data: Any) -> _Samples:
    with needs(f"{__name__} with HDF5"):
        import h5py
    return h5py.File(MemoryFile(memoryview(data)), "r")["records"]


# By DLIO's names of formats: how a file is decoded, and whether its samples lie along the last dimension, or the first,
# or whether it is one sample.
_FORMATS: dict[str, tuple[Callable[[Any], _Samples], Callable[[_Samples, int], Any]]] = {
    "npz": (_npz, lambda samples, i: samples[..., i]),
    "npy": (_npy, lambda samples, i: samples[..., i]),
    "jpeg": (_image, lambda samples, i: samples),
    "png": (_image, lambda samples, i: samples),
    "csv": (_csv, lambda samples, i: samples[i]),
    "hdf5": (_hdf5, lambda samples, i: samples[i]),
}


def _format(name: str) -> tuple[Callable[[Any], _Samples], Callable[[_Samples, int], Any]]:
    if name not in _FORMATS:
        raise ValueError(
            f"workload.dataset.format is {name}, which {__name__} does not read; it reads {', '.join(_FORMATS)}"
        )
    return _FORMATS[name]


class Storage(DataStorage):
    """A bucket, or what is below a prefix in it, as DLIO's storage."""

    def __init__(self, namespace: str, framework: Any = None) -> None:
        super().__init__(framework)
        self.namespace = Namespace(namespace.rstrip("/"), NamespaceType.FLAT)

    def get_uri(self, id: str) -> str:
        return id if id.startswith(_SCHEME) else f"{self.namespace.name}/{id.lstrip('/')}"

    def _folder(self, id: str) -> str:
        return self.get_uri(id).rstrip("/") + "/"

    def create_namespace(self, exist_ok: bool = False) -> bool:
        return True

    def get_namespace(self) -> str:
        return str(self.namespace.name)

    def create_node(self, id: str, exist_ok: bool = False) -> bool:
        raise NotImplementedError(
            f"{self.get_uri(id)}: DLIO writes generated data with calls that only files have; generate it in a folder, "
            "and copy that with: ringest cp -r FOLDER gs://..."
        )

    def get_node(self, id: str = "") -> Any:
        objects, folders = default_client().list_folder(self._folder(id), limit=1)
        if len(objects) or len(folders):
            return MetadataType.DIRECTORY
        return MetadataType.FILE if default_client().exists(self.get_uri(id)) else None

    def walk_node(self, id: str, use_pattern: bool = False) -> list[str]:
        """The names in a folder; or with a pattern, whose only wildcards are "*", the URIs that it matches."""
        if not use_pattern:
            folder = self._folder(id)
            objects, folders = default_client().list_folder(folder)
            names = [name for name, _, _ in objects] + [name.rstrip("/") for name in folders]
            return [name.rsplit("/", 1)[1] for name in names if not name.endswith("/")]
        bucket, pattern = _uri.split(self.get_uri(id))
        found = default_client().list(_uri.join(bucket, pattern.partition("*")[0]), glob=pattern)
        return [_uri.join(bucket, name) for name, _, _ in found]

    def delete_node(self, id: str) -> bool:
        logging.warning("%s is left: remove it with: ringest rm -r %s", self.get_uri(id), self._folder(id))
        return False

    def put_data(self, id: str, data: Any, offset: Any = None, length: Any = None) -> None:
        default_client().put(self.get_uri(id), data.encode() if isinstance(data, str) else data)

    def get_data(self, id: str, data: Any, offset: Any = None, length: Any = None) -> str:
        return bytes(default_client().get(self.get_uri(id))).decode()

    def get_basename(self, id: str) -> str:
        return id.rsplit("/", 1)[-1]


class Reader(FormatReader):
    """Reads and decodes one file at a time, in the workers of DLIO's own loader."""

    def __init__(self, dataset_type: Any, thread_index: int, epoch: int) -> None:
        super().__init__(dataset_type, thread_index)
        self._decode, self._sample = _format(str(self._args.format))
        # DLIO hands out what os.path.abspath makes of them.
        self._uris = {os.path.abspath(uri): uri for uri in self._file_list}

    def open(self, filename: str) -> _Samples:
        return self._decode(default_client().get(self._uris.get(filename, filename)))

    def close(self, filename: str) -> None:
        self.open_file_map[filename] = None

    def get_sample(self, filename: str, sample_index: int) -> None:
        self._sample(self.open_file_map[filename], sample_index)

    def next(self) -> Iterator[Any]:
        yield from super().next()

    def read_index(self, global_sample_idx: int, step: int) -> Any:
        return super().read_index(global_sample_idx, step)

    def finalize(self) -> None:
        self.open_file_map.clear()

    def is_index_based(self) -> bool:
        return True

    def is_iterator_based(self) -> bool:
        return True


class DataLoader(BaseDataLoader):
    """Reads a rank's share of each epoch ahead of it, in the rank's own process.

    All ranks shuffle the files alike, by the workload's seed and the epoch, and each takes an equal part of the
    samples one after the other; what is left over is dropped. So each sample is read once in an epoch, and a file
    once by each rank that has samples of it. The samples of a file come together.
    """

    def __init__(self, format_type: Any, dataset_type: Any, epoch: int) -> None:
        super().__init__(format_type, dataset_type, epoch, DataLoaderType.PYTORCH)
        self._decode, self._sample = _format(str(self._args.format))

    def read(self) -> None:
        """DLIO calls it once, before the first epoch."""

    def _files(self) -> list[tuple[str, range]]:
        """This rank's files in the epoch's order, and which samples of each are its own."""
        arguments = self._args
        files = list(arguments.file_list_train if self.dataset_type is DatasetType.TRAIN else arguments.file_list_eval)
        if (arguments.file_shuffle, arguments.sample_shuffle) != (Shuffle.OFF, Shuffle.OFF):
            epoch = self.epoch_number if arguments.seed_change_epoch else 0
            numpy.random.default_rng([arguments.seed, epoch]).shuffle(files)
        self.epoch_number += 1
        return list(_share(files, arguments.num_samples_per_file, arguments.my_rank, arguments.comm_size))

    def next(self) -> Iterator[torch.Tensor]:
        super().next()
        files = self._files()
        count = 0
        for items in default_client().get_many((uri for uri, _ in files), ordered=True):
            for item in items:
                if item.error is not None:
                    raise item.error
                samples = self._decode(item.data)
                for i in files[item.index][1]:
                    self._sample(samples, i)
                    self._preprocess()
                    count += 1
                    if count % self.batch_size == 0:
                        yield self._batch()

    def _preprocess(self) -> None:
        FormatReader.preprocess(self)

    def _batch(self) -> torch.Tensor:
        """What DLIO's loaders hand out, too: images of the size that samples would have been made to, and not they."""
        return torch.from_numpy(numpy.stack([self._args.resized_image] * self.batch_size))

    def finalize(self) -> None:
        pass


def _share(files: Sequence[str], samples: int, rank: int, ranks: int) -> Iterator[tuple[str, range]]:
    """Of files with so many samples each, in this order, the ones of a rank."""
    share = len(files) * samples // ranks
    at, end = rank * share, (rank + 1) * share
    while at < end:
        file, begin = divmod(at, samples)
        stop = min(samples, begin + end - at)
        yield files[file], range(begin, stop)
        at += stop - begin


class Checkpointing(PyTorchCheckpointing):
    """DLIO's checkpoints of PyTorch, written by ringest.checkpoint.save."""

    _instance: Checkpointing | None = None

    @staticmethod
    def get_instance() -> Checkpointing:
        if Checkpointing._instance is None:
            Checkpointing._instance = Checkpointing()
        return Checkpointing._instance

    def __init__(self) -> None:
        folder = ConfigArguments.get_instance().checkpoint_folder
        if not folder.startswith(_SCHEME):
            raise ValueError(
                f"workload.checkpoint.checkpoint_folder is {folder}; {__name__} writes to gs://BUCKET/FOLDER"
            )
        super().__init__()

    def get_name(self, suffix: str) -> str:
        return f"{self.args.checkpoint_folder.rstrip('/')}/{suffix}.{self.ext}"

    def save_state(self, suffix: str, state: Any) -> None:
        checkpoint.save(state, self.get_name(suffix))


def _get_storage(of_files: Callable[..., Any]) -> Callable[..., Any]:
    """DLIO's factory, but for what is in a bucket."""

    def get_storage(storage_type: Any, namespace: str, framework: Any = None) -> Any:
        if namespace.startswith(_SCHEME):
            return Storage(namespace, framework)
        return of_files(storage_type, namespace, framework)

    return get_storage


def main() -> None:
    """dlio_benchmark's main(), with storage below gs://."""
    StorageFactory.get_storage = staticmethod(_get_storage(StorageFactory.get_storage))
    dlio.main()


if __name__ == "__main__":
    # DLIO looks its classes up by their names, and thus in another module than the one that is run.
    from ringest import dlio as ours

    ours.main()
