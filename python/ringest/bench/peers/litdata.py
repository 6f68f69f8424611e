"""LitData's dataset over objects as they are; it reads them by obstore."""

from __future__ import annotations

from typing import Any

from ringest.bench.peers import obstore
from ringest.bench.peers.work import Counted, Peer, Way, Work, in_loader


def raw(work: Work, batch: int | None = None) -> Counted:
    from litdata import StreamingRawDataset
    from litdata.raw.indexer import BaseIndexer, FileMetadata
    from litdata.streaming import downloader

    class Index(BaseIndexer):
        def discover_files(self, input_dir: Any, storage_options: Any) -> Any:
            return [FileMetadata(f"gs://{work.bucket}/{name}", work.size) for name in work.epoch()]

        def build_or_load_index(
            self, input_dir: Any, cache_dir: Any, storage_options: Any, recompute_index: bool = False
        ) -> Any:
            return self.discover_files(input_dir, storage_options)

    if work.endpoint is not None:
        # It has no option for another endpoint; its own store is made of Google's credentials.
        downloader.GCPDownloader._get_store = lambda self, bucket: downloader._cached_obstore_store(
            self, lambda: obstore.store(work)
        )
    dataset = StreamingRawDataset(f"gs://{work.bucket}/", indexer=Index(), max_concurrent_downloads=work.concurrency)
    return in_loader(work, dataset, batch_size=batch or work.batch, collate_fn=list)


PEER = Peer(
    "litdata",
    "litdata",
    (
        Way(
            "StreamingRawDataset",
            load=raw,
            modules=("litdata", "obstore", "torch.utils.data"),
            needs=("obstore", "torch"),
        ),
    ),
)
