"""Produce, key 0. The records are checked and written from the frame they came in; nothing is copied."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Api, Request
from pylog.broker_lite.connection import Parts
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.machines.topics import INTERNAL_TOPICS
from pylog.broker_lite.protocol import produce
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.produce import ProducedPartition, ProducePartition, ProduceRequest
from pylog.storage.batch import HEADER_BYTES, MAGIC, read_header
from pylog.storage.codecs import ZSTD

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_ZSTD_SINCE = 7
_ACKS = (0, 1, -1)  # with one replica, all of them is the leader


def answer(broker: "Broker", request: Request) -> Parts | None:
    message = produce.decode_request(request.body, request.version)
    results = [_append(broker, message, partition, request.version) for partition in message.partitions]
    if message.acks == 0:
        return None
    return [produce.encode_response(results, request.version)]


def _append(broker: "Broker", message: ProduceRequest, asked: ProducePartition, version: int) -> ProducedPartition:
    try:
        if message.acks not in _ACKS:
            raise RequestError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={message.acks}; 0, 1 and -1 (all) are possible.")
        partition = broker.partition(asked.topic, asked.partition)
        if asked.topic in INTERNAL_TOPICS:
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{asked.topic} is written by the broker alone.")
        records = _checked(asked, version, partition.config.message_bytes_max)
        appended = partition.append(records)
    except EXPECTED as error:
        code, text = error_of(error)
        return ProducedPartition(asked.topic, asked.partition, code, error_message=text)
    return ProducedPartition(
        asked.topic,
        asked.partition,
        ErrorCode.NONE,
        appended.base_offset,
        appended.log_append_time_ms,
        partition.log.log_start_offset,
    )


def _checked(asked: ProducePartition, version: int, bytes_max: int) -> memoryview:
    """What the log does not check: one batch, of a size, codec and kind that a client may send."""
    records = asked.records
    if not isinstance(records, memoryview) or len(records) < HEADER_BYTES:
        raise RequestError(
            ErrorCode.INVALID_RECORD, "A produce request has exactly one record batch a partition; this has none."
        )
    header = read_header(records)
    if header.magic != MAGIC:
        raise RequestError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"Record batches of format v{header.magic} are too old; send v{MAGIC}.",
        )
    if header.size_bytes < len(records):
        raise RequestError(
            ErrorCode.INVALID_RECORD, "A produce request has exactly one record batch a partition; this has more."
        )
    if len(records) > bytes_max:
        raise RequestError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {len(records)} bytes; max.message.bytes of the topic is {bytes_max}.",
        )
    if header.codec == ZSTD and version < _ZSTD_SINCE:
        raise RequestError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{_ZSTD_SINCE} or later.")
    if header.is_control:
        raise RequestError(ErrorCode.INVALID_RECORD, "Control batches are written by the broker alone.")
    if header.is_transactional:
        raise RequestError(ErrorCode.INVALID_TXN_STATE, "Transactions are not supported yet.")
    return records


API = Api(produce.SPEC, answer)
