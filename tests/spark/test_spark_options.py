"""The options table, without a Spark: what is taken, by whom, and what is said about the rest."""

import pickle
import re

import pytest

import pylog
from pylog.connector.client.cluster import EARLIEST, LATEST
from pylog.connector.client.config import OPTIONS as CLIENT_OPTIONS
from pylog.connector.client.config import Role
from pylog.connector.client.errors import ConfigError
from pylog.connector.spark.offsets import AtGroup, AtTime
from pylog.connector.spark.option_rows import OPTIONS, Taker
from pylog.connector.spark.options import (
    CONTACT_TIMEOUT_MS,
    POLL_TIMEOUT_MS,
    any_source_options,
    sink_options,
    source_options,
)
from pylog.connector.spark.subscription import Assignment, Pattern, Topics

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
READ = SERVERS | {"subscribe": "t"}


def test_a_batch_starts_at_earliest_and_ends_at_latest() -> None:
    options = source_options(READ, Taker.BATCH)
    assert (options.starting.wanted, options.ending.wanted) == (EARLIEST, LATEST)
    assert options.subscription == Topics(("t",))
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_a_stream_starts_at_latest() -> None:
    options = source_options(READ, Taker.STREAM)
    assert options.starting.wanted == LATEST
    assert options.offsets_per_trigger_max is None


def test_names_are_case_insensitive_and_topics_are_trimmed() -> None:
    given = {"KAFKA.bootstrap.SERVERS": "h:1", "SUBSCRIBE": " a , b,a,, ", "StartingOffsets": " Earliest "}
    options = source_options(given, Taker.STREAM)
    assert options.subscription == Topics(("a", "b"))
    assert options.starting.wanted == EARLIEST
    assert options.client.bootstrap_servers[0].host == "h"


def test_offsets_by_partition_keep_their_negative_marks() -> None:
    options = source_options(READ | {"startingOffsets": '{"t":{"0":23,"1":-1,"2":-2}}'}, Taker.STREAM)
    assert options.starting.wanted == {("t", 0): 23, ("t", 1): LATEST, ("t", 2): EARLIEST}


def test_partitions_and_patterns_choose_what_is_read() -> None:
    assigned = source_options(SERVERS | {"assign": '{"b":[1,0],"a":[2,2]}'}, Taker.BATCH)
    assert assigned.subscription == Assignment((("a", 2), ("b", 0), ("b", 1)))
    assert source_options(SERVERS | {"subscribepattern": " t-.* "}, Taker.STREAM).subscription == Pattern("t-.*")


@pytest.mark.parametrize(
    ("given", "starting", "ending"),
    [
        pytest.param(
            {"startingTimestamp": "5", "startingOffsetsByTimestamp": '{"t":{"0":6}}', "startingOffsets": "latest"},
            ("startingTimestamp", AtTime(5, none_is_latest=False)),
            ("endingOffsets", LATEST),
            id="one time before times, times before offsets",
        ),
        pytest.param(
            {
                "startingOffsetsByTimestamp": '{"t":{"0":6}}',
                "startingOffsets": "latest",
                "startingOffsetsByTimestampStrategy": "LATEST",
                "endingOffsetsByTimestamp": '{"t":{"0":7}}',
                "endingOffsets": "earliest",
            },
            ("startingOffsetsByTimestamp", AtTime({("t", 0): 6}, none_is_latest=True)),
            ("endingOffsetsByTimestamp", AtTime({("t", 0): 7}, none_is_latest=True)),
            id="times before offsets",
        ),
        pytest.param(
            {"endingTimestamp": "9", "endingOffsetsByTimestamp": '{"t":{"0":7}}'},
            ("startingOffsets", EARLIEST),
            ("endingTimestamp", AtTime(9, none_is_latest=True)),
            id="one time to end at",
        ),
    ],
)
def test_the_option_that_comes_first_says_where(given: dict[str, str], starting: object, ending: object) -> None:
    options = source_options(READ | given, Taker.BATCH)
    assert (options.starting, options.ending) == (starting, ending)


@pytest.mark.parametrize(("without", "wanted"), [("earliest", EARLIEST), ("Latest", LATEST), ("error", None)])
def test_a_stream_may_start_where_a_group_stands(without: str, wanted: int | None) -> None:
    given = READ | {"startingOffsets": "GROUP", "kafka.group.id": "g"}
    options = source_options(given | {"startingOffsetsWithoutCommit": without}, Taker.STREAM)
    assert options.starting.wanted == AtGroup(wanted)
    assert source_options(given, Taker.STREAM).starting.wanted == AtGroup(None)


