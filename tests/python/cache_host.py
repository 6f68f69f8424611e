"""A process that reads through a cache, told what to do line by line; each line is answered by one of JSON. It may have a
mount of its own in the cache's place (unshare), or believe that it is on NFS (nfs_stand_in.c).

    open SIZE | close | mount OPTIONS | unmount | fill | read PREFIX
"""

import hashlib
import json
import logging
import os
import subprocess
import sys

# A dataset does without PyTorch, and each process starts sooner.
sys.modules["torch"] = None

import ringest  # noqa: E402


class Kept(logging.Handler):
    """What was warned of."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.told = []

    def emit(self, record):
        self.told.append(record.getMessage())


class Host:
    def __init__(self, endpoint, ca, folder):
        self.place, self.folder, self.client = (endpoint, ca), folder, None
        self.kept = Kept()
        logging.getLogger("ringest").addHandler(self.kept)

    def open(self, size):
        self.client = ringest.Client(*self.place, hedging=False, cache=self.folder, cache_size=size)

    def close(self):
        self.client.close()

    def mount(self, options):
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", self.folder], check=True)

    def unmount(self):
        subprocess.run(["umount", "--lazy", self.folder], check=True)

    def fill(self):
        """Leaves nothing free, whatever is there."""
        try:
            with open(os.path.join(self.folder, "junk"), "wb", buffering=0) as junk:
                while junk.write(bytes(1 << 20)):
                    pass
        except OSError:
            pass

    def read(self, prefix):
        before = self.client.stats()
        digest = digest_of(prefix, self.client)
        after = self.client.stats()
        return {"digest": digest} | {
            name: after[name] - before[name]
            for name in ("cache_hits", "cache_misses", "cache_writes", "cache_bad", "requests")
        }


def pair(item):
    return item.uri, bytes(item.data)


def digest_of(prefix, client):
    """Of all objects below it, their names too."""
    digest = hashlib.sha256()
    for uri, data in sorted(ringest.IterableDataset(prefix, transform=pair, client=client, shuffle=True)):
        digest.update(uri.encode() + hashlib.sha256(data).digest())
    return digest.hexdigest()


def main():
    host = Host(*sys.argv[1:])
    for line in sys.stdin:
        action, *arguments = line.split()
        answer = getattr(host, action)(*arguments) or {}
        print(json.dumps({**answer, "warned": host.kept.told}), flush=True)


if __name__ == "__main__":
    main()
