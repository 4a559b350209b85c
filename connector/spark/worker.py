"""The Python process that Spark runs tasks in, one after another, with a full garbage collection between them.

Numba and the compiled kernels bring some hundred thousand objects that live as long as the process. Looking through
them took most of a worker's time in a stream of small micro-batches: longer than the tasks themselves.
"""

import ctypes
import gc
import os
import sys
from collections import Counter

FREE_BYTES_MAX = 64 << 20
_MMAP_BYTES = 32 << 20  # the most that every glibc takes
_GLIBC_SETTINGS = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h

_SETTLINGS = 2  # PySpark imports pandas, if it is there, behind the first task of a sink
_settled: Counter[str] = Counter()


def settle(kind: str) -> None:
    """At the end of the first tasks of a kind: what is there by now is no longer looked through."""
    if _settled[kind] < _SETTLINGS:
        _settled[kind] += 1
        gc.collect()
        gc.freeze()


def keep_freed_memory() -> None:
    """A sink's task has megabytes come and go with each Arrow batch. Left to itself glibc gives them back to the system
    each time and asks for them anew: half of what the thread that encodes took was the kernel's, for pages. Now up to
    `FREE_BYTES_MAX` stay with the process. Nothing is changed where there is no glibc, or where its own variables say
    what it keeps."""
    if sys.platform == "linux" and not _GLIBC_SETTINGS & os.environ.keys():
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
            mallopt(_M_TRIM_THRESHOLD, FREE_BYTES_MAX)
