"""Quotas, enforced: who wrote or read more bytes a second than it may is told how long that is too much, and is not
answered for so long.

As in Kafka a quota is one of a user, of a client id, or of both, the closest wins, and ten seconds of it may be used at
once: after a pause as much, after that no more than comes in. What is used too much is owed. An answer leaves at once
and says how long the pause is; the next request of that connection waits meanwhile, and what follows it stays in the
socket.
"""

import asyncio
import math
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING

from pylog.broker_lite import dispatch
from pylog.broker_lite.client import Client
from pylog.broker_lite.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from pylog.broker_lite.connection import Answer, Parts
from pylog.broker_lite.listeners import Endpoint
from pylog.broker_lite.machines.topics import Entity
from pylog.broker_lite.protocol import fetch, produce
from pylog.broker_lite.protocol.framing import RequestHeader, read_request_header
from pylog.broker_lite.protocol.wire import I32
from pylog.storage.log import FileSlice

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

USER = "ANONYMOUS"  # Kafka's name of who did not say
AT_ONCE_SECONDS = 10  # Kafka's: eleven samples of a second each, one of which has just begun
_COUNTED_MAX = 10_000  # clients choose their ids: those that were not seen for longest begin anew
_THROTTLE_MS_MAX = (1 << 31) - 1


class Meters:
    """What clients have left of their quotas."""

    def __init__(self, quotas: Mapping[Entity, Mapping[str, float]]) -> None:
        """`quotas` may change; what was used stays used."""
        self._quotas = quotas
        self._used: dict[tuple[str, str, str], tuple[float, float]] = {}  # (bytes at a time, that time in seconds)

    def pause_after(self, key: str, client_id: str, byte_count: int, now_seconds: float) -> float:
        """Seconds; 0 where there is no quota, or where it is kept."""
        found = self._quota_of(key, client_id)
        if found is None:
            return 0.0
        rate, whose = found
        used, since = self._used.pop((key, *whose), (0.0, now_seconds))
        used = max(used - (now_seconds - since) * rate, 0.0) + byte_count
        if len(self._used) >= _COUNTED_MAX:
            del self._used[next(iter(self._used))]
        self._used[key, *whose] = used, now_seconds
        return max(used / rate - AT_ONCE_SECONDS, 0.0)

    def _quota_of(self, key: str, client_id: str) -> tuple[float, tuple[str, str]] | None:
        """(bytes a second, the user and the client id that share it)."""
        for user in (USER, None):
            for entity, whose in (
                ((("client-id", client_id), ("user", user)), (USER, client_id)),
                ((("client-id", None), ("user", user)), (USER, client_id)),
                ((("user", user),), (USER, "")),
            ):
                if key in self._quotas.get(entity, {}):
                    return self._quotas[entity][key], whose
        for name in (client_id, None):
            if key in self._quotas.get((("client-id", name),), {}):
                return self._quotas[("client-id", name),][key], ("", client_id)
        return None


def answer(broker: "Broker", endpoint: Endpoint, frame: memoryview, client: Client) -> Answer:
    now_seconds = asyncio.get_running_loop().time()
    if client.paused_until > now_seconds:
        return _answer_later(broker, endpoint, memoryview(bytearray(frame)), client)  # the frame is gone then
    return _answer_now(broker, endpoint, frame, client)


async def _answer_later(broker: "Broker", endpoint: Endpoint, frame: memoryview, client: Client) -> Parts | None:
    await asyncio.sleep(client.paused_until - asyncio.get_running_loop().time())
    answered = _answer_now(broker, endpoint, frame, client)
    return answered if answered is None or isinstance(answered, list) else await answered


def _answer_now(broker: "Broker", endpoint: Endpoint, frame: memoryview, client: Client) -> Answer:
    header = read_request_header(frame)
    answered = dispatch.answer_unthrottled(broker, endpoint, frame, client)
    if header.api_key not in (produce.SPEC.key, fetch.SPEC.key):
        return answered
    if broker.meters is None:
        broker.meters = Meters(broker.topics.quotas)
    counted = _Counted(broker.meters, header, client, len(frame))
    if answered is None or isinstance(answered, list):
        return counted.told(answered)
    return _told_later(counted, answered)


async def _told_later(counted: "_Counted", answered: Awaitable[Parts | None]) -> Parts | None:
    return counted.told(await answered)


class _Counted:
    """A request of records, and its answer."""

    def __init__(self, meters: Meters, header: RequestHeader, client: Client, request_bytes: int) -> None:
        self._meters, self._header, self._client, self._request_bytes = meters, header, client, request_bytes

    def told(self, parts: Parts | None) -> Parts | None:
        """The same answer, with the pause in it; None: the client wants no answer, and pauses all the same."""
        now_seconds = asyncio.get_running_loop().time()
        is_produce = self._header.api_key == produce.SPEC.key
        key, byte_count = PRODUCER_BYTE_RATE, self._request_bytes
        if not is_produce:
            key = CONSUMER_BYTE_RATE
            byte_count = sum(part.length if isinstance(part, FileSlice) else len(part) for part in parts or ())
        pause_seconds = self._meters.pause_after(key, self._header.client_id or "", byte_count, now_seconds)
        if not pause_seconds:
            return parts
        self._client.paused_until = now_seconds + pause_seconds
        throttle_ms = min(math.ceil(pause_seconds * 1000), _THROTTLE_MS_MAX)
        if parts is None:
            return None
        if is_produce:
            return _at_the_end(parts, throttle_ms, flexible=produce.SPEC.is_flexible(self._header.api_version))
        return _in_front(parts, throttle_ms)


def _at_the_end(parts: Parts, throttle_ms: int, *, flexible: bool) -> Parts:
    """Of an answer to Produce: the last field of all, before tags that are not there."""
    *others, last = parts
    assert not isinstance(last, FileSlice)
    changed = bytearray(last)
    I32.pack_into(changed, len(changed) - I32.size - flexible, throttle_ms)
    return [*others, changed]


def _in_front(parts: Parts, throttle_ms: int) -> Parts:
    """Of an answer to Fetch: the first field behind the header."""
    head, first, *others = parts
    assert not isinstance(first, FileSlice)
    changed = bytearray(first)
    I32.pack_into(changed, 0, throttle_ms)
    return [head, changed, *others]
