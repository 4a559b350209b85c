"""Every declared API, in every version spoken: our bytes are those of kio and of kafka-python."""

import importlib
import pkgutil
import random
from typing import Any

import pytest

import pylog.broker_lite.protocol as protocol
from pylog.broker_lite.api_table import API_BY_KEY
from pylog.broker_lite.protocol.spec import NEVER_FLEXIBLE, Api, ApiSpec
from pylog.broker_lite.protocol.wire import MalformedFrame
from tests.broker_lite.protocol import test_produce_fetch
from tests.support.protocol_messages import (
    KafkaPythonCodec,
    KioCodec,
    encode_with_unknown_tags,
    plain,
    random_message,
)

MODULES = [
    importlib.import_module(f"{protocol.__name__}.{found.name}") for found in pkgutil.iter_modules(protocol.__path__)
]
APIS: list[Api] = [module.SPEC for module in MODULES if hasattr(module, "SPEC")]
SPECS: list[Any] = [spec for spec in APIS if isinstance(spec, ApiSpec)]
CODECS = {"kio": KioCodec(), "kafka-python": KafkaPythonCodec()}
SAMPLES = 12

CASES = [
    pytest.param(spec, side, version, id=f"{spec.name} {side} v{version}")
    for spec in SPECS
    for version in range(spec.version_min, spec.version_max + 1)
    for side in ("request", "response")
]
FLEXIBLE_CASES = [case for case in CASES if case.values[0].is_flexible(case.values[2])]


def encode(spec: Any, side: str, message: Any, version: int) -> bytes:
    return bytes(getattr(spec, f"encode_{side}")(message, version))


def decode(spec: Any, side: str, body: bytes, version: int) -> Any:
    return getattr(spec, f"decode_{side}")(body, version)


def samples(spec: Any, side: str, version: int, count: int = SAMPLES) -> list[Any]:
    rng = random.Random(f"{spec.name} {side} {version}")
    messages = [random_message(getattr(spec, side), version, rng) for _ in range(count)]
    if (spec.name, side) == ("ApiVersions", "response") and version > 0:
        for message in messages:
            message.error_code = 0  # an error is only ever told in v0, and kafka-python reads it so
    return messages


@pytest.mark.parametrize(("spec", "side", "version"), CASES)
def test_a_message_survives_its_own_bytes(spec: Any, side: str, version: int) -> None:
    for message in samples(spec, side, version):
        body = encode(spec, side, message, version)
        assert decode(spec, side, body, version) == message
        assert decode(spec, side, memoryview(body), version) == message  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize(("spec", "side", "version"), CASES)
def test_foreign_codecs_read_what_we_write_and_write_the_same(spec: Any, side: str, version: int, codec: Any) -> None:
    for message in samples(spec, side, version):
        body = encode(spec, side, message, version)
        entity, size = codec.read(spec.name, side, version, body)
        assert size == len(body)
        assert codec.plain(entity) == plain(message, version)
        assert codec.write(spec.name, side, version, entity) == body


@pytest.mark.parametrize(("spec", "side", "version"), FLEXIBLE_CASES)
def test_unknown_tags_are_skipped(spec: Any, side: str, version: int) -> None:
    for message in samples(spec, side, version):
        assert decode(spec, side, encode_with_unknown_tags(message, version), version) == message


@pytest.mark.parametrize(("spec", "side", "version"), CASES)
def test_a_frame_cut_anywhere_is_malformed(spec: Any, side: str, version: int) -> None:
    body = max((encode(spec, side, message, version) for message in samples(spec, side, version)), key=len)
    for end in range(min(len(body), 600)):
        with pytest.raises(MalformedFrame):
            decode(spec, side, body[:end], version)


@pytest.mark.parametrize(("spec", "side", "version"), CASES)
def test_bytes_behind_a_message_are_ignored(spec: Any, side: str, version: int) -> None:
    """As Kafka does: librdkafka leaves three behind a Metadata request for all topics."""
    message = samples(spec, side, version, 1)[0]
    assert decode(spec, side, encode(spec, side, message, version) + b"\x01\x00\x00", version) == message


@pytest.mark.parametrize(("spec", "side", "version"), CASES)
def test_damaged_bytes_are_malformed_or_another_message_but_nothing_worse(spec: Any, side: str, version: int) -> None:
    rng = random.Random(f"damage {spec.name} {side} {version}")
    bodies = [encode(spec, side, message, version) for message in samples(spec, side, version)]
    for _ in range(200):
        body = bytearray(rng.choice(bodies))
        for _ in range(rng.choice([1, 2, 4])):
            if body:
                start = rng.randrange(len(body))
                body[start : start + 4] = rng.choice([b"\xff", b"\x7f\xff\xff\xff", b"\x80", b"", rng.randbytes(4)])
        try:
            decode(spec, side, bytes(body), version)
        except MalformedFrame:
            continue


def test_every_api_has_a_name_and_key_of_its_own_and_a_range() -> None:
    assert len({spec.name for spec in APIS}) == len({spec.key for spec in APIS}) == len(APIS) >= 11
    for spec in APIS:
        assert 0 <= spec.version_min <= spec.version_max


def test_every_api_of_the_broker_is_looked_at_here_or_with_those_that_are_coded_by_hand() -> None:
    by_hand = [side.spec for side in test_produce_fetch.SIDES]
    judged = {spec.key: spec for spec in [*SPECS, *by_hand]}
    assert {key: api.spec for key, api in API_BY_KEY.items()} == {key: judged[key] for key in API_BY_KEY}


def test_every_api_module_says_its_key_and_what_its_versions_changed() -> None:
    for module in MODULES:
        if hasattr(module, "SPEC"):
            spec = module.SPEC
            assert (module.__doc__ or "").startswith(f"{spec.name}, key {spec.key}. v"), module.__name__
            if spec.flexible_since != NEVER_FLEXIBLE:
                assert f"v{spec.flexible_since}: flexible" in (module.__doc__ or "").replace("\n", " "), module.__name__
