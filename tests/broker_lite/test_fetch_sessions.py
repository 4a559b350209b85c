"""Fetch sessions: what is kept of a reader, what it is told, and when there is no room for it."""

import asyncio

import pytest

from pylog.broker_lite import fetch_sessions
from pylog.broker_lite.apis import fetch as fetch_api
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.fetch_sessions import Sessions
from pylog.broker_lite.protocol import fetch
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.fetch import FetchPartition, FetchRequest
from tests.support.broker_requests import answer_to, produce_one
from tests.support.brokers import running
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of
from tests.support.simulated_files import SimulatedFiles


def on(work, **options):
    files = SimulatedFiles(SettableClock(START_MS))
    return running([files.root / "data"], work, files=files, clock=files.clock, **options)


class Reader:
    """A session: its requests count up by themselves."""

    def __init__(self, broker, version=12):
        self.broker, self.version = broker, version
        self.number = self.epoch = 0

    async def fetch(self, *partitions, forgotten=(), wait_ms=0, bytes_max=1 << 20):
        request = FetchRequest(wait_ms, 1, bytes_max, 0, self.number, self.epoch, list(partitions), forgotten)
        body = await answer_to(self.broker, fetch_api.API, fetch.encode_request(request, self.version), self.version)
        response = fetch.decode_response(body, self.version)
        assert response.error_code == ErrorCode.NONE
        self.number, self.epoch = response.session_id, self.epoch + 1
        return {one.partition: (one.error_code, one.high_watermark, len(one.records)) for one in response.partitions}


def at(partition, offset=0, topic="t"):
    return FetchPartition(topic, partition, offset, 1 << 20)


SIZE = len(batch_of())


def test_only_what_is_news_is_told():
    async def work(broker):
        await broker.create_topic("t", 3)
        await produce_one(broker, "t", batch_of(), partition=0)
        reader = Reader(broker)
        assert await reader.fetch(at(0), at(1), at(2)) == {0: (0, 1, SIZE), 1: (0, 0, 0), 2: (0, 0, 0)}
        assert reader.number != 0
        assert await reader.fetch() == {0: (0, 1, SIZE)}  # it has not said that it has read it
        assert await reader.fetch(at(0, 1)) == {}
        await produce_one(broker, "t", batch_of(), partition=2)
        assert await reader.fetch() == {2: (0, 1, SIZE)}
        assert await reader.fetch(at(2, 1)) == {}

    on(work)


def test_a_partition_that_is_forgotten_is_not_told_of():
    async def work(broker):
        await broker.create_topic("t", 2)
        reader = Reader(broker)
        await reader.fetch(at(0), at(1))
        await produce_one(broker, "t", batch_of(), partition=0)
        await produce_one(broker, "t", batch_of(), partition=1)
        assert await reader.fetch(forgotten=[("t", [0, 7])]) == {1: (0, 1, SIZE)}

    on(work)


def test_records_that_were_deleted_and_errors_are_news():
    async def work(broker):
        topic = await broker.create_topic("t", 1)
        await produce_one(broker, "t", batch_of())
        reader = Reader(broker)
        await reader.fetch(at(0))
        assert await reader.fetch(at(0, 1)) == {}
        broker.partition("t", 0).log.move_start(1)
        assert await reader.fetch() == {0: (0, 1, 0)}
        assert await reader.fetch() == {}
        await broker.delete_topic("t", topic.topic_id)
        gone = {0: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, 0)}
        assert await reader.fetch() == gone
        assert await reader.fetch() == gone
        await broker.create_topic("t", 1)
        assert (await reader.fetch(at(0)))[0] == (0, 0, 0)

    on(work)


def test_an_id_stands_for_the_topic_that_had_it():
    async def work(broker):
        topic = await broker.create_topic("t", 1)
        reader = Reader(broker, version=17)
        assert await reader.fetch(at(0, topic=topic.topic_id.bytes)) == {0: (0, 0, 0)}
        assert await reader.fetch() == {}
        await broker.delete_topic("t", topic.topic_id)
        await broker.create_topic("t", 1)
        assert await reader.fetch() == {0: (ErrorCode.UNKNOWN_TOPIC_ID, -1, 0)}

    on(work)


