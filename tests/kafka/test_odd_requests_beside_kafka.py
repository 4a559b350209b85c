"""The same odd requests about records, to a real Kafka and to us: the same error codes, and the same answers."""

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

import pylog
from pylog.broker_lite.protocol import (
    alter_partition_reassignments,
    api_versions,
    create_topics,
    delete_records,
    describe_cluster,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    find_coordinator,
    init_producer_id,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.fetch import FetchPartition
from pylog.storage.batch import HEADER_BYTES, pack_header, read_header
from pylog.storage.codecs import GZIP, ZSTD
from pylog.storage.records import Record, encode_batch
from tests.support.apache_kafka import ApacheKafka
from tests.support.data_requests import read, send, topic_id_of
from tests.support.wire_requests import ask

NOW_MS = int(time.time() * 1000)
HOURS_MS = 2 * 3600 * 1000
ID_OF_NOBODY = UUID(int=12345)
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "small": {"max.message.bytes": "200"},
    "unfolded": {"compression.type": "uncompressed", "max.message.bytes": "300"},
    "zstd": {"compression.type": "zstd"},
    "not-old": {"message.timestamp.before.max.ms": "1000"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "read": {},
    "cut": {},
    "idempotent": {},
}


@pytest.fixture(scope="module")
def sides() -> Iterator[list[str]]:
    """Kafka, and us: the same topics with the same records."""
    with ApacheKafka({"offsets.topic.num.partitions": "1"}) as kafka, pylog.Broker() as ours:
        servers = [kafka.bootstrap_servers, ours.bootstrap_servers]
        for side in servers:
            wanted = [
                create_topics.CreatableTopic(
                    name, 2, 1, configs=[create_topics.CreatableTopicConfig(*pair) for pair in configs.items()]
                )
                for name, configs in TOPICS.items()
            ]
            request = create_topics.CreateTopicsRequest(wanted, timeout_ms=30_000)
            assert {topic.error_code for topic in ask(side, create_topics.SPEC, request).topics} == {0}
            wait_for_leaders(side)
            for late in range(5):
                sent = send(side, "read", batch((NOW_MS + late, b"v"), (NOW_MS - late, b"w")))
                assert sent is not None
                assert sent.error_code == 0
                send(side, "cut", batch((NOW_MS, b"v"), (NOW_MS, b"w")))
        yield servers


def wait_for_leaders(side: str) -> None:
    """A topic that Kafka has made is not there at once."""
    deadline = time.monotonic() + 60
    wanted = [FetchPartition(topic, index, 0, 1) for topic in TOPICS for index in (0, 1)]
    while any(one.error_code for one in read(side, wanted).partitions):
        assert time.monotonic() < deadline


def batch(*records: tuple[int, bytes], key: bytes | None = b"k", codec: int = 0, **header: int) -> bytearray:
    """Of (timestamp, value); the header says what it is told to."""
    out = encode_batch([Record(index, *(at, key, value)) for index, (at, value) in enumerate(records)], codec=codec)
    if header:
        pack_header(out, 0, read_header(out)._replace(**header))
    return out


def damaged(data: bytearray) -> bytearray:
    data[HEADER_BYTES + 2] ^= 1
    return data


def old_format() -> bytearray:
    data = batch((NOW_MS, b"v"))
    data[16] = 1
    return data


def idempotent(sequence: int, *, producer: int = 4711, epoch: int = 0, count: int = 1) -> bytearray:
    records = [(NOW_MS, b"v")] * count
    return batch(*records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


ONE = batch((NOW_MS, b"v"))
LATE, EARLY = batch((NOW_MS + HOURS_MS, b"v")), batch((NOW_MS - HOURS_MS, b"v"))

PRODUCE: list[Any] = [
    pytest.param("plain", ONE, {}, id="a good batch"),
    pytest.param("plain", ONE, {"acks": 2}, id="acks that cannot be"),
    pytest.param("nowhere", ONE, {}, id="no such topic"),
    pytest.param("plain", ONE, {"partition": 7}, id="no such partition"),
    pytest.param("plain", ONE, {"partition": -1}, id="a negative partition"),
    pytest.param(ID_OF_NOBODY.bytes, ONE, {"version": 13}, id="an id that no topic has"),
    pytest.param(bytes(16), ONE, {"version": 13}, id="no id"),
    pytest.param("small", batch((NOW_MS, b"v" * 300)), {}, id="too large"),
    pytest.param("unfolded", batch((NOW_MS, b"v" * 3000), codec=GZIP), {}, id="too large when it is unfolded"),
    pytest.param("unfolded", batch((NOW_MS, b"v" * 30), codec=GZIP), {}, id="unfolded"),
    pytest.param("zstd", batch((NOW_MS, b"v" * 3000)), {}, id="compressed"),
    pytest.param("plain", batch((NOW_MS, b"v"), codec=ZSTD), {"version": 6}, id="zstd from a client that is too old"),
    pytest.param("compacted", batch((NOW_MS, b"v"), key=None), {}, id="no key for a compacted topic"),
    pytest.param("plain", LATE, {}, id="from the future"),
    pytest.param("plain", batch((NOW_MS, b"v"), (NOW_MS + HOURS_MS, b"v")), {}, id="one of two from the future"),
    pytest.param("plain", EARLY, {}, id="old where that may be"),
    pytest.param("not-old", EARLY, {}, id="too old"),
    pytest.param(
        "not-old", batch((NOW_MS + HOURS_MS // 4, b"v"), (NOW_MS - HOURS_MS, b"v")), {}, id="one of two too old"
    ),
    pytest.param("not-old", batch((-1, b"v")), {}, id="no timestamp"),
    pytest.param("stamped", LATE, {}, id="from the future, where the broker stamps"),
    pytest.param("plain", ONE + ONE, {}, id="two batches"),
    pytest.param("plain", ONE[:-3], {}, id="not all of a batch"),
    pytest.param("plain", damaged(batch((NOW_MS, b"v"))), {}, id="a checksum that is wrong"),
    pytest.param("plain", old_format(), {}, id="an old format"),
    pytest.param("plain", batch((NOW_MS, b"v"), attributes=0x20), {}, id="a control batch"),
    pytest.param("plain", batch((NOW_MS, b"v"), last_offset_delta=5), {}, id="offsets with gaps"),
    pytest.param("plain", batch((NOW_MS, b"v"), record_count=0, last_offset_delta=-1), {}, id="no records"),
    pytest.param("plain", batch((NOW_MS, b"v"), max_timestamp=NOW_MS + 2 * HOURS_MS), {}, id="a lie about the latest"),
    pytest.param("nowhere", ONE, {"acks": 0}, id="no answer wanted, and an error"),
]


@pytest.mark.parametrize(("topic", "records", "options"), PRODUCE)
def test_a_batch_is_taken_or_refused_as_kafka_does(
    sides: list[str], topic: str, records: bytearray, options: dict[str, Any]
) -> None:
    theirs, ours = (send(side, topic, bytes(records), **options) for side in sides)
    assert shown(ours) == shown(theirs)


def shown(result: Any) -> Any:
    """Texts are ours; and whether the log was looked at before the batch was refused."""
    if result is None:
        return None
    return result.error_code, result.base_offset >= 0, [index for index, _ in result.record_errors]


def test_an_idempotent_producer_hears_what_kafka_tells_it(sides: list[str]) -> None:
    steps = [
        idempotent(0),
        idempotent(0),
        idempotent(1, count=3),
        idempotent(9),
        idempotent(4),
        idempotent(1, count=3),
        idempotent(0, epoch=1),
        idempotent(5, epoch=0),
        idempotent(7, epoch=1),
        idempotent(-1, epoch=1),
        idempotent(3, epoch=2),
        idempotent(6, producer=4712),
    ]
    answers = [[send(side, "idempotent", bytes(step)) for step in steps] for side in sides]
    theirs, ours = ([(one.error_code, one.base_offset) for one in answer if one] for answer in answers)
    assert ours == theirs

    request = describe_producers.DescribeProducersRequest(
        [describe_producers.DescribeProducersTopic("idempotent", [0, 5])]
    )
    theirs_known, ours_known = (ask(side, describe_producers.SPEC, request).topics[0].partitions for side in sides)
    for partition in (*theirs_known, *ours_known):
        partition.error_message = None
        partition.active_producers.sort(key=lambda producer: producer.producer_id)
    assert ours_known == theirs_known


FETCHES: list[Any] = [
    pytest.param([FetchPartition("read", 0, 0, 1 << 20)], {}, id="all"),
    pytest.param([FetchPartition("read", 0, 3, 1)], {}, id="from the middle, a byte"),
    pytest.param([FetchPartition("read", 0, 10, 1 << 20)], {}, id="at the end"),
    pytest.param([FetchPartition("read", 0, 11, 1 << 20)], {}, id="behind the end"),
    pytest.param([FetchPartition("read", 0, -1, 1 << 20)], {}, id="before the beginning"),
    pytest.param([FetchPartition("read", 0, 0, 1 << 20)], {"committed": True}, id="committed"),
    pytest.param([FetchPartition("read", 9, 0, 1 << 20)], {}, id="no such partition"),
    pytest.param([FetchPartition("nowhere", 0, 0, 1 << 20)], {}, id="no such topic"),
    pytest.param([FetchPartition("read", 0, 0, 1 << 20, 7)], {}, id="an epoch that has not come"),
    pytest.param([FetchPartition("read", 0, 10, 1 << 20, 0, -1, 0)], {}, id="the epoch of the last record"),
    pytest.param([FetchPartition("read", 0, 10, 1 << 20, 0, -1, 5)], {}, id="a last record of an unknown epoch"),
    pytest.param([FetchPartition("read", 0, 0, 1 << 20)], {"replica_id": 5}, id="a follower that is none"),
    pytest.param([FetchPartition("read", 0, 0, 1 << 20)], {"session": (99, 1)}, id="a session that is not there"),
    pytest.param([FetchPartition("read", 0, 0, 1 << 20)], {"session": (99, -1)}, id="the end of one that is not there"),
    pytest.param([FetchPartition(ID_OF_NOBODY.bytes, 0, 0, 9)], {"version": 17}, id="an id that no topic has"),
    pytest.param([FetchPartition(bytes(16), 0, 0, 9)], {"version": 13}, id="no id"),
    pytest.param([FetchPartition("read", 0, 0, 1 << 20)], {"version": 18}, id="by id"),
    pytest.param([], {}, id="nothing"),
]


@pytest.mark.parametrize(("partitions", "options"), FETCHES)
def test_a_fetch_is_answered_as_kafka_does(
    sides: list[str], partitions: list[FetchPartition], options: dict[str, Any]
) -> None:
    def seen(side: str) -> Any:
        wanted = partitions
        if options.get("version") == 18:
            topic_id = topic_id_of(side, "read").bytes
            wanted = [one._replace(topic=topic_id) for one in partitions]
        response = read(side, wanted, **options)
        found = [
            (one.partition, *one[2:6], None if not one.records else bytes(one.records), one.aborted_transactions or [])
            for one in response.partitions
        ]
        return response.error_code, found

    theirs, ours = map(seen, sides)
    assert ours == theirs


def test_a_fetch_session_goes_as_kafkas_do(sides: list[str]) -> None:
    def seen(side: str) -> list[Any]:
        story: list[Any] = []

        def note(response: Any) -> int:
            found = [(one.topic, one.partition, one.error_code, len(one.records or b"")) for one in response.partitions]
            story.append((response.error_code, response.session_id != 0, sorted(found)))
            return int(response.session_id)

        first, second = FetchPartition("read", 0, 0, 1 << 20), FetchPartition("read", 1, 0, 1 << 20)
        number = note(read(side, [first, second], session=(0, 0)))
        note(read(side, [first._replace(fetch_offset=10)], session=(number, 1)))  # all read: nothing to tell
        note(read(side, [], session=(number, 2)))
        note(read(side, [], session=(number, 2)))  # an epoch that has been
        note(read(side, [first._replace(fetch_offset=4)], session=(number, 3)))
        note(read(side, [], session=(number, 4), forgotten=[("read", [0])]))
        note(read(side, [FetchPartition("nowhere", 0, 0, 9)], session=(number, 5)))
        note(read(side, [], session=(number, 6)))  # an error is told each time
        note(read(side, [FetchPartition(topic_id_of(side, "read").bytes, 0, 0, 9)], session=(number, 7), version=13))
        note(read(side, [first], session=(number, -1)))  # the end
        note(read(side, [], session=(number, 7)))
        return story

    theirs, ours = map(seen, sides)
    assert ours == theirs


SPECIAL = [(timestamp, version) for timestamp in (-1, -2, -3, -4, -5, -6, -7) for version in (1, 6, 7, 8, 9, 10, 11)]
LIST_OFFSETS: list[Any] = [
    *(pytest.param(("read", 0, -1, at), v, 0, id=f"special {at} in v{v}") for at, v in SPECIAL),
    *(pytest.param(("read", 0, -1, NOW_MS + late), 7, 0, id=f"{late} ms later") for late in range(-6, 7)),
    pytest.param(("read", 0, -1, 0), 7, 1, id="the first one, committed"),
    pytest.param(("read", 0, -1, -1), 7, 1, id="the latest, committed"),
    pytest.param(("read", 1, -1, -3), 7, 0, id="the latest time of an empty log"),
    pytest.param(("read", 1, -1, 5), 7, 0, id="a time of an empty log"),
    pytest.param(("read", 1, -1, -1), 7, 0, id="the end of an empty log"),
    pytest.param(("read", 1, -1, -2), 7, 0, id="the beginning of an empty log"),
    pytest.param(("read", 9, -1, -1), 7, 0, id="no such partition"),
    pytest.param(("nowhere", 0, -1, -1), 7, 0, id="no such topic"),
    pytest.param(("read", 0, 0, -1), 7, 0, id="the epoch of the leader"),
    pytest.param(("read", 0, 5, -1), 7, 0, id="an epoch that has not come"),
]


@pytest.mark.parametrize(("asked", "version", "isolation"), LIST_OFFSETS)
def test_offsets_are_listed_as_kafka_does(
    sides: list[str], asked: tuple[str, int, int, int], version: int, isolation: int
) -> None:
    topic, *partition = asked
    request = list_offsets.ListOffsetsRequest(
        isolation_level=isolation,
        topics=[list_offsets.ListOffsetsTopic(topic, [list_offsets.ListOffsetsPartition(*partition)])],
        timeout_ms=10_000,
    )
    theirs, ours = (ask(side, list_offsets.SPEC, request, version) for side in sides)
    assert ours == theirs


def test_offsets_that_are_asked_for_twice_are_refused_as_kafka_does(sides: list[str]) -> None:
    twice = [list_offsets.ListOffsetsPartition(0, timestamp=-1), list_offsets.ListOffsetsPartition(0, timestamp=-2)]
    request = list_offsets.ListOffsetsRequest(topics=[list_offsets.ListOffsetsTopic("read", twice)])

    def seen(side: str) -> Any:
        answer = ask(side, list_offsets.SPEC, request, 7)
        return [(topic.name, {one.error_code for one in topic.partitions}) for topic in answer.topics]

    theirs, ours = map(seen, sides)
    assert ours == theirs


@pytest.mark.parametrize(("current", "epoch"), [(-1, 0), (0, 0), (5, 0), (-1, 1), (-1, -1), (-1, 7), (0, 7)])
@pytest.mark.parametrize("place", [("read", 0), ("read", 1), ("read", 9), ("nowhere", 0)])
def test_epochs_end_where_kafkas_do(sides: list[str], place: tuple[str, int], current: int, epoch: int) -> None:
    topic, index = place
    asked = offset_for_leader_epoch.OffsetForLeaderPartition(index, current, epoch)
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[offset_for_leader_epoch.OffsetForLeaderTopic(topic, [asked])]
    )
    theirs, ours = (ask(side, offset_for_leader_epoch.SPEC, request) for side in sides)
    assert ours == theirs


def test_records_are_deleted_as_kafka_does(sides: list[str]) -> None:
    steps = [
        ("cut", 0, 3),
        ("cut", 0, 2),
        ("cut", 0, -2),
        ("cut", 0, 99),
        ("cut", 9, 0),
        ("nowhere", 0, 0),
        ("compacted", 0, 0),
        ("cut", 0, -1),
        ("cut", 0, -1),
        ("cut", 1, -1),
    ]

    def seen(side: str) -> list[Any]:
        story: list[Any] = []
        for topic, *asked in steps:
            partition = delete_records.DeleteRecordsPartition(*asked)
            request = delete_records.DeleteRecordsRequest(
                [delete_records.DeleteRecordsTopic(topic, [partition])], timeout_ms=10_000
            )
            story += ask(side, delete_records.SPEC, request).topics
            (found,) = read(side, [FetchPartition("cut", 0, 3, 1 << 20)]).partitions
            story.append((found.error_code, found.log_start_offset, len(found.records or b"")))
        return story

    theirs, ours = map(seen, sides)
    assert ours == theirs


@pytest.mark.parametrize("endpoint_type", [1, 2, 3])
def test_the_cluster_is_described_as_kafka_does(sides: list[str], endpoint_type: int) -> None:
    request = describe_cluster.DescribeClusterRequest(True, endpoint_type)

    def seen(side: str) -> Any:
        found = ask(side, describe_cluster.SPEC, request)
        brokers = [(broker.broker_id, f"{broker.host}:{broker.port}" == side, broker.rack) for broker in found.brokers]
        return found.error_code, found.endpoint_type, len(found.cluster_id), found.controller_id, brokers

    theirs, ours = map(seen, sides)
    assert ours == theirs


@pytest.mark.parametrize(
    ("names", "limit", "cursor"),
    [
        pytest.param(["read", "nowhere", "plain"], 2000, None, id="some"),
        pytest.param(["read", "plain"], 3, None, id="not all at once"),
        pytest.param(["read", "plain"], 0, None, id="a limit that cannot be"),
        pytest.param(["read", "plain"], 2, None, id="one topic fills it"),
        pytest.param(["read", "plain"], 2000, ("plain", 1), id="from a cursor"),
        pytest.param(["read", "plain"], 2000, ("q", 1), id="from a cursor between topics"),
        pytest.param(["read", "plain"], 2000, ("plain", 5), id="from a cursor behind a topic"),
        pytest.param(["read", "plain"], 2000, ("plain", -1), id="from a cursor that cannot be"),
    ],
)
def test_partitions_are_described_as_kafka_does(
    sides: list[str], names: list[str], limit: int, cursor: tuple[str, int] | None
) -> None:
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        [describe_topic_partitions.TopicRequest(name) for name in names],
        limit,
        None if cursor is None else describe_topic_partitions.Cursor(*cursor),
    )

    def seen(side: str) -> Any:
        found = ask(side, describe_topic_partitions.SPEC, request)
        for topic in found.topics:
            topic.topic_id = ID_OF_NOBODY if topic.topic_id != UUID(int=0) else topic.topic_id
        return found

    theirs, ours = map(seen, sides)
    assert ours == theirs


def wait_for_coordinator(side: str) -> None:
    find = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    fetch = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("g", topics=[])])
    deadline = time.monotonic() + 60
    while (
        ask(side, find_coordinator.SPEC, find).coordinators[0].error_code
        or ask(side, offset_fetch.SPEC, fetch).groups[0].error_code
    ):
        assert time.monotonic() < deadline


