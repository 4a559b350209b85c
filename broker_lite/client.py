"""Who is at the other end of a connection, and what the broker remembers of its requests."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pylog.broker_lite.repeated_produce import RepeatedProduce


class Client:
    __slots__ = ("host", "repeated")

    def __init__(self, host: str) -> None:
        self.host = host  # as Kafka shows it: with a slash before the address
        self.repeated: RepeatedProduce | None = None  # what its next produce request will be like
