"""What `dump` shows, in Kafka's words. Beside Kafka's own tool it is held in tests/kafka."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.storage.batch import walk
from pylog.storage.checkpoints import RECOVERY_POINTS
from pylog.storage.inspect.dump import Detail, Row, dump, text
from pylog.storage.inspect.names import NotALog
from pylog.storage.records import Record, encode_batch
from tests.support.sample_log import DATA, sample_in_memory
from tests.support.simulated_files import SimulatedFiles

LAST = "00000000000000000034"
RECORDS = Detail(records=True)
DATA_TOO = Detail(records=True, data=True)


def shown(files: SimulatedFiles, path: Path, detail: Detail = Detail()) -> list[str]:  # noqa: B008
    return [text(row) for row in dump(path, detail, files)]


def in_memory(name: str, data: bytes) -> tuple[SimulatedFiles, Path]:
    files = SimulatedFiles()
    path = Path("/sim") / name
    files.write_at(path, 0, data)
    return files, path


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        pytest.param(
            f"{LAST}.index",
            ["offset: 38 position: 352", "offset: 44 position: 836"],
            id="offset index",
        ),
        pytest.param(
            f"{LAST}.timeindex",
            ["timestamp: 1700000000225 offset: 38", "timestamp: 1700000000321 offset: 44"],
            id="time index",
        ),
        pytest.param(
            f"{LAST}.txnindex",
            ["version: 0 producerId: 8 firstOffset: 31 lastOffset: 34 lastStableOffset: 35"],
            id="aborted transactions",
        ),
        pytest.param(
            "00000000000000000034.snapshot",
            [
                "producerId: 7 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty "
                "lastTimestamp: 1700000000151 firstSequence: 10 lastSequence: 11 lastOffset: 30 offsetDelta: 1 "
                "timestamp: 1700000000151",
                "producerId: 8 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[31] "
                "lastTimestamp: 1700000000202 firstSequence: 0 lastSequence: 2 lastOffset: 33 offsetDelta: 2 "
                "timestamp: 1700000000202",
            ],
            id="snapshot",
        ),
        pytest.param(
            "leader-epoch-checkpoint",
            ["epoch: 2 startOffset: 0", "epoch: 3 startOffset: 9", "epoch: 4 startOffset: 19"],
            id="leader epochs",
        ),
        pytest.param("partition.metadata", ["version: 0 topicId: 0j8bUpOkTPKNDFwaj31MEQ"], id="topic id"),
        pytest.param(f"../{RECOVERY_POINTS}", ["topic: topic partition: 0 offset: 45"], id="recovery points"),
    ],
)
def test_every_kind_of_file_has_its_lines(name: str, lines: list[str]) -> None:
    files, partition = sample_in_memory()
    path = DATA / name[3:] if name.startswith("..") else partition / name
    assert shown(files, path) == [f"Dumping {path}", *lines]


def test_a_batch_is_a_line_and_with_records_each_of_them_too() -> None:
    files, partition = sample_in_memory()
    path = partition / f"{LAST}.log"
    plain = shown(files, path)
    assert plain[:3] == [
        f"Dumping {path}",
        "Log starting offset: 34",
        "baseOffset: 34 lastOffset: 34 count: 1 baseSequence: -1 lastSequence: -1 producerId: 8 producerEpoch: 0 "
        "partitionLeaderEpoch: 4 isTransactional: true isControl: true deleteHorizonMs: OptionalLong.empty "
        "position: 0 CreateTime: 1700000000205 size: 78 magic: 2 compresscodec: none crc: 269164507 isvalid: true",
    ]
    with_records = shown(files, path, RECORDS)
    assert with_records[3] == (
        "| offset: 34 CreateTime: 1700000000205 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] "
        "endTxnMarker: ABORT coordinatorEpoch: 1"
    )
    assert with_records[5] == (
        "| offset: 35 CreateTime: 1700000000220 keySize: 5 valueSize: 54 sequence: 3 headerKeys: [h]"
    )
    assert [line for line in with_records if not line.startswith("|")] == plain
    with_data = shown(files, path, DATA_TOO)
    assert with_data[5] == f"{with_records[5]} key: key-0 payload: {'value of batch 22 ' * 3}"
    assert with_data[3] == with_records[3]


def test_a_partition_is_all_its_files_and_a_data_directory_all_partitions() -> None:
    files, partition = sample_in_memory()
    files.write_at(partition / "00000000000000000099.log.deleted", 0, b"no part of it any more")
    files.write_at(partition / "notes.txt", 0, b"never was")
    dumped = [Path(row.fields["file"]) for row in dump(partition, Detail(), files) if row.kind == "file"]
    assert [path.name for path in dumped] == sorted(
        name for name in files.sizes_in(partition) if name not in ("00000000000000000099.log.deleted", "notes.txt")
    )
    rows = [Path(row.fields["file"]) for row in dump(DATA, Detail(), files) if row.kind == "file"]
    assert rows == [DATA / RECOVERY_POINTS, *dumped]


def test_a_file_that_left_the_log_can_still_be_looked_at() -> None:
    files, partition = sample_in_memory()
    old, new = partition / f"{LAST}.log", partition / f"{LAST}.log.cut-0"
    before = shown(files, old, DATA_TOO)
    files.rename(old, new)
    assert shown(files, new, DATA_TOO)[1:] == before[1:]


def test_damage_has_a_line_and_what_is_behind_it_follows() -> None:
    files, partition = sample_in_memory()
    path = partition / f"{LAST}.log"
    data = files.read(path) or b""
    _, (second, _), (third, _), *rest = walk(data)
    sound = shown(files, path, RECORDS)
    files.write_at(path, second + 70, b"???")  # within a record
    files.write_at(path, len(data), b"torn")
    rows = list(dump(path, RECORDS, files))
    damaged = [text(row) for row in rows]
    assert [row.fields["isvalid"] for row in rows if row.kind == "batch"] == [True, False, *[True] * (len(rest) + 1)]
    assert (
        damaged[-1] == f"Found 4 invalid bytes at the end of {LAST}.log: 4 bytes are left where a batch header takes 61"
    )
    assert damaged[-2] == sound[-1]
    files.write_at(path, second + 8, b"\xff")
    assert f"Found {third - second} invalid bytes at position {second} of {LAST}.log: " in "\n".join(shown(files, path))


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        pytest.param(
            "00000000000000000000.index", bytes(11), "Found 3 invalid bytes at the end of", id="half an entry"
        ),
        pytest.param("00000000000000000000.txnindex", bytes(40), "6 bytes where an entry takes 34", id="half an abort"),
        pytest.param("00000000000000000000.snapshot", bytes(40), "version 0", id="no snapshot"),
        pytest.param("leader-epoch-checkpoint", b"0\n1\n", "line 2", id="too few epochs"),
        pytest.param(RECOVERY_POINTS, b"\xff\n", "line 1", id="no checkpoint"),
        pytest.param("partition.metadata", b"", "no version and topic id", id="no topic id"),
    ],
)
def test_a_file_that_cannot_be_understood_says_why(name: str, data: bytes, says: str) -> None:
    files, path = in_memory(name, data)
    *_, last = dump(path, Detail(), files)
    assert last.kind == "damage"
    assert says in text(last)


@pytest.mark.parametrize("room", [0, 80], ids=["empty", "only room"])
def test_an_index_without_entries_says_that_it_is_empty(room: int) -> None:
    files, path = in_memory("00000000000000000007.index", bytes(room))
    assert shown(files, path)[1:] == [f"{path} is empty."]


def test_keys_and_values_never_break_a_line() -> None:
    batch = encode_batch([Record(0, 5, "schlüssel\n".encode(), b"\x1b[31m\xff\\", (("a\tb", None),))])
    files, path = in_memory("00000000000000000000.log", bytes(batch))
    assert shown(files, path, DATA_TOO)[-1] == (
        "| offset: 0 CreateTime: 5 keySize: 11 valueSize: 7 sequence: -1 headerKeys: [a\\tb] "
        "key: schlüssel\\n payload: \\x1b[31m\ufffd\\\\"
    )


@given(st.text(alphabet=st.sampled_from("a\\'\"\n\x1b\u2028\xa0ü"), max_size=8))
def test_what_cannot_be_printed_is_escaped_and_nothing_else(value: str) -> None:
    """Backslashes only where something else is, or nobody could tell the two apart."""
    files, path = in_memory("00000000000000000000.log", bytes(encode_batch([Record(0, 5, None, value.encode())])))
    line = shown(files, path, DATA_TOO)[-1].split(" payload: ")[1]
    assert line.isprintable()
    escaped = value.replace("\\", "\\\\")
    plainly = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in escaped)
    assert line == (value if value.isprintable() else plainly)


def test_sequence_numbers_begin_anew_behind_the_largest() -> None:
    records = [Record(n, 5, None, None) for n in range(3)]
    batch = encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    files, path = in_memory("00000000000000000000.log", bytes(batch))
    rows = list(dump(path, RECORDS, files))
    assert rows[2].fields["lastSequence"] == 0
    assert [row.fields["sequence"] for row in rows[3:]] == [2**31 - 2, 2**31 - 1, 0]


def test_rows_come_before_the_file_is_read_to_its_end() -> None:
    files, partition = sample_in_memory()
    files.write_at(partition / f"{LAST}.log", 500, b"damage further on")
    rows = dump(partition / f"{LAST}.log", Detail(), files)
    first: list[Row] = [next(rows) for _ in range(3)]
    assert [row.kind for row in first] == ["file", "start", "batch"]


@pytest.mark.parametrize("name", ["nowhere", "notes.txt"])
def test_what_belongs_to_no_log_is_refused(name: str) -> None:
    files, _ = in_memory("notes.txt", b"dear diary")
    with pytest.raises(NotALog):
        list(dump(Path("/sim") / name, Detail(), files))
