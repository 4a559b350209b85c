"""Checkpoints of `pylog.spark_session` are as Spark's, written another way; where files may be elsewhere, Spark's."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pylog
from pylog.connector.spark.checkpoint_files import MANAGER, OPTION
from tests.support.java import JavaUnavailable, java_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN = Path(__file__).parents[1] / "support/checkpoint_run.py"
DEADLINE_S = 240
SPARKS_OWN = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a Spark that `pylog.spark_session` started has to tell."""
    try:
        java_command()
    except JavaUnavailable as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("checkpoints")
    command = [sys.executable, str(RUN), str(folder), SPARKS_OWN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_local_session_writes_without_processes(seen: dict[str, Any]) -> None:
    assert seen["chosen"] == MANAGER


def test_where_files_are_elsewhere_or_the_class_is_spark_writes_its_own_way(seen: dict[str, Any]) -> None:
    assert (seen["with files elsewhere"], seen["without such a class"]) == (None, None)


def test_a_query_with_state_goes_on_from_either_to_the_other(seen: dict[str, Any]) -> None:
    assert seen["counts"] == [3, 7, 12, 18, 18, 25, 33]
    assert "NoSuchManager" in seen["error"], "Spark asks for it, so these were two ways"


def test_a_batch_that_is_repeated_replaces_its_state_and_leaves_nothing_behind(seen: dict[str, Any]) -> None:
    assert seen["is replaced"]
    assert seen["left"] == []


def test_a_session_that_has_hives_file_system_is_left_alone(bare_spark: "SparkSession") -> None:
    inner: Any = bare_spark
    files = inner._jvm.org.apache.hadoop.fs.FileSystem.get(inner._jsparkSession.sessionState().newHadoopConf())
    assert files.getClass().getName() == "org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem"
    pylog.spark_session()
    assert bare_spark.conf.get(OPTION, None) is None


def test_what_the_user_chose_stays(bare_spark: "SparkSession") -> None:
    pylog.spark_session(config={OPTION: SPARKS_OWN})
    pylog.spark_session()
    assert bare_spark.conf.get(OPTION) == SPARKS_OWN
