"""ringest.lightning with Lightning's Trainer: saved, resumed, removed, and failing as it should."""

import collections
import io
import os
import pickle
import tempfile
import threading
import types
import unittest
import unittest.mock
import warnings

import lightning
import torch
import torch.distributed.fsdp
import torch.distributed.tensor
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel

import ranks
import ringest
import support
from ringest import checkpoint, fs, retention
from ringest.lightning import (
    AsyncCheckpointIO,
    CheckpointIO,
    DataModule,
    FSDPStrategy,
    ModelParallelStrategy,
    Monitor,
    object_uri,
)

QUIET = {
    "accelerator": "cpu",
    "devices": 1,
    "enable_checkpointing": False,
    "enable_model_summary": False,
    "enable_progress_bar": False,
    "logger": False,
}


class Model(BoringModel):
    """Its losses, and an optimizer with state."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def training_step(self, batch, batch_index):
        done = super().training_step(batch, batch_index)
        self.losses.append(done["loss"].item())
        return done

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def train_dataloader(self):
        # The same one over and over: a training that is resumed begins with the first.
        data = torch.randn(1, 32, generator=torch.Generator().manual_seed(1)).repeat(24, 1)
        return torch.utils.data.DataLoader(data)


class SaveAt(lightning.Callback):
    def __init__(self, steps, uri="gs://run/step-{}.ckpt"):
        self.steps = steps
        self.uri = uri

    def on_train_batch_end(self, trainer, *arguments):
        if trainer.global_step in self.steps:
            trainer.save_checkpoint(self.uri.format(trainer.global_step))


def fit(plugins, callbacks=(), steps=8, **options):
    torch.manual_seed(3)
    model = Model()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            plugins=plugins, callbacks=list(callbacks), max_steps=steps, default_root_dir=folder, **QUIET
        )
        trainer.fit(model, **options)
    return model


class Plain(unittest.TestCase):
    def test_training_goes_on_where_it_was_saved(self):
        with support.client() as client:
            for kind in (CheckpointIO(client), AsyncCheckpointIO(CheckpointIO(client))):
                whole = fit(kind, [SaveAt([3])])
                rest = fit(kind, ckpt_path="gs://run/step-3.ckpt")
                self.assertEqual(rest.losses, whole.losses[3:])
                self.assertEqual(len(whole.losses), 8)
                client.delete("gs://run/step-3.ckpt")

    def test_files_are_those_of_torch(self):
        with support.client() as client, tempfile.TemporaryDirectory() as folder:
            fit(CheckpointIO(client), [SaveAt([2])])
            path = os.path.join(folder, "file.ckpt")
            with open(path, "wb") as file:
                file.write(client.get("gs://run/step-2.ckpt"))
            self.assertEqual(torch.load(path)["global_step"], 2)
            # Lightning's own loads it, and what that wrote is loaded.
            rest = fit([], ckpt_path=path)
            self.assertEqual(len(rest.losses), 6)
            with open(path, "rb") as file:
                client.put("gs://run/other.ckpt", file.read())
            self.assertEqual(fit(CheckpointIO(client), ckpt_path="gs://run/other.ckpt").losses, rest.losses)

    def test_places(self):
        for path, uri in (
            ("gs://b/a//b", "gs://b/a//b"),
            ("gcs://b/x", "gs://b/x"),
            ("gs:/b/x", "gs://b/x"),
            ("/tmp/gs://b", None),
            ("x", None),
        ):
            self.assertEqual(object_uri(path), uri)
        with support.client() as client, tempfile.TemporaryDirectory() as folder:
            kind = CheckpointIO(client)
            path = os.path.join(folder, "x.ckpt")
            kind.save_checkpoint({"x": 1}, path)
            self.assertEqual(kind.load_checkpoint(path), {"x": 1})
            kind.remove_checkpoint(path)
            self.assertFalse(os.path.exists(path))

    def test_arguments(self):
        with support.client() as client:
            kind = CheckpointIO(client)
            kind.save_checkpoint({"x": torch.ones(3), "y": torch.nn.Linear(2, 3)}, "gs://run/a")
            with self.assertRaisesRegex(pickle.UnpicklingError, "Linear was not an allowed"):
                kind.load_checkpoint("gs://run/a")
            found = kind.load_checkpoint("gs://run/a", map_location="meta", weights_only=False)
            self.assertEqual(found["x"].device.type, "meta")
            with self.assertRaises(TypeError):
                kind.save_checkpoint({}, "gs://run/a", storage_options={})
            with self.assertRaises(FileNotFoundError):
                kind.load_checkpoint("gs://run/none")
            kind.remove_checkpoint("gs://run/a")
            kind.remove_checkpoint("gs://run/a")
            self.assertEqual(len(client.list("gs://run/")), 0)

    def test_a_failed_save_leaves_what_was_there(self):
        with support.client() as client:
            kind = CheckpointIO(client)
            kind.save_checkpoint({"x": 1}, "gs://run/a")
            with self.assertRaises(TypeError):
                kind.save_checkpoint({"x": torch.ones(1000), "y": threading.Lock()}, "gs://run/a")
            self.assertEqual(kind.load_checkpoint("gs://run/a"), {"x": 1})


class Held(CheckpointIO):
    """Saves when it is let go on, and fails where it is told to."""

    def __init__(self, client, failing=()):
        super().__init__(client)
        self.go_on = threading.Event()
        self.failing = failing

    def save_checkpoint(self, checkpoint, path, storage_options=None):
        self.go_on.wait(60)
        if path in self.failing:
            raise OSError(f"{path}: no room")
        super().save_checkpoint(checkpoint, path, storage_options)


class Asynchronous(unittest.TestCase):
    def test_what_is_saved_is_what_was_there_then(self):
        with support.client() as client:
            held = Held(client)
            kind = AsyncCheckpointIO(held)
            large = torch.arange(100.0)
            state = {"x": large, "part": large[10:20], "turned": large.view(10, 10).t(), "list": [1]}
            wanted = {name: value.clone() for name, value in state.items() if name != "list"}
            kind.save_checkpoint(state, "gs://run/a")
            large.zero_()
            state["list"].append(2)
            held.go_on.set()
            found = kind.load_checkpoint("gs://run/a")
            self.assertEqual(found.pop("list"), [1])
            for name, tensor in wanted.items():
                self.assertTrue(torch.equal(found[name], tensor), name)
            # They share memory as before.
            self.assertEqual(found["x"].untyped_storage().data_ptr(), found["part"].untyped_storage().data_ptr())
            kind.teardown()

    def test_a_failure_fails_the_training_at_the_next_save(self):
        with support.client() as client:
            held = Held(client, ["gs://run/step-2.ckpt"])
            held.go_on.set()
            client.put("gs://run/there", b"")
            with self.assertRaisesRegex(OSError, "step-2.ckpt: no room"):
                fit(AsyncCheckpointIO(held), [SaveAt([2, 4, 6])])
            self.assertEqual([name for name, _, _ in client.list("gs://run/")], ["there"])

    def test_a_failure_of_the_last_save_fails_the_training(self):
        with support.client() as client:
            held = Held(client, ["gs://run/step-8.ckpt"])
            held.go_on.set()
            kind = AsyncCheckpointIO(held)
            with self.assertRaisesRegex(OSError, "step-8.ckpt: no room"):
                fit(kind, [SaveAt([4, 8])])
            self.assertEqual([name for name, _, _ in client.list("gs://run/")], ["step-4.ckpt"])
            # Told once; another training may follow.
            kind.teardown()
            fit(kind, [SaveAt([1])])
            self.assertEqual(len(client.list("gs://run/")), 2)

    def test_what_a_newer_one_replaces_goes_when_that_is_there(self):
        with support.client() as client:
            held = Held(client, ["gs://run/c"])
            kind = AsyncCheckpointIO(held)
            held.go_on.set()
            kind.save_checkpoint({"x": 1}, "gs://run/a")
            kind.wait()
            held.go_on.clear()
            kind.save_checkpoint({"x": 2}, "gs://run/b")
            kind.remove_checkpoint("gs://run/a")
            self.assertEqual([name for name, _, _ in client.list("gs://run/")], ["a"])
            held.go_on.set()
            kind.wait()
            self.assertEqual([name for name, _, _ in client.list("gs://run/")], ["b"])
            kind.save_checkpoint({"x": 3}, "gs://run/c")
            kind.remove_checkpoint("gs://run/b")
            with self.assertRaisesRegex(OSError, "no room"):
                kind.teardown()
            self.assertEqual(checkpoint.load("gs://run/b", client=client), {"x": 2})


class ShardedModel(Model):
    """Parallel by FSDP2."""

    def configure_model(self):
        from torch.distributed.fsdp import fully_shard

        if not isinstance(self.layer.weight, torch.distributed.tensor.DTensor):
            fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])


def let_fsdp_use_the_cpu():
    """Lightning gives the number of an accelerator, and FSDP takes the CPU where it is asked to."""
    kind = torch.distributed.fsdp.FullyShardedDataParallel
    make = kind.__init__

    def make_there(self, *arguments, device_id=None, **keywords):
        make(self, *arguments, device_id=torch.device("cpu"), **keywords)

    kind.__init__ = make_there


def train_sharded(rank, client, uri, steps, options, resume=None, is_first=False):
    """One rank: losses of a training that saves at some steps; by the first FSDP if asked."""
    world_size = torch.distributed.get_world_size()
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        GROUP_RANK="0",
        WORLD_SIZE=str(world_size),
        LOCAL_WORLD_SIZE=str(world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="1",
        TORCHELASTIC_RUN_ID="x",
    )
    if is_first:
        let_fsdp_use_the_cpu()
        strategy, kind = FSDPStrategy(client, **options), Model
    else:
        strategy = ModelParallelStrategy(client, data_parallel_size=world_size, tensor_parallel_size=1, **options)
        kind = ShardedModel
    torch.manual_seed(3)
    model = kind()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            strategy=strategy,
            callbacks=[SaveAt(steps, uri)],
            max_steps=8,
            default_root_dir=folder,
            **{**QUIET, "devices": world_size},
        )
        trainer.fit(model, ckpt_path=resume)
    return model.losses


def number(item):
    return int(item.uri.rsplit("-", 1)[1])


class Noting(BoringModel):
    """Which samples it was trained on, by epochs."""

    def __init__(self):
        super().__init__()
        self.epochs = collections.defaultdict(list)

    def training_step(self, batch, batch_index):
        self.epochs[self.current_epoch] += batch
        return super().training_step(torch.ones(len(batch), 32), batch_index)


class Data(unittest.TestCase):
    """60 samples in batches of 8: 8 steps an epoch."""

    COUNT = 60

    @classmethod
    def setUpClass(cls):
        cls.client = cls.enterClassContext(support.client())

    def dataset(self, **options):
        entries = support.entries()[: self.COUNT]
        options = {"shuffle": True, "seed": 5, "batch_size": 8, "manifest": entries, "transform": number, **options}
        return ringest.IterableDataset("gs://data/x-", client=self.client, **options)

    def fit(self, steps, resume=None, save_at=(), options=None, **more):
        """What a training has seen, by epochs."""
        model, data = Noting(), DataModule(self.dataset(), collate_fn=list, **(options or {}))
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = lightning.Trainer(
                plugins=CheckpointIO(self.client), callbacks=[SaveAt(save_at)], max_steps=steps,
                default_root_dir=folder, limit_val_batches=0, **QUIET, **more,
            )  # fmt: skip
            trainer.fit(model, data, ckpt_path=resume and f"gs://run/step-{resume}.ckpt")
        return dict(model.epochs)

    def orders(self, count):
        found = []
        for epoch in range(count):
            dataset = self.dataset(batch_size=None)
            dataset.set_epoch(epoch)
            found.append(list(dataset))
        return found

    def test_a_training_goes_on_where_it_was_saved(self):
        orders = self.orders(3)
        whole = self.fit(24, save_at=(1, 5, 8, 11, 16))
        self.assertEqual(whole, dict(enumerate(orders)))
        for step in (1, 5, 8, 11, 16):  # 8 and 16 are the ends of epochs
            with self.subTest(step):
                epoch, batches = divmod(step, 8)
                wanted = {epoch: orders[epoch][8 * batches :]}
                wanted |= {each: orders[each] for each in range(epoch + 1, 3)}
                self.assertEqual(self.fit(24, resume=step), wanted)

    def test_states_are_those_of_the_workers(self):
        orders = self.orders(2)
        options = {"num_workers": 2, "multiprocessing_context": "fork"}
        before = self.fit(3, save_at=[3], options=options)[0]
        rest = self.fit(16, resume=3, options={"num_workers": 1, "multiprocessing_context": "fork"})
        self.assertEqual(sorted(before + rest[0]), list(range(self.COUNT)))
        self.assertEqual(len(before), 24)
        self.assertEqual(rest[1], orders[1])

    def test_an_epoch_that_is_cut_short_is_over(self):
        orders = self.orders(3)
        seen = self.fit(6, save_at=[3, 4], limit_train_batches=3)
        self.assertEqual(seen, {0: orders[0][:24], 1: orders[1][:24]})
        self.assertEqual(self.fit(6, resume=3, limit_train_batches=3), {1: orders[1][:24]})
        self.assertEqual(self.fit(6, resume=4, limit_train_batches=3), {1: orders[1][8:24]})

    def test_a_checkpoint_of_an_end_of_an_epoch(self):
        orders = self.orders(2)
        fs.register(self.client)
        callback = ModelCheckpoint("gs://run/ends/", save_top_k=-1, save_on_train_epoch_end=True)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = {**QUIET, "enable_checkpointing": True, "default_root_dir": folder, "limit_val_batches": 0}
            data = DataModule(self.dataset(), collate_fn=list)
            plugin = CheckpointIO(self.client)
            lightning.Trainer(plugins=plugin, callbacks=[callback], max_epochs=1, **options).fit(Noting(), data)
            model, data = Noting(), DataModule(self.dataset(), collate_fn=list)
            trainer = lightning.Trainer(plugins=plugin, max_epochs=2, **{**options, "enable_checkpointing": False})
            trainer.fit(model, data, ckpt_path="gs://run/ends/epoch=0-step=8.ckpt")
        self.assertEqual(dict(model.epochs), {1: orders[1]})

    def test_arguments(self):
        with self.assertRaisesRegex(TypeError, "got MapDataset: give others to trainer.fit"):
            DataModule(ringest.MapDataset("gs://data/x-", client=self.client))


class Sharded(unittest.TestCase):
    def assertNear(self, losses, others):
        self.assertEqual(len(losses), len(others))
        for loss, other in zip(losses, others):
            self.assertAlmostEqual(loss, other, places=4)

    def test_training_goes_on_with_another_number_of_ranks(self):
        with support.client() as client:
            for options in ({}, {"use_async": True}):
                whole = ranks.run(2, train_sharded, client, "gs://run/step-{}.ckpt", [3, 6], options)
                self.assertEqual([each.step for each in retention.find("gs://run/", client) if each.complete], [3, 6])
                rest = ranks.run(3, train_sharded, client, "gs://run/other-{}", [], options, "gs://run/step-3.ckpt")
                for losses in rest:
                    self.assertNear(losses, whole[0][3:])
                retention.remove("gs://run/step-3.ckpt", client)
                retention.remove("gs://run/step-6.ckpt", client)
                self.assertEqual(len(client.list("gs://run/")), 0)

    def test_a_checkpoint_is_replaced_as_a_whole(self):
        with support.client() as client:
            whole = ranks.run(1, train_sharded, client, "gs://run/last.ckpt", [2], {})[0]
            meta = client.get("gs://run/last.ckpt/meta.pt")
            # Killed behind the first object of another save: what counts is what was saved with the shards.
            client.put("gs://run/last.ckpt/meta.pt", b"damaged")
            rest = ranks.run(1, train_sharded, client, "gs://run/{}", [], {}, "gs://run/last.ckpt")[0]
            self.assertNear(rest, whole[2:])
            # Lightning's own classes find theirs in it.
            self.assertEqual(torch.load(io.BytesIO(meta))["global_step"], 2)

    def test_what_lightning_saved_is_loaded(self):
        with support.client() as client, tempfile.TemporaryDirectory() as folder:
            whole = ranks.run(2, train_sharded, client, folder + "/{}", [4], {})[0]
            for name in os.listdir(folder + "/4"):
                with open(f"{folder}/4/{name}", "rb") as file:
                    client.put(f"gs://run/4/{name}", file.read())
            rest = ranks.run(2, train_sharded, client, "gs://run/{}", [], {}, "gs://run/4")[0]
            self.assertNear(rest, whole[4:])

    def test_the_first_fsdp(self):
        with support.client() as client:
            whole = ranks.run(2, train_sharded, client, "gs://run/{}", [3], {"use_async": True}, None, True)[0]
            rest = ranks.run(3, train_sharded, client, "gs://run/{}", [], {}, "gs://run/3", True)[0]
            self.assertNear(rest, whole[3:])

    def test_a_failure_fails_the_training(self):
        with support.client() as client:
            client.put("gs://run/there", b"")
            with unittest.mock.patch("ringest.dcp.StorageWriter.write_data", side_effect=OSError("no room")):
                for options, steps in (({}, [2]), ({"use_async": True}, [2, 4]), ({"use_async": True}, [8])):
                    with self.assertRaisesRegex(AssertionError, "no room"):
                        ranks.run(2, train_sharded, client, "gs://run/step-{}.ckpt", steps, options)
            self.assertFalse(any(each.complete for each in retention.find("gs://run/", client)))


class Monitored(unittest.TestCase):
    def test_what_a_step_waited_for_is_logged_beside_the_loss(self):
        logged = {}

        class Logger(lightning.pytorch.loggers.logger.DummyLogger):
            def log_metrics(self, metrics, step=None):
                logged.setdefault(step, {}).update(metrics)

        with support.client() as one:
            dataset = ringest.IterableDataset(
                "gs://data/x-0000000", client=one, batch_size=2, transform=lambda item: torch.ones(32)
            )

            class Data(Model):
                def train_dataloader(self):
                    return torch.utils.data.DataLoader(dataset, batch_size=None, collate_fn=torch.stack)

            for wrong in ({"client": "x"}, {"dataset": "x"}):
                with self.assertRaisesRegex(TypeError, f"{next(iter(wrong))} must be"):
                    Monitor(**wrong)
            monitor = Monitor(one, dataset=dataset)
            options = {**QUIET, "logger": Logger(), "callbacks": [monitor], "log_every_n_steps": 2}
            lightning.Trainer(max_epochs=1, **options).fit(Data())
        ours = {step: names for step, names in logged.items() if "ringest/wait_ms_per_step" in names}
        self.assertEqual(sorted(ours), [2, 4])
        for names in ours.values():
            self.assertGreater(names["ringest/wait_decode_ms"], 0)
            self.assertIn("ringest/retries", names)
        self.assertGreater(sum(names["ringest/megabytes_per_s"] for names in ours.values()), 0)

    def test_each_step_once_and_none_where_lightning_logs_none(self):
        class Logger:
            def __init__(self):
                self.steps = []

            def log_metrics(self, metrics, step):
                self.steps.append(step)

        for every, expected in ((2, [2, 4]), (0, [])):
            logger = Logger()
            trainer = types.SimpleNamespace(global_step=0, log_every_n_steps=every, loggers=[logger])
            monitor = Monitor()
            monitor.on_train_start(trainer, None)
            for batch in range(1, 9):  # two make a step
                trainer.global_step = batch // 2
                monitor.on_train_batch_end(trainer, None, None, None, batch - 1)
            self.assertEqual(logger.steps, expected)


class Paths(unittest.TestCase):
    """What Lightning opens by fsspec."""

    def test_lightnings_model_checkpoint_keeps_the_best(self):
        with support.client(hedging=False) as client, tempfile.TemporaryDirectory() as folder:
            fs.register(client)
            files = fs.FileSystem(client=client)
            keeper = ModelCheckpoint(
                "gs://here/best", "{step}", every_n_train_steps=2, save_top_k=2, monitor="step", mode="max"
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trainer = lightning.Trainer(
                    accelerator="cpu", devices=1, max_steps=8, logger=False, callbacks=[keeper],
                    plugins=[CheckpointIO(client)], default_root_dir="gs://here/root",
                    enable_progress_bar=False, enable_model_summary=False,
                )  # fmt: skip
                trainer.fit(BoringModel())
                self.assertEqual(
                    files.ls("here/best", detail=False), ["here/best/step=6.ckpt", "here/best/step=8.ckpt"]
                )
                self.assertEqual(keeper.best_model_path, "gs://here/best/step=8.ckpt")
                again = lightning.Trainer(
                    accelerator="cpu", devices=1, max_steps=10, logger=False, plugins=[CheckpointIO(client)],
                    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                    default_root_dir=folder,
                )  # fmt: skip
                again.fit(BoringModel(), ckpt_path=keeper.best_model_path)
                self.assertEqual(again.global_step, 10)


if __name__ == "__main__":
    unittest.main()
