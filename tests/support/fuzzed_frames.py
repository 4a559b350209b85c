"""Requests of every API and version, right ones and spoilt ones, by seed.

What is right and asks for much (a topic of a thousand partitions, a thousand topics) is left out: it would be obeyed,
and take memory as it should."""

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

from pylog.broker_lite.api_table import API_BY_KEY
from pylog.broker_lite.protocol import fetch, produce
from pylog.broker_lite.protocol.fetch import FetchPartition, FetchRequest
from pylog.broker_lite.protocol.produce import ProducePartition, ProduceRequest
from pylog.broker_lite.protocol.spec import Api, ApiSpec
from pylog.broker_lite.protocol.wire import MalformedFrame
from pylog.storage.records import Record, encode_batch
from tests.support.protocol_messages import random_message
from tests.support.wire_clients import frame

TOPICS = ("t", "compacted")
PARTITIONS = 2
_CREATE_TOPICS, _DELETE_TOPICS, _CREATE_PARTITIONS = 19, 20, 37
_CONFIGS = (33, 44)
_EXTREMES = [0, 1, -1, 2, 0x7F, 0x7FFF, -0x8000, 0x7FFFFFFF, -0x80000000]
_SPOILT_SHARE = 0.85
_REPEATED = 3

Spoil = Callable[[bytearray, random.Random], None]


def frames(seed: int, count: int, ids: Sequence[UUID]) -> Iterator[bytes]:
    """Each API and version comes up again and again. `ids` are those of the topics."""
    chance = random.Random(seed)
    kinds = [
        (api.spec, version)
        for api in API_BY_KEY.values()
        for version in range(api.spec.version_min, api.spec.version_max + 1)
    ]
    made = 0
    while made < count:
        chance.shuffle(kinds)
        for spec, version in kinds:
            body = bytearray(_body(spec, version, ids, chance))
            if spec.key == produce.SPEC.key and chance.random() < 0.3:  # a producer repeats itself, nearly
                for _ in range(_REPEATED):
                    yield frame(spec.key, version, body, flexible=spec.is_flexible(version))
                    made += 1
            if chance.random() < _SPOILT_SHARE:
                _spoil(body, chance)
            if _is_obeyed_dearly(spec, body, version):
                continue
            yield _framed(spec, version, body, chance)
            made += 1


def _body(spec: Api, version: int, ids: Sequence[UUID], chance: random.Random) -> bytes | bytearray:
    if spec.key == produce.SPEC.key:
        return _produce(version, ids, chance)
    if spec.key == fetch.SPEC.key:
        return _fetch(version, ids, chance)
    assert isinstance(spec, ApiSpec)
    message = random_message(spec.request, version, chance)
    if chance.random() < 0.7:
        _make_plausible(message, ids, chance)
    return spec.encode_request(message, version)


def _make_plausible(message: Any, ids: Sequence[UUID], chance: random.Random) -> None:
    """Names of topics and groups that are there, times that are short."""
    for name in message.__slots__:
        value = getattr(message, name)
        if isinstance(value, list):
            for one in value:
                if hasattr(one, "__slots__"):
                    _make_plausible(one, ids, chance)
        elif isinstance(value, UUID):
            setattr(message, name, chance.choice([*ids, value]))
        elif isinstance(value, str):
            setattr(message, name, chance.choice([*TOPICS, "group", "", "range", "consumer", value]))
        elif isinstance(value, int) and not isinstance(value, bool):
            if name.endswith("_ms"):
                setattr(message, name, chance.choice([0, 1, 10, 6000, value]))
            elif "partition" in name:
                setattr(message, name, chance.randrange(-1, PARTITIONS + 1))


def _topic(version: int, ids_since: int | None, ids: Sequence[UUID], chance: random.Random) -> str | bytes:
    if ids_since is not None and version >= ids_since:
        return chance.choice([*(one.bytes for one in ids), chance.randbytes(16)])
    return chance.choice([*TOPICS, "nowhere", ""])


