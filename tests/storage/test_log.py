"""Append, read, look-up by time, roll; what is refused; disks that fail."""

import errno
import os
from pathlib import Path

import pytest

from pylog.storage import codecs, files
from pylog.storage.batch import HEADER_BYTES, check, pack_header, read_header, walk
from pylog.storage.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    LogClosed,
    OffsetOutOfRange,
    StorageError,
    UnsupportedBatch,
)
from pylog.storage.index import OFFSET_ENTRY, TIME_ENTRY
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.records import Record, decode_batch, encode_batch
from pylog.storage.recovery import Trust
from tests.support.logs import START_MS, batch_of, bytes_of, headers_in, log_in, records_in, reopened

BATCH_BYTES = len(batch_of(1))


def _names(log: PartitionLog) -> list[str]:
    return sorted(os.listdir(log.directory))


def _entries(log: PartitionLog, name: str) -> list[tuple[int, int]]:
    entry = TIME_ENTRY if name.endswith(".timeindex") else OFFSET_ENTRY
    return list(entry.iter_unpack((log.directory / name).read_bytes()))


# -- appending


def test_a_new_log_is_empty(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.size_bytes) == (0, 0, 0, 0)
    assert log.read(0, 100) is None
    assert log.offset_at_time(0) is None
    assert _names(log) == [f"{0:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")]


def test_batches_get_the_next_offsets_and_the_leader_epoch(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    assert log.append(batch_of(3), 5) == (0, 2, -1)
    assert log.append(batch_of(2) + batch_of(4), 6) == (3, 8, -1)
    assert log.log_end_offset == log.high_watermark == 9
    part = log.read(0, 1 << 20)
    assert part is not None
    headers = headers_in(bytes_of(part))
    assert [(header.base_offset, header.last_offset, header.leader_epoch) for header in headers] == [
        (0, 2, 5),
        (3, 4, 6),
        (5, 8, 6),
    ]
    assert [record.offset for record in records_in(log)] == list(range(9))
    assert part.file.path.read_bytes() == bytes_of(part)


def test_only_the_place_of_a_batch_is_rewritten(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(1), 0)
    sent = batch_of(2, codec=codecs.ZSTD)
    log.append(memoryview(bytearray(sent)), 3)
    part = log.read(1, 1)
    assert part is not None
    assert bytes_of(part)[16:] == sent[16:]


def _changed(**fields: int) -> bytearray:
    batch = batch_of(2)
    pack_header(batch, 0, read_header(batch)._replace(**fields))
    return batch


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(bytearray(), InvalidBatch, id="nothing"),
        pytest.param(batch_of(1)[:-1], CorruptBatch, id="cut off"),
        pytest.param(batch_of(1) + b"x", CorruptBatch, id="a byte behind the batch"),
        pytest.param(batch_of(1) + bytes(70), CorruptBatch, id="zeros behind the batch"),
        pytest.param(batch_of(1) + batch_of(1)[:-1], CorruptBatch, id="second batch cut off"),
        pytest.param(batch_of(1)[:-1] + b"x", CorruptBatch, id="checksum"),
        pytest.param(bytearray(os.urandom(200)), CorruptBatch, id="random bytes"),
        pytest.param(_changed(record_count=0, last_offset_delta=0), InvalidBatch, id="no records"),
        pytest.param(_changed(last_offset_delta=5), InvalidBatch, id="offsets without records"),
        pytest.param(_changed(record_count=3), InvalidBatch, id="records without offsets"),
        pytest.param(_changed(record_count=9000, last_offset_delta=8999), InvalidBatch, id="more records than bytes"),
        pytest.param(_changed(attributes=6), UnsupportedBatch, id="unknown codec"),
        pytest.param(batch_of(1)[:16] + b"\x01" + batch_of(1)[17:], UnsupportedBatch, id="old magic"),
    ],
)
def test_what_is_no_batch_is_refused_and_leaves_no_trace(
    tmp_path: Path, data: bytearray, error: type[StorageError]
) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(2), 0)
    with pytest.raises(error):
        log.append(data, 0)
    assert log.log_end_offset == 2
    assert log.size_bytes == os.path.getsize(log.directory / "00000000000000000000.log")
    assert log.append(batch_of(1), 0).base_offset == 2
    assert len(records_in(log)) == 3


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=BATCH_BYTES))
    log.append(batch_of(1), 0)
    with pytest.raises(BatchTooLarge):
        log.append(batch_of(2), 0)
    assert log.log_end_offset == 1


