"""After an unclean stop only what lies behind the recovery point is scanned; what is wrong before it is damage."""

import errno
from pathlib import Path

import pytest

from pylog.storage.errors import DamagedSegment
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.recovery import CLEAN, Trust
from tests.support import simulated_files
from tests.support.logs import START_MS, base_offsets, batch_of, committed, log_in, marker_of, offsets_in
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_nodes import SimulatedFile

pytestmark = pytest.mark.faults

BATCH_BYTES = len(batch_of(2))
PER_SEGMENT = 8  # records
VALUE = 75  # a byte of the first record's value: under the CRC, and read by nobody but it


def _filled(files: SimulatedFiles) -> PartitionLog:
    """Ten batches of two, four a segment: base offsets 0, 8, 16. Killed."""
    log = log_in(files.root, LogConfig(segment_bytes=4 * BATCH_BYTES, index_interval_bytes=0), files=files)
    for number in range(10):
        committed(log, batch_of(2, timestamp_ms=START_MS + number), 1)
    log.flush()
    log.abandon()
    return log


def _segment(log: PartitionLog, offset: int) -> tuple[str, int]:
    """Name of the log file that holds the batch of this offset, and the batch's position."""
    base = offset // PER_SEGMENT * PER_SEGMENT
    return f"{base:020d}.log", (offset - base) // 2 * BATCH_BYTES


def _flip(files: SimulatedFiles, log: PartitionLog, offset: int, byte: int) -> None:
    name, position = _segment(log, offset)
    files.flip_bit(log.directory / name, 8 * (position + byte))


def _opened(files: SimulatedFiles, log: PartitionLog, recovery_point: int) -> PartitionLog:
    trust = Trust(clean=False, recovery_point=recovery_point)
    return PartitionLog(log.directory, log.config, trust, files=files)


@pytest.mark.parametrize("recovery_point", range(0, 21, 2))
@pytest.mark.parametrize("damaged", range(0, 20, 2))
def test_checksums_are_looked_at_behind_the_recovery_point_and_not_before(recovery_point: int, damaged: int) -> None:
    files = SimulatedFiles()
    log = _filled(files)
    _flip(files, log, damaged, VALUE)
    log = _opened(files, log, recovery_point)
    if damaged < recovery_point:
        assert log.cuts == []
        assert log.log_end_offset == 20
    else:
        assert log.log_end_offset == damaged
        name, position = _segment(log, damaged)
        assert (log.cuts[0].path.name, log.cuts[0].position) == (name, position)
    assert log.recovery_point == min(recovery_point, log.log_end_offset)


def test_segments_below_the_recovery_point_are_only_looked_at_from_their_last_index_entry_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = SimulatedFiles()
    log = _filled(files)
    starts: dict[str, int] = {}
    part_of = simulated_files.part_of

    def noted(file: SimulatedFile, path: Path, position: int, length: int) -> bytes:
        starts[path.name] = min(position, starts.get(path.name, position))
        return part_of(file, path, position, length)

    monkeypatch.setattr(simulated_files, "part_of", noted)
    _opened(files, log, 18)
    assert {name: start for name, start in starts.items() if name.endswith(".log")} == {
        f"{0:020d}.log": 3 * BATCH_BYTES,
        f"{8:020d}.log": 3 * BATCH_BYTES,
        f"{16:020d}.log": 0,  # its indexes are built anew: headers up to the recovery point, then everything
    }


@pytest.mark.parametrize(
    ("byte", "what"),
    [
        pytest.param(0, "offsets", id="base offset"),
        pytest.param(8, "bytes", id="length"),
        pytest.param(16, "format", id="magic"),
        pytest.param(23, "CRC-32C", id="last offset delta"),
    ],
)
@pytest.mark.parametrize("damaged", [16, 18])
def test_framing_that_is_broken_below_the_recovery_point_is_damage(byte: int, what: str, damaged: int) -> None:
    """Nothing is cut: what follows may still be wanted. The error names the place."""
    files = SimulatedFiles()
    log = _filled(files)
    _flip(files, log, damaged, byte)
    name, position = _segment(log, damaged)
    before = {name: data for name, data in files.tree().items() if name.endswith(".log")}
    with pytest.raises(DamagedSegment, match=f"{log.directory / name}: damaged at byte {position}:") as raised:
        _opened(files, log, 20)
    assert (raised.value.path, raised.value.position) == (log.directory / name, position)
    assert what in str(raised.value)
    assert {name: data for name, data in files.tree().items() if name.endswith(".log")} == before
    with pytest.raises(DamagedSegment):  # and again
        _opened(files, log, 20)


