"""What a flush takes, leaves and puts back, while the log goes on."""

import pytest

from pylog.storage.open_files import OpenFiles
from pylog.storage.segment import Segment
from pylog.storage.segments import Segments
from pylog.storage.unsynced import Unsynced
from tests.support.simulated_files import SimulatedFiles


@pytest.fixture
def segments() -> Segments:
    """Three that hold ten offsets each; the last one is the active one."""
    files, open_files = SimulatedFiles(), OpenFiles()
    made = [Segment.create(files.root, base_offset, 4096, files, open_files) for base_offset in (0, 10, 20)]
    for segment in made:
        segment.next_offset = segment.base_offset + 10
    return Segments(files.root, made, files, open_files)


def _rolled(segments: Segments, unsynced: Unsynced) -> Segment:
    """As a log does it; the segment that was the active one."""
    old = segments.active
    new = segments.create(old.next_offset, 4096)
    unsynced.seal(old)
    segments.append(new)
    return old


def test_of_a_log_that_is_trusted_nothing_is_to_be_synced(segments: Segments) -> None:
    unsynced = Unsynced(segments, trusted=True, recovery_point=0)
    taken = unsynced.take(segments)
    assert (taken.active_changed, taken.names, taken.sealed) == (False, False, [])
    assert unsynced.recovery_point == 30


@pytest.mark.parametrize(
    ("recovery_point", "sealed"),
    [
        pytest.param(0, [0, 10], id="all of it is new"),
        pytest.param(10, [0, 10], id="at the end of a segment, whose indexes may have come later"),
        pytest.param(11, [10], id="behind the first"),
        pytest.param(25, [], id="in the active one"),
    ],
)
def test_what_lies_behind_the_recovery_point_is_to_be_synced(
    segments: Segments, recovery_point: int, sealed: list[int]
) -> None:
    unsynced = Unsynced(segments, trusted=False, recovery_point=recovery_point)
    assert unsynced.recovery_point == recovery_point
    taken = unsynced.take(segments)
    assert (taken.active_changed, taken.names) == (True, True)
    assert [segment.base_offset for segment in taken.sealed] == sealed


def test_what_is_sealed_while_a_flush_is_under_way_is_left_for_the_next(segments: Segments) -> None:
    unsynced = Unsynced(segments, trusted=True, recovery_point=0)
    first = _rolled(segments, unsynced)
    taken = unsynced.take(segments)
    second = _rolled(segments, unsynced)
    unsynced.synced(taken, complete=True)
    assert taken.sealed == [first]
    assert unsynced.take(segments).sealed == [second]


def test_what_could_not_be_synced_comes_back_before_what_was_sealed_since(segments: Segments) -> None:
    unsynced = Unsynced(segments, trusted=True, recovery_point=0)
    first = _rolled(segments, unsynced)
    taken = unsynced.take(segments)
    second = _rolled(segments, unsynced)
    unsynced.put_back(taken, now_ms=7)
    assert unsynced.since_ms == 7
    again = unsynced.take(segments)
    assert (again.sealed, again.names, again.active_changed) == ([first, second], True, True)


def test_an_append_that_has_not_made_its_mark_yet_is_synced_by_its_offset(segments: Segments) -> None:
    unsynced = Unsynced(segments, trusted=True, recovery_point=0)
    segments.active.next_offset += 1
    assert unsynced.take(segments).active_changed


def test_a_mark_that_is_made_while_a_flush_looks_at_it_is_left_for_the_next(segments: Segments) -> None:
    class Racing(Unsynced):
        """The owner's thread rolls or appends behind every look of the other one at a mark."""

        def __getattribute__(self, name: str) -> object:
            found = super().__getattribute__(name)
            if name in ("active", "names"):
                setattr(self, name, True)
            return found

    unsynced = Racing(segments, trusted=True, recovery_point=0)
    taken = unsynced.take(segments)
    assert (taken.active_changed, taken.names) == (False, False)
    assert (object.__getattribute__(unsynced, "active"), object.__getattribute__(unsynced, "names")) == (True, True)


@pytest.mark.parametrize(("complete", "recovery_point"), [(True, 31), (False, 30)])
def test_the_recovery_point_follows_a_flush_that_left_nothing_out(
    segments: Segments, complete: bool, recovery_point: int
) -> None:
    unsynced = Unsynced(segments, trusted=True, recovery_point=0)
    segments.active.next_offset += 1
    unsynced.synced(unsynced.take(segments), complete=complete)
    assert unsynced.recovery_point == recovery_point
    assert unsynced.flushed_offset == 31


def test_segments_that_have_gone_need_no_sync(segments: Segments) -> None:
    unsynced = Unsynced(segments, trusted=False, recovery_point=0)
    segments.drop_behind(12)  # what was sealed is the active one now
    unsynced.keep(segments)
    unsynced.ended_at(12, start_offset=0)
    taken = unsynced.take(segments)
    assert [segment.base_offset for segment in taken.sealed] == [0]
    assert taken.active_changed
    assert unsynced.flushed_offset == 12
