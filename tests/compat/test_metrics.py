"""What a scraper sees of a broker that clients use."""

import json
import socket
import urllib.request

import confluent_kafka
import pytest

import pylog
from pylog.embedded import BrokerFailed
from tests.support.foreign_clients import CLIENTS, ForeignRecord, Refused
from tests.support.group_members import until
from tests.support.prometheus import Metric, parse


@pytest.fixture(scope="module")
def watched():
    with pylog.Broker(config={"group.initial.rebalance.delay.ms": 0}, metrics="127.0.0.1:0") as broker:
        yield broker


def scraped(broker: pylog.Broker) -> dict[str, Metric]:
    with urllib.request.urlopen(f"{broker.metrics_url}/metrics", timeout=30) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return parse(answer.read().decode())


def requests_of(metrics: dict[str, Metric], api: str) -> float:
    return metrics["pylog_request_duration_seconds"].samples.get(
        ("pylog_request_duration_seconds_count", (("api", api),)), 0
    )


def test_a_hot_partition_shows(watched):
    topic = watched.create_topic(partitions=2)
    client = CLIENTS["confluent-kafka"]
    before = scraped(watched)
    for partition, count in ((0, 1), (1, 200)):
        records = [ForeignRecord(b"key", bytes(1000))] * count
        client.produce(watched.bootstrap_servers, topic, records, partition=partition)
    client.consume(watched.bootstrap_servers, topic, 200, partition=1)
    after = scraped(watched)
    for name in ("pylog_partition_bytes_in_total", "pylog_partition_size_bytes"):
        cold, hot = (after[name].value(topic=topic, partition=partition) for partition in range(2))
        assert 1000 < cold < 2000 < 200_000 < hot
    sent = after["pylog_partition_bytes_out_total"]
    assert sent.value(topic=topic, partition=0) == 0
    assert sent.value(topic=topic, partition=1) >= 200_000
    for api in ("Produce", "Fetch", "Metadata", "ApiVersions"):
        assert requests_of(after, api) > requests_of(before, api), api


def test_a_group_at_work_shows(watched):
    topic = watched.create_topic()
    client = CLIENTS["confluent-kafka"]
    client.produce(watched.bootstrap_servers, topic, [ForeignRecord(b"key", b"value")] * 10)
    before = scraped(watched)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": watched.bootstrap_servers,
            "group.id": "workers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        taken = [consumer.poll(30) for _ in range(4)]
        consumer.commit(taken[3], asynchronous=False)
        metrics = scraped(watched)
    finally:
        consumer.close()
    place = {"group": "workers", "topic": topic, "partition": 0}
    assert metrics["pylog_group_committed_offset"].value(**place) == 4
    assert metrics["pylog_group_lag_records"].value(**place) == 6
    assert metrics["pylog_group_lag_seconds"].has(**place)
    assert metrics["pylog_group_state"].value(group="workers", state="Stable") == 1
    assert metrics["pylog_group_members"].value(group="workers") == 1
    rebalances = "pylog_group_rebalances_total"
    assert metrics[rebalances].value() > before[rebalances].value()


def test_connections_are_counted_and_garbage_is(watched):
    host, port = watched.bootstrap_servers.split(":")
    before = scraped(watched)
    with socket.create_connection((host, int(port))) as idle, socket.create_connection((host, int(port))) as wrong:
        wrong.sendall(b"\0\0\0\x08" + b"\x7f\xff" + bytes(6))
        assert wrong.recv(1) == b""
        idle.sendall(b"")
        after = scraped(watched)
    assert after["pylog_connections_made_total"].value() == before["pylog_connections_made_total"].value() + 2
    assert after["pylog_requests_malformed_total"].value() == before["pylog_requests_malformed_total"].value() + 1
    assert after["pylog_connections"].value() >= 1
    until(lambda: scraped(watched)["pylog_connections"].value() == 0, "all connections are gone")


def test_refusals_are_counted_by_name(watched):
    client = CLIENTS["confluent-kafka"]
    client.create_topic(watched.bootstrap_servers, "twice", 1)
    with pytest.raises(Refused):
        client.create_topic(watched.bootstrap_servers, "twice", 1)
    errors = scraped(watched)["pylog_request_errors_total"]
    assert errors.value(api="CreateTopics", error="TOPIC_ALREADY_EXISTS") == 1


def test_health_is_told_before_and_after_a_crash():
    with pylog.Broker(metrics="127.0.0.1:0") as broker:
        url = broker.metrics_url
        for _ in range(2):
            with urllib.request.urlopen(f"{url}/health", timeout=30) as answer:
                report = json.load(answer)
            assert (report["alive"], report["ready"], report["offline_partitions"]) == (True, True, [])
            broker.kill()
            broker.start()
            assert broker.metrics_url == url


def test_a_port_that_is_taken_is_told(watched):
    taken = watched.metrics_url.removeprefix("http://")
    with pytest.raises(BrokerFailed, match="--metrics 127"):
        pylog.Broker(metrics=taken).start()
