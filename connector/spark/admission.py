"""How much a micro-batch takes of what waits: so many offsets, so many bytes; and when it is worth a batch at all.

Spark writes the end of a batch into its log before the batch runs, so nothing here is decided twice.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from pylog.connector.client.cluster import TopicPartition
from pylog.connector.client.sizes import Sample
from pylog.connector.spark.offsets import Offsets
from pylog.connector.spark.plan import limited

Sampler = Callable[[Offsets], Mapping[TopicPartition, Sample]]

_FIRST_GUESS_AT = (0.0,)  # of all that waits
_SAMPLED_AT = (0.0, 0.5, 0.9)  # of what is chosen
_ROUNDS = 3
_NEAR_ENOUGH = 0.9  # of the bytes that are allowed


class TriggerDelay:
    """minOffsetsPerTrigger and maxTriggerDelay, as in Spark's connector: a trigger with too little waits for more, but
    not for longer than the delay since the last one that did not; the first one does not wait."""

    def __init__(self, offsets_min: int, delay_ms_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._offsets_min = offsets_min
        self._delay_ms_max = delay_ms_max
        self._clock = clock
        self._fired_at: float | None = None

    @property
    def left_ms(self) -> int:
        """How long a trigger may still wait."""
        if self._fired_at is None:
            return 0
        return max(0, self._delay_ms_max - int((self._clock() - self._fired_at) * 1000))

    def fires(self, waiting: int) -> bool:
        if waiting < self._offsets_min and self.left_ms > 0:
            return False
        self._fired_at = self._clock()
        return True


def byte_limited(begin: Offsets, end: Offsets, bytes_max: int, sample: Sampler) -> Offsets:
    """The ends of a batch of about `bytes_max` bytes, as they lie in the log: every partition gives the same part of
    what waits in it, and at least one offset. By samples of what is to be read: exact where these cover it all."""
    known: dict[tuple[TopicPartition, int], Sample] = {}
    total = sum(max(0, end[place] - begin[place]) for place in end)
    guess = _estimate(begin, end, _FIRST_GUESS_AT, sample, known)
    count = total if guess <= bytes_max else max(1, int(total * bytes_max / guess))
    fits, too_many = (0, 0.0), None  # (offsets, bytes), as they were estimated
    for _ in range(_ROUNDS):
        size_bytes = _estimate(begin, limited(begin, end, count), _SAMPLED_AT, sample, known)
        if size_bytes > bytes_max:
            too_many = count, size_bytes
        else:
            fits = count, size_bytes
            if count == total or size_bytes >= _NEAR_ENOUGH * bytes_max:
                break
        if too_many is not None:  # between the two
            part = (bytes_max - fits[1]) / (too_many[1] - fits[1])
            count = fits[0] + int((too_many[0] - fits[0]) * part)
        else:
            count = int(count * bytes_max / size_bytes) if size_bytes else total
        count = min(total, max(1, count))
    return limited(begin, end, count)


def _estimate(
    begin: Offsets,
    end: Offsets,
    parts: Sequence[float],
    sample: Sampler,
    known: dict[tuple[TopicPartition, int], Sample],
) -> float:
    """The bytes of a range, by samples at these parts of it; one that is `known` is not asked for again."""
    waiting = {place: end[place] - begin[place] for place in end if end[place] > begin[place]}
    samples: dict[TopicPartition, list[Sample]] = {place: [] for place in waiting}
    for part in parts:
        asked = {
            place: begin[place] + int(part * count)
            for place, count in waiting.items()
            if not (samples[place] and samples[place][-1].next_offset >= end[place])
        }
        fresh = {place: offset for place, offset in asked.items() if (place, offset) not in known}
        known.update({(place, fresh[place]): found for place, found in (sample(fresh) if fresh else {}).items()})
        for place, offset in asked.items():
            if (place, offset) in known:
                samples[place].append(known[place, offset])
    return sum(_estimate_one(samples[place], begin[place], end[place]) for place in waiting)


def _estimate_one(samples: list[Sample], begin: int, end: int) -> float:
    """By the mean of the samples' bytes per offset."""
    if samples and samples[0].offset <= begin and samples[0].next_offset >= end:
        return samples[0].bytes_before(end)
    return (end - begin) * sum(found.bytes_per_offset for found in samples) / max(1, len(samples))
