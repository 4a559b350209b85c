"""The corners of compaction, one by one; test_compaction_property.py has all of them at once."""

import pytest

from pylog.storage.batch import DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from pylog.storage.compaction import LastBatch
from pylog.storage.records import Record
from tests.support.compacted_log import DAY_MS, START_MS, CompactedLog, keyed
from tests.support.compaction_twin import TwinBatch

PRODUCER = 10


def values(log: CompactedLog) -> dict[int, tuple[str | None, str | None]]:
    """Offset, key and value of all that is there."""
    return {record.offset: (_text(record.key), _text(record.value)) for record in log.records()}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def rolled(log: CompactedLog) -> CompactedLog:
    """With something else behind it, so that the last batch of what is cleaned is not the one that is looked at."""
    log.append(keyed(("last", "of all")))
    log.roll()
    return log


def with_offset(log: CompactedLog, offset: int) -> TwinBatch | None:
    """The batch that begins there."""
    return next((batch for batch in log.batches() if batch.header.base_offset == offset), None)


# -- records


def test_the_latest_record_of_every_key_stays_with_its_offset() -> None:
    log = CompactedLog()
    log.append(keyed(("a", "1"), ("b", "1"), ("a", "2")))
    log.append(keyed(("c", "1"), ("a", "3")))
    log.roll()
    result = log.clean()
    assert values(log) == {1: ("b", "1"), 3: ("c", "1"), 4: ("a", "3")}
    assert [batch.header.base_offset for batch in log.batches()] == [0, 3]
    assert [batch.header.last_offset for batch in log.batches()] == [2, 4]
    assert (result.records_before, result.records_after, result.cleaned_until) == (5, 3, 5)


def test_what_a_later_segment_says_counts_in_the_ones_before() -> None:
    log = CompactedLog(segment_bytes=100)
    for value in "123":
        log.append(keyed(("a", value), ("only " + value, value)))
        log.roll()
    assert len(log.clean().groups) == 3
    assert values(log) == {1: ("only 1", "1"), 3: ("only 2", "2"), 4: ("a", "3"), 5: ("only 3", "3")}


def test_the_active_segment_is_neither_read_nor_changed() -> None:
    log = CompactedLog()
    log.append(keyed(("a", "old"), ("b", "1")))
    log.roll()
    log.append(keyed(("a", "new"), ("b", "2")))
    active = log.segment(log.bases[-1])
    log.clean()
    assert values(log) == {0: ("a", "old"), 1: ("b", "1"), 2: ("a", "new"), 3: ("b", "2")}
    assert log.segment(log.bases[-1]) == active


def test_records_without_a_key_go() -> None:
    log = CompactedLog()
    log.append(keyed((None, "no key"), ("a", "1"), (None, "nor here")))
    rolled(log).clean()
    assert values(log) == {1: ("a", "1"), 3: ("last", "of all")}


