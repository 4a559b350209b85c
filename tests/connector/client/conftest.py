from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.producer import RecordProducer
from tests.connector.client.fake_kafka import FakeKafka
from tests.support.certificates import Authority

_QUICK = {"retry.backoff.ms": "1", "retry.backoff.max.ms": "5", "fetch.max.wait.ms": "5"}


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    with FakeKafka({"orders": 3}) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def connect() -> Iterator[Callable[..., Cluster]]:
    """`connect(kafka, acks="0")`: a cluster of its own, with short pauses, closed at the end."""
    clusters: list[Cluster] = []

    def make(kafka: FakeKafka | str, **options: str) -> Cluster:
        servers = kafka if isinstance(kafka, str) else kafka.bootstrap_servers
        named = {name.replace("_", "."): value for name, value in options.items()}
        clusters.append(Cluster(ClientConfig.parse({"bootstrap.servers": servers, **_QUICK, **named})))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.pool.close()


@pytest.fixture
def produce(kafka: FakeKafka) -> Iterator[Callable[..., RecordProducer]]:
    """`produce(acks="0")`: a producer with short pauses, closed at the end."""
    made: list[RecordProducer] = []

    def make(*, key_serializer: Any = None, value_serializer: Any = None, **options: Any) -> RecordProducer:
        named = {name.replace("_", "."): value for name, value in options.items()}
        quick = {"bootstrap.servers": kafka.bootstrap_servers, "retry.backoff.ms": 1, "linger.ms": 0}
        made.append(
            RecordProducer({**quick, **named}, key_serializer=key_serializer, value_serializer=value_serializer)
        )
        return made[-1]

    yield make
    for producer in made:
        producer.close(0)
