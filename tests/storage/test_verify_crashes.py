"""`verify` beside the crash model: what any crash leaves is at most a torn tail, never damage."""

from dataclasses import replace

import pytest

from pylog.storage.compaction import CleaningPlan, CleaningResult, Dirt
from pylog.storage.compaction_job import CompactionJob, plan_for
from pylog.storage.inspect.deep import Depth
from pylog.storage.inspect.findings import Severity
from pylog.storage.inspect.names import NotALog
from pylog.storage.kernels.cleaner import clean
from pylog.storage.manager import LogManager
from tests.support.clock import SettableClock
from tests.support.logs import START_MS
from tests.support.looking import look
from tests.support.sample_log import CONFIG, DATA, TOPIC_ID, fill, produced, sample
from tests.support.simulated_files import SimulatedFiles

PLAIN = Depth(records=True)


def watch(files: SimulatedFiles) -> None:
    """From now on, whatever happens: a crash leaves no more than a torn tail. Of the process, when all that was
    written stays, and of the machine, when what was not synced may be lost."""

    def check() -> None:
        crashed = {f"machine, seed {seed}": files.after_machine_crash(seed) for seed in range(5)}
        for crash, left in {"process": files.after_process_crash(), **crashed}.items():
            try:
                verdict, found = look(left, DATA, PLAIN)
            except NotALog:
                continue  # not even a name has reached the disk
            assert verdict in (None, Severity.TORN), (crash, files.history[-1], *map(str, found))

    files.before_operation = check


@pytest.mark.parametrize("clean", [True, False], ids=["also while it is closed", "before it is closed"])
def test_a_crash_at_any_step_leaves_no_more_than_a_torn_tail(clean: bool) -> None:
    files = SimulatedFiles()
    watch(files)
    sample(files, clean=clean)


class CleanerHere:
    """In this process, and in the file system of the test."""

    def __init__(self, plan: CleaningPlan, files: SimulatedFiles) -> None:
        self._plan = plan
        self._files = files

    def wait(self) -> CleaningResult:
        return clean(self._plan, self._files)

    def stop(self) -> None:
        raise AssertionError


@pytest.mark.parametrize("segment_bytes", [CONFIG.segment_bytes, 100_000], ids=["one by one", "merged"])
def test_a_crash_at_any_step_of_a_compaction_leaves_no_more_either(segment_bytes: int) -> None:
    files = SimulatedFiles()
    manager = LogManager([DATA], replace(CONFIG, compact=True), files=files, clock=SettableClock())
    log = manager.open("topic", 0, TOPIC_ID)
    fill(log)
    log.roll()
    log.append(produced(1, 50), leader_epoch=4)
    log.flush()
    manager.checkpoint()
    end_offset = log.segments()[-1].base_offset
    plan = plan_for(log, Dirt(0, end_offset, 0, 1, due=True), START_MS, 1 << 20)
    job = CompactionJob(
        log,
        replace(plan, segment_bytes=segment_bytes),
        files,
        lambda plan: CleanerHere(plan, files),
        cleaned=lambda _: None,
        bury=lambda _: None,
        give_up=lambda _: None,
        put_off=lambda _: None,
    )
    watch(files)
    assert job.run()
    manager.close()
    verdict, found = look(files, DATA, PLAIN)
    assert (verdict, [finding for finding in found if finding.severity is not Severity.NOTE]) == (None, [])
