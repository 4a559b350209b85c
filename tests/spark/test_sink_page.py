"""docs/sink.md: its tables are the rows of the code, and its numbers are those of the code."""

import pytest

pytest.importorskip("pyspark")

from pylog.connector.client.brokers import UNKNOWN_TOPIC_GRACE_MS
from pylog.connector.client.config import OPTIONS, Role
from pylog.connector.spark.option_rows import Taker
from pylog.connector.spark.options import CONTACT_TIMEOUT_MS
from pylog.connector.spark.worker import FREE_BYTES_MAX
from tests.support import option_pages

PATH = option_pages.DOCS / "sink.md"
TABLES = {
    "sink": lambda: option_pages.of_takers({Taker.SINK: "write"}),
    "client": lambda: option_pages.of_client(Role.SINK),
}


def test_the_tables_are_those_of_the_code(request: pytest.FixtureRequest) -> None:
    option_pages.assert_tables(PATH, TABLES, request.config.getoption("--rewrite-transcripts"))


def test_its_numbers_are_those_of_the_code() -> None:
    page = PATH.read_text()
    assert f"for {UNKNOWN_TOPIC_GRACE_MS // 1000} seconds" in page
    assert f"after {CONTACT_TIMEOUT_MS // 1000} seconds" in page
    assert f"`kafka.delivery.timeout.ms` ({OPTIONS['delivery.timeout.ms'].default // 60_000} minutes)" in page
    assert f"`kafka.max.request.size` ({OPTIONS['max.request.size'].default >> 20} MB)" in page
    assert f"`kafka.buffer.memory`, {OPTIONS['buffer.memory'].default >> 20} MB" in page
    assert f"for the next batch | up to {FREE_BYTES_MAX >> 20} MB" in page
