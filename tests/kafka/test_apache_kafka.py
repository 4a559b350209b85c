"""The peer itself: what ApacheKafka, and the tools beside it, promise to the tests and benchmarks that use them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.apache_kafka import ApacheKafka, ApacheKafkaFailed
from tests.support.java_tools import DUMP_LOG_SEGMENTS, PRODUCER_PERFORMANCE, JavaToolFailed, run_kafka_tool
from tests.support.probe import answers

REPOSITORY = Path(__file__).resolve().parents[2]
OWNER = """
from tests.support.apache_kafka import ApacheKafka
with ApacheKafka() as kafka:
    print(kafka.pid, kafka.data.parent, flush=True)
    input()
"""


def test_records_survive_a_kill_and_nothing_is_left_behind() -> None:
    with ApacheKafka({"auto.create.topics.enable": "true"}) as kafka:
        address, folder = kafka.bootstrap_servers, kafka.data.parent
        produced = ["--bootstrap-server", address, "--topic", "t", "--num-records", "100", "--record-size", "10"]
        assert "100 records sent" in run_kafka_tool(PRODUCER_PERFORMANCE, *produced, "--throughput", "-1")
        kafka.kill()
        assert not answers(address)
        kafka.start()
        assert kafka.bootstrap_servers == address
        kafka.stop()
        segment = kafka.data / "t-0" / "00000000000000000000.log"
        assert "lastOffset: 99" in run_kafka_tool(DUMP_LOG_SEGMENTS, "--files", str(segment))
    assert not folder.exists()


def test_it_ends_with_its_owner_even_when_that_is_killed() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        owner.kill()
    deadline = time.monotonic() + 30
    while (is_running(int(pid)) or Path(folder).exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(int(pid))
    assert not Path(folder).exists()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(ApacheKafkaFailed, match=r"num\.io\.threads"), ApacheKafka({"num.io.threads": "none"}):
        pass


def test_a_tool_that_fails_shows_its_words() -> None:
    with pytest.raises(JavaToolFailed, match="no-such-option"):
        run_kafka_tool(DUMP_LOG_SEGMENTS, "--no-such-option")
