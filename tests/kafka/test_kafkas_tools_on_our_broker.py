"""Kafka's own command line tools do their work on our broker, and say what they say of a real Kafka.

Every test runs on both: what is expected of ours is what Kafka's own broker makes the tools say."""

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import pylog
from tests.support.apache_kafka import ApacheKafka
from tests.support.foreign_clients import CLIENTS, ForeignRecord
from tests.support.group_members import Wanted, members, until_shared
from tests.support.java_tools import (
    BROKER_API_VERSIONS,
    CLUSTER,
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    CONSUMER_GROUPS,
    CONSUMER_PERFORMANCE,
    DELETE_RECORDS,
    END_TO_END_LATENCY,
    GET_OFFSETS,
    GROUPS,
    LOG_DIRS,
    PRODUCER_PERFORMANCE,
    TOPICS,
    TRANSACTIONS,
    VERIFIABLE_CONSUMER,
    VERIFIABLE_PRODUCER,
    JavaToolFailed,
    columns,
    run_kafka_tool,
)

NOW_MS = 1_700_000_000_000
FOREVER = {"log.retention.ms": "-1", "group.initial.rebalance.delay.ms": "0"}  # records here are old
USED_APIS = [  # what clients and tools need of a single node; transactions come later
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "DescribeConfigs",
    "AlterConfigs",
    "DescribeLogDirs",
    "CreatePartitions",
    "DeleteGroups",
    "IncrementalAlterConfigs",
    "OffsetDelete",
    "DescribeCluster",
    "DescribeProducers",
]


