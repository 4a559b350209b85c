"""The pytest plugin as its users have it: found by pytest itself, its brokers gone when the tests are."""

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

PARTITIONS = """
import confluent_kafka.admin

def partitions(broker, topic):
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return len(admin.list_topics(topic, timeout=30).topics[topic].partitions)
"""


def run(pytester: pytest.Pytester, test: str, *arguments: str, **outcomes: int) -> pytest.RunResult:
    pytester.makepyfile(PARTITIONS + test)
    result = pytester.runpytest_subprocess("-W", "error", *arguments)
    result.assert_outcomes(**outcomes)
    return result


def test_one_broker_serves_the_session_and_each_fresh_one_a_test(pytester):
    test = """
seen = []

def test_first(pylog_broker, fresh_pylog_broker):
    seen.append((pylog_broker.pid, fresh_pylog_broker.pid, fresh_pylog_broker.data))
    fresh_pylog_broker.kill()

def test_second(pylog_broker, fresh_pylog_broker):
    ((shared, fresh, data),) = seen
    assert pylog_broker.pid == shared
    assert fresh_pylog_broker.pid not in (shared, fresh)
    assert not data.exists()

def test_topics_have_names_of_their_own(pylog_broker):
    topics = {pylog_broker.create_topic(partitions=count) for count in (1, 3)}
    assert sorted(partitions(pylog_broker, topic) for topic in topics) == [1, 3]
    assert pylog_broker.create_topic("named") == "named"
"""
    run(pytester, test, passed=3)


def test_options_come_from_the_configuration_and_the_marker(pytester):
    pytester.makeini("[pytest]\npylog_broker_config =\n    num.partitions = 3\n    log.retention.ms=-1\n")
    test = """
import pytest

def test_of_all(pylog_broker):
    assert partitions(pylog_broker, pylog_broker.create_topic()) == 3

@pytest.mark.pylog_broker_config({"num.partitions": 5})
def test_of_one(fresh_pylog_broker):
    assert partitions(fresh_pylog_broker, fresh_pylog_broker.create_topic()) == 5

@pytest.mark.pylog_broker_config({"auto.create.topics.enable": False})
def test_of_both(fresh_pylog_broker):
    assert partitions(fresh_pylog_broker, fresh_pylog_broker.create_topic()) == 3
"""
    run(pytester, test, "--strict-markers", passed=3)


def test_options_come_from_a_fixture_of_the_users(pytester):
    pytester.makeconftest(
        "import pytest\n@pytest.fixture(scope='session')\ndef pylog_broker_config(): return {'num.partitions': 2}\n"
    )
    test = """
def test_of_all(pylog_broker):
    assert partitions(pylog_broker, pylog_broker.create_topic()) == 2
"""
    run(pytester, test, passed=1)


@pytest.mark.parametrize(
    ("test", "ini", "words"),
    [
        pytest.param("def test(pylog_broker): pass", "num.partitions", "is not name=value", id="no value"),
        pytest.param("def test(pylog_broker): pass", "num.partition=1", "did you mean num.partitions", id="no option"),
        pytest.param(
            "import pytest\n@pytest.mark.pylog_broker_config(a=1)\ndef test(fresh_pylog_broker): pass",
            "num.partitions=1",
            "takes one dictionary",
            id="a marker of another kind",
        ),
    ],
)
def test_wrong_options_are_told(pytester, test, ini, words):
    pytester.makeini(f"[pytest]\npylog_broker_config = {ini}\n")
    result = run(pytester, test, errors=1)
    assert words in result.stdout.str()


def test_it_costs_nothing_until_a_test_asks_for_a_broker():
    """Every run of pytest in an environment with pylog loads the plugin."""
    program = (
        "import sys, pytest; before = set(sys.modules); import pylog.pytest_plugin;"
        "print(sorted(name for name in set(sys.modules) - before))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "['pylog', 'pylog.pytest_plugin']"
