"""The broker's own records: Apache Kafka's tool reads the ones we wrote, we read the ones Apache Kafka wrote."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.broker_lite.protocol import (
    consumer_offsets,
    create_partitions,
    incremental_alter_configs,
    metadata_records,
)
from pylog.broker_lite.protocol.consumer_offsets import OffsetCommitKey
from pylog.broker_lite.protocol.incremental_alter_configs import APPEND, DELETE, SET
from pylog.broker_lite.protocol.metadata_records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from pylog.broker_lite.protocol.wire import read_uvarint
from pylog.storage.batch import walk
from pylog.storage.records import Record, decode_batch
from tests.support.apache_kafka import ApacheKafka
from tests.support.foreign_clients import CLIENTS, ForeignRecord, Refused
from tests.support.java_tools import DUMP_LOG_SEGMENTS, run_kafka_tool
from tests.support.wire_requests import ask

pytestmark = pytest.mark.kafka

FIRST_SEGMENT = "00000000000000000000.log"
RECORD = ForeignRecord(b"k", b"v" * 100, (), 1_700_000_000_000)
KNOWN_KINDS = (2, 3, 4, 9, 15)
SET_BY_KAFKA = {("", "min.insync.replicas")}  # when it is formatted


def configure(servers: str) -> None:
    """Options are changed and given back, and a topic grows."""
    wanted = [create_partitions.CreatePartitionsTopic("kept", 3, None)]
    ask(servers, create_partitions.SPEC, create_partitions.CreatePartitionsRequest(wanted, 30_000))
    for kind, name, option, operation, value in (
        (TOPIC_RESOURCE, "kept", "cleanup.policy", APPEND, "compact"),
        (TOPIC_RESOURCE, "kept", "max.message.bytes", DELETE, None),
        (BROKER_RESOURCE, "", "log.roll.ms", SET, "90000"),
        (BROKER_RESOURCE, "1", "log.roll.ms", SET, "80000"),
        (BROKER_RESOURCE, "1", "log.roll.ms", DELETE, None),
    ):
        config = incremental_alter_configs.IncrementalAlterableConfig(option, operation, value)
        resource = incremental_alter_configs.IncrementalAlterConfigsResource(kind, name, [config])
        request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource])
        (answer,) = ask(servers, incremental_alter_configs.SPEC, request).responses
        assert answer.error_code == 0


def use(servers: str) -> None:
    """A bit of everything that leaves a record in an internal log."""
    client = CLIENTS["kafka-python"]
    client.create_topic(servers, "kept", 2, config={"max.message.bytes": "5000"})
    client.create_topic(servers, "gone", 1)
    client.delete_topic(servers, "gone")
    configure(servers)
    client.produce(servers, "kept", [RECORD])  # idempotent: it takes a producer id
    for _ in range(30):
        try:
            client.commit(servers, "my-group", "kept", {0: (1, "note")})
            return
        except Refused:  # Kafka makes its offsets topic at leisure
            time.sleep(0.5)
    raise AssertionError("no commit was taken")


@pytest.fixture(scope="module")
def pylog_data() -> Iterator[Path]:
    with pylog.Broker() as broker:
        use(broker.bootstrap_servers)
        yield broker.data


@pytest.fixture(scope="module")
def kafka_data() -> Iterator[Path]:
    with ApacheKafka() as kafka:
        use(kafka.bootstrap_servers)
        yield Path(kafka.data)


def payloads(log: Path, decoder: str) -> list[dict[str, Any]]:
    """The values of a log's records, as Kafka's tool understands them."""
    printed = run_kafka_tool(DUMP_LOG_SEGMENTS, decoder, "--files", str(log))
    assert "isvalid: false" not in printed
    return [json.loads(line.split("payload: ")[1]) for line in printed.splitlines() if "payload: " in line]


def test_kafka_reads_our_metadata_log(pylog_data: Path) -> None:
    found = payloads(pylog_data / "__cluster_metadata-0" / FIRST_SEGMENT, "--cluster-metadata-decoder")
    kinds = [record["type"] for record in found]
    assert set(kinds) == {
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "CONFIG_RECORD",
        "REMOVE_TOPIC_RECORD",
        "PRODUCER_IDS_RECORD",
    }
    assert [one["data"]["name"] for one in found if one["type"] == "TOPIC_RECORD"][:2] == ["kept", "gone"]
    configs = [one["data"] for one in found if one["type"] == "CONFIG_RECORD"]
    assert [
        (one["resourceName"], one["name"], one["value"]) for one in configs if "offsets" not in one["resourceName"]
    ] == [
        ("kept", "max.message.bytes", "5000"),
        ("kept", "cleanup.policy", "delete,compact"),
        ("kept", "max.message.bytes", None),
        ("", "log.roll.ms", "90000"),
        ("1", "log.roll.ms", "80000"),
        ("1", "log.roll.ms", None),
    ]


def test_kafka_reads_our_committed_offsets(pylog_data: Path) -> None:
    (value,) = payloads(pylog_data / "__consumer_offsets-12" / FIRST_SEGMENT, "--offsets-decoder")
    assert (value["data"]["offset"], value["data"]["metadata"]) == (1, "note")


def records(log: Path) -> list[Record]:
    data = log.read_bytes()
    return [
        record for position, header in walk(data) if not header.is_control for record in decode_batch(data, position)
    ]


def test_we_read_kafkas_metadata_log_and_write_the_same_bytes(kafka_data: Path) -> None:
    seen: set[type[Any]] = set()
    for record in records(kafka_data / "__cluster_metadata-0" / FIRST_SEGMENT):
        assert record.value is not None
        _, position = read_uvarint(record.value, 0)
        kind, position = read_uvarint(record.value, position)
        version, _ = read_uvarint(record.value, position)
        if kind in KNOWN_KINDS:
            event = metadata_records.decode(record.value)
            assert metadata_records.encode(event, version) == record.value
            seen.add(type(event))
    assert seen == {TopicRecord, PartitionRecord, ConfigRecord, RemoveTopicRecord, ProducerIdsRecord}


def test_options_and_partitions_leave_the_records_that_kafkas_leave(pylog_data: Path, kafka_data: Path) -> None:
    ours, kafkas = (
        [
            event
            for event in decoded(data / "__cluster_metadata-0" / FIRST_SEGMENT)
            if isinstance(event, ConfigRecord)
            and (event.resource_name, event.name) not in SET_BY_KAFKA
            and event.resource_name != consumer_offsets.TOPIC
        ]
        for data in (pylog_data, kafka_data)
    )
    assert ours == kafkas
    sizes = [
        Counter(
            event.topic_id
            for event in decoded(data / "__cluster_metadata-0" / FIRST_SEGMENT)
            if isinstance(event, PartitionRecord)
        ).most_common()
        for data in (pylog_data, kafka_data)
    ]
    assert sorted(count for _, count in sizes[0]) == sorted(count for _, count in sizes[1])


def decoded(log: Path) -> Iterator[MetadataRecord]:
    """Of the kinds that are known here."""
    for record in records(log):
        assert record.value is not None
        kind, _ = read_uvarint(record.value, 1)
        if kind in KNOWN_KINDS:
            yield metadata_records.decode(record.value)


def test_we_read_kafkas_committed_offsets_where_we_would_put_them(kafka_data: Path) -> None:
    partition = consumer_offsets.partition_of_group("my-group", 50)
    (record,) = records(kafka_data / f"__consumer_offsets-{partition}" / FIRST_SEGMENT)
    assert record.key is not None
    assert record.value is not None
    key = consumer_offsets.decode_key(record.key)
    assert key == OffsetCommitKey("my-group", "kept", 0)
    assert consumer_offsets.encode_key(key) == record.key
    value = consumer_offsets.decode_offset_value(record.value)
    assert (value.offset, value.metadata) == (1, "note")
    assert consumer_offsets.encode_value(value, int.from_bytes(record.value[:2], "big")) == record.value
