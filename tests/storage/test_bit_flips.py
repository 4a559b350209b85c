"""A bit flipped in every kind of file, after a clean stop and after an unclean one: the answers stay right, or an error
names the file and the place. The other log never notices.

What carries no checksum in Kafka's formats is believed: offsets and leader epochs of batches, the numbers in text
checkpoints, topic ids. Here stands what that can cost."""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from pylog.storage.batch import HEADER_BYTES, check
from pylog.storage.errors import DamagedFile, DamagedSegment, StorageError
from pylog.storage.log import PartitionLog
from pylog.storage.manager import METADATA_NAME, LogManager
from tests.support.sample_log import DATA, produced
from tests.support.sample_twins import FIRST, SECOND, SampleTwins, directory_of, managed
from tests.support.simulated_files import SimulatedFiles
from tests.support.storage_checks import check_answers, outcome_of
from tests.support.storage_twin import TwinBatch

pytestmark = pytest.mark.faults

DELETED_BELOW = 3
LOOK_UPS = 12
BASE_OFFSET_BITS, EPOCH_BITS = range(64), range(96, 128)  # a broker rewrites them, so no CRC covers them
PRIME = 7  # a step that meets every bit of a byte


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@dataclass
class Stopped:
    """The sample after a stop; forked for every flip."""

    sample: SampleTwins
    files: SimulatedFiles
    recovery_point: int  # what lies behind it is scanned at the next start

    @property
    def batches(self) -> list[TwinBatch]:
        return self.sample.twins[FIRST].batches

    def flipped(self, path: Path, bit: int) -> SimulatedFiles:
        files = self.files.after_process_crash()
        files.flip_bit(path, bit)
        return files

    def opened(self, files: SimulatedFiles) -> PartitionLog:
        """The log that may be damaged; the other one is what it was, down to its files."""
        manager = managed(files)
        self.sample.check(files, manager, SECOND)
        return self.sample.open(manager, FIRST)

    def expect_right_answers(self, files: SimulatedFiles, log: PartitionLog) -> None:
        outcome = outcome_of(log, self.sample.twins[FIRST], files, machine=False)
        check_answers(log, outcome, Random(0), LOOK_UPS)

    def files_of_first(self, pattern: str) -> list[Path]:
        directory = directory_of(FIRST)
        found = [directory / name for name, size in self.files.sizes_in(directory).items() if size]
        return sorted(path for path in found if path.match(pattern))

    def bits(self, path: Path, step: int) -> range:
        return range(0, 8 * (self.files.size_of(path) or 0), step)


@pytest.fixture(scope="module", params=[True, False], ids=["clean stop", "unclean stop"])
def stopped(request: pytest.FixtureRequest) -> Stopped:
    sample = SampleTwins()
    sample.twins[FIRST].starting_at = DELETED_BELOW
    sample.manager.delete_records(*FIRST, DELETED_BELOW)
    sample.twins[FIRST].started()
    if request.param:
        sample.manager.close()
        return Stopped(sample, sample.files, sample.twins[FIRST].end)
    for key in sample.twins:
        sample.log(key).flush()
    sample.manager.checkpoint()
    recovery_point = sample.twins[FIRST].end
    for number in range(8):
        sample.append(FIRST, produced(2, 50 + number))
    return Stopped(sample, sample.files.after_process_crash(), recovery_point)


# -- files that follow from the log


@pytest.mark.parametrize("pattern", ["*.index", "*.timeindex", "*.snapshot"])
def test_indexes_and_snapshots_are_checked_before_they_are_believed(stopped: Stopped, pattern: str) -> None:
    paths = stopped.files_of_first(pattern)
    assert paths
    for path in paths:
        for bit in stopped.bits(path, PRIME):
            files = stopped.flipped(path, bit)
            stopped.expect_right_answers(files, stopped.opened(files))


