"""What `verify` finds, and how bad it takes it to be."""

import errno
import struct
from pathlib import Path

import pytest

from pylog.storage.batch import walk
from pylog.storage.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS, encode
from pylog.storage.inspect.deep import SHALLOW, Depth, deep
from pylog.storage.inspect.findings import PER_FILE_MAX, Report, Severity
from pylog.storage.inspect.names import CLEAN_MARKER, NotALog
from pylog.storage.inspect.verify import verify
from pylog.storage.records import Record, encode_batch
from tests.support.looking import Change, append, contents, look, overwrite, store
from tests.support.sample_log import DATA, sample_in_memory
from tests.support.simulated_files import SimulatedFiles

DAMAGE, TORN, NOTE = Severity.DAMAGE, Severity.TORN, Severity.NOTE
FIRST, SECOND, LAST = "00000000000000000000", "00000000000000000019", "00000000000000000034"
PLAIN = Depth(records=True)


# -- nothing is wrong


@pytest.mark.parametrize("depth", [SHALLOW, PLAIN, deep()], ids=["shallow", "deep, plain", "deep, kernels"])
@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_a_log_that_nothing_happened_to_is_sound(clean: bool, depth: Depth) -> None:
    files, partition = sample_in_memory(clean=clean)
    assert look(files, DATA, depth) == (None, [])
    assert look(files, partition, depth) == (None, [])
    for name in files.sizes_in(partition):
        assert look(files, partition / name, depth) == (None, []), name
    assert look(files, DATA / RECOVERY_POINTS, depth) == (None, [])


def test_it_counts_what_it_has_seen() -> None:
    files, _ = sample_in_memory()
    report = Report(lambda _: None)
    verify(DATA, report, SHALLOW, files)
    assert (report.partitions, report.segments, report.batches, report.records) == (1, 3, 23, 45)
    assert report.log_bytes == sum(size for name, size in files.sizes_in(DATA / "topic-0").items() if ".log" in name)


# -- a bit here, a byte there

# No byte of these says anything that another one repeats.
UNCHECKED = ("partition.metadata", CLEAN_MARKER, RECOVERY_POINTS)


def test_a_flipped_bit_is_found_wherever_it_would_lead_astray() -> None:
    files, partition = sample_in_memory()
    harmless = 0
    for name, size_bytes in files.sizes_in(partition).items():
        if name in UNCHECKED:
            continue
        for bit in range(0, size_bytes * 8, 3 if size_bytes < 110 else 37):
            files.flip_bit(partition / name, bit)
            verdict, _ = look(files)
            files.flip_bit(partition / name, bit)
            if name.endswith(".log"):
                assert verdict is DAMAGE, (name, bit)
            harmless += verdict is None
    # An entry of an index that leads to the same place, a last stable offset that ends a search later than it could.
    assert harmless < 15


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_a_log_cut_at_any_byte_of_its_last_batch_has_a_torn_tail(clean: bool) -> None:
    """Unless it was closed: then nothing can have been under way."""
    files, partition = sample_in_memory(clean=clean)
    path = sorted(partition / name for name in files.sizes_in(partition) if name.endswith(".log"))[-1]
    data = contents(files, path)
    *_, (start, header) = walk(data)
    for size_bytes in range(start + 1, len(data)):
        files.truncate(path, size_bytes)
        verdict, found = look(files)
        if clean:
            assert verdict is DAMAGE
        else:
            assert verdict is TORN
            assert found[0][:4] == (TORN, path, start, header.base_offset)
            assert f"{size_bytes - start} bytes would be cut" in found[0].message


def test_below_the_recovery_point_nothing_is_taken_for_a_torn_tail() -> None:
    files, partition = sample_in_memory(clean=False)
    files.truncate(partition / f"{LAST}.log", 300)
    files.remove(partition / "00000000000000000049.log")
    verdict, found = look(files)
    assert verdict is DAMAGE
    assert any("the recovery point is 45, and the log ends at 3" in finding.message for finding in found)


def test_without_a_data_directory_around_it_only_the_last_segment_may_be_torn() -> None:
    files, partition = sample_in_memory(clean=False)
    files.rename(DATA / RECOVERY_POINTS, DATA / "elsewhere")
    files.rename(DATA / ".lock", DATA / "elsewhere-too")
    last = partition / "00000000000000000049.log"
    append(files, last, b"torn")
    assert look(files, partition)[0] is TORN
    append(files, partition / f"{FIRST}.log", b"not torn")
    assert look(files, partition)[0] is DAMAGE
    files.truncate(partition / f"{FIRST}.log", (files.size_of(partition / f"{FIRST}.log") or 0) - 8)
    assert look(files, partition)[0] is TORN
    overwrite(files, last, 100, b"good batches follow, so no write was cut short here")
    assert look(files, partition)[0] is DAMAGE


