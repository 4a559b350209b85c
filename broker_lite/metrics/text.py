"""Prometheus' text format, version 0.0.4: families one after the other, each with its samples in one piece.

    # HELP name what it says
    # TYPE name counter
    name{label="value"} 1

Spec: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pylog.broker_lite.metrics.families import Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_IN_LABELS = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


class Histogram(NamedTuple):
    """`counts` has one more than `bounds`: what lies above the last of them. They are not cumulative."""

    bounds: Sequence[float]
    counts: Sequence[int]
    sum: float


def head(family: Family) -> str:
    return f"# HELP {family.name} {family.help.translate(_IN_HELP)}\n# TYPE {family.name} {family.kind}\n"


def labels(family: Family, *values: object) -> str:
    """`{topic="t",partition="0"}`, or nothing."""
    if not family.labels:
        return ""
    pairs = zip(family.labels, values, strict=True)
    return "{" + ",".join(f'{name}="{str(value).translate(_IN_LABELS)}"' for name, value in pairs) + "}"


def samples(family: Family, values: Iterable[tuple[str, int | float | None]]) -> str:
    """Lines of (labels, value); None is left out."""
    name = family.name
    return "".join([f"{name}{label_text} {value}\n" for label_text, value in values if value is not None])


def histogram(family: Family, label_text: str, measured: Histogram) -> str:
    name, inner = family.name, label_text[1:-1]
    lines, reached = [], 0
    for bound, count in zip([*map(str, measured.bounds), "+Inf"], measured.counts, strict=True):
        reached += count
        lines.append(f'{name}_bucket{{{inner},le="{bound}"}} {reached}\n')
    lines.append(f"{name}_sum{label_text} {measured.sum}\n{name}_count{label_text} {reached}\n")
    return "".join(lines)
