"""The idle connections of a process, by address.

Lent to one borrower at a time. One that comes back broken, or with answers still owed to it, is closed
instead of kept. No locks: taking from and adding to a deque are atomic, so nothing here can be left
locked in a forked child, which finds every inherited connection closed.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from pylog.connector.client.config import Address, ClientConfig
from pylog.connector.client.connection import Connection

IDLE_PER_ADDRESS_MAX = 8


class ConnectionPool:
    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._idle: dict[Address, deque[Connection]] = {}

    @contextmanager
    def lend(self, address: Address) -> Iterator[Connection]:
        connection = self.take(address)
        try:
            yield connection
        finally:
            self.give(connection)

    def take(self, address: Address) -> Connection:
        """An idle connection or a new one; to be given back."""
        idle = self._idle.get(address)
        while idle:
            try:
                connection = idle.pop()
            except IndexError:  # another thread was quicker
                break
            if connection.is_fit():
                return connection
            connection.close()
        return Connection(address, self._config)

    def give(self, connection: Connection) -> None:
        idle = self._idle.setdefault(connection.address, deque())
        if connection.is_open and not connection.in_flight_count and len(idle) < IDLE_PER_ADDRESS_MAX:
            idle.append(connection)
        else:
            connection.close()

    def has_idle(self, address: Address) -> bool:
        return bool(self._idle.get(address))

    def close(self) -> None:
        for idle in self._idle.values():
            while idle:
                idle.pop().close()
