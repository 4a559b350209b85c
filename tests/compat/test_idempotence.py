"""A producer that sends again, because an answer did not come, has written once."""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import kafka
import pytest

import pylog
from tests.support.foreign_clients import CLIENTS, TIMEOUT_SECONDS, ForeignRecord

NOW_MS = 1_700_000_000_000


@pytest.fixture
def broker() -> Iterator[pylog.Broker]:
    with pylog.Broker() as broker:
        yield broker


def test_a_request_that_timed_out_and_came_twice_is_written_once(broker: pylog.Broker) -> None:
    """The broker stands still until the client has given up on its requests and sends them again; then both come."""
    statistics: list[dict[str, Any]] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "request.timeout.ms": 1000,
            "socket.timeout.ms": 1500,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 10,
            "statistics.interval.ms": 50,
            "stats_cb": lambda text: statistics.append(json.loads(text)),
        }
    )
    delivered: list[Any] = []

    def send(value: bytes) -> None:
        producer.produce("t", value, on_delivery=lambda error, message: delivered.append(error or message))

    send(b"first")
    assert producer.flush(TIMEOUT_SECONDS) == 0
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        for number in range(3):
            send(b"%d" % number)
            producer.poll(0.1)
        while not any(one["req_timeouts"] for node in statistics for one in node["brokers"].values()):
            producer.poll(0.1)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    assert [message.offset() for message in delivered] == [0, 1, 2, 3]
    records = CLIENTS["confluent-kafka"].consume(broker.bootstrap_servers, "t", 4)
    assert [record.value for record in records] == [b"first", b"0", b"1", b"2"]
    assert CLIENTS["confluent-kafka"].range(broker.bootstrap_servers, "t") == (0, 4)


def test_idempotent_producers_go_on_behind_a_kill(broker: pylog.Broker) -> None:
    servers = broker.bootstrap_servers
    CLIENTS["confluent-kafka"].create_topic(servers, "t", 1)
    confluent = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
    python = kafka.KafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
    for number in range(6):
        if number == 3:
            broker.kill()
            broker.start()
        confluent.produce("t", b"confluent-%d" % number)
        assert confluent.flush(TIMEOUT_SECONDS) == 0
        python.send("t", b"python-%d" % number).get(TIMEOUT_SECONDS)
    python.close(TIMEOUT_SECONDS)
    values = [record.value for record in CLIENTS["confluent-kafka"].consume(servers, "t", 12)]
    assert values == [b"%s-%d" % (name, number) for number in range(6) for name in (b"confluent", b"python")]


@pytest.mark.parametrize("name", CLIENTS)
def test_append_time_is_told_and_read_back(broker: pylog.Broker, name: str) -> None:
    servers = broker.bootstrap_servers
    client = CLIENTS[name]
    client.create_topic(servers, "t", 1, config={"message.timestamp.type": "LogAppendTime"})
    client.produce(servers, "t", [ForeignRecord(b"k", b"v", (), NOW_MS), ForeignRecord(b"k", b"w", (), NOW_MS + 9)])
    read = client.consume(servers, "t", 2)
    assert read[0].timestamp_ms == read[1].timestamp_ms > NOW_MS + 10**9
    assert client.offsets_at(servers, "t", [NOW_MS, read[0].timestamp_ms + 1]) == [0, None]


def test_confluent_kafka_sees_the_type_of_the_timestamp(broker: pylog.Broker) -> None:
    servers = broker.bootstrap_servers
    CLIENTS["confluent-kafka"].create_topic(servers, "t", 1, config={"message.timestamp.type": "LogAppendTime"})
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    delivered: list[Any] = []
    producer.produce("t", b"v", timestamp=NOW_MS, on_delivery=lambda error, message: delivered.append(message))
    assert producer.flush(TIMEOUT_SECONDS) == 0
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    message = consumer.poll(TIMEOUT_SECONDS)
    consumer.close()
    assert message.timestamp()[0] == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
    assert message.timestamp() == delivered[0].timestamp()
