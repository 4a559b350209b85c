"""One request with thousands of things in it: while it is worked on, others are answered."""

import select
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import pylog
from pylog.broker_lite.api_table import API_BY_KEY
from pylog.broker_lite.apis.join_group import PROTOCOLS_MAX
from pylog.broker_lite.config_changes import OPTIONS_MAX
from pylog.broker_lite.protocol import (
    alter_configs,
    create_partitions,
    create_topics,
    fetch,
    incremental_alter_configs,
    join_group,
    leave_group,
    produce,
)
from pylog.broker_lite.protocol.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from pylog.broker_lite.protocol.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from pylog.broker_lite.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.fetch import FetchPartition, FetchRequest
from pylog.broker_lite.protocol.framing import read_response_header
from pylog.broker_lite.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pylog.broker_lite.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from pylog.broker_lite.protocol.produce import ProducePartition, ProduceRequest
from pylog.broker_lite.protocol.schema import Spec
from pylog.broker_lite.protocol.spec import ApiSpec
from pylog.broker_lite.protocol.wire import write_compact_count
from pylog.broker_lite.turns import LARGE_BYTES
from pylog.storage.records import Record, encode_batch
from tests.support.wire_clients import API_VERSIONS, WireClient, frame, memory_peak_bytes
from tests.support.wire_requests import ask

CONFIG = {
    "auto.create.topics.enable": False,
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.ms": -1,  # the records here are of 2023, and the broker of all tests may live until retention runs
}
TOPIC = "t"
COUNT = 20_000
NUMBERS_COUNT = 100_000  # of which one takes less time
OTHERS_MIN = 5  # answers; a broker that is busy gives one, when it is done, however often it is asked
ATTEMPTS = 5  # on a busy machine it may be the others that have no time to ask
TURNS_TO_RECEIVE = 100  # of the loop: in each it takes what has come of a request, and answers somebody else
TOPIC_RESOURCE = 2
REFUSED_BYTES_MAX = 1600  # in memory, of an element of a request and of its answer
Path = tuple[str, ...]


@pytest.fixture(scope="module")
def broker() -> Iterator[pylog.Broker]:
    with pylog.Broker(config=CONFIG) as running:
        request = CreateTopicsRequest(topics=[CreatableTopic(TOPIC, 2, 1)])
        assert ask(running.bootstrap_servers, create_topics.SPEC, request).topics[0].error_code == 0
        yield running


def others_answered(broker: pylog.Broker, data: bytes) -> tuple[int, bytes]:
    """How many, from when the request is there to when its answer begins; and the answer."""
    for _ in range(ATTEMPTS):
        count, answer = _others_answered(broker, data)
        if count >= OTHERS_MIN:
            break
    return count, answer


def _others_answered(broker: pylog.Broker, data: bytes) -> tuple[int, bytes]:
    with WireClient(broker.bootstrap_servers) as large, WireClient(broker.bootstrap_servers) as other:
        large.send(data[:-1])
        for _ in range(TURNS_TO_RECEIVE):
            other.ask(API_VERSIONS)
        large.send(data[-1:])
        count = 0
        while not select.select([large.socket], [], [], 0)[0]:
            other.ask(API_VERSIONS)
            count += 1
        return count, large.answer()


def arrays(cls: Any) -> Iterator[Path]:
    """All of a message, also those in its elements."""
    for name, spec in cls.specs.items():
        if spec.kind != "array":
            continue
        if isinstance(spec.element, type):
            yield (name,)
            yield from ((name, *path) for path in arrays(spec.element))
        elif spec.element.kind != "I8":  # a hundred of which are all that there are
            yield (name,)


def version_with(spec: ApiSpec[Any, Any], path: Path) -> int:
    """The oldest that has all of it."""
    versions = list(range(spec.version_min, spec.version_max + 1))
    cls: Any = spec.request
    for name in path:
        versions = [version for version in versions if cls.specs[name].carried_by(version)]
        cls = cls.specs[name].element
    return versions[0]


def with_many(cls: Any, path: Path, number: int = 0) -> Any:
    """A message that has many elements where the path ends, no two alike, and one or two elsewhere."""
    values = {name: _value(name, spec, path, number) for name, spec in cls.specs.items()}
    return cls(**values)


def _value(name: str, spec: Spec, path: Path, number: int) -> Any:
    if spec.kind == "array":
        return list(_elements(spec.element, path[1:] if path[:1] == (name,) else (), is_many=path == (name,)))
    match spec.kind:
        case "string":
            return "" if name == "member_id" and not number else f"n{number}" if number else TOPIC
        case "I8":
            return TOPIC_RESOURCE if name == "resource_type" else spec.default
        case "I16" | "I32" | "I64":
            return 10_000 if name.endswith("timeout_ms") else number % 10_000 if spec.kind == "I16" else number
    return spec.default


