"""Datasets as nodes of torchdata.

    import torchdata.nodes
    from ringest.torchdata import DatasetNode

    dataset = ringest.IterableDataset("gs://bucket/train/", shuffle=True, batch_size=64)
    node = torchdata.nodes.ParallelMapper(DatasetNode(dataset), decode, num_workers=8, method="thread")
    loader = torchdata.nodes.Loader(node)
    for batch in loader: ...
    state = loader.state_dict()          # in the middle of an epoch; load_state_dict() resumes with the next batch

torchdata's StatefulDataLoader takes the datasets as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ringest._needs import needs
from ringest.dataset import IterableDataset

with needs(__name__, "torchdata"):
    from torchdata.nodes import BaseNode

__all__ = ["DatasetNode"]

_STATE = "dataset"


class DatasetNode(BaseNode):
    """What a ringest.IterableDataset, TarDataset or ParquetDataset yields, read ahead as it says.

    Each pass is the next epoch, with its own order, unless dataset.set_epoch() has chosen another one since the last
    pass began. A state says what this node has handed out, and which epoch it is of; nodes behind it keep it with
    their own. To resume, nothing is read again. While the node is in use, iterate over the dataset nowhere else.

    Of several ranks each resumes from its own state, with the same world size.
    """

    def __init__(self, dataset: IterableDataset) -> None:
        super().__init__()
        if not isinstance(dataset, IterableDataset):
            raise TypeError(
                "dataset must be a ringest.IterableDataset, TarDataset or ParquetDataset, got "
                f"{type(dataset).__name__}; for datasets by index torchdata has MapStyleWrapper"
            )
        self._dataset = dataset
        self._values: Iterator[Any] = iter(())
        self._epoch = 0
        self._is_begun = False  # something was asked for since the last reset

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        if initial_state is not None:
            self._dataset.load_state_dict(initial_state[_STATE])
        elif self._is_begun and self._dataset.state_dict()["epoch"] == self._epoch:
            self._dataset.set_epoch(self._epoch + 1)
        self._is_begun = False
        self._values = iter(self._dataset)
        self._epoch = self._dataset.state_dict()["epoch"]

    def next(self) -> Any:
        self._is_begun = True
        return next(self._values)

    def get_state(self) -> dict[str, Any]:
        return {_STATE: self._dataset.state_dict()}
