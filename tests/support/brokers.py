"""A broker without a socket, for as long as one piece of work takes."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pylog.broker_lite.broker import Broker
from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.machines.offsets import CommittedOffset
from pylog.broker_lite.protocol.offset_commit import OffsetCommitRequest
from pylog.storage.disk import DISK
from pylog.storage.ports import Clock, FileSystem

T = TypeVar("T")


def running(
    directories: Sequence[Path],
    work: Callable[[Broker], Awaitable[T]],
    *,
    crash: bool = False,
    config: Mapping[str, Any] | None = None,
    files: FileSystem = DISK,
    clock: Clock | None = None,
) -> T:
    """What `work(broker)` returns. The broker is closed cleanly or, as by kill -9, not at all; its upkeep runs only
    where the work asks for it."""

    async def main() -> T:
        broker = Broker(directories, BrokerConfig.parse(config or {}), files=files, clock=clock)
        broker.coordinator.loaded()
        try:
            return await work(broker)
        finally:
            await (broker._on_disk(abandon, broker) if crash else broker.close())

    return asyncio.run(main())


def commit(
    broker: Broker, group: str, commits: Mapping[tuple[str, int], CommittedOffset]
) -> asyncio.Future[None] | None:
    """By a consumer that is no member. What is returned, if anything, is done when it is on the disk."""
    coordinator = broker.coordinator
    return coordinator.settle(broker.groups.commit(OffsetCommitRequest(group_id=group), 8, commits, coordinator.now()))


@contextmanager
def busy_disk(broker: Broker) -> Iterator[threading.Event]:
    """The disk threads do nothing until the event is set, at the latest at the end."""
    free = threading.Event()
    broker._disk.submit(free.wait)
    for _ in range(broker.files.threads):
        broker._flushes._threads.submit(free.wait)
    try:
        yield free
    finally:
        free.set()


def abandon(broker: Broker) -> None:
    """The process is gone: its descriptors and its locks go with it, nothing is written any more."""
    for log in broker._logs._logs.values():
        log.abandon()
    for directory in broker._logs._homes.directories:
        directory.release()
