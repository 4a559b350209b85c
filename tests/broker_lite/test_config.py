import re
import tomllib
from pathlib import Path

import pytest

from pylog.broker_lite import options_page
from pylog.broker_lite.config import BrokerConfig, ConfigError
from pylog.broker_lite.config_rows import BROKER_ROWS, ROW
from pylog.broker_lite.group_rows import GROUP_ROWS
from pylog.broker_lite.topic_rows import BROKER_NAME
from pylog.storage.log_config import LogConfig

CONF = Path(__file__).parents[2] / "conf" / "broker.toml"


@pytest.mark.parametrize("row", BROKER_ROWS + GROUP_ROWS, ids=lambda row: row.name)
def test_every_default_passes_its_own_validator(row):
    if row.default is not None:
        assert row.parse(row.default) == row.default
        assert row.check(row.default) is None


def test_the_defaults_together_are_those_of_a_log():
    assert BrokerConfig.parse({}).topic({}).log == LogConfig()


def test_the_ready_configuration_shows_every_option_with_its_default_and_doc():
    text = CONF.read_text()
    shown = tomllib.loads("\n".join(re.findall(r'^# (".*" = .*)$', text, re.MULTILINE)))
    not_set = re.findall(r'^# "(.*)" =$', text, re.MULTILINE)
    assert [row.name for row in BROKER_ROWS if row.default is None] == not_set
    assert {name: ROW[name].parse(value) for name, value in shown.items()} == {
        row.name: row.default for row in BROKER_ROWS if row.default is not None
    }
    assert all(f"# {row.doc}\n" in text for row in BROKER_ROWS)
    assert BrokerConfig.load(CONF, []) == BrokerConfig({})


@pytest.mark.parametrize(
    ("path", "written"),
    [
        pytest.param(options_page.TOML, options_page.toml, id="conf"),
        pytest.param(options_page.PAGE, options_page.page, id="docs"),
    ],
)
def test_the_pages_are_what_the_rows_say(path, written):
    assert (CONF.parents[1] / path).read_text() == written(), "python -m pylog.broker_lite.options_page writes it"


