"""Compacted segments take the place of those they were made of: a crash at any step leaves the old or the new ones."""

import errno

import pytest

from pylog.storage import swap
from pylog.storage.batch import pack_header, read_header
from pylog.storage.errors import DamagedSegment
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.open_files import Closable, OpenFiles
from pylog.storage.records import Record, encode_batch
from pylog.storage.recovery import Trust
from pylog.storage.segment import LOG_SUFFIX, OFFSET_SUFFIX, TIME_SUFFIX
from pylog.storage.transactions import TransactionIndex
from tests.support.logs import START_MS, base_offsets, batch_of, bytes_of, committed, log_in, marker_of, offsets_in
from tests.support.simulated_files import SimulatedFiles

BATCH_BYTES = len(batch_of(2))
TRUST = Trust(clean=False, recovery_point=20, cleaned_until=16)
SEEDS = (None, 1, 2, 3)


def _filled(files: SimulatedFiles) -> PartitionLog:
    """Ten batches of two, two a segment: base offsets 0, 4, 8, 12, 16, the last of them active."""
    log = log_in(files.root, LogConfig(segment_bytes=2 * BATCH_BYTES, index_interval_bytes=0), files=files)
    for number in range(10):
        committed(log, batch_of(2, timestamp_ms=START_MS + number))
    log.flush()
    files.sync_all()
    return log


