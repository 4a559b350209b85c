"""What the tests that kill share: a topic to copy."""

from typing import TYPE_CHECKING

import pytest

from tests.support.spark_copy import filled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def topic(spark: "SparkSession", bootstrap_servers: str) -> str:
    """For all of these tests: none of them changes it."""
    return filled(spark, bootstrap_servers)