def _produce(version: int, ids: Sequence[UUID], chance: random.Random) -> bytes:
    partitions = []
    for _ in range(chance.randrange(4)):
        records = [Record(n, 1_700_000_000_000, b"k", chance.randbytes(30)) for n in range(chance.randrange(1, 4))]
        batch = encode_batch(
            records,
            codec=chance.randrange(5),
            producer_id=chance.choice([-1, -1, 1000]),
            producer_epoch=chance.choice([-1, 0]),
            base_sequence=chance.choice([-1, 0, 7]),
        )
        if chance.random() < 0.5:
            _spoil(batch, chance)
        topic = _topic(version, produce.SPEC.ids_since, ids, chance)
        partitions.append(ProducePartition(topic, chance.randrange(-1, PARTITIONS + 1), bytes(batch)))
    request = ProduceRequest(None, chance.choice([-1, 0, 1, 5]), 100, partitions)
    return b"".join(produce.encode_request(request, version))


def _fetch(version: int, ids: Sequence[UUID], chance: random.Random) -> bytes | bytearray:
    wanted = [
        FetchPartition(
            _topic(version, fetch.SPEC.ids_since, ids, chance),
            chance.randrange(-1, PARTITIONS + 1),
            chance.choice([0, 1, 5, -1, 1 << 40]),
            chance.choice([0, 1, 1 << 20, -1]),
        )
        for _ in range(chance.randrange(4))
    ]
    sizes = chance.choice([0, 1, 100]), chance.choice([0, 1, 1 << 20, -1])
    session = chance.choice([(0, -1), (0, 0), (5, 1)])
    request = FetchRequest(chance.choice([0, 1, 20]), *sizes, chance.randrange(2), *session, wanted)
    return fetch.encode_request(request, version)


# Spoiling


def _flip(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 4)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def _drop(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data))
    del data[start : start + chance.randrange(1, 9)]


def _insert(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data))
    data[start:start] = chance.randbytes(chance.randrange(1, 9))


def _repeat(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data))
    data[start:start] = data[start : start + chance.randrange(1, 40)] * chance.randrange(1, 4)


def _overwrite(data: bytearray, chance: random.Random) -> None:
    """A length, a count or a number that lies."""
    layout = chance.choice([">b", ">h", ">i"])
    size = struct.calcsize(layout)
    if len(data) >= size:
        bits = 8 * size - 1
        value = max(-(1 << bits), min((1 << bits) - 1, chance.choice(_EXTREMES)))
        struct.pack_into(layout, data, chance.randrange(len(data) - size + 1), value)


def _long_varint(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data))
    data[start : start + 1] = b"\xff" * chance.randrange(1, 6) + b"\x0f"


SPOILS: tuple[Spoil, ...] = (_flip, _cut, _drop, _insert, _repeat, _overwrite, _overwrite, _long_varint)


def _spoil(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        if data:
            chance.choice(SPOILS)(data, chance)


def _framed(spec: Api, version: int, body: bytearray, chance: random.Random) -> bytes:
    data = bytearray(frame(spec.key, version, body, flexible=spec.is_flexible(version)))
    if chance.random() < 0.05:  # the header too, behind the size
        head = data[4:24]
        _spoil(head, chance)
        data[4:24] = head
        struct.pack_into(">i", data, 0, len(data) - 4)
    return bytes(data)


def _is_obeyed_dearly(spec: Api, body: bytearray, version: int) -> bool:
    if spec.key not in (_CREATE_TOPICS, _DELETE_TOPICS, _CREATE_PARTITIONS, *_CONFIGS):
        return False
    assert isinstance(spec, ApiSpec)
    try:
        message = spec.decode_request(bytes(body), version)
    except MalformedFrame:
        return False
    if spec.key in _CONFIGS:  # a limit of the broker's that is set, by chance, to next to nothing
        return any(one.resource_type == 4 for one in message.resources)
    if spec.key == _DELETE_TOPICS:  # the topics that the others are about
        return bool(message.topics or set(message.topic_names) & set(TOPICS))
    return not message.validate_only
