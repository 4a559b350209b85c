"""The state of producers: what is refused, what is answered as a repeat, when transactions are stable, snapshots."""

import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from pylog.storage.batch import CONTROL, TRANSACTIONAL, BatchHeader
from pylog.storage.errors import (
    DamagedFile,
    InvalidBatch,
    InvalidTransactionState,
    OutOfOrderSequence,
    StaleProducerEpoch,
    StorageError,
    TransactionCoordinatorFenced,
)
from pylog.storage.producers import (
    CompletedTransaction,
    Duplicate,
    Producers,
    ProducerView,
    snapshot_name,
    snapshot_offsets,
)
from pylog.storage.transactions import AbortedTransaction, Marker

SEQUENCE_MAX = 2**31 - 1
PATH = Path("00000000000000000100.snapshot")
COMMIT, ABORT = Marker(True, 0), Marker(False, 0)


def data(
    sequence: int,
    offset: int = 0,
    *,
    count: int = 10,
    epoch: int = 3,
    producer_id: int = 1000,
    transactional: bool = False,
    timestamp_ms: int = 50,
    records: int | None = None,
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=TRANSACTIONAL if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp=0,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count if records is None else records,
    )


def control(offset: int, *, epoch: int = 3, producer_id: int = 1000, timestamp_ms: int = 60) -> BatchHeader:
    header = data(-1, offset, count=1, epoch=epoch, producer_id=producer_id, timestamp_ms=timestamp_ms)
    return header._replace(attributes=TRANSACTIONAL | CONTROL)


def after(*headers: BatchHeader) -> Producers:
    producers = Producers()
    for header in headers:
        producers.applied(header, COMMIT if header.is_control else None)
    return producers


# -- sequence numbers and epochs

TWO_BATCHES = (data(0, 0), data(10, 10))
NEAR_THE_END = (data(SEQUENCE_MAX - 9, 0),)
ACROSS_THE_END = (data(SEQUENCE_MAX - 4, 0),)
OPEN = (data(0, 0, transactional=True),)
ENDED = (data(0, 0, transactional=True), control(10))
ENDED_WITH_A_NEW_EPOCH = (data(0, 0, transactional=True), control(10, epoch=4))
MARKER_ALONE = (control(10),)


