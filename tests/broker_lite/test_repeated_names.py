"""A request may name the same thing again and again: as with Kafka it is told of each time, but it is made once, and
the answer has a bound."""

import asyncio
from collections import Counter
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from pylog.broker_lite import api
from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.apis import describe_groups, offset_fetch
from pylog.broker_lite.machines.offsets import CommittedOffset
from pylog.broker_lite.protocol import describe_groups as describe_groups_protocol
from pylog.broker_lite.protocol.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from pylog.broker_lite.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pylog.broker_lite.protocol.wire import MalformedFrame
from pylog.broker_lite.turns import LARGE_BYTES

SPEC = describe_groups_protocol.SPEC


def _request(version: int, body: bytes | bytearray = b"") -> Request:
    return Request(version, "test", "/127.0.0.1", memoryview(body))


def _finished(steps: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


class _Broker:
    """With two groups, of which it notes how often it is asked for what."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.coordinator = SimpleNamespace(is_committed=True)
        self.groups = SimpleNamespace(describe=self._describe)
        self.offsets = SimpleNamespace(committed=self._committed)
        self.topics = SimpleNamespace(by_name={}, name_of=lambda topic: topic)
        self.requests = None

    async def coordinator_ready(self) -> None:
        pass

    def coordinator_of(self, group: str) -> None:
        pass

    def _describe(self, group: str, version: int) -> DescribedGroup:
        self.asked[group] += 1
        return DescribedGroup(group_id=group, group_state="Empty")

    def _committed(self, group: str) -> dict[tuple[str, int], CommittedOffset]:
        self.asked[group] += 1
        return {("t", 0): CommittedOffset(5, -1, "", 0)}


def test_a_group_is_described_each_time_and_looked_at_once() -> None:
    broker: Any = _Broker()
    message = DescribeGroupsRequest(["g", "g", "x", "g"], include_authorized_operations=True)
    answer = asyncio.run(describe_groups.handle(broker, message, _request(5)))
    assert [one.group_id for one in answer.groups] == ["g", "g", "x", "g"]
    assert len({one.authorized_operations for one in answer.groups}) == 1
    assert broker.asked == {"g": 1, "x": 1}


def test_all_commits_of_a_group_are_told_each_time_and_looked_at_once() -> None:
    broker: Any = _Broker()
    some = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopic("t", partition_indexes=[0, 1])])
    whole, other = OffsetFetchRequestGroup("g", topics=None), OffsetFetchRequestGroup("x", topics=None)
    handled: Any = offset_fetch.handle(
        broker, OffsetFetchRequest(groups=[whole, some, whole, other, whole]), _request(8)
    )
    answer = _finished(handled)
    assert [one.group_id for one in answer.groups] == ["g", "g", "g", "x", "g"]
    told = [[partition.committed_offset for partition in one.topics[0].partitions] for one in answer.groups]
    assert told == [[5], [5, -1], [5], [5], [5]]
    assert broker.asked == {"g": 2, "x": 1}


@pytest.mark.parametrize("count", [pytest.param(2_000, id="below"), pytest.param(6_000, id="above")])
def test_an_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(api, "ANSWER_BYTES_MAX", 500_000)
    broker: Any = _Broker()

    def handle(broker: Any, message: DescribeGroupsRequest, request: Request) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[DescribedGroup(group_id="g" * 100)] * count)

    async def answered() -> bytes:
        answer: Any = declared(SPEC, handle).answer(
            broker, _request(5, SPEC.encode_request(DescribeGroupsRequest(), 5))
        )
        (body,) = await answer
        return bytes(body)

    if count == 2_000:
        body = asyncio.run(answered())
        assert len(body) > LARGE_BYTES
        assert len(SPEC.decode_response(body, 5).groups) == count
    else:
        with pytest.raises(MalformedFrame, match="ANSWER_BYTES_MAX"):
            asyncio.run(answered())