def _wrong_answer(stopped: Stopped, files: SimulatedFiles, log: PartitionLog) -> str:
    try:
        stopped.expect_right_answers(files, log)
    except AssertionError as error:
        return str(error)
    return ""


def test_an_index_of_aborted_transactions_costs_no_record(stopped: Stopped) -> None:
    """Its entries are held against the offsets of their segment; what could be true is believed."""
    (path,) = stopped.files_of_first("*.txnindex")
    believed = 0
    for bit in stopped.bits(path, 1):
        files = stopped.flipped(path, bit)
        log = stopped.opened(files)
        wrong = _wrong_answer(stopped, files, log)
        assert "aborted" in wrong or not wrong
        believed += bool(wrong)
    assert believed < 8 * 34 / 2


def test_epochs_that_cannot_be_are_read_from_the_batches(stopped: Stopped) -> None:
    """Others are believed, where no scan shows them wrong."""
    (path,) = stopped.files_of_first("leader-epoch-checkpoint")
    for bit in stopped.bits(path, 1):
        files = stopped.flipped(path, bit)
        log = stopped.opened(files)
        wrong = _wrong_answer(stopped, files, log)
        assert "EpochEntry" in wrong or not wrong


# -- the log itself


def _position_of(stopped: Stopped, files: SimulatedFiles, batch: TwinBatch) -> tuple[Path, int]:
    for path in stopped.files_of_first("*.log"):
        data = files.read(path)
        assert data is not None
        if int(path.stem) <= batch.base_offset and batch.data in data:
            return path, data.index(batch.data)
    raise AssertionError(f"{batch} is nowhere")


def test_damage_behind_the_recovery_point_ends_the_log(stopped: Stopped) -> None:
    scanned = [batch for batch in stopped.batches if batch.base_offset >= stopped.recovery_point]
    twin = stopped.sample.twins[FIRST]
    for batch in scanned[2:3] + scanned[-1:]:
        path, position = _position_of(stopped, stopped.files, batch)
        for bit in (*range(0, 8 * HEADER_BYTES, 3), *range(8 * HEADER_BYTES, 8 * len(batch.data), 5 * PRIME)):
            if bit in EPOCH_BITS:
                continue
            files = stopped.flipped(path, 8 * position + bit)
            log = stopped.opened(files)
            assert log.log_end_offset == batch.base_offset
            assert (log.cuts[0].path, log.cuts[0].position) == (path, position)
            whole = twin.batches
            twin.batches = twin.past = whole[: whole.index(batch)]
            stopped.expect_right_answers(files, log)
            twin.batches = twin.past = whole


