"""What a task of the sink does between Arrow batches and requests."""

from pylog.connector.columnar.encode import EncodedBatch
from pylog.connector.spark.write import _in_turns


def test_partitions_take_turns_and_keep_their_order() -> None:
    batches = [EncodedBatch(partition, memoryview(bytes([number])), 1) for partition, number in
               [(0, 1), (0, 2), (0, 3), (2, 4), (5, 5), (5, 6)]]  # fmt: skip
    turns = [(batch.partition, batch.records[0]) for batch in _in_turns(batches)]
    assert turns == [(0, 1), (2, 4), (5, 5), (0, 2), (5, 6), (0, 3)]
    assert list(_in_turns([])) == []
