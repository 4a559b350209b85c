"""What the tasks of a write tell its driver, and what the driver makes of it."""

import pickle
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pylog.connector.spark.options import sink_options
from pylog.connector.spark.sink import BatchWriter, StreamWriter, Written

if TYPE_CHECKING:
    from pyspark.sql.datasource import WriterCommitMessage

OPTIONS = sink_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})  # nobody is asked
MESSAGES: "list[WriterCommitMessage | None]" = [Written(3), None, Written(4)]  # None: that task has failed


def test_a_tasks_message_travels() -> None:
    assert pickle.loads(pickle.dumps(Written(3))) == Written(3)


def test_a_commit_leaves_nothing_to_do(caplog: pytest.LogCaptureFixture) -> None:
    BatchWriter(OPTIONS).commit([Written(3), Written(4)])
    StreamWriter(OPTIONS).commit([Written(3), Written(4)], 5)
    assert not caplog.records


def test_an_abort_says_what_stays_behind(caplog: pytest.LogCaptureFixture) -> None:
    BatchWriter(OPTIONS).abort(MESSAGES)
    StreamWriter(OPTIONS).abort(MESSAGES, 5)
    batch, stream = (record.getMessage() for record in caplog.records)
    stays = "the 7 rows of finished tasks (2) are in their topics and stay there"
    assert batch.startswith(f"the write has failed: {stays}")
    assert stream.startswith(f"micro-batch 5 has failed: {stays}")
