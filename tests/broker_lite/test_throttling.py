"""Who uses more than its quota is told how long that is too much, and its next request waits."""

import socket
import struct
import time

import pytest

from pylog.broker_lite.protocol import alter_client_quotas, api_versions, describe_client_quotas, fetch, produce
from pylog.broker_lite.protocol.alter_client_quotas import (
    AlterClientQuotasEntry,
    AlterClientQuotasRequest,
    QuotaChange,
    QuotaEntityPart,
)
from pylog.broker_lite.protocol.describe_client_quotas import (
    ANY,
    DEFAULT,
    EXACT,
    DescribeClientQuotasRequest,
    QuotaFilter,
)
from pylog.broker_lite.protocol.fetch import FetchPartition, FetchRequest
from pylog.broker_lite.protocol.framing import read_response_header, write_request_header
from pylog.broker_lite.protocol.produce import ProducePartition, ProduceRequest
from pylog.broker_lite.throttling import Meters
from tests.support.connected import serving
from tests.support.logs import batch_of
from tests.support.wire_requests import ask

WRITTEN, READ = "producer_byte_rate", "consumer_byte_rate"
ME, OTHER = "ANONYMOUS", "somebody"


def client(name):
    return (("client-id", name),)


def user(name):
    return (("user", name),)


def both(client_id, user_name):
    return (("client-id", client_id), ("user", user_name))


# -- how long


def test_ten_seconds_of_a_quota_may_be_used_at_once_and_no_more_than_comes_in_after_that():
    meters = Meters({client("c"): {WRITTEN: 100.0}})
    assert meters.pause_after(WRITTEN, "c", 1000, 50.0) == 0
    assert meters.pause_after(WRITTEN, "c", 100, 50.0) == pytest.approx(1)
    assert meters.pause_after(WRITTEN, "c", 100, 51.0) == pytest.approx(1)
    assert meters.pause_after(WRITTEN, "c", 100, 53.0) == 0
    assert meters.pause_after(WRITTEN, "c", 1001, 500.0) == pytest.approx(0.01)


def test_reads_and_writes_are_counted_apart():
    meters = Meters({client("c"): {WRITTEN: 1.0, READ: 1000.0}})
    assert meters.pause_after(WRITTEN, "c", 100, 0.0) > 0
    assert meters.pause_after(READ, "c", 100, 0.0) == 0


@pytest.mark.parametrize(
    ("quotas", "winner"),
    [
        pytest.param([both("c", ME), both(None, ME)], both("c", ME), id="the user with the client"),
        pytest.param([both(None, ME), user(ME)], both(None, ME), id="the user with any client"),
        pytest.param([user(ME), both("c", None)], user(ME), id="the user"),
        pytest.param([both("c", None), both(None, None)], both("c", None), id="any user with the client"),
        pytest.param([both(None, None), user(None)], both(None, None), id="any user with any client"),
        pytest.param([user(None), client("c")], user(None), id="any user"),
        pytest.param([client("c"), client(None)], client("c"), id="the client"),
        pytest.param([client(None), client("d"), user(OTHER), both("c", OTHER)], client(None), id="any client"),
        pytest.param([client("d"), user(OTHER), both("d", ME)], None, id="nobody's"),
    ],
)
def test_the_closest_quota_wins(quotas, winner):
    meters = Meters({entity: {WRITTEN: 1.0 if entity == winner else 1e12} for entity in quotas})
    assert (meters.pause_after(WRITTEN, "c", 1000, 0.0) > 0) == (winner is not None)


@pytest.mark.parametrize(
    ("entity", "is_shared"),
    [
        pytest.param(client(None), False, id="each client has its own"),
        pytest.param(both(None, ME), False, id="each client of the user"),
        pytest.param(user(ME), True, id="all clients of the user"),
        pytest.param(user(None), True, id="all clients of any user"),
    ],
)
def test_who_shares_a_quota(entity, is_shared):
    meters = Meters({entity: {WRITTEN: 1.0}})
    meters.pause_after(WRITTEN, "one", 10, 0.0)
    assert (meters.pause_after(WRITTEN, "two", 10, 0.0) > 0) == is_shared


# -- on a connection


