"""Results as JSON (every round) and Markdown (medians, spreads, ratios); the tables of docs/performance.md."""

import datetime
import json
import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import Outcome
from tests.support.jars import APACHE_KAFKA, SPARK_KAFKA
from tests.support.java import JavaUnavailable, java_command

RESULTS = Path(__file__).with_name("results")
DOCS = Path(__file__).resolve().parents[1] / "docs" / "performance.md"


def as_json(
    name: str,
    title: str,
    rounds: int,
    machine: dict[str, Any],
    outcome: Outcome,
) -> dict[str, Any]:
    return {
        "part": name,
        "title": title,
        "measured": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "rounds": rounds,
        "machine": machine,
        "results": [result.as_json() for result in outcome.results],
        "skipped": outcome.skipped,
    }


def machine() -> dict[str, Any]:
    """What the figures depend on. No names: neither of the host nor of whoever ran it."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "load_average_1min": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "java": _java_version(),
        "pylog": version("pylog"),
        "pyspark": version("pyspark"),
        "apache_kafka": APACHE_KAFKA.modules[0][2],
        "spark_kafka_connector": SPARK_KAFKA.modules[0][2],
        "confluent_kafka": version("confluent-kafka"),
    }


def _cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def _java_version() -> str:
    try:
        shown = subprocess.run([java_command(), "-version"], capture_output=True, text=True, check=False).stderr
    except JavaUnavailable:
        return "none"
    found = re.search(r'version "([^"]+)"', shown)
    return found[1] if found else "unknown"


def as_markdown(report: dict[str, Any]) -> str:
    """A table per measure, a row per case; then what failed or was left out."""
    lines = []
    for measure in _measures(report):
        lines += [*_table(report, measure), ""]
    for result in report["results"]:
        for name, reasons in result["failures"].items():
            lines += [f"- {result['case']}, {name}: failed in {reason}" for reason in reasons]
    lines += [f"- left out: {what}" for what in report["skipped"]]
    if lines[-1:] != [""]:
        lines.append("")
    about = report["machine"]
    lines += [
        f"Medians (least-most) of {report['rounds']} alternating rounds, {report['measured']}: "
        f"{about['cores']} cores of {about['cpu']}, {about['memory_gb']} GB, {about['system']}, "
        f"Python {about['python']}, Java {about['java']}, PySpark {about['pyspark']}, "
        f"Apache Kafka {about['apache_kafka']}; "
        f"load average before the part: {about['load_average_1min']}. "
        "“times” says how much better pylog was, within each round."
    ]
    return "\n".join(lines) + "\n"


def _measures(report: dict[str, Any]) -> list[str]:
    names = [measure["measure"] for result in report["results"] for measure in result["measures"]]
    return list(dict.fromkeys(names))


def _table(report: dict[str, Any], name: str) -> list[str]:
    rows = [
        (result["case"], one) for result in report["results"] for one in result["measures"] if one["measure"] == name
    ]
    contenders = list(dict.fromkeys(contender for _, one in rows for contender in one["contenders"]))
    peers = contenders[1:]
    targeted = any(one["target"] for _, one in rows)
    head = [name, *contenders, *(f"times {peer}" for peer in peers), *(["target"] if targeted else [])]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for case, one in rows:
        cells = [case]
        cells += [_shown(one["contenders"].get(contender, {}), one["decimals"]) for contender in contenders]
        cells += [_shown(one["times_better_than"].get(peer, {}), 2) for peer in peers]
        if targeted:
            cells.append(_verdict(one))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _shown(spread: dict[str, Any], decimals: int) -> str:
    if "median" not in spread:
        return "-"
    return f"{spread['median']:,.{decimals}f} ({spread['min']:,.{decimals}f}-{spread['max']:,.{decimals}f})"


def _verdict(one: dict[str, Any]) -> str:
    word = {True: "met", False: "**missed**", None: "not compared"}[one["target_met"]]
    return f"{one['target']}: {word}" if one["target"] else "-"


def write(report: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{report['part']}.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    (folder / f"{report['part']}.md").write_text(f"# {report['title']}\n\n{as_markdown(report)}")


def refresh_docs() -> None:
    """Put the tables of all kept results between their marks in docs/performance.md."""
    text = DOCS.read_text()
    for file in sorted(RESULTS.glob("*.json")):
        report = json.loads(file.read_text())
        begin, end = f"<!-- results: {report['part']} -->\n", "<!-- end -->"
        before, found, behind = text.partition(begin)
        if found:
            text = before + begin + as_markdown(report) + end + behind.partition(end)[2]
    DOCS.write_text(text)
