"""A rank that test_hosts.py runs on one of several hosts: hosts_loading.py URI

It loads with the others, and says what it has received, what its host has received by its network card, and the sum of the
tensors."""

import sys

import torch
import torch.distributed as dist

import ringest
import ringest.checkpoint


def received():
    """Bytes that have come to this host from others."""
    with open("/proc/self/net/dev", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.split()[0] == "eth0:")


def main(uri):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with ringest.Client(hedging=False) as client:
        before = received()
        # Nobody begins before all have looked.
        dist.barrier()
        state = ringest.checkpoint.load(uri, client=client, process_group=dist.group.WORLD)
        dist.barrier()
        numbers = client.stats()["recv_bytes"], received() - before, int(sum(each.sum() for each in state.values()))
    # As one write: the ranks of a host share a pipe.
    sys.stdout.write("loaded {} {} {}\n".format(*numbers))
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
