"""DescribeLogDirs, key 35. Where the logs are, how large they are, and how much room is left there."""

import shutil
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from pylog.broker_lite import cold
from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.protocol.describe_log_dirs import (
    SPEC,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.turns import Turn

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_UNKNOWN = -1
ByTopic = dict[str, list[DescribeLogDirsPartition]]


async def handle(broker: "Broker", message: DescribeLogDirsRequest, request: Request) -> DescribeLogDirsResponse:
    found = await _by_directory(broker, message)
    results = [
        DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, str(path.absolute()))
        for path in broker.offline_directories
    ]
    for path in broker.directories:
        total_bytes, usable_bytes = await cold.waited(_room, path)  # a disk that hangs takes its time
        topics = [DescribeLogDirsTopic(name, partitions) for name, partitions in sorted(found[path].items())]
        results.append(DescribeLogDirsResult(ErrorCode.NONE, str(path.absolute()), topics, total_bytes, usable_bytes))
    return DescribeLogDirsResponse(results=results)


async def _by_directory(broker: "Broker", message: DescribeLogDirsRequest) -> dict[Path, ByTopic]:
    turn = Turn()
    places = set(broker.partitions) if message.topics is None else set()
    for topic in message.topics or ():
        for index in topic.partitions:
            if (topic.topic, index) in broker.partitions:
                places.add((topic.topic, index))
            await turn.pause()
        await turn.pause()
    found: dict[Path, ByTopic] = defaultdict(lambda: defaultdict(list))
    for place in sorted(places):
        await turn.pause()
        there = broker.partitions.get(place)
        if there is not None and there.log.failure is None:
            partition = DescribeLogDirsPartition(place[1], there.log.size_bytes)
            found[there.log.directory.parent][place[0]].append(partition)
    return found


def _room(path: Path) -> tuple[int, int]:
    """(bytes of the volume, bytes of it that are free for us)."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return _UNKNOWN, _UNKNOWN
    return usage.total, usage.free


API = declared(SPEC, handle)
