"""Fetch, key 1. v4: isolation level. v5: log start offset. v7: sessions. v9: leader epoch. v10: zstd. v11: racks.
v12: flexible, last fetched epoch, tags that tell of other leaders. v13: topics by id. v14: same. v15: a follower names
itself in a tag. v16: tags with addresses, which are not written here. v17, v18: tags of followers, which are skipped.

By hand, because it is the hot path: the broker sends the bytes around the records and lets the
kernel send the records themselves from their file; the client gets views of the frame. Partitions
stand in one flat list in the order of the frame; consecutive ones of one topic share a topic
entry on the wire.
"""

import struct
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from pylog.broker_lite.protocol import allowance as memory
from pylog.broker_lite.protocol.allowance import Allowance, allowance_of
from pylog.broker_lite.protocol.spec import Api
from pylog.broker_lite.protocol.styles import COMPACT, PLAIN, Style, TopicKey
from pylog.broker_lite.protocol.wire import I32, Buffer, MalformedFrame, read_uvarint, skip_tags

IDS_SINCE = 13
SPEC = Api("Fetch", 1, 4, 18, 12, ids_since=IDS_SINCE)
_REPLICA_STATE_SINCE = 15

NO_SESSION_ID = 0
SESSIONLESS_EPOCH = -1
READ_UNCOMMITTED = 0
READ_COMMITTED = 1

_HEAD_V4 = struct.Struct(">iiiib")
_HEAD_V7 = struct.Struct(">iiiibii")
_THROTTLE_ERROR_SESSION = struct.Struct(">ihi")
_WANTED_V4 = struct.Struct(">iqi")
_WANTED_V5 = struct.Struct(">iqqi")
_WANTED_V9 = struct.Struct(">iiqqi")
_WANTED_V12 = struct.Struct(">iiqiqi")
_FOUND_V4 = struct.Struct(">ihqq")
_FOUND_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_HEAD_V15 = struct.Struct(">iiibii")
_REPLICA_STATE = struct.Struct(">iqx")
_REPLICA_STATE_TAG = b"\x01\x0d"  # tag 1, 13 bytes: the state and its own tags, of which there are none
_DIVERGING_TAG, _LEADER_TAG = b"\x00\x0d", b"\x01\x09"  # tags 0 and 1, with their sizes
_DIVERGING = struct.Struct(">iqx")
_LEADER = struct.Struct(">iix")
_NO_PREFERRED_REPLICA = I32.pack(-1)
_topic_of = attrgetter("topic")
_WANTED_BYTES = (
    memory.tuple_bytes(7) + 4 * memory.INT32_BYTES + 2 * memory.INT64_BYTES + memory.SLOT_BYTES + memory.KEYED_BYTES
)
_FORGOTTEN_BYTES = memory.tuple_bytes(2) + memory.TEXT_BYTES + memory.LIST_BYTES + memory.SLOT_BYTES


class FetchPartition(NamedTuple):
    topic: TopicKey
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    log_start_offset: int = -1  # of a follower; consumers say -1
    last_fetched_epoch: int = -1


