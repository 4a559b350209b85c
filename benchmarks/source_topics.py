"""What the source reads: topics of values alone, of keys or of headers too, plain or compressed, written once."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks import kafka_tools, spark
from benchmarks.harness import say, size_name
from benchmarks.kafka_tools import Load
from benchmarks.peers import PARTITIONS, RunningBroker

BATCHED = ("batch.size=65536", "linger.ms=5")
FILLED_AT_ONCE = 1_000_000  # rows, of those that Spark writes


@dataclass(frozen=True)
class Topic:
    count: int
    value_bytes: int
    codec: str = "none"
    has_keys: bool = False
    has_headers: bool = False
    partitions: int = PARTITIONS

    @property
    def name(self) -> str:
        """As the tables show it."""
        kinds = [kind for kind, there in (("keyed", self.has_keys), ("one header", self.has_headers)) if there]
        codec = [] if self.codec == "none" else [self.codec]
        return ", ".join([size_name(self.value_bytes), *codec, *kinds])

    @property
    def topic(self) -> str:
        return f"source-{self.partitions}-{self.count}-" + self.name.replace(", ", "-").replace(" ", "-")

    @property
    def megabytes(self) -> float:
        """Of values, before they are compressed."""
        return self.count * self.value_bytes / 1e6

    @contextlib.contextmanager
    def filled(self, session: SparkSession, broker: RunningBroker) -> Iterator[None]:
        """It is there for as long as the block lasts."""
        self.fill(session, broker)
        try:
            yield
        finally:
            broker.delete_topic(self.topic)

    def fill(self, session: SparkSession, broker: RunningBroker) -> None:
        say(f"  loading {self.count:,} records ({self.name}) into {broker.name}")
        broker.create_topic(self.topic, self.partitions)
        if self.has_keys or self.has_headers:
            self._fill_from_spark(session, broker)
        else:
            load = Load(self.count, self.value_bytes, (*BATCHED, f"compression.type={self.codec}"))
            kafka_tools.send(broker.bootstrap_servers, self.topic, load)
        found = broker.records_in(self.topic, self.partitions)
        if found != self.count:
            raise RuntimeError(f"{broker.name} holds {found} of {self.count} records")

    def _fill_from_spark(self, session: SparkSession, broker: RunningBroker) -> None:
        """Kafka's own tool writes neither keys nor headers."""
        text = F.col("id").cast("string")
        columns = [F.lpad(text, self.value_bytes, "abcdefgh").cast("binary").alias("value")]
        if self.has_keys:
            columns.append(text.cast("binary").alias("key"))
        if self.has_headers:
            header = F.struct(F.lit("trace").alias("key"), text.cast("binary").alias("value"))
            columns.append(F.array(header).alias("headers"))
        for start in range(0, self.count, FILLED_AT_ONCE):
            numbers = session.range(start, min(start + FILLED_AT_ONCE, self.count))
            rows = numbers.select(*columns).write.format(spark.OURS).mode("append").option("topic", self.topic)
            rows.option("kafka.bootstrap.servers", broker.bootstrap_servers).save()