def test_a_segment_below_the_recovery_point_that_lost_its_tail_is_damage() -> None:
    files = SimulatedFiles()
    log = _filled(files)
    files.truncate(log.directory / f"{8:020d}.log", 2 * BATCH_BYTES + 5)
    with pytest.raises(DamagedSegment, match=f"{8:020d}.log: damaged at byte {2 * BATCH_BYTES}"):
        _opened(files, log, 20)
    with pytest.raises(DamagedSegment):
        PartitionLog(log.directory, log.config, Trust(clean=False, recovery_point=18), files=files)


def test_a_last_segment_that_ends_before_the_recovery_point_is_damage() -> None:
    files = SimulatedFiles()
    log = _filled(files)
    files.truncate(log.directory / f"{16:020d}.log", BATCH_BYTES + 5)
    with pytest.raises(DamagedSegment, match="below the recovery point"):
        _opened(files, log, 20)
    assert offsets_in(_opened(files, log, 18)) == list(range(18))


def test_a_damaged_marker_that_has_to_be_replayed_is_named() -> None:
    files = SimulatedFiles()
    log = log_in(files.root, files=files)
    committed(log, batch_of(1, producer_id=7, transactional=True))
    position = log.size_bytes
    committed(log, marker_of(7, commit=True))
    log.close()
    files.flip_bit(log.directory / f"{0:020d}.log", 8 * (log.size_bytes - 2))
    for path in [name for name in files.sizes_in(log.directory) if name.endswith(".snapshot")]:
        files.flip_bit(log.directory / path, 77)  # so that the marker is needed
    with pytest.raises(DamagedSegment, match=f"{0:020d}.log: damaged at byte {position}: CRC-32C"):
        PartitionLog(log.directory, log.config, CLEAN, files=files)


def test_an_unclean_log_below_whose_recovery_point_nothing_can_be_read_is_not_opened() -> None:
    files = SimulatedFiles()
    log = _filled(files)
    files.fail("open", errno.EIO, path="*.log", times=None)
    with pytest.raises(OSError, match="Input/output"):
        _opened(files, log, 20)


@pytest.mark.parametrize(
    ("lost", "name", "ends"),
    [
        pytest.param("last batch", f"{16:020d}.log", 18, id="whole batches at the end"),
        pytest.param("last segment", f"{8:020d}.log", 16, id="a segment at the end"),
        pytest.param("all bytes", f"{16:020d}.log", 16, id="all of the last segment"),
    ],
)
def test_a_log_that_ends_before_its_recovery_point_is_damage(lost: str, name: str, ends: int) -> None:
    """Nothing is torn, so nothing else would tell. Without the recovery point it opens as it is."""
    files = SimulatedFiles()
    log = _filled(files)
    last = log.directory / f"{16:020d}.log"
    if lost == "last segment":
        for suffix in (".log", ".index", ".timeindex"):
            files.remove(last.with_suffix(suffix))
    else:
        files.truncate(last, BATCH_BYTES if lost == "last batch" else 0)
    before = {path: data for path, data in files.tree().items() if path.endswith(".log")}
    for _ in range(2):
        with pytest.raises(
            DamagedSegment, match=rf"{log.directory / name}: .* ends at offset {ends}, .* below 20 "
        ) as raised:
            _opened(files, log, 20)
        assert "remove recovery-point-offset-checkpoint" in str(raised.value)
        assert {path: data for path, data in files.tree().items() if path.endswith(".log")} == before
    assert _opened(files, log, 0).log_end_offset == ends


def test_after_the_next_flush_what_was_scanned_is_not_scanned_again() -> None:
    files = SimulatedFiles()
    log = _filled(files)
    log = _opened(files, log, 0)
    log.flush()
    assert log.recovery_point == 20
    log.abandon()
    _flip(files, log, 18, VALUE)
    assert _opened(files, log, log.recovery_point).cuts == []
    assert base_offsets(log) == [0, 8, 16]
