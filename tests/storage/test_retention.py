"""Which records have had their time: rows for the rule, and a slow twin that drops one segment after the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.storage.log_config import LogConfig
from pylog.storage.retention import start_after_retention
from pylog.storage.views import SegmentView

NOW_MS = 1_000_000


def _segments(*rows: tuple[int, int, int]) -> list[SegmentView]:
    """(records, bytes, age of the latest in ms) of each."""
    segments: list[SegmentView] = []
    base = 100
    for records, size_bytes, age_ms in rows:
        segments.append(SegmentView(base, base + records, size_bytes, NOW_MS - age_ms))
        base += records
    return segments


BY_TIME = LogConfig(retention_ms=1000)
BY_SIZE = LogConfig(retention_ms=-1, retention_bytes=500)
BOTH = LogConfig(retention_ms=1000, retention_bytes=500)
OLD, YOUNG = 1001, 1000


@pytest.mark.parametrize(
    ("config", "segments", "high_watermark", "start"),
    [
        # by time
        pytest.param(BY_TIME, [(10, 99, YOUNG), (10, 99, 0)], 120, None, id="exactly as old as allowed stays"),
        pytest.param(BY_TIME, [(10, 99, OLD), (10, 99, 0)], 120, 110, id="a millisecond older goes"),
        pytest.param(BY_TIME, [(10, 99, 0), (10, 99, OLD), (5, 9, 0)], 125, None, id="not behind one that stays"),
        pytest.param(BY_TIME, [(10, 99, OLD), (10, 99, OLD)], 120, 120, id="the active one goes too"),
        pytest.param(BY_TIME, [(10, 99, OLD), (0, 0, OLD)], 110, 110, id="an empty one stays"),
        pytest.param(BY_TIME, [(0, 0, OLD)], 100, None, id="an empty log stays"),
        pytest.param(BY_TIME, [(10, 99, OLD), (10, 99, OLD)], 119, 110, id="what is not committed stays"),
        pytest.param(BY_TIME, [(10, 99, -5000)], 110, None, id="a time in the future stays"),
        pytest.param(LogConfig(retention_ms=0), [(10, 99, 1), (10, 99, 0)], 120, 110, id="no time at all"),
        pytest.param(LogConfig(retention_ms=-1), [(10, 99, 10**6)], 110, None, id="for ever"),
        # by size
        pytest.param(BY_SIZE, [(10, 100, OLD), (10, 400, 0)], 120, None, id="exactly as large as allowed stays"),
        pytest.param(BY_SIZE, [(10, 100, 0), (10, 500, 0)], 120, 110, id="large enough without it goes"),
        pytest.param(BY_SIZE, [(10, 101, 0), (10, 499, 0)], 120, None, id="too small without it stays"),
        pytest.param(BY_SIZE, [(1, 200, 0), (1, 200, 0), (1, 200, 0), (1, 400, 0)], 104, 102, id="as many as it takes"),
        pytest.param(BY_SIZE, [(10, 9000, 0)], 110, None, id="one that is too large alone stays"),
        pytest.param(
            LogConfig(retention_bytes=0, retention_ms=-1), [(10, 99, 0), (10, 99, 0)], 120, 120, id="no size at all"
        ),
        pytest.param(BY_SIZE, [(10, 100, 0), (10, 500, 0)], 105, None, id="large, but not committed"),
        # both
        pytest.param(
            BOTH, [(10, 9, OLD), (10, 100, 0), (10, 500, 0)], 130, 120, id="one for its age, one for its size"
        ),
        # policy
        pytest.param(LogConfig(delete=False, compact=True, retention_ms=0), [(10, 99, OLD)], 110, None, id="compact"),
        pytest.param(
            LogConfig(delete=True, compact=True, retention_ms=1000),
            [(10, 99, OLD), (1, 9, 0)],
            111,
            110,
            id="both kinds",
        ),
    ],
)
def test_whole_segments_go_the_oldest_first(
    config: LogConfig, segments: list[tuple[int, int, int]], high_watermark: int, start: int | None
) -> None:
    assert start_after_retention(_segments(*segments), high_watermark, NOW_MS, config) == start


rows = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 300), st.integers(-100, 2500)), max_size=6)


@given(rows=rows, retention_ms=st.integers(-1, 2000), retention_bytes=st.integers(-1, 1200), lag=st.integers(0, 40))
def test_retention_is_dropping_one_segment_after_the_other(
    rows: list[tuple[int, int, int]], retention_ms: int, retention_bytes: int, lag: int
) -> None:
    segments = _segments(*rows)
    end = segments[-1].next_offset if segments else 100
    high_watermark = max(end - lag, 100)
    left = list(segments)
    start = None
    while left:
        first = left[0]
        old = retention_ms >= 0 and NOW_MS - first.max_timestamp_ms > retention_ms
        large = retention_bytes >= 0 and sum(segment.size_bytes for segment in left[1:]) >= retention_bytes
        if not (old or large) or first.next_offset > high_watermark:
            break
        start = first.next_offset
        left.pop(0)
    config = LogConfig(retention_ms=retention_ms, retention_bytes=retention_bytes)
    assert start_after_retention(segments, high_watermark, NOW_MS, config) == start
