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

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_UNKNOWN = -1
ByTopic = dict[str, list[DescribeLogDirsPartition]]


async def handle(broker: "Broker", message: DescribeLogDirsRequest, request: Request) -> DescribeLogDirsResponse:
    found = _by_directory(broker, message)
    results = [
        DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, str(path.absolute()))
        for path in broker.offline_directories
    ]
    for path in broker.directories:
        total_bytes, usable_bytes = await cold.waited(_room, path)  # a disk that hangs takes its time
        topics = [DescribeLogDirsTopic(name, partitions) for name, partitions in sorted(found[path].items())]
        results.append(DescribeLogDirsResult(ErrorCode.NONE, str(path.absolute()), topics, total_bytes, usable_bytes))
    return DescribeLogDirsResponse(results=results)


def _by_directory(broker: "Broker", message: DescribeLogDirsRequest) -> dict[Path, ByTopic]:
    if message.topics is None:
        places = set(broker.partitions)
    else:
        places = {(topic.topic, index) for topic in message.topics for index in topic.partitions}
    found: dict[Path, ByTopic] = defaultdict(lambda: defaultdict(list))
    for place in sorted(places & broker.partitions.keys()):
        log = broker.partitions[place].log
        if log.failure is None:
            partition = DescribeLogDirsPartition(place[1], log.size_bytes)
            found[log.directory.parent][place[0]].append(partition)
    return found


def _room(path: Path) -> tuple[int, int]:
    """(bytes of the volume, bytes of it that are free for us)."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return _UNKNOWN, _UNKNOWN
    return usage.total, usage.free


API = declared(SPEC, handle)
