"""Commits and what is read of them, odd ones too: ours are answered, and kept, as a real Kafka does it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pylog.broker_lite.protocol import consumer_offsets, offset_commit, offset_fetch
from pylog.broker_lite.protocol.consumer_offsets import OffsetCommitKey
from pylog.broker_lite.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pylog.broker_lite.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pylog.storage.batch import walk
from pylog.storage.records import Record, decode_batch
from tests.support.beside_kafka import OWN_TOPIC, Side, two_sides
from tests.support.wire_requests import ask

CONFIG = {"offsets.topic.num.partitions": "1"}
TOPICS = {"t": 3, "u": 1}
ALL_TOPICS_SINCE, GROUPS_SINCE, IDS_SINCE = 2, 8, 10
ID_OF_NONE = UUID(int=77)
METADATA_UNITS_MAX = 4096


@pytest.fixture(scope="module")
def sides() -> Iterator[list[Side]]:
    with two_sides(TOPICS, CONFIG) as both:
        yield both


def _code(answer: offset_commit.OffsetCommitResponse) -> int:
    return answer.topics[0].partitions[0].error_code


def topic_of(side: Side, name: str, *partitions: tuple[Any, ...]) -> OffsetCommitRequestTopic:
    """(partition, offset, leader epoch, metadata)"""
    made = [OffsetCommitRequestPartition(*one) for one in partitions]
    return OffsetCommitRequestTopic(name, side.ids.get(name, ID_OF_NONE), made)


LONG = "x" * METADATA_UNITS_MAX
COMMITS: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "plain": ({}, [("t", (0, 5, -1, "m"), (1, 6, 3, None))]),
    "a topic that is not there, beside one that is": ({}, [("none", (0, 1)), ("t", (0, 2))]),
    "partitions that are not there": ({}, [("t", (3, 1), (-1, 1), (0, 9))]),
    "the same partition twice": ({}, [("t", (0, 1), (0, 2))]),
    "the same topic twice": ({}, [("t", (0, 1)), ("u", (0, 1)), ("t", (1, 2))]),
    "no topics": ({}, []),
    "a topic without partitions": ({}, [("t",)]),
    "negative offsets": ({}, [("t", (0, -1), (1, -2))]),
    "the largest offset": ({}, [("t", (0, (1 << 63) - 1))]),
    "a negative leader epoch": ({}, [("t", (0, 5, -7))]),
    "metadata at the limit": ({}, [("t", (0, 1, -1, LONG))]),
    "metadata over the limit": ({}, [("t", (0, 1, -1, LONG + "x"), (1, 1, -1, "short"))]),
    "two bytes a character, at the limit": ({}, [("t", (0, 1, -1, "é" * METADATA_UNITS_MAX))]),
    "three bytes a character, at the limit": ({}, [("t", (0, 1, -1, "日" * METADATA_UNITS_MAX))]),
    "two units a character, at the limit": ({}, [("t", (0, 1, -1, "𝄞" * (METADATA_UNITS_MAX // 2)))]),
    "two units a character, over the limit": ({}, [("t", (0, 1, -1, "𝄞" * (METADATA_UNITS_MAX // 2) + "x"))]),
    "a member without a generation": ({"member_id": "m"}, [("t", (0, 1))]),
    "a generation without a member": ({"generation_id": 3}, [("t", (0, 1))]),
    "a member of a group that is not there": ({"generation_id": 3, "member_id": "m"}, [("t", (0, 1))]),
    "an instance": ({"member_id": "m", "group_instance_id": "i"}, [("t", (0, 1))]),
    "kept for a time": ({"retention_time_ms": 60_000}, [("t", (0, 1))]),
    "kept for no time": ({"retention_time_ms": 0}, [("t", (0, 1))]),
    "kept for less than no time": ({"retention_time_ms": -2}, [("t", (0, 1))]),
    "the groups' own topic": ({}, [(OWN_TOPIC, (0, 1))]),
}
VERSIONS = (2, 5, 6, 7, 8, 9, 10)


def written(side: Side, group: str) -> dict[str, str]:
    """What is kept of a group at last, as text; times apart."""
    shown = {}
    for record in _records(side.data / f"{OWN_TOPIC}-0"):
        key = None if record.key is None else consumer_offsets.decode_key(record.key)
        if isinstance(key, OffsetCommitKey) and key.group == group:
            shown[f"{key.topic}-{key.partition}"] = _shown(side, record.value)
    return shown


def _shown(side: Side, value: bytes | None) -> str:
    if value is None:
        return "gone"
    found = consumer_offsets.decode_offset_value(value)
    has_end = found.expire_timestamp - found.commit_timestamp if found.expire_timestamp >= 0 else None
    return side.plain([value[:2].hex(), found.offset, found.leader_epoch, found.metadata, has_end, found.topic_id])


def _records(folder: Path) -> Iterator[Record]:
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for position, _ in walk(data):
            yield from decode_batch(data, position)


def _names_a_topic_twice(case: str) -> bool:
    """No client does that by id, and Kafka answers it in an order of its own."""
    names = [topic[0] for topic in COMMITS[case][1]]
    return len(set(names)) < len(names)


@pytest.mark.parametrize(
    ("case", "version"),
    [
        (case, version)
        for case in COMMITS
        for version in VERSIONS
        if version < IDS_SINCE or not _names_a_topic_twice(case)
    ],
)
def test_commits_are_answered_and_kept_as_kafka_does_it(sides: list[Side], case: str, version: int) -> None:
    settings, topics = COMMITS[case]
    group = f"{case}, {version}"
    found = []
    for side in sides:
        asked = OffsetCommitRequest(group, topics=[topic_of(side, *topic) for topic in topics], **settings)
        answer = ask(side.servers, offset_commit.SPEC, asked, version)
        found.append((side.plain(answer), written(side, group)))
    assert found[0] == found[1]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_without_a_name_may_commit_in_kafka_and_so_it_may_here(sides: list[Side], version: int) -> None:
    answers = []
    for side in sides:
        asked = OffsetCommitRequest("", topics=[topic_of(side, "t", (2, 4, -1, "m"))])
        answers.append(side.plain(ask(side.servers, offset_commit.SPEC, asked, version)))
    assert answers[0] == answers[1]


# -- reading them


def fetch_topic(side: Side, name: str, *partitions: int) -> OffsetFetchRequestTopic:
    return OffsetFetchRequestTopic(name, side.ids.get(name, ID_OF_NONE), list(partitions))


FETCHES: dict[str, tuple[str, list[tuple[Any, ...]] | None]] = {
    "all topics": ("known", None),
    "some": ("known", [("t", 0, 2), ("u", 0)]),
    "what was not committed": ("known", [("t", 1)]),
    "partitions that are not there": ("known", [("t", 9, -1)]),
    "a topic that is not there": ("known", [("none", 0), ("t", 0)]),
    "a partition twice": ("known", [("t", 0, 0)]),
    "no topics": ("known", []),
    "no partitions": ("known", [("t",)]),
    "all topics of nobody": ("nobody", None),
    "some of nobody": ("nobody", [("t", 0)]),
    "a group without a name": ("", [("t", 0)]),
}
FETCH_VERSIONS = (1, 2, 5, 7, 8, 9, 10)


@pytest.fixture(scope="module")
def committed(sides: list[Side]) -> list[Side]:
    for side in sides:
        topics = [topic_of(side, "t", (0, 5, 2, "mark"), (2, 7)), topic_of(side, "u", (0, 9))]
        assert _code(ask(side.servers, offset_commit.SPEC, OffsetCommitRequest("known", topics=topics), 9)) == 0
    return sides


@pytest.mark.parametrize(
    ("case", "version"),
    [
        (case, version)
        for case, (_, topics) in FETCHES.items()
        for version in FETCH_VERSIONS
        if version >= ALL_TOPICS_SINCE or topics is not None
    ],
)
def test_committed_offsets_are_told_as_kafka_tells_them(committed: list[Side], case: str, version: int) -> None:
    group, topics = FETCHES[case]
    answers = []
    for side in committed:
        wanted = None if topics is None else [fetch_topic(side, *topic) for topic in topics]
        if version >= GROUPS_SINCE:
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=wanted)])
        else:
            request = OffsetFetchRequest(group, wanted)
        answers.append(_without_order(side, ask(side.servers, offset_fetch.SPEC, request, version)))
    assert answers[0] == answers[1]


def _without_order(side: Side, answer: offset_fetch.OffsetFetchResponse) -> str:
    """Where all are asked for, Kafka tells them in no order; and those that it does not know last."""
    for topics in (answer.topics, *(group.topics for group in answer.groups)):
        for topic in topics:
            topic.partitions.sort(key=lambda one: one.partition_index)
        topics.sort(key=side.plain)
    return side.plain(answer)


@pytest.mark.parametrize(
    ("member_id", "member_epoch"),
    [("m", 0), ("m", -1), (None, 5), ("", 3)],
    ids=["a member", "a member without an epoch", "an epoch", "no member's epoch"],
)
def test_members_of_the_newer_protocol_are_told_as_kafka_tells_them(
    committed: list[Side], member_id: str | None, member_epoch: int
) -> None:
    answers = []
    for side in committed:
        asked = OffsetFetchRequestGroup(
            "known", member_id=member_id, member_epoch=member_epoch, topics=[fetch_topic(side, "t", 0)]
        )
        answers.append(side.plain(ask(side.servers, offset_fetch.SPEC, OffsetFetchRequest(groups=[asked]), 9)))
    assert answers[0] == answers[1]


def test_many_groups_are_answered_in_their_order(committed: list[Side]) -> None:
    answers = []
    for side in committed:
        groups = [OffsetFetchRequestGroup(name, topics=[fetch_topic(side, "u", 0)]) for name in ("x", "known", "a")]
        answers.append(side.plain(ask(side.servers, offset_fetch.SPEC, OffsetFetchRequest(groups=groups), 8)))
    assert answers[0] == answers[1]
