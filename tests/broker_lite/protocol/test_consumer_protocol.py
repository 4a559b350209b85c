"""Subscriptions as other libraries write them, of every version."""

import importlib
from io import BytesIO
from typing import Any

import pytest
from kio.serial import entity_writer

from pylog.broker_lite.protocol.consumer_protocol import Subscription, decode_subscription, encode_subscription
from pylog.broker_lite.protocol.wire import MalformedFrame


def written_by_kio(version: int, topics: tuple[str, ...], user_data: bytes | None) -> bytes:
    module = importlib.import_module(f"kio.schema.consumer_protocol_subscription.v{version}.data")
    later: dict[str, Any] = {}
    if version >= 1:
        later["owned_partitions"] = (module.TopicPartition(topic="t", partitions=(1, 2)),)
    if version >= 2:
        later["generation_id"] = 7
    if version >= 3:
        later["rack_id"] = "r"
    entity = module.ConsumerProtocolSubscription(topics=topics, user_data=user_data, **later)
    out = BytesIO()
    entity_writer(type(entity))(out, entity)
    return version.to_bytes(2, "big") + out.getvalue()


@pytest.mark.parametrize("user_data", [None, b"", b"\x01\x02"], ids=["null", "empty", "bytes"])
@pytest.mark.parametrize("version", range(4))
def test_the_topics_of_every_version_are_read(version: int, user_data: bytes | None) -> None:
    metadata = written_by_kio(version, ("orders", "größe"), user_data)
    assert decode_subscription(metadata) == Subscription(["orders", "größe"], user_data)
    assert decode_subscription(memoryview(metadata)).topics == ["orders", "größe"]


def test_version_0_is_written() -> None:
    assert encode_subscription(Subscription(["t"], b"u")) == written_by_kio(0, ("t",), b"u")


@pytest.mark.parametrize("metadata", ["", "00", "ffff00000000ffffffff", "00007fffffff", "000000000001000574"])
def test_what_is_no_subscription_is_malformed(metadata: str) -> None:
    with pytest.raises(MalformedFrame):
        decode_subscription(bytes.fromhex(metadata))
