"""Topics through the clients' own admin interfaces, and topics that make themselves."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import pylog
from tests.support.foreign_clients import CLIENTS, ForeignRecord, Refused

UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC = 17
TOPIC_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_CONFIG = 40

RECORD = ForeignRecord(b"k", b"v", (), 1_700_000_000_000)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_topic_is_made_seen_used_deleted_and_made_anew(own_broker: pylog.Broker, servers: str, client) -> None:
    topic = f"life-{type(client).__name__}"
    client.create_topic(servers, topic, 3)
    for other in CLIENTS.values():
        assert other.partition_counts(servers)[topic] == 3
    client.produce(servers, topic, [RECORD] * 3)
    assert client.range(servers, topic) == (0, 3)
    client.delete_topic(servers, topic)
    for other in CLIENTS.values():
        assert topic not in other.partition_counts(servers)
    assert not [path for path in Path(own_broker.data).iterdir() if path.name.startswith(f"{topic}-")]
    client.create_topic(servers, topic, 1)
    assert client.partition_counts(servers)[topic] == 1
    assert client.range(servers, topic) == (0, 0)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize(
    ("topic", "partitions", "replicas", "config", "code"),
    [
        pytest.param("taken", 1, 1, {}, TOPIC_EXISTS, id="a name that is taken"),
        pytest.param("no spaces", 1, 1, {}, INVALID_TOPIC, id="an illegal name"),
        pytest.param("many", 1, 3, {}, INVALID_REPLICATION_FACTOR, id="more replicas than brokers"),
        pytest.param("odd", 1, 1, {"cleanup.polic": "x"}, INVALID_CONFIG, id="an unknown configuration"),
        pytest.param("bad", 1, 1, {"segment.bytes": "many"}, INVALID_CONFIG, id="a configuration that is no number"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_kafkas_code(
    servers: str, client, topic: str, partitions: int, replicas: int, config: dict[str, str], code: int
) -> None:
    if "taken" not in client.partition_counts(servers):
        client.create_topic(servers, "taken", 1)
    with pytest.raises(Refused) as refused:
        client.create_topic(servers, topic, partitions, replicas=replicas, config=config)
    assert refused.value.code == code
    assert topic == "taken" or topic not in client.partition_counts(servers)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_deleting_what_is_not_there_is_refused(servers: str, client) -> None:
    with pytest.raises(Refused) as refused:
        client.delete_topic(servers, "never-made")
    assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("client", [CLIENTS["confluent-kafka"], CLIENTS["kafka-python"]], ids=["confluent", "python"])
def test_without_a_number_of_partitions_the_brokers_default_holds(servers: str, client) -> None:
    topic = f"default-{type(client).__name__}"
    client.create_topic(servers, topic, -1, replicas=-1)
    assert client.partition_counts(servers)[topic] == 2


def test_trying_to_create_a_topic_creates_none(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("only-tried", 1, 1)], validate_only=True)["only-tried"].result(30)
    assert "only-tried" not in CLIENTS["confluent-kafka"].partition_counts(servers)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_writing_to_a_topic_that_is_not_there_makes_it(servers: str, client) -> None:
    topic = f"auto-{type(client).__name__}"
    client.produce(servers, topic, [RECORD], partition=1)
    assert client.partition_counts(servers)[topic] == 2
    assert client.consume(servers, topic, 1, partition=1) == [RECORD]


@pytest.fixture(scope="module")
def strict_servers() -> Iterator[str]:
    with pylog.Broker(config={"auto.create.topics.enable": False}) as broker:
        yield broker.bootstrap_servers


def test_without_auto_creation_an_unknown_topic_is_an_error(strict_servers: str) -> None:
    client = CLIENTS["confluent-kafka"]
    with pytest.raises(Refused) as refused:
        client.produce(strict_servers, "nowhere", [RECORD])
    assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION
    assert "nowhere" not in client.partition_counts(strict_servers)


def test_without_auto_creation_aiokafka_is_told_too(strict_servers: str) -> None:
    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=strict_servers, request_timeout_ms=1000)
        async with producer:
            await producer.send_and_wait("nowhere", b"v")

    with pytest.raises(aiokafka.errors.UnknownTopicOrPartitionError):
        asyncio.run(write())
    assert "nowhere" not in CLIENTS["aiokafka"].partition_counts(strict_servers)


def test_without_auto_creation_kafka_python_sees_no_partitions(strict_servers: str) -> None:
    with contextlib.closing(kafka.KafkaConsumer(bootstrap_servers=strict_servers)) as consumer:
        assert not consumer.partitions_for_topic("nowhere")
    assert "nowhere" not in CLIENTS["kafka-python"].partition_counts(strict_servers)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_without_auto_creation_a_topic_is_made_by_hand(strict_servers: str, client) -> None:
    topic = f"by-hand-{type(client).__name__}"
    client.create_topic(strict_servers, topic, 1)
    client.produce(strict_servers, topic, [RECORD])
    assert client.consume(strict_servers, topic, 1) == [RECORD]
