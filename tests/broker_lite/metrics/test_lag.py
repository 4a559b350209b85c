"""How many looks into files the lag in seconds takes, and who has to wait for one."""

import asyncio

import pytest

from pylog.broker_lite.metrics import lag
from pylog.broker_lite.metrics.lag import FirstTimes
from pylog.storage.log import LogConfig, PartitionLog
from tests.support.clock import SettableClock
from tests.support.logs import START_MS, batch_of
from tests.support.simulated_files import SimulatedFiles


class CountedFiles(SimulatedFiles):
    looks = 0

    def sizes_in(self, directory):
        self.looks += 1
        return super().sizes_in(directory)


@pytest.fixture
def files() -> CountedFiles:
    return CountedFiles()


def logs_of(files: CountedFiles, count: int) -> list[PartitionLog]:
    logs = []
    for number in range(count):
        log = PartitionLog(files.root / f"t-{number}", LogConfig(), files=files, clock=SettableClock())
        for _ in range(3):
            log.append(batch_of(1), 0)
        logs.append(log)
    files.looks = 0
    return logs


def looked_up(files: CountedFiles, rounds: list[list[lag.Want]]) -> list[tuple[int, list[int | None]]]:
    """For each round: how many looks it took, and what is known after it."""

    async def main():
        times, found = FirstTimes(files), []
        for wanted in rounds:
            before = files.looks
            await times.look_up(wanted)
            found.append((files.looks - before, [times.get(want) for want in wanted]))
        times.close()
        return found

    return asyncio.run(main())


def test_a_group_that_does_not_move_is_looked_for_once(files):
    (log,) = logs_of(files, 1)
    stays, moves, moved = (log, 0), (log, 1), (log, 2)
    rounds = looked_up(files, [[stays, moves], [stays, moved], [stays, moved]])
    assert [looks for looks, _ in rounds] == [2, 1, 0]
    assert all(found == [START_MS, START_MS] for _, found in rounds)


def test_two_groups_at_one_offset_take_one_look(files):
    (log,) = logs_of(files, 1)
    assert looked_up(files, [[(log, 1), (log, 1)]]) == [(1, [START_MS, START_MS])]


def test_what_nobody_asks_for_any_more_is_forgotten(files):
    (log,) = logs_of(files, 1)
    assert [looks for looks, _ in looked_up(files, [[(log, 0)], [], [(log, 0)]])] == [1, 0, 1]


def test_looks_have_a_limit_and_who_missed_it_comes_first(files, monkeypatch):
    monkeypatch.setattr(lag, "LOOKS_MAX", 2)
    logs = logs_of(files, 4)
    first, second = looked_up(files, [[(log, 0) for log in logs], [(log, 1) for log in logs]])  # all have moved on
    assert first == (2, [START_MS, START_MS, None, None])
    assert second == (2, [None, None, START_MS, START_MS])


def test_who_asks_at_the_same_time_waits_for_the_same_look(files):
    (log,) = logs_of(files, 1)

    async def main():
        times = FirstTimes(files)
        await asyncio.gather(times.look_up([(log, 0)]), times.look_up([(log, 0)]))
        times.close()

    asyncio.run(main())
    assert files.looks == 1
