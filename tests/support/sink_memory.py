"""`python -m tests.support.sink_memory servers shape megabytes codec`: writes so much as a task of the sink, from Arrow
batches of this shape that another process gives it, as Spark does. Prints the most memory that this took beyond what
the process had before, in bytes."""

import subprocess
import sys

from pyspark.sql.pandas.serializers import ArrowStreamSerializer

from pylog.connector.spark.options import sink_options
from pylog.connector.spark.sink import BatchWriter
from tests.support.task_memory import forget_peak, status_bytes


def main(servers: str, shape: str, megabytes: str, codec: str) -> None:
    writer = BatchWriter(sink_options({"kafka.bootstrap.servers": servers, "kafka.compression.type": codec}))
    command = [sys.executable, "-m", "tests.support.arrow_batches", shape, megabytes]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as giving:
        batches = ArrowStreamSerializer().load_stream(giving.stdout)  # type: ignore[arg-type]
        writer.write(iter([next(batches)]))  # loads what a worker has loaded
        before = status_bytes("VmRSS")
        forget_peak()
        writer.write(batches)
        print(status_bytes("VmHWM") - before, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
