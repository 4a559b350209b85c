"""Whether a log that was opened is what its twin says it can be, to the byte, with everything that follows from the
batches: what it answers, its indexes, its producers, its epochs. Looks at the files as well as at the answers."""

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from pylog.storage.batch import HEADER_BYTES, MAGIC, NO_TIMESTAMP, TRANSACTIONAL, read_header, walk
from pylog.storage.epochs import FILE_NAME as EPOCHS_NAME
from pylog.storage.errors import OutOfOrderSequence
from pylog.storage.failed_sync import NOTE_NAME
from pylog.storage.log import PartitionLog
from pylog.storage.manager import METADATA_NAME
from pylog.storage.ports import FileSystem
from pylog.storage.producers import ProducerView, snapshot_name
from pylog.storage.records import Record, encode_batch
from pylog.storage.segment import SUFFIXES, Segment
from pylog.storage.transactions import AbortedTransaction
from tests.support.storage_twin import (
    Outcome,
    Twin,
    TwinBatch,
    epochs_of,
    first_at_time,
    index_entries,
    latest,
    replay,
    up_to,
)

LOOK_UPS_MAX = 6
READ_BYTES = (1, 200, 700, 1 << 20)


def outcome_of(log: PartitionLog, twin: Twin, files: FileSystem, *, machine: bool) -> Outcome:
    """Which of the twin's histories it is; an error if it is none."""
    start, end = log.log_start_offset, log.log_end_offset
    outcomes = twin.outcomes(machine=machine)
    fitting = [outcome for outcome in outcomes if outcome.allows(start, end)]
    assert fitting, f"the log is from {start} to {end}, and may be {' or '.join(map(str, outcomes))}"
    if len(fitting) > 1:
        found = b"".join(files.read(segment.path) or b"" for segment in log._segments)
        for outcome in fitting:
            if found == b"".join(batch.data for batch in _stored(log, _history(log, outcome.batches))):
                return outcome
    return fitting[0]


def _history(log: PartitionLog, batches: Sequence[TwinBatch]) -> list[TwinBatch]:
    """Those that can be in the log; none if nothing behind its start was left, and it began anew there."""
    history = up_to(log.log_end_offset, batches)
    return history if history and history[-1].next_offset == log.log_end_offset else []


def _stored(log: PartitionLog, history: list[TwinBatch]) -> list[TwinBatch]:
    """Without those whose segments are gone."""
    return [batch for batch in history if batch.base_offset >= log._segments[0].base_offset]


def check_log(log: PartitionLog, outcome: Outcome, files: FileSystem, chance: Random) -> None:
    """All of it; of the look-ups, some that the chance picks."""
    stored = _stored(log, _history(log, outcome.batches))
    segments = log._segments
    assert segments[0].base_offset <= log.log_start_offset
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        next_offset = log.log_end_offset if last else segments[number + 1].base_offset
        inside = [batch for batch in stored if segment.base_offset <= batch.base_offset < next_offset]
        _check_segment(segment, inside, next_offset, log.config.index_interval_bytes, files)
    _check_names(log, files)
    check_answers(log, outcome, chance)


def check_answers(log: PartitionLog, outcome: Outcome, chance: Random, look_ups_max: int = LOOK_UPS_MAX) -> None:
    """What a user of the log can see of it."""
    stored = _stored(log, _history(log, outcome.batches))
    _check_reads(log, [batch for batch in stored if batch.next_offset > log.log_start_offset], chance, look_ups_max)
    Follows(log, outcome).check()


def _check_segment(
    segment: Segment, batches: list[TwinBatch], next_offset: int, interval_bytes: int, files: FileSystem
) -> None:
    assert segment.next_offset == next_offset
    expected = b"".join(batch.data for batch in batches)
    assert files.read(segment.path) == expected, f"{segment.path} has other bytes than were appended"
    assert segment.size_bytes == len(expected)
    offsets, times = index_entries(batches, segment.base_offset, interval_bytes)
    found = [segment.offsets[number] for number in range(segment.offsets.count)]
    assert found == offsets, f"{segment.offsets.path} is not what a rebuild gives"
    found = [segment.times[number] for number in range(segment.times.count)]
    # A clean close adds the latest timestamp; so there may be more than a rebuild gives, but nothing wrong.
    _, possible = index_entries(batches, segment.base_offset, -1)
    assert found == sorted(found), f"{segment.times.path} is not in order: {found}"
    assert set(times) <= set(found) <= set(possible), f"{segment.times.path} has {found}, not {times} or {possible}"


