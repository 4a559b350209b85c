"""Consumers that come, go, die and come back, against the machine of groups, on a clock that a seed drives.

The coordinator here does its duties as the machine's docstring numbers them. It may be killed (then all that waits is
lost, and the log is replayed) and its log may refuse to write. The consumers do what real ones do with each answer.
After everything that happens, `check` looks whether it may have happened."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pylog.broker_lite import event_log
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines.group import Group, State
from pylog.broker_lite.machines.group_outcome import Client, GroupLimits, GroupOutcome
from pylog.broker_lite.machines.groups import Groups
from pylog.broker_lite.machines.offsets import CommittedOffset, Offsets
from pylog.broker_lite.machines.timers import Now
from pylog.broker_lite.protocol.consumer_protocol import Subscription, encode_subscription
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.heartbeat import HeartbeatRequest
from pylog.broker_lite.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pylog.broker_lite.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from pylog.broker_lite.protocol.offset_commit import OffsetCommitRequest
from pylog.broker_lite.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from pylog.storage.records import Record

GROUP = "g"
TOPIC = "t"
PARTITIONS = frozenset(range(12))
SESSION_MS = 10_000
HEARTBEAT_MS = 3_000
REBALANCE_MS = 30_000
INITIAL_DELAY_MS = 3_000
LOST = ErrorCode.COORDINATOR_NOT_AVAILABLE  # what a client makes of a broken connection, too
METADATA = encode_subscription(Subscription([TOPIC]))


@dataclass(frozen=True)
class Kind:
    """What may happen in one run."""

    kills: bool = False  # of the coordinator
    failing_appends: bool = False
    static: bool = False  # every other consumer has an instance id
    version: int = 9


class Coordinator:
    """The machine and its caller, with a look at everything that passes."""

    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self._limits = GroupLimits(initial_rebalance_delay_ms=INITIAL_DELAY_MS)
        self._ids = iter(range(1, 1 << 30))
        self.log: list[tuple[bytes | None, bytes | None]] = []
        self.generations_seen: list[int] = []
        # By token: since when, of which generation (None: a join), and who wants the answer.
        self.waiting: dict[int, tuple[int, int | None, Callable[[Any], None]]] = {}
        self._tokens = iter(range(1, 1 << 30))
        self._mirror = Groups(Offsets(4096), self._limits)  # replays what is written, and nothing else
        self.restart()

    def restart(self) -> None:
        """As after kill -9: what is in the log is all there is."""
        waiting, self.waiting = self.waiting, {}
        self.offsets = Offsets(4096)
        self.groups = self._replayed(self.offsets)
        self._look()
        for outcome in self.groups.loaded(self._simulation.now):
            self._do(outcome)
        for _, _, hear in waiting.values():
            hear(None)

    def _look(self) -> None:
        group = self.groups.get(GROUP)
        self._unchanged = None if group is None else group.copy()

    def _replayed(self, offsets: Offsets) -> Groups:
        groups = Groups(offsets, self._limits, lambda: str(next(self._ids)))
        for key, value in self.log:
            event = event_log.event(Record(0, 0, key, value))
            assert event is not None
            groups.replay(event)
        return groups

    def _do(self, outcome: GroupOutcome[Any]) -> bool:
        """False: the log could not be written to, and nothing has happened."""
        assert self.groups.get(GROUP) == self._unchanged, "deciding changed the state"
        if outcome.events and self._simulation.append_fails():
            return False
        for event in outcome.events:
            record = event_log.record(event)
            self.log.append(record)
            replayed = event_log.event(Record(0, 0, *record))
            assert replayed == event
            self._mirror.replay(event)
        self.groups.apply(outcome)
        self._look()
        self.check()
        for token, reply in outcome.answers:
            assert isinstance(token, int)
            since_ms, generation, hear = self.waiting.pop(token)  # KeyError: answered twice
            self._check_answer(reply, since_ms, generation)
            hear(reply)
        return True

    def _check_answer(self, reply: Any, since_ms: int, generation: int | None) -> None:
        waited_ms = self._simulation.now.timer_ms - since_ms
        slack_ms = INITIAL_DELAY_MS if generation is None else 0
        assert waited_ms <= REBALANCE_MS + slack_ms or self._simulation.log_was_stuck, "a request waited too long"
        if generation is not None and reply.error_code == ErrorCode.NONE:
            group = self.groups.get(GROUP)
            assert group is not None
            assert group.generation == generation, "an assignment for another generation"

    def park(
        self,
        decide: Callable[[int, Now], GroupOutcome[None]],
        hear: Callable[[Any], None],
        generation: int | None = None,
    ) -> None:
        token = next(self._tokens)
        self.waiting[token] = (self._simulation.now.timer_ms, generation, hear)
        if not self._do(decide(token, self._simulation.now)):
            del self.waiting[token]
            hear(None)

    def answer(self, decide: Callable[[Now], GroupOutcome[Any]]) -> Any:
        """None: the connection broke, or the coordinator is not there."""
        outcome = decide(self._simulation.now)
        return outcome.reply if self._do(outcome) else None

    def tick(self) -> None:
        for outcome in self.groups.tick(self._simulation.now):
            self._do(outcome)

    # -- what must hold, always

    def check(self) -> None:
        group, mirrored = self.groups.get(GROUP), self._mirror.get(GROUP)
        if group is None:
            assert mirrored is None
            return
        assert mirrored is not None
        check_group(group)
        assert len(self.groups._timers) <= len(group.members) + len(group.pending) + 2
        assert len(self.groups._timers._heap) <= 2 * len(self.groups._timers) + 128
        if group.state in (State.STABLE, State.EMPTY):
            assert group.record() == mirrored.record()
            mirrored.look_up_subscriptions()
            assert group.subscribed == mirrored.subscribed
        assert mirrored.generation <= group.generation
        assert self.offsets._groups == self._mirror._offsets._groups

    def check_replay(self) -> None:
        """The whole log gives what its parts gave one by one."""
        offsets = Offsets(4096)
        again, mirrored = self._replayed(offsets).get(GROUP), self._mirror.get(GROUP)
        assert (again and again.record()) == (mirrored and mirrored.record())
        assert offsets._groups == self.offsets._groups


def check_group(group: Group) -> None:
    members = set(group.members)
    assert set(group.joining) <= members
    assert set(group.syncing) <= members
    assert group.unsynced <= members
    assert not set(group.pending) & members
    assert (group.leader in members) if members else group.leader is None
    assert group.static_members == {
        member.instance_id: member.member_id for member in group.members.values() if member.instance_id is not None
    }
    names = [name for member in group.members.values() for name, _ in member.protocols]
    assert group.supporters == {name: names.count(name) for name in names}
    assert all(key == member.member_id for key, member in group.members.items())
    match group.state:
        case State.EMPTY:
            assert not members
        case State.PREPARING_REBALANCE:
            assert not group.syncing
            assert not group.unsynced
        case State.COMPLETING_REBALANCE:
            assert not group.joining
            assert members
            assert group.leader in group.unsynced, "the leader has assigned, and the group is not stable"
        case State.STABLE:
            assert not group.joining
            assert not group.syncing
            assert members


class Consumer:
    """One client. It holds what it was assigned until it hears, or should have heard, that it does not."""

    def __init__(self, simulation: "Simulation", name: str, instance_id: str | None) -> None:
        self._simulation = simulation
        self._name = name
        self._instance_id = instance_id
        self.is_prompt = True  # it always did in time what it should
        self.life = 0  # what was planned in an earlier one is off
        self.owned: frozenset[int] = frozenset()
        self.is_alive = False
        self._held: tuple[int, frozenset[int]] = (-1, frozenset())
        self._held_before = self._held
        self._asked = 0
        self._forget()

    def _forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.owned = frozenset()
        self._is_in = False
        self._is_rejoining = False
        self._is_busy = False

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        life = self.life

        def if_alive() -> None:
            if self.is_alive and self.life == life:
                action()

        self._simulation.at(delay_ms, if_alive)

    def _hear(self, action: Callable[[Any], None]) -> Callable[[Any], None]:
        """An answer takes a moment, and finds its way only in the life in which it was asked for."""
        life = self.life

        def hear(reply: Any) -> None:
            def now() -> None:
                if self.is_alive and self.life == life:
                    action(reply)

            self._simulation.at(self._simulation.random.randrange(1, 20), now)

        return hear

    # -- what it does by itself

    def come(self) -> None:
        self.life += 1
        self.is_alive, self.is_prompt = True, True
        self._forget()
        self._join()

    def leave(self) -> None:
        """Static members do not say so: they mean to come back."""
        if self._instance_id is None and self.member_id:
            request = LeaveGroupRequest(GROUP, members=[MemberIdentity(self.member_id)])
            self._simulation.coordinator.answer(lambda now: self._groups.leave(request, 5, now))
        self.die()

    def die(self) -> None:
        self.life += 1
        self.is_alive = False
        self.owned = frozenset()

    def stall(self, duration_ms: int) -> None:
        """Stands still, holding what it has, and goes on afterwards as if nothing had been."""
        self.is_prompt = False
        self.life += 1
        self._later(duration_ms, self._heartbeat if self._is_in else self._join)

    def change_mind(self) -> None:
        """A leader that saw new partitions joins anew."""
        if self._is_in:
            self._rejoin()

    def be_busy(self) -> None:
        """With the next thing that it has to do for the group."""
        self._is_busy = True

    def commit(self) -> None:
        """Now and then late: for what it held in the generation before."""
        choices = [(self.generation, partition) for partition in self.owned]
        choices += [(self._held_before[0], partition) for partition in self._held_before[1]]
        if not choices or not self.member_id:
            return
        generation, partition = self._simulation.random.choice(sorted(choices))
        request = OffsetCommitRequest(GROUP, generation, self.member_id, self._instance_id)
        offset = CommittedOffset(generation, -1, self.member_id, self._simulation.now.wall_ms)
        try:
            reply = self._simulation.coordinator.answer(
                lambda now: self._groups.commit(request, 9, {(TOPIC, partition): offset}, now)
            )
        except RequestError:
            return
        if reply is not None:
            self._simulation.committed(generation, partition)

    def _remember(self, generation: int) -> None:
        held, self._held = self._held, (generation, self.owned)
        self._held_before = held

    @property
    def _groups(self) -> Groups:
        return self._simulation.coordinator.groups

    # -- the protocol, as clients follow it

    def _join(self) -> None:
        request = JoinGroupRequest(
            GROUP,
            SESSION_MS,
            REBALANCE_MS,
            self.member_id,
            self._instance_id,
            "consumer",
            [JoinGroupRequestProtocol("range", METADATA)],
        )
        version, client = self._simulation.kind.version, Client(self._name, "/h")
        self._asked += 1
        asked = self._asked

        def joined(reply: JoinGroupResponse | None) -> None:
            if asked == self._asked:  # else it has asked again since, and waits for that answer
                self._joined(reply)

        self._simulation.coordinator.park(
            lambda token, now: self._groups.join(request, version, client, token, now), self._hear(joined)
        )

    def _rejoin(self) -> None:
        self._is_in = False
        self._is_rejoining = False
        self.owned = frozenset()
        self._join()

    def _joined(self, reply: JoinGroupResponse | None) -> None:
        match LOST if reply is None else reply.error_code:
            case ErrorCode.NONE:
                assert reply is not None
                self.member_id, self.generation = reply.member_id, reply.generation_id
                self._simulation.joined(reply)
                is_leader = reply.leader == reply.member_id and not reply.skip_assignment
                assignments = _assign([one.member_id for one in reply.members]) if is_leader else []
                if not self._is_in:
                    self._is_in = True
                    self._later(HEARTBEAT_MS, self._heartbeat)
                self._after_work(lambda: self._sync(assignments))
            case ErrorCode.MEMBER_ID_REQUIRED:
                assert reply is not None
                self.member_id = reply.member_id
                self._join()
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._lost_membership()
                self._later(100, self._join)
            case ErrorCode.FENCED_INSTANCE_ID:
                self.die()  # another one took its place
            case _:
                self._later(self._simulation.random.randrange(50, 500), self._join)

    def _sync(self, assignments: list[SyncGroupRequestAssignment]) -> None:
        generation = self.generation
        request = SyncGroupRequest(
            GROUP, generation, self.member_id, self._instance_id, "consumer", "range", assignments
        )
        self._simulation.coordinator.park(
            lambda token, now: self._groups.sync(request, 5, token, now),
            self._hear(lambda reply: self._synced(reply, generation)),
            generation,
        )

    def _synced(self, reply: SyncGroupResponse | None, generation: int) -> None:
        if not self._is_in or generation != self.generation:
            return
        match LOST if reply is None else reply.error_code:
            case ErrorCode.NONE:
                assert reply is not None
                self.owned = frozenset(reply.assignment)
                self._simulation.assigned(self)
                self._later(1, lambda: self._remember(generation))
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                self._lost_membership()
                self._join()
            case ErrorCode.FENCED_INSTANCE_ID:
                self.die()
            case _:
                self._rejoin()

    def _heartbeat(self) -> None:
        if not self._is_in:
            return
        if self._simulation.random.random() < 0.3:
            self.commit()
        request = HeartbeatRequest(GROUP, self.generation, self.member_id, self._instance_id)
        reply = self._simulation.coordinator.answer(lambda now: self._groups.heartbeat(request, now))
        match LOST if reply is None else reply.error_code:
            case ErrorCode.NONE | ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self._later(HEARTBEAT_MS, self._heartbeat)
            case ErrorCode.REBALANCE_IN_PROGRESS if self._is_rejoining:
                self._later(HEARTBEAT_MS, self._heartbeat)
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._is_rejoining = True
                self.owned = frozenset()
                self._later(HEARTBEAT_MS, self._heartbeat)
                self._later(self._simulation.random.randrange(1, 5_000), lambda: self._after_work(self._rejoin))
            case ErrorCode.FENCED_INSTANCE_ID:
                self.die()
            case _:
                self._lost_membership()
                self._join()

    def _after_work(self, action: Callable[[], None]) -> None:
        """At once; or, of one that is busy, much later, while its heartbeats go on: it is too slow to be waited for."""
        if not self._is_busy:
            action()
            return
        member_id, generation = self.member_id, self.generation
        self._is_busy, self.is_prompt = False, False

        def if_still_in() -> None:
            if (self.member_id, self.generation) == (member_id, generation):
                action()

        self._later(self._simulation.random.choice([SESSION_MS, REBALANCE_MS + 5_000]), if_still_in)

    def _lost_membership(self) -> None:
        assert not self.is_prompt or self._simulation.may_lose_members, f"{self._name} did nothing wrong"
        self._forget()


def _assign(members: list[str]) -> list[SyncGroupRequestAssignment]:
    return [
        SyncGroupRequestAssignment(member_id, bytes(sorted(PARTITIONS)[index :: len(members)]))
        for index, member_id in enumerate(members)
    ]


class Simulation:
    def __init__(self, seed: int, kind: Kind) -> None:
        self.random = random.Random(seed)
        self.kind = kind
        self.now = Now(1_000_000, 1_700_000_000_000)
        self.log_was_stuck = False
        self.counts: dict[str, int] = {}
        self._planned: list[tuple[int, int, Callable[[], None]]] = []
        self._order = iter(range(1 << 30))
        self._faults = True
        self._owners: dict[int, dict[int, str]] = {}  # generation -> partition -> member id
        self._generation_of_commit: dict[int, int] = {}
        self.coordinator = Coordinator(self)
        self.consumers = [
            Consumer(self, f"c{index}", f"i{index}" if kind.static and index % 2 else None) for index in range(10)
        ]

    @property
    def may_lose_members(self) -> bool:
        """A coordinator that was killed has forgotten who was about to join."""
        return self.kind.kills or self.kind.failing_appends

    def append_fails(self) -> bool:
        fails = self._faults and self.kind.failing_appends and self.random.random() < 0.1
        self.log_was_stuck |= fails
        return fails

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._planned, (self.now.timer_ms + delay_ms, next(self._order), action))

    def run(self, duration_ms: int) -> None:
        end_ms = self.now.timer_ms + duration_ms
        retry_ms = self.now.timer_ms  # a deadline that could not be dealt with is not tried again at once
        while True:
            deadline_ms = self.coordinator.groups.next_deadline_ms
            if deadline_ms is not None:
                deadline_ms = max(deadline_ms, retry_ms)
            planned_ms = self._planned[0][0] if self._planned else end_ms
            next_ms = min(planned_ms, end_ms if deadline_ms is None else deadline_ms)
            if next_ms >= end_ms:
                break
            self._go_to(next_ms)
            if deadline_ms == next_ms:
                self.coordinator.tick()
                retry_ms = next_ms + 100
            else:
                heapq.heappop(self._planned)[2]()
        self._go_to(end_ms)

    def _go_to(self, timer_ms: int) -> None:
        assert timer_ms >= self.now.timer_ms
        self.now = Now(timer_ms, self.now.wall_ms + timer_ms - self.now.timer_ms)

    # -- what happens to the consumers

    def trouble(self, duration_ms: int) -> None:
        end_ms = self.now.timer_ms + duration_ms

        def something() -> None:
            if self.now.timer_ms < end_ms:
                self._something()
                self.at(self.random.choice([10, 500, 3_000, 15_000]), something)

        self.at(0, something)
        self.run(duration_ms)

    def _something(self) -> None:
        consumer = self.random.choice(self.consumers)
        if not consumer.is_alive:
            self._count("come")
            consumer.come()
            return
        kinds = ["leave", "die", "change mind", "commit", "stall", "busy", "nothing"]
        kinds += ["kill", "check"] if self.kind.kills else ["check"]
        what = self.random.choice(kinds)
        self._count(what)
        match what:
            case "leave":
                consumer.leave()
            case "die":
                consumer.die()
            case "change mind":
                consumer.change_mind()
            case "commit":
                consumer.commit()
            case "stall":
                consumer.stall(self.random.choice([2_000, SESSION_MS + 1, REBALANCE_MS + 10_000]))
            case "busy":
                consumer.be_busy()
            case "kill":
                self.coordinator.restart()
            case "check":
                self.coordinator.check_replay()

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def calm(self) -> None:
        """Nothing more goes wrong: those that are alive settle."""
        self._faults = False
        for consumer in self.consumers:
            consumer._is_busy = False
        if not any(consumer.is_alive for consumer in self.consumers):
            self.consumers[0].come()
        self.run(2 * REBALANCE_MS + 2 * SESSION_MS + REBALANCE_MS)

    # -- what must hold

    def joined(self, reply: JoinGroupResponse) -> None:
        seen = self.coordinator.generations_seen
        if not self.kind.kills:  # a kill takes back what nobody was assigned in
            assert not seen or reply.generation_id >= seen[-1] - 1, "a generation came back"
        seen.append(reply.generation_id)

    def assigned(self, consumer: Consumer) -> None:
        """In one generation nobody else has them; nor, if all did in time what they should, does anybody at all."""
        self._count("assigned")
        owners = self._owners.setdefault(consumer.generation, {})
        group = self.coordinator.groups.get(GROUP)
        if self.kind.kills and group is not None and group.generation == consumer.generation:
            owners.clear()  # of a generation before the kill, which nobody got to see whole
            owners.update(
                {partition: member.member_id for member in group.members.values() for partition in member.assignment}
            )
        for partition in consumer.owned:
            owner = owners.setdefault(partition, consumer.member_id)
            assert owner == consumer.member_id or self.kind.static, f"partition {partition} has two owners"
        if not self.may_lose_members and not self.kind.static:
            for other in self.consumers:
                if other is not consumer and other.is_prompt and consumer.is_prompt and other.is_alive:
                    assert not other.owned & consumer.owned, "two hold the same partition"

    def committed(self, generation: int, partition: int) -> None:
        """Nobody of an older generation writes over what a newer one has written."""
        self._count("committed")
        group = self.coordinator.groups.get(GROUP)
        assert group is not None
        assert generation == group.generation, "an old member was not fenced"
        if not self.kind.kills:
            assert generation >= self._generation_of_commit.get(partition, 0)
        self._generation_of_commit[partition] = generation

    def check_settled(self) -> None:
        alive = [consumer for consumer in self.consumers if consumer.is_alive]
        group = self.coordinator.groups.get(GROUP)
        assert group is not None
        assert group.state is State.STABLE
        assert set(group.members) == {consumer.member_id for consumer in alive}
        assert {consumer.generation for consumer in alive} == {group.generation}
        held = [partition for consumer in alive for partition in consumer.owned]
        assert sorted(held) == sorted(PARTITIONS), "a partition has two owners or none"
        assert not self.coordinator.waiting
        self.coordinator.check_replay()


def kind_of(seed: int) -> Kind:
    """Every seed is of some kind; eight in a row have seen most of them."""
    kind = Kind(kills=bool(seed & 1), failing_appends=bool(seed & 2), static=bool(seed & 4))
    return replace(kind, version=3) if seed % 3 == 2 and not kind.static else kind
