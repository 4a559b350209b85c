"""What is counted of requests."""

import asyncio

import pytest

from pylog.broker_lite.api_table import API_BY_KEY
from pylog.broker_lite.metrics.requests import BOUNDS_S, RequestStats, error_codes
from pylog.broker_lite.protocol.describe_groups import DescribedGroup, DescribeGroupsResponse
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.heartbeat import HeartbeatResponse
from pylog.broker_lite.protocol.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from pylog.broker_lite.protocol.spec import ApiSpec
from pylog.broker_lite.protocol.wire import I16, MalformedFrame

FETCH, HEARTBEAT, UNKNOWN = 1, 12, 9999
HOST = "/127.0.0.1"


def frame_of(key: int) -> memoryview:
    return memoryview(I16.pack(key) + bytes(10))


def counts(stats: RequestStats) -> dict[int, int]:
    return {key: sum(times.counts) for key, times in stats.times()}


def test_each_request_counts_once_and_its_answer_is_not_changed():
    stats = RequestStats(API_BY_KEY)
    given = [[b"answer"], None, [b""]]
    answers = iter(given)
    answer = stats.measured(lambda frame, host: next(answers))
    assert [answer(frame_of(key), HOST) for key in (FETCH, HEARTBEAT, FETCH)] == given
    assert counts(stats) == {FETCH: 2, HEARTBEAT: 1}


def test_an_answer_that_comes_later_counts_its_wait():
    async def main():
        stats = RequestStats(API_BY_KEY)
        come = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(stats.measured(lambda frame, host: come)(frame_of(FETCH), HOST))
        await asyncio.sleep(0.03)
        assert counts(stats) == {}
        come.set_result([b"later"])
        assert await waiting == [b"later"]
        ((_, times),) = stats.times()
        assert 0.03 <= times.sum < 30
        assert sum(times.counts[: BOUNDS_S.index(0.025) + 1]) == 0  # which bucket it is in, the clock says

    asyncio.run(main())


@pytest.mark.parametrize(
    ("key", "error", "malformed", "failed"),
    [
        pytest.param(FETCH, MalformedFrame("cut"), 1, {}, id="not a request"),
        pytest.param(UNKNOWN, MalformedFrame("no API"), 1, {}, id="an API that nobody knows"),
        pytest.param(UNKNOWN, ValueError("?"), 1, {}, id="keys that clients make up are not kept"),
        pytest.param(FETCH, ValueError("a bug"), 0, {FETCH: 1}, id="a fault of ours"),
    ],
)
@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_what_fails_is_told_apart(key, error, malformed, failed, later):
    def at_once(frame, host):
        raise error

    async def main():
        stats = RequestStats(API_BY_KEY)

        async def wait(frame, host):
            raise error

        with pytest.raises(type(error)):
            await stats.measured(wait if later else at_once)(frame_of(key), HOST)
        assert (stats.malformed, stats.failed, counts(stats)) == (malformed, failed, {})

    asyncio.run(main())


def test_a_frame_too_short_for_a_key_is_malformed():
    def refuse(frame, host):
        raise MalformedFrame("short")

    stats = RequestStats(API_BY_KEY)
    with pytest.raises(MalformedFrame):
        stats.measured(refuse)(memoryview(b"\0"), HOST)
    assert stats.malformed == 1


def test_a_client_that_leaves_is_no_failure():
    async def main():
        stats = RequestStats(API_BY_KEY)
        never = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(stats.measured(lambda frame, host: never)(frame_of(FETCH), HOST))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (stats.malformed, stats.failed) == (0, {})

    asyncio.run(main())


def test_error_codes_are_found_wherever_a_message_has_them():
    unknown, unavailable = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE
    partitions = [MetadataResponsePartition(unavailable), MetadataResponsePartition(), MetadataResponsePartition(6)]
    topics = [MetadataResponseTopic(unknown, "gone"), MetadataResponseTopic(name="t", partitions=partitions)]
    assert sorted(error_codes(MetadataResponse(topics=topics))) == sorted([unknown, unavailable, 6])
    assert list(error_codes(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))) == [27]
    assert list(error_codes(HeartbeatResponse())) == []
    groups = DescribeGroupsResponse(groups=[DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND)])
    stats = RequestStats(API_BY_KEY)
    stats.note_errors(15, groups)
    stats.note_errors(15, groups)
    assert stats.errors == {(15, 69): 2}


@pytest.mark.parametrize(
    "spec", [api.spec for api in API_BY_KEY.values() if isinstance(api.spec, ApiSpec)], ids=lambda spec: spec.name
)
def test_no_declared_answer_is_without_a_place_for_its_errors(spec):
    assert list(error_codes(spec.response())) == []