@pytest.mark.parametrize(
    ("text", "wanted_ms"),
    [
        pytest.param("15", 15, id="milliseconds if nothing is said"),
        pytest.param("15ms", 15, id="ms"),
        pytest.param("1500us", 1, id="us, rounded down"),
        pytest.param(" 2S ", 2_000, id="s, in capitals"),
        pytest.param("3m", 180_000, id="m"),
        pytest.param("3min", 180_000, id="min"),
        pytest.param("1h", 3_600_000, id="h"),
        pytest.param("2d", 172_800_000, id="d"),
    ],
)
def test_a_delay_is_a_duration_as_spark_writes_them(text: str, wanted_ms: int) -> None:
    assert source_options(READ | {"maxTriggerDelay": text}, Taker.STREAM).trigger_delay_ms_max == wanted_ms


def test_defaults_are_those_of_sparks_connector() -> None:
    options = source_options(READ, Taker.STREAM)
    assert options.trigger_delay_ms_max == 15 * 60_000
    assert (options.look_up_attempts, options.look_up_pause_ms) == (3, 1000)
    assert options.poll_timeout_ms == POLL_TIMEOUT_MS == 120_000
    assert (options.partitions_min, options.records_per_partition_max) == (None, None)
    assert options.group_id_prefix == "spark-kafka-source"


def test_a_task_waits_as_long_as_is_said_or_as_any_call_may_take() -> None:
    options = source_options(READ | {"kafka.default.api.timeout.ms": "9"}, Taker.BATCH)
    assert options.poll_timeout_ms == 9
    given = {"kafka.default.api.timeout.ms": "9", "kafkaConsumer.pollTimeoutMs": "12"}
    assert source_options(READ | given, Taker.BATCH).poll_timeout_ms == 12


def test_clients_options_reach_the_client_and_a_source_fetches_more_at_once_than_kafka_does() -> None:
    options = source_options(READ | {"kafka.group.id": "g", "kafka.fetch.max.wait.ms": "7"}, Taker.STREAM)
    assert (options.client.group_id, options.client.fetch_max_wait_ms) == ("g", 7)
    assert options.client.max_partition_fetch_bytes > 1 << 20
    options = source_options(READ | {"kafka.max.partition.fetch.bytes": "1000"}, Taker.STREAM)
    assert options.client.max_partition_fetch_bytes == 1000


def test_a_sink_takes_a_topic_and_a_producers_options() -> None:
    options = sink_options(SERVERS | {"topic": " t ", "kafka.acks": "1", "kafka.compression.type": "zstd"})
    assert (options.topic, options.client.acks, options.client.compression_type) == ("t", 1, "zstd")


def test_patience_with_a_cluster_that_is_not_there_is_short_unless_it_is_set() -> None:
    assert sink_options(SERVERS).contact_timeout_ms == CONTACT_TIMEOUT_MS
    assert sink_options(SERVERS | {"kafka.default.api.timeout.ms": "9"}).contact_timeout_ms == 9


def test_sparks_own_options_pass() -> None:
    source_options(READ | {"path": "x"}, Taker.BATCH)
    sink_options(SERVERS | {"checkpointlocation": "x", "queryname": "q", "path": "x"})


