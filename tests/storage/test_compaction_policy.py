"""When a log is compacted, how far, which first, and which segments become one."""

from pathlib import Path

import pytest

from pylog.storage.compaction import CleaningPlan, Dirt, LastBatch, dirt_of, dirtiest, grouped
from pylog.storage.log_config import LogConfig
from pylog.storage.transactions import AbortedTransaction
from pylog.storage.views import SegmentView

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000

# four sealed segments of ten offsets and 100 bytes, an hour apart, the last of them an hour old; and the active one
SEGMENTS = [SegmentView(base, base + 10, 100, NOW_MS - (4 - base // 10) * HOUR_MS) for base in range(0, 40, 10)]
SEGMENTS.append(SegmentView(40, 45, 50, NOW_MS))


def dirt(
    cleaned_until: int = 0,
    *,
    log_start_offset: int = 0,
    last_stable_offset: int = 45,
    segments: list[SegmentView] = SEGMENTS,
    config: LogConfig | None = None,
) -> Dirt:
    return dirt_of(
        segments,
        config or LogConfig(compact=True),
        NOW_MS,
        cleaned_until=cleaned_until,
        log_start_offset=log_start_offset,
        last_stable_offset=last_stable_offset,
        first_timestamp_ms=lambda base_offset: NOW_MS - (5 - base_offset // 10) * HOUR_MS,
    )


@pytest.mark.parametrize(
    ("found", "first_dirty_offset", "end_offset", "clean_bytes", "dirty_bytes"),
    [
        pytest.param(dirt(), 0, 40, 0, 400, id="never cleaned: all but the active segment"),
        pytest.param(dirt(20), 20, 40, 200, 200, id="half of it"),
        pytest.param(dirt(25), 25, 40, 200, 200, id="a run ended within a segment, which counts as dirty"),
        pytest.param(dirt(40), 40, 40, 400, 0, id="nothing new is sealed"),
        pytest.param(dirt(42), 42, 42, 400, 0, id="cleaned behind what is sealed now: a segment was truncated"),
        pytest.param(dirt(46), 0, 40, 0, 400, id="cleaned behind the end: start anew"),
        pytest.param(dirt(5, log_start_offset=10), 10, 40, 100, 300, id="cleaned before the start: the head is gone"),
        pytest.param(dirt(last_stable_offset=30), 0, 30, 0, 300, id="a transaction opens with a segment"),
        pytest.param(dirt(last_stable_offset=29), 0, 20, 0, 200, id="a transaction opens within a segment"),
        pytest.param(dirt(20, last_stable_offset=15), 20, 20, 200, 0, id="a transaction opens before what is clean"),
        pytest.param(
            dirt(config=LogConfig(compaction_lag_ms_min=HOUR_MS)), 0, 40, 0, 400, id="all are as old as the lag"
        ),
        pytest.param(
            dirt(config=LogConfig(compaction_lag_ms_min=HOUR_MS + 1)), 0, 30, 0, 300, id="the last one is too young"
        ),
        pytest.param(
            dirt(config=LogConfig(compaction_lag_ms_min=100 * HOUR_MS)), 0, 0, 0, 0, id="all of them are too young"
        ),
        pytest.param(
            dirt(20, config=LogConfig(compaction_lag_ms_min=100 * HOUR_MS)), 20, 20, 200, 0, id="clean ones have no age"
        ),
        pytest.param(dirt(segments=SEGMENTS[-1:]), 0, 40, 0, 0, id="only an active segment"),
    ],
)
def test_what_could_be_compacted(
    found: Dirt, first_dirty_offset: int, end_offset: int, clean_bytes: int, dirty_bytes: int
) -> None:
    assert found[:4] == (first_dirty_offset, end_offset, clean_bytes, dirty_bytes)


@pytest.mark.parametrize(
    ("cleaned_until", "config", "due"),
    [
        pytest.param(20, LogConfig(dirty_ratio_min=0.5), False, id="exactly the ratio"),
        pytest.param(20, LogConfig(dirty_ratio_min=0.49), True, id="more than the ratio"),
        pytest.param(0, LogConfig(dirty_ratio_min=1.0), False, id="more than everything is never dirty"),
        pytest.param(40, LogConfig(dirty_ratio_min=0.0), False, id="nothing is dirty"),
        pytest.param(30, LogConfig(dirty_ratio_min=0.0), True, id="anything dirty will do"),
        pytest.param(30, LogConfig(compaction_lag_ms_max=2 * HOUR_MS), False, id="as late as it may be"),
        pytest.param(30, LogConfig(compaction_lag_ms_max=2 * HOUR_MS - 1), True, id="too late"),
        pytest.param(40, LogConfig(compaction_lag_ms_max=1), False, id="nothing is dirty, whatever its age"),
        pytest.param(
            30,
            LogConfig(compaction_lag_ms_max=2 * HOUR_MS - 1, compaction_lag_ms_min=HOUR_MS + 1),
            False,
            id="too late, and too young all the same",
        ),
    ],
)
def test_when_a_log_is_due(cleaned_until: int, config: LogConfig, due: bool) -> None:
    assert dirt(cleaned_until, config=config).due is due


def test_no_segment_is_read_for_its_first_timestamp_unless_the_lag_is_bounded() -> None:
    def refuse(base_offset: int) -> int:
        raise AssertionError(base_offset)

    found = dirt_of(
        SEGMENTS,
        LogConfig(compact=True),
        NOW_MS,
        cleaned_until=0,
        log_start_offset=0,
        last_stable_offset=45,
        first_timestamp_ms=refuse,
    )
    assert found.due


def test_the_dirtiest_log_that_is_due_comes_first() -> None:
    logs = {"a": Dirt(0, 1, 50, 50, True), "b": Dirt(0, 1, 10, 90, False), "c": Dirt(0, 1, 40, 60, True)}
    assert dirtiest(logs) == "c"
    assert dirtiest({"b": logs["b"]}) is None
    assert dirtiest({}) is None


def plan_of(
    sizes: list[int], *, end_offset: int | None = None, bases: list[int] | None = None, **changes: int
) -> CleaningPlan:
    bases = bases or [10 * number for number in range(len(sizes))]
    settings = {"segment_bytes": 1000, "index_interval_bytes": 4096, "index_bytes_max": 10 << 20} | changes
    return CleaningPlan(
        Path("/data/topic-0"),
        tuple(zip(bases, sizes, strict=True)),
        0,
        bases[-1] + 10 if end_offset is None else end_offset,
        NOW_MS,
        delete_retention_ms=0,
        dedupe_buffer_bytes=1000,
        **settings,
    )


@pytest.mark.parametrize(
    ("plan", "cleaned_until", "groups"),
    [
        pytest.param(plan_of([100] * 4), 40, [[0, 1, 2, 3]], id="all fit into one"),
        pytest.param(plan_of([500, 500, 1]), 30, [[0, 1], [2]], id="exactly full, and one byte over"),
        pytest.param(plan_of([2000, 10, 10]), 30, [[0], [1, 2]], id="one that is too large is alone"),
        pytest.param(plan_of([10, 2000, 10]), 30, [[0], [1], [2]], id="only neighbours"),
        pytest.param(plan_of([100] * 4), 20, [[0, 1]], id="what begins where the run ended is left alone"),
        pytest.param(plan_of([100] * 4), 21, [[0, 1, 2]], id="a segment of which a part was reached"),
        pytest.param(plan_of([100] * 4), 0, [], id="nothing was reached"),
        pytest.param(plan_of([0, 100, 0]), 30, [[0, 1, 2]], id="empty ones"),
        pytest.param(
            plan_of([10, 10, 10], bases=[5, 100, 2**31 + 5], end_offset=2**31 + 6),
            2**31 + 6,
            [[0, 1], [2]],
            id="an offset that the first one's index cannot hold",
        ),
        pytest.param(
            plan_of([10, 10, 10], bases=[5, 100, 2**31 + 4], end_offset=2**31 + 5),
            2**31 + 5,
            [[0, 1, 2]],
            id="the last offset that it can",
        ),
        pytest.param(
            plan_of([61, 61, 61], index_interval_bytes=0, index_bytes_max=36),
            30,
            [[0, 1], [2]],
            id="the time index is full",
        ),
    ],
)
def test_small_neighbours_become_one_segment(plan: CleaningPlan, cleaned_until: int, groups: list[list[int]]) -> None:
    assert grouped(plan, cleaned_until) == groups


def test_a_plan_comes_through_a_pipe_as_it_was() -> None:
    plan = CleaningPlan(
        Path("/data/täst-0"),
        ((0, 10), (5, 20)),
        3,
        9,
        NOW_MS,
        1,
        2,
        3,
        4,
        5,
        (LastBatch(7, 1, -1),),
        (AbortedTransaction(1, 2, 3, 4),),
    )
    assert CleaningPlan.from_json(plan.to_json()) == plan
    assert "\n" not in plan.to_json()
