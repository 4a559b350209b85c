"""A Kafka in this process that keeps batches in lists, answers plainly, and misbehaves when told to.

`faults[api key]` holds what is done to the next requests of that API, one after the other, before
it goes back to answering.
"""

import contextlib
import socket
import struct
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple
from uuid import UUID

from pylog.broker_lite.protocol import (
    api_versions,
    create_topics,
    delete_topics,
    fetch,
    find_coordinator,
    framing,
    init_producer_id,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    wire,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.storage import batch as batches
from tests.support.idempotent_log import Sequences
from tests.support.ports import free_ports

SPECS: dict[int, Any] = {
    module.SPEC.key: module.SPEC
    for module in (
        api_versions,
        create_topics,
        delete_topics,
        fetch,
        find_coordinator,
        init_producer_id,
        list_offsets,
        metadata,
        offset_commit,
        offset_fetch,
        produce,
    )
}
PRODUCE, FETCH, LIST_OFFSETS, METADATA = produce.SPEC.key, fetch.SPEC.key, list_offsets.SPEC.key, metadata.SPEC.key
COMMIT, COMMITTED, COORDINATOR = offset_commit.SPEC.key, offset_fetch.SPEC.key, find_coordinator.SPEC.key
CREATE, DELETE, VERSIONS = create_topics.SPEC.key, delete_topics.SPEC.key, api_versions.SPEC.key
PRODUCER_ID = init_producer_id.SPEC.key
TOPIC_ID = UUID(int=7)
_SILENCE: list[bytes] = []


class Fault(Enum):
    NONE = auto()
    LOSE_REQUEST = auto()  # close without doing what was asked
    LOSE_ANSWER = auto()  # do it, close without saying so
    CUT_ANSWER = auto()  # do it, close in the middle of saying so
    CRUMBLE_ANSWER = auto()  # one byte at a time
    WRONG_CORRELATION = auto()
    GARBAGE = auto()  # a frame of random bytes
    HUGE = auto()  # a frame that says it is 2 GB
    HTTP = auto()
    RESET = auto()  # do it, say so, and be gone: as a broker that stops with requests unread
    SILENCE = auto()  # do it, and never answer again on this connection: a broker answers in order


class Request(NamedTuple):
    node: int
    api: int
    version: int
    body: Any


@dataclass
class FakeLog:
    start: int = 0
    end: int = 0
    batches: list[bytes] = field(default_factory=list)
    sequences: Sequences = field(default_factory=Sequences)
    batch_bytes_max: int = 1 << 30

    def take(self, batch: bytes) -> tuple[int, int]:
        """(error, base offset), as a broker answers a producer."""
        if len(batch) > self.batch_bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        header = batches.check(batch)
        counted = header.producer_id, header.producer_epoch, header.base_sequence, header.record_count
        error, base_offset = self.sequences.check(*counted)
        if not error and base_offset < 0:
            base_offset = self.append(batch)
            self.sequences.took(*counted, base_offset)
        return error, base_offset

    def append(self, batch: bytes) -> int:
        placed = bytearray(batch)
        batches.assign(placed, 0, self.end, 0)
        base, self.end = self.end, batches.read_header(placed).next_offset
        self.batches.append(bytes(placed))
        return base

    def read(self, offset: int, bytes_max: int) -> bytes:
        found = b""
        for batch in self.batches:
            if batches.read_header(batch).next_offset > offset and (not found or len(found) < bytes_max):
                found += batch
        return found[: max(bytes_max, batches.read_prefix(found)[1])] if found else b""


class FakeKafka:
    """`nodes` brokers of one cluster; partition p of a new topic is led by node p % nodes."""

    def __init__(self, topics: dict[str, int] | None = None, nodes: int = 1) -> None:
        self.logs: dict[tuple[str, int], FakeLog] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self.committed: dict[tuple[str, str, int], int] = {}
        self.faults: dict[int, deque[Fault | ErrorCode]] = defaultdict(deque)
        self.requests: list[Request] = []
        self.auto_create = False
        self.api_versions_max = api_versions.SPEC.version_max
        self.version_max: dict[int, int] = {}
        self.coordinator = 0
        self.connections_opened = 0
        self.producer_ids = 1000
        self.resets = threading.Event()
        self.busy = threading.Lock()  # who holds it keeps every request waiting
        self._connections: dict[int, set[socket.socket]] = defaultdict(set)
        self._listeners: dict[int, socket.socket] = {}
        self.ports: dict[int, int] = {}
        for node in range(nodes):
            self.start(node)
        for topic, partitions in (topics or {}).items():
            self.add_topic(topic, partitions)

    def __enter__(self) -> "FakeKafka":
        return self

    def __exit__(self, *_: object) -> None:
        for node in list(self._listeners):
            self.stop(node)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def add_topic(self, topic: str, partitions: int) -> None:
        for partition in range(partitions):
            self.logs[topic, partition] = FakeLog()
            self.leaders[topic, partition] = partition % len(self.ports)

    def asked(self, api: int) -> list[Request]:
        return [request for request in self.requests if request.api == api]

    # Sockets

    def start(self, node: int) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.ports.get(node) or free_ports(1)[0]))
        listener.listen()
        self.ports[node] = listener.getsockname()[1]
        self._listeners[node] = listener
        threading.Thread(target=self._accept, args=(node, listener), daemon=True).start()

    def stop(self, node: int) -> None:
        """As a kill: nobody is told, every connection ends."""
        listener = self._listeners.pop(node)
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in list(self._connections.pop(node, ())):
            _end(connection)

    def _accept(self, node: int, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections_opened += 1
            self._connections[node].add(connection)
            threading.Thread(target=self._serve, args=(node, connection), daemon=True).start()

    def _serve(self, node: int, connection: socket.socket) -> None:
        silent = False
        try:
            while frame := _read_frame(connection):
                answer = self._handle(node, frame)
                if answer is None:
                    break
                silent = silent or answer is _SILENCE
                for part in () if silent else answer:
                    connection.sendall(part)
        except _Reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            self.resets.set()
        except OSError:
            pass
        finally:
            _end(connection)
            self._connections[node].discard(connection)

    def _handle(self, node: int, frame: bytes) -> list[bytes] | None:
        """What to send; None to end the connection."""
        header = framing.read_request_header(frame)
        spec = SPECS[header.api_key]
        version = header.api_version
        if header.api_key == VERSIONS and version > self.api_versions_max:
            body = api_versions.SPEC.encode_response(api_versions.ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION), 0)
            return [_frame(VERSIONS, header.correlation_id, body, False)]
        start = wire.skip_tags(frame, header.body_start) if spec.is_flexible(version) else header.body_start
        with self.busy:
            faults = self.faults[header.api_key]
            fault = faults.popleft() if faults else None
            if fault is Fault.LOSE_REQUEST:
                return None
            module = {PRODUCE: produce, FETCH: fetch}.get(header.api_key, spec)
            request = module.decode_request(memoryview(frame)[start:], version)
            self.requests.append(Request(node, header.api_key, version, request))
            code = fault if isinstance(fault, ErrorCode) else ErrorCode.NONE
            response = _HANDLERS[header.api_key](self, node, request, code, version)
        if response is None:  # acks=0
            return []
        body = response if isinstance(response, bytes) else spec.encode_response(response, version)
        correlation_id = header.correlation_id + (fault is Fault.WRONG_CORRELATION)
        answer = _frame(header.api_key, correlation_id, body, spec.is_flexible(version))
        match fault:
            case Fault.LOSE_ANSWER:
                return None
            case Fault.CUT_ANSWER:
                return _first_half(answer)
            case Fault.RESET:
                return _then_reset(answer)
            case Fault.CRUMBLE_ANSWER:
                return [answer[at : at + 1] for at in range(len(answer))]
            case Fault.GARBAGE:
                return [answer[:8] + b"\xff" * (len(answer) - 8)]
            case Fault.HUGE:
                return [struct.pack(">i", 0x7FFFFFFF)]
            case Fault.HTTP:
                return [b"HTTP/1.1 400 Bad Request\r\n\r\n"]
            case Fault.SILENCE:
                return _SILENCE
        return [answer]

    # Answers

    def _versions(self, node: int, request: Any, code: int, version: int) -> Any:
        return api_versions.ApiVersionsResponse(
            code,
            [
                api_versions.ApiVersion(key, spec.version_min, self.version_max.get(key, spec.version_max))
                for key, spec in SPECS.items()
            ],
        )

    def _metadata(self, node: int, request: Any, code: int, version: int) -> Any:
        topics = []
        for wanted in request.topics:
            if self.auto_create and request.allow_auto_topic_creation and (wanted.name, 0) not in self.logs:
                self.add_topic(wanted.name, 1)
            partitions = [
                metadata.MetadataResponsePartition(partition_index=partition, leader_id=leader)
                for (topic, partition), leader in self.leaders.items()
                if topic == wanted.name
            ]
            missing = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(metadata.MetadataResponseTopic(code or missing, wanted.name, TOPIC_ID, False, partitions))
        brokers = [metadata.MetadataResponseBroker(n, "127.0.0.1", port) for n, port in self.ports.items()]
        return metadata.MetadataResponse(brokers=brokers, controller_id=0, topics=topics)

    def _error(self, node: int, topic: str, partition: int, code: int) -> int:
        if code:
            return code
        if (topic, partition) not in self.logs:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE if self.leaders[topic, partition] == node else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _list_offsets(self, node: int, request: Any, code: int, version: int) -> Any:
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                error = self._error(node, topic.name, partition.partition_index, code)
                log = self.logs.get((topic.name, partition.partition_index), FakeLog())
                offset = log.start if partition.timestamp == list_offsets.EARLIEST_TIMESTAMP else log.end
                partitions.append(
                    list_offsets.ListOffsetsPartitionResponse(partition.partition_index, error, offset=offset)
                )
            topics.append(list_offsets.ListOffsetsTopicResponse(topic.name, partitions))
        return list_offsets.ListOffsetsResponse(topics=topics)

    def _produce(self, node: int, request: produce.ProduceRequest, code: int, version: int) -> bytes | None:
        results = []
        for topic, partition, records in request.partitions:
            error = self._error(node, topic, partition, code)
            assert records is not None
            assert batches.read_prefix(records)[1] == len(records), "one batch per partition"
            base = -1
            if not error:
                error, base = self.logs[topic, partition].take(bytes(records))
            results.append(produce.ProducedPartition(topic, partition, error, base))
        return bytes(produce.encode_response(results, version)) if request.acks else None

    def _producer_id(self, node: int, request: Any, code: int, version: int) -> Any:
        self.producer_ids += 1
        return init_producer_id.InitProducerIdResponse(error_code=code, producer_id=self.producer_ids, producer_epoch=0)

    def _fetch(self, node: int, request: fetch.FetchRequest, code: int, version: int) -> bytes:
        heads, bodies = [], []
        for wanted in request.partitions:
            topic = next(iter(self.logs))[0] if wanted.topic == TOPIC_ID.bytes else str(wanted.topic)
            log = self.logs.get((topic, wanted.partition), FakeLog())
            error = self._error(node, topic, wanted.partition, code)
            if not error and not log.start <= wanted.fetch_offset <= log.end:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
            records = b"" if error else log.read(wanted.fetch_offset, wanted.partition_max_bytes)
            heads.append(
                fetch.PartitionHead(wanted.topic, wanted.partition, error, log.end, log.end, log.start, len(records))
            )
            bodies.append(records)
        pieces = fetch.encode_response_pieces(heads, version)
        return b"".join(bytes(piece) + body for piece, body in zip(pieces, [*bodies, b""], strict=True))

    def _find_coordinator(self, node: int, request: Any, code: int, version: int) -> Any:
        place = self.coordinator, "127.0.0.1", self.ports[self.coordinator]
        return find_coordinator.FindCoordinatorResponse(
            error_code=code,
            node_id=place[0],
            host=place[1],
            port=place[2],
            coordinators=[find_coordinator.Coordinator(key, *place, code) for key in request.coordinator_keys],
        )

    def _commit(self, node: int, request: Any, code: int, version: int) -> Any:
        code = code or (ErrorCode.NONE if node == self.coordinator else ErrorCode.NOT_COORDINATOR)
        answer = offset_commit.OffsetCommitResponse()
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                if not code:
                    place = request.group_id, topic.name, partition.partition_index
                    self.committed[place] = partition.committed_offset
                partitions.append(offset_commit.OffsetCommitResponsePartition(partition.partition_index, code))
            answer.topics.append(offset_commit.OffsetCommitResponseTopic(topic.name, partitions=partitions))
        return answer

    def _committed(self, node: int, request: Any, code: int, version: int) -> Any:
        code = code or (ErrorCode.NONE if node == self.coordinator else ErrorCode.NOT_COORDINATOR)
        group = request.groups[0].group_id if version >= 8 else request.group_id
        wanted = request.groups[0].topics if version >= 8 else request.topics
        places = (
            [(topic, partition) for of, topic, partition in self.committed if of == group]
            if wanted is None
            else [(topic.name, partition) for topic in wanted for partition in topic.partition_indexes]
        )
        topics = [
            offset_fetch.OffsetFetchResponseTopic(
                topic,
                partitions=[
                    offset_fetch.OffsetFetchResponsePartition(
                        partition, self.committed.get((group, topic, partition), -1)
                    )
                ],
            )
            for topic, partition in places
        ]
        return offset_fetch.OffsetFetchResponse(
            topics=topics, error_code=code, groups=[offset_fetch.OffsetFetchResponseGroup(group, topics, code)]
        )

    def _create(self, node: int, request: Any, code: int, version: int) -> Any:
        (topic,) = request.topics
        if not code and (topic.name, 0) in self.logs:
            code = ErrorCode.TOPIC_ALREADY_EXISTS
        if not code:
            self.add_topic(topic.name, max(1, topic.num_partitions))
        return create_topics.CreateTopicsResponse(
            topics=[create_topics.CreatableTopicResult(topic.name, error_code=code, configs=[])]
        )

    def _delete(self, node: int, request: Any, code: int, version: int) -> Any:
        name = request.topics[0].name if version >= 6 else request.topic_names[0]
        if not code and (name, 0) not in self.logs:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for place in [place for place in self.logs if place[0] == name]:
            del self.logs[place], self.leaders[place]
        return delete_topics.DeleteTopicsResponse(responses=[delete_topics.DeletableTopicResult(name, error_code=code)])


