import contextlib
import time
from collections.abc import Callable

import pytest

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.connector.client.cluster import Cluster, TopicPartition
from pylog.connector.client.errors import DeliveryFailed, NotKafka, UnknownPartition
from pylog.connector.client.producer import BatchProducer
from pylog.storage.records import Record, decode_batch, encode_batch
from tests.connector.client.fake_kafka import METADATA, PRODUCE, FakeKafka, Fault

Connect = Callable[..., Cluster]
PLACES = [("orders", 0), ("orders", 1), ("orders", 2)]


def batch_of(label: int, value_bytes: int = 20) -> bytes:
    return bytes(encode_batch([Record(0, 0, None, b"%d" % label + b" " * value_bytes)]))


def labels(kafka: FakeKafka, place: TopicPartition) -> list[int]:
    return [int(record.value or b"-1") for batch in kafka.logs[place].batches for record in decode_batch(batch)]


def last_copies(found: list[int]) -> list[int]:
    """Each label where it stands last: the order in which a reader that keeps the last copy sees them."""
    return sorted(set(found), key=lambda label: len(found) - found[::-1].index(label))


def send(producer: BatchProducer, count: int, places: list[TopicPartition] = PLACES, first: int = 0) -> None:
    for label in range(first, first + count):
        for place in places:
            producer.send(*place, batch_of(label), 1)


def test_what_was_flushed_is_in_the_log_in_order(kafka: FakeKafka, connect: Connect) -> None:
    with BatchProducer(connect(kafka)) as producer:
        send(producer, 20)
        producer.flush()
        for place in PLACES:
            assert labels(kafka, place) == list(range(20))
        send(producer, 2, first=20)
    assert labels(kafka, PLACES[0]) == list(range(22)), "closing flushes"


def test_batches_for_one_leader_share_a_request_one_per_partition(kafka: FakeKafka, connect: Connect) -> None:
    kafka.add_topic("more", 1)
    places = [("orders", 0), ("more", 0), ("orders", 1), ("orders", 2)]
    with BatchProducer(connect(kafka)) as producer:
        send(producer, 3, places)
    assert [len(request.body.partitions) for request in kafka.asked(PRODUCE)] == [4, 4, 4]


def test_a_request_grows_no_larger_than_its_limit(kafka: FakeKafka, connect: Connect) -> None:
    size = len(batch_of(0))
    with BatchProducer(connect(kafka, max_request_size=str(2 * size))) as producer:
        send(producer, 1)
    assert [len(request.body.partitions) for request in kafka.asked(PRODUCE)] == [2, 1]


def test_leaders_get_their_own_partitions_only(connect: Connect) -> None:
    with FakeKafka({"orders": 3}, nodes=3) as kafka:
        with BatchProducer(connect(kafka)) as producer:
            send(producer, 5)
        for request in kafka.asked(PRODUCE):
            assert [partition.partition for partition in request.body.partitions] == [request.node]
        for place in PLACES:
            assert labels(kafka, place) == list(range(5))


@pytest.mark.parametrize(("acks", "value"), [("all", -1), ("1", 1), ("0", 0)])
def test_acks_reach_the_broker(kafka: FakeKafka, connect: Connect, acks: str, value: int) -> None:
    with BatchProducer(connect(kafka, acks=acks)) as producer:
        send(producer, 3)
        producer.flush()
    while len(kafka.asked(PRODUCE)) < 3:  # with acks=0 nobody says when they arrive
        time.sleep(0.001)
    assert {request.body.acks for request in kafka.asked(PRODUCE)} == {value}


def test_no_more_requests_are_in_flight_than_allowed(kafka: FakeKafka, connect: Connect) -> None:
    kafka.faults[PRODUCE] += [Fault.NONE, *[Fault.SILENCE] * 10]
    cluster = connect(
        kafka, max_in_flight_requests_per_connection="3", request_timeout_ms="500", delivery_timeout_ms="400"
    )
    producer = BatchProducer(cluster)
    send(producer, 5, PLACES[:1])  # the first is taken, three are in flight, the last is still being filled
    with pytest.raises(DeliveryFailed):
        send(producer, 1, PLACES[:1])
    assert len(kafka.asked(PRODUCE)) == 4


