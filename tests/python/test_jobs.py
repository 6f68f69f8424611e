"""examples/jobs: what each job starts on its nodes is started here, one after the other, and each resumes the run of the one before.

That the manifests are what Kubernetes and Vertex AI take is what test_manifests.py looks at."""

import contextlib
import importlib.util
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

import support

EXAMPLES = pathlib.Path(os.environ["RINGEST_TESTS"]).parent / "examples"
JOBS = EXAMPLES / "jobs"
NODES, RANKS = 2, 4
PATIENCE_S = 300
MISSING = [name for name in ("torch", "yaml") if importlib.util.find_spec(name) is None]

# In place of Slurm: a task for each node, and what was asked of the controller.
SRUN = f"""#!/usr/bin/env bash
while [[ $1 == --* ]]; do shift; done
for ((node = 0; node < {NODES}; node++)); do
    SLURM_NODEID=$node "$@" &
    tasks+=($!)
done
for task in "${{tasks[@]}}"; do wait "$task" || status=1; done
exit "${{status-0}}"
"""
SRUN_OF_A_LOST_NODE = "#!/bin/sh\nexit 137\n"
SCONTROL = """#!/bin/sh
if [ "$1" = show ]; then printf '127.0.0.1\\n127.0.0.2\\n'; else echo "$@" >>"$ASKED"; fi
"""


def free_port(first=1024, last=65535):
    """Of this machine; another program may take it before it is used, but hardly one of those that are this low."""
    for port in range(first, last + 1):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def replaced(text, names):
    """Each of them has to be there: a test that puts nothing in would start something else."""
    for name, value in names.items():
        if name not in text:
            raise AssertionError(f"{name} is not in {text}")
        text = text.replace(name, value)
    return text


def containers(file):
    """The container of each node of a manifest."""
    import yaml

    documents = list(yaml.safe_load_all((JOBS / file).read_text()))
    if file == "gke.yaml":
        job = documents[1]["spec"]
        return job["template"]["spec"]["containers"] * job["completions"]
    return [pool["containerSpec"] for pool in documents[0]["workerPoolSpecs"] for _ in range(pool["replicaCount"])]


@unittest.skipIf(MISSING, f"the jobs need {', '.join(MISSING)}")
class Jobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        endpoint, ca = cls.enterClassContext(support.emulator(buckets=("trials",)))
        cls.environment = {
            **os.environ,
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
            "STORAGE_EMULATOR_HOST": endpoint,
            "SSL_CERT_FILE": ca,
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            cls.environment.pop(name, None)

    def run_nodes(self, commands):
        """What all of them said."""
        with contextlib.ExitStack() as stack:
            nodes = []
            for command, environment, folder in commands:
                node = subprocess.Popen(
                    command,
                    cwd=folder,
                    env={**self.environment, **environment},
                    text=True,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                )
                stack.enter_context(node)
                stack.callback(node.kill)
                nodes.append(node)
            said = "".join(node.communicate(timeout=PATIENCE_S)[0] for node in nodes)
            self.assertEqual([node.returncode for node in nodes], [0] * len(nodes), said)
        self.assertNotIn("RINGEST_", said, "the log warns of a variable")
        return said

    def check(self, said, first, last):
        steps = [int(step) for step in re.findall(r"^step (\d+) loss", said, re.M)]
        self.assertEqual(steps, list(range(first, last + 1)), said)
        if first > 1:
            self.assertIn(f"resumed after step {first - 1} on {RANKS} ranks", said)

    def run_manifest(self, file, steps, of_nodes, names):
        commands = []
        for container, of_node in zip(containers(file), of_nodes, strict=True):
            environment = {each["name"]: each["value"] for each in container["env"]}
            arguments = [replaced(text, {"gs://BUCKET/": "gs://trials/", **names}) for text in container["args"]]
            environment |= {"STEPS": str(steps), **of_node}
            commands.append((container["command"] + arguments, environment, EXAMPLES))
        return self.run_nodes(commands)

    def test_each_job_resumes_the_run_of_the_one_before(self):
        port = str(free_port(31000))
        indices = [{"JOB_COMPLETION_INDEX": str(node)} for node in range(NODES)]
        said = self.run_manifest("gke.yaml", 2, indices, {"train-0.train": "127.0.0.1", "29500": port})
        self.check(said, 1, 2)

        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port(32000)), "WORLD_SIZE": str(NODES)}
        said = self.run_manifest("vertex.yaml", 4, [{**place, "RANK": str(node)} for node in range(NODES)], {})
        self.check(said, 3, 4)

        with self.slurm(SRUN) as environment:
            environment |= {"RUN": "gs://trials/fsdp", "STEPS": "6"}
            said = self.run_nodes([(["bash", str(JOBS / "slurm.sh")], environment, EXAMPLES.parent)])
            self.check(said, 5, 6)
            self.assertFalse(os.path.exists(environment["ASKED"]), "it was asked for another try")

    @contextlib.contextmanager
    def slurm(self, srun):
        """The environment of a batch script."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("srun", srun), ("scontrol", SCONTROL)):
                path = pathlib.Path(folder, name)
                path.write_text(text)
                path.chmod(0o755)
            yield {
                "PATH": folder + os.pathsep + self.environment["PATH"],
                "ASKED": os.path.join(folder, "asked"),
                "SLURM_JOB_NODELIST": "node[1-2]",
                "SLURM_NNODES": str(NODES),
                # The script makes its port of it.
                "SLURM_JOB_ID": str(free_port(21000, 29999) - 20000),
            }

    def test_slurm_is_asked_for_another_try_and_not_for_ever(self):
        for restarts, is_asked in ((None, True), ("19", True), ("20", False)):
            with self.subTest(restarts), self.slurm(SRUN_OF_A_LOST_NODE) as environment:
                environment["RUN"] = "gs://trials/fsdp"
                if restarts:
                    environment["SLURM_RESTART_COUNT"] = restarts
                done = subprocess.run(["bash", str(JOBS / "slurm.sh")], env=self.environment | environment, check=False)
                self.assertEqual(done.returncode, 1)
                asked = pathlib.Path(environment["ASKED"])
                self.assertEqual(asked.exists(), is_asked)
                if is_asked:
                    self.assertEqual(asked.read_text(), f"requeue {environment['SLURM_JOB_ID']}\n")

    def test_a_batch_script_without_a_place_says_so(self):
        with self.slurm(SRUN) as environment:
            command = ["bash", str(JOBS / "slurm.sh")]
            done = subprocess.run(
                command, env=self.environment | environment, text=True, capture_output=True, check=False
            )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("RUN=gs://BUCKET/PREFIX", done.stderr)


if __name__ == "__main__":
    unittest.main()
