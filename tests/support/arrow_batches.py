"""`python -m tests.support.arrow_batches shape megabytes`: Arrow batches on standard output, as the JVM of Spark gives
them to a sink. The first one has a few rows only; the others are of that shape, and each has bytes of its own."""

import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

ROWS = 10_000  # of a batch, unless those are more than 64 MB: Spark's defaults


class Shape(NamedTuple):
    """Of a batch: `large` rows of its end have another size than those before."""

    rows: int
    row_bytes: int
    large: int = 0
    large_bytes: int = 0
    topics: int = 1

    @property
    def sizes(self) -> list[int]:
        return [self.row_bytes] * (self.rows - self.large) + [self.large_bytes] * self.large

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes)


SHAPES = {
    "rows of 1 KB": Shape(ROWS, 1_000),
    "rows of 1 KB in small batches": Shape(4_000, 1_000),  # as in a session of pylog.spark_session
    "rows of 1 KB for five topics": Shape(ROWS, 1_000, topics=5),
    "few rows with most of the bytes": Shape(ROWS, 100, 120, 500_000),
    "few rows with most of the bytes, for five topics": Shape(ROWS, 100, 120, 500_000, topics=5),
}
_STEP_BYTES = 1_000  # by which one batch's bytes are moved against those of the last


def batches(shape: Shape, megabytes: int) -> Iterator[pa.RecordBatch]:
    """Of letters, which can be compressed somewhat."""
    count = megabytes * 1_000_000 // shape.size_bytes
    letters = np.random.default_rng(0).integers(97, 123, shape.size_bytes + count * _STEP_BYTES, np.uint8)
    offsets = pa.py_buffer(np.concatenate([[0], np.cumsum(shape.sizes)]).astype(np.int32))
    keys = pa.array([b"%d" % number for number in range(shape.rows)])
    topics = pa.array([f"t{number % shape.topics}" for number in range(shape.rows)])
    for number in range(1 + count):
        data = pa.py_buffer(letters[number * _STEP_BYTES :][: shape.size_bytes])
        values = pa.Array.from_buffers(pa.binary(), shape.rows, [None, offsets, data])
        rows = pa.RecordBatch.from_arrays([keys, values, topics], ["key", "value", "topic"])
        yield rows if number else rows[:10]


def main(name: str, megabytes: str) -> None:
    given = batches(SHAPES[name], int(megabytes))
    first = next(given)
    with pa.ipc.new_stream(sys.stdout.buffer, first.schema) as stream:
        stream.write_batch(first)
        for rows in given:
            stream.write_batch(rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
