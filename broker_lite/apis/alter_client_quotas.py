"""AlterClientQuotas, key 49. Each entity is changed as a whole, or not at all."""

from collections import Counter
from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, NOTHING_WRONG, RequestError, Told, error_of
from pylog.broker_lite.protocol.alter_client_quotas import (
    SPEC,
    AlterClientQuotasEntry,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResult,
)
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.turns import Turn

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

Name = tuple[tuple[str, str | None], ...]


async def handle(broker: "Broker", message: AlterClientQuotasRequest, request: Request) -> AlterClientQuotasResponse:
    """One that cannot be changed keeps no other back. All are answered when the changes are on the disk."""
    by_name: dict[Name, AlterClientQuotasEntry] = {}
    times: Counter[Name] = Counter()
    turn = Turn()
    for entry in message.entries:
        by_name[_name(entry)] = entry
        times[_name(entry)] += 1
        await turn.pause()
    errors: dict[Name, Told] = {}
    for name, entry in by_name.items():
        await turn.pause()
        try:
            if times[name] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, "An entity may be in a request once.")
            _change(broker, entry, validate_only=message.validate_only)
            errors[name] = NOTHING_WRONG
        except EXPECTED as error:
            errors[name] = error_of(error)
    try:
        await broker.catalogue.flushed()
    except EXPECTED as error:
        failure = error_of(error)
        errors = {name: failure if wrong is NOTHING_WRONG else wrong for name, wrong in errors.items()}
    return AlterClientQuotasResponse(
        entries=[AlterClientQuotasResult(*told, by_name[name].entity) for name, told in errors.items()]
    )


def _name(entry: AlterClientQuotasEntry) -> Name:
    return tuple((part.entity_type, part.entity_name) for part in entry.entity)


def _change(broker: "Broker", entry: AlterClientQuotasEntry, *, validate_only: bool) -> None:
    from pylog.broker_lite.client_quotas import changes_of, entity_of  # here: few brokers have quotas

    events = broker.topics.set_quotas(entity_of(entry.entity), changes_of(entry.ops)).events
    if not validate_only:
        broker.catalogue.change(events)


API = declared(SPEC, handle)
