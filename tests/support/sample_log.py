"""A small log with a bit of everything, in a file system in memory: what tools that look at logs are tried on."""

from pathlib import Path
from uuid import UUID

from pylog.storage.batch import TRANSACTIONAL
from pylog.storage.log import LogConfig, PartitionLog
from pylog.storage.manager import LogManager
from pylog.storage.ports import FileSystem
from pylog.storage.records import Record, encode_batch
from pylog.storage.transactions import Marker, encode_marker
from tests.support.clock import SettableClock
from tests.support.logs import START_MS
from tests.support.simulated_files import SimulatedFiles

DATA = Path("/sim/data")
TOPIC_ID = UUID("d23f1b52-93a4-4cf2-8d0c-5c1a8f7d4c11")
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=300)


def produced(
    count: int, number: int, *, codec: int = 0, producer_id: int = -1, sequence: int = -1, transaction: bool = False
) -> bytearray:
    records = [
        Record(n, START_MS + 10 * number + n, b"key-%d" % n, b"value of batch %d " % number * 3, (("h", b"x"),))
        for n in range(count)
    ]
    return encode_batch(
        records,
        codec=codec,
        attributes=TRANSACTIONAL if transaction else 0,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )


def fill(log: PartitionLog) -> None:
    """All codecs, two leader epochs, an idempotent producer, a transaction that was aborted and one committed."""
    for number in range(10):
        log.append(produced(number % 3 + 1, number, codec=number % 5), leader_epoch=number // 5 + 2)
    for number in range(6):
        log.append(produced(2, 10 + number, producer_id=7, sequence=2 * number), leader_epoch=4)
    for number, commit in ((20, False), (22, True)):
        batch = produced(3, number, producer_id=8, sequence=3 * (number - 20) // 2, transaction=True)
        log.append(batch, leader_epoch=4)
        log.append(encode_marker(8, 0, Marker(commit, 1), START_MS + 10 * number + 5), leader_epoch=4)
    for number in range(3):
        log.append(produced(2, 30 + number, producer_id=7, sequence=12 + 2 * number), leader_epoch=4)


def sample(files: FileSystem, data: Path = DATA, *, clean: bool = True) -> Path:
    """The partition's directory; closed, or left as a stop finds it after a checkpoint in the middle."""
    manager = LogManager([data], CONFIG, files=files, clock=SettableClock())
    log = manager.open("topic", 0, TOPIC_ID)
    fill(log)
    if clean:
        manager.close()
    else:
        log.flush()
        manager.checkpoint()
        for number in range(40, 44):
            log.append(produced(2, number), leader_epoch=4)
    return data / "topic-0"


def sample_in_memory(*, clean: bool = True) -> tuple[SimulatedFiles, Path]:
    files = SimulatedFiles()
    partition = sample(files, clean=clean)
    return files, partition
