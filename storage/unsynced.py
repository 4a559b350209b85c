"""What of a log is not yet known to be on the disk, and up to which offset everything is.

The owner's thread marks what it has written; the thread that flushes takes the marks first and syncs then. So whatever
is written between any two of its lines is either synced with the rest, or still marked for the next flush. Appends
only set marks, and take no lock; the list of sealed segments, which both threads make anew, has one.
"""

import threading
from typing import NamedTuple

from pylog.storage.segment import Segment
from pylog.storage.segments import Segments


class Taken(NamedTuple):
    """What a flush has to sync."""

    end_offset: int
    active: Segment
    active_changed: bool
    names: bool
    sealed: list[Segment]


class Unsynced:
    __slots__ = ("_listing", "active", "flushed_offset", "names", "recovery_point", "sealed", "since_ms")

    def __init__(self, segments: Segments, *, trusted: bool, recovery_point: int) -> None:
        """Of a log that was just opened. Unless all of it is `trusted`, what is behind its recovery point is not."""
        end_offset = segments.active.next_offset
        self.active = self.names = not trusted
        self._listing = threading.Lock()
        self.sealed: list[Segment] = []
        self.recovery_point = end_offset
        if not trusted:
            self.sealed = [part for part in segments if part.next_offset >= recovery_point and part != segments.active]
            self.recovery_point = min(end_offset, recovery_point)
        self.flushed_offset = end_offset  # what `flush.messages` counts from
        self.since_ms: int | None = None  # what `flush.ms` counts from

    def seal(self, segment: Segment) -> None:
        """The active one, before there is another."""
        with self._listing:
            self.sealed = [*self.sealed, segment]
        self.names = self.active = True

    def keep(self, segments: Segments) -> None:
        """Those that were sealed and are not among these any more need no sync."""
        kept = {segment for segment in segments if segment is not segments.active}
        with self._listing:
            self.sealed = [segment for segment in self.sealed if segment in kept]

    def take(self, segments: Segments) -> Taken:
        """First the end, then the marks, then what is marked: an append moves the end, then marks it. First the active
        segment, then the list that a roll moves it to. Only a mark that was seen is taken away."""
        self.since_ms = None
        end_offset = segments.active.next_offset
        active_changed = end_offset != self.flushed_offset
        if self.active:
            self.active, active_changed = False, True
        names = self.names
        if names:
            self.names = False
        active = segments.active
        with self._listing:
            sealed, self.sealed = self.sealed, []
        return Taken(end_offset, active, active_changed, names, sealed)

    def put_back(self, taken: Taken, now_ms: int) -> None:
        """Not all of it could be synced, and none of it was lost."""
        with self._listing:
            self.sealed = [*taken.sealed, *self.sealed]
        self.active = self.names = True
        self.since_ms = now_ms

    def synced(self, taken: Taken, *, complete: bool) -> None:
        """Unless it is complete, something that batches below the recovery point should have told is not stored."""
        self.flushed_offset = taken.end_offset
        if complete and taken.end_offset > self.recovery_point:
            self.recovery_point = taken.end_offset

    def ended_at(self, end_offset: int, start_offset: int) -> None:
        """After a truncation."""
        self.recovery_point = min(self.recovery_point, end_offset)
        self.flushed_offset = max(min(self.flushed_offset, end_offset), start_offset)
        self.active = self.names = True