def test_damage_that_is_not_scanned_is_served_to_nobody_as_good(stopped: Stopped) -> None:
    """Reads never look at the bytes; whoever takes them apart sees the CRC. Framing that is broken is named."""
    batches = [batch for batch in stopped.batches if DELETED_BELOW < batch.base_offset < stopped.recovery_point]
    for batch, step in ((batches[0], PRIME), (batches[len(batches) // 2], PRIME), (batches[-1], 1)):
        path, position = _position_of(stopped, stopped.files, batch)
        for bit in (*range(0, 8 * HEADER_BYTES, step), *range(8 * HEADER_BYTES, 8 * len(batch.data), 5 * PRIME)):
            files = stopped.flipped(path, 8 * position + bit)
            found: StorageError | None = None
            try:
                log = stopped.opened(files)
                # A length that leads astray just before the recovery point makes what lies behind it seem torn.
                ends = (stopped.sample.twins[FIRST].end, stopped.recovery_point)
                assert log.log_end_offset in ends
                _read(log, stopped.batches, bit)
            except StorageError as error:
                found = error
            if found is not None:
                named = re.search(rf"{path}: .*byte (\d+)", str(found))
                assert named is not None, found
                assert int(named[1]) >= position  # a wrong length is noticed where it leads to


def _read(log: PartitionLog, batches: list[TwinBatch], bit: int) -> None:
    good = {batch.data for batch in batches}
    offset = log.log_start_offset
    while (part := log.read(offset, 1)) is not None:
        data = part.file.read_at(part.position, part.length)
        if data in good:
            offset = check(data).next_offset
            continue
        if bit not in (*BASE_OFFSET_BITS, *EPOCH_BITS):
            with pytest.raises(StorageError):
                check(data)
        behind = (batch.next_offset for batch in batches if batch.next_offset > offset)
        offset = next(behind, log.log_end_offset)  # a client that skips it
    for asked_ms in {batch.header.max_timestamp for batch in batches}:
        log.offset_at_time(asked_ms)


# -- what stands at the root of a data directory


def _refused(stopped: Stopped, files: SimulatedFiles, name: str) -> list[tuple[str, int]]:
    """The logs that seem to have lost records, because the recovery point is behind their end; each says what to do."""
    damaged = []
    for key in (FIRST, SECOND):
        try:
            stopped.sample.open(managed(files.after_process_crash()), key)
        except DamagedSegment as error:
            damaged.append((key, str(error)))
    assert all(f"remove {name}" in said for _, said in damaged)
    return [key for key, _ in damaged]


def test_recovery_points_that_are_wrong_change_no_answer(stopped: Stopped) -> None:
    """They cost a scan. A log that ends below its own is not opened: it may be the log that is wrong."""
    path = DATA / "recovery-point-offset-checkpoint"
    for bit in stopped.bits(path, 1):
        files = stopped.flipped(path, bit)
        manager = managed(files)
        for key in (FIRST, SECOND):
            try:
                log = stopped.sample.open(manager, key)
            except DamagedSegment as error:
                told = str(error)
            else:
                outcome = outcome_of(log, stopped.sample.twins[key], files, machine=False)
                check_answers(log, outcome, Random(0), LOOK_UPS)
                continue
            assert f"to open it as it is, remove {path.name} from {DATA}" in told


def test_starts_that_are_wrong_change_no_record(stopped: Stopped) -> None:
    """One that could be true is believed: records may be hidden, or deleted ones come back."""
    path = DATA / "log-start-offset-checkpoint"
    good = {batch.data for batch in stopped.batches}
    for bit in stopped.bits(path, 1):
        files = stopped.flipped(path, bit)
        manager = managed(files)
        stopped.sample.open(manager, SECOND)
        log = stopped.sample.open(manager, FIRST)
        offset = log.log_start_offset
        while (part := log.read(offset, 1)) is not None:
            data = part.file.read_at(part.position, part.length)
            assert data in good
            offset = check(data).next_offset
        if log.log_start_offset == DELETED_BELOW:
            stopped.expect_right_answers(files, log)


def test_a_log_whose_topic_id_was_damaged_is_not_touched(stopped: Stopped) -> None:
    directory = directory_of(FIRST)
    path = directory / METADATA_NAME
    for bit in stopped.bits(path, 1):
        files = stopped.flipped(path, bit)
        before = {name: files.read(directory / name) for name in files.sizes_in(directory)}
        manager = managed(files)
        if bit % PRIME == 0:
            stopped.sample.check(files, manager, SECOND)
        try:
            log = stopped.sample.open(manager, FIRST)
        except DamagedFile as error:
            found = error
        else:  # nothing that could be an id: there is none
            stopped.expect_right_answers(files, log)
            continue
        assert (found.path, found.place) == (path, "line 2")
        assert {name: files.read(directory / name) for name in files.sizes_in(directory)} == before


def test_the_marker_of_a_clean_stop_is_believed_for_its_name() -> None:
    sample = SampleTwins()
    sample.manager.close()
    marker = DATA / ".kafka_cleanshutdown"
    for bit in range(8 * (sample.files.size_of(marker) or 0)):
        files = sample.files.after_process_crash()
        files.flip_bit(marker, bit)
        manager: LogManager = managed(files)
        assert sample.open(manager, FIRST).log_end_offset == sample.twins[FIRST].end