def test_each_partition_gets_its_turn_where_there_is_room_for_one():
    async def work(broker):
        await broker.create_topic("t", 3)
        for partition in range(3):
            for _ in range(2):
                await produce_one(broker, "t", batch_of(), partition=partition)
        reader = Reader(broker)
        offsets = dict.fromkeys(range(3), 0)
        order = []
        found = await reader.fetch(*(at(partition) for partition in range(3)), bytes_max=SIZE)
        for _ in range(6):
            (partition,) = [one for one, (_, _, size) in found.items() if size]
            order.append(partition)
            offsets[partition] += 1
            found = await reader.fetch(at(partition, offsets[partition]), bytes_max=SIZE)
        assert order == [0, 1, 2, 0, 1, 2]

    on(work)


def test_a_session_waits_for_all_of_its_partitions():
    async def work(broker):
        await broker.create_topic("t", 2)
        reader = Reader(broker)
        await reader.fetch(at(0), at(1))
        waiting = asyncio.create_task(reader.fetch(wait_ms=60_000))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        await produce_one(broker, "t", batch_of(), partition=1)
        assert await waiting == {1: (0, 1, SIZE)}

    on(work)


# -- how many there are


def request(number=0, epoch=0, count=1):
    return FetchRequest(0, 1, 1, 0, number, epoch, [at(partition) for partition in range(count)])


class Clock:
    def __init__(self):
        self.now_ms = 0


def sessions(count_max):
    clock = Clock()
    return Sessions(count_max, lambda: clock.now_ms), clock


def test_a_session_that_nobody_used_for_long_makes_room():
    kept, clock = sessions(2)
    first, second = (kept.session_of(request(), by_id=False) for _ in range(2))
    assert kept.session_of(request(), by_id=False) is None
    clock.now_ms = fetch_sessions.UNUSED_MS_MAX
    assert kept.session_of(request(first.id, 1, 0), by_id=False) is first
    third = kept.session_of(request(), by_id=False)
    assert third is not None
    assert len(kept) == 2
    with pytest.raises(RequestError) as refused:
        kept.session_of(request(second.id, 1, 0), by_id=False)
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_partitions_of_all_sessions_have_a_bound(monkeypatch):
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 10)
    kept, _ = sessions(100)
    first = kept.session_of(request(count=6), by_id=False)
    assert kept.session_of(request(count=5), by_id=False) is None
    assert kept.session_of(request(count=4), by_id=False) is not None
    assert kept.session_of(request(first.id, 1, 6), by_id=False) is first
    with pytest.raises(RequestError):
        kept.session_of(request(first.id, 2, 7), by_id=False)
    assert len(kept) == 1


def test_the_partitions_of_each_session_have_a_bound(monkeypatch):
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_EACH_MAX", 5)
    kept, _ = sessions(100)
    assert kept.session_of(request(count=6), by_id=False) is None
    for count in (5, 6):
        session = kept.session_of(request(count=5), by_id=False)
        assert kept.session_of(request(session.id, 1, 5), by_id=False) is session
        more = request(session.id, 2, 6) if count == 6 else request(session.id, 2, 1)._replace(partitions=[at(77)])
        with pytest.raises(RequestError) as refused:
            kept.session_of(more, by_id=False)
        assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(kept) == 0


def test_no_slots_are_no_sessions():
    async def work(broker):
        await broker.create_topic("t", 1)
        reader = Reader(broker)
        assert await reader.fetch(at(0)) == {0: (0, 0, 0)}
        assert reader.number == 0

    on(work, config={"max.incremental.fetch.session.cache.slots": 0})


def test_epochs_count_up_and_begin_again():
    kept, _ = sessions(1)
    session = kept.session_of(request(), by_id=False)
    session.epoch = (1 << 31) - 1
    kept.session_of(request(session.id, (1 << 31) - 1, 0), by_id=False)
    assert kept.session_of(request(session.id, 1, 0), by_id=False) is session


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_new_session_or_none_ends_the_one_before(epoch):
    kept, _ = sessions(5)
    session = kept.session_of(request(), by_id=False)
    kept.session_of(request(session.id, epoch), by_id=False)
    assert len(kept) == (1 if epoch == 0 else 0)
    with pytest.raises(RequestError):
        kept.session_of(request(session.id, 1, 0), by_id=False)
