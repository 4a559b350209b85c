import time
from collections.abc import Callable, Iterable
from uuid import UUID

import pytest

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.connector.client.cluster import Cluster
from pylog.connector.client.errors import CorruptRecords, NotKafka, OffsetOutOfRange, RangeNotReached, TopicRemade
from pylog.connector.client.fetcher import FetchedSet, fetch_range
from pylog.storage.batch import walk
from pylog.storage.records import Record, encode_batch
from tests.connector.client.fake_kafka import FETCH, LIST_OFFSETS, METADATA, TOPIC_ID, FakeKafka, Fault

Connect = Callable[..., Cluster]
PLACE = "orders", 0


def fill(kafka: FakeKafka, batches: int, records: int = 5, value_bytes: int = 100) -> None:
    batch = encode_batch([Record(n, 0, None, b"x" * value_bytes) for n in range(records)])
    for _ in range(batches):
        kafka.logs[PLACE].append(bytes(batch))


def ranges(fetched: Iterable[FetchedSet]) -> list[tuple[int, int]]:
    """[base, next) of every batch, in the order of arrival."""
    return [(header.base_offset, header.next_offset) for part in fetched for _, header in walk(part.records)]


def kept(fetched: Iterable[FetchedSet]) -> list[FetchedSet]:
    """With their records copied: a set is valid until the next is asked for."""
    return [part._replace(records=memoryview(bytes(part.records))) for part in fetched]


def of_five(first: int, last: int) -> list[tuple[int, int]]:
    return [(base, base + 5) for base in range(first, last, 5)]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        pytest.param(0, 100, of_five(0, 100), id="all"),
        pytest.param(12, 48, of_five(10, 50), id="batches that reach over both ends"),
        pytest.param(10, 15, of_five(10, 15), id="one batch exactly"),
        pytest.param(10, 10, [], id="nothing"),
        pytest.param(100, 100, [], id="nothing at the end of the log"),
        pytest.param(20, 10, [], id="backwards is nothing"),
    ],
)
@pytest.mark.parametrize("bytes_max", [1, 1000, 1 << 20], ids=["a batch a fetch", "with cut-off batches", "at once"])
def test_the_batches_of_a_range_arrive_once_and_in_order(
    kafka: FakeKafka, connect: Connect, start: int, end: int, expected: list[tuple[int, int]], bytes_max: int
) -> None:
    fill(kafka, 20)
    cluster = connect(kafka, max_partition_fetch_bytes=str(bytes_max))
    fetched = kept(fetch_range(cluster, *PLACE, start, end))
    assert ranges(fetched) == expected
    offset = start
    for part in fetched:
        assert part.fetch_offset == offset
        assert sum(header.size_bytes for _, header in walk(part.records)) == len(part.records), "whole batches only"
        assert (part.high_watermark, part.log_start_offset) == (100, 0)
        offset = part.next_offset
    assert kafka.connections_opened <= 1


def test_the_next_fetch_is_sent_before_an_answer_is_given_out(kafka: FakeKafka, connect: Connect) -> None:
    fill(kafka, 3)
    fetched = fetch_range(connect(kafka, max_partition_fetch_bytes="1"), *PLACE, 0, 15)
    next(fetched)
    while len(kafka.asked(FETCH)) < 2:  # arrives without our asking for more
        time.sleep(0.001)
    assert ranges(fetched) == of_five(5, 15)
    assert [request.body.partitions[0].fetch_offset for request in kafka.asked(FETCH)] == [0, 5, 10]


def test_all_answers_go_into_the_memory_of_the_largest(kafka: FakeKafka, connect: Connect) -> None:
    fill(kafka, 3)
    fill(kafka, 1, value_bytes=5_000)
    fill(kafka, 20)
    memories = [part.records.obj for part in fetch_range(connect(kafka, max_partition_fetch_bytes="1"), *PLACE, 0, 120)]
    assert len({id(memory) for memory in memories[:3]}) == 1
    assert len({id(memory) for memory in memories[3:]}) == 1
    assert len(memories[0]) < len(memories[3]) < 30_000