@pytest.mark.parametrize(
    ("before", "batch", "refused"),
    [
        pytest.param((), data(0), None, id="a new producer"),
        pytest.param((), data(77), None, id="a producer whose records are gone may go on with any sequence"),
        pytest.param((), data(SEQUENCE_MAX), None, id="and with the last one"),
        pytest.param((), data(-1), InvalidBatch, id="no sequence number"),
        pytest.param((), data(0, epoch=-1), InvalidBatch, id="no epoch"),
        pytest.param((), data(0, producer_id=-1), InvalidBatch, id="no producer id"),
        pytest.param(TWO_BATCHES, data(20), None, id="the next"),
        pytest.param(TWO_BATCHES, data(21), OutOfOrderSequence, id="one record is missing"),
        pytest.param(TWO_BATCHES, data(19), OutOfOrderSequence, id="one record again"),
        pytest.param(TWO_BATCHES, data(0, count=20), OutOfOrderSequence, id="two batches again, but as one"),
        pytest.param(TWO_BATCHES, data(10, count=9), OutOfOrderSequence, id="a batch again, but shorter"),
        pytest.param(TWO_BATCHES, data(0, producer_id=1001), None, id="another producer"),
        pytest.param(TWO_BATCHES, data(0, epoch=4), None, id="a new epoch begins with 0"),
        pytest.param(TWO_BATCHES, data(20, epoch=4), OutOfOrderSequence, id="a new epoch does not go on"),
        pytest.param(TWO_BATCHES, data(20, epoch=2), StaleProducerEpoch, id="an old epoch"),
        pytest.param(TWO_BATCHES, data(0, epoch=2), StaleProducerEpoch, id="an old epoch from its start"),
        pytest.param(TWO_BATCHES, data(-1), InvalidBatch, id="a known producer without a sequence number"),
        pytest.param(NEAR_THE_END, data(0), None, id="sequence numbers wrap to 0"),
        pytest.param(NEAR_THE_END, data(1), OutOfOrderSequence, id="and not to 1"),
        pytest.param(ACROSS_THE_END, data(5), None, id="also within a batch"),
        pytest.param(ACROSS_THE_END, data(4), OutOfOrderSequence, id="which ends at 4"),
        pytest.param(OPEN, data(10, transactional=True), None, id="more of a transaction"),
        pytest.param(OPEN, data(10), InvalidTransactionState, id="not of the transaction that is open"),
        pytest.param(OPEN, data(11), OutOfOrderSequence, id="the gap is told first"),
        pytest.param(OPEN, data(0, producer_id=1001), None, id="nor need others be"),
        pytest.param(ENDED, data(10), None, id="behind a transaction the sequence goes on"),
        pytest.param(ENDED, data(10, transactional=True), None, id="in the next transaction too"),
        pytest.param(ENDED, data(0, count=3, transactional=True), OutOfOrderSequence, id="and does not begin anew"),
        pytest.param(
            ENDED_WITH_A_NEW_EPOCH, data(10), StaleProducerEpoch, id="fenced by the marker of its transaction"
        ),
        pytest.param(
            ENDED_WITH_A_NEW_EPOCH, data(10, epoch=4), OutOfOrderSequence, id="the marker's epoch begins with 0"
        ),
        pytest.param(ENDED_WITH_A_NEW_EPOCH, data(0, epoch=4), None, id="as it must"),
        pytest.param(MARKER_ALONE, data(0), None, id="an epoch known by a marker alone"),
        pytest.param(MARKER_ALONE, data(1), OutOfOrderSequence, id="begins with 0 as well"),
    ],
)
def test_a_batch_is_taken_only_where_it_follows(
    before: tuple[BatchHeader, ...], batch: BatchHeader, refused: type[StorageError] | None
) -> None:
    producers = after(*before)
    shown = producers.views()
    if refused is None:
        assert producers.check([batch]) is None
    else:
        with pytest.raises(refused, match=f"producer {batch.producer_id}"):
            producers.check([batch])
    assert producers.views() == shown


@pytest.mark.parametrize(
    ("batches", "refused"),
    [
        pytest.param([data(20), data(30)], None, id="one behind the other"),
        pytest.param([data(20), data(31)], OutOfOrderSequence, id="a gap between them"),
        pytest.param([data(0), data(10)], OutOfOrderSequence, id="repeats are found one at a time only"),
        pytest.param(
            [data(20), data(5, producer_id=7), data(30), data(15, producer_id=7)], None, id="of two producers"
        ),
        pytest.param([data(5, producer_id=7), data(5, producer_id=7)], OutOfOrderSequence, id="new, then a repeat"),
        pytest.param([data(20), data(0, epoch=4), data(10, epoch=4)], None, id="a new epoch among them"),
        pytest.param([data(0, epoch=4), data(20)], StaleProducerEpoch, id="and back"),
        pytest.param([data(20, transactional=True), data(30)], InvalidTransactionState, id="the first opens"),
        pytest.param([data(20), data(30, transactional=True)], None, id="the second opens"),
    ],
)
def test_batches_of_one_append_are_checked_one_behind_the_other(
    batches: list[BatchHeader], refused: type[StorageError] | None
) -> None:
    producers = after(*TWO_BATCHES)
    if refused is None:
        assert producers.check(batches) is None
    else:
        with pytest.raises(refused):
            producers.check(batches)
    assert len(producers) == 1


def test_what_the_broker_writes_in_a_transaction_has_no_sequence() -> None:
    producers = Producers()
    for offset in (0, 10):
        batch = data(-1, offset, transactional=True)
        assert producers.check([batch], sequenced=False) is None
        producers.applied(batch)
    assert producers.view(1000) == ProducerView(1000, 3, -1, 19, 50, -1, 0)
    with pytest.raises(StaleProducerEpoch):
        producers.check([data(-1, epoch=2, transactional=True)], sequenced=False)
    with pytest.raises(InvalidTransactionState):
        producers.check([data(-1)], sequenced=False)


