"""`pylog segment` on directories that Apache Kafka wrote, compacted and transactional ones included; and its lines
beside those of Kafka's own tool, on Kafka's directories and on ours."""

from pathlib import Path

import pytest

from pylog.cli import main
from pylog.storage.disk import DISK
from pylog.storage.inspect.dump import Detail, dump, text
from tests.support.java_tools import dump_log_segments
from tests.support.kafka_written import TOPICS, Left
from tests.support.sample_log import sample

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def ours(folder: Path) -> dict[Path, list[str]]:
    """The lines about each file, which come behind one that names it."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    return {path: [text(row) for row in dump(path, Detail(records=True, data=True))][1:] for path in paths}


@pytest.fixture(scope="module")
def kafkas_lines(written: dict[str, Left]) -> dict[Path, list[str]]:
    folders = [written["stopped"].data / f"{topic}-0" for topic in TOPICS]
    return dump_log_segments(folders, "--print-data-log").lines


@pytest.mark.parametrize("state", ["killed", "stopped"])
@pytest.mark.parametrize("deep", [[], ["--deep"]], ids=["shallow", "deep"])
def test_a_directory_of_kafkas_is_sound(
    written: dict[str, Left], capsys: pytest.CaptureFixture[str], state: str, deep: list[str]
) -> None:
    assert main(["segment", "verify", str(written[state].data), *deep]) == 0, capsys.readouterr().out
    *notes, summary = capsys.readouterr().out.splitlines()
    assert ": sound (" in summary
    for note in notes:  # of records that were deleted, and came back with the kill
        assert "deletion-lost-0" in note
        assert "leader-epoch-checkpoint begins later" in note


@pytest.mark.parametrize("topic", TOPICS)
def test_our_lines_about_kafkas_files_are_those_of_kafkas_tool(
    written: dict[str, Left], kafkas_lines: dict[Path, list[str]], topic: str
) -> None:
    for path, lines in ours(written["stopped"].data / f"{topic}-0").items():
        said = [line for line in lines if not line.endswith(".timeindex is empty.")]  # of which Kafka's says nothing
        assert said == kafkas_lines.get(path, [])


def test_our_lines_about_our_files_are_those_of_kafkas_tool(tmp_path: Path) -> None:
    lines = ours(sample(DISK, tmp_path))
    assert len(lines) > 12
    kafkas = dump_log_segments(lines, "--print-data-log").lines
    assert lines == {path: kafkas.get(path, []) for path in lines}
