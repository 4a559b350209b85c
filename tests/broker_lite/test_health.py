"""Who is told that the broker is ready, and when."""

import asyncio
import json
import urllib.error
import urllib.request

import pytest

from pylog.broker_lite.broker import Broker
from pylog.broker_lite.config import BrokerConfig, ConfigError
from pylog.broker_lite.connections import Connections
from pylog.broker_lite.health import NAMED_MAX, Health, Phase
from pylog.broker_lite.watch import Watch, parse_address, watched
from tests.support.brokers import running


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def pages(url: str) -> list[int]:
    """The statuses of alive, ready, and the report; metrics are always there."""
    status, text = await asyncio.to_thread(get, f"{url}/metrics")
    assert status == 200
    assert text.endswith("\n")
    found = [await asyncio.to_thread(get, url + path) for path in ("/health/live", "/health/ready", "/health")]
    report = json.loads(found[2][1])
    assert report["alive"] is True
    assert report["ready"] == (found[1][0] == 200)
    return [status for status, _ in found]


def test_it_is_alive_while_it_starts_ready_while_it_runs_and_alive_while_it_stops(tmp_path):
    async def main():
        urls: list[str] = []
        seen = []
        async with watched(("127.0.0.1", 0), urls.append) as watch:
            (url,) = urls
            seen.append(await pages(url))
            broker = Broker([tmp_path], BrokerConfig.parse({}))
            broker.coordinator.loaded()
            watch.loaded(broker)
            seen.append(await pages(url))  # nobody listens yet
            watch.running(Connections(broker.config))
            seen.append(await pages(url))
            watch.stopping()
            seen.append(await pages(url))
            await broker.close()
            seen.append(await pages(url))
        with pytest.raises(urllib.error.URLError):
            get(url)
        return seen

    assert asyncio.run(main()) == [[200, 503, 503], [200, 503, 503], [200, 200, 200], [200, 503, 503], [200, 503, 503]]


def on(tmp_path, work):
    async def main(broker):
        health = Health()
        health.broker, health.phase = broker, Phase.RUNNING
        return await work(broker, health)

    return running([tmp_path], main)


def test_one_partition_that_is_offline_is_named_and_the_broker_is_ready(tmp_path):
    async def work(broker, health):
        await broker.create_topic("t", 2)
        broker.partition("t", 1).log.condition.fail(OSError("a bad disk"))
        return health.report()

    assert on(tmp_path, work) == {
        "alive": True,
        "ready": True,
        "phase": "running",
        "offline_partition_count": 1,
        "offline_partitions": [{"topic": "t", "partition": 1, "reason": "a bad disk"}],
        "offline_directories": [],
    }


def test_with_every_partition_offline_it_is_not_ready(tmp_path):
    async def work(broker, health):
        await broker.create_topic("t", NAMED_MAX + 1)
        for partition in broker.partitions.values():
            partition.log.condition.fail(OSError("a bad disk"))
        return health.report()

    report = on(tmp_path, work)
    assert (report["ready"], report["reason"]) == (False, "every partition is offline")
    assert report["offline_partition_count"] == NAMED_MAX + 1
    assert len(report["offline_partitions"]) == NAMED_MAX


def test_without_its_metadata_log_it_is_not_ready(tmp_path):
    async def work(broker, health):
        broker.catalogue.log.condition.fail(OSError("a bad disk"))
        return health.not_ready_because()

    assert on(tmp_path, work) == "the metadata log is offline: a bad disk"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        pytest.param("127.0.0.1:9100", ("127.0.0.1", 9100), id="IPv4"),
        pytest.param("[::1]:0", ("::1", 0), id="IPv6"),
        pytest.param("0.0.0.0:9100", ("0.0.0.0", 9100), id="every interface: nobody has to come back to it"),
        pytest.param("9100", None, id="no host"),
        pytest.param(":9100", None, id="an empty host"),
        pytest.param("localhost:", None, id="no port"),
        pytest.param("localhost:70000", None, id="no such port"),
    ],
)
def test_where_the_pages_are(text, address):
    if address is not None:
        assert parse_address(text) == address
    else:
        with pytest.raises(ConfigError, match="must be host:port"):
            parse_address(text)


def test_where_nobody_asked_nothing_is_measured(tmp_path):
    async def main(broker):
        watch = Watch(wanted=False)
        watch.loaded(broker)

        def answer(frame, host):
            return None

        assert watch.measured(answer) is answer
        assert broker.requests is None

    running([tmp_path], main)
