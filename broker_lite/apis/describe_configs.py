"""DescribeConfigs, key 32. v1: sources and synonyms. v3: types and documentation."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pylog.broker_lite import config_view, logger_levels
from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.config_resources import BROKER, GROUP, LOGGER, TOPIC, check_group, check_node, unknown_kind
from pylog.broker_lite.config_view import Option, Source
from pylog.broker_lite.errors import EXPECTED, RequestError, error_of
from pylog.broker_lite.machines.topics import check_name
from pylog.broker_lite.protocol.describe_configs import (
    SPEC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.turns import Turn

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: DescribeConfigsRequest, request: Request) -> DescribeConfigsResponse:
    """A resource that is named again is described once: the answer is no longer than what there is to say."""
    turn = Turn()
    unique = {}
    for asked in message.resources:
        unique[asked.resource_type, asked.resource_name, tuple(asked.configuration_keys or ())] = asked
        await turn.pause()
    results = []
    for asked in unique.values():
        results.append(_result(broker, asked, message))
        await turn.pause()
    return DescribeConfigsResponse(results=results)


def _result(broker: "Broker", asked: DescribeConfigsResource, message: DescribeConfigsRequest) -> DescribeConfigsResult:
    code, text, configs = ErrorCode.NONE, "", []
    try:
        configs = _configs(broker, asked, message)
    except EXPECTED as error:
        code, text = error_of(error)
    if asked.configuration_keys:  # none are all, as with Kafka
        wanted = set(asked.configuration_keys)
        configs = [one for one in configs if one.name in wanted]
    return DescribeConfigsResult(code, text, asked.resource_type, asked.resource_name, configs)


def _configs(
    broker: "Broker", asked: DescribeConfigsResource, message: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    kind, name = asked.resource_type, asked.resource_name
    if kind == LOGGER:
        check_node(broker, name, all_brokers=False)
        return [
            DescribeConfigsResourceResult(logger, level, config_source=Source.LOGGER, documentation="")
            for logger, level in logger_levels.levels().items()
        ]
    return [_shown(option, message) for option in _options(broker, kind, name)]


def _options(broker: "Broker", kind: int, name: str) -> Iterable[Option]:
    config = broker.config
    if kind == TOPIC:
        check_name(name)
        topic = broker.topics.by_name.get(name)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
        return config_view.topic_options(config, broker.catalogue.overrides(topic))
    if kind == BROKER:
        check_node(broker, name, all_brokers=True)
        return config_view.broker_options(config) if name else config_view.options_of_all_brokers(config)
    if kind == GROUP:
        check_group(name)
        return config_view.group_options(broker.topics.group_overrides.get(name, {}))
    raise unknown_kind(kind)


def _shown(option: Option, message: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = option.synonyms if message.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=option.row.name,
        value=option.value,
        read_only=option.read_only,
        config_source=option.source,
        synonyms=[DescribeConfigsSynonym(*synonym) for synonym in synonyms],
        config_type=option.row.kind,
        documentation=option.row.doc if message.include_documentation else None,
    )


API = declared(SPEC, handle)
