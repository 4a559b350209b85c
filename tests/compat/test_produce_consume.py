"""What any client writes, with any codec, every client reads, and so does our plain decoder."""

from pathlib import Path

import pytest

import pylog
from pylog.connector.columnar.decode import RowDecoder, arrow_schema
from pylog.storage.batch import walk
from pylog.storage.codecs import CODEC_BY_NAME
from pylog.storage.records import decode_batch
from tests.support.foreign_clients import CLIENTS, ForeignRecord, Refused

NOW_MS = 1_700_000_000_000
RECORDS = [
    ForeignRecord(b"k", b"v", (), NOW_MS),
    ForeignRecord(None, b"no key", (), NOW_MS + 1),
    ForeignRecord(b"deleted", None, (), NOW_MS + 2),
    ForeignRecord(b"", b"", (), NOW_MS + 2),
    ForeignRecord(b"h", b"headers", (("a", b"1"), ("a", b""), ("größe", b"\x00\xff")), NOW_MS + 5),
    ForeignRecord(b"late", b"x" * 5000, (), NOW_MS - 1000),
    ForeignRecord("schlüssel".encode(), bytes(range(256)) * 400, (("big", b"y" * 300),), NOW_MS + 9),
]
CODECS = list(CODEC_BY_NAME)


@pytest.fixture(scope="module")
def topic_of(servers: str) -> dict[tuple[str, str], str]:
    """(client, codec) -> the topic into which it wrote RECORDS."""
    topics = {}
    for name, client in CLIENTS.items():
        for codec in CODECS:
            topic = topics[name, codec] = f"{name}-{codec}"
            assert client.produce(servers, topic, RECORDS, codec=codec) == list(range(len(RECORDS)))
    return topics


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", CLIENTS)
@pytest.mark.parametrize("reader", CLIENTS)
def test_every_client_reads_what_every_client_wrote(
    servers: str, topic_of: dict[tuple[str, str], str], reader: str, writer: str, codec: str
) -> None:
    assert CLIENTS[reader].consume(servers, topic_of[writer, codec], len(RECORDS)) == RECORDS


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_our_decoders_read_the_file_that_a_client_filled(
    own_broker: pylog.Broker, topic_of: dict[tuple[str, str], str], writer: str, codec: str
) -> None:
    data = log_bytes(own_broker, topic_of[writer, codec])
    headers = [header for _, header in walk(data)]
    assert sum(header.size_bytes for header in headers) == len(data)
    used = {header.codec for header in headers}
    assert CODEC_BY_NAME[codec] in used
    assert used <= {CODEC_BY_NAME[codec], 0}  # a batch that would not get smaller is sent as it is
    records = [record for position, _ in walk(data) for record in decode_batch(data, position)]
    assert [record.offset for record in records] == list(range(len(RECORDS)))
    assert [(one.key, one.value, one.headers, one.timestamp_ms) for one in records] == [tuple(one) for one in RECORDS]
    columns, _ = RowDecoder("t", 0, arrow_schema(["offset", "key", "value", "headers"])).decode(data, 0, len(RECORDS))
    by_kernels = [row for batch in columns for row in batch.to_pylist()]
    assert by_kernels == [
        {
            "offset": one.offset,
            "key": one.key,
            "value": one.value,
            "headers": [{"key": key, "value": value} for key, value in one.headers] or None,
        }
        for one in records
    ]


def log_bytes(broker: pylog.Broker, topic: str, partition: int = 0) -> bytes:
    return Path(broker.data, f"{topic}-{partition}", "00000000000000000000.log").read_bytes()


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("writer", CLIENTS)
def test_acks(servers: str, writer: str, acks: str) -> None:
    topic = f"acks-{writer}-{acks}"
    CLIENTS[writer].create_topic(servers, topic, 1)  # a record without an answer may be lost to auto-creation
    offsets = CLIENTS[writer].produce(servers, topic, RECORDS, acks=acks)
    assert offsets == ([-1] * len(RECORDS) if acks == "0" else list(range(len(RECORDS))))
    assert CLIENTS["confluent-kafka"].consume(servers, topic, len(RECORDS)) == RECORDS


@pytest.mark.parametrize("writer", CLIENTS)
def test_partitions_are_apart(servers: str, writer: str) -> None:
    topic, client = f"parts-{writer}", CLIENTS[writer]
    client.create_topic(servers, topic, 3)
    for partition in range(3):
        client.produce(servers, topic, RECORDS[partition : partition + 2], partition=partition)
    for partition in range(3):
        assert client.consume(servers, topic, 2, partition=partition) == RECORDS[partition : partition + 2]
        assert client.range(servers, topic, partition) == (0, 2)


@pytest.mark.parametrize("writer", CLIENTS)
def test_values_of_nearly_a_megabyte(servers: str, writer: str) -> None:
    records = [ForeignRecord(None, bytes([number]) * 990_000, (), NOW_MS) for number in range(3)]
    CLIENTS[writer].produce(servers, f"large-{writer}", records)
    for reader in CLIENTS.values():
        assert reader.consume(servers, f"large-{writer}", 3) == records


@pytest.mark.parametrize("writer", CLIENTS)
def test_a_batch_over_the_topics_limit_is_refused_and_nothing_is_written(servers: str, writer: str) -> None:
    topic, client = f"limit-{writer}", CLIENTS[writer]
    client.create_topic(servers, topic, 1, config={"max.message.bytes": "1000"})
    with pytest.raises(Refused) as refused:
        client.produce(servers, topic, [ForeignRecord(None, b"x" * 2000, (), NOW_MS)])
    assert refused.value.code == 10
    client.produce(servers, topic, [ForeignRecord(None, b"x" * 200, (), NOW_MS)])
    assert client.range(servers, topic) == (0, 1)


@pytest.mark.parametrize("reader", CLIENTS)
def test_offsets_by_timestamp(servers: str, topic_of: dict[tuple[str, str], str], reader: str) -> None:
    topic = f"times-{reader}"
    records = [ForeignRecord(None, b"%d" % second, (), NOW_MS + 1000 * second) for second in range(10)]
    CLIENTS[reader].create_topic(servers, topic, 1)
    for record in records:  # a batch each, so that the answer is not always the first batch's
        CLIENTS[reader].produce(servers, topic, [record])
    asked = [NOW_MS - 1, NOW_MS, NOW_MS + 1, NOW_MS + 3000, NOW_MS + 8999, NOW_MS + 9000, NOW_MS + 9001]
    assert CLIENTS[reader].offsets_at(servers, topic, asked) == [0, 0, 1, 3, 9, 9, None]
    compressed = topic_of["confluent-kafka", "zstd"]  # one batch: the broker looks into it
    assert CLIENTS[reader].offsets_at(servers, compressed, [NOW_MS + 2, NOW_MS + 5, NOW_MS + 6]) == [2, 4, 6]
