"""Which leader wrote which offsets: known after every restart, by the file or by the batches."""

import errno

import pytest

from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.recovery import Trust
from tests.support.logs import batch_of, committed, log_in, reopened
from tests.support.simulated_files import SimulatedFiles

FILE = "leader-epoch-checkpoint"
BATCH_BYTES = len(batch_of(2))


def _led(files: SimulatedFiles, leaders: list[int]) -> PartitionLog:
    """A batch of two by each leader, three a segment."""
    log = log_in(files.root, LogConfig(segment_bytes=3 * BATCH_BYTES), files=files)
    for leader in leaders:
        committed(log, batch_of(2), leader)
    return log


def _entries(log: PartitionLog) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in log.epochs.entries]


LEADERS = [1, 1, 3, 3, 3, 4, 4, 7]
ENTRIES = [(1, 0), (3, 4), (4, 10), (7, 14)]


def test_an_epoch_begins_with_its_first_batch() -> None:
    files = SimulatedFiles()
    log = _led(files, LEADERS)
    assert _entries(log) == ENTRIES
    assert files.read(log.directory / FILE) == b"0\n4\n1 0\n3 4\n4 10\n7 14\n"
    assert log.epochs.end_offset_for(3, log.log_end_offset) == (3, 10)
    assert log.epochs.end_offset_for(7, log.log_end_offset) == (7, 16)


def test_a_batch_without_an_epoch_tells_nothing_and_costs_nothing() -> None:
    files = SimulatedFiles()
    log = _led(files, [-1, -1])
    assert _entries(log) == []
    assert files.size_of(log.directory / FILE) is None


@pytest.mark.parametrize("recovery_point", [0, 4, 6, 12, 16])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"0\n4\n1 0\n3 4\n4 10\n7 14\n", id="as stored"),
        pytest.param(None, id="gone"),
        pytest.param(b"", id="empty"),
        pytest.param(b"0\n4\n1 0\n3 4\n4 1", id="cut"),
        pytest.param(b"0\n1\n1 -5\n", id="impossible"),
        pytest.param(b"0\n2\n1 0\n0 4\n", id="out of order"),
    ],
)
def test_epochs_are_the_same_after_every_restart(text: bytes | None, clean: bool, recovery_point: int) -> None:
    files = SimulatedFiles()
    log = _led(files, LEADERS)
    if clean:
        log.close()
    else:
        log.flush()
        log.abandon()
    if text is None:
        files.remove(log.directory / FILE)
    else:
        files.replace(log.directory / FILE, text, durable=False)
    log = PartitionLog(log.directory, log.config, Trust(clean, recovery_point), files=files)
    assert _entries(log) == ENTRIES
    assert files.read(log.directory / FILE) == b"0\n4\n1 0\n3 4\n4 10\n7 14\n"


def test_epochs_that_a_crash_left_behind_the_end_are_forgotten() -> None:
    files = SimulatedFiles()
    log = _led(files, LEADERS)
    log.abandon()
    files.truncate(log.directory / f"{12:020d}.log", BATCH_BYTES + 20)
    log = reopened(log)
    assert _entries(log) == ENTRIES[:3]
    assert files.read(log.directory / FILE) == b"0\n3\n1 0\n3 4\n4 10\n"


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        pytest.param(b"0\n4\n1 0\n3 4\n4 10\n7 14\n", ENTRIES, id="the file knows where epoch 3 began"),
        pytest.param(b"0\n3\n1 0\n3 4\n4 10\n", ENTRIES, id="the last epoch is not in the file yet"),
        pytest.param(b"", [(1, 0), (3, 8), *ENTRIES[2:]], id="nobody knows"),
        pytest.param(b"0\n2\n1 0\n2 9\n", [(1, 0), (3, 8), *ENTRIES[2:]], id="the file is of what was lost"),
    ],
)
def test_an_epoch_whose_first_batch_was_compacted_begins_where_it_began(
    text: bytes, entries: list[tuple[int, int]]
) -> None:
    """A follower that asks where the epoch before it ended is not to keep what nobody else has."""
    files = SimulatedFiles()
    log = _led(files, LEADERS)
    log.abandon()
    for base_offset, kept in ((0, slice(0, 2)), (6, slice(1, 3))):  # without the batches at 4 and 6
        path = log.directory / f"{base_offset:020d}.log"
        data = files.read_at(path, 0, 3 * BATCH_BYTES)
        batches = [data[n * BATCH_BYTES : (n + 1) * BATCH_BYTES] for n in range(3)]
        files.replace(path, b"".join(batches[kept]), durable=False)
    files.replace(log.directory / FILE, text, durable=False)
    log = reopened(log, Trust(clean=False, cleaned_until=12))
    assert _entries(log) == entries


