"""Fetch sessions: what a reader asks for is kept, so that it only says what changed, and hears only what is new.

A reader of a thousand partitions would name them all, and be told of them all, each time that one has a record for it.
A session is the broker's own state, not a promise: one that has gone is begun anew by its reader. So its number, and
that of the partitions that are kept for all of them, has a bound; where there is no room the answer is "no session".
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.partition import Partition
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.fetch import NO_SESSION_ID, FetchPartition, FetchRequest, PartitionHead
from pylog.broker_lite.protocol.styles import TopicKey

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
PARTITIONS_MAX = 200_000  # of all sessions together
PARTITIONS_EACH_MAX = 20_000  # of one: all of them are gone through for each answer
UNUSED_MS_MAX = 120_000  # after which a session makes room for another, as in Kafka
_INT32_MAX = (1 << 31) - 1
_NOWHERE = -2  # no offset


class _Entry:
    """One partition of a session: what was asked last, and what was told last."""

    __slots__ = ("asked", "caught_up_at", "partition", "place", "start_offset", "told")

    def __init__(self, asked: FetchPartition) -> None:
        self.asked = asked
        self.place = ("", -1)
        self.partition: Partition | None = None
        self.told = (_NOWHERE, _NOWHERE)  # high watermark and log start
        self.caught_up_at = _NOWHERE  # the high watermark, if the reader has all below it

    def ask(self, asked: FetchPartition) -> None:
        self.asked = asked
        self.caught_up_at = _NOWHERE

    def tell(self, head: PartitionHead, partition: Partition | None, place: tuple[str, int]) -> bool:
        """Whether this is news; if it is it goes out with this answer."""
        told = (head.high_watermark, head.log_start_offset)
        is_news = bool(head.records_bytes or head.error_code or head.diverging_epoch or told != self.told)
        self.told, self.start_offset = told, head.log_start_offset
        self.partition, self.place = partition, place
        self.caught_up_at = _NOWHERE
        if not (head.records_bytes or head.error_code) and self.asked.fetch_offset == head.high_watermark:
            self.caught_up_at = head.high_watermark
        return is_news


class Session:
    def __init__(self, number: int, *, by_id: bool) -> None:
        self.id = number
        self.epoch = INITIAL_EPOCH + 1  # of the next request
        self.by_id = by_id
        self.used_ms = 0
        self._entries: dict[tuple[TopicKey, int], _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def ask(self, partitions: Sequence[FetchPartition]) -> None:
        entries = self._entries
        for asked in partitions:
            entry = entries.get((asked.topic, asked.partition))
            if entry is None:
                entries[asked.topic, asked.partition] = _Entry(asked)
            else:
                entry.ask(asked)

    def forget(self, forgotten: Sequence[tuple[TopicKey, list[int]]]) -> None:
        for topic, indexes in forgotten:
            for index in indexes:
                self._entries.pop((topic, index), None)

    def to_look_at(self, partitions: Mapping[tuple[str, int], Partition]) -> list[FetchPartition]:
        """All but those whose reader has everything, and knows everything that there is to know."""
        found = []
        for entry in self._entries.values():
            partition = entry.partition
            if (
                entry.caught_up_at == _NOWHERE
                or partition is None
                or partitions.get(entry.place) is not partition
                or partition.log.high_watermark != entry.caught_up_at
                or partition.log.log_start_offset != entry.start_offset
                or partition.log.failure is not None
            ):
                found.append(entry.asked)
        return found

    def places(self) -> Iterator[FetchPartition]:
        """All of its partitions, to wait for."""
        for entry in self._entries.values():
            yield entry.asked

    def tell(self, head: PartitionHead, partition: Partition | None, place: tuple[str, int]) -> bool:
        """Whether an answer has to say this. What had records goes behind the others: all get their turn."""
        key = (head.topic, head.partition)
        entry = self._entries.get(key)
        if entry is None:  # forgotten by a request that came in between
            return False
        if head.records_bytes:
            del self._entries[key]
            self._entries[key] = entry
        return entry.tell(head, partition, place)


class Sessions:
    def __init__(self, count_max: int, now_ms: Callable[[], int]) -> None:
        self._count_max = count_max
        self._now_ms = now_ms
        self._by_id: dict[int, Session] = {}  # the one that was not used for longest comes first

    def __len__(self) -> int:
        return len(self._by_id)

    def session_of(self, request: FetchRequest, *, by_id: bool) -> Session | None:
        """The session that this request goes on with or begins; None for one without. RequestError if it cannot be."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._by_id.pop(request.session_id, None)
            return self._begin(request, by_id=by_id) if request.session_epoch == INITIAL_EPOCH else None
        session = self._by_id.get(request.session_id)
        if session is None:
            raise RequestError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"There is no fetch session {request.session_id}; begin a new one.",
            )
        if session.epoch != request.session_epoch:
            raise RequestError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"The next epoch of the session is {session.epoch}, and not {request.session_epoch}.",
            )
        if session.by_id != by_id:
            raise RequestError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "A session names topics by name or by id, and does not change."
            )
        count = len(session)
        if len(request.partitions) > PARTITIONS_EACH_MAX:
            del self._by_id[session.id]
            raise RequestError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "Fetch sessions have no room for as many.")
        session.ask(request.partitions)
        session.forget(request.forgotten)
        if len(session) > count and (len(session) > PARTITIONS_EACH_MAX or not self._has_room_for(0)):
            del self._by_id[session.id]
            raise RequestError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "Fetch sessions have no room for more partitions.")
        session.epoch = session.epoch + 1 if session.epoch < _INT32_MAX else 1
        self._used(session)
        return session

    def _begin(self, request: FetchRequest, *, by_id: bool) -> Session | None:
        if len(request.partitions) > PARTITIONS_EACH_MAX or not self._make_room(len(request.partitions)):
            return None
        number = NO_SESSION_ID
        while number == NO_SESSION_ID or number in self._by_id:
            number = random.randint(1, _INT32_MAX)  # nobody takes over another's by counting on
        session = Session(number, by_id=by_id)
        session.ask(request.partitions)
        self._used(session)
        return session

    def _make_room(self, partition_count: int) -> bool:
        unused_before_ms = self._now_ms() - UNUSED_MS_MAX
        for session in list(self._by_id.values()):
            if session.used_ms > unused_before_ms or self._has_room_for(1, partition_count):
                break
            del self._by_id[session.id]
        return bool(partition_count) and self._has_room_for(1, partition_count)

    def _has_room_for(self, session_count: int, partition_count: int = 0) -> bool:
        if len(self._by_id) + session_count > self._count_max:
            return False
        return sum(map(len, self._by_id.values())) + partition_count <= PARTITIONS_MAX

    def _used(self, session: Session) -> None:
        session.used_ms = self._now_ms()
        self._by_id.pop(session.id, None)
        self._by_id[session.id] = session
