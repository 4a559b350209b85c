"""Random batches and markers through Kafka's own classes for producer state and through ours: the same answers.

Snapshots go both ways: each side goes on from what the other wrote."""

import random
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from pylog.storage.batch import CONTROL, TRANSACTIONAL, BatchHeader
from pylog.storage.errors import (
    InvalidTransactionState,
    OutOfOrderSequence,
    StaleProducerEpoch,
    StorageError,
    TransactionCoordinatorFenced,
)
from pylog.storage.producers import Producers
from pylog.storage.transactions import Marker
from tests.support.jars import kafka_classpath
from tests.support.java import java_command

pytestmark = pytest.mark.kafka

PROBE = Path(__file__).with_name("ProducerStateProbe.java")
SEEDS = 200
SEQUENCE_MAX = 2**31 - 1
EXPIRATION_MS = 200
KAFKAS_NAMES = {
    StaleProducerEpoch: "InvalidProducerEpochException",
    OutOfOrderSequence: "OutOfOrderSequenceException",
    InvalidTransactionState: "InvalidTxnStateException",
    TransactionCoordinatorFenced: "TransactionCoordinatorFencedException",
}


class Script:
    """What one seed does: the commands for Kafka's side, and our answers."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.directory = directory
        self.producers = Producers()
        self.offset = self.high_watermark = 0
        self.now_ms = 1000
        self.commands = [f"new {EXPIRATION_MS}"]
        self.answers = ["done"]
        for number in range(100):
            self.now_ms += self.random.randint(0, 20)
            act = self.random.choices(
                [self.data, self.marker, self.replicated, self.expire, self.snapshot], [11, 4, 3, 1, 1]
            )
            self.say(*act[0](number))
            self.say("views", self.views())

    def say(self, command: str, answer: str) -> None:
        self.commands.append(command)
        self.answers.append(answer)

    def header(self, producer_id: int, epoch: int, sequence: int, count: int, attributes: int) -> BatchHeader:
        return BatchHeader(
            self.offset, 99, 0, 2, 0, attributes, count - 1, 0, self.now_ms, producer_id, epoch, sequence, count
        )

    def data(self, _: int) -> tuple[str, str]:
        choose = self.random.random
        producer_id, count = self.random.randint(1, 3), self.random.randint(1, 6)
        view = self.producers.view(producer_id)
        if view is None:
            epoch, sequence = self.random.randint(0, 2), self.random.choice([0, 5, SEQUENCE_MAX - 3])
        else:
            epoch, sequence = view.epoch, (view.last_sequence + 1) & SEQUENCE_MAX
            if choose() < 0.2:  # a repeat, or nearly one
                count = self.random.choice([1, 2, 3])
                sequence = (sequence - self.random.choice([1, 2, 3, count])) & SEQUENCE_MAX
            elif choose() < 0.1:
                epoch, sequence = max(0, epoch + self.random.choice([-1, 1])), self.random.choice([0, sequence])
            elif choose() < 0.1:
                sequence = (sequence + 1) & SEQUENCE_MAX
        transactional = choose() < (0.9 if view and view.transaction_start >= 0 else 0.4)
        sequenced = choose() < 0.95
        header = self.header(producer_id, epoch, sequence if sequenced else -1, count, transactional * TRANSACTIONAL)
        last_sequence = (sequence + count - 1) & SEQUENCE_MAX if sequenced else -1
        command = (
            f"data {producer_id} {epoch} {header.base_sequence} {last_sequence} {header.base_offset}"
            f" {header.last_offset} {self.now_ms} {transactional:d} {sequenced:d}"
        )
        try:
            duplicate = self.producers.check([header], sequenced=sequenced)
        except StorageError as error:
            return command, KAFKAS_NAMES[type(error)]
        if duplicate is not None:
            return command, f"again {duplicate.base_offset} {duplicate.last_offset} {duplicate.timestamp_ms}"
        self.producers.applied(header)
        self.offset += count
        return command, "done"

    def marker(self, _: int) -> tuple[str, str]:
        producer_id, version = self.random.randint(1, 3), self.random.choice([0, 2])
        view = self.producers.view(producer_id)
        epoch = max(0, (view.epoch if view else 0) + self.random.choice([-1, 0, 0, 1, 1]))
        marker = Marker(self.random.random() < 0.5, self.random.choice([-1, 0, 0, 0, 0, 1]))
        header = self.header(producer_id, epoch, -1, 1, TRANSACTIONAL | CONTROL)
        command = (
            f"marker {producer_id} {epoch} {marker.commit:d} {marker.coordinator_epoch} {self.offset}"
            f" {self.now_ms} {version}"
        )
        try:
            self.producers.check_marker(header, marker, epoch_is_bumped=version == 2)
        except StorageError as error:
            return command, KAFKAS_NAMES[type(error)]
        ended = self.producers.applied(header, marker)
        self.offset += 1
        return command, "done" if ended is None else "ended " + " ".join(str(int(value)) for value in ended)

    def replicated(self, _: int) -> tuple[str, str]:
        self.high_watermark = self.random.randint(self.high_watermark, self.offset)
        self.producers.high_watermark_moved(self.high_watermark)
        return f"replicated {self.high_watermark}", "done"

    def expire(self, _: int) -> tuple[str, str]:
        self.producers.expire(self.now_ms, EXPIRATION_MS)
        return f"expire {self.now_ms}", "done"

    def snapshot(self, number: int) -> tuple[str, str]:
        """Kafka writes one, to be read when it is there; then both go on from ours."""
        theirs, ours = (self.directory / f"{self.seed}-{number}.{side}" for side in ("theirs", "ours"))
        self.say(f"store {theirs}", "done")
        ours.write_bytes(self.producers.snapshot())
        self.producers = Producers.from_snapshot(ours.read_bytes(), ours)
        return f"load {EXPIRATION_MS} {ours}", "done"

    def views(self) -> str:
        starts = [view.transaction_start for view in self.producers.views() if view.transaction_start >= 0]
        offsets = (self.producers.first_unstable_offset, min(starts, default=None))
        shown = " ".join("-1" if offset is None else str(offset) for offset in offsets)
        return " | ".join([shown, *(" ".join(map(str, view)) for view in sorted(self.producers.views()))])


def test_kafka_and_we_answer_alike(tmp_path: Path) -> None:
    scripts = [Script(seed, tmp_path) for seed in range(SEEDS)]
    commands = "".join(f"{command}\n" for script in scripts for command in script.commands)
    done = subprocess.run(
        [java_command(), "-cp", kafka_classpath(), str(PROBE)],
        input=commands,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kafkas = iter([line[2:] for line in done.stdout.splitlines() if line.startswith("= ")])
    kinds: Counter[str] = Counter()
    for script in scripts:
        for number, (command, answer) in enumerate(zip(script.commands, script.answers, strict=True)):
            before = "\n".join(script.commands[max(0, number - 8) : number])
            assert answer == next(kafkas), f"seed {script.seed}, after\n{before}\n{command}"
            kinds[answer.split()[0]] += command != "views"
    assert next(kafkas, None) is None
    assert all(kinds[kind] > 20 for kind in ("again", "ended", *KAFKAS_NAMES.values())), kinds
    stored = sorted(tmp_path.glob("*.theirs"))
    assert len(stored) > SEEDS
    for theirs in stored:
        ours = theirs.with_suffix(".ours")
        views = Producers.from_snapshot(ours.read_bytes(), ours).views()
        assert sorted(Producers.from_snapshot(theirs.read_bytes(), theirs).views()) == sorted(views)
