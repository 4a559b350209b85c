"""Long work takes turns with others', short work does not wait for any."""

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest

from pylog.broker_lite import turns
from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.protocol import list_groups
from pylog.broker_lite.protocol.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from pylog.broker_lite.protocol.schema import LargeMessage
from pylog.broker_lite.turns import COLLECTOR, LARGE_BYTES, TURN_SECONDS, Steps, Turn, begun, finished

BROKER: Any = SimpleNamespace(requests=None)
VERSION = 4


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(turns, "monotonic", lambda: now[0])
    return now


def steps(clock: list[float], count: int, each_seconds: float) -> Steps[str]:
    for _ in range(count):
        clock[0] += each_seconds
        yield
    return "done"


def test_what_fits_into_a_turn_is_done_at_once(clock: list[float]) -> None:
    assert begun(steps(clock, 3, TURN_SECONDS / 5)) == (True, "done")


def test_what_does_not_goes_on_when_others_had_theirs(clock: list[float]) -> None:
    work = steps(clock, len(turns._FEW) + 10, TURN_SECONDS / 2)
    assert begun(work) == (False, None)
    others = 0

    async def beside() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    async def both() -> str:
        task = asyncio.create_task(beside())
        try:
            return await finished(work)
        finally:
            task.cancel()

    assert asyncio.run(both()) == "done"
    assert others >= 4


def test_a_coroutine_pauses_when_its_turn_is_over_and_not_before(clock: list[float]) -> None:
    turn = Turn()
    with pytest.raises(StopIteration):
        turn.pause().send(None)
    clock[0] += TURN_SECONDS
    pause = turn.pause()
    assert pause.send(None) is None  # others have theirs
    with pytest.raises(StopIteration):
        pause.send(None)
    with pytest.raises(StopIteration):
        turn.pause().send(None)


def groups(count: int) -> ListGroupsResponse:
    return ListGroupsResponse(groups=[ListedGroup(f"group-{number}", "consumer") for number in range(count)])


def request(body: bytes | bytearray) -> Request:
    return Request(VERSION, None, "", memoryview(body))


SMALL = list_groups.SPEC.encode_request(ListGroupsRequest(), VERSION)


def test_a_small_request_with_a_small_answer_is_answered_without_a_task() -> None:
    api = declared(list_groups.SPEC, lambda broker, message, request: groups(3))
    assert api.answer(BROKER, request(SMALL)) == [list_groups.SPEC.encode_response(groups(3), VERSION)]


def test_a_large_answer_is_encoded_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    api = declared(list_groups.SPEC, lambda broker, message, request: groups(20_000))

    async def answered() -> Any:
        answer: Any = api.answer(BROKER, request(SMALL))
        return await answer

    assert asyncio.run(answered()) == [list_groups.SPEC.encode_response(groups(20_000), VERSION)]


def test_a_large_request_may_be_overwritten_once_it_was_taken_up() -> None:
    """Connections receive into buffers that they share."""
    message = ListGroupsRequest(states_filter=[f"state-{number}" for number in range(20_000)])
    body = list_groups.SPEC.encode_request(message, VERSION)
    assert len(body) > LARGE_BYTES
    seen: list[ListGroupsRequest] = []

    def handle(broker: Any, message: ListGroupsRequest, request: Request) -> ListGroupsResponse:
        seen.append(message)
        return groups(1)

    async def answered() -> Any:
        answer: Any = declared(list_groups.SPEC, handle).answer(BROKER, request(body))
        body[:] = bytes(len(body))
        return await answer

    assert asyncio.run(answered()) == [list_groups.SPEC.encode_response(groups(1), VERSION)]
    assert seen == [message]


@pytest.mark.parametrize("count", [5_000, 100_000])
def test_an_answer_is_seen_to_be_large_before_much_of_it_is_encoded(count: int) -> None:
    response = groups(count)
    with pytest.raises(LargeMessage):
        list_groups.SPEC.encode_response(response, VERSION, LARGE_BYTES)


def test_all_that_lives_is_looked_through_again_when_nothing_large_is_there() -> None:
    before = gc.get_threshold()
    with COLLECTOR.mostly_among_new():
        with COLLECTOR.mostly_among_new():
            assert gc.get_threshold()[2] > before[2]
        assert gc.get_threshold()[2] > before[2]
    assert gc.get_threshold() == before
