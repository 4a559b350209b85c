"""A real Kafka answers the transcripts of our groups as we do, and keeps the same records."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.apache_kafka import ApacheKafka
from tests.support.group_kafka import KafkaSide
from tests.support.group_transcripts import CONTROLS, Transcript, read_steps

TRANSCRIPTS = Path(__file__).parents[1] / "broker_lite/machines/transcripts"
OURS_ALONE = {"where_we_differ"}


def _needs_no_clock(path: Path) -> bool:
    commands = [line.split()[0] for step in read_steps(path.read_text()) for line in step.commands]
    return not set(commands) & set(CONTROLS)


FILES = [path for path in sorted(TRANSCRIPTS.glob("*.txt")) if path.stem not in OURS_ALONE and _needs_no_clock(path)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka({"offsets.topic.num.partitions": "1"}) as started:
        yield started


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_kafka_says_the_same(path: Path, kafka: ApacheKafka) -> None:
    suffix = f"-{path.stem}"
    side = KafkaSide(kafka.bootstrap_servers, kafka.data / "__consumer_offsets-0", suffix)
    side.prepare()
    transcript = Transcript(side, suffix)
    try:
        for step in read_steps(path.read_text()):
            wanted = [_without_deadlines(line) for line in step.results if not line.startswith("log ")]
            assert transcript.run(step) == wanted, step.commands
        wanted_log = [line for step in read_steps(path.read_text()) for line in step.results if line.startswith("log ")]
        assert transcript.shown(side.all_events()) == wanted_log
    finally:
        side.close()


def _without_deadlines(line: str) -> str:
    """Which Kafka keeps to itself."""
    return " ".join(line.split()[:2]) if line.startswith("= ") else line


def test_there_is_something_to_compare() -> None:
    assert len(FILES) >= 6
