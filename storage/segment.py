"""One segment: the batches of every offset in [base_offset, next_offset), in order, in one `.log` file.

The `.log` file is the truth. Its indexes are a function of it (`_note` is that function, live and in recovery
alike), so a damaged or missing index costs a scan and never data: whatever an index says is checked against the
batch it points at. Nothing is opened before it is needed: an idle partition holds no descriptor.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path

from pylog.storage import index_checks, scan
from pylog.storage.aborts import Aborts
from pylog.storage.batch import NO_TIMESTAMP, BatchHeader
from pylog.storage.errors import CorruptBatch, DamagedFile, StorageError
from pylog.storage.index import INT32_MAX, OFFSET_ENTRY, OFFSET_ENTRY_BYTES, TIME_ENTRY, TIME_ENTRY_BYTES, Index
from pylog.storage.open_files import OpenFiles
from pylog.storage.ports import NOT_WAITING, Buffer, FileSystem, LogAppender, LogFile
from pylog.storage.scan import READ_AHEAD_BYTES
from pylog.storage.transactions import TransactionIndex

_log = logging.getLogger(__name__)

LOG_SUFFIX, OFFSET_SUFFIX, TIME_SUFFIX, ABORTED_SUFFIX = ".log", ".index", ".timeindex", ".txnindex"
SUFFIXES = (OFFSET_SUFFIX, TIME_SUFFIX, ABORTED_SUFFIX, LOG_SUFFIX)  # the log last: it makes the segment

_RECENT_MAX = 64
_NOWHERE = (-1, 0)  # no offset, no position
_position = itemgetter(1)


# A batch that has its place in the log: position (from the start of its append), last offset, maximum timestamp.
Placed = tuple[int, int, int]
# A batch as the indexes see it: last offset, position in the segment, maximum timestamp.
Noted = tuple[int, int, int]


class Segment:
    __slots__ = (
        "_appender",
        "_file",
        "_files",
        "_indexed_position",
        "_max_timestamp_known",
        "_max_timestamp_offset",
        "_noted",
        "_offsets",
        "_open_files",
        "_pinned",
        "_read_to",
        "_recent",
        "_times",
        "aborts",
        "base_offset",
        "first_timestamp_ms",
        "has_roomy_indexes",
        "index_interval_bytes",
        "max_timestamp_ms",
        "next_offset",
        "path",
        "size_bytes",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        sizes: dict[str, int],
        index_interval_bytes: int,
        files: FileSystem,
        open_files: OpenFiles,
    ) -> None:
        """The segment whose files have these sizes. Nothing is read; `recovery` knows how far to trust them."""
        name = f"{base_offset:020d}"
        self._files = files
        self._open_files = open_files
        self.path = directory / (name + LOG_SUFFIX)
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = sizes.get(name + LOG_SUFFIX, 0)
        self._offsets = Index(
            directory / (name + OFFSET_SUFFIX), OFFSET_ENTRY, sizes.get(name + OFFSET_SUFFIX, 0), files
        )
        self._times = Index(directory / (name + TIME_SUFFIX), TIME_ENTRY, sizes.get(name + TIME_SUFFIX, 0), files)
        self.max_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._max_timestamp_known = not self.size_bytes  # or what the time index says is still to be looked at
        self.index_interval_bytes = index_interval_bytes
        self._indexed_position = 0
        self.first_timestamp_ms: int | None = None  # of the first batch; None: not looked at yet
        self._file: LogFile | None = None
        self._appender: LogAppender | None = None
        self.aborts = Aborts(TransactionIndex(directory / (name + ABORTED_SUFFIX), files))
        self._pinned = False  # the names may be other files'
        self._read_to = _NOWHERE  # where the last read ended: most readers go on from there
        # The newest batches. Most reads are at the tail, and answered from here without a system call. The indexes have
        # been told of so many of them, and are told of the others before somebody asks.
        self._recent: list[Noted] = []
        self._noted = 0
        self.has_roomy_indexes = False  # whatever of these they have to be told; or `has_room` was not asked since

    @classmethod
    def create(
        cls, directory: Path, base_offset: int, index_interval_bytes: int, files: FileSystem, open_files: OpenFiles
    ) -> "Segment":
        segment = cls(directory, base_offset, {}, index_interval_bytes, files, open_files)
        for path in (segment._offsets.path, segment._times.path, segment.path):  # the log last: it makes the segment
            files.create_empty(path)
        return segment

    @property
    def file(self) -> LogFile:
        file = self._file
        if file is None:
            file = self._file = self._files.open(self.path)
            self._open_files.opened(self)
        return file  # another thread, which opens many, may have closed it for us meanwhile

    @property
    def offsets(self) -> Index:
        if self._noted < len(self._recent):
            self._note_recent()
        return self._offsets

    @property
    def times(self) -> Index:
        if self._noted < len(self._recent):
            self._note_recent()
        return self._times

    @property
    def directory(self) -> Path:
        return self.path.parent

    def path_with(self, suffix: str) -> Path:
        return self.path.with_suffix(suffix)

    @property
    def latest_timestamp_ms(self) -> int:
        """The maximum timestamp, also of a sealed segment of which nothing was read yet."""
        if self._noted < len(self._recent):
            self._note_recent()
        if not self._max_timestamp_known:
            try:
                if not self._take_maximum():
                    self._distrust(self.times)
            except StorageError as error:  # the log itself is damaged: whoever needs its records will see
                _log.error("%s; its latest time is taken from its index", error)
            self._max_timestamp_known = True
        return self.max_timestamp_ms

    def _take_maximum(self) -> bool:
        """The one that the time index ends with; False if it cannot be right."""
        try:
            last = self.times.last
        except DamagedFile as error:
            _log.error("%s", error)
            return False
        self.max_timestamp_ms = NO_TIMESTAMP if last is None else last[0]
        return index_checks.ends_with_maximum(self, last)

    @property
    def has_looked_at_times(self) -> bool:
        return self._max_timestamp_known

    def read_ahead(self) -> None:
        """In any thread: have the system read what `latest_timestamp_ms` nearly always looks at, the ends of the files.
        Nothing is kept here, so nobody is disturbed."""
        for path in (self._times.path, self._offsets.path, self.path):
            size_bytes = self._files.size_of(path) or 0
            self._files.read_at(path, max(0, size_bytes - READ_AHEAD_BYTES), READ_AHEAD_BYTES)

    def first_batch_timestamp_ms(self) -> int:
        """What `segment.ms` counts from."""
        if self.first_timestamp_ms is None:
            if not self.size_bytes:
                return NO_TIMESTAMP
            self.first_timestamp_ms = next(self.headers(0))[1].max_timestamp
        return self.first_timestamp_ms

    # -- writing

    def append(self, data: Buffer, last: Placed, earlier: Iterable[Placed] = ()) -> None:
        """One write of one batch, or of several. If it fails the segment is as it was before."""
        appender = self._appender
        if appender is None:
            appender = self._appender = self._files.open_appender(self.path)
            self._open_files.opened(self)
        start = self.size_bytes
        appender.append(data, start)
        self.size_bytes = start + len(data)
        recent = self._recent
        if earlier:
            for position, last_offset, max_timestamp_ms in earlier:
                recent.append((last_offset, start + position, max_timestamp_ms))
        position, last_offset, max_timestamp_ms = last
        recent.append((last_offset, start + position, max_timestamp_ms))
        self.next_offset = last_offset + 1
        if len(recent) > _RECENT_MAX or not start:
            self._note_recent()

    def reconfigure(self, index_interval_bytes: int) -> None:
        """From the next append on."""
        self._note_recent()
        self.index_interval_bytes = index_interval_bytes

    def _note_recent(self) -> None:
        """Many at a time: what an append does not need while it runs would cost it twice as much there."""
        recent = self._recent
        self._note(recent[self._noted :])
        if len(recent) > _RECENT_MAX:
            del recent[: -_RECENT_MAX // 2]
        self._noted = len(recent)
        self.has_roomy_indexes = False

    def _note(self, batches: Sequence[Noted]) -> None:
        """Bring the indexes up to date with the next batches."""
        if batches and not batches[0][1]:
            self.first_timestamp_ms = batches[0][2]
        base_offset, interval_bytes = self.base_offset, self.index_interval_bytes
        indexed_position = self._indexed_position
        latest_ms, latest_offset = self.max_timestamp_ms, self._max_timestamp_offset
        last = self._times.last
        indexed_ms = NO_TIMESTAMP if last is None else last[0]
        offsets: list[tuple[int, int]] = []
        times: list[tuple[int, int]] = []
        for last_offset, position, max_timestamp_ms in batches:
            if max_timestamp_ms > latest_ms:
                latest_ms, latest_offset = max_timestamp_ms, last_offset
            if position - indexed_position > interval_bytes:
                indexed_position = position
                offsets.append((last_offset - base_offset, position))
                if latest_ms > indexed_ms:
                    indexed_ms = latest_ms
                    times.append((latest_ms, latest_offset - base_offset))
        self._indexed_position = indexed_position
        self.max_timestamp_ms, self._max_timestamp_offset = latest_ms, latest_offset
        if offsets:
            self._offsets.extend(offsets)
        if times:
            self._times.extend(times)

    def _note_max_timestamp(self) -> None:
        last = self._times.last
        if self.max_timestamp_ms > (NO_TIMESTAMP if last is None else last[0]):
            self._times.append(self.max_timestamp_ms, self._max_timestamp_offset - self.base_offset)

    def has_room(self, size_bytes: int, last_offset: int, segment_bytes: int, index_bytes_max: int) -> bool:
        if not self.size_bytes:
            return True  # an empty segment never rolls: that would reuse its base offset
        if self.size_bytes + size_bytes > segment_bytes or last_offset - self.base_offset > INT32_MAX:
            return False
        offsets_bytes = (self.offsets.count + 1) * OFFSET_ENTRY_BYTES
        times_bytes = (self.times.count + 2) * TIME_ENTRY_BYTES  # one is kept for the closing entry
        self.has_roomy_indexes = max(offsets_bytes, times_bytes) + _RECENT_MAX * TIME_ENTRY_BYTES <= index_bytes_max
        return max(offsets_bytes, times_bytes) <= index_bytes_max

    def store_indexes(self) -> None:
        """All entries into the files, and the maximum timestamp as the last one. May be repeated."""
        if self._pinned:
            return
        if self._files.size_of(self.path) != self.size_bytes:  # an append that failed, and could not be undone
            self._files.truncate(self.path, self.size_bytes)
        self._note_recent()
        self._note_max_timestamp()
        self.offsets.store()
        self.times.store()
        self.aborts.store()

    def seal(self) -> None:
        """After `store_indexes`: no more appends, only reads."""
        self._appender = None
        self._recent = []
        self._noted = 0

    def sync(self) -> None:
        """Everything of a sealed segment."""
        self.sync_log()
        self._offsets.sync()
        self._times.sync()

    def sync_log(self) -> None:
        """What cannot be built again without reading the log: its bytes, and the index of aborted transactions.

        Runs in another thread than the rest; the appender may be released meanwhile."""
        appender = self._appender
        if appender is not None:
            appender.sync()
        else:
            self._files.sync(self.path)
        self.aborts.sync()

    def pin(self) -> None:
        """Open everything that reads need, and keep it until `release`: the names are about to stand for other files,
        so none is read or written. If this fails the segment is as it was before."""
        file = self.file
        self._open_files.closed(self)  # from here on no other thread, which opens many, closes it for us
        self._file = file
        try:
            self.latest_timestamp_ms  # noqa: B018 (looks at files)
            self.aborts.pin()
            self.offsets.pin()
            self.times.pin()
        except BaseException:
            self.release()
            raise
        self._pinned = True

    def release(self) -> None:
        """Descriptors go when nobody reads any more."""
        self._file = self._appender = None
        self._pinned = False
        self.aborts.release()
        self.offsets.release()
        self.times.release()
        self._open_files.closed(self)

    # -- rebuilding, for `recovery`

    def rebuild(self, batches: Iterable[tuple[int, BatchHeader]]) -> None:
        """Index the batches of the log anew. Size and next offset follow: also when the iterator raises, they
        are those of the batches that it gave."""
        self._recent = []
        self._noted = 0
        self._read_to = _NOWHERE
        self._offsets.clear()
        self._times.clear()
        self.next_offset = self._max_timestamp_offset = self.base_offset
        self.max_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_known = True
        self.first_timestamp_ms = None
        self._indexed_position = 0
        end = 0
        try:
            for position, header in batches:
                self._note([(header.last_offset, position, header.latest_record_ms)])
                self.next_offset = header.next_offset
                end = position + header.size_bytes
        finally:
            self.size_bytes = end  # not before: the iterator may look at it

    def truncate(self, position: int) -> None:
        """Cut the segment where a batch begins; it may be appended to again."""
        self._files.truncate(self.path, position)
        self.size_bytes = position
        self.rebuild(self.headers(0))
        self.aborts.truncate(self.next_offset)

    def adopt(self, next_offset: int) -> None:
        """Go on from indexes that were found sound."""
        self.next_offset = next_offset
        if self.offsets.last is not None:
            self._indexed_position = self.offsets.last[1]
        if self.times.last is not None:
            self.max_timestamp_ms = self.times.last[0]
            self._max_timestamp_offset = self.base_offset + self.times.last[1]
        self._max_timestamp_known = True

    # -- reading

    def position_of(self, offset: int) -> int:
        """Where the first batch starts that ends at `offset` or later; the size of the segment if none does."""
        recent = self._recent
        if recent and offset > recent[0][0]:
            number = bisect_left(recent, (offset,))
            return recent[number][1] if number < len(recent) else self.size_bytes
        if offset == self._read_to[0]:
            return self._read_to[1]
        position, end = self.indexed_before(offset - self.base_offset), self.size_bytes
        found = scan.find_offset(self.file, end, position, offset) if position < end else None
        if found is None:
            return end
        position, base_offset, last_offset = found
        if last_offset >= self.next_offset:  # whoever got it would go on from there
            raise self._strange_offsets(position, (base_offset, last_offset), (self.base_offset, self.next_offset - 1))
        return position

    def indexed_before(self, value: int, column: int = 0) -> int:
        """The position in the last entry of the offset index whose column is not above the value; 0 without one."""
        try:
            entry = self.offsets.floor(value, column)
            if entry < 0:
                return 0
            relative_offset, position = self.offsets[entry]
            if index_checks.can_hold(self, relative_offset, position):
                return position
        except DamagedFile as error:  # an index that cannot be read is no better than one that is wrong
            _log.error("%s", error)
        self._distrust(self.offsets)
        entry = self.offsets.floor(value, column)
        return self.offsets[entry][1] if entry >= 0 else 0

    def _distrust(self, index: Index) -> None:
        """After this the indexes are what the log says; those of a pinned segment in memory alone."""
        _log.error("%s does not agree with its log; both indexes are built anew", index.path)
        sealed = self._appender is None and not self._recent
        size_bytes, next_offset, first_ms = self.size_bytes, self.next_offset, self.first_timestamp_ms
        latest_ms, latest_offset = self.max_timestamp_ms, self._max_timestamp_offset
        latest_known = self._max_timestamp_known
        try:
            with NOT_WAITING.suspended():  # half an index would make every look-up behind it slow
                self.rebuild(self._following_headers(next_offset - 1))
        except BaseException:  # the log is damaged, or cannot be read just now: it must not seem to end there
            self.size_bytes, self.first_timestamp_ms = size_bytes, first_ms
            self.max_timestamp_ms, self._max_timestamp_offset = latest_ms, latest_offset
            self._max_timestamp_known = latest_known
            self.seal()
            raise
        finally:
            self.next_offset = next_offset  # compaction may have taken the last batches
        if sealed:
            self.store_indexes()
            self.seal()

    def _following_headers(self, offset_max: int) -> Iterator[tuple[int, BatchHeader]]:
        """Of all batches, while their offsets follow: no CRC covers the first offset of a batch."""
        offset_min = self.base_offset
        for position, header in self.headers(0):
            if not offset_min <= header.base_offset <= header.last_offset <= offset_max:
                found = header.base_offset, header.last_offset
                raise self._strange_offsets(position, found, (offset_min, offset_max))
            yield position, header
            offset_min = header.next_offset

    def _strange_offsets(self, position: int, found: tuple[int, int], can_be: tuple[int, int]) -> CorruptBatch:
        return CorruptBatch(
            f"{self.path}: the batch at byte {position} says it has the offsets {found[0]} to {found[1]}, "
            f"where {can_be[0]} to {can_be[1]} can be"
        )

    def end_of_read(self, start: int, bytes_max: int) -> int:
        """Where the last whole batch ends within `bytes_max` of `start`; the first batch is always whole."""
        limit = start + bytes_max
        if limit >= self.size_bytes:
            return self.size_bytes
        recent = self._recent
        if recent and recent[0][1] <= limit:
            position = recent[bisect_right(recent, limit, key=_position) - 1][1]
            if position > start:
                return position
            position = start
        else:
            position = max(start, self.indexed_before(limit, column=1))
        position, base_offset, behind = scan.end_before(self.file, self.size_bytes, position, limit)
        if position == start:
            return behind
        self._read_to = base_offset, position
        return position

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of every batch from there on; records are not read, CRCs not checked."""
        return scan.headers(self.file, self.size_bytes, position) if position < self.size_bytes else iter(())

    def offset_before_time(self, timestamp_ms: int) -> int:
        """No record below this offset is so late or later, as far as the time index knows."""
        entry = self._time_entry_before(timestamp_ms)
        return self.base_offset + (self.times[entry][1] if entry >= 0 else 0)

    def _time_entry_before(self, timestamp_ms: int) -> int:
        try:
            entry = self.times.floor(timestamp_ms)
            if entry < 0 or index_checks.is_first_maximum(self, entry):
                return entry
        except DamagedFile as error:
            _log.error("%s", error)
        self._distrust(self.times)
        return self.times.floor(timestamp_ms)
