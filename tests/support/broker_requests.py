"""Requests to a broker without a socket: what an API answers, decoded."""

import inspect
from collections.abc import Sequence
from typing import Any

from pylog.broker_lite.api import Api, Request
from pylog.broker_lite.apis import fetch as fetch_api
from pylog.broker_lite.apis import list_offsets as list_offsets_api
from pylog.broker_lite.apis import produce as produce_api
from pylog.broker_lite.broker import Broker
from pylog.broker_lite.protocol import fetch, produce
from pylog.broker_lite.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest
from pylog.broker_lite.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pylog.broker_lite.protocol.produce import ProducedPartition, ProducePartition, ProduceRequest
from pylog.broker_lite.protocol.spec import ApiSpec
from pylog.storage.log import FileSlice
from tests.support.logs import bytes_of


async def answer_to(broker: Broker, api: Api, body: bytes | bytearray, version: int) -> bytes | None:
    parts = api.answer(broker, Request(version, "client", "/127.0.0.1", memoryview(bytearray(body))))
    if inspect.isawaitable(parts):
        parts = await parts
    assert parts is None or isinstance(parts, list)
    if parts is None:
        return None
    return b"".join(bytes_of(part) if isinstance(part, FileSlice) else part for part in parts)


async def ask(broker: Broker, api: Api, message: Any, version: int) -> Any:
    """An API whose messages are declared."""
    assert isinstance(api.spec, ApiSpec)
    body = await answer_to(broker, api, api.spec.encode_request(message, version), version)
    assert body is not None
    return api.spec.decode_response(body, version)


async def produce_all(
    broker: Broker, wanted: Sequence[ProducePartition], *, acks: int = -1, version: int = 9
) -> list[ProducedPartition] | None:
    """None where the client wants no answer."""
    body = b"".join(produce.encode_request(ProduceRequest(None, acks, 1000, list(wanted)), version))
    answered = await answer_to(broker, produce_api.API, body, version)
    return None if answered is None else produce.decode_response(answered, version)


async def produce_one(
    broker: Broker, topic: str, batch: bytes | bytearray, *, partition: int = 0, version: int = 9
) -> ProducedPartition:
    results = await produce_all(broker, [ProducePartition(topic, partition, batch)], version=version)
    assert results is not None
    return results[0]


async def fetch_one(
    broker: Broker,
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    committed: bool = False,
    wait_ms: int = 0,
    bytes_min: int = 1,
    bytes_max: int = 1 << 20,
) -> FetchedPartition:
    wanted = [FetchPartition(topic, partition, offset, bytes_max)]
    request = FetchRequest(wait_ms, bytes_min, 1 << 20, int(committed), 0, -1, wanted)
    body = await answer_to(broker, fetch_api.API, fetch.encode_request(request, 12), 12)
    assert body is not None
    return fetch.decode_response(body, 12).partitions[0]


async def list_one(
    broker: Broker, topic: str, timestamp: int, *, partition: int = 0, committed: bool = False
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(isolation_level=int(committed), topics=[ListOffsetsTopic(topic, [asked])])
    response = await ask(broker, list_offsets_api.API, request, 7)
    found: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return found
