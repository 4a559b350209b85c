"""Ten seats in one group, of three client libraries, whose members come, go and die: whenever the group is stable, each
partition has one owner, and in the end everything was read."""

import random

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

import pylog
from tests.support.foreign_clients import CLIENTS as PLAIN
from tests.support.foreign_clients import ForeignRecord
from tests.support.group_members import CLIENTS, Member, ProcessMember, Wanted, until, until_shared

CONFIG = {"group.initial.rebalance.delay.ms": 100, "group.min.session.timeout.ms": 100, "log.retention.ms": -1}
SEATS = 10
PARTITIONS = 20
ROUNDS = 40
REST_EVERY = 8  # rounds
NOW_MS = 1_700_000_000_000


def test_every_partition_has_one_owner_whoever_comes_and_goes() -> None:
    chance = random.Random(5)
    with pylog.Broker(config=CONFIG) as broker:
        servers = broker.bootstrap_servers
        PLAIN["confluent-kafka"].create_topic(servers, "t", PARTITIONS)
        admin = AdminClient({"bootstrap.servers": servers})
        seats: list[Member | ProcessMember | None] = [None] * SEATS
        read: set[tuple[int, int]] = set()

        def gone(member: Member | ProcessMember) -> None:
            if isinstance(member, ProcessMember):
                member.kill()
            else:
                member.close()
                read.update((partition, offset) for partition, offset, _ in member.read)

        try:
            for number in range(ROUNDS):
                seat = chance.randrange(SEATS)
                member = seats[seat]
                if member is not None:
                    seats[seat] = None
                    gone(member)
                else:
                    wanted = Wanted(chance.choice(list(CLIENTS)), servers, "g", "t", session_ms=3_000)
                    seats[seat] = ProcessMember(wanted) if chance.random() < 0.2 else Member(wanted)
                records = [ForeignRecord(None, b"%d" % number, (), NOW_MS)]
                PLAIN["confluent-kafka"].produce(servers, "t", records, partition=number % PARTITIONS)
                found = admin.describe_consumer_groups(["g"])["g"].result(30)
                if found.state == ConsumerGroupState.STABLE:
                    owned = [place.partition for one in found.members for place in one.assignment.topic_partitions]
                    assert sorted(owned) == list(range(PARTITIONS))
                here = [member for member in seats if member is not None]
                if number % REST_EVERY == REST_EVERY - 1 and here:
                    until_shared(here, PARTITIONS)
            last = Member(Wanted("confluent-kafka", servers, "g", "t"))
            for member in here:
                gone(member)
            seats = [last]
            until_shared([last], PARTITIONS)
            written = {(number % PARTITIONS, number // PARTITIONS) for number in range(ROUNDS)}
            until(lambda: read | {place[:2] for place in last.read} >= written, "everything that was written")
        finally:
            for member in seats:
                if member is not None:
                    gone(member)
