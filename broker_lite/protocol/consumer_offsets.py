"""The records of `__consumer_offsets`, as Kafka writes them: an i16 version, then the message.

The version of a key says what the record is: 0 and 1 an offset of a group, 2 the group itself.
Larger ones are newer kinds of groups, which a reader steps over. A null value takes the record back.
"""

from uuid import UUID

from pylog.broker_lite.protocol import schema
from pylog.broker_lite.protocol.schema import array, data, int32, int64, message, string, uuid
from pylog.broker_lite.protocol.wire import I16, Buffer, MalformedFrame

TOPIC = "__consumer_offsets"
EXPIRING_VALUE_VERSION = 1  # of an offset that says itself how long it is kept: no other version can

_OFFSET_KEY_VERSION_MAX = 1
_GROUP_KEY_VERSION = 2
_OFFSET_VALUE_VERSION = 4  # what is written, as by Kafka 4.3; 3.5 and later read it, and step over ids if they must
_GROUP_VALUE_VERSION = 3  # the same
_VALUE_VERSION_MAX = 4
_VALUE_FLEXIBLE_SINCE = 4


@message
class OffsetCommitKey:
    group: str = string()
    topic: str = string()
    partition: int = int32()


@message
class GroupMetadataKey:
    group: str = string()


@message
class OffsetCommitValue:
    """v1 alone has `expire_timestamp`. v3: leader epoch. v4: flexible, topic id."""

    offset: int = int64()
    leader_epoch: int = int32(-1, since=3)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(-1, since=1, until=1)
    topic_id: UUID = uuid(since=4, tag=0)


@message
class MemberMetadata:
    member_id: str = string()
    group_instance_id: str | None = string(None, since=3)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(since=1)
    session_timeout: int = int32()
    subscription: bytes = data()
    assignment: bytes = data()


@message
class GroupMetadataValue:
    """v1: rebalance timeout. v2: time of the current state. v3: static members. v4: flexible."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(None)
    leader: str | None = string(None)
    current_state_timestamp: int = int64(-1, since=2)
    members: list[MemberMetadata] = array(MemberMetadata)


Key = OffsetCommitKey | GroupMetadataKey


def encode_key(key: Key) -> bytes:
    version = _OFFSET_KEY_VERSION_MAX if isinstance(key, OffsetCommitKey) else _GROUP_KEY_VERSION
    return _encode(key, version)


def decode_key(key: Buffer) -> Key | None:
    """None for a kind of record that is not known here."""
    version = _version(key)
    if 0 <= version <= _OFFSET_KEY_VERSION_MAX:
        return schema.decode_whole(OffsetCommitKey, key, version, flexible=False, position=I16.size)
    if version == _GROUP_KEY_VERSION:
        return schema.decode_whole(GroupMetadataKey, key, version, flexible=False, position=I16.size)
    return None


def encode_value(value: OffsetCommitValue | GroupMetadataValue, version: int | None = None) -> bytes:
    written = _OFFSET_VALUE_VERSION if isinstance(value, OffsetCommitValue) else _GROUP_VALUE_VERSION
    return _encode(value, written if version is None else version)


def decode_offset_value(value: Buffer) -> OffsetCommitValue:
    return _decode_value(OffsetCommitValue, value)


def decode_group_value(value: Buffer) -> GroupMetadataValue:
    return _decode_value(GroupMetadataValue, value)


def partition_of_group(group: str, partition_count: int) -> int:
    """Kafka's choice: the absolute value of Java's String.hashCode, which counts UTF-16 units."""
    units = group.encode("utf-16-be", "surrogatepass")
    code = 0
    for position in range(0, len(units), 2):
        code = (31 * code + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    if code >= 1 << 31:
        code = (1 << 32) - code
    return 0 if code == 1 << 31 else code % partition_count  # the least int has no absolute value; Kafka takes 0


def _encode(record: Key | OffsetCommitValue | GroupMetadataValue, version: int) -> bytes:
    out = bytearray(I16.pack(version))
    schema.encode(record, out, version, flexible=_is_flexible(record, version))
    return bytes(out)


def _is_flexible(record: object, version: int) -> bool:
    return isinstance(record, OffsetCommitValue | GroupMetadataValue) and version >= _VALUE_FLEXIBLE_SINCE


def _decode_value(cls: type[schema.T], value: Buffer) -> schema.T:
    version = _version(value)
    if not 0 <= version <= _VALUE_VERSION_MAX:
        raise MalformedFrame(f"{cls.__name__} has version {version}; 0 to {_VALUE_VERSION_MAX} are known")
    flexible = version >= _VALUE_FLEXIBLE_SINCE
    return schema.decode_whole(cls, value, version, flexible=flexible, position=I16.size)


def _version(record: Buffer) -> int:
    if len(record) < I16.size:
        raise MalformedFrame(f"a record of {len(record)} bytes has no version")
    version: int = I16.unpack_from(record, 0)[0]
    return version