def _cleaned(log: PartitionLog, base: int, kept: list[int], last: int) -> None:
    """What a cleaner leaves: batches of the offsets that are kept, the last one up to `last`; all of it synced."""
    files = log._files
    data = bytearray()
    for number, offset in enumerate(kept):
        batch = encode_batch([Record(offset, START_MS + offset // 2, b"key", b"kept")])
        if number == len(kept) - 1:
            pack_header(batch, 0, read_header(batch)._replace(last_offset_delta=last - offset))
        data += batch
    for suffix, content in ((LOG_SUFFIX, data), (OFFSET_SUFFIX, b""), (TIME_SUFFIX, b"")):
        path = swap.file_of(log.directory, base, suffix + swap.CLEANED)
        files.write_at(path, 0, content) if content else files.create_empty(path)
        files.sync(path)
    files.sync(log.directory)


GROUPS = {0: ([0, 4], [3], 7), 8: ([8, 12], [8, 15], 15)}  # base: (old ones, offsets that are kept, last offset)
NEW = [3, 8, 15, 16, 17, 18, 19]
OLD = list(range(20))


def _swapped(log: PartitionLog, groups: list[int]) -> None:
    """The steps of a compaction on one log, as the job takes them."""
    files = log._files
    assert log.begin_swap(log.shape, [base for group in groups for base in GROUPS[group][0]])
    for base in groups:
        swap.promote(log.directory, base, files)
    for base in groups:
        for other in GROUPS[base][0][1:]:
            for path in swap.set_deleted(log.directory, other, files):
                files.remove(path)
        swap.take_place(log.directory, base, files)
    files.sync(log.directory)
    log.finish_swap([GROUPS[base][0] for base in groups])


def test_a_log_reads_its_compacted_segments_and_goes_on() -> None:
    files = SimulatedFiles()
    log = _filled(files)
    part = log.read(0, 1 << 20)
    for base, (_, kept, last) in GROUPS.items():
        _cleaned(log, base, kept, last)
    assert offsets_in(log) == OLD
    _swapped(log, [0, 8])
    assert base_offsets(log) == [0, 8, 16]
    assert offsets_in(log) == NEW
    assert [view[:2] for view in log.segments()] == [(0, 8), (8, 16), (16, 20)]
    assert log.offset_at_time(START_MS + 2) == (START_MS + 4, 8)  # of what is left
    assert part is not None
    assert len(bytes_of(part)) == 2 * BATCH_BYTES  # a read that had begun
    assert committed(log, batch_of(1)) == 20
    assert not [name for name in files.sizes_in(log.directory) if name.endswith((".swap", ".cleaned", ".deleted"))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_at_any_step_leaves_the_old_segments_or_the_new(seed: int | None) -> None:
    files = SimulatedFiles()
    log = _filled(files)
    for base, (_, kept, last) in GROUPS.items():
        _cleaned(log, base, kept, last)
    files.sync_all()
    seen: list[list[int]] = []

    def look() -> None:
        for crashed in (files.after_process_crash(), files.after_machine_crash(seed)):
            again = PartitionLog(log.directory, log.config, TRUST, files=crashed)
            offsets = offsets_in(again)
            first = [offset for offset in offsets if offset < 8]
            second = [offset for offset in offsets if 8 <= offset < 16]
            assert first in (OLD[:8], NEW[:1])
            assert second in (OLD[8:16], NEW[1:3])
            assert (first, second) != (OLD[:8], NEW[1:3])  # the older ones first: no value outlives its tombstone
            assert offsets[-4:] == OLD[-4:]
            assert again.cuts == []
            assert not [name for name in crashed.sizes_in(log.directory) if name.endswith((".swap", ".cleaned"))]
            seen.append(offsets)

    files.before_operation = look
    _swapped(log, [0, 8])
    look()
    assert seen[0] == OLD
    assert seen[-1] == NEW


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_while_the_next_start_finishes_is_finished_by_the_one_after(seed: int | None) -> None:
    files = SimulatedFiles()
    log = _filled(files)
    for base, (_, kept, last) in GROUPS.items():
        _cleaned(log, base, kept, last)
        swap.promote(log.directory, base, files)
    files.sync_all()

    def look() -> None:
        for crashed in (files.after_process_crash(), files.after_machine_crash(seed)):
            assert offsets_in(PartitionLog(log.directory, log.config, TRUST, files=crashed)) == NEW

    files.before_operation = look
    assert offsets_in(PartitionLog(log.directory, log.config, TRUST, files=files)) == NEW


def test_a_swap_file_that_is_damaged_is_named_and_nothing_is_removed() -> None:
    files = SimulatedFiles()
    log = _filled(files)
    _cleaned(log, 0, [3], 7)
    swap.promote(log.directory, 0, files)
    path = log.directory / f"{0:020d}.log.swap"
    files.flip_bit(path, 8 * 8)  # its length
    before = files.tree()
    with pytest.raises(DamagedSegment, match=f"{path}: damaged at byte 0"):
        PartitionLog(log.directory, log.config, TRUST, files=files)
    assert files.tree() == before


def test_swap_files_without_their_log_are_removed() -> None:
    files = SimulatedFiles()
    log = _filled(files)
    _cleaned(log, 0, [3], 7)
    for suffix in (OFFSET_SUFFIX, TIME_SUFFIX):
        files.rename(
            swap.file_of(log.directory, 0, suffix + swap.CLEANED), swap.file_of(log.directory, 0, suffix + swap.SWAP)
        )
    assert offsets_in(PartitionLog(log.directory, log.config, TRUST, files=files)) == OLD


def test_an_index_of_aborted_transactions_is_swapped_with_its_segment() -> None:
    """Also where the new segment has none: the old one would speak of records that are gone."""
    files = SimulatedFiles()
    log = log_in(files.root, files=files)
    committed(log, batch_of(1, producer_id=7, transactional=True))
    committed(log, marker_of(7, commit=False))
    log.roll()
    committed(log, batch_of(1))
    _cleaned(log, 0, [1], 1)
    assert log.begin_swap(log.shape, [0])
    swap.promote(log.directory, 0, files)
    swap.take_place(log.directory, 0, files)
    # Until it is told, the log reads the old records, and so it has to speak of their transaction.
    assert [entry[:3] for entry in log.aborted_transactions(0, 3)] == [(7, 0, 1)]
    part = log.read(0, 1)
    assert part is not None
    assert read_header(bytes_of(part)).is_transactional
    log.finish_swap([[0]])
    assert log.aborted_transactions(0, 3) == []
    assert list(TransactionIndex(log.directory / f"{0:020d}.txnindex", files).entries()) == []


def test_a_log_that_changed_its_segments_meanwhile_takes_no_others() -> None:
    files = SimulatedFiles()
    log = _filled(files)
    shape = log.shape
    log.roll()
    assert log.begin_swap(shape, [0])  # a new active segment is no change
    assert log.is_swapping
    assert not log.begin_swap(shape, [4])  # one at a time
    log.finish_swap([])
    assert not log.is_swapping
    assert not log.begin_swap(shape, [0])
    log.truncate_to(9)
    assert not log.begin_swap(shape + 1, [0])


def test_a_swap_that_failed_half_way_takes_the_log_offline() -> None:
    log = _filled(SimulatedFiles())
    assert log.begin_swap(log.shape, [0])
    log.fail_swap(OSError("Input/output error"))
    assert log.failure is not None
    assert not log.is_swapping


def test_a_swap_that_cannot_be_finished_takes_the_log_offline() -> None:
    """And does not keep it busy for ever."""
    files = SimulatedFiles()
    log = _filled(files)
    assert log.begin_swap(log.shape, [0])
    files.fail("size_of", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        log.finish_swap([[0]])
    assert log.failure is not None
    assert not log.is_swapping


def test_a_swap_that_is_called_off_leaves_the_log_as_it_was() -> None:
    log = _filled(SimulatedFiles())
    assert log.begin_swap(log.shape, [0, 4])
    log.cancel_swap([0, 4])
    assert not log.is_swapping
    assert offsets_in(log) == OLD
    assert log.begin_swap(log.shape, [0, 4])


class Crowded(OpenFiles):
    def opened(self, holder: Closable) -> None:
        super().opened(holder)
        holder.release()  # as a thread does that has just opened as many others


@pytest.mark.parametrize("open_files", [OpenFiles(), Crowded()], ids=["few are open", "too many are open"])
def test_segments_that_are_being_replaced_stay_readable_whatever_their_names_stand_for(open_files: OpenFiles) -> None:
    files = SimulatedFiles()
    directory, config = _filled(files).directory, LogConfig(index_interval_bytes=0)
    log = PartitionLog(directory, config, Trust(clean=False), files=files, open_files=open_files)
    assert log.begin_swap(log.shape, [0, 4])
    for suffix in (LOG_SUFFIX, OFFSET_SUFFIX, TIME_SUFFIX):
        for base in (0, 4):
            files.replace(swap.file_of(log.directory, base, suffix), b"something else", durable=True)
    assert offsets_in(log) == OLD
    assert log.offset_at_time(START_MS + 1) == (START_MS + 1, 1)


def test_the_log_is_named_last_when_everything_else_is_on_the_disk() -> None:
    """It says that there is something to finish, and then that all is done."""
    files = SimulatedFiles()
    log = _filled(files)
    _cleaned(log, 0, [3], 7)
    for step, gone in ((swap.promote, ".cleaned"), (swap.take_place, ".swap")):
        before = files.operations
        step(log.directory, 0, files)
        steps = [line.split()[1:3] for line in files.history[before:]]
        of_log = ["rename", str(log.directory / f"{0:020d}.log{gone}")]
        renames = [taken for taken in steps if taken[0] == "rename"]
        assert renames[-1] == of_log
        assert len(renames) == (3 if gone == ".cleaned" else 4)
        assert steps[steps.index(of_log) - 1] == ["sync", str(log.directory)]


def test_a_deleted_segment_has_its_log_renamed_first() -> None:
    files = SimulatedFiles()
    log = _filled(files)
    before = files.operations
    renamed = swap.set_deleted(log.directory, 0, files)
    assert [path.name for path in renamed] == [
        f"{0:020d}{suffix}.deleted" for suffix in (".log", ".timeindex", ".index")
    ]
    assert [line.split()[1] for line in files.history[before:]] == ["rename"] * 3


def test_files_are_known_by_their_names() -> None:
    assert swap.SEGMENT_FILE.fullmatch(f"{7:020d}.txnindex")
    for name in ("7.log", f"{7:020d}.log.swap", f"{7:020d}.snapshot", f"{7:020d}xlog"):
        assert not swap.SEGMENT_FILE.fullmatch(name)
