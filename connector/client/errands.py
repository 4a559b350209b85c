"""What has to wait for a broker that may never answer, each in a thread of its own: nobody else waits with it.

The thread that sends gives them out and takes them back, so that what follows from one happens there alone."""

import threading
from collections import deque
from collections.abc import Callable, Hashable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from pylog.connector.client.errors import ClientError

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T | None:
    """What `work` returns or raises; None when it takes longer, and it then goes on for nobody."""
    done: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except BaseException as error:
            done.put((None, error))

    try:
        threading.Thread(target=run, name="pylog-producer-errand", daemon=True).start()
    except RuntimeError:  # no thread can be had, as while Python ends
        return work()
    try:
        result, error = done.get(timeout=max(0.0, min(seconds, threading.TIMEOUT_MAX)))
    except Empty:
        return None
    if error is not None:
        raise error
    return result


class Errands:
    def __init__(self, ring: Callable[[], None], discard: Callable[[Any], None]) -> None:
        self._ring = ring  # one has come back
        self._discard = discard  # what comes back when nobody waits any more
        self._lock = threading.Lock()
        self._has_ended = False
        self._out: set[Hashable] = set()
        self._back: deque[tuple[Hashable, Callable[[Any], None], Any]] = deque()

    def give(self, name: Hashable, work: Callable[[], T], done: Callable[[T | ClientError], None]) -> None:
        assert name not in self._out
        self._out.add(name)
        arguments = name, work, done
        try:
            threading.Thread(target=self._run, args=arguments, name="pylog-producer-errand", daemon=True).start()
        except RuntimeError:  # no thread can be had, as while Python ends: then whoever gives it out waits with it
            self._run(*arguments)

    def is_out(self, name: Hashable) -> bool:
        return name in self._out

    def _run(self, name: Hashable, work: Callable[[], T], done: Callable[[T | ClientError], None]) -> None:
        result: Any
        try:
            result = work()
        except BaseException as error:  # another than ClientError is a fault of ours, for the thread that sends to tell
            result = error
        with self._lock:
            if not self._has_ended:
                self._back.append((name, done, result))
                self._ring()
                return
        self._discard(result)

    def take_back(self) -> None:
        """Goes on, in this thread, with those that are done."""
        while self._back:
            name, done, result = self._back.popleft()
            self._out.discard(name)
            if isinstance(result, BaseException) and not isinstance(result, ClientError):
                raise result
            done(result)

    def end(self) -> None:
        """Those that are out are not waited for."""
        with self._lock:
            self._has_ended = True
        while self._back:
            self._discard(self._back.popleft()[2])
