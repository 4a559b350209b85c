"""The groups' machine at work: what it decides is appended to `__consumer_offsets`, applied, and then answered.

Between a decision and its `settle` there is no `await`. What cannot be appended has not happened: its request is told
so, and a deadline that has passed is looked at again after a while. An answer, also one to a request that has waited
for long, or that writes nothing, follows when what it tells is committed. A group whose partition of the log is lost is
forgotten: it has no coordinator, and what waits for it is told to ask elsewhere.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Any

from pylog.broker_lite import event_log
from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.machines.group import Token
from pylog.broker_lite.machines.group_outcome import Answer, GroupLimits, GroupOutcome
from pylog.broker_lite.machines.groups import Groups
from pylog.broker_lite.machines.offsets import Offsets
from pylog.broker_lite.machines.outcome import Reply
from pylog.broker_lite.machines.timers import Now
from pylog.broker_lite.partition import Partition
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.storage.records import Record

logger = logging.getLogger(__name__)

NAME_BYTES_MAX = (1 << 15) - 1  # in the log, and in older answers; newer requests may bring longer ones
AGAIN_AFTER_MS = 1000  # a deadline whose outcome could not be written

_MINUTE_MS = 60_000

# What a log's errors are to the members of a group: they know how to look for their coordinator, not for a log.
_CODES = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def code_of(error: Exception) -> ErrorCode:
    """Of an expected error, as Kafka's coordinator tells it; an unexpected one is raised again."""
    code = error_of(error)[0]
    return _CODES.get(code, code)


def check_name(name: str | None, code: ErrorCode, bytes_max: int = NAME_BYTES_MAX) -> None:
    if name is not None and len(name.encode()) > bytes_max:
        raise RequestError(code, f"A name of {len(name.encode())} bytes; {bytes_max} are allowed.")


def limits_of(config: BrokerConfig) -> GroupLimits:
    return GroupLimits(
        session_timeout_ms_min=config["group.min.session.timeout.ms"],
        session_timeout_ms_max=config["group.max.session.timeout.ms"],
        initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        members_max=config["group.max.size"],
        offsets_retention_ms=config["offsets.retention.minutes"] * _MINUTE_MS,
    )


