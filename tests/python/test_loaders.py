"""Loaders of others that take our datasets as they are: grain and SPDL."""

import itertools
import json
import unittest
import warnings

import ringest
import support

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import grain
    import spdl.pipeline

COUNT = 60


def number(item):
    return int(item.uri.rsplit("-", 1)[1])


class Loaders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = cls.enterClassContext(support.client())
        cls.options = {"client": cls.client, "manifest": support.entries()[:COUNT]}

    def dataset(self):
        return ringest.MapDataset("gs://data/x-", number, **self.options)

    def test_grain_reads_by_index_and_resumes(self):
        self.assertIsInstance(self.dataset(), grain.sources.RandomAccessDataSource)

        def pipeline():
            source = grain.MapDataset.source(self.dataset()).seed(5).shuffle().to_iter_dataset()
            return iter(source.batch(8, batch_fn=list))

        whole = list(pipeline())
        self.assertEqual(sorted(itertools.chain(*whole)), list(range(COUNT)))
        for taken in (0, 3, 7):
            first = pipeline()
            got = list(itertools.islice(first, taken))
            state = json.loads(json.dumps(first.get_state()))
            again = pipeline()
            again.set_state(state)
            self.assertEqual(got + list(again), whole)

    def test_a_loader_of_grain_knows_its_source_again(self):
        def loader():
            dataset = self.dataset()
            sampler = grain.samplers.IndexSampler(len(dataset), shuffle=True, seed=3, num_epochs=1)
            return grain.DataLoader(data_source=dataset, sampler=sampler, worker_count=0)

        whole = list(loader())
        self.assertEqual(sorted(whole), list(range(COUNT)))
        first = iter(loader())
        got = list(itertools.islice(first, 10))
        again = iter(loader())
        again.set_state(first.get_state())
        self.assertEqual(got + list(again), whole)

    def test_spdl_takes_a_stream_or_fetches_by_index(self):
        stream = ringest.IterableDataset(
            "gs://data/x-", shuffle=True, seed=5, batch_size=8, transform=number, **self.options
        )
        wanted = list(stream)
        builder = spdl.pipeline.PipelineBuilder().add_source(stream).pipe(sorted, concurrency=2, output_order="input")
        pipeline = builder.add_sink(4).build(num_threads=2)
        with pipeline.auto_stop():
            self.assertEqual(list(pipeline), [sorted(batch) for batch in wanted])
        indices = [list(range(i, min(i + 8, COUNT))) for i in range(0, COUNT, 8)]
        fetch = self.dataset().__getitems__
        builder = spdl.pipeline.PipelineBuilder().add_source(indices).pipe(fetch, concurrency=2, output_order="input")
        pipeline = builder.add_sink(4).build(num_threads=2)
        with pipeline.auto_stop():
            self.assertEqual(list(pipeline), indices)


if __name__ == "__main__":
    unittest.main()
