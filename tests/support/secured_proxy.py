"""A listener with TLS and SASL before a broker that has neither: what is authenticated is passed on to it.

It does what Kafka's listeners do: ApiVersions is answered to anybody, then SaslHandshake and SaslAuthenticate, then
everything; what comes too early ends the connection. One request at a time, and acks=0 is not for it."""

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pylog.broker_lite.protocol import api_versions, framing, sasl_authenticate, sasl_handshake, wire
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.spec import ApiSpec
from tests.support.sasl_servers import Refused, Serving


class SecuredProxy:
    """`with SecuredProxy(...) as proxy: proxy.bootstrap_servers`, before the broker that `target` is the port of."""

    def __init__(
        self,
        target: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        mechanisms: Mapping[str, Callable[[], Serving]] | None = None,
        session_lifetime_ms: int = 0,
    ) -> None:
        self.target = target
        self._tls = tls
        self._mechanisms = mechanisms
        self._session_lifetime_ms = session_lifetime_ms
        self.connections_count = 0
        self.authentications: list[str] = []  # the mechanisms of those that succeeded
        self.ciphers: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "SecuredProxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections_count += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            secured = client
            if self._tls is not None:
                secured = self._tls.wrap_socket(client, server_side=True)
                self.ciphers.append((secured.cipher() or ("none",))[0])
            with secured, socket.create_connection(("127.0.0.1", self.target)) as broker:
                _Session(secured, broker, self).run()
        client.close()


class _Session:
    def __init__(self, client: socket.socket, broker: socket.socket, proxy: SecuredProxy) -> None:
        self._client = client
        self._broker = broker
        self._proxy = proxy
        self._mechanism = ""
        self._serving: Serving | None = None
        self._authenticated_until = float("inf") if proxy._mechanisms is None else 0.0

    def run(self) -> None:
        while True:
            frame = _read_frame(self._client)
            api, version = struct.unpack_from(">hh", frame)
            if api == api_versions.SPEC.key:
                self._answer_versions(frame, version)
            elif api == sasl_handshake.SPEC.key:
                self._shake_hands(frame, version)
            elif api == sasl_authenticate.SPEC.key:
                if not self._authenticate(frame, version):
                    return
            elif time.monotonic() < self._authenticated_until:
                _send(self._client, self._asked(frame))
            else:
                return

    def _asked(self, frame: bytes) -> bytes:
        _send(self._broker, frame)
        return _read_frame(self._broker)

    def _answer_versions(self, frame: bytes, version: int) -> None:
        told = self._asked(frame)
        answer = api_versions.SPEC.decode_response(told[4:], version)
        if self._proxy._mechanisms is not None:
            ours = (sasl_handshake.SPEC, sasl_authenticate.SPEC)
            answer.api_keys += [api_versions.ApiVersion(one.key, one.version_min, one.version_max) for one in ours]
        _send(self._client, told[:4] + api_versions.SPEC.encode_response(answer, version))

    def _shake_hands(self, frame: bytes, version: int) -> None:
        request = _decoded(sasl_handshake.SPEC, frame, version)
        code = ErrorCode.NONE
        mechanisms = self._proxy._mechanisms
        if mechanisms is None:
            code = ErrorCode.ILLEGAL_SASL_STATE
        elif request.mechanism not in mechanisms:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        else:
            self._mechanism = request.mechanism
            self._serving = mechanisms[request.mechanism]()
            next(self._serving)
        answer = sasl_handshake.SaslHandshakeResponse(code, list(mechanisms or ()))
        self._answer(sasl_handshake.SPEC, frame, version, answer)

    def _authenticate(self, frame: bytes, version: int) -> bool:
        assert self._serving is not None
        request = _decoded(sasl_authenticate.SPEC, frame, version)
        answer = sasl_authenticate.SaslAuthenticateResponse()
        try:
            answer.auth_bytes = self._serving.send(request.auth_bytes)
        except Refused as refused:
            answer.error_code, answer.error_message = ErrorCode.SASL_AUTHENTICATION_FAILED, str(refused)
        except StopIteration:
            raise AssertionError("the client goes on after the end") from None
        else:
            # Our mechanisms end with what they yield last: an empty message, or SCRAM's verdict.
            if not answer.auth_bytes or answer.auth_bytes.startswith(b"v="):
                lifetime_ms = self._proxy._session_lifetime_ms
                self._authenticated_until = time.monotonic() + lifetime_ms / 1000 if lifetime_ms else float("inf")
                answer.session_lifetime_ms = lifetime_ms
                self._proxy.authentications.append(self._mechanism)
        self._answer(sasl_authenticate.SPEC, frame, version, answer)
        return not answer.error_code

    def _answer(self, spec: ApiSpec[Any, Any], frame: bytes, version: int, answer: Any) -> None:
        head = bytearray()
        correlation_id = framing.read_request_header(frame).correlation_id
        framing.write_response_header(head, spec.key, correlation_id, flexible=spec.is_flexible(version))
        _send(self._client, bytes(head + spec.encode_response(answer, version)))


def _decoded(spec: ApiSpec[Any, Any], frame: bytes, version: int) -> Any:
    start = framing.read_request_header(frame).body_start
    return spec.decode_request(frame[wire.skip_tags(frame, start) if spec.is_flexible(version) else start :], version)


def _send(peer: socket.socket, frame: bytes) -> None:
    peer.sendall(struct.pack(">i", len(frame)) + frame)


def _read_frame(peer: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _read(peer, 4))
    if not 0 < size <= 100 << 20:
        raise EOFError  # what speaks there is not Kafka's protocol
    return _read(peer, size)


def _read(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