class GroupCoordinator:
    def __init__(
        self,
        offsets: Offsets,
        limits: GroupLimits,
        home_of: Callable[[str], Partition],
        flush: Callable[[Partition], "asyncio.Future[None]"],
        now_ms: Callable[[], int],
    ) -> None:
        """`home_of` is the partition that keeps a group; it raises where that is lost, after it has called `lost`."""
        self.groups = Groups(offsets, limits)
        self._home_of = home_of
        self._flush = flush
        self._now_ms = now_ms
        self._flushing: dict[
            Partition, asyncio.Future[None]
        ] = {}  # the last one under way, which commits all before it
        self._alarm: asyncio.TimerHandle | None = None
        self._not_before_ms = 0  # on the clock of the deadlines
        self._told = ""

    def now(self) -> Now:
        return Now(int(asyncio.get_running_loop().time() * 1000), self._now_ms())

    # -- start and stop

    def replay(self, record: Record) -> None:
        event = event_log.event(record)
        if event is not None:
            self.groups.replay(event)

    def loaded(self) -> None:
        """The whole log was replayed."""
        if self.groups.ids():
            self._settle_all(self.groups.loaded(self.now()))

    def lost(self, group_ids: Iterable[str]) -> None:
        _give(self.groups.unload(group_ids))

    def close(self) -> None:
        self.lost(self.groups.ids())
        if self._alarm is not None:
            self._alarm.cancel()

    # -- outcomes

    async def answer_to(self, decide: Callable[[Token], GroupOutcome[None]]) -> Any:
        """Of a join or a sync: in its own outcome, or in a later one."""
        token: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.settle(decide(token))
        return await token

    async def reply_of(self, outcome: GroupOutcome[Reply]) -> Reply:
        """When it is committed. If it raises, nothing has happened, or nobody knows."""
        flushing = self.settle(outcome)
        if flushing is not None:
            await asyncio.shield(flushing)  # others may wait for it too
        return outcome.reply

    def settle(self, outcome: GroupOutcome[Any]) -> "asyncio.Future[None] | None":
        """What is returned, if anything, is done when it is committed. If it raises, nothing has happened."""
        flushing = self._settle(outcome)
        self._set_alarm()
        return flushing

    def _settle(self, outcome: GroupOutcome[Any]) -> "asyncio.Future[None] | None":
        home = self._home_of(outcome.group_id)
        if outcome.events:
            home.append(event_log.batch([event_log.record(event) for event in outcome.events], self._now_ms()))
        self.groups.apply(outcome)
        before, after = outcome.before, outcome.after
        if after is not None and after.generation != (0 if before is None else before.generation):
            logger.info(
                "group '%s' is in generation %d with %d members", after.group_id, after.generation, len(after.members)
            )
        flushing = self._commit(home) if outcome.events and home.flush_is_due else self._flushing.get(home)
        if flushing is None:
            _give(outcome.answers)
        else:
            flushing.add_done_callback(lambda done: _give_after(done, outcome.answers))
        return flushing

    def _commit(self, home: Partition) -> "asyncio.Future[None]":
        flushing = self._flushing[home] = self._flush(home)

        def flushed(done: "asyncio.Future[None]") -> None:
            if self._flushing.get(home) is done:
                del self._flushing[home]

        flushing.add_done_callback(flushed)
        return flushing

    async def committed(self, group_id: str) -> None:
        """Returns when all that is known of the group is committed, or its log is lost."""
        flushing = self._flushing.get(self._home_of(group_id))
        if flushing is not None:
            with contextlib.suppress(*EXPECTED):
                await asyncio.shield(flushing)

    @property
    def is_committed(self) -> bool:
        """All that is known of any group: so it is, but for moments, and where `flush.messages` was not set always."""
        return not self._flushing

    def _settle_all(self, outcomes: Iterable[GroupOutcome[None]]) -> bool:
        """Each by itself. False: one at least was not, and may be decided anew later."""
        failure = ""
        for outcome in outcomes:
            try:
                self._settle(outcome)
            except EXPECTED as error:
                if not failure and str(error) != self._told:  # a full disk says so every time
                    logger.error("group '%s' stays as it is for now: %s", outcome.group_id, error)
                failure = str(error)
        self._told = failure
        self._set_alarm()
        return not failure

    def topic_deleted(self, topic: str) -> None:
        if not self._settle_all(self.groups.topic_deleted(topic)):
            logger.error("commits for the deleted topic '%s' stay", topic)

    async def expire(self) -> None:
        """A round of `offsets.retention.check.interval.ms`."""
        for group_id in self.groups.ids():
            self._settle_all(self.groups.expire(group_id, self.now()))
            await asyncio.sleep(0)  # others have their turn

    # -- time

    def _set_alarm(self) -> None:
        """For the next deadline. One that rings too early does no harm: sessions move on with every heartbeat."""
        next_ms = self.groups.next_deadline_ms
        if next_ms is None:
            return
        when = (max(next_ms, self._not_before_ms) + 1) / 1000  # `now` is rounded down
        if self._alarm is not None:
            if self._alarm.when() <= when:
                return
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_at(when, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self.now()
        complete = False
        try:
            complete = self._settle_all(self.groups.tick(now))
        except Exception:
            logger.exception("deadlines of groups could not be dealt with")
        if not complete:
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None
            self._not_before_ms = now.timer_ms + AGAIN_AFTER_MS
            self._set_alarm()


def _give(answers: Iterable[Answer]) -> None:
    """A token is the future that the request awaits; it is done already where its client has gone."""
    for token, reply in answers:
        assert isinstance(token, asyncio.Future)
        if not token.done():
            token.set_result(reply)


def _give_after(flushing: "asyncio.Future[None]", answers: Iterable[Answer]) -> None:
    if not flushing.cancelled() and flushing.exception() is None:
        _give(answers)
        return
    for token, _ in answers:
        assert isinstance(token, asyncio.Future)
        if not token.done():
            token.set_exception(RequestError(ErrorCode.NOT_COORDINATOR, "The group's log could not be synced."))
