"""Data of Lightning's trainers that go on exactly where a checkpoint was saved; see ringest.lightning.DataModule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ringest._needs import needs
from ringest._state import gather_state
from ringest.dataset import IterableDataset

with needs("ringest.lightning", "lightning"):
    from lightning.pytorch import LightningDataModule
    from torch.utils.data import DataLoader


class _Loader:
    """What a trainer iterates over. Lightning saves the states of loaders, too, but those of rank 0 only: this one has
    none, and its module has that of all ranks."""

    def __init__(self, module: DataModule, options: dict[str, Any]) -> None:
        self._module = module
        kind: Any = DataLoader
        if options.get("num_workers"):
            with needs("ringest.lightning.DataModule with workers", "torchdata"):
                from torchdata.stateful_dataloader import StatefulDataLoader
            kind = StatefulDataLoader
        self._loader = kind(module.dataset, **options)
        self._has_workers = kind is not DataLoader
        self._is_begun = False
        self.is_over = False  # the last iteration

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        """Begins when the first batch is asked for: trainers make iterators that they do not use."""
        self._module._begin_epoch()
        values = iter(self._loader)
        self._is_begun, self.is_over = True, False
        yield from values
        self.is_over = True

    def place(self) -> dict[str, Any]:
        """What this rank has consumed."""
        if self._has_workers and self._is_begun:
            return self._loader.state_dict()
        return self._module.dataset.state_dict()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class DataModule(LightningDataModule):
    """Training data of a Lightning trainer, from a ringest.IterableDataset, TarDataset or ParquetDataset.

        data = DataModule(dataset, collate_fn=stack)
        trainer.fit(model, data, ckpt_path=...)

    Checkpoints of the trainer have what all ranks had consumed, also in the middle of an epoch. After a resume, on any
    number of ranks and workers, each sample that was left comes exactly once. (Lightning counts batches: with another
    number of ranks it says another progress, and `limit_train_batches` is of the new ones.) One that was saved behind
    the last batch of an epoch resumes with the next epoch. Each epoch has its own order.

    dataset: give it `batch_size`, and no `rank` or `world_size`: it finds those of the trainer.
    options: of PyTorch's DataLoader, such as collate_fn. batch_size is None unless it is given. With num_workers, it is
        torchdata's StatefulDataLoader.

    A subclass adds what else it has, such as val_dataloader(). If it overrides state_dict(), it has to call this one.
    """

    def __init__(self, dataset: IterableDataset, **options: Any) -> None:
        super().__init__()
        if not isinstance(dataset, IterableDataset):
            raise TypeError(
                "dataset must be a ringest.IterableDataset, TarDataset or ParquetDataset, got "
                f"{type(dataset).__name__}: give others to trainer.fit() in a DataLoader"
            )
        self.dataset = dataset
        self._options = {"batch_size": None, **options}
        self._loader: _Loader | None = None
        self._is_loaded = False  # a state, that no iteration has begun with

    def train_dataloader(self) -> Any:
        self._loader = _Loader(self, self._options)
        return self._loader

    def _begin_epoch(self) -> None:
        """Before an iteration: the trainer counts epochs, unless a state says which one it is."""
        if self._is_loaded:
            self._is_loaded = False
        elif self.trainer is not None:
            self.dataset.set_epoch(self.trainer.current_epoch)

    def _is_at_an_end(self) -> bool:
        """Behind the last batch of an epoch, of those that the trainer wants."""
        is_last = self.trainer is not None and self.trainer.is_last_batch
        return is_last or (self._loader is not None and self._loader.is_over)

    def state_dict(self) -> dict[str, Any]:
        """What all ranks have consumed. Lightning calls it on each of them, and saves what the first one returns."""
        place = self._loader.place() if self._loader is not None else self.dataset.state_dict()
        state = gather_state(place)
        return {"epoch": state["epoch"] + 1, "state": None} if self._is_at_an_end() else state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.dataset.load_state_dict(state_dict)
        self._is_loaded = True
