"""`write` and `writeStream`: rows into topics, at least once.

A task returns when every row is acknowledged as `kafka.acks` says, and only then does Spark count it as done. A task
or a batch that Spark runs again writes its rows again: nothing is lost, and rows can stand twice in a topic.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pylog.connector.spark.options import SinkOptions
from pylog.connector.spark.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote; all of it is acknowledged."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        return _write(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """A fresh one serves each micro-batch: nothing is kept between them but the process's connections."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        return _write(self._options, iterator)


def _write(options: SinkOptions, batches: "Iterator[pa.RecordBatch]") -> Written:
    from pylog.connector.spark.write import write_rows  # loads numba: in tasks only, not on the driver

    written = Written(write_rows(options, batches))
    settle()
    return written
