"""Losses that do not fail a query are told to whoever started it, from each of the processes in which they are seen;
and so is what a write that failed leaves behind."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.support.java import JavaUnavailable, java_command

pytestmark = pytest.mark.connector

RUN = Path(__file__).parents[1] / "support/loss_run.py"
DEADLINE_S = 240
GOES_ON = "failOnDataLoss is false: going on with the earliest that is there"


def test_a_warning_from_each_process_of_spark_is_on_standard_error_once(
    bootstrap_servers: str,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    delete_records: Callable[[str, int, int], None],
    tmp_path: Path,
) -> None:
    try:
        java_command()
    except JavaUnavailable as error:
        pytest.skip(str(error))
    topic = new_topic(partitions=2)
    produce(topic, 0, 10)
    produce(topic, 1, 10)
    delete_records(topic, 0, 4)
    command = [sys.executable, str(RUN), bootstrap_servers, topic, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    assert json.loads(run.stdout.splitlines()[-1]) == {"planned": 16, "taken": 10}
    for who, partition, start, end in (
        ("the planner of the stream", 0, 1, 4),
        ("the planner of the batch", 0, 2, 4),
        ("a task", 1, 0, 6),
    ):
        which = f"{topic}-{partition}: the offsets [{start}, {end}) are gone: the log starts at {end} now"
        said = f"{which}; they were deleted by retention, or by DeleteRecords. {GOES_ON}"
        assert run.stderr.splitlines().count(said) == 1, f"{who}: {run.stderr[-4000:]}"
    for what, rows, tasks in (("the write", 4, 2), ("micro-batch 0", 10, 1)):
        stays = (
            f"the {rows} rows of finished tasks ({tasks}) are in their topics and stay there; rows of others may be too"
        )
        assert run.stderr.splitlines().count(f"{what} has failed: {stays}") == 1, run.stderr[-4000:]