def test_in_a_data_directory_without_recovery_points_everything_may_be_torn() -> None:
    """So the next start takes it, and cuts at the first batch that is not intact."""
    files, partition = sample_in_memory(clean=False)
    files.remove(DATA / RECOVERY_POINTS)
    files.remove(DATA / ".lock")
    overwrite(files, partition / f"{SECOND}.log", 100, b"damage")
    assert look(files)[0] is TORN


def test_a_log_that_was_closed_is_never_torn_even_if_no_recovery_point_is_known() -> None:
    files, partition = sample_in_memory()
    files.remove(DATA / RECOVERY_POINTS)
    assert look(files) == (None, [])
    append(files, partition / f"{LAST}.log", b"not torn")
    assert look(files)[0] is DAMAGE


def test_damage_below_the_recovery_point_is_damage_though_the_stop_was_unclean() -> None:
    files, partition = sample_in_memory(clean=False)
    overwrite(files, partition / f"{SECOND}.log", 100, b"damage")
    verdict, found = look(files)
    assert verdict is DAMAGE
    assert [(finding.severity, finding.position) for finding in found] == [(DAMAGE, 0)]


def test_segments_that_overlap_are_named() -> None:
    files, partition = sample_in_memory()
    store(contents(files, partition / f"{SECOND}.log"))(files, partition / "00000000000000000018.log")
    verdict, found = look(files)
    assert verdict is DAMAGE
    assert found[0].message == "the segment before it has offset 18 already"


def test_a_snapshot_knows_nothing_of_what_came_after_it() -> None:
    files, partition = sample_in_memory()
    store(contents(files, partition / "00000000000000000045.snapshot"))(files, partition / f"{LAST}.snapshot")
    verdict, found = look(files)
    assert verdict is TORN
    assert found[0].message == "producer 7 has written up to 44, and the log ended before"


def test_a_time_index_tells_the_latest_up_to_an_offset_not_only_that_of_its_batch() -> None:
    files = SimulatedFiles()
    log = bytearray()
    for offset, timestamp_ms in ((0, 100), (1, 50)):
        log += encode_batch([Record(offset, timestamp_ms, None, None)])
    store(bytes(log))(files, Path("/sim") / f"{FIRST}.log")
    path = Path("/sim") / f"{FIRST}.timeindex"
    store(struct.pack(">qi", 100, 0))(files, path)
    assert look(files, path) == (None, [])
    store(struct.pack(">qi", 50, 1))(files, path)
    verdict, found = look(files, path)
    assert verdict is DAMAGE
    assert found[0].message == "timestamp 50, where an earlier batch has 100"


def test_batches_behind_damage_are_still_seen() -> None:
    files, partition = sample_in_memory()
    path = partition / f"{SECOND}.log"
    _, (second, header), (third, _), *_ = walk(contents(files, path))
    overwrite(files, path, second + 8, b"\xff\xff\xff\xff")  # its length: where the next one begins must be searched
    verdict, found = look(files)
    assert verdict is DAMAGE
    assert found[0][:4] == (DAMAGE, path, second, header.base_offset)
    assert f"{third - second} bytes are no batch" in found[0].message
    report = Report(lambda _: None)
    verify(DATA, report, SHALLOW, files)
    assert report.batches == 22  # one less


# -- every kind of file


def change(offset: int, data: bytes) -> Change:
    return lambda files, path: overwrite(files, path, offset, data)


def add(data: bytes) -> Change:
    return lambda files, path: append(files, path, data)


def remove(files: SimulatedFiles, path: Path) -> None:
    files.remove(path)


def swap_entries(width: int) -> Change:
    def act(files: SimulatedFiles, path: Path) -> None:
        data = contents(files, path)
        files.write_at(path, 0, data[width : 2 * width] + data[:width])

    return act


