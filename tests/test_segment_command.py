"""`pylog segment` as scripts see it: lines, streams and exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pylog.cli import main
from pylog.storage.disk import DISK
from pylog.storage.records import Record, encode_batch
from tests.support.sample_log import sample

LAST_LOG = "00000000000000000034.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory that was closed."""
    sample(DISK, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The same, stopped in the middle of a write."""
    partition = sample(DISK, tmp_path / "data", clean=False)
    last = max(partition.glob("*.log"))
    last.write_bytes(last.read_bytes()[:-5])
    return tmp_path / "data"


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out.splitlines()


def verify(*arguments: str | Path) -> int:
    return main(["segment", "verify", *map(str, arguments)])


def dump(*arguments: str | Path) -> int:
    return main(["segment", "dump", *map(str, arguments)])


# -- verify


@pytest.mark.parametrize("deep", [[], ["--deep"]], ids=["shallow", "deep"])
def test_sound_is_0(data: Path, capsys: pytest.CaptureFixture[str], deep: list[str]) -> None:
    assert verify(data, *deep) == 0
    (line,) = lines_of(capsys)
    assert line == f"{data}: sound (1 partitions, 3 segments, 23 batches, 45 records, 3956 bytes of log)"


def test_damage_is_1_and_a_line_says_where(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data / "topic-0" / LAST_LOG
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert verify(data) == 1
    finding, summary = lines_of(capsys)
    assert finding.startswith(f"damage: {path}: byte 78, offsets 35 to 37: CRC-32C is ")
    assert summary.startswith(f"{data}: damage (")


def test_a_torn_tail_is_3(killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(killed) == 3
    finding, summary = lines_of(capsys)
    assert finding.startswith(f"torn tail: {killed / 'topic-0'}/00000000000000000049.log: byte 203, offset 51: ")
    assert summary.startswith(f"{killed}: torn tail (")


def test_damage_outweighs_a_torn_tail(killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (killed / "topic-0" / "partition.metadata").write_text("nonsense")
    assert verify(killed) == 1
    assert [line.split(":")[0] for line in lines_of(capsys)[:-1]] == ["damage", "torn tail"]


@pytest.mark.parametrize("action", ["verify", "dump"])
@pytest.mark.parametrize("path", ["nowhere", "notes.txt", "empty"])
def test_a_path_that_is_no_log_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str, path: str) -> None:
    (tmp_path / "notes.txt").write_text("dear diary")
    (tmp_path / "empty").mkdir()
    assert main(["segment", action, str(tmp_path / path)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"pylog: {tmp_path / path}")


@pytest.mark.parametrize("arguments", [[], ["verify"], ["dump"], ["mend", "here"], ["verify", "--fast", "here"]])
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["segment", *arguments])
    assert ended.value.code == 2


def test_findings_and_summary_as_json(killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(killed, "--json") == 3
    finding, summary = map(json.loads, lines_of(capsys))
    assert (finding["kind"], finding["position"], finding["firstOffset"]) == ("torn tail", 203, 51)
    assert (summary["kind"], summary["verdict"], summary["findings"]) == ("summary", "torn tail", {"torn tail": 1})


def test_the_exit_codes_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        verify("--help")
    shown = capsys.readouterr().out
    for line in ("0  sound", "1  damage", "2  wrong usage", "3  a torn tail"):
        assert line in shown


# -- dump


def test_a_dump_of_what_can_be_read_is_0(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump(data / "topic-0" / LAST_LOG, "--print-data-log") == 0
    lines = lines_of(capsys)
    assert lines[:2] == [f"Dumping {data / 'topic-0' / LAST_LOG}", "Log starting offset: 34"]
    assert "endTxnMarker: ABORT coordinatorEpoch: 1" in lines[3]
    assert "key: key-0 payload: value of batch 22" in lines[5]
    assert dump(data / "topic-0" / LAST_LOG, "--records") == 0
    assert lines_of(capsys) == lines
    assert dump(data / "topic-0" / LAST_LOG, "--deep-iteration") == 0
    assert [line.split(" key: ")[0] for line in lines] == lines_of(capsys)


def test_a_dump_that_meets_damage_is_1(killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump(killed) == 1
    assert any(line.startswith("Found 198 invalid bytes at the end of ") for line in lines_of(capsys))


def test_rows_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "00000000000000000000.log"
    headers = (("a", b"1"), ("b", None), ("c", b"\xff"))
    path.write_bytes(encode_batch([Record(0, 5, b"key", b"\xff\xfe", headers), Record(1, 6, None, None)]))
    assert dump(path, "--json", "--records") == 0
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines_of(capsys)]
    assert [row["kind"] for row in rows] == ["file", "start", "batch", "record", "record"]
    assert (rows[2]["count"], rows[2]["deleteHorizonMs"], rows[2]["isvalid"]) == (2, None, True)
    assert (rows[3]["key"], rows[3]["payloadBase64"]) == ("key", "//4=")
    assert rows[3]["headers"] == [
        {"key": "a", "value": "1"},
        {"key": "b", "value": None},
        {"key": "c", "valueBase64": "/w=="},
    ]
    assert "key" not in rows[4]


def test_a_reader_that_goes_away_ends_it_quietly(data: Path) -> None:
    command = [sys.executable, "-m", "pylog", "segment", "dump", "--records", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
