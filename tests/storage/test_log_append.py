"""What an append writes: the next offsets, the leader's epoch, the time of the log; and all that it refuses."""

import os
from pathlib import Path

import pytest

from pylog.storage import codecs
from pylog.storage.batch import CRC_START, HEADER_BYTES, LOG_APPEND_TIME, check, pack_header, read_header
from pylog.storage.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    InvalidTimestamp,
    LogClosed,
    StorageError,
    UnsupportedBatch,
    UnsupportedCodec,
)
from pylog.storage.log import LogConfig
from pylog.storage.records import Record, decode_batch, encode_batch
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of, bytes_of, headers_in, log_in, offsets_in, records_in, reopened

BATCH_BYTES = len(batch_of(1))


def test_a_new_log_is_empty(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.size_bytes) == (0, 0, 0, 0)
    assert log.last_stable_offset == 0
    assert log.read(0, 100) is None
    assert log.offset_at_time(0) is None
    assert log.offset_of_max_timestamp() is None
    assert log.aborted_transactions(0, 100) == []
    assert sorted(os.listdir(log.directory)) == [f"{0:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")]


def test_batches_get_the_next_offsets_and_the_leader_epoch(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    assert log.append(batch_of(3), 5) == (0, 2, -1, False)
    assert log.append(batch_of(2) + batch_of(4), 6) == (3, 8, -1, False)
    assert log.log_end_offset == 9
    part = log.read(0, 1 << 20)
    assert part is not None
    headers = headers_in(bytes_of(part))
    assert [(header.base_offset, header.last_offset, header.leader_epoch) for header in headers] == [
        (0, 2, 5),
        (3, 4, 6),
        (5, 8, 6),
    ]
    assert offsets_in(log) == list(range(9))
    assert part.file.path.read_bytes() == bytes_of(part)


def test_only_the_place_of_a_batch_is_rewritten(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(1), 0)
    sent = batch_of(2, codec=codecs.ZSTD)
    log.append(memoryview(bytearray(sent)), 3)
    part = log.read(1, 1)
    assert part is not None
    assert bytes_of(part)[16:] == sent[16:]


def test_what_is_stored_is_what_was_sent(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    rows = [Record(0, START_MS, None, None), Record(1, START_MS, b"", b"", (("h", None), ("h", b"2")))]
    log.append(encode_batch(rows), 0)
    part = log.read(0, 1)
    assert part is not None
    assert decode_batch(bytes_of(part)) == rows


# -- what is refused


def _lying(batch: bytearray | None = None, **fields: int) -> bytearray:
    """Two records under a header that says something else, with the right CRC, so that the lie itself is found."""
    batch = batch or batch_of(2)
    pack_header(batch, 0, read_header(batch)._replace(**fields))
    return batch


def _overwritten(position: int, data: bytes) -> bytearray:
    """Under the CRC or beside it, which is not put right."""
    batch = batch_of(2)
    batch[position : position + len(data)] = data
    return batch


REFUSED = [
    # no batch, or not whole
    pytest.param(batch_of(1)[:-1], CorruptBatch, id="cut off"),
    pytest.param(batch_of(1)[: HEADER_BYTES - 1], CorruptBatch, id="cut off in the header"),
    pytest.param(batch_of(1) + b"x", CorruptBatch, id="a byte behind the batch"),
    pytest.param(batch_of(1) + bytes(70), CorruptBatch, id="zeros behind the batch"),
    pytest.param(batch_of(1) + batch_of(1)[:-1], CorruptBatch, id="second batch cut off"),
    pytest.param(batch_of(1)[:-1] + b"x", CorruptBatch, id="checksum"),
    pytest.param(bytearray(b"\x5a" * 200), CorruptBatch, id="something else"),
    # length
    pytest.param(_overwritten(8, (HEADER_BYTES - 13).to_bytes(4, "big")), CorruptBatch, id="length under a header"),
    pytest.param(_overwritten(8, b"\xff\xff\xff\xff"), CorruptBatch, id="negative length"),
    pytest.param(_overwritten(8, b"\x7f\xff\xff\xff"), CorruptBatch, id="length of 2 GB"),
    pytest.param(_overwritten(11, bytes([len(batch_of(2)) - 13])), CorruptBatch, id="length a byte short"),
    # count and offset delta
    pytest.param(_lying(record_count=0, last_offset_delta=0), InvalidBatch, id="no records"),
    pytest.param(_lying(record_count=0, last_offset_delta=-1), InvalidBatch, id="no records and no offsets"),
    pytest.param(_lying(record_count=-1), InvalidBatch, id="negative count"),
    pytest.param(_lying(last_offset_delta=5), InvalidBatch, id="offsets without records"),
    pytest.param(_lying(last_offset_delta=-1), InvalidBatch, id="negative offset delta"),
    pytest.param(_lying(record_count=3), InvalidBatch, id="records without offsets"),
    pytest.param(_lying(record_count=9000, last_offset_delta=8999), InvalidBatch, id="more records than bytes"),
    # codec and format
    pytest.param(_lying(attributes=5), UnsupportedCodec, id="unknown codec"),
    pytest.param(_lying(attributes=7), UnsupportedCodec, id="last codec number"),
    pytest.param(_overwritten(16, b"\x01"), UnsupportedBatch, id="old magic"),
    pytest.param(_overwritten(16, b"\x03"), UnsupportedBatch, id="unknown magic"),
    pytest.param(_lying(attributes=0x15, producer_id=7), UnsupportedCodec, id="unknown codec in a transaction"),
    # what is not a sender's to say
    pytest.param(_lying(attributes=0x40), InvalidBatch, id="a delete horizon"),
    pytest.param(
        _lying(attributes=0x50, producer_id=7, producer_epoch=0, base_sequence=0),
        InvalidBatch,
        id="a delete horizon in a transaction",
    ),
    pytest.param(_lying(attributes=0x10), InvalidBatch, id="a transaction without a producer"),
    # timestamps
    pytest.param(_lying(max_timestamp=START_MS - 1), InvalidTimestamp, id="maximum before the first"),
    pytest.param(_lying(base_timestamp=-2), InvalidTimestamp, id="first before all time"),
    pytest.param(_lying(base_timestamp=-2, max_timestamp=-2), InvalidTimestamp, id="all before all time"),
    pytest.param(_lying(attributes=LOG_APPEND_TIME), InvalidTimestamp, id="the log's time, set by the sender"),
    # producer
    pytest.param(_lying(producer_id=7), InvalidBatch, id="producer without epoch and sequence"),
    pytest.param(_lying(producer_id=7, producer_epoch=0), InvalidBatch, id="producer without sequence"),
    pytest.param(_lying(producer_id=-2, producer_epoch=0, base_sequence=0), InvalidBatch, id="negative producer"),
    pytest.param(_lying(producer_id=7, attributes=0x30), InvalidBatch, id="control batch that is no marker"),
]


@pytest.mark.parametrize("behind", [False, True], ids=["alone", "behind a good batch"])
@pytest.mark.parametrize(("data", "error"), REFUSED)
def test_what_is_no_batch_is_refused_and_leaves_no_trace(
    tmp_path: Path, data: bytearray, error: type[StorageError], behind: bool
) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(2), 0)
    with pytest.raises(error):
        log.append(batch_of(1) + data if behind else bytearray(data), 0)
    assert log.log_end_offset == 2
    assert log.size_bytes == os.path.getsize(log.directory / f"{0:020d}.log")
    assert len(log.producers) == 0
    assert log.append(batch_of(1), 0).base_offset == 2
    assert len(records_in(log)) == 3


def test_an_append_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidBatch, match="no batch"):
        log_in(tmp_path).append(bytearray(), 0)


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=BATCH_BYTES))
    log.append(batch_of(1), 0)
    with pytest.raises(BatchTooLarge):
        log.append(batch_of(2), 0)
    assert log.log_end_offset == 1