def test_settings_win_over_the_file(tmp_path):
    file = tmp_path / "broker.toml"
    file.write_text('"num.partitions" = 3\n"node.id" = 7\n')
    config = BrokerConfig.load(file, ["num.partitions=5"])
    assert (config["num.partitions"], config["node.id"], config["delete.topic.enable"]) == (5, 7, True)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        pytest.param("num.partition=3", "did you mean num.partitions", id="near miss"),
        pytest.param("zookeeper.connect=x", "Unknown config name: zookeeper.connect", id="unknown"),
        pytest.param("num.partitions=0", "must be between 1 and", id="out of range"),
        pytest.param("num.partitions=many", "must be a whole number", id="not a number"),
        pytest.param("auto.create.topics.enable=maybe", "must be true or false", id="not a boolean"),
        pytest.param("num.partitions", "must be key=value", id="no value"),
        pytest.param("log.retention.ms=0", "-1 .* or at least 1", id="a broker that keeps nothing"),
        pytest.param("log.retention.hours=-2", "-1 .* or at least 1", id="hours below none"),
        pytest.param("log.roll.ms=0", "must be at least 1", id="segments of no time"),
        pytest.param("log.roll.ms=1.5", "must be a whole number", id="half a millisecond"),
        pytest.param("log.cleanup.policy=delete,purge", "must be delete, compact or both", id="an unknown policy"),
        pytest.param("log.cleaner.min.cleanable.ratio=1.1", "must be between 0 and 1", id="more than all"),
        pytest.param("log.cleaner.min.cleanable.ratio=nan", "must be a number", id="not a ratio"),
        pytest.param("log.cleaner.dedupe.buffer.size=1048576", "must be at least 1048577", id="too small a buffer"),
        pytest.param("log.message.timestamp.type=createtime", "CreateTime or LogAppendTime", id="another case"),
        pytest.param("log.dirs=a,,b", "must name one directory or several", id="a directory without a name"),
        pytest.param("log.dirs=", "must name one directory or several", id="no directory"),
        pytest.param("log.segment.bytes=2147483648", "must be between -2147483648 and", id="more than 32 bits"),
        pytest.param("log.retention.bytes=9223372036854775808", "must be between", id="more than 64 bits"),
        pytest.param("num.partitions=1_0", "must be a whole number", id="Python's digits"),
        pytest.param("num.partitions=\u0663", "must be a whole number", id="digits of another script"),
        pytest.param("log.cleaner.min.cleanable.ratio=inf", "must be a number", id="without end"),
        pytest.param("compression.type=bz2", "must be uncompressed, zstd, .* or producer", id="an unknown codec"),
        pytest.param("compression.gzip.level=0", "must be -1 .* or between 1 and 9", id="no level of gzip"),
        pytest.param("compression.lz4.level=18", "must be between 1 and 17", id="no level of lz4"),
        pytest.param("min.insync.replicas=0", "must be at least 1", id="no replica in sync"),
        pytest.param("log.preallocate=true", "must be false: segments are not preallocated", id="preallocation"),
        pytest.param("log.local.retention.ms=9", "must be -2: tiered storage", id="a second tier"),
        pytest.param("default.replication.factor=2", "must be 1: there is one node", id="more replicas than nodes"),
        pytest.param("offsets.topic.replication.factor=3", "must be 1: there is one node", id="Kafka's own default"),
        pytest.param("listeners=127.0.0.1:9092", "must be NAME://host:port", id="a listener without a name"),
        pytest.param("listeners=A://h:1,a://h:2", "must have different names", id="listeners of one name"),
        pytest.param("listeners=A://h:70000", "must be NAME://host:port", id="no port"),
        pytest.param("advertised.listeners=A://::1:9", "must be NAME://host:port", id="IPv6 without brackets"),
        pytest.param("listener.security.protocol.map=A:SSL", "A cannot be SSL: TLS and SASL are not", id="TLS"),
        pytest.param("listener.security.protocol.map=A", "must be NAME:PLAINTEXT", id="no protocol"),
        pytest.param("max.connections=-1", "must be at least 0", id="fewer than no connections"),
        pytest.param("broker.id=-1", "node.id=-1: must be between 0", id="a node before the first"),
        pytest.param("queued.max.request.bytes=5", "at least socket.request.max.bytes", id="room for no request"),
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


def test_older_names_are_taken():
    config = BrokerConfig.parse({"broker.id": 5, "log.dir": "a,b"})
    assert (config["node.id"], config.directories) == (5, [Path("a"), Path("b")])
    assert BrokerConfig.parse({"log.dir": "a", "log.dirs": "b"}).directories == [Path("b")]
    with pytest.raises(ConfigError, match=r"must be the same as node\.id=4"):
        BrokerConfig.parse({"broker.id": 5, "node.id": 4})
    with pytest.raises(ConfigError, match=r"log\.dirs is not set"):
        _ = BrokerConfig.parse({}).directories


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        BrokerConfig.load(tmp_path / "nowhere.toml", [])


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        pytest.param({}, "log.retention.ms", 168 * 3_600_000, id="a week to keep"),
        pytest.param({"log.retention.hours": 2}, "log.retention.ms", 7_200_000, id="hours"),
        pytest.param(
            {"log.retention.hours": 2, "log.retention.minutes": 3}, "log.retention.ms", 180_000, id="minutes win"
        ),
        pytest.param(
            {"log.retention.hours": 2, "log.retention.minutes": 3, "log.retention.ms": 4},
            "log.retention.ms",
            4,
            id="milliseconds win",
        ),
        pytest.param({"log.retention.minutes": -1}, "log.retention.ms", -1, id="for ever, in minutes"),
        pytest.param({"log.retention.ms": -1, "log.retention.hours": 1}, "log.retention.ms", -1, id="for ever"),
        pytest.param({"log.roll.hours": 1}, "log.roll.ms", 3_600_000, id="hours to roll"),
        pytest.param({"log.roll.hours": 1, "log.roll.ms": 9}, "log.roll.ms", 9, id="milliseconds to roll"),
        pytest.param({"log.roll.jitter.hours": 1}, "log.roll.jitter.ms", 3_600_000, id="hours of jitter"),
        pytest.param({"log.roll.jitter.hours": 1, "log.roll.jitter.ms": 0}, "log.roll.jitter.ms", 0, id="no jitter"),
        pytest.param({}, "log.flush.interval.ms", (1 << 63) - 1, id="never flushed"),
        pytest.param({"log.flush.scheduler.interval.ms": 7}, "log.flush.interval.ms", 7, id="flushed when looked at"),
        pytest.param(
            {"log.flush.scheduler.interval.ms": 7, "log.flush.interval.ms": 90},
            "log.flush.interval.ms",
            90,
            id="flushed at its own time",
        ),
    ],
)
def test_the_finer_unit_wins(given, name, value):
    assert BrokerConfig.parse(given)[name] == value


