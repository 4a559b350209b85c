"""Apache Kafka on a data directory whose partition folders we wrote, and we on what Kafka made of them.

Whoever takes a folder over has to say of it all that the one before said: every record, what is committed, where the
log begins and ends, which producers it knows, what is found by time. `tests.support.back_and_forth` tells the story."""

import re
from collections.abc import Iterable

import pytest

from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.storage.epochs import EpochEntry
from pylog.storage.records import Record
from tests.support.back_and_forth import (
    CLEAN_WORDS,
    CLOSED,
    HANDOVERS,
    KAFKA_KILLED,
    KILLED,
    STOPPED,
    TORN_TOPICS,
    UNCLEAN_WORDS,
    Story,
    back_and_forth,
)
from tests.support.pylog_written import COMPACTED, CONFIGS, OPEN

RECORD_LINE = re.compile(r"\| offset: (\d+) ")
PLAIN = [topic for topic in CONFIGS if topic != "empty" and topic not in COMPACTED]


@pytest.fixture(scope="module")
def story() -> Story:
    return back_and_forth()


@pytest.mark.parametrize("topic", CONFIGS)
@pytest.mark.parametrize("handover", HANDOVERS)
def test_who_takes_a_folder_over_says_what_the_one_before_said(story: Story, handover: str, topic: str) -> None:
    assert story.after[handover][topic] == story.before[handover][topic]


@pytest.mark.parametrize("topic", CONFIGS)
def test_kafka_serves_every_record_that_we_wrote_and_hides_what_was_aborted(story: Story, topic: str) -> None:
    """Beside a plain list, not beside what our own log says."""
    served, told = story.after[CLOSED][topic], story.told[topic]
    assert served.records == told.records
    assert served.committed == told.committed


@pytest.mark.parametrize("topic", PLAIN)
def test_everyone_appends_behind_what_was_there(story: Story, topic: str) -> None:
    ends = [story.before[handover][topic].bounds.high_watermark for handover in HANDOVERS]
    assert ends == sorted(set(ends))
    for earlier, later in ((CLOSED, STOPPED), (STOPPED, KILLED), (KILLED, KAFKA_KILLED)):
        records = story.before[earlier][topic].records
        assert story.before[later][topic].records[: len(records)] == records


@pytest.mark.parametrize("topic", COMPACTED)
def test_keys_have_their_latest_values_whoever_compacts(story: Story, topic: str) -> None:
    """We compact what both have written, Kafka compacts that once more, and we read it."""
    appended = story.before[STOPPED][topic].committed + story.told_later[topic].committed
    assert latest(story.after[KILLED][topic].committed) == latest(appended)
    assert len(story.after[KILLED][topic].committed) < len(appended)
    served, compacted = story.before_cleaning[topic], story.after[KAFKA_KILLED][topic]
    assert latest(compacted.committed) == latest(served.committed)
    assert len(compacted.committed) < len(served.committed)


def latest(records: Iterable[Record]) -> dict[bytes | None, bytes]:
    values = {record.key: record.value for record in records}
    return {key: value for key, value in values.items() if value is not None}


def test_a_producer_that_wrote_to_us_goes_on_with_kafka(story: Story) -> None:
    """Its last batch is known and answered with its place, the next one follows, a gap and an old epoch are refused."""
    told, answers = story.told["sequences"], story.answers
    codes = {name: answer.error_code for name, answer in answers.items()}
    assert codes == {
        "last": ErrorCode.NONE,
        "next": ErrorCode.NONE,
        "next again": ErrorCode.NONE,
        "gap": ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        "older epoch": ErrorCode.INVALID_PRODUCER_EPOCH,
    }
    end = story.before[CLOSED]["sequences"].bounds.high_watermark
    assert answers["last"].base_offset == told.records[-22].offset  # 19 of its own, then 3 of another producer
    assert answers["next"].base_offset == answers["next again"].base_offset == end


def test_a_transaction_that_we_left_open_can_be_aborted_in_kafka(story: Story) -> None:
    before = story.after[CLOSED]["transactions"]
    (still_open,) = (one for one in before.producers if one.transaction_start >= 0)
    assert still_open.producer_id == OPEN
    assert before.bounds.last_stable_offset == still_open.transaction_start
    assert story.aborted is not None
    assert story.aborted.bounds.last_stable_offset == before.bounds.high_watermark + 1  # the marker
    hidden = {record.offset for record in before.records} - {record.offset for record in story.aborted.committed}
    assert set(range(still_open.transaction_start, still_open.transaction_start + 5)) <= hidden


@pytest.mark.parametrize("topic", CONFIGS)
def test_kafka_keeps_our_leader_epochs_and_adds_its_own(story: Story, topic: str) -> None:
    ours, end = story.our_epochs[topic], story.before[CLOSED][topic].bounds.high_watermark
    assert story.kafkas_epochs[topic][:-1] == ours
    assert story.kafkas_epochs[topic][-1].start_offset == end
    if topic == "truncated":
        assert ours == (EpochEntry(0, 0), EpochEntry(1, 120))


def test_kafka_has_no_complaint_about_what_we_closed(story: Story) -> None:
    words = story.kafkas_words[CLOSED]
    assert [line for line in words if is_about_our_logs(line)] == []
    assert any(CLEAN_WORDS in line for line in words)
    assert not any(UNCLEAN_WORDS in line for line in words)


def test_kafka_cuts_our_torn_tails_and_complains_of_nothing_else(story: Story) -> None:
    words = story.kafkas_words[KILLED]
    assert any(UNCLEAN_WORDS in line for line in words)
    about_us = [line for line in words if is_about_our_logs(line)]
    assert len(about_us) == len(TORN_TOPICS)
    for topic in TORN_TOPICS:
        end = story.before[KILLED][topic].bounds.high_watermark
        assert any(f"partition={topic}-0" in line and f"truncating to offset {end}" in line for line in about_us)


def is_about_our_logs(line: str) -> bool:
    """Of a log start in the middle of a batch Kafka says, also where it wrote all by itself, that its first guess of
    the high watermark was too high."""
    if "Non-monotonic update of high watermark" in line:
        return False
    return any(f"{topic}-0" in line for topic in CONFIGS) and "Error processing append operation" not in line


@pytest.mark.parametrize("when", [CLOSED, KAFKA_KILLED])
def test_our_closed_folders_are_sound_to_us_and_to_kafkas_tool(story: Story, when: str) -> None:
    assert story.findings[when] == []
    dump = story.dumps[when]
    assert dump.complaints == []
    assert {path.parent.name for path in dump.gaps} == {f"{topic}-0" for topic in COMPACTED}
    for topic in CONFIGS:
        lines = [line for path, lines in dump.lines.items() if path.parent.name == f"{topic}-0" for line in lines]
        shown = {int(match[1]) for match in map(RECORD_LINE.match, lines) if match}
        assert shown >= {record.offset for record in story.before[when][topic].records}
    kinds = {path.suffix for path, lines in dump.lines.items() if lines}
    assert kinds == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