# -- repeats


@pytest.mark.parametrize("number", range(7))
def test_each_of_the_last_five_batches_is_answered_as_it_was(number: int) -> None:
    producers = after(*(data(10 * n, 100 + 11 * n, timestamp_ms=n) for n in range(7)))
    again = data(10 * number, 0, timestamp_ms=99)
    if number < 2:
        with pytest.raises(OutOfOrderSequence):
            producers.check([again])
    else:
        base_offset = 100 + 11 * number
        assert producers.check([again]) == Duplicate(base_offset, base_offset + 9, number)


def test_the_next_batch_of_a_producer_is_known_at_a_glance() -> None:
    producers = after(data(0), data(10))
    assert producers.who_goes_on_with(data(20))
    for other in (data(10), data(30), data(20, epoch=4), data(20, producer_id=7), control(20)):
        assert not producers.who_goes_on_with(other)


def test_a_repeat_is_found_where_the_sequence_wraps() -> None:
    producers = after(*ACROSS_THE_END, data(5, 10))
    assert producers.check([data(SEQUENCE_MAX - 4, 77)]) == Duplicate(0, 9, 50)


def test_a_repeat_behind_a_batch_without_a_sequence_is_found() -> None:
    producers = after(data(0), data(-1, 10))  # behind which sequences begin anew
    assert producers.check([data(0, 20)]) == Duplicate(0, 9, 50)
    assert not producers.who_goes_on_with(data(0, 20))


def test_a_repeat_behind_the_marker_of_its_transaction_is_found() -> None:
    assert after(*ENDED).check([data(0, transactional=True)]) == Duplicate(0, 9, 50)


def test_batches_of_an_older_epoch_are_no_repeats() -> None:
    producers = after(*TWO_BATCHES, data(0, 20, epoch=4))
    assert producers.check([data(0, epoch=4)]) == Duplicate(20, 29, 50)
    with pytest.raises(OutOfOrderSequence):
        producers.check([data(10, count=7, epoch=4)._replace(base_sequence=20)])
    with pytest.raises(StaleProducerEpoch):
        producers.check([data(10)])


# -- markers


@pytest.mark.parametrize(
    ("before", "header", "marker", "bumped", "refused"),
    [
        pytest.param((), control(0), COMMIT, False, None, id="of a producer that is unknown"),
        pytest.param(OPEN, control(10), COMMIT, False, None, id="of the transaction's epoch"),
        pytest.param(OPEN, control(10, epoch=4), ABORT, False, None, id="of a newer epoch"),
        pytest.param(OPEN, control(10, epoch=2), ABORT, False, StaleProducerEpoch, id="of an older epoch"),
        pytest.param(OPEN, control(10), COMMIT, True, StaleProducerEpoch, id="v2: late, the next transaction is open"),
        pytest.param(OPEN, control(10, epoch=4), COMMIT, True, None, id="v2: its epoch is bumped"),
        pytest.param(ENDED, control(11), COMMIT, True, None, id="v2: a repeat, nothing is open"),
        pytest.param(ENDED, control(11, epoch=2), COMMIT, True, StaleProducerEpoch, id="v2: of an older epoch"),
        pytest.param(ENDED, control(11), Marker(True, 1), False, None, id="of a newer coordinator"),
        pytest.param(ENDED, control(11), Marker(True, -1), False, TransactionCoordinatorFenced, id="of an older one"),
    ],
)
def test_markers_are_fenced_by_the_epochs_of_producer_and_coordinator(
    before: tuple[BatchHeader, ...],
    header: BatchHeader,
    marker: Marker,
    bumped: bool,
    refused: type[StorageError] | None,
) -> None:
    producers = after(*before)
    if refused is None:
        producers.check_marker(header, marker, epoch_is_bumped=bumped)
    else:
        with pytest.raises(refused, match="producer 1000"):
            producers.check_marker(header, marker, epoch_is_bumped=bumped)