@pytest.mark.parametrize(
    ("name", "value", "field", "kept"),
    [
        pytest.param("segment.bytes", "4096", "segment_bytes", 4096),
        pytest.param("segment.ms", "5", "segment_ms", 5),
        pytest.param("segment.jitter.ms", "3", "segment_jitter_ms", 3),
        pytest.param("index.interval.bytes", "0", "index_interval_bytes", 0),
        pytest.param("segment.index.bytes", "48", "index_bytes_max", 48),
        pytest.param("message.timestamp.type", "LogAppendTime", "log_append_time", True),
        pytest.param("cleanup.policy", "compact", "compact", True),
        pytest.param("cleanup.policy", "compact", "delete", False, id="compacted and nothing else"),
        pytest.param("cleanup.policy", " compact , delete ", "delete", True, id="both"),
        pytest.param("cleanup.policy", "", "delete", False, id="neither"),
        pytest.param("retention.ms", "0", "retention_ms", 0),
        pytest.param("retention.bytes", "9", "retention_bytes", 9),
        pytest.param("file.delete.delay.ms", "0", "file_delete_delay_ms", 0),
        pytest.param("delete.retention.ms", "8", "delete_retention_ms", 8),
        pytest.param("min.cleanable.dirty.ratio", "0.01", "dirty_ratio_min", 0.01),
        pytest.param("min.compaction.lag.ms", "2", "compaction_lag_ms_min", 2),
        pytest.param("max.compaction.lag.ms", "7", "compaction_lag_ms_max", 7),
        pytest.param("flush.messages", "1", "flush_messages", 1),
        pytest.param("flush.ms", "0", "flush_ms", 0),
    ],
)
def test_a_topic_overrides_what_it_may(name, value, field, kept):
    config = BrokerConfig.parse({})
    assert getattr(config.topic({name: value}).log, field) == kept
    assert getattr(config.topic({name: None}).log, field) == getattr(LogConfig(), field)
    broker = BrokerConfig.parse({BROKER_NAME[name]: 5 if name == "retention.ms" else value})
    assert getattr(broker.topic({}).log, field) == (5 if name == "retention.ms" else kept)


def test_every_override_of_a_topic_has_a_row_of_the_broker():
    assert set(BROKER_NAME.values()) <= set(ROW)


def test_the_largest_batch_of_a_topic():
    config = BrokerConfig.parse({"message.max.bytes": 500})
    assert config.topic({}).message_bytes_max == 500
    assert config.topic({"max.message.bytes": "900"}).message_bytes_max == 900


@pytest.mark.parametrize(
    ("broker", "topic", "words"),
    [
        pytest.param({}, {"retention": "1"}, r"did you mean retention\.ms", id="near miss"),
        pytest.param({}, {"preallocate": "true"}, "preallocate=true: must be false", id="not here"),
        pytest.param({}, {"segment.bytes": "9"}, r"segment\.bytes=9: must be between 61 and", id="out of range"),
        pytest.param({}, {"retention.ms": "-2"}, r"retention\.ms=-2: must be at least -1", id="below for ever"),
        pytest.param(
            {},
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            r"min\.compaction\.lag\.ms=2: must not be more than max\.compaction\.lag\.ms=1",
            id="compacted later than at the latest",
        ),
        pytest.param(
            {"log.cleaner.max.compaction.lag.ms": 5},
            {"min.compaction.lag.ms": "6"},
            r"min\.compaction\.lag\.ms=6: must not be more than log\.cleaner\.max\.compaction\.lag\.ms=5",
            id="later than the broker's latest",
        ),
    ],
)
def test_a_wrong_override_is_refused_with_the_name_of_the_option(broker, topic, words):
    with pytest.raises(ConfigError, match=words):
        BrokerConfig.parse(broker).topic(topic)


