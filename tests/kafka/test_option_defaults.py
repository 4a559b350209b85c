"""Our options are Kafka's: the same names, and without a reason the same defaults."""

from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.config_rows import BROKER_ROWS, ROW
from pylog.broker_lite.topic_rows import BROKER_NAME
from tests.conftest import RunningBroker

# ApacheKafka's own server.properties
SET_BY_THE_TEST = {"node.id", "log.dirs", "offsets.topic.num.partitions", "group.initial.rebalance.delay.ms"}
NOT_SHOWN = {"log.initial.task.delay.ms"}  # Kafka has it, with this default, and keeps it to itself


def configs(servers: str, kind: ResourceType, name: str) -> dict[str, str | None]:
    admin = AdminClient({"bootstrap.servers": servers})
    resource = ConfigResource(kind, name)
    return {entry.name: entry.value for entry in admin.describe_configs([resource])[resource].result(30).values()}


def test_every_option_of_the_broker_is_one_of_kafkas_with_its_default(broker: RunningBroker) -> None:
    kafkas = configs(broker.bootstrap_servers, ResourceType.BROKER, "1")
    wrong = {
        row.name: (row.default, kafkas.get(row.name, "not there"))
        for row in BROKER_ROWS
        if row.name not in SET_BY_THE_TEST | NOT_SHOWN
        and (row.name not in kafkas or _parsed(row.name, kafkas[row.name]) != row.default)
    }
    assert not wrong


def test_every_override_of_a_topic_is_one_of_kafkas_with_its_default(broker: RunningBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("defaults", 1, 1)])["defaults"].result(30)
    kafkas = configs(broker.bootstrap_servers, ResourceType.TOPIC, "defaults")
    ours = BrokerConfig.parse({})
    wrong = {
        name: (ours[row], kafkas.get(name, "not there"))
        for name, row in BROKER_NAME.items()
        if name not in kafkas or _parsed(row, kafkas[name]) != ours[row]
    }
    assert not wrong


def _parsed(row: str, value: str | None) -> object:
    return None if value is None else ROW[row].parse(value)
