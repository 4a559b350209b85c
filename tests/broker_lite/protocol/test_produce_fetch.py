"""Produce and Fetch, coded by hand, against kio and kafka-python in every version spoken."""

import random
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

import pytest

from pylog.broker_lite.protocol import fetch, produce
from pylog.broker_lite.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest, PartitionHead
from pylog.broker_lite.protocol.produce import ProducedPartition, ProducePartition, ProduceRequest
from pylog.broker_lite.protocol.styles import COMPACT
from pylog.broker_lite.protocol.wire import MalformedFrame
from tests.support.protocol_messages import UNKNOWN_TAGS, KafkaPythonCodec, KioCodec, random_int

CODECS = {"kio": KioCodec(), "kafka-python": KafkaPythonCodec()}
SAMPLES = 20
TOPICS = ["a", "größe", "orders-" + "x" * 150]
IDS = [number.to_bytes(16) for number in (0, 1, (1 << 128) - 1)]

# Tagged fields that we do not keep. (Metadata's cluster_id is another matter.)
OMIT = frozenset(
    {
        "cluster_id",
        "diverging_epoch",
        "current_leader",
        "snapshot_id",
        "node_endpoints",
        "replica_directory_id",
    }
)
OMIT_FROM_REQUEST = OMIT | {"high_watermark"}  # a follower's; that of a response is kept


def topics_of(spec: Any, version: int) -> list[Any]:
    return IDS if version >= (produce.IDS_SINCE if spec is produce.SPEC else fetch.IDS_SINCE) else TOPICS


def topics_and_partitions(rng: random.Random, spec: Any, version: int) -> list[tuple[Any, int]]:
    """Grouped by topic, mostly; sometimes a topic comes back later."""
    topics = topics_of(spec, version)
    drawn = [(rng.choice(topics), rng.choice([0, 1, 2, 1000])) for _ in range(rng.choice([0, 1, 2, 5]))]
    return sorted(drawn) if rng.random() < 0.7 else drawn


def random_records(rng: random.Random) -> bytes | None:
    return rng.choice([None, b"", b"\x00", rng.randbytes(127), rng.randbytes(20_000)])


def error(rng: random.Random) -> int:
    return rng.choice([0, 0, -1, 1, 3, 87])


def random_produce_request(rng: random.Random, version: int) -> ProduceRequest:
    partitions = [
        ProducePartition(*place, random_records(rng)) for place in topics_and_partitions(rng, produce.SPEC, version)
    ]
    return ProduceRequest(rng.choice([None, "", "tx"]), rng.choice([0, 1, -1]), random_int(31, rng), partitions)


def random_produce_response(rng: random.Random, version: int) -> list[ProducedPartition]:
    return [
        ProducedPartition(
            *place,
            error(rng),
            random_int(63, rng),
            rng.choice([-1, 1_700_000_000_000]),  # kio makes a datetime of it
            random_int(63, rng) if version >= 5 else -1,
            rng.choice([None, "", "no"]) if version >= 8 else None,
        )
        for place in topics_and_partitions(rng, produce.SPEC, version)
    ]


def random_fetch_request(rng: random.Random, version: int) -> FetchRequest:
    partitions = [
        FetchPartition(
            *place,
            random_int(63, rng),
            random_int(31, rng),
            random_int(31, rng) if version >= 9 else -1,
            random_int(63, rng) if version >= 5 else -1,
            random_int(31, rng) if version >= 12 else -1,
        )
        for place in topics_and_partitions(rng, fetch.SPEC, version)
    ]
    return FetchRequest(
        random_int(31, rng),
        random_int(31, rng),
        random_int(31, rng),
        rng.choice([0, 1]),
        random_int(31, rng) if version >= 7 else fetch.NO_SESSION_ID,
        random_int(31, rng) if version >= 7 else fetch.SESSIONLESS_EPOCH,
        partitions,
        [(topic, [7, 8][: rng.choice([0, 1, 2])]) for topic in topics_of(fetch.SPEC, version)[: rng.choice([0, 2])]]
        if version >= 7
        else [],
        rng.choice(["", "rack-1"]) if version >= 11 else "",
        random_int(31, rng),
    )


