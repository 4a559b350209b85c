"""AlterConfigs, key 33. Older than IncrementalAlterConfigs: what is not named goes back to its default."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from pylog.broker_lite import config_changes, config_resources
from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, NOTHING_WRONG, RequestError, Told, error_of
from pylog.broker_lite.protocol.alter_configs import (
    SPEC,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.turns import Turn

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: AlterConfigsRequest, request: Request) -> AlterConfigsResponse:
    def change(resource: AlterConfigsResource) -> None:
        config_changes.check_count(resource.configs)
        given = [(one.name, one.value) for one in resource.configs]
        config_resources.change(
            broker,
            resource.resource_type,
            resource.resource_name,
            lambda present, _: config_changes.replaced(given, present),
            validate_only=message.validate_only,
        )

    return AlterConfigsResponse(responses=await changed_each(broker, message.resources, change))


class Resource(Protocol):
    resource_type: int
    resource_name: str


SomeResource = TypeVar("SomeResource", bound=Resource)


async def changed_each(
    broker: "Broker", resources: Sequence[SomeResource], change: Callable[[SomeResource], None]
) -> list[AlterConfigsResourceResponse]:
    """One that cannot be changed keeps no other back. All are answered when the changes are on the disk."""
    turn = Turn()
    times: Counter[tuple[int, str]] = Counter()
    for one in resources:
        times[one.resource_type, one.resource_name] += 1
        await turn.pause()
    errors: list[Told] = []
    for resource in resources:
        await turn.pause()
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, "A resource may be in a request once.")
            change(resource)
            errors.append(NOTHING_WRONG)
        except EXPECTED as error:
            errors.append(error_of(error))
    failure = NOTHING_WRONG
    try:
        await broker.catalogue.flushed()
    except EXPECTED as error:
        failure = error_of(error)
    responses = []
    for resource, refused in zip(resources, errors, strict=True):
        code, text = failure if refused is NOTHING_WRONG else refused
        responses.append(AlterConfigsResourceResponse(code, text, resource.resource_type, resource.resource_name))
        await turn.pause()
    return responses


API = declared(SPEC, handle)
