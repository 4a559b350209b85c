"""What a line of the log looks like, and how often it is told."""

import json
import logging
import subprocess
import sys

import pytest

from pylog.broker_lite.log_format import SAME_PER_MINUTE_MAX, JsonFormatter, Repeats
from tests.support.foreign_clients import CLIENTS, ForeignRecord


def record(message: str, *args: object, level: int = logging.WARNING, exc_info=None) -> logging.LogRecord:
    made = logging.LogRecord("pylog.server", level, "", 0, message, args, exc_info)
    made.created = 1_700_000_000.25
    return made


def test_a_json_line_has_time_level_logger_and_message():
    line = JsonFormatter().format(record("closed %s,\nwhich said %r", "a client", "ä\x00"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "pylog.server",
        "message": "closed a client,\nwhich said 'ä\\x00'",
    }


def test_a_json_line_has_the_whole_exception():
    try:
        raise ValueError("why")
    except ValueError:
        line = JsonFormatter().format(record("failed", exc_info=sys.exc_info()))
    found = json.loads(line)["exception"]
    assert found.startswith("Traceback")
    assert found.endswith("ValueError: why")


class Told:
    """A log of which the clock is set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._repeats = Repeats(lambda: self.now_s)

    def tell(self, message: str, *args: object, level: int = logging.WARNING) -> str | None:
        made = record(message, *args, level=level)
        return made.getMessage() if self._repeats.filter(made) else None


def test_what_hammers_is_told_some_times_a_minute_and_then_how_often_it_came():
    told = Told()
    lines = [told.tell("closed %d", number) for number in range(SAME_PER_MINUTE_MAX + 7)]
    assert lines[: SAME_PER_MINUTE_MAX - 1] == [f"closed {number}" for number in range(SAME_PER_MINUTE_MAX - 1)]
    assert lines[SAME_PER_MINUTE_MAX - 1] == (
        f"closed {SAME_PER_MINUTE_MAX - 1} (more like this are left out for a minute)"
    )
    assert lines[SAME_PER_MINUTE_MAX:] == [None] * 7
    told.now_s = 60.0
    assert told.tell("closed %d", 1) == "closed 1 (7 more like this were left out)"
    assert told.tell("closed %d", 2) == "closed 2"


def test_one_that_hammers_does_not_silence_the_others():
    told = Told()
    for _ in range(SAME_PER_MINUTE_MAX + 1):
        told.tell("closed")
    assert told.tell("closed") is None
    assert told.tell("a disk failed") == "a disk failed"
    assert told.tell("closed", level=logging.ERROR) == "closed"


def test_a_rare_warning_is_always_told():
    told = Told()
    for minute in range(3 * SAME_PER_MINUTE_MAX):
        told.now_s = 60.0 * minute
        assert told.tell("once a minute") == "once a minute"


def test_what_is_asked_for_in_detail_is_not_left_out():
    told = Told()
    assert all(told.tell("step", level=logging.INFO) == "step" for _ in range(3 * SAME_PER_MINUTE_MAX))


def test_kinds_that_never_end_take_no_memory_that_never_ends():
    told = Told()
    for number in range(10_000):
        told.tell(f"made up {number}")
    assert len(told._repeats._seen) <= 1000


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_log_tells_of_start_and_stop_and_nothing_per_request(tmp_path, form):
    command = [sys.executable, "-m", "pylog", "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    command += ["--log-level", "info", "--log-format", form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().split()[-1]
            client = CLIENTS["confluent-kafka"]
            client.create_topic(address, "orders", 3)
            for _ in range(20):
                client.produce(address, "orders", [ForeignRecord(b"key", b"value")])
        finally:
            process.terminate()
        _, lines = process.communicate(timeout=60)
    messages = [json.loads(line)["message"] if form == "json" else line for line in lines.splitlines()]
    assert len(messages) < 20
    for words in (
        "starting with",
        "loaded: 0 topics",
        "listening on",
        "'orders' is made, with 3",
        "stopping",
        "stopped",
    ):
        assert any(words in message for message in messages), words
