"""What a Kafka broker makes of the sequences of producers, in one partition: copies are known, gaps refused."""

from collections import deque
from dataclasses import dataclass, field

from pylog.broker_lite.protocol.errors import ErrorCode

REMEMBERED = 5
_SEQUENCES = 1 << 31


@dataclass
class _Producer:
    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    @property
    def next_sequence(self) -> int:
        first, count, _ = self.batches[-1]
        return (first + count) % _SEQUENCES


class Sequences:
    """`check` says what a broker answers, and `took` is told of what it wrote."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def forget(self) -> None:
        """As when all of a producer's records are gone by retention: any sequence is then a first one."""
        self._producers.clear()

    def restart(self) -> None:
        """A broker that was stopped in good order knows only the last batch of each producer: more is not kept."""
        for known in self._producers.values():
            known.batches = deque([known.batches[-1]], maxlen=REMEMBERED)

    def check(self, producer_id: int, epoch: int, sequence: int, count: int) -> tuple[ErrorCode, int]:
        """(error, base offset of the copy that is there, or -1: it is to be written)."""
        known = self._producers.get(producer_id)
        if producer_id < 0 or known is None:
            return ErrorCode.NONE, -1
        if epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if epoch > known.epoch:
            return (ErrorCode.NONE if sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), -1
        for first, size, base_offset in known.batches:
            if (first, size) == (sequence, count):
                return ErrorCode.NONE, base_offset
        if sequence == known.next_sequence:
            return ErrorCode.NONE, -1
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1

    def took(self, producer_id: int, epoch: int, sequence: int, count: int, base_offset: int) -> None:
        if producer_id >= 0:
            known = self._producers.get(producer_id)
            if known is None or known.epoch != epoch:
                known = self._producers[producer_id] = _Producer(epoch)
            known.batches.append((sequence, count, base_offset))
