"""Kafka's own command line tools, which are classes on its class path."""

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.jars import kafka_classpath
from tests.support.java import java_command

DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
END_TO_END_LATENCY = "org.apache.kafka.tools.EndToEndLatency"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GROUPS = "org.apache.kafka.tools.GroupsCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
BROKER_API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


class JavaToolFailed(Exception):
    """The tool ended with an error; the message holds its command line and output."""


def java_class_command(class_name: str, *arguments: str, heap: str = "512m", options: Sequence[str] = ()) -> list[str]:
    """The command line that runs a class of Apache Kafka's."""
    return [java_command(), f"-Xmx{heap}", *options, "-cp", kafka_classpath(), class_name, *arguments]


def run_kafka_tool(
    class_name: str, *arguments: str, heap: str = "512m", seconds_max: float = 120.0, said: str = ""
) -> str:
    """Run a class to its end, with `said` on stdin, and return what it printed on stdout; JavaToolFailed if its exit
    code is not 0."""
    return _run(class_name, arguments, heap, seconds_max, said).stdout


def _run(
    class_name: str, arguments: Sequence[str], heap: str, seconds_max: float, said: str = ""
) -> "subprocess.CompletedProcess[str]":
    command = java_class_command(class_name, *arguments, heap=heap)
    shown = " ".join([class_name, *arguments])
    try:
        done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=seconds_max, check=False)
    except subprocess.TimeoutExpired as error:
        raise JavaToolFailed(f"{shown}\nno end after {seconds_max} s; it printed {error.stdout!r}") from error
    if done.returncode != 0:
        raise JavaToolFailed(f"{shown}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def columns(table: str) -> list[dict[str, str]]:
    """The rows of a tool's table, under its first line with capitals. Cells have no blanks."""
    lines = [line.split() for line in table.splitlines() if line.strip()]
    start = next(number for number, cells in enumerate(lines) if cells[0] in ("GROUP", "TOPIC"))
    return [dict(zip(lines[start], cells, strict=False)) for cells in lines[start + 1 :]]


# -- looking into segments

_DUMPED = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
_GAPS_IN = re.compile(r"Non-consecutive offsets in (.+)")
_GAP = re.compile(r"  (-?\d+) is followed by (\d+)")
_WRONG = re.compile(r"is[vV]alid: false|Found \d+ invalid bytes|Exception")


class SegmentDump(NamedTuple):
    lines: dict[Path, list[str]]  # what it says of each file
    gaps: dict[Path, list[tuple[int, int]]]  # (offset, the next one that is there): compaction leaves such
    complaints: list[str]


def dump_log_segments(paths: Iterable[Path], *options: str) -> SegmentDump:
    """DumpLogSegments on the files among `paths`, or in the folders among them, that it can read.

    It complains on stderr, in the middle of its lines on stdout, and by no exit code."""
    files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    listed = ",".join(str(file) for file in files if file.suffix in _DUMPED)
    done = _run(DUMP_LOG_SEGMENTS, [*options, "--files", listed], "512m", 120.0)
    lines: defaultdict[Path, list[str]] = defaultdict(list)
    complaints: list[str] = []
    current = Path()
    for line in done.stdout.splitlines():
        if line.startswith("Dumping "):
            current = Path(line.removeprefix("Dumping "))
        else:
            lines[current].append(line)
            if _WRONG.search(line):
                complaints.append(f"{current}: {line}")
    gaps: defaultdict[Path, list[tuple[int, int]]] = defaultdict(list)
    for line in done.stderr.splitlines():
        if match := _GAPS_IN.fullmatch(line):
            current = Path(match[1])
        elif match := _GAP.fullmatch(line):
            if match[1] != "-1":  # of the first record of every segment but that at 0, also of Kafka's own
                gaps[current].append((int(match[1]), int(match[2])))
        else:
            complaints.append(line)
    return SegmentDump(dict(lines), dict(gaps), complaints)
