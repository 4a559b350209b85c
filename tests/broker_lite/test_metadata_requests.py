"""Metadata: what is told of topics that are there, that are not, and that make themselves when they are asked for."""

import asyncio
import errno
import time
from uuid import UUID

import pytest

from pylog.broker_lite.api import Request
from pylog.broker_lite.api_table import API_BY_KEY
from pylog.broker_lite.apis import metadata as metadata_api
from pylog.broker_lite.protocol import metadata
from pylog.broker_lite.protocol.errors import ErrorCode
from tests.support.broker_requests import ask
from tests.support.brokers import busy_disk, running
from tests.support.clock import SettableClock
from tests.support.logs import START_MS
from tests.support.simulated_files import SimulatedFiles

pytestmark = pytest.mark.faults


@pytest.fixture(autouse=True)
def told_at_once(monkeypatch):
    monkeypatch.setattr(metadata_api, "NEWS_AFTER_SECONDS", 0.0)


@pytest.fixture
def files():
    return SimulatedFiles(SettableClock(START_MS))


def on(files, work, **options):
    return running([files.root / "data"], work, files=files, clock=files.clock, **options)


async def told_by(broker, request, version=metadata.SPEC.version_max):
    return await ask(broker, API_BY_KEY[metadata.SPEC.key], request, version)


def asked_for(names, **options):
    return metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name) for name in names], **options)


@pytest.mark.parametrize(
    ("name", "partition_count", "internal"),
    [
        pytest.param("new", 2, False, id="a user's"),
        pytest.param("__consumer_offsets", 3, True, id="commits"),
        pytest.param("__transaction_state", 0, True, id="not there yet"),
        pytest.param("__cluster_metadata", 0, False, id="never a topic"),
    ],
)
def test_a_topic_that_makes_itself_is_told_to_who_asks_again(files, name, partition_count, internal):
    async def work(broker):
        request = asked_for([name], include_topic_authorized_operations=True)
        with busy_disk(broker) as disk:  # who began it does not wait for it
            (first,) = (await told_by(broker, request)).topics
            disk.set()
        assert (first.error_code, first.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
        assert (first.name, first.topic_id, first.is_internal) == (name, UUID(int=0), internal)
        assert first.topic_authorized_operations == 3576
        assert (name in broker.topics.by_name) == bool(partition_count)
        (second,) = (await told_by(broker, request)).topics
        assert second.error_code == (ErrorCode.NONE if partition_count else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert [one.error_code for one in second.partitions] == [ErrorCode.NONE] * partition_count

    on(files, work, config={"num.partitions": 2, "offsets.topic.num.partitions": 3})


@pytest.mark.parametrize("names", [["new"], None], ids=["by its name", "among all"])
def test_a_topic_that_makes_itself_is_not_told_of_for_a_moment(files, names, monkeypatch):
    monkeypatch.setattr(metadata_api, "NEWS_AFTER_SECONDS", 0.5)
    request = metadata.MetadataRequest(None) if names is None else asked_for(names)

    async def work(broker):
        await told_by(broker, asked_for(["new"]))
        begun = time.monotonic()
        while not (told := (await told_by(broker, request)).topics) or told[0].error_code:
            assert [one.error_code for one in told] in ([], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
            await asyncio.sleep(0.01)
        assert time.monotonic() - begun > 0.4
        assert [one.error_code for one in told[0].partitions] == [ErrorCode.NONE]

    on(files, work)


def test_a_topic_that_was_made_by_hand_is_told_of_at_once(files, monkeypatch):
    monkeypatch.setattr(metadata_api, "NEWS_AFTER_SECONDS", 600.0)

    async def work(broker):
        await told_by(broker, asked_for(["t"]))
        await broker.delete_topic("t", UUID(int=0))
        await broker.create_topic("t", 1)
        (told,) = (await told_by(broker, asked_for(["t"]))).topics
        assert told.error_code == ErrorCode.NONE

    on(files, work)


def test_topics_make_themselves_together(files):
    async def work(broker):
        await broker.create_topic("there", 1)
        names = ["a", "there", "bad name", "b", "a"]
        first = (await told_by(broker, asked_for(names))).topics
        assert [(one.name, one.error_code, len(one.partitions)) for one in first] == [
            ("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
            ("there", ErrorCode.NONE, 1),
            ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION, 0),
            ("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        ]
        second = (await told_by(broker, asked_for(["a", "b"]))).topics
        assert [(one.name, one.error_code, len(one.partitions)) for one in second] == [("a", 0, 2), ("b", 0, 2)]

    on(files, work, config={"num.partitions": 2})


@pytest.mark.parametrize(
    ("options", "config", "count"),
    [
        pytest.param({"allow_auto_topic_creation": False}, {}, 1, id="the client does not want it"),
        pytest.param({}, {"auto.create.topics.enable": False}, 1, id="the broker does not want it"),
        pytest.param({}, {"num.partitions": 100}, 101, id="more partitions than Kafka makes at once"),
    ],
)
def test_topics_that_do_not_make_themselves(files, options, config, count):
    async def work(broker):
        request = asked_for([f"t{number}" for number in range(count)], **options)
        for _ in range(2):
            told = (await told_by(broker, request)).topics
            assert {one.error_code for one in told} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert len(told) == count
        assert not broker.topics.by_name

    on(files, work, config=config)


def test_a_topic_that_cannot_make_itself_is_told_why(files):
    async def work(broker):
        await broker.create_topic("a.b", 1)
        (clash,) = (await told_by(broker, asked_for(["a_b"]))).topics
        assert clash.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        files.fail("append", errno.ENOSPC, path="*/__cluster_metadata-0/*")
        (full,) = (await told_by(broker, asked_for(["new"]))).topics
        assert full.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    on(files, work)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([f"t{number}" for number in range(50_000)], id="that are not there"),
        pytest.param([""] * 50_000, id="one, again and again"),
    ],
)
def test_many_names_take_turns_with_everybody_else(files, names):
    async def work(broker):
        turns = 0

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        message = asked_for(names, allow_auto_topic_creation=False)
        told = await metadata_api.handle(broker, message, Request(12, None, "", memoryview(b"")))  # threads do the rest
        other.cancel()
        assert len(told.topics) == len(set(names))
        assert turns > 5

    on(files, work)


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_a_topic_without_name_and_id_makes_the_whole_request_impossible(files, version):
    async def work(broker):
        await broker.create_topic("there", 1)
        answer = await told_by(broker, asked_for([None, "there"]), version)
        error = ErrorCode.INVALID_REQUEST if version < 12 else ErrorCode.UNKNOWN_SERVER_ERROR
        assert [(one.error_code, one.name) for one in answer.topics] == [(error, ""), (error, "there")]
        assert (answer.brokers, answer.controller_id) == ([], -1)
        assert answer.error_code == (error if version >= 13 else ErrorCode.NONE)

    on(files, work)


def test_a_topic_that_is_deleted_while_all_are_told_is_not_made_anew(files):
    async def work(broker):
        for name in ("a", "b"):
            await broker.create_topic(name, 1)
        with busy_disk(broker) as disk:
            broker.catalogue.add_partitions("a", 2)  # the answer waits for it
            telling = asyncio.create_task(told_by(broker, metadata.MetadataRequest(None)))
            await asyncio.sleep(0)
            _, deleting = broker.catalogue.delete("b", UUID(int=0))
            disk.set()
            assert [one.name for one in (await telling).topics] == ["a"]
            await deleting
        assert list(broker.topics.by_name) == ["a"]

    on(files, work)
