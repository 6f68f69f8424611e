"""Checkpoints of Lightning, straight between tensors and Cloud Storage, and data that go on where one was saved.

    from ringest.lightning import AsyncCheckpointIO, CheckpointIO, DataModule, FSDPStrategy

    trainer = Trainer(plugins=[CheckpointIO()])
    trainer = Trainer(plugins=[AsyncCheckpointIO(CheckpointIO())])
    trainer = Trainer(strategy=FSDPStrategy())                    # or ModelParallelStrategy, for FSDP2
    trainer.save_checkpoint("gs://bucket/run/step-100.ckpt")
    trainer.fit(model, DataModule(dataset), ckpt_path="gs://bucket/run/step-100.ckpt")

Files are those of torch.save, and folders those of torch.distributed.checkpoint with Lightning's meta.pt
beside it, so that Lightning's own classes read them once they are downloaded.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ringest import checkpoint as files
from ringest import retention
from ringest._chosen import checked
from ringest._lightning_data import DataModule
from ringest._needs import needs
from ringest._uri import object_uri
from ringest.client import Client
from ringest.tensorboard import Explained, Scalars

with needs(__name__, "lightning"):
    import torch
    from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.plugins.io import AsyncCheckpointIO as LightningAsyncCheckpointIO
    from lightning.pytorch.strategies import FSDPStrategy as LightningFSDPStrategy
    from lightning.pytorch.strategies import ModelParallelStrategy as LightningModelParallelStrategy
    from lightning.pytorch.strategies import ParallelStrategy
    from lightning.pytorch.trainer.states import TrainerFn
    from lightning_utilities.core.apply_func import apply_to_collection

__all__ = ["AsyncCheckpointIO", "CheckpointIO", "DataModule", "FSDPStrategy", "ModelParallelStrategy", "Monitor"]

_Path = str | Path

# Tracebacks and pickles name what programs import.
DataModule.__module__ = __name__

# Lightning's own file beside the shards: what is neither model nor optimizer.
_META_NAME = "meta.pt"
# The same once more, as a tensor of bytes among the shards, so that both are replaced at once.
_META_KEY = "ringest.lightning"


def _refuse_options(storage_options: Any, what: Any) -> None:
    if storage_options is not None:
        raise TypeError(f"{type(what).__name__} does not take storage_options: set options on its client")


class CheckpointIO(TorchCheckpointIO):
    """Saves to and loads from "gs://bucket/object"; other paths are treated as by Lightning's own.

    client: a ringest.Client, by default the process's.

    Tensors on the CPU are sent from their own memory and read into the memory that they will have. An object
    appears when it is complete; a save that fails leaves what was there before.
    """

    def __init__(self, client: Client | None = None):
        self._client = checked(client)

    def save_checkpoint(self, checkpoint: dict[str, Any], path: _Path, storage_options: Any = None) -> None:
        """Raises TypeError for storage_options, ringest.Error where it cannot be written."""
        _refuse_options(storage_options, self)
        uri = object_uri(path)
        if uri is None:
            super().save_checkpoint(checkpoint, path)
        else:
            files.save(checkpoint, uri, client=self._client)

    def load_checkpoint(
        self, path: _Path, map_location: Any = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """map_location: that of torch.load. weights_only: None is PyTorch's default, True.

        Raises NotFoundError, which is a FileNotFoundError, and what ringest.checkpoint.load raises."""
        uri = object_uri(path)
        if uri is None:
            return super().load_checkpoint(path, map_location, weights_only)
        return files.load(uri, map_location=map_location, weights_only=weights_only is not False, client=self._client)

    def remove_checkpoint(self, path: _Path) -> None:
        """Removes a file, or what a sharded checkpoint consists of; nothing where there is none."""
        uri = object_uri(path)
        if uri is None:
            super().remove_checkpoint(path)
        else:
            retention.remove(uri, client=self._client)


class _Snapshot:
    """Copies of tensors on the CPU. Those that share memory share that of their copies too."""

    def __init__(self) -> None:
        self._storages: dict[tuple[torch.device, int], torch.UntypedStorage] = {}

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        given = tensor.detach()
        if type(given) is not torch.Tensor or given.layout is not torch.strided or given.is_quantized:
            return given.clone()
        if given.is_conj() or given.is_neg() or given.device.type == "meta":
            return given.clone()
        storage = given.untyped_storage()
        key = (given.device, storage.data_ptr())
        copy = self._storages.get(key)
        if copy is None or copy.nbytes() != storage.nbytes():
            copy = storage.clone() if given.device.type == "cpu" else storage.cpu()
            self._storages[key] = copy
        empty = torch.empty(0, dtype=given.dtype, device="cpu")
        return empty.set_(copy, given.storage_offset(), given.shape, given.stride())


class AsyncCheckpointIO(LightningAsyncCheckpointIO):
    """Saves in a thread while training goes on. checkpoint_io: saves, by default a CheckpointIO.

    save_checkpoint copies the checkpoint's tensors into memory of the CPU, once, and returns; one save is
    under way at a time, so there is one copy, and a second save waits for the first.

    A save that fails fails the training: the next save, load or removal raises what it raised, and so does the
    end of the training (teardown); each failure is raised once. A checkpoint that is to be removed is removed
    after the saves that were asked for before it, and not at all when one of them failed: what is removed for the sake
    of a newer checkpoint stays where that did not come about.
    """

    def __init__(self, checkpoint_io: Any = None):
        super().__init__(CheckpointIO() if checkpoint_io is None else checkpoint_io)
        self._saving: Future | None = None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: _Path, storage_options: Any = None) -> None:
        self.wait()
        # The containers are copied too, as training goes on with them.
        copied = apply_to_collection(checkpoint, torch.Tensor, _Snapshot())
        self._saving = self._submit(self._save, copied, path, storage_options)

    def _submit(self, call: Callable[..., None], *arguments: Any) -> Future:
        self._ensure_setup()
        assert self._executor is not None
        return self._executor.submit(call, *arguments)

    def _save(self, checkpoint: dict[str, Any], path: _Path, storage_options: Any) -> None:
        assert self.checkpoint_io is not None
        self.checkpoint_io.save_checkpoint(checkpoint, path, storage_options)

    def remove_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        self._saving = self._submit(self._remove, self._saving, args, kwargs)

    def _remove(self, before: Future | None, args: tuple, kwargs: dict[str, Any]) -> None:
        if before is not None:
            before.result()
        assert self.checkpoint_io is not None
        self.checkpoint_io.remove_checkpoint(*args, **kwargs)

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        self.wait()
        assert self.checkpoint_io is not None
        return self.checkpoint_io.load_checkpoint(*args, **kwargs)

    def wait(self) -> None:
        """Returns when nothing is under way, or raises why the last save failed."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()

    def teardown(self) -> None:
        try:
            self.wait()
        finally:
            if self._executor is not None:
                self._executor.shutdown(wait=True)
                self._executor = None
            assert self.checkpoint_io is not None
            self.checkpoint_io.teardown()


