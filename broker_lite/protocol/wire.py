"""Kafka's primitive types: read from a frame, append to a buffer.

Readers take (buffer, position) and return (value, position behind it). Every length is checked
against the frame before anything is made of it, so a lying length costs nothing.
"""

import struct
from uuid import UUID

Buffer = bytes | bytearray | memoryview

I8 = struct.Struct(">b")
I16 = struct.Struct(">h")
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")
F64 = struct.Struct(">d")

ZERO_UUID = UUID(int=0)


class MalformedFrame(Exception):
    """A frame that does not say what its version of its message says."""


def _slice(buffer: Buffer, position: int, length: int) -> Buffer:
    if length < 0 or length > len(buffer) - position:
        raise MalformedFrame(f"a field of {length} bytes at byte {position} of a frame of {len(buffer)}")
    return buffer[position : position + length]


def _text(data: Buffer) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedFrame(f"a string is not UTF-8: {error}") from None


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    if position >= len(buffer):
        raise MalformedFrame("a varint does not end in its frame")
    value = buffer[position]
    if value < 0x80:  # most lengths and nearly all tag counts
        return value, position + 1
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        if position >= len(buffer):
            raise MalformedFrame("a varint does not end in its frame")
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
    raise MalformedFrame("a varint of more than five bytes")


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(0x80 | value & 0x7F)
        value >>= 7
    out.append(value)


# Strings and bytes: an i16 or i32 length (-1 null), or in flexible versions a uvarint of length + 1 (0 null).


def read_string(buffer: Buffer, position: int) -> tuple[str | None, int]:
    (length,) = I16.unpack_from(buffer, position)
    position += 2
    if length == -1:
        return None, position
    return _text(_slice(buffer, position, length)), position + length


def read_compact_string(buffer: Buffer, position: int) -> tuple[str | None, int]:
    length, position = read_uvarint(buffer, position)
    if length == 0:
        return None, position
    return _text(_slice(buffer, position, length - 1)), position + length - 1


def read_bytes(buffer: Buffer, position: int) -> tuple[Buffer | None, int]:
    """A view of the frame, not a copy."""
    (length,) = I32.unpack_from(buffer, position)
    position += 4
    if length == -1:
        return None, position
    return _slice(buffer, position, length), position + length


def read_compact_bytes(buffer: Buffer, position: int) -> tuple[Buffer | None, int]:
    length, position = read_uvarint(buffer, position)
    if length == 0:
        return None, position
    return _slice(buffer, position, length - 1), position + length - 1


def read_uuid(buffer: Buffer, position: int) -> tuple[UUID, int]:
    return UUID(bytes=bytes(_slice(buffer, position, 16))), position + 16


def read_count(buffer: Buffer, position: int) -> tuple[int, int]:
    """An array's length, -1 for null. An element takes a byte at least, so a larger count is a lie."""
    (count,) = I32.unpack_from(buffer, position)
    position += 4
    if count < -1 or count > len(buffer) - position:
        raise MalformedFrame(f"an array of {count} elements in a frame of {len(buffer)} bytes")
    return count, position


def read_compact_count(buffer: Buffer, position: int) -> tuple[int, int]:
    count, position = read_uvarint(buffer, position)
    if count - 1 > len(buffer) - position:
        raise MalformedFrame(f"an array of {count - 1} elements in a frame of {len(buffer)} bytes")
    return count - 1, position


def skip_tags(buffer: Buffer, position: int) -> int:
    """Step over tagged fields that nobody here knows."""
    if position < len(buffer) and buffer[position] == 0:  # none: nearly always
        return position + 1
    count, position = read_uvarint(buffer, position)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        _slice(buffer, position, size)
        position += size
    return position


def write_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
        return
    data = value.encode()
    out += I16.pack(len(data))
    out += data


def write_compact_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
        return
    data = value.encode()
    write_uvarint(out, len(data) + 1)
    out += data


def write_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
        return
    out += I32.pack(len(value))
    out += value


def write_compact_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out.append(0)
        return
    write_uvarint(out, len(value) + 1)
    out += value


def write_count(out: bytearray, count: int) -> None:
    """-1 for a null array."""
    out += I32.pack(count)


def write_compact_count(out: bytearray, count: int) -> None:
    write_uvarint(out, count + 1)
