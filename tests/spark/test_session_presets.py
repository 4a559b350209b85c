"""What `pylog.spark_session` gives Arrow in Java, as a Spark that it started has it: `docs/adr/0018`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.support.java import JavaUnavailable, java_command

DEADLINE_S = 120
ROWS = 25_000  # more than an Arrow batch
SWITCH = "ARROW_ENABLE_UNSAFE_MEMORY_ACCESS"
RUN = f"""
import json, os
import pylog

local = {{"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}}
session = pylog.spark_session("presets", master="local[1]", config=local)
java = session._jvm.org.apache.arrow
rows = session.range({ROWS}).selectExpr(
    "id",
    "if(id % 2 = 0, null, cast(id as int)) number",
    "if(id % 3 = 0, null, id % 7 = 0) flag",
    "if(id % 5 = 0, null, cast(id as string)) words",
    "if(id % 7 = 0, null, cast(cast(id as string) as binary)) raw",
    "if(id % 11 = 0, null, timestamp_millis(id)) at",
    "if(id % 17 = 0, null, cast(id as double)) real",
    "if(id % 19 = 0, null, cast(id as decimal(20, 3))) exact",
    "if(id % 13 = 0, null, array(named_struct('a', if(id % 2 = 0, null, 1), 'b', cast(null as binary)))) list",
)
there_and_back = rows.mapInArrow(lambda batches: batches, rows.schema)
print(json.dumps({{
    "bounds": java.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED,
    "nulls": java.vector.NullCheckingForGet.NULL_CHECKING_ENABLED,
    "executors": session.sparkContext.getConf().get("spark.executorEnv.{SWITCH}"),
    "afterwards": os.environ.get("{SWITCH}"),
    "lost": rows.exceptAll(there_and_back).count(),
    "more": there_and_back.exceptAll(rows).count(),
    "count": there_and_back.count(),
}}))
session.stop()
"""


@pytest.mark.parametrize(("chosen", "checks_bounds"), [(None, False), ("false", True)])
def test_arrow_checks_no_bounds_unless_the_user_wants_it_and_rows_are_the_same(
    tmp_path: Path, chosen: str | None, checks_bounds: bool
) -> None:
    try:
        java_command()
    except JavaUnavailable as error:
        pytest.skip(str(error))
    environment = {name: value for name, value in os.environ.items() if name != SWITCH}
    environment |= {} if chosen is None else {SWITCH: chosen}
    command = [sys.executable, "-c", RUN]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert seen["bounds"] is checks_bounds
    assert seen["nulls"], "a null in a column that is said to have none is told, not read as whatever is there"
    assert seen["executors"] == (chosen or "true")
    assert seen["afterwards"] == chosen
    assert (seen["count"], seen["lost"], seen["more"]) == (ROWS, 0, 0)
