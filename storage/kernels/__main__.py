"""`python -m pylog.storage.kernels` compiles the kernels into this user's cache, so that nobody waits for it later."""

from pylog.storage.kernels import aborted, check, compact, decode, encode, offset_map, partition  # noqa: F401
