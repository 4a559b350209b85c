"""Work that lasts milliseconds: within one round the contenders take many short turns, and their medians count.

What disturbs a machine lasts longer than a turn, so it falls on all contenders alike.
"""

import statistics
from collections.abc import Callable, Mapping
from functools import partial

from benchmarks.harness import Contender, Figures


def in_turns(runs: Mapping[str, Callable[[], Figures]], turns: int) -> list[Contender]:
    """Contenders of one case. The first of them runs for all, and the others bring what was then measured."""
    names = list(runs)
    measured: dict[str, Figures] = {}

    def run_all() -> Figures:
        measured.clear()
        seen: dict[str, list[Figures]] = {name: [] for name in names}
        for turn in range(turns):
            for name in names if turn % 2 == 0 else reversed(names):
                seen[name].append(runs[name]())
        measured.update({name: medians(figures) for name, figures in seen.items()})
        return measured[names[0]]

    def bring(name: str) -> Figures:
        if name not in measured:
            raise RuntimeError(f"{names[0]}, which runs first, has failed")
        return measured[name]

    return [Contender(names[0], run_all), *(Contender(name, partial(bring, name)) for name in names[1:])]


def medians(figures: list[Figures]) -> Figures:
    return {name: statistics.median(one[name] for one in figures) for name in figures[0]}
