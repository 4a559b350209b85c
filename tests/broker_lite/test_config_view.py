import pytest

from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.config_rows import ROW
from pylog.broker_lite.config_view import Source, broker_options, group_options, options_of_all_brokers, topic_options
from pylog.broker_lite.topic_rows import BROKER_NAME

TOPIC, NODE, ALL, STATIC, DEFAULT = Source.TOPIC, Source.BROKER, Source.ALL_BROKERS, Source.STATIC, Source.DEFAULT
WEEK = str(7 * 24 * 3_600_000)


def config_of(static=None, cluster=None, node=None):
    return BrokerConfig.parse(static or {}).changed(cluster=cluster or {}, node=node or {})


@pytest.mark.parametrize(
    ("overrides", "given", "name", "value", "synonyms"),
    [
        pytest.param(
            {}, {}, "segment.bytes", "1073741824", [("log.segment.bytes", "1073741824", DEFAULT)], id="default"
        ),
        pytest.param(
            {"segment.bytes": "99"},
            {"static": {"log.segment.bytes": 98}, "cluster": {"log.segment.bytes": "97"}},
            "segment.bytes",
            "99",
            [
                ("segment.bytes", "99", TOPIC),
                ("log.segment.bytes", "97", ALL),
                ("log.segment.bytes", "98", STATIC),
                ("log.segment.bytes", "1073741824", DEFAULT),
            ],
            id="all of them",
        ),
        pytest.param(
            {},
            {"cluster": {"log.segment.bytes": "97"}, "node": {"log.segment.bytes": "96"}},
            "segment.bytes",
            "96",
            [
                ("log.segment.bytes", "96", NODE),
                ("log.segment.bytes", "97", ALL),
                ("log.segment.bytes", "1073741824", DEFAULT),
            ],
            id="this broker's wins",
        ),
        pytest.param({}, {}, "retention.ms", WEEK, [], id="another option stands in"),
        pytest.param({}, {"static": {"log.retention.hours": 2}}, "retention.ms", "7200000", [], id="and was set"),
        pytest.param(
            {},
            {"cluster": {"log.retention.ms": "5"}},
            "retention.ms",
            "5",
            [("log.retention.ms", "5", ALL), ("log.retention.hours", "168", DEFAULT)],
            id="under its own name",
        ),
        pytest.param(
            {"cleanup.policy": ""},
            {},
            "cleanup.policy",
            "",
            [("cleanup.policy", "", TOPIC), ("log.cleanup.policy", "delete", DEFAULT)],
            id="an empty list",
        ),
        pytest.param(
            {"unclean.leader.election.enable": "TRUE"},
            {},
            "unclean.leader.election.enable",
            "true",
            [
                ("unclean.leader.election.enable", "true", TOPIC),
                ("unclean.leader.election.enable", "false", DEFAULT),
            ],
            id="as it is meant, not as it was written",
        ),
        pytest.param({}, {}, "remote.storage.enable", "false", [], id="topics' own"),
    ],
)
def test_a_topics_option_says_where_its_value_comes_from(overrides, given, name, value, synonyms):
    (option,) = (one for one in topic_options(config_of(**given), overrides) if one.row.name == name)
    assert (option.value, option.synonyms) == (value, synonyms)
    assert option.source == (synonyms[0][2] if synonyms else DEFAULT)
    assert not option.read_only


def test_a_brokers_options_are_all_there_and_those_that_may_change_say_so():
    options = {option.row.name: option for option in broker_options(config_of(node={"log.roll.ms": "9"}))}
    assert options.keys() == ROW.keys()
    assert {name for name, option in options.items() if not option.read_only} == {
        name for name, row in ROW.items() if row.dynamic
    }
    assert (options["log.roll.ms"].value, options["log.roll.ms"].source) == ("9", NODE)
    assert (options["log.retention.ms"].value, options["log.retention.ms"].synonyms) == (None, [])


def test_of_all_brokers_only_changes_are_told():
    (option,) = options_of_all_brokers(config_of(cluster={"log.roll.ms": "9"}, node={"log.roll.ms": "8"}))
    assert (option.row.name, option.value, option.synonyms) == ("log.roll.ms", "9", [("log.roll.ms", "9", ALL)])


def test_what_topics_override_brokers_may_change():
    assert all(ROW[name].dynamic for name in BROKER_NAME.values())


def test_an_option_of_a_group_falls_back_to_kafkas_default_of_brokers():
    found = {option.row.name: option for option in group_options({"consumer.session.timeout.ms": "50000"})}
    default = ("group.consumer.session.timeout.ms", "45000", DEFAULT)
    set_here = found["consumer.session.timeout.ms"]
    assert set_here.synonyms == [("consumer.session.timeout.ms", "50000", Source.GROUP), default]
    assert (set_here.value, set_here.source) == ("50000", Source.GROUP)
    assert found["share.isolation.level"].synonyms == [("share.isolation.level", "read_uncommitted", DEFAULT)]
