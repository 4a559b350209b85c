"""Ten consumers that come, go, stall, die and come back, for ten minutes of a clock that costs nothing."""

import pytest

from tests.support.group_simulation import REBALANCE_MS, Simulation, kind_of

SEEDS = range(24)
TROUBLE_MS = 10 * 60_000


@pytest.mark.parametrize("seed", SEEDS)
def test_every_partition_has_one_owner_and_every_request_an_answer(seed: int) -> None:
    simulation = Simulation(seed, kind_of(seed))
    simulation.trouble(TROUBLE_MS)
    simulation.calm()
    simulation.check_settled()
    assert simulation.counts["assigned"] > 50, simulation.counts
    assert simulation.counts["committed"] > 20, simulation.counts


def test_when_all_are_gone_the_group_is_empty_and_holds_nothing() -> None:
    simulation = Simulation(1, kind_of(0))
    simulation.trouble(TROUBLE_MS)
    simulation.calm()
    for consumer in simulation.consumers:
        consumer.die()
    simulation.run(10 * REBALANCE_MS)
    group = simulation.coordinator.groups.get("g")
    assert group is not None
    assert group.state == "Empty"
    assert len(simulation.coordinator.groups._timers) == 0
    assert simulation.coordinator.groups.next_deadline_ms is None
