"""The broker's state over crashes: it is what the logs say, whatever the directories look like."""

import asyncio
import shutil
from uuid import UUID

import pytest

from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines.offsets import CommittedOffset
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.storage.records import Record, encode_batch
from tests.support.brokers import busy_disk, commit, running

pytestmark = pytest.mark.faults

NO_ID = UUID(int=0)
CONFIG = {"offsets.topic.num.partitions": 3}


def run(directory, work, *, crash=False, config=CONFIG):
    """`work(broker)` on a broker of this directory, which is closed cleanly or, as by kill -9, not at all."""
    return running([directory], work, crash=crash, config=config)


async def names(broker):
    return sorted(broker.topics.by_name)


def a_batch(value=b"v"):
    return encode_batch([Record(0, 1_700_000_000_000, b"k", value)])


def test_topics_and_their_overrides_are_there_after_a_crash(tmp_path):
    async def create(broker):
        return await broker.create_topic("orders", 3, {"max.message.bytes": "900"})

    async def look(broker):
        topic = broker.topics.by_name["orders"]
        assert (tmp_path / "orders-2").is_dir()
        return topic.topic_id, topic.partition_count, broker.partition("orders", 2).config.message_bytes_max

    made = run(tmp_path, create, crash=True)
    assert run(tmp_path, look) == (made.topic_id, 3, 900)


def test_a_crash_between_the_record_of_a_topic_and_its_directories(tmp_path):
    async def create(broker):
        await broker.create_topic("orders", 2)

    async def append(broker):
        assert broker.partition("orders", 1).append(a_batch()).base_offset == 0

    run(tmp_path, create, crash=True)
    shutil.rmtree(tmp_path / "orders-1")
    run(tmp_path, append)


def test_a_crash_between_the_record_of_a_deletion_and_its_doing(tmp_path):
    async def create(broker):
        await broker.create_topic("orders", 1)
        broker.partition("orders", 0).append(a_batch())

    async def record_only(broker):
        broker.catalogue.change(broker.topics.delete("orders", NO_ID).events)

    run(tmp_path, create, crash=True)
    run(tmp_path, record_only, crash=True)
    assert (tmp_path / "orders-0").is_dir()
    assert run(tmp_path, names) == []
    assert not (tmp_path / "orders-0").exists()


def test_a_topic_whose_record_was_torn_is_unknown_but_its_data_is_set_aside(tmp_path):
    async def create(broker):
        await broker.create_topic("first", 1)
        await broker.create_topic("second", 1)
        broker.partition("second", 0).append(a_batch())

    async def create_second(broker):
        await broker.create_topic("second", 1)
        return broker.partition("second", 0).log.log_end_offset

    run(tmp_path, create, crash=True)
    log = tmp_path / "__cluster_metadata-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1])
    assert run(tmp_path, names) == ["first"]
    assert run(tmp_path, create_second) == 0
    (aside,) = tmp_path.glob("second-0.*-stray")
    assert (aside / f"{0:020d}.log").read_bytes().endswith(bytes(a_batch()[16:]))


def test_a_topic_made_anew_has_another_id_and_begins_empty(tmp_path):
    async def again(broker):
        first = await broker.create_topic("orders", 1)
        await broker.coordinator_ready()
        broker.partition("orders", 0).append(a_batch())
        commit(broker, "g", {("orders", 0): CommittedOffset(1, -1, "", 0)})
        await broker.delete_topic("orders", NO_ID)
        second = await broker.create_topic("orders", 1)
        assert first.topic_id != second.topic_id
        assert broker.partition("orders", 0).log.log_end_offset == 0
        assert broker.offsets.committed("g") == {}

    run(tmp_path, again)


def test_deleted_while_it_is_made_it_is_gone(tmp_path):
    async def race(broker):
        broker.catalogue.create("orders", 2, {})
        await broker.delete_topic("orders", NO_ID)
        await broker.topic_made("orders")
        with pytest.raises(RequestError) as unknown:
            broker.partition("orders", 0)
        assert unknown.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, race)
    assert not list(tmp_path.glob("orders-*"))


def test_commits_are_there_after_a_crash_and_the_last_one_holds(tmp_path):
    async def write(broker):
        await broker.create_topic("orders", 2)
        await broker.coordinator_ready()
        for offset in (5, 7):
            commit(
                broker,
                "group",
                {("orders", p): CommittedOffset(offset + p, 0, "mark", 1_700_000_000_000) for p in range(2)},
            )

    async def committed(broker):
        return broker.offsets.committed("group")

    run(tmp_path, write, crash=True)
    assert run(tmp_path, committed) == {
        ("orders", 0): CommittedOffset(7, 0, "mark", 1_700_000_000_000),
        ("orders", 1): CommittedOffset(8, 0, "mark", 1_700_000_000_000),
    }


