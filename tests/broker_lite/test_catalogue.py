"""Options that change while the broker runs: in force for the next append, round or fetch, and after a restart."""

import asyncio
import copy
import errno

import pytest

from pylog.broker_lite import turns
from pylog.broker_lite.api_table import API_BY_KEY
from pylog.broker_lite.config import ConfigError
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines.offsets import CommittedOffset
from pylog.broker_lite.protocol import (
    alter_client_quotas,
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    incremental_alter_configs,
    list_config_resources,
    metadata,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.incremental_alter_configs import SET
from pylog.broker_lite.protocol.metadata_records import BROKER_RESOURCE as BROKER
from pylog.broker_lite.protocol.metadata_records import GROUP_RESOURCE as GROUP
from pylog.broker_lite.protocol.metadata_records import TOPIC_RESOURCE as TOPIC
from pylog.storage.records import Record, encode_batch
from tests.support.broker_requests import ask, fetch_one, list_one, produce_one
from tests.support.brokers import busy_disk, commit, running
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of
from tests.support.simulated_files import SimulatedFiles

pytestmark = pytest.mark.faults

EARLIEST = -2
ALL, NODE = "", "1"
MANY = 250  # partitions: more than are made at once


@pytest.fixture
def files():
    return SimulatedFiles(SettableClock(START_MS))


@pytest.fixture
def short_turns(monkeypatch):
    """They are over at once."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 0)


def on(files, work, **options):
    return running([files.root / "data"], work, files=files, clock=files.clock, **options)


async def write(broker, topic="t", count=1):
    for _ in range(count):
        answer = await produce_one(broker, topic, batch_of(2, timestamp_ms=broker.now_ms()))
        assert answer.error_code == ErrorCode.NONE


def segments(broker, topic="t"):
    return len(broker.partition(topic, 0).log.segments())


async def api(broker, spec, request):
    return await ask(broker, API_BY_KEY[spec.key], request, spec.version_max)


# -- topics


def test_the_next_append_is_held_to_a_new_limit(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        await write(broker)
        broker.catalogue.configure(TOPIC, "t", {"max.message.bytes": "20"})
        refused = await produce_one(broker, "t", batch_of(2, timestamp_ms=broker.now_ms()))
        assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
        broker.catalogue.configure(TOPIC, "t", {"max.message.bytes": None})
        await write(broker)

    on(files, work)


def test_segments_end_sooner_from_the_next_append_on(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        await write(broker, count=3)
        assert segments(broker) == 1
        broker.catalogue.configure(TOPIC, "t", {"segment.bytes": "120"})
        await write(broker, count=2)
        assert segments(broker) == 3
        broker.catalogue.configure(TOPIC, "t", {"segment.bytes": None, "segment.ms": "1000"})
        await write(broker)
        assert segments(broker) == 3
        files.clock.advance(2000)
        await write(broker)
        assert segments(broker) == 4

    on(files, work)


def test_the_next_round_deletes_by_the_new_time(files):
    async def work(broker):
        await broker.create_topic("t", 1, {"segment.bytes": "120"})
        await write(broker, count=3)
        files.clock.advance(5000)
        await broker.upkeep.delete()
        assert (await list_one(broker, "t", EARLIEST)).offset == 0
        broker.catalogue.configure(TOPIC, "t", {"retention.ms": "1000"})
        await broker.upkeep.delete()
        assert (await list_one(broker, "t", EARLIEST)).offset == 6

    on(files, work)


def test_a_topic_that_becomes_compacted_wants_keys_and_is_compacted(files):
    async def work(broker):
        await broker.create_topic("t", 1, {"segment.bytes": "120"})
        await write(broker, count=3)
        assert broker._logs.next_compaction() is None
        changes = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        broker.catalogue.configure(TOPIC, "t", changes)
        assert broker._logs.next_compaction() is not None
        batch = encode_batch([Record(0, broker.now_ms(), None, b"value")])
        keyless = await produce_one(broker, "t", batch)
        assert keyless.error_code == ErrorCode.INVALID_RECORD

    on(files, work)


def test_flushing_every_append_begins_and_ends_with_the_option(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        partition = broker.partition("t", 0)
        await write(broker)
        assert not partition.flush_is_due
        assert partition.log.recovery_point == 0
        broker.catalogue.configure(TOPIC, "t", {"flush.messages": "1"})
        await write(broker)
        assert partition.log.recovery_point == 4
        broker.catalogue.configure(TOPIC, "t", {"flush.messages": None})
        await write(broker)
        assert (partition.log.recovery_point, partition.log.high_watermark) == (4, 6)
        assert (await fetch_one(broker, "t", 4)).high_watermark == 6

    on(files, work)


def test_changes_are_there_after_a_crash_and_so_are_those_that_were_taken_back(files):
    async def change(broker):
        await broker.create_topic("t", 1, {"flush.ms": "7", "retention.ms": "8"})
        broker.catalogue.configure(TOPIC, "t", {"segment.bytes": "999", "flush.ms": None})
        broker.catalogue.configure(BROKER, ALL, {"log.index.interval.bytes": "5", "log.retention.bytes": "5"})
        broker.catalogue.configure(BROKER, NODE, {"log.index.interval.bytes": "6"})
        broker.catalogue.configure(BROKER, ALL, {"log.retention.bytes": None})
        broker.catalogue.configure(GROUP, "g", {"share.isolation.level": "read_committed"})
        for given in ("5", None):
            broker.catalogue.configure(GROUP, "h", {"share.delivery.count.limit": given})
        await broker.catalogue.flushed()

    async def look(broker):
        assert broker.topics.by_name["t"].overrides == {"segment.bytes": "999", "retention.ms": "8"}
        assert broker.topics.broker_overrides == {
            ALL: {"log.index.interval.bytes": "5"},
            NODE: {"log.index.interval.bytes": "6"},
        }
        assert broker.topics.group_overrides == {"g": {"share.isolation.level": "read_committed"}}
        config = broker.partition("t", 0).log.config
        assert (config.segment_bytes, config.retention_ms, config.index_interval_bytes) == (999, 8, 6)
        assert (config.retention_bytes, config.flush_ms) == (-1, (1 << 63) - 1)

    on(files, change, crash=True)
    on(files, look)


def topics_of(names):
    wanted = [create_topics.CreatableTopic(name, 1, 1, [], []) for name in names]
    return create_topics.SPEC, create_topics.CreateTopicsRequest(wanted)


def more_partitions():
    wanted = [create_partitions.CreatePartitionsTopic("t", 3, None)]
    return create_partitions.SPEC, create_partitions.CreatePartitionsRequest(wanted, 60_000)


def one_less():
    wanted = [delete_topics.DeleteTopicState("u")]
    return delete_topics.SPEC, delete_topics.DeleteTopicsRequest(wanted, timeout_ms=60_000)


def option():
    config = incremental_alter_configs.IncrementalAlterableConfig("flush.ms", SET, "5")
    resource = incremental_alter_configs.IncrementalAlterConfigsResource(TOPIC, "t", [config])
    return incremental_alter_configs.SPEC, incremental_alter_configs.IncrementalAlterConfigsRequest([resource])


def option_of_brokers():
    resource = alter_configs.AlterConfigsResource(BROKER, ALL, [alter_configs.AlterableConfig("log.roll.ms", "5")])
    return alter_configs.SPEC, alter_configs.AlterConfigsRequest([resource])


def option_of_a_group():
    config = incremental_alter_configs.IncrementalAlterableConfig("share.isolation.level", SET, "read_committed")
    resource = incremental_alter_configs.IncrementalAlterConfigsResource(GROUP, "g", [config])
    return incremental_alter_configs.SPEC, incremental_alter_configs.IncrementalAlterConfigsRequest([resource])


def quota():
    entity = [alter_client_quotas.QuotaEntityPart("client-id", "c")]
    change = alter_client_quotas.QuotaChange("producer_byte_rate", 1e9)
    entry = alter_client_quotas.AlterClientQuotasEntry(entity, [change])
    return alter_client_quotas.SPEC, alter_client_quotas.AlterClientQuotasRequest([entry])


def seen(broker):
    topics = broker.topics
    shown = {name: (topic.partition_count, topic.overrides) for name, topic in topics.by_name.items()}
    return copy.deepcopy((shown, topics.broker_overrides, topics.group_overrides, topics.quotas))


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(topics_of("ab"), id="topics"),
        pytest.param(more_partitions(), id="partitions"),
        pytest.param(one_less(), id="deletion"),
        pytest.param(option(), id="an option of a topic"),
        pytest.param(option_of_brokers(), id="an option of brokers"),
        pytest.param(option_of_a_group(), id="an option of a group"),
        pytest.param(quota(), id="a quota"),
    ],
)
def test_what_was_answered_is_there_after_a_power_cut(files, asked):
    async def work(broker):
        for topic in "tu":
            await broker.create_topic(topic, 1)
        before = seen(broker)
        await api(broker, *asked)
        after = seen(broker)
        assert after != before
        return after, files.after_machine_crash(None)

    async def look(broker):
        return seen(broker)

    after, left = on(files, work, crash=True)
    assert on(left, look) == after


def test_an_option_that_changes_while_its_topic_is_made_counts(files):
    async def work(broker):
        with busy_disk(broker) as disk:
            making = asyncio.create_task(broker.create_topic("t", 1))
            await asyncio.sleep(0)
            broker.catalogue.configure(TOPIC, "t", {"segment.bytes": "999"})
            disk.set()
            await making
        partition = broker.partition("t", 0)
        assert partition.config.log.segment_bytes == partition.log.config.segment_bytes == 999

    on(files, work)


def test_what_cannot_be_written_is_not_in_force(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        for resource in ((TOPIC, "t", {"segment.bytes": "999"}), (BROKER, ALL, {"log.segment.bytes": "999"})):
            files.fail("append", errno.ENOSPC, path="*/__cluster_metadata-0/*")
            with pytest.raises(OSError, match="No space"):
                broker.catalogue.configure(*resource)
        assert broker.topics.by_name["t"].overrides == {}
        assert broker.config["log.segment.bytes"] == broker.partition("t", 0).log.config.segment_bytes == 1 << 30

    on(files, work)


# -- brokers


def test_an_option_of_brokers_counts_for_every_topic_that_does_not_override_it(files):
    async def work(broker):
        await broker.create_topic("own", 1, {"segment.bytes": "500"})
        await broker.create_topic("t", 1)
        broker.catalogue.configure(BROKER, ALL, {"log.segment.bytes": "600"})
        await broker.create_topic("later", 1)
        seen = {topic: broker.partition(topic, 0).log.config.segment_bytes for topic in ("own", "t", "later")}
        assert seen == {"own": 500, "t": 600, "later": 600}
        broker.catalogue.configure(BROKER, NODE, {"log.segment.bytes": "700"})
        assert broker.partition("t", 0).log.config.segment_bytes == 700
        broker.catalogue.configure(BROKER, NODE, {"log.segment.bytes": None})
        assert broker.partition("t", 0).log.config.segment_bytes == 600
        await broker.coordinator_ready()
        assert broker.partition("__consumer_offsets", 0).log.config.segment_bytes == 100 << 20

    on(files, work, config={"offsets.topic.num.partitions": 1})


def test_what_the_cleaner_may_use_and_how_often_it_looks_change_too(files):
    waits = []

    async def wait(wait_ms):
        waits.append(wait_ms)
        await asyncio.sleep(0)
        return len(waits) > 3

    async def work(broker):
        changes = {"log.cleaner.dedupe.buffer.size": "2000000", "log.cleaner.backoff.ms": "77"}
        broker.catalogue.configure(BROKER, ALL, changes)
        assert broker._logs.dedupe_buffer_bytes == 2_000_000
        upkeep = broker.upkeep
        upkeep._wait_ms = wait
        await upkeep._every(1, upkeep._option("log.cleaner.backoff.ms"), upkeep.compact_all)
        assert waits == [1, 77, 77, 77]

    on(files, work)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"num.partitions": "3"}, "cannot be changed while the broker runs", id="fixed"),
        pytest.param({"log.cleaner.max.compaction.lag.ms": "5"}, "topic 't': min.compaction", id="against a topic"),
        pytest.param({"log.cleaner.min.compaction.lag.ms": "-1"}, "at least 0", id="wrong"),
        pytest.param({"log.segment.byte": "5"}, "did you mean log.segment.bytes", id="near miss"),
    ],
)
def test_what_brokers_cannot_have_is_refused_and_nothing_changes(files, changes, words):
    async def work(broker):
        await broker.create_topic("t", 1, {"min.compaction.lag.ms": "6"})
        end = broker.catalogue.log.log_end_offset
        with pytest.raises(ConfigError, match=words):
            broker.catalogue.configure(BROKER, ALL, {"log.segment.bytes": "999", **changes})
        assert broker.catalogue.log.log_end_offset == end
        assert broker.config["log.segment.bytes"] == 1 << 30

    on(files, work)


# -- partitions


def test_new_partitions_can_be_written_at_once_and_after_a_crash(files):
    async def grow(broker):
        await broker.create_topic("t", 1)
        await write(broker)
        asked = create_partitions.CreatePartitionsTopic("t", 3, None)
        answer = await api(broker, create_partitions.SPEC, create_partitions.CreatePartitionsRequest([asked], 60_000))
        assert answer.results[0].error_code == ErrorCode.NONE
        assert (await produce_one(broker, "t", batch_of(), partition=2)).error_code == ErrorCode.NONE

    async def look(broker):
        seen = await api(broker, metadata.SPEC, metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")]))
        assert [one.partition_index for one in seen.topics[0].partitions] == [0, 1, 2]
        return [broker.partition("t", index).log.log_end_offset for index in range(3)]

    on(files, grow, crash=True)
    assert on(files, look) == [2, 0, 1]


def test_a_topic_that_grows_while_it_is_made_has_all_its_partitions(files):
    async def work(broker):
        with busy_disk(broker) as disk:
            making = asyncio.create_task(broker.create_topic("t", 1))
            await asyncio.sleep(0)
            broker.catalogue.add_partitions("t", 2)
            await asyncio.sleep(0)
            broker.catalogue.add_partitions("t", 4)
            disk.set()
            await making
            await broker.topic_made("t")
        for index in range(4):
            await produce_one(broker, "t", batch_of(), partition=index)
        assert [broker.partition("t", index).log.log_end_offset for index in range(4)] == [1] * 4

    on(files, work)


async def half_made(broker):
    """A topic of which some partitions are there and some are not: others have had a turn between."""
    making = asyncio.create_task(broker.create_topic("t", MANY))
    while ("t", 0) not in broker.partitions:
        await asyncio.sleep(0)
    assert ("t", MANY - 1) not in broker.partitions
    return making


def test_an_option_that_changes_when_half_of_a_topic_is_made_counts_for_all_of_it(files, short_turns):
    async def work(broker):
        making = await half_made(broker)
        broker.catalogue.configure(TOPIC, "t", {"segment.bytes": "999"})
        await making
        made = [broker.partition("t", index) for index in range(MANY)]
        assert {partition.config.log.segment_bytes for partition in made} == {999}
        assert {partition.log.config.segment_bytes for partition in made} == {999}

    on(files, work)


def test_a_topic_that_is_deleted_when_half_of_it_is_made_has_no_partitions(files, short_turns):
    async def work(broker):
        making = await half_made(broker)
        topic = await broker.delete_topic("t", broker.topics.by_name["t"].topic_id)
        await making
        assert topic.partition_count == MANY
        assert [place for place in broker.partitions if place[0] == "t"] == []
        await broker.create_topic("t", 1)
        assert broker.partition("t", 0).log.log_end_offset == 0

    on(files, work)


def test_partitions_that_could_not_be_made_are_made_when_there_is_room(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        await write(broker)
        files.fail("create_directory", errno.ENOSPC, path="*/t-2")
        broker.catalogue.add_partitions("t", 3)
        with pytest.raises(OSError, match="No space"):
            await broker.topic_made("t")
        assert broker.partition("t", 0).log.log_end_offset == 2
        assert (await produce_one(broker, "t", batch_of(), partition=1)).error_code == ErrorCode.NONE
        await broker.topic_made("t")
        assert (await produce_one(broker, "t", batch_of(), partition=2)).error_code == ErrorCode.NONE
        assert broker.partition("t", 0).log.log_end_offset == 2

    on(files, work)


def test_the_number_by_which_groups_find_their_place_stays(files):
    async def work(broker):
        await broker.coordinator_ready()
        with pytest.raises(RequestError) as refused:
            broker.catalogue.add_partitions("__consumer_offsets", 60)
        assert refused.value.code == ErrorCode.INVALID_REQUEST

    on(files, work)


# -- many at once


def test_a_request_for_many_topics_makes_all_that_can_be(tmp_path):
    """On a real disk, where several are made at a time."""
    names = [f"t{index}" for index in range(60)]

    async def work(broker):
        wanted = [create_topics.CreatableTopic(name, 2, 1, [], []) for name in (*names, "b a d")]
        answer = await api(broker, create_topics.SPEC, create_topics.CreateTopicsRequest(wanted))
        assert {topic.name: topic.error_code for topic in answer.topics} == {
            **dict.fromkeys(names, ErrorCode.NONE),
            "b a d": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        for name in names:
            assert (await produce_one(broker, name, batch_of(), partition=1)).error_code == ErrorCode.NONE

    async def look(broker):
        return [broker.partition(name, 1).log.log_end_offset for name in names]

    running([tmp_path], work, crash=True)
    assert running([tmp_path], look) == [1] * 60


def test_what_is_asked_for_in_one_turn_is_done_in_its_order(files):
    async def work(broker):
        await broker.create_topic("t", 1)
        await write(broker)
        first, deleting = broker.catalogue.delete("t", broker.topics.by_name["t"].topic_id)
        second = broker.catalogue.create("t", 1, {})
        await broker.topic_made("t")
        await deleting
        assert first.topic_id != second.topic_id
        assert broker.partition("t", 0).log.log_end_offset == 0
        await write(broker)
        _, deleting = broker.catalogue.delete("t", second.topic_id)
        await deleting
        return second.topic_id

    async def look(broker):
        assert broker.topics.by_name == {}

    on(files, work)
    assert not [name for name in files.tree() if "/t-0" in name]
    on(files, look)


def test_who_gives_too_little_time_is_told_so_and_it_is_done_all_the_same(files):
    async def work(broker):
        await broker.create_topic("old", 1)
        with busy_disk(broker):
            wanted = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t", 1, 1, [], [])], 10)
            more = create_partitions.CreatePartitionsRequest(
                [create_partitions.CreatePartitionsTopic("t", 2, None)], 10
            )
            less = delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState("old")], timeout_ms=10)
            answers = [
                (await api(broker, create_topics.SPEC, wanted)).topics,
                (await api(broker, create_partitions.SPEC, more)).results,
                (await api(broker, delete_topics.SPEC, less)).responses,
            ]
            assert [one.error_code for (one,) in answers] == [ErrorCode.REQUEST_TIMED_OUT] * 3
        await broker.topic_made("t")
        assert (await produce_one(broker, "t", batch_of(), partition=1)).error_code == ErrorCode.NONE
        assert list(broker.topics.by_name) == ["t"]

    on(files, work)


def test_resources_with_options_are_listed(files):
    async def work(broker):
        for topic in ("b", "a"):
            await broker.create_topic(topic, 1)
            broker.catalogue.configure(GROUP, topic, {"share.delivery.count.limit": "7"})
        request = list_config_resources.ListConfigResourcesRequest([])
        answer = await api(broker, list_config_resources.SPEC, request)
        found = [(one.resource_type, one.resource_name) for one in answer.config_resources]
        assert found == [(2, "a"), (2, "b"), (4, "1"), (8, "1"), (32, "a"), (32, "b")]

    on(files, work)


# -- topics of the broker's own


def test_without_its_topic_a_groups_commits_are_gone_and_it_begins_anew(files):
    place = ("t", 0)

    async def work(broker):
        await broker.create_topic("t", 1)
        await broker.coordinator_ready()
        commit(broker, "g", {place: CommittedOffset(5, -1, "", START_MS)})
        await broker.delete_topic("__consumer_offsets", broker.topics.by_name["__consumer_offsets"].topic_id)
        assert broker.offsets.committed("g") == {}
        await broker.coordinator_ready()
        assert broker.offsets.committed("g") == {}
        commit(broker, "g2", {place: CommittedOffset(6, -1, "", START_MS)})

    async def look(broker):
        assert broker.offsets.committed("g") == {}
        assert broker.offsets.committed("g2")[place].offset == 6

    on(files, work, config={"offsets.topic.num.partitions": 3}, crash=True)
    on(files, look, config={"offsets.topic.num.partitions": 3})
