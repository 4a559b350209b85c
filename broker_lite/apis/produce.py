"""Produce, key 0. The records are checked and written from the frame they came in; nothing is copied.

A batch that an idempotent producer sends again is answered as it was the first time.
"""

import asyncio
from typing import TYPE_CHECKING

from pylog.broker_lite import compacted
from pylog.broker_lite.api import Api, Request
from pylog.broker_lite.connection import Answer, Parts
from pylog.broker_lite.errors import EXPECTED, RecordsRefused, RequestError, error_of
from pylog.broker_lite.machines.topics import INTERNAL_TOPICS
from pylog.broker_lite.partition import Partition
from pylog.broker_lite.protocol import produce
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.produce import ProducedPartition, ProducePartition, ProduceRequest
from pylog.storage.batch import HEADER_BYTES, MAGIC, read_header
from pylog.storage.codecs import ZSTD
from pylog.storage.errors import BatchTooLarge

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_ZSTD_SINCE = 7
_ACKS = (0, 1, -1)  # with one replica, all of them is the leader


def answer(broker: "Broker", request: Request) -> Answer:
    message = produce.decode_request(request.body, request.version)
    due: list[tuple[int, Partition]] = []  # the results that wait for the disk
    results = [_append(broker, message, index, request.version, due) for index in range(len(message.partitions))]
    if due:
        flushing = [(index, broker.flush(partition)) for index, partition in due]
        return _answer_later(results, flushing, message.acks, request.version)
    return _encoded(results, message.acks, request.version)


async def _answer_later(
    results: list[ProducedPartition], flushing: list[tuple[int, asyncio.Future[None]]], acks: int, version: int
) -> Parts | None:
    for index, flushed in flushing:
        try:
            await flushed
        except EXPECTED as error:
            results[index] = _refused(results[index].topic, results[index].partition, error)
    return _encoded(results, acks, version)


def _encoded(results: list[ProducedPartition], acks: int, version: int) -> Parts | None:
    return None if acks == 0 else [produce.encode_response(results, version)]


def _append(
    broker: "Broker", message: ProduceRequest, index: int, version: int, due: list[tuple[int, Partition]]
) -> ProducedPartition:
    asked = message.partitions[index]
    try:
        if message.acks not in _ACKS:
            raise RequestError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={message.acks}; 0, 1 and -1 (all) are possible.")
        partition = broker.partition(asked.topic, asked.partition)
        if asked.topic in INTERNAL_TOPICS:
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{asked.topic} is written by the broker alone.")
        records = _checked(asked, version, partition.config.message_bytes_max)
        if partition.config.log.compact:
            compacted.check(records, broker.config["socket.request.max.bytes"])
        try:
            appended = partition.append(records)
        except BatchTooLarge as error:  # max.message.bytes allows what segment.bytes does not
            raise RequestError(ErrorCode.RECORD_LIST_TOO_LARGE, str(error)) from None
    except EXPECTED as error:
        return _refused(asked.topic, asked.partition, error)
    if partition.flush_is_due:
        due.append((index, partition))
    return ProducedPartition(
        asked.topic,
        asked.partition,
        ErrorCode.NONE,
        appended.base_offset,
        appended.log_append_time_ms,
        partition.log.log_start_offset,
    )


def _refused(topic: str, partition: int, error: Exception) -> ProducedPartition:
    code, text = error_of(error)
    records = error.records if isinstance(error, RecordsRefused) else ()
    return ProducedPartition(topic, partition, code, error_message=text, record_errors=records)


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