def test_a_marker_ends_the_transaction_and_tells_of_it() -> None:
    producers = after(data(0, 100, transactional=True), data(10, 110, transactional=True))
    completed = CompletedTransaction(1000, 100, 120, 121, True)
    assert producers.completes(control(120), ABORT) == completed
    assert producers.applied(control(120), ABORT) == completed
    assert completed.index_entry() == AbortedTransaction(1000, 100, 120, 121)
    assert producers.applied(control(121), ABORT) is None
    assert producers.view(1000) == ProducerView(1000, 3, 19, 119, 60, 0, -1)


def test_an_aborted_transaction_names_the_first_one_that_is_still_open() -> None:
    producers = after(
        data(0, 0, producer_id=1, transactional=True),
        data(0, 10, producer_id=2, transactional=True),
        data(0, 20, producer_id=3, transactional=True),
    )
    assert producers.applied(control(30, producer_id=1), ABORT) == CompletedTransaction(1, 0, 30, 10, True)
    assert producers.applied(control(31, producer_id=3), ABORT) == CompletedTransaction(3, 20, 31, 10, True)
    assert producers.applied(control(32, producer_id=2), COMMIT) == CompletedTransaction(2, 10, 32, 33, False)


def test_what_is_in_the_log_is_never_refused() -> None:
    """A log may hold what today's rules would not take; opening it must not fail for that."""
    producers = after(data(0, 0, transactional=True), data(50, 10), data(7, 20, epoch=1), control(30, epoch=0))
    assert producers.view(1000) == ProducerView(1000, 0, -1, -1, 60, 0, -1)
    assert producers.first_unstable_offset == 0


# -- what compaction leaves


def test_a_data_batch_that_compaction_emptied_opens_no_transaction_and_keeps_its_sequence() -> None:
    producers = after(data(0, 0, transactional=True, records=0))
    assert producers.first_unstable_offset is None
    assert producers.view(1000) == ProducerView(1000, 3, 9, 9, 50, -1, -1)
    assert producers.check([data(10)]) is None


def test_a_control_batch_that_compaction_emptied_keeps_its_epoch() -> None:
    producers = after(data(0, 0))
    assert producers.applied(control(10, epoch=4)._replace(record_count=0), None) is None
    assert producers.view(1000) == ProducerView(1000, 4, -1, -1, 60, -1, -1)


# -- the last stable offset


def test_the_last_stable_offset_follows_transactions_and_the_high_watermark() -> None:
    producers = Producers()
    assert producers.last_stable_offset(0) == 0
    producers.applied(data(0, 0, producer_id=9))
    assert producers.last_stable_offset(10) == 10
    producers.applied(data(0, 10, producer_id=1, transactional=True))
    producers.applied(data(0, 20, producer_id=2, transactional=True))
    producers.high_watermark_moved(30)
    assert producers.last_stable_offset(30) == 10
    assert producers.last_stable_offset(5) == 5  # a reader stops at the high watermark in any case
    producers.applied(control(30, producer_id=1), COMMIT)
    producers.applied(control(31, producer_id=2), ABORT)
    producers.applied(data(0, 32, producer_id=3, transactional=True))
    assert producers.first_unstable_offset == 10
    producers.high_watermark_moved(30)  # the first marker is at 30, and not below
    assert producers.last_stable_offset(30) == 10
    producers.high_watermark_moved(31)
    assert producers.last_stable_offset(31) == 20
    producers.high_watermark_moved(42)
    assert producers.last_stable_offset(42) == 32
    producers.applied(control(42, producer_id=3), COMMIT)
    producers.high_watermark_moved(43)
    assert producers.first_unstable_offset is None
    assert producers.last_stable_offset(43) == 43


# -- expiry