@pytest.fixture(scope="module", params=["pylog", "Apache Kafka"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "pylog":
        with pylog.Broker(config=FOREVER) as ours:
            yield ours.bootstrap_servers
    else:
        with ApacheKafka(FOREVER) as theirs:
            yield theirs.bootstrap_servers


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def tool(name: str, servers: str, *arguments: str, said: str = "") -> str:
    return run_kafka_tool(name, "--bootstrap-server", servers, *arguments, said=said)


def make(servers: str, topic: str, partitions: int = 1, **config: str) -> None:
    CLIENTS["confluent-kafka"].create_topic(
        servers, topic, partitions, config={name.replace("_", "."): value for name, value in config.items()}
    )


def write(servers: str, topic: str, count: int, partition: int = 0) -> None:
    records = [ForeignRecord(None, b"%d" % number, (), NOW_MS + 1000 * number) for number in range(count)]
    CLIENTS["confluent-kafka"].produce(servers, topic, records, partition=partition)


def group_rows(servers: str, group: str, *arguments: str) -> list[dict[str, str]]:
    return columns(tool(CONSUMER_GROUPS, servers, "--group", group, *arguments))


# -- topics and their configs


def test_topics_are_made_listed_described_grown_and_deleted(servers: str, topic: str) -> None:
    made = tool(TOPICS, servers, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=12345")
    assert f"Created topic {topic}." in made
    assert topic in tool(TOPICS, servers, "--list").split()
    described = tool(TOPICS, servers, "--describe", "--topic", topic)
    assert re.search(rf"Topic: {topic}\tTopicId: [\w-]{{22}}\tPartitionCount: 2\tReplicationFactor: 1\t", described)
    assert "retention.ms=12345" in described
    assert len(re.findall(r"Leader: (\d+)\tReplicas: \1\tIsr: \1", described)) == 2
    tool(TOPICS, servers, "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in tool(TOPICS, servers, "--describe", "--topic", topic)
    assert topic in tool(TOPICS, servers, "--describe", "--topics-with-overrides")
    for unwell in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert topic not in tool(TOPICS, servers, "--describe", unwell)
    tool(TOPICS, servers, "--delete", "--topic", topic)
    assert topic not in tool(TOPICS, servers, "--list").split()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        pytest.param(("--create", "--topic", "{there}"), "TopicExistsException", id="made twice"),
        pytest.param(("--create", "--topic", "a/b"), "InvalidTopicException", id="an illegal name"),
        pytest.param(
            ("--create", "--topic", "{new}", "--replication-factor", "2"),
            "InvalidReplicationFactorException",
            id="more replicas than nodes",
        ),
        pytest.param(
            ("--alter", "--topic", "{there}", "--partitions", "1"), "InvalidPartitionsException", id="fewer partitions"
        ),
    ],
)
def test_what_kafka_refuses_of_topics_is_refused(
    servers: str, topic: str, arguments: tuple[str, ...], why: str
) -> None:
    make(servers, topic, 2)
    with pytest.raises(JavaToolFailed, match=why):
        tool(TOPICS, servers, *(one.format(there=topic, new=f"{topic}-new") for one in arguments))


def test_configs_of_a_topic_are_set_shown_and_taken_back(servers: str, topic: str) -> None:
    make(servers, topic)
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    tool(CONFIGS, servers, *of_topic, "--alter", "--add-config", "retention.ms=4321,cleanup.policy=[compact,delete]")
    described = tool(CONFIGS, servers, *of_topic, "--describe")
    assert "retention.ms=4321 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=4321" in described
    assert "cleanup.policy=compact,delete sensitive=false" in described
    tool(CONFIGS, servers, *of_topic, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=" not in tool(CONFIGS, servers, *of_topic, "--describe")
    everything = tool(CONFIGS, servers, *of_topic, "--describe", "--all")
    assert "max.message.bytes=1048588 sensitive=false" in everything


@pytest.mark.parametrize("wrong", ["min.insync.replicas=0", "retention.ms=much", "no.such.config=1"])
def test_configs_that_kafka_refuses_are_refused(servers: str, topic: str, wrong: str) -> None:
    make(servers, topic)
    arguments = ("--entity-type", "topics", "--entity-name", topic, "--alter", "--add-config", wrong)
    with pytest.raises(JavaToolFailed, match="InvalidConfigurationException"):
        tool(CONFIGS, servers, *arguments)


def test_configs_of_brokers_are_set_shown_and_taken_back(servers: str) -> None:
    node = str(next(iter(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30).brokers)))
    of_all, of_one = (
        ("--entity-type", "brokers", "--entity-default"),
        ("--entity-type", "brokers", "--entity-name", node),
    )
    tool(CONFIGS, servers, *of_all, "--alter", "--add-config", "log.cleaner.backoff.ms=15001")
    assert "log.cleaner.backoff.ms=15001 sensitive=false" in tool(CONFIGS, servers, *of_all, "--describe")
    everything = tool(CONFIGS, servers, *of_one, "--describe", "--all")
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.backoff.ms=15001" in everything
    assert "num.partitions=1 sensitive=false" in everything
    tool(CONFIGS, servers, *of_all, "--alter", "--delete-config", "log.cleaner.backoff.ms")
    assert "15001" not in tool(CONFIGS, servers, *of_all, "--describe")
    with pytest.raises(JavaToolFailed, match=r"log\.dirs"):  # read when a broker starts, and never again
        tool(CONFIGS, servers, *of_one, "--alter", "--add-config", "log.dirs=/elsewhere")


# -- records


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_console_consumer_shows_what_the_console_producer_was_told(servers: str, topic: str, codec: str) -> None:
    make(servers, topic)
    lines = "h1:x\tk1\tone\nh2:y\tk2\ttwo\nh3:z\tk3\tgrößer\n"
    properties = ("parse.key=true", "parse.headers=true", "key.separator=\t", "headers.delimiter=\t")
    told = [argument for one in properties for argument in ("--reader-property", one)]
    tool(CONSOLE_PRODUCER, servers, "--topic", topic, "--compression-codec", codec, *told, said=lines)
    shown = tool(
        CONSOLE_CONSUMER,
        servers,
        *("--topic", topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "60000"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"),
        *("--formatter-property", "print.offset=true", "--formatter-property", "print.partition=true"),
    )
    wanted = ["h1:x\tk1\tone", "h2:y\tk2\ttwo", "h3:z\tk3\tgrößer"]
    assert shown.splitlines() == [f"Partition:0\tOffset:{number}\t{line}" for number, line in enumerate(wanted)]


def test_offsets_are_found_by_their_special_times_and_by_time(servers: str, topic: str) -> None:
    make(servers, topic, 2)
    write(servers, topic, 10)
    for time, wanted in {
        "latest": ["0:10", "1:0"],
        "earliest": ["0:0", "1:0"],
        "max-timestamp": ["0:9", "1:"],
        "-4": ["0:0", "1:0"],
        "-5": ["0:", "1:"],
        str(NOW_MS + 3500): ["0:4", "1:"],
        str(NOW_MS + 99_000): ["0:", "1:"],
    }.items():
        found = tool(GET_OFFSETS, servers, "--topic", topic, "--time", time)
        shown = {f"{topic}:{one}" for one in wanted if not one.endswith(":")}
        assert set(found.split()) - {f"{topic}:0:", f"{topic}:1:"} == shown, time


def test_records_are_deleted_up_to_an_offset(servers: str, topic: str, tmp_path: Path) -> None:
    make(servers, topic)
    write(servers, topic, 10)

    def delete(offset: int) -> str:
        wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": offset}], "version": 1}
        (tmp_path / "offsets.json").write_text(json.dumps(wanted))
        return tool(DELETE_RECORDS, servers, "--offset-json-file", str(tmp_path / "offsets.json"))

    assert f"partition: {topic}-0\tlow_watermark: 4" in delete(4)
    assert f"{topic}:0:4" in tool(GET_OFFSETS, servers, "--topic", topic, "--time", "earliest")
    assert "OffsetOutOfRangeException" in delete(11)
    assert f"partition: {topic}-0\tlow_watermark: 10" in delete(-1)
    assert CLIENTS["confluent-kafka"].range(servers, topic) == (10, 10)


def test_log_dirs_tell_the_bytes_of_every_partition(servers: str, topic: str) -> None:
    make(servers, topic, 2)
    write(servers, topic, 10, partition=1)
    shown = tool(LOG_DIRS, servers, "--describe", "--topic-list", topic)
    told = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))
    (directory,) = told["brokers"][0]["logDirs"]
    assert directory["error"] is None
    sizes = {one["partition"]: one["size"] for one in directory["partitions"]}
    assert sizes.keys() == {f"{topic}-0", f"{topic}-1"}
    assert sizes[f"{topic}-0"] == 0
    assert 100 < sizes[f"{topic}-1"] < 1000
    assert {one["offsetLag"] for one in directory["partitions"]} == {0}


# -- groups


def test_a_group_is_described_reset_and_deleted(servers: str, topic: str) -> None:
    make(servers, topic, 2)
    write(servers, topic, 10)
    group = f"group-of-{topic}"
    read = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "6", "--timeout-ms", "60000")
    assert tool(CONSOLE_CONSUMER, servers, *read).split() == [f"{number}" for number in range(6)]
    assert group in tool(CONSUMER_GROUPS, servers, "--list").split()
    by_partition = {row["PARTITION"]: row for row in group_rows(servers, group, "--describe")}
    assert [by_partition["0"][name] for name in ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")] == ["6", "10", "4"]

    def reset(*how: str) -> list[str]:
        rows = group_rows(servers, group, "--reset-offsets", "--topic", f"{topic}:0", *how)
        return [row["NEW-OFFSET"] for row in rows]

    def current() -> str:
        rows = group_rows(servers, group, "--describe", "--offsets")
        return next(row["CURRENT-OFFSET"] for row in rows if row["PARTITION"] == "0")

    assert reset("--to-earliest", "--dry-run") == ["0"]
    assert current() == "6"
    assert reset("--shift-by", "-2", "--execute") == ["4"]
    assert current() == "4"
    assert reset("--to-datetime", "2023-11-14T22:13:27.500", "--execute") == ["8"]
    assert reset("--to-latest", "--execute") == ["10"]
    assert reset("--to-offset", "99", "--execute") == ["10"]  # the tool asks for the end, and stays below it
    tool(CONSUMER_GROUPS, servers, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert all(row["PARTITION"] != "0" for row in group_rows(servers, group, "--describe"))
    tool(CONSUMER_GROUPS, servers, "--delete", "--group", group)
    assert group not in tool(CONSUMER_GROUPS, servers, "--list").split()


def test_a_group_with_members_is_described_and_not_reset(servers: str, topic: str) -> None:
    make(servers, topic, 4)
    write(servers, topic, 3)
    group = f"group-of-{topic}"
    wanted = Wanted("confluent-kafka", servers, group, topic, "roundrobin")
    with members(wanted, wanted) as both:
        until_shared(both, 4)
        state = group_rows(servers, group, "--describe", "--state")[0]
        assert "Stable" in state.values()
        assert "roundrobin" in state.values()
        shown = group_rows(servers, group, "--describe", "--members", "--verbose")
        assert [row["#PARTITIONS"] for row in shown] == ["2", "2"]
        assert {row["HOST"] for row in shown} == {"/127.0.0.1"}
        refused = tool(CONSUMER_GROUPS, servers, "--reset-offsets", "--group", group, "--all-topics", "--to-earliest")
        assert "can only be reset if the group" in refused
        assert "GroupNotEmptyException" in tool(CONSUMER_GROUPS, servers, "--delete", "--group", group)
        listed = columns(tool(GROUPS, servers, "--list"))
        assert {"GROUP": group, "TYPE": "Classic", "PROTOCOL": "consumer"} in listed
        by_state = columns(tool(CONSUMER_GROUPS, servers, "--list", "--state", "stable"))
        assert [row["STATE"] for row in by_state if row["GROUP"] == group] == ["Stable"]


def test_of_a_group_that_is_not_there_the_tool_says_so(servers: str) -> None:
    shown = tool(CONSUMER_GROUPS, servers, "--describe", "--group", "nobody")
    assert "GroupIdNotFoundException: Group nobody not found." in shown


# -- the broker


def test_every_api_that_tools_need_is_usable(servers: str) -> None:
    shown = tool(BROKER_API_VERSIONS, servers)
    for name in USED_APIS:
        assert re.search(rf"^\t{name}\(\d+\): \d+( to \d+)? \[usable: \d+\]", shown, re.MULTILINE), name


def test_the_cluster_tells_its_id_and_its_endpoints(servers: str) -> None:
    assert re.search(r"Cluster ID: [\w-]{22}", run_kafka_tool(CLUSTER, "cluster-id", "--bootstrap-server", servers))
    listed = run_kafka_tool(CLUSTER, "list-endpoints", "--bootstrap-server", servers)
    assert servers.partition(":")[0] in listed
    assert servers.rpartition(":")[2] in listed


def test_producers_of_a_partition_are_described(servers: str, topic: str) -> None:
    make(servers, topic)
    written = ("--topic", topic, "--num-records", "5", "--record-size", "10", "--throughput", "-1")
    tool(PRODUCER_PERFORMANCE, servers, *written)
    shown = tool(TRANSACTIONS, servers, "describe-producers", "--topic", topic, "--partition", "0")
    (row,) = [line.split() for line in shown.splitlines() if line[:1].isdigit()]
    assert row[1] == "0"  # its epoch
    assert row[3] == "4"  # its last sequence number


# -- loads


def test_what_the_verifiable_producer_wrote_the_verifiable_consumer_reads(servers: str, topic: str) -> None:
    make(servers, topic, 3)
    said = tool(VERIFIABLE_PRODUCER, servers, "--topic", topic, "--max-messages", "300", "--acks", "-1")
    events = [json.loads(line) for line in said.splitlines()]
    acknowledged = [int(one["value"]) for one in events if one["name"] == "producer_send_success"]
    assert sorted(acknowledged) == list(range(300))
    said = tool(
        VERIFIABLE_CONSUMER,
        servers,
        *("--topic", topic, "--group-id", f"group-of-{topic}", "--max-messages", "300", "--reset-policy", "earliest"),
        "--verbose",
    )
    events = [json.loads(line) for line in said.splitlines()]
    read = [int(one["value"]) for one in events if one["name"] == "record_data"]
    assert sorted(read) == list(range(300))
    committed = [one for one in events if one["name"] == "offsets_committed"]
    assert committed[-1]["success"]
    assert sum(one["offset"] for one in committed[-1]["offsets"]) <= 300


def test_the_performance_tools_come_to_an_end(servers: str, topic: str) -> None:
    make(servers, topic, 2)
    written = tool(
        PRODUCER_PERFORMANCE,
        servers,
        *("--topic", topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
    )
    assert "20000 records sent" in written
    read = tool(CONSUMER_PERFORMANCE, servers, "--topic", topic, "--num-records", "20000", "--hide-header")
    assert read.split(",")[4].strip() == "20000"
    latency = ("--topic", topic, "--num-records", "50", "--producer-acks", "all", "--record-size", "10")
    assert "Percentiles" in tool(END_TO_END_LATENCY, servers, *latency)
