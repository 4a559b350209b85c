"""When batches leave and in which order, with a clock that the test turns."""

import pytest

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.connector.client.accumulator import Accumulator, Identity
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.delivery import Outcome
from pylog.connector.client.errors import kafka_error
from pylog.connector.client.pending_batch import PendingBatch
from pylog.storage.batch import check
from pylog.storage.records import decode_batch

PLACE = ("orders", 0)
LOST = kafka_error(ErrorCode.NETWORK_EXCEPTION, "writing")


def accumulator(**options: str) -> Accumulator:
    named = {name.replace("_", "."): value for name, value in options.items()}
    made = Accumulator(ClientConfig.parse({"bootstrap.servers": "x:1", "retry.backoff.ms": "100", **named}))
    if made.identity is None:
        made.identity = Identity(7, 0)
    return made


def add(to: Accumulator, value: bytes = b"v", now: float = 0.0, partition: int = 0) -> PendingBatch:
    return to.append(("orders", partition), 0, None, value, (), now)[0]


def leaves(of: Accumulator, now: float) -> list[tuple[str, int]]:
    return [queue.place for queue in of.due(now)]


def take(of: Accumulator, now: float = 1e9) -> PendingBatch:
    return of.take(of.due(now)[0])


# The four triggers


def test_a_batch_leaves_when_it_has_lingered() -> None:
    one = accumulator(linger_ms="50")
    add(one, now=10.0)
    add(one, now=10.03)
    assert leaves(one, 10.049) == []
    assert one.next_due(10.04) == pytest.approx(10.05)
    assert leaves(one, 10.051) == [PLACE]
    assert take(one).record_count == 2


def test_a_batch_leaves_when_it_is_full_and_not_one_record_earlier() -> None:
    one = accumulator(linger_ms="1000", batch_size="500")
    while not leaves(one, 0.0):
        batch = add(one, b"x" * 50)
        assert one.used_bytes <= 1000
    full = take(one, 0.0)
    assert full.size_bytes <= 500
    assert full is not batch, "the record that found no room is in the next one"
    assert leaves(one, 0.0) == []


def test_a_record_larger_than_a_batch_has_one_of_its_own() -> None:
    one = accumulator(batch_size="100", linger_ms="1000")
    add(one, b"small")
    large = add(one, b"x" * 5000)
    assert add(one, b"small") is not large
    assert [take(one, 0.0).record_count, take_after(one).record_count] == [1, 1]


def take_after(one: Accumulator) -> PendingBatch:
    """The second, once the first is taken by the broker."""
    one.acknowledge(one.batches()[0])
    return take(one, 0.0)


def test_a_record_that_cannot_be_written_leaves_no_empty_batch_behind() -> None:
    one = accumulator(linger_ms="1000")
    with pytest.raises(UnicodeEncodeError):
        one.append(PLACE, 0, None, b"v", [("\udc80", b"")], 0.0)
    assert (one.used_bytes, one.batches()) == (0, [])
    batch, _, wants_look = one.append(PLACE, 0, None, b"v", (), 5.0)
    assert (wants_look, batch.created) == (True, 5.0), "it would linger unseen in a batch that nobody was told of"


@pytest.mark.parametrize("why", ["flushing", "waiting_for_room"])
def test_all_batches_leave_when_somebody_waits_for_them(why: str) -> None:
    one = accumulator(linger_ms="1000")
    add(one, partition=0)
    add(one, partition=1)
    assert leaves(one, 0.0) == []
    setattr(one, why, 1)
    assert leaves(one, 0.0) == [("orders", 0), ("orders", 1)]


def test_memory_is_what_is_not_settled() -> None:
    one = accumulator(buffer_memory="1000", linger_ms="0")
    assert one.has_room(5000), "something larger than all of it finds room when there is nothing else"
    add(one, b"x" * 600)
    assert not one.has_room(600)
    batch = take(one)
    assert not one.has_room(600), "it is in flight"
    one.acknowledge(batch)
    assert one.used_bytes == 0
    assert one.is_empty


def test_memory_that_batches_share_comes_free_with_the_last_of_them() -> None:
    one = accumulator(linger_ms="0")
    made = [(partition, memoryview(bytearray(200)), 1) for partition in range(3)]
    batches = one.add("orders", made, 0.0)
    for batch in batches[:2]:
        one.give_up(batch)
        assert one.used_bytes == 600, "a partition that is stuck holds the memory of all"
    one.give_up(batches[2])
    assert one.used_bytes == 0


# Order and sequences


def test_partitions_take_turns() -> None:
    one = accumulator(linger_ms="0", batch_size="1")
    for partition in (0, 0, 1, 1, 2, 2):
        add(one, partition=partition)
    sent = []
    while one.due(1.0):
        sent.append(take(one))
        one.acknowledge(sent[-1])
    assert [batch.place[1] for batch in sent] == [0, 1, 2, 0, 1, 2]


