"""What tests beside Apache Kafka share: what it wrote (they take copies where they change it), and a secured one."""

from collections.abc import Iterator

import pytest

from tests.support.certificates import Authority
from tests.support.kafka_written import Left, written_by_kafka
from tests.support.secured_kafka import SecuredKafka


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Left]]:
    """By what ended Kafka: "killed", "stopped"."""
    lives = written_by_kafka(tmp_path_factory.mktemp("kafka"))
    return dict(zip(("killed", "stopped"), lives, strict=True))


@pytest.fixture(scope="session")
def kafka_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def secured(kafka_authority: Authority) -> Iterator[SecuredKafka]:
    """A Kafka whose listeners have TLS and SASL."""
    with SecuredKafka(kafka_authority) as kafka:
        yield kafka
