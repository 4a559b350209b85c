"""Partitions through the clients' own requests: records that are deleted, offsets by time, what is described; and a
topic that compresses what comes."""

import asyncio
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import kafka
import pytest
from confluent_kafka import admin as confluent_admin
from kafka.admin import KafkaAdminClient

import pylog
from pylog.storage.batch import walk
from tests.support.foreign_clients import CLIENTS, TIMEOUT_SECONDS, ForeignRecord

START_MS = 1_700_000_000_000
RECORDS = [ForeignRecord(b"k", b"%d" % number, (), START_MS + 10 * (number % 7)) for number in range(10)]


@pytest.fixture
def topic(own_broker: pylog.Broker) -> str:
    name = own_broker.create_topic(partitions=1)
    CLIENTS["kafka-python"].produce(own_broker.bootstrap_servers, name, RECORDS)
    return name


def confluent_delete(servers: str, topic: str, offset: int) -> int:
    admin = confluent_admin.AdminClient({"bootstrap.servers": servers})
    (done,) = admin.delete_records([confluent_kafka.TopicPartition(topic, 0, offset)]).values()
    return int(done.result(TIMEOUT_SECONDS).low_watermark)


def kafka_python_delete(servers: str, topic: str, offset: int) -> int:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        (found,) = admin.delete_records({kafka.TopicPartition(topic, 0): offset}).values()
        return int(found["low_watermark"])
    finally:
        admin.close()


def aiokafka_delete(servers: str, topic: str, offset: int) -> int:
    async def delete() -> int:
        admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            wanted = aiokafka.admin.RecordsToDelete(before_offset=offset)
            found = await admin.delete_records({aiokafka.TopicPartition(topic, 0): wanted})
            return int(found[aiokafka.TopicPartition(topic, 0)])
        finally:
            await admin.close()

    return asyncio.run(delete())


DELETE = {"confluent": confluent_delete, "kafka-python": kafka_python_delete, "aiokafka": aiokafka_delete}


@pytest.mark.parametrize("delete", DELETE.values(), ids=DELETE)
def test_records_are_deleted_and_the_log_begins_behind_them(servers: str, topic: str, delete: Any) -> None:
    assert delete(servers, topic, 4) == 4
    assert {client.range(servers, topic) for client in CLIENTS.values()} == {(4, 10)}
    assert delete(servers, topic, -1) == 10
    assert {client.range(servers, topic) for client in CLIENTS.values()} == {(10, 10)}


def test_offsets_are_found_by_all_that_can_be_asked_for(servers: str, topic: str) -> None:
    client = confluent_admin.AdminClient({"bootstrap.servers": servers})
    place = confluent_kafka.TopicPartition(topic, 0)
    specs = confluent_admin.OffsetSpec
    wanted = {
        specs.earliest(): 0,
        specs.latest(): 10,
        specs.max_timestamp(): 6,
        specs.for_timestamp(START_MS + 25): 3,
        specs.for_timestamp(START_MS + 10_000): -1,
    }
    for isolation in confluent_kafka.IsolationLevel:
        for spec, offset in wanted.items():
            found = client.list_offsets({place: spec}, isolation_level=isolation)[place].result(TIMEOUT_SECONDS)
            assert (found.offset, found.leader_epoch) == (offset, 0 if offset >= 0 else None)


def test_the_cluster_its_topics_and_its_directories_are_described(
    servers: str, topic: str, own_broker: pylog.Broker
) -> None:
    client = confluent_admin.AdminClient({"bootstrap.servers": servers})
    cluster = client.describe_cluster(include_authorized_operations=True).result(TIMEOUT_SECONDS)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [servers]
    assert cluster.authorized_operations
    (described,) = client.describe_topics(confluent_kafka.TopicCollection([topic])).values()
    (partition,) = described.result(TIMEOUT_SECONDS).partitions
    assert [node.id for node in partition.replicas] == [partition.leader.id] == [node.id for node in partition.isr]
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        directories = str(admin.describe_log_dirs())
    finally:
        admin.close()
    assert str(own_broker.data) in directories
    assert topic in directories


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize(("codec", "number"), [("gzip", 1), ("lz4", 3), ("zstd", 4), ("uncompressed", 0)])
def test_a_topic_compresses_what_comes_and_every_client_reads_it(
    servers: str, own_broker: pylog.Broker, client: Any, codec: str, number: int
) -> None:
    name = own_broker.create_topic(partitions=1, **{"compression.type": codec})
    client.produce(servers, name, RECORDS, codec="snappy")
    for reader in CLIENTS.values():
        assert reader.consume(servers, name, len(RECORDS)) == RECORDS
    (log,) = (own_broker.data / f"{name}-0").glob("*.log")
    codecs = {header.codec for _, header in walk(log.read_bytes())}
    assert codecs == {number}