def test_a_closed_log_refuses_everything(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.close()
    log.close()
    for refused in (
        lambda: log.append(batch_of(1), 0),
        lambda: log.read(0, 100),
        lambda: log.offset_at_time(0),
        log.offset_of_max_timestamp,
        lambda: log.aborted_transactions(0, 1),
        log.roll,
        log.flush,
        lambda: log.move_start(0),
        log.detach_deleted,
        lambda: log.truncate_to(0),
        lambda: log.truncate_fully_and_start_at(0),
    ):
        with pytest.raises(LogClosed):
            refused()


# -- the log's own time


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.ZSTD])
def test_a_log_of_append_time_stamps_its_batches(tmp_path: Path, codec: int) -> None:
    clock = SettableClock(START_MS + 1000)
    log = log_in(tmp_path, LogConfig(log_append_time=True), clock=clock)
    sent = batch_of(3, timestamp_ms=5, codec=codec)
    assert log.append(bytearray(sent), 4) == (0, 2, START_MS + 1000, False)
    clock.advance(1)
    log.append(batch_of(1) + batch_of(1), 4)
    part = log.read(0, 1)
    assert part is not None
    stored = bytes_of(part)
    header = check(stored)
    assert header.timestamp_type == 1
    assert (header.base_timestamp, header.max_timestamp) == (5, START_MS + 1000)
    assert stored[HEADER_BYTES:] == sent[HEADER_BYTES:]
    assert [record.timestamp_ms for record in records_in(log)] == [START_MS + 1000] * 3 + [START_MS + 1001] * 2
    assert log.offset_at_time(START_MS + 1001) == (START_MS + 1001, 3)
    assert log.offset_of_max_timestamp() == (START_MS + 1001, 3)
    assert offsets_in(reopened(log)) == list(range(5))