class Connection:
    def __init__(self, servers, client_id):
        host, port = servers.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._client_id = client_id
        self.sent_bytes = 0

    def send(self, spec, body, version):
        frame = bytearray()
        write_request_header(frame, spec.key, version, 1, self._client_id, flexible=spec.is_flexible(version))
        frame += body
        self.sent_bytes += len(frame)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def ask(self, spec, body, version):
        self.send(spec, body, version)
        with self._socket.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4))
            answered = answers.read(size)
        return answered[read_response_header(answered, spec.key, flexible=spec.is_flexible(version))[1] :]

    def produce(self, version, acks=-1):
        """The throttle time of the answer, in milliseconds; None where none is wanted."""
        request = ProduceRequest(None, acks, 1000, [ProducePartition("t", 0, batch_of(5))])
        body = b"".join(produce.encode_request(request, version))
        if acks == 0:
            return self.send(produce.SPEC, body, version)
        answered = self.ask(produce.SPEC, body, version)
        (result,) = produce.decode_response(answered, version)
        assert result.error_code == 0
        end = len(answered) - produce.SPEC.is_flexible(version)
        return struct.unpack(">i", answered[end - 4 : end])[0]

    def fetch(self, version):
        request = FetchRequest(0, 1, 1, 0, 0, -1, [FetchPartition("t", 0, 0, 1)])
        answered = fetch.decode_response(self.ask(fetch.SPEC, fetch.encode_request(request, version), version), version)
        assert answered.partitions[0].records
        return answered.throttle_time_ms

    def wait_for_a_turn(self):
        """Seconds until any request is answered."""
        began = time.monotonic()
        self.ask(api_versions.SPEC, b"", 0)
        return time.monotonic() - began

    def close(self):
        self._socket.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving([tmp_path_factory.mktemp("data")]) as running:
        running.on_loop(lambda: running.broker.create_topic("t", 1))
        first = Connection(running.bootstrap_servers, "unbound")
        assert first.produce(9) == 0
        first.close()
        yield running


def alter(served, entity, *changes):
    entry = AlterClientQuotasEntry([QuotaEntityPart(*part) for part in entity], [QuotaChange(*one) for one in changes])
    (result,) = ask(served.bootstrap_servers, alter_client_quotas.SPEC, AlterClientQuotasRequest([entry])).entries
    assert result.error_code == 0, result.error_message


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_who_writes_too_much_is_told_and_waits(served, version):
    name = f"writer {version}"
    alter(served, client(name), (WRITTEN, 200.0))
    connection = Connection(served.bootstrap_servers, name)
    throttle_ms = 0
    while not throttle_ms:
        throttle_ms = connection.produce(version)
    assert connection.wait_for_a_turn() >= throttle_ms / 1000 - 0.05
    connection.close()
    other = Connection(served.bootstrap_servers, "unbound")
    assert other.produce(version) == 0
    other.close()


def test_who_wants_no_answer_waits_too(served):
    alter(served, client("deaf"), (WRITTEN, 200.0))
    connection = Connection(served.bootstrap_servers, "deaf")
    while connection.sent_bytes < 2200:
        connection.produce(9, acks=0)
    assert connection.wait_for_a_turn() >= 0.5
    connection.close()


@pytest.mark.parametrize("version", [4, 11, 12])
def test_who_reads_too_much_is_told_and_waits(served, version):
    name = f"reader {version}"
    alter(served, client(name), (READ, 200.0))
    connection = Connection(served.bootstrap_servers, name)
    throttle_ms = 0
    while not throttle_ms:
        throttle_ms = connection.fetch(version)
    assert connection.wait_for_a_turn() >= throttle_ms / 1000 - 0.05
    connection.close()


def test_a_quota_that_is_taken_away_is_gone(served):
    alter(served, client("free"), (WRITTEN, 1.0))
    alter(served, client("free"), (WRITTEN, 0.0, True))
    connection = Connection(served.bootstrap_servers, "free")
    assert [connection.produce(9) for _ in range(3)] == [0, 0, 0]
    connection.close()


# -- described


@pytest.mark.parametrize(
    ("filters", "strict", "found"),
    [
        pytest.param([("client-id", EXACT, "c")], False, [both("c", "u"), client("c")], id="a client, and its users"),
        pytest.param([("client-id", EXACT, "c")], True, [client("c")], id="a client alone"),
        pytest.param([("user", DEFAULT, None)], False, [user(None)], id="whoever has none"),
        pytest.param([("user", ANY, None)], True, [user("u"), user(None)], id="any user"),
        pytest.param([("user", ANY, None), ("client-id", ANY, None)], False, [both("c", "u")], id="both"),
        pytest.param([], True, [], id="of no type"),
        pytest.param([], False, [both("c", "u"), client("c"), user("u"), user(None)], id="all"),
    ],
)
def test_quotas_are_found_by_filters(tmp_path, filters, strict, found):
    with serving([tmp_path]) as served:
        for entity in (client("c"), both("c", "u"), user("u"), user(None)):
            alter(served, entity, (WRITTEN, 1e9))
        request = DescribeClientQuotasRequest([QuotaFilter(*one) for one in filters], strict)
        answered = ask(served.bootstrap_servers, describe_client_quotas.SPEC, request)
    assert answered.error_code == 0
    entities = [tuple((part.entity_type, part.entity_name) for part in one.entity) for one in answered.entries]
    assert sorted(map(str, entities)) == sorted(map(str, found))
    assert all([(value.key, value.value) for value in one.values] == [(WRITTEN, 1e9)] for one in answered.entries)