def test_commits_by_id_go_as_kafkas_do(sides: list[str]) -> None:
    def seen(side: str) -> list[Any]:
        wait_for_coordinator(side)
        asked = offset_commit.OffsetCommitRequestPartition(0, 5, committed_metadata="m")
        missing = offset_commit.OffsetCommitRequestPartition(9, 5)
        topic_id = topic_id_of(side, "read")
        commit = offset_commit.OffsetCommitRequest(
            "g",
            topics=[
                offset_commit.OffsetCommitRequestTopic("", topic_id, [asked, missing]),
                offset_commit.OffsetCommitRequestTopic("", ID_OF_NOBODY, [asked]),
            ],
        )
        answered = sorted(ask(side, offset_commit.SPEC, commit).topics, key=lambda one: one.topic_id == ID_OF_NOBODY)
        story: list[Any] = [
            sorted((one.partition_index, one.error_code) for one in topic.partitions) for topic in answered
        ]
        wanted: list[Any] = [
            [
                offset_fetch.OffsetFetchRequestTopic("", topic_id, [0, 1]),
                offset_fetch.OffsetFetchRequestTopic("", ID_OF_NOBODY, [0]),
            ],
            None,
        ]
        for topics in wanted:
            request = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("g", topics=topics)])
            (group,) = ask(side, offset_fetch.SPEC, request).groups
            found = sorted(group.topics, key=lambda one: one.topic_id == ID_OF_NOBODY)
            story.append((group.error_code, [topic.partitions for topic in found]))
        return story

    theirs, ours = map(seen, sides)
    assert ours == theirs


