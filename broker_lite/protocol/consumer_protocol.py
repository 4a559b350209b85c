"""What members of type `consumer` tell each other through the group: opaque to the coordinator, but for the topics.

An i16 version, then the message. Version 0 is how every version begins, so whoever wants the topics reads no more.
"""

from pylog.broker_lite.protocol import schema
from pylog.broker_lite.protocol.schema import array, data, message, string
from pylog.broker_lite.protocol.wire import I16, Buffer, MalformedFrame

PROTOCOL_TYPE = "consumer"


@message
class Subscription:
    topics: list[str] = array(string)
    user_data: bytes | None = data(None)


def encode_subscription(subscription: Subscription) -> bytes:
    out = bytearray(I16.pack(0))
    schema.encode(subscription, out, 0, flexible=False)
    return bytes(out)


def decode_subscription(metadata: Buffer) -> Subscription:
    if len(metadata) < I16.size or I16.unpack_from(metadata, 0)[0] < 0:
        raise MalformedFrame("a subscription has no version")
    return schema.decode(Subscription, metadata, 0, flexible=False, position=I16.size)[0]
