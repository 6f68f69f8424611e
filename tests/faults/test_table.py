"""That the table is complete: whatever is public and writes or removes stands in it, or among the exceptions
with a reason. What is new is in neither, and fails."""

import importlib
import inspect
import os
import pathlib
import pkgutil
import re
import subprocess
import unittest
import warnings

from stage import HERE, PROGRAM

import ringest
from sweep import OPERATIONS

ROOT = pathlib.Path(HERE).parent.parent

# What only reads, or does nothing that outlasts the process. A class stands for its methods, too.
READS = """
    Buffer ChecksumError Error Item NotFoundError PermissionDeniedError PreconditionError UnavailableError
    TransformError ListError default_client gather_state stats parse_size
    Client.aexists Client.aget Client.aget_into Client.aget_many Client.aget_ranges Client.alist Client.alist_folder Client.alist_uploads Client.astat
    Client.close Client.exists Client.get Client.get_into Client.get_many Client.get_ranges Client.list Client.list_folder
    Client.list_uploads Client.sign_url Client.stat Client.stats
    TarIndex.data TarIndex.from_data TarIndex.sample TarIndex.shards
    aio.Channel aio.Channels aio.Wake.close aio.Wake.wait aio.batches
    checkpoint.AsyncReadFile checkpoint.CheckpointError checkpoint.GroupError checkpoint.ReadFile checkpoint.WriteFile.tell checkpoint.WriteFile.writable
    checkpoint.AsyncSaver.close checkpoint.AsyncSaver.wait checkpoint.Saving checkpoint.aopen checkpoint.load
    dataflux.dataflux_checkpoint.DatafluxCheckpoint.reader
    dataflux.dataflux_iterable_dataset.Config dataflux.dataflux_iterable_dataset.DataFluxIterableDataset
    dataflux.dataflux_iterable_dataset.data_format_default
    dataflux.dataflux_mapstyle_dataset.Config dataflux.dataflux_mapstyle_dataset.DataFluxMapStyleDataset
    dataflux.dataflux_mapstyle_dataset.data_format_default dataflux.data_format_default
    dataflux.lightning.dataflux_lightning_checkpoint.DatafluxLightningCheckpoint.load_checkpoint
    dataflux.lightning.dataflux_lightning_checkpoint.DatafluxLightningCheckpoint.teardown
    dataflux.lightning.gcs_filesystem.GCSDistributedReader
    dataflux.lightning.gcs_filesystem.GCSFileSystem.concat_path
    dataflux.lightning.gcs_filesystem.GCSFileSystem.exists
    dataflux.lightning.gcs_filesystem.GCSFileSystem.init_path
    dataflux.lightning.gcs_filesystem.GCSFileSystem.validate_checkpoint_id
    dataflux.lightning.path_utils.object_uri dataflux.lightning.path_utils.parse_gcs_path
    dataflux.lightning.path_utils.process_input_path
    dataset.IterableDataset dataset.MapDataset dataset.take_all
    dcp.LoadPlanner dcp.SavePlanner dcp.StorageReader
    device.DeviceBatches.load_state_dict device.DeviceBatches.set_epoch device.DeviceBatches.state_dict device.to_device
    fs.GCSFileSystem.cat fs.GCSFileSystem.cat_file fs.GCSFileSystem.cat_ranges fs.GCSFileSystem.checksum fs.GCSFileSystem.created
    fs.GCSFileSystem.du fs.GCSFileSystem.exists fs.GCSFileSystem.expand_path fs.GCSFileSystem.find
    fs.GCSFileSystem.head fs.GCSFileSystem.info
    fs.GCSFileSystem.isdir fs.GCSFileSystem.isfile fs.GCSFileSystem.ls fs.GCSFileSystem.modified fs.GCSFileSystem.tail
    fs.GCSFileSystem.getxattr fs.GCSFileSystem.sign fs.GCSFileSystem.to_dict fs.GCSFileSystem.to_json fs.GCSFileSystem.ukey fs.GCSFileSystem.url
    fs.register
    lightning.AsyncCheckpointIO.load_checkpoint lightning.CheckpointIO.load_checkpoint
    retention.Checkpoint retention.Retained retention.find retention.is_sharded
    safetensors.SafetensorError safetensors.load_file safetensors.safe_open
    Client.metrics Metric metrics lightning.Monitor opentelemetry.Durations opentelemetry.observe opentelemetry.spans
    prometheus.Collector tensorboard.Scalars trace
    lightning.DataModule torchdata.DatasetNode
    torch_checkpointing.Storage.exists torch_checkpointing.Storage.getsize torch_checkpointing.Storage.isdir
    torch_checkpointing.Storage.ls torch_checkpointing.Storage.read torch_checkpointing.Storage.remap_path
    torch_checkpointing.Storage.stream_read torch_checkpointing.StorageConfig.create_storage
    parquet.ParquetDataset parquet.ParquetSource tar.Shard tar.TarDataset tar.TarMapDataset tar.TarSource tar.expand_braces
    webdataset.register
    ringest-cat ringest-doctor ringest-du ringest-hash ringest-ls ringest-signurl ringest-stat ringest-top ringest-explain ringest-emulate
""".split()