def random_fetch_response(rng: random.Random, version: int) -> fetch.FetchResponse:
    partitions = [
        FetchedPartition(
            *place,
            error(rng),
            random_int(63, rng),
            random_int(63, rng),
            random_int(63, rng) if version >= 5 else -1,
            random_records(rng),
            rng.choice([None, [], [(5, 77), (-1, 1 << 40)]]),
        )
        for place in topics_and_partitions(rng, fetch.SPEC, version)
    ]
    known = version >= 7
    return fetch.FetchResponse(
        error(rng) if known else 0, random_int(31, rng) if known else 0, partitions, random_int(31, rng)
    )


def encode_fetch_response(response: fetch.FetchResponse, version: int) -> bytes:
    """As the broker sends it: piece, records, piece, records, …, piece."""
    heads = [
        PartitionHead(*found[:6], -1 if found.records is None else len(found.records), found.aborted_transactions)
        for found in response.partitions
    ]
    pieces = fetch.encode_response_pieces(
        heads, version, response.error_code, response.session_id, response.throttle_time_ms
    )
    assert len(pieces) == len(heads) + 1
    body = bytes(pieces[0])
    for found, piece in zip(response.partitions, pieces[1:], strict=True):
        body += bytes(found.records or b"") + piece
    return body


def by_topic(partitions: Sequence[Any], row: Callable[[Any], list[Any]]) -> list[Any]:
    groups = groupby(partitions, key=lambda item: item.topic)
    return [[plain_topic(topic), [row(item) for item in group]] for topic, group in groups]


def plain_topic(topic: str | bytes) -> str | UUID:
    return topic if isinstance(topic, str) else UUID(bytes=topic)


def plain_produce_request(request: ProduceRequest, version: int) -> list[Any]:
    topics = by_topic(request.partitions, lambda item: [item.partition, item.records])
    return [request.transactional_id, request.acks, request.timeout_ms, topics]


def plain_produce_response(results: list[ProducedPartition], version: int) -> list[Any]:
    def row(item: ProducedPartition) -> list[Any]:
        return list(item[1:5]) + [item.log_start_offset] * (version >= 5) + [[], item.error_message] * (version >= 8)

    return [by_topic(results, row), 0]


def plain_fetch_request(request: FetchRequest, version: int) -> list[Any]:
    def row(item: FetchPartition) -> list[Any]:
        return (
            [item.partition]
            + [item.current_leader_epoch] * (version >= 9)
            + [item.fetch_offset]
            + [item.last_fetched_epoch] * (version >= 12)
            + [item.log_start_offset] * (version >= 5)
            + [item.partition_max_bytes]
        )

    replica_state = [[request.replica_id, -1]] if version >= 15 else [request.replica_id]
    return (
        [*replica_state, request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level]
        + [request.session_id, request.session_epoch] * (version >= 7)
        + [by_topic(request.partitions, row)]
        + [[[plain_topic(topic), ids] for topic, ids in request.forgotten]] * (version >= 7)
        + [request.rack_id] * (version >= 11)
    )


def plain_fetch_response(response: fetch.FetchResponse, version: int) -> list[Any]:
    def row(item: FetchedPartition) -> list[Any]:
        aborted = None if item.aborted_transactions is None else [list(pair) for pair in item.aborted_transactions]
        found = list(item[1:5]) + [item.log_start_offset] * (version >= 5)
        return [*found, aborted, *[-1] * (version >= 11), item.records]

    session = [response.error_code, response.session_id] * (version >= 7)
    return [response.throttle_time_ms, *session, by_topic(response.partitions, row)]


def encode_produce_request(request: ProduceRequest, version: int) -> bytes:
    return b"".join(produce.encode_request(request, version))


class Side:
    def __init__(self, spec: Any, side: str, draw: Any, encode: Any, decode: Any, plain: Any) -> None:
        self.spec, self.side, self.draw, self.encode, self.decode, self.plain = spec, side, draw, encode, decode, plain