def _check_names(log: PartitionLog, files: FileSystem) -> None:
    """Nothing is left lying around but what was cut off."""
    wanted = {EPOCHS_NAME, METADATA_NAME, snapshot_name(log.log_end_offset), NOTE_NAME}
    for segment in log._segments:
        wanted |= {segment.path.with_suffix(suffix).name for suffix in SUFFIXES}
        wanted.add(snapshot_name(segment.base_offset))
    strange = {name for name in files.sizes_in(log.directory) if ".log.cut-" not in name} - wanted
    assert not strange, f"{log.directory} has {sorted(strange)}"


def _check_reads(log: PartitionLog, batches: list[TwinBatch], chance: Random, look_ups_max: int) -> None:
    start, end = log.log_start_offset, log.log_end_offset
    bytes_max = chance.choice(READ_BYTES)
    passable = _passable(log, batches)
    found_batches: list[bytes] = []
    offset = start
    while (part := log.read(offset, bytes_max)) is not None:
        piece = part.file.read_at(part.position, part.length)
        assert len(piece) == part.length
        headers = [header for _, header in walk(piece)]
        assert sum(header.size_bytes for header in headers) == part.length, "a read ends in the middle of a batch"
        assert part.length <= bytes_max or len(headers) == 1
        offset = headers[-1].next_offset
        found_batches += [piece[position : position + header.size_bytes] for position, header in walk(piece)]
    assert offset == end
    assert [data for data in found_batches if data not in passable] == [
        batch.data for batch in batches if batch.data not in passable
    ]
    for offset in sorted(chance.sample(range(start, end), min(look_ups_max, end - start))):
        part = log.read(offset, 1)
        assert part is not None
        found = read_header(part.file.read_at(part.position, part.length))
        behind = [batch for batch in batches if batch.next_offset > offset]
        expected = next((batch for batch in behind if batch.data not in passable), behind[-1])
        assert (found, part.length) == (expected.header, len(expected.data)), f"offset {offset}"
    times = [time for batch in batches for time in batch.times if time[0] != NO_TIMESTAMP]
    for timestamp_ms, _ in chance.sample(times, min(look_ups_max, len(times))):
        asked_ms = timestamp_ms + chance.choice((-1, 0, 1))
        assert log.offset_at_time(asked_ms) == first_at_time(batches, start, asked_ms), f"time {asked_ms}"
    if not batches or batches[0].base_offset >= start:
        assert log.offset_of_max_timestamp() == latest(batches, start)


def _passable(log: PartitionLog, batches: list[TwinBatch]) -> set[bytes]:
    """The empty batches that segments end with: a read goes on behind them, as long as anything is there."""
    ends = {segment.next_offset for segment in log._segments}
    return {batch.data for batch in batches if len(batch.data) == HEADER_BYTES and batch.next_offset in ends}


