"""Waiting for a disk that the loop must not wait for. Each read has a thread of its own, up to a few at a time, so that
neither a sync nor a slow disk of somebody else's log is in its way."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_THREADS = 4  # more would read no faster from one disk, and take turns with the loop

_readers = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="cold-read")


def waited(wait: Callable[..., T], *args: object) -> "asyncio.Future[T]":
    return asyncio.get_running_loop().run_in_executor(_readers, wait, *args)
