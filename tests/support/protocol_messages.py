"""Random messages, and foreign codecs to judge our bytes by.

A message is compared as a *plain tree*: nested lists of the values that its version carries, in the
order of the schema. Names differ between libraries (`throttle_time`, `throttle_time_ms`), order does not."""

import datetime
import importlib
import random
import struct
from dataclasses import fields, is_dataclass
from enum import IntEnum
from functools import cache
from io import BytesIO
from typing import Any
from uuid import UUID

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
from kafka.protocol.data_container import DataContainer
from kio.serial import entity_reader, entity_writer

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.schema import Message
from pylog.broker_lite.protocol.wire import ZERO_UUID

_RANGES = {"I8": 7, "I16": 15, "I32": 31, "I64": 63}
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
_NOT_ASKED_FOR = -(1 << 31)
_CODES = [int(code) for code in ErrorCode]
_TEXTS = ["", "t", "orders-2024", "größe", "日本", "𝄞", "x" * 130]  # 130: its compact length takes two bytes


def carried(cls: type[Any], version: int) -> list[tuple[str, Any]]:
    return [(name, spec) for name, spec in cls.specs.items() if spec.since <= version <= spec.until]


def random_message(cls: type[Any], version: int, rng: random.Random) -> Any:
    """Every field that the version carries is drawn, the others keep their defaults."""
    return cls(**{name: _random_value(name, spec, version, rng) for name, spec in carried(cls, version)})


def _random_value(name: str, spec: Any, version: int, rng: random.Random) -> Any:
    if spec.null_since is not None and version >= spec.null_since and rng.random() < 0.3:
        return None
    if name.endswith("error_code"):
        return rng.choice(_CODES)
    if name.endswith("_ms"):
        return random_int(31, rng)  # kio's durations end where a timedelta does
    if name.endswith("authorized_operations") and spec.kind == "I32":
        return rng.choice([_NOT_ASKED_FOR, 0, 0b1010])
    if (name, spec.kind) == ("port", "I16"):
        return rng.getrandbits(15)  # foreign codecs have no sign there
    match spec.kind:
        case "I8" | "I16" | "I32" | "I64":
            return random_int(_RANGES[spec.kind], rng)
        case "F64":
            return rng.choice([0.0, 1.5, -1e300, 1024.0])
        case "bool":
            return rng.random() < 0.5
        case "string":
            return rng.choice(_TEXTS)
        case "bytes":
            return rng.randbytes(rng.choice([0, 1, 200]))
        case "uuid":
            return UUID(int=rng.getrandbits(128)) if rng.random() < 0.8 else ZERO_UUID
        case "struct":
            return random_message(spec.element, version, rng)
        case "array":
            count = rng.choice([0, 1, 2, 3])
            if isinstance(spec.element, type):
                return [random_message(spec.element, version, rng) for _ in range(count)]
            return [_random_value("", spec.element, version, rng) for _ in range(count)]
    raise AssertionError(spec.kind)


def random_int(bits: int, rng: random.Random) -> int:
    return rng.choice([0, 1, -1, (1 << bits) - 1, -(1 << bits), rng.getrandbits(bits)])


def plain(value: Any, version: int) -> Any:
    """The plain tree of one of our declared messages."""
    if isinstance(value, Message):
        return [plain(getattr(value, name), version) for name, _ in carried(type(value), version)]
    if isinstance(value, list):
        return [plain(item, version) for item in value]
    return value


class KioCodec:
    """kio raises on unknown tags and knows only the error codes of its time; otherwise it follows Kafka's schemas."""

    def read(self, api: str, side: str, version: int, data: bytes) -> tuple[Any, int]:
        entity, size = entity_reader(_kio_type(api, side, version))(data, 0)
        return entity, size

    def write(self, api: str, side: str, version: int, entity: Any) -> bytes:
        out = BytesIO()
        entity_writer(type(entity))(out, entity)
        return out.getvalue()

    def plain(self, value: Any, omit: frozenset[str] = frozenset()) -> Any:
        if is_dataclass(value):
            return [self._field(value, field, omit) for field in fields(value) if field.name not in omit]
        if isinstance(value, tuple):
            return [self.plain(item, omit) for item in value]
        if isinstance(value, datetime.timedelta):
            return round(value.total_seconds() * 1000)
        if isinstance(value, datetime.datetime):
            return round((value - _EPOCH).total_seconds() * 1000)
        return int(value) if isinstance(value, IntEnum) else value

    def _field(self, entity: Any, field: Any, omit: frozenset[str]) -> Any:
        value = getattr(entity, field.name)
        if value is None and field.metadata.get("kafka_type") == "uuid":
            return ZERO_UUID
        if value is None and field.metadata.get("kafka_type", "").startswith("datetime"):
            return -1
        return self.plain(value, omit)


