"""Few files open at once: logs that share a bound keep to it together, and open again what was closed."""

from pathlib import Path

from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.open_files import OpenFiles
from tests.support.logs import batch_of, records_in


def test_logs_that_share_a_bound_keep_to_it_from_the_first_append_on(tmp_path: Path) -> None:
    bound = OpenFiles(2)
    logs = [PartitionLog(tmp_path / str(number), LogConfig(), open_files=bound) for number in range(5)]
    for _ in range(2):
        for log in logs:
            log.append(batch_of(), 0)
            assert len(bound) <= 2
    assert len(bound) == 2
    assert [len(records_in(log)) for log in logs] == [2] * 5
