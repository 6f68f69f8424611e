"""PyTorch Distributed Checkpoint (torch.distributed.checkpoint) straight between tensors and Cloud Storage.

    import torch.distributed.checkpoint as dcp
    from ringest.dcp import StorageReader, StorageWriter

    dcp.save(state_dict, storage_writer=StorageWriter("gs://bucket/run/step-100"))
    dcp.load(state_dict, storage_reader=StorageReader("gs://bucket/run/step-100"))

A checkpoint is a prefix with one object for each rank, `__RANK_NUMBER.SAVE.distcp`, and `.metadata`,
which is written last and names them. SAVE is new for each save, so that saving over a checkpoint
changes nothing of it until `.metadata` is replaced, in one request that fails where somebody else
has replaced it meanwhile (PreconditionError: another job, or the last request of one that was killed
and came late; that checkpoint is whole); only then are the old objects deleted. Killed at any moment,
a save leaves the last complete checkpoint; what it left besides, the next save there removes.

With use_collectives=False each rank has metadata of its own, `__RANK.metadata`. A prefix may have both
kinds, and neither removes what the other needs; dcp.load takes `.metadata` where there is one.

What loads where: what is saved here loads with ringest, and with torch's FileSystemReader (also
through fsspec), where a tensor is read as torch.save writes it. What torch's FileSystemWriter and
FsspecWriter (hence Google's connector) wrote with their default format loads here; whole tensors are
read then, where ours are read in parts too.

SavePlanner and LoadPlanner are torch's planners with less work for many small tensors; neither is needed.

Ranks, tensors, planners and process groups are as with any other storage of torch: FSDP, DTensor of
any placement, replicated tensors saved once, `no_dist`, plans of your own.
"""

from __future__ import annotations

from ringest._errors import CheckpointError, GroupError
from ringest._needs import needs

with needs(__name__, "torch"):
    from ringest._dcp_planner import LoadPlanner, SavePlanner
    from ringest._dcp_reader import StorageReader
    from ringest._dcp_writer import StorageWriter

__all__ = ["CheckpointError", "GroupError", "LoadPlanner", "SavePlanner", "StorageReader", "StorageWriter"]

# Tracebacks and pickles name what programs import.
for _class in (LoadPlanner, SavePlanner, StorageReader, StorageWriter):
    _class.__module__ = __name__
del _class
