"""What a broker sets for its whole process when it starts."""

import asyncio
import gc
import sys

import pytest

from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.server import serve


@pytest.fixture(autouse=True)
def left_as_it_was():
    seconds = sys.getswitchinterval()
    yield
    sys.setswitchinterval(seconds)
    gc.unfreeze()


def test_a_thread_that_computes_makes_way_for_the_loop_soon(tmp_path):
    """At every system call of the loop's: a heartbeat must still be answered within a few milliseconds."""
    seconds = []

    async def main():
        stop = asyncio.Event()

        def ready(addresses):
            seconds.append(sys.getswitchinterval())
            stop.set()

        await serve(BrokerConfig.load(None, ["listeners=PLAINTEXT://127.0.0.1:0"], [tmp_path]), ready, stop)

    asyncio.run(main())
    assert seconds[0] <= 0.0005