# What writes or removes, and is not in the table.
EXCEPTIONS = {
    "fs.GCSFileSystem.setxattrs": "is Client.update",
    "fs.GCSFileSystem.merge": "is Client.compose",
    "fs.GCSFileSystem.mkdir": "does nothing",
    "fs.GCSFileSystem.makedirs": "does nothing",
    "fs.GCSFileSystem.transaction_type": "a class; what it publishes are files of fs.open",
    "dataflux.lightning.gcs_filesystem.GCSFileSystem.mkdir": "does nothing",
    "lightning.FSDPStrategy": "needs several processes; what it writes is a distributed save",
    "lightning.ModelParallelStrategy": "needs several processes; what it writes is a distributed save",
    "torch_checkpointing.Storage.delete": "is Client.delete",
    "torch_checkpointing.Storage.mkdir": "does nothing",
    "torch_checkpointing.Storage.rename": "is Client.copy of all, and then Client.delete of each generation",
    "torch_checkpointing.Storage.rmdir": "is Client.delete of each generation that was listed",
    "torch_checkpointing.Storage.stream_write": "is fs.open",
    "torch_checkpointing.Storage.write": "is Client.put",
    "ringest-bench": "writes objects for a measurement, each of them by put",
    "ringest-cache": "removes only what a cache has kept, which readers do without (tests of its own)",
    "ringest-ckpt": "prune removes as checkpoint.retain does, by the same cases (tests of its own)",
}

# Of fsspec's, what FileSystem leaves as it is: it reads, or goes by way of the calls above.
INHERITED = """
    clear_instance_cache cp current delete disk_usage download end_transaction from_dict from_json get_mapper
    glob invalidate_cache lexists listdir makedir mkdirs move put read_block read_bytes read_text size sizes
    start_transaction stat tree unstrip_protocol upload walk write_bytes write_text
""".split()

