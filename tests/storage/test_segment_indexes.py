"""Indexes that are damaged cost a scan and never an answer: found when the log is opened, or when they are used."""

import errno
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from pylog.storage.errors import CorruptBatch
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.ports import NOT_WAITING, WouldWait
from pylog.storage.records import decode_batch
from pylog.storage.recovery import CLEAN, UNCLEAN, Trust
from tests.support.logs import START_MS, batch_of, bytes_of, committed, log_in, records_in, reopened
from tests.support.simulated_files import SimulatedFiles, SimulatedLogFile

pytestmark = pytest.mark.faults

SIZES = [5, 40, 0, 90, 17]  # of values: batches of many sizes
TIMES = [0, 9, 4, 4, 30, 12, 31, 31, 50, 2]  # up and down, some of them twice


def _filled(
    appends: int = 40, name: str = "log", times: list[int] | None = None
) -> tuple[SimulatedFiles, PartitionLog]:
    """Several segments with a good many entries each; closed."""
    files = SimulatedFiles()
    log = log_in(files.root / name, LogConfig(segment_bytes=1500, index_interval_bytes=150), files=files)
    times = times or TIMES
    for number in range(appends):
        timestamp_ms = START_MS + 20 * (number // len(times)) + times[number % len(times)]
        committed(log, batch_of(number % 3 + 1, timestamp_ms=timestamp_ms, value=bytes(SIZES[number % len(SIZES)])), 1)
    log.close()
    return files, log


def _answers(log: PartitionLog) -> list[object]:
    """Every look-up that there is; what is asked first meets the index as it was found."""
    views = log.segments()
    latest = log.offset_of_max_timestamp()
    known = {record.timestamp_ms for record in records_in(log)}
    times = [log.offset_at_time(timestamp_ms) for timestamp_ms in sorted(known | {known_ms + 1 for known_ms in known})]
    places: list[tuple[str, int, int] | None] = []
    for offset in range(log.log_end_offset):
        for bytes_max in (1, 400):
            part = log.read(offset, bytes_max)
            places.append(part and (part.file.path.name, part.position, part.length))
    return [times, places, latest, views]


def _index_files(files: SimulatedFiles, log: PartitionLog) -> list[Path]:
    return [log.directory / name for name in sorted(files.sizes_in(log.directory)) if name.endswith("index")]


# -- found at the start


def _remove(files: SimulatedFiles, path: Path) -> None:
    files.remove(path)


def _with(change: Callable[[bytes], bytes]) -> Callable[[SimulatedFiles, Path], None]:
    def damage(files: SimulatedFiles, path: Path) -> None:
        files.replace(path, change(files.read(path) or b""), durable=True)

    return damage


DAMAGE: dict[str, Callable[[SimulatedFiles, Path], None]] = {
    "gone": _remove,
    "empty": _with(lambda data: b""),
    "half": _with(lambda data: data[: len(data) // 2]),
    "less an entry": lambda files, path: _with(lambda data: data[: -(12 if "time" in path.name else 8)])(files, path),
    "zeros": _with(lambda data: bytes(len(data))),
    "zeros behind, as Kafka leaves an active one": _with(lambda data: data + bytes(2400)),
    "ones": _with(lambda data: b"\xff" * len(data)),
    "random": _with(lambda data: b"\x3a\x91\x07\x55" * (len(data) // 4)),
    "a byte too many": _with(lambda data: data + b"\x01"),
    "backwards": _with(lambda data: data[::-1]),
}


# Without a scan nobody can tell that a time index had one more maximum; nothing but a scan finds that.
FOUND = [(damage, ".index") for damage in DAMAGE]
FOUND += [(damage, ".timeindex") for damage in DAMAGE if damage != "less an entry"]
SCANNED = [*FOUND, ("less an entry", ".timeindex")]
ROWS = [(*row, 0) for row in SCANNED] + [(*row, 1 << 40) for row in FOUND]


@pytest.mark.parametrize("which", ["sealed", "last"])
@pytest.mark.parametrize(("damage", "suffix", "recovery_point"), ROWS)
def test_a_damaged_index_is_built_again_after_an_unclean_stop(
    damage: str, which: str, suffix: str, recovery_point: int
) -> None:
    files, log = _filled()
    expected = _answers(PartitionLog(log.directory, log.config, CLEAN, files=files.after_process_crash()))
    paths = [path for path in _index_files(files, log) if path.suffix == suffix]
    before = files.read(paths[0])
    DAMAGE[damage](files, paths[0] if which == "sealed" else paths[-1])
    point = min(recovery_point, log.log_end_offset)
    log = PartitionLog(log.directory, log.config, Trust(clean=False, recovery_point=point), files=files)
    assert _answers(log) == expected
    log = reopened(log, clean=True)
    assert files.read(paths[0]) == before
    assert _answers(log) == expected


@pytest.mark.parametrize("which", ["sealed", "last"])
@pytest.mark.parametrize(("damage", "suffix"), FOUND)
def test_a_damaged_index_gives_no_wrong_answer_after_a_clean_stop(damage: str, which: str, suffix: str) -> None:
    files, log = _filled()
    expected = _answers(PartitionLog(log.directory, log.config, CLEAN, files=files.after_process_crash()))
    paths = [path for path in _index_files(files, log) if path.suffix == suffix]
    DAMAGE[damage](files, paths[0] if which == "sealed" else paths[-1])
    assert _answers(PartitionLog(log.directory, log.config, CLEAN, files=files)) == expected


# -- found in use


def test_an_index_is_built_again_as_a_whole_also_for_who_must_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    files, log = _filled()
    path = next(path for path in _index_files(files, log) if path.suffix == ".index")
    before = files.read(path)
    _with(lambda data: data[:-1] + b"\x01")(files, path)  # the position of its last entry
    log = PartitionLog(log.directory, log.config, CLEAN, files=files)
    read_at = SimulatedLogFile.read_at

    def cold(file: SimulatedLogFile, position: int, length: int) -> bytes:
        if not NOT_WAITING.waits and length > 100:  # walks along the batches
            raise WouldWait(lambda: None)
        return read_at(file, position, length)

    monkeypatch.setattr(SimulatedLogFile, "read_at", cold)
    with NOT_WAITING, pytest.raises(WouldWait):
        log.read(log._segments[0].next_offset - 1, 1)
    assert files.read(path) == before


@pytest.mark.parametrize(
    ("times", "step"),
    [
        pytest.param(TIMES, 3, id="up and down"),
        pytest.param([0] * 10, 5, id="all equal"),
        pytest.param(list(range(10)), 5, id="growing"),
    ],
)
def test_a_bit_flipped_anywhere_in_an_index_gives_no_wrong_answer(
    times: list[int], step: int, caplog: pytest.LogCaptureFixture
) -> None:
    """One bit after the other, in every byte of every index; nothing is known but the files, as after a clean stop."""
    caplog.set_level(logging.CRITICAL)
    files, log = _filled(13, times=times)
    expected = _answers(PartitionLog(log.directory, log.config, CLEAN, files=files.after_process_crash()))
    flips = 0
    for path in _index_files(files, log):
        for bit in range(0, 8 * (files.size_of(path) or 0), step):
            flipped = files.after_process_crash()
            flipped.flip_bit(path, bit)
            damaged = PartitionLog(log.directory, log.config, CLEAN, files=flipped)
            assert _answers(damaged) == expected, f"bit {bit % 8} of byte {bit // 8} of {path.name}"
            flips += 1
    assert flips > 300 // step


def test_an_entry_that_points_into_a_record_is_found_out() -> None:
    """Where the record's bytes look like the front of a batch: right offset, right format, no length that can be."""
    files = SimulatedFiles()
    log = log_in(files.root, LogConfig(index_interval_bytes=0), files=files)
    value = bytes(16) + b"\x02" + bytes(40)
    for _ in range(4):
        committed(log, batch_of(1, value=value))
    log.close()
    expected = _answers(PartitionLog(log.directory, log.config, CLEAN, files=files.after_process_crash()))
    inside = (files.read(log.directory / f"{0:020d}.log") or b"").index(value, 2 * len(batch_of(1, value=value)))
    files.write_at(log.directory / f"{0:020d}.index", 8 + 4, inside.to_bytes(4, "big"))
    assert _answers(PartitionLog(log.directory, log.config, CLEAN, files=files)) == expected


def test_an_index_that_was_found_out_is_built_anew_and_said(caplog: pytest.LogCaptureFixture) -> None:
    files, log = _filled()
    path = log.directory / f"{0:020d}.index"
    before = files.read(path)
    files.flip_bit(path, 8 * 6 + 1)  # a position
    log = PartitionLog(log.directory, log.config, CLEAN, files=files)
    _answers(log)
    assert f"{path} does not agree with its log" in caplog.text
    assert files.read(path) == before
    caplog.clear()
    _answers(log)
    assert caplog.text == ""


def test_the_active_segment_heals_too_and_takes_appends() -> None:
    files, log = _filled()
    path = max(path for path in _index_files(files, log) if path.suffix == ".index")
    files.flip_bit(path, 8 * 6 + 1)
    log = PartitionLog(log.directory, log.config, CLEAN, files=files)
    for number in range(20):
        committed(log, batch_of(2, timestamp_ms=START_MS + 100 + number), 1)
    live = _answers(log)
    for clean in (True, False):
        log = reopened(log, clean=clean)
        assert _answers(log) == live


def test_a_log_that_is_damaged_itself_is_not_repaired_by_its_index() -> None:
    """The index is wrong and cannot be built anew: the error names the log, and its other batches stay readable."""
    files, log = _filled()
    name, index = (log.directory / f"{0:020d}{suffix}" for suffix in (".log", ".index"))
    size_bytes = files.size_of(index) or 0
    last_indexed = int.from_bytes(files.read_at(index, size_bytes - 8, 4), "big")
    files.write_at(index, size_bytes - 4, (7).to_bytes(4, "big"))  # no batch begins there
    first = len(batch_of(1, value=bytes(SIZES[0])))
    files.flip_bit(name, 8 * (first + 8))  # the length of the second batch
    log = PartitionLog(log.directory, log.config, CLEAN, files=files)
    bounds = log.size_bytes, log.log_end_offset
    for _ in range(2):
        with pytest.raises(CorruptBatch, match=f"{name}: the batch at byte {first} "):
            log.read(last_indexed, 1)
        assert (log.size_bytes, log.log_end_offset) == bounds
    assert log.read(0, 1) is not None
    assert log.read(log.segments()[-1].base_offset, 1) is not None


def test_the_latest_time_of_a_segment_whose_tail_is_damaged_is_what_its_index_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Retention has to go on; whoever reads the records will see."""
    files, log = _filled()
    expected = log_views = PartitionLog(log.directory, log.config, CLEAN, files=files.after_process_crash()).segments()
    index = log.directory / f"{0:020d}.index"
    position = int.from_bytes(files.read_at(index, (files.size_of(index) or 0) - 4, 4), "big")
    size_bytes = log_views[0].size_bytes
    following = position + 12 + int.from_bytes(files.read_at(log.directory / f"{0:020d}.log", position + 8, 4), "big")
    assert following < size_bytes
    files.flip_bit(log.directory / f"{0:020d}.log", 8 * (following + 8))
    log = PartitionLog(log.directory, log.config, CLEAN, files=files)
    assert log.segments() == expected
    assert "latest time is taken from its index" in caplog.text


# -- what a trusted index is


def test_after_an_unclean_stop_records_and_indexes_are_those_of_a_log_that_was_never_stopped() -> None:
    files, log = _filled()
    killed = PartitionLog(log.directory, log.config, UNCLEAN, files=files.after_process_crash())
    closed = PartitionLog(log.directory, log.config, CLEAN, files=files)
    assert records_in(killed) == records_in(closed)
    assert _answers(killed) == _answers(closed)


def test_a_batch_whose_format_byte_is_damaged_does_not_send_the_index_round_in_circles() -> None:
    """The index is right and does not seem so, however often it is built anew. The batch's reader finds it out."""
    files, log = _filled()
    index = files.read(log.directory / f"{0:020d}.index") or b""
    position = int.from_bytes(index[4:8], "big")
    files.flip_bit(log.directory / f"{0:020d}.log", 8 * (position + 16))
    log = PartitionLog(log.directory, log.config, CLEAN, files=files)
    offset = int.from_bytes(index[:4], "big")
    part = log.read(offset, 1)
    assert part is not None
    assert part.position == position


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_bad_sector_under_an_index_costs_a_scan_and_no_answer(suffix: str, caplog: pytest.LogCaptureFixture) -> None:
    files, log = _filled()
    expected = _answers(PartitionLog(log.directory, log.config, CLEAN, files=files.after_process_crash()))
    log = PartitionLog(log.directory, log.config, CLEAN, files=files)
    files.fail("read_at", errno.EIO, path=f"*{0:020d}{suffix}", times=1)
    assert _answers(log) == expected
    assert log.failure is None
    assert "Input/output error" in caplog.text


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_is_cut_while_it_is_in_use_costs_a_scan_and_no_answer(suffix: str) -> None:
    files, log = _filled()
    expected = _answers(PartitionLog(log.directory, log.config, CLEAN, files=files.after_process_crash()))
    log = PartitionLog(log.directory, log.config, CLEAN, files=files)
    files.truncate(log.directory / f"{0:020d}{suffix}", 5)
    assert _answers(log) == expected


# -- the log is damaged where no CRC looks: the first offset of a batch


def _with_first_offset_flipped(bit: int) -> tuple[SimulatedFiles, PartitionLog, Path, int]:
    """The last batch of the second segment; (files, log, the segment's file, that batch's position)."""
    files = SimulatedFiles()
    one = len(batch_of(1))
    log = log_in(files.root, LogConfig(segment_bytes=9 * one, index_interval_bytes=0), files=files)
    for number in range(30):
        committed(log, batch_of(1, timestamp_ms=START_MS + number))
    log.close()
    path = log.directory / f"{9:020d}.log"
    files.flip_bit(path, 8 * 8 * one + bit)
    return files, PartitionLog(log.directory, log.config, CLEAN, files=files), path, 8 * one


@pytest.mark.parametrize("bit", [pytest.param(8 + 3, id="high"), pytest.param(56 + 1, id="low")])
@pytest.mark.parametrize("first", ["times", "offsets"])
def test_a_batch_that_says_another_offset_is_told_and_nothing_is_skipped(bit: int, first: str) -> None:
    _, log, path, position = _with_first_offset_flipped(bit)
    bounds = log.size_bytes, log.log_end_offset
    if first == "times":
        assert log.segments()[1].max_timestamp_ms == START_MS + 17
    for _ in range(2):
        for offset in (17, 16, 18):
            if offset == 17:
                with pytest.raises(CorruptBatch, match=rf"{path}: the batch at byte {position} .*17 can be"):
                    log.read(offset, 1)
            else:
                part = log.read(offset, 1)
                assert part is not None
                assert [record.offset for record in decode_batch(bytes_of(part))] == [offset]
        assert (log.size_bytes, log.log_end_offset) == bounds


def test_a_log_that_cannot_be_read_while_its_index_is_built_anew_does_not_seem_to_end_there() -> None:
    files, log = _filled()
    expected = _answers(PartitionLog(log.directory, log.config, CLEAN, files=files.after_process_crash()))
    index = log.directory / f"{0:020d}.index"
    log = PartitionLog(log.directory, log.config, CLEAN, files=files)
    last = log.segments()[1].base_offset - 1
    bounds = log.segments()
    files.write_at(index, (files.size_of(index) or 0) - 4, (7).to_bytes(4, "big"))  # no batch begins there
    log = PartitionLog(log.directory, log.config, CLEAN, files=files)
    files.fail("read_at", errno.EMFILE, path="*.log", after=1)  # the look at the entry passes
    with pytest.raises(OSError, match="Too many open files"):
        log.read(last, 1)
    assert log.segments() == bounds
    assert _answers(log) == expected


# -- the names stand for other files: compacted segments are being put in place


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_pinned_segment_whose_index_is_wrong_answers_and_touches_no_file(suffix: str) -> None:
    files, log = _filled()
    expected = _answers(PartitionLog(log.directory, log.config, CLEAN, files=files.after_process_crash()))
    index = log.directory / f"{0:020d}{suffix}"
    middle = 8 * (files.size_of(index) or 0) // 2 - 2
    files.flip_bit(index, 8 * 6 + 1 if suffix == ".index" else middle)  # where nobody has looked when it is pinned
    log = PartitionLog(log.directory, log.config, CLEAN, files=files)
    assert log.begin_swap(log.shape, [0])
    others = dict.fromkeys((index, log.directory / f"{0:020d}.log", index.with_suffix(".txnindex")), b"another's")
    for path, data in others.items():
        files.replace(path, data, durable=True)
    assert _answers(log) == expected
    assert {path: files.read(path) for path in others} == others
