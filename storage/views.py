"""What retention and compaction decide on."""

from typing import NamedTuple


class SegmentView(NamedTuple):
    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp_ms: int  # when it was last written to, where its batches have no timestamps