READ, BAD, NOBODY, NEITHER = ("read", None), ("bad name!", None), (None, ID_OF_NOBODY), (None, None)
METADATA: list[Any] = [
    *(pytest.param([READ, BAD, ("", None)], version, id=f"names in v{version}") for version in range(14)),
    *(
        pytest.param([READ, ("nowhere", None), READ], version, id=f"one twice in v{version}")
        for version in range(4, 14)
    ),
    *(pytest.param([NOBODY], version, id=f"an id that no topic has in v{version}") for version in (12, 13)),
    pytest.param([("read", ID_OF_NOBODY)], 11, id="an id where it may not be"),
    pytest.param([("read", ID_OF_NOBODY), READ], 10, id="an id where it may not be, and a name"),
    pytest.param([("read", ID_OF_NOBODY)], 12, id="an id and a name"),
    pytest.param([READ, NOBODY], 12, id="an id or a name"),
    *(pytest.param([NEITHER], version, id=f"neither in v{version}") for version in (10, 11, 12, 13)),
    *(pytest.param([READ, NEITHER], version, id=f"a name and neither in v{version}") for version in (10, 12, 13)),
    pytest.param([NOBODY, NEITHER], 12, id="an id and neither"),
    pytest.param([], 1, id="none"),
]


@pytest.mark.parametrize(("topics", "version"), METADATA)
def test_metadata_of_topics_is_as_kafkas(
    sides: list[str], topics: list[tuple[str | None, UUID | None]], version: int
) -> None:
    asked = [metadata.MetadataRequestTopic(topic_id or UUID(int=0), name) for name, topic_id in topics]
    request = metadata.MetadataRequest(
        asked, allow_auto_topic_creation=False, include_topic_authorized_operations=version >= 8
    )
    theirs, ours = (told_of_topics(side, request, version) for side in sides)
    assert ours == theirs


