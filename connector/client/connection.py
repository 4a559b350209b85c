"""One connection to one broker: requests go out in order, answers come back in that order.

Used by one thread at a time. Several requests may be in flight; `receive` gives the answer of the
oldest. Anything that goes wrong closes the connection for good and raises: its stream has no place
left from which it could be read on. A forked child never uses or shuts down its parent's connections.
"""

import os
import socket
import ssl
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from pylog import __version__
from pylog.broker_lite.protocol import api_versions, framing
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.spec import Api, ApiSpec
from pylog.broker_lite.protocol.wire import I16, I32, Buffer, MalformedFrame
from pylog.connector.client.config import Address, ClientConfig
from pylog.connector.client.errors import (
    BrokerUnavailable,
    ClientError,
    ConnectionLost,
    NotKafka,
    UnsupportedVersion,
    kafka_error,
)
from pylog.connector.client.sasl import authenticate
from pylog.connector.client.tls import secured, tls_failure
from pylog.connector.client.transport import PlainTransport, TlsTransport, Transport

Request = TypeVar("Request")
Response = TypeVar("Response")

FRAME_BYTES_MAX = 256 << 20  # a TLS alert or HTTP read as a size is larger; Kafka's own limit for batches is smaller
_NEGOTIATED_FIRST = 3  # the first flexible ApiVersions: every broker of Kafka 2.4 and later knows it
_TLS_ALERT = b"\x15\x03"  # how a record of TLS begins that says what is wrong
_SESSION_PART = 0.9  # of the time that a broker lets an authentication hold


class Answer(NamedTuple):
    """A response's body, still encoded. Views of it stay valid for as long as they are held, unless whoever asked for
    it had it put where other answers go too."""

    api: str
    version: int
    body: memoryview


class _InFlight(NamedTuple):
    spec: Api
    version: int
    correlation_id: int


