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
from pylog.broker_lite.turns import Steps

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

logger = logging.getLogger(__name__)


def handle(
    broker: "Broker", message: AlterReplicaLogDirsRequest, request: Request
) -> Steps[AlterReplicaLogDirsResponse]:
    """As with Kafka, the last directory that a partition is to be in counts."""
    wanted: dict[str, dict[int, str]] = {}
    for directory in message.dirs:
        for topic in directory.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
            yield
    online = {str(path.absolute()) for path in broker.directories}
    offline = {str(path.absolute()) for path in broker.offline_directories}
    results = []
    for name, path_of in wanted.items():
        result = AlterReplicaLogDirTopicResult(name)
        results.append(result)
        for index, path in path_of.items():
            code = _code(broker, name, index, path, online, offline)
            result.partitions.append(AlterReplicaLogDirPartitionResult(index, code))
            yield
    return AlterReplicaLogDirsResponse(results=results)


def _code(broker: "Broker", topic: str, index: int, path: str, online: set[str], offline: set[str]) -> int:
    try:
        if path in offline:
            raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "this directory is offline")
        if path not in online:
            raise RequestError(ErrorCode.LOG_DIR_NOT_FOUND, "this is none of the directories in log.dirs")
        if str(broker.partition(topic, index).log.directory.parent.absolute()) != path:
            raise RequestError(ErrorCode.POLICY_VIOLATION, "logs do not move between directories yet")
    except EXPECTED as error:
        code, text = error_of(error)
        logger.info("%s-%d is not moved to %s: %s", topic, index, path, text)  # the answer has no room for words
        return code
    return ErrorCode.NONE


API = declared(SPEC, handle)
