"""The records of many batches at once: numba over raw memory. Import a module of it only when records are handled.

Everything here works on *extents*: two arrays, where a field's bytes begin (an address) and how many there are
(-1 for null). Decoding finds extents in batches and copies them into columns; encoding takes them from columns
and copies them into batches. `pylog.storage.records` and `plain` are the slow, obvious twins.
"""
