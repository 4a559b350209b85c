"""What a read gives: whole batches of one segment, from the one that holds the offset, as long as somebody holds it."""

import os
from pathlib import Path

import pytest

from pylog.storage.batch import walk
from pylog.storage.errors import OffsetOutOfRange
from pylog.storage.log import LogConfig
from pylog.storage.records import Record, encode_batch
from tests.support.logs import START_MS, base_offsets, batch_of, bytes_of, headers_in, log_in, reopened

BATCH_BYTES = len(batch_of(1))


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


@pytest.mark.parametrize("bytes_max", [300, 1000, 5000])
def test_who_goes_on_where_the_last_read_ended_gets_every_batch_once(tmp_path: Path, bytes_max: int) -> None:
    """Also when what was there has been truncated, and batches of other sizes have come instead."""
    log = log_in(tmp_path, LogConfig(index_interval_bytes=300))
    start = 0
    for size in (40, 11):
        for _ in range(log.log_end_offset, 300):
            log.append(batch_of(1, value=bytes(size)), 0)
        whole = (log.directory / f"{0:020d}.log").read_bytes()
        offset, read = start, b""
        while (part := log.read(offset, bytes_max)) is not None:
            read += bytes_of(part)
            offset = headers_in(bytes_of(part))[-1].next_offset
        assert headers_in(read)[0].base_offset == start
        assert whole.endswith(read)
        part = log.read(150, bytes_max)
        assert part is not None
        start = headers_in(bytes_of(part))[-1].next_offset
        log.truncate_to(100)


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


@pytest.mark.parametrize("again", [False, True], ids=["as written", "opened again"])
def test_a_read_ends_where_its_reader_may_not_read_on(tmp_path: Path, again: bool) -> None:
    """The high watermark, or the last stable offset: a batch begins there."""
    log = log_in(tmp_path, LogConfig(segment_bytes=3 * len(batch_of(2))))
    for _ in range(7):
        log.append(batch_of(2), 0)
    if again:
        log = reopened(log, clean=True)
    assert base_offsets(log) == [0, 6, 12]
    for end in range(0, 15, 2):
        for offset in range(14):
            for bytes_max in (1, 200, 1 << 20):
                part = log.read(offset, bytes_max, end)
                if offset >= end:
                    assert part is None
                    continue
                whole = log.read(offset, bytes_max)
                assert part is not None
                assert whole is not None
                expected = [header for header in headers_in(bytes_of(whole)) if header.base_offset < end]
                assert headers_in(bytes_of(part)) == expected
                assert part.goes_on == (expected[-1].next_offset < end)
    assert log.read(0, 1 << 20, 1 << 40) == log.read(0, 1 << 20)


def test_a_read_under_way_survives_roll_close_and_deletion(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=BATCH_BYTES))
    log.append(batch_of(1), 0)
    part = log.read(0, 100)
    assert part is not None
    before = bytes_of(part)
    log.append(batch_of(1), 0)
    log.abandon()
    for path in log.directory.iterdir():
        path.unlink()
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


def test_an_idle_log_holds_no_descriptor(tmp_path: Path) -> None:
    log = log_in(tmp_path, LogConfig(segment_bytes=3 * BATCH_BYTES))
    for _ in range(7):
        log.append(batch_of(1), 0)
    for clean in (True, False):
        log = reopened(log, clean=clean)
        assert _open_in(tmp_path) == 0


def test_a_gap_that_compaction_left_is_read_over(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    first = encode_batch([Record(n, START_MS, None, b"a") for n in (10, 14)])
    second = encode_batch([Record(n, START_MS, None, b"b") for n in (20, 21)])
    (directory / f"{10:020d}.log").write_bytes(first)
    (directory / f"{18:020d}.log").write_bytes(second)
    log = log_in(tmp_path)
    for _ in range(2):
        assert (log.log_start_offset, log.log_end_offset) == (10, 22)
        bases = {
            offset: headers_in(bytes_of(part))[0].base_offset
            for offset in range(10, 22)
            if (part := log.read(offset, 1))
        }
        assert bases == {offset: 10 if offset < 15 else 20 for offset in range(10, 22)}
        assert log.read(15, 1 << 20, 18) is None  # nothing but a gap before the end
        log = reopened(log, clean=True)