# -- reading


def test_a_read_gives_whole_batches_from_the_one_that_holds_the_offset(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    for _ in range(5):
        log.append(batch_of(3), 0)
    size = len(batch_of(3))
    for _ in range(2):
        for offset in range(15):
            for bytes_max in (-1, 0, 1, size - 1, size, size + 1, 2 * size - 1, 2 * size, 2 * size + 1, 100 * size):
                part = log.read(offset, bytes_max)
                assert part is not None
                headers = headers_in(bytes_of(part))
                assert headers[0].base_offset == offset // 3 * 3
                assert len(headers) == min(max(1, bytes_max // size), 5 - offset // 3)
        log = reopened(log, clean=True)


def test_reads_agree_wherever_in_a_long_segment_they_start(tmp_path: Path) -> None:
    """At the tail, which is known by heart; before it, where the index and a short walk find them; after a restart,
    when nothing is known by heart."""
    log = log_in(tmp_path, LogConfig(index_interval_bytes=300))
    sizes = [5 * (number % 7) for number in range(600)]
    for size in sizes:
        log.append(batch_of(1, value=bytes(size)), 0)
    whole = (log.directory / f"{0:020d}.log").read_bytes()
    starts = [position for position, _ in walk(whole)] + [len(whole)]
    for _ in range(2):
        for offset in range(600):
            for bytes_max in (1, 500, 5000):
                part = log.read(offset, bytes_max)
                assert part is not None
                ends = [end for end in starts[offset + 1 :] if end - starts[offset] <= bytes_max]
                assert part.position == starts[offset]
                assert part.position + part.length == (ends[-1] if ends else starts[offset + 1])
        log = reopened(log, clean=True)


@pytest.mark.parametrize("offset", [-1, 7, 1 << 62])
def test_an_offset_outside_the_log_is_refused(tmp_path: Path, offset: int) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(6), 0)
    assert log.read(6, 100) is None
    with pytest.raises(OffsetOutOfRange) as raised:
        log.read(offset, 100)
    assert (raised.value.log_start_offset, raised.value.log_end_offset) == (0, 6)


def test_a_read_ends_with_its_segment(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=3 * BATCH_BYTES))
    for _ in range(7):
        log.append(batch_of(1), 0)
    lengths = [part.length // BATCH_BYTES for n in range(7) if (part := log.read(n, 1 << 20))]
    assert lengths == [3, 2, 1, 3, 2, 1, 1]


def test_a_read_under_way_survives_roll_close_and_deletion(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=BATCH_BYTES))
    log.append(batch_of(1), 0)
    part = log.read(0, 100)
    assert part is not None
    before = bytes_of(part)
    log.append(batch_of(1), 0)
    log.delete()
    assert not log.directory.exists()
    assert bytes_of(part) == before


def _open_in(directory: Path) -> int:
    """How many descriptors of this process are open on files of the directory."""
    links = Path("/proc/self/fd")
    if not links.exists():
        pytest.skip("needs /proc")
    names = [os.readlink(link) for link in links.iterdir() if link.exists() or link.is_symlink()]
    return sum(name.startswith(str(directory)) for name in names)


def test_descriptors_go_with_the_last_reference(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=BATCH_BYTES))
    for _ in range(5):
        log.append(batch_of(1), 0)
    assert _open_in(tmp_path) == 1  # the one that takes the appends
    parts = [log.read(offset, 100) for offset in range(5)]
    log.close()
    assert _open_in(tmp_path) == 5
    parts.clear()
    assert _open_in(tmp_path) == 0


