"""pylog as a data source of Spark: `register(spark)`, then `format("pylog")` reads and writes topics.

Columns, options and rules are those of Spark's `format("kafka")`; docs/source.md and docs/sink.md have the options.
What differs:
- an option that is unknown, or has no effect where it stands, is refused, not ignored;
- a schema given to `.schema(...)` chooses columns, and the others are not decoded;
- a batch splits large partitions over tasks of itself, and takes filters where the session pushes them down;
- `subscribePattern` is an expression of Python's `re`; internal topics are read if they are named;
- a stream commits what it has done to a group, `kafka.group.id` or one of its own, and can start where a group stands;
- a topic that was deleted and made anew is known by its id, and with failOnDataLoss=false read from its first offset;
- truststores and keystores are PEM; tokens for OAUTHBEARER come from a function in Python; no Kerberos;
- `maxBytesPerTrigger` limits a micro-batch, and `decode=offsets` reads the commits in `__consumer_offsets`;
- `endOffset` in a query's progress has a key "@pylog" beside the topics; there are no metrics but `latestOffset`;
- a sink writes a `timestamp` column as the records' time; `write` needs `mode("append")`; no update mode;
- rows without a key stay with a partition for a record batch.

Nothing of PySpark is imported before `register`, so that its absence is met with words and not with a traceback.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYSPARK_MIN = (4, 2)


class SparkTooOld(ImportError):
    """PySpark is missing, or older than the data source API that this is built on."""


def register(spark: "SparkSession") -> None:
    """Make `format("pylog")` known to this session, one of several or not; again is harmless."""
    check_pyspark()
    _check(spark.version, "this session's Spark")
    from pyspark.errors import AnalysisException
    from pyspark.sql import SparkSession

    from pylog.connector.spark.datasource import PylogDataSource

    try:
        spark.dataSource.register(PylogDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        # Spark asks the active session whether the name is taken, though it registers with this one.
        active = SparkSession.getActiveSession()
        spark.createDataFrame([], "value int")  # becomes the active one by this
        try:
            spark.dataSource.register(PylogDataSource)
        finally:
            if active is not None:
                active.createDataFrame([], "value int")


def check_pyspark() -> None:
    """SparkTooOld with what to install, before anything of PySpark is imported."""
    _check(_pyspark_version(), "PySpark")


def _pyspark_version() -> str | None:
    try:
        import pyspark
    except ImportError:
        return None
    return str(pyspark.__version__)


def _check(version: str | None, what: str) -> None:
    if version is not None and _numbers(version) >= PYSPARK_MIN:
        return
    found = "is not installed" if version is None else f"is {version}"
    needed = ".".join(map(str, PYSPARK_MIN))
    raise SparkTooOld(
        f"format('pylog') needs PySpark {needed} or later, and {what} {found}: pip install 'pyspark>={needed}' "
        "(or pip install 'pylog[spark]')"
    )


def _numbers(version: str) -> tuple[int, ...]:
    """The first two parts of "4.2.0", "4.2.0.dev1" or "4.2.0-preview1"."""
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in version.split(".")[:2])
