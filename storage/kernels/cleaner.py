"""The cleaner: from sealed segments to `.cleaned` files beside them, of which each takes the place of a group.

Two passes. The first notes in a table the latest offset of every key behind `first_dirty_offset`; if the table is
full, the run ends before the batch that did not fit (`cleaned_until`) and a later run goes on from there. The second
writes, of every segment that begins before that point, the batches that remain:

- a record stays if no later one has its key; one without a key goes; a tombstone goes when the delete horizon of its
  batch has passed, which is set by the first run that meets it;
- records of aborted transactions go, markers as `CleanedTransactions` says;
- a batch of which everything stays is copied byte for byte. One of which nothing stays goes, unless it is the last
  data batch of a producer that may still write or the last batch of the new segment: then its header stays;
- offsets, epochs and sequence numbers never change. Batches at `cleaned_until` and behind are copied unread.

Memory: `dedupe_buffer_bytes` for the table, of which a small log touches a part, plus some 40 MB of buffers, plus, of
a batch over 4 MB, six times its plain records (as read, as plain, as rewritten with deltas of any length, compressed,
in the buffer of the new segment).
"""

import struct
from collections.abc import Iterator

import numpy as np

from pylog.storage import codecs, swap
from pylog.storage.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
)
from pylog.storage.checksum import crc32c
from pylog.storage.cleaned_transactions import CleanedTransactions
from pylog.storage.compaction import CleanedGroup, CleaningPlan, CleaningResult, grouped, remove_cleaned
from pylog.storage.disk import DISK
from pylog.storage.errors import DedupeBufferTooSmall, StorageError
from pylog.storage.index import INT32_MAX
from pylog.storage.kernels import compact, decode
from pylog.storage.kernels.cleaned_segment import CleanedSegment
from pylog.storage.kernels.crc import SMALL_BYTES_MAX
from pylog.storage.kernels.offset_map import OffsetMap
from pylog.storage.kernels.segment_reader import Chunk, address_of, read_segment
from pylog.storage.ports import Buffer, FileSystem
from pylog.storage.segment import LOG_SUFFIX
from pylog.storage.transactions import read_marker

_LENGTH_POSITION, _CRC_POSITION = 8, 17
_PLAIN_BYTES = 4 << 20  # of compressed batches that are opened together
_SCRATCH_BYTES_MAX = 16 << 20  # is kept; more is for one large batch
_HORIZON_MS_MAX = 1 << 62  # leaves room for the deltas of any timestamp
_UNBOUNDED = 1 << 62  # leaves room for what is saved


def clean(plan: CleaningPlan, files: FileSystem = DISK) -> CleaningResult:
    """The bytes of all new segments are on the disk when this returns; the names are synced by who puts them in place:
    were that done here and failed, names of the log's own would be lost, and the log not know. If this raises, no
    `.cleaned` file is left behind."""
    remove_cleaned(plan.directory, files)
    try:
        return _Cleaner(plan, files).run()
    except Exception:
        remove_cleaned(plan.directory, files)
        raise