def test_nothing_follows_the_first_batch_of_a_partition_until_it_is_taken(kafka: FakeKafka, connect: Connect) -> None:
    """A broker that has just learnt of a topic refuses what it takes a moment later: nothing may stand twice."""
    kafka.faults[PRODUCE] += [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
    with BatchProducer(connect(kafka)) as producer:
        send(producer, 8)
    for place in PLACES:
        assert labels(kafka, place) == list(range(8))


def test_what_is_sent_beyond_the_buffer_waits_for_what_is_in_it(kafka: FakeKafka, connect: Connect) -> None:
    size = len(batch_of(0))
    with BatchProducer(connect(kafka, buffer_memory=str(2 * size))) as producer:
        for place in PLACES:
            producer.send(*place, batch_of(0), 1)
        assert [len(request.body.partitions) for request in kafka.asked(PRODUCE)] == [2], "there is room for two"
    assert [labels(kafka, place) for place in PLACES] == [[0]] * 3


def test_a_topic_is_created_when_the_broker_does_so(kafka: FakeKafka, connect: Connect) -> None:
    kafka.auto_create = True
    with BatchProducer(connect(kafka)) as producer:
        producer.send("fresh", 0, batch_of(1), 1)
    assert labels(kafka, ("fresh", 0)) == [1]


@pytest.mark.parametrize("records", [b"", b"x" * 100, batch_of(1)[:-1], batch_of(1) * 2], ids=range(4))
def test_bytes_that_are_not_one_batch_are_refused(kafka: FakeKafka, connect: Connect, records: bytes) -> None:
    with BatchProducer(connect(kafka)) as producer, pytest.raises(ValueError, match="are not one record batch"):
        producer.send("orders", 0, records, 1)


# What passes by itself

PASSING = [
    Fault.LOSE_REQUEST,
    Fault.LOSE_ANSWER,
    Fault.CUT_ANSWER,
    Fault.CRUMBLE_ANSWER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.CORRUPT_MESSAGE,
]
# What never reaches the log is not in it twice, unless it was in flight behind the one that failed.
DOUBLES = {Fault.LOSE_ANSWER, Fault.CUT_ANSWER, Fault.LOSE_REQUEST}


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: fault.name)
@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("in_flight", ["1", "5"])
def test_everything_arrives_in_order_after(
    kafka: FakeKafka, connect: Connect, fault: Fault | ErrorCode, at: int, in_flight: str
) -> None:
    with BatchProducer(connect(kafka, max_in_flight_requests_per_connection=in_flight)) as producer:
        kafka.faults[PRODUCE] += [Fault.NONE] * at + [fault]
        kafka.faults[METADATA] += [Fault.NONE, Fault.LOSE_ANSWER]
        send(producer, 8)
    for place in PLACES:
        found = labels(kafka, place)
        assert last_copies(found) == list(range(8))
        if in_flight == "1" and fault not in DOUBLES:
            assert found == list(range(8)), "nothing was in flight behind it, so nothing stands twice"


