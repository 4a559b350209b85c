"""Ports that a server keeps over its restarts."""

import contextlib
import random
import socket

# Below those that systems give to clients by default (Linux from 32768, others from 49152): while a server is down, no
# client's end of a connection takes its port, and none that tries to reach it there meets itself.
_FROM, _TO = 15_000, 32_000
_TRIES = 1_000


def free_ports(count: int) -> list[int]:
    """Different ones, which nobody has now."""
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        for port in random.sample(range(_FROM, _TO), _TRIES):
            if len(ports) == count:
                return ports
            candidate = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                candidate.bind(("127.0.0.1", port))
                ports.append(port)
    raise OSError(f"no {count} free ports between {_FROM} and {_TO}")
