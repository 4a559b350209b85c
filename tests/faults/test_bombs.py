"""Batches that unfold to a thousand times their size: refused where the broker must look inside, carried unopened where
it need not, and never unfolded in memory."""

import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from crc32c import crc32c

import pylog
from pylog.broker_lite.protocol import produce
from pylog.broker_lite.protocol.create_topics import SPEC as CREATE_TOPICS
from pylog.broker_lite.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.list_offsets import (
    SPEC as LIST_OFFSETS,
)
from pylog.broker_lite.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pylog.broker_lite.protocol.produce import ProducedPartition, ProducePartition, ProduceRequest
from pylog.storage import codecs
from pylog.storage.batch import HEADER_BYTES
from pylog.storage.records import Record, encode_batch
from tests.support.wire_clients import API_VERSIONS, WireClient, frame, memory_bytes
from tests.support.wire_requests import ask

NOW_MS = 1_700_000_000_000
GROWTH_BYTES_MAX = 150_000_000
UNFOLDED_BYTES = {codecs.GZIP: 300 << 20, codecs.SNAPPY: 20 << 20, codecs.LZ4: 200 << 20, codecs.ZSTD: 1000 << 20}


@pytest.fixture(scope="module")
def broker() -> Iterator[pylog.Broker]:
    with pylog.Broker(config={"log.retention.ms": -1}) as running:
        for name, options in (
            ("plain", {}),
            ("compacted", {"cleanup.policy": "compact"}),
            ("recompressed", {"compression.type": "lz4"}),
            ("unfolded", {"compression.type": "uncompressed"}),
        ):
            configs = [CreatableTopicConfig(*pair) for pair in options.items()]
            wanted = CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1, [], configs)], timeout_ms=30_000)
            assert ask(running.bootstrap_servers, CREATE_TOPICS, wanted, 5).topics[0].error_code == ErrorCode.NONE
        yield running


@cache
def bomb(codec: int) -> bytes:
    """A batch of one record, so its header says, with zeros without end."""
    whole = bytearray(encode_batch([Record(0, NOW_MS, b"k", b"v")]))
    if codec == codecs.GZIP:  # bit by bit: the test has no gigabyte either
        packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        pieces = [packer.compress(bytes(1 << 20)) for _ in range(UNFOLDED_BYTES[codec] >> 20)]
        packed = b"".join(pieces) + packer.flush()
    else:
        packed = codecs.compress(codec, bytes(UNFOLDED_BYTES[codec]))
    assert len(packed) < 1_000_000
    whole[HEADER_BYTES:] = packed
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    struct.pack_into(">h", whole, 21, codec)
    struct.pack_into(">I", whole, 17, crc32c(whole[21:]))
    return bytes(whole)


@contextmanager
def little_memory(pid: int) -> Iterator[None]:
    """At no moment of the block does the process have much more than at its beginning."""
    before_bytes = memory_bytes(pid)
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # its peak is what it has now
    yield
    (peak_kb,) = re.findall(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert int(peak_kb) * 1024 - before_bytes < GROWTH_BYTES_MAX


def produced(servers: str, topic: str, batch: bytes) -> ProducedPartition:
    wanted = ProduceRequest(None, -1, 30_000, [ProducePartition(topic, 0, batch)])
    with WireClient(servers) as client:
        answer = client.ask(frame(0, 9, b"".join(produce.encode_request(wanted, 9)), flexible=True))
    return produce.decode_response(answer[5:], 9)[0]


@pytest.mark.parametrize(
    ("topic", "codec"),
    [
        pytest.param(topic, codec, id=f"{topic} {codecs.NAME_BY_CODEC[codec]}")
        for topic in ("compacted", "recompressed", "unfolded")
        for codec in UNFOLDED_BYTES
        if (topic, codec) != ("recompressed", codecs.LZ4)  # it is as the topic wants it, and nobody looks inside
    ],
)
def test_a_bomb_is_refused_and_its_memory_is_not_taken(broker: pylog.Broker, topic: str, codec: int) -> None:
    assert broker.pid is not None
    data = bomb(codec)
    with little_memory(broker.pid):
        refused = produced(broker.bootstrap_servers, topic, data)
    assert refused.error_code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    assert refused.error_message


@pytest.mark.parametrize("codec", UNFOLDED_BYTES, ids=codecs.NAME_BY_CODEC.get)
def test_where_nobody_looks_inside_it_is_carried_and_a_look_at_its_times_is_bounded(
    broker: pylog.Broker, codec: int
) -> None:
    assert broker.pid is not None
    assert produced(broker.bootstrap_servers, "plain", bomb(codec)).error_code == ErrorCode.NONE
    asked = ListOffsetsPartition(partition_index=0, timestamp=NOW_MS)
    wanted = ListOffsetsRequest(topics=[ListOffsetsTopic("plain", [asked])])
    with little_memory(broker.pid):
        ask(broker.bootstrap_servers, LIST_OFFSETS, wanted, 7)
    with WireClient(broker.bootstrap_servers) as other:
        assert len(other.ask(API_VERSIONS)) > 10
