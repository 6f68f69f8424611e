"""The list of names is once in the memory of a host: of ranks that are programs of their own, and of their workers."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import support

SCRIPT = os.path.join(os.path.dirname(__file__), "list_rank.py")
NAMES = 300_000
RANKS = 2


class Memory(unittest.TestCase):
    def setUp(self):
        """The worker of one rank was forked, and that of the other not."""
        folder = self.enterContext(tempfile.TemporaryDirectory())
        place = self.enterContext(support.emulator("--synthetic", f"many/x-:{NAMES}:10"))
        self.ranks = []
        for rank in range(RANKS):
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "GLOO_SOCKET_IFNAME": "lo"}
            command = [sys.executable, SCRIPT, *place, os.path.join(folder, "store"), ("fork", "spawn")[rank % 2]]
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self.addCleanup(self.end, process)
            self.ranks.append(process)
        self.told = [json.loads(process.stdout.readline()) for process in self.ranks]

    def end(self, process):
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()

    def test_one_copy_for_ranks_and_workers(self):
        size = self.told[0]["bytes"]
        self.assertEqual({each["digest"] for each in self.told}, {self.told[0]["digest"]})
        memory = [of_process for each in self.told for of_process in each["memory"]]
        self.assertEqual(len(memory), 2 * RANKS)
        # A page is shared out in kibibytes that are rounded.
        self.assertLessEqual(sum(each["Pss"] for each in memory), size + (2 * RANKS + 2) * 4096)
        self.assertGreater(sum(each["Pss"] for each in memory), size / 2)
        self.assertLessEqual(sum(each["Private"] for each in memory), size / 100)
        # Who made it is killed, and the others have it still.
        requests = [each["requests"] for each in self.told]
        maker = self.ranks.pop(requests.index(max(requests)))
        self.assertGreater(max(requests), NAMES // 1000)
        self.assertLess(sum(requests) - max(requests), NAMES // 1000)
        maker.kill()
        maker.wait()
        for process in self.ranks:
            process.stdin.close()
            self.assertEqual(process.stdout.readline().split()[0], "8")
            self.assertEqual(process.wait(support.PATIENCE_S), 0)


if __name__ == "__main__":
    unittest.main()
