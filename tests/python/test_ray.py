"""ringest.ray with Ray Data, in a cluster of two local nodes: images and Parquet files."""

import io
import logging
import os
import unittest

import numpy
import pyarrow
import pyarrow.parquet
import ray
import ray.data
from ray.cluster_utils import Cluster

import ringest
import support
from ringest.ray import Objects, Parquet

MEMORY = 100 << 20
COUNT = 60
FILES, ROWS = 5, 1000


def picture(number):
    return numpy.full((4, 4, 3), number, dtype=numpy.uint8)


def decode(item):
    pixels = numpy.frombuffer(item.data, dtype=numpy.uint8).reshape(4, 4, 3)
    return {"image": pixels, "number": int(item.uri.rsplit("/", 1)[1])}


class Ray(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        endpoint, ca = cls.enterClassContext(support.emulator())
        cls.client = cls.enterClassContext(ringest.Client(endpoint, ca, threads=1))
        cls.client.put_many((f"gs://mine/images/{i:03}", picture(i).tobytes()) for i in range(COUNT))
        for i in range(FILES):
            table = pyarrow.table({"id": range(ROWS * i, ROWS * i + ROWS), "text": [f"text {j}" for j in range(ROWS)]})
            out = io.BytesIO()
            pyarrow.parquet.write_table(table, out, row_group_size=300)
            cls.client.put(f"gs://mine/rows/{i}.parquet", out.getvalue())
        # Its workers find this module, and thus decode().
        os.environ["PYTHONPATH"] = os.pathsep.join([os.path.dirname(__file__), os.environ["PYTHONPATH"]])
        node = {"num_cpus": 1, "object_store_memory": MEMORY}
        cls.cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        cls.cluster.add_node(**node)
        ray.init(address=cls.cluster.address, logging_level=logging.WARNING, log_to_driver=False)
        cls.addClassCleanup(cls.cluster.shutdown)
        cls.addClassCleanup(ray.shutdown)

    def test_there_are_two_nodes(self):
        self.assertEqual(sum(node["Alive"] for node in ray.nodes()), 2)

    def test_images_come_once_each(self):
        dataset = ray.data.read_datasource(Objects("gs://mine/images/", decode, self.client), override_num_blocks=4)
        seen = {row["number"]: row["image"] for row in dataset.iter_rows()}
        self.assertEqual(sorted(seen), list(range(COUNT)))
        self.assertEqual(dataset.count(), COUNT)
        for number, image in seen.items():
            numpy.testing.assert_array_equal(image, picture(number))

    def test_objects_as_they_are(self):
        rows = ray.data.read_datasource(Objects("gs://mine/images/00", client=self.client)).take_all()
        found = sorted((row["uri"], row["bytes"]) for row in rows)
        self.assertEqual(found, [(f"gs://mine/images/{i:03}", picture(i).tobytes()) for i in range(10)])

    def test_rows_of_parquet_files(self):
        source = Parquet("gs://mine/rows/", columns=["id"], client=self.client)
        self.assertEqual(len(source.get_read_tasks(3)), 3)
        dataset = ray.data.read_datasource(source, override_num_blocks=3)
        self.assertEqual(dataset.schema().names, ["id"])
        self.assertEqual(sorted(row["id"] for row in dataset.iter_rows()), list(range(FILES * ROWS)))

    def test_what_cannot_be_read_fails_the_job_with_its_name(self):
        self.client.put("gs://mine/bad/000", b"short")
        dataset = ray.data.read_datasource(Objects("gs://mine/bad/", decode, self.client))
        with self.assertRaises(Exception) as raised:
            dataset.take_all()
        self.assertIn("the transform of gs://mine/bad/000 raised", str(raised.exception))
        skipping = Objects("gs://mine/bad/", decode, self.client, on_error="skip")
        self.client.put("gs://mine/bad/001", picture(1).tobytes())
        self.assertEqual(ray.data.read_datasource(skipping).count(), 0)  # it was listed before


if __name__ == "__main__":
    unittest.main()
