"""The two ways to write strings, arrays and tags: the old one, and the compact one of flexible versions.

For messages that are coded by hand: one function serves both, with the readers and writers of its style.
"""

from collections.abc import Callable
from typing import NamedTuple

from pylog.broker_lite.protocol import wire
from pylog.broker_lite.protocol.wire import Buffer, MalformedFrame

TopicKey = str | bytes  # a topic's name or, in newer versions, the 16 bytes of its id: a UUID takes long to make
ID_BYTES = 16


class Style(NamedTuple):
    read_string: Callable[[Buffer, int], tuple[str | None, int]]
    read_bytes: Callable[[Buffer, int], tuple[Buffer | None, int]]
    read_count: Callable[[Buffer, int], tuple[int, int]]
    skip_tags: Callable[[Buffer, int], int]
    write_string: Callable[[bytearray, str | None], None]
    write_count: Callable[[bytearray, int], None]
    write_bytes_length: Callable[[bytearray, int], None]  # -1 for null
    no_tags: bytes
    null_array: bytes

    def read_text(self, buffer: Buffer, position: int) -> tuple[str, int]:
        """A string that must not be null."""
        text, position = self.read_string(buffer, position)
        if text is None:
            raise MalformedFrame("a name is null")
        return text, position

    def read_topic(self, buffer: Buffer, position: int, *, by_id: bool) -> tuple[TopicKey, int]:
        if not by_id:
            return self.read_text(buffer, position)
        end = position + ID_BYTES
        if end > len(buffer):
            raise MalformedFrame("the id of a topic does not end in its frame")
        return bytes(buffer[position:end]), end

    def write_topic(self, out: bytearray, topic: TopicKey) -> None:
        if isinstance(topic, bytes):
            out += topic
        else:
            self.write_string(out, topic)

    def read_length(self, buffer: Buffer, position: int) -> tuple[int, int]:
        """The count of an array that must not be null."""
        count, position = self.read_count(buffer, position)
        if count < 0:
            raise MalformedFrame("an array is null")
        return count, position


def _no_tags_to_skip(buffer: Buffer, position: int) -> int:
    return position


PLAIN = Style(
    wire.read_string,
    wire.read_bytes,
    wire.read_count,
    _no_tags_to_skip,
    wire.write_string,
    wire.write_count,
    wire.write_count,  # both are an i32
    b"",
    b"\xff\xff\xff\xff",
)
COMPACT = Style(
    wire.read_compact_string,
    wire.read_compact_bytes,
    wire.read_compact_count,
    wire.skip_tags,
    wire.write_compact_string,
    wire.write_compact_count,
    wire.write_compact_count,  # both are a uvarint of n + 1
    b"\x00",
    b"\x00",
)
