"""What the connectors are held against has as many rows as they have to read, in as many tasks, and all columns."""

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

from benchmarks.ceiling import CeilingDataSource

OPTIONS = {"rows": "25003", "valueBytes": "7", "partitions": "4", "maxOffsetsPerTrigger": "10000"}


SCHEMA = CeilingDataSource(OPTIONS).schema()
assert isinstance(SCHEMA, StructType)


@pytest.mark.parametrize("schema", [SCHEMA, StructType([SCHEMA["value"]])])
def test_a_batch_read_has_all_rows(schema: StructType) -> None:
    reader = CeilingDataSource(OPTIONS).reader(schema)
    parts = [list(reader.read(partition)) for partition in reader.partitions()]
    assert [sum(batch.num_rows for batch in part) for part in parts] == [6250, 6251, 6251, 6251]
    assert {tuple(batch.schema.names) for part in parts for batch in part} == {tuple(schema.names)}
    assert {value for part in parts for batch in part for value in batch["value"].to_pylist()} == {b"xxxxxxx"}


def test_a_stream_has_all_rows_in_parts() -> None:
    reader = CeilingDataSource(OPTIONS).streamReader(SCHEMA)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(10000)
    found, at = [], reader.initialOffset()
    while (end := reader.latestOffset(at, limit)) != at:
        found.append(sum(partition.value for partition in reader.partitions(at, end)))
        at = end
    assert found == [10000, 10000, 5003]