def test_a_caller_that_stops_early_leaves_no_answer_behind_for_the_next_one(kafka: FakeKafka, connect: Connect) -> None:
    fill(kafka, 20)
    cluster = connect(kafka, max_partition_fetch_bytes="1")
    kafka.faults[FETCH] += [Fault.NONE, Fault.SILENCE]
    fetched = fetch_range(cluster, *PLACE, 0, 100)
    next(fetched)
    fetched.close()  # type: ignore[attr-defined]
    assert cluster.latest([PLACE]) == {PLACE: 100}


def test_a_batch_larger_than_the_limit_arrives_whole(kafka: FakeKafka, connect: Connect) -> None:
    fill(kafka, 2, records=1, value_bytes=300_000)
    fetched = kept(fetch_range(connect(kafka, fetch_max_bytes="1000"), *PLACE, 0, 2))
    assert ranges(fetched) == [(0, 1), (1, 2)]


def test_offsets_that_compaction_removed_are_no_reason_to_wait(kafka: FakeKafka, connect: Connect) -> None:
    fill(kafka, 20)
    log = kafka.logs[PLACE]
    log.batches = [batch for n, batch in enumerate(log.batches) if n not in (2, 3, 9, 10, 11)]
    assert ranges(fetch_range(connect(kafka), *PLACE, 12, 55)) == of_five(20, 45), "45 to 55 were removed too"


@pytest.mark.parametrize("offset", [5, 101], ids=["before the log", "behind the log"])
def test_an_offset_outside_of_the_log_is_named_with_what_the_log_holds(
    kafka: FakeKafka, connect: Connect, offset: int
) -> None:
    fill(kafka, 20)
    kafka.logs[PLACE].start = 10
    with pytest.raises(OffsetOutOfRange, match=rf"orders-0 does not hold offset {offset}: it holds \[10, 100\)"):
        next(fetch_range(connect(kafka), *PLACE, offset, 200))


def test_a_range_that_the_log_does_not_reach_ends_with_its_time(kafka: FakeKafka, connect: Connect) -> None:
    fill(kafka, 2)
    fetched = fetch_range(connect(kafka, default_api_timeout_ms="30"), *PLACE, 0, 20)
    assert ranges([next(fetched)]) == of_five(0, 10)
    with pytest.raises(RangeNotReached, match=r"up to offset 20, but offset 10 did not arrive.*ends at 10"):
        next(fetched)


def test_a_range_is_waited_for_while_it_is_written(kafka: FakeKafka, connect: Connect) -> None:
    fill(kafka, 2)
    fetched = fetch_range(connect(kafka), *PLACE, 0, 15)
    assert ranges([next(fetched)]) == of_five(0, 10)
    fill(kafka, 1)
    assert ranges(fetched) == of_five(10, 15)


@pytest.mark.parametrize(
    ("fault", "connections"),
    [
        pytest.param(Fault.NONE, 1, id="the answer waited in the socket"),
        pytest.param(Fault.LOSE_REQUEST, 2, id="the broker closed the connection meanwhile"),
    ],
)
def test_a_slow_caller_uses_up_nobodys_time(kafka: FakeKafka, connect: Connect, fault: Fault, connections: int) -> None:
    fill(kafka, 3)
    times = {"request_timeout_ms": "300", "default_api_timeout_ms": "300"}
    kafka.faults[FETCH] += [Fault.NONE, fault]
    fetched = fetch_range(connect(kafka, max_partition_fetch_bytes="1", **times), *PLACE, 0, 15)
    seen = ranges([next(fetched)])
    time.sleep(0.31)
    assert seen + ranges(fetched) == of_five(0, 15)
    assert kafka.connections_opened == connections


