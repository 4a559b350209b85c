"""DumpLogSegments on folders that we wrote, every kind of file, closed and killed: it finds nothing to complain of."""

import re
import time
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from pylog.storage.checkpoints import RECOVERY_POINTS
from pylog.storage.data_directory import MARKER_NAME
from tests.support.java_tools import SegmentDump, dump_log_segments
from tests.support.logs import START_MS, batch_of, log_in
from tests.support.pylog_written import COMPACTED, CONFIGS, Told, fill, manager_of

BATCH = re.compile(r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* isvalid: true")
RECORD = re.compile(r"\| offset: (\d+) (CreateTime|LogAppendTime): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) ")


class Dumped(NamedTuple):
    data: Path
    told: dict[str, Told]
    dump: SegmentDump


@pytest.fixture(scope="module", params=["closed", "killed"])
def dumped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    """Closed; or killed, opened again, and closed: then the indexes are those that recovery has built."""
    data = tmp_path_factory.mktemp(request.param)
    ids = {topic: uuid4() for topic in CONFIGS}
    manager = manager_of(data)
    told = {}
    for topic, config in CONFIGS.items():
        told[topic] = Told(manager.open(topic, 0, ids[topic], config), int(time.time() * 1000) - 600_000)
        fill(topic, told[topic], manager)
    manager.close()
    if request.param == "killed":
        for path in (data / MARKER_NAME, data / RECOVERY_POINTS, *data.glob("*/*index")):
            path.unlink()
        manager = manager_of(data)
        for topic, config in CONFIGS.items():
            manager.open(topic, 0, ids[topic], config)
        manager.close()
    return Dumped(data, told, dump_log_segments([data / f"{topic}-0" for topic in CONFIGS], "--deep-iteration"))


def test_every_record_is_there_with_its_time_and_sizes(dumped: Dumped) -> None:
    data, told, dump = dumped
    assert dump.complaints == []
    assert {folder.parent.name for folder in dump.gaps} == {f"{topic}-0" for topic in COMPACTED}
    for topic, expected in told.items():
        logs = sorted((data / f"{topic}-0").glob("*.log"))
        lines = [line for log in logs for line in dump.lines[log]]
        assert not any("baseOffset" in line and not BATCH.match(line) for line in lines)
        records = {int(match[1]): match for match in map(RECORD.match, lines) if match}
        for record in expected.records:
            match = records[record.offset]
            kind = "LogAppendTime" if expected.log.config.log_append_time else "CreateTime"
            sizes = [-1 if part is None else len(part) for part in (record.key, record.value)]
            assert match.group(2, 3, 4, 5) == (kind, str(record.timestamp_ms), str(sizes[0]), str(sizes[1]))


def test_it_reads_every_kind_of_file(dumped: Dumped) -> None:
    told, lines = dumped.told, dumped.dump.lines
    kinds = {file.suffix for file, found in lines.items() if found}
    assert kinds == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    assert any(match and match[3] == "0" for found in lines.values() for match in map(BATCH.match, found))
    newest = max((dumped.data / "sequences-0").glob("*.snapshot"))
    ends = {int(line.split()[1]): line for line in lines[newest]}
    for producer_id, sequence in told["sequences"].sequences.items():
        if producer_id >= 0:
            assert f" lastSequence: {sequence - 1} " in ends[producer_id]
    aborted = [line for file, found in lines.items() if file.match("transactions-0/*.txnindex") for line in found]
    assert len(aborted) == len(set(aborted)) > 4


@pytest.mark.parametrize("option", ["--verify-index-only", "--index-sanity-check"])
@pytest.mark.parametrize("dumped", ["killed"], indirect=True)
def test_its_other_checks_of_indexes_find_nothing_either(dumped: Dumped, option: str) -> None:
    assert dump_log_segments([dumped.data / f"{topic}-0" for topic in CONFIGS], option).complaints == []


def test_it_does_complain_of_an_index_that_lies(tmp_path: Path) -> None:
    """On stderr and with exit code 0, or the tests above would prove nothing."""
    log = log_in(tmp_path)
    for number in range(100):
        log.append(batch_of(2, timestamp_ms=START_MS + number, value=bytes(100)), 0)
    log.close()
    for path, byte in ((next(log.directory.glob("*.index")), 3), (next(log.directory.glob("*.timeindex")), 7)):
        data = bytearray(path.read_bytes())
        data[byte] ^= 1
        path.write_bytes(data)
    complaints = dump_log_segments([log.directory]).complaints
    assert any("Mismatches in" in line for line in complaints)
    assert any("timestamp" in line for line in complaints)
