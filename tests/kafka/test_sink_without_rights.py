"""What an Apache Kafka does not let the sink do: write to topics without the right to, make topics where none are made.
The task fails at once, with topic and cause."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from pylog.connector.client.jaas import PLAIN_MODULE
from tests.support.apache_kafka import ApacheKafka
from tests.support.spark_errors import refusal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Much less than the minute of kafka.max.block.ms, and the two of kafka.delivery.timeout.ms.
pytestmark = pytest.mark.timeout(50)

USERS = ("reader", "writer")
LISTENER = "listener.name.sasl_plaintext"
OPEN, SHUT, HIDDEN = "open", "shut", "hidden"
Write = Callable[..., None]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    """Who comes without a name may do everything. A reader may look at two topics, and a writer write to one of them;
    of the third they may not even know. No topic makes itself."""
    logins = " ".join(f'user_{name}="{name}"' for name in USERS)
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "auto.create.topics.enable": "false",
        "sasl.enabled.mechanisms": "PLAIN",
        f"{LISTENER}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {logins};",
    }
    with ApacheKafka(properties, listeners=("SASL_PLAINTEXT",)) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        rights = [(name, topic, AclOperation.DESCRIBE) for name in USERS for topic in (OPEN, SHUT)]
        rights.append(("writer", OPEN, AclOperation.WRITE))
        bindings = [
            AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                f"User:{name}",
                "*",
                may,
                AclPermissionType.ALLOW,
            )
            for name, topic, may in rights
        ]
        made = admin.create_topics([NewTopic(topic, 3, 1) for topic in (OPEN, SHUT, HIDDEN)])
        for done in (*made.values(), *admin.create_acls(bindings).values()):
            done.result(30)
        yield kafka


@pytest.fixture
def write(spark: "SparkSession", kafka: ApacheKafka) -> Write:
    """`write(user, topic, **options)`: a row for partition 2."""

    def write(user: str, topic: str, **options: str) -> None:
        login = {
            "kafka.bootstrap.servers": kafka.servers("SASL_PLAINTEXT"),
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{PLAIN_MODULE} required username="{user}" password="{user}";',
        }
        rows = spark.sql("select 'v' value, 2 partition")
        rows.write.format("pylog").options(**login, **options).option("topic", topic).mode("append").save()

    return write


def test_who_may_write_does(spark: "SparkSession", kafka: ApacheKafka, write: Write) -> None:
    write("writer", OPEN)
    reader = spark.read.format("pylog").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    assert reader.option("subscribe", OPEN).load().count() == 1


NOT_IDEMPOTENT = {"kafka.enable.idempotence": "false"}


@pytest.mark.parametrize(
    ("user", "topic", "options", "said"),
    [
        pytest.param("writer", SHUT, {}, ["shut-2", "TOPIC_AUTHORIZATION_FAILED"], id="another topic"),
        pytest.param("reader", OPEN, {}, ["open-2", "CLUSTER_AUTHORIZATION_FAILED"], id="no topic at all"),
        pytest.param(
            "reader", OPEN, NOT_IDEMPOTENT, ["open-2", "TOPIC_AUTHORIZATION_FAILED"], id="not even without a number"
        ),
        pytest.param("writer", HIDDEN, {}, ["'hidden'", "TOPIC_AUTHORIZATION_FAILED"], id="a topic that is hidden"),
    ],
)
def test_who_may_not_is_told_topic_and_cause(
    write: Write, user: str, topic: str, options: dict[str, str], said: list[str]
) -> None:
    error = refusal(lambda: write(user, topic, **options))
    assert not [part for part in said if part not in error], error


def test_a_topic_that_is_not_made_is_named_with_what_to_do(spark: "SparkSession", kafka: ApacheKafka) -> None:
    rows = spark.createDataFrame([("v", OPEN), ("w", "missing")], "value string, topic string").coalesce(1)
    writer = rows.write.format("pylog").option("kafka.bootstrap.servers", kafka.bootstrap_servers).mode("append")
    said = refusal(writer.save)
    assert "the topic 'missing' does not exist and the broker did not create it: create it first" in said
    assert "auto.create.topics.enable" in said
