"""Produce, key 0. The records are checked and written from the frame they came in; nothing is copied, but a request of
so many partitions that others must have their turn meanwhile.

A batch that an idempotent producer sends again is answered as it was the first time.

What a topic asks beyond that (keys, timestamps, another compression) may take long: then a thread does it, on a copy.
The batches of a partition are appended in the order in which they came all the same: each waits for its turn, and takes
it though its client may have gone by then.
"""

import asyncio
import struct
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from pylog.broker_lite import batch_demands
from pylog.broker_lite.api import Api, Request
from pylog.broker_lite.batch_demands import Demands
from pylog.broker_lite.config_types import INT64_MAX
from pylog.broker_lite.connection import Answer, Parts, Unheard
from pylog.broker_lite.errors import EXPECTED, RecordsRefused, RequestError, error_of
from pylog.broker_lite.machines.topics import INTERNAL_TOPICS
from pylog.broker_lite.partition import Partition
from pylog.broker_lite.protocol import produce
from pylog.broker_lite.protocol.errors import ErrorCode, name_of
from pylog.broker_lite.protocol.produce import ProducedPartition, ProducePartition
from pylog.broker_lite.protocol.schema import LargeMessage
from pylog.broker_lite.protocol.styles import TopicKey
from pylog.broker_lite.turns import COLLECTOR, Turn, aside
from pylog.storage.batch import CODEC_MASK, CONTROL, HEADER_BYTES, MAGIC, PREFIX_BYTES, TRANSACTIONAL
from pylog.storage.codecs import ZSTD

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

_PARTITIONS_A_TURN = 500  # some milliseconds; few producers send to as many at once
_ZSTD_SINCE = 7
_ACKS = (0, 1, -1)
_ALL = -1
_REPLICAS = 1  # that are in sync: the leader
_CLAIMS = struct.Struct(">8xi4xb4xh4x8xq").unpack_from  # of a header: length, magic, attributes, latest timestamp

# Looking at records takes turns with the loop, so one thread does it; compressing them does not.
_checker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="records")
_compressor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="compression")

Result = ProducedPartition | Awaitable[ProducedPartition]

_NONE = int(ErrorCode.NONE)
_produced = partial(tuple.__new__, ProducedPartition)  # in half the time


def answer(broker: "Broker", request: Request) -> Answer:
    version = request.version
    try:
        message = produce.decode_request(request.body, version, _PARTITIONS_A_TURN)
    except LargeMessage:
        return _large(broker, bytearray(request.body), version)
    acks, now_ms = message.acks, broker.now_ms()
    results = [append(broker, asked, acks, version, now_ms) for asked in message.partitions]
    return answer_with(broker, results, acks, version)


async def _large(broker: "Broker", body: bytearray, version: int) -> Parts | None:
    """Partition after partition, in the order of the request, and others have their turn between."""
    with COLLECTOR.mostly_among_new():
        message = await aside(produce.decode_request, body, version)
        results: list[Result] = []
        done: list[ProducedPartition] = []
        turn = Turn()
        for asked in message.partitions:
            results.append(append(broker, asked, message.acks, version, broker.now_ms()))
            await turn.pause()
        for result in results:
            done.append(result if isinstance(result, ProducedPartition) else await result)
            await turn.pause()
        for one in done:
            _heed(broker, one, message.acks)
            await turn.pause()
        return [await aside(produce.encode_response, done, version)] if message.acks else None


def answer_with(broker: "Broker", results: Sequence[Result], acks: int, version: int) -> Answer:
    done = [result for result in results if isinstance(result, ProducedPartition)]
    if len(done) == len(results):
        return _encoded(broker, done, acks, version)
    return _answer_later(broker, results, acks, version)


async def _answer_later(broker: "Broker", results: Sequence[Result], acks: int, version: int) -> Parts | None:
    done = [result if isinstance(result, ProducedPartition) else await result for result in results]
    return _encoded(broker, done, acks, version)


def _encoded(broker: "Broker", results: list[ProducedPartition], acks: int, version: int) -> Parts | None:
    if broker.requests is not None or not acks:
        for result in results:
            _heed(broker, result, acks)
    return [produce.encode_response(results, version)] if acks else None


def _heed(broker: "Broker", result: ProducedPartition, acks: int) -> None:
    if result.error_code:
        if broker.requests is not None:
            broker.requests.note_error(produce.SPEC.key, result.error_code)
        if not acks:
            raise Unheard(f"{name_of(result.error_code)}: {result.error_message}")


