"""What is told of a broker, beside what was done with it."""

import asyncio

import pytest

from pylog.broker_lite.api_table import API_BY_KEY
from pylog.broker_lite.broker import Broker
from pylog.broker_lite.connections import Connections
from pylog.broker_lite.health import Health, Phase
from pylog.broker_lite.machines.offsets import CommittedOffset
from pylog.broker_lite.metrics.collect import Collector
from pylog.broker_lite.metrics.families import FAMILIES
from pylog.broker_lite.metrics.requests import RequestStats
from pylog.broker_lite.protocol.errors import ErrorCode
from tests.support.broker_requests import fetch_one, produce_one
from tests.support.brokers import commit, running
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of
from tests.support.prometheus import Metric, parse

CONFIG = {"log.retention.ms": 3_600_000, "log.retention.bytes": 1_000_000, "offsets.topic.num.partitions": 1}


async def told(broker: Broker) -> dict[str, Metric]:
    health = Health()
    health.broker, health.phase, health.connections = broker, Phase.RUNNING, Connections(broker.config)
    collector = Collector(health)
    text = "".join([piece async for piece in collector.pieces()])
    collector.close()
    return parse(text)


def on(tmp_path, work, clock=None, **config):
    async def main(broker):
        broker.requests = RequestStats(API_BY_KEY)
        return await work(broker)

    return running([tmp_path], main, config={**CONFIG, **config}, clock=clock or SettableClock(START_MS + 60_000))


def test_before_the_broker_is_loaded_the_process_tells_of_itself():
    async def main():
        return "".join([piece async for piece in Collector(Health()).pieces()])

    metrics = parse(asyncio.run(main()))
    assert metrics["pylog_ready"].value() == 0
    assert metrics["process_start_time_seconds"].value() > 0
    assert not [name for name in metrics if "partition" in name]


def test_everything_in_the_table_is_told_and_nothing_else(tmp_path):
    async def work(broker):
        return await told(broker)

    metrics = on(tmp_path, work)
    assert set(metrics) == {family.name for family in FAMILIES}
    assert all(metrics[family.name].kind == family.kind for family in FAMILIES)


def test_bytes_are_told_for_each_partition(tmp_path):
    async def work(broker):
        await broker.create_topic("t", 3)
        sizes = {0: 0, 1: 0, 2: 0}
        for partition, times in ((0, 1), (2, 5)):
            for _ in range(times):
                batch = batch_of(10)
                sizes[partition] += len(batch)
                assert (await produce_one(broker, "t", batch, partition=partition)).error_code == ErrorCode.NONE
        await fetch_one(broker, "t", partition=2)
        await fetch_one(broker, "t", partition=2)
        return sizes, await told(broker)

    sizes, metrics = on(tmp_path, work)
    for partition, size_bytes in sizes.items():
        place = {"topic": "t", "partition": partition}
        assert metrics["pylog_partition_bytes_in_total"].value(**place) == size_bytes
        assert metrics["pylog_partition_size_bytes"].value(**place) == size_bytes
        assert metrics["pylog_partition_bytes_out_total"].value(**place) == (2 * size_bytes if partition == 2 else 0)
        assert metrics["pylog_partition_retention_headroom_bytes"].value(**place) == 1_000_000 - size_bytes
    end = metrics["pylog_partition_end_offset"]
    assert [end.value(topic="t", partition=partition) for partition in range(3)] == [10, 0, 50]
    batches = metrics["pylog_partition_batches_in_total"]
    assert [batches.value(topic="t", partition=partition) for partition in range(3)] == [1, 0, 5]


def test_a_batch_that_is_sent_again_counts_once(tmp_path):
    async def work(broker):
        await broker.create_topic("t", 1)
        for _ in range(3):
            await produce_one(broker, "t", batch_of(1, producer_id=7, producer_epoch=0, sequence=0))
        return await told(broker)

    assert on(tmp_path, work)["pylog_partition_batches_in_total"].value(topic="t", partition=0) == 1