@pytest.mark.parametrize(
    ("to", "entries"),
    [
        pytest.param(16, ENTRIES, id="nothing"),
        pytest.param(15, ENTRIES[:3], id="the last batch"),
        pytest.param(12, ENTRIES[:3], id="within an epoch"),
        pytest.param(11, ENTRIES[:2], id="the only batch of an epoch in its segment"),
        pytest.param(4, ENTRIES[:1], id="all but the first"),
        pytest.param(0, [], id="all"),
    ],
)
def test_a_truncation_forgets_the_epochs_behind_it(to: int, entries: list[tuple[int, int]]) -> None:
    log = _led(SimulatedFiles(), LEADERS)
    log.truncate_to(to)
    assert _entries(log) == entries
    for clean in (True, False):
        log = reopened(log, clean=clean)
        assert _entries(log) == entries


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        pytest.param(0, ENTRIES, id="nothing"),
        pytest.param(1, [(1, 1), *ENTRIES[1:]], id="within the first epoch"),
        pytest.param(4, ENTRIES[1:], id="exactly the first epoch"),
        pytest.param(5, [(3, 5), *ENTRIES[2:]], id="within the second"),
    ],
)
def test_a_deletion_forgets_the_epochs_before_it(start: int, entries: list[tuple[int, int]]) -> None:
    log = _led(SimulatedFiles(), LEADERS)
    log.move_start(start)
    log.detach_deleted()
    assert _entries(log) == entries
    for clean in (True, False):
        log = reopened(log, clean=clean)
        assert _entries(log) == entries


def test_a_log_of_which_all_was_deleted_has_its_last_leader_until_it_is_opened_again() -> None:
    """An empty log knows no leader, as in Kafka: the next append tells."""
    log = _led(SimulatedFiles(), LEADERS)
    log.move_start(16)
    log.detach_deleted()
    assert _entries(log) == [(7, 16)]
    log = reopened(log, clean=True)
    assert _entries(log) == []
    committed(log, batch_of(1), 7)
    assert _entries(log) == [(7, 16)]


def test_an_append_does_not_fail_for_its_epoch() -> None:
    files = SimulatedFiles()
    log = _led(files, [1])
    files.fail("write_at", errno.ENOSPC, path=f"*{FILE}*", times=3)
    committed(log, batch_of(2), 2)
    assert _entries(log) == [(1, 0), (2, 2)]
    assert files.read(log.directory / FILE) == b"0\n1\n1 0\n"
    crashed = PartitionLog(log.directory, log.config, Trust(clean=False), files=files.after_process_crash())
    assert _entries(crashed) == [(1, 0), (2, 2)]
    for _ in range(2):
        committed(log, batch_of(2), 2)
    assert files.read(log.directory / FILE) == b"0\n1\n1 0\n"
    committed(log, batch_of(2), 2)
    assert files.read(log.directory / FILE) == b"0\n2\n1 0\n2 2\n"


def test_a_close_stores_epochs_that_could_not_be_stored_before() -> None:
    files = SimulatedFiles()
    log = _led(files, [1])
    files.fail("write_at", errno.ENOSPC, path=f"*{FILE}*")
    committed(log, batch_of(2), 2)
    log = reopened(log, clean=True)
    assert _entries(log) == [(1, 0), (2, 2)]
    assert files.read(log.directory / FILE) == b"0\n2\n1 0\n2 2\n"


def test_a_close_that_cannot_store_the_epochs_is_no_clean_close() -> None:
    files = SimulatedFiles()
    log = _led(files, [1])
    files.fail("write_at", errno.ENOSPC, path=f"*{FILE}*", times=None)
    committed(log, batch_of(2), 2)
    with pytest.raises(OSError, match="No space left"):
        log.close()
    files.heal()
    log.close()
    assert files.read(log.directory / FILE) == b"0\n2\n1 0\n2 2\n"
