"""What more of something costs: partitions, connections, groups. A case is the same work with another number."""

import time
from collections.abc import Callable
from functools import partial
from itertools import count
from socket import socket
from typing import Any

from benchmarks import kafka_tools, raw_client
from benchmarks.broker_produce import BATCHED
from benchmarks.harness import Case, Contender, Figures, Measure, Options, say
from benchmarks.kafka_tools import Load
from benchmarks.peers import RunningBroker, memory_mb
from benchmarks.storage_logs import batch_of
from pylog.broker_lite.protocol import find_coordinator, join_group, offset_commit, produce, sync_group
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.storage.batch import read_header

VALUE_BYTES = 100
PARTITION_COUNTS = (1, 1_000)
CONNECTION_COUNTS = (1, 1_000)
GROUP_COUNTS = (1, 100)
PARTITION_LOAD = Load(1_000_000, VALUE_BYTES, BATCHED)
REQUESTS = 20_000
COMMITS = 10_000
BATCH_BYTES = 1_000
WARM_UP_REQUESTS = 2  # a connection
READY_SECONDS_MAX = 60.0

WRITTEN = Measure("records/s in, growth")
READ = Measure("records/s out, growth")
REQUEST_RATE = Measure("requests/s")
REQUEST_CPU = Measure("broker CPU µs/request", higher_is_better=False)
REQUEST_P99 = Measure("p99 ms of a request", higher_is_better=False, decimals=1)
MEMORY = Measure("memory MB", higher_is_better=False)
REQUEST_MEASURES = (REQUEST_RATE, REQUEST_CPU, REQUEST_P99, MEMORY)

_PRODUCE_VERSION, _FIND_VERSION, _JOIN_VERSION, _SYNC_VERSION, _COMMIT_VERSION = 9, 2, 5, 3, 8
_NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_numbers = count()


def partition_cases(partitions: int, running: list[RunningBroker], options: Options) -> list[Case]:
    """Kafka's own tools on one topic: the producer fills its partitions in turn, the consumer fetches from all."""
    topic = f"partitions-{partitions}"
    for broker in running:
        say(f"  making {partitions:,} partitions in {broker.name}")
        broker.create_topic(topic, partitions)
    load = Load(options.scaled(PARTITION_LOAD.count), VALUE_BYTES, BATCHED)
    return [_case(running, _counted(partitions, "partition"), (WRITTEN, READ, MEMORY), _over_partitions, topic, load)]


def connection_cases(connections: int, running: list[RunningBroker], options: Options) -> list[Case]:
    """Each connection produces a batch of 1 KB, waits for the answer (acks=1), and produces again."""
    requests = options.scaled(REQUESTS)
    name = f"{_counted(connections, 'connection')}, each produces"
    return [_case(running, name, REQUEST_MEASURES, _over_connections, connections, requests)]


def group_cases(groups: int, running: list[RunningBroker], options: Options) -> list[Case]:
    """Each group has one member, which commits an offset, waits for the answer, and commits again."""
    commits = options.scaled(COMMITS)
    return [
        _case(running, f"{_counted(groups, 'group')}, each commits", REQUEST_MEASURES, _over_groups, groups, commits)
    ]


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("s" if number > 1 else "")


# Brokers of its own for each number: what memory was taken once is not always given back.
CASES: list[Callable[[list[RunningBroker], Options], list[Case]]] = [
    partial(cases, number)
    for cases, numbers in (
        (partition_cases, PARTITION_COUNTS),
        (connection_cases, CONNECTION_COUNTS),
        (group_cases, GROUP_COUNTS),
    )
    for number in numbers
]


def _case(
    running: list[RunningBroker],
    name: str,
    measures: tuple[Measure, ...],
    work: Callable[..., Figures],
    *arguments: Any,
) -> Case:
    return Case(name, [Contender(broker.name, partial(work, broker, *arguments)) for broker in running], measures)


def _over_partitions(broker: RunningBroker, topic: str, load: Load) -> Figures:
    sent = kafka_tools.send(broker.bootstrap_servers, topic, load)
    read = kafka_tools.receive(broker.bootstrap_servers, topic, load.count)
    return {WRITTEN.name: sent.records_per_second, READ.name: read, MEMORY.name: memory_mb(broker.pid)}


