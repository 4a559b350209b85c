"""The source part: every topic that it reads is one of its own, and what is slow at a trickle is found."""

from typing import Any, cast

import pytest
from pyspark.sql.streaming import StreamingQuery

from benchmarks import source, source_trickle
from benchmarks.harness import Options
from benchmarks.source_topics import Topic


def test_every_kind_of_records_has_a_topic_of_its_own() -> None:
    topics = [topic for value_bytes in source.COUNTS for topic in source._topics(Options(1), value_bytes)]
    assert len({topic.topic for topic in topics}) == len(topics)
    assert {topic.value_bytes for topic in topics} == set(source.COUNTS)


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        (Topic(1, 100), "100 B"),
        (Topic(1, 1000, "zstd"), "1 KB, zstd"),
        (Topic(1, 100, has_keys=True, has_headers=True), "100 B, keyed, one header"),
    ],
)
def test_a_topic_is_named_after_what_is_in_it(topic: Topic, name: str) -> None:
    assert topic.name == name


class Query:
    """Its first batches had no rows."""

    isActive = True

    def __init__(self, batches: int) -> None:
        self._batches = batches

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        return [
            {"batchId": number, "numInputRows": number // 5, "durationMs": {"triggerExecution": 100 + number}}
            for number in range(self._batches)
        ]

    def exception(self) -> str:
        return "nothing is wrong"


def test_batches_without_rows_do_not_count() -> None:
    query = cast(StreamingQuery, Query(20))
    assert source_trickle._durations_ms(query, 3) == [105, 106, 107]


def test_a_query_that_brings_no_more_batches_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_trickle, "SECONDS_MAX", 0)
    with pytest.raises(RuntimeError, match="of 6 micro-batches"):
        source_trickle._durations_ms(cast(StreamingQuery, Query(10)), 6)
