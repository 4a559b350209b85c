"""DescribeClientQuotas, key 48. Those that are kept; of users, too, whom nobody can be yet."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.protocol.alter_client_quotas import QuotaEntityPart
from pylog.broker_lite.protocol.describe_client_quotas import (
    SPEC,
    ClientQuotas,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaValue,
)
from pylog.broker_lite.turns import Steps

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(
    broker: "Broker", message: DescribeClientQuotasRequest, request: Request
) -> Steps[DescribeClientQuotasResponse]:
    from pylog.broker_lite.client_quotas import check_filters, matches  # here: few brokers have quotas

    try:
        check_filters(message.components)
    except RequestError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = []
    for entity, values in list(broker.topics.quotas.items()):  # which others may change between two turns
        if matches(entity, message.components, strict=message.strict):
            parts = [QuotaEntityPart(*part) for part in entity]
            entries.append(ClientQuotas(parts, [QuotaValue(*one) for one in sorted(values.items())]))
        yield
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


API = declared(SPEC, handle)
