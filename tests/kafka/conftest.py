"""What Apache Kafka wrote, once for all tests that look at it. They take copies where they change something."""

from collections.abc import Iterator

import pytest

from tests.support.kafka_written import Left, written_by_kafka


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Left]]:
    """By what ended Kafka: "killed", "stopped"."""
    lives = written_by_kafka(tmp_path_factory.mktemp("kafka"))
    return dict(zip(("killed", "stopped"), lives, strict=True))
