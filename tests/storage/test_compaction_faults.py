"""Compaction of what is damaged, on disks that fill up and fail, and within its bounds."""

import errno
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from pylog.storage.batch import assign, read_header
from pylog.storage.disk import DISK
from pylog.storage.errors import DamagedSegment
from pylog.storage.kernels import cleaned_segment, cleaner, segment_reader
from pylog.storage.kernels.cleaner import clean
from pylog.storage.records import Record, encode_batch
from tests.support.compacted_log import CompactedLog, keyed
from tests.support.simulated_files import Crashed, SimulatedFiles

LEADER_EPOCH_BITS = range(12 * 8, 16 * 8)  # no checksum covers it; a broker may write it anew


def two_segments(*, codec: int = 0) -> tuple[CompactedLog, SimulatedFiles]:
    files = SimulatedFiles()
    log = CompactedLog(files)
    log.append(keyed(("a", "1"), ("b", "1")), codec=codec)
    log.roll()
    log.append(keyed(("a", "2"), ("c", "1" * 600)), codec=codec)
    log.append(keyed(("d", "1")), codec=codec)
    log.roll()
    return log, files


def cleaned_files(log: CompactedLog) -> list[str]:
    return sorted(name for name in log.files.sizes_in(log.directory) if name.endswith(".cleaned"))


@pytest.mark.parametrize("codec", [0, 3], ids=["plain", "lz4"])
@pytest.mark.parametrize("chunk_bytes", [1 << 20, 100], ids=["one chunk", "many chunks"])
def test_a_flipped_bit_is_found_and_named(monkeypatch: pytest.MonkeyPatch, codec: int, chunk_bytes: int) -> None:
    monkeypatch.setattr(segment_reader, "CHUNK_BYTES", chunk_bytes)
    log, files = two_segments(codec=codec)
    path = log.path(2)
    position = 0
    for batch in log.segment(2):
        for bit in (*range(61 * 8), *range(61 * 8, len(batch.data) * 8, 9)):
            if bit in LEADER_EPOCH_BITS:
                continue
            files.flip_bit(path, position * 8 + bit)
            with pytest.raises(DamagedSegment) as caught:
                clean(log.plan(), files)
            # a base offset, which no checksum covers, may be too high only for the batch behind it
            behind = position + len(batch.data) if bit < 64 else position
            assert caught.value.path == path
            assert caught.value.position in (position, behind)
            assert not cleaned_files(log)
            files.flip_bit(path, position * 8 + bit)
        position += len(batch.data)
    clean(log.plan(), files)


@pytest.mark.parametrize("segment_bytes", [100, 1 << 20], ids=["a group each", "one group"])
def test_damage_that_only_the_second_pass_meets_leaves_nothing_behind(segment_bytes: int) -> None:
    log, files = two_segments()
    log.clean()
    log.append(keyed(("a", "3")))
    log.roll()
    log.segment_bytes = segment_bytes
    before = files.tree()
    path = log.path(log.bases[-2])
    plan = replace(log.plan(), first_dirty_offset=log.next_offset)
    files.flip_bit(path, 65 * 8)
    with pytest.raises(DamagedSegment, match="CRC"):
        clean(plan, files)
    files.flip_bit(path, 65 * 8)
    assert files.tree() == before


@pytest.mark.parametrize("left_bytes", [0, 1, 11, 12, 60, 61, 100])
def test_a_file_that_is_shorter_than_it_was_is_damage(left_bytes: int) -> None:
    log, files = two_segments()
    plan = log.plan()
    files.truncate(log.path(2), left_bytes)
    with pytest.raises(DamagedSegment, match="ends here"):
        clean(plan, files)
    assert not cleaned_files(log)
    if left_bytes:  # nothing is wrong with an empty segment
        with pytest.raises(DamagedSegment, match=r"are left in the file"):
            clean(replace(plan, segments=(plan.segments[0], (2, left_bytes))), files)
        assert not cleaned_files(log)


@pytest.mark.parametrize(
    ("count", "records_say", "reason"),
    [
        pytest.param(2, b"\x10\x00\x00\x00\x02a\x02b\x00", "varint", id="fewer records than the header says"),
        pytest.param(1, b"\x10\x00\x00\x00\x02a\x02b\x00\x00", "behind the last", id="bytes behind the last record"),
        pytest.param(1, b"\x10\x00\x00\x02\x02a\x02b\x00", "offset delta", id="an offset behind the last one"),
        pytest.param(1, b"\x10\x00\x00\x00\x7ea\x02b\x00", "does not fit", id="a key longer than its record"),
    ],
)
def test_records_that_cannot_be_read_are_named_with_the_reason_of_the_plain_reader(
    count: int, records_say: bytes, reason: str
) -> None:
    from pylog.storage.batch import pack_header

    log, files = two_segments()
    data = encode_batch([Record(log.next_offset, 0, b"x", b"y")])
    header = read_header(data)
    data[61:] = records_say
    header = header._replace(length=len(data) - 12, record_count=count, last_offset_delta=count - 1)
    pack_header(data, 0, header)
    log._write(data, count)
    log.roll()
    with pytest.raises(DamagedSegment, match=reason) as caught:
        clean(log.plan(), files)
    assert (caught.value.path, caught.value.position) == (log.path(5), 0)
    assert not cleaned_files(log)