def test_parsed_options_travel_between_processes() -> None:
    for options in (source_options(READ, Taker.BATCH), sink_options(SERVERS)):
        assert pickle.loads(pickle.dumps(options)) == options
        assert len(pickle.dumps(options)) < 2000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({}, "kafka.bootstrap.servers is required", id="no servers"),
        pytest.param({"subscribe": ""}, "subscribe must name at least one topic", id="no topic"),
        pytest.param({"subscribe": " , "}, "subscribe must name at least one topic", id="only commas"),
        pytest.param({"subscrbe": "t"}, "subscrbe is not an option: did you mean subscribe", id="a slip"),
        pytest.param({"bootstrap.servers": "h:1"}, "did you mean kafka.bootstrap.servers", id="a prefix forgotten"),
        pytest.param({"xyzzy": "1"}, "xyzzy is not an option$", id="nothing like it"),
        pytest.param({"topic": "t"}, "topic is an option of a write, not of spark.read", id="the sink's option"),
        pytest.param({"startingOffsets": "latest"}, "startingOffsets cannot be latest", id="a batch from latest"),
        pytest.param({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets cannot be latest", id="a batch from -1"),
        pytest.param({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest", id="a batch to earliest"),
        pytest.param({"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets cannot be earliest", id="a batch to -2"),
        pytest.param({"startingOffsets": "first"}, "must be earliest, latest, or JSON", id="no such place"),
        pytest.param({"startingOffsets": "[1]"}, "must be JSON of topics", id="a list"),
        pytest.param({"startingOffsets": "{}"}, "must be JSON of topics", id="nothing in it"),
        pytest.param({"startingOffsets": '{"t":5}'}, "must be JSON of topics", id="no partitions"),
        pytest.param({"startingOffsets": '{"t":{"x":5}}'}, "must have numbers for partitions", id="a named partition"),
        pytest.param({"startingOffsets": '{"t":{"0":"5"}}'}, "must have offsets from 0", id="an offset in quotes"),
        pytest.param({"startingOffsets": '{"t":{"0":-3}}'}, "must have offsets from 0", id="below -2"),
        pytest.param({"startingOffsets": '{"t":{"0":true}}'}, "must have offsets from 0", id="a boolean"),
        pytest.param({"includeHeaders": "yes"}, "includeHeaders must be true or false", id="yes is not true"),
        pytest.param({"failOnDataLoss": ""}, "failOnDataLoss must be true or false", id="empty is neither"),
        pytest.param({"maxOffsetsPerTrigger": "9"}, "an option of spark.readStream", id="a limit for a batch"),
        pytest.param({"kafka.acks": "all"}, "kafka.acks is an option of a producer", id="a producer's option"),
        pytest.param({"kafka.fetch.min.bytes": "x"}, "kafka.fetch.min.bytes must be a whole", id="not a number"),
        pytest.param({"kafka.sasl.mechanism": "x"}, "kafka.sasl.mechanism must be one of", id="no such mechanism"),
        pytest.param({"kafka.auto.offset.reset": "latest"}, "use startingOffsets", id="Spark settles the offsets"),
        pytest.param({"kafka.enable.auto.commit": "true"}, "when a micro-batch is done", id="Spark settles commits"),
        pytest.param({"kafka.key.deserializer": "x"}, "keys are bytes", id="keys are bytes"),
        pytest.param({"kafka.value.deserializer": "x"}, "values are bytes", id="values are bytes"),
        pytest.param({"kafka.interceptor.classes": "x"}, "classes of the JVM", id="no Java here"),
        pytest.param({"includeTimestamp": "true"}, "includetimestamp is not an option: did you mean", id="another's"),
        pytest.param({"assign": '{"t":[0]}'}, "exactly one of .* given: subscribe, assign", id="topics and partitions"),
        pytest.param({"subscribePattern": "t.*"}, "given: subscribe, subscribePattern", id="topics and a pattern"),
        pytest.param({"subscribePattern": " "}, "subscribePattern must be a regular expression", id="no pattern"),
        pytest.param(
            {"subscribePattern": "t("}, "subscribePattern must be a regular .* unterminated", id="bad pattern"
        ),
        pytest.param({"subscribePattern": "[a-z&&[^b]]"}, "Possible", id="Java's intersection of sets"),
        pytest.param({"subscribePattern": r"\p{Alpha}"}, "bad escape", id="Java's named classes"),
        pytest.param({"assign": "t"}, "assign must be JSON of topics and their partitions", id="assign no JSON"),
        pytest.param({"assign": '{"t":0}'}, "assign must be JSON", id="assign without a list"),
        pytest.param({"assign": '{"t":[-1]}'}, "assign must be JSON", id="assign a partition below 0"),
        pytest.param({"assign": '{"t":[]}'}, "assign must be JSON", id="assign nothing"),
        pytest.param({"assign": '["t"]'}, "assign must be JSON", id="assign a list"),
        pytest.param({"startingTimestamp": "now"}, "startingTimestamp must be a whole number", id="no time"),
        pytest.param({"endingTimestamp": "-1"}, "endingTimestamp must be a whole number", id="a time before 1970"),
        pytest.param({"startingOffsetsByTimestamp": '{"t":5}'}, "must be JSON of .* milliseconds", id="a topic's time"),
        pytest.param(
            {"endingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "must be JSON of .* milliseconds", id="-1 no time"
        ),
        pytest.param({"startingOffsetsByTimestampStrategy": "earliest"}, "must be error or latest", id="no strategy"),
        pytest.param({"minPartitions": "0"}, "minPartitions must be a whole number above 0", id="no tasks"),
        pytest.param({"minPartitions": str(1 << 31)}, "2147483647 at most", id="more tasks than an int"),
        pytest.param({"maxRecordsPerPartition": "-5"}, "maxRecordsPerPartition must be", id="no records"),
        pytest.param({"fetchOffset.numRetries": "0"}, "fetchOffset.numRetries must be", id="no attempt"),
        pytest.param({"fetchOffset.retryIntervalMs": "1s"}, "must be a whole number of milli", id="a unit"),
        pytest.param({"kafkaConsumer.pollTimeoutMs": "-1"}, "must be a whole number of milli", id="a past"),
        pytest.param(
            {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'},
            r"t-0: startingOffsets \(5\) is behind endingOffsets \(4\)",
            id="offsets the wrong way round",
        ),
        pytest.param(
            {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"0":4}}'},
            r"t-0: startingOffsetsByTimestamp \(5\) is behind endingOffsetsByTimestamp \(4\)",
            id="times the wrong way round",
        ),
        pytest.param({"decode": "json"}, "decode must be offsets", id="cannot decode that"),
        pytest.param(
            {"decode": "offsets", "pushFilters": "true"}, "pushFilters is true, but with decode", id="decoded filters"
        ),
        pytest.param({"decode": "offsets"}, "only __consumer_offsets has", id="no commits there"),
        pytest.param(
            {"groupIdPrefix": "p"}, "groupIdPrefix is an option of spark.readStream", id="no group in batches"
        ),
        pytest.param({"startingOffsets": "group"}, "must be earliest, latest, or JSON", id="no group's place"),
    ],
)
def test_a_batch_read_refuses(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source_options((READ if given else {"subscribe": "t"}) | given, Taker.BATCH)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"endingOffsets": "latest"}, "endingOffsets is an option of spark.read, not", id="no end"),
        pytest.param({"maxOffsetsPerTrigger": "0"}, "must be a whole number above 0", id="no rows"),
        pytest.param({"maxOffsetsPerTrigger": "1e3"}, "must be a whole number above 0", id="not whole"),
        pytest.param({"maxOffsetsPerTrigger": str(1 << 63)}, "must be a whole number above 0", id="over a long"),
        pytest.param({"minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger must be", id="a least of none"),
        pytest.param({"maxBytesPerTrigger": "1m"}, "maxBytesPerTrigger must be", id="bytes with a unit"),
        pytest.param(
            {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
            r"minOffsetsPerTrigger \(6\) is above maxOffsetsPerTrigger \(5\)",
            id="a least above the most",
        ),
        pytest.param({"maxTriggerDelay": "5 m"}, "maxTriggerDelay must be a duration", id="a space before the unit"),
        pytest.param({"maxTriggerDelay": "5w"}, "maxTriggerDelay must be a duration", id="no such unit"),
        pytest.param({"maxTriggerDelay": "-5s"}, "maxTriggerDelay must be a duration", id="a delay below 0"),
        pytest.param({"endingTimestamp": "5"}, "endingTimestamp is an option of spark.read, not", id="no end by time"),
        pytest.param(
            {"endingOffsetsByTimestamp": '{"t":{"0":5}}'}, "is an option of spark.read, not", id="no ends by time"
        ),
        pytest.param(
            {"startingOffsetsWithoutCommit": "group"}, "must be earliest or latest or error", id="again group"
        ),
        pytest.param({"startingOffsets": "group"}, "kafka.group.id must name the group", id="where which group stands"),
        pytest.param(
            {"startingOffsetsWithoutCommit": "latest"},
            "goes with startingOffsets=group",
            id="commits are not asked",
        ),
        pytest.param({"groupIdPrefix": " "}, "groupIdPrefix must not be empty", id="no prefix"),
    ],
)
def test_a_stream_refuses(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source_options(READ | given, Taker.STREAM)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"subscribe": "t"}, "subscribe is an option of spark.read and spark.readStream", id="a source's"),
        pytest.param({"topic": " "}, "topic must name a topic", id="no topic"),
        pytest.param({"topics": "t"}, "topics is not an option: did you mean topic", id="a slip"),
        pytest.param({"kafka.group.id": "g"}, "kafka.group.id is an option of a consumer", id="a consumer's option"),
        pytest.param({"kafka.key.serializer": "x"}, "keys are bytes", id="keys are bytes"),
        pytest.param({"kafka.compression.type": "rar"}, "kafka.compression.type must be one of none, gzip", id="codec"),
    ],
)
def test_a_sink_refuses(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sink_options(SERVERS | given)


def test_without_subscribe_there_is_nothing_to_read() -> None:
    with pytest.raises(ConfigError, match=r"exactly one of subscribe, subscribePattern, assign .* none is given"):
        source_options(SERVERS, Taker.BATCH)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"subscrbe": "t"}, "did you mean subscribe", id="wrong for both"),
        pytest.param({"endingOffsets": "earliest"}, "cannot be earliest", id="a batch's option with a wrong value"),
        pytest.param({"maxOffsetsPerTrigger": "0"}, "above 0", id="a stream's option with a wrong value"),
    ],
)
def test_what_suits_neither_a_batch_nor_a_stream_is_refused_when_the_schema_is_asked_for(
    given: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        any_source_options(READ | given)


def test_options_of_one_kind_of_read_pass_when_the_schema_is_asked_for() -> None:
    assert not any_source_options(READ | {"endingOffsets": "latest"}).include_headers
    assert any_source_options(READ | {"maxOffsetsPerTrigger": "5", "includeHeaders": "TRUE"}).include_headers


def test_every_row_has_a_doc_and_no_taker_has_two_rows_of_a_name() -> None:
    assert all(row.doc for row in OPTIONS)
    seen = [(row.name, taker) for row in OPTIONS for taker in row.takers]
    assert len(set(seen)) == len(seen)


# What is suggested


def refusal_of(given: dict[str, str], taker: Taker) -> str:
    with pytest.raises(ConfigError) as refused:
        sink_options(SERVERS | given) if taker is Taker.SINK else source_options(READ | given, taker)
    return str(refused.value)


@pytest.mark.parametrize("taker", Taker)
@pytest.mark.parametrize("prefix", ["kafka.", "kafak.", ""])
def test_a_name_that_is_suggested_is_taken_as_it_stands(taker: Taker, prefix: str) -> None:
    """Whatever the slip: with `kafka.` where that belongs, and never an option that only the other side takes."""
    role = Role.SINK if taker is Taker.SINK else Role.CONSUMER
    own = {row.name for row in OPTIONS if taker in row.takers}
    clients = {f"kafka.{row.name}" for row in CLIENT_OPTIONS.values() if row.is_of(role)}
    suggested = set()
    for name in CLIENT_OPTIONS:
        said = refusal_of({f"{prefix}{name}x": "1"}, taker)
        suggested |= set(re.findall(r"is not an option: did you mean (\S+)\?$", said))
    assert suggested <= own | clients
    assert prefix == "" or suggested >= clients


@pytest.mark.parametrize(
    ("name", "taker", "suggested"),
    [
        pytest.param("kafka.batch.sice", Taker.SINK, "kafka.batch.size", id="a write"),
        pytest.param("kafka.fetch.min.byte", Taker.BATCH, "kafka.fetch.min.bytes", id="a read"),
        pytest.param("kafka.fetch.min.byte", Taker.STREAM, "kafka.fetch.min.bytes", id="a stream"),
    ],
)
def test_the_nearest_name_is_suggested_as_users_write_it(name: str, taker: Taker, suggested: str) -> None:
    assert refusal_of({name: "1"}, taker) == f"{name} is not an option: did you mean {suggested}?"


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        pytest.param("batch.sice", ": did you mean batch.size?", id="as a producer writes it"),
        pytest.param("check.crc", "", id="only consumers take the nearest"),
    ],
)
def test_a_producer_of_ones_own_has_names_without_a_prefix(name: str, suggested: str) -> None:
    with pytest.raises(ConfigError) as refused:
        pylog.Producer({"bootstrap.servers": "127.0.0.1:1", name: "1"})
    assert str(refused.value) == f"{name} is not an option{suggested}"
