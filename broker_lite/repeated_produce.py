"""The produce requests of a connection are alike: what was decoded once is not decoded again.

A producer's next request differs from its last one in its correlation id and in what it says of partitions: their
numbers, their records. If all bytes between are the same, as they mostly are, so is their meaning. Where partitions,
too, are of the plainest kind (one topic, no tags) this file reads the request and writes its answer; all others go the
long way, through `protocol.produce`, and come to the same end.

It matters for small requests: half of their time went into taking apart what had been taken apart before.
"""

from collections.abc import Sequence
from functools import partial
from typing import Optional

from pylog.broker_lite.protocol import produce
from pylog.broker_lite.protocol.framing import SIZE_BYTES, write_response_header
from pylog.broker_lite.protocol.produce import ACKS_TIMEOUT, IDS_SINCE, RESULT_V5, SPEC, ProducePartition
from pylog.broker_lite.protocol.styles import COMPACT, TopicKey
from pylog.broker_lite.protocol.wire import I32, read_uvarint

_KIND_BYTES = 4  # key and version
_HEAD_START = 8
_COUNT_MAX = 0x7E  # of partitions: what a varint of one byte can say
_END = COMPACT.no_tags * 2  # of the topic, of the request
_NO_ERRORS = b"\1\0" + COMPACT.no_tags  # of a partition: no records that were refused, no message
_ANSWER_END = COMPACT.no_tags + bytes(4) + COMPACT.no_tags  # not throttled
_result = RESULT_V5.pack
_partition = partial(tuple.__new__, ProducePartition)  # in half the time


class RepeatedProduce:
    __slots__ = ("_answer_head", "_head", "_head_end", "_kind", "_topic", "acks", "version")

    def __init__(self, frame: memoryview, head_end: int, topic: TopicKey, acks: int, version: int) -> None:
        self.acks, self.version = acks, version
        self._topic = topic
        self._kind = bytes(frame[:_KIND_BYTES])
        self._head = bytes(frame[_HEAD_START:head_end])
        self._head_end = head_end
        self._answer_head = bytearray(SIZE_BYTES)
        write_response_header(self._answer_head, SPEC.key, 0, flexible=True)
        COMPACT.write_count(self._answer_head, 1)
        COMPACT.write_topic(self._answer_head, topic)

    @classmethod
    def of(cls, frame: memoryview, body_start: int, version: int) -> Optional["RepeatedProduce"]:
        """What is to be learned from a request that was answered; None if the next one will not be like it."""
        if version < SPEC.flexible_since:
            return None
        transactional_id, position = COMPACT.read_string(frame, body_start)
        acks, _ = ACKS_TIMEOUT.unpack_from(frame, position)
        topic_count, position = COMPACT.read_count(frame, position + ACKS_TIMEOUT.size)
        if transactional_id is not None or topic_count != 1:
            return None
        topic, head_end = COMPACT.read_topic(frame, position, by_id=version >= IDS_SINCE)
        return cls(frame, head_end, topic, acks, version)

    def decode(self, frame: memoryview) -> list[ProducePartition] | None:
        """None: it is not alike. Nothing is made of it before all of it was looked at."""
        position, end = self._head_end, len(frame)
        if end <= position or frame[_HEAD_START:position] != self._head or frame[:_KIND_BYTES] != self._kind:
            return None
        count = frame[position] - 1
        if not 0 < count <= _COUNT_MAX:
            return None
        position += 1
        topic = self._topic
        partitions = []
        for _ in range(count):
            if position + 5 > end:
                return None
            (index,) = I32.unpack_from(frame, position)
            length = frame[position + 4]
            if length < 0x80:
                position += 5
            else:
                length, position = read_uvarint(frame, position + 4)
            behind = position + length - 1
            if not length or behind >= end or frame[behind]:
                return None
            partitions.append(_partition((topic, index, frame[position:behind])))
            position = behind + 1
        return partitions if frame[position:] == _END else None

    def encode(self, results: Sequence[produce.ProducedPartition], frame: memoryview) -> bytearray:
        """The whole answer to this request, of which every partition was appended to."""
        out = bytearray(self._answer_head)
        out.append(len(results) + 1)
        for _, index, code, base_offset, append_time_ms, start_offset, _, _ in results:
            out += _result(index, code, base_offset, append_time_ms, start_offset)
            out += _NO_ERRORS
        out += _ANSWER_END
        I32.pack_into(out, 0, len(out) - SIZE_BYTES)
        out[SIZE_BYTES:_HEAD_START] = frame[_KIND_BYTES:_HEAD_START]  # the correlation id
        return out
