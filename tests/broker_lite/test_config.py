import re
import tomllib
from pathlib import Path

import pytest

from pylog.broker_lite.config import BROKER_ROWS, TOPIC_ROWS, BrokerConfig, ConfigError

CONF = Path(__file__).parents[2] / "conf" / "broker.toml"


@pytest.mark.parametrize("row", BROKER_ROWS, ids=lambda row: row.name)
def test_every_default_passes_its_own_validator(row):
    assert row.parse(row.default) == row.default
    assert row.check(row.default) is None


def test_the_ready_configuration_shows_every_option_with_its_default_and_doc():
    commented = re.findall(r'^# (".*)$', CONF.read_text(), re.MULTILINE)
    shown = tomllib.loads("\n".join(commented))
    assert shown == {row.name: row.default for row in BROKER_ROWS}
    assert all(f"# {row.doc}\n" in CONF.read_text() for row in BROKER_ROWS)
    assert BrokerConfig.load(CONF, []) == BrokerConfig({})


def test_settings_win_over_the_file(tmp_path):
    file = tmp_path / "broker.toml"
    file.write_text('"num.partitions" = 3\n"node.id" = 7\n')
    config = BrokerConfig.load(file, ["num.partitions=5"])
    assert (config["num.partitions"], config["node.id"], config["delete.topic.enable"]) == (5, 7, True)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        pytest.param("num.partition=3", "did you mean num.partitions", id="near miss"),
        pytest.param("zookeeper.connect=x", "not an option", id="unknown"),
        pytest.param("num.partitions=0", "must be between 1 and", id="out of range"),
        pytest.param("num.partitions=many", "must be a whole number", id="not a number"),
        pytest.param("auto.create.topics.enable=maybe", "must be true or false", id="not a boolean"),
        pytest.param("num.partitions", "must be key=value", id="no value"),
    ],
)
def test_a_wrong_setting_is_refused_with_words_that_help(setting, words):
    with pytest.raises(ConfigError, match=words):
        BrokerConfig.load(None, [setting])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("num.partitions = 3", "in quotes", id="dots without quotes"),
        pytest.param("num partitions", "broker.toml", id="not TOML"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, text, words):
    file = tmp_path / "broker.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        BrokerConfig.load(file, [])


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        BrokerConfig.load(tmp_path / "nowhere.toml", [])


def test_a_topic_overrides_what_it_may():
    config = BrokerConfig.parse({"message.max.bytes": 500})
    assert config.topic({}).message_bytes_max == 500
    assert config.topic({"max.message.bytes": "900"}).message_bytes_max == 900
    assert config.topic({"segment.bytes": "4096"}).log.segment_bytes == 4096
    with pytest.raises(ConfigError, match=r"retention\.ms is not an option"):
        config.topic({"retention.ms": "1"})
    assert set(TOPIC_ROWS.values()) <= {row.name for row in BROKER_ROWS}