def _elements(element: Any, path: Path, *, is_many: bool) -> Iterator[Any]:
    is_number = isinstance(element, Spec) and element.kind != "string"
    for number in range(1, (NUMBERS_COUNT if is_number else COUNT) + 1) if is_many else [0]:
        yield _value("", element, (), number) if isinstance(element, Spec) else with_many(element, path, number)


def _rows() -> Iterator[Any]:
    for api in API_BY_KEY.values():
        if isinstance(api.spec, ApiSpec):
            for path in arrays(api.spec.request):
                yield pytest.param(api.spec, path, id=f"{api.spec.name} with many {'.'.join(path)}")


@pytest.mark.parametrize(("spec", "path"), list(_rows()))
def test_others_are_answered_while_a_large_request_is_worked_on(
    broker: pylog.Broker, spec: ApiSpec[Any, Any], path: Path
) -> None:
    version = version_with(spec, path)
    body = spec.encode_request(with_many(spec.request, path), version)
    assert len(body) > LARGE_BYTES
    flexible = spec.is_flexible(version)
    count, answer = others_answered(broker, frame(spec.key, version, body, flexible=flexible))
    _, position = read_response_header(answer, spec.key, flexible=flexible)
    assert isinstance(spec.decode_response(answer[position:], version), spec.response)
    assert count >= OTHERS_MIN


def _wanted(partitions: list[FetchPartition], **more: Any) -> FetchRequest:
    head: dict[str, Any] = {"session_id": 0, "session_epoch": fetch.SESSIONLESS_EPOCH, **more}
    return FetchRequest(0, 1, 1 << 20, 0, partitions=partitions, **head)


MANY = [FetchPartition(TOPIC, number, 0, 1) for number in range(COUNT)]
FETCHES = [
    pytest.param(_wanted(MANY), COUNT, id="of many partitions, of which two are there"),
    pytest.param(_wanted([FetchPartition(TOPIC, 0, 0, 1)] * COUNT), 1, id="of one partition, many times"),
    pytest.param(_wanted(MANY, session_epoch=0), COUNT, id="that begins a session"),
    pytest.param(_wanted(MANY[:1], forgotten=[(f"n{n}", [0]) for n in range(COUNT)]), 1, id="that forgets many"),
]


@pytest.mark.parametrize(("request_", "answered"), FETCHES)
def test_others_are_answered_while_a_large_fetch_is(
    broker: pylog.Broker, request_: FetchRequest, answered: int
) -> None:
    version = 11
    body = fetch.encode_request(request_, version)
    assert len(body) > LARGE_BYTES
    count, answer = others_answered(broker, frame(fetch.SPEC.key, version, body))
    assert len(fetch.decode_response(answer[4:], version).partitions) == answered
    assert count >= OTHERS_MIN


def _produced(acks: int) -> tuple[list[ProducePartition], bytes]:
    """To many partitions, of which two are there; one of them gets records again and again."""
    batch = bytes(encode_batch([Record(0, 1_700_000_000_000, None, b"value")]))
    partitions = [ProducePartition(TOPIC, 0 if number % 1_000 == 0 else number, batch) for number in range(COUNT)]
    parts = produce.encode_request(ProduceRequest(None, acks, 10_000, partitions), 9)
    return partitions, frame(produce.SPEC.key, 9, b"".join(bytes(part) for part in parts), flexible=True)


