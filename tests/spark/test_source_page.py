"""docs/source.md: its tables are the rows of the code, and its numbers are those of the code."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pylog.connector.client.config import OPTIONS as CLIENT_OPTIONS
from pylog.connector.client.config import Role
from pylog.connector.spark.batch_source import TASK_OFFSETS_MAX
from pylog.connector.spark.option_rows import OPTIONS, Taker
from pylog.connector.spark.options import SOURCE_CLIENT_DEFAULTS

PATH = Path(__file__).parents[2] / "docs" / "source.md"
_TABLE = re.compile(r"(<!-- (source|client): .*? -->\n)(.*?)(<!-- /\2 -->)", re.DOTALL)
_TAKERS = {Taker.BATCH: "batch", Taker.STREAM: "stream"}


def source_rows() -> Iterable[str]:
    yield "| option | of | default | |"
    yield "|---|---|---|---|"
    for row in OPTIONS:
        takers = ", ".join(_TAKERS[taker] for taker in row.takers if taker in _TAKERS)
        if takers:
            ours = "" if row.is_sparks else ". Not an option of Spark's"
            yield f"| `{row.name}` | {takers} | {shown(row.default)} | {escaped(row.doc)}{ours} |"


def client_rows() -> Iterable[str]:
    yield "| option | type | default | |"
    yield "|---|---|---|---|"
    for row in CLIENT_OPTIONS.values():
        if row.role in (None, Role.CONSUMER):
            default = SOURCE_CLIENT_DEFAULTS.get(row.name, row.default)
            yield f"| `kafka.{row.name}` | {row.type} | {shown(default)} | {escaped(row.doc)} |"


def shown(default: Any) -> str:
    text = ", ".join(default) if isinstance(default, tuple) else default
    return "not set" if text in (None, "") else f"`{text}`"


def escaped(doc: str) -> str:
    return re.sub(r"({.*}}?|\[.*?\])", r"`\1`", doc).replace("|", "\\|")


TABLES = {"source": source_rows, "client": client_rows}


def test_the_tables_are_those_of_the_code(request: pytest.FixtureRequest) -> None:
    page = PATH.read_text()

    def table(name: str) -> str:
        return "\n".join(TABLES[name]()) + "\n"

    if request.config.getoption("--rewrite-transcripts"):
        page = _TABLE.sub(lambda found: found[1] + table(found[2]) + found[4], page)
        PATH.write_text(page)
    found = {name: text for _, name, text, _ in _TABLE.findall(page)}
    assert found == {name: table(name) for name in TABLES}, "--rewrite-transcripts writes them anew"


def test_its_numbers_are_those_of_the_code() -> None:
    page = PATH.read_text()
    assert f"ranges of more than {TASK_OFFSETS_MAX:,} offsets" in page
    assert f"({int(SOURCE_CLIENT_DEFAULTS['metadata.max.age.ms']) // 1000} seconds)" in page
