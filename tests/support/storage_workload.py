"""A random life of a few partitions under one log manager, by seed, with a twin of each that knows what was promised.

Every step first tells the twins what is under way, then does it, then tells them that it is done: at any moment the
twins know what a crash may leave. Some lives end in a crash, at any operation, also in the middle of a recovery; the
next one goes on from what it left."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from pylog.storage.batch import NO_TIMESTAMP, TRANSACTIONAL, read_header
from pylog.storage.compaction import CleanedGroup, CleaningPlan, CleaningResult
from pylog.storage.data_directory import Key
from pylog.storage.errors import LogClosed
from pylog.storage.kernels.cleaner import clean
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.manager import LogManager
from pylog.storage.producers import NO_OFFSET
from pylog.storage.records import Record, encode_batch
from pylog.storage.retention import start_after_retention
from pylog.storage.segment import LOG_SUFFIX
from pylog.storage.swap import CLEANED, file_of
from pylog.storage.transactions import Marker, encode_marker
from tests.support.clock import SettableClock
from tests.support.simulated_files import Crashed, SimulatedFiles
from tests.support.storage_checks import check_log, outcome_of
from tests.support.storage_twin import Compacted, Twin, batches_in, latest_by_key

ROOT = Path("/sim")
STEPS = 26
PRODUCERS = (7, 8, 9)
BATCHES_AN_APPEND_MAX = 3
RECORDS_A_BATCH_MAX = 4
VALUE_BYTES_MAX = 60
CRASH_AHEAD_MAX = 60  # operations
NEXT_CRASH_CHANCE = 0.7
MEANWHILE_CHANCE = 0.3
ALL_TOPICS_CHANCE = 0.3


class Cleaner:
    """In this process, on simulated files."""

    def __init__(self, plan: CleaningPlan, files: SimulatedFiles) -> None:
        self._plan = plan
        self._files = files

    def wait(self) -> CleaningResult:
        return clean(self._plan, self._files)

    def stop(self) -> None:
        raise NotImplementedError


class Workload:
    def __init__(self, seed: int, before_operation: "Callable[[Workload], None] | None" = None) -> None:
        self.seed = seed
        self.steps = STEPS
        self.chance = Random(seed)
        self.clock = SettableClock()
        self.before_operation = before_operation
        self.operations = 0  # of all lives
        self.story: list[str] = []
        self.directories = [ROOT / "a", ROOT / "b"][: self.chance.choice((1, 1, 2))]
        self.twins: dict[Key, Twin] = {}
        for number in range(self.chance.choice((1, 2, 2, 3))):
            self.twins["t", number] = self._new_twin()
        self._waiting_for_disk = False
        self._open_files_max = self.chance.choice((1, 3, 100))
        self._live(SimulatedFiles(self.clock, seed=seed, root=ROOT))

    # -- lives

    def _live(self, files: SimulatedFiles) -> None:
        self.files = files
        files.before_operation = self._operation
        if self.chance.random() < NEXT_CRASH_CHANCE:
            files.crash_at = self.chance.randint(1, CRASH_AHEAD_MAX)

    def _operation(self) -> None:
        self.operations += 1
        if self.before_operation is not None:
            self.before_operation(self)
        if self._waiting_for_disk and self.files.operation == "sync" and self.chance.random() < MEANWHILE_CHANCE:
            self._waiting_for_disk = False
            self._meanwhile(list(self.twins))
            self._waiting_for_disk = True

    @contextmanager
    def _in_another_thread(self) -> Iterator[None]:
        """While that one waits for a sync, the owner of the logs goes on."""
        self._waiting_for_disk = True
        try:
            yield
        finally:
            self._waiting_for_disk = False

    def run(self) -> None:
        left = self.steps
        running = False
        while left:
            try:
                if not running:
                    self._start()
                    running = True
                while left:
                    left -= 1
                    self._step()
            except Crashed:
                running = False
                self._crash()

    def _crash(self) -> None:
        machine = self.chance.random() < 0.5
        self.story.append(f"-- {'machine' if machine else 'process'} crashed at operation {self.operations}")
        for twin in self.twins.values():
            twin.machine_crashed = twin.machine_crashed or machine
        if machine:
            files = self.files.after_machine_crash(self.chance.choice((None, self.chance.getrandbits(32))))
        else:
            files = self.files.after_process_crash()
        self._live(files)

    def _start(self) -> None:
        self.story.append("start")
        self.manager = self.opened(self.files, self.clock)
        for key, twin in self.twins.items():
            log = self.manager.open(*key, twin.topic_id, twin.config)
            outcome = outcome_of(log, twin, self.files, machine=False)
            check_log(log, outcome, self.files, self.chance)
            twin.found(outcome, log.log_end_offset)

    def opened(self, files: SimulatedFiles, clock: SettableClock) -> LogManager:
        return LogManager(
            self.directories,
            LogConfig(),
            files=files,
            clock=clock,
            open_files_max=self._open_files_max,
            start_cleaner=lambda plan: Cleaner(plan, files),
            dedupe_buffer_bytes=1 << 16,
        )

    # -- steps

    def _step(self) -> None:
        key = self._pick()
        steps: dict[Callable[[Key], None], int] = {
            self._append: 50,
            self._append_again: 3,
            self._flush: 10,
            self._flush_due: 4,
            self._checkpoint: 7,
            self._roll: 4,
            self._delete_records: 5,
            self._retain: 6,
            self._truncate: 6,
            self._truncate_fully: 2,
            self._compact: 6,
            self._reopen: 4,
            self._delete_topic: 4,
        }
        step = self.chance.choices(list(steps), list(steps.values()))[0]
        self.story.append(f"{step.__name__.strip('_')} {key[0]}-{key[1]}")
        step(key)

    def _pick(self) -> Key:
        return self.chance.choice(self._usable())

    def _usable(self) -> list[Key]:
        return list(self.twins)

    def _log(self, key: Key) -> PartitionLog:
        log = self.manager.get(*key)
        assert log is not None
        return log

    def _note(self, text: object) -> None:
        self.story[-1] += f": {text}"

    def _append(self, key: Key) -> None:
        log, twin = self._log(key), self.twins[key]
        latest = log.epochs.latest
        leader_epoch = (0 if latest is None else latest.epoch) + (self.chance.random() < 0.1)
        twin.appending = self._batches(log)
        self._note(f"{len(twin.appending)} bytes at {twin.end}, epoch {leader_epoch}")
        appended = log.append(twin.appending, leader_epoch)
        assert appended.base_offset == twin.end
        twin.appended()
        if self.chance.random() < 0.8:
            log.advance_high_watermark(log.log_end_offset)

    def _append_again(self, key: Key) -> None:
        """A producer that did not hear of its last batch sends it again."""
        log, twin = self._log(key), self.twins[key]
        for batch in reversed(twin.past):
            view = log.producers.view(batch.header.producer_id)
            if view and not batch.header.is_control and view.last_data_offset == batch.header.last_offset:
                again = log.append(bytearray(batch.data), 0)
                assert (again.base_offset, again.duplicate) == (batch.base_offset, True)
                return

    def _batches(self, log: PartitionLog) -> bytearray:
        chance = self.chance
        producer_id = chance.choice(PRODUCERS) if chance.random() < 0.6 else -1
        view = log.producers.view(producer_id)
        epoch, sequence, in_transaction = (-1, -1, False) if producer_id < 0 else (0, 0, False)
        if view is not None:
            epoch, sequence, in_transaction = view.epoch, view.last_sequence + 1, view.transaction_start != NO_OFFSET
        if in_transaction and chance.random() < 0.5:
            return encode_marker(producer_id, epoch, Marker(chance.random() < 0.5, 0), self.clock.now_ms())
        if view is not None and not in_transaction and chance.random() < 0.1:
            epoch, sequence = epoch + 1, 0
        transactional = in_transaction or (producer_id >= 0 and chance.random() < 0.5)
        data = bytearray()
        for _ in range(chance.randint(1, BATCHES_AN_APPEND_MAX)):
            batch = self._batch(TRANSACTIONAL if transactional else 0, producer_id, epoch, sequence)
            if len(data) + len(batch) > log.config.segment_bytes:
                break
            if producer_id >= 0:
                sequence += read_header(batch).record_count
            data += batch
        return data

    def _batch(
        self, attributes: int = 0, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1
    ) -> bytearray:
        chance = self.chance
        self.clock.advance(chance.randint(0, 20))
        first_ms = self.clock.now_ms() - chance.choice((0, 0, chance.randint(0, 100)))
        if producer_id < 0 and chance.random() < 0.05:
            first_ms = NO_TIMESTAMP
        records = [
            Record(
                number,
                first_ms + (chance.randint(0, 5) if number and first_ms != NO_TIMESTAMP else 0),
                b"key-%d" % chance.randrange(4),
                None if chance.random() < 0.1 else chance.randbytes(chance.randint(0, VALUE_BYTES_MAX)),
            )
            for number in range(chance.randint(1, RECORDS_A_BATCH_MAX))
        ]
        return encode_batch(
            records,
            codec=chance.choice((0, 0, 0, 1, 2, 3, 4)),
            attributes=attributes,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )

    def _flush(self, key: Key) -> None:
        end = self.twins[key].end
        with self._in_another_thread():
            self._log(key).flush()
        self.twins[key].flushed_up_to(end)

    def _flush_due(self, _: Key) -> None:
        """As the broker's thread does it."""
        keys = {log: key for key, log in self.manager.items()}
        for log in self.manager.logs_to_flush():
            self._flush(keys[log])

    def _checkpoint(self, _: Key) -> None:
        with self._in_another_thread():
            self.manager.checkpoint()

    def _roll(self, key: Key) -> None:
        self._log(key).roll()

    # -- deleting

    def _delete_records(self, key: Key) -> None:
        log, twin = self._log(key), self.twins[key]
        twin.starting_at = self.chance.randint(twin.start, log.high_watermark)
        self._note(twin.starting_at)
        self.manager.delete_records(*key, twin.starting_at)
        twin.started()

    def _retain(self, _: Key) -> None:
        """In its steps, with others in between: they run in two threads."""
        self.clock.advance(self.chance.choice((0, 300, 2_000)))
        for key, log in self.manager.items():
            if log.failure is not None:
                continue
            start = start_after_retention(log.segments(), log.high_watermark, self.clock.now_ms(), log.config)
            if start is not None and start > log.log_start_offset:
                self.twins[key].starting_at = start
        moved = self.manager.expire()
        starting = [key for key, twin in self.twins.items() if twin.starting_at is not None]
        assert set(moved) >= set(starting)  # and those that have segments to delete from earlier
        self._note(moved)
        if moved:
            with self._in_another_thread():
                self.manager.store_starts()
            for key in starting:
                self.twins[key].started()
            self._in_between(moved)
            doomed = self.manager.detach(moved)
            self._in_between(moved, self._truncate, self._truncate_fully, self._delete_topic)
            with self._in_another_thread():
                self.manager.bury(doomed)
        self.manager.remove_buried()

    def _in_between(self, keys: Sequence[Key], *more: Callable[[Key], None]) -> None:
        """What comes between two steps of something longer, mostly to these logs."""
        if self.chance.random() < MEANWHILE_CHANCE:
            self._meanwhile([*keys, *keys, *self.twins], self._flush, *more)

    def _meanwhile(self, keys: Sequence[Key], *more: Callable[[Key], None]) -> None:
        step = self.chance.choice((self._append, self._roll, *more))
        key = self.chance.choice(keys)
        self._note(f"meanwhile {step.__name__.strip('_')} {key[0]}-{key[1]}")
        step(key)

    def _compact(self, _: Key) -> None:
        job = self.manager.next_compaction()
        if job is None:
            return
        (key,) = [key for key, log in self.manager.items() if log is job.log]
        twin = self.twins[key]
        self._note(f"{key[0]}-{key[1]} from {job.plan.first_dirty_offset} to {job.plan.end_offset}")
        job.clean()
        assert job.result is not None
        compacted = [self._compacted(job.plan, group) for group in job.result.groups]
        shape = job.log.shape
        self._in_between([key], self._truncate, self._truncate_fully, self._delete_topic, self._retain)
        if self.manager.get(*key) is not job.log:
            with pytest.raises(LogClosed):
                job.begin()
            return
        if not job.begin():
            assert job.log.shape != shape
            return
        self._in_between([key])
        twin.compacting = compacted
        old, new = (outcome.batches for outcome in twin.outcomes(machine=False)[:: len(compacted)])
        assert latest_by_key(new) == latest_by_key(old)
        with self._in_another_thread():
            in_place = job.put_in_place()
        if in_place:
            twin.compacted()
        else:
            twin.compacting = []  # no room for it just now
        self._in_between([key])
        job.finish()
        self._note("done")

    def _compacted(self, plan: CleaningPlan, group: CleanedGroup) -> Compacted:
        data = self.files.read(file_of(plan.directory, group.base_offset, LOG_SUFFIX + CLEANED))
        assert data is not None
        following = [base for base, _ in plan.segments if base > group.old_base_offsets[-1]]
        return Compacted(group.base_offset, min(following, default=plan.end_offset), batches_in(data))

    def _truncate(self, key: Key) -> None:
        log, twin = self._log(key), self.twins[key]
        offset = self.chance.randint(max(log.segments()[0].base_offset - 1, 0), twin.end)
        if offset <= log.segments()[0].base_offset and offset < twin.end:
            twin.emptying_at = offset
        else:
            ends = (batch.next_offset for batch in twin.batches if batch.next_offset <= offset)
            twin.truncating_to = max(ends, default=twin.origin)
        self._note(offset)
        self.manager.truncate_to(*key, offset)
        if twin.emptying_at is not None:
            twin.emptied()
        else:
            twin.truncated()

    def _truncate_fully(self, key: Key) -> None:
        twin = self.twins[key]
        twin.emptying_at = max(0, self.chance.choice((twin.start, twin.end)) + self.chance.randint(-5, 5))
        self._note(twin.emptying_at)
        self.manager.truncate_fully_and_start_at(*key, twin.emptying_at)
        twin.emptied()

    def _delete_topic(self, key: Key) -> None:
        """Or all of them at once; and others of the same names come."""
        keys = self._usable() if self.chance.random() < ALL_TOPICS_CHANCE else [key]
        for key in keys:
            self.twins[key].deleting = True
        self._note(keys)
        self.manager.delete_all(keys)
        for key in keys:
            self.twins[key] = self._new_twin()
        for key in keys:
            twin = self.twins[key]
            self.manager.open(*key, twin.topic_id, twin.config)

    def _reopen(self, _: Key) -> None:
        self.manager.close()
        for twin in self.twins.values():
            twin.flushed_up_to(twin.end)
        self._start()

    def _new_twin(self) -> Twin:
        chance = self.chance
        compact = chance.random() < 0.4
        config = LogConfig(
            segment_bytes=chance.choice((700, 1200, 2500)),
            index_interval_bytes=chance.choice((1, 150, 400)),
            log_append_time=chance.random() < 0.3,
            retention_ms=chance.choice((1_000, 10_000)),
            retention_bytes=chance.choice((-1, 1_500)),
            file_delete_delay_ms=chance.choice((0, 500)),
            producer_expiration_ms=10**9,
            delete=not compact or chance.random() < 0.3,
            compact=compact,
            dirty_ratio_min=0.0,
            delete_retention_ms=chance.choice((0, 200)),
            flush_ms=chance.choice((0, 100)),
        )
        return Twin(UUID(int=chance.getrandbits(128)), config)
