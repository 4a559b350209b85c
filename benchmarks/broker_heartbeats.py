"""A member's heartbeats while somebody reads a log that has left the page cache, and somebody else writes to a topic
whose every record is synced: neither disk work may keep the heartbeats waiting.

Reader, writer and member are processes of their own, so that none of them waits for another."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import psutil
from confluent_kafka.cimpl import NewTopic

from benchmarks.harness import Case, Contender, Figures, Measure, Options, Target
from benchmarks.peers import TOPIC_SECONDS_MAX, RunningBroker
from benchmarks.raw_client import ask, connections, frame, read_answer
from pylog.broker_lite.protocol import fetch, find_coordinator, heartbeat, join_group, produce, sync_group
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.fetch import FetchPartition, FetchRequest
from pylog.broker_lite.protocol.find_coordinator import FindCoordinatorRequest
from pylog.broker_lite.protocol.heartbeat import HeartbeatRequest
from pylog.broker_lite.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pylog.broker_lite.protocol.produce import ProducePartition, ProduceRequest
from pylog.broker_lite.protocol.sync_group import SyncGroupRequest
from pylog.storage.records import Record, encode_batch

P50 = Measure("heartbeat p50 ms", higher_is_better=False, decimals=2)
P99 = Measure("heartbeat p99 ms", higher_is_better=False, decimals=1)
WORST = Measure("longest ms", higher_is_better=False, decimals=1)
READ = Measure("cold MB/s read")
WRITTEN = Measure("synced writes/s")

COLD_BYTES = 4 << 30
BATCH_BYTES = 1_000_000
SYNCED_BYTES = 16_000
HEARTBEAT_EVERY_SECONDS = 0.005
PRODUCE_VERSION, FETCH_VERSION, JOIN_VERSION = 7, 11, 5

_numbers = count()
_cold_topics: dict[int, str] = {}  # by broker process: filled once, made cold for every round


def cases(running: list[RunningBroker], options: Options) -> list[Case]:
    size_bytes = options.scaled(COLD_BYTES)
    return [
        Case(
            f"heartbeats while a cold log of {size_bytes / (1 << 30):.1f} GB is read and another one synced",
            [Contender(broker.name, partial(_beat, broker, size_bytes)) for broker in running],
            (P50, P99, WORST, READ, WRITTEN),
            {P99.name: Target(ratio_min=1.0)},
        )
    ]


def _beat(broker: RunningBroker, size_bytes: int) -> Figures:
    cold = _cold_topic(broker, size_bytes)
    synced = f"synced-{next(_numbers)}"
    wanted = NewTopic(synced, 1, config={"flush.messages": "1"})
    broker.admin.create_topics([wanted])[synced].result(TOPIC_SECONDS_MAX)
    try:
        with _process("write", broker.bootstrap_servers, synced) as writer:
            _make_cold(broker, cold)
            with _process("read", broker.bootstrap_servers, cold) as reader:
                latencies_ms = sorted(_heartbeats(broker.bootstrap_servers, reader))
                read_mb_per_second = _said(reader)
            writer.terminate()
            written_per_second = _said(writer)
    finally:
        broker.admin.delete_topics([synced])[synced].result(TOPIC_SECONDS_MAX)
    return {
        P50.name: latencies_ms[len(latencies_ms) // 2],
        P99.name: latencies_ms[int(len(latencies_ms) * 0.99)],
        WORST.name: latencies_ms[-1],
        READ.name: read_mb_per_second,
        WRITTEN.name: written_per_second,
    }


def _heartbeats(bootstrap_servers: str, until_ends: "subprocess.Popen[str]") -> Iterator[float]:
    """Milliseconds of each."""
    with connections(bootstrap_servers, 1) as (connection,):
        group = f"heartbeats-{os.getpid()}-{next(_numbers)}"
        joining = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"")],
        )
        deadline = time.monotonic() + TOPIC_SECONDS_MAX
        while (joined := ask(connection, join_group.SPEC, joining, JOIN_VERSION)).error_code:
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:  # a broker makes its topic of groups at first use
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the group cannot be joined: error {joined.error_code}")
                ask(connection, find_coordinator.SPEC, FindCoordinatorRequest(key=group), 2)
                time.sleep(0.1)
            joining.member_id = joined.member_id
        place = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id}
        ask(connection, sync_group.SPEC, SyncGroupRequest(**place), 3)
        beat = frame(heartbeat.SPEC, 3, heartbeat.SPEC.encode_request(HeartbeatRequest(**place), 3))
        while until_ends.poll() is None:
            began = time.perf_counter()
            connection.sendall(beat)
            answer = read_answer(connection)
            yield (time.perf_counter() - began) * 1000
            if answer[8:10] != b"\0\0":
                raise RuntimeError(f"a heartbeat was answered with error {int.from_bytes(answer[8:10])}")
            time.sleep(HEARTBEAT_EVERY_SECONDS)


# The cold log


def _cold_topic(broker: RunningBroker, size_bytes: int) -> str:
    if broker.pid not in _cold_topics:
        topic = f"cold-{next(_numbers)}"
        broker.create_topic(topic, 1)
        with connections(broker.bootstrap_servers, 1) as (connection,):
            request = _produce(topic, BATCH_BYTES)
            for _ in range(size_bytes // BATCH_BYTES):
                connection.sendall(request)
                _check_produced(read_answer(connection))
        _cold_topics[broker.pid] = topic
    return _cold_topics[broker.pid]


def _make_cold(broker: RunningBroker, topic: str) -> None:
    """The kernel forgets the files of the topic, and writes down first what it has not yet."""
    opened = [Path(one.path) for one in psutil.Process(broker.pid).open_files()]
    (directory,) = {path.parent for path in opened if path.parent.name == f"{topic}-0"}
    for path in directory.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _produce(topic: str, value_bytes: int) -> bytes:
    batch = encode_batch([Record(0, time.time_ns() // 1_000_000, None, os.urandom(value_bytes))])
    wanted = ProduceRequest(None, -1, 30_000, [ProducePartition(topic, 0, batch)])
    return frame(produce.SPEC, PRODUCE_VERSION, b"".join(produce.encode_request(wanted, PRODUCE_VERSION)))


def _check_produced(answer: bytes) -> None:
    (result,) = produce.decode_response(answer[4:], PRODUCE_VERSION)
    if result.error_code:
        raise RuntimeError(f"a record was refused with error {result.error_code}")


# The other processes: each prints one figure


@contextlib.contextmanager
def _process(work: str, bootstrap_servers: str, topic: str) -> "Iterator[subprocess.Popen[str]]":
    started = subprocess.Popen(
        [sys.executable, "-m", __name__, work, bootstrap_servers, topic], stdout=subprocess.PIPE, text=True
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def _said(process: "subprocess.Popen[str]") -> float:
    return float(process.communicate(timeout=TOPIC_SECONDS_MAX)[0])


def _read(bootstrap_servers: str, topic: str) -> None:
    """From its start to its end, as a consumer with its defaults asks for it."""
    offset, total_bytes, began = 0, 0, time.perf_counter()
    buffer = bytearray(4 << 20)
    with connections(bootstrap_servers, 1) as (connection,):
        while True:
            wanted = [FetchPartition(topic, 0, offset, 1 << 20)]
            request = FetchRequest(500, 1, 50 << 20, 0, 0, -1, wanted)
            connection.sendall(frame(fetch.SPEC, FETCH_VERSION, fetch.encode_request(request, FETCH_VERSION)))
            got = connection.recv_into(buffer, 4)
            while got < 4 or got < 4 + int.from_bytes(buffer[:4]):
                size = 4 if got < 4 else 4 + int.from_bytes(buffer[:4])
                got += connection.recv_into(memoryview(buffer)[got:size])
            (found,) = fetch.decode_response(memoryview(buffer)[8:got], FETCH_VERSION).partitions
            if found.error_code:
                raise RuntimeError(f"a fetch was answered with error {found.error_code}")
            if offset >= found.high_watermark:
                break
            total_bytes += got
            offset += max(1, len(found.records or b"") // BATCH_BYTES)  # batches of one record, and of this size
    print(total_bytes / 1e6 / (time.perf_counter() - began))


def _write(bootstrap_servers: str, topic: str) -> None:
    """Until it is told to stop, one after the other."""
    written, began = 0, time.perf_counter()
    request = _produce(topic, SYNCED_BYTES)
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    with connections(bootstrap_servers, 1) as (connection,):
        while not stopped:
            connection.sendall(request)
            _check_produced(read_answer(connection))
            written += 1
    print(written / (time.perf_counter() - began))


if __name__ == "__main__":
    {"read": _read, "write": _write}[sys.argv[1]](*sys.argv[2:])
