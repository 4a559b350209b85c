"""What the tests that kill share: a topic to copy, and which of them `make test` leaves out."""

import os
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_copy import filled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def at_length(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--broker") == "pylog" and "PYLOG_FAULT_ROUNDS" not in os.environ:
        pytest.skip("`make test-kafka` and `make faults` run this")


@pytest.fixture(scope="session")
def topic(spark: "SparkSession", bootstrap_servers: str) -> str:
    """For all of these tests: none of them changes it."""
    return filled(spark, bootstrap_servers)
