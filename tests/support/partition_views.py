"""All that can be told of a partition, by a broker of any kind or by our own log: the two can be held side by side.

Topics have one partition here. Clients are confluent-kafka and kafka-python; batches with a producer's sequence of
our choice go by hand."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from pylog.broker_lite.protocol import produce
from pylog.broker_lite.protocol.produce import ProducedPartition, ProducePartition, ProduceRequest
from pylog.connector.client.config import Address, ClientConfig
from pylog.connector.client.connection import Connection
from pylog.storage.batch import BatchHeader, walk
from pylog.storage.log import PartitionLog
from pylog.storage.records import Record, decode_batch
from pylog.storage.transactions import read_marker
from tests.support.logs import bytes_of

SECONDS_MAX = 60
LOOK_UPS_MAX = 20
_CHUNK = 1000
_SPEC: Any = OffsetSpec  # its methods have no types
_UNCOMMITTED = confluent_kafka.IsolationLevel.READ_UNCOMMITTED
_COMMITTED = confluent_kafka.IsolationLevel.READ_COMMITTED
_BOUNDS = (
    (_SPEC.earliest(), _UNCOMMITTED),
    (_SPEC.latest(), _COMMITTED),
    (_SPEC.latest(), _UNCOMMITTED),
    (_SPEC.max_timestamp(), _UNCOMMITTED),
)


class Bounds(NamedTuple):
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    max_timestamp_offset: int  # of the latest record; -1 if there is none


class KnownProducer(NamedTuple):
    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int


@dataclass(frozen=True)
class View:
    records: list[Record]
    committed: list[Record]  # what `read_committed` shows
    bounds: Bounds
    producers: list[KnownProducer]
    offsets_at: dict[int, int]  # the first offset at or after a timestamp; -1 if there is none


# -- through a broker


def create_topics(servers: str, topics: Mapping[str, Mapping[str, str]]) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = [NewTopic(name, 1, 1, config=dict(settings)) for name, settings in topics.items()]
    for future in admin.create_topics(wanted).values():
        future.result(SECONDS_MAX)
    wait_for_leaders(servers, topics)


def wait_for_leaders(servers: str, topics: Iterable[str]) -> None:
    """A broker that has just started answers before it leads."""
    admin = AdminClient({"bootstrap.servers": servers})
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        found = admin.list_topics(timeout=SECONDS_MAX).topics
        leaders = [found[name].partitions[0].leader if name in found else -1 for name in topics]
        if min(leaders) >= 0:
            return
        assert time.monotonic() < deadline, f"no leaders of {sorted(topics)}"
        time.sleep(0.05)


def views_through(servers: str, topics: Iterable[str]) -> dict[str, View]:
    """Of all topics at once: making clients takes longer than asking them."""
    places = {topic: confluent_kafka.TopicPartition(topic, 0) for topic in topics}
    admin = AdminClient({"bootstrap.servers": servers})
    records, committed = (records_through(servers, places, level) for level in ("read_uncommitted", "read_committed"))
    bounds = [_offsets_through(admin, dict.fromkeys(places.values(), spec), level) for spec, level in _BOUNDS]
    producers = _producers_through(servers, places)
    views = {}
    for topic, place in places.items():
        asked = look_ups(records[topic])
        found = [_futures(admin, {place: _SPEC.for_timestamp(one)}, _UNCOMMITTED) for one in asked]
        views[topic] = View(
            records[topic],
            committed[topic],
            Bounds._make(offsets[topic] for offsets in bounds),
            producers[topic],
            {timestamp_ms: _offset(futures[place]) for timestamp_ms, futures in zip(asked, found, strict=True)},
        )
    return views


def records_through(servers: str, topics: Iterable[str], isolation_level: str) -> dict[str, list[Record]]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 10,
            "isolation.level": isolation_level,
        }
    )
    records: dict[str, list[Record]] = {topic: [] for topic in topics}
    try:
        places = [confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING) for topic in topics]
        consumer.assign(places)
        _read_to_the_ends(consumer, records)
    finally:
        consumer.close()
    return records


def _read_to_the_ends(consumer: Any, records: dict[str, list[Record]]) -> None:
    deadline, unfinished = time.monotonic() + SECONDS_MAX, set(records)
    while unfinished:
        assert time.monotonic() < deadline, f"no end of {sorted(unfinished)} within {SECONDS_MAX} s"
        for message in consumer.consume(_CHUNK, 0.05):
            error, topic = message.error(), message.topic()
            if error is None:
                place, headers = message.offset(), tuple(message.headers() or ())
                records[topic].append(Record(place, message.timestamp()[1], message.key(), message.value(), headers))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                unfinished.discard(topic)
            else:
                assert error.retriable(), f"{topic}: {error}"


def look_ups(records: list[Record]) -> list[int]:
    """Some timestamps, from before the first to behind the last. Not from long before: for what is older than a
    segment that lies below the log's start, and is not removed yet, Kafka finds nothing at all."""
    timestamps = sorted({record.timestamp_ms for record in records})
    some = timestamps[:: max(1, len(timestamps) // LOOK_UPS_MAX)]
    return [timestamps[0] - 1, *some, timestamps[-1] + 1] if timestamps else [0]


def _futures(admin: AdminClient, specs: dict[Any, Any], level: Any) -> dict[Any, Any]:
    return dict(admin.list_offsets(specs, isolation_level=level))


def _offset(future: Any) -> int:
    return int(future.result(SECONDS_MAX).offset)


def _offsets_through(admin: AdminClient, specs: dict[Any, Any], level: Any) -> dict[str, int]:
    return {place.topic: _offset(future) for place, future in _futures(admin, specs, level).items()}


def _producers_through(servers: str, topics: Iterable[str]) -> dict[str, list[KnownProducer]]:
    admin = kafka.KafkaAdminClient(bootstrap_servers=servers)
    try:
        found = admin.describe_producers([kafka.TopicPartition(topic, 0) for topic in topics])
    finally:
        admin.close()
    return {
        place.topic: sorted(
            KnownProducer(
                one.producer_id,
                one.producer_epoch,
                one.last_sequence,
                one.last_timestamp,
                one.coordinator_epoch,
                one.current_transaction_start_offset,
            )
            for one in state.active_producers
        )
        for place, state in found.items()
    }


def send_batch(servers: str, topic: str, batch: bytearray) -> ProducedPartition:
    """The answer to a Produce request with this very batch: its producer, epoch and sequence are the caller's."""
    host, port = servers.rsplit(":", 1)
    connection = Connection(Address(host, int(port)), ClientConfig())
    try:
        version = connection.version(produce.SPEC)
        request = ProduceRequest(None, -1, 10_000, [ProducePartition(topic, 0, batch)])
        connection.send_encoded(produce.SPEC, version, produce.encode_request(request, version))
        (answer,) = produce.decode_response(connection.receive().body, version)
    finally:
        connection.close()
    return answer


# -- by our own log


def view_of_log(log: PartitionLog, timestamps_ms: Iterable[int]) -> View:
    latest = log.offset_of_max_timestamp()
    return View(
        read_log(log),
        read_log(log, committed=True),
        Bounds(log.log_start_offset, log.last_stable_offset, log.high_watermark, -1 if latest is None else latest[1]),
        sorted(
            KnownProducer(
                one.producer_id,
                one.epoch,
                one.last_sequence,
                one.last_timestamp_ms,
                one.coordinator_epoch,
                one.transaction_start,
            )
            for one in log.producers.views()
        ),
        {timestamp_ms: _offset_at(log, timestamp_ms) for timestamp_ms in timestamps_ms},
    )


def _offset_at(log: PartitionLog, timestamp_ms: int) -> int:
    found = log.offset_at_time(timestamp_ms)
    return -1 if found is None else found[1]


def read_log(log: PartitionLog, *, committed: bool = False) -> list[Record]:
    """As a client does it: what is aborted, and what is control, is dropped by the reader."""
    records: list[Record] = []
    end = log.last_stable_offset if committed else log.high_watermark
    aborted = log.aborted_transactions(log.log_start_offset, end) if committed else []
    starts = sorted((one.first_offset, one.producer_id) for one in aborted)
    dropped: set[int] = set()
    for header, batch in _batches(log, end):
        while starts and starts[0][0] <= header.last_offset:
            dropped.add(starts.pop(0)[1])
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.commit:
                dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            records += [record for record in decode_batch(batch) if record.offset >= log.log_start_offset]
    return records


def _batches(log: PartitionLog, end_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    offset = log.log_start_offset
    while (part := log.read(offset, 1 << 20, end_offset)) is not None:
        data = memoryview(bytes_of(part))
        for position, header in walk(data):
            yield header, data[position : position + header.size_bytes]
            offset = header.next_offset
