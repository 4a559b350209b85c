"""Waiting for records without asking again and again: the brokers hold the question until they have an answer."""

import time
from collections.abc import Mapping
from contextlib import ExitStack

from pylog.broker_lite.protocol import fetch
from pylog.broker_lite.protocol.wire import MalformedFrame
from pylog.connector.client.cluster import Cluster, TopicPartition
from pylog.connector.client.connection import Connection
from pylog.connector.client.errors import ClientError


def wait_for_records(cluster: Cluster, offsets: Mapping[TopicPartition, int], wait_ms: int) -> bool:
    """Whether a partition has (or may have) something at or behind its offset; False when the time is up.

    Each leader is asked with a fetch that asks for as little as can be; with several leaders, the slowest decides
    when the wait ends. Whatever fails is left to who reads: the answer is then True, after the time has passed."""
    started = time.monotonic()
    try:
        with ExitStack() as connections:
            asked = [
                _ask(connections.enter_context(cluster.broker(leader)), cluster, partitions, wait_ms)
                for leader, partitions in _by_leader(cluster, offsets).items()
            ]
            found = [_has_records(connection) for connection in asked]
    except (ClientError, MalformedFrame):
        asked, found = [], [True]
    if not asked:  # then nobody has waited for us
        time.sleep(max(0.0, wait_ms / 1000 - (time.monotonic() - started)))
    return any(found)


def _by_leader(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[int, list[fetch.FetchPartition]]:
    by_leader: dict[int, list[fetch.FetchPartition]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        wanted = fetch.FetchPartition(topic, partition, offset, partition_max_bytes=1)
        by_leader.setdefault(cluster.leader(topic, partition), []).append(wanted)
    return by_leader


def _ask(connection: Connection, cluster: Cluster, partitions: list[fetch.FetchPartition], wait_ms: int) -> Connection:
    request = fetch.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1,
        isolation_level=cluster.isolation_level,
        session_id=fetch.NO_SESSION_ID,
        session_epoch=fetch.SESSIONLESS_EPOCH,
        partitions=partitions,
    )
    version = connection.version(fetch.SPEC)
    connection.send_encoded(fetch.SPEC, version, [fetch.encode_request(request, version)])
    return connection


def _has_records(connection: Connection) -> bool:
    answer = connection.receive()
    response = fetch.decode_response(answer.body, answer.version)
    return bool(response.error_code) or any(found.error_code or found.records for found in response.partitions)
