"""Groups as Kafka's tools are shown them."""

from collections.abc import Collection, Iterable

from pylog.broker_lite.machines.group import Group, State
from pylog.broker_lite.protocol.describe_groups import NOT_FOUND_SINCE, DescribedGroup, DescribedGroupMember
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.list_groups import ListedGroup

CLASSIC = "classic"  # the type of all groups here


def describe(group_id: str, group: Group | None, version: int) -> DescribedGroup:
    if group is None:
        if version < NOT_FOUND_SINCE:
            return DescribedGroup(group_id=group_id, group_state=State.DEAD)
        code, words = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
        return DescribedGroup(code, words, group_id, group_state=State.DEAD)
    protocol_name = group.protocol_name if group.state is State.STABLE else None  # in between it is about to change
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol_name or "",
        members=[
            DescribedGroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol_name),
                member.assignment,
            )
            for member in group.members.values()
        ],
    )


def listed(groups: Iterable[Group], states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    """Those in one of the states and of one of the types, however these are written; none given: all."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {name.strip().lower() for name in types}
    if wanted_types and CLASSIC not in wanted_types:
        return []
    return [
        ListedGroup(group.group_id, group.protocol_type or "", group.state, CLASSIC)
        for group in groups
        if not wanted_states or group.state.lower() in wanted_states
    ]