def test_a_producer_expires_when_it_has_been_silent_unless_its_transaction_is_open() -> None:
    producers = after(
        data(0, 0, producer_id=1, timestamp_ms=1000),
        data(0, 10, producer_id=2, timestamp_ms=1001),
        data(0, 20, producer_id=3, timestamp_ms=1000, transactional=True),
        data(0, 30, producer_id=4, timestamp_ms=900),
        control(40, producer_id=4, timestamp_ms=1001),
    )
    assert producers.expire(1499, 500) == 0
    assert producers.expire(1500, 500) == 1
    assert [view.producer_id for view in producers.views()] == [2, 3, 4]
    assert producers.check([data(77, producer_id=1)]) is None
    producers.applied(control(41, producer_id=3, timestamp_ms=1000), COMMIT)
    assert producers.expire(1501, 500) == 3
    assert len(producers) == 0
    assert producers.first_unstable_offset == 20  # its marker still waits for the high watermark


# -- snapshots

# Written by Kafka 4.3.1: an idempotent producer; one in a transaction across the wrap of its sequence; one of which
# only a marker is known.
KAFKA_SNAPSHOT = (
    "000121a7fa5700000003"
    "00000000000003e800030000000e000000000000000e000000040000018bcfe56801ffffffffffffffffffffffff"
    "00000000000003e90000000000020000000000000014000000050000018bcfe56802ffffffff000000000000000f"
    "00000000000003ea7fffffffffffffffffffffffffff000000000000018bcfe5680300000009ffffffffffffffff"
)


def _some_state() -> Producers:
    producers = after(
        data(0, 0, timestamp_ms=1_700_000_000_000),
        data(10, 10, count=5, timestamp_ms=1_700_000_000_001),
        data(
            SEQUENCE_MAX - 2, 15, count=6, epoch=0, producer_id=1001, timestamp_ms=1_700_000_000_002, transactional=True
        ),
    )
    producers.applied(control(21, producer_id=1002, epoch=32767, timestamp_ms=1_700_000_000_003), Marker(False, 9))
    return producers


def test_a_snapshot_that_kafka_wrote_is_read() -> None:
    producers = Producers.from_snapshot(bytes.fromhex(KAFKA_SNAPSHOT), PATH)
    by_id = sorted(producers.views())
    assert by_id == sorted(_some_state().views())
    assert by_id == [
        ProducerView(1000, 3, 14, 14, 1_700_000_000_001, -1, -1),
        ProducerView(1001, 0, 2, 20, 1_700_000_000_002, -1, 15),
        ProducerView(1002, 32767, -1, -1, 1_700_000_000_003, 9, -1),
    ]


def test_a_snapshot_is_what_kafka_writes() -> None:
    assert _some_state().snapshot().hex() == KAFKA_SNAPSHOT


def test_what_is_read_from_a_snapshot_goes_on_where_it_ended() -> None:
    producers = Producers.from_snapshot(_some_state().snapshot(), PATH)
    assert producers.check([data(15)]) is None
    assert producers.check([data(10, count=5)]) == Duplicate(10, 14, 1_700_000_000_001)
    with pytest.raises(OutOfOrderSequence):
        producers.check([data(0)])  # only the last batch is in a snapshot
    again = data(SEQUENCE_MAX - 2, count=6, epoch=0, producer_id=1001, transactional=True)
    assert producers.check([again]) == Duplicate(15, 20, 1_700_000_000_002)
    assert producers.first_unstable_offset == 15
    assert producers.applied(control(22, epoch=0, producer_id=1001), ABORT) == (1001, 15, 22, 23, True)
    with pytest.raises(TransactionCoordinatorFenced):
        producers.check_marker(control(23, epoch=32767, producer_id=1002), Marker(True, 8))


def test_open_transactions_of_a_snapshot_are_ordered_by_their_offsets() -> None:
    """The order of producers is not that of their transactions: one had written before it opened this one."""
    producers = after(
        data(0, 0, producer_id=1),
        data(0, 10, producer_id=2, transactional=True),
        data(10, 20, producer_id=1, transactional=True),
    )
    loaded = Producers.from_snapshot(producers.snapshot(), PATH)
    assert loaded.first_unstable_offset == 10
    assert loaded.applied(control(30, producer_id=2), ABORT) == (2, 10, 30, 20, True)