def test_a_closed_log_is_refused(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.close()
    log.close()
    with pytest.raises(LogClosed):
        log.append(batch_of(1), 0)
    with pytest.raises(LogClosed):
        log.read(0, 100)
    with pytest.raises(LogClosed):
        log.offset_at_time(0)


def test_a_gap_that_compaction_left_is_read_over(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    first = encode_batch([Record(n, START_MS, None, b"a") for n in (10, 14)])
    second = encode_batch([Record(n, START_MS, None, b"b") for n in (20, 21)])
    (directory / f"{10:020d}.log").write_bytes(first)
    (directory / f"{18:020d}.log").write_bytes(second)
    log = log_in(tmp_path, clean=False)
    assert (log.log_start_offset, log.log_end_offset) == (10, 22)
    bases = {
        offset: headers_in(bytes_of(part))[0].base_offset for offset in range(10, 22) if (part := log.read(offset, 1))
    }
    assert bases == {offset: 10 if offset < 15 else 20 for offset in range(10, 22)}


# -- rolling and indexes


@pytest.mark.parametrize(
    ("config", "bases"),
    [
        pytest.param(LogConfig(segment_bytes=3 * BATCH_BYTES), [0, 3, 6, 9], id="exactly full still fits"),
        pytest.param(LogConfig(segment_bytes=3 * BATCH_BYTES - 1), [0, 2, 4, 6, 8], id="one byte over rolls"),
        pytest.param(LogConfig(segment_bytes=BATCH_BYTES), list(range(10)), id="an empty segment never rolls"),
        pytest.param(LogConfig(index_interval_bytes=0, index_bytes_max=60), [0, 5], id="full time index"),
        pytest.param(LogConfig(index_bytes_max=24), [0], id="index that takes no entry yet"),
    ],
)
def test_a_full_segment_rolls(tmp_path: Path, config: LogConfig, bases: list[int]) -> None:
    log = log_in(tmp_path, config)
    for number in range(10):
        log.append(batch_of(1, timestamp_ms=START_MS + number), 0)
    assert [name for name in _names(log) if name.endswith(".log")] == [f"{base:020d}.log" for base in bases]
    assert [record.offset for record in records_in(log)] == list(range(10))


def test_a_full_offset_index_rolls(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(index_interval_bytes=0, index_bytes_max=40))
    for _ in range(10):
        log.append(batch_of(1), 0)  # of one time, so that the time index stays small
    assert [name for name in _names(log) if name.endswith(".log")] == [f"{base:020d}.log" for base in (0, 6)]


def test_an_offset_that_does_not_fit_into_the_index_rolls(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    count = 1 << 30

    def huge() -> bytearray:
        """A compressed batch may hold any number of records, as far as its header tells."""
        batch = batch_of(1, codec=codecs.GZIP)
        pack_header(batch, 0, read_header(batch)._replace(record_count=count, last_offset_delta=count - 1))
        return batch

    for _ in range(3):
        log.append(huge(), 0)
    assert [name for name in _names(log) if name.endswith(".log")] == [f"{0:020d}.log", f"{2 * count:020d}.log"]
    assert log.log_end_offset == 3 * count


def test_index_entries_are_placed_as_kafka_places_them(tmp_path: Path) -> None:
    """An entry when more than the interval was written since the last one, before this batch is counted."""
    log = log_in(tmp_path, LogConfig(index_interval_bytes=2 * BATCH_BYTES - 1))
    for number in range(8):
        log.append(batch_of(1, timestamp_ms=START_MS + 10 * number), 0)
    log.close()
    assert _entries(log, f"{0:020d}.index") == [(n, n * BATCH_BYTES) for n in (2, 4, 6)]
    assert _entries(log, f"{0:020d}.timeindex") == [(START_MS + 10 * n, n) for n in (2, 4, 6, 7)]


def test_the_interval_itself_is_not_more_than_the_interval(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(index_interval_bytes=2 * BATCH_BYTES))
    for _ in range(8):
        log.append(batch_of(1), 0)
    log.close()
    assert _entries(log, f"{0:020d}.index") == [(n, n * BATCH_BYTES) for n in (3, 6)]


def test_entries_name_the_last_offset_of_their_batch(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(index_interval_bytes=0))
    log.append(batch_of(3), 0)
    log.append(batch_of(3, timestamp_ms=START_MS + 10), 0)
    log.close()
    assert _entries(log, f"{0:020d}.index") == [(5, len(batch_of(3)))]
    assert _entries(log, f"{0:020d}.timeindex") == [(START_MS + 12, 5)]


def test_a_rolled_segment_ends_its_time_index_with_its_maximum(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=2 * BATCH_BYTES))
    for late in (0, 50, 20, 30, 0):
        log.append(batch_of(1, timestamp_ms=START_MS + late), 0)
    assert _entries(log, f"{0:020d}.timeindex") == [(START_MS + 50, 1)]
    assert _entries(log, f"{2:020d}.timeindex") == [(START_MS + 30, 1)]


def test_the_time_index_only_ascends(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(index_interval_bytes=0))
    for late in (5, 1, 9, 3, 9, 10):
        log.append(batch_of(1, timestamp_ms=START_MS + late), 0)
    log.close()
    assert _entries(log, f"{0:020d}.timeindex") == [(START_MS + 5, 0), (START_MS + 9, 2), (START_MS + 10, 5)]


def test_of_equal_timestamps_the_first_is_the_maximum(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(index_interval_bytes=2 * BATCH_BYTES))
    for _ in range(5):
        log.append(batch_of(1), 0)
    log = reopened(log, clean=True)
    assert _entries(log, f"{0:020d}.timeindex") == [(START_MS, 0)]
    assert log.offset_at_time(START_MS) == (START_MS, 0)


def test_a_log_goes_on_where_it_was_closed(tmp_path: Path) -> None:
    """Also with its indexes: the interval is measured across the restart."""
    config = LogConfig(index_interval_bytes=2 * BATCH_BYTES)
    log = log_in(tmp_path, config)
    for number in range(9):
        log.append(batch_of(1), 0)
        if number % 2:
            log = reopened(log, clean=True)
            assert log.log_end_offset == number + 1
    log.close()
    assert _entries(log, f"{0:020d}.index") == [(n, n * BATCH_BYTES) for n in (3, 6)]


# -- by time


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.LZ4])
@pytest.mark.parametrize("interval", [0, 200, 1 << 20])
def test_the_first_record_at_a_time_or_later_is_found(tmp_path: Path, codec: int, interval: int) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=500, index_interval_bytes=interval))
    times = [5, 3, 9, 9, 2, 30, 31, 32, 7, 40, 1, 40, 41]
    for start in range(0, len(times), 3):
        rows = [Record(n, time, None, b"x" * 20) for n, time in enumerate(times[start : start + 3])]
        log.append(encode_batch(rows, codec=codec), 0)
    for asked in range(-2, 45):
        found = [(time, offset) for offset, time in enumerate(times) if time >= asked]
        assert log.offset_at_time(asked) == (found[0] if found else None), asked


