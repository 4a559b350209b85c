"""One data directory that goes from us to Apache Kafka and back, twice, by clean stops and by kills.

Kafka makes the topics and stops; we write their folders, compact some, and close; Kafka serves, appends and stops; we
append, compact and are killed, with a torn tail; Kafka recovers, serves, appends, compacts and is killed; we open it
again, and close."""

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import kafka
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka.admin import AbortTransactionSpec

from pylog.broker_lite.protocol.produce import ProducedPartition
from pylog.storage.epochs import FILE_NAME as EPOCHS_NAME
from pylog.storage.epochs import EpochEntry, LeaderEpochs
from pylog.storage.inspect.deep import deep
from pylog.storage.inspect.findings import Finding, Report
from pylog.storage.inspect.verify import verify
from pylog.storage.log import PartitionLog
from pylog.storage.manager import LogManager
from tests.support.apache_kafka import QUICK, ApacheKafka
from tests.support.java_tools import SegmentDump, dump_log_segments
from tests.support.kafka_written import Writer, topic_id_in, wait_until_cleaned
from tests.support.logs import batch_of
from tests.support.partition_views import (
    SECONDS_MAX,
    View,
    create_topics,
    look_ups,
    send_batch,
    view_of_log,
    views_through,
    wait_for_leaders,
)
from tests.support.pylog_written import COMPACTED, CONFIGS, OPEN, PRODUCER_EPOCH, STEADY, Told, fill, go_on, manager_of

CLOSED, STOPPED = "we close, Kafka starts", "Kafka stops, we open"
KILLED, KAFKA_KILLED = "we are killed, Kafka starts", "Kafka is killed, we open"
HANDOVERS = (CLOSED, STOPPED, KILLED, KAFKA_KILLED)
TORN_TOPICS = ("codecs", "transactions")
CLEAN_WORDS = "since clean shutdown file was found"
UNCLEAN_WORDS = "since no clean shutdown file was found"

_Views = dict[str, View]


@dataclass
class Story:
    before: dict[str, _Views] = field(default_factory=dict)  # by handover: what is said by who lets go
    after: dict[str, _Views] = field(default_factory=dict)  # and by who takes over
    told: dict[str, Told] = field(default_factory=dict)  # what we wrote, as a plain list
    told_later: dict[str, Told] = field(default_factory=dict)  # what we wrote when we were killed
    before_cleaning: _Views = field(default_factory=dict)  # what Kafka said before it compacted
    our_epochs: dict[str, tuple[EpochEntry, ...]] = field(default_factory=dict)  # when we closed
    kafkas_epochs: dict[str, tuple[EpochEntry, ...]] = field(default_factory=dict)  # when Kafka stopped
    answers: dict[str, ProducedPartition] = field(default_factory=dict)  # to a producer that had written to us
    aborted: View | None = None  # "transactions", when the one that we left open was aborted
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    dumps: dict[str, SegmentDump] = field(default_factory=dict)
    kafkas_words: dict[str, list[str]] = field(default_factory=dict)  # its warnings and errors, and how it began


def back_and_forth() -> Story:
    story = Story()
    with ApacheKafka(QUICK) as server:
        servers, data = server.bootstrap_servers, server.data
        create_topics(servers, {topic: _kafka_settings(topic) for topic in CONFIGS})
        server.stop()

        _we_write(data, story)

        story.after[CLOSED] = _kafka_starts(server)
        _producer_goes_on(servers, story)
        _kafka_appends(servers, story)
        story.before[STOPPED] = _views(servers)
        server.stop()
        story.kafkas_words[CLOSED] = _words(server)
        story.kafkas_epochs = {topic: _epochs_in(data / f"{topic}-0") for topic in CONFIGS}

        _we_go_on_and_are_killed(data, story)

        story.after[KILLED] = _kafka_starts(server)
        _append_to_all(servers)
        story.before_cleaning = _views(servers)
        _kafka_compacts(server)
        story.before[KAFKA_KILLED] = _views(servers)
        server.kill()
        story.kafkas_words[KILLED] = _words(server)

        manager = manager_of(data)
        story.after[KAFKA_KILLED] = _our_views(_open(manager, data), story.before[KAFKA_KILLED])
        manager.close()
        _look_into(data, story, KAFKA_KILLED)
    return story


# -- we


def _we_write(data: Path, story: Story) -> None:
    ids = {topic: topic_id_in(data / f"{topic}-0") for topic in CONFIGS}
    for topic in CONFIGS:
        shutil.rmtree(data / f"{topic}-0")
    manager = manager_of(data)
    start_ms = int(time.time() * 1000) - 600_000
    for topic, config in CONFIGS.items():
        told = story.told[topic] = Told(manager.open(topic, 0, ids[topic], config), start_ms)
        fill(topic, told, manager)
        story.our_epochs[topic] = told.log.epochs.entries
    story.before[CLOSED] = {topic: view_of_log(told.log, look_ups(told.records)) for topic, told in story.told.items()}
    manager.close()
    _look_into(data, story, CLOSED)