@pytest.mark.parametrize(
    ("name", "act", "severity", "says"),
    [
        pytest.param(f"{FIRST}.log", add(b"behind"), DAMAGE, "6 bytes are left", id="bytes behind a sealed log"),
        pytest.param(f"{FIRST}.log", change(16, b"\1"), DAMAGE, "record batch format v1", id="old batches"),
        pytest.param(f"{FIRST}.log", change(7, b"\5"), DAMAGE, "these offsets cannot follow", id="offset goes back"),
        pytest.param(f"{FIRST}.log", change(12, b"\0\0\0\7"), DAMAGE, "leader epoch 7", id="wrong leader epoch"),
        pytest.param(f"{LAST}.log", change(4, b"\1\0\0\0"), DAMAGE, "these offsets cannot follow", id="offset jumps"),
        pytest.param(f"{SECOND}.log", remove, DAMAGE, "no segment has these offsets", id="a log is gone"),
        pytest.param(f"{LAST}.log", remove, DAMAGE, "the recovery point is 45", id="the last log is gone"),
        pytest.param(f"{FIRST}.index", remove, DAMAGE, "it is missing", id="an index is gone"),
        pytest.param(f"{FIRST}.index", change(11, b"\x0d"), DAMAGE, "no batch ends with", id="index amid a batch"),
        pytest.param(f"{FIRST}.index", add(b"\0\0"), DAMAGE, "2 bytes are no whole entry", id="half an index entry"),
        pytest.param(f"{FIRST}.index", add(bytes(80)), DAMAGE, "80 bytes of zeros", id="room in a sealed index"),
        pytest.param(f"{FIRST}.index", swap_entries(8), DAMAGE, "have to ascend", id="index out of order"),
        pytest.param(f"{FIRST}.index", change(7, b"\1"), DAMAGE, "no batch starts at", id="index beside a batch"),
        pytest.param(f"{FIRST}.index", change(3, b"\0"), DAMAGE, "begins with", id="index behind its offset"),
        pytest.param(f"{FIRST}.index", add(b"\0\0\0\x63\0\0\xff\0"), DAMAGE, "behind the end", id="index too long"),
        pytest.param(f"{FIRST}.timeindex", remove, DAMAGE, "it is missing", id="a time index is gone"),
        pytest.param(f"{FIRST}.timeindex", change(7, b"\0"), DAMAGE, "where the batch has", id="another time"),
        pytest.param(f"{FIRST}.timeindex", swap_entries(12), DAMAGE, "have to ascend", id="time index out of order"),
        pytest.param(f"{FIRST}.timeindex", store(b""), DAMAGE, "it ends with timestamp none", id="empty time index"),
        pytest.param(f"{LAST}.txnindex", remove, DAMAGE, "no entry for the transaction of producer 8", id="abort gone"),
        pytest.param(f"{LAST}.txnindex", change(9, b"\7"), DAMAGE, "a marker of producer 8", id="abort of another"),
        pytest.param(f"{LAST}.txnindex", add(b"\0"), DAMAGE, "1 bytes where an entry takes 34", id="half an abort"),
        pytest.param(f"{SECOND}.txnindex", store(struct.pack(">hqqqq", 0, 8, 1, 25, 26)), DAMAGE,
                     "where the log has records of producer", id="abort where records are"),
        pytest.param("00000000000000000045.snapshot", change(20, b"\xff"), DAMAGE, "CRC-32C", id="the newest snapshot"),
        pytest.param(f"{LAST}.snapshot", change(20, b"\xff"), TORN, "CRC-32C", id="an older snapshot"),
        pytest.param("00000000000000000099.snapshot", store(bytes.fromhex("000148674bc700000000")), DAMAGE,
                     "a log that ends at 99", id="snapshot of a longer log"),
        pytest.param("leader-epoch-checkpoint", store(b"0\n1\n9 0\n"), DAMAGE, "has 9", id="other epochs"),
        pytest.param("leader-epoch-checkpoint", store(b"0\n1\n1 5\n"), DAMAGE,
                     "begins later with an older one", id="epochs that begin late and with an older one"),
        pytest.param("leader-epoch-checkpoint", store(b"0\n3\n2 5\n3 9\n4 19\n"), None,
                     "begins later", id="epochs that begin late, as Kafka leaves them when it is killed"),
        pytest.param("leader-epoch-checkpoint", store(b"0\n2\n2 0\n"), DAMAGE, "line 2", id="too few epochs"),
        pytest.param("leader-epoch-checkpoint", store(b"0\n4\n2 0\n3 9\n4 19\n5 99\n"), DAMAGE,
                     "the start of the latest leader epoch is 99", id="an epoch behind the end"),
        pytest.param("partition.metadata", store(b"version: 0\ntopic_id: short"), DAMAGE, "no version and topic id",
                     id="damaged metadata"),
        pytest.param(f"../{RECOVERY_POINTS}", store(b"0\n1\ntopic zero 45\n"), DAMAGE, "line 3", id="bad checkpoint"),
        pytest.param(f"../{RECOVERY_POINTS}", store(encode({("topic", 0): 44})), DAMAGE, "closed at offset 44",
                     id="closed and yet longer"),
        pytest.param(f"../{LOG_START_OFFSETS}", store(encode({("topic", 0): 46})), DAMAGE, "the log start offset is 46",
                     id="deleted beyond the end"),
        pytest.param(f"../{HIGH_WATERMARKS}", store(encode({("topic", 0): 99})), DAMAGE, "the high watermark is 99",
                     id="committed beyond the end"),
    ],
)  # fmt: skip
def test_damage_is_found_and_named(name: str, act: Change, severity: Severity | None, says: str) -> None:
    files, partition = sample_in_memory()
    path = DATA / name.removeprefix("../") if name.startswith("..") else partition / name
    act(files, path)
    verdict, found = look(files)
    assert verdict is severity
    assert [finding for finding in found if says in finding.message], [str(finding) for finding in found]