class FetchRequest(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[FetchPartition]
    forgotten: Sequence[tuple[TopicKey, list[int]]] = ()  # (topic, partitions) that leave the session
    rack_id: str = ""
    replica_id: int = -1


class PartitionHead(NamedTuple):
    """What a response says of a partition before its `records_bytes` record bytes (-1: null records), and behind."""

    topic: TopicKey
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records_bytes: int = 0
    aborted_transactions: Sequence[tuple[int, int]] | None = None  # (producer id, first offset)
    diverging_epoch: tuple[int, int] | None = None  # (epoch, its end): what the reader has behind it is not in the log
    current_leader: tuple[int, int] | None = None  # (node, epoch), for a reader who knows an older one


class FetchedPartition(NamedTuple):
    topic: TopicKey
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Buffer | None  # a memoryview of the frame; the last batch may be cut off
    aborted_transactions: list[tuple[int, int]] | None = None


class FetchResponse(NamedTuple):
    error_code: int
    session_id: int
    partitions: list[FetchedPartition]
    throttle_time_ms: int = 0


def _style(version: int) -> Style:
    return COMPACT if version >= SPEC.flexible_since else PLAIN


def decode_request(body: Buffer, version: int) -> FetchRequest:
    try:
        return _decode_request(body, version)
    except struct.error:
        raise MalformedFrame(f"FetchRequest v{version} does not end in its frame") from None


def _decode_request(frame: Buffer, version: int) -> FetchRequest:
    style, by_id = _style(version), version >= IDS_SINCE
    head: tuple[int, ...]
    if version >= _REPLICA_STATE_SINCE:
        head, position = (-1, *_HEAD_V15.unpack_from(frame, 0)), _HEAD_V15.size
    elif version >= 7:
        head, position = _HEAD_V7.unpack_from(frame, 0), _HEAD_V7.size
    else:
        head, position = (*_HEAD_V4.unpack_from(frame, 0), NO_SESSION_ID, SESSIONLESS_EPOCH), _HEAD_V4.size
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = head
    partitions: list[FetchPartition] = []
    allowance = allowance_of(frame)
    topic_count, position = style.read_length(frame, position)
    if allowance is not None:
        allowance.take(topic_count, memory.TEXT_BYTES)
    for _ in range(topic_count):
        topic, position = style.read_topic(frame, position, by_id=by_id)
        partition_count, position = style.read_length(frame, position)
        if allowance is not None:
            allowance.take(partition_count, _WANTED_BYTES)
        for _ in range(partition_count):
            wanted, position = _read_wanted(frame, position, topic, version)
            partitions.append(wanted)
            position = style.skip_tags(frame, position)
        position = style.skip_tags(frame, position)
    forgotten: list[tuple[TopicKey, list[int]]] = []
    if version >= 7:
        forgotten, position = _read_forgotten(frame, position, style, allowance, by_id=by_id)
    rack_id = ""
    if version >= 11:
        rack_id, position = style.read_text(frame, position)
    if version >= _REPLICA_STATE_SINCE:
        replica_id = _read_replica_id(frame, position)
    else:
        style.skip_tags(frame, position)
    return FetchRequest(
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        partitions,
        forgotten,
        rack_id,
        replica_id,
    )


def _read_replica_id(frame: Buffer, position: int) -> int:
    """From the tags at the end; -1, a consumer, if nothing is said."""
    replica_id = -1
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        if size > len(frame) - position:
            raise MalformedFrame("a tagged field does not end in its frame")
        if tag == _REPLICA_STATE_TAG[0]:
            replica_id, _ = _REPLICA_STATE.unpack_from(frame, position)
            if skip_tags(frame, position + _REPLICA_STATE.size - 1) != position + size:
                raise MalformedFrame("the state of a replica does not fill its size")
        position += size
    return replica_id


def _read_wanted(frame: Buffer, position: int, topic: TopicKey, version: int) -> tuple[FetchPartition, int]:
    epoch = last_epoch = start = -1
    if version >= 12:
        partition, epoch, offset, last_epoch, start, bytes_max = _WANTED_V12.unpack_from(frame, position)
        position += _WANTED_V12.size
    elif version >= 9:
        partition, epoch, offset, start, bytes_max = _WANTED_V9.unpack_from(frame, position)
        position += _WANTED_V9.size
    elif version >= 5:
        partition, offset, start, bytes_max = _WANTED_V5.unpack_from(frame, position)
        position += _WANTED_V5.size
    else:
        partition, offset, bytes_max = _WANTED_V4.unpack_from(frame, position)
        position += _WANTED_V4.size
    return FetchPartition(topic, partition, offset, bytes_max, epoch, start, last_epoch), position


def _read_forgotten(
    frame: Buffer, position: int, style: Style, allowance: Allowance | None, *, by_id: bool
) -> tuple[list[tuple[TopicKey, list[int]]], int]:
    forgotten: list[tuple[TopicKey, list[int]]] = []
    topic_count, position = style.read_length(frame, position)
    if allowance is not None:
        allowance.take(topic_count, _FORGOTTEN_BYTES)
    for _ in range(topic_count):
        topic, position = style.read_topic(frame, position, by_id=by_id)
        count, position = style.read_length(frame, position)
        if allowance is not None:
            allowance.take(count, memory.INT32_BYTES + 2 * memory.SLOT_BYTES)
        if count * 4 > len(frame) - position:
            raise MalformedFrame(f"{count} partitions in a frame of {len(frame)} bytes")
        forgotten.append((topic, list(struct.unpack_from(f">{count}i", frame, position))))
        position = style.skip_tags(frame, position + count * 4)
    return forgotten, position


def encode_request(request: FetchRequest, version: int) -> bytearray:
    style = _style(version)
    head = (request.replica_id, request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    if version >= _REPLICA_STATE_SINCE:
        out = bytearray(_HEAD_V15.pack(*head[1:], request.session_id, request.session_epoch))
    elif version >= 7:
        out = bytearray(_HEAD_V7.pack(*head, request.session_id, request.session_epoch))
    else:
        out = bytearray(_HEAD_V4.pack(*head))
    topics = [(topic, list(group)) for topic, group in groupby(request.partitions, key=_topic_of)]
    style.write_count(out, len(topics))
    for topic, partitions in topics:
        style.write_topic(out, topic)
        style.write_count(out, len(partitions))
        for wanted in partitions:
            out += _pack_wanted(wanted, version)
            out += style.no_tags
        out += style.no_tags
    if version >= 7:
        style.write_count(out, len(request.forgotten))
        for topic, forgotten in request.forgotten:
            style.write_topic(out, topic)
            style.write_count(out, len(forgotten))
            out += struct.pack(f">{len(forgotten)}i", *forgotten)
            out += style.no_tags
    if version >= 11:
        style.write_string(out, request.rack_id)
    if version >= _REPLICA_STATE_SINCE and request.replica_id != -1:
        out += b"\x01" + _REPLICA_STATE_TAG + _REPLICA_STATE.pack(request.replica_id, -1)
    else:
        out += style.no_tags
    return out


def _pack_wanted(wanted: FetchPartition, version: int) -> bytes:
    _, partition, offset, bytes_max, epoch, start, last_epoch = wanted
    if version >= 12:
        return _WANTED_V12.pack(partition, epoch, offset, last_epoch, start, bytes_max)
    if version >= 9:
        return _WANTED_V9.pack(partition, epoch, offset, start, bytes_max)
    if version >= 5:
        return _WANTED_V5.pack(partition, offset, start, bytes_max)
    return _WANTED_V4.pack(partition, offset, bytes_max)


def encode_response_pieces(
    partitions: Sequence[PartitionHead],
    version: int,
    error_code: int = 0,
    session_id: int = NO_SESSION_ID,
    throttle_time_ms: int = 0,
) -> list[bytearray]:
    """n + 1 pieces for n partitions: behind piece i come the record bytes of partition i."""
    style, out = _style(version), bytearray()
    pieces = [out]
    if version >= 7:
        out += _THROTTLE_ERROR_SESSION.pack(throttle_time_ms, error_code, session_id)
    else:
        out += I32.pack(throttle_time_ms)
    topics = [(topic, list(group)) for topic, group in groupby(partitions, key=_topic_of)]
    style.write_count(out, len(topics))
    pack, last = (_FOUND_V5.pack, 6) if version >= 5 else (_FOUND_V4.pack, 5)
    preferred = _NO_PREFERRED_REPLICA if version >= 11 else b""
    no_tags, not_aborted = style.no_tags, style.null_array + preferred
    for topic, heads in topics:
        style.write_topic(out, topic)
        style.write_count(out, len(heads))
        for head in heads:
            _, _, _, _, _, _, records_bytes, aborted, diverging, leader = head
            out += pack(*head[1:last])
            if aborted is None:
                out += not_aborted
            else:
                _write_aborted(out, aborted, style)
                out += preferred
            style.write_bytes_length(out, records_bytes)
            out = bytearray(no_tags)
            if (diverging or leader) and version >= 12:
                out = _tags_of(head)
            pieces.append(out)
        out += style.no_tags
    out += style.no_tags
    return pieces


def _tags_of(head: PartitionHead) -> bytearray:
    tags = []
    if head.diverging_epoch is not None:
        tags.append(_DIVERGING_TAG + _DIVERGING.pack(*head.diverging_epoch))
    if head.current_leader is not None:
        tags.append(_LEADER_TAG + _LEADER.pack(*head.current_leader))
    return bytearray(bytes([len(tags)]) + b"".join(tags))


def _write_aborted(out: bytearray, aborted: Sequence[tuple[int, int]], style: Style) -> None:
    style.write_count(out, len(aborted))
    for producer_id, first_offset in aborted:
        out += _ABORTED.pack(producer_id, first_offset)
        out += style.no_tags


def decode_response(body: Buffer, version: int) -> FetchResponse:
    try:
        return _decode_response(memoryview(body), version)
    except struct.error:
        raise MalformedFrame(f"FetchResponse v{version} does not end in its frame") from None


def _decode_response(frame: memoryview, version: int) -> FetchResponse:
    style = _style(version)
    error_code, session_id = 0, NO_SESSION_ID
    if version >= 7:
        throttle_time_ms, error_code, session_id = _THROTTLE_ERROR_SESSION.unpack_from(frame, 0)
        position = _THROTTLE_ERROR_SESSION.size
    else:
        (throttle_time_ms,), position = I32.unpack_from(frame, 0), I32.size
    partitions: list[FetchedPartition] = []
    topic_count, position = style.read_length(frame, position)
    for _ in range(topic_count):
        topic, position = style.read_topic(frame, position, by_id=version >= IDS_SINCE)
        partition_count, position = style.read_length(frame, position)
        for _ in range(partition_count):
            start = -1
            if version >= 5:
                partition, code, high_watermark, stable, start = _FOUND_V5.unpack_from(frame, position)
                position += _FOUND_V5.size
            else:
                partition, code, high_watermark, stable = _FOUND_V4.unpack_from(frame, position)
                position += _FOUND_V4.size
            aborted, position = _read_aborted(frame, position, style)
            if version >= 11:
                position += len(_NO_PREFERRED_REPLICA)
            records, position = style.read_bytes(frame, position)
            position = style.skip_tags(frame, position)
            partitions.append(FetchedPartition(topic, partition, code, high_watermark, stable, start, records, aborted))
        position = style.skip_tags(frame, position)
    style.skip_tags(frame, position)
    return FetchResponse(error_code, session_id, partitions, throttle_time_ms)


def _read_aborted(frame: Buffer, position: int, style: Style) -> tuple[list[tuple[int, int]] | None, int]:
    count, position = style.read_count(frame, position)
    if count < 0:
        return None, position
    aborted: list[tuple[int, int]] = []
    for _ in range(count):
        producer_id, first_offset = _ABORTED.unpack_from(frame, position)
        position = style.skip_tags(frame, position + _ABORTED.size)
        aborted.append((producer_id, first_offset))
    return aborted, position
