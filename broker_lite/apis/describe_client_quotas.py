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

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


def handle(broker: "Broker", message: DescribeClientQuotasRequest, request: Request) -> DescribeClientQuotasResponse:
    from pylog.broker_lite.client_quotas import check_filters, matches  # here: few brokers have quotas

    try:
        check_filters(message.components)
    except RequestError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            ClientQuotas(
                [QuotaEntityPart(*part) for part in entity], [QuotaValue(*one) for one in sorted(values.items())]
            )
            for entity, values in broker.topics.quotas.items()
            if matches(entity, message.components, strict=message.strict)
        ],
    )


API = declared(SPEC, handle)
