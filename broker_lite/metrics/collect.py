"""All metrics as text, in pieces. Between two pieces the loop serves its clients: ten thousand partitions take a tenth
of a second, but never at once."""

import asyncio
import os
import platform
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pylog import __version__
from pylog.broker_lite.api_table import API_BY_KEY
from pylog.broker_lite.health import Health
from pylog.broker_lite.metrics import families, groups, partitions, process
from pylog.broker_lite.metrics.families import Family
from pylog.broker_lite.metrics.lag import FirstTimes
from pylog.broker_lite.metrics.requests import RequestStats
from pylog.broker_lite.metrics.text import head, histogram, labels, samples
from pylog.broker_lite.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker
    from pylog.broker_lite.connections import Connections

T = TypeVar("T")

_AT_ONCE = 100  # partitions or commits, between two turns of the loop


class Collector:
    def __init__(self, health: Health) -> None:
        self._health = health
        self._first_times: FirstTimes | None = None

    def close(self) -> None:
        if self._first_times is not None:
            self._first_times.close()

    async def pieces(self) -> AsyncIterator[str]:
        yield _one(families.BUILD_INFO, 1, __version__, platform.python_version())
        yield _one(families.READY, int(self._health.not_ready_because() is None))
        for family, value in process.look():
            yield _one(family, value)
        broker = self._health.broker
        if broker is None:
            return
        if broker.requests is not None:
            yield _requests(broker.requests)
        if self._health.connections is not None:
            yield _connections(self._health.connections)
        yield _logs(broker)
        yield await asyncio.to_thread(_disks, broker.logs.directories)
        async for piece in _partitions(broker):
            yield piece
        async for piece in self._groups(broker):
            yield piece

    async def _groups(self, broker: "Broker") -> AsyncIterator[str]:
        found = [group for group_id in broker.groups.ids() if (group := broker.groups.get(group_id)) is not None]
        yield groups.states(found, broker.groups.rebalances)
        for family, samples_of in groups.COLUMNS:
            yield head(family)
            for some_groups in _parts(found):
                yield samples(family, map(samples_of, some_groups))
        rows: list[groups.CommitRow] = []
        for group in found:
            for some_commits in _parts(list(broker.offsets.committed(group.group_id).items())):
                rows += groups.commits(broker, group.group_id, some_commits)
                await asyncio.sleep(0)
        for family, column in ((families.GROUP_OFFSET, 1), (families.GROUP_LAG_RECORDS, 2)):
            yield head(family)
            for some in _parts(rows):
                yield samples(family, [(row[0], row[column]) for row in some])  # type: ignore[misc]
        async for piece in self._lag_in_seconds(broker, rows):
            yield piece

    async def _lag_in_seconds(self, broker: "Broker", rows: list[groups.CommitRow]) -> AsyncIterator[str]:
        if self._first_times is None:
            self._first_times = FirstTimes(broker.files)
        times = self._first_times
        await times.look_up([row.want for row in rows if row.want is not None])
        now_ms = broker.now_ms()

        def seconds(row: groups.CommitRow) -> float | None:
            if row.want is None:
                return None if row.lag_records is None else 0
            first_ms = times.get(row.want)
            return None if first_ms is None else max(now_ms - first_ms, 0) / 1000

        yield head(families.GROUP_LAG_SECONDS)
        for some in _parts(rows):
            yield samples(families.GROUP_LAG_SECONDS, [(row.label_text, seconds(row)) for row in some])


async def _partitions(broker: "Broker") -> AsyncIterator[str]:
    rows: list[partitions.Row] = []
    for some in _parts(list(broker.partitions.items())):
        now_ms = broker.now_ms()
        rows += [partitions.row(topic, index, partition, now_ms) for (topic, index), partition in some]
        await asyncio.sleep(0)
    for family, column in partitions.COLUMNS:
        yield head(family)
        for part in _parts(rows):
            yield samples(family, [(row[0], row[column]) for row in part])  # type: ignore[misc]


def _requests(stats: RequestStats) -> str:
    def name(key: int) -> str:
        return API_BY_KEY[key].spec.name

    lines = [head(families.REQUEST_SECONDS)]
    for key, times in stats.times():
        lines.append(histogram(families.REQUEST_SECONDS, labels(families.REQUEST_SECONDS, name(key)), times))
    errors = [
        (labels(families.REQUEST_ERRORS, name(key), ErrorCode(code).name), count)
        for (key, code), count in stats.errors.items()
    ]
    failed = [(labels(families.REQUESTS_FAILED, name(key)), count) for key, count in stats.failed.items()]
    lines += [head(families.REQUEST_ERRORS), samples(families.REQUEST_ERRORS, errors)]
    lines += [head(families.REQUESTS_FAILED), samples(families.REQUESTS_FAILED, failed)]
    lines.append(_one(families.REQUESTS_MALFORMED, stats.malformed))
    return "".join(lines)


def _connections(connections: "Connections") -> str:
    return "".join(
        [
            _one(families.CONNECTIONS, connections.count),
            _one(families.CONNECTIONS_MADE, connections.made_count),
            _one(families.CONNECTIONS_REFUSED, connections.refused_count),
            _one(families.CONNECTIONS_IDLE_CLOSED, connections.idle_closed_count),
            _one(families.REQUEST_MEMORY, connections.memory.used_bytes),
        ]
    )


def _logs(broker: "Broker") -> str:
    offline_count = len(broker.offline())
    in_sync_count = 1  # on a single node
    unsafe = [one for one in broker.partitions.values() if one.config.min_insync_replicas > in_sync_count]
    rounds = [(labels(families.UPKEEP_FAILURES, name), count) for name, count in broker.upkeep.failures.items()]
    return "".join(
        [
            _one(families.TOPICS, len(broker.topics.by_name)),
            _one(families.PARTITIONS, sum(topic.partition_count for topic in broker.topics.by_name.values())),
            _one(families.OFFLINE_PARTITIONS, offline_count),
            _one(families.UNDER_REPLICATED, offline_count),
            _one(families.UNDER_MIN_ISR, len(unsafe)),
            _one(families.OFFLINE_DIRECTORIES, len(broker.logs.offline_directories)),
            head(families.UPKEEP_FAILURES) + samples(families.UPKEEP_FAILURES, rounds),
            _one(families.COMPACTIONS, broker.upkeep.compactions),
            _one(families.UNCLEANABLE, len(broker.logs.uncleanable)),
        ]
    )


def _disks(directories: Sequence[Path]) -> str:
    """In a thread: a disk that hangs hangs whoever asks it."""
    free, total = [], []
    for directory in directories:
        try:
            found = os.statvfs(directory)
        except OSError:
            continue
        label_text = labels(families.DIRECTORY_FREE, directory)
        free.append((label_text, found.f_bavail * found.f_frsize))
        total.append((label_text, found.f_blocks * found.f_frsize))
    return (
        head(families.DIRECTORY_FREE)
        + samples(families.DIRECTORY_FREE, free)
        + head(families.DIRECTORY_SIZE)
        + samples(families.DIRECTORY_SIZE, total)
    )


def _one(family: Family, value: float, *label_values: object) -> str:
    return head(family) + samples(family, [(labels(family, *label_values), value)])


def _parts(rows: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(rows), _AT_ONCE):
        yield rows[start : start + _AT_ONCE]
