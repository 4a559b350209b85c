"""The records of the metadata log, as KRaft writes them: frame version 1, kind, version, then the message.

The first three are uvarints; every message is flexible from its version 0 on. A value is one record,
keys are null: the log is read in order, and the last word on a thing holds.
"""

from uuid import UUID

from pylog.broker_lite.protocol import schema, wire
from pylog.broker_lite.protocol.schema import (
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    uuid,
)
from pylog.broker_lite.protocol.wire import Buffer, MalformedFrame

TOPIC = "__cluster_metadata"

_FRAME_VERSION = 1

TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32  # `resource_type` of a configuration


@message
class BrokerEndpoint:
    name: str = string()
    host: str = string()
    port: int = int16()  # above 32,767 it is negative here
    security_protocol: int = int16()


@message
class BrokerFeature:
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message
class RegisterBrokerRecord:
    """The broker has come, or has come back."""

    broker_id: int = int32()
    incarnation_id: UUID = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(None)
    fenced: bool = boolean(True)


@message
class TopicRecord:
    name: str = string()
    topic_id: UUID = uuid()


@message
class PartitionRecord:
    """v1: log directories. v2: replicas that may be elected though they are not in sync."""

    partition_id: int = int32(-1)
    topic_id: UUID = uuid()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(-1)
    partition_epoch: int = int32(-1)
    directories: list[UUID] = array(uuid, since=1)
    eligible_leader_replicas: list[int] | None = array(int32, None, since=2, tag=1)
    last_known_elr: list[int] | None = array(int32, None, since=2, tag=2)


@message
class ConfigRecord:
    """A null value gives the setting back to its default."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(null_since=0)


@message
class RemoveTopicRecord:
    """The topic goes with its partitions."""

    topic_id: UUID = uuid()


@message
class QuotaEntity:
    """A null name stands for whoever has no quota of its own."""

    entity_type: str = string()
    entity_name: str | None = string(null_since=0)


@message
class ClientQuotaRecord:
    entity: list[QuotaEntity] = array(QuotaEntity)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@message
class ProducerIdsRecord:
    """Ids below `next_producer_id` have been given out."""

    broker_id: int = int32()
    broker_epoch: int = int64(-1)
    next_producer_id: int = int64()


MetadataRecord = (
    RegisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | RemoveTopicRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
)

# Kind: (message, newest version read). Version 0 is what is written.
_KINDS: dict[int, tuple[type[MetadataRecord], int]] = {
    0: (RegisterBrokerRecord, 0),
    2: (TopicRecord, 0),
    3: (PartitionRecord, 2),
    4: (ConfigRecord, 0),
    9: (RemoveTopicRecord, 0),
    14: (ClientQuotaRecord, 0),
    15: (ProducerIdsRecord, 0),
}
_KIND_OF: dict[type[MetadataRecord], int] = {cls: kind for kind, (cls, _) in _KINDS.items()}


def encode(record: MetadataRecord, version: int = 0) -> bytes:
    out = bytearray()
    for prefix in (_FRAME_VERSION, _KIND_OF[type(record)], version):
        wire.write_uvarint(out, prefix)
    schema.encode(record, out, version, flexible=True)
    return bytes(out)


def decode(value: Buffer) -> MetadataRecord:
    frame_version, position = wire.read_uvarint(value, 0)
    if frame_version != _FRAME_VERSION:
        raise MalformedFrame(f"a metadata record in frame version {frame_version}; only {_FRAME_VERSION} is known")
    kind, position = wire.read_uvarint(value, position)
    version, position = wire.read_uvarint(value, position)
    cls, version_max = _KINDS.get(kind, (None, -1))
    if cls is None or version > version_max:
        raise MalformedFrame(f"a metadata record of kind {kind} v{version}, which is not known here")
    return schema.decode_whole(cls, value, version, flexible=True, position=position)
