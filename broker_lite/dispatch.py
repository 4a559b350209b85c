"""From a frame to the API that answers it, and from its answer to a frame."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request
from pylog.broker_lite.api_table import API_BY_KEY
from pylog.broker_lite.apis import api_versions, produce
from pylog.broker_lite.client import Client
from pylog.broker_lite.connection import Answer, Parts
from pylog.broker_lite.listeners import Endpoint
from pylog.broker_lite.protocol.framing import API_VERSIONS_KEY, read_request_header, write_response_header
from pylog.broker_lite.protocol.produce import ProducedPartition, ProducePartition
from pylog.broker_lite.protocol.wire import I32, MalformedFrame, skip_tags
from pylog.broker_lite.repeated_produce import RepeatedProduce
from pylog.storage.log import FileSlice

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

PRODUCE_KEY = produce.API.spec.key


def answer(broker: "Broker", endpoint: Endpoint, frame: memoryview, client: Client) -> Answer:
    """`endpoint` is what a client that came in here is told to connect to."""
    if broker.topics.quotas:
        from pylog.broker_lite import throttling  # here: few brokers have quotas

        return throttling.answer(broker, endpoint, frame, client)
    return answer_unthrottled(broker, endpoint, frame, client)


def answer_unthrottled(broker: "Broker", endpoint: Endpoint, frame: memoryview, client: Client) -> Answer:
    if client.repeated is not None:
        partitions = client.repeated.decode(frame)
        if partitions is not None:
            return _answer_again(broker, client.repeated, partitions, frame)
    header = read_request_header(frame)
    key, version, correlation_id = header.api_key, header.api_version, header.correlation_id
    api = API_BY_KEY.get(key)
    if api is None:
        raise MalformedFrame(f"API {key} is not implemented, nor advertised")
    spec = api.spec
    if not spec.version_min <= version <= spec.version_max:
        if key == API_VERSIONS_KEY:  # how a newer client learns which versions it may use
            return _framed([api_versions.unsupported_version()], key, correlation_id, flexible=False)
        raise MalformedFrame(f"{spec.name} v{version}; supported are {spec.version_min} to {spec.version_max}")
    flexible = spec.is_flexible(version)
    start = skip_tags(frame, header.body_start) if flexible else header.body_start
    body = api.answer(broker, Request(version, header.client_id, client.host, frame[start:], endpoint))
    if key == PRODUCE_KEY:
        client.repeated = RepeatedProduce.of(frame, start, version)
    return _answered(body, key, correlation_id, flexible=flexible)


def _answer_again(
    broker: "Broker", repeated: RepeatedProduce, partitions: list[ProducePartition], frame: memoryview
) -> Answer:
    acks, version, now_ms = repeated.acks, repeated.version, broker.now_ms()
    results: list[produce.Result] = []
    appended: list[ProducedPartition] = []
    for asked in partitions:
        result = produce.append(broker, asked, acks, version, now_ms)
        results.append(result)
        if type(result) is ProducedPartition and not result[2]:
            appended.append(result)
    if acks and len(appended) == len(results):
        return [repeated.encode(appended, frame)]
    (correlation_id,) = I32.unpack_from(frame, 4)
    return _answered(produce.answer_with(broker, results, acks, version), PRODUCE_KEY, correlation_id, flexible=True)


def _answered(body: Answer, key: int, correlation_id: int, *, flexible: bool) -> Answer:
    if body is None:
        return None
    if isinstance(body, list):
        return _framed(body, key, correlation_id, flexible=flexible)
    return _framed_later(body, key, correlation_id, flexible=flexible)


async def _framed_later(
    body: Awaitable[Parts | None], key: int, correlation_id: int, *, flexible: bool
) -> Parts | None:
    parts = await body
    return None if parts is None else _framed(parts, key, correlation_id, flexible=flexible)


def _framed(body: Parts, key: int, correlation_id: int, *, flexible: bool) -> Parts:
    head = bytearray(4)
    write_response_header(head, key, correlation_id, flexible=flexible)
    size = sum(part.length if isinstance(part, FileSlice) else len(part) for part in body) + len(head) - 4
    I32.pack_into(head, 0, size)
    return [head, *body]