@cache
def _kio_type(api: str, side: str, version: int) -> Any:
    package = "".join("_" + letter.lower() if letter.isupper() else letter for letter in api).lstrip("_")
    module = importlib.import_module(f"kio.schema.{package}.v{version}.{side}")
    return getattr(module, api + side.capitalize())


class KafkaPythonCodec:
    def read(self, api: str, side: str, version: int, data: bytes) -> tuple[Any, int]:
        entity = _kafka_python_type(api, side).decode(data, version=version)
        return entity, len(data)  # it does not tell where it stopped: writing must give the same bytes

    def write(self, api: str, side: str, version: int, entity: Any) -> bytes:
        entity._header = None  # which decoding leaves unset
        return bytes(entity.encode(version=version))

    def plain(self, value: Any, omit: frozenset[str] = frozenset()) -> Any:
        if isinstance(value, DataContainer):
            declared = [field for field in value._struct._fields if field.for_version_q(value.version)]
            return [self._field(value, field, omit) for field in declared if field.name not in omit]
        if isinstance(value, list):
            return [self.plain(item, omit) for item in value]
        return bytes(value) if isinstance(value, bytearray | memoryview) else value

    def _field(self, container: Any, field: Any, omit: frozenset[str]) -> Any:
        value = getattr(container, field.name)
        if field.type_str == "bitfield":  # a set of bits; None when nobody asked
            return _NOT_ASKED_FOR if value is None else sum(1 << bit for bit in value)
        if value is None and field.type_str == "uuid":
            return ZERO_UUID
        if value is None and field.name == "replica_state":  # a tagged struct that was left out
            return [-1, -1]
        return self.plain(value, omit)


def _kafka_python_type(api: str, side: str) -> Any:
    name = api + side.capitalize()
    for package in (
        kafka.protocol.metadata,
        kafka.protocol.producer,
        kafka.protocol.consumer,
        kafka.protocol.admin,
        kafka.protocol.sasl,
    ):
        if hasattr(package, name):
            return getattr(package, name)
    raise AssertionError(name)


UNKNOWN_TAGS = bytes.fromhex("026303010203ac0200")  # two of them: tag 99 of three bytes, tag 300 of none


def encode_with_unknown_tags(message: Any, version: int) -> bytes:
    """A flexible version, written plainly; every struct ends with its own tags and two that nobody knows."""
    out, tags = bytearray(), []
    for name, spec in carried(type(message), version):
        data = _encode_value(getattr(message, name), spec, version)
        if spec.tag is None:
            out += data
        elif getattr(message, name) != spec.default:
            tags.append(_uvarint(spec.tag) + _uvarint(len(data)) + data)
    return bytes(out + _uvarint(len(tags) + 2) + b"".join(tags) + UNKNOWN_TAGS[1:])


def _encode_value(value: Any, spec: Any, version: int) -> bytes:
    if spec.kind in _RANGES:
        size: int = (_RANGES[spec.kind] + 1) // 8
        return int(value).to_bytes(size, "big", signed=True)
    if spec.kind == "F64":
        return struct.pack(">d", value)
    if spec.kind == "bool":
        return bytes([value])
    if spec.kind == "uuid":
        return bytes(value.bytes)
    if spec.kind == "struct":
        return b"\xff" if value is None else b"\x01" + encode_with_unknown_tags(value, version)
    if value is None:
        return b"\x00"
    if spec.kind == "array" and isinstance(spec.element, type):
        items = [encode_with_unknown_tags(item, version) for item in value]
    elif spec.kind == "array":
        items = [_encode_value(item, spec.element, version) for item in value]
    else:
        data = value.encode() if spec.kind == "string" else value
        return _uvarint(len(data) + 1) + bytes(data)
    return _uvarint(len(items) + 1) + b"".join(items)


def _uvarint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _uvarint(value >> 7)
