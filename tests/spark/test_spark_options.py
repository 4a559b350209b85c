"""The options table, without a Spark: what is taken, by whom, and what is said about the rest."""

import pickle

import pytest

from pylog.connector.client.cluster import EARLIEST, LATEST
from pylog.connector.client.errors import ConfigError
from pylog.connector.spark.options import (
    _NOT_YET,
    CONTACT_TIMEOUT_MS,
    OPTIONS,
    Taker,
    includes_headers,
    sink_options,
    source_options,
)

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
READ = SERVERS | {"subscribe": "t"}


def test_a_batch_starts_at_earliest_and_ends_at_latest() -> None:
    options = source_options(READ, Taker.BATCH)
    assert (options.starting, options.ending) == (EARLIEST, LATEST)
    assert options.topics == ("t",)
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_a_stream_starts_at_latest() -> None:
    options = source_options(READ, Taker.STREAM)
    assert options.starting == LATEST
    assert options.offsets_per_trigger_max is None


def test_names_are_case_insensitive_and_topics_are_trimmed() -> None:
    given = {"KAFKA.bootstrap.SERVERS": "h:1", "SUBSCRIBE": " a , b,a,, ", "StartingOffsets": " Earliest "}
    options = source_options(given, Taker.STREAM)
    assert options.topics == ("a", "b")
    assert options.starting == EARLIEST
    assert options.client.bootstrap_servers[0].host == "h"


def test_offsets_by_partition_keep_their_negative_marks() -> None:
    options = source_options(READ | {"startingOffsets": '{"t":{"0":23,"1":-1,"2":-2}}'}, Taker.STREAM)
    assert options.starting == {("t", 0): 23, ("t", 1): LATEST, ("t", 2): EARLIEST}


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
        pytest.param({"kafka.sasl.mechanism": "x"}, "kafka.sasl.mechanism is not supported yet", id="no security yet"),
        pytest.param({"kafka.auto.offset.reset": "latest"}, "use startingOffsets", id="Spark settles the offsets"),
        pytest.param({"kafka.enable.auto.commit": "true"}, "when a micro-batch is done", id="Spark settles commits"),
        pytest.param({"kafka.key.deserializer": "x"}, "keys are bytes", id="keys are bytes"),
        pytest.param({"kafka.value.deserializer": "x"}, "values are bytes", id="values are bytes"),
        pytest.param({"kafka.interceptor.classes": "x"}, "classes of the JVM", id="no Java here"),
        *(pytest.param({name: "1"}, f"^{name} is not supported yet$", id=name) for name in _NOT_YET),
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
    with pytest.raises(ConfigError, match="subscribe is required"):
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
        includes_headers(READ | given)


def test_options_of_one_kind_of_read_pass_when_the_schema_is_asked_for() -> None:
    assert not includes_headers(READ | {"endingOffsets": "latest"})
    assert includes_headers(READ | {"maxOffsetsPerTrigger": "5", "includeHeaders": "TRUE"})


def test_every_row_has_a_doc_and_no_taker_has_two_rows_of_a_name() -> None:
    assert all(row.doc for row in OPTIONS)
    seen = [(row.name, taker) for row in OPTIONS for taker in row.takers]
    assert len(set(seen)) == len(seen)
