"""Requests about the cluster as a whole, good and bad, and the error codes they get: of our broker and of Apache Kafka
alike. None of them changes anything; `there` is a topic with one partition."""

from collections.abc import Sequence
from typing import Any

from pylog.broker_lite.protocol import (
    alter_client_quotas,
    alter_replica_log_dirs,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_quorum,
    describe_user_scram_credentials,
    list_transactions,
    update_features,
)
from pylog.broker_lite.protocol.errors import ErrorCode as E
from pylog.broker_lite.protocol.incremental_alter_configs import APPEND, DELETE, SET
from tests.support.admin_requests import GROUP, NOT_THERE, THERE, Case, change, replace

FEATURE_REFUSED = [E.INVALID_UPDATE_VERSION]
NEW_LEVELS: list[int] = []  # one answer for all of them, and no error
UPGRADE, SAFE, UNSAFE = update_features.UPGRADE, update_features.SAFE_DOWNGRADE, update_features.UNSAFE_DOWNGRADE
FEWER_LEVELS = "a level that is not there cannot be had"


def update(name: str, *updates: tuple[str, int, int], codes: Sequence[int], **case: Any) -> Case:
    asked = [update_features.FeatureUpdate(feature, level, False, kind) for feature, level, kind in updates]
    request = update_features.UpdateFeaturesRequest(5000, asked, validate_only=True)
    return Case(f"features: {name}", update_features.SPEC, request, list(codes), **case)


def quorum(name: str, *asked: tuple[str, list[int]], codes: Sequence[int]) -> Case:
    topics = [
        describe_quorum.DescribeQuorumTopic(topic, [describe_quorum.DescribeQuorumPartition(one) for one in partitions])
        for topic, partitions in asked
    ]
    request = describe_quorum.DescribeQuorumRequest(topics)
    return Case(f"quorum: {name}", describe_quorum.SPEC, request, list(codes))


def move(name: str, *asked: tuple[str, str, list[int]], codes: Sequence[int]) -> Case:
    dirs = [
        alter_replica_log_dirs.AlterReplicaLogDir(
            path, [alter_replica_log_dirs.AlterReplicaLogDirTopic(topic, partitions)]
        )
        for path, topic, partitions in asked
    ]
    request = alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs)
    return Case(f"move: {name}", alter_replica_log_dirs.SPEC, request, list(codes))


def transactions(name: str, *filters: Any, codes: Sequence[int]) -> Case:
    request = list_transactions.ListTransactionsRequest(*filters)
    return Case(f"transactions: {name}", list_transactions.SPEC, request, list(codes))


def users(name: str, *names: str, codes: Sequence[int]) -> Case:
    asked = [describe_user_scram_credentials.UserName(one) for one in names]
    request = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(asked)
    return Case(f"users: {name}", describe_user_scram_credentials.SPEC, request, list(codes))


Part = tuple[str, str | None]


def quota(
    name: str, entity: Sequence[Part], *operations: tuple[str, float, bool], codes: Sequence[int], **case: Any
) -> Case:
    parts = [alter_client_quotas.QuotaEntityPart(*part) for part in entity]
    changes = [alter_client_quotas.QuotaChange(*one) for one in operations]
    entry = alter_client_quotas.AlterClientQuotasEntry(parts, changes)
    request = alter_client_quotas.AlterClientQuotasRequest([entry], validate_only=True)
    return Case(f"quotas: {name}", alter_client_quotas.SPEC, request, list(codes), **case)


def quotas_of(name: str, *filters: tuple[str, int, str | None], codes: Sequence[int]) -> Case:
    asked = [describe_client_quotas.QuotaFilter(*one) for one in filters]
    request = describe_client_quotas.DescribeClientQuotasRequest(asked)
    return Case(f"quotas of: {name}", describe_client_quotas.SPEC, request, list(codes))


