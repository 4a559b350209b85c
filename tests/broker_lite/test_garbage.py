"""What the collector is not to look through again: partitions, once there are many of them."""

import asyncio
import gc

import pytest

from pylog.broker_lite import garbage
from pylog.broker_lite.garbage import FREEZE_EVERY, Garbage


@pytest.mark.parametrize(
    ("counts", "frozen"),
    [
        pytest.param([10 + FREEZE_EVERY - 1], [], id="one too few"),
        pytest.param([10 + FREEZE_EVERY], [1], id="enough"),
        pytest.param([10 + FREEZE_EVERY] * 2, [1], id="once"),
        pytest.param([10 + FREEZE_EVERY, 0, 10 + FREEZE_EVERY], [1], id="not for those that were there before"),
        pytest.param([10 + FREEZE_EVERY, 10 + 2 * FREEZE_EVERY], [1, 2], id="for as many more again"),
    ],
)
def test_partitions_are_taken_out_of_sight_when_many_have_come(monkeypatch, counts, frozen):
    looks = []
    freezes = []
    monkeypatch.setattr(garbage.gc, "freeze", lambda: freezes.append(len(looks)))
    now = [10]
    one = Garbage(lambda: now[0])
    one._freeze(10)
    freezes.clear()
    for count in counts:
        looks.append(count)
        now[0] = count
        one.look()
    assert freezes == frozen


def test_it_goes_on_looking_also_when_a_look_has_failed(monkeypatch):
    monkeypatch.setattr(garbage, "_LOOK_SECONDS", 0)
    freezes = []
    monkeypatch.setattr(garbage.gc, "freeze", lambda: freezes.append(True))
    counts = iter([0, KeyError("a bug"), 0, FREEZE_EVERY])

    def count():
        now = next(counts, FREEZE_EVERY)
        if isinstance(now, Exception):
            raise now
        return now

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        one = Garbage(count)
        one.start()
        async with asyncio.timeout(30):
            while len(freezes) < 2:
                await asyncio.sleep(0)
        one.close()

    asyncio.run(main())
    assert len(freezes) == 2


def test_garbage_of_later_is_still_found():
    class Node:
        pass

    seen = []
    try:
        one = Garbage(lambda: FREEZE_EVERY)
        one.look()
        node = Node()
        node.itself = node
        gc.callbacks.append(lambda phase, info: seen.append(info["collected"]) if phase == "stop" else None)
        del node
        gc.collect()
    finally:
        gc.callbacks.pop()
        gc.unfreeze()
    assert seen[-1] > 0
