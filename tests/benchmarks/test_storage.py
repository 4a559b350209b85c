"""The storage part: its turns, the logs it makes, what it reads from Kafka, and that its data directory stays sound."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import storage_compaction, storage_lookup, storage_partitions
from benchmarks.harness import Case, Figures, Measure, Options, measure
from benchmarks.storage_logs import FIRST_MS, batch_of, make_log, shown_bytes
from benchmarks.storage_turns import in_turns
from pylog.storage.batch import check
from pylog.storage.data_directory import MARKER_NAME
from pylog.storage.disk import DISK
from pylog.storage.kernels.cleaner import clean
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.records import decode_batch

SPEED = Measure("rows/s")


def player(name: str, values: list[float], ran: list[str]) -> Callable[[], Figures]:
    left = iter(values)

    def run() -> Figures:
        ran.append(name)
        return {SPEED.name: next(left)}

    return run


def test_within_a_round_contenders_take_turns_and_neither_is_always_the_first() -> None:
    ran: list[str] = []
    contenders = in_turns({name: player(name, [1.0] * 4, ran) for name in "AB"}, turns=4)
    assert [contender.name for contender in contenders] == ["A", "B"]
    for contender in contenders:
        contender.run()
    assert ran == ["A", "B", "B", "A"] * 2


def test_the_median_of_the_turns_counts() -> None:
    runs = {"A": player("A", [3.0, 1.0, 900.0], []), "B": player("B", [7.0, 5.0, 6.0], [])}
    assert [contender.run() for contender in in_turns(runs, turns=3)] == [{SPEED.name: 3.0}, {SPEED.name: 6.0}]


def test_turns_that_fail_are_reported_of_all_and_last_rounds_figures_are_not_taken_for_new() -> None:
    runs = {"A": player("A", [1.0] * 2, []), "B": player("B", [1.0] * 2, [])}
    result = measure([Case("case", in_turns(runs, turns=2), [SPEED])], rounds=1)[0]
    assert {name: [what.partition(":")[0] for what in all_of] for name, all_of in result.failures.items()} == {
        "A": ["round 1"],
        "B": ["round 1"],
    }


@pytest.mark.parametrize("size_bytes", [200, 1_024, 16_384, 16_500, 1_048_576])
def test_a_batch_has_exactly_the_size_that_was_asked_for(size_bytes: int) -> None:
    made = batch_of(size_bytes)
    assert len(made) == check(made).size_bytes == size_bytes
    assert [record.offset for record in decode_batch(made)] == list(range(check(made).record_count))


@pytest.mark.parametrize("batch_bytes", [1_024, 16_384])
def test_offsets_and_times_of_a_made_log_say_where_a_record_is(tmp_path: Path, batch_bytes: int) -> None:
    make_log(tmp_path / "log", 3_000_000, batch_bytes)
    log = PartitionLog(tmp_path / "log", LogConfig())
    assert 3_000_000 <= log.size_bytes < 3_000_000 + (1 << 20)
    for offset in (0, 1, log.log_end_offset // 2, log.log_end_offset - 1):
        assert log.offset_at_time(FIRST_MS + offset) == (FIRST_MS + offset, offset)
    assert storage_lookup.by_offset(log).keys() == storage_lookup.by_time(log).keys()


@pytest.mark.parametrize(
    ("size_bytes", "shown"), [(999, "999 B"), (10_000_000, "10 MB"), (2_500_000, "2.5 MB"), (8_000_000_000, "8 GB")]
)
def test_sizes_are_shown_in_round_units(size_bytes: int, shown: str) -> None:
    assert shown_bytes(size_bytes) == shown


def test_a_log_for_which_there_is_no_room_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=20_000_000))
    skipped: list[str] = []
    made = storage_lookup.cases(tmp_path, Options(1, scale=0.01), skipped)  # 100 KB, 10 MB, 80 MB
    assert [case.name for case in made] == ["look-up by offset, 10 MB", "look-up by time, 10 MB"]
    assert skipped == ["look-ups in a log of 80 MB: 100 MB of disk are needed, and 20 MB are free"]


SERVER_LOG = """\
... INFO Cleaner 0: Beginning cleaning of log first-0-0
... INFO [kafka-log-cleaner-thread-0]:
\tLog cleaner thread 0 cleaned log first-0-0 (dirty section = [0, 51200])
\t6.2 MB of log processed in 0.4 seconds (13.9 MB/sec).
\tIndexed 6.2 MB in 0.1 seconds (53.5 Mb/sec, 26.0% of total time)
\tBuffer utilization: 0.5%
\tCleaned 6.2 MB in 0.3 seconds (18.8 Mb/sec, 74.0% of total time)
\tStart size: 6.2 MB (51,200 messages)
\tEnd size: 3.1 MB (25,546 messages)
\t49.9% size reduction (50.1% fewer messages)

\tLog cleaner thread 0 cleaned log second-1-0 (dirty section = [0, 9])
\t1,006.2 MB of log processed in 1,000.4 seconds (13.9 MB/sec).
"""


def test_kafkas_log_tells_how_long_its_cleaner_took_and_what_it_left() -> None:
    assert storage_compaction.runs_in(SERVER_LOG) == {"first-0": (0.4, 25_546)}


@pytest.mark.parametrize("codec", storage_compaction.CODECS.values(), ids=storage_compaction.CODECS)
def test_about_half_of_a_log_to_compact_is_garbage_and_lies_everywhere(tmp_path: Path, codec: int) -> None:
    data = storage_compaction.make_log(tmp_path / "log", 2_000_000, 100, codec)
    result = clean(data.plan)
    assert (result.records_before, result.records_after) == (20_000, data.key_count)
    assert 0.48 < data.key_count / 20_000 < 0.52
    assert data.size_bytes == result.bytes_before


def test_kafka_gets_segments_that_our_own_log_keeps(tmp_path: Path) -> None:
    plan = storage_compaction.make_log(tmp_path / "ours", 100_000, 100, 0).plan
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "partition.metadata").write_text("Kafka's own")
    (theirs / "00000000000000000000.index").write_bytes(bytes(80))
    storage_compaction.give_segments(plan.directory, theirs)
    assert {path.name for path in theirs.iterdir()} == {*os.listdir(plan.directory), "partition.metadata"}
    assert (theirs / "partition.metadata").read_text() == "Kafka's own"
    for path in plan.directory.iterdir():
        assert (theirs / path.name).read_bytes() == path.read_bytes()
        sealed = path.suffix == ".log" and path.stat().st_size > 0
        assert path.samefile(theirs / path.name) == sealed  # what Kafka may write to is a copy


def test_a_data_directory_is_clean_after_every_contender(tmp_path: Path) -> None:
    appended = []
    with storage_partitions.cases(tmp_path, Options(1, scale=0.0005)) as (unchanged, written):
        for contender in (*unchanged.contenders, *written.contenders):
            figures = contender.run()
            assert min(figures.values()) >= 0
            assert DISK.size_of(tmp_path / "data" / MARKER_NAME) is not None
            log = PartitionLog(tmp_path / "data" / f"{storage_partitions.TOPIC}-1", LogConfig())
            appended.append(log.log_end_offset - storage_partitions.BATCHES_BEFORE)
    assert appended == [0, 0, 2, 2]  # one batch before the crash, and one after it
    assert not list((tmp_path / "data").glob("*-*/"))
