"""The last batch cut at every byte, and overwritten from every byte on: the log ends with the batch before, what is cut
is kept and told, and nothing else has changed."""

import logging
from collections.abc import Callable
from random import Random

import pytest

from tests.support.logs import batch_of, marker_of
from tests.support.sample_twins import FIRST, SECOND, SampleTwins, directory_of, managed
from tests.support.simulated_files import SimulatedFiles
from tests.support.storage_twin import batches_in

pytestmark = pytest.mark.faults

Damage = Callable[[bytes, int], bytes]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "pylog")


def _damaged(sample: SampleTwins, last_bytes: int, at: int, damage: Damage) -> tuple[SimulatedFiles, bytes, bytes]:
    """The file with its last batch damaged from byte `at` on; that batch before and after."""
    files = sample.files.after_process_crash()
    path = sample.log(FIRST)._segments[-1].path
    whole = files.read(path)
    assert whole is not None
    start = len(whole) - last_bytes
    before, after = whole[start:], damage(whole[start:], at)
    files.write_at(path, start, after)
    files.truncate(path, start + len(after))
    return files, before, after


LAST = {
    "plain": [batch_of(3, value=b"plain" * 5)],
    "zstd": [batch_of(3, value=b"packed" * 9, codec=4)],
    "in a transaction": [batch_of(2, producer_id=9, transactional=True)],
    "marker": [batch_of(2, producer_id=9, transactional=True), marker_of(9, commit=False)],
    "last of three in one append": [batch_of(1) + batch_of(2) + batch_of(1)],
}
DAMAGES: dict[str, Damage] = {
    "cut": lambda data, at: data[:at],
    "zeros": lambda data, at: data[:at] + bytes(len(data) - at),
    "ones": lambda data, at: data[:at] + b"\xff" * (len(data) - at),
    "garbage": lambda data, at: data[:at] + Random(at).randbytes(len(data) - at),
    "garbage and more": lambda data, at: data[:at] + Random(at).randbytes(3 * len(data)),
}
CASES = (
    [(last, "cut") for last in LAST]
    + [("plain", damage) for damage in DAMAGES if damage != "cut"]
    + [("marker", "zeros")]
)


@pytest.mark.parametrize(
    ("last", "damage"), [pytest.param(LAST[last], DAMAGES[damage], id=f"{last}, {damage}") for last, damage in CASES]
)
def test_the_log_ends_before_a_torn_batch(
    last: list[bytearray], damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    sample = SampleTwins()
    for batch in last:
        sample.append(FIRST, bytearray(batch))
    last_bytes = len(batches_in(last[-1])[-1].data)
    whole_end, twin = sample.twins[FIRST].end, sample.twins[FIRST]
    last_batch = twin.batches[-1]
    for at in range(last_bytes):
        files, before, after = _damaged(sample, last_bytes, at, damage)
        if before == after:
            continue  # zeros in the place of zeros
        caplog.clear()
        twin.batches, twin.past = twin.batches[:-1], twin.past[:-1]
        manager = managed(files)
        log = sample.check(files, manager, FIRST)
        if at % 16 == 0:
            sample.check(files, manager, SECOND)
        twin.batches, twin.past = [*twin.batches, last_batch], [*twin.past, last_batch]
        assert log.log_end_offset == whole_end - last_batch.header.record_count
        segment = log._segments[-1]
        kept = segment.path.with_name(f"{segment.path.name}.cut-{segment.size_bytes}")
        if not after:
            assert (log.cuts, files.size_of(kept)) == ([], None)  # cut between two batches: there is nothing to see
            continue
        (cut,) = log.cuts
        assert (cut.path, cut.position, cut.size_bytes) == (segment.path, segment.size_bytes, len(after))
        assert (cut.next_offset, cut.kept_as) == (log.log_end_offset, kept)
        assert files.read(kept) == after
        (told,) = (record.getMessage() for record in caplog.records if "cut at" in record.getMessage())
        assert f"{segment.path}: cut at byte {segment.size_bytes}" in told
        assert f"goes on at offset {log.log_end_offset}" in told
        assert f"the {len(after)} bytes behind are kept in {kept.name}" in told


def test_what_was_cut_is_kept_through_the_next_stops() -> None:
    sample = SampleTwins()
    sample.append(FIRST, batch_of(3))
    files, _, after = _damaged(sample, len(batch_of(3)), 70, lambda data, at: data[:at])
    manager = managed(files)
    (cut,) = sample.open(manager, FIRST).cuts
    manager.close()
    for clean in (True, False, True):
        manager = managed(files)
        assert sample.open(manager, FIRST).cuts == []
        assert files.read(cut.kept_as) == after
        if clean:
            manager.close()
        else:
            files = files.after_process_crash()
    assert files.read(directory_of(FIRST) / cut.kept_as.name) == after