SIDES = [
    Side(
        produce.SPEC,
        "request",
        random_produce_request,
        encode_produce_request,
        produce.decode_request,
        plain_produce_request,
    ),
    Side(
        produce.SPEC,
        "response",
        random_produce_response,
        produce.encode_response,
        produce.decode_response,
        plain_produce_response,
    ),
    Side(fetch.SPEC, "request", random_fetch_request, fetch.encode_request, fetch.decode_request, plain_fetch_request),
    Side(
        fetch.SPEC,
        "response",
        random_fetch_response,
        encode_fetch_response,
        fetch.decode_response,
        plain_fetch_response,
    ),
]
CASES = [
    pytest.param(side, version, id=f"{side.spec.name} {side.side} v{version}")
    for side in SIDES
    for version in range(side.spec.version_min, side.spec.version_max + 1)
]
FLEXIBLE_CASES = [case for case in CASES if case.values[0].spec.is_flexible(case.values[1])]


def samples(side: Side, version: int) -> list[Any]:
    rng = random.Random(f"{side.spec.name} {side.side} {version}")
    return [side.draw(rng, version) for _ in range(SAMPLES)]


@pytest.mark.parametrize(("side", "version"), CASES)
def test_a_message_survives_its_own_bytes(side: Side, version: int) -> None:
    for message in samples(side, version):
        assert side.decode(side.encode(message, version), version) == message


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize(("side", "version"), CASES)
def test_foreign_codecs_read_what_we_write_and_write_the_same(side: Side, version: int, codec: Any) -> None:
    for message in samples(side, version):
        body = bytes(side.encode(message, version))
        entity, size = codec.read(side.spec.name, side.side, version, body)
        assert size == len(body)
        omit = OMIT_FROM_REQUEST if side.side == "request" else OMIT
        assert codec.plain(entity, omit) == side.plain(message, version)
        assert codec.write(side.spec.name, side.side, version, entity) == body


