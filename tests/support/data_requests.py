"""Produce and fetch of any broker, as no client library would: each on a connection of its own."""

import socket
import struct
from collections.abc import Sequence
from uuid import UUID

from pylog.broker_lite.protocol import fetch, metadata, produce
from pylog.broker_lite.protocol.fetch import FetchPartition, FetchRequest, FetchResponse
from pylog.broker_lite.protocol.framing import read_response_header, write_request_header
from pylog.broker_lite.protocol.produce import ProducedPartition, ProducePartition, ProduceRequest
from pylog.broker_lite.protocol.spec import Api
from pylog.broker_lite.protocol.styles import TopicKey
from tests.support.wire_requests import ask


def _exchange(servers: str, spec: Api, body: bytes, version: int) -> bytes | None:
    """None where the broker closes the connection instead of an answer."""
    flexible = spec.is_flexible(version)
    frame = bytearray()
    write_request_header(frame, spec.key, version, 1, "test", flexible=flexible)
    frame += body
    host, _, port = servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        received = connection.makefile("rb")
        head = received.read(4)
        if not head:
            return None
        answer = received.read(*struct.unpack(">i", head))
    return answer[read_response_header(answer, spec.key, flexible=flexible)[1] :]


def send(
    servers: str,
    topic: TopicKey,
    records: bytes | bytearray | None,
    *,
    partition: int = 0,
    acks: int = -1,
    version: int = 9,
    transactional_id: str | None = None,
) -> ProducedPartition | None:
    request = ProduceRequest(transactional_id, acks, 10_000, [ProducePartition(topic, partition, records)])
    answer = _exchange(servers, produce.SPEC, b"".join(produce.encode_request(request, version)), version)
    return None if answer is None else produce.decode_response(answer, version)[0]


def read(
    servers: str,
    partitions: Sequence[FetchPartition],
    *,
    version: int = 12,
    session: tuple[int, int] = (fetch.NO_SESSION_ID, fetch.SESSIONLESS_EPOCH),
    forgotten: Sequence[tuple[TopicKey, list[int]]] = (),
    committed: bool = False,
    replica_id: int = -1,
    wait_ms: int = 0,
    bytes_max: int = 1 << 20,
) -> FetchResponse:
    request = FetchRequest(
        wait_ms, 1, bytes_max, int(committed), *session, list(partitions), forgotten, replica_id=replica_id
    )
    answer = _exchange(servers, fetch.SPEC, bytes(fetch.encode_request(request, version)), version)
    assert answer is not None
    return fetch.decode_response(answer, version)


def topic_id_of(servers: str, topic: str) -> UUID:
    asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return ask(servers, metadata.SPEC, asked).topics[0].topic_id
