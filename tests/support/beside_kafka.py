"""Our broker and a real Kafka with the same topics, and their answers as text in which only what differs is shown."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pylog
from pylog.broker_lite.protocol import create_topics, find_coordinator, heartbeat, metadata
from pylog.broker_lite.protocol.errors import ErrorCode
from tests.support.apache_kafka import ApacheKafka
from tests.support.group_members import until
from tests.support.wire_requests import ask

OWN_TOPIC = "__consumer_offsets"


@dataclass
class Side:
    servers: str
    data: Path
    ids: dict[str, UUID]  # of topics
    named: dict[str, str] = field(default_factory=dict)  # by a text that differs: how it is shown

    def plain(self, tree: Any) -> str:
        """An answer with names where ids are, and other things that differ."""
        text = repr(tree)
        for name, topic_id in self.ids.items():
            text = text.replace(repr(topic_id), f"<id of {name}>")
        for found, shown in self.named.items():
            text = text.replace(found, shown)
        return text


@contextlib.contextmanager
def two_sides(topics: Mapping[str, int], config: Mapping[str, str]) -> Iterator[list[Side]]:
    """Ours, and Kafka's. Topics by their number of partitions; coordinators are ready."""
    with pylog.Broker(config=dict(config)) as ours, ApacheKafka(config) as theirs:
        both = (ours.bootstrap_servers, ours.data), (theirs.bootstrap_servers, theirs.data)
        yield [_prepared(servers, data, topics) for servers, data in both]


def _prepared(servers: str, data: Path, topics: Mapping[str, int]) -> Side:
    wanted = [create_topics.CreatableTopic(name, count, 1) for name, count in topics.items()]
    ask(servers, create_topics.SPEC, create_topics.CreateTopicsRequest(wanted, 30_000), 5)
    find = find_coordinator.FindCoordinatorRequest("group")
    beat = heartbeat.HeartbeatRequest("group", 1, "nobody")
    ids: dict[str, UUID] = {}

    def is_ready() -> bool:
        ask(servers, find_coordinator.SPEC, find, 2)  # makes its topic
        asked = [metadata.MetadataRequestTopic(name=name) for name in (*topics, OWN_TOPIC)]
        found = ask(servers, metadata.SPEC, metadata.MetadataRequest(topics=asked), 12)
        ids.update({topic.name or "": topic.topic_id for topic in found.topics if topic.error_code == ErrorCode.NONE})
        answered = ask(servers, heartbeat.SPEC, beat, 3).error_code
        return len(ids) == len(topics) + 1 and answered == ErrorCode.UNKNOWN_MEMBER_ID

    until(is_ready, "topics and coordinator")
    host, port = servers.rsplit(":", 1)
    return Side(servers, data, ids, {f"port={port}": "port=<port>", f"host='{host}'": "host=<host>"})
