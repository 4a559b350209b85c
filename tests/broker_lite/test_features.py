"""Clients are told of the features that are there, and of no other: they would use them."""

import pytest

from pylog.broker_lite.apis import api_versions
from pylog.broker_lite.protocol.api_versions import ApiVersionsRequest
from tests.support.broker_requests import ask
from tests.support.brokers import running


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        pytest.param(
            4,
            {"metadata.version": 30, "kraft.version": 0, "group.version": 0, "transaction.version": 0},
            id="levels from 0 on",
        ),
        pytest.param(3, {"metadata.version": 30}, id="a client that takes level 0 for nonsense"),
    ],
)
def test_a_client_is_promised_what_is_there(tmp_path, version, supported):
    async def look(broker):
        return await ask(broker, api_versions.API, ApiVersionsRequest("client", "1"), version)

    answered = running([tmp_path], look)
    assert {one.name: one.max_version for one in answered.supported_features} == supported
    assert all(one.min_version == one.max_version for one in answered.supported_features)
    finalized = [(one.name, one.min_version_level, one.max_version_level) for one in answered.finalized_features]
    assert finalized == [("metadata.version", 30, 30)]
    assert answered.finalized_features_epoch >= 0