class Follows:
    """Producers, transactions and epochs are those of the batches that are there. Of batches that were deleted at the
    front or compacted something may be remembered: as it was, or as a replay from some later batch on would have it,
    or of a log whose first segments alone had not been compacted yet."""

    def __init__(self, log: PartitionLog, outcome: Outcome) -> None:
        self._log = log
        self._outcome = outcome
        self._compacted = outcome.batches != outcome.past
        self._history = _history(log, outcome.batches)
        self._past = _history(log, outcome.past)

    def check(self) -> None:
        if not self._fits([self._past]):
            self._check_what_fits(list(self._histories()))

    def _histories(self) -> Iterator[list[TwinBatch]]:
        first = self._log._segments[0].base_offset
        splits = [segment.base_offset for segment in self._log._segments] if self._compacted else []
        for split in (*splits, self._log.log_end_offset):
            before = [batch for batch in self._past if batch.base_offset < split]
            mixed = before + [batch for batch in self._history if batch.base_offset >= split]
            for number in range(sum(batch.base_offset < first for batch in mixed) + 1):
                yield mixed[number:]
        yield _stored(self._log, self._history)  # the last one: that much must be known

    def _fits(self, histories: list[list[TwinBatch]]) -> bool:
        """The usual case, without the message."""
        try:
            self._check_what_fits(histories)
        except AssertionError:
            return False
        return True

    def _check_what_fits(self, histories: list[list[TwinBatch]]) -> None:
        start, end = self._log.log_start_offset, self._log.log_end_offset
        replays = [replay(history) for history in histories]
        least = replays[-1]
        views = {view.producer_id: self._essence(view) for view in self._log.producers.views()}
        for producer_id in least.producers.keys() | views.keys():
            allowed = [self._essence(past.producers.get(producer_id)) for past in replays]
            found = views.get(producer_id)
            assert found in allowed, f"producer {producer_id}: {found} is none of {allowed}"
        stable = [max(start, end if past.open_since is None else past.open_since) for past in replays]
        found_stable = self._log.last_stable_offset
        assert found_stable in stable, f"the last stable offset is {found_stable}, not in {stable}"

        def touching(entries: list[AbortedTransaction]) -> set[AbortedTransaction]:
            return {entry for entry in entries if entry.last_offset >= start and entry.first_offset < end}

        aborted = self._log.aborted_transactions(start, end)
        possible = {entry for past in replays for entry in touching(past.aborted)}
        needed = {entry.last_offset for entry in touching(least.aborted)}
        assert len(aborted) == len({entry.last_offset for entry in aborted})
        assert set(aborted) <= possible, f"aborted: {aborted}, and may be {sorted(possible)}"
        assert needed <= {entry.last_offset for entry in aborted}, f"aborted: {aborted}, without some of {needed}"
        found_epochs = self._log.epochs.entries
        if start == end and all(entry.start_offset == start for entry in found_epochs):
            return  # none, or one of batches that are deleted or lost: whoever writes next overrules it
        epochs = [epochs_of(history, start) for history in histories]
        assert found_epochs in epochs, f"{found_epochs} is none of {epochs}"

    def _essence(self, view: ProducerView | None) -> ProducerView | None:
        """Compaction takes away when a producer last wrote, and who ended its transactions."""
        if view is None or not self._compacted:
            return view
        return view._replace(last_timestamp_ms=NO_TIMESTAMP, coordinator_epoch=-1)


def check_it_goes_on(log: PartitionLog, now_ms: int, chance: Random) -> None:
    """Appends come behind what is there, and producers go on where they were."""
    views = [view for view in log.producers.views() if view.last_sequence >= 0]
    records = [Record(number, now_ms, b"k", b"after the crash") for number in range(2)]
    end = log.log_end_offset
    latest_epoch = log.epochs.latest
    epoch = 0 if latest_epoch is None else latest_epoch.epoch
    if views and chance.random() < 0.5:
        view = chance.choice(views)

        def batch(sequence: int) -> bytearray:
            return encode_batch(
                records,
                attributes=TRANSACTIONAL if view.transaction_start >= 0 else 0,
                producer_id=view.producer_id,
                producer_epoch=view.epoch,
                base_sequence=sequence,
            )

        with pytest.raises(OutOfOrderSequence):
            log.append(batch(view.last_sequence + 2), epoch)
        assert log.append(batch(view.last_sequence + 1), epoch).base_offset == end
        again = log.append(batch(view.last_sequence + 1), epoch)
        assert (again.base_offset, again.duplicate) == (end, True)
    else:
        assert log.append(encode_batch(records), epoch).base_offset == end
    part = log.read(end, 1 << 20)
    assert part is not None
    header = read_header(part.file.read_at(part.position, part.length))
    assert (header.base_offset, header.magic, log.log_end_offset) == (end, MAGIC, end + 2)
