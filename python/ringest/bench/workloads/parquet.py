"""Rows of some columns of Parquet files, in batches. An operation is a row; bytes are those of the rows in memory."""

from __future__ import annotations

import io
import os
import time
from dataclasses import dataclass, replace

from ringest._needs import needs
from ringest.bench import fields
from ringest.bench.adapter import Client, closed
from ringest.bench.result import Round
from ringest.bench.task import Task, WorkloadError

__all__ = ["Data", "Work", "run"]

ROWS_MIN = 64


@dataclass(frozen=True, kw_only=True)
class Data:
    objects: int = fields.count()
    rows: int = fields.count()  # of a file
    row_group_rows: int = fields.count()
    columns: dict[str, int] = fields.sizes()  # noqa: RUF009 (a field, not a default); bytes of a value, by names

    def scaled(self, factor: float, ranks: int) -> Data:
        """Less files, and then less rows."""
        if factor == 1:
            return self
        objects = fields.scaled_count(self.objects, factor, ranks)
        rows = fields.scaled_count(self.rows, min(self.objects * factor / objects, 1.0), ROWS_MIN)
        return replace(self, objects=objects, rows=rows, row_group_rows=min(self.row_group_rows, rows))

    @property
    def total_bytes(self) -> int:
        return self.objects * self.rows * sum(self.columns.values())

    def make(self) -> bytes:
        """One file. Values are random, so that nothing about them can be compressed."""
        with needs("a preset of Parquet", "pyarrow"):
            import pyarrow
            import pyarrow.parquet
        target = io.BytesIO()
        schema = pyarrow.schema([(name, pyarrow.binary()) for name in self.columns])
        with pyarrow.parquet.ParquetWriter(target, schema, compression="none", use_dictionary=False) as writer:
            for begin in range(0, self.rows, self.row_group_rows):
                rows = min(self.row_group_rows, self.rows - begin)
                values = [pyarrow.array([os.urandom(size) for _ in range(rows)]) for size in self.columns.values()]
                writer.write_table(pyarrow.Table.from_arrays(values, schema=schema))
        return target.getvalue()


@dataclass(frozen=True, kw_only=True)
class Work:
    epochs: int = fields.count(1)
    batch_size: int = fields.count(512)  # rows
    columns: tuple[str, ...] = fields.names()
    compute_seconds: float = fields.number(0.0)


def check(work: Work, data: Data) -> None:
    for name in work.columns:
        if name not in data.columns:
            raise fields.Wrong(f"work.columns: {name} is no column of data.columns: {', '.join(data.columns)}")


def run(task: Task, client: Client) -> Round:
    work, meter = task.work, task.meter
    files = [name for name, _ in task.share(1, shuffle=False)]
    # Imports, connections.
    for _ in client.parquet(files[:1], work.columns, work.batch_size) if files else ():
        break
    task.meet()
    meter.begin()
    for epoch in task.epochs(work.epochs):
        seen = 0
        with meter.phase(f"epoch {epoch}"):
            asked = time.monotonic()
            with closed(client.parquet(files, work.columns, work.batch_size)) as batches:
                for rows, size in batches if files else ():
                    meter.waited(time.monotonic() - asked)
                    meter.done(rows, size)
                    seen += rows
                    if work.compute_seconds:
                        time.sleep(work.compute_seconds)
                    if task.is_over():
                        break
                    asked = time.monotonic()
        if task.is_over():
            continue
        wanted = task.data.rows * len(files)
        if task.is_ours and seen != wanted:
            raise WorkloadError(f"{seen:,} rows came of {wanted:,}")
    return meter.end()
