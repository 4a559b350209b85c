"""Fixtures for tests that need a broker: pytest finds them by itself where pylog is installed.

    def test_orders(pylog_broker):
        topic = pylog_broker.create_topic(partitions=4)
        producer = Producer({"bootstrap.servers": pylog_broker.bootstrap_servers})

`pylog_broker` is one broker for the whole session, whose tests keep apart by topics of their own;
`fresh_pylog_broker` is one for a single test, which may kill it, fill it or start it anew. Each is a process on a
temporary directory and a free port (see `pylog.Broker`) that leaves nothing behind. A broker starts when a test
first asks for it; until then nothing of it is loaded.

Options of the broker, by Kafka's names: for all brokers in `pylog_broker_config` of pytest's configuration (a line
each, `num.partitions=4`), or by a fixture of that name in conftest.py, which returns a dictionary; for one test's own
broker by its marker, `@pytest.mark.pylog_broker_config({"num.partitions": 4})`, over these.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pylog.embedded import Broker

_CONFIG = "pylog_broker_config"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_CONFIG, "options of pylog's brokers in tests, a line each: name=value", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{_CONFIG}(options): options of this test's own pylog broker")


@pytest.fixture(scope="session")
def pylog_broker_config(pytestconfig: pytest.Config) -> dict[str, Any]:
    """Options of the brokers of all tests; a fixture of this name in conftest.py takes its place."""
    options = {}
    for line in pytestconfig.getini(_CONFIG):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{_CONFIG}: {line!r} is not name=value")
        options[name.strip()] = value.strip()
    return options


@pytest.fixture(scope="session")
def pylog_broker(pylog_broker_config: dict[str, Any]) -> "Iterator[Broker]":
    """One broker for the session. Take topics of your own: `pylog_broker.create_topic()` gives a name nobody has."""
    from pylog.embedded import Broker

    with Broker(config=pylog_broker_config) as broker:
        yield broker


@pytest.fixture
def fresh_pylog_broker(request: pytest.FixtureRequest, pylog_broker_config: dict[str, Any]) -> "Iterator[Broker]":
    """A broker for this test alone, with the options of its marker `pylog_broker_config`."""
    from pylog.embedded import Broker

    marker = request.node.get_closest_marker(_CONFIG)
    if marker is not None and (len(marker.args) != 1 or marker.kwargs):
        raise pytest.UsageError(f"{_CONFIG}: the marker takes one dictionary of options")
    own = marker.args[0] if marker is not None else {}
    with Broker(config={**pylog_broker_config, **own}) as broker:
        yield broker