class Connection:
    def __init__(self, address: Address, config: ClientConfig) -> None:
        """Connects, learns the broker's versions and says who the client is. BrokerUnavailable, NotKafka, TlsFailed,
        AuthenticationFailed or ConnectionLost otherwise."""
        self.address = address
        self.idle_since = time.monotonic()
        self._config = config
        self._in_flight: deque[_InFlight] = deque()
        self._unsent: deque[memoryview] = deque()
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._is_known = False  # whether it has answered anything but what a stranger may ask
        self._session_ends: float | None = None
        self._transport: Transport | None = _connect(address, config)
        _open.add(self)
        self._negotiate()
        if config.has_sasl:
            self._authenticate()

    # What the broker speaks

    def _negotiate(self) -> None:
        for asked in (_NEGOTIATED_FIRST, 0):
            request = api_versions.ApiVersionsRequest("pylog", __version__)
            self.send_encoded(api_versions.SPEC, asked, [api_versions.SPEC.encode_request(request, asked)])
            try:
                body = self.receive().body
            except ConnectionLost as error:
                cause = f"{error.cause}, before its first answer (has its listener security.protocol={self._protocol}?)"
                raise ConnectionLost(error.address, cause) from None
            # A broker that does not know the version says so in the body of v0, whatever was asked.
            refused = body[:2] == I16.pack(ErrorCode.UNSUPPORTED_VERSION)
            if not refused or asked == 0:
                break
        try:
            answer = api_versions.SPEC.decode_response(body, asked)
        except MalformedFrame as error:
            raise self._not_kafka(str(error)) from None
        if answer.error_code:
            self.close()
            raise kafka_error(answer.error_code, f"asking {self.address} for its versions")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _authenticate(self) -> None:
        self._session_ends = None
        started = time.monotonic()
        try:
            lifetime_ms = authenticate(self, str(self.address), self._config)
        except ClientError:
            self.close()
            raise
        if lifetime_ms > 0:
            self._session_ends = started + lifetime_ms / 1000 * _SESSION_PART

    def renew(self) -> None:
        """Authenticate again now, if the next request would have to: who sends that cannot wait."""
        if self.is_session_over:
            self._authenticate()

    @property
    def _protocol(self) -> str:
        return self._config.security_protocol

    def version(self, spec: Api, *, by_id: bool = False) -> int:
        """The newest version both sides speak. Topics have names in it, unless they may be named `by_id`."""
        ours = spec.version_min, spec.version_max if by_id else spec.names_max
        theirs = self._versions.get(spec.key)
        if theirs is None or max(ours[0], theirs[0]) > min(ours[1], theirs[1]):
            raise UnsupportedVersion(str(self.address), spec.name, ours, theirs)
        return min(ours[1], theirs[1])

    # Requests and answers

    @property
    def in_flight_count(self) -> int:
        return len(self._in_flight)

    def call(self, spec: ApiSpec[Request, Response], request: Request) -> Response:
        """One request and its answer, with nothing else in flight."""
        assert not self._in_flight, "the next answer belongs to another request"
        self.send(spec, request)
        return self.decode(spec, self.receive())

    def send(self, spec: ApiSpec[Request, Response], request: Request) -> int:
        """Encode and send; returns the correlation id."""
        version = self.version(spec)
        return self.send_encoded(spec, version, [spec.encode_request(request, version)])

    def decode(self, spec: ApiSpec[Request, Response], answer: Answer) -> Response:
        try:
            return spec.decode_response(answer.body, answer.version)
        except MalformedFrame as error:
            raise self._not_kafka(f"its answer to {spec.name} v{answer.version} is malformed: {error}") from None

    def send_encoded(self, spec: Api, version: int, body: Sequence[Buffer], *, answered: bool = True) -> int:
        """Send a body that is already encoded: buffers to stand one behind the other, which are not copied."""
        head, correlation_id = self._head(spec, version, body)
        try:
            self._usable().send([head, *body], self._config.request_timeout_ms)
        except TimeoutError:
            raise self._lost(f"it took nothing more of a {spec.name} for request.timeout.ms") from None
        except OSError as error:
            raise self._failed(error) from None
        if answered:
            self._in_flight.append(_InFlight(spec, version, correlation_id))
        return correlation_id

    def _head(self, spec: Api, version: int, body: Sequence[Buffer]) -> tuple[bytearray, int]:
        """What stands before a body, and the correlation id in it."""
        if self.is_session_over and not self._in_flight:
            self._authenticate()  # again: the broker ends what is used for longer
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        flexible = spec.is_flexible(version)
        head = bytearray(framing.SIZE_BYTES)
        framing.write_request_header(head, spec.key, version, correlation_id, self._config.client_id, flexible=flexible)
        size = len(head) - framing.SIZE_BYTES + sum(map(len, body))
        I32.pack_into(head, 0, size)
        return head, correlation_id

    # Without waiting: requests are queued, and leave as the socket takes them

    def queue(self, spec: Api, version: int, body: Sequence[Buffer], *, answered: bool = True) -> None:
        """As `send_encoded`, but what the socket does not take now is left for `push`."""
        head, correlation_id = self._head(spec, version, body)
        self._unsent.extend(memoryview(part) for part in (head, *body) if len(part))
        self.idle_since = time.monotonic()
        if answered:
            self._in_flight.append(_InFlight(spec, version, correlation_id))
        self.push()

    def push(self) -> None:
        """Send what the socket takes; ConnectionLost if it takes nothing any more. Answers that have come may then
        still stand in it, for whoever asks `has_answer` before closing it."""
        try:
            self._usable().send_some(self._unsent)
        except ssl.SSLError as error:
            raise self._failed(error) from None
        except OSError as error:
            self._unsent.clear()
            raise ConnectionLost(str(self.address), str(error)) from None

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def fileno(self) -> int:
        return self._usable().fileno()

    def has_more(self) -> bool:
        """Whether an answer may stand here of which the socket does not tell."""
        return self._transport is not None and self._transport.has_more()

    def has_answer(self) -> bool:
        """Whether something of an answer is there to be received at once."""
        return bool(self._in_flight) and self._transport is not None and self._transport.is_readable()

    def receive(self, room: bytearray | None = None) -> Answer:
        """The answer to the oldest request in flight; ConnectionLost when it is not there in time.

        The time runs from now, not from the request: whoever pipelines may have been busy for long, and finds
        the answer in the socket's buffer. An answer that fits into `room` is put there: what was there is gone."""
        transport = self._usable()
        expected = self._in_flight[0]
        flexible = expected.spec.is_flexible(expected.version)
        deadline = time.monotonic() + self._config.request_timeout_ms / 1000
        try:
            head = bytearray(framing.SIZE_BYTES)
            transport.fill(memoryview(head), deadline)
            (size,) = I32.unpack(head)
            if not 4 <= size <= FRAME_BYTES_MAX:
                raise self._not_kafka(
                    "it answers in TLS" if head.startswith(_TLS_ALERT) else f"it announces an answer of {size} bytes"
                )
            if room is None or size > len(room):
                room = bytearray(size)  # zeroed first, which takes its time
            frame = memoryview(room)[:size]
            transport.fill(frame, deadline)
            correlation_id, position = framing.read_response_header(frame, expected.spec.key, flexible=flexible)
        except TimeoutError:
            raise self._lost(f"no answer to {expected.spec.name} within request.timeout.ms") from None
        except EOFError:
            raise self._lost("the broker closed it" + self._why_closed(expected.spec)) from None
        except OSError as error:
            raise self._failed(error) from None
        except MalformedFrame as error:
            raise self._not_kafka(str(error)) from None
        if correlation_id != expected.correlation_id:
            raise self._not_kafka(f"it answers request {correlation_id} where {expected.correlation_id} was asked")
        self._in_flight.popleft()
        self._is_known = self._is_known or expected.spec.key != api_versions.SPEC.key
        self.idle_since = time.monotonic()
        return Answer(expected.spec.name, expected.version, frame[position:])

    def _why_closed(self, asked: Api) -> str:
        if self._is_known or asked.key == api_versions.SPEC.key or self._config.has_sasl:
            return ""
        return ", with nothing answered but ApiVersions, as a listener with SASL does (is security.protocol right?)"

    # Its end

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def is_fit(self) -> bool:
        """Whether an idle connection can be used: open, not idle for too long, and nothing to read on it."""
        return self._transport is not None and not self.is_aged and self._transport.is_quiet()

    @property
    def is_aged(self) -> bool:
        """Whether it is idle for too long."""
        return (time.monotonic() - self.idle_since) * 1000 > self._config.connections_max_idle_ms

    @property
    def is_session_over(self) -> bool:
        """Whether the next request has to authenticate again first, and wait for that."""
        return self._session_ends is not None and time.monotonic() > self._session_ends

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        self._in_flight.clear()
        self._unsent.clear()

    def _usable(self) -> Transport:
        if self._transport is None:
            raise ConnectionLost(str(self.address), "it is closed")
        return self._transport

    def _failed(self, error: OSError) -> ClientError:
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            self.close()
            return tls_failure(error, self.address, self._config)
        return self._lost(str(error))

    def _lost(self, cause: str) -> ConnectionLost:
        self.close()
        return ConnectionLost(str(self.address), cause)

    def _not_kafka(self, cause: str) -> NotKafka:
        self.close()
        return NotKafka(str(self.address), cause)


_open: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def _forget_parents_connections() -> None:
    for connection in list(_open):
        connection.close()


# In the child, before anything else runs there: whoever holds a connection finds it closed and opens another.
os.register_at_fork(after_in_child=_forget_parents_connections)


def _connect(address: Address, config: ClientConfig) -> Transport:
    """To any of the addresses a name resolves to."""
    cause = "the name has no address"
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        found, cause = [], f"the name cannot be resolved ({error})"
    for family, kind, protocol, _, target in found:
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:  # no more files can be open, say
            cause = str(error)
            continue
        try:
            if config.send_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.send_buffer_bytes)
            if config.receive_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.receive_buffer_bytes)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(config.socket_connection_setup_timeout_ms / 1000)
            sock.connect(target)
        except TimeoutError:
            cause = "no connection within socket.connection.setup.timeout.ms"
        except OSError as error:
            cause = str(error)
        else:
            return _transport(sock, address, config)
        sock.close()
    raise BrokerUnavailable([(str(address), cause)])


def _transport(sock: socket.socket, address: Address, config: ClientConfig) -> Transport:
    if not config.has_tls:
        return PlainTransport(sock)
    try:
        return TlsTransport(secured(sock, address, config))
    except ClientError:
        sock.close()
        raise