@pytest.mark.parametrize(("side", "version"), FLEXIBLE_CASES)
def test_unknown_tags_are_skipped(side: Side, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (produce, fetch):
        monkeypatch.setattr(module, "COMPACT", COMPACT._replace(no_tags=UNKNOWN_TAGS))
    for message in samples(side, version):
        body = side.encode(message, version)
        assert UNKNOWN_TAGS in body or message.replica_id != -1  # which is the only tag then
        assert side.decode(body, version) == message


@pytest.mark.parametrize(("side", "version"), CASES)
def test_a_frame_cut_anywhere_is_malformed(side: Side, version: int) -> None:
    bodies = [bytes(side.encode(message, version)) for message in samples(side, version)]
    body = max((body for body in bodies if len(body) < 2000), key=len)
    assert len(body) > 40
    for end in range(len(body)):
        with pytest.raises(MalformedFrame):
            side.decode(body[:end], version)


@pytest.mark.parametrize(("side", "version"), CASES)
def test_bytes_behind_a_message_are_ignored(side: Side, version: int) -> None:
    for message in samples(side, version):
        assert side.decode(bytes(side.encode(message, version)) + b"\x01\x00\x00", version) == message


@pytest.mark.parametrize(("side", "version"), CASES)
def test_damaged_bytes_are_malformed_or_another_message_but_nothing_worse(side: Side, version: int) -> None:
    rng = random.Random(f"damage {side.spec.name} {side.side} {version}")
    bodies = [bytes(side.encode(message, version)) for message in samples(side, version)]
    for _ in range(300):
        body = bytearray(rng.choice(bodies))
        for _ in range(rng.choice([1, 2, 4])):
            if body:
                start = rng.randrange(min(len(body), 200))
                body[start : start + 4] = rng.choice([b"\xff", b"\x7f\xff\xff\xff", b"\x80", b"", rng.randbytes(4)])
        try:
            side.decode(bytes(body), version)
        except MalformedFrame:
            continue


@pytest.mark.parametrize("version", [3, 9, 11])
def test_produced_records_are_views_of_the_frame(version: int) -> None:
    request = ProduceRequest(None, 1, 1000, [ProducePartition("t", 0, b"records")])
    frame = bytearray(encode_produce_request(request, version))
    records = produce.decode_request(memoryview(frame), version).partitions[0].records
    assert isinstance(records, memoryview)
    frame[frame.index(b"records")] = ord("R")
    assert bytes(records) == b"Records"


@pytest.mark.parametrize("version", [4, 12])
def test_fetched_records_are_views_of_the_frame(version: int) -> None:
    response = fetch.FetchResponse(0, 0, [FetchedPartition("t", 0, 0, 9, 9, -1, b"records")])
    frame = bytearray(encode_fetch_response(response, version))
    records = fetch.decode_response(memoryview(frame), version).partitions[0].records
    assert isinstance(records, memoryview)
    frame[frame.index(b"records")] = ord("R")
    assert bytes(records) == b"Records"


@pytest.mark.parametrize("version", [3, 9])
def test_a_request_is_sent_from_the_callers_own_batches(version: int) -> None:
    first, second = memoryview(b"first"), memoryview(b"second")
    partitions = [ProducePartition("t", 0, first), ProducePartition("t", 1, None), ProducePartition("u", 0, second)]
    pieces = produce.encode_request(ProduceRequest(None, -1, 1000, partitions), version)
    assert [piece for piece in pieces if isinstance(piece, memoryview)] == [first, second]
    assert any(piece is first for piece in pieces)


@pytest.mark.parametrize("version", [10, 11])
def test_a_broker_may_name_the_new_leader(version: int) -> None:
    """Kafka adds tagged fields to the answer of a partition that moved: they are stepped over."""
    from kafka.protocol.producer import ProduceResponse as Theirs

    topic = Theirs.TopicProduceResponse(
        name="t",
        partition_responses=[
            Theirs.TopicProduceResponse.PartitionProduceResponse(
                index=3,
                error_code=6,
                base_offset=-1,
                record_errors=[],
                current_leader=Theirs.TopicProduceResponse.PartitionProduceResponse.LeaderIdAndEpoch(
                    leader_id=2, leader_epoch=9, version=version
                ),
                version=version,
            )
        ],
        version=version,
    )
    endpoint = Theirs.NodeEndpoint(node_id=2, host="b", port=9, rack=None, version=version)
    theirs = Theirs(responses=[topic], throttle_time_ms=0, node_endpoints=[endpoint], version=version)
    assert produce.decode_response(bytes(theirs.encode()), version) == [ProducedPartition("t", 3, 6)]


@pytest.mark.parametrize("version", range(12, fetch.SPEC.version_max + 1))
def test_a_reader_may_be_told_of_another_leader_and_of_what_it_has_too_much(version: int) -> None:
    from kafka.protocol.consumer import FetchResponse as Theirs

    topic: Any = IDS[1] if version >= fetch.IDS_SINCE else "t"
    heads = [
        PartitionHead(topic, 0, 0, 9, 9, 0, diverging_epoch=(3, 1 << 40)),
        PartitionHead(topic, 1, 74, -1, -1, -1, current_leader=(1, 7)),
        PartitionHead(topic, 2, 74, -1, -1, -1, diverging_epoch=(3, 4), current_leader=(1, 7)),
    ]
    body = b"".join(map(bytes, fetch.encode_response_pieces(heads, version)))
    found = Theirs.decode(body, version=version).responses[0].partitions
    diverging = [one.diverging_epoch and (one.diverging_epoch.epoch, one.diverging_epoch.end_offset) for one in found]
    leaders = [one.current_leader and (one.current_leader.leader_id, one.current_leader.leader_epoch) for one in found]
    assert diverging == [(3, 1 << 40), None, (3, 4)]
    assert leaders == [None, (1, 7), (1, 7)]
    assert [one.partition for one in fetch.decode_response(body, version).partitions] == [0, 1, 2]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("ffff ffff 00000000 7fffffff", id="a lying count of topics"),
        pytest.param("ffff ffff 00000000 00000001 0001 74 7fffffff", id="a lying count of partitions"),
        pytest.param("ffff ffff 00000000 00000001 0001 74 00000001 00000000 7fffffff", id="a lying length of records"),
        pytest.param("ffff ffff 00000000 00000001 0001 74 00000001 00000000 fffffffe", id="a negative length"),
        pytest.param("ffff ffff 00000000 ffffffff", id="null topics"),
        pytest.param("ffff ffff 00000000 00000001 ffff 00000000", id="a topic without a name"),
        pytest.param("ffff ffff 00000000 00000001 0001 ff 00000000", id="a name that is not UTF-8"),
    ],
)
def test_a_produce_request_that_lies_is_malformed(body: str) -> None:
    with pytest.raises(MalformedFrame):
        produce.decode_request(memoryview(bytes.fromhex(body.replace(" ", ""))), 7)