class _Cleaner:
    def __init__(self, plan: CleaningPlan, files: FileSystem) -> None:
        self._plan = plan
        self._files = files
        self._map = OffsetMap(plan.dedupe_buffer_bytes)
        self._horizon_ms = min(plan.now_ms + plan.delete_retention_ms, _HORIZON_MS_MAX)
        self._producers = {last.producer_id: last for last in plan.producers}
        self._last_data_offsets = np.array(sorted({-1} | {last.last_data_offset for last in plan.producers}), np.int64)
        self._scratch = np.empty(0, np.uint8)
        self._bytes_before = self._bytes_after = self._records_before = self._records_after = self._tombstones = 0

    def run(self) -> CleaningResult:
        cleaned_until = self._note_keys()
        transactions = CleanedTransactions(self._plan.aborted, self._plan.start_offset)
        groups = grouped(self._plan, cleaned_until)
        return CleaningResult(
            tuple([self._clean_group(numbers, cleaned_until, transactions) for numbers in groups]),
            cleaned_until,
            self._bytes_before,
            self._bytes_after,
            self._records_before,
            self._records_after,
            self._tombstones,
        )

    def _chunks(self, number: int) -> Iterator[Chunk]:
        base_offset, size_bytes = self._plan.segments[number]
        path = swap.file_of(self._plan.directory, base_offset, LOG_SUFFIX)
        return read_segment(path, size_bytes, base_offset, self._plan.next_offset(number), self._files)

    # -- the first pass

    def _note_keys(self) -> int:
        """Where this run ends."""
        plan = self._plan
        transactions = CleanedTransactions(plan.aborted, plan.first_dirty_offset)
        for number in range(len(plan.segments)):
            if plan.next_offset(number) <= plan.first_dirty_offset:
                continue
            for chunk in self._chunks(number):
                keyed = self._rows_with_keys(chunk, transactions)
                for rows, _opened in _groups(chunk, keyed, _is_compressed(chunk)[keyed]):
                    done = self._note_keys_of(chunk, rows)
                    if done < len(rows):
                        return self._ended_before(chunk, int(rows[done]))
        return plan.end_offset

    def _note_keys_of(self, chunk: Chunk, rows: np.ndarray) -> int:
        """Of how many of these batches."""
        latest, done = self._map, 0
        while True:
            status, more, latest.used = compact.map_keys(
                chunk.table[rows[done:]], latest.table, latest.secret, latest.used, latest.used_max
            )
            done += more
            if status == compact.MALFORMED:
                chunk.malformed(int(rows[done]))
            if status == compact.FINISHED or not latest.grow():
                return done

    def _rows_with_keys(self, chunk: Chunk, transactions: CleanedTransactions) -> np.ndarray:
        wanted = chunk.last_offsets >= self._plan.first_dirty_offset
        for row in np.flatnonzero(wanted & _is_marked(chunk)).tolist():
            header = chunk.header(row)
            if header.is_control:
                wanted[row] = False
                _is_needed(chunk, row, header, transactions)
            elif transactions.is_aborted(header.producer_id, header.last_offset):
                wanted[row] = False
        return np.flatnonzero(wanted & (chunk.table[:, decode.RECORD_COUNT] > 0))

    def _ended_before(self, chunk: Chunk, row: int) -> int:
        offset = int(chunk.table[row, decode.BASE_OFFSET])
        if offset <= self._plan.first_dirty_offset:
            position = chunk.position + int(chunk.table[row, decode.POSITION])
            raise DedupeBufferTooSmall(
                f"{chunk.path}: the batch at byte {position} has more keys than the {self._map.keys_max} "
                f"that {self._plan.dedupe_buffer_bytes} bytes hold: log.cleaner.dedupe.buffer.size is too small"
            )
        return offset

    # -- the second pass

    def _clean_group(self, numbers: list[int], cleaned_until: int, transactions: CleanedTransactions) -> CleanedGroup:
        plan, files = self._plan, self._files
        old = [plan.segments[number] for number in numbers]
        base_offset, group_bytes = old[0][0], sum(size_bytes for _, size_bytes in old)
        self._bytes_before += group_bytes
        transactions.still_needed = []
        target = CleanedSegment(plan.directory, base_offset, plan.index_interval_bytes, files)
        left_bytes = group_bytes
        for number in numbers:
            for chunk in self._chunks(number):
                left_bytes -= chunk.size_bytes
                orders = self._orders(chunk, cleaned_until, transactions)
                if not left_bytes:
                    orders[-1] |= compact.RETAIN_EMPTY
                self._filter(chunk, orders, target, left_bytes)
        target.finish(transactions.still_needed)
        self._bytes_after += target.size_bytes
        return CleanedGroup(base_offset, tuple(base for base, _ in old), target.size_bytes)

    def _orders(self, chunk: Chunk, cleaned_until: int, transactions: CleanedTransactions) -> np.ndarray:
        """What `filter_batches` is to do with every batch."""
        orders = np.where(chunk.last_offsets >= cleaned_until, compact.VERBATIM, 0)
        for row in np.flatnonzero(_is_marked(chunk)).tolist():
            header = chunk.header(row)
            if header.is_control:
                orders[row] |= self._order_for_control(header, _is_needed(chunk, row, header, transactions))
            elif transactions.is_aborted(header.producer_id, header.last_offset):
                orders[row] |= compact.DISCARD
        nearest = self._last_data_offsets.searchsorted(chunk.last_offsets, "right") - 1
        for row in np.flatnonzero(self._last_data_offsets[nearest] == chunk.last_offsets).tolist():
            header = chunk.header(row)
            last = self._producers.get(header.producer_id)
            if last is not None and last.last_data_offset == header.last_offset:
                orders[row] |= compact.RETAIN_EMPTY
        return orders

    def _order_for_control(self, header: BatchHeader, needed: bool) -> int:
        order = compact.KEEP_RECORDS
        if not needed:
            passed = header.delete_horizon_ms is not None and header.delete_horizon_ms <= self._plan.now_ms
            order |= compact.DISCARD if passed else compact.SET_HORIZON
        last = self._producers.get(header.producer_id)
        if last is not None and last.last_data_offset < 0 and last.producer_epoch == header.producer_epoch:
            order |= compact.RETAIN_EMPTY  # all that tells of the epoch
        return order

    def _filter(self, chunk: Chunk, orders: np.ndarray, target: CleanedSegment, left_bytes: int) -> None:
        """What remains of these batches goes into the new segment; `left_bytes` of its old ones follow."""
        self._records_before += int(chunk.table[:, decode.RECORD_COUNT].sum())
        # what may be added to it so that all the rest still finds a place which an index can point at
        growth_max = INT32_MAX - target.size_bytes - left_bytes - chunk.size_bytes
        to_open = _is_compressed(chunk) & ((orders & (compact.VERBATIM | compact.DISCARD)) == 0)
        if not to_open.any():
            self._filter_plain(chunk, orders, target, growth_max)
        else:
            for rows, _opened in _groups(chunk, np.arange(len(orders)), to_open):
                growth_max = self._filter_compressed(chunk, orders, rows, target, growth_max)

    def _filter_plain(self, chunk: Chunk, orders: np.ndarray, target: CleanedSegment, growth_max: int) -> None:
        """Straight into the buffer of the new segment."""
        start, status = 0, compact.MORE
        while status == compact.MORE:
            rows = slice(start, len(orders))
            status, written, results = self._call(
                chunk, orders, rows, growth_max, target.free_address, target.free_bytes
            )
            large = results[:, compact.OUT_BYTES] > SMALL_BYTES_MAX
            new = results[large & (results[:, compact.ACTION] == compact.REWRITTEN)]
            for position, size_bytes in new[:, [compact.OUT_POSITION, compact.OUT_BYTES]].tolist():
                _seal(target.free[position : position + size_bytes])
            stay = results[:, compact.ACTION] != compact.DROPPED
            done = start + len(results)
            placed = results[stay][:, [compact.OUT_POSITION, compact.OUT_MAX_TIMESTAMP, compact.OUT_MAX_TIMESTAMP]]
            placed[:, 1] = chunk.last_offsets[start:done][stay]
            target.advance(written, placed)
            growth_max -= written - int(chunk.table[start:done, decode.SIZE_BYTES].sum())
            start = done
            if status == compact.MORE:
                target.make_room(int(_room_for(chunk.table[start : start + 1])[0]))

    def _filter_compressed(
        self, chunk: Chunk, orders: np.ndarray, rows: np.ndarray, target: CleanedSegment, growth_max: int
    ) -> int:
        """By way of plain records. How much may be added after that."""
        if not len(rows):
            return growth_max
        table = chunk.table[rows[0] : rows[-1] + 1]
        room = int(_room_for(table).sum())
        if len(self._scratch) < room:
            self._scratch = np.empty(room, np.uint8)
        _, _, results = self._call(
            chunk, orders, slice(rows[0], rows[-1] + 1), _UNBOUNDED, address_of(self._scratch), len(self._scratch)
        )
        headers = table[:, [decode.POSITION, decode.SIZE_BYTES, decode.ATTRIBUTES, decode.MAX_TIMESTAMP]].tolist()
        last_offsets = chunk.last_offsets[rows].tolist()
        for header, last_offset, result in zip(headers, last_offsets, results.tolist(), strict=True):
            position, size_bytes, attributes, max_timestamp = header
            action, out_position, out_bytes, _, _, out_max_timestamp = result
            written = self._scratch.data[out_position : out_position + out_bytes]
            batch: Buffer = written
            if action == compact.REWRITTEN:
                batch = _compressed(written, attributes & CODEC_MASK)
                if len(batch) - size_bytes > growth_max:
                    batch, out_max_timestamp = chunk.view[position : position + size_bytes], max_timestamp
            growth_max -= len(batch) - size_bytes
            if len(batch):
                target.append(batch, last_offset, out_max_timestamp)
        if len(self._scratch) > _SCRATCH_BYTES_MAX:
            self._scratch = np.empty(0, np.uint8)
        return growth_max

    def _call(
        self, chunk: Chunk, orders: np.ndarray, rows: slice, growth_max: int, out_address: int, out_bytes: int
    ) -> tuple[int, int, np.ndarray]:
        """(FINISHED or MORE, the bytes written, a row of results for every batch that is done)."""
        table = chunk.table[rows]
        results = np.empty((len(table), compact.RESULT_COLUMNS), np.int64)
        status, done, written = compact.filter_batches(
            table,
            orders[rows],
            chunk.address,
            self._map.table,
            self._map.secret,
            self._plan.now_ms,
            self._horizon_ms,
            growth_max,
            out_address,
            out_bytes,
            results,
        )
        if status == compact.MALFORMED:
            chunk.malformed(rows.start + done)
        self._records_after += int(results[:done, compact.KEPT].sum())
        self._tombstones += int(results[:done, compact.TOMBSTONES].sum())
        return status, written, results[:done]


