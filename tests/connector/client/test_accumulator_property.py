"""Whatever happens to a producer's batches, by chance: what the accumulator promises is looked at after each act. The
clock is turned, brokers are twins that know Kafka's rules for sequences, and nothing waits for anybody."""

import math
from collections import Counter
from typing import NamedTuple

from hypothesis import given, note, settings
from hypothesis import strategies as st

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.connector.client.accumulator import _EPOCH_MAX
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.config_types import INT32_MAX
from pylog.connector.client.pending_batch import PendingBatch
from tests.support.accumulator_driver import Connects, Driver
from tests.support.producer_leaders import Leaders
from tests.support.tape import Tape

PLACES = [("orders", 0), ("orders", 1), ("clicks", 0)]
PICKED = [*PLACES[:1] * 4, *PLACES[1:]]  # one of them has more to do than the others
NODES = 2
CONNECTS = [*[Connects.AT_ONCE] * 8, Connects.LATER, Connects.NEVER]
ANSWERS = [
    ErrorCode.NONE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,  # it is in the log
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
]
PADDINGS = [*[0] * 8, 40, 40, 120, 700]  # bytes of a value

REQUEST_TIMEOUT_MS = 100
DELIVERY_TIMEOUT_MS = 10_000_000
PAUSE_SECONDS_MAX = 1.2
SLEEP_SECONDS_MAX = 0.5
CALM_SECONDS_MAX = 30.0
END_OF_TIME = 1e12

ACTS = {
    "rest": 3,
    "append": 40,
    "add": 8,
    "flush": 3,
    "send": 60,
    "work": 40,
    "hear": 40,
    "wait": 12,
    "sleep": 30,
    "trouble": 6,
    "cut": 4,
    "restart": 3,
    "move": 3,
    "mistake": 3,
    "refuse": 1,
}
assert sum(ACTS.values()) == 256, "a byte of the tape"
ACT_OF_BYTE = [act for act, share in ACTS.items() for _ in range(share)]


class Setup(NamedTuple):
    linger_ms: int
    batch_size: int
    buffer_memory: int
    max_block_ms: int
    delivery_timeout_ms: int
    retries: int
    in_flight_max: int
    is_idempotent: bool
    batch_bytes_max: int  # of the brokers
    epochs: tuple[int, ...]
    is_closed: bool  # at the end, with all that is left

    @property
    def is_patient(self) -> bool:
        """Then nothing is given up but by request."""
        least = DELIVERY_TIMEOUT_MS, INT32_MAX, 1 << 20
        return (self.delivery_timeout_ms, self.retries, self.batch_bytes_max) == least

    def config(self) -> ClientConfig:
        options = {
            "bootstrap.servers": "x:1",
            "linger.ms": self.linger_ms,
            "batch.size": self.batch_size,
            "buffer.memory": self.buffer_memory,
            "max.block.ms": self.max_block_ms,
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
            "delivery.timeout.ms": self.delivery_timeout_ms + self.linger_ms,
            "retries": self.retries,
            "max.in.flight.requests.per.connection": self.in_flight_max,
            "enable.idempotence": str(self.is_idempotent).lower(),
        }
        return ClientConfig.parse({name: str(value) for name, value in options.items()})


setups = st.builds(
    Setup,
    linger_ms=st.sampled_from([0, 20, 2000]),
    batch_size=st.sampled_from([1, 1, 150, 300]),
    buffer_memory=st.sampled_from([100_000, 100_000, 100_000, 2000, 600]),
    max_block_ms=st.sampled_from([60_000, 500]),
    delivery_timeout_ms=st.sampled_from([DELIVERY_TIMEOUT_MS, DELIVERY_TIMEOUT_MS, 3000, 600]),
    retries=st.sampled_from([INT32_MAX, INT32_MAX, 2]),
    in_flight_max=st.sampled_from([1, 2, 5, 5]),
    is_idempotent=st.sampled_from([True, True, True, True, False]),
    batch_bytes_max=st.sampled_from([1 << 20, 1 << 20, 1 << 20, 400, 160]),
    epochs=st.sampled_from([(0,), (0,), (_EPOCH_MAX - 1, _EPOCH_MAX, 0)]),
    is_closed=st.sampled_from([False, False, False, True]),
)
tapes = st.binary(min_size=700, max_size=700).map(Tape)