def test_an_empty_key_is_a_key() -> None:
    log = CompactedLog()
    log.append(keyed(("", "1"), ("", "2"), ("a", "")))
    rolled(log).clean()
    assert values(log) == {1: ("", "2"), 2: ("a", ""), 3: ("last", "of all")}


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4], ids=["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_keeps_its_codec(codec: int) -> None:
    log = CompactedLog()
    log.append(keyed(*[("a", "x" * 1000), ("b", "y" * 1000)] * 20), codec=codec)
    rolled(log).clean()
    first = log.batches()[0]
    assert [record.offset for record in first.records] == [38, 39]
    assert first.header.codec == codec
    assert len(first.data) < 400 or codec == 0


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4], ids=["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_of_which_everything_stays_is_copied_byte_for_byte(codec: int) -> None:
    log = CompactedLog()
    log.append(keyed(("a", "1"), ("b", "1" * 1000)), codec=codec, producer_id=7)
    before = log.batches()[0].data
    log.append(keyed(("c", "old"), ("c", "new")))
    rolled(log).clean()
    assert log.batches()[0].data == before


def test_the_maximum_timestamp_is_that_of_what_stays() -> None:
    log = CompactedLog()
    log.append([Record(0, 500, b"a", b"latest, and goes"), Record(0, 100, b"b", b""), Record(0, 200, b"c", b"")])
    log.append(keyed(("a", "new")))
    rolled(log).clean()
    first = log.batches()[0]
    assert first.header.max_timestamp == 200
    assert [record.timestamp_ms for record in first.records] == [100, 200]


def test_with_log_append_time_the_timestamp_stays() -> None:
    log = CompactedLog()
    log.append(keyed(("a", "old"), ("b", None)), append_time_ms=START_MS + 77)
    log.append(keyed(("a", "new")))
    rolled(log).clean()
    first = log.batches()[0]
    assert first.header.attributes == LOG_APPEND_TIME | DELETE_HORIZON
    assert [record.timestamp_ms for record in first.records] == [START_MS + 77]


# -- tombstones


@pytest.mark.parametrize("codec", [0, 3], ids=["plain", "lz4"])
@pytest.mark.parametrize("first_timestamp_ms", [-1, 0, START_MS, START_MS + 1000 * DAY_MS])
def test_a_tombstone_waits_for_its_horizon_which_the_first_run_sets(codec: int, first_timestamp_ms: int) -> None:
    log = CompactedLog()
    log.append(keyed(("a", "1")))
    times = [first_timestamp_ms if first_timestamp_ms == -1 else first_timestamp_ms + number for number in range(2)]
    log.append([Record(0, times[0], b"a", None), Record(0, times[1], b"b", b"stays")], codec=codec)
    rolled(log)

    assert log.clean().tombstones_left == 1
    tombstone = log.batches()[0]
    assert tombstone.header.delete_horizon_ms == START_MS + DAY_MS
    assert [record.timestamp_ms for record in tombstone.records] == times
    assert tombstone.header.max_timestamp == max(times)

    log.now_ms += DAY_MS - 1
    assert log.clean().tombstones_left == 1
    assert log.batches()[0].data == tombstone.data, "the horizon is set once"

    log.now_ms += 1
    assert log.clean().tombstones_left == 0
    assert values(log) == {2: ("b", "stays"), 3: ("last", "of all")}
    assert [record.timestamp_ms for record in log.batches()[0].records] == times[1:]


def test_a_tombstone_that_is_followed_by_a_value_goes_at_once() -> None:
    log = CompactedLog()
    log.append(keyed(("a", "1"), ("a", None), ("a", "2")))
    rolled(log)
    assert log.clean().tombstones_left == 0
    assert values(log) == {2: ("a", "2"), 3: ("last", "of all")}
    assert log.batches()[0].header.delete_horizon_ms is None


def test_a_horizon_that_does_not_fit_into_64_bits_is_never() -> None:
    log = CompactedLog()
    log.append(keyed(("a", None)))
    rolled(log)
    from dataclasses import replace

    log.clean(replace(log.plan(), delete_retention_ms=(1 << 63) - 1))
    assert log.batches()[0].header.delete_horizon_ms == 1 << 62
    assert log.batches()[0].records[0].timestamp_ms == START_MS


def test_tombstones_that_this_run_does_not_reach_get_no_horizon_yet() -> None:
    log = CompactedLog()
    log.append(keyed(("a", "1"), ("b", "1")))
    log.append(keyed(("a", None), ("c", "1")))
    rolled(log)
    result = log.clean(log.plan(dedupe_buffer_bytes=24 * 3))
    assert result.cleaned_until == 2
    assert [batch.header.delete_horizon_ms for batch in log.batches()] == [None, None, None]


# -- transactions


def test_a_commit_marker_stays_as_long_as_its_records_and_then_for_a_while() -> None:
    log = CompactedLog()
    log.append(keyed(("a", "1")), producer_id=PRODUCER, transactional=True)
    marker = log.end(PRODUCER, commit=True)
    rolled(log).clean()
    assert with_offset(log, marker).header.delete_horizon_ms is None  # type: ignore[union-attr]

    log.append(keyed(("a", "2")))
    rolled(log).clean()  # the record goes; the marker has seen it in this run
    assert with_offset(log, 0) is None
    assert with_offset(log, marker).header.delete_horizon_ms is None  # type: ignore[union-attr]

    log.clean()
    kept = with_offset(log, marker)
    assert kept is not None
    assert kept.commits
    assert kept.header.delete_horizon_ms == log.now_ms + DAY_MS
    assert kept.records[0].timestamp_ms == START_MS

    log.now_ms += DAY_MS
    log.clean()
    assert with_offset(log, marker) is None


def test_records_of_an_aborted_transaction_go_and_then_its_entry_and_then_its_marker() -> None:
    log = CompactedLog()
    log.append(keyed(("a", "committed")))
    log.append(keyed(("a", "aborted")), producer_id=PRODUCER, transactional=True)
    marker = log.end(PRODUCER, commit=False)
    entries = log.aborted()
    rolled(log).clean()
    assert values(log) == {0: ("a", "committed"), 3: ("last", "of all")}
    assert log.aborted() == entries
    assert with_offset(log, marker) is not None

    log.clean()
    assert log.aborted() == []
    assert with_offset(log, marker).header.delete_horizon_ms == log.now_ms + DAY_MS  # type: ignore[union-attr]

    log.now_ms += DAY_MS
    log.clean()
    assert with_offset(log, marker) is None


def test_a_transaction_whose_marker_stands_behind_the_cleaned_part_is_known_to_be_aborted() -> None:
    log = CompactedLog()
    log.append(keyed(("a", "committed")))
    log.append(keyed(("a", "aborted"), ("b", "aborted")), producer_id=PRODUCER, transactional=True)
    log.roll()
    log.end(PRODUCER, commit=False)
    log.clean()
    assert values(log) == {0: ("a", "committed")}
    assert len(log.aborted(log.bases[-1])) == 1


def test_nothing_behind_an_open_transaction_is_cleaned() -> None:
    log = CompactedLog()
    log.append(keyed(("a", "1"), ("a", "2")))
    log.roll()
    log.append(keyed(("b", "open")), producer_id=PRODUCER, transactional=True)
    log.roll()
    log.append(keyed(("a", "3"), ("a", "4")))
    log.roll()
    assert log.clean().cleaned_until == 2
    assert values(log) == {1: ("a", "2"), 2: ("b", "open"), 3: ("a", "3"), 4: ("a", "4")}


# -- producers


def test_the_last_batch_of_an_active_producer_stays_if_only_its_header() -> None:
    log = CompactedLog()
    log.append(keyed(("a", "1"), ("b", "1")), producer_id=PRODUCER, codec=3)
    last = log.append(keyed(("a", "2"), ("b", "2"), ("a", "3")), producer_id=PRODUCER, codec=3)
    log.append(keyed(("a", "4"), ("b", "4")))
    rolled(log).clean(log.plan(producers=(LastBatch(PRODUCER, 0, last + 2),)))
    assert [batch.header.base_offset for batch in log.batches()] == [last, last + 3, last + 5]
    header = log.batches()[0].header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (PRODUCER, 0, 2)
    assert (header.record_count, header.last_offset_delta, header.size_bytes) == (0, 2, 61)
    assert (header.attributes, header.base_timestamp, header.max_timestamp) == (0, -1, START_MS + 2)

    emptied = log.batches()[0].data
    log.clean(log.plan(producers=(LastBatch(PRODUCER, 0, last + 2),)))
    assert log.batches()[0].data == emptied
    log.clean()  # it has expired
    assert [batch.header.base_offset for batch in log.batches()] == [last + 3, last + 5]


def test_a_marker_that_is_all_that_tells_of_a_producers_epoch_stays_if_only_its_header() -> None:
    log = CompactedLog()
    marker = log.end(PRODUCER, commit=False, producer_epoch=5)
    rolled(log)
    log.clean()
    log.now_ms += DAY_MS
    log.clean(log.plan(producers=(LastBatch(PRODUCER, 5, -1),)))
    kept = with_offset(log, marker)
    assert kept is not None
    assert (kept.header.record_count, kept.header.producer_epoch) == (0, 5)
    assert kept.header.is_control
    assert kept.header.attributes & TRANSACTIONAL
    log.clean(log.plan(producers=(LastBatch(PRODUCER, 6, -1),)))
    assert with_offset(log, marker) is None


def test_a_segment_of_which_nothing_is_left_still_says_where_it_ends() -> None:
    log = CompactedLog(segment_bytes=100)
    log.append(keyed(("a", "1"), ("b", "1")))
    log.append(keyed(("a", "2"), ("b", "2")))
    log.roll()
    log.append(keyed(("a", "3"), ("b", "3")))
    log.roll()
    log.clean()
    (last,) = log.segment(0)
    assert (last.header.base_offset, last.header.last_offset, last.records) == (2, 3, [])


# -- the buffer


def test_with_more_keys_than_fit_several_runs_come_to_the_same_end() -> None:
    def filled() -> CompactedLog:
        log = CompactedLog()
        for number in range(60):
            log.append(keyed((f"key {number * 7 % 40}", str(number)), (f"key {number % 40}", str(number))))
        log.roll()
        return log

    whole, parts = filled(), filled()
    whole.clean()
    runs = 0
    while parts.first_dirty_offset < parts.next_offset:
        before = parts.first_dirty_offset
        parts.clean(parts.plan(dedupe_buffer_bytes=24 * 10))
        assert parts.first_dirty_offset > before
        runs += 1
    assert runs > 4, "nine keys at a time"
    assert values(parts) == values(whole)
    assert len(values(whole)) == 40


def test_a_segment_that_the_run_did_not_reach_is_left_alone() -> None:
    log = CompactedLog(segment_bytes=100)
    for number in range(4):
        log.append(keyed((f"a{number}", ""), (f"b{number}", "")))
        log.roll()
    result = log.clean(log.plan(dedupe_buffer_bytes=24 * 4))
    assert [group.old_base_offsets for group in result.groups] == [(0,)]
    assert result.cleaned_until == 2
