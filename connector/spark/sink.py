"""`write` and `writeStream`: rows into topics, at least once.

A task returns when every row is acknowledged as `kafka.acks` says, and only then does Spark count it as done. A task
or a batch that Spark runs again writes its rows again: nothing is lost, and rows can stand twice in a topic.

What a task has to tell the driver is in its commit message, and the driver's last word is `commit` or `abort`: there
is nothing more to say while rows can be read as soon as they are written.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pylog.connector.spark.options import SinkOptions
from pylog.connector.spark.worker import keep_freed_memory, settle

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote; all of it is acknowledged."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        return _write(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done. Their rows have been there for readers since each was acknowledged."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task has failed for good. Nothing can be taken back: what was written stays, and a warning says so."""
        _log.warning("the write has failed: %s", _what_stays(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """A fresh one serves each micro-batch: nothing is kept between them but the process's connections."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        return _write(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of the micro-batch are done. Spark may run it again all the same: it has yet to note that down."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """The query fails. A restart runs this micro-batch again, and what was written of it then stands twice."""
        _log.warning("micro-batch %d has failed: %s", batchId, _what_stays(messages))


def _what_stays(messages: Sequence[WriterCommitMessage | None]) -> str:
    """A task that has failed leaves no message."""
    done = [message for message in messages if isinstance(message, Written)]
    rows = sum(message.rows for message in done)
    return (
        f"the {rows} rows of finished tasks ({len(done)}) are in their topics and stay there; rows of others may be too"
    )


def _write(options: SinkOptions, batches: "Iterator[pa.RecordBatch]") -> Written:
    from pylog.connector.spark.write import write_rows  # loads numba: in tasks only, not on the driver

    keep_freed_memory()
    written = Written(write_rows(options, batches))
    settle("write")
    return written
