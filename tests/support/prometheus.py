"""Prometheus' text format, read strictly: what a scraper might forgive is an error here."""

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HELP = re.compile(rf"# HELP ({_NAME}) ((?:[^\\\n]|\\\\|\\n)*)")
_TYPE = re.compile(rf"# TYPE ({_NAME}) (counter|gauge|histogram)")
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? ([^ ]+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|$)')
_ESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Labels = tuple[tuple[str, str], ...]


@dataclass
class Metric:
    kind: str
    help: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)  # (name, labels)

    def value(self, **labels: object) -> float:
        """Of the one sample with these labels; KeyError if there is none."""
        found = [value for (_, its), value in self.samples.items() if dict(its) == _texts(labels)]
        if len(found) != 1:
            raise KeyError(labels)
        return found[0]

    def has(self, **labels: object) -> bool:
        return any(dict(its) == _texts(labels) for _, its in self.samples)


def _texts(labels: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in labels.items()}


def parse(text: str) -> dict[str, Metric]:
    assert text.endswith("\n")
    metrics: dict[str, Metric] = {}
    lines = text[:-1].split("\n")
    name, helped = "", ""
    for line in lines:
        if match := _HELP.fullmatch(line):
            assert match[1] not in metrics, f"{match[1]} comes twice"
            name, helped = match[1], match[2]
        elif match := _TYPE.fullmatch(line):
            assert match[1] == name, f"{line}: its HELP does not stand before it"
            assert name not in metrics, line
            assert (match[2] == "counter") == name.endswith("_total"), line
            metrics[name] = Metric(match[2], helped)
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, f"not a sample: {line!r}"
            metric = metrics[name]
            suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
            assert match[1] in [name + suffix for suffix in suffixes], f"{line}: it does not belong to {name}"
            key = (match[1], _labels(match[2] or ""))
            assert key not in metric.samples, f"{line}: it comes twice"
            metric.samples[key] = float(match[3])
    for name, metric in metrics.items():
        if metric.kind == "histogram":
            _check_histogram(name, metric)
    return metrics


def _labels(text: str) -> Labels:
    labels, at = [], 0
    while at < len(text):
        match = _LABEL.match(text, at)
        assert match, f"not labels: {text!r}"
        labels.append((match[1], re.sub(r"\\.", lambda escaped: _ESCAPED[escaped[0]], match[2])))
        at = match.end()
    assert not text.endswith(",")
    assert len({name for name, _ in labels}) == len(labels), text
    return tuple(labels)


def _check_histogram(name: str, metric: Metric) -> None:
    """For all other labels: buckets ascend, and the last has everything."""
    buckets: dict[Labels, list[tuple[float, float]]] = {}
    for (sample, labels), value in metric.samples.items():
        if sample == f"{name}_bucket":
            others = tuple(label for label in labels if label[0] != "le")
            buckets.setdefault(others, []).append((float(dict(labels)["le"]), value))
    for others, bounds in buckets.items():
        assert bounds == sorted(bounds), others
        assert [value for _, value in bounds] == sorted(value for _, value in bounds), others
        assert bounds[-1] == (float("inf"), metric.samples[f"{name}_count", others])
        assert metric.samples[f"{name}_sum", others] >= 0
