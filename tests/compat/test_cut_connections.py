"""Idempotent producers whose connections are cut again and again write every record once, in order: all of them to our
broker, and ours also to Apache Kafka."""

import asyncio
import random
from collections.abc import Callable

import aiokafka
import confluent_kafka
import kafka
import pyarrow as pa
import pytest

import pylog
from tests.support.cutting_proxy import BEFORE, BEHIND, MIDDLE, broker_behind_a_proxy, kafka_behind_a_proxy
from tests.support.foreign_clients import CLIENTS

pytestmark = pytest.mark.faults

PARTITIONS = 2
COUNT = 400
SECONDS_MAX = 120


def with_confluent(servers: str, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 5,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 1,
            "reconnect.backoff.max.ms": 10,
            "log_level": 0,
        }
    )
    failed: list[object] = []
    for number, value in enumerate(values):
        producer.produce(
            "t",
            value,
            partition=number % PARTITIONS,
            on_delivery=lambda error, message: failed.append(error) if error is not None else None,
        )
        producer.poll(0.001)
    assert producer.flush(SECONDS_MAX) == 0
    assert failed == []


def with_kafka_python(servers: str, values: list[bytes]) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers,
        enable_idempotence=True,
        batch_size=60,
        retry_backoff_ms=10,
        reconnect_backoff_ms=1,
        reconnect_backoff_max_ms=10,
        delivery_timeout_ms=SECONDS_MAX * 1000,
    )
    sent = [producer.send("t", value, partition=number % PARTITIONS) for number, value in enumerate(values)]
    for one in sent:
        one.get(SECONDS_MAX)
    producer.close(SECONDS_MAX)


def with_aiokafka(servers: str, values: list[bytes]) -> None:
    async def send() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True, max_batch_size=150, retry_backoff_ms=10
        )
        await producer.start()
        sent = [await producer.send("t", value, partition=number % PARTITIONS) for number, value in enumerate(values)]
        await asyncio.wait_for(asyncio.gather(*sent), SECONDS_MAX)
        await producer.stop()

    asyncio.run(send())


def with_pylog(servers: str, values: list[bytes]) -> None:
    config = {"bootstrap.servers": servers, "linger.ms": 0, "batch.size": 150, "retry.backoff.ms": 10}
    with pylog.Producer(config) as producer:
        sent = [producer.send("t", value, partition=number % PARTITIONS) for number, value in enumerate(values)]
        producer.flush(SECONDS_MAX)
        offsets = [future.result(0).offset for future in sent]
    assert offsets == [number // PARTITIONS for number in range(len(values))]


def with_pylogs_tables(servers: str, values: list[bytes]) -> None:
    config = {"bootstrap.servers": servers, "batch.size": 150, "retry.backoff.ms": 10}
    with pylog.Producer(config) as producer:
        for start in range(0, len(values), 50):
            part = values[start : start + 50]
            numbers = [number % PARTITIONS for number in range(start, start + len(part))]
            sent = producer.send_table("t", pa.table({"value": part, "partition": numbers}))
        sent.result(SECONDS_MAX)


@pytest.mark.parametrize(
    "send",
    [
        pytest.param(with_confluent, id="confluent-kafka"),
        pytest.param(with_kafka_python, id="kafka-python"),
        pytest.param(with_aiokafka, id="aiokafka"),
        pytest.param(with_pylog, id="pylog", marks=pytest.mark.connector),
        pytest.param(with_pylogs_tables, id="pylog's tables", marks=pytest.mark.connector),
    ],
)
def test_every_record_is_there_once_and_in_order(
    request: pytest.FixtureRequest, send: Callable[[str, list[bytes]], None]
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    values = [b"%d" % number for number in range(COUNT)]
    is_kafka = request.config.getoption("--broker") == "kafka"
    with (kafka_behind_a_proxy if is_kafka else broker_behind_a_proxy)(seed) as (broker, proxy):
        reader = CLIENTS["confluent-kafka"]
        reader.create_topic(broker.bootstrap_servers, "t", PARTITIONS)
        send(f"127.0.0.1:{proxy.port}", values)
        for partition in range(PARTITIONS):
            low, high = reader.range(broker.bootstrap_servers, "t", partition)
            found = [one.value for one in reader.consume(broker.bootstrap_servers, "t", high, partition=partition)]
            assert found == values[partition::PARTITIONS]
            assert low == 0
        assert min(proxy.cuts[cut] for cut in (BEFORE, MIDDLE, BEHIND)) > 0, proxy.cuts