# Of the C library: where the table is, and what is not in it.
C_TABLE = ["tests/support/write_ways.c"]
C_READS = """
    rg_base_close rg_base_data rg_base_open rg_checkpoint_reader_interrupt rg_cq_interrupt
    rg_object_is_folder_marker rg_option_kind rg_option_name rg_option_set rg_options_from_environment rg_reader_base rg_reader_interrupt
    rg_cancel rg_client_buckets rg_lease_is_pinned rg_lease_is_readonly
    rg_reader_sleep rg_reader_waited rg_stage_name rg_tracing_begin rg_tracing_end rg_tracing_free rg_tracing_get
    rg_checkpoint_took rg_checkpoint_reader_close rg_checkpoint_reader_failure rg_checkpoint_reader_generation
    rg_checkpoint_reader_open rg_checkpoint_reader_read rg_client_open_explained rg_client_options_init rg_client_server_time
    rg_cq_close rg_cq_expect rg_cq_fd rg_cq_open rg_cq_poll rg_cq_wait rg_crc32 rg_crc32c_combine rg_credentials_describe
    rg_lease_release rg_log_to rg_listing_close rg_listing_next rg_listing_open rg_manifest_bucket rg_manifest_close
    rg_manifest_count rg_manifest_cursor_close rg_manifest_cursor_get rg_manifest_cursor_open rg_manifest_data
    rg_manifest_digest rg_manifest_fd rg_manifest_get rg_manifest_open rg_manifest_open_fd
    rg_manifest_open_memory rg_now_ns rg_proxy_describe rg_reader_close rg_reader_consume rg_reader_next
    rg_metrics_snapshot rg_reader_open rg_reader_options_init rg_reader_skipped rg_reader_start rg_reader_state rg_reader_taken rg_reader_total
    rg_runtime_backend rg_runtime_close rg_runtime_describe rg_runtime_fault_in rg_runtime_open rg_runtime_options_init
    rg_runtime_stats rg_runtime_threads rg_status_name rg_status_retryable rg_status_text rg_submit_checkpoint_read rg_submit_get_ranges
    rg_submit_gets rg_submit_list rg_submit_list_uploads rg_submit_test_permissions rg_tar_cursor_close
    rg_tar_cursor_get rg_tar_cursor_open rg_tar_index_bucket rg_tar_index_close rg_tar_index_count
    rg_tar_index_data rg_tar_index_digest rg_tar_index_fd rg_tar_index_get rg_tar_index_open
    rg_tar_index_open_fd rg_tar_index_open_memory rg_tar_index_shard rg_tar_index_shard_count rg_tar_scan_close
    rg_tar_scan_done rg_tar_scan_failure rg_tar_scan_finish rg_tar_scan_open rg_tar_scan_options_init
    rg_reader_sleep rg_reader_waited rg_stage_name rg_tracing_begin rg_tracing_end rg_tracing_free rg_tracing_get
    rg_tar_scan_run rg_version
""".split()
C_EXCEPTIONS = {
    "rg_client_close": "ends what is under way, which cleans up as it does when it is cancelled (tests/sim)",
    "rg_writer_wait": "waits",
    "rg_writer_settled": "tells",
    "rg_writer_set_rate": "when, not what: tests/sim/test_pool.c",
    "rg_writer_lend_completed": "as rg_writer_lend; what it tells: tests/gcs/upload/test_writer.c",
    "rg_manifest_writer_open": "a local file: tests/runtime/test_new_file.c, and manifests in the Python table",
    "rg_manifest_writer_add": "as rg_manifest_writer_open",
    "rg_manifest_writer_close": "as rg_manifest_writer_open",
    "rg_manifest_writer_finish": "in memory",
    "rg_tar_index_save": "a local file: tests/runtime/test_new_file.c, and indexes in the Python table",
}


# What is not looked at, with all that is in it, and why.
NOT_HERE = {
    "ringest.bench": "a program: tests/python/test_bench_*.py, which interrupt it and kill parts of it",
    "ringest.dlio": "its package is for script/soak; what writes is Client.put and checkpoint.save",
    "ringest.ray": "its package is for script/soak; it only reads",
}


def modules():
    """(name without "ringest.", module), the package itself first."""
    yield "", ringest
    for found in pkgutil.walk_packages(ringest.__path__, "ringest."):
        parts = found.name.split(".")
        if ".".join(parts[:2]) not in NOT_HERE and not any(part.startswith("_") for part in parts):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield found.name.removeprefix("ringest."), importlib.import_module(found.name)


def is_ours(thing):
    return (getattr(thing, "__module__", None) or "").split(".")[0] == "ringest"


def methods(cls):
    """Names of public methods that are ours."""
    for base in cls.__mro__:
        if is_ours(base):
            for name, value in vars(base).items():
                if not name.startswith("_") and (callable(value) or isinstance(value, (staticmethod, classmethod))):
                    yield name