def _we_go_on_and_are_killed(data: Path, story: Story) -> None:
    manager = manager_of(data)
    logs = _open(manager, data)
    story.after[STOPPED] = _our_views(logs, story.before[STOPPED])
    start_ms = int(time.time() * 1000)
    for topic, log in logs.items():
        told = story.told_later[topic] = Told(log, start_ms, sequences=story.told[topic].sequences)
        go_on(topic, told)
        if topic != "append-time":  # of which nothing was flushed
            log.flush()
            manager.checkpoint()
        go_on(topic, told)
    while (job := manager.next_compaction()) is not None:
        assert job.run()
    for topic in COMPACTED:
        go_on(topic, story.told_later[topic])  # for Kafka to compact
    story.before[KILLED] = {
        topic: view_of_log(log, look_ups(view_of_log(log, ()).records)) for topic, log in logs.items()
    }
    for log in logs.values():  # as kill -9 does it: what waits in memory is lost, and so are the locks
        log.abandon()
    for directory in manager._homes.directories:
        directory.release()
    for topic in TORN_TOPICS:
        with max((data / f"{topic}-0").glob("*.log")).open("ab") as file:
            file.write(batch_of(5)[:-1])


def _open(manager: LogManager, data: Path) -> dict[str, PartitionLog]:
    return {
        topic: manager.open(topic, 0, topic_id_in(data / f"{topic}-0"), config) for topic, config in CONFIGS.items()
    }


def _our_views(logs: dict[str, PartitionLog], like: _Views) -> _Views:
    return {topic: view_of_log(log, like[topic].offsets_at) for topic, log in logs.items()}


def _look_into(data: Path, story: Story, name: str) -> None:
    found: list[Finding] = []
    verify(data, Report(found.append), deep())
    story.findings[name] = found
    story.dumps[name] = dump_log_segments([data / f"{topic}-0" for topic in CONFIGS], "--deep-iteration")


# -- Kafka


def _kafka_settings(topic: str) -> dict[str, str]:
    config = CONFIGS[topic]
    return {
        "cleanup.policy": "compact" if config.compact else "delete",
        "delete.retention.ms": str(config.delete_retention_ms),
        "index.interval.bytes": str(config.index_interval_bytes),
        "message.timestamp.type": "LogAppendTime" if config.log_append_time else "CreateTime",
        "min.cleanable.dirty.ratio": "1",  # not before `_kafka_compacts`
    }


def _kafka_starts(server: ApacheKafka) -> _Views:
    server.log.unlink()
    server.start()
    wait_for_leaders(server.bootstrap_servers, CONFIGS)
    return _views(server.bootstrap_servers)


def _views(servers: str) -> _Views:
    return views_through(servers, CONFIGS)


def _words(server: ApacheKafka) -> list[str]:
    lines = server.log.read_text(errors="replace").splitlines()
    return [line for line in lines if any(word in line for word in (" WARN ", " ERROR ", CLEAN_WORDS, UNCLEAN_WORDS))]


def _producer_goes_on(servers: str, story: Story) -> None:
    """The one that has written to us: its last batch once more, its next one, that one once more, one too many."""
    next_sequence = story.told["sequences"].sequences[STEADY]
    last_count = 19

    def send(name: str, count: int, sequence: int, epoch: int = PRODUCER_EPOCH) -> None:
        batch = batch_of(count, producer_id=STEADY, producer_epoch=epoch, sequence=sequence)
        story.answers[name] = send_batch(servers, "sequences", batch)

    send("last", last_count, next_sequence - last_count)
    send("next", 4, next_sequence)
    send("next again", 4, next_sequence)
    send("gap", 4, next_sequence + 5)
    send("older epoch", 4, next_sequence + 4, epoch=PRODUCER_EPOCH - 1)
    story.told["sequences"].sequences[STEADY] = next_sequence + 4


def _kafka_appends(servers: str, story: Story) -> None:
    place = kafka.TopicPartition("transactions", 0)
    admin = kafka.KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.abort_transaction(AbortTransactionSpec(place, OPEN, PRODUCER_EPOCH))
    finally:
        admin.close()
    story.aborted = views_through(servers, ["transactions"])["transactions"]
    writer = Writer(servers, int(time.time() * 1000), "kafkas")
    for commit in (True, False):
        writer.begin()
        writer.write("transactions", 0, range(5))
        writer.end(commit=commit)
    _append_to_all(servers)


def _append_to_all(servers: str) -> None:
    writer = Writer(servers, int(time.time() * 1000), codec="lz4")
    for topic in CONFIGS:
        if topic != "empty":
            writer.write(topic, 0, range(10))


def _kafka_compacts(server: ApacheKafka) -> None:
    """What we have compacted before, and what both of us have appended since."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    entry = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    wanted = [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry]) for topic in COMPACTED]
    for future in admin.incremental_alter_configs(wanted).values():
        future.result(SECONDS_MAX)
    wait_until_cleaned(server.data, COMPACTED)


def _epochs_in(partition: Path) -> tuple[EpochEntry, ...]:
    path = partition / EPOCHS_NAME
    return LeaderEpochs.decode(path.read_bytes(), path).entries
