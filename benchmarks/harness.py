"""Contenders take turns, round after round: what else the machine does then falls on all of them alike.

Round 0 warms up and is dropped. A ratio compares what ran within one round, and says how many times
better the first contender, pylog, was; the medians over the rounds are what is reported, never a best run.
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Figures = Mapping[str, float]

FAILURES_MAX = 2  # of one contender in one case; then it is given up
FAILURE_CHARACTERS_MAX = 400


@dataclass(frozen=True)
class Options:
    """What of a part to run, and how often."""

    rounds: int
    size_bytes: int | None = None  # only values of this size
    scale: float = 1.0  # of the amounts of data

    def wants_bytes(self, value_bytes: int) -> bool:
        return self.size_bytes in (None, value_bytes)

    def scaled(self, count: int) -> int:
        return max(1, int(count * self.scale))


@dataclass(frozen=True)
class Measure:
    """What is measured: its name with its unit, and which way is better."""

    name: str
    higher_is_better: bool = True
    decimals: int = 0


@dataclass(frozen=True)
class Target:
    """To be at least so many times as good as every peer, or as each of those named, or to stay below a value."""

    ratio_min: float | Mapping[str, float] | None = None
    value_max: float | None = None

    def ratio_min_of(self, peer: str) -> float | None:
        return self.ratio_min.get(peer) if isinstance(self.ratio_min, Mapping) else self.ratio_min

    def __str__(self) -> str:
        if self.ratio_min is None:
            return f"< {self.value_max}"
        asked = self.ratio_min.values() if isinstance(self.ratio_min, Mapping) else [self.ratio_min]
        return ">= " + ", ".join(f"{ratio}x" for ratio in asked)


@dataclass(frozen=True)
class Contender:
    name: str
    run: Callable[[], Figures]  # does the work once and returns a figure per measure; it may lack some


@dataclass(frozen=True)
class Case:
    """One piece of work. The first contender is compared with each of the others."""

    name: str
    contenders: Sequence[Contender]
    measures: Sequence[Measure]
    targets: Mapping[str, Target] = field(default_factory=dict)  # by the name of the measure


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))


@dataclass
class Result:
    """The figures of a case: by contender, then by round."""

    case: Case
    figures: dict[str, dict[int, Figures]]
    failures: dict[str, list[str]]

    def values(self, contender: str, measure: Measure) -> dict[int, float]:
        return {number: one[measure.name] for number, one in self.figures[contender].items() if measure.name in one}

    def spread(self, contender: str, measure: Measure) -> Spread | None:
        values = self.values(contender, measure)
        return Spread.of(list(values.values())) if values else None

    def ratio(self, peer: str, measure: Measure) -> Spread | None:
        ours = self.values(self.case.contenders[0].name, measure)
        theirs = self.values(peer, measure)
        pairs = [(ours[number], theirs[number]) for number in ours.keys() & theirs.keys()]
        ratios = [a / b if measure.higher_is_better else b / a for a, b in pairs if a > 0 and b > 0]
        return Spread.of(ratios) if ratios else None

    def met(self, measure: Measure) -> bool | None:
        """Whether the target of this measure is reached; None where there is none, or no peer to compare with."""
        target = self.case.targets.get(measure.name)
        if target is None:
            return None
        if target.value_max is not None:
            ours = self.spread(self.case.contenders[0].name, measure)
            return ours.median < target.value_max if ours else None
        peers = [(target.ratio_min_of(peer.name), self.ratio(peer.name, measure)) for peer in self.case.contenders[1:]]
        known = [ratio.median >= asked for asked, ratio in peers if asked is not None and ratio is not None]
        return all(known) if known else None

    def as_json(self) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "measures": [self._measure_as_json(measure) for measure in self.case.measures],
            "failures": self.failures,
        }

    def _measure_as_json(self, measure: Measure) -> dict[str, Any]:
        target = self.case.targets.get(measure.name)
        names = [contender.name for contender in self.case.contenders]
        return {
            "measure": measure.name,
            "higher_is_better": measure.higher_is_better,
            "decimals": measure.decimals,
            "contenders": {
                name: {**_as_json(self.spread(name, measure)), "rounds": list(self.values(name, measure).values())}
                for name in names
            },
            "times_better_than": {peer: _as_json(self.ratio(peer, measure)) for peer in names[1:]},
            "target": str(target) if target else None,
            "target_met": self.met(measure),
        }


def _as_json(spread: Spread | None) -> dict[str, float]:
    return {} if spread is None else {"median": spread.median, "min": spread.low, "max": spread.high}


@dataclass
class Outcome:
    """What a part measured, and what it could not for want of a peer."""

    results: list[Result]
    skipped: list[str]


def measure(cases: Sequence[Case], rounds: int) -> list[Result]:
    """Every round runs every case, so that no case has the cold machine, or the busy one, to itself."""
    results = [Result(case, {contender.name: {} for contender in case.contenders}, {}) for case in cases]
    for number in range(rounds + 1):
        for result in results:
            for contender in result.case.contenders:
                if len(result.failures.get(contender.name, [])) < FAILURES_MAX:
                    _run(result, contender, number)
    return results


def across(name: str, ours: Result, theirs: Result, peers: Sequence[str]) -> Result:
    """The first contender of one case beside some of another case, which ran in the same rounds."""
    first = ours.case.contenders[0]
    contenders = [first, *(one for one in theirs.case.contenders if one.name in peers)]
    figures = {one.name: (ours if one is first else theirs).figures[one.name] for one in contenders}
    return Result(Case(name, contenders, ours.case.measures, ours.case.targets), figures, {})


def _run(result: Result, contender: Contender, number: int) -> None:
    shown = f"{result.case.name} | {contender.name} | {f'round {number}' if number else 'warm-up'}"
    began = time.monotonic()
    try:
        figures = contender.run()
    except Exception as error:  # one that fails does not end the others' run; it is reported
        what = " ".join(f"{type(error).__name__}: {error}".split())[:FAILURE_CHARACTERS_MAX]
        result.failures.setdefault(contender.name, []).append(f"round {number}: {what}")
        say(f"  {shown}: FAILED: {what}")
        return
    values = ", ".join(
        f"{figures[one.name]:,.{one.decimals}f} {one.name}" for one in result.case.measures if one.name in figures
    )
    say(f"  {shown}: {values}  [{time.monotonic() - began:.1f} s]")
    if number:
        result.figures[contender.name][number] = figures


def say(line: str) -> None:
    """Progress goes to stderr: stdout holds the tables alone."""
    print(line, file=sys.stderr, flush=True)


def size_name(value_bytes: int) -> str:
    return f"{value_bytes // 1000} KB" if value_bytes >= 1000 else f"{value_bytes} B"