def append(broker: "Broker", asked: ProducePartition, acks: int, version: int, now_ms: int) -> Result:
    topic, index, records = asked
    try:
        if acks not in _ACKS:
            raise RequestError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}; 0, 1 and -1 (all) are possible.")
        name = topic if isinstance(topic, str) else broker.name_of(topic)
        partition = broker.partition(name, index)
        if name in INTERNAL_TOPICS:
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by the broker alone.")
        config = partition.config
        if config.min_insync_replicas > _REPLICAS and acks == _ALL:
            raise RequestError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"min.insync.replicas={config.min_insync_replicas}; the one replica of this partition is in sync.",
            )
        if not isinstance(records, memoryview) or len(records) < HEADER_BYTES:
            raise RequestError(
                ErrorCode.INVALID_RECORD, "A produce request has exactly one record batch a partition; this has none."
            )
        codec, latest_ms = _claims(records, version, config.message_bytes_max)
        demands = partition.demands
        if demands is not None and demands.codec == codec and not demands.keys:
            demands = None
        before_ms, after_ms = config.timestamp_before_ms_max, config.timestamp_after_ms_max
        if (latest_ms - now_ms > after_ms or before_ms != INT64_MAX) and not config.log.log_append_time:
            demands = demands or Demands(config.message_bytes_max)
            demands = demands._replace(times_ms=(now_ms - before_ms, now_ms + after_ms))
        if partition.turn is not None or not (demands is None or batch_demands.is_quick(records)):
            return _in_turn(broker, (topic, name, index), partition, bytearray(records), demands)
        result = _appended(
            topic, index, partition, records if demands is None else batch_demands.meet(records, demands)
        )
    except EXPECTED as error:
        return _refused(topic, index, error)
    if partition.flushes and partition.flush_is_due:  # which begins now, whoever waits for it
        return asyncio.ensure_future(_flushed(broker.flush(partition), result))
    return result


async def _flushed(flushing: Awaitable[None], result: ProducedPartition) -> ProducedPartition:
    try:
        await flushing
    except EXPECTED as error:
        return _refused(result.topic, result.partition, error)
    return result


def _in_turn(
    broker: "Broker",
    place: tuple[TopicKey, str, int],
    partition: Partition,
    records: bytearray,
    demands: Demands | None,
) -> "asyncio.Future[ProducedPartition]":
    loop = asyncio.get_running_loop()
    before, turn = partition.turn, loop.create_future()
    partition.turn = turn
    task = loop.create_task(_append_in_turn(broker, place, partition, records, demands, before, turn))
    broker.appends.add(task)
    task.add_done_callback(broker.appends.discard)
    return asyncio.shield(task)  # whoever waits for it


async def _append_in_turn(
    broker: "Broker",
    place: tuple[TopicKey, str, int],
    partition: Partition,
    records: bytearray,
    demands: Demands | None,
    before: "asyncio.Future[None] | None",
    turn: "asyncio.Future[None]",
) -> ProducedPartition:
    topic, name, index = place
    try:
        met: memoryview | bytearray = records
        try:
            if demands is not None:
                pool = _checker if demands.codec is None else _compressor
                met = await asyncio.get_running_loop().run_in_executor(
                    pool, batch_demands.meet, memoryview(records), demands
                )
        finally:
            if before is not None:
                await before
        if broker.partition(name, index) is not partition:  # nor is it there if it was deleted, or failed
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' was made anew meanwhile.")
        result = _appended(topic, index, partition, met)
    except EXPECTED as error:
        return _refused(topic, index, error)
    finally:
        if partition.turn is turn:
            partition.turn = None
        turn.set_result(None)
    return await _flushed(broker.flush(partition), result) if partition.flush_is_due else result


def _appended(topic: TopicKey, index: int, partition: Partition, records: bytearray | memoryview) -> ProducedPartition:
    base_offset, _, append_time_ms, _ = partition.append(records)
    return _produced((topic, index, _NONE, base_offset, append_time_ms, partition.log.log_start_offset, None, ()))


def _refused(topic: TopicKey, index: int, error: Exception) -> ProducedPartition:
    code, text = error_of(error)
    records = error.records if isinstance(error, RecordsRefused) else ()
    return ProducedPartition(topic, index, code, error_message=text, record_errors=records)


def _claims(records: memoryview, version: int, bytes_max: int) -> tuple[int, int]:
    """The batch's codec and latest timestamp, by its own words. Checks what the log does not: that it is one batch, of
    a size, codec and kind that a client may send."""
    length, magic, attributes, latest_ms = _CLAIMS(records)
    size_bytes = len(records)
    if magic != MAGIC:
        raise RequestError(
            ErrorCode.INVALID_RECORD, f"Record batches of format v{magic} are not taken any more; send v{MAGIC}."
        )
    if length + PREFIX_BYTES != size_bytes:
        has = "more" if length + PREFIX_BYTES < size_bytes else "only a part of it"
        raise RequestError(
            ErrorCode.INVALID_RECORD, f"A produce request has exactly one record batch a partition; this has {has}."
        )
    if size_bytes > bytes_max:
        raise RequestError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {size_bytes} bytes; max.message.bytes of the topic is {bytes_max}.",
        )
    if attributes & CODEC_MASK == ZSTD and version < _ZSTD_SINCE:
        raise RequestError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{_ZSTD_SINCE} or later.")
    if attributes & (CONTROL | TRANSACTIONAL):
        if attributes & CONTROL:
            raise RequestError(ErrorCode.INVALID_RECORD, "Control batches are written by the broker alone.")
        raise RequestError(ErrorCode.INVALID_TXN_STATE, "Transactions are not supported yet.")
    return attributes & CODEC_MASK, latest_ms


API = Api(produce.SPEC, answer)
