"""What a client that is not Kafka's seems to speak, for the one line that says why its connection was closed."""

_TLS_HANDSHAKE = b"\x16\x03"
_FIRST_WORDS = {
    b"GET ": "HTTP",
    b"POST": "HTTP",
    b"PUT ": "HTTP",
    b"HEAD": "HTTP",
    b"DELE": "HTTP",
    b"OPTI": "HTTP",
    b"PATC": "HTTP",
    b"CONN": "HTTP",
    b"PRI ": "HTTP/2",
    b"SSH-": "SSH",
}


def looks_like(first_bytes: bytes) -> str:
    """To be put behind what is wrong; nothing if these bytes look like nothing."""
    if first_bytes.startswith(_TLS_HANDSHAKE):
        return "; this looks like TLS, which this listener does not speak: use security.protocol=PLAINTEXT"
    spoken = _FIRST_WORDS.get(first_bytes[:4])
    return f"; this looks like {spoken}, and this port speaks Kafka's protocol" if spoken else ""
