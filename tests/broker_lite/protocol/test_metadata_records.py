import random
from typing import Any
from uuid import UUID

import pytest

from pylog.broker_lite.protocol.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode,
    encode,
)
from pylog.broker_lite.protocol.wire import MalformedFrame
from tests.support.protocol_messages import random_message

TOPIC_ID = UUID("00000000-0000-4000-8000-000000000091")
DIRECTORY = UUID("10000000-0000-4000-8000-000000000001")
ID = TOPIC_ID.bytes.hex()
DIRECTORY_ID = DIRECTORY.bytes.hex()


@pytest.mark.parametrize(
    ("record", "version", "data"),
    [
        (TopicRecord("saz", TOPIC_ID), 0, f"01 02 00 04 73617a {ID} 00"),
        (
            PartitionRecord(1, TOPIC_ID, [1], [1], [], [], 1, 0, 0, 0, [DIRECTORY]),
            1,
            f"01 03 01 00000001 {ID} 02 00000001 02 00000001 01 01 00000001 00000000 00000000 02 {DIRECTORY_ID} 00",
        ),
        (
            PartitionRecord(
                0, TOPIC_ID, [1, 2], [1], leader=1, leader_recovery_state=1, leader_epoch=3, partition_epoch=4
            ),
            0,
            f"01 03 00 00000000 {ID} 03 00000001 00000002 02 00000001 01 01 00000001 00000003 00000004 01 00 01 01",
        ),
        (
            RegisterBrokerRecord(1, TOPIC_ID, 7, [], [], None, False),
            0,
            f"01 00 00 00000001 {ID} 0000000000000007 01 01 00 00 00",
        ),
        (ConfigRecord(2, "t", "k", "v"), 0, "01 04 00 02 02 74 02 6b 02 76 00"),
        (ConfigRecord(2, "t", "k", None), 0, "01 04 00 02 02 74 02 6b 00 00"),
        (RemoveTopicRecord(TOPIC_ID), 0, f"01 09 00 {ID} 00"),
        (
            ClientQuotaRecord([QuotaEntity("user", None), QuotaEntity("client-id", "c")], "k", 1024.0, False),
            0,
            "01 0e 00 03 05 75736572 00 00 0a 636c69656e742d6964 02 63 00 02 6b 4090000000000000 00 00",
        ),
        (ProducerIdsRecord(1, 5, 2000), 0, "01 0f 00 00000001 0000000000000005 00000000000007d0 00"),
    ],
)
def test_records_are_framed_as_kraft_does(record: Any, version: int, data: str) -> None:
    assert encode(record, version).hex() == data.replace(" ", "")
    assert decode(bytes.fromhex(data.replace(" ", ""))) == record


@pytest.mark.parametrize(
    ("cls", "version"),
    [(TopicRecord, 0), (PartitionRecord, 0), (PartitionRecord, 1), (PartitionRecord, 2)]
    + [
        (cls, 0)
        for cls in (RegisterBrokerRecord, ConfigRecord, RemoveTopicRecord, ClientQuotaRecord, ProducerIdsRecord)
    ],
)
def test_records_of_every_version_survive_and_none_survives_a_cut(cls: type[Any], version: int) -> None:
    rng = random.Random(version)
    for _ in range(20):
        record = random_message(cls, version, rng)
        data = encode(record, version)
        assert decode(data) == record
        for end in range(len(data)):
            with pytest.raises(MalformedFrame):
                decode(data[:end])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(f"00 02 00 01 {ID} 00", id="frame version 0"),
        pytest.param(f"01 63 00 01 {ID} 00", id="an unknown kind"),
        pytest.param(f"01 02 01 01 {ID} 00", id="a newer version"),
        pytest.param(f"01 09 00 {ID} 00 00", id="a byte behind it"),
    ],
)
def test_what_is_not_known_is_malformed(data: str) -> None:
    with pytest.raises(MalformedFrame):
        decode(bytes.fromhex(data.replace(" ", "")))
