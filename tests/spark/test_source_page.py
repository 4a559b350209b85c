"""docs/source.md: its tables are the rows of the code, and its numbers are those of the code."""

import pytest

pytest.importorskip("pyspark")

from pylog.connector.client.config import Role
from pylog.connector.spark.batch_source import TASK_OFFSETS_MAX
from pylog.connector.spark.option_rows import Taker
from pylog.connector.spark.options import SOURCE_CLIENT_DEFAULTS
from tests.support import option_pages

PATH = option_pages.DOCS / "source.md"
TABLES = {
    "source": lambda: option_pages.of_takers({Taker.BATCH: "batch", Taker.STREAM: "stream"}),
    "client": lambda: option_pages.of_client(Role.CONSUMER, SOURCE_CLIENT_DEFAULTS),
}


def test_the_tables_are_those_of_the_code(request: pytest.FixtureRequest) -> None:
    option_pages.assert_tables(PATH, TABLES, request.config.getoption("--rewrite-transcripts"))


def test_its_numbers_are_those_of_the_code() -> None:
    page = PATH.read_text()
    assert f"ranges of more than {TASK_OFFSETS_MAX:,} offsets" in page
    assert f"({int(SOURCE_CLIENT_DEFAULTS['metadata.max.age.ms']) // 1000} seconds)" in page