class _Sharded(ParallelStrategy):
    """What the strategies share: one folder for a checkpoint, to which every rank writes its shards.

    client: a ringest.Client, by default the process's. use_async: whether training goes on while a checkpoint
    is saved, from a copy in memory of the CPU. One save is under way at a time. A failure of it fails the training:
    the next save, load or removal raises it, or else the end of the training.

    Other arguments are those of Lightning's strategy. Paths are "gs://bucket/prefix"; with others, everything
    is Lightning's own. What is saved can be loaded by another number of ranks.

    A save over a checkpoint replaces it as a whole, as Lightning's callback does with `last.ckpt`: killed at any
    moment, there is one or the other.
    """

    _model_key = ""

    def __init__(self, client: Client | None = None, use_async: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        if kwargs.get("checkpoint_io") is None:
            self.checkpoint_io = CheckpointIO(client)
        self._client = client
        self._use_async = use_async
        self._group: Any = None
        self._saving: Any = None

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: _Path, storage_options: Any = None) -> None:
        uri = object_uri(self.broadcast(os.fspath(filepath)))
        if uri is None or not self._saves_shards():
            super().save_checkpoint(checkpoint, filepath, storage_options)
            return
        _refuse_options(storage_options, self)
        self.wait()
        rest = {key: value for key, value in checkpoint.items() if key not in ("state_dict", "optimizer_states")}
        state = {self._model_key: checkpoint["state_dict"]}
        for index, optimizer in enumerate(checkpoint.get("optimizer_states", [])):
            state[f"optimizer_{index}"] = optimizer
        if self.is_global_zero:
            state[_META_KEY] = _to_bytes(rest)
            files.save(rest, f"{uri}/{_META_NAME}", client=self._client)
        self._save_shards(state, uri)

    def _save_shards(self, state: dict[str, Any], uri: str) -> None:
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp

        from ringest.dcp import StorageWriter

        writer = StorageWriter(uri, client=self._client)
        if not self._use_async:
            dcp.save(state, storage_writer=writer)
            return
        if self._group is None and dist.is_initialized():
            # A group of its own, so that its messages do not mix with those of the training.
            self._group = dist.new_group(backend="gloo")
        self._saving = dcp.async_save(state, storage_writer=writer, process_group=self._group)

    def load_checkpoint(self, checkpoint_path: _Path, weights_only: bool | None = None) -> dict[str, Any]:
        from torch.distributed.checkpoint.metadata import TensorStorageMetadata

        from ringest.dcp import StorageReader

        self.wait()
        uri = object_uri(self.broadcast(os.fspath(checkpoint_path)))
        if uri is None or not retention.is_sharded(uri, client=self._client):
            return super().load_checkpoint(checkpoint_path, weights_only)
        reader = StorageReader(uri, client=self._client)
        metadata = reader.read_metadata()
        assert self.lightning_module is not None
        is_fitting = self.lightning_module.trainer.state.fn == TrainerFn.FITTING
        self._load_shards(lambda: StorageReader(uri, client=self._client), is_fitting)
        entry = metadata.state_dict_metadata.get(_META_KEY)
        if not isinstance(entry, TensorStorageMetadata):  # saved by Lightning, or by the connector
            return self.checkpoint_io.load_checkpoint(f"{uri}/{_META_NAME}", "cpu", weights_only)
        return _from_bytes(
            _load_one(reader, _META_KEY, torch.empty(entry.size, dtype=torch.uint8, device="cpu")), weights_only
        )

    def remove_checkpoint(self, filepath: _Path) -> None:
        self.wait()
        super().remove_checkpoint(filepath)

    def wait(self) -> None:
        """Returns when nothing is under way, or raises why the last save failed."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()

    def teardown(self) -> None:
        try:
            self.wait()
        finally:
            super().teardown()

    def _saves_shards(self) -> bool:
        raise NotImplementedError

    def _load_shards(self, reader: Callable[[], Any], is_fitting: bool) -> None:
        raise NotImplementedError


def _to_bytes(value: Any) -> torch.Tensor:
    data = io.BytesIO()
    torch.save(value, data)
    return torch.frombuffer(bytearray(data.getbuffer()), dtype=torch.uint8)


def _from_bytes(tensor: torch.Tensor, weights_only: bool | None) -> Any:
    data = io.BytesIO(bytes(tensor.tolist()))
    return torch.load(data, map_location="cpu", weights_only=weights_only is not False)


def _load_one(reader: Any, key: str, tensor: torch.Tensor) -> torch.Tensor:
    import torch.distributed.checkpoint as dcp

    state = {key: tensor}
    dcp.load(state, storage_reader=reader)
    return state[key]


class FSDPStrategy(_Sharded, LightningFSDPStrategy):
    __doc__ = "Lightning's FSDPStrategy with checkpoints in Cloud Storage.\n" + (_Sharded.__doc__ or "")

    _model_key = "model"

    def __init__(self, client: Client | None = None, use_async: bool = False, **kwargs: Any):
        # What Lightning's callers mean by "sharded" is what this class is for.
        kwargs.setdefault("state_dict_type", "sharded")
        super().__init__(client, use_async, **kwargs)

    def _saves_shards(self) -> bool:
        return self._state_dict_type == "sharded"

    def _load_shards(self, reader: Callable[[], Any], is_fitting: bool) -> None:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.api import (
            ShardedOptimStateDictConfig,
            ShardedStateDictConfig,
            StateDictType,
        )

        assert self.model is not None and self.lightning_module is not None
        with FSDP.state_dict_type(
            self.model,
            StateDictType.SHARDED_STATE_DICT,
            ShardedStateDictConfig(offload_to_cpu=True),
            ShardedOptimStateDictConfig(offload_to_cpu=True),
        ):
            state = {self._model_key: self.model.state_dict()}
            dcp.load(state, storage_reader=reader())
            self.model.load_state_dict(state[self._model_key], strict=self.lightning_module.strict_loading)
            for index, optimizer in enumerate(self.optimizers if is_fitting else []):
                key = f"optimizer_{index}"
                loaded = load_sharded_optimizer_state_dict(
                    model_state_dict=state[self._model_key], optimizer_key=key, storage_reader=reader()
                )
                optimizer.load_state_dict(
                    FSDP.optim_state_dict_to_load(optim_state_dict=loaded[key], model=self.model, optim=optimizer)
                )


class ModelParallelStrategy(_Sharded, LightningModelParallelStrategy):
    __doc__ = "Lightning's ModelParallelStrategy (FSDP2, tensor parallel) with checkpoints in Cloud Storage.\n" + (
        _Sharded.__doc__ or ""
    )

    _model_key = "state_dict"

    def _saves_shards(self) -> bool:
        return self._save_distributed_checkpoint

    def _load_shards(self, reader: Callable[[], Any], is_fitting: bool) -> None:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import (
            StateDictOptions,
            get_model_state_dict,
            get_optimizer_state_dict,
            set_optimizer_state_dict,
        )

        assert self.model is not None and self.lightning_module is not None
        state: dict[str, Any] = {self._model_key: get_model_state_dict(self.model)}
        optimizers = dict(enumerate(self.optimizers if is_fitting else []))
        for index, optimizer in optimizers.items():
            state[f"optimizer_{index}"] = get_optimizer_state_dict(self.model, optimizer)
        dcp.load(state, storage_reader=reader())
        self.model.load_state_dict(state[self._model_key], strict=self.lightning_module.strict_loading)
        for index, optimizer in optimizers.items():
            set_optimizer_state_dict(
                self.model,
                optimizer,
                optim_state_dict=state[f"optimizer_{index}"],
                options=StateDictOptions(cpu_offload=True),
            )


class _Nowhere:
    def add_scalar(self, tag: str, scalar_value: float, global_step: int, /) -> None:
        pass


class Monitor(Callback):
    """Logs beside the loss, every log_every_n_steps steps of the trainer, to all of its loggers: how long a step waited
    for data, MB/s, the p99 of gets, retries, and of `dataset` each cause of the wait; see ringest.tensorboard.Scalars.

        Trainer(callbacks=[ringest.lightning.Monitor(dataset=dataset)])

    Each rank logs what it has counted itself, where its loggers do.
    """

    def __init__(self, client: Client | None = None, prefix: str = "ringest/", *, dataset: Explained | None = None):
        # What is wrong is said where it is written, and not when the training starts.
        Scalars(_Nowhere(), client, prefix, dataset=dataset)
        self._client, self._prefix, self._dataset = client, prefix, dataset
        self._seen: Scalars | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._step = step = trainer.global_step
        self._seen = Scalars(_Nowhere(), self._client, self._prefix, step, dataset=self._dataset)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step, every = trainer.global_step, trainer.log_every_n_steps
        # Batches whose gradients are accumulated make one step. Lightning logs nothing where `every` is 0.
        if self._seen is None or step == self._step or every == 0 or step % every != 0:
            return
        self._step = step
        found = {self._prefix + name: value for name, value in self._seen.write(step).items()}
        for logger in trainer.loggers:
            logger.log_metrics(found, step=step)
