"""Which leader wrote which offsets: (epoch, first offset of that epoch), both columns strictly ascending.

An epoch reaches up to the first offset of the next one, the last epoch up to the end of the log. A follower that
asks how far an epoch goes on the leader learns where its own log may begin to differ.
"""

from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pylog.storage.checkpoints import INT32_MAX, INT64_MAX, decode_lines, encode_lines, number_in
from pylog.storage.errors import DamagedFile

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochs:
    """Pure: whoever changes it also stores `encode()`, and before the first batch of a new epoch is promised."""

    __slots__ = ("entries",)

    def __init__(self, entries: tuple[EpochEntry, ...] = ()) -> None:
        self.entries = entries

    @property
    def latest(self) -> EpochEntry | None:
        return self.entries[-1] if self.entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """The leader of `epoch` writes from `start_offset` on; whether that is news.

        What was known of this and later epochs, or of offsets from there on, is overruled by it."""
        if epoch < 0:
            return False  # a batch without an epoch says nothing of leaders
        if start_offset < 0:
            raise ValueError(f"epoch {epoch} cannot start at offset {start_offset}")
        entries = self.entries
        if entries and epoch == entries[-1].epoch and start_offset >= entries[-1].start_offset:
            return False
        kept = len(entries)
        while kept and (entries[kept - 1].epoch >= epoch or entries[kept - 1].start_offset >= start_offset):
            kept -= 1
        self.entries = (*entries[:kept], EpochEntry(epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest known epoch up to this one, the offset behind its last); both -1 if the epoch is unknown
        because it is newer than all. One that is older than all ends where the log begins, under its own number."""
        entries = self.entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1].epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        higher = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        return entries[higher - 1].epoch if higher else epoch, entries[higher].start_offset

    def epoch_for(self, offset: int) -> int | None:
        """None before the first offset whose leader is known."""
        higher = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[higher - 1].epoch if higher else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """The log now ends at `end_offset`: forget the epochs that begin there or behind; whether there were any."""
        before = self.entries
        self.entries = tuple(entry for entry in before if entry.start_offset < end_offset)
        return len(self.entries) != len(before)

    def truncate_from_start(self, start_offset: int) -> bool:
        """The log now begins at `start_offset`, and so does the epoch that it is in; whether that is news."""
        before = self.entries
        higher = bisect_right(before, start_offset, key=lambda entry: entry.start_offset)
        if higher:
            self.entries = (EpochEntry(before[higher - 1].epoch, start_offset), *before[higher:])
        return self.entries != before

    def clear(self) -> bool:
        before, self.entries = self.entries, ()
        return bool(before)

    def encode(self) -> bytes:
        return encode_lines(f"{epoch} {start_offset}" for epoch, start_offset in self.entries)

    @classmethod
    def decode(cls, data: bytes, path: Path) -> "LeaderEpochs":
        """DamagedFile if it is malformed; `path` is for its message."""
        entries = []
        for line, (epoch, start_offset) in decode_lines(data, path, 2):
            entry = EpochEntry(number_in(epoch, INT32_MAX, path, line), number_in(start_offset, INT64_MAX, path, line))
            entries.append(entry)
        for line, (before, after) in enumerate(pairwise(entries), 4):
            if before.epoch >= after.epoch or before.start_offset >= after.start_offset:
                reason = f"epoch {after.epoch} from {after.start_offset} on cannot follow {before.epoch} from "
                raise DamagedFile(path, f"line {line}", f"{reason}{before.start_offset} on")
        return cls(tuple(entries))
