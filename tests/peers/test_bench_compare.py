"""ringest bench compare with clients of others that are really there, and with one that is not."""

import os
import subprocess
import sys
import tempfile
import unittest

from ringest.bench import result

RUN_S = 250
PEERS = "ringest:get_many,obstore:threads,obstore:asyncio,gcsfs:asyncio,google-cloud-storage,tensorstore"
ALL = ("get-1k", "put-1k", "list")


class Compare(unittest.TestCase):
    def test_each_does_all_that_it_can(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "result.json")
            command = [sys.executable, "-m", "ringest.bench", "compare", "--emulate", "--peers", PEERS]
            command += ["--verbs", "get,put,list", "--sizes", "1k", "--names", "1200", "--concurrency", "4"]
            command += ["--seconds", "0.1", "--warm-up", "0.1", "--rounds", "1", "--verify", "--result", path]
            # Of its own: what killed runs of others have left there would be named.
            own = {**os.environ, "TMPDIR": folder}
            done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=RUN_S, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            document = result.read(path)
        rows = {(row.client, row.workload): row for row in document.rows}
        expected = {
            "ringest get_many": ALL,
            "obstore threads": ALL,
            "obstore asyncio": ("get-1k",),
            "gcsfs asyncio": ALL,
            "google-cloud-storage threads": ALL,
            "tensorstore futures": ALL,
            "tensorstore threads": ALL[:2],
        }
        self.assertEqual(set(rows), {(client, workload) for client, each in expected.items() for workload in each})
        for (client, workload), row in rows.items():
            with self.subTest(client=client, workload=workload):
                if client.startswith("tensorstore"):
                    self.assertRegex(row.error, "^tensorstore not installed: pip install tensorstore==[0-9.]+$")
                    continue
                self.assertIsNone(row.error)
                (measured,) = row.rounds
                self.assertGreater(measured.operations, 0)
                self.assertGreater(measured.cpu_seconds, 0)
                # Alike for all: of ways that ask for one object at a time.
                one_at_a_time = workload != "list" and client != "ringest get_many"
                self.assertEqual(measured.latency is not None, one_at_a_time)
                if one_at_a_time:
                    self.assertGreater(measured.latency.total, 0)
        for name in ("ringest", "obstore", "gcsfs", "google-cloud-storage"):
            self.assertIn(name, document.versions)


if __name__ == "__main__":
    unittest.main()