def told_of_topics(side: str, request: metadata.MetadataRequest, version: int) -> Any:
    answer = ask(side, metadata.SPEC, request, version)
    found = [
        (
            topic.error_code,
            topic.name or "",
            topic.is_internal,
            topic.topic_authorized_operations,
            sorted(topic.partitions, key=lambda one: one.partition_index),
        )
        for topic in answer.topics
    ]
    return answer.error_code, len(answer.brokers), answer.controller_id, sorted(found, key=lambda topic: topic[:2])


@pytest.mark.parametrize("version", [3, 4, 8, 12, 13])
def test_topics_make_themselves_as_kafkas_do(sides: list[str], version: int) -> None:
    new = f"new-in-{version}"
    names = [new, "read", "bad name!", "__cluster_metadata"]
    asked = [metadata.MetadataRequestTopic(name=name) for name in names]
    request = metadata.MetadataRequest(asked, include_topic_authorized_operations=version >= 8)
    again = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=new)])

    def seen(side: str) -> Any:
        first = told_of_topics(side, request, version)
        deadline = time.monotonic() + 60
        while (then := told_of_topics(side, again, version))[3][0][0]:
            assert time.monotonic() < deadline
        return first, then

    theirs, ours = map(seen, sides)
    assert ours == theirs


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("election_type", [0, 1, 5])
@pytest.mark.parametrize("named", ["some", "none", "all"])
def test_there_is_nothing_to_elect(sides: list[str], version: int, election_type: int, named: str) -> None:
    topic = elect_leaders.ElectLeadersTopic
    wanted = {"some": [topic("read", [0, 9]), topic("nowhere", [0])], "none": [], "all": None}[named]
    request = elect_leaders.ElectLeadersRequest(election_type, wanted)

    def seen(side: str) -> Any:
        answer = ask(side, elect_leaders.SPEC, request, version)
        found = [
            (topic.topic, [(one.partition_id, one.error_code) for one in topic.partition_result])
            for topic in answer.replica_election_results
            if topic.topic != "__consumer_offsets"
        ]
        return answer.error_code, sorted(found)

    theirs, ours = map(seen, sides)
    assert ours == theirs


