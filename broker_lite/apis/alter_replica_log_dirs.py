"""AlterReplicaLogDirs, key 34. A log stays in its directory: to move it to another one is not there yet."""

import logging
from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.protocol.alter_replica_log_dirs import (
    SPEC,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from pylog.broker_lite.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

logger = logging.getLogger(__name__)


def handle(broker: "Broker", message: AlterReplicaLogDirsRequest, request: Request) -> AlterReplicaLogDirsResponse:
    """As with Kafka, the last directory that a partition is to be in counts."""
    wanted: dict[str, dict[int, str]] = {}
    for directory in message.dirs:
        for topic in directory.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
    results = []
    for name, path_of in wanted.items():
        partitions = [
            AlterReplicaLogDirPartitionResult(index, _code(broker, name, index, path))
            for index, path in path_of.items()
        ]
        results.append(AlterReplicaLogDirTopicResult(name, partitions))
    return AlterReplicaLogDirsResponse(results=results)


def _code(broker: "Broker", topic: str, index: int, path: str) -> int:
    try:
        _check(broker, topic, index, path)
    except EXPECTED as error:
        code, text = error_of(error)
        logger.info("%s-%d is not moved to %s: %s", topic, index, path, text)  # the answer has no room for words
        return code
    return ErrorCode.NONE


def _check(broker: "Broker", topic: str, index: int, path: str) -> None:
    if path in (str(one.absolute()) for one in broker.offline_directories):
        raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "this directory is offline")
    if path not in (str(one.absolute()) for one in broker.directories):
        raise RequestError(ErrorCode.LOG_DIR_NOT_FOUND, "this is none of the directories in log.dirs")
    if str(broker.partition(topic, index).log.directory.parent.absolute()) != path:
        raise RequestError(ErrorCode.POLICY_VIOLATION, "logs do not move between directories yet")


API = declared(SPEC, handle)