class Run:
    """One example: acts as the tape has them, then no more faults."""

    def __init__(self, setup: Setup, tape: Tape) -> None:
        self.setup = setup
        self.tape = tape
        self.leaders = Leaders(PLACES, NODES, setup.batch_bytes_max)
        self.driver = Driver(setup.config(), self.leaders, setup.epochs)
        self.accumulator = self.driver.accumulator
        self.value_count = 0

    def act(self) -> None:
        tape, driver, nodes = self.tape, self.driver, self.leaders.nodes
        what = ACT_OF_BYTE[tape.number()]
        match what:
            case "append":
                place, padding = tape.pick(PICKED), tape.pick(PADDINGS)
                for _ in range(1 + tape.number() % 4):
                    driver.append(place, self.value(padding))
            case "add":
                padding = tape.pick(PADDINGS)
                parts = [
                    (tape.number() % 2, [self.value(padding) for _ in range(1 + tape.number() % 3)]) for _ in range(3)
                ]
                driver.add("orders", parts)
            case "flush":
                driver.flush()
            case "send":
                for _ in range(1 + tape.number() % 5):
                    self.send()
            case "work":
                for node in nodes:
                    self.leaders.work(node, tape.number() % 6)
            case "hear":
                for node in nodes:
                    driver.connected(node)
                    for _ in range(tape.number() % 6):
                        driver.hear(node)
            case "wait":
                driver.now += tape.pick([0.001, 0.01, 0.09, 0.4])
            case "sleep":
                driver.now = min(self.accumulator.next_due(driver.now) or driver.now, driver.now + SLEEP_SECONDS_MAX)
            case "trouble":
                codes = [tape.pick(ANSWERS) for _ in range(1 + tape.number() % 5)]
                self.leaders.trouble[tape.pick(PICKED)].extend(codes)
            case "cut":
                driver.lose(tape.pick(nodes), tape.number() % 6)
            case "restart":
                node = tape.pick(nodes)
                driver.lose(node, tape.number() % 6)
                self.leaders.restart(node)
            case "move":
                self.leaders.move(tape.pick(PLACES))
            case "mistake":  # metadata of a broker that knows less than others
                driver.known[tape.pick(PLACES)] = tape.pick(nodes)
            case "refuse":
                driver.refuse(tape.pick(PLACES)[0])
        if what != "rest":
            note(f"{driver.now:.3f} {what}")

    def value(self, padding: int) -> bytes:
        self.value_count += 1
        return b"%d:" % self.value_count + b"x" * padding

    def send(self) -> bool:
        """Whether anything left."""
        if self.accumulator.needs_identity and not self.tape.happens(30):
            self.driver.learn_identity()
        before = self.in_flight()
        for place in self.driver.send(connects=lambda: self.tape.pick(CONNECTS)):
            if not self.tape.happens(30):
                self.driver.known[place] = self.leaders.leader[place]
        return self.in_flight() > before

    def in_flight(self) -> int:
        return sum(map(self.leaders.in_flight, self.leaders.nodes))

    # What holds after each act

    def check(self) -> None:
        self.driver.look()
        batches = self.accumulator.batches()
        self.check_memory(batches)
        self.check_order()
        self.check_sleep(batches)
        self.check_nobody_is_forgotten()
        oldest = self.accumulator.oldest()
        assert oldest is None or oldest.created == min(batch.created for batch in batches)
        assert all(batch.promise.outcome is not None or batch.deadline > self.driver.now for batch in batches)

    def check_memory(self, batches: list[PendingBatch]) -> None:
        sharing = Counter(batch.reservation for batch in batches)
        assert self.accumulator.used_bytes == sum(reservation.size_bytes for reservation in sharing)
        assert all(reservation.batches == count for reservation, count in sharing.items())
        assert self.accumulator.is_empty == (not batches)
        assert not self.driver.line or batches, "a caller waits for nothing"

    def check_order(self) -> None:
        assert all(self.leaders.in_flight(node) <= self.setup.in_flight_max for node in self.leaders.nodes)
        for queue in self.accumulator._queues.values():
            assert len(queue.in_flight) <= self.setup.in_flight_max
            assert queue.resent == sum(batch.attempts > 1 for batch in queue.in_flight)
            for batches in (queue.in_flight, queue.waiting):
                orders = [batch.order for batch in batches]
                assert orders == sorted(set(orders))

    def check_sleep(self, batches: list[PendingBatch]) -> None:
        """Who sends may sleep until `next_due` and no longer, and finds something to do then."""
        now, at = self.driver.now, self.accumulator.next_due(self.driver.now)
        due_count = len(self.accumulator.due(now))  # what is due stays so, by itself
        before = END_OF_TIME if at is None else math.nextafter(at, 0)
        assert len(self.accumulator.due(before)) == due_count, "it sleeps past what is due"
        deadlines = [batch.deadline for batch in batches if batch.promise.outcome is None]
        assert min(deadlines, default=math.inf) > before, "it sleeps past a deadline"
        if at is not None:
            assert at > now, "it does not sleep"
            assert at in deadlines or len(self.accumulator.due(at)) > due_count, "it wakes for nothing"

    def check_nobody_is_forgotten(self) -> None:
        """What has a reason to leave, and nothing to wait for but a pause, leaves behind it."""
        soon = {queue.place for queue in self.accumulator.due(self.driver.now + PAUSE_SECONDS_MAX)}
        for queue in self.accumulator._queues.values():
            first, *behind = queue.waiting or [None]
            if first is None or not (first.attempts or behind or self.driver.wants_to_leave(first)):
                continue
            may_follow = (
                queue.place in self.driver.proven
                and (first.attempts > 0 or not queue.resent)
                and (first.sequence is not None or not self.driver.numbers.is_spoilt(queue.place))
            )
            assert queue.place in soon or (queue.in_flight and not may_follow), "nobody would send it"

    # Faults have stopped

    def come_to_rest(self) -> None:
        began, steps, failed_before = self.driver.now, 0, self.failed()
        for trouble in self.leaders.trouble.values():
            trouble.clear()
        while self.accumulator.batches() or self.driver.line:
            steps += 1
            assert steps <= 50 + 8 * self.value_count, "it does not come to rest"
            has_moved = self.send()
            for node in self.leaders.nodes:
                has_moved |= self.driver.connected(node)
                self.leaders.work(node, self.setup.in_flight_max)
                while self.driver.hear(node):
                    has_moved = True
            if not has_moved and not self.accumulator.due(self.driver.now):
                at = self.accumulator.next_due(self.driver.now)
                assert at is not None, "everybody sleeps for ever"
                self.driver.now = at
            self.check()
        assert self.driver.now - began < CALM_SECONDS_MAX
        assert self.failed() == failed_before or not self.setup.is_patient

    def failed(self) -> set[bytes]:
        return {sent.value for sent in self.driver.sent if (found := sent.outcome[0]) is not None and found.error}

    def check_end(self) -> None:
        one, driver = self.accumulator, self.driver
        assert (one.used_bytes, one.is_empty, one.waiting_for_room, one.flushing) == (0, True, 0, 0)
        assert (driver.line, driver.flushes) == ([], [])
        for sent in driver.sent:
            outcome, index = sent.outcome
            assert outcome is not None, "nobody is told"
            if outcome.error is None:
                found = self.leaders.logs[sent.place].values[outcome.base_offset + index]
                assert found == sent.value, "acknowledged, and not there"
        failed = self.failed()
        for place, log in self.leaders.logs.items():
            first_copies = list(dict.fromkeys(log.values))
            wanted = [sent.value for sent in driver.sent if sent.place == place]
            assert set(wanted) - set(first_copies) <= failed, "not there, and not given up"
            if self.setup.is_idempotent:
                assert first_copies == [value for value in wanted if value in set(first_copies)], "out of order"


@settings(max_examples=600, deadline=None)
@given(setup=setups, tape=tapes)
def test_every_record_is_written_once_in_order_and_in_time_or_given_up(setup: Setup, tape: Tape) -> None:
    run = Run(setup, tape)
    while not tape.is_over:
        run.act()
        run.check()
    if setup.is_closed:
        run.driver.close()
        run.check()
    else:
        run.come_to_rest()
    run.check_end()