def test_options_of_the_broker_that_contradict_each_other_are_refused_at_once():
    with pytest.raises(ConfigError, match=r"log\.cleaner\.min\.compaction\.lag\.ms=2: must not be more than"):
        BrokerConfig.parse({"log.cleaner.min.compaction.lag.ms": 2, "log.cleaner.max.compaction.lag.ms": 1})


def test_the_data_directories_come_from_the_command_line_or_from_the_file(tmp_path):
    file = tmp_path / "broker.toml"
    file.write_text('"log.dirs" = "/a, /b,/a"\n')
    assert BrokerConfig.load(file, []).directories == [Path("/a"), Path("/b")]
    assert BrokerConfig.load(file, ["log.dirs=/c"]).directories == [Path("/c")]
    assert BrokerConfig.load(file, ["log.dirs=/c"], [Path("/d,e"), Path("/f")]).directories == [
        Path("/d,e"),
        Path("/f"),
    ]
    file.write_text('"log.dirs" = ["/a", "/b"]\n')
    assert BrokerConfig.load(file, []).directories == [Path("/a"), Path("/b")]
    with pytest.raises(ConfigError, match=r"log\.dirs is not set"):
        _ = BrokerConfig.parse({}).directories


@pytest.mark.parametrize(
    "setting",
    [
        "listeners=IN://127.0.0.1:0,OUT://[::1]:9092,ALL://:9093",
        "advertised.listeners=IN://host.example:9092",
        "listener.security.protocol.map=IN:PLAINTEXT,OUT:plaintext,SSL:SSL",
        "queued.max.request.bytes=104857600",
        "compression.zstd.level=-131072",
        "unclean.leader.election.enable=True",
        "connections.max.idle.ms=-1",
        "min.insync.replicas=3",
    ],
)
def test_what_kafka_takes_is_taken(setting):
    BrokerConfig.load(None, [setting])


@pytest.mark.parametrize(
    ("overrides", "codec", "level"),
    [
        pytest.param({}, "producer", None, id="as it comes"),
        pytest.param({"compression.type": "snappy"}, "snappy", None, id="no levels"),
        pytest.param({"compression.type": "gzip"}, "gzip", -1),
        pytest.param({"compression.type": "lz4"}, "lz4", 9),
        pytest.param({"compression.type": "zstd", "compression.zstd.level": "7"}, "zstd", 7),
    ],
)
def test_the_codec_of_a_topic_and_its_level(overrides, codec, level):
    config = BrokerConfig.parse({}).topic(overrides)
    assert (config.compression_type, config.compression_level) == (codec, level)


def test_bounds_for_the_records_of_a_topic():
    config = BrokerConfig.parse({"log.message.timestamp.before.max.ms": 7}).topic(
        {"message.timestamp.after.max.ms": "8", "min.insync.replicas": "2"}
    )
    assert (config.timestamp_before_ms_max, config.timestamp_after_ms_max, config.min_insync_replicas) == (7, 8, 2)


def test_changes_win_over_what_was_given_at_the_start_and_the_brokers_own_over_those_of_all():
    start = BrokerConfig.parse({"log.segment.bytes": 100, "log.roll.ms": 5})
    assert start.changed(cluster={"log.segment.bytes": "200"}, node={})["log.segment.bytes"] == 200
    both = start.changed(cluster={"log.segment.bytes": "200"}, node={"log.segment.bytes": "300"})
    assert (both["log.segment.bytes"], both["log.roll.ms"]) == (300, 5)
    assert both.topic({}).log.segment_bytes == 300
    assert both.changed(cluster={}, node={}) == start
