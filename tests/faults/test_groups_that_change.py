"""Ten seats in one group, of three client libraries, whose members come, go and die: whenever the group is stable, each
partition has one owner, and in the end everything was read. The log of the groups tells of every generation there was.

Some seconds in `make test`, a minute each in `make faults`. The seed is printed."""

import os
import random
import time

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

import pylog
from tests.support.foreign_clients import CLIENTS as PLAIN
from tests.support.foreign_clients import ForeignRecord
from tests.support.group_log import group_values, owned_partitions
from tests.support.group_members import CLIENTS, Member, ProcessMember, Wanted, until, until_shared

CONFIG = {
    "group.initial.rebalance.delay.ms": 100,
    "group.min.session.timeout.ms": 100,
    "log.retention.ms": -1,
}
SECONDS = 60 if "PYLOG_FAULT_ROUNDS" in os.environ else 5
SEATS = 10
PARTITIONS = 20
REST_EVERY = 8  # rounds
DIE = 0.2  # of the members
SESSION_MS = 3_000
NOW_MS = 1_700_000_000_000
STYLES = {  # strategy, clients that know it, whether they are static members
    "eager": ("range", list(CLIENTS), False),
    "cooperative": ("cooperative-sticky", ["confluent-kafka", "kafka-python"], False),
    "static": ("range", list(CLIENTS), True),
}


class Seats:
    """Who is there, and what those have read who went."""

    def __init__(self, servers: str, style: str, chance: random.Random) -> None:
        self.read: set[tuple[int, int]] = set()
        self._strategy, self._clients, self._static = STYLES[style]
        self._servers = servers
        self._chance = chance
        self._members: list[Member | ProcessMember | None] = [None] * SEATS

    def here(self) -> list[Member | ProcessMember]:
        return [member for member in self._members if member is not None]

    def change(self) -> None:
        """Somebody comes, or goes, or dies."""
        seat = self._chance.randrange(SEATS)
        if self._members[seat] is not None:
            self._leave(seat)
        else:
            wanted = self.wanted(self._chance.choice(self._clients), f"seat-{seat}" if self._static else None)
            self._members[seat] = ProcessMember(wanted) if self._chance.random() < DIE else Member(wanted)

    def wanted(self, client: str, instance_id: str | None = None) -> Wanted:
        return Wanted(client, self._servers, "g", "t", self._strategy, instance_id, SESSION_MS)

    def close(self) -> None:
        for seat in range(SEATS):
            self._leave(seat)

    def _leave(self, seat: int) -> None:
        member, self._members[seat] = self._members[seat], None
        if isinstance(member, ProcessMember):
            member.kill()
        elif member is not None:
            member.close()
            self.read.update((partition, offset) for partition, offset, _ in member.read)


@pytest.mark.timeout(240 + 2 * SECONDS)
@pytest.mark.parametrize("style", STYLES)
def test_every_partition_has_one_owner_whoever_comes_and_goes(style: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with pylog.Broker(config=CONFIG) as broker:
        servers = broker.bootstrap_servers
        PLAIN["confluent-kafka"].create_topic(servers, "t", PARTITIONS)
        admin = AdminClient({"bootstrap.servers": servers})
        seats = Seats(servers, style, random.Random(seed))
        number = 0
        deadline = time.monotonic() + SECONDS
        try:
            while time.monotonic() < deadline:
                seats.change()
                records = [ForeignRecord(None, b"%d" % number, (), NOW_MS)]
                PLAIN["confluent-kafka"].produce(servers, "t", records, partition=number % PARTITIONS)
                found = admin.describe_consumer_groups(["g"])["g"].result(30)
                if found.state == ConsumerGroupState.STABLE:
                    owned = [place.partition for one in found.members for place in one.assignment.topic_partitions]
                    # None at all: a leader that has no metadata yet (kafka-python's warns of it) gives nobody anything,
                    # and joins again when it has. That all are shared in the end is what `until_shared` waits for.
                    if owned:
                        check_owners(owned, style)
                number += 1
                if number % REST_EVERY == 0 and seats.here():
                    until_shared(seats.here(), PARTITIONS)
            last = Member(seats.wanted("confluent-kafka"))
            seats.close()
            until_shared([last], PARTITIONS)
            written = {(one % PARTITIONS, one // PARTITIONS) for one in range(number)}
            until(lambda: seats.read | {place[:2] for place in last.read} >= written, "everything that was written")
            last.close()
        finally:
            seats.close()
        generations = 0
        for value in group_values(broker.data, "g"):
            owned = owned_partitions(value)
            if owned:
                check_owners(owned, style)
                generations += 1
        assert generations > 1


def check_owners(owned: list[int], style: str) -> None:
    """A cooperative group takes a partition away in one generation, and gives it to another member in the next."""
    assert len(set(owned)) == len(owned), f"two owners: {sorted(owned)}"
    if style != "cooperative":
        assert set(owned) == set(range(PARTITIONS))
