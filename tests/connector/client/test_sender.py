"""What is sent arrives once and in order, whatever happens between a request and its answer."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.connector.client.config import ClientConfig, Role
from pylog.connector.client.delivery import DeliveryFuture, TableFuture
from pylog.connector.client.errors import (
    BrokerUnavailable,
    ClientError,
    DeliveryFailed,
    KafkaError,
    NotKafka,
    RecordTooLarge,
    UnknownPartition,
)
from pylog.connector.client.producer import RecordProducer
from pylog.storage.batch import read_header
from pylog.storage.records import Record, decode_batch, encode_batch
from tests.connector.client.fake_kafka import METADATA, PRODUCE, PRODUCER_ID, FakeKafka, Fault

Place = tuple[str, int]
Produce = Callable[..., RecordProducer]
PLACES = [("orders", 0), ("orders", 1), ("orders", 2)]
_QUICK = {"retry.backoff.ms": "1", "retry.backoff.max.ms": "5", "linger.ms": "0"}


@pytest.fixture
def produce() -> Iterator[Produce]:
    """`produce(kafka, acks="0")`: a producer with short pauses, closed at the end."""
    made: list[RecordProducer] = []

    def make(kafka: FakeKafka, **options: str) -> RecordProducer:
        named = {name.replace("_", "."): value for name, value in options.items()}
        given = {"bootstrap.servers": kafka.bootstrap_servers, **_QUICK, **named}
        made.append(RecordProducer(ClientConfig.parse(given, Role.PRODUCER)))
        return made[-1]

    yield make
    for producer in made:
        producer.close(0)


def batch_of(label: int, value_bytes: int = 20) -> bytes:
    return bytes(encode_batch([Record(0, 0, None, b"%d" % label + b" " * value_bytes)]))


def labels(kafka: FakeKafka, place: Place) -> list[int]:
    return [int(record.value or b"-1") for batch in kafka.logs[place].batches for record in decode_batch(batch)]


def send(producer: RecordProducer, count: int, places: list[Place] = PLACES, first: int = 0) -> list[TableFuture]:
    return [
        producer.send_batch(*place, batch_of(label), 1) for label in range(first, first + count) for place in places
    ]


def all_written(producer: RecordProducer, sent: list[TableFuture]) -> None:
    producer.flush(30)
    for future in sent:
        future.result(0)


def test_what_was_flushed_is_in_the_log_in_order(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(kafka)
    all_written(producer, send(producer, 20))
    for place in PLACES:
        assert labels(kafka, place) == list(range(20))
    send(producer, 2, first=20)
    producer.close()
    assert labels(kafka, PLACES[0]) == list(range(22)), "closing flushes"


def test_batches_for_one_leader_share_a_request_one_per_partition(kafka: FakeKafka, produce: Produce) -> None:
    kafka.add_topic("more", 1)
    places = [("orders", 0), ("more", 0), ("orders", 1), ("orders", 2)]
    producer = produce(kafka, linger_ms="1000")
    sent = [producer.send(topic, "v", partition=partition) for topic, partition in places]
    producer.flush(10)
    assert all(future.done() for future in sent)
    assert [len(request.body.partitions) for request in kafka.asked(PRODUCE)] == [4]


def test_a_request_grows_no_larger_than_its_limit(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(kafka, linger_ms="1000", max_request_size="250")
    for place in PLACES:
        producer.send(place[0], b"x" * 40, partition=place[1])
    producer.flush(10)
    assert [len(request.body.partitions) for request in kafka.asked(PRODUCE)] == [2, 1]


def test_leaders_get_their_own_partitions_only(produce: Produce) -> None:
    with FakeKafka({"orders": 3}, nodes=3) as kafka:
        producer = produce(kafka)
        all_written(producer, send(producer, 5))
        for request in kafka.asked(PRODUCE):
            assert [partition.partition for partition in request.body.partitions] == [request.node]
        for place in PLACES:
            assert labels(kafka, place) == list(range(5))


@pytest.mark.parametrize(("acks", "value"), [("all", -1), ("1", 1), ("0", 0)])
def test_acks_reach_the_broker(kafka: FakeKafka, produce: Produce, acks: str, value: int) -> None:
    producer = produce(kafka, acks=acks)
    all_written(producer, send(producer, 3))
    while len(labels(kafka, PLACES[0])) < 3:  # with acks=0 nobody says when they arrive
        time.sleep(0.001)
    assert {request.body.acks for request in kafka.asked(PRODUCE)} == {value}
    known = {read_header(batch).producer_id > 0 for batch in kafka.logs[PLACES[0]].batches}
    assert known == {acks == "all"}, "copies are told apart where every batch is acknowledged by all"


def test_with_acks_0_a_record_is_done_when_it_is_sent_and_its_offset_is_not_known(
    kafka: FakeKafka, produce: Produce
) -> None:
    assert produce(kafka, acks="0").send("orders", "v").result(10).offset == -1


def test_with_acks_0_flushing_waits_until_the_connection_has_taken_everything(
    kafka: FakeKafka, produce: Produce
) -> None:
    producer = produce(kafka, acks="0", send_buffer_bytes="4096")
    all_written(producer, send(producer, 1, PLACES[:1]))
    with kafka.busy:  # the broker does not read
        sent = [producer.send_batch("orders", 0, batch_of(label, 900_000), 1) for label in range(1, 6)]
        with pytest.raises(TimeoutError):
            producer.flush(0.1)
    producer.close()
    all_written(producer, sent)
    while len(labels(kafka, PLACES[0])) < 6:
        time.sleep(0.001)


def test_with_acks_0_a_connection_that_holds_half_a_request_is_not_used_again(
    kafka: FakeKafka, produce: Produce
) -> None:
    producer = produce(kafka, acks="0", send_buffer_bytes="4096")
    all_written(producer, send(producer, 1, PLACES[:1]))
    with kafka.busy:
        for label in range(5):
            producer.send_batch("orders", 0, batch_of(label, 900_000), 1)
        while not any(link.connection.has_unsent for link in producer._sender._links.values()):
            time.sleep(0.001)
        producer.close(0)
    idle = [connection for of_address in producer._cluster.pool._idle.values() for connection in of_address]
    assert not any(connection.has_unsent for connection in idle)


def test_with_acks_0_a_broker_that_ends_the_connection_may_have_lost_its_partitions(produce: Produce) -> None:
    with FakeKafka({"orders": 1}, nodes=2) as kafka:
        producer = produce(kafka, acks="0")
        all_written(producer, send(producer, 1, PLACES[:1]))
        while not labels(kafka, PLACES[0]):
            time.sleep(0.001)
        kafka.leaders["orders", 0] = 1
        kafka.stop(0)
        kafka.start(0)
        while producer._sender._links:
            time.sleep(0.001)
        all_written(producer, send(producer, 1, PLACES[:1], first=1))
        deadline = time.monotonic() + 10
        while len(labels(kafka, PLACES[0])) < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert labels(kafka, PLACES[0]) == [0, 1]


def test_a_connection_that_was_not_used_for_long_is_not_used_again(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(kafka, connections_max_idle_ms="50")
    all_written(producer, send(producer, 1, PLACES[:1]))
    opened = kafka.connections_opened
    time.sleep(0.1)
    all_written(producer, send(producer, 1, PLACES[:1], first=1))
    assert kafka.connections_opened == opened + 1


def test_news_of_leaders_that_are_old_at_once_are_good_enough_to_send(kafka: FakeKafka, produce: Produce) -> None:
    assert produce(kafka, metadata_max_age_ms="0").send("orders", b"v").result(10).offset == 0


def test_no_more_requests_are_in_flight_than_allowed(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(kafka, max_in_flight_requests_per_connection="3", request_timeout_ms="2000")
    all_written(producer, send(producer, 1, PLACES[:1]))
    kafka.faults[PRODUCE] += [Fault.SILENCE] * 10
    send(producer, 5, PLACES[:1], first=1)
    deadline = time.monotonic() + 10
    while len(kafka.asked(PRODUCE)) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.05)
    assert len(kafka.asked(PRODUCE)) == 4


def test_a_topic_is_created_when_the_broker_does_so(kafka: FakeKafka, produce: Produce) -> None:
    kafka.auto_create = True
    assert produce(kafka).send("fresh", b"1").result(10).offset == 0
    assert labels(kafka, ("fresh", 0)) == [1]


@pytest.mark.parametrize("records", [b"", b"x" * 100, batch_of(1)[:-1], batch_of(1) * 2], ids=range(4))
def test_bytes_that_are_not_one_batch_are_refused(kafka: FakeKafka, produce: Produce, records: bytes) -> None:
    with pytest.raises(ValueError, match="are not one record batch"):
        produce(kafka).send_batch("orders", 0, records, 1)


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
    ErrorCode.KAFKA_STORAGE_ERROR,
]


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: fault.name)
@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("in_flight", ["1", "5"])
def test_every_batch_is_written_once_and_in_order_after(
    kafka: FakeKafka, produce: Produce, fault: Fault | ErrorCode, at: int, in_flight: str
) -> None:
    kafka.faults[PRODUCE] += [Fault.NONE] * at + [fault]
    kafka.faults[METADATA] += [Fault.NONE, Fault.LOSE_ANSWER]
    producer = produce(kafka, max_in_flight_requests_per_connection=in_flight)
    sent = send(producer, 8)
    all_written(producer, sent)
    for place in PLACES:
        assert labels(kafka, place) == list(range(8))


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_every_batch_is_written_once_and_in_order_though_every_other_request_fails(
    kafka: FakeKafka, produce: Produce, fault: Fault | ErrorCode
) -> None:
    kafka.faults[PRODUCE] += [Fault.NONE, fault] * 30
    producer = produce(kafka)
    all_written(producer, send(producer, 30))
    for place in PLACES:
        assert labels(kafka, place) == list(range(30))


def test_without_idempotence_nothing_is_missing_but_copies_may_stand_in_the_log(
    kafka: FakeKafka, produce: Produce
) -> None:
    kafka.faults[PRODUCE] += [Fault.NONE, Fault.LOSE_ANSWER]
    producer = produce(kafka, enable_idempotence="false", max_in_flight_requests_per_connection="1")
    all_written(producer, send(producer, 4, PLACES[:1]))
    assert labels(kafka, PLACES[0]) == [0, 1, 1, 2, 3]


def test_a_producer_id_is_asked_for_once_and_again_when_the_answer_is_lost(kafka: FakeKafka, produce: Produce) -> None:
    kafka.faults[PRODUCER_ID] += [Fault.LOSE_ANSWER, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    producer = produce(kafka)
    all_written(producer, send(producer, 5))
    assert len(kafka.asked(PRODUCER_ID)) == 3


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER])
def test_a_broker_that_has_forgotten_the_producer_gets_a_new_epoch(
    kafka: FakeKafka, produce: Produce, code: ErrorCode
) -> None:
    producer = produce(kafka)
    all_written(producer, send(producer, 3, PLACES[:1]))
    kafka.faults[PRODUCE].append(code)
    all_written(producer, send(producer, 3, PLACES[:1], first=3))
    assert labels(kafka, PLACES[0]) == list(range(6))
    headers = [read_header(batch) for batch in kafka.logs[PLACES[0]].batches]
    assert [(header.producer_epoch, header.base_sequence) for header in headers] == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]  # fmt: skip


def test_a_leader_that_moves_or_dies_is_followed(produce: Produce) -> None:
    with FakeKafka({"orders": 3}, nodes=2) as kafka:
        producer = produce(kafka)
        sent = send(producer, 3)
        kafka.leaders["orders", 0] = 1
        sent += send(producer, 3, first=3)
        producer.flush(10)
        kafka.stop(1)
        kafka.leaders.update(dict.fromkeys(PLACES, 0))
        all_written(producer, sent + send(producer, 3, first=6))
        for place in PLACES:
            assert labels(kafka, place) == list(range(9))


def test_nothing_is_sent_to_a_new_leader_while_the_old_one_has_not_answered(produce: Produce) -> None:
    with FakeKafka({"orders": 1}, nodes=2) as kafka:
        producer = produce(
            kafka, enable_idempotence="false", max_in_flight_requests_per_connection="1", request_timeout_ms="300"
        )
        all_written(producer, send(producer, 1, PLACES[:1]))
        with kafka.busy:  # the old leader takes its time
            sent = send(producer, 1, PLACES[:1], first=1)
            while not next(iter(producer._sender._links.values())).requests:
                time.sleep(0.001)
            kafka.leaders["orders", 0] = 1
            producer._cluster._topics["orders"].leaders[0] = 1
            sent += send(producer, 1, PLACES[:1], first=2)
            time.sleep(0.05)
        all_written(producer, sent)
        assert labels(kafka, PLACES[0]) == [0, 1, 2]


def test_a_broker_that_comes_back_gets_what_it_missed(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(kafka)
    sent = send(producer, 3)
    kafka.stop(0)
    sent += send(producer, 3, first=3)
    kafka.start(0)
    all_written(producer, sent)
    assert labels(kafka, PLACES[1]) == list(range(6))


def test_partitions_without_a_leader_do_not_hold_up_the_others(kafka: FakeKafka, produce: Produce) -> None:
    kafka.leaders["orders", 1] = -1
    producer = produce(kafka)
    stuck = producer.send_batch("orders", 1, batch_of(0), 1)
    for future in send(producer, 5, [PLACES[0], PLACES[2]]):
        future.result(10)
    assert not stuck.done()
    kafka.leaders["orders", 1] = 0
    stuck.result(10)


def test_a_batch_too_large_for_its_topic_is_cut_until_it_fits(kafka: FakeKafka, produce: Produce) -> None:
    kafka.logs["orders", 0].batch_bytes_max = 400
    producer = produce(kafka, linger_ms="1000")
    sent = [producer.send("orders", b"%d" % n + b" " * 40, partition=0) for n in range(60)]
    producer.flush(10)
    assert labels(kafka, ("orders", 0)) == list(range(60))
    assert [future.result(0).offset for future in sent] == list(range(60))


# What does not


def test_a_batch_over_the_clients_limit_names_the_option(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(kafka, max_request_size="1000")
    with pytest.raises(RecordTooLarge, match=r"orders-0 .*max\.request\.size=1000"):
        producer.send_batch("orders", 0, batch_of(1, 2000), 1)
    with pytest.raises(RecordTooLarge, match=r"orders-0 .*max\.request\.size=1000"):
        producer.send("orders", b"x" * 1000, partition=0)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        pytest.param(ErrorCode.MESSAGE_TOO_LARGE, r"raise max\.message\.bytes of the topic", id="too large"),
        pytest.param(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED", id="not allowed"),
        pytest.param(ErrorCode.INVALID_RECORD, "INVALID_RECORD", id="invalid"),
        pytest.param(ErrorCode.INVALID_PRODUCER_EPOCH, "INVALID_PRODUCER_EPOCH", id="an older producer"),
    ],
)
def test_a_lasting_error_names_topic_partition_and_cause_and_what_follows_is_written(
    kafka: FakeKafka, produce: Produce, code: ErrorCode, says: str
) -> None:
    kafka.faults[PRODUCE].append(code)
    producer = produce(kafka)
    failed = producer.send_batch("orders", 1, batch_of(1), 1)
    with pytest.raises(DeliveryFailed, match=f"1 records for orders-1 were not written: .*{says}"):
        failed.result(10)
    producer.send_batch("orders", 1, batch_of(2), 1).result(10)
    assert labels(kafka, ("orders", 1)) == [2]


def test_what_is_refused_among_others_leaves_no_gap_that_stops_them(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(kafka)
    all_written(producer, send(producer, 1, PLACES[:1]))
    kafka.faults[PRODUCE] += [Fault.NONE, ErrorCode.INVALID_RECORD]
    sent = send(producer, 6, PLACES[:1], first=1)
    producer.flush(10)
    failed = [number for number, future in enumerate(sent, 1) if future.exception(0)]
    assert len(failed) == 1
    assert labels(kafka, PLACES[0]) == [label for label in range(7) if label not in failed]


def test_a_topic_that_is_not_allowed_fails_what_waits_for_it(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(kafka)
    producer.send_batch("orders", 0, batch_of(0), 1).result(10)
    kafka.faults[PRODUCE].append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    kafka.faults[METADATA].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(DeliveryFailed, match="TOPIC_AUTHORIZATION_FAILED"):
        producer.send_batch("orders", 0, batch_of(1), 1).result(10)


def test_an_unknown_partition_is_named(kafka: FakeKafka, produce: Produce) -> None:
    with pytest.raises(UnknownPartition, match="no partition 9"):
        produce(kafka).send("orders", b"v", partition=9)


def test_a_producer_that_may_not_have_an_id_says_so_to_every_caller(kafka: FakeKafka, produce: Produce) -> None:
    kafka.faults[PRODUCER_ID].append(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    producer = produce(kafka)
    with pytest.raises(DeliveryFailed, match="CLUSTER_AUTHORIZATION_FAILED"):
        producer.send("orders", b"v").result(10)
    with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
        producer.send("orders", b"v")


def test_what_is_in_flight_when_all_fails_is_told_once_and_its_end_harms_nobody(
    produce: Produce, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeKafka({"orders": 2}, nodes=2) as kafka:
        producer = produce(kafka, request_timeout_ms="200")
        all_written(producer, send(producer, 1, PLACES[:2]))
        kafka.faults[PRODUCE] += [Fault.SILENCE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        kafka.faults[METADATA].append(Fault.HUGE)
        silent = send(producer, 1, PLACES[:1])[0]
        while len(kafka.asked(PRODUCE)) < 3:
            time.sleep(0.001)
        for future in (*send(producer, 1, PLACES[1:2]), silent):
            with pytest.raises(DeliveryFailed, match="does not answer as a Kafka broker"):
                future.result(10)
        while 0 in producer._sender._links:  # until the silent one is left
            time.sleep(0.001)
        producer.close()
        assert isinstance(producer._sender.fatal, NotKafka)
        assert "the sender failed" not in caplog.text


def test_closing_does_not_wait_for_a_connection_that_is_being_made(
    kafka: FakeKafka, produce: Produce, caplog: pytest.LogCaptureFixture
) -> None:
    connecting, go_on = threading.Event(), threading.Event()

    def connect(node: int) -> NoReturn:
        connecting.set()
        go_on.wait(10)
        raise BrokerUnavailable([(f"broker {node}", "it takes too long")])

    producer = produce(kafka)
    producer._cluster.connect = connect  # type: ignore[method-assign]
    future = producer.send("orders", b"v")
    assert connecting.wait(10)
    producer.close(0)
    with pytest.raises(DeliveryFailed, match="the producer is closed"):
        future.result(0)
    go_on.set()
    producer._sender._thread.join(10)
    assert "the sender failed" not in caplog.text


def test_a_fault_of_the_sender_is_told_to_every_caller_and_the_producer_can_be_closed(
    kafka: FakeKafka, produce: Produce
) -> None:
    producer = produce(kafka)
    producer._sender._hear = lambda wake_at: 1 / 0  # type: ignore[method-assign, assignment]
    with pytest.raises(DeliveryFailed, match="the sender failed: ZeroDivisionError"):
        producer.send("orders", b"v").result(10)
    producer._sender._thread.join(10)
    with pytest.raises(ClientError, match="the sender failed"):
        producer.send("orders", b"v")
    producer.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param(
            {"delivery_timeout_ms": "500", "request_timeout_ms": "300"}, r"within delivery\.timeout\.ms=500", id="time"
        ),
        pytest.param({"retries": "2"}, "after retries=2", id="retries"),
    ],
)
@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, ErrorCode.NOT_ENOUGH_REPLICAS], ids=lambda fault: fault.name)
def test_what_does_not_pass_is_given_up(
    kafka: FakeKafka, produce: Produce, options: dict[str, str], says: str, fault: Fault | ErrorCode
) -> None:
    kafka.faults[PRODUCE] += [fault] * 1000
    producer = produce(kafka, **options)
    sent = producer.send_batch("orders", 1, batch_of(1), 1)
    with pytest.raises(DeliveryFailed, match=f"orders-1 .*{says}"):
        sent.result(10)
    kafka.faults[PRODUCE].clear()
    producer.send_batch("orders", 1, batch_of(2), 1).result(10)
    # What was in flight when its time was up may still be written, once.
    assert labels(kafka, ("orders", 1)) in ([2], [1, 2])


def test_a_broker_that_is_gone_is_given_up_in_the_delivery_time(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(kafka, delivery_timeout_ms="800", request_timeout_ms="300")
    all_written(producer, send(producer, 1))
    kafka.stop(0)
    began = time.monotonic()
    with pytest.raises(DeliveryFailed, match=r"delivery\.timeout\.ms=800: .*(refused|no broker could be reached)"):
        producer.send_batch("orders", 1, batch_of(1), 1).result(10)
    assert time.monotonic() - began < 5


def test_a_silent_broker_is_left_after_the_request_timeout(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(kafka, request_timeout_ms="100")
    kafka.faults[PRODUCE] += [Fault.SILENCE]
    all_written(producer, send(producer, 3))
    assert labels(kafka, PLACES[0]) == [0, 1, 2], "it had written them: the copies were known"


@pytest.mark.parametrize("fault", [Fault.GARBAGE, Fault.WRONG_CORRELATION, Fault.HUGE])
def test_nonsense_is_not_retried(kafka: FakeKafka, produce: Produce, fault: Fault) -> None:
    kafka.faults[PRODUCE].append(fault)
    with pytest.raises(DeliveryFailed, match="does not answer as a Kafka broker"):
        produce(kafka).send_batch("orders", 1, batch_of(1), 1).result(10)


def test_many_threads_share_a_producer(kafka: FakeKafka, produce: Produce) -> None:
    producer = produce(kafka, batch_size="200", buffer_memory="3000")
    futures: dict[int, list[DeliveryFuture]] = {}

    def work(thread: int) -> None:
        futures[thread] = [producer.send("orders", b"%d" % n, partition=thread % 3) for n in range(200)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    producer.flush(30)
    for thread, sent in futures.items():
        offsets = [future.result(0).offset for future in sent]
        assert offsets == sorted(offsets), "each thread's records are in its order"
        found = labels(kafka, ("orders", thread % 3))
        assert [found[offset] for offset in offsets] == list(range(200))
    assert producer._accumulator.used_bytes == 0


def test_a_batch_too_large_that_cannot_be_cut_fails_alone(kafka: FakeKafka, produce: Produce) -> None:
    kafka.logs["orders", 0].batch_bytes_max = 400
    nonsense = bytearray(encode_batch([Record(n, 0, None, b"x" * 300) for n in range(2)]))
    nonsense[61:] = b"\xff" * (len(nonsense) - 61)
    producer = produce(kafka)
    with pytest.raises(DeliveryFailed, match="MESSAGE_TOO_LARGE"):
        producer.send_batch("orders", 0, nonsense, 2).result(10)
    producer.send("orders", b"v", partition=0).result(10)


@pytest.mark.parametrize("idempotent", ["true", "false"])
def test_a_batch_whose_first_attempt_found_no_connection_is_whole_when_it_is_sent(
    kafka: FakeKafka, produce: Produce, idempotent: str
) -> None:
    producer = produce(kafka, enable_idempotence=idempotent)
    producer.send_batch("orders", 0, batch_of(0), 1).result(10)
    kafka.stop(0)
    unsealed = bytearray(batch_of(1))
    unsealed[17:21] = bytes(4)  # as tables are encoded
    sent = producer.send_batch("orders", 0, unsealed, 1)
    time.sleep(0.05)
    kafka.start(0)
    sent.result(10)
    assert labels(kafka, ("orders", 0)) == [0, 1]
