"""Options and partitions through the clients' own admin interfaces."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import aiokafka.admin
import aiokafka.admin.config_resource
import kafka
import kafka.admin
import pytest
from aiokafka.admin.config_resource import ConfigResourceType
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

import pylog
from tests.support.foreign_clients import CLIENTS, ForeignRecord, Refused

T = TypeVar("T")
NODE = "1"
MESSAGE_TOO_LARGE, INVALID_PARTITIONS, INVALID_CONFIG, INVALID_REQUEST = 10, 37, 40, 42


class Admin(Protocol):
    def options(self, servers: str, topic: str) -> dict[str, str | None]: ...

    def broker_options(self, servers: str) -> dict[str, str | None]: ...

    def change(self, servers: str, topic: str, values: Mapping[str, str]) -> None: ...

    def change_broker(self, servers: str, values: Mapping[str, str]) -> None: ...

    def grow(self, servers: str, topic: str, count: int) -> None: ...


class Confluent:
    def options(self, servers: str, topic: str) -> dict[str, str | None]:
        return self._described(servers, ConfigResource(ResourceType.TOPIC, topic))

    def broker_options(self, servers: str) -> dict[str, str | None]:
        return self._described(servers, ConfigResource(ResourceType.BROKER, NODE))

    def _described(self, servers: str, resource: ConfigResource) -> dict[str, str | None]:
        admin = AdminClient({"bootstrap.servers": servers})  # which ends when nobody holds it
        found = admin.describe_configs([resource])[resource].result(30)
        return {name: entry.value for name, entry in found.items()}

    def change(self, servers: str, topic: str, values: Mapping[str, str]) -> None:
        self._change(servers, ResourceType.TOPIC, topic, values)

    def change_broker(self, servers: str, values: Mapping[str, str]) -> None:
        self._change(servers, ResourceType.BROKER, NODE, values)

    def _change(self, servers: str, kind: ResourceType, name: str, values: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(option, value, incremental_operation=AlterConfigOpType.SET) for option, value in values.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": servers})
        _refusing(admin.incremental_alter_configs([resource])[resource])

    def grow(self, servers: str, topic: str, count: int) -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        _refusing(admin.create_partitions([NewPartitions(topic, count)])[topic])


def _refusing(future: Any) -> None:
    try:
        future.result(30)
    except KafkaException as error:
        raise Refused(error.args[0].code(), error.args[0].str()) from None


class KafkaPython:
    def options(self, servers: str, topic: str) -> dict[str, str | None]:
        return self._described(servers, "topic", topic)

    def broker_options(self, servers: str) -> dict[str, str | None]:
        return self._described(servers, "broker", NODE)

    def _described(self, servers: str, kind: str, name: str) -> dict[str, str | None]:
        resource = kafka.admin.ConfigResource(kind.upper(), name)
        admin = kafka.KafkaAdminClient(bootstrap_servers=servers)
        try:
            found = admin.describe_configs([resource], include_synonyms=True, config_filter="all")[kind][name]
        finally:
            admin.close()
        return {option: entry["value"] for option, entry in found.items()}

    def change(self, servers: str, topic: str, values: Mapping[str, str]) -> None:
        self._change(servers, kafka.admin.ConfigResource("TOPIC", topic, dict(values)))

    def change_broker(self, servers: str, values: Mapping[str, str]) -> None:
        self._change(servers, kafka.admin.ConfigResource("BROKER", NODE, dict(values)))

    def _change(self, servers: str, resource: kafka.admin.ConfigResource) -> None:
        answer = self._do(servers, lambda admin: admin.alter_configs([resource], raise_on_unknown=False))
        (result,) = next(iter(answer.values())).values()
        if result != "OK":
            raise Refused(int(re.findall(r"\[Error (\d+)\]", result)[0]), result)

    def grow(self, servers: str, topic: str, count: int) -> None:
        try:
            self._do(servers, lambda admin: admin.create_partitions({topic: count}))
        except kafka.errors.KafkaError as error:
            raise Refused(error.errno, str(error)) from None

    def _do(self, servers: str, work: Callable[[kafka.KafkaAdminClient], T]) -> T:
        admin = kafka.KafkaAdminClient(bootstrap_servers=servers)
        try:
            return work(admin)
        finally:
            admin.close()


class AioKafka:
    """Its AlterConfigs is the old one, which replaces all that was set."""

    def options(self, servers: str, topic: str) -> dict[str, str | None]:
        return self._described(servers, ConfigResourceType.TOPIC, topic)

    def broker_options(self, servers: str) -> dict[str, str | None]:
        return self._described(servers, ConfigResourceType.BROKER, NODE)

    def _described(self, servers: str, kind: ConfigResourceType, name: str) -> dict[str, str | None]:
        resource = aiokafka.admin.config_resource.ConfigResource(kind, name)
        answers = self._do(servers, lambda admin: admin.describe_configs([resource]))
        (found,) = [one for answer in answers for one in answer.resources]
        return {entry[0]: entry[1] for entry in found[4]}

    def change(self, servers: str, topic: str, values: Mapping[str, str]) -> None:
        self._change(servers, ConfigResourceType.TOPIC, topic, values)

    def change_broker(self, servers: str, values: Mapping[str, str]) -> None:
        self._change(servers, ConfigResourceType.BROKER, NODE, values)

    def _change(self, servers: str, kind: ConfigResourceType, name: str, values: Mapping[str, str]) -> None:
        resource = aiokafka.admin.config_resource.ConfigResource(kind, name, dict(values))
        answers = self._do(servers, lambda admin: admin.alter_configs([resource]))
        (result,) = [one for answer in answers for one in answer.resources]
        if result[0]:
            raise Refused(result[0], result[1])

    def grow(self, servers: str, topic: str, count: int) -> None:
        wanted = {topic: aiokafka.admin.NewPartitions(count)}
        try:
            self._do(servers, lambda admin: admin.create_partitions(wanted))
        except aiokafka.errors.BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from None

    def _do(self, servers: str, work: Callable[[aiokafka.admin.AIOKafkaAdminClient], Awaitable[T]]) -> T:
        async def main() -> T:
            admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=servers)
            await admin.start()
            try:
                return await work(admin)
            finally:
                await admin.close()

        return asyncio.run(main())


ADMINS = {"confluent-kafka": Confluent(), "kafka-python": KafkaPython(), "aiokafka": AioKafka()}
EVERY_CLIENT = pytest.mark.parametrize("name", ADMINS)


@EVERY_CLIENT
def test_options_of_a_topic_are_seen_changed_and_in_force(servers: str, name: str) -> None:
    admin, client, topic = ADMINS[name], CLIENTS[name], f"options-{name}"
    client.create_topic(servers, topic, 1, config={"retention.ms": "123456"})
    before = admin.options(servers, topic)
    assert (before["retention.ms"], before["max.message.bytes"]) == ("123456", "1048588")
    client.produce(servers, topic, [ForeignRecord(b"k", b"v" * 300)])
    admin.change(servers, topic, {"max.message.bytes": "200", "retention.ms": "-1"})
    for other in ADMINS.values():
        after = other.options(servers, topic)
        assert (after["retention.ms"], after["max.message.bytes"]) == ("-1", "200")
        assert after.keys() == before.keys()
    with pytest.raises(Refused) as refused:
        client.produce(servers, topic, [ForeignRecord(b"k", b"v" * 300)])
    assert refused.value.code == MESSAGE_TOO_LARGE
    client.produce(servers, topic, [ForeignRecord(b"k", b"v")])


@EVERY_CLIENT
@pytest.mark.parametrize(
    ("option", "value"),
    [
        pytest.param("retention.ms", "soon", id="not a number"),
        pytest.param("cleanup.policy", "burn", id="not a policy"),
        pytest.param("retention", "1", id="not an option"),
    ],
)
def test_what_a_topic_cannot_have_is_refused(servers: str, name: str, option: str, value: str) -> None:
    if "refusing" not in CLIENTS[name].partition_counts(servers):
        CLIENTS[name].create_topic(servers, "refusing", 1)
    with pytest.raises(Refused) as refused:
        ADMINS[name].change(servers, "refusing", {option: value})
    assert refused.value.code == INVALID_CONFIG


@EVERY_CLIENT
def test_options_of_the_broker_are_seen_and_those_that_may_change_do(servers: str, name: str) -> None:
    admin = ADMINS[name]
    assert admin.broker_options(servers)["num.partitions"] == "2"  # as it was started
    admin.change_broker(servers, {"log.index.interval.bytes": "1234"})
    for other in ADMINS.values():
        assert other.broker_options(servers)["log.index.interval.bytes"] == "1234"
    with pytest.raises(Refused) as refused:
        admin.change_broker(servers, {"num.partitions": "3"})
    assert refused.value.code == INVALID_REQUEST
    admin.change_broker(servers, {"log.index.interval.bytes": "4096"})


@EVERY_CLIENT
def test_a_topic_gets_partitions_that_are_seen_and_used(servers: str, name: str) -> None:
    admin, client, topic = ADMINS[name], CLIENTS[name], f"grows-{name}"
    client.create_topic(servers, topic, 1)
    admin.grow(servers, topic, 3)
    for other in CLIENTS.values():
        assert other.partition_counts(servers)[topic] == 3
    client.produce(servers, topic, [ForeignRecord(b"k", b"v", (), 1_700_000_000_000)], partition=2)
    assert client.range(servers, topic, 2) == (0, 1)
    with pytest.raises(Refused) as refused:
        admin.grow(servers, topic, 2)
    assert refused.value.code == INVALID_PARTITIONS


def test_a_list_grows_and_shrinks_and_an_option_is_given_back(servers: str) -> None:
    CLIENTS["confluent-kafka"].create_topic(servers, "lists", 1, config={"flush.ms": "5"})
    admin = AdminClient({"bootstrap.servers": servers})

    def change(option: str, operation: AlterConfigOpType, value: str | None) -> dict[str, str | None]:
        entry = ConfigEntry(option, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, "lists", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)
        return Confluent().options(servers, "lists")

    assert change("cleanup.policy", AlterConfigOpType.APPEND, "compact")["cleanup.policy"] == "delete,compact"
    assert change("cleanup.policy", AlterConfigOpType.SUBTRACT, "delete")["cleanup.policy"] == "compact"
    assert change("flush.ms", AlterConfigOpType.DELETE, None)["flush.ms"] == str((1 << 63) - 1)


def test_what_is_only_tried_changes_nothing(servers: str) -> None:
    CLIENTS["confluent-kafka"].create_topic(servers, "tried", 1)
    admin = AdminClient({"bootstrap.servers": servers})
    entry = ConfigEntry("flush.ms", "5", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "tried", incremental_configs=[entry])
    admin.incremental_alter_configs([resource], validate_only=True)[resource].result(30)
    admin.create_partitions([NewPartitions("tried", 5)], validate_only=True)["tried"].result(30)
    assert Confluent().options(servers, "tried")["flush.ms"] == str((1 << 63) - 1)
    assert CLIENTS["confluent-kafka"].partition_counts(servers)["tried"] == 1


def test_options_and_partitions_are_there_after_a_kill(tmp_path: Path) -> None:
    admin, client = Confluent(), CLIENTS["confluent-kafka"]
    with pylog.Broker(data=tmp_path) as broker:
        client.create_topic(broker.bootstrap_servers, "kept", 1)
        admin.change(broker.bootstrap_servers, "kept", {"retention.ms": "-1"})
        admin.change_broker(broker.bootstrap_servers, {"log.segment.bytes": "5000000"})
        admin.grow(broker.bootstrap_servers, "kept", 4)
        broker.kill()
    with pylog.Broker(data=tmp_path) as broker:
        options = admin.options(broker.bootstrap_servers, "kept")
        assert (options["retention.ms"], options["segment.bytes"]) == ("-1", "5000000")
        assert client.partition_counts(broker.bootstrap_servers)["kept"] == 4


def test_a_thousand_topics(tmp_path: Path) -> None:
    names = [f"topic-{number}" for number in range(1000)]
    with pylog.Broker(data=tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for made in admin.create_topics([NewTopic(name, 1, 1) for name in names], request_timeout=120).values():
            made.result(120)
        assert set(names) <= set(CLIENTS["kafka-python"].partition_counts(broker.bootstrap_servers))
        for name in (names[0], names[499], names[-1]):
            CLIENTS["confluent-kafka"].produce(broker.bootstrap_servers, name, [ForeignRecord(b"k", b"v")])
        broker.kill()
    with pylog.Broker(data=tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert CLIENTS["confluent-kafka"].range(broker.bootstrap_servers, names[-1]) == (0, 1)
        for deleted in admin.delete_topics(names, request_timeout=120).values():
            deleted.result(120)
        assert not set(names) & set(CLIENTS["confluent-kafka"].partition_counts(broker.bootstrap_servers))
