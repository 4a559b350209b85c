"""The partition of a record that names none: the same choice as Kafka's own producers make, one record at a time.

The columns of a table are given theirs by kernels (`columnar.partitioner`), by the same rules."""

import random

from pylog.storage.kernels.plain import partition_of_key


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
        if used_bytes and used_bytes + size_bytes > self._batch_size_bytes:
            partition, used_bytes = partition + 1, 0
        self._current[topic] = partition, used_bytes + size_bytes
        return partition % partition_count