def _is_marked(chunk: Chunk) -> np.ndarray:
    mask: np.ndarray = (chunk.table[:, decode.ATTRIBUTES] & (TRANSACTIONAL | CONTROL)) != 0
    return mask


def _is_compressed(chunk: Chunk) -> np.ndarray:
    mask: np.ndarray = ((chunk.table[:, decode.ATTRIBUTES] & CODEC_MASK) != 0) & (
        chunk.table[:, decode.RECORD_COUNT] > 0
    )
    return mask


def _is_needed(chunk: Chunk, row: int, header: BatchHeader, transactions: CleanedTransactions) -> bool:
    """Of a control batch."""
    if not header.record_count:
        return False  # emptied by an earlier run
    try:
        marker = read_marker(chunk.view, int(chunk.table[row, decode.POSITION]))
    except StorageError as error:
        chunk.damaged(row, str(error))
    return marker is None or transactions.needs(marker, header.producer_id, header.last_offset)


def _groups(chunk: Chunk, rows: np.ndarray, to_open: np.ndarray) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """The rows in parts, and the plain records of those that are to be opened: some MB at a time, valid as long as
    they are held."""
    opened: list[np.ndarray] = []
    start = opened_bytes = 0
    for number in np.flatnonzero(to_open).tolist():
        if opened_bytes >= _PLAIN_BYTES:
            yield rows[start:number], opened
            opened, start, opened_bytes = [], number, 0
        opened.append(chunk.plain_records(int(rows[number])))
        opened_bytes += len(opened[-1])
    yield rows[start:], opened


def _room_for(table: np.ndarray) -> np.ndarray:
    """What each batch takes at most when it is rewritten, and still plain."""
    plain_bytes = table[:, decode.DATA_BYTES]
    # a count that says more than the data can hold must not make us allocate
    count = np.minimum(table[:, decode.RECORD_COUNT], plain_bytes // compact.RECORD_BYTES_MIN)
    room: np.ndarray = np.maximum(
        table[:, decode.SIZE_BYTES], HEADER_BYTES + plain_bytes + count * compact.GROWTH_BYTES_MAX
    )
    return room


def _compressed(batch: memoryview, codec: int) -> bytearray:
    out = bytearray(batch[:HEADER_BYTES])
    out += codecs.compress(codec, batch[HEADER_BYTES:])
    struct.pack_into(">i", out, _LENGTH_POSITION, len(out) - PREFIX_BYTES)
    _seal(memoryview(out))
    return out


def _seal(batch: memoryview) -> None:
    struct.pack_into(">I", batch, _CRC_POSITION, crc32c(batch[CRC_START:]))
