"""A log for the cleaner: segments in any file system, written batch by batch, without a broker or a manager.

`clean` makes the plan that the manager would make and puts the result in place by the shortest way."""

from dataclasses import dataclass, field
from pathlib import Path

from pylog.storage import batch as batches
from pylog.storage.batch import CONTROL, TRANSACTIONAL
from pylog.storage.compaction import CleaningPlan, CleaningResult, LastBatch
from pylog.storage.index import OFFSET_ENTRY, TIME_ENTRY
from pylog.storage.kernels.cleaner import clean
from pylog.storage.open_files import OpenFiles
from pylog.storage.ports import FileSystem
from pylog.storage.records import Record, encode_batch
from pylog.storage.segment import Segment
from pylog.storage.transactions import AbortedTransaction, Marker, TransactionIndex, encode_marker
from tests.support.compaction_twin import TwinBatch, batches_of
from tests.support.simulated_files import SimulatedFiles

START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
NEVER_FULL_BYTES = 24 * 1000
LEADER_EPOCH = 3


def keyed(*pairs: tuple[str | None, str | None], timestamp_ms: int = START_MS) -> list[Record]:
    """Records without offsets: `log.append` gives them."""

    def encoded(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    return [Record(0, timestamp_ms + number, encoded(key), encoded(value)) for number, (key, value) in enumerate(pairs)]


@dataclass
class CompactedLog:
    files: FileSystem = field(default_factory=SimulatedFiles)
    directory: Path = Path("/sim/topic-0")
    now_ms: int = START_MS
    index_interval_bytes: int = 0
    segment_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        self.files.make_directory(self.directory)
        self.bases = [0]
        self.next_offset = 0
        self.first_dirty_offset = 0
        self.open_transactions: dict[int, int] = {}  # producer id, first offset
        self.sequences: dict[int, int] = {}
        self.files.create_empty(self.path(0))

    def path(self, base_offset: int, suffix: str = ".log") -> Path:
        return self.directory / f"{base_offset:020d}{suffix}"

    # -- writing

    def append(
        self,
        records: list[Record],
        *,
        producer_id: int = -1,
        producer_epoch: int = 0,
        transactional: bool = False,
        codec: int = 0,
        append_time_ms: int | None = None,
        attributes: int = 0,
    ) -> int:
        """The base offset."""
        numbered = [record._replace(offset=self.next_offset + number) for number, record in enumerate(records)]
        sequence = -1
        if producer_id >= 0 and not attributes & CONTROL:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(records)
        if transactional:
            self.open_transactions.setdefault(producer_id, self.next_offset)
        data = encode_batch(
            numbered,
            codec=codec,
            attributes=attributes | (TRANSACTIONAL if transactional else 0),
            leader_epoch=LEADER_EPOCH,
            producer_id=producer_id,
            producer_epoch=producer_epoch if producer_id >= 0 else -1,
            base_sequence=sequence,
        )
        if append_time_ms is not None:
            batches.stamp(data, 0, batches.read_header(data), append_time_ms)
        return self._write(data, len(records))

    def end(self, producer_id: int, *, commit: bool, producer_epoch: int = 0) -> int:
        """The offset of the marker."""
        offset = self.next_offset
        first_offset = self.open_transactions.pop(producer_id, None)
        if not commit and first_offset is not None:
            entry = AbortedTransaction(producer_id, first_offset, offset, self.last_stable_offset)
            TransactionIndex(self.path(self.bases[-1], ".txnindex"), self.files).append(entry)
        data = encode_marker(producer_id, producer_epoch, Marker(commit, 9), self.now_ms)
        batches.assign(data, 0, offset, LEADER_EPOCH)
        return self._write(data, 1)

    def _write(self, data: bytearray, count: int) -> int:
        path = self.path(self.bases[-1])
        self.files.write_at(path, self.files.size_of(path) or 0, data)
        self.next_offset += count
        return self.next_offset - count

    def roll(self) -> None:
        if self.next_offset > self.bases[-1]:
            self.bases.append(self.next_offset)
            self.files.create_empty(self.path(self.next_offset))

    # -- looking

    @property
    def last_stable_offset(self) -> int:
        return min(self.open_transactions.values(), default=self.next_offset)

    def segment(self, base_offset: int) -> list[TwinBatch]:
        return batches_of(self.files.read(self.path(base_offset)) or b"")

    def batches(self) -> list[TwinBatch]:
        return [batch for base_offset in self.bases for batch in self.segment(base_offset)]

    def records(self) -> list[Record]:
        return [record for batch in self.batches() if not batch.header.is_control for record in batch.records]

    def aborted(self, base_offset: int | None = None) -> list[AbortedTransaction]:
        """Of one segment, or of all."""
        bases = self.bases if base_offset is None else [base_offset]
        return [e for base in bases for e in TransactionIndex(self.path(base, ".txnindex"), self.files).entries()]

    # -- cleaning

    def plan(
        self,
        *,
        dedupe_buffer_bytes: int = NEVER_FULL_BYTES,
        producers: tuple[LastBatch, ...] = (),
        index_bytes_max: int = 10 << 20,
    ) -> CleaningPlan:
        """Everything that is sealed and below the last stable offset."""
        stable = [number for number in range(len(self.bases) - 1) if self.bases[number + 1] <= self.last_stable_offset]
        return CleaningPlan(
            self.directory,
            tuple((self.bases[number], self.files.size_of(self.path(self.bases[number])) or 0) for number in stable),
            self.first_dirty_offset,
            self.bases[len(stable)],
            self.now_ms,
            DAY_MS,
            self.segment_bytes,
            self.index_interval_bytes,
            index_bytes_max,
            dedupe_buffer_bytes,
            producers,
            tuple(self.aborted()),
        )

    def clean(self, plan: CleaningPlan | None = None) -> CleaningResult:
        result = clean(plan or self.plan(), self.files)
        self.put_in_place(result)
        return result

    def put_in_place(self, result: CleaningResult) -> None:
        suffixes = (".log", ".index", ".timeindex", ".txnindex")
        for group in result.groups:
            for suffix in suffixes:
                for base_offset in group.old_base_offsets:
                    self.files.remove(self.path(base_offset, suffix))
                cleaned = self.path(group.base_offset, suffix + ".cleaned")
                if suffix != ".txnindex" or self.files.size_of(cleaned) is not None:
                    self.files.rename(cleaned, self.path(group.base_offset, suffix))
            first = self.bases.index(group.base_offset)
            assert tuple(self.bases[first : first + len(group.old_base_offsets)]) == group.old_base_offsets
            self.bases[first : first + len(group.old_base_offsets)] = [group.base_offset]
        self.first_dirty_offset = result.cleaned_until

    def rebuilt_indexes(self, base_offset: int) -> tuple[bytes, bytes]:
        """What the indexes of this segment are to be, from its batches alone."""
        scratch = SimulatedFiles()
        segment = Segment.create(scratch.root, base_offset, self.index_interval_bytes, scratch, OpenFiles())
        position = 0
        placed = []
        for batch in self.segment(base_offset):
            placed.append((position, batch.header))
            position += len(batch.data)
        segment.rebuild(placed)
        segment.store_indexes()
        assert (OFFSET_ENTRY.size, TIME_ENTRY.size) == (8, 12)
        return scratch.read(segment.offsets.path) or b"", scratch.read(segment.times.path) or b""
