"""Requests of admin clients, good and bad, and the error codes they get: of our broker and of Apache Kafka alike.

Each case is one request about the topic `there` (one partition, retention.ms 5000) and names nothing else that exists,
so that cases may run in any order. What we answer otherwise than Kafka is a case of its own kind, with the reason."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pylog.broker_lite.protocol import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from pylog.broker_lite.protocol.create_topics import CreatableReplicaAssignment
from pylog.broker_lite.protocol.errors import ErrorCode as E
from pylog.broker_lite.protocol.incremental_alter_configs import APPEND, DELETE, SET, SUBTRACT
from pylog.broker_lite.protocol.spec import ApiSpec

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
NODE = "1"
THERE = "there"
NO_ID, SOME_ID = UUID(int=0), UUID(int=77)

Ask = Callable[[ApiSpec[Any, Any], Any, int | None], Any]


@dataclass(frozen=True)
class Case:
    id: str
    spec: ApiSpec[Any, Any]
    request: Any
    codes: list[int]  # of the answer, sorted
    kafkas: list[int] | None = None  # where they are others, and why
    why: str = ""
    version: int | None = None

    def answered(self, ask: Ask) -> list[int]:
        return sorted(codes_in(ask(self.spec, self.request, self.version)))


def codes_in(answer: Any) -> list[int]:
    """Of all parts of it; where there are no parts, or none of them was looked at, of all of it."""
    if getattr(answer, "error_code", 0):
        return [answer.error_code]
    for field in ("topics", "results", "responses", "filter_results", "entries", "partitions"):
        if getattr(answer, field, None) is not None:
            return [code for one in getattr(answer, field) for code in codes_in(one)]
    return [answer.error_code]


def make_there() -> tuple[ApiSpec[Any, Any], Any, int | None]:
    retention = create_topics.CreatableTopicConfig("retention.ms", "5000")
    request = create_topics.CreateTopicsRequest([create_topics.CreatableTopic(THERE, 1, 1, [], [retention])])
    return create_topics.SPEC, request, None


def create(
    name: str,
    *topics: tuple[str, int, int],
    assignments: Sequence[tuple[int, list[int]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
    timeout_ms: int = 60_000,
    codes: Sequence[int],
    **case: Any,
) -> Case:
    """Nothing is made."""
    asked = [
        create_topics.CreatableTopic(
            topic,
            partitions,
            replicas,
            [CreatableReplicaAssignment(index, brokers) for index, brokers in assignments],
            [create_topics.CreatableTopicConfig(*config) for config in configs],
        )
        for topic, partitions, replicas in topics
    ]
    request = create_topics.CreateTopicsRequest(asked, timeout_ms, validate_only=True)
    return Case(f"create: {name}", create_topics.SPEC, request, list(codes), **case)


def grow(
    name: str,
    *topics: tuple[str, int],
    assignments: Sequence[list[int]] | None = None,
    timeout_ms: int = 60_000,
    codes: Sequence[int],
    **case: Any,
) -> Case:
    assigned = None
    if assignments is not None:
        assigned = [create_partitions.CreatePartitionsAssignment(brokers) for brokers in assignments]
    asked = [create_partitions.CreatePartitionsTopic(topic, count, assigned) for topic, count in topics]
    request = create_partitions.CreatePartitionsRequest(asked, timeout_ms, validate_only=True)
    return Case(f"grow: {name}", create_partitions.SPEC, request, list(codes), **case)


def remove(
    name: str, *topics: tuple[str | None, UUID], timeout_ms: int = 30_000, codes: Sequence[int], **case: Any
) -> Case:
    asked = [delete_topics.DeleteTopicState(*topic) for topic in topics]
    request = delete_topics.DeleteTopicsRequest(asked, timeout_ms=timeout_ms)
    return Case(f"delete: {name}", delete_topics.SPEC, request, list(codes), **case)


def change(
    name: str,
    *operations: tuple[str, int, str | None],
    of: tuple[int, str] = (TOPIC, THERE),
    times: int = 1,
    codes: Sequence[int],
    **case: Any,
) -> Case:
    """Nothing is changed."""
    configs = [incremental_alter_configs.IncrementalAlterableConfig(*operation) for operation in operations]
    resource = incremental_alter_configs.IncrementalAlterConfigsResource(*of, configs)
    request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource] * times, validate_only=True)
    return Case(f"change: {name}", incremental_alter_configs.SPEC, request, list(codes), **case)


def replace(
    name: str, *values: tuple[str, str | None], of: tuple[int, str] = (TOPIC, THERE), codes: Sequence[int], **case: Any
) -> Case:
    configs = [alter_configs.AlterableConfig(*value) for value in values]
    request = alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(*of, configs)], validate_only=True)
    return Case(f"replace: {name}", alter_configs.SPEC, request, list(codes), **case)


def describe(name: str, of: tuple[int, str], codes: Sequence[int], **case: Any) -> Case:
    resource = describe_configs.DescribeConfigsResource(*of, None)
    request = describe_configs.DescribeConfigsRequest([resource])
    return Case(f"describe: {name}", describe_configs.SPEC, request, list(codes), **case)


def list_resources(name: str, *kinds: int, codes: Sequence[int], **case: Any) -> Case:
    request = list_config_resources.ListConfigResourcesRequest(list(kinds))
    return Case(f"list: {name}", list_config_resources.SPEC, request, list(codes), **case)


OURS_IS_SMALLER = "Kafka 4 refuses segments below 1 MB"
NOT_THERE = "what it is for is not there yet, and nothing that does nothing is taken"

CASES = [
    create("fine", ("new", 2, 1), codes=[E.NONE]),
    create("the defaults", ("new", -1, -1), codes=[E.NONE]),
    create("taken", (THERE, 1, 1), codes=[E.TOPIC_ALREADY_EXISTS]),
    create("no partitions", ("new", 0, 1), codes=[E.INVALID_PARTITIONS]),
    create("less than none", ("new", -2, 1), codes=[E.INVALID_PARTITIONS]),
    create("too many", ("new", 10_001, 1), codes=[E.POLICY_VIOLATION]),
    create("too many together", ("a", 6_000, 1), ("b", 6_000, 1), ("", 1, 1), codes=[E.POLICY_VIOLATION] * 3),
    create("no replicas", ("new", 1, 0), codes=[E.INVALID_REPLICATION_FACTOR]),
    create("more replicas than brokers", ("new", 1, 2), codes=[E.INVALID_REPLICATION_FACTOR]),
    create("neither", ("new", 0, 0), codes=[E.INVALID_REPLICATION_FACTOR]),
    create("no partitions, too many replicas", ("new", 0, 3), codes=[E.INVALID_PARTITIONS]),
    create("the default number, too many replicas", ("new", -1, 3), codes=[E.INVALID_REPLICATION_FACTOR]),
    create("no name", ("", 1, 1), codes=[E.INVALID_TOPIC_EXCEPTION]),
    create("a dot", (".", 1, 1), codes=[E.INVALID_TOPIC_EXCEPTION]),
    create("a space", ("a b", 1, 1), codes=[E.INVALID_TOPIC_EXCEPTION]),
    create("the longest name", ("x" * 249, 1, 1), codes=[E.NONE]),
    create("too long a name", ("x" * 250, 1, 1), codes=[E.INVALID_TOPIC_EXCEPTION]),
    create("the broker's own", ("__cluster_metadata", 1, 1), codes=[E.INVALID_REQUEST]),
    create("twice", ("new", 1, 1), ("new", 2, 1), codes=[E.INVALID_REQUEST]),
    create("twice, and another", ("a", 1, 1), ("b", 0, 1), ("b", 0, 1), codes=[E.NONE, E.INVALID_REQUEST]),
    create("an unknown option", ("new", 1, 1), configs=[("nosuch", "1")], codes=[E.INVALID_CONFIG]),
    create("a wrong value", ("new", 1, 1), configs=[("retention.ms", "x")], codes=[E.INVALID_CONFIG]),
    create("no value", ("new", 1, 1), configs=[("retention.ms", None)], codes=[E.INVALID_CONFIG]),
    create("an option twice", ("new", 1, 1), configs=[("flush.ms", "1"), ("flush.ms", "2")], codes=[E.NONE]),
    create(
        "options that contradict each other",
        ("new", 1, 1),
        configs=[("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "8")],
        codes=[E.INVALID_CONFIG],
    ),
    create("taken, and too many replicas", (THERE, 1, 3), codes=[E.TOPIC_ALREADY_EXISTS]),
    create("taken, and an unknown option", (THERE, 1, 1), configs=[("nosuch", "1")], codes=[E.TOPIC_ALREADY_EXISTS]),
    create("taken, and to another", (THERE, -1, -1), assignments=[(0, [2])], codes=[E.TOPIC_ALREADY_EXISTS]),
    create("a space, and too many replicas", ("a b", 1, 3), codes=[E.INVALID_TOPIC_EXCEPTION]),
    create("replicas and an option", ("new", 1, 2), configs=[("nosuch", "1")], codes=[E.INVALID_CONFIG]),
    create("no partitions, and no value", ("new", 0, 1), configs=[("flush.ms", None)], codes=[E.INVALID_CONFIG]),
    create("more in sync than there are", ("new", 1, 1), configs=[("min.insync.replicas", "2")], codes=[E.NONE]),
    create("assigned", ("new", -1, -1), assignments=[(0, [1]), (1, [1])], codes=[E.NONE]),
    create("assigned, and a number", ("new", 1, -1), assignments=[(0, [1])], codes=[E.INVALID_REQUEST]),
    create("assigned, and replicas", ("new", -1, 1), assignments=[(0, [1])], codes=[E.INVALID_REQUEST]),
    create("to nobody", ("new", -1, -1), assignments=[(0, [])], codes=[E.INVALID_REPLICA_ASSIGNMENT]),
    create("to another", ("new", -1, -1), assignments=[(0, [2])], codes=[E.INVALID_REPLICA_ASSIGNMENT]),
    create("to one twice", ("new", -1, -1), assignments=[(0, [1, 1])], codes=[E.INVALID_REPLICA_ASSIGNMENT]),
    create("not from 0", ("new", -1, -1), assignments=[(1, [1])], codes=[E.INVALID_REPLICA_ASSIGNMENT]),
    create("one twice", ("new", -1, -1), assignments=[(0, [1]), (0, [1])], codes=[E.INVALID_REPLICA_ASSIGNMENT]),
    create("with a gap", ("new", -1, -1), assignments=[(0, [1]), (2, [1])], codes=[E.INVALID_REPLICA_ASSIGNMENT]),
    create("no time", ("new", 1, 1), timeout_ms=0, codes=[E.REQUEST_TIMED_OUT]),
    create("nothing", codes=[]),
    create("an old version", ("new", -1, -1), version=2, codes=[E.NONE]),
    grow("fine", (THERE, 3), codes=[E.NONE]),
    grow("as many", (THERE, 1), codes=[E.INVALID_PARTITIONS]),
    grow("fewer", (THERE, 0), codes=[E.INVALID_PARTITIONS]),
    grow("unknown", ("nope", 3), codes=[E.UNKNOWN_TOPIC_OR_PARTITION]),
    grow("no name", ("", 3), codes=[E.UNKNOWN_TOPIC_OR_PARTITION]),
    grow("twice", (THERE, 3), (THERE, 4), codes=[E.INVALID_REQUEST]),
    grow("one of two", (THERE, 3), ("nope", 3), codes=[E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]),
    grow("assigned", (THERE, 2), assignments=[[1]], codes=[E.NONE]),
    grow("to another", (THERE, 2), assignments=[[2]], codes=[E.INVALID_REPLICA_ASSIGNMENT]),
    grow("to nobody", (THERE, 2), assignments=[[]], codes=[E.INVALID_REPLICA_ASSIGNMENT]),
    grow("too few assigned", (THERE, 3), assignments=[[1]], codes=[E.INVALID_REPLICA_ASSIGNMENT]),
    grow("none assigned", (THERE, 2), assignments=[], codes=[E.INVALID_REPLICA_ASSIGNMENT]),
    grow("too many assigned", (THERE, 2), assignments=[[1], [1]], codes=[E.INVALID_REPLICA_ASSIGNMENT]),
    grow("no time", (THERE, 2), timeout_ms=-1, codes=[E.REQUEST_TIMED_OUT]),
    grow(
        "too many at once",
        (THERE, 20_000),
        codes=[E.POLICY_VIOLATION],
        kafkas=[E.UNKNOWN_SERVER_ERROR],
        why="Kafka has a limit and no word for it",
    ),
    remove("unknown", ("nope", NO_ID), codes=[E.UNKNOWN_TOPIC_OR_PARTITION]),
    remove("an unknown id", (None, SOME_ID), codes=[E.UNKNOWN_TOPIC_ID]),
    remove("neither name nor id", (None, NO_ID), codes=[E.INVALID_REQUEST]),
    remove("both name and id", (THERE, SOME_ID), codes=[E.INVALID_REQUEST]),
    remove("twice", (THERE, NO_ID), (THERE, NO_ID), codes=[E.INVALID_REQUEST]),
    remove("no time", (THERE, NO_ID), timeout_ms=0, codes=[E.REQUEST_TIMED_OUT]),
    remove("nothing", codes=[]),
    list_resources("all", codes=[E.NONE]),
    list_resources("some", TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP, codes=[E.NONE]),
    list_resources("nothing that is", TOPIC, 0, codes=[E.UNSUPPORTED_VERSION]),
    list_resources("client metrics", codes=[E.NONE], version=0),
    change("fine", ("retention.ms", SET, "1000"), codes=[E.NONE]),
    change("blanks around it", ("retention.ms", SET, " 1000 "), codes=[E.NONE]),
    change("a sign", ("flush.messages", SET, "+5"), codes=[E.NONE]),
    change("not a number", ("retention.ms", SET, "abc"), codes=[E.INVALID_CONFIG]),
    change("a fraction", ("flush.messages", SET, "5.0"), codes=[E.INVALID_CONFIG]),
    change("Python's digits", ("flush.messages", SET, "1_000"), codes=[E.INVALID_CONFIG]),
    change("empty", ("retention.ms", SET, ""), codes=[E.INVALID_CONFIG]),
    change("null", ("retention.ms", SET, None), codes=[E.INVALID_REQUEST]),
    change("unknown", ("nosuch", SET, "1"), codes=[E.INVALID_CONFIG]),
    change("of Kafka 3", ("message.format.version", SET, "2.0"), codes=[E.INVALID_CONFIG]),
    change("back to the default", ("retention.ms", DELETE, None), codes=[E.NONE]),
    change("back from nowhere", ("flush.ms", DELETE, None), codes=[E.NONE]),
    change("back, unknown", ("nosuch", DELETE, None), codes=[E.NONE]),
    change("a list grows", ("cleanup.policy", APPEND, "compact"), codes=[E.NONE]),
    change("a list grows by what it cannot have", ("cleanup.policy", APPEND, "bad"), codes=[E.INVALID_CONFIG]),
    change("a list shrinks", ("cleanup.policy", SUBTRACT, "delete"), codes=[E.NONE]),
    change("no policy", ("cleanup.policy", SET, ""), codes=[E.NONE]),
    change("a number does not grow", ("retention.ms", APPEND, "1"), codes=[E.INVALID_CONFIG]),
    change("twice", ("flush.ms", SET, "1"), ("flush.ms", DELETE, None), codes=[E.INVALID_REQUEST]),
    change("a resource twice", ("flush.ms", SET, "1"), times=2, codes=[E.INVALID_REQUEST] * 2),
    change("one of two", ("flush.ms", SET, "1"), ("retention.ms", SET, "x"), codes=[E.INVALID_CONFIG]),
    change("nothing", codes=[E.NONE]),
    change("upper case", ("unclean.leader.election.enable", SET, "TRUE"), codes=[E.NONE]),
    change("a codec", ("compression.type", SET, "zstd"), codes=[E.NONE]),
    change("no codec", ("compression.type", SET, "bz2"), codes=[E.INVALID_CONFIG]),
    change("too high a level", ("compression.zstd.level", SET, "23"), codes=[E.INVALID_CONFIG]),
    change("gzip's own level", ("compression.gzip.level", SET, "-1"), codes=[E.NONE]),
    change("no level of gzip", ("compression.gzip.level", SET, "0"), codes=[E.INVALID_CONFIG]),
    change("no replica in sync", ("min.insync.replicas", SET, "0"), codes=[E.INVALID_CONFIG]),
    change("a negative time", ("message.timestamp.after.max.ms", SET, "-1"), codes=[E.INVALID_CONFIG]),
    change("no tiers", ("remote.storage.enable", SET, "true"), codes=[E.INVALID_CONFIG]),
    change("an unknown operation", ("flush.ms", 9, "1"), codes=[E.INVALID_REQUEST], kafkas=[-1], why="it stumbles"),
    change("a small segment", ("segment.bytes", SET, "1000"), codes=[0], kafkas=[40], why=OURS_IS_SMALLER),
    change("preallocation", ("preallocate", SET, "true"), codes=[40], kafkas=[0], why=NOT_THERE),
    change("tiers", ("local.retention.ms", SET, "5"), codes=[40], kafkas=[0], why=NOT_THERE),
    change("no topic", ("flush.ms", SET, "1"), of=(TOPIC, "nope"), codes=[E.UNKNOWN_TOPIC_OR_PARTITION]),
    change("nothing of no topic", of=(TOPIC, "nope"), codes=[E.UNKNOWN_TOPIC_OR_PARTITION]),
    change("no name", ("flush.ms", SET, "1"), of=(TOPIC, ""), codes=[E.INVALID_REQUEST]),
    change("no name of a topic", ("flush.ms", SET, "1"), of=(TOPIC, "a b"), codes=[E.INVALID_TOPIC_EXCEPTION]),
    change("the broker", ("log.retention.ms", SET, "10000"), of=(BROKER, NODE), codes=[E.NONE]),
    change("all brokers", ("log.retention.ms", SET, "10000"), of=(BROKER, ""), codes=[E.NONE]),
    change("a broker that keeps nothing", ("log.retention.ms", SET, "0"), of=(BROKER, ""), codes=[E.INVALID_REQUEST]),
    change("a wrong value of brokers", ("log.retention.ms", SET, "x"), of=(BROKER, ""), codes=[E.INVALID_REQUEST]),
    change("what is fixed", ("num.partitions", SET, "3"), of=(BROKER, NODE), codes=[E.INVALID_REQUEST]),
    change("what is fixed, for all", ("num.partitions", SET, "3"), of=(BROKER, ""), codes=[E.INVALID_REQUEST]),
    change("what is fixed, back", ("num.partitions", DELETE, None), of=(BROKER, NODE), codes=[E.NONE]),
    change("connections", ("max.connections", SET, "100"), of=(BROKER, ""), codes=[E.NONE]),
    change("fewer than none", ("max.connections", SET, "-1"), of=(BROKER, NODE), codes=[E.INVALID_REQUEST]),
    change("another broker", ("log.retention.ms", SET, "10000"), of=(BROKER, "2"), codes=[E.INVALID_REQUEST]),
    change("no broker", ("log.retention.ms", SET, "10000"), of=(BROKER, "x"), codes=[E.INVALID_REQUEST]),
    change(
        "unknown of brokers",
        ("no.such", SET, "1"),
        of=(BROKER, NODE),
        codes=[E.INVALID_REQUEST],
        kafkas=[E.NONE],
        why="Kafka may have plugins that know it",
    ),
    change("a level", ("root", SET, "WARN"), of=(LOGGER, NODE), codes=[E.NONE]),
    change("no level", ("root", SET, "LOUD"), of=(LOGGER, NODE), codes=[E.INVALID_CONFIG]),
    change("no logger", ("no.such", SET, "INFO"), of=(LOGGER, NODE), codes=[E.INVALID_CONFIG]),
    change("the root has one", ("root", DELETE, None), of=(LOGGER, NODE), codes=[E.INVALID_REQUEST]),
    change("a level does not grow", ("root", APPEND, "INFO"), of=(LOGGER, NODE), codes=[E.INVALID_REQUEST]),
    change("loggers elsewhere", ("root", SET, "INFO"), of=(LOGGER, "2"), codes=[E.INVALID_REQUEST]),
    change("loggers nowhere", ("root", SET, "INFO"), of=(LOGGER, ""), codes=[E.INVALID_REQUEST]),
    change("unknown of groups", ("nosuch", SET, "1"), of=(GROUP, "g"), codes=[E.INVALID_CONFIG]),
    change("no group", ("nosuch", SET, "1"), of=(GROUP, ""), codes=[E.INVALID_REQUEST]),
    change("unknown of metrics", ("nosuch", SET, "1"), of=(CLIENT_METRICS, "m"), codes=[E.INVALID_REQUEST]),
    change("nothing that is", ("nosuch", SET, "1"), of=(0, "x"), codes=[E.INVALID_REQUEST]),
    replace("fine", ("flush.ms", "17"), codes=[E.NONE]),
    replace("nothing", codes=[E.NONE]),
    replace("a wrong value", ("flush.ms", "x"), codes=[E.INVALID_CONFIG]),
    replace("null", ("flush.ms", None), codes=[E.INVALID_REQUEST]),
    replace("unknown", ("nosuch", "1"), codes=[E.INVALID_CONFIG]),
    replace("twice", ("flush.ms", "1"), ("flush.ms", "2"), codes=[E.INVALID_REQUEST]),
    replace("no topic", of=(TOPIC, "nope"), codes=[E.UNKNOWN_TOPIC_OR_PARTITION]),
    replace("no name", of=(TOPIC, ""), codes=[E.INVALID_REQUEST]),
    replace("the broker", ("log.retention.ms", "10000"), of=(BROKER, NODE), codes=[E.NONE]),
    replace("what is fixed", ("num.partitions", "2"), of=(BROKER, NODE), codes=[E.INVALID_REQUEST]),
    replace("loggers", ("root", "INFO"), of=(LOGGER, NODE), codes=[E.INVALID_REQUEST]),
    describe("a topic", (TOPIC, THERE), [E.NONE]),
    describe("no topic", (TOPIC, "nope"), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    describe("no name", (TOPIC, ""), [E.INVALID_TOPIC_EXCEPTION]),
    describe("a broker", (BROKER, NODE), [E.NONE]),
    describe("all brokers", (BROKER, ""), [E.NONE]),
    describe("another broker", (BROKER, "2"), [E.INVALID_REQUEST]),
    describe("no broker", (BROKER, "x"), [E.INVALID_REQUEST]),
    describe("loggers", (LOGGER, NODE), [E.NONE]),
    describe("loggers elsewhere", (LOGGER, "2"), [E.INVALID_REQUEST]),
    describe("loggers nowhere", (LOGGER, ""), [E.INVALID_REQUEST]),
    describe("a group", (GROUP, "g"), [E.NONE]),
    describe("no group", (GROUP, ""), [E.INVALID_REQUEST]),
    describe("nothing that is", (0, "x"), [E.INVALID_REQUEST]),
]
