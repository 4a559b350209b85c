"""What a connection remembers of a produce request changes nothing but the time that the next one takes."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pylog.broker_lite import dispatch
from pylog.broker_lite.broker import Broker
from pylog.broker_lite.client import Client
from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.connection import Unheard
from pylog.broker_lite.listeners import Endpoint
from pylog.broker_lite.protocol import framing, produce
from pylog.broker_lite.protocol.produce import ProducedPartition, ProducePartition, ProduceRequest
from pylog.broker_lite.protocol.wire import MalformedFrame, skip_tags
from pylog.broker_lite.repeated_produce import RepeatedProduce
from pylog.storage.records import Record, encode_batch

ENDPOINT = Endpoint("127.0.0.1", 9092)
TOPIC_ID = bytes(range(16))
FLEXIBLE = range(produce.SPEC.flexible_since, produce.SPEC.version_max + 1)


def frame_of(version: int, request: ProduceRequest, correlation_id: int = 7) -> memoryview:
    frame = bytearray()
    framing.write_request_header(frame, 0, version, correlation_id, "me", flexible=version in FLEXIBLE)
    for piece in produce.encode_request(request, version):
        frame += piece
    return memoryview(frame)


def topic_in(version: int) -> str | bytes:
    return TOPIC_ID if version >= produce.IDS_SINCE else "t"


def request_of(version: int, *partitions: tuple[int, int], acks: int = -1) -> ProduceRequest:
    """`partitions` are (index, size of the records)."""
    topic = topic_in(version)
    return ProduceRequest(None, acks, 1000, [ProducePartition(topic, index, bytes(size)) for index, size in partitions])


def learned_from(version: int, request: ProduceRequest) -> RepeatedProduce | None:
    frame = frame_of(version, request)
    return RepeatedProduce.of(frame, _body_start(frame), version)


def _body_start(frame: memoryview) -> int:
    return skip_tags(frame, framing.read_request_header(frame).body_start)


def _decoded(frame: memoryview, version: int) -> list[ProducePartition]:
    return produce.decode_request(frame[_body_start(frame) :], version).partitions


@pytest.mark.parametrize("version", FLEXIBLE)
@pytest.mark.parametrize(
    "partitions",
    [
        pytest.param([(0, 100)], id="the same"),
        pytest.param([(3, 100)], id="another partition"),
        pytest.param([(0, 126)], id="longest length of one byte"),
        pytest.param([(0, 127)], id="length of two bytes"),
        pytest.param([(0, 100_000)], id="length of three bytes"),
        pytest.param([(2, 10), (0, 200), (1, 0)], id="several partitions"),
        pytest.param([(index, 3) for index in range(126)], id="as many as one byte can tell"),
    ],
)
def test_what_is_alike_is_decoded_as_ever(version: int, partitions: list[tuple[int, int]]) -> None:
    repeated = learned_from(version, request_of(version, (0, 100)))
    assert repeated is not None
    frame = frame_of(version, request_of(version, *partitions), correlation_id=8)
    assert repeated.decode(frame) == _decoded(frame, version)
    assert (repeated.acks, repeated.version) == (-1, version)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(frame_of(9, request_of(9, (0, 5), acks=1)), id="acks"),
        pytest.param(frame_of(10, request_of(9, (0, 5))), id="version"),
        pytest.param(frame_of(9, request_of(9, (0, 5))._replace(timeout_ms=1)), id="timeout"),
        pytest.param(frame_of(9, request_of(9, (0, 5))._replace(transactional_id="x")), id="transactional id"),
        pytest.param(frame_of(9, request_of(9)), id="no partitions"),
        pytest.param(frame_of(9, request_of(9, *[(0, 1)] * 127)), id="more partitions than one byte can tell"),
        pytest.param(frame_of(9, ProduceRequest(None, -1, 1000, [ProducePartition("u", 0, b"x")])), id="topic"),
        pytest.param(frame_of(9, ProduceRequest(None, -1, 1000, [ProducePartition("t", 0, None)])), id="no records"),
        pytest.param(
            frame_of(9, ProduceRequest(None, -1, 1000, [ProducePartition(name, 0, b"x") for name in "tu"])),
            id="two topics",
        ),
    ],
)
def test_what_is_not_alike_goes_the_long_way(other: memoryview) -> None:
    repeated = learned_from(9, request_of(9, (0, 5)))
    assert repeated is not None
    assert repeated.decode(other) is None


@pytest.mark.parametrize(
    ("version", "request_"),
    [
        pytest.param(8, request_of(8, (0, 5)), id="without tags"),
        pytest.param(9, request_of(9, (0, 5))._replace(transactional_id="x"), id="transactional"),
        pytest.param(
            9, ProduceRequest(None, -1, 1, [ProducePartition(name, 0, b"x") for name in "tu"]), id="two topics"
        ),
    ],
)
def test_of_some_requests_nothing_is_learned(version: int, request_: ProduceRequest) -> None:
    frame = frame_of(version, request_)
    assert RepeatedProduce.of(frame, framing.read_request_header(frame).body_start + (version >= 9), version) is None


@pytest.mark.parametrize("version", [9, 13])
def test_whatever_comes_it_is_decoded_as_ever_or_left_alone(version: int) -> None:
    """Every byte changed, and every length cut: behind the records may be tags, lengths may lie."""
    repeated = learned_from(version, request_of(version, (0, 20)))
    assert repeated is not None
    whole = bytes(frame_of(version, request_of(version, (0, 20), (1, 130))))
    chance = random.Random(5)
    frames = [whole[:length] for length in range(len(whole))]
    frames += [whole + b"\0", whole + b"x"]
    for position in range(len(whole)):
        for value in {0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)}:
            frames.append(whole[:position] + bytes([value]) + whole[position + 1 :])
    taken = 0
    for data in frames:
        frame = memoryview(data)
        try:
            partitions = repeated.decode(frame)
        except MalformedFrame:
            partitions = None
        if partitions is not None:
            assert partitions == _decoded(frame, version)
            taken += 1
    assert taken > 100


@pytest.mark.parametrize("version", FLEXIBLE)
@pytest.mark.parametrize("count", [1, 3, 126])
def test_answers_are_the_same_to_the_byte(version: int, count: int) -> None:
    frame = frame_of(version, request_of(version, (0, 5)), correlation_id=-123456)
    repeated = RepeatedProduce.of(frame, _body_start(frame), version)
    assert repeated is not None
    results = [ProducedPartition(topic_in(version), index, 0, 1 << 40, 5, 3) for index in range(count)]
    body = produce.encode_response(results, version)
    expected = bytearray(4)
    framing.write_response_header(expected, 0, -123456, flexible=True)
    expected += body
    expected[:4] = (len(expected) - 4).to_bytes(4, "big")
    assert repeated.encode(results, frame) == expected


def _batch() -> bytes:
    return bytes(encode_batch([Record(0, 1_700_000_000_000, b"k", b"v", ())]))


@pytest.mark.parametrize(
    ("spoil", "acks"),
    [
        pytest.param(lambda batch: batch, -1, id="sound"),
        pytest.param(lambda batch: batch, 0, id="no answer wanted"),
        pytest.param(lambda batch: batch[:-1] + b"?", -1, id="wrong checksum"),
        pytest.param(lambda batch: batch[:-1] + b"?", 0, id="wrong checksum, no answer wanted"),
        pytest.param(lambda batch: batch + b"?", 1, id="too long"),
        pytest.param(lambda batch: b"", 1, id="nothing"),
        pytest.param(lambda batch: batch, 5, id="no such acks"),
    ],
)
@pytest.mark.parametrize("index", [0, 9])
def test_who_is_remembered_is_answered_as_who_is_not(
    tmp_path: Path, spoil: Callable[[bytes], bytes], acks: int, index: int
) -> None:
    asyncio.run(_compare(tmp_path, spoil, acks, index))


async def _compare(tmp_path: Path, spoil: Callable[[bytes], bytes], acks: int, index: int) -> None:
    broker = Broker([tmp_path], BrokerConfig.parse({"log.retention.ms": -1}))
    try:
        await broker.create_topic("t", 2)
        await broker.create_topic("u", 2)
        answers = []
        for topic, remembers in (("t", False), ("u", True)):
            client = Client("/127.0.0.1")
            for batch in (_batch(), spoil(_batch()), _batch()):
                asked = [ProducePartition(topic, number, batch) for number in (1, index)]
                frame = frame_of(9, ProduceRequest(None, acks, 1000, asked), correlation_id=len(answers))
                try:
                    answers.append(await _joined(dispatch.answer(broker, ENDPOINT, frame, client), topic))
                except Unheard as error:
                    answers.append(f"    closed: {error}".encode().replace(f"'{topic}'".encode(), b"'t'"))
                assert client.repeated is not None or acks == 0
                if not remembers:
                    client.repeated = None
        alone, remembered = answers[:3], answers[3:]
        assert [answer[8:] for answer in remembered] == [answer[8:] for answer in alone]
        if acks:
            assert [answer[4:8] for answer in remembered] == [number.to_bytes(4, "big") for number in (3, 4, 5)]
    finally:
        await broker.close()


async def _joined(answer: Any, topic: str) -> bytes:
    if answer is not None and not isinstance(answer, list):
        answer = await answer
    data = b"".join(answer or [])
    return data.replace(f"\x02{topic}".encode(), b"\x02t").replace(f"'{topic}'".encode(), b"'t'")
