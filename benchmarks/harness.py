"""Contenders take turns, round after round: what else the machine does then falls on all of them alike.

The first round warms up and is dropped. A ratio compares what ran within one round, and says how many times
better the first contender, pylog, was; the medians over the rounds are what is reported, never a best run.
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Options:
    """What of a part to run, and how often."""

    rounds: int
    size_bytes: int | None = None  # only values of this size
    scale: float = 1.0  # of the amounts of data

    @property
    def is_whole(self) -> bool:
        return self.size_bytes is None and self.scale == 1.0

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
    """To be at least so many times as good as every peer, or to stay below a value."""

    ratio_min: float | None = None
    value_max: float | None = None

    def __str__(self) -> str:
        return f">= {self.ratio_min}x" if self.ratio_min is not None else f"< {self.value_max}"


@dataclass(frozen=True)
class Contender:
    name: str
    run: Callable[[], Figures]  # does the work once and returns a figure per measure


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
    """The figures of a case: by contender, then by measure, one value a round."""

    case: Case
    values: dict[str, dict[str, list[float]]]
    failures: dict[str, str]

    def spread(self, contender: str, measure: Measure) -> Spread | None:
        values = self.values[contender].get(measure.name)
        return Spread.of(values) if values else None

    def ratio(self, peer: str, measure: Measure) -> Spread | None:
        ours = self.values[self.case.contenders[0].name].get(measure.name, [])
        theirs = self.values[peer].get(measure.name, [])
        pairs = [(a, b) if measure.higher_is_better else (b, a) for a, b in zip(ours, theirs, strict=False)]
        return Spread.of([a / b for a, b in pairs if b > 0]) if any(b > 0 for _, b in pairs) else None

    def met(self, measure: Measure) -> bool | None:
        """Whether the target of this measure is reached; None where there is none, or no peer to compare with."""
        target = self.case.targets.get(measure.name)
        if target is None:
            return None
        if target.value_max is not None:
            ours = self.spread(self.case.contenders[0].name, measure)
            return ours.median < target.value_max if ours else None
        ratios = [self.ratio(peer.name, measure) for peer in self.case.contenders[1:]]
        known = [ratio.median for ratio in ratios if ratio is not None]
        assert target.ratio_min is not None
        return min(known) >= target.ratio_min if known else None

    def as_json(self) -> dict[str, Any]:
        peers = [peer.name for peer in self.case.contenders[1:]]
        return {
            "case": self.case.name,
            "measures": [self._measure_as_json(measure, peers) for measure in self.case.measures],
            "failures": self.failures,
        }

    def _measure_as_json(self, measure: Measure, peers: list[str]) -> dict[str, Any]:
        target = self.case.targets.get(measure.name)
        return {
            "measure": measure.name,
            "higher_is_better": measure.higher_is_better,
            "decimals": measure.decimals,
            "contenders": {
                name: {**_as_json(self.spread(name, measure)), "rounds": by_measure.get(measure.name, [])}
                for name, by_measure in self.values.items()
            },
            "times_better_than": {peer: _as_json(self.ratio(peer, measure)) for peer in peers},
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
    """A case after the other, each with a round to warm up and then `rounds` that count."""
    return [_measure_case(case, rounds) for case in cases]


def _measure_case(case: Case, rounds: int) -> Result:
    result = Result(case, {contender.name: {} for contender in case.contenders}, {})
    for number in range(rounds + 1):
        for contender in case.contenders:
            if contender.name in result.failures:
                continue
            began = time.monotonic()
            try:
                figures = contender.run()
            except Exception as error:  # one that fails does not end the others' run; it is reported
                result.failures[contender.name] = f"{type(error).__name__}: {error}"
                say(f"  {case.name} · {contender.name}: FAILED: {result.failures[contender.name][:500]}")
                continue
            which = f"round {number}" if number else "warm-up"
            shown = ", ".join(f"{figures[m.name]:,.{m.decimals}f} {m.name}" for m in case.measures)
            say(f"  {case.name} · {contender.name} · {which}: {shown}  [{time.monotonic() - began:.1f} s]")
            if number:
                for name, value in figures.items():
                    result.values[contender.name].setdefault(name, []).append(value)
    return result


def say(line: str) -> None:
    """Progress goes to stderr: stdout holds the tables alone."""
    print(line, file=sys.stderr, flush=True)


def size_name(value_bytes: int) -> str:
    return f"{value_bytes // 1000} KB" if value_bytes >= 1000 else f"{value_bytes} B"