def test_an_empty_snapshot() -> None:
    assert Producers().snapshot().hex() == "0001" + "48674bc7" + "00000000"
    assert len(Producers.from_snapshot(Producers().snapshot(), PATH)) == 0


def _with_crc(snapshot: bytes, change: Callable[[bytearray], None]) -> bytes:
    changed = bytearray(snapshot)
    change(changed)
    struct.pack_into(">I", changed, 2, crc32c(bytes(changed[6:])))
    return bytes(changed)


def _set(position: int, layout: str, value: int) -> Callable[[bytearray], None]:
    return lambda snapshot: struct.pack_into(layout, snapshot, position, value)


SOME_SNAPSHOT = _some_state().snapshot()


@pytest.mark.parametrize(
    ("snapshot", "place", "reason"),
    [
        pytest.param(b"", 0, "0 bytes where the head takes 10", id="empty file"),
        pytest.param(SOME_SNAPSHOT[:9], 0, "9 bytes where the head takes 10", id="cut in the head"),
        pytest.param(b"\0\2" + SOME_SNAPSHOT[2:], 0, "version 2", id="unknown version"),
        pytest.param(SOME_SNAPSHOT[:-1], 2, "CRC-32C", id="cut in an entry"),
        pytest.param(SOME_SNAPSHOT + b"\0", 2, "CRC-32C", id="a byte too many"),
        pytest.param(bytes(10), 0, "version 0", id="zeros"),
        pytest.param(_with_crc(SOME_SNAPSHOT, _set(6, ">i", 2)), 6, "2 producers do not fill 138", id="too many bytes"),
        pytest.param(
            _with_crc(SOME_SNAPSHOT, _set(6, ">i", 2**31 - 1)), 6, "do not fill", id="a count out of all bounds"
        ),
        pytest.param(_with_crc(SOME_SNAPSHOT, _set(6, ">i", -1)), 6, "-1 producers", id="a negative count"),
        pytest.param(_with_crc(SOME_SNAPSHOT, _set(10 + 46, ">q", -5)), 56, "cannot be", id="a producer id below 0"),
        pytest.param(_with_crc(SOME_SNAPSHOT, _set(10 + 22, ">i", -1)), 10, "cannot be", id="an offset delta below 0"),
        pytest.param(
            _with_crc(SOME_SNAPSHOT, _set(10 + 22, ">i", 15)), 10, "cannot be", id="a batch from before offset 0"
        ),
    ],
)
def test_a_damaged_snapshot_is_refused_with_file_and_place(snapshot: bytes, place: int, reason: str) -> None:
    with pytest.raises(DamagedFile, match=rf"^{PATH}: damaged at byte {place}: ") as refused:
        Producers.from_snapshot(snapshot, PATH)
    assert reason in str(refused.value)


@pytest.mark.parametrize("position", range(len(SOME_SNAPSHOT)))
def test_a_flipped_bit_is_found_wherever_it_is(position: int) -> None:
    broken = bytearray(SOME_SNAPSHOT)
    broken[position] ^= 1 << position % 8
    with pytest.raises(DamagedFile):
        Producers.from_snapshot(broken, PATH)


def test_snapshots_are_named_after_the_next_offset() -> None:
    assert snapshot_name(100) == PATH.name
    names = [
        snapshot_name(2**63 - 1),
        snapshot_name(0),
        PATH.name,
        "00000000000000000100.log",
        "00000000000000000100.snapshot.deleted",
        "00000000000000000100.snapshot.tmp",
        "100.snapshot",
        "leader-epoch-checkpoint",
    ]
    assert snapshot_offsets(names) == [0, 100, 2**63 - 1]


def test_a_partition_without_producers_costs_almost_nothing() -> None:
    producers = Producers()
    parts = [producers, producers._producers, producers._unstable]
    assert sum(map(sys.getsizeof, parts)) < 256
