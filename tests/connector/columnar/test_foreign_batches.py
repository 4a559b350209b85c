"""The record code of other clients, written by other people, must agree with ours in both directions."""

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pylog.connector.columnar.decode import RowDecoder, arrow_schema
from pylog.connector.columnar.encode import RowEncoder
from pylog.storage.codecs import CODEC_BY_NAME

NOW_MS = 1_700_000_000_000
ROWS: list[dict[str, Any]] = [
    {"key": b"k1", "value": b"v1", "timestamp": NOW_MS, "headers": [{"key": "h", "value": b"x"}]},
    {"key": None, "value": b"", "timestamp": NOW_MS - 70, "headers": None},
    {"key": b"", "value": None, "timestamp": NOW_MS + 5, "headers": [{"key": "é", "value": b""}] * 2},
    *({"key": b"k%d" % i, "value": b"v" * i, "timestamp": NOW_MS + i, "headers": None} for i in range(300)),
]
COLUMNS = ["key", "value", "timestamp", "headers"]

clients = pytest.mark.parametrize("client", ["kafka", "aiokafka"])
every_codec = pytest.mark.parametrize("codec", [pytest.param(code, id=name) for name, code in CODEC_BY_NAME.items()])


def records_module(client: str) -> ModuleType:
    pytest.importorskip(client)
    return importlib.import_module(f"{client}.record.default_records")


def plain_headers(row: dict[str, Any]) -> list[tuple[str, bytes]]:
    return [(header["key"], header["value"]) for header in row["headers"] or ()]


@clients
@every_codec
def test_what_others_write_we_read(client: str, codec: int) -> None:
    builder = records_module(client).DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for offset, row in enumerate(ROWS):
        builder.append(offset, row["timestamp"], row["key"], row["value"], plain_headers(row))
    decoder = RowDecoder("orders", 0, arrow_schema(COLUMNS))
    (found,), next_offset = decoder.decode(bytes(builder.build()), 0, 1 << 40)
    milliseconds = found.set_column(2, "timestamp", pa.array(found["timestamp"].cast(pa.int64()).to_numpy() // 1000))
    assert milliseconds.to_pylist() == ROWS
    assert next_offset == len(ROWS)


@clients
@every_codec
def test_what_we_write_others_read(client: str, codec: int) -> None:
    (batch,) = RowEncoder(codec).encode(pa.Table.from_pylist(ROWS), np.zeros(len(ROWS), np.int32))
    theirs = records_module(client).DefaultRecordBatch(bytes(batch.records))
    assert theirs.validate_crc()
    found = [(one.offset, one.timestamp, one.key, one.value, list(one.headers)) for one in theirs]
    assert found == [
        (offset, row["timestamp"], row["key"], row["value"], plain_headers(row)) for offset, row in enumerate(ROWS)
    ]
