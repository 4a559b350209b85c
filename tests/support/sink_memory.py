"""`python -m tests.support.sink_memory servers topic megabytes codec`: writes so much as one task of the sink. Prints
the most memory that this took beyond what the process had before, in bytes."""

import sys
from collections.abc import Iterator

import pyarrow as pa

from pylog.connector.spark.options import sink_options
from pylog.connector.spark.write import write_rows
from tests.support.task_memory import forget_peak, status_bytes

ROWS, VALUE_BYTES = 10_000, 1_000  # of an Arrow batch, as Spark makes them


def main(servers: str, topic: str, megabytes: str, codec: str) -> None:
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "kafka.compression.type": codec}
    rows = pa.record_batch({"key": [b"%d" % n for n in range(ROWS)], "value": [b"x" * VALUE_BYTES] * ROWS})

    def batches(count: int) -> Iterator[pa.RecordBatch]:
        for _ in range(count):
            yield rows

    write_rows(sink_options(options), batches(1))  # loads what a worker has loaded
    before = status_bytes("VmRSS")
    forget_peak()
    write_rows(sink_options(options), batches(int(megabytes) * 1_000_000 // (ROWS * VALUE_BYTES)))
    print(status_bytes("VmHWM") - before, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
