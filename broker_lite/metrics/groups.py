"""The metrics of groups: their states, and how far they are behind."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from pylog.broker_lite.machines.group import Group, State
from pylog.broker_lite.machines.offsets import CommittedOffset, Place
from pylog.broker_lite.metrics import families
from pylog.broker_lite.metrics.families import Family
from pylog.broker_lite.metrics.lag import Want
from pylog.broker_lite.metrics.text import head, labels, samples

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


class CommitRow(NamedTuple):
    label_text: str
    offset: int
    lag_records: int | None  # None: the partition is not there
    want: Want | None  # what the lag in seconds is to be asked for; None: there is none, or it is not known


def states(groups: list[Group], rebalances: int) -> str:
    counts = Counter(group.state for group in groups)
    known = [state for state in State if state is not State.DEAD]
    return (
        head(families.GROUPS)
        + samples(families.GROUPS, [(labels(families.GROUPS, state), counts[state]) for state in known])
        + head(families.GROUP_REBALANCES)
        + samples(families.GROUP_REBALANCES, [("", rebalances)])
    )


def _state(group: Group) -> tuple[str, int]:
    return labels(families.GROUP_STATE, group.group_id, group.state), 1


def _members(group: Group) -> tuple[str, int]:
    return labels(families.GROUP_MEMBERS, group.group_id), len(group.members)


def _generation(group: Group) -> tuple[str, int]:
    return labels(families.GROUP_GENERATION, group.group_id), group.generation


COLUMNS: tuple[tuple[Family, Callable[[Group], tuple[str, int]]], ...] = (
    (families.GROUP_STATE, _state),
    (families.GROUP_MEMBERS, _members),
    (families.GROUP_GENERATION, _generation),
)


def commits(
    broker: "Broker", group_id: str, committed_by_place: Iterable[tuple[Place, CommittedOffset]]
) -> list[CommitRow]:
    rows = []
    for (topic, index), committed in committed_by_place:
        label_text = labels(families.GROUP_OFFSET, group_id, topic, index)
        partition = broker.partitions.get((topic, index))
        if partition is None:
            rows.append(CommitRow(label_text, committed.offset, None, None))
            continue
        log = partition.log
        lag_records = max(log.high_watermark - committed.offset, 0)
        want = (log, max(committed.offset, log.log_start_offset)) if lag_records else None
        rows.append(CommitRow(label_text, committed.offset, lag_records, want))
    return rows