FAULTS = [
    Fault.LOSE_REQUEST,
    Fault.LOSE_ANSWER,
    Fault.CUT_ANSWER,
    Fault.CRUMBLE_ANSWER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("after", range(5))
def test_reading_goes_on_where_it_was_after(
    kafka: FakeKafka, connect: Connect, fault: Fault | ErrorCode, after: int
) -> None:
    fill(kafka, 5)
    cluster = connect(kafka, max_partition_fetch_bytes="1")
    expected = of_five(0, 25)
    fetched = fetch_range(cluster, *PLACE, 0, 25)
    seen = ranges(next(fetched) for _ in range(after))
    kafka.faults[FETCH] += [fault, fault]
    kafka.faults[METADATA] += [Fault.LOSE_ANSWER]
    assert seen + ranges(fetched) == expected


def test_reading_follows_the_leader_and_survives_its_end(connect: Connect) -> None:
    with FakeKafka({"orders": 2}, nodes=2) as kafka:
        fill(kafka, 20)
        fetched = fetch_range(connect(kafka, max_partition_fetch_bytes="1"), *PLACE, 0, 100)
        seen = ranges([next(fetched)])
        kafka.leaders[PLACE] = 1
        seen += ranges(next(fetched) for _ in range(2))
        kafka.stop(1)
        kafka.leaders[PLACE] = 0
        assert seen + ranges(fetched) == of_five(0, 100)
        assert {request.node for request in kafka.asked(FETCH)} == {0, 1}


@pytest.mark.parametrize("fault", [Fault.GARBAGE, Fault.WRONG_CORRELATION, Fault.HUGE])
def test_nonsense_is_not_retried(kafka: FakeKafka, connect: Connect, fault: Fault) -> None:
    fill(kafka, 1)
    kafka.faults[FETCH].append(fault)
    with pytest.raises(NotKafka):
        next(fetch_range(connect(kafka), *PLACE, 0, 5))


@pytest.mark.parametrize(
    ("position", "damage", "says"),
    [
        pytest.param(8, b"\x00\x00\x00\x01", "a batch of 13 bytes", id="a length that is too short"),
        pytest.param(8, b"\xff\xff\xff\xff", "a batch of 11 bytes", id="a negative length"),
        pytest.param(8, b"\x7f\x00\x00\x00", "no whole batch", id="a length beyond the answer"),
        pytest.param(16, b"\x01", "format v1; only v2", id="an old format"),
        pytest.param(23, b"\xff\xff\xff\xf0", "up to offset", id="an end before its beginning"),
    ],
)
def test_a_damaged_batch_is_named_by_topic_partition_and_offset(
    kafka: FakeKafka, connect: Connect, position: int, damage: bytes, says: str
) -> None:
    fill(kafka, 3)
    batch = bytearray(kafka.logs[PLACE].batches[2])
    batch[position : position + len(damage)] = damage
    good = kafka.logs[PLACE].batches[:2]
    kafka.logs[PLACE].read = lambda offset, bytes_max: b"".join(good) if offset < 10 else bytes(batch)  # type: ignore[method-assign]
    with pytest.raises(CorruptRecords, match=f"orders-0 is damaged at offset 10: .*{says}"):
        list(fetch_range(connect(kafka), *PLACE, 0, 15))


def test_an_error_of_the_whole_answer_or_a_lasting_one_ends_the_reading(kafka: FakeKafka, connect: Connect) -> None:
    kafka.faults[FETCH].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
        next(fetch_range(connect(kafka), *PLACE, 0, 5))
    assert not kafka.asked(LIST_OFFSETS)


@pytest.mark.parametrize("version", [12, 18], ids=["by name", "by id"])
def test_a_topic_is_read_as_the_one_that_has_the_id(kafka: FakeKafka, connect: Connect, version: int) -> None:
    fill(kafka, 3)
    kafka.version_max[FETCH] = version
    kafka.faults[FETCH] += [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    ]  # some learn of it later
    assert ranges(fetch_range(connect(kafka), *PLACE, 0, 15, topic_id=TOPIC_ID)) == of_five(0, 15)
    assert {request.version for request in kafka.asked(FETCH)} == {version}


def test_brokers_that_have_no_ids_are_read_from_by_name(kafka: FakeKafka, connect: Connect) -> None:
    fill(kafka, 3)
    assert ranges(fetch_range(connect(kafka), *PLACE, 0, 15, topic_id=UUID(int=0))) == of_five(0, 15)
    assert {request.version for request in kafka.asked(FETCH)} == {12}


def test_another_topic_of_the_name_is_not_read_where_metadata_alone_tells(kafka: FakeKafka, connect: Connect) -> None:
    fill(kafka, 3)
    kafka.version_max[FETCH] = 12
    with pytest.raises(TopicRemade, match=f"its id was {UUID(int=8)} and is {TOPIC_ID}"):
        next(fetch_range(connect(kafka), *PLACE, 0, 15, topic_id=UUID(int=8)))
    assert not kafka.asked(FETCH)
