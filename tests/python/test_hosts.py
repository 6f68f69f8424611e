"""The ranks of two hosts that load together. Hosts whose addresses differ are made of network namespaces; test_elastic.py has a
training on some."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import torch

import network
import support

HERE = os.path.dirname(os.path.abspath(__file__))
LOADING = os.path.join(HERE, "hosts_loading.py")
PATIENCE_S = 240
BUCKET, RUN = "job", "gs://job/run"
PORT = 29500
LOADED = re.compile(r"loaded (\d+) (\d+) (\d+)")


class Load:
    """Two of four ranks that load together, on one of two hosts."""

    def __init__(self, host, first, place, uri):
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"]
        command += ["--node-rank", str(int(host is not first)), "--master-addr", first.address]
        command += ["--master-port", str(PORT), LOADING, uri]
        environment = {
            "STORAGE_EMULATOR_HOST": place["endpoint"],
            "SSL_CERT_FILE": place["ca"],
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": "1",
        }
        self.process = host.start(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def finish(self):
        """Of each rank: bytes that it, and its host, have received, and the sum of its tensors."""
        text = self.process.communicate(timeout=PATIENCE_S)[0]
        if self.process.returncode != 0:
            raise AssertionError(f"exit status {self.process.returncode}\n{text}")
        return [tuple(map(int, numbers)) for numbers in LOADED.findall(text)]


@unittest.skipIf(network.refusal() is not None, network.refusal())
class Case(unittest.TestCase):
    """A network of hosts, of which one has the emulator."""

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.folder = stack.enter_context(tempfile.TemporaryDirectory())
        self.network = stack.enter_context(contextlib.closing(network.Network()))
        self.service = self.network.host("service")
        emulator = self.service.start(
            [
                support.PROGRAM,
                "emulate",
                "--listen",
                f"{self.service.address}:0",
                "--strict-buckets",
                "--bucket",
                BUCKET,
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.place = json.loads(emulator.stdout.readline())

    def copy(self, *arguments):
        options = ["--endpoint", self.place["endpoint"], "--ca", self.place["ca"]]
        copying = self.service.start([support.PROGRAM, "cp", "-q", *arguments, *options])
        self.assertEqual(copying.wait(PATIENCE_S), 0)


class Hosts(Case):
    def test_ranks_of_two_hosts_load_together(self):
        """On each host by memory that its ranks share, and between hosts by the group."""
        path, uri = os.path.join(self.folder, "model.pt"), f"{RUN}/model.pt"
        state = {f"layer{i}": torch.arange(i, i + (256 << 10), dtype=torch.int64) for i in range(24)}
        torch.save(state, path)
        size, total = os.path.getsize(path), int(sum(each.sum() for each in state.values()))
        self.copy(path, uri)
        first, second = self.network.host("first"), self.network.host("second")
        loads = [Load(host, first, self.place, uri) for host in (first, second)]
        told = [load.finish() for load in loads]
        ranks = sum(told, [])
        self.assertEqual([sums for _, _, sums in ranks], [total] * 4)
        self.assertLessEqual(sum(came for came, _, _ in ranks), 1.02 * size)
        for host in told:
            # Half from the service and half from the other host, once for both ranks.
            self.assertLess(max(came for _, came, _ in host), 1.3 * size)


if __name__ == "__main__":
    unittest.main()
