"""The cluster's metadata by transcripts: a file of steps, each of commands, `----`, and what comes of them.

    create t 2 flush.ms=5     a topic and its partitions, with options
    grow t 3                  so many partitions it is to have
    set topic t flush.ms=- …  options of a topic or a broker ("all" for every broker); `-` gives one back
    delete t                  by name, or by id as `#1`: topics are numbered as they were decided
    producer                  an id for a producer
    restart                   all that was logged is replayed
    crash                     the same, and the broker notes that it came back
    ----
    log TopicRecord …         a record of `__cluster_metadata`
    ! CODE                    the request is refused
    = …                       what there is after the step

`pytest --rewrite-transcripts tests/broker_lite/machines` writes what comes out now."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines.topics import Topics
from pylog.broker_lite.protocol.metadata_records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.support.group_transcripts import Step, read_steps, write_steps

FILES = sorted((Path(__file__).parent / "topic_transcripts").glob("*.txt"))
KIND = {"topic": TOPIC_RESOURCE, "broker": BROKER_RESOURCE}
NODE = 1


class Transcript:
    def __init__(self) -> None:
        self._topics = Topics(NODE)
        self._log: list[MetadataRecord] = []
        self._decided = 0

    def run(self, step: Step) -> list[str]:
        lines: list[str] = []
        for command in step.commands:
            try:
                events, said = self._decide(*command.split())
            except RequestError as error:
                lines.append(f"! {error.code.name}")
                continue
            for event in events:
                self._topics.replay(event)
            self._log += events
            lines += [f"log {shown(event)}" for event in events] + said
        return [*lines, *self._state()]

    def _decide(self, what: str, *words: str) -> tuple[list[MetadataRecord], list[str]]:
        topics = self._topics
        if what == "create":
            self._decided += 1
            options = dict(word.split("=") for word in words[2:])
            return topics.create(words[0], int(words[1]), options, UUID(int=self._decided)).events, []
        if what == "grow":
            return topics.add_partitions(words[0], int(words[1])).events, []
        if what == "delete":
            by_id = words[0].startswith("#")
            topic_id = UUID(int=int(words[0][1:]) if by_id else 0)
            return topics.delete(None if by_id else words[0], topic_id).events, []
        if what == "set":
            changes = {name: None if value == "-" else value for name, value in (word.split("=") for word in words[2:])}
            return topics.configure(KIND[words[0]], words[1].replace("all", ""), changes).events, []
        if what == "producer":
            outcome = topics.next_producer_id()
            for event in outcome.events:
                topics.replay(event)
            topics.took_producer_id(outcome.reply)
            self._log += outcome.events
            return [], [f"log {shown(event)}" for event in outcome.events] + [f"> {outcome.reply}"]
        assert what in ("restart", "crash")
        self._topics = Topics(NODE)
        for event in self._log:
            self._topics.replay(event)
        self._topics.restarted()
        return (self._topics.crashed(UUID(int=0)).events if what == "crash" else []), []

    def _state(self) -> Iterator[str]:
        for name, topic in self._topics.by_name.items():
            epoch = f", epoch {topic.leader_epoch}" if topic.leader_epoch else ""
            yield f"= {name} #{topic.topic_id.int}: {topic.partition_count} partitions{epoch}{options(topic.overrides)}"
        for name, overrides in self._topics.broker_overrides.items():
            yield f"= broker {name or 'all'}:{options(overrides)}"


def options(overrides: dict[str, str]) -> str:
    return "".join(f" {name}={value}" for name, value in overrides.items())


def shown(event: MetadataRecord) -> str:
    match event:
        case TopicRecord():
            return f"TopicRecord {event.name} #{event.topic_id.int}"
        case PartitionRecord():
            replicas = f"replicas={event.replicas} isr={event.isr} leader={event.leader} epoch={event.leader_epoch}"
            return f"PartitionRecord #{event.topic_id.int}-{event.partition_id} {replicas}"
        case ConfigRecord():
            kind = {number: name for name, number in KIND.items()}[event.resource_type]
            return f"ConfigRecord {kind} {event.resource_name or 'all'} {event.name}={event.value}"
        case RemoveTopicRecord():
            return f"RemoveTopicRecord #{event.topic_id.int}"
        case RegisterBrokerRecord():
            return f"RegisterBrokerRecord node={event.broker_id} epoch={event.broker_epoch}"
        case ProducerIdsRecord():
            return f"ProducerIdsRecord node={event.broker_id} next={event.next_producer_id}"


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    transcript = Transcript()
    steps = read_steps(path.read_text())
    happened = [Step(step.commands, transcript.run(step)) for step in steps]
    if request.config.getoption("--rewrite-transcripts"):
        path.write_text(write_steps(happened))
    for step, wanted in zip(happened, steps, strict=True):
        assert step == wanted, path.name