_HANDLERS: dict[int, Any] = {
    VERSIONS: FakeKafka._versions,
    METADATA: FakeKafka._metadata,
    LIST_OFFSETS: FakeKafka._list_offsets,
    PRODUCE: FakeKafka._produce,
    PRODUCER_ID: FakeKafka._producer_id,
    FETCH: FakeKafka._fetch,
    COORDINATOR: FakeKafka._find_coordinator,
    COMMIT: FakeKafka._commit,
    COMMITTED: FakeKafka._committed,
    CREATE: FakeKafka._create,
    DELETE: FakeKafka._delete,
}


class _Hangup(OSError):
    pass


class _Reset(OSError):
    pass


def _then_reset(answer: bytes) -> Any:
    yield answer
    raise _Reset


def _first_half(answer: bytes) -> Any:
    yield answer[: len(answer) // 2]
    raise _Hangup


def _frame(api: int, correlation_id: int, body: bytes | bytearray, flexible: bool) -> bytes:
    out = bytearray()
    framing.write_response_header(out, api, correlation_id, flexible=flexible)
    return struct.pack(">i", len(out) + len(body)) + bytes(out) + bytes(body)


def _read_frame(connection: socket.socket) -> bytes:
    """Empty where it ends, though it be in the middle of a frame."""
    head = connection.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return b""
    (size,) = struct.unpack(">i", head)
    frame = connection.recv(size, socket.MSG_WAITALL)
    return frame if len(frame) == size else b""


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
