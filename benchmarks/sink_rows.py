"""What the sink writes: rows of key and value, made once, in Spark's memory and as Parquet files.

Half of a value is the same words over and over and half is digits that do not come again, as in JSON of one kind:
codecs find something, but not everything."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.harness import say, size_name
from benchmarks.peers import PARTITIONS

WORDS = '","state":"delivered","to":"next'
DIGITS = 32  # of an MD5
FILES = 20


@dataclass(frozen=True)
class Rows:
    count: int
    file_count: int
    value_bytes: int
    cached: DataFrame
    parquet: str  # a folder of as many files as FILES says

    @property
    def megabytes(self) -> float:
        """Of values, before they are compressed."""
        return self.count * self.value_bytes / 1e6

    @property
    def of_files(self) -> "Rows":
        return replace(self, count=self.file_count)


@contextlib.contextmanager
def prepared(session: SparkSession, count: int, file_count: int, value_bytes: int) -> Iterator[Rows]:
    """The rows, there for as long as the block lasts."""
    say(f"  preparing {count:,} rows in memory, {file_count:,} in files ({size_name(value_bytes)})")
    cached = _made(session, count, value_bytes, PARTITIONS).cache()
    with tempfile.TemporaryDirectory(prefix="pylog-bench-") as folder:
        _made(session, file_count, value_bytes, FILES).write.mode("overwrite").parquet(folder)
        cached.count()
        try:
            yield Rows(count, file_count, value_bytes, cached, folder)
        finally:
            cached.unpersist(blocking=True)


def _made(session: SparkSession, count: int, value_bytes: int, partitions: int) -> DataFrame:
    text = F.col("id").cast("string")
    rows = session.range(0, count, numPartitions=partitions)
    return rows.select(text.cast("binary").alias("key"), _value(text, value_bytes).alias("value"))


def _value(text: Column, value_bytes: int) -> Column:
    pieces = -(-value_bytes // (DIGITS + len(WORDS)))
    digits = [F.md5(F.concat(text, F.lit(f"-{number}"))) for number in range(pieces)]
    whole = F.concat(*(part for one in digits for part in (one, F.lit(WORDS))))
    return F.substring(whole, 1, value_bytes).cast("binary")
