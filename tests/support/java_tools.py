"""Kafka's own command line tools, which are classes on its class path."""

import subprocess
from collections.abc import Sequence

from tests.support.jars import kafka_classpath
from tests.support.java import java_command

DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
END_TO_END_LATENCY = "org.apache.kafka.tools.EndToEndLatency"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
TOPICS = "org.apache.kafka.tools.TopicCommand"


class JavaToolFailed(Exception):
    """The tool ended with an error; the message holds its command line and output."""


def java_class_command(class_name: str, *arguments: str, heap: str = "512m", options: Sequence[str] = ()) -> list[str]:
    """The command line that runs a class of Apache Kafka's."""
    return [java_command(), f"-Xmx{heap}", *options, "-cp", kafka_classpath(), class_name, *arguments]


def run_kafka_tool(class_name: str, *arguments: str, heap: str = "512m", seconds_max: float = 120.0) -> str:
    """Run a class to its end and return what it printed on stdout; JavaToolFailed if its exit code is not 0."""
    command = java_class_command(class_name, *arguments, heap=heap)
    shown = " ".join([class_name, *arguments])
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds_max, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise JavaToolFailed(f"{shown}\nno end after {seconds_max} s; it printed {error.stdout!r}") from error
    if done.returncode != 0:
        raise JavaToolFailed(f"{shown}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout
