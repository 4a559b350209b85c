"""Deletion at the front: the start moves at once, whole segments go later, and a restart brings nothing back."""

import errno

import pytest

from pylog.storage.batch import walk
from pylog.storage.errors import OffsetOutOfRange
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.recovery import Trust
from tests.support.logs import base_offsets, batch_of, bytes_of, committed, log_in, offsets_in, reopened
from tests.support.simulated_files import SimulatedFiles

BATCH_BYTES = len(batch_of(2))


def _filled(files: SimulatedFiles, appends: int = 10) -> PartitionLog:
    """Batches of two, four a segment: base offsets 0, 8, 16."""
    log = log_in(files.root, LogConfig(segment_bytes=4 * BATCH_BYTES), files=files)
    for _ in range(appends):
        committed(log, batch_of(2), 3)
    return log


def _buried(log: PartitionLog) -> list[int]:
    """Both steps, without a manager."""
    doomed = log.detach_deleted()
    for path in log.bury(doomed):
        log._files.remove(path)
    return doomed


@pytest.mark.parametrize("start", range(21))
def test_records_below_the_start_are_gone_and_the_others_stay(start: int) -> None:
    log = _filled(SimulatedFiles())
    log.move_start(start)
    for clean in (None, True, False):
        if clean is not None:
            log = reopened(log, clean=clean)
        assert (log.log_start_offset, log.log_end_offset) == (start, 20)
        assert offsets_in(log) == list(range(start, 20))
        for offset in range(start):
            with pytest.raises(OffsetOutOfRange) as raised:
                log.read(offset, 1)
            assert raised.value.log_start_offset == start
        _buried(log)
        bases = [0, 8, 16, 20]
        whole = max(base for base in bases if base <= start)
        assert base_offsets(log) == [base for base in bases[:-1] if base >= whole] or start == 20
    assert committed(log, batch_of(1)) == 20


def test_a_batch_that_is_deleted_in_part_is_given_whole() -> None:
    """Clients skip what is before the offset that they asked for."""
    log = _filled(SimulatedFiles())
    log.move_start(5)
    part = log.read(5, 1)
    assert part is not None
    assert [header.base_offset for _, header in walk(bytes_of(part))] == [4]


def test_what_is_not_committed_is_not_deleted() -> None:
    log = _filled(SimulatedFiles())
    log.append(batch_of(5), 3)
    with pytest.raises(OffsetOutOfRange):
        log.move_start(21)
    log.move_start(20)
    assert log.log_start_offset == 20


@pytest.mark.parametrize("start", [-1, 0, 4, 7])
def test_the_start_never_goes_back(start: int) -> None:
    log = _filled(SimulatedFiles())
    log.move_start(7)
    log.move_start(start)
    assert log.log_start_offset == 7


def test_a_log_of_which_all_is_deleted_goes_on_in_a_new_segment() -> None:
    log = _filled(SimulatedFiles())
    log.move_start(20)
    assert _buried(log) == [0, 8, 16]
    assert base_offsets(log) == [20]
    assert (log.size_bytes, log.log_start_offset, log.log_end_offset) == (0, 20, 20)
    assert _buried(log) == []  # an empty segment is not rolled again
    assert committed(log, batch_of(2)) == 20
    assert offsets_in(reopened(log)) == [20, 21]


def test_a_read_under_way_outlives_the_deletion() -> None:
    log = _filled(SimulatedFiles())
    part = log.read(0, 1 << 20)
    assert part is not None
    before = bytes_of(part)
    log.move_start(20)
    _buried(log)
    assert bytes_of(part) == before


def test_nothing_is_detached_while_segments_are_replaced() -> None:
    log = _filled(SimulatedFiles())
    assert log.begin_swap(log.shape, [0])
    log.move_start(20)
    assert log.detach_deleted() == []
    assert base_offsets(log) == [0, 8, 16]


def test_the_files_of_detached_segments_get_their_last_names() -> None:
    files = SimulatedFiles()
    log = _filled(files)
    log.move_start(9)
    doomed = log.detach_deleted()
    renamed = [path.name for path in log.bury(doomed)]
    assert renamed == [f"{0:020d}{suffix}.deleted" for suffix in (".log", ".timeindex", ".index")]
    assert base_offsets(log) == [8, 16]


def test_a_burial_whose_sync_fails_takes_the_log_offline() -> None:
    """What the sync was to keep may be gone, and the next one would say that all is well."""
    files = SimulatedFiles()
    log = _filled(files)
    log.move_start(9)
    doomed = log.detach_deleted()
    files.fail("sync", errno.EIO, path=str(log.directory))
    with pytest.raises(OSError, match="Input/output"):
        list(log.bury(doomed))
    assert log.failure is not None
    before = files.operations
    assert list(log.bury(doomed)) == []
    assert files.operations == before


@pytest.mark.parametrize(
    ("operation", "error", "path"),
    [
        pytest.param("sync", errno.EMFILE, "/sim/*", id="no descriptor for the sync"),
        pytest.param("rename", errno.EIO, "*.log", id="first rename"),
        pytest.param("rename", errno.EIO, "*.timeindex", id="second rename"),
        pytest.param("remove", errno.EIO, "*.snapshot", id="snapshot"),
    ],
)
def test_what_could_not_be_buried_is_buried_later(operation: str, error: int, path: str) -> None:
    files = SimulatedFiles()
    log = _filled(files)
    log.move_start(9)
    files.fail(operation, error, path=path)
    with pytest.raises(OSError, match="Errno"):
        list(log.bury(log.detach_deleted()))
    assert log.failure is None
    assert log.has_detached
    assert log.detach_deleted() == [0]
    renamed = [path.name for path in log.bury([0])]
    assert renamed == [f"{0:020d}{suffix}.deleted" for suffix in (".log", ".timeindex", ".index")]
    assert not log.has_detached
    assert offsets_in(log) == list(range(9, 20))


def test_a_segment_that_began_anew_is_not_taken_for_the_one_that_was_detached() -> None:
    files = SimulatedFiles()
    log = _filled(files)
    log.move_start(9)
    doomed = log.detach_deleted()
    log.truncate_fully_and_start_at(0)
    committed(log, batch_of(1))
    assert list(log.bury(doomed)) == []
    assert offsets_in(log) == [0]


def test_a_log_that_was_deleted_renames_nothing_any_more() -> None:
    """Another one may have its directory."""
    files = SimulatedFiles()
    log = _filled(files)
    log.move_start(9)
    doomed = log.detach_deleted()
    log.abandon()
    before = files.operations
    assert list(log.bury(doomed)) == []
    assert files.operations == before


def test_segments_that_a_stop_left_below_the_start_are_removed() -> None:
    files = SimulatedFiles()
    log = _filled(files)
    for clean in (False, True):
        log = reopened(log, Trust(clean, log_start_offset=17), clean=clean)
        assert base_offsets(log) == [16]
        assert offsets_in(log) == [17, 18, 19]


def test_a_log_whose_end_was_lost_below_its_start_begins_where_it_would_have() -> None:
    """What is left of it was deleted; that an offset is never given twice is worth more."""
    files = SimulatedFiles()
    log = _filled(files)
    log.abandon()
    files.truncate(log.directory / f"{16:020d}.log", BATCH_BYTES)
    log = reopened(log, Trust(clean=False, log_start_offset=19))
    assert (log.log_start_offset, log.log_end_offset) == (19, 19)
    assert base_offsets(log) == [19]
    (cut,) = log.cuts
    assert (cut.position, cut.size_bytes, cut.next_offset) == (0, BATCH_BYTES, 19)
    assert files.size_of(cut.kept_as) == BATCH_BYTES
    assert committed(log, batch_of(1)) == 19


def test_the_shape_of_a_log_changes_when_segments_go() -> None:
    """So that a compaction that looked at it before is thrown away."""
    log = _filled(SimulatedFiles())
    shape = log.shape
    log.move_start(7)
    log.detach_deleted()
    assert log.shape == shape
    log.move_start(9)
    log.detach_deleted()
    assert log.shape != shape
    assert not log.begin_swap(shape, [8])
