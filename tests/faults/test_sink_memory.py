"""A task of the sink that is faster than its broker waits: its memory stays under the bound of docs/sink.md."""

import os
import signal
import subprocess
import sys
import time

import pytest

import pylog

pytest.importorskip("pyspark")

MEGABYTES = 2_000 if int(os.environ.get("PYLOG_FAULT_ROUNDS", "0")) > 1 else 400
BUFFER_BYTES = 32 << 20  # buffer.memory
PART_BYTES = BUFFER_BYTES // 4  # of a table, encoded while there is no room for it
SLACK_BYTES = 16 << 20  # what allocators keep, and what is being compressed
SLEEP_SECONDS, WAKE_SECONDS = 0.15, 0.02


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_slow_broker_makes_a_task_wait_and_not_grow(codec: str) -> None:
    with pylog.Broker(config={"num.partitions": 4}) as broker:
        command = [sys.executable, "-m", "tests.support.sink_memory", broker.bootstrap_servers, "t", str(MEGABYTES)]
        with subprocess.Popen([*command, codec], stdout=subprocess.PIPE, text=True) as task:
            assert broker.pid is not None
            deadline = time.monotonic() + 280
            while task.poll() is None and time.monotonic() < deadline:  # it works a seventh of the time
                os.kill(broker.pid, signal.SIGSTOP)
                time.sleep(SLEEP_SECONDS)
                os.kill(broker.pid, signal.SIGCONT)
                time.sleep(WAKE_SECONDS)
            assert task.stdout is not None
            used_bytes = int(task.stdout.read() or -1)
        assert task.returncode == 0
        assert 0 < used_bytes < BUFFER_BYTES + 2 * PART_BYTES + SLACK_BYTES
