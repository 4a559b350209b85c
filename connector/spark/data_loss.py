"""Records that were to be read and are not there any more: which ones, and why. The planner and the tasks say it alike.

Offsets that are missing within a log are no loss: compaction removes records, and the markers and aborted records of
transactions take offsets too. Lost is what lies before a log's first offset or behind its last, or was in a topic or
partition that is gone, though another topic may have its name now.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from pylog.connector.client.errors import (
    ClientError,
    OffsetOutOfRange,
    RangeNotReached,
    TopicRemade,
    UnknownPartition,
    UnknownTopic,
)
from pylog.connector.spark.checkpoint import id_text
from pylog.connector.spark.errors import DataLoss

_log = logging.getLogger(__name__)

FROM_THE_EARLIEST = "going on with the earliest that is there"
_AT_THE_END = "going on at the end of the log"
_WITHOUT_IT = "going on without it"

# behind which records are missing
TASK_ERRORS = (OffsetOutOfRange, RangeNotReached, TopicRemade, UnknownTopic, UnknownPartition)


class Loss(NamedTuple):
    """The offsets start <= offset < end of one partition; `end` is None where nobody knows how far they went."""

    topic: str
    partition: int
    start: int
    end: int | None
    why: str
    what_then: str = FROM_THE_EARLIEST  # where a loss does not fail the query

    def __str__(self) -> str:
        which = f"from {self.start} on" if self.end is None else f"[{self.start}, {self.end})"
        return f"{self.topic}-{self.partition}: the offsets {which} are gone: {self.why}"


def report(fail_on_data_loss: bool, losses: Sequence[Loss]) -> None:
    """DataLoss that names them all, or a warning that does."""
    if not losses:
        return
    if fail_on_data_loss:
        raise DataLoss("; ".join(map(str, losses)))
    for loss in losses:
        _log.warning("%s. failOnDataLoss is false: %s", loss, loss.what_then)


def expired(topic: str, partition: int, start: int, log_start: int, end: int | None = None) -> Loss:
    """`end`: how far it was to be read, if that is known."""
    why = f"the log starts at {log_start} now; they were deleted by retention, or by DeleteRecords"
    return Loss(topic, partition, start, log_start if end is None else min(log_start, end), why)


def truncated(topic: str, partition: int, reached: int, log_end: int) -> Loss:
    why = f"the log ends at {log_end} now; it was truncated (a leader without them took over, or a disk lost them)"
    return Loss(topic, partition, log_end, reached, why, _AT_THE_END)


def beyond(topic: str, partition: int, wanted: int, log_end: int, option: str = "startingOffsets") -> Loss:
    """Asked for by a user, not by what was read before."""
    why = f"the log ends at {log_end}, and {option} asks for {wanted}"
    return Loss(topic, partition, log_end, wanted, why, _AT_THE_END)


def deleted(topic: str, partition: int, start: int, end: int | None, *, whole_topic: bool) -> Loss:
    what = f"the topic {topic!r} does" if whole_topic else "the partition does"
    return Loss(topic, partition, start, end, f"{what} not exist any more; it was deleted", _WITHOUT_IT)


def recreated(topic: str, partition: int, start: int, end: int | None, old_id: str, new_id: str) -> Loss:
    why = f"the topic {topic!r} was deleted and made anew (its id was {old_id} and is {new_id})"
    return Loss(topic, partition, start, end, why)


def dropped(topic: str, partition: int, start: int) -> Loss:
    why = "the topic is there, but this query does not read it any more; subscribe, subscribePattern or assign changed"
    return Loss(topic, partition, start, None, why, _WITHOUT_IT)


def met_by_task(error: ClientError, topic: str, partition: int, start: int, end: int) -> Loss:
    """What one of `TASK_ERRORS` means for a task that has got to `start` and was to go on to `end`."""
    match error:
        case OffsetOutOfRange() if error.log_start_offset > start:
            return expired(topic, partition, start, error.log_start_offset, end)
        case OffsetOutOfRange():
            return truncated(topic, partition, end, error.log_end_offset)
        case RangeNotReached():
            _, _, reached, _, _, waited_ms = error.args
            loss = truncated(topic, partition, end, reached)
            return loss._replace(why=f"{loss.why}; nothing came in {waited_ms} ms")
        case TopicRemade():
            return recreated(topic, partition, start, end, id_text(error.was), id_text(error.now))
        case UnknownTopic():
            return deleted(topic, partition, start, end, whole_topic=True)
        case UnknownPartition():
            return deleted(topic, partition, start, end, whole_topic=False)
    raise error
