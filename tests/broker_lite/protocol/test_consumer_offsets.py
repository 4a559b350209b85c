"""Vectors written by Kafka's own classes, and every version of every record both ways."""

import random
from uuid import UUID

import pytest

from pylog.broker_lite.protocol import consumer_offsets
from pylog.broker_lite.protocol.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_key,
    encode_value,
    partition_of_group,
)
from pylog.broker_lite.protocol.wire import MalformedFrame
from tests.support.protocol_messages import random_message

OFFSET_KEY = OffsetCommitKey("g1", "t", 2)
OFFSET_VALUE = OffsetCommitValue(offset=42, leader_epoch=7, metadata="m", commit_timestamp=1_700_000_000_000)


def test_kafkas_vectors() -> None:
    assert encode_key(OFFSET_KEY).hex() == "00010002673100017400000002"
    assert decode_key(bytes.fromhex("00010002673100017400000002")) == OFFSET_KEY
    assert encode_value(OFFSET_VALUE, 3).hex() == "0003000000000000002a0000000700016d0000018bcfe56800"
    assert decode_offset_value(bytes.fromhex("0003000000000000002a0000000700016d0000018bcfe56800")) == OFFSET_VALUE
    assert encode_key(GroupMetadataKey("g1")).hex() == "000200026731"
    assert decode_key(bytes.fromhex("000200026731")) == GroupMetadataKey("g1")


def test_a_group_is_laid_out_as_kafka_does() -> None:
    member = MemberMetadata("m", None, "c", "/h", 300, 10, b"\x01", b"\x02\x03")
    value = GroupMetadataValue("consumer", 4, "range", "m", 5, [member])
    expected = (
        "0003 0008636f6e73756d6572 00000004 000572616e6765 00016d 0000000000000005 00000001"
        "00016d ffff 000163 00022f68 0000012c 0000000a 00000001 01 00000002 0203"
    ).replace(" ", "")
    assert encode_value(value).hex() == expected
    assert decode_group_value(bytes.fromhex(expected)) == value


def test_the_old_offset_key_is_read() -> None:
    assert decode_key(bytes.fromhex("00000002673100017400000002")) == OFFSET_KEY


def test_a_newer_kind_of_record_is_no_key_of_ours() -> None:
    assert decode_key(bytes.fromhex("000300026731")) is None


@pytest.mark.parametrize("version", range(5))
def test_values_of_every_version_survive(version: int) -> None:
    rng = random.Random(version)
    for _ in range(30):
        offset = random_message(OffsetCommitValue, version, rng)
        assert decode_offset_value(encode_value(offset, version)) == offset
        group = random_message(GroupMetadataValue, version, rng)
        assert decode_group_value(encode_value(group, version)) == group


def test_what_kafka_4_3_wrote_of_a_commit_is_what_we_write() -> None:
    written = "0004000000000000000500000007036d39000001a1e400d360010010ee87685b49b54c388db6a6ff64c01226"
    topic_id = UUID("ee87685b-49b5-4c38-8db6-a6ff64c01226")
    value = OffsetCommitValue(5, 7, "m9", 0x1A1E400D360, topic_id=topic_id)
    assert encode_value(value).hex() == written
    assert decode_offset_value(bytes.fromhex(written)) == value


def test_version_4_is_flexible_and_has_the_topic_id_as_a_tag() -> None:
    value = OffsetCommitValue(1, 2, "", 3, topic_id=UUID(int=5))
    tag = "01 00 10 00000000000000000000000000000005"
    assert encode_value(value, 4).hex() == ("0004 0000000000000001 00000002 01 0000000000000003" + tag).replace(" ", "")


@pytest.mark.parametrize(
    "value", ["", "00", "0005" + "00" * 30, "ffff" + "00" * 30, "0003000000000000002a0000000700016d0000018bcfe568"]
)
def test_a_value_that_is_not_whole_or_not_known_is_malformed(value: str) -> None:
    with pytest.raises(MalformedFrame):
        decode_offset_value(bytes.fromhex(value))


@pytest.mark.parametrize("key", ["", "00", "0001", "0001000267310001740000000200", "00020002"])
def test_a_key_that_is_not_whole_is_malformed(key: str) -> None:
    with pytest.raises(MalformedFrame):
        decode_key(bytes.fromhex(key))


@pytest.mark.parametrize(
    ("group", "partition"),
    [
        pytest.param("my-group", 12, id="a negative hash"),
        pytest.param("g1", 42, id="a positive hash"),
        pytest.param("", 0, id="no letters"),
        pytest.param("polygenelubricants", 0, id="the least int, which has no absolute value"),
        pytest.param("𝄞", (0xD834 * 31 + 0xDD1E) % 50, id="two UTF-16 units"),
    ],
)
def test_the_partition_of_a_group_is_kafkas(group: str, partition: int) -> None:
    assert partition_of_group(group, 50) == partition


def test_the_topic_has_kafkas_name() -> None:
    assert consumer_offsets.TOPIC == "__consumer_offsets"
