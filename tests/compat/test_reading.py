"""Where readers begin, wait and lag: committed offsets, offsets that are gone, records that are not there yet."""

import asyncio
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

import pylog
from pylog.broker_lite.protocol import fetch, framing
from pylog.broker_lite.protocol.fetch import FetchPartition, FetchRequest
from tests.support.foreign_clients import CLIENTS, TIMEOUT_SECONDS, ForeignRecord

RECORDS = [ForeignRecord(None, b"%d" % number, (), 1_700_000_000_000 + number) for number in range(10)]


def read_confluent(servers: str, topic: str, group: str, start: int | None) -> int:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    offset = confluent_kafka.OFFSET_STORED if start is None else start
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, offset)])
    (message,) = consumer.consume(1, TIMEOUT_SECONDS)
    consumer.close()
    return int(message.offset() or 0)


def read_kafka_python(servers: str, topic: str, group: str, start: int | None) -> int:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    if start is not None:
        consumer.seek(place, start)
    for _ in range(TIMEOUT_SECONDS):
        found = consumer.poll(1000, max_records=1)
        if found:
            break
    consumer.close()
    return int(found[place][0].offset)


def read_aiokafka(servers: str, topic: str, group: str, start: int | None) -> int:
    async def read() -> int:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        async with consumer:
            place = aiokafka.TopicPartition(topic, 0)
            consumer.assign([place])
            if start is not None:
                consumer.seek(place, start)
            message = await asyncio.wait_for(consumer.getone(), TIMEOUT_SECONDS)
            return int(message.offset)

    return asyncio.run(read())


READERS = {"confluent-kafka": read_confluent, "kafka-python": read_kafka_python, "aiokafka": read_aiokafka}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_begins_where_its_group_committed(servers: str, reader: str) -> None:
    topic = f"committed-{reader}"
    CLIENTS[reader].create_topic(servers, topic, 1)
    CLIENTS[reader].produce(servers, topic, RECORDS)
    CLIENTS["kafka-python"].commit(servers, f"at-{reader}", topic, {0: (7, "")})
    assert READERS[reader](servers, topic, f"at-{reader}", None) == 7
    assert READERS[reader](servers, topic, f"new-{reader}", None) == 0


@pytest.mark.parametrize("reader", READERS)
def test_an_offset_that_is_not_there_sends_the_reader_back(servers: str, reader: str) -> None:
    topic = f"beyond-{reader}"
    CLIENTS[reader].create_topic(servers, topic, 1)
    CLIENTS[reader].produce(servers, topic, RECORDS)
    assert READERS[reader](servers, topic, f"beyond-{reader}", 1000) == 0


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_at_the_end_gets_the_next_record(servers: str, reader: str) -> None:
    topic = f"next-{reader}"
    CLIENTS[reader].create_topic(servers, topic, 1)
    CLIENTS[reader].produce(servers, topic, RECORDS)
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(READERS[reader](servers, topic, f"next-{reader}", 10)))
    waiting.start()
    CLIENTS["confluent-kafka"].produce(servers, topic, RECORDS[:1])
    waiting.join(TIMEOUT_SECONDS)
    assert found == [10]


def test_many_at_once_lose_nothing(servers: str) -> None:
    CLIENTS["confluent-kafka"].create_topic(servers, "crowd", 4)
    each = 500
    failures: list[Any] = []

    def write(number: int) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 1})
        for count in range(each):
            producer.produce(
                "crowd",
                b"%d/%d" % (number, count),
                partition=number % 4,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
            producer.poll(0)
        failures.extend([] if producer.flush(TIMEOUT_SECONDS) == 0 else ["flush"])

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failures == []
    for partition in range(4):
        values = [one.value for one in CLIENTS["aiokafka"].consume(servers, "crowd", 2 * each, partition=partition)]
        for number in (partition, partition + 4):
            mine = [value for value in values if value and value.startswith(b"%d/" % number)]
            assert mine == [b"%d/%d" % (number, count) for count in range(each)]


def test_a_fetch_does_not_wait_for_more_than_it_may_be_sent(servers: str) -> None:
    CLIENTS["confluent-kafka"].create_topic(servers, "enough", 1)
    CLIENTS["confluent-kafka"].produce(servers, "enough", [ForeignRecord(None, bytes(2000), (), 1_700_000_000_000)])
    asked = FetchRequest(600_000, 1 << 20, 1000, 0, 0, -1, [FetchPartition("enough", 0, 0, 1 << 20)])
    host, port = servers.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(fetch_frame(asked))
        (size,) = struct.unpack(">i", connection.recv(4))
        assert size > 2000


def fetch_frame(asked: FetchRequest) -> bytes:
    frame = bytearray()
    framing.write_request_header(frame, 1, 11, 1, "test", flexible=False)
    frame += fetch.encode_request(asked, 11)
    return struct.pack(">i", len(frame)) + frame


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def test_a_reader_that_never_reads_holds_no_memory(own_broker: pylog.Broker, servers: str) -> None:
    large = [ForeignRecord(None, bytes(900_000), (), 1_700_000_000_000) for _ in range(8)]
    CLIENTS["confluent-kafka"].create_topic(servers, "ignored", 1)
    CLIENTS["confluent-kafka"].produce(servers, "ignored", large)
    asked = FetchRequest(0, 1, 50 << 20, 0, 0, -1, [FetchPartition("ignored", 0, 0, 50 << 20)])
    assert own_broker.pid is not None
    before = resident_bytes(own_broker.pid)
    host, port = servers.rsplit(":", 1)
    deaf = []
    for _ in range(10):
        connection = socket.create_connection((host, int(port)))
        connection.sendall(fetch_frame(asked) * 50)
        deaf.append(connection)
    assert CLIENTS["confluent-kafka"].consume(servers, "ignored", 8) == large  # the others are served meanwhile
    assert resident_bytes(own_broker.pid) - before < 64 << 20  # ten answers of 7 MB each were asked for fifty times
    for connection in deaf:
        connection.close()
