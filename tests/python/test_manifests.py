"""examples/jobs: manifests are what Kubernetes and Vertex AI take, by the schemas that their makers publish, and ShellCheck
finds nothing in the batch script. No service is asked."""

import os
import pathlib
import subprocess
import sys
import unittest

import kubernetes_validate
import yaml
from google.cloud.aiplatform_v1.types import CustomJobSpec
from google.protobuf import json_format

JOBS = pathlib.Path(os.environ["RINGEST_TESTS"]).parent / "examples" / "jobs"
# The oldest with what the manifest uses that the package knows, and the newest.
KUBERNETES = ("1.31", "1.37")


def documents(file):
    return list(yaml.safe_load_all((JOBS / file).read_text()))


class Manifests(unittest.TestCase):
    def test_kubernetes_takes_it(self):
        found = documents("gke.yaml")
        self.assertEqual([each["kind"] for each in found], ["Service", "Job"])
        for version in KUBERNETES:
            for each in found:
                self.assertEqual(kubernetes_validate.validate(each, version, strict=True), version)

    def test_what_is_misspelt_is_seen(self):
        job = documents("gke.yaml")[1]
        job["spec"]["template"]["spec"]["containers"][0]["resources"]["limit"] = {}
        with self.assertRaisesRegex(kubernetes_validate.ValidationError, "limit"):
            kubernetes_validate.validate(job, KUBERNETES[-1], strict=True)
        (spec,) = documents("vertex.yaml")
        spec["workerPoolSpecs"][0]["containerSpec"]["image"] = ""
        with self.assertRaisesRegex(json_format.ParseError, "image"):
            json_format.ParseDict(spec, CustomJobSpec.pb()())

    def test_pods_find_each_other(self):
        service, job = documents("gke.yaml")
        name, pod = job["metadata"]["name"], job["spec"]["template"]["spec"]
        self.assertEqual(service["spec"]["selector"], {"batch.kubernetes.io/job-name": name})
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        self.assertIn(f"--master-addr {name}-0.{pod['subdomain']} ", pod["containers"][0]["args"][0])
        self.assertIn(f"--nnodes {job['spec']['completions']} ", pod["containers"][0]["args"][0])
        self.assertEqual(job["spec"]["completions"], job["spec"]["parallelism"])

    def test_what_pods_mount_is_there(self):
        pod = documents("gke.yaml")[1]["spec"]["template"]["spec"]
        mounted = {each["name"] for each in pod["containers"][0]["volumeMounts"]}
        self.assertEqual(mounted, {each["name"] for each in pod["volumes"]})

    def test_vertex_takes_it(self):
        (spec,) = documents("vertex.yaml")
        job = json_format.ParseDict(spec, CustomJobSpec.pb()())
        # The service wants one primary replica, first.
        self.assertEqual(job.worker_pool_specs[0].replica_count, 1)
        self.assertTrue(job.scheduling.restart_job_on_worker_restart)

    def test_shellcheck_finds_nothing(self):
        program = os.path.join(os.path.dirname(sys.executable), "shellcheck")
        done = subprocess.run([program, str(JOBS / "slurm.sh")], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