def public():
    """Name -> the object: a function, a class, or None for "Class.method". By the module that it is of, or the
    one that exports it where that is private; what is of the package itself, or of `client`, by its own name."""
    places = dict(modules())
    found = {}
    for prefix, module in places.items():
        exported = getattr(module, "__all__", None)
        for name in exported or [each for each in vars(module) if not each.startswith("_")]:
            thing = getattr(module, name)
            if inspect.ismodule(thing) or not is_ours(thing) or not callable(thing):
                continue
            home = thing.__module__.removeprefix("ringest.")
            if home not in places:
                home = prefix if exported else None
            if home is not None:
                found[thing.__name__ if home in ("", "client") else f"{home}.{thing.__name__}"] = thing
    for full, thing in list(found.items()):
        if inspect.isclass(thing):
            found |= {f"{full}.{name}": None for name in methods(thing)}
    return found | {f"Writer.{name}": None for name in methods(ringest._core.Writer)}


def stands_in(name, names):
    """Itself, or the class that it is of."""
    return name in names or name.rpartition(".")[0] in names


class Table(unittest.TestCase):
    covered = {name for operation in OPERATIONS for name in operation.covers}

    def check(self, names):
        known = self.covered | set(READS) | set(EXCEPTIONS)
        for name in sorted(names):
            with self.subTest(name):
                self.assertTrue(
                    stands_in(name, known),
                    f"{name} is new: give it a row in tests/faults/operations*.py, or say in {os.path.basename(__file__)} "
                    "that it only reads, or why it has none",
                )

    def test_every_public_name_has_its_place(self):
        found = public()
        self.assertGreater(len(found), 120)
        # A class has its place when its methods have.
        self.check(name for name, thing in found.items() if not inspect.isclass(thing) or not any(methods(thing)))

    def test_every_command_has_its_place(self):
        said = subprocess.run([PROGRAM, "--help"], capture_output=True, check=True, text=True).stdout
        commands = re.findall(r"^  (\w+) ", said, re.MULTILINE)
        self.assertIn("cp", commands)
        self.check(f"ringest-{command}" for command in commands if f"ringest {command}" not in self.covered)

    def test_what_others_filesystems_inherit_is_known(self):
        from ringest.fs import GCSFileSystem

        ours = set(methods(GCSFileSystem))
        inherited = {
            name for name in dir(GCSFileSystem) if not name.startswith("_") and callable(getattr(GCSFileSystem, name))
        }
        self.assertEqual(sorted(inherited - ours - {"client"}), INHERITED)

    def test_what_the_table_names_exists(self):
        found = public()
        for name in self.covered | set(READS) | EXCEPTIONS.keys():
            if not name.startswith(("ringest ", "ringest-")):
                with self.subTest(name):
                    self.assertIn(name, found)
        self.assertEqual(len({operation.name for operation in OPERATIONS}), len(OPERATIONS))

    def test_every_function_of_the_c_library_has_its_place(self):
        declared = set()
        for header in (ROOT / "include/ringest").glob("*.h"):
            text = header.read_text()
            declared |= set(re.findall(r"RG_API[^;{]*?\b(rg_\w+)\(", text))
            declared |= {
                f"rg_submit_{name}" for name in re.findall(r"^RG_SUBMIT(?:_ITEMS)?\((\w+)", text, re.MULTILINE)
            }
            for kind in ("OPEN", "INIT"):
                types = re.findall(rf"^RG_{kind}\((\w+)\)", text, re.MULTILINE)
                declared |= {f"{name}_{kind.lower()}" for name in types}
        self.assertLess({"rg_submit_put", "rg_submit_get_ranges", "rg_writer_open", "rg_client_close"}, declared)
        table = "".join((ROOT / path).read_text() for path in C_TABLE)
        functions = {name.removesuffix("_sized") for name in declared}
        for name in sorted(functions - set(C_READS) - C_EXCEPTIONS.keys()):
            with self.subTest(name):
                self.assertTrue(
                    re.search(rf"\b{name}\(", table),
                    f"{name} is new: give it a row in {C_TABLE[0]}, or say in {os.path.basename(__file__)} that it only "
                    "reads, or why it has none",
                )
        self.assertEqual(set(C_READS) - functions, set())
        self.assertEqual(C_EXCEPTIONS.keys() - functions, set())


if __name__ == "__main__":
    unittest.main()
