"""Our options are Kafka's: the same names and types, told alike, and without a reason the same defaults."""

import time
from collections.abc import Iterator

import pytest

import pylog
from pylog.broker_lite.config_rows import BROKER_ROWS
from pylog.broker_lite.protocol import create_topics, incremental_alter_configs, list_config_resources
from pylog.broker_lite.protocol.describe_configs import (
    SPEC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from pylog.broker_lite.protocol.incremental_alter_configs import (
    SET,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsResource,
)
from pylog.broker_lite.topic_rows import TOPIC_ROW
from tests.conftest import RunningBroker
from tests.support.wire_requests import ask

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
NODE = "1"

# ApacheKafka's own server.properties
SET_BY_THE_TEST = {
    "node.id",
    "log.dirs",
    "listeners",
    "advertised.listeners",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "group.initial.rebalance.delay.ms",
}
NOT_SHOWN = {"log.initial.task.delay.ms"}  # Kafka has it, with this default, and keeps it to itself
NOT_CHANGED_HERE = {"listeners", "listener.security.protocol.map"}  # Kafka can listen elsewhere without a new start
SET_FOR_ALL = "min.insync.replicas"  # a Kafka that tracks eligible leaders sets it when it is formatted


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with pylog.Broker() as own:
        yield own.bootstrap_servers


@pytest.fixture(scope="module")
def kafkas(broker: RunningBroker) -> str:
    return broker.bootstrap_servers


def described(servers: str, kind: int, name: str) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(kind, name, None)
    (result,) = ask(servers, SPEC, DescribeConfigsRequest([resource], True, True)).results
    assert result.error_code == 0
    return {entry.name: entry for entry in result.configs}


def made(servers: str, name: str, configs: dict[str, str]) -> dict[str, tuple[str | None, int]]:
    """What the answer to CreateTopics says of its options: value and source."""
    asked = [create_topics.CreatableTopicConfig(*config) for config in configs.items()]
    topic = create_topics.CreatableTopic(name, 1, 1, [], asked)
    (result,) = ask(servers, create_topics.SPEC, create_topics.CreateTopicsRequest([topic])).topics
    assert result.error_code == 0
    assert result.configs is not None
    return {one.name: (one.value, one.config_source) for one in result.configs}


def changed(servers: str, kind: int, name: str, *values: tuple[str, str]) -> None:
    configs = [IncrementalAlterableConfig(option, SET, value) for option, value in values]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        [IncrementalAlterConfigsResource(kind, name, configs)]
    )
    (response,) = ask(servers, incremental_alter_configs.SPEC, request).responses
    assert response.error_code == 0, response.error_message


def test_every_option_of_the_broker_is_one_of_kafkas_with_its_default(ours: str, kafkas: str) -> None:
    theirs, own = described(kafkas, BROKER, NODE), described(ours, BROKER, NODE)
    assert own.keys() == {row.name for row in BROKER_ROWS}
    assert own.keys() - theirs.keys() == NOT_SHOWN
    for name in own.keys() - NOT_SHOWN:
        mine, kafka = own[name], theirs[name]
        assert mine.config_type == kafka.config_type, name
        assert mine.read_only == (name in NOT_CHANGED_HERE or kafka.read_only), name
        assert mine.is_sensitive == kafka.is_sensitive, name
        assert (mine.documentation or "") != "", name
        if name not in SET_BY_THE_TEST:
            assert mine.value == kafka.value, name
            if name != SET_FOR_ALL:
                assert mine.config_source == kafka.config_source, name
                assert mine.synonyms == kafka.synonyms, name


def test_every_option_of_a_topic_is_one_of_kafkas_with_its_default(ours: str, kafkas: str) -> None:
    answers = [made(servers, "defaults", {}) for servers in (ours, kafkas)]
    theirs, own = described(kafkas, TOPIC, "defaults"), described(ours, TOPIC, "defaults")
    assert own.keys() == theirs.keys() == TOPIC_ROW.keys()
    for name, mine in own.items():
        kafka = theirs[name]
        assert (mine.value, mine.config_type, mine.read_only) == (kafka.value, kafka.config_type, kafka.read_only), name
        if name != SET_FOR_ALL:
            assert (mine.config_source, mine.synonyms) == (kafka.config_source, kafka.synonyms), name
            assert answers[0][name] == answers[1][name]


def test_values_and_where_they_come_from_are_told_alike_after_changes(ours: str, kafkas: str) -> None:
    seen = []
    for servers in (ours, kafkas):
        answer = made(servers, "changed", {"cleanup.policy": "compact", "retention.ms": "7"})
        changed(servers, TOPIC, "changed", ("min.cleanable.dirty.ratio", "1e-1"), ("compression.type", "zstd"))
        changed(servers, BROKER, "", ("log.flush.interval.messages", "9"), ("compression.zstd.level", "7"))
        changed(servers, BROKER, NODE, ("log.flush.interval.messages", "8"), ("log.roll.ms", "9000"))
        deadline = time.monotonic() + 60  # Kafka answers before its change is seen
        while described(servers, BROKER, NODE)["log.roll.ms"].value != "9000" and time.monotonic() < deadline:
            time.sleep(0.05)
        names = (
            "cleanup.policy",
            "retention.ms",
            "min.cleanable.dirty.ratio",
            "compression.type",
            "compression.zstd.level",
            "flush.messages",
            "segment.ms",
            "segment.jitter.ms",
        )
        topic, node, everybody = (
            described(servers, TOPIC, "changed"),
            described(servers, BROKER, NODE),
            described(servers, BROKER, ""),
        )
        assert everybody.keys() - {SET_FOR_ALL} == {"log.flush.interval.messages", "compression.zstd.level"}
        seen.append(
            [answer[name] for name in ("cleanup.policy", "retention.ms")]
            + [(topic[name].value, topic[name].config_source, topic[name].synonyms) for name in names]
            + [
                (entry.value, entry.config_source, entry.synonyms)
                for entry in (
                    node["log.flush.interval.messages"],
                    node["log.roll.ms"],
                    everybody["compression.zstd.level"],
                )
            ]
        )
    assert seen[0] == seen[1]


def test_options_of_a_group_are_told_alike(ours: str, kafkas: str) -> None:
    seen = []
    for servers in (ours, kafkas):
        changed(servers, GROUP, "g", ("consumer.session.timeout.ms", "50000"), ("share.auto.offset.reset", "earliest"))
        listing = list_config_resources.ListConfigResourcesRequest([GROUP])
        deadline = time.monotonic() + 60
        while not ask(servers, list_config_resources.SPEC, listing).config_resources:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        told = described(servers, GROUP, "g")
        for one in told.values():
            assert one.documentation
            one.documentation = None
        seen.append((ask(servers, list_config_resources.SPEC, listing), told))
    assert seen[0] == seen[1]


def test_loggers_look_alike(ours: str, kafkas: str) -> None:
    own, theirs = described(ours, LOGGER, NODE)["root"], described(kafkas, LOGGER, NODE)["root"]
    assert own.value in {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"}
    own.value = theirs.value
    assert own == theirs
