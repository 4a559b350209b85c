"""Fixtures that every folder of tests may use: a broker, of one kind or the other, and one Spark.

Tests marked `connector` speak to `bootstrap_servers` and nothing more of the broker, so they run against either:
`pytest` takes pylog's own, `pytest --broker=kafka` a real Apache Kafka (and then only the tests that apply to it)."""

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.support.jars import JarsUnavailable, spark_kafka_jars
from tests.support.java import JavaUnavailable, java_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parent
FOLDER_MARKERS = {"kafka": pytest.mark.kafka, "faults": pytest.mark.faults}  # tests need not repeat their folder


class RunningBroker(Protocol):
    """What pylog.Broker and ApacheKafka have in common."""

    @property
    def bootstrap_servers(self) -> str: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=("pylog", "kafka"),
        default="pylog",
        help="the broker that tests marked `connector` talk to; kafka runs only these and the ones marked `kafka`",
    )
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        help="write into the transcripts what comes out now; look at the difference before you keep it",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test marked `kafka` needs Apache Kafka itself; under --broker=kafka all others but `connector` are left out."""
    on_kafka = config.getoption("--broker") == "kafka"
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        for folder, marker in FOLDER_MARKERS.items():
            if item.path.is_relative_to(TESTS / folder):
                item.add_marker(marker)
        needs_kafka = item.get_closest_marker("kafka") is not None
        runs_on_kafka = needs_kafka or item.get_closest_marker("connector") is not None
        fits = runs_on_kafka if on_kafka else not needs_kafka
        (kept if fits else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """One broker for the whole run. Tests share it: each takes topics of its own (see `new_topic`)."""
    if request.config.getoption("--broker") == "kafka":
        from tests.support.apache_kafka import ApacheKafka

        with ApacheKafka() as kafka:
            yield kafka
    else:
        import pylog

        with pylog.Broker(config={"log.retention.ms": -1}) as own:  # tests write records with timestamps of old
            yield own


@pytest.fixture(scope="session")
def bootstrap_servers(broker: RunningBroker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def new_topic(request: pytest.FixtureRequest, bootstrap_servers: str) -> Callable[..., str]:
    """`new_topic(partitions=4)` creates a topic that no other test uses and returns its name."""

    def create(partitions: int = 1, **configuration: str) -> str:
        from confluent_kafka.admin import AdminClient, NewTopic

        name = f"topic-{uuid.uuid4().hex[:12]}"
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=1, config=configuration)
        admin.create_topics([wanted])[name].result(timeout=30)
        return name

    return create


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """The one Spark of this run, with pylog registered and, where its jars can be had, Spark's own Kafka connector."""
    try:
        java_command()
    except JavaUnavailable as error:
        pytest.skip(str(error))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    import pylog

    scratch = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={scratch}",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.unix.domain.socket.enabled": "true",
    }
    try:
        settings["spark.jars"] = ",".join(map(str, spark_kafka_jars()))
    except JarsUnavailable as error:
        print(f"Spark starts without its Kafka connector: {error}")
    builder = SparkSession.builder.master("local[2]").appName("pylog-tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    pylog.register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_kafka(spark: "SparkSession") -> "SparkSession":
    """`spark`, certain to have `format("kafka")`; the test is skipped with the reason where the jars are missing."""
    try:
        spark_kafka_jars()
    except JarsUnavailable as error:
        pytest.skip(str(error))
    return spark


@pytest.fixture
def at_length(request: pytest.FixtureRequest) -> None:
    """For tests that take too long for `make test`."""
    if request.config.getoption("--broker") == "pylog" and "PYLOG_FAULT_ROUNDS" not in os.environ:
        pytest.skip("`make test-kafka` and `make faults` run this")