def test_a_batch_that_overstates_its_time_is_passed_over(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    batch = batch_of(1, timestamp_ms=10)
    pack_header(batch, 0, read_header(batch)._replace(max_timestamp=99))
    log.append(batch, 0)
    log.append(batch_of(1, timestamp_ms=50), 0)
    assert log.offset_at_time(20) == (50, 1)
    assert log.offset_at_time(60) is None


# -- disks that fail


class _FailingWrite:
    """os.pwrite that takes some bytes and then has no room, as a disk does that gets full."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._pwrite = os.pwrite

    def __call__(self, descriptor: int, data: files.Buffer, position: int) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = self._pwrite(descriptor, memoryview(data)[: self.room], position)
        self.room -= count
        return count


@pytest.mark.parametrize("room", [0, 1, HEADER_BYTES, BATCH_BYTES, 2 * BATCH_BYTES - 1])
def test_a_full_disk_refuses_the_append_and_keeps_the_log_well_formed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(1), 0)
    with monkeypatch.context() as context:
        context.setattr(os, "pwrite", _FailingWrite(room))
        with pytest.raises(OSError, match="No space left"):
            log.append(batch_of(1) + batch_of(1), 0)
    assert log.log_end_offset == 1
    assert os.path.getsize(log.directory / f"{0:020d}.log") == BATCH_BYTES
    assert len(records_in(log)) == 1
    assert log.append(batch_of(1), 0).base_offset == 1
    assert [record.offset for record in records_in(reopened(log, clean=False))] == [0, 1]


def test_a_write_that_takes_several_calls_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, memoryview(data)[:7], position))
    log = log_in(tmp_path)
    log.append(batch_of(2), 0)
    assert len(records_in(log)) == 2


def test_a_torn_write_that_could_not_be_undone_is_undone_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    log = log_in(tmp_path)
    log.append(batch_of(1), 0)
    with monkeypatch.context() as context:
        context.setattr(os, "pwrite", _FailingWrite(300))
        context.setattr(os, "ftruncate", broken)
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                log.append(batch_of(2, value=bytes(500)), 0)
        assert len(records_in(log)) == 1
    log.append(batch_of(1), 0)
    assert os.path.getsize(log.directory / f"{0:020d}.log") == 2 * BATCH_BYTES
    assert len(records_in(log)) == 2


@pytest.mark.parametrize("call", ["write_at", "create_empty", "LogAppender"])
def test_a_roll_that_fails_half_way_leaves_a_log_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    log = log_in(tmp_path, LogConfig(segment_bytes=3 * BATCH_BYTES, index_interval_bytes=0))
    for _ in range(3):
        log.append(batch_of(1), 0)
    with monkeypatch.context() as context:
        context.setattr(files, call, fail)
        for _ in range(2):
            with pytest.raises(OSError, match="Too many"):
                log.append(batch_of(1), 0)
    assert log.log_end_offset == 3
    assert len(records_in(log)) == 3
    crashed = PartitionLog(log.directory, log.config, Trust(clean=False))
    assert len(records_in(crashed)) == 3
    assert log.append(batch_of(1), 0).base_offset == 3
    assert [record.offset for record in records_in(reopened(log, clean=True))] == [0, 1, 2, 3]


def test_an_interrupted_append_is_overwritten_by_the_next(tmp_path: Path) -> None:
    """A signal handler may raise behind the write, before the log has taken note of it."""
    log = log_in(tmp_path)
    log.append(batch_of(1), 0)
    with (log.directory / f"{0:020d}.log").open("ab") as file:
        file.write(batch_of(1))
    log.append(batch_of(1), 0)
    assert [record.offset for record in records_in(log)] == [0, 1]
    assert check((log.directory / f"{0:020d}.log").read_bytes(), BATCH_BYTES).base_offset == 1


# -- durability


def test_flush_syncs_the_active_segment_what_was_sealed_and_the_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=BATCH_BYTES))
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))))
    for _ in range(2):
        log.append(batch_of(1), 0)
    log.flush()
    sealed = [f"{0:020d}.log", f"{0:020d}.timeindex"]
    assert sorted(synced) == sorted([*sealed, f"{1:020d}.log", "topic-0"])
    synced.clear()
    log.flush()
    assert synced == []
    log.append(batch_of(1), 0)
    log.close()
    assert {f"{1:020d}.log", f"{1:020d}.timeindex", f"{2:020d}.log", f"{2:020d}.timeindex", "topic-0"} == set(synced)


def test_what_nobody_touched_is_not_synced_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(1), 0)
    log = reopened(log, clean=True)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    log.close()
    assert synced == []


def test_what_a_killed_process_left_is_synced_before_it_is_called_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=BATCH_BYTES))
    for _ in range(3):
        log.append(batch_of(1), 0)
    log = reopened(log, clean=False)
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))))
    log.close()
    assert {f"{n:020d}.log" for n in range(3)} | {"topic-0"} <= set(synced)


def test_indexes_are_synced_at_a_close_that_follows_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_in(tmp_path, LogConfig(index_interval_bytes=0))
    for _ in range(3):
        log.append(batch_of(1), 0)
    log.flush()
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))))
    log.close()
    assert sorted(synced) == [f"{0:020d}.index", f"{0:020d}.timeindex"]


def test_a_damaged_batch_is_named_by_file_and_place(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.append(batch_of(1, timestamp_ms=5), 0)
    log.append(batch_of(1, timestamp_ms=9), 0)
    path = log.directory / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert log.offset_at_time(5) == (5, 0)
    with pytest.raises(CorruptBatch, match=f"{path}: the batch at byte {BATCH_BYTES} "):
        log.offset_at_time(6)


def test_a_flush_that_failed_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    log = log_in(tmp_path, LogConfig(segment_bytes=BATCH_BYTES))
    for _ in range(2):
        log.append(batch_of(1), 0)
    with monkeypatch.context() as context:
        context.setattr(os, "fsync", broken)
        with pytest.raises(OSError, match="Input/output"):
            log.flush()
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    log.flush()
    assert len(synced) == 4


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        pytest.param("segment.bytes", {"segment_bytes": 60}, id="segment below a batch header"),
        pytest.param("segment.bytes", {"segment_bytes": 1 << 31}, id="positions over an int32"),
        pytest.param("index.interval.bytes", {"index_interval_bytes": -1}, id="negative interval"),
        pytest.param("segment.index.bytes", {"index_bytes_max": 23}, id="index without room"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_by_name(name: str, fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=name):
        LogConfig(**fields)


def test_what_is_stored_is_what_was_sent(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    rows = [Record(0, START_MS, None, None), Record(1, START_MS, b"", b"", (("h", None), ("h", b"2")))]
    log.append(encode_batch(rows), 0)
    part = log.read(0, 1)
    assert part is not None
    assert decode_batch(bytes_of(part)) == rows