def test_the_bytes_that_append_time_changes_are_under_the_checksum(tmp_path: Path) -> None:
    """Attributes and maximum timestamp, and so the CRC; with bytes 0 to 15, which are the broker's, that is all."""
    log = log_in(tmp_path, LogConfig(log_append_time=True), clock=SettableClock(0x0102030405060708))
    sent = batch_of(2)
    log.append(bytearray(sent), 3)
    stored = (log.directory / f"{0:020d}.log").read_bytes()
    assert stored[17:CRC_START] != sent[17:CRC_START]
    assert stored[21:23] == b"\x00\x08"
    assert stored[35:43] == bytes(range(1, 9))
    rest = [*range(16, 17), *range(23, 35), *range(43, len(sent))]
    assert [stored[byte] for byte in rest] == [sent[byte] for byte in rest]


def test_a_batch_may_say_append_time_where_that_is_what_it_gets(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(log_append_time=True), clock=SettableClock(START_MS))
    log.append(_lying(attributes=LOG_APPEND_TIME, max_timestamp=START_MS + 5000), 0)
    assert [record.timestamp_ms for record in records_in(log)] == [START_MS] * 2


# -- settings


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        pytest.param("segment.bytes", {"segment_bytes": 60}, id="segment below a batch header"),
        pytest.param("segment.bytes", {"segment_bytes": 1 << 31}, id="positions over an int32"),
        pytest.param("index.interval.bytes", {"index_interval_bytes": -1}, id="negative interval"),
        pytest.param("segment.index.bytes", {"index_bytes_max": 23}, id="index without room"),
        pytest.param("segment.ms", {"segment_ms": 0}, id="segments of no time"),
        pytest.param("retention.ms", {"retention_ms": -2}, id="retention less than for ever"),
        pytest.param("min.cleanable.dirty.ratio", {"dirty_ratio_min": 1.5}, id="more dirty than all"),
        pytest.param("flush.messages", {"flush_messages": 0}, id="flush before anything"),
        pytest.param(
            "min.compaction.lag.ms", {"compaction_lag_ms_min": 5, "compaction_lag_ms_max": 4}, id="lags crossed"
        ),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_by_name(name: str, fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=name):
        LogConfig(**fields)  # type: ignore[arg-type]