def test_offsets_that_go_back_are_damage() -> None:
    log, files = two_segments()
    again = bytearray(log.segment(2)[0].data)
    log.roll()
    size_bytes = files.size_of(log.path(2)) or 0
    assign(again, 0, 3, 0)
    files.write_at(log.path(2), size_bytes, again)
    plan = log.plan()
    with pytest.raises(DamagedSegment, match=r"offsets 3 to 4 are not in \[5, 5\)") as caught:
        clean(plan, files)
    assert caught.value.position == size_bytes


def test_what_an_earlier_run_has_left_goes_first() -> None:
    log, files = two_segments()
    for suffix in (".log.cleaned", ".txnindex.cleaned"):
        files.write_at(log.path(0, suffix), 0, b"left over")
    files.write_at(log.path(2, ".log.cleaned"), 0, b"left over")
    log.clean()
    assert not cleaned_files(log)
    assert [record.offset for record in log.records()] == [1, 2, 3, 4]


def test_all_of_it_is_on_the_disk_when_it_is_done() -> None:
    log, files = two_segments()
    log.append(keyed(("x", "1")), producer_id=10, transactional=True)
    log.end(10, commit=False)
    log.roll()
    log.segment_bytes = 300
    files.sync_all()
    result = clean(log.plan(), files)
    files.sync(log.directory)  # the names are synced by who puts them in place
    disk = files.after_machine_crash(None)
    assert [group.base_offset for group in result.groups] == [0, 2, 5]
    for group in result.groups:
        names = [name for name in disk.sizes_in(log.directory) if name.startswith(f"{group.base_offset:020d}.")]
        names = [name for name in names if name.endswith(".cleaned")]
        assert len(names) == (4 if group.base_offset == 5 else 3)
        for name in names:
            assert disk.read(log.directory / name) == files.read(log.directory / name)
        assert disk.size_of(log.path(group.base_offset, ".log.cleaned")) == group.size_bytes


@pytest.mark.parametrize(
    ("operation", "number"),
    [("append", errno.ENOSPC), ("sync", errno.EIO), ("create_empty", errno.ENOSPC), ("write_at", errno.EIO)],
)
def test_a_disk_that_fails_leaves_the_log_as_it_was(operation: str, number: int) -> None:
    log, files = two_segments()
    before = files.tree()
    files.fail(operation, number, path="*.cleaned")
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        clean(log.plan(), files)
    assert caught.value.errno == number
    assert files.tree() == before
    log.clean()
    assert [record.offset for record in log.records()] == [1, 2, 3, 4]


def test_a_crash_at_any_step_leaves_the_old_segments() -> None:
    log, files = two_segments()
    files.sync_all()
    old = {name: data for name, data in files.tree().items() if name.endswith(".log")}
    step = 0
    while True:
        step += 1
        fork = files.after_process_crash()
        fork.crash_at = fork.operations + step
        try:
            clean(log.plan(), fork)
        except Crashed:
            for left in (fork.after_process_crash(), fork.after_machine_crash(step)):
                assert {name: data for name, data in left.tree().items() if name.endswith(".log")} == old
                clean(log.plan(), left)
        else:
            break
    assert step > 8


@pytest.mark.parametrize("codec", [0, 3], ids=["plain", "lz4"])
def test_a_batch_that_would_outgrow_the_segment_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, codec: int) -> None:
    """Tombstones get longer when their horizon is set; an index cannot point behind 2 GiB."""
    files = SimulatedFiles()
    log = CompactedLog(files)
    log.append(keyed(*((f"key {number}", None) for number in range(50))), codec=codec)
    log.append(keyed(*((f"key {number % 30}", None) for number in range(40))), codec=codec)
    log.append(keyed(("last", "1")), codec=codec)
    log.roll()
    before = [batch.data for batch in log.batches()]
    size_bytes = sum(map(len, before))
    monkeypatch.setattr(cleaner, "INT32_MAX", size_bytes)
    log.clean()
    after = [batch.data for batch in log.batches()]
    assert sum(map(len, after)) <= size_bytes
    assert len(after) == 3
    monkeypatch.undo()
    log.clean()
    assert all(batch.header.delete_horizon_ms for batch in log.batches()[:2])


def test_memory_is_bounded_by_the_buffer_and_not_by_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_reader, "CHUNK_BYTES", 1 << 18)
    monkeypatch.setattr(cleaned_segment, "WRITE_BYTES", 1 << 19)
    log = CompactedLog(DISK, tmp_path / "topic-0", segment_bytes=4 << 20, index_interval_bytes=4096)
    batch_bytes = 0
    for number in range(150):
        keys = [(b"key %d" % (number * 200 + row)) for row in range(200)]
        log.append([Record(0, 0, key, b"x" * 500) for key in keys], codec=4 if number % 3 == 0 else 0)
        batch_bytes = 200 * 530
        if number % 30 == 29:
            log.roll()
    plan = log.plan(dedupe_buffer_bytes=1 << 18)
    assert sum(size_bytes for _, size_bytes in plan.segments) > 8 << 20
    clean(plan)  # once without looking: what is imported and cached does not count
    tracemalloc.start()
    try:
        result = clean(plan)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.cleaned_until < plan.end_offset, "there are more keys than fit"
    buffers = segment_reader.CHUNK_BYTES + cleaned_segment.WRITE_BYTES + 5 * batch_bytes
    assert peak_bytes < plan.dedupe_buffer_bytes + buffers + (1 << 20)
