"""Reading what was committed: transactions that overlap, fetch by fetch, from anywhere, against a list of what became
of each record."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.connector.columnar.decode import RowDecoder, arrow_schema
from pylog.storage import codecs
from pylog.storage.batch import HEADER_BYTES, PREFIX_BYTES, pack_header, read_header
from pylog.storage.errors import CorruptBatch
from pylog.storage.log import PartitionLog
from tests.support.logs import batch_of, bytes_of, committed, log_in, marker_of

Aborted = Sequence[tuple[int, int]]
WRITE, COMMIT, ABORT = range(3)
PLAIN = 0  # a producer without transactions; the others have them


def decoded(fetched: bytes, start: int, end: int, aborted: Aborted) -> tuple[list[int], int]:
    rows, next_offset = RowDecoder("orders", 0, arrow_schema(["offset"])).decode(fetched, start, end, aborted)
    return [offset for batch in rows for offset in batch["offset"].to_pylist()], next_offset


def read_committed(log: PartitionLog, start: int, end: int, bytes_max: int) -> list[int]:
    """As a task reads from a broker: each answer tells of the transactions in it."""
    found: list[int] = []
    while start < end:
        part = log.read(start, bytes_max, end_offset=log.last_stable_offset)
        assert part is not None
        fetched = bytes_of(part)
        position = last = 0
        while position < len(fetched):
            last = position
            position += read_header(fetched, position).size_bytes
        behind = read_header(fetched, last).next_offset
        aborted = [(one.producer_id, one.first_offset) for one in log.aborted_transactions(start, behind)]
        rows, start = decoded(fetched, start, end, aborted)
        found += rows
    return found


steps = st.lists(
    st.tuples(st.sampled_from([WRITE, WRITE, COMMIT, ABORT]), st.integers(PLAIN, 2), st.integers(1, 3)),
    min_size=8,
    max_size=30,
)


@settings(deadline=None, max_examples=150)
@given(steps, st.data())
def test_exactly_the_committed_records_before_the_first_open_transaction_are_read(
    written: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        log = log_in(Path(folder))
        fate: dict[int, bool | None] = {}  # by offset: committed, aborted, or still open
        waiting: dict[int, list[int]] = {}
        sequence = dict.fromkeys(range(3), 0)
        ends = [(data.draw(st.sampled_from([COMMIT, ABORT])), producer, 0) for producer in (1, 2)]
        for step, producer, count in [*written, *ends[: data.draw(st.integers(0, 2))]]:
            if step == WRITE:
                transactional = producer != PLAIN
                codec = data.draw(st.sampled_from([codecs.NONE, codecs.LZ4]))
                batch = batch_of(
                    count,
                    codec=codec,
                    producer_id=producer,
                    sequence=sequence[producer],
                    transactional=transactional,
                )
                sequence[producer] += count
                base = committed(log, batch)
                offsets = list(range(base, base + count))
                fate.update(dict.fromkeys(offsets, None if transactional else True))
                waiting.setdefault(producer, []).extend(offsets if transactional else [])
            elif waiting.get(producer):
                committed(log, marker_of(producer, commit=step == COMMIT))
                fate.update(dict.fromkeys(waiting.pop(producer), step == COMMIT))
        stable = log.last_stable_offset
        open_offsets = [offset for offset, became in fate.items() if became is None]
        assert stable == min(open_offsets, default=log.log_end_offset)
        start = data.draw(st.just(0) | st.integers(0, stable))
        bytes_max = data.draw(st.sampled_from([1, 300, 1 << 20]))
        kept = [offset for offset, became in sorted(fate.items()) if became and start <= offset < stable]
        assert read_committed(log, start, stable, bytes_max) == kept
        log.close()


def placed(*batches: bytearray) -> bytes:
    """One behind the other, their offsets too."""
    out, offset = b"", 0
    for batch in batches:
        batch[:8] = offset.to_bytes(8, "big")
        out += batch
        offset = read_header(batch).next_offset
    return out


def transactional(count: int = 1, producer_id: int = 7) -> bytearray:
    return batch_of(count, producer_id=producer_id, transactional=True)


def emptied(batch: bytearray) -> bytearray:
    """As compaction leaves it when no record remains."""
    out = bytearray(HEADER_BYTES)
    pack_header(out, 0, read_header(batch)._replace(record_count=0, length=HEADER_BYTES - PREFIX_BYTES))
    return out


@pytest.mark.parametrize(
    ("fetched", "aborted", "kept"),
    [
        pytest.param(placed(transactional(2), marker_of(7, commit=False)), [(7, 0)], [], id="all of it"),
        pytest.param(
            placed(transactional(2), marker_of(7, commit=False), transactional(), marker_of(7, commit=True)),
            [(7, 0)],
            [3],
            id="the next one of the same producer is committed",
        ),
        pytest.param(
            placed(transactional(), marker_of(7, commit=False), transactional(), marker_of(7, commit=False)),
            [(7, 2), (7, 0)],
            [],
            id="told of in any order",
        ),
        pytest.param(
            placed(transactional(), marker_of(7, commit=True), transactional(), marker_of(7, commit=False)),
            [(7, 2)],
            [0],
            id="the one before was committed",
        ),
        pytest.param(
            placed(transactional(), transactional(producer_id=8), marker_of(8, commit=False), transactional()),
            [(7, 0)],
            [1],
            id="the marker of another producer ends nothing",
        ),
        pytest.param(placed(batch_of(3, producer_id=7)), [(7, 0)], [0, 1, 2], id="not transactional"),
        pytest.param(
            placed(transactional(), emptied(marker_of(7, commit=False)), transactional()),
            [(7, 0)],
            [],
            id="a marker that compaction has emptied ends nothing, as in Kafka's client",
        ),
        pytest.param(placed(transactional(3)), [(7, -5)], [], id="begun before what was fetched"),
        pytest.param(placed(transactional(3)), [(7, 99)], [0, 1, 2], id="begins behind what was fetched"),
        pytest.param(placed(transactional(3)), [(2, 0), (9, 0)], [0, 1, 2], id="of producers that are not here"),
    ],
)
def test_aborted_batches_are_left_out(fetched: bytes, aborted: Aborted, kept: list[int]) -> None:
    assert decoded(fetched, 0, 100, aborted)[0] == kept


def test_without_being_told_of_aborted_ones_every_record_is_read_but_no_marker() -> None:
    fetched = placed(transactional(2), marker_of(7, commit=False), transactional(), marker_of(7, commit=True))
    assert decoded(fetched, 0, 100, ()) == ([0, 1, 3], 5)


def test_a_damaged_marker_decides_about_no_row() -> None:
    fetched = bytearray(placed(transactional(2), marker_of(7, commit=False), transactional(2)))
    marker = read_header(fetched).size_bytes
    fetched[marker + HEADER_BYTES + 8] ^= 1  # the type in its key
    with pytest.raises(CorruptBatch, match="batch at offset 2"):
        decoded(bytes(fetched), 0, 100, [(7, 0)])
