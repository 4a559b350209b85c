"""The Python process that Spark runs tasks in, one after another, with a full garbage collection between them.

Numba and the compiled kernels bring some hundred thousand objects that live as long as the process. Looking through
them took most of a worker's time in a stream of small micro-batches: longer than the tasks themselves.
"""

import gc

_settled = False


def settle() -> None:
    """At the end of the first task that used the kernels: what is there by now is no longer looked through."""
    global _settled
    if not _settled:
        _settled = True
        gc.collect()
        gc.freeze()