def group_bounds(name: str, low: int, high: int) -> list[Case]:
    codes = {low: E.NONE, high: E.NONE, low - 1: E.INVALID_CONFIG, high + 1: E.INVALID_CONFIG}
    return [
        change(f"a group's {name}={value}", (name, SET, str(value)), of=A_GROUP, codes=[code])
        for value, code in codes.items()
    ]


CLIENT = [("client-id", "c")]
WRITTEN = "producer_byte_rate"
BAD = [E.INVALID_REQUEST]
A_GROUP = (GROUP, "some group")
METADATA = "__cluster_metadata"
UNKNOWN = E.UNKNOWN_TOPIC_OR_PARTITION
DISABLED = E.SECURITY_DISABLED

CLUSTER_CASES = [
    update("as it is", ("metadata.version", 30, UPGRADE), codes=NEW_LEVELS),
    update("down to what it is here", ("group.version", 0, SAFE), codes=NEW_LEVELS),
    update("none", codes=NEW_LEVELS),
    update("unknown", ("nosuch", 1, UPGRADE), codes=FEATURE_REFUSED),
    update("one of two is unknown", ("group.version", 0, SAFE), ("nosuch", 1, UPGRADE), codes=FEATURE_REFUSED),
    update("no name", ("", 1, UPGRADE), codes=FEATURE_REFUSED),
    update("below 0", ("group.version", -1, UPGRADE), codes=FEATURE_REFUSED),
    update("too high", ("transaction.version", 9, UPGRADE), codes=FEATURE_REFUSED),
    update("lower", ("metadata.version", 20, UPGRADE), codes=FEATURE_REFUSED),
    update("lower, safely", ("metadata.version", 20, SAFE), codes=FEATURE_REFUSED),
    update("lower, unsafely", ("metadata.version", 20, UNSAFE), codes=FEATURE_REFUSED),
    update("no type", ("group.version", 0, 0), codes=FEATURE_REFUSED),
    update("unknown type", ("group.version", 0, 9), codes=FEATURE_REFUSED),
    update("newer groups", ("group.version", 1, UPGRADE), codes=FEATURE_REFUSED, kafkas=NEW_LEVELS, why=FEWER_LEVELS),
    update(
        "newer transactions",
        ("transaction.version", 2, UPGRADE),
        codes=FEATURE_REFUSED,
        kafkas=NEW_LEVELS,
        why=FEWER_LEVELS,
    ),
    quorum("the metadata's", (METADATA, [0]), codes=[E.NONE]),
    quorum("of another topic", (THERE, [0]), codes=[UNKNOWN]),
    quorum("of another partition", (METADATA, [1]), codes=[UNKNOWN]),
    quorum("of two partitions", (METADATA, [0, 1]), codes=[UNKNOWN, UNKNOWN]),
    quorum("of two topics", (METADATA, [0]), (THERE, [0]), codes=[UNKNOWN, UNKNOWN]),
    quorum("of nothing", codes=[]),
    move("nowhere", ("/nowhere", THERE, [0]), codes=[E.LOG_DIR_NOT_FOUND]),
    move("not from the root", ("nowhere", THERE, [0]), codes=[E.LOG_DIR_NOT_FOUND]),
    move("nothing nowhere", ("/nowhere", "nope", [0]), codes=[E.LOG_DIR_NOT_FOUND]),
    move("one twice", ("/nowhere", THERE, [0, 0]), codes=[E.LOG_DIR_NOT_FOUND]),
    move("nothing", codes=[]),
    Case(
        "acls: described",
        describe_acls.SPEC,
        describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1),
        [DISABLED],
    ),
    Case(
        "acls: made",
        create_acls.SPEC,
        create_acls.CreateAclsRequest([create_acls.AclCreation(2, "t", 3, who, "*", 3, 3) for who in ("User:a", "b")]),
        [DISABLED, DISABLED],
    ),
    Case("acls: none made", create_acls.SPEC, create_acls.CreateAclsRequest([]), []),
    Case(
        "acls: deleted",
        delete_acls.SPEC,
        delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsFilter(1, None, 1, None, None, 1, 1)]),
        [DISABLED],
    ),
    transactions("all", codes=[E.NONE]),
    transactions("of unknown states", ["Ongoing", "nosuch"], codes=[E.NONE]),
    transactions("of a producer", [], [1], codes=[E.NONE]),
    transactions("by a pattern", [], [], -1, "a.*", codes=[E.NONE]),
    transactions("by no pattern", [], [], -1, "(", codes=[E.INVALID_REGULAR_EXPRESSION]),
    users("all", codes=[]),
    users("unknown", "a", "b", codes=[E.RESOURCE_NOT_FOUND, E.RESOURCE_NOT_FOUND]),
    users("one twice", "a", "b", "b", codes=[E.RESOURCE_NOT_FOUND, E.DUPLICATE_RESOURCE]),
    *(
        case
        for kind in ("consumer", "share", "streams")
        for case in (
            *group_bounds(f"{kind}.session.timeout.ms", 45_000, 60_000),
            *group_bounds(f"{kind}.heartbeat.interval.ms", 5_000, 15_000),
            *group_bounds(f"{kind}.assignment.interval.ms", 0, 15_000),
        )
    ),
    *group_bounds("share.record.lock.duration.ms", 15_000, 60_000),
    *group_bounds("share.delivery.count.limit", 2, 10),
    *group_bounds("share.partition.max.record.locks", 100, 4_000),
    *group_bounds("streams.num.standby.replicas", 0, 2),
    *group_bounds("streams.initial.rebalance.delay.ms", 0, (1 << 31) - 1),
    *(
        change(f"a group's {name}={value}", (name, SET, value), of=A_GROUP, codes=[code])
        for name, value, code in (
            ("share.isolation.level", "read_committed", E.NONE),
            ("share.isolation.level", "READ_COMMITTED", E.INVALID_CONFIG),
            ("share.renew.acknowledge.enable", "FALSE", E.NONE),
            ("share.renew.acknowledge.enable", "no", E.INVALID_CONFIG),
            ("share.auto.offset.reset", "earliest", E.NONE),
            ("share.auto.offset.reset", "none", E.INVALID_CONFIG),
            ("share.auto.offset.reset", "by_duration:P1DT2H3M4.5S", E.NONE),
            ("share.auto.offset.reset", "by_duration:pt0s", E.NONE),
            ("share.auto.offset.reset", "by_duration:+PT1H-30M", E.NONE),
            ("share.auto.offset.reset", "by_duration:-PT1H", E.INVALID_CONFIG),
            ("share.auto.offset.reset", "by_duration:-PT-1H", E.NONE),
            ("share.auto.offset.reset", "by_duration:PT-1H", E.INVALID_CONFIG),
            ("share.auto.offset.reset", "by_duration:PT", E.INVALID_CONFIG),
            ("share.auto.offset.reset", "by_duration:P", E.INVALID_CONFIG),
            ("share.auto.offset.reset", "by_duration:P1DT", E.INVALID_CONFIG),
            ("share.auto.offset.reset", "by_duration:P1Y", E.INVALID_CONFIG),
            ("share.auto.offset.reset", "by_duration:PT1.5H", E.INVALID_CONFIG),
            ("share.auto.offset.reset", "by_duration: PT1H", E.INVALID_CONFIG),
            ("share.auto.offset.reset", "by_duration:PT0.1234567891S", E.INVALID_CONFIG),
            ("consumer.session.timeout.ms", "x", E.INVALID_CONFIG),
        )
    ),
    change("null of a group", ("consumer.session.timeout.ms", SET, None), of=A_GROUP, codes=[E.INVALID_REQUEST]),
    change("back, of a group", ("consumer.session.timeout.ms", DELETE, None), of=A_GROUP, codes=[E.NONE]),
    change("back, unknown of a group", ("nosuch", DELETE, None), of=A_GROUP, codes=[E.NONE]),
    change("a group's number does not grow", ("share.delivery.count.limit", APPEND, "1"), of=A_GROUP, codes=[40]),
    replace("of a group", ("share.isolation.level", "read_committed"), of=A_GROUP, codes=[E.NONE]),
    replace("unknown of a group", ("nosuch", "1"), of=A_GROUP, codes=[E.INVALID_CONFIG]),
    quota("of a client", CLIENT, (WRITTEN, 1024.0, False), codes=[E.NONE]),
    quota("of a user's clients", [("client-id", None), ("user", "u")], (WRITTEN, 7.0, False), codes=[E.NONE]),
    quota("of nobody", [], (WRITTEN, 1.0, False), codes=BAD),
    quota("of an unknown type", [("x", "c")], (WRITTEN, 1.0, False), codes=BAD),
    quota("of no type", [("", "c")], (WRITTEN, 1.0, False), codes=BAD),
    quota("of no name", [("user", "")], (WRITTEN, 1.0, False), codes=BAD),
    quota("of a type twice", [("user", "a"), ("user", "b")], (WRITTEN, 1.0, False), codes=[E.NONE]),
    quota("nothing at all", CLIENT, (WRITTEN, 0.0, False), codes=BAD),
    quota("less than nothing", CLIENT, (WRITTEN, -1.0, False), codes=BAD),
    quota("half a byte", CLIENT, (WRITTEN, 0.5, False), codes=BAD),
    quota("a byte and a half", CLIENT, (WRITTEN, 1.5, False), codes=BAD),
    quota("nearly a whole number", CLIENT, (WRITTEN, 1.0000001, False), codes=[E.NONE]),
    quota("without end", CLIENT, (WRITTEN, float("inf"), False), codes=BAD),
    quota("too much", CLIENT, (WRITTEN, 1e19, False), codes=BAD),
    quota(
        "no number", CLIENT, (WRITTEN, float("nan"), False), codes=BAD, kafkas=[0], why="nothing could be kept to it"
    ),
    quota("unknown", CLIENT, ("nosuch", 1.0, False), codes=BAD),
    quota("unknown, away", CLIENT, ("nosuch", 1.0, True), codes=[E.NONE]),
    quota("away from nowhere", CLIENT, (WRITTEN, 0.0, True), codes=[E.NONE]),
    quota("twice", CLIENT, (WRITTEN, 1.0, False), (WRITTEN, 2.0, False), codes=BAD),
    quota("no change", CLIENT, codes=[E.NONE]),
    quota("of an address, bytes", [("ip", "127.0.0.1")], (WRITTEN, 5.0, False), codes=BAD),
    quota("of a user, connections", [("user", "a")], ("connection_creation_rate", 5.0, False), codes=BAD),
    quota("of time", CLIENT, ("request_percentage", 12.5, False), codes=BAD, kafkas=[0], why=NOT_THERE),
    quota("of changes", CLIENT, ("controller_mutation_rate", 5.0, False), codes=BAD, kafkas=[0], why=NOT_THERE),
    quotas_of("all", codes=[]),
    quotas_of("one", ("client-id", 0, "c"), codes=[]),
    quotas_of("the default", ("client-id", 1, None), codes=[]),
    quotas_of("any", ("client-id", 2, None), ("user", 2, None), codes=[]),
    quotas_of("addresses", ("ip", 2, None), codes=[]),
    quotas_of("addresses of users", ("ip", 2, None), ("user", 2, None), codes=BAD),
    quotas_of("an unknown type", ("x", 0, "c"), codes=[E.UNSUPPORTED_VERSION]),
    quotas_of("no type", ("", 0, "c"), codes=BAD),
    quotas_of("exactly nobody", ("user", 0, None), codes=BAD),
    quotas_of("a default with a name", ("user", 1, "c"), codes=BAD),
    quotas_of("any with a name", ("user", 2, "c"), codes=BAD),
    quotas_of("an unknown match", ("user", 9, None), codes=BAD),
    quotas_of("a type twice", ("user", 0, "a"), ("user", 1, None), codes=BAD),
]
