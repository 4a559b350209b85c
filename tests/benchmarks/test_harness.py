"""The arithmetic of the benchmark: who runs when, what is compared with what, and what is said of it."""

from collections.abc import Iterable

import pytest

from benchmarks import report
from benchmarks.harness import Case, Contender, Figures, Measure, Outcome, Result, Target, across, measure

SPEED = Measure("rows/s")
SECONDS = Measure("seconds", higher_is_better=False, decimals=2)


def contender(name: str, values: Iterable[float | Exception], ran: list[str] | None = None) -> Contender:
    """Gives one value after the other, for every measure."""
    left = iter(values)

    def run() -> Figures:
        if ran is not None:
            ran.append(name)
        value = next(left)
        if isinstance(value, Exception):
            raise value
        return {SPEED.name: value, SECONDS.name: value}

    return Contender(name, run)


def one_case(ours: Iterable[float | Exception], theirs: Iterable[float | Exception], rounds: int = 3) -> Result:
    case = Case("case", [contender("ours", ours), contender("theirs", theirs)], [SPEED, SECONDS])
    return measure([case], rounds)[0]


def test_contenders_take_turns_and_every_round_runs_every_case() -> None:
    ran: list[str] = []
    cases = [Case(name, [contender(f"{name}{peer}", [1.0] * 3, ran) for peer in "AB"], [SPEED]) for name in "xy"]
    measure(cases, rounds=2)
    assert ran == ["xA", "xB", "yA", "yB"] * 3


def test_the_warm_up_does_not_count() -> None:
    spread = one_case([1000.0, 1.0, 2.0, 6.0], [1.0] * 4).spread("ours", SPEED)
    assert spread is not None
    assert (spread.median, spread.low, spread.high) == (2.0, 1.0, 6.0)


@pytest.mark.parametrize(("wanted", "ratios"), [(SPEED, (2.0, 1.0, 4.0)), (SECONDS, (0.5, 0.25, 1.0))])
def test_a_ratio_compares_runs_of_one_round_and_says_how_much_better_ours_is(
    wanted: Measure, ratios: tuple[float, float, float]
) -> None:
    ratio = one_case([9.0, 10.0, 40.0, 20.0], [9.0, 10.0, 10.0, 10.0]).ratio("theirs", wanted)
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high) == ratios


def test_one_case_may_be_compared_with_the_peers_of_another_round_by_round() -> None:
    target = Target(ratio_min=3.0)
    cases = [
        Case("here", [contender("ours", [9, 10, 20]), contender("theirs", [9, 1, 1])], [SPEED], {SPEED.name: target}),
        Case(
            "there", [contender("ours", [9, 2, 2]), contender("theirs", [9, 2, 5]), contender("more", [1] * 3)], [SPEED]
        ),
    ]
    compared = across("across", *measure(cases, 2), ["theirs"])
    assert [one.name for one in compared.case.contenders] == ["ours", "theirs"]
    assert compared.values("ours", SPEED) == {1: 10, 2: 20}
    assert compared.values("theirs", SPEED) == {1: 2, 2: 5}
    ratio = compared.ratio("theirs", SPEED)
    assert ratio is not None
    assert (ratio.low, ratio.high) == (4.0, 5.0)
    assert compared.met(SPEED)


def test_a_round_that_failed_is_reported_and_left_out_of_the_ratio() -> None:
    result = one_case([1.0, 4.0, 6.0, 8.0], [1.0, RuntimeError("went away"), 3.0, 2.0])
    ratio = result.ratio("theirs", SPEED)
    assert ratio is not None
    assert (ratio.low, ratio.high) == (2.0, 4.0)
    assert result.failures == {"theirs": ["round 1: RuntimeError: went away"]}


def test_who_keeps_failing_is_given_up_and_the_others_go_on() -> None:
    ran: list[str] = []
    never = contender("never", [OSError("no")] * 9, ran)
    result = measure([Case("case", [contender("ours", [1.0] * 5), never], [SPEED])], rounds=4)[0]
    assert ran == ["never"] * 2
    assert len(result.figures["ours"]) == 4
    assert result.ratio("never", SPEED) is None


@pytest.mark.parametrize(
    ("target", "met"),
    [
        pytest.param(Target(ratio_min=2.0), True, id="exactly as good as asked"),
        pytest.param(Target(ratio_min=2.1), False, id="not quite"),
        pytest.param(Target(value_max=20.1), True, id="below"),
        pytest.param(Target(value_max=20.0), False, id="below means below"),
    ],
)
def test_targets_are_judged_by_medians(target: Target, met: bool) -> None:
    contenders = [contender("ours", [20.0] * 2), contender("theirs", [10.0] * 2)]
    result = measure([Case("case", contenders, [SPEED], {SPEED.name: target})], rounds=1)[0]
    assert result.met(SPEED) is met


@pytest.mark.parametrize(
    ("asked", "met"),
    [
        pytest.param({"slow": 4.0, "fast": 2.0}, True, id="each as asked"),
        pytest.param({"slow": 4.1, "fast": 2.0}, False, id="not quite, of one"),
        pytest.param({"slow": 4.0, "fast": 2.1}, False, id="not quite, of the other"),
        pytest.param({"slow": 4.0}, True, id="nothing is asked of one"),
        pytest.param({"absent": 1.0}, None, id="none of those named is there"),
    ],
)
def test_a_target_can_ask_for_more_beside_one_peer_than_beside_another(
    asked: dict[str, float], met: bool | None
) -> None:
    contenders = [contender("ours", [20.0] * 2), contender("slow", [5.0] * 2), contender("fast", [10.0] * 2)]
    result = measure([Case("case", contenders, [SPEED], {SPEED.name: Target(ratio_min=asked)})], rounds=1)[0]
    assert result.met(SPEED) is met


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (Target(ratio_min=1.5), ">= 1.5x"),
        (Target(ratio_min={"slow": 2.0, "fast": 1.4}), ">= 2.0x, 1.4x"),
        (Target(value_max=0.3), "< 0.3"),
    ],
)
def test_a_target_is_shown_in_the_order_of_the_peers(target: Target, shown: str) -> None:
    assert str(target) == shown


def test_a_missing_peer_leaves_a_table_that_says_so() -> None:
    case = Case("reading", [contender("ours", [1.0, 2000.0])], [SPEED], {SPEED.name: Target(ratio_min=2.0)})
    outcome = Outcome(measure([case], rounds=1), ["Apache Kafka: no network"])
    text = report.as_markdown(report.as_json("part", "A part", 1, report.machine(), outcome))
    assert "| reading | 2,000 (2,000-2,000) | >= 2.0x: not compared |" in text
    assert "- left out: Apache Kafka: no network" in text
