"""A broker that takes connections and answers nothing holds up its own partitions, and nobody else's."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from pylog.connector.client import errands
from pylog.connector.client.cluster import Cluster
from pylog.connector.client.config import ClientConfig
from pylog.connector.client.connection import Connection
from pylog.connector.client.errors import ConnectionLost, DeliveryFailed, NoMetadata
from pylog.connector.client.producer import RecordProducer
from pylog.connector.client.sender import SENDS_MAX, SLOW_SECONDS
from pylog.storage.records import decode_batch
from tests.connector.client.fake_kafka import METADATA, PRODUCE, FakeKafka, Fault

HANGS, ANSWERS = 1, 0  # nodes, and the partitions that they lead
REQUEST_TIMEOUT_MS = 3000
SOON_SECONDS = 2.0


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    with FakeKafka({"orders": 2, "others": 1}, nodes=2) as kafka:
        yield kafka


@contextmanager
def hung(kafka: FakeKafka, node: int) -> Iterator[None]:
    """As a process that was stopped: the system accepts for it, and nobody reads."""
    kafka.stop(node)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", kafka.ports[node]))
        listener.listen()
        yield
    kafka.start(node)


def new_producer(kafka: FakeKafka, **options: int | str) -> RecordProducer:
    given = {"request.timeout.ms": REQUEST_TIMEOUT_MS, "linger.ms": 0, "retry.backoff.ms": 1, **options}
    return RecordProducer({"bootstrap.servers": kafka.bootstrap_servers, **given})


@pytest.mark.parametrize("attempt", range(4))  # whom to ask for metadata is a matter of chance
def test_others_are_written_meanwhile(kafka: FakeKafka, attempt: int) -> None:
    with new_producer(kafka) as producer:
        for partition in (HANGS, ANSWERS):
            producer.send("orders", "v", partition=partition).result(10)
        with hung(kafka, HANGS):
            waits = producer.send("orders", "v", partition=HANGS)
            ends = time.monotonic() + SOON_SECONDS / 2
            while time.monotonic() < ends:
                producer.send("orders", "v", partition=ANSWERS).result(SOON_SECONDS)
                time.sleep(0.01)
            producer.send("others", "v").result(SOON_SECONDS)  # whose leader has to be asked for
            assert not waits.done()
        assert waits.result(10).partition == HANGS


def test_what_it_leads_is_given_up_in_time_and_closing_does_not_wait(kafka: FakeKafka) -> None:
    producer = new_producer(kafka, **{"delivery.timeout.ms": REQUEST_TIMEOUT_MS})
    producer.send("orders", "v", partition=HANGS).result(10)
    with hung(kafka, HANGS):
        began = time.monotonic()
        future = producer.send("orders", "v", partition=HANGS)
        with pytest.raises(DeliveryFailed, match=r"orders-1 were not written: not acknowledged"):
            future.result(10)
        assert time.monotonic() - began < REQUEST_TIMEOUT_MS / 1000 + SOON_SECONDS
        began = time.monotonic()
        producer.close(0)
        assert time.monotonic() - began < SOON_SECONDS


def test_what_was_given_up_before_there_was_a_connection_is_not_written(kafka: FakeKafka) -> None:
    options: dict[str, int | str] = {
        "request.timeout.ms": 1000,
        "delivery.timeout.ms": 1000,
        "enable.idempotence": "false",
    }
    with new_producer(kafka, **options) as producer:
        producer.send("orders", "before", partition=ANSWERS).result(10)
        opened = kafka.connections_opened
        with kafka.busy:
            late = producer.send("orders", "late", partition=HANGS)
            assert isinstance(late.exception(10), DeliveryFailed)
        producer.send("orders", "after", partition=HANGS).result(10)
        assert kafka.connections_opened > opened
    written = [record.value for batch in kafka.logs["orders", HANGS].batches for record in decode_batch(batch)]
    assert written == [b"after"]


def test_a_broker_that_did_not_answer_is_asked_last(kafka: FakeKafka) -> None:
    servers = kafka.bootstrap_servers
    cluster = Cluster(ClientConfig.parse({"bootstrap.servers": servers, "request.timeout.ms": str(REQUEST_TIMEOUT_MS)}))
    cluster.refresh()
    with hung(kafka, HANGS):
        with pytest.raises(ConnectionLost):
            cluster.connect(HANGS)
        began = time.monotonic()
        for _ in range(10):
            cluster.pool.close()  # an idle connection would come first
            cluster.refresh()
        assert time.monotonic() - began < REQUEST_TIMEOUT_MS / 1000, "it was not asked once"
    cluster.pool.close()


def test_a_connection_whose_session_is_over_is_left_for_another(kafka: FakeKafka) -> None:
    """To authenticate again may take its time, and the thread that sends has others to serve."""
    with new_producer(kafka) as producer:
        producer.send("others", "v").result(10)
        [link] = producer._sender._links.values()
        with kafka.busy:
            before = producer.send("others", "v")
            while not link.requests:
                time.sleep(0.001)
            link.connection._session_ends = time.monotonic() - 1
            after = producer.send("others", "v")
        assert [future.result(10).offset for future in (before, after)] == [1, 2]
        [other] = producer._sender._links.values()
        assert other is not link
        assert not link.connection.is_open
        producer.send("others", "v").result(10)
        other.connection._session_ends = time.monotonic() - 1
        assert producer.send("others", "v").result(10).offset == 4, "an idle one, too"


def test_an_idle_connection_is_renewed_by_who_connects_not_by_who_sends(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def authenticate(connection: Connection) -> None:
        threads.append(threading.current_thread().name)
        connection._session_ends = None

    with new_producer(kafka) as producer:
        producer.send("others", "v").result(10)
        [link] = producer._sender._links.values()
        idle = producer._cluster.connect(ANSWERS)
        producer._cluster.pool.close()
        monkeypatch.setattr(Connection, "_authenticate", authenticate)
        link.connection._session_ends = idle._session_ends = time.monotonic() - 1
        producer._cluster.pool.give(idle)
        assert producer.send("others", "v").result(10).offset == 1
        [link] = producer._sender._links.values()
        assert link.connection is idle
    assert threads == ["pylog-producer-errand"]


@pytest.mark.parametrize("named", [None, 7], ids=["any partition", "one that may have been added"])
def test_sending_waits_for_metadata_for_max_block_ms_whoever_hangs(kafka: FakeKafka, named: int | None) -> None:
    with (
        hung(kafka, ANSWERS),
        hung(kafka, HANGS),
        new_producer(kafka, **{"max.block.ms": 300}) as producer,
    ):
        began = time.monotonic()
        with pytest.raises(NoMetadata, match=r"'others' are not known after max\.block\.ms=300"):
            producer.send("others", "v", partition=named)
        assert time.monotonic() - began < REQUEST_TIMEOUT_MS / 1000


def test_callers_who_bring_more_and_more_do_not_keep_the_sender_from_all_else(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With acks=0 there is always room for another request."""
    with new_producer(kafka, acks=0) as producer:
        producer.send("others", "v").result(10)
        sender, looked, dispatch = producer._sender, threading.Event(), producer._sender._dispatch
        brought: list[object] = []

        def bring_another(*arguments: Any) -> None:
            dispatch(*arguments)
            brought.append(arguments)
            if not looked.is_set():
                with sender.lock:
                    producer._accumulator.append(("others", 0), 0, None, b"v", (), time.monotonic())

        monkeypatch.setattr(sender, "_dispatch", bring_another)
        monkeypatch.setattr(sender, "_look_for_silence", lambda: brought and looked.set())
        producer.send("others", "v")
        try:
            assert looked.wait(10)
            assert len(brought) < 2 * SENDS_MAX, "not only when the socket is full"
        finally:
            looked.set()


def test_where_no_thread_can_be_had_the_sender_waits_itself(kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_producer(kafka) as producer:
        monkeypatch.setattr(errands, "threading", SimpleNamespace(Thread=no_thread))
        assert producer.send("others", "v").result(10).offset == 0


def no_thread(**_: object) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("attempt", range(4))
def test_a_broker_that_is_slow_to_answer_is_asked_for_metadata_last(kafka: FakeKafka, attempt: int) -> None:
    """It hangs with a request in flight, and nobody has left it yet."""
    with new_producer(kafka) as producer:
        for partition in (HANGS, ANSWERS):
            producer.send("orders", "v", partition=partition).result(10)
        kafka.faults[PRODUCE].append(Fault.SILENCE)
        waits = producer.send("orders", "v", partition=HANGS)
        time.sleep(SLOW_SECONDS + 0.1)
        producer._cluster.expire("orders")
        producer._cluster.pool.close()
        kafka.faults[PRODUCE].clear()
        assert not waits.done()
        producer.send("orders", "v", partition=ANSWERS).result(SOON_SECONDS)
        assert kafka.asked(METADATA)[-1].node == ANSWERS
