"""Batches of which compaction has left the header alone: they keep their offsets and their producer's sequence, and
have no record that could be found by time."""

from pathlib import Path

import pytest

from pylog.storage.batch import HEADER_BYTES, PREFIX_BYTES, pack_header, read_header
from pylog.storage.index import TIME_ENTRY
from pylog.storage.inspect.findings import Report
from pylog.storage.inspect.verify import verify
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.recovery import Trust
from tests.support.compacted_log import CompactedLog, keyed
from tests.support.logs import START_MS, batch_of, bytes_of, headers_in, log_in, offsets_in, records_in
from tests.support.simulated_files import SimulatedFiles

FIRST = f"{0:020d}"
CONFIG = LogConfig(index_interval_bytes=1)
LATEST_MS = START_MS + 21  # of the record at offset 3; the batches behind it are later, and empty
OURS = ((START_MS + 21, 3),)
KAFKAS = (*OURS, (START_MS + 1001, 5), (START_MS + 2001, 7))  # it goes by the headers


def _emptied(batch: bytes) -> bytes:
    header = read_header(batch)._replace(length=HEADER_BYTES - PREFIX_BYTES, record_count=0, base_timestamp=-1)
    out = bytearray(HEADER_BYTES)
    pack_header(out, 0, header)
    return bytes(out)


def _written(files: SimulatedFiles) -> Path:
    """Four batches of two records, the last two of them emptied; indexes are still to be made."""
    log = log_in(files.root, CONFIG, files=files)
    for number, timestamp_ms in enumerate((START_MS, START_MS + 20, START_MS + 1000, START_MS + 2000)):
        log.append(batch_of(2, timestamp_ms=timestamp_ms, producer_id=7, sequence=2 * number), 0)
    log.abandon()
    path = log.directory / f"{FIRST}.log"
    data = files.read(path)
    assert data is not None
    size_bytes = len(data) // 4
    batches = [data[n * size_bytes : (n + 1) * size_bytes] for n in range(4)]
    files.replace(path, b"".join([*batches[:2], *map(_emptied, batches[2:])]), durable=True)
    return log.directory


def _times(files: SimulatedFiles, directory: Path) -> tuple[tuple[int, int], ...]:
    return tuple(TIME_ENTRY.iter_unpack(files.read(directory / f"{FIRST}.timeindex") or b""))


def _expect(log: PartitionLog) -> None:
    assert log.log_end_offset == 8
    assert [record.offset for record in records_in(log)] == [0, 1, 2, 3]
    assert log.offset_of_max_timestamp() == (LATEST_MS, 3)
    assert log.offset_at_time(LATEST_MS) == (LATEST_MS, 3)
    assert log.offset_at_time(LATEST_MS + 1) is None
    assert log.offset_at_time(START_MS + 1500) is None


def test_the_time_index_that_we_build_does_not_name_them() -> None:
    files = SimulatedFiles()
    directory = _written(files)
    log = PartitionLog(directory, CONFIG, Trust(clean=False), files=files)
    _expect(log)
    (producer,) = log.producers.views()
    assert (producer.last_sequence, producer.last_timestamp_ms) == (7, START_MS + 2001)  # not forgotten before its time
    log.close()
    assert _times(files, directory) == OURS


@pytest.mark.parametrize("entries", [OURS, KAFKAS], ids=["ours", "Kafka's"])
def test_a_time_index_of_either_kind_is_sound(entries: tuple[tuple[int, int], ...]) -> None:
    files = SimulatedFiles()
    directory = _written(files)
    PartitionLog(directory, CONFIG, Trust(clean=False), files=files).close()
    packed = b"".join(TIME_ENTRY.pack(*entry) for entry in entries)
    files.replace(directory / f"{FIRST}.timeindex", packed, durable=True)
    findings: list[object] = []
    verify(directory, Report(findings.append), files=files)
    assert findings == []
    log = PartitionLog(directory, CONFIG, Trust(clean=True), files=files)
    _expect(log)
    log.close()
    assert _times(files, directory) == entries  # and was not built anew


def test_what_is_appended_behind_them_is_found() -> None:
    files = SimulatedFiles()
    log = PartitionLog(_written(files), CONFIG, Trust(clean=False), files=files)
    log.append(batch_of(1, timestamp_ms=START_MS + 500), 0)
    assert log.offset_of_max_timestamp() == (START_MS + 500, 8)
    assert log.offset_at_time(LATEST_MS + 1) == (START_MS + 500, 8)
    part = log.read(4, 1 << 20)
    assert part is not None
    headers = headers_in(part.file.read_at(part.position, part.length))
    assert [header.record_count for header in headers] == [0, 0, 1]


# -- at the end of a segment, where they say how far it goes


def _superseded(rounds: int) -> PartitionLog:
    """What compaction leaves of so many rounds over the same two keys, each a segment of one batch."""
    log = CompactedLog(segment_bytes=100)
    for number in range(rounds):
        log.append(keyed(("a", f"{number}"), ("b", f"{number}")))
        log.roll()
    log.clean()
    return PartitionLog(log.directory, LogConfig(compact=True), Trust(clean=True), files=log.files)


def _read(log: PartitionLog, offset: int, bytes_max: int = 1 << 20, end_offset: int | None = None) -> list[int] | None:
    """The first offsets of the batches."""
    part = log.read(offset, bytes_max, end_offset)
    return None if part is None else [header.base_offset for header in headers_in(bytes_of(part))]


@pytest.mark.parametrize("bytes_max", [1, HEADER_BYTES, 1 << 20])
def test_segments_with_nothing_else_are_read_over(bytes_max: int) -> None:
    log = _superseded(5)
    assert [segment.size_bytes for segment in log.segments()[:4]] == [HEADER_BYTES] * 4
    for offset in range(10):
        assert _read(log, offset, bytes_max) == [8]
    assert _read(log, 10, bytes_max) is None
    assert offsets_in(log) == [8, 9]


def test_those_before_where_a_reader_may_not_read_on_are_told_so_that_it_gets_there() -> None:
    log = _superseded(5)
    assert [_read(log, offset, end_offset=8) for offset in range(9)] == [[6]] * 8 + [None]
    assert [_read(log, offset, end_offset=4) for offset in range(5)] == [[2]] * 4 + [None]


def test_one_behind_the_last_record_of_a_segment_is_read_over_by_who_read_that() -> None:
    log = CompactedLog(segment_bytes=200)
    log.append(keyed(("a", "1"), ("only", "1")))
    log.append(keyed(("a", "2"), ("b", "2")))
    log.roll()
    log.append(keyed(("a", "3"), ("b", "3")))
    log.roll()
    log.clean()
    opened = PartitionLog(log.directory, LogConfig(compact=True), Trust(clean=True), files=log.files)
    assert [_read(opened, offset) for offset in range(7)] == [[0, 2]] * 2 + [[4]] * 4 + [None]
    assert _read(opened, 0, 1) == [0]
    assert _read(opened, 2, end_offset=4) == [2]  # nothing else is there


def test_a_log_that_ends_with_one_is_read_to_its_end() -> None:
    files = SimulatedFiles()
    log = PartitionLog(_written(files), CONFIG, Trust(clean=False), files=files)
    assert [_read(log, offset) for offset in (4, 5, 6, 7, 8)] == [[4, 6], [4, 6], [6], [6], None]


def test_one_before_records_of_its_segment_is_told_with_them() -> None:
    files = SimulatedFiles()
    log = PartitionLog(_written(files), CONFIG, Trust(clean=False), files=files)
    assert _read(log, 4, 1) == [4]
    log.append(batch_of(1), 0)
    assert _read(log, 6) == [6, 8]
