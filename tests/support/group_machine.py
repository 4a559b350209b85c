"""The machine of groups with a caller that does its duties, as a side that transcripts can be run on."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pylog.broker_lite import event_log
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines.group_outcome import Client, Event, GroupLimits, GroupOutcome
from pylog.broker_lite.machines.groups import Groups
from pylog.broker_lite.machines.offsets import CommittedOffset, Offsets, Place
from pylog.broker_lite.machines.timers import Now
from pylog.broker_lite.protocol import delete_groups, describe_groups, list_groups, offset_commit, offset_delete
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.storage.records import Record
from tests.support.group_transcripts import TOPICS, Answered, Names

START = Now(timer_ms=1_000_000, wall_ms=1_700_000_000_000)


class MachineSide:
    """The machine, and a caller that does its duties: it appends (to a list), applies, answers, and minds deadlines."""

    def __init__(self) -> None:
        self.limits = GroupLimits(initial_rebalance_delay_ms=0)
        self.now = START
        self.log: list[tuple[bytes | None, bytes | None]] = []
        self._unique = iter(range(1, 1_000_000))
        self._told = 0
        self._waiting: dict[object, tuple[str, Any, int]] = {}
        self._answers: list[Answered] = []
        self._start()

    def _start(self) -> None:
        self.offsets = Offsets(metadata_units_max=4096)
        self.groups = Groups(self.offsets, self.limits, lambda: str(next(self._unique)))
        for key, value in self.log:
            event = event_log.event(Record(0, 0, key, value))
            assert event is not None
            self.groups.replay(event)
        for outcome in self.groups.loaded(self.now):
            self._do(outcome)

    def _do(self, outcome: GroupOutcome[Any]) -> Any:
        self.log += [event_log.record(event) for event in outcome.events]
        self.groups.apply(outcome)
        for token, reply in outcome.answers:
            self._answered(*self._waiting.pop(token), reply)
        return outcome.reply

    def _answered(self, who: str, api: Any, version: int, reply: Any) -> None:
        """Only what the version carries."""
        self._answers.append(Answered(who, api, api.decode_response(api.encode_response(reply, version), version)))

    def _tick(self) -> None:
        while (next_ms := self.groups.next_deadline_ms) is not None and next_ms <= self.now.timer_ms:
            for outcome in self.groups.tick(self.now):
                self._do(outcome)

    def ask(self, who: str, api: Any, request: Any, version: int) -> None:
        request = api.decode_request(api.encode_request(request, version), version)  # only what the version carries
        if api.name in ("JoinGroup", "SyncGroup"):
            token = object()
            self._waiting[token] = (who, api, version)
            client = Client(who, "/127.0.0.1")
            if api.name == "JoinGroup":
                self._do(self.groups.join(request, version, client, token, self.now))
            else:
                self._do(self.groups.sync(request, version, token, self.now))
        else:
            self._answered(who, api, version, self._reply(api.name, request, version))
        self._tick()

    def _reply(self, name: str, request: Any, version: int) -> Any:
        groups, now = self.groups, self.now
        match name:
            case "Heartbeat":
                return self._do(groups.heartbeat(request, now))
            case "LeaveGroup":
                return self._do(groups.leave(request, version, now))
            case "DescribeGroups":
                return describe_groups.DescribeGroupsResponse(
                    groups=[groups.describe(group_id, version) for group_id in request.groups]
                )
            case "ListGroups":
                listed = groups.listed(request.states_filter, request.types_filter)
                return list_groups.ListGroupsResponse(groups=listed)
            case "DeleteGroups":
                results = [
                    delete_groups.DeletableGroupResult(group_id, self._delete(group_id))
                    for group_id in request.groups_names
                ]
                return delete_groups.DeleteGroupsResponse(results=results)
            case "OffsetCommit":
                return self._commit(request, version)
            case "OffsetDelete":
                return self._delete_offsets(request)
        raise AssertionError(name)

    def _delete(self, group_id: str) -> ErrorCode:
        try:
            self._do(self.groups.delete(group_id))
        except RequestError as error:
            return error.code
        return ErrorCode.NONE

    def _commit(self, request: offset_commit.OffsetCommitRequest, version: int) -> Any:
        ends_ms = self.now.wall_ms + request.retention_time_ms if request.retention_time_ms >= 0 else -1
        commits: dict[Place, CommittedOffset] = {}
        codes: dict[Place, ErrorCode] = {}
        for topic in request.topics:
            for one in topic.partitions:
                place = (topic.name, one.partition_index)
                codes[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if one.partition_index < TOPICS.get(topic.name, 0):
                    commits[place] = CommittedOffset(
                        one.committed_offset,
                        one.committed_leader_epoch,
                        one.committed_metadata or "",
                        self.now.wall_ms,
                        ends_ms,
                    )
        try:
            codes |= self._do(self.groups.commit(request, version, commits, self.now))
        except RequestError as error:
            codes |= dict.fromkeys(commits, error.code)
        return offset_commit.OffsetCommitResponse(
            topics=[
                offset_commit.OffsetCommitResponseTopic(
                    topic.name,
                    partitions=[
                        offset_commit.OffsetCommitResponsePartition(
                            one.partition_index, codes[topic.name, one.partition_index]
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _delete_offsets(self, request: offset_delete.OffsetDeleteRequest) -> Any:
        places = [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]
        known = [place for place in places if place[1] < TOPICS.get(place[0], 0)]
        codes = dict.fromkeys(places, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            codes |= self._do(self.groups.delete_offsets(request.group_id, known))
        except RequestError as error:
            return offset_delete.OffsetDeleteResponse(error_code=error.code)
        return offset_delete.OffsetDeleteResponse(
            topics=[
                offset_delete.OffsetDeleteResponseTopic(
                    topic.name,
                    [
                        offset_delete.OffsetDeleteResponsePartition(
                            one.partition_index, codes[topic.name, one.partition_index]
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def control(self, command: str, options: dict[str, str]) -> None:
        match command:
            case "advance":
                end_ms = self.now.timer_ms + int(options["argument"])
                while (next_ms := self.groups.next_deadline_ms) is not None and next_ms <= end_ms:
                    self._to(next_ms)
                    self._tick()
                self._to(end_ms)
            case "restart":  # as by kill -9: nobody is answered; `name=value` are limits from now on
                values = {name: int(value) for name, value in options.items() if name not in ("argument", "group")}
                self.limits = replace(self.limits, **values)
                self._waiting.clear()
                self._start()
            case "expire":
                for group_id in self.groups.ids():
                    for outcome in self.groups.expire(group_id, self.now):
                        self._do(outcome)
            case "topic-deleted":
                for outcome in self.groups.topic_deleted(options["argument"]):
                    self._do(outcome)

    def _to(self, timer_ms: int) -> None:
        self.now = Now(timer_ms, self.now.wall_ms + timer_ms - self.now.timer_ms)

    def answers(self, expected: Sequence[str]) -> list[Answered]:
        answers, self._answers = self._answers, []
        return answers

    def events(self) -> list[Event]:
        new, self._told = self.log[self._told :], len(self.log)
        events = [event_log.event(Record(0, 0, key, value)) for key, value in new]
        return [event for event in events if event is not None]

    def state(self, group_id: str, names: Names, expected: str) -> str:
        group = self.groups.get(group_id)
        state = "Dead" if group is None else group.state
        return f"{state} {', '.join(self._deadlines(group_id, names))}".rstrip()

    def _deadlines(self, group_id: str, names: Names) -> Iterator[str]:
        timers = self.groups._timers
        for key in sorted(timers.due(1 << 62), key=lambda key: (key.kind, key.member_id)):
            deadline_ms = timers.get(key)
            if key.group_id == group_id and deadline_ms is not None:
                whose = f" {names.of(key.member_id)}" if key.member_id else ""
                yield f"{key.kind}{whose} {(deadline_ms - self.now.timer_ms) / 1000:g}s"