def test_a_refusal_of_one_partition_brings_back_what_followed_there_in_order(
    kafka: FakeKafka, connect: Connect
) -> None:
    """The second batch was refused and the third taken: the third is sent again behind the second."""
    kafka.faults[PRODUCE] += [Fault.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
    with BatchProducer(connect(kafka)) as producer:
        send(producer, 4, PLACES[:1])
    assert labels(kafka, PLACES[0]) == [0, 2, 3, 1, 2, 3]


def test_what_is_refused_again_is_not_followed_again(kafka: FakeKafka, connect: Connect) -> None:
    kafka.faults[PRODUCE] += [Fault.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, Fault.NONE, Fault.NONE]
    kafka.faults[PRODUCE] += [ErrorCode.NOT_ENOUGH_REPLICAS]
    with BatchProducer(connect(kafka)) as producer:
        send(producer, 4, PLACES[:1])
    assert labels(kafka, PLACES[0]) == [0, 2, 3, 1, 2, 3]


def test_retries_are_counted_from_the_last_success(kafka: FakeKafka, connect: Connect) -> None:
    with BatchProducer(connect(kafka, retries="1")) as producer:
        for label in range(5):
            kafka.faults[PRODUCE].append(ErrorCode.NOT_ENOUGH_REPLICAS)
            producer.send(*PLACES[0], batch_of(label), 1)
            producer.flush()
    assert labels(kafka, PLACES[0]) == list(range(5))


def test_a_leader_that_moves_or_dies_is_followed(connect: Connect) -> None:
    with FakeKafka({"orders": 3}, nodes=2) as kafka:
        with BatchProducer(connect(kafka)) as producer:
            send(producer, 3)
            kafka.leaders["orders", 0] = 1
            send(producer, 3, first=3)
            producer.flush()
            kafka.stop(1)
            kafka.leaders.update(dict.fromkeys(PLACES, 0))
            send(producer, 3, first=6)
        for place in PLACES:
            assert last_copies(labels(kafka, place)) == list(range(9))


def test_a_broker_that_comes_back_gets_what_it_missed(kafka: FakeKafka, connect: Connect) -> None:
    with BatchProducer(connect(kafka)) as producer:
        send(producer, 3)
        kafka.stop(0)
        kafka.start(0)
        send(producer, 3, first=3)
    assert last_copies(labels(kafka, PLACES[1])) == list(range(6))


# What does not


def test_a_batch_over_the_clients_limit_names_the_option(kafka: FakeKafka, connect: Connect) -> None:
    producer = BatchProducer(connect(kafka, max_request_size="1000"))
    with pytest.raises(DeliveryFailed, match=r"orders-0 .*max\.request\.size=1000"):
        producer.send("orders", 0, batch_of(1, 2000), 1)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        pytest.param(ErrorCode.MESSAGE_TOO_LARGE, r"raise max\.message\.bytes of the topic", id="too large"),
        pytest.param(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED", id="not allowed"),
        pytest.param(ErrorCode.INVALID_RECORD, "INVALID_RECORD", id="invalid"),
    ],
)
def test_a_lasting_error_names_topic_partition_and_cause_and_is_raised_again(
    kafka: FakeKafka, connect: Connect, code: ErrorCode, says: str
) -> None:
    kafka.faults[PRODUCE].append(code)
    producer = BatchProducer(connect(kafka))
    producer.send("orders", 1, batch_of(1), 1)
    with pytest.raises(DeliveryFailed, match=f"1 records for orders-1 were not written: .*{says}"):
        producer.flush()
    with pytest.raises(DeliveryFailed, match=says):
        producer.send("orders", 1, batch_of(2), 1)
    with pytest.raises(DeliveryFailed, match=says):
        producer.flush()
    producer.close()
    assert len(kafka.asked(PRODUCE)) == 1


def test_an_unknown_partition_is_named(kafka: FakeKafka, connect: Connect) -> None:
    with pytest.raises(UnknownPartition, match="no partition 9"):
        BatchProducer(connect(kafka)).send("orders", 9, batch_of(1), 1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param({"delivery_timeout_ms": "50"}, r"within delivery\.timeout\.ms=50", id="time"),
        pytest.param({"retries": "2"}, "after retries=2", id="retries"),
    ],
)
@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, ErrorCode.NOT_ENOUGH_REPLICAS], ids=lambda fault: fault.name)
def test_what_does_not_pass_is_given_up(
    kafka: FakeKafka, connect: Connect, options: dict[str, str], says: str, fault: Fault | ErrorCode
) -> None:
    kafka.faults[PRODUCE] += [fault] * 1000
    producer = BatchProducer(connect(kafka, **options))
    producer.send("orders", 1, batch_of(1), 1)
    with pytest.raises(DeliveryFailed, match=f"orders-1 .*{says}"):
        producer.flush()


def test_a_broker_that_is_gone_is_given_up_in_the_delivery_time(kafka: FakeKafka, connect: Connect) -> None:
    producer = BatchProducer(connect(kafka, delivery_timeout_ms="80"))
    producer.send("orders", 1, batch_of(1), 1)
    kafka.stop(0)
    with pytest.raises(DeliveryFailed, match="no broker could be reached"):
        producer.flush()


@pytest.mark.parametrize("fault", [Fault.GARBAGE, Fault.WRONG_CORRELATION, Fault.HUGE])
def test_nonsense_is_not_retried(kafka: FakeKafka, connect: Connect, fault: Fault) -> None:
    kafka.faults[PRODUCE].append(fault)
    producer = BatchProducer(connect(kafka))
    producer.send("orders", 1, batch_of(1), 1)
    with pytest.raises(NotKafka):
        producer.flush()


def test_an_error_inside_the_with_block_is_not_hidden_by_a_flush(kafka: FakeKafka, connect: Connect) -> None:
    producer = BatchProducer(connect(kafka))
    with contextlib.suppress(ZeroDivisionError), producer:
        producer.send("orders", 0, batch_of(1), 1)
        raise ZeroDivisionError
    assert labels(kafka, PLACES[0]) == []
