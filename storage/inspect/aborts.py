"""Does the `.txnindex` of a segment agree with its markers?"""

from collections.abc import Iterator
from pathlib import Path

from pylog.storage.batch import BatchHeader
from pylog.storage.errors import StorageError
from pylog.storage.inspect.findings import Report, Severity
from pylog.storage.inspect.state import LogState, Place
from pylog.storage.ports import FileSystem
from pylog.storage.transactions import AbortedTransaction, Marker, TransactionIndex, read_marker


class AbortedCheck:
    """Every entry is the abort of a transaction, and every abort of a transaction whose records are here has its
    entry: without it readers would take those records for good."""

    def __init__(self, path: Path | None, state: LogState, place: Place, report: Report, files: FileSystem) -> None:
        self._path = path
        self._state = state
        self._place = place
        self._report = report
        self._entries = self._read(files)
        self._entry = next(self._entries, None)

    def _read(self, files: FileSystem) -> Iterator[AbortedTransaction]:
        """The entries in order, as far as they can be read."""
        if self._path is None:
            return
        before = self._place.base_offset - 1
        try:
            for entry in TransactionIndex(self._path, files).entries():
                if not _can_be(entry) or entry.last_offset <= before:
                    self._wrong(f"{_shown(entry)} cannot follow offset {before}")
                    continue
                before = entry.last_offset
                yield entry
        except StorageError as error:
            self._wrong(str(error).removeprefix(f"{self._path}: "), self._place.end_severity)

    def waits_for(self, header: BatchHeader) -> bool:
        return self._entry is not None and self._entry.last_offset <= header.last_offset

    def see(self, header: BatchHeader, data: memoryview) -> None:
        """Every batch that is part of a transaction, ends one, or is waited for."""
        marker = None
        if header.is_control:
            try:
                marker = read_marker(data)
            except StorageError:
                return  # a look at the records tells
        entry = self._entry_of(header, marker)
        open_transactions = self._state.open_transactions
        if not header.is_control:
            if header.is_transactional and header.record_count:  # compaction empties what was aborted
                open_transactions.setdefault(header.producer_id, header.base_offset)
            return
        first_offset = open_transactions.pop(header.producer_id, None)
        if marker is None or marker.commit or first_offset is None:
            return
        if entry is None:
            message = f"no entry for the transaction of producer {header.producer_id} that is aborted here"
            self._wrong(message, self._place.end_severity, first_offset, header.last_offset)
        elif entry.first_offset > first_offset or (entry.first_offset < first_offset and self._nothing_is_gone(entry)):
            self._wrong(f"{_shown(entry)}, where its first record is at {first_offset}")

    def _nothing_is_gone(self, entry: AbortedTransaction) -> bool:
        """Neither by compaction nor at the front, so the log shows where the transaction began."""
        return not self._state.compacted and entry.first_offset >= self._state.first_offset

    def _entry_of(self, header: BatchHeader, marker: Marker | None) -> AbortedTransaction | None:
        """The entry of this marker. Those before it had theirs in what compaction took away."""
        while self._entry is not None and self._entry.last_offset < header.base_offset:
            self._entry = next(self._entries, None)
        entry = self._entry
        if entry is None or entry.last_offset > header.last_offset:
            return None
        self._entry = next(self._entries, None)
        if not header.is_control or entry.producer_id != header.producer_id or (marker is not None and marker.commit):
            kind = "records" if not header.is_control else "a commit" if marker and marker.commit else "a marker"
            self._wrong(f"{_shown(entry)}, where the log has {kind} of producer {header.producer_id}")
        return entry

    def finish(self) -> None:
        while self._entry is not None:
            if self._entry.last_offset >= self._state.next_offset:
                self._wrong(f"{_shown(self._entry)} is behind the end of the log", self._place.end_severity)
            self._entry = next(self._entries, None)

    def _wrong(
        self, message: str, severity: Severity | None = None, first: int | None = None, last: int | None = None
    ) -> None:
        if self._path is not None:
            severity = severity or self._place.severity
            self._report.add(severity, self._path, message, first_offset=first, last_offset=last)


def _shown(entry: AbortedTransaction) -> str:
    return f"the abort of producer {entry.producer_id}, offsets {entry.first_offset} to {entry.last_offset}"


def _can_be(entry: AbortedTransaction) -> bool:
    in_order = 0 <= entry.first_offset < entry.last_offset
    return entry.producer_id >= 0 and in_order and 0 <= entry.last_stable_offset <= entry.last_offset + 1
