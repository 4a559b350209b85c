"""Produce, key 0. The records are checked and written from the frame they came in; nothing is copied.

A batch that an idempotent producer sends again is answered as it was the first time.

The one check that may take long, of the records of a batch for a compacted topic, is done by a thread, on a copy; it is
appended when that is done. If its client has gone by then it is not appended, and nobody was told that it would be.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

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
_checker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="records")  # more would only take turns with the loop


class _Unchecked(NamedTuple):
    """What waits for the thread: the result at this place is still open."""

    place: int
    partition: Partition
    records: bytearray


def answer(broker: "Broker", request: Request) -> Answer:
    message = produce.decode_request(request.body, request.version)
    due: list[tuple[int, Partition]] = []  # the results that wait for the disk
    unchecked: list[_Unchecked] = []
    version = request.version
    results = [_append(broker, message, index, version, due, unchecked) for index in range(len(message.partitions))]
    if due or unchecked:
        flushing = [(index, broker.flush(partition)) for index, partition in due]
        return _answer_later(broker, results, flushing, unchecked, message.acks, version)
    return _encoded(results, message.acks, version)


async def _answer_later(
    broker: "Broker",
    results: list[ProducedPartition],
    flushing: list[tuple[int, asyncio.Future[None]]],
    unchecked: list[_Unchecked],
    acks: int,
    version: int,
) -> Parts | None:
    for index, partition, records in unchecked:
        topic, number = results[index].topic, results[index].partition
        try:
            await _check(records, partition.config.message_bytes_max)
            if broker.partition(topic, number) is not partition:  # nor is it there if it was deleted, or failed
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{topic}' was made anew meanwhile.")
            results[index] = _appended(topic, number, partition, records)
        except EXPECTED as error:
            results[index] = _refused(topic, number, error)
        else:
            if partition.flush_is_due:
                flushing.append((index, broker.flush(partition)))
    for index, flushed in flushing:
        try:
            await flushed
        except EXPECTED as error:
            results[index] = _refused(results[index].topic, results[index].partition, error)
    return _encoded(results, acks, version)


def _check(records: bytearray, message_bytes_max: int) -> asyncio.Future[None]:
    loop = asyncio.get_running_loop()
    return loop.run_in_executor(_checker, compacted.check, memoryview(records), message_bytes_max)


def _encoded(results: list[ProducedPartition], acks: int, version: int) -> Parts | None:
    return None if acks == 0 else [produce.encode_response(results, version)]


def _append(
    broker: "Broker",
    message: ProduceRequest,
    index: int,
    version: int,
    due: list[tuple[int, Partition]],
    unchecked: list[_Unchecked],
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
            if not compacted.is_quick(records):
                unchecked.append(_Unchecked(index, partition, bytearray(records)))
                return ProducedPartition(asked.topic, asked.partition, ErrorCode.NONE)
            compacted.check(records, partition.config.message_bytes_max)
        result = _appended(asked.topic, asked.partition, partition, records)
    except EXPECTED as error:
        return _refused(asked.topic, asked.partition, error)
    if partition.flush_is_due:
        due.append((index, partition))
    return result


def _appended(topic: str, number: int, partition: Partition, records: bytearray | memoryview) -> ProducedPartition:
    try:
        appended = partition.append(records)
    except BatchTooLarge as error:  # max.message.bytes allows what segment.bytes does not
        raise RequestError(ErrorCode.RECORD_LIST_TOO_LARGE, str(error)) from None
    return ProducedPartition(
        topic,
        number,
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
