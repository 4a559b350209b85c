"""What Spark says when something is refused or fails."""

from collections.abc import Callable
from typing import Any

import pytest


def refusal(action: Callable[[], Any]) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def failure(action: Callable[[], Any]) -> str:
    """The same where the JVM may speak for itself: Spark's own sink throws what PySpark has no name for."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        action()
    return str(caught.value)
