"""Batches and records as `dump` and `verify` see them: past damage, and down to the last varint."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.storage.batch import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, pack_header, read_header
from pylog.storage.inspect import batches as batch_walk
from pylog.storage.inspect.batches import Batch, BatchWalk, Hole
from pylog.storage.inspect.deep import SHALLOW, Depth, deep, records_problem
from pylog.storage.inspect.findings import Severity
from pylog.storage.records import Record, encode_batch
from tests.support.logs import batch_of
from tests.support.looking import look, store
from tests.support.simulated_files import SimulatedFiles

FIRST = "00000000000000000000"
PLAIN = Depth(records=True)


def batch_that_says(body: bytes, **fields: int) -> bytes:
    """A batch whose CRC is right, whatever it says."""
    header = read_header(batch_of(2))._replace(length=HEADER_BYTES - 12 + len(body), **fields)
    data = bytearray(HEADER_BYTES) + body
    pack_header(data, 0, header)
    return bytes(data)


TWO = bytes(batch_of(2)[HEADER_BYTES:])
SECOND_AT = len(TWO) // 2


@pytest.mark.parametrize("depth", [PLAIN, deep()], ids=["plain", "kernels"])
@pytest.mark.parametrize(
    ("batch", "says"),
    [
        pytest.param(batch_that_says(TWO), None, id="nothing wrong"),
        pytest.param(batch_that_says(TWO, record_count=1), "stand behind the last record", id="a record too many"),
        pytest.param(batch_that_says(TWO[:SECOND_AT]), "a varint does not end", id="a record too few"),
        pytest.param(batch_that_says(TWO + b"\0"), "stand behind the last record", id="a byte too many"),
        pytest.param(batch_that_says(TWO[SECOND_AT:] + TWO[:SECOND_AT]), "follows the one at", id="out of order"),
        pytest.param(batch_that_says(TWO, last_offset_delta=5), None, id="gaps of compaction"),
        pytest.param(batch_that_says(TWO, max_timestamp=5), "the batch says 5", id="later than the latest"),
        pytest.param(batch_that_says(TWO, max_timestamp=5, attributes=LOG_APPEND_TIME), None, id="the log's time"),
        pytest.param(batch_that_says(TWO, attributes=1), "gzip data cannot be", id="not compressed as it says"),
        pytest.param(batch_that_says(b"", record_count=0), None, id="emptied by compaction"),
        pytest.param(batch_that_says(b"\0", record_count=0), "stand behind", id="empty with a byte"),
        pytest.param(batch_that_says(TWO, attributes=0x30), "the key of a control record", id="a marker of nothing"),
        pytest.param(bytes(batch_of(30, codec=3)), None, id="compressed"),
    ],
)
def test_a_batch_that_lies_with_a_right_crc_is_found_in_the_deep(batch: bytes, says: str | None, depth: Depth) -> None:
    files = SimulatedFiles()
    path = Path("/sim") / f"{FIRST}.log"
    store(batch)(files, path)
    assert look(files, path, SHALLOW)[0] is None
    verdict, found = look(files, path, depth)
    if says is None:
        assert found == []
    else:
        assert verdict is Severity.DAMAGE
        assert says in found[0].message


@given(st.data())
def test_kernels_find_what_the_plain_look_finds(data: st.DataObject) -> None:
    texts = st.none() | st.binary(max_size=12)
    headers = st.lists(st.tuples(st.text(max_size=3), texts), max_size=2).map(tuple)
    record = st.builds(Record, st.just(0), st.integers(0, 99), texts, texts, headers)
    records = data.draw(st.lists(record, min_size=1, max_size=5))
    batch = encode_batch([one._replace(offset=number) for number, one in enumerate(records)])
    header = read_header(batch)
    for _ in range(data.draw(st.integers(0, 2))):
        position = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    changed: BatchHeader = header._replace(record_count=data.draw(st.integers(0, 6)))
    pack_header(batch, 0, changed)
    changed = read_header(batch)
    if changed.record_count <= changed.last_offset_delta + 1:
        assert records_problem(batch, changed, deep().look) == records_problem(batch, changed, None)


# -- walking


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    buffer_bytes=st.sampled_from([HEADER_BYTES, 100, 1000, 1 << 20]),
    damage=st.none() | st.tuples(st.integers(0, 4000), st.binary(min_size=1, max_size=80)),
    cut=st.integers(0, 80),
)
def test_a_walk_covers_the_file_and_sees_every_intact_batch(
    sizes: list[int], buffer_bytes: int, damage: tuple[int, bytes] | None, cut: int
) -> None:
    """However small the buffer, and whatever the damage."""
    log, at = bytearray(), []
    for number, size in enumerate(sizes):
        batch = encode_batch([Record(number, 1_700_000_000_000, None, bytes(range(size)))])
        at.append((len(log), bytes(batch)))
        log += batch
    if damage is not None:
        position = damage[0] % len(log)
        log[position : position + len(damage[1])] = damage[1][: len(log) - position]
    log = log[: len(log) - cut]
    files = SimulatedFiles()
    path = Path("/sim") / f"{FIRST}.log"
    store(bytes(log))(files, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_walk, "BUFFER_BYTES", buffer_bytes)
        seen = list(BatchWalk(files.open(path), len(log)))
    position = 0
    for one in seen:
        assert one.position == position
        position += one.size_bytes if isinstance(one, Hole) else one.header.size_bytes
    assert position == len(log)
    intact = {one.position for one in seen if isinstance(one, Batch) and one.crc_is_right}
    assert intact >= {start for start, batch in at if log[start : start + len(batch)] == batch}


@pytest.mark.parametrize("buffer_bytes", [HEADER_BYTES, 100, 200, 1 << 20])
@pytest.mark.parametrize(
    ("at", "data"),
    [
        pytest.param(8, b"\x7f\0\0\0", id="a length beyond the file"),
        pytest.param(8, b"\xff\xff\xff\xff", id="a negative length"),
        pytest.param(8, struct.pack(">i", 76 + 50), id="a length that ends within the next batch"),
        pytest.param(8, struct.pack(">i", 76 - 5), id="a length that ends within the batch"),
        pytest.param(16, b"\1", id="another format"),
        pytest.param(0, b"\2" * 80, id="bytes that look like the format's number everywhere"),
        pytest.param(70, b"?", id="a record"),
    ],
)
def test_damage_to_one_batch_hides_no_other(at: int, data: bytes, buffer_bytes: int) -> None:
    batches = [encode_batch([Record(n, 5, None, bytes(20))]) for n in range(5)]
    size_bytes = len(batches[0])
    assert size_bytes == 76 + 12
    batches[2][at : at + len(data)] = data
    files = SimulatedFiles()
    path = Path("/sim") / f"{FIRST}.log"
    store(b"".join(batches))(files, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_walk, "BUFFER_BYTES", buffer_bytes)
        seen = list(BatchWalk(files.open(path), 5 * size_bytes))
    intact = [one.position // size_bytes for one in seen if isinstance(one, Batch) and one.crc_is_right]
    assert intact == [0, 1, 3, 4]
    assert len(seen) == 5