def test_what_a_stop_leaves_of_other_files_is_no_damage() -> None:
    """They are made anew from the log."""
    files, partition = sample_in_memory(clean=False)
    overwrite(files, partition / f"{LAST}.snapshot", 20, b"\xff")
    append(files, partition / "00000000000000000049.timeindex", b"half")
    store(b"0\n4\n2 0")(files, partition / "leader-epoch-checkpoint")
    store(encode({("topic", 0): 60}))(files, DATA / HIGH_WATERMARKS)
    verdict, found = look(files)
    assert verdict is TORN
    assert len(found) == 4


def test_a_swap_that_was_not_finished_counts_as_finished() -> None:
    """As the next start sees it: the new file has the offsets of those that it replaces."""
    files, partition = sample_in_memory()
    merged = contents(files, partition / f"{FIRST}.log") + contents(files, partition / f"{SECOND}.log")
    store(merged)(files, partition / f"{FIRST}.log.swap")
    for kind in ("index", "timeindex", "txnindex"):
        files.create_empty(partition / f"{FIRST}.{kind}.swap")
    _, found = look(files)
    says = [finding.message for finding in found if finding.severity is not NOTE]
    assert says == [f"it ends with timestamp none, the segment is complete and has {1_700_000_000_202}"]
    assert any("compaction was about to put it in its place" in finding.message for finding in found)


def test_room_in_the_index_of_an_active_segment_is_no_damage() -> None:
    """Apache Kafka allocates megabytes in advance, and cuts what is left when it seals the segment."""
    files, partition = sample_in_memory(clean=False)
    for kind in ("index", "timeindex"):
        append(files, partition / f"00000000000000000049.{kind}", bytes(240_000))
    assert look(files) == (None, [])
    append(files, partition / "00000000000000000049.index", b"\0\0\0\1\0\0\0\1")
    assert look(files)[0] is TORN


def test_an_index_without_its_log_says_that_the_log_is_lost() -> None:
    files, partition = sample_in_memory()
    store(struct.pack(">ii", 5, 400))(files, partition / "00000000000000000045.index")
    verdict, found = look(files)
    assert verdict is DAMAGE
    assert found[0].message == "its log, 00000000000000000045.log, is missing"
    store(b"")(files, partition / "00000000000000000045.log.deleted")  # then it was meant to go
    assert look(files)[0] is None


def test_gaps_that_compaction_explains_are_not_mentioned_and_others_are_noted() -> None:
    files, partition = sample_in_memory()
    data = contents(files, partition / f"{FIRST}.log")
    (_, first), (second, _), *_ = walk(data)
    store(data[second:])(files, partition / f"{FIRST}.log")
    store(b"")(files, partition / f"{FIRST}.index")
    verdict, found = look(files)
    assert (verdict, [finding.severity for finding in found]) == (None, [NOTE])
    assert found[0][2:5] == (0, 0, first.last_offset)
    store(encode({("topic", 0): 19}))(files, DATA / "cleaner-offset-checkpoint")
    assert look(files) == (None, [])


def test_a_disk_that_cannot_be_read_is_damage_and_the_rest_is_looked_at() -> None:
    files, partition = sample_in_memory()
    files.fail("read_into", errno.EIO, path=f"*{FIRST}.log", times=None)
    overwrite(files, partition / f"{SECOND}.log", 100, b"damage")
    verdict, found = look(files)
    assert verdict is DAMAGE
    assert [finding.path.name for finding in found if "cannot be read" in finding.message] == [f"{FIRST}.log"]
    assert [finding.path.name for finding in found if "CRC-32C" in finding.message] == [f"{SECOND}.log"]


def test_of_a_file_that_is_all_wrong_the_first_findings_are_shown() -> None:
    files, partition = sample_in_memory()
    store(b"".join(struct.pack(">ii", 5, 3) for _ in range(1000)))(files, partition / f"{FIRST}.index")
    _, found = look(files)
    of_index = [finding for finding in found if finding.path.suffix == ".index"]
    assert len(of_index) == PER_FILE_MAX + 1
    assert of_index[-1].message == "there is more, which is not shown"


@pytest.mark.parametrize("name", ["nowhere", "topic-0/notes.txt", "topic-0/0.log", "other"])
def test_what_belongs_to_no_log_is_refused(name: str) -> None:
    files, partition = sample_in_memory()
    store(b"dear diary")(files, partition / "notes.txt")
    store(b"dear diary")(files, partition / "0.log")
    files.create_directory(DATA / "other")
    store(b"dear diary")(files, DATA / "other" / "notes.txt")
    with pytest.raises(NotALog):
        look(files, DATA / name)
