from typing import Any

import pytest
from kafka.protocol.consumer import HeartbeatRequest, HeartbeatResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

from pylog.broker_lite.protocol import framing, wire
from pylog.broker_lite.protocol.wire import MalformedFrame

REQUESTS = [
    (MetadataRequest, 8, False),
    (MetadataRequest, 12, True),
    (ApiVersionsRequest, 3, True),
    (HeartbeatRequest, 0, False),
]
RESPONSES = [
    (MetadataResponse, 8, False),
    (MetadataResponse, 12, True),
    (ApiVersionsResponse, 3, True),
    (HeartbeatResponse, 4, True),
]


@pytest.mark.parametrize("client_id", [None, "", "größe"])
@pytest.mark.parametrize(("theirs", "version", "flexible"), REQUESTS)
def test_request_headers_are_those_of_kafka_python(
    theirs: Any, version: int, flexible: bool, client_id: str | None
) -> None:
    request = theirs(version=version)
    request.with_header(correlation_id=77, client_id=client_id)
    expected = bytes(request.encode_header(flexible=flexible))
    out = bytearray()
    framing.write_request_header(out, theirs.API_KEY, version, 77, client_id, flexible=flexible)
    assert bytes(out) == expected
    header = framing.read_request_header(expected)
    assert header[:4] == (theirs.API_KEY, version, 77, client_id)
    body_start = wire.skip_tags(expected, header.body_start) if flexible else header.body_start
    assert body_start == len(expected)


@pytest.mark.parametrize(("theirs", "version", "flexible"), RESPONSES)
def test_response_headers_are_those_of_kafka_python(theirs: Any, version: int, flexible: bool) -> None:
    response = theirs(version=version)
    response.with_header(correlation_id=-5)
    expected = bytes(response.encode_header(flexible=flexible))
    out = bytearray()
    framing.write_response_header(out, theirs.API_KEY, -5, flexible=flexible)
    assert bytes(out) == expected
    assert framing.read_response_header(expected, theirs.API_KEY, flexible=flexible) == (-5, len(expected))


def test_the_header_of_an_api_versions_response_never_has_tags() -> None:
    out = bytearray()
    framing.write_response_header(out, framing.API_VERSIONS_KEY, 1, flexible=True)
    assert len(out) == 4


def test_headers_that_are_not_whole_are_malformed() -> None:
    out = bytearray()
    framing.write_request_header(out, 3, 12, 1, "client", flexible=False)
    for end in range(len(out)):
        with pytest.raises(MalformedFrame):
            framing.read_request_header(out[:end])
    for end in range(5):
        with pytest.raises(MalformedFrame):
            framing.read_response_header(bytes(end), 3, flexible=True)


@pytest.mark.parametrize(
    ("read", "data"),
    [
        pytest.param(wire.read_uvarint, "ffffffffff7f", id="a varint of six bytes"),
        pytest.param(wire.read_uvarint, "80", id="a varint that does not end"),
        pytest.param(wire.read_string, "fffe", id="a string of -2 bytes"),
        pytest.param(wire.read_string, "000261", id="a string longer than its frame"),
        pytest.param(wire.read_string, "0001ff", id="a string that is not UTF-8"),
        pytest.param(wire.read_compact_string, "0361", id="a compact string longer than its frame"),
        pytest.param(wire.read_bytes, "7fffffff00", id="two gigabytes of nothing"),
        pytest.param(wire.read_compact_bytes, "ffffffff0f00", id="four gigabytes of nothing"),
        pytest.param(wire.read_count, "7fffffff", id="two billion elements of nothing"),
        pytest.param(wire.read_count, "fffffffe", id="-2 elements"),
        pytest.param(wire.read_compact_count, "ffffffff0f", id="four billion elements of nothing"),
        pytest.param(wire.read_uuid, "00" * 15, id="fifteen bytes of a UUID"),
        pytest.param(lambda data, start: (None, wire.skip_tags(data, start)), "01630100"[:6], id="a tag of nothing"),
        pytest.param(lambda data, start: (None, wire.skip_tags(data, start)), "ffffffff0f", id="four billion tags"),
    ],
)
def test_a_primitive_that_lies_is_malformed(read: Any, data: str) -> None:
    with pytest.raises(MalformedFrame):
        read(bytes.fromhex(data), 0)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16_383, 16_384, (1 << 32) - 1])
def test_varints_survive(value: int) -> None:
    out = bytearray()
    wire.write_uvarint(out, value)
    assert wire.read_uvarint(out, 0) == (value, len(out))
