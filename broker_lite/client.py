"""Who is at the other end of a connection, and what the broker remembers of its requests."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pylog.broker_lite.repeated_produce import RepeatedProduce


class Client:
    __slots__ = ("host", "paused_until", "repeated")

    def __init__(self, host: str) -> None:
        self.host = host  # as Kafka shows it: with a slash before the address
        self.paused_until = 0.0  # on the loop's clock: it used more than its quota
        self.repeated: RepeatedProduce | None = None  # what its next produce request will be like
