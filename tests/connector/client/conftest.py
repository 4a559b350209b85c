from collections.abc import Callable, Iterator

import pytest

from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
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
