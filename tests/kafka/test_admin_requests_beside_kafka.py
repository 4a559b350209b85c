"""The same requests of admin clients to a real Kafka: the codes that ours gives are Kafka's."""

import pytest

from tests.conftest import RunningBroker
from tests.support.admin_requests import CASES, Case, make_there
from tests.support.cluster_requests import CLUSTER_CASES
from tests.support.wire_requests import ask


@pytest.fixture(scope="module")
def servers(broker: RunningBroker) -> str:
    spec, request, version = make_there()
    ask(broker.bootstrap_servers, spec, request, version)
    return broker.bootstrap_servers


@pytest.mark.parametrize("case", CASES + CLUSTER_CASES, ids=lambda case: case.id)
def test_kafka_gives_the_same_codes(servers: str, case: Case) -> None:
    expected = case.codes if case.kafkas is None else case.kafkas
    assert case.answered(lambda spec, request, version: ask(servers, spec, request, version)) == expected
