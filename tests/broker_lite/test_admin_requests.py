"""What admin clients ask for, and the codes they get. tests/kafka asks a real Kafka the same."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog.broker_lite.api_table import API_BY_KEY
from pylog.broker_lite.broker import Broker
from pylog.broker_lite.config import BrokerConfig
from tests.support.admin_requests import CASES, Case, make_there
from tests.support.broker_requests import ask
from tests.support.cluster_requests import CLUSTER_CASES


class Asked:
    """One broker for all cases: none of them changes anything."""

    def __init__(self, directory: Path) -> None:
        self._runner = asyncio.Runner()
        self.broker = self._runner.run(self._start(directory))
        self(*make_there())

    async def _start(self, directory: Path) -> Broker:
        return Broker([directory], BrokerConfig.parse({}))

    def __call__(self, spec, request, version):
        version = spec.version_max if version is None else version
        return self._runner.run(ask(self.broker, API_BY_KEY[spec.key], request, version))

    def close(self) -> None:
        self._runner.run(self.broker.close())
        self._runner.close()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    asked = Asked(tmp_path_factory.mktemp("data"))
    yield asked
    asked.close()


@pytest.mark.parametrize("case", CASES + CLUSTER_CASES, ids=lambda case: case.id)
def test_every_request_gets_its_codes(asked: Asked, case: Case) -> None:
    before = asked.broker.catalogue.log.log_end_offset
    assert case.answered(asked) == case.codes
    assert asked.broker.catalogue.log.log_end_offset == before


def test_every_case_has_a_name_of_its_own() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