def test_nothing_follows_a_batch_before_the_leader_has_taken_one() -> None:
    one = accumulator(linger_ms="0", batch_size="1")
    for _ in range(4):
        add(one)
    first = take(one)
    assert leaves(one, 1.0) == []
    one.acknowledge(first)
    assert [take(one).sequence, take(one).sequence, take(one).sequence] == [1, 2, 3]


def test_what_comes_back_leaves_in_its_order_after_a_pause_with_its_sequence() -> None:
    one = accumulator(linger_ms="0", batch_size="1")
    for _ in range(5):
        add(one)
    one.acknowledge(take(one))
    flying = [take(one) for _ in range(3)]
    for batch in (flying[1], flying[0]):
        one.retry(batch, 5.0, LOST)
    assert leaves(one, 100.0) == [], "one of them is not answered yet"
    one.retry(flying[2], 5.0, LOST)
    assert leaves(one, 5.01) == []
    assert take(one, 6.0) is flying[0]
    assert leaves(one, 6.0) == []
    one.acknowledge(flying[0])
    assert [take(one, 6.0), take(one, 6.0)] == flying[1:]
    assert [batch.sequence for batch in flying] == [1, 2, 3]
    assert leaves(one, 6.0) == [], "a broker remembers five batches: nothing new until the copies are settled"
    for batch in flying[1:]:
        one.acknowledge(batch)
    assert take(one, 6.0).sequence == 4


def test_a_sequence_given_up_raises_the_epoch_once_nothing_else_may_be_in_the_log() -> None:
    one = accumulator(linger_ms="0", batch_size="1", delivery_timeout_ms="40000")
    for now in (0.0, 5.0, 5.0):
        add(one, now=now)
    one.acknowledge(take(one))
    lost, behind = take(one), take(one)
    add(one, now=5.0)
    lost.deadline = 30.0
    one.retry(lost, 20.0, LOST)
    one.retry(behind, 20.0, LOST)
    assert one.expire(31.0) == [lost]
    again = take(one, 31.0)
    assert (again, again.sequence) == (behind, 2), "it may be in the log: only its sequence can tell"
    one.renumber(again, 31.0, LOST)  # it is not: what it counts on was never written
    assert take(one, 40.0) is behind
    assert (behind.sequence, one.identity_of(behind)) == (0, Identity(7, 1))
    one.acknowledge(behind)
    assert take(one, 40.0).sequence == 1


def test_the_last_epoch_is_followed_by_another_producer_id() -> None:
    one = accumulator(linger_ms="0")
    one.identity = Identity(7, 0x7FFF)
    add(one)
    batch = take(one)
    one.renumber(batch, 0.0, LOST)
    assert one.needs_identity
    one.identity = Identity(8, 0)
    assert not one.needs_identity
    assert one.identity_of(take(one, 10.0)) == Identity(8, 0)


def test_sequences_begin_at_0_again_behind_the_last() -> None:
    one = accumulator(linger_ms="0")
    add(one)
    one.acknowledge(take(one))
    one._queues[PLACE].next_sequence = 0x7FFFFFFF
    for expected in (0x7FFFFFFF, 0):
        add(one)
        batch = take(one)
        assert batch.sequence == expected
        one.acknowledge(batch)


def test_a_batch_is_cut_in_two_and_its_futures_with_it() -> None:
    one = accumulator(linger_ms="0")
    for n in range(5):
        add(one, b"%d" % n)
    batch = take(one)
    batch.seal(0, None, 7, 0)
    add(one, b"5")
    one.split(batch, None)
    values = []
    for now in (10.0, 20.0, 30.0):
        part = take(one, now)
        sealed = part.seal(0, None, *one.identity_of(part))
        assert check(sealed).base_sequence == part.sequence == len(values)
        values += [record.value for record in decode_batch(sealed)]
        part.promise.resolve(Outcome(100 + len(values) - part.record_count, -1, None))
        one.acknowledge(part)
    assert values == [b"%d" % n for n in range(6)]
    assert one.used_bytes == 0
    promise, index = batch.promise.of(3)
    assert (promise.outcome, index) == (Outcome(102, -1, None), 1)


def test_one_that_came_back_is_given_up_in_time_though_later_ones_are_in_flight() -> None:
    one = accumulator(linger_ms="0", batch_size="1", delivery_timeout_ms="60000")
    add(one, now=0.0)
    one.acknowledge(take(one))  # the leader has taken one
    first = add(one, now=1.0)
    take(one, 1.0)
    second = add(one, now=5.0)
    take(one, 5.0)
    assert one.next_due(5.0) == first.deadline
    one.retry(first, 6.0, LOST)
    assert one.due(7.0) == [], "nothing follows until the second is answered"
    assert one.next_due(7.0) == first.deadline == 61.0
    assert one.expire(61.0) == [first]
    assert one.next_due(61.0) == second.deadline
