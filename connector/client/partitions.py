"""The partition of a record that names none: the same choice as Kafka's own producers make, one record at a time.

The columns of a table are given theirs by kernels (`columnar.partitioner`), with the same results."""

import random

_SEED, _M, _R = 0x9747B28C, 0x5BD1E995, 24
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Unsigned; Java's has the same bits."""
    hashed = (_SEED ^ len(data)) & _MASK
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> _R) * _M & _MASK
        hashed = hashed * _M & _MASK ^ word
    if len(data) & 3:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class PartitionChooser:
    """Each topic starts at a random partition, lest many short-lived producers all fill the same one."""

    def __init__(self, *, round_robin: bool, ignore_keys: bool, batch_size_bytes: int) -> None:
        self._round_robin = round_robin
        self._ignore_keys = ignore_keys
        self._batch_size_bytes = 0 if round_robin else batch_size_bytes
        self._current: dict[str, tuple[int, int]] = {}  # by topic: the partition, and the bytes it has been given

    def choose(self, topic: str, key: bytes | None, size_bytes: int, partition_count: int) -> int:
        """Two threads at once may share a turn: no harm is done."""
        if key is not None and not self._round_robin and not self._ignore_keys:
            return partition_of_key(key, partition_count)
        partition, used_bytes = self._current.get(topic) or (random.randrange(1 << 31), 0)
        if used_bytes and used_bytes >= self._batch_size_bytes:
            partition, used_bytes = partition + 1, 0
        self._current[topic] = partition, used_bytes + size_bytes
        return partition % partition_count
