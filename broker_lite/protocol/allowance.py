"""What a request becomes when it is decoded has a bound of its own: not its bytes alone.

Two or three bytes may become an object with a list in it, fifty times as much. So every array says what its elements
will take before the first of them is made: once an array, and only in requests that are large enough to matter. All
sizes are CPython's, rounded up as its allocator does. What texts and bytes hold is not counted: they take what they
take in the frame, or four times as much where a text has one character beyond all others.
"""

from pylog.broker_lite.protocol.wire import Buffer, MalformedFrame

DECODED_BYTES_MAX = 256 << 20  # a million names in Metadata, half a million partitions in a Fetch are below it
UNCOUNTED_BYTES_MAX = 64 * 1024  # of a request: it becomes some 4 MB at most

ELEMENT_BYTES_MIN = 240  # of a declared message: even a bare name is answered by an object
SLOT_BYTES = 10  # of a list, with what it has in reserve
LIST_BYTES = 96  # with its first slots
TEXT_BYTES = 64
DATA_BYTES = 48
VIEW_BYTES = 208
UUID_BYTES = 128
INT32_BYTES = 32
INT64_BYTES = 48
KEYED_BYTES = 150  # in a dict, by topic and partition


def tuple_bytes(length: int) -> int:
    return 48 + 8 * length


def object_bytes(slots: int) -> int:
    return 40 + 8 * slots


class Allowance:
    """What one message may still take."""

    __slots__ = ("_left_bytes",)

    def __init__(self, bytes_max: int) -> None:
        self._left_bytes = bytes_max

    def take(self, count: int, bytes_each: int) -> None:
        """Before so many things are made."""
        self._left_bytes -= count * bytes_each
        if self._left_bytes < 0:
            raise MalformedFrame(
                f"it has so many elements that it would take more than {DECODED_BYTES_MAX} bytes of memory "
                "(DECODED_BYTES_MAX)"
            )


def allowance_of(body: Buffer) -> Allowance | None:
    """None: it is small, and need not count."""
    return Allowance(DECODED_BYTES_MAX) if len(body) > UNCOUNTED_BYTES_MAX else None
