"""What `__consumer_offsets` keeps of a group: every generation that there was, as long as nothing was compacted."""

from pathlib import Path

from pylog.broker_lite import event_log
from pylog.broker_lite.machines.group_outcome import GroupEvent
from pylog.broker_lite.protocol import schema
from pylog.broker_lite.protocol.consumer_offsets import GroupMetadataValue
from pylog.broker_lite.protocol.schema import array, int32, message, string
from pylog.storage.batch import walk
from pylog.storage.records import decode_batch

_VERSION_BYTES = 2


@message
class _AssignedTopic:
    topic: str = string()
    partitions: list[int] = array(int32)


@message
class _Assignment:
    """As every version of it begins."""

    topics: list[_AssignedTopic] = array(_AssignedTopic)


def group_values(data: Path, group: str) -> list[GroupMetadataValue]:
    """From a data directory, the oldest first."""
    found = []
    for path in sorted(data.glob("__consumer_offsets-*/*.log")):
        written = path.read_bytes()
        for position, _ in walk(written):
            for record in decode_batch(written, position):
                event = event_log.event(record)
                if isinstance(event, GroupEvent) and event.group_id == group and event.value is not None:
                    found.append(event.value)
    return found


def owned_partitions(value: GroupMetadataValue) -> list[int]:
    """Of all members together; of groups that read one topic."""
    assignments = [
        schema.decode(_Assignment, member.assignment, 0, flexible=False, position=_VERSION_BYTES)[0]
        for member in value.members
        if member.assignment
    ]
    return [partition for one in assignments for topic in one.topics for partition in topic.partitions]