def _over_connections(broker: RunningBroker, connections: int, requests: int) -> Figures:
    with (
        broker.topic(f"connections-{next(_numbers)}", partitions=1) as topic,
        raw_client.connections(broker.bootstrap_servers, connections) as opened,
    ):
        batch = batch_of(BATCH_BYTES)
        asked = produce.ProduceRequest(None, 1, 1_000, [produce.ProducePartition(topic, 0, batch)])
        body = b"".join(produce.encode_request(asked, _PRODUCE_VERSION))
        frames = [raw_client.frame(produce.SPEC, _PRODUCE_VERSION, body)] * connections
        figures = _driven(broker, opened, frames, requests)
        wanted = (requests + connections * WARM_UP_REQUESTS) * read_header(batch).record_count
        if broker.records_in(topic, 1) != wanted:
            raise RuntimeError(f"{broker.records_in(topic, 1)} records were written, and not {wanted}")
        return figures


def _over_groups(broker: RunningBroker, groups: int, commits: int) -> Figures:
    with (
        broker.topic(f"groups-{next(_numbers)}", partitions=1) as topic,
        raw_client.connections(broker.bootstrap_servers, groups) as opened,
    ):
        frames = [_commit_of_a_member(one, f"{topic}-{number}", topic) for number, one in enumerate(opened)]
        return _driven(broker, opened, frames, commits, _check_commit)


def _driven(
    broker: RunningBroker,
    opened: list[socket],
    frames: list[bytes],
    requests: int,
    check: Callable[[bytes], None] | None = None,
) -> Figures:
    raw_client.drive(opened, frames, len(opened) * WARM_UP_REQUESTS)
    cpu = broker.cpu_seconds()
    driven = raw_client.drive(opened, frames, requests)
    used = broker.cpu_seconds() - cpu
    if check is not None:
        for answer in driven.last_answers:
            check(answer)
    return {
        REQUEST_RATE.name: driven.requests_per_second,
        REQUEST_CPU.name: used / requests * 1e6,
        REQUEST_P99.name: driven.percentile_ms(0.99),
        MEMORY.name: memory_mb(broker.pid),
    }


def _commit_of_a_member(connection: socket, group: str, topic: str) -> bytes:
    """Joins the group as its only member; the frame of a commit of it."""
    find = find_coordinator.FindCoordinatorRequest(group)
    _until_ready(lambda: raw_client.ask(connection, find_coordinator.SPEC, find, _FIND_VERSION))
    protocols = [join_group.JoinGroupRequestProtocol("range", b"")]

    def join(member_id: str) -> Any:
        asked = join_group.JoinGroupRequest(group, 60_000, 60_000, member_id, None, "consumer", protocols)
        return _until_ready(lambda: raw_client.ask(connection, join_group.SPEC, asked, _JOIN_VERSION))

    joined = join(join("").member_id)  # the first time it is told its id
    given = [sync_group.SyncGroupRequestAssignment(joined.member_id, b"")]
    asked = sync_group.SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=given)
    synced = raw_client.ask(connection, sync_group.SPEC, asked, _SYNC_VERSION)
    if joined.error_code or synced.error_code:
        raise RuntimeError(f"{group}: join {joined.error_code}, sync {synced.error_code}")
    place = offset_commit.OffsetCommitRequestPartition(0, 1, committed_metadata="")
    places = [offset_commit.OffsetCommitRequestTopic(topic, partitions=[place])]
    commit = offset_commit.OffsetCommitRequest(group, joined.generation_id, joined.member_id, topics=places)
    body = offset_commit.SPEC.encode_request(commit, _COMMIT_VERSION)
    return raw_client.frame(offset_commit.SPEC, _COMMIT_VERSION, body)


def _until_ready(ask: Callable[[], Any]) -> Any:
    """Apache Kafka makes the topic of its groups when it is first asked, and then takes a while."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while (answer := ask()).error_code in _NOT_READY:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no coordinator in {READY_SECONDS_MAX} s")
        time.sleep(0.1)
    return answer


def _check_commit(answer: bytes) -> None:
    found = offset_commit.SPEC.decode_response(
        raw_client.body_of(offset_commit.SPEC, _COMMIT_VERSION, answer), _COMMIT_VERSION
    )
    code = found.topics[0].partitions[0].error_code
    if code != ErrorCode.NONE:
        raise RuntimeError(f"a commit was refused: {code}")
