"""Commits of groups as columns: against the plain decoder of the protocol, a record at a time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.broker_lite.protocol.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_offset_value,
    encode_key,
    encode_value,
)
from pylog.connector.columnar.commits import COLUMN_TYPES, CommitDecoder
from pylog.storage.errors import CorruptBatch
from pylog.storage.records import Record, encode_batch

SCHEMA = pa.schema(list(COLUMN_TYPES.items()))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME_MS_MAX = 4_000_000_000_000

names = st.text(max_size=300)
commit_values = st.builds(
    OffsetCommitValue,
    offset=st.integers(0, (1 << 63) - 1),
    leader_epoch=st.integers(-1, 9),
    metadata=names | st.just("x" * 20_000),
    commit_timestamp=st.integers(0, TIME_MS_MAX),
)
commits = st.tuples(
    st.builds(OffsetCommitKey, group=names, topic=names, partition=st.integers(0, 1 << 31 - 1)).map(encode_key),
    st.none() | st.builds(encode_value, commit_values, st.integers(0, 4)),
)
groups = st.tuples(
    st.builds(GroupMetadataKey, group=names).map(encode_key), st.none() | st.just(encode_value(GroupMetadataValue()))
)
newer = st.tuples(st.just(b"\x00\x03\x00\x01g"), st.just(b"\x00\x00whatever"))
Records = list[tuple[bytes | None, bytes | None]]


def plainly(records: Records) -> list[dict[str, Any]]:
    found = []
    for log_offset, (key, value) in enumerate(records):
        commit = decode_key(key) if key is not None else None
        if isinstance(commit, OffsetCommitKey):
            made = None if value is None else decode_offset_value(value)
            found.append(
                {
                    "group": commit.group,
                    "topic": commit.topic,
                    "partition": commit.partition,
                    "offset": made and made.offset,
                    "metadata": made and made.metadata,
                    "commit_timestamp": made and EPOCH + timedelta(milliseconds=made.commit_timestamp),
                    "log_partition": 7,
                    "log_offset": log_offset,
                }
            )
    return found


def decoded(records: Records, schema: pa.Schema = SCHEMA) -> list[dict[str, Any]]:
    batch = encode_batch([Record(offset, 1000, key, value) for offset, (key, value) in enumerate(records)])
    rows, next_offset = CommitDecoder("__consumer_offsets", 7, schema).decode(batch, 0, len(records))
    assert next_offset == len(records)
    return [row for part in rows for row in part.to_pylist()]


@settings(deadline=None)
@given(st.lists(commits | groups | newer | st.just((None, b"x")), min_size=1, max_size=30))
def test_columns_are_what_the_plain_decoder_finds(records: Records) -> None:
    assert decoded(records) == plainly(records)


def test_only_the_columns_asked_for_come_in_their_order() -> None:
    key = encode_key(OffsetCommitKey("g", "t", 3))
    value = encode_value(OffsetCommitValue(offset=5, metadata="m", commit_timestamp=1))
    schema = pa.schema([("offset", pa.int64()), ("group", pa.string())])
    assert decoded([(key, value), (key, None)], schema) == [{"offset": 5, "group": "g"}, {"offset": None, "group": "g"}]


KEY = encode_key(OffsetCommitKey("group", "topic", 3))
VALUE = encode_value(OffsetCommitValue(offset=5, metadata="m", commit_timestamp=1))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[pytest.param(KEY[:size], VALUE, id=f"a key of {size} bytes") for size in range(2, len(KEY))],
        *[pytest.param(KEY, VALUE[:size], id=f"a value of {size} bytes") for size in (0, 1, 9, 15, 20)],
        pytest.param(KEY + b"x", VALUE, id="a key with more behind it"),
        pytest.param(KEY[:2] + b"\xff\xff" + KEY[4:], VALUE, id="a name of no length"),
        pytest.param(KEY, b"\x00\x09" + VALUE[2:], id="a version of the future"),
        pytest.param(KEY.replace(b"topic", b"\xfftopi"), VALUE, id="a name that is no UTF-8"),
    ],
)
def test_what_is_no_commit_is_refused_with_its_offset(key: bytes, value: bytes) -> None:
    with pytest.raises(CorruptBatch, match="__consumer_offsets-7 at offset 1"):
        decoded([(KEY, VALUE), (key, value), (KEY, VALUE)])
