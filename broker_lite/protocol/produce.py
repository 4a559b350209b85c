"""Produce, key 0. v3: record batch v2, transactional id. v5: log start offset. v7: zstd. v8: error messages.
v9: flexible. v10: tags that name the new leader. v11, v12: for transactions. v13: topics by id.

By hand, because it is the hot path: the records of a request are views of its frame, and a
request is sent as a list of buffers, so that no batch is ever copied. Partitions stand in one
flat list in the order of the frame; consecutive ones of one topic share a topic entry on the wire.
"""

import struct
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from pylog.broker_lite.protocol import allowance as memory
from pylog.broker_lite.protocol.allowance import allowance_of
from pylog.broker_lite.protocol.schema import ANY_SIZE, LargeMessage
from pylog.broker_lite.protocol.spec import Api
from pylog.broker_lite.protocol.styles import COMPACT, PLAIN, Style, TopicKey
from pylog.broker_lite.protocol.wire import I32, Buffer, MalformedFrame

# Implemented from 3; old librdkafka compresses only for brokers that advertise version 0.
IDS_SINCE = 13
SPEC = Api("Produce", 0, 3, 13, 9, advertised_min=0, ids_since=IDS_SINCE)

ACKS_TIMEOUT = struct.Struct(">hi")
_RESULT_V3 = struct.Struct(">ihqq")
RESULT_V5 = struct.Struct(">ihqqq")
_topic_of = attrgetter("topic")
_PARTITION_BYTES = memory.tuple_bytes(3) + memory.INT32_BYTES + memory.VIEW_BYTES + memory.SLOT_BYTES


class ProducePartition(NamedTuple):
    topic: TopicKey
    partition: int
    records: Buffer | None  # decoded: a memoryview of the frame


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[ProducePartition]


class ProducedPartition(NamedTuple):
    topic: TopicKey
    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()  # (index in the batch, message)


def _style(version: int) -> Style:
    return COMPACT if version >= SPEC.flexible_since else PLAIN


def decode_request(body: Buffer, version: int, partitions_max: int = ANY_SIZE) -> ProduceRequest:
    """LargeMessage as soon as it is seen to have more partitions."""
    frame, style = memoryview(body), _style(version)
    try:
        return _decode_request(frame, style, partitions_max, by_id=version >= IDS_SINCE)
    except struct.error:
        raise MalformedFrame(f"ProduceRequest v{version} does not end in its frame") from None


def _decode_request(frame: memoryview, style: Style, partitions_max: int, *, by_id: bool) -> ProduceRequest:
    transactional_id, position = style.read_string(frame, 0)
    acks, timeout_ms = ACKS_TIMEOUT.unpack_from(frame, position)
    partitions: list[ProducePartition] = []
    allowance = allowance_of(frame)
    topic_count, position = style.read_length(frame, position + ACKS_TIMEOUT.size)
    if allowance is not None:
        allowance.take(topic_count, memory.TEXT_BYTES)
    for _ in range(topic_count):
        topic, position = style.read_topic(frame, position, by_id=by_id)
        partition_count, position = style.read_length(frame, position)
        if allowance is not None:
            allowance.take(partition_count, _PARTITION_BYTES)
        partitions_max -= partition_count
        if partitions_max < 0:
            raise LargeMessage
        for _ in range(partition_count):
            (partition,) = I32.unpack_from(frame, position)
            records, position = style.read_bytes(frame, position + 4)
            position = style.skip_tags(frame, position)
            partitions.append(ProducePartition(topic, partition, records))
        position = style.skip_tags(frame, position)
    style.skip_tags(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def encode_request(request: ProduceRequest, version: int) -> list[Buffer]:
    """Buffers to be sent one after the other; the record batches are those of the caller, not copies."""
    style, out = _style(version), bytearray()
    pieces: list[Buffer] = []
    style.write_string(out, request.transactional_id)
    out += ACKS_TIMEOUT.pack(request.acks, request.timeout_ms)
    topics = [(topic, list(group)) for topic, group in groupby(request.partitions, key=_topic_of)]
    style.write_count(out, len(topics))
    for topic, partitions in topics:
        style.write_topic(out, topic)
        style.write_count(out, len(partitions))
        for partition in partitions:
            out += I32.pack(partition.partition)
            if partition.records is None:
                style.write_bytes_length(out, -1)
            else:
                style.write_bytes_length(out, len(partition.records))
                pieces += [out, partition.records]
                out = bytearray()
            out += style.no_tags
        out += style.no_tags
    out += style.no_tags
    if out:
        pieces.append(out)
    return pieces


def encode_response(partitions: Sequence[ProducedPartition], version: int, throttle_time_ms: int = 0) -> bytearray:
    style, out = _style(version), bytearray()
    topics = [(topic, list(group)) for topic, group in groupby(partitions, key=_topic_of)]
    style.write_count(out, len(topics))
    for topic, results in topics:
        style.write_topic(out, topic)
        style.write_count(out, len(results))
        for result in results:
            if version >= 5:
                out += RESULT_V5.pack(*result[1:6])
            else:
                out += _RESULT_V3.pack(*result[1:5])
            if version >= 8:
                if result.record_errors:
                    _write_record_errors(out, result.record_errors, style)
                else:
                    style.write_count(out, 0)
                style.write_string(out, result.error_message)
            out += style.no_tags
        out += style.no_tags
    out += I32.pack(throttle_time_ms)
    out += style.no_tags
    return out


def _write_record_errors(out: bytearray, errors: Sequence[tuple[int, str | None]], style: Style) -> None:
    style.write_count(out, len(errors))
    for index, text in errors:
        out += I32.pack(index)
        style.write_string(out, text)
        out += style.no_tags


def decode_response(body: Buffer, version: int) -> list[ProducedPartition]:
    try:
        return _decode_response(body, version)
    except struct.error:
        raise MalformedFrame(f"ProduceResponse v{version} does not end in its frame") from None


def _decode_response(frame: Buffer, version: int) -> list[ProducedPartition]:
    style = _style(version)
    results: list[ProducedPartition] = []
    topic_count, position = style.read_length(frame, 0)
    for _ in range(topic_count):
        topic, position = style.read_topic(frame, position, by_id=version >= IDS_SINCE)
        partition_count, position = style.read_length(frame, position)
        for _ in range(partition_count):
            log_start_offset, error_message = -1, None
            record_errors: Sequence[tuple[int, str | None]] = ()
            if version >= 5:
                partition, code, base, append_time_ms, log_start_offset = RESULT_V5.unpack_from(frame, position)
                position += RESULT_V5.size
            else:
                partition, code, base, append_time_ms = _RESULT_V3.unpack_from(frame, position)
                position += _RESULT_V3.size
            if version >= 8:
                record_errors, position = _read_record_errors(frame, position, style)
                error_message, position = style.read_string(frame, position)
            position = style.skip_tags(frame, position)
            fields = (partition, code, base, append_time_ms, log_start_offset, error_message, record_errors)
            results.append(ProducedPartition(topic, *fields))
        position = style.skip_tags(frame, position)
    I32.unpack_from(frame, position)  # the throttle time
    style.skip_tags(frame, position + 4)
    return results


def _read_record_errors(frame: Buffer, position: int, style: Style) -> tuple[Sequence[tuple[int, str | None]], int]:
    count, position = style.read_length(frame, position)
    if not count:
        return (), position
    errors: list[tuple[int, str | None]] = []
    for _ in range(count):
        (index,) = I32.unpack_from(frame, position)
        text, position = style.read_string(frame, position + 4)
        position = style.skip_tags(frame, position)
        errors.append((index, text))
    return errors, position