@pytest.mark.parametrize(
    ("overrides", "headroom_bytes", "headroom_s"),
    [
        pytest.param({}, True, 3540, id="as the broker has it"),
        pytest.param({"retention.ms": "-1"}, True, None, id="for ever"),
        pytest.param({"retention.bytes": "-1"}, False, 3540, id="of any size"),
        pytest.param({"cleanup.policy": "compact"}, False, None, id="only compacted"),
        pytest.param({"retention.ms": "1000"}, True, -59, id="its time has passed"),
    ],
)
def test_retention_leaves_so_much_room(tmp_path, overrides, headroom_bytes, headroom_s):
    async def work(broker):
        await broker.create_topic("t", 1, overrides)
        await produce_one(broker, "t", batch_of(1, timestamp_ms=START_MS))
        return await told(broker)

    metrics = on(tmp_path, work)
    assert metrics["pylog_partition_retention_headroom_bytes"].has(topic="t", partition=0) == headroom_bytes
    seconds = metrics["pylog_partition_retention_headroom_seconds"]
    assert (seconds.value(topic="t", partition=0) if headroom_s is not None else None) == headroom_s
    assert seconds.has(topic="t", partition=0) == (headroom_s is not None)


def test_lag_is_told_in_records_and_in_seconds(tmp_path):
    clock = SettableClock(START_MS + 60_000)

    async def work(broker):
        await broker.create_topic("t", 4)
        await broker.coordinator_ready()
        for partition in range(3):
            for age_s in (40, 30, 20):
                await produce_one(
                    broker, "t", batch_of(2, timestamp_ms=clock.now_ms() - age_s * 1000), partition=partition
                )
        commits = {("t", 0): 6, ("t", 1): 2, ("t", 2): 0, ("t", 3): 0}
        settled = commit(
            broker, 'the "group"', {place: CommittedOffset(offset, 0, "", 0) for place, offset in commits.items()}
        )
        assert settled is None
        return await told(broker)

    metrics = on(tmp_path, work, clock)
    labels = [{"group": 'the "group"', "topic": "t", "partition": partition} for partition in range(4)]
    assert [metrics["pylog_group_committed_offset"].value(**one) for one in labels] == [6, 2, 0, 0]
    assert [metrics["pylog_group_lag_records"].value(**one) for one in labels] == [0, 4, 6, 0]
    assert [metrics["pylog_group_lag_seconds"].value(**one) for one in labels] == [0, 30, 40, 0]
    assert metrics["pylog_group_members"].value(group='the "group"') == 0
    assert metrics["pylog_group_state"].value(group='the "group"', state="Empty") == 1
    assert metrics["pylog_groups"].value(state="Empty") == 1
    assert metrics["pylog_groups"].value(state="Stable") == 0


def test_records_that_were_deleted_unread_leave_a_lag_but_no_hole(tmp_path):
    async def work(broker):
        await broker.create_topic("t", 1)
        await broker.coordinator_ready()
        for age_s in (40, 30):
            await produce_one(broker, "t", batch_of(2, timestamp_ms=START_MS + 60_000 - age_s * 1000))
        commit(broker, "g", {("t", 0): CommittedOffset(0, 0, "", 0)})
        broker.partition("t", 0).log.move_start(2)
        return await told(broker)

    metrics = on(tmp_path, work)
    place = {"group": "g", "topic": "t", "partition": 0}
    assert metrics["pylog_group_lag_records"].value(**place) == 4
    assert metrics["pylog_group_lag_seconds"].value(**place) == 30


def test_what_is_offline_is_counted(tmp_path):
    async def work(broker):
        await broker.create_topic("t", 3)
        broker.partition("t", 1).log.condition.fail(OSError("a bad disk"))
        return await told(broker)

    metrics = on(tmp_path, work, **{"min.insync.replicas": 2})
    assert metrics["pylog_partitions"].value() == 3
    assert metrics["pylog_offline_partitions"].value() == 1
    assert metrics["pylog_under_replicated_partitions"].value() == 1
    assert metrics["pylog_under_min_isr_partitions"].value() == 3


def test_errors_are_told_by_api_and_name(tmp_path):
    async def work(broker):
        await produce_one(broker, "gone", batch_of(1))
        await fetch_one(broker, "gone")
        await fetch_one(broker, "gone")
        return await told(broker)

    errors = on(tmp_path, work)["pylog_request_errors_total"]
    assert errors.value(api="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert errors.value(api="Fetch", error="UNKNOWN_TOPIC_OR_PARTITION") == 2


def test_many_partitions_are_told_in_many_turns(tmp_path):
    """The loop has its turn between pieces: none is longer than what some hundred partitions have to say."""

    async def work(broker):
        await broker.create_topic("t", 250)
        health = Health()
        health.broker = broker
        return [piece async for piece in Collector(health).pieces()]

    pieces = on(tmp_path, work)
    assert max(piece.count("\n") for piece in pieces) <= 150
    assert len(parse("".join(pieces))["pylog_partition_end_offset"].samples) == 250
