"""Offsets are looked up again when what failed may pass by itself, as often as fetchOffset.numRetries says."""

import socket
import time

import pytest

from pylog.connector.client.config import ClientConfig
from pylog.connector.client.errors import BrokerUnavailable, ClientError, Retriable, UnknownTopic
from pylog.connector.spark.contact import contact, look_up

PASSES, STAYS = BrokerUnavailable([("127.0.0.1:1", "refused")]), UnknownTopic("t")


class Answers:
    def __init__(self, *answers: ClientError | str) -> None:
        self._answers = iter(answers)
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        answer = next(self._answers)
        if isinstance(answer, ClientError):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answers", "attempts", "asked"),
    [
        pytest.param(["found"], 3, 1, id="at once"),
        pytest.param([PASSES, PASSES, "found"], 3, 3, id="the last time"),
        pytest.param(["found"], 1, 1, id="only once"),
    ],
)
def test_the_answer_is_waited_for(answers: list[ClientError | str], attempts: int, asked: int) -> None:
    ask = Answers(*answers)
    assert look_up(ask, attempts, pause_ms=0) == "found"
    assert ask.asked == asked


@pytest.mark.parametrize(
    ("answers", "attempts", "asked"),
    [
        pytest.param([PASSES] * 5, 3, 3, id="too often"),
        pytest.param([PASSES, "found"], 1, 1, id="not twice if once is said"),
        pytest.param([STAYS, "found"], 3, 1, id="what does not pass is not asked again"),
    ],
)
def test_the_last_failure_is_told(answers: list[ClientError | str], attempts: int, asked: int) -> None:
    ask = Answers(*answers)
    with pytest.raises(ClientError):
        look_up(ask, attempts, pause_ms=0)
    assert ask.asked == asked


def test_there_is_a_pause_before_it_is_asked_again() -> None:
    started = time.monotonic()
    look_up(Answers(PASSES, PASSES, "found"), 3, pause_ms=30)
    assert time.monotonic() - started >= 0.06


def test_a_cluster_that_takes_connections_and_never_answers_is_told_of_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung:
        config = ClientConfig.parse({"bootstrap.servers": f"127.0.0.1:{hung.getsockname()[1]}"})
        began = time.monotonic()
        with pytest.raises(Retriable):
            contact(config, 200)
        assert time.monotonic() - began < 2
