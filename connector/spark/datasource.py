"""`format("pylog")`: Spark makes one of these per query and asks it for readers and writers."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
)
from pyspark.sql.types import StructType

from pylog.connector.client.errors import ConfigError
from pylog.connector.spark.batch_source import BatchReader, FilteringBatchReader
from pylog.connector.spark.contact import contact
from pylog.connector.spark.option_rows import Taker
from pylog.connector.spark.options import any_source_options, sink_options, source_options
from pylog.connector.spark.pushdown import can_be_asked
from pylog.connector.spark.schema import check_sink_schema, check_source_schema, source_schema
from pylog.connector.spark.sink import BatchWriter, StreamWriter
from pylog.connector.spark.stream_source import StreamReader


class PylogDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "pylog"

    def schema(self) -> StructType:
        options = any_source_options(self.options)
        return source_schema(options.include_headers, options.decode)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self.options, Taker.BATCH)
        check_source_schema(schema, options.include_headers, options.decode)
        # Only if asked: Spark keeps a reader for all queries of a DataFrame, and with it the filters of the first one.
        takes_filters = options.push_filters and can_be_asked()
        return (FilteringBatchReader if takes_filters else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = source_options(self.options, Taker.STREAM)
        check_source_schema(schema, options.include_headers, options.decode)
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise ConfigError("a topic cannot be overwritten, only appended to: use mode('append')")
        options = sink_options(self.options)
        check_sink_schema(schema, options.topic)
        contact(options.client, options.contact_timeout_ms)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """`overwrite` is output mode complete: each batch appends the whole result, as with Spark's Kafka sink."""
        options = sink_options(self.options)
        check_sink_schema(schema, options.topic)
        return StreamWriter(options)
