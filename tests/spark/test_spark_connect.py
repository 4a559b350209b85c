"""format("pylog") by way of Spark Connect, with the package where the server runs."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc")

pytestmark = pytest.mark.connector

RUN = Path(__file__).parents[1] / "support/connect_run.py"
DEADLINE_S = 240


def test_batches_and_streams_work_and_errors_have_their_words(
    bootstrap_servers: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    command = [sys.executable, str(RUN), bootstrap_servers, topic, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["session"] == "pyspark.sql.connect.session"
    assert found[topic], "written and read as a batch"
    assert found[f"{topic}-copy"], "read and written as a stream"
    assert "startingOffsets" in found["error"], "the nearest known name"
