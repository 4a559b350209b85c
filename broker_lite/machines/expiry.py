"""Which offsets are no longer kept (KIP-211).

A group with members keeps what they read. A group that lost its members keeps everything for the retention time from
then on. A consumer that was never in a group keeps each offset for that time from its commit on.
"""

from collections.abc import Iterator, Mapping

from pylog.broker_lite.machines.group import Group, State
from pylog.broker_lite.machines.group_outcome import GroupLimits
from pylog.broker_lite.machines.offsets import CommittedOffset, Place
from pylog.broker_lite.machines.timers import Now


def expired(group: Group, committed: Mapping[Place, CommittedOffset], limits: GroupLimits, now: Now) -> Iterator[Place]:
    is_simple = group.protocol_type is None
    is_empty = group.state is State.EMPTY
    if not is_simple and not is_empty and (group.state is not State.STABLE or group.subscribed is None):
        return  # what they read is not known, or about to change
    emptied_ms = group.since_ms if is_empty and not is_simple and group.since_ms >= 0 else None
    for place, offset in committed.items():
        if group.is_subscribed(place[0]):
            continue
        if offset.expire_timestamp_ms >= 0:
            end_ms = offset.expire_timestamp_ms
        else:
            unused_since_ms = offset.commit_timestamp_ms if emptied_ms is None else emptied_ms
            end_ms = unused_since_ms + limits.offsets_retention_ms
        if now.wall_ms >= end_ms:
            yield place
