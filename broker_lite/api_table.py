"""All that the broker can do, by API key. ApiVersions answers from this table."""

from pylog.broker_lite.api import Api
from pylog.broker_lite.apis import (
    api_versions,
    create_topics,
    delete_topics,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)


def _table(*apis: Api) -> dict[int, Api]:
    table: dict[int, Api] = {}
    for api in apis:
        if api.spec.key in table:
            raise ValueError(f"API {api.spec.key} is there twice")
        table[api.spec.key] = api
    return table


API_BY_KEY = _table(
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    offset_commit.API,
    offset_fetch.API,
    find_coordinator.API,
    api_versions.API,
    create_topics.API,
    delete_topics.API,
    init_producer_id.API,
)
