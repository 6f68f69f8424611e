"""A rank as torchrun starts it: an interpreter of its own, with workers. It reads until it and its workers have the list of
names, and prints what memory of theirs that takes. When its standard input ends, it goes on reading and ends, too."""

import json
import os
import sys

import torch.distributed
import torch.utils.data

import ringest


def name_of(item):
    return item.uri


def memory_of(pid, inode):
    """Bytes of the proportional share, and private ones, of mappings of that file."""
    found = {"Pss": 0, "Private": 0}
    is_wanted = False
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as file:
        for line in file:
            words = line.split()
            if not words[0].endswith(":"):
                is_wanted = words[4] == str(inode)
            elif is_wanted and words[0] == "Pss:":
                found["Pss"] += int(words[1]) << 10
            elif is_wanted and words[0].startswith("Private_"):
                found["Private"] += int(words[1]) << 10
    return found


def main(endpoint, ca, store, context):
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    with ringest.Client(endpoint, ca, hedging=False) as client:
        dataset = ringest.IterableDataset("gs://many/", client=client, shuffle=True, transform=name_of)
        loader = torch.utils.data.DataLoader(
            dataset, batch_size=8, collate_fn=list, num_workers=1, multiprocessing_context=context
        )
        batches = iter(loader)
        next(batches)
        found = dataset._source.found
        torch.distributed.barrier()  # all have it
        told = [memory_of(pid, os.fstat(found.fd).st_ino) for pid in (os.getpid(), *(w.pid for w in batches._workers))]
        torch.distributed.barrier()  # nobody's list is gone before all have looked
        about = {"bytes": len(memoryview(found)), "digest": found.digest, "requests": client.stats()["requests"]}
        print(json.dumps({"memory": told, **about}), flush=True)
        sys.stdin.read()
        print(len(next(batches)), len(next(iter(dataset))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
