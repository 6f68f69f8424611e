"""Buffers in PyTorch's DataLoader as it is without options: workers and the process itself give the same."""

import copy
import io
import json
import pickle
import subprocess
import sys
import unittest

import torch
from torch.utils.data import DataLoader, Dataset

import ringest
import support

KINDS = ((0, None), (2, "fork"), (1, "spawn"), (2, "forkserver"))


class Own(Dataset):
    """A dataset that is not ours, as users write them."""

    def __init__(self, client):
        self.client = client

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return {"data": self.client.get(support.uri(index)), "label": index}


class Collate(unittest.TestCase):
    def check(self, make, batch_size, expected, kinds):
        for workers, context in kinds:
            with self.subTest(workers=workers, context=context, batch_size=batch_size):
                loader = DataLoader(make(), batch_size=batch_size, num_workers=workers, multiprocessing_context=context)
                found = list(loader)
                flat = found if batch_size is None else [data for batch in found for data in batch]
                self.assertEqual({type(data) for data in flat}, {ringest.Buffer})
                if batch_size is not None:
                    self.assertEqual({type(batch) for batch in found}, {list})
                self.assertEqual(sorted(data.to_bytes() for data in flat), expected)

    def test_a_dataset_in_a_loader_without_options(self):
        with support.client() as client:
            expected = sorted(client.get(support.uri(i)).to_bytes() for i in range(support.COUNT))

            def streamed():
                return ringest.IterableDataset("gs://data/x-", client=client)

            def mapped():
                return ringest.MapDataset("gs://data/x-", client=client)

            self.check(streamed, 16, expected, KINDS)
            self.check(streamed, None, expected, KINDS[:2])
            self.check(streamed, 1, expected, KINDS[:1])
            self.check(mapped, 16, expected, KINDS[:2])
            self.check(mapped, None, expected, KINDS[:1])

    def test_batches_of_the_dataset_itself(self):
        with support.client() as client:
            for workers, context in KINDS[:2]:
                dataset = ringest.IterableDataset("gs://data/x-", batch_size=50, client=client)
                loader = DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=context)
                with self.subTest(workers=workers, context=context):
                    for batch in loader:
                        self.assertIs(type(batch), list)
                        self.assertEqual({type(data) for data in batch}, {ringest.Buffer})

    def test_a_dataset_that_is_not_ours(self):
        with support.client() as client:
            for workers, context in KINDS[:3]:
                loader = DataLoader(Own(client), batch_size=5, num_workers=workers, multiprocessing_context=context)
                with self.subTest(workers=workers, context=context):
                    batch = next(iter(loader))
                    self.assertEqual(batch["label"].tolist(), [0, 1, 2, 3, 4])
                    self.assertEqual([type(data) for data in batch["data"]], [ringest.Buffer] * 5)

    def test_somebody_elses_function_for_buffers_stays(self):
        from torch.utils.data._utils.collate import default_collate_fn_map

        before = default_collate_fn_map[ringest.Buffer]
        default_collate_fn_map[ringest.Buffer] = mine = lambda batch, *, collate_fn_map=None: len(batch)
        try:
            ringest.Client("http://localhost:1")
            self.assertIs(default_collate_fn_map[ringest.Buffer], mine)
        finally:
            default_collate_fn_map[ringest.Buffer] = before

    def test_pytorch_is_not_imported_for_it(self):
        script = "import sys, ringest; ringest.Client('http://localhost:1'); assert 'torch' not in sys.modules"
        subprocess.run([sys.executable, "-c", script], check=True)


class Copies(unittest.TestCase):
    def test_an_unpickled_buffer_is_whole_and_its_own(self):
        with support.client() as client:
            data = client.get(support.uri(1))
            for other in (pickle.loads(pickle.dumps(data)), copy.deepcopy(data)):
                self.assertIs(type(other), ringest.Buffer)
                self.assertEqual(other, data)
                memoryview(other)[0] ^= 0xFF
                self.assertNotEqual(other, data)
            held = client.stats()["held_bytes"]
            again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(data))))
            self.assertEqual((again, client.stats()["held_bytes"]), (data, held))

    def test_what_is_made_of_a_copy_outlives_it(self):
        with support.client() as client:
            data = client.get(support.uri(1))
            other = pickle.loads(pickle.dumps(data))
            tensor, view = torch.from_dlpack(other), memoryview(other)
            del other
            self.assertEqual(bytes(tensor.tolist()), data.to_bytes())
            self.assertEqual(view, data)

    def test_an_empty_one(self):
        with support.client() as client:
            client.put("gs://mine/empty", b"")
            data = pickle.loads(pickle.dumps(client.get("gs://mine/empty")))
            self.assertEqual((len(data), data.to_bytes(), list(data)), (0, b"", []))

    def test_what_takes_bytes(self):
        with support.client() as client:
            client.put("gs://mine/text", '{"größe": 5}'.encode())
            data = client.get("gs://mine/text")
            self.assertEqual(json.loads(data.decode()), {"größe": 5})
            self.assertEqual(json.loads(data.to_bytes()), {"größe": 5})
            self.assertEqual(json.load(io.BytesIO(data)), {"größe": 5})
            self.assertEqual(data.decode("ascii", "replace")[0], "{")
            self.assertRaises(UnicodeDecodeError, data.decode, "ascii")
            self.assertEqual(list(data), list(data.to_bytes()))
            # The floor: json looks for these very types.
            with self.assertRaisesRegex(TypeError, "must be str, bytes or bytearray"):
                json.loads(data)


if __name__ == "__main__":
    unittest.main()