def test_others_are_answered_while_a_large_produce_is(broker: pylog.Broker) -> None:
    partitions, data = _produced(acks=1)
    count, answer = others_answered(broker, data)
    found = produce.decode_response(answer[5:], 9)
    assert [one.partition for one in found] == [one.partition for one in partitions]
    offsets = [one.base_offset for one in found if one.partition == 0]
    assert offsets == list(range(offsets[0], offsets[0] + COUNT // 1_000))
    refused = [one.error_code for one in found if one.error_code != ErrorCode.NONE]
    assert refused == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (COUNT - COUNT // 1_000 - 1)
    assert count >= OTHERS_MIN


def test_who_wants_no_answer_to_a_large_produce_hears_of_errors_when_it_is_closed(broker: pylog.Broker) -> None:
    with WireClient(broker.bootstrap_servers) as client:
        client.send(_produced(acks=0)[1])
        assert client.is_closed_by_peer()


@pytest.mark.parametrize("session_epoch", [fetch.SESSIONLESS_EPOCH, 0], ids=["without a session", "in a session"])
def test_of_a_partition_that_is_fetched_twice_the_last_counts_in_the_place_of_the_first(
    broker: pylog.Broker, session_epoch: int
) -> None:
    wanted = [FetchPartition(TOPIC, 1, 0, 1), FetchPartition(TOPIC, 0, 0, 1), FetchPartition(TOPIC, 1, 99, 1)]
    with WireClient(broker.bootstrap_servers) as client:
        body = fetch.encode_request(_wanted(wanted, session_epoch=session_epoch), 11)
        answer = fetch.decode_response(client.ask(frame(fetch.SPEC.key, 11, body))[4:], 11)
    found = [(one.partition, one.error_code) for one in answer.partitions]
    assert found == [(1, ErrorCode.OFFSET_OUT_OF_RANGE), (0, ErrorCode.NONE)]


def test_many_members_leave_as_one_does(broker: pylog.Broker) -> None:
    joined = ask(broker.bootstrap_servers, join_group.SPEC, _join("leaving", 1), 3)
    assert joined.error_code == ErrorCode.NONE
    members = [MemberIdentity(f"n{number}") for number in range(1_500)]
    members[1_200] = MemberIdentity(joined.member_id)
    left = ask(broker.bootstrap_servers, leave_group.SPEC, LeaveGroupRequest("leaving", members=members), 5)
    assert left.error_code == ErrorCode.NONE
    assert [one.member_id for one in left.members] == [one.member_id for one in members]
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [one.error_code for one in left.members] == [unknown] * 1_200 + [ErrorCode.NONE] + [unknown] * 299


def _join(group: str, protocol_count: int) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(f"p{number}") for number in range(protocol_count)]
    return JoinGroupRequest(group, 10_000, 10_000, protocol_type="consumer", protocols=protocols)


@pytest.mark.parametrize(
    ("protocol_count", "code"),
    [(PROTOCOLS_MAX, ErrorCode.NONE), (PROTOCOLS_MAX + 1, ErrorCode.INVALID_REQUEST)],
)
def test_the_protocols_of_a_member_have_a_bound(broker: pylog.Broker, protocol_count: int, code: ErrorCode) -> None:
    answer = ask(broker.bootstrap_servers, join_group.SPEC, _join("bound", protocol_count), 3)
    assert answer.error_code == code


def test_more_options_than_there_are_are_refused(broker: pylog.Broker) -> None:
    configs = [AlterableConfig(f"n{number}", "1") for number in range(OPTIONS_MAX + 1)]
    request = AlterConfigsRequest([AlterConfigsResource(TOPIC_RESOURCE, TOPIC, configs)])
    answer = ask(broker.bootstrap_servers, alter_configs.SPEC, request)
    assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST


def test_the_request_that_would_become_most_in_memory_costs_little_more_than_its_bytes() -> None:
    """Of two bytes an element; decoded, it was some gigabytes."""
    topic = create_partitions.SPEC.encode_request(
        CreatePartitionsRequest([CreatePartitionsTopic(TOPIC, 3, [CreatePartitionsAssignment([])])]), 2
    )
    one = b"\x01\x00"
    assert topic.count(one) == 1
    count = 25_000_000
    many, head = bytearray(), topic.index(b"\x02" + one)
    many += topic[:head]
    write_compact_count(many, count)
    many += one * count + topic[head + 1 + len(one) :]
    with pylog.Broker(config=CONFIG) as running, WireClient(running.bootstrap_servers) as other:
        assert running.pid is not None
        other.ask(API_VERSIONS)
        before = memory_peak_bytes(running.pid)
        with WireClient(running.bootstrap_servers) as large:
            with suppress(ConnectionError):  # it may be told before it has sent all
                large.send(frame(create_partitions.SPEC.key, 2, many, flexible=True))
            assert large.is_closed_by_peer()
        other.ask(API_VERSIONS)
        assert memory_peak_bytes(running.pid) - before < 4 * len(many)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        pytest.param(alter_configs.SPEC, ("resources",), id="AlterConfigs"),
        pytest.param(incremental_alter_configs.SPEC, ("resources",), id="IncrementalAlterConfigs"),
        pytest.param(create_partitions.SPEC, ("topics",), id="CreatePartitions"),
        pytest.param(create_topics.SPEC, ("topics",), id="CreateTopics"),
    ],
)
def test_of_what_is_refused_words_are_kept_and_no_frames_of_the_interpreter(
    spec: ApiSpec[Any, Any], path: Path
) -> None:
    """An error that is kept keeps two kilobytes."""
    version = spec.version_max
    data = frame(spec.key, version, spec.encode_request(with_many(spec.request, path), version), flexible=True)
    with pylog.Broker(config=CONFIG) as running, WireClient(running.bootstrap_servers) as client:
        assert running.pid is not None
        client.ask(API_VERSIONS)
        before = memory_peak_bytes(running.pid)
        client.ask(data)
        assert memory_peak_bytes(running.pid) - before < COUNT * REFUSED_BYTES_MAX
