"""InitProducerId, key 22. Ids for idempotent producers; transactions are not there yet."""

from typing import TYPE_CHECKING

from pylog.broker_lite.api import Request, declared
from pylog.broker_lite.errors import EXPECTED, error_of
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.init_producer_id import SPEC, InitProducerIdRequest, InitProducerIdResponse
from pylog.storage.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker


async def handle(broker: "Broker", message: InitProducerIdRequest, request: Request) -> InitProducerIdResponse:
    half_known = (message.producer_id == NO_PRODUCER_ID) != (message.producer_epoch == NO_PRODUCER_EPOCH)
    if message.transactional_id is not None or half_known:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await broker.new_producer_id()
    except EXPECTED as error:
        return InitProducerIdResponse(error_code=error_of(error)[0])
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


API = declared(SPEC, handle)