def test_producer_ids_go_on_behind_a_crash(tmp_path):
    async def two(broker):
        return [await broker.new_producer_id() for _ in range(2)]

    given = run(tmp_path, two, crash=True) + run(tmp_path, two, crash=True) + run(tmp_path, two)
    assert len(set(given)) == 6


def test_what_a_topic_cannot_override_is_refused(tmp_path):
    async def create(broker):
        with pytest.raises(RequestError) as refused:
            await broker.create_topic("orders", 1, {"retention.ms": "-5"})
        assert refused.value.code == ErrorCode.INVALID_CONFIG
        assert broker.topics.by_name == {}

    run(tmp_path, create)


def test_a_disk_that_fails_while_a_topic_is_made_is_told_and_tried_again(tmp_path, monkeypatch):
    async def fail(broker):
        def no_room(*args, **options):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as full:
            full.setattr(broker._logs, "open", no_room)
            with pytest.raises(OSError, match="No space left"):
                await broker.create_topic("orders", 1)
            with pytest.raises(OSError, match="No space left"):
                await broker.topic_made("orders")
        await broker.topic_made("orders")
        return broker.partition("orders", 0).append(a_batch()).base_offset

    assert run(tmp_path, fail) == 0


def test_the_metadata_log_is_not_a_topic(tmp_path):
    async def create(broker):
        with pytest.raises(RequestError) as refused:
            await broker.create_topic("__cluster_metadata", 1)
        assert refused.value.code == ErrorCode.INVALID_REQUEST
        with pytest.raises(RequestError):
            await broker.delete_topic("__cluster_metadata", NO_ID)
        with pytest.raises(RequestError):
            broker.partition("__cluster_metadata", 0)

    run(tmp_path, create)


def test_a_deletion_is_done_though_its_client_has_gone(tmp_path):
    async def delete_and_leave(broker):
        await broker.create_topic("orders", 1)
        broker.partition("orders", 0).append(a_batch(b"old"))
        with busy_disk(broker) as busy:
            deletion = asyncio.create_task(broker.delete_topic("orders", NO_ID))
            await asyncio.sleep(0)
            deletion.cancel()
            creation = asyncio.create_task(broker.create_topic("orders", 1))
            await asyncio.sleep(0)
            busy.set()
            await creation
            assert broker.partition("orders", 0).append(a_batch(b"new")).base_offset == 0

    async def end(broker):
        return broker.partition("orders", 0).log.log_end_offset

    run(tmp_path, delete_and_leave)
    assert run(tmp_path, end) == 1


def test_small_segments_of_users_do_not_hinder_the_brokers_own_logs(tmp_path):
    async def work(broker):
        await broker.create_topic("many", 500)
        await broker.coordinator_ready()
        commits = {("many", index): CommittedOffset(1, -1, "x" * 50, 0) for index in range(500)}
        commit(broker, "g", commits)

    run(tmp_path, work, config={"log.segment.bytes": 1024, "offsets.topic.num.partitions": 2})


def test_the_brokers_own_logs_are_kept_as_kafka_keeps_them(tmp_path):
    async def work(broker):
        await broker.coordinator_ready()
        commits = broker.partition("__consumer_offsets", 0).log.config
        metadata = broker.catalogue.log.config
        assert (commits.compact, commits.delete, commits.segment_bytes) == (True, False, 100 << 20)
        assert (metadata.compact, metadata.delete) == (False, False)
        return broker.topics.by_name["__consumer_offsets"].overrides

    short = {"log.retention.ms": 1, "log.segment.bytes": 1024, "log.cleanup.policy": "delete"}
    overrides = run(tmp_path, work, config=CONFIG | short)
    assert overrides == {"cleanup.policy": "compact", "segment.bytes": str(100 << 20)}
    run(tmp_path, work, config=CONFIG | short | {"offsets.topic.segment.bytes": 5000})  # it was made before


def test_commits_of_a_broker_that_knew_no_compaction_are_compacted(tmp_path):
    async def make(broker):
        broker.catalogue.change(broker.topics.create("__consumer_offsets", 3, {}, UUID(int=5)).events)

    async def look(broker):
        assert broker.partition("__consumer_offsets", 2).log.config.compact

    run(tmp_path, make, crash=True)
    run(tmp_path, look)