@pytest.mark.parametrize("replicas", [None, [1], [2], [1, 2], [1, 1], []])
def test_partitions_stay_where_they_are(sides: list[str], replicas: list[int] | None) -> None:
    partition = alter_partition_reassignments.ReassignablePartition
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        topics=[
            alter_partition_reassignments.ReassignableTopic("read", [partition(0, replicas), partition(9, replicas)]),
            alter_partition_reassignments.ReassignableTopic("nowhere", [partition(0, replicas)]),
        ]
    )

    def seen(side: str) -> Any:
        answer = ask(side, alter_partition_reassignments.SPEC, request)
        under_way = list_partition_reassignments.ListPartitionReassignmentsRequest()
        return (
            answer.error_code,
            [[one.error_code for one in topic.partitions] for topic in answer.responses],
            ask(side, list_partition_reassignments.SPEC, under_way),
        )

    theirs, ours = map(seen, sides)
    assert ours == theirs


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("name", "software_version"),
    [("x", "1"), ("apache-kafka-java", "4.3.1"), ("", ""), ("bad name", "1"), ("x", "1 2"), ("-x", "1"), ("x.", "1")],
)
def test_a_client_says_who_it_is_as_to_kafka(sides: list[str], name: str, software_version: str, version: int) -> None:
    request = api_versions.ApiVersionsRequest(name, software_version)

    def seen(side: str) -> Any:
        answer = ask(side, api_versions.SPEC, request, version)
        return answer.error_code, bool(answer.api_keys)

    theirs, ours = map(seen, sides)
    assert ours == theirs


@pytest.mark.parametrize("known", [(-1, -1), (5, 3), (5, -1), (-1, 3)])
def test_ids_are_given_to_producers_as_kafka_does(sides: list[str], known: tuple[int, int]) -> None:
    request = init_producer_id.InitProducerIdRequest(None, 1000, *known)

    def seen(side: str) -> Any:
        deadline = time.monotonic() + 60
        while True:
            answer = ask(side, init_producer_id.SPEC, request)
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # it asks for its first ids
                return answer.error_code, answer.producer_id >= 0, answer.producer_epoch
            assert time.monotonic() < deadline

    theirs, ours = map(seen, sides)
    assert ours == theirs
