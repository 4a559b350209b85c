"""The table of the latest offsets: its hash, its growth, what it does when it is full."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.storage.kernels import compact, decode
from pylog.storage.kernels.offset_map import ENTRY_BYTES, OffsetMap, hash_key
from pylog.storage.kernels.plain import siphash
from pylog.storage.kernels.segment_reader import address_of
from pylog.storage.records import Record, encode_batch


@given(secret=st.binary(min_size=16, max_size=16), data=st.binary(max_size=80))
def test_the_hash_of_a_key_is_that_of_the_twin(secret: bytes, data: bytes) -> None:
    key = np.frombuffer(data + b"behind it", np.uint8)
    low, high = hash_key(np.frombuffer(secret, np.uint64).copy(), address_of(key), len(data))
    assert int(low).to_bytes(8, "little") + int(high).to_bytes(8, "little") == siphash(secret, data)


def entries(latest: OffsetMap) -> dict[bytes, int]:
    return {row[:2].tobytes(): int(row[2]) - 1 for row in latest.table if row[2]}


def note(latest: OffsetMap, keys: list[bytes]) -> bool:
    """Whether all of them found room."""
    data = encode_batch([Record(offset, 0, key, b"") for offset, key in enumerate(keys)])
    buffer = np.frombuffer(bytes(data), np.uint8)
    table, bad_position = decode.scan_batches(address_of(buffer), len(buffer))
    assert bad_position == -1
    while True:
        status, _, latest.used = compact.map_keys(table, latest.table, latest.secret, latest.used, latest.used_max)
        if status == compact.FINISHED or not latest.grow():
            return bool(status == compact.FINISHED)


def test_it_grows_in_steps_within_its_memory_and_forgets_nothing() -> None:
    latest = OffsetMap(1 << 20)
    sizes = [latest.table.nbytes]
    keys = [b"key %d" % (number % 20_000) for number in range(25_000)]
    for count in (100, 1000, 5000, 25_000):
        assert note(latest, keys[:count])
        if latest.table.nbytes != sizes[-1]:
            sizes.append(latest.table.nbytes)
            assert sum(sizes[-2:]) <= 1 << 20, "both are held while entries move"
    assert len(sizes) > 2
    expected = {siphash(latest.secret.tobytes(), key): offset for offset, key in enumerate(keys)}
    assert entries(latest) == expected
    assert latest.used == len(expected)


@pytest.mark.parametrize(
    ("slots", "keys_max"),
    [
        pytest.param(1, 0, id="no room at all: one slot is always free"),
        pytest.param(2, 1, id="one key"),
        pytest.param(10, 9, id="nine of ten"),
        pytest.param(1000, 900, id="nine of ten, always"),
    ],
)
def test_it_takes_so_many_keys_and_not_one_more(slots: int, keys_max: int) -> None:
    latest = OffsetMap(slots * ENTRY_BYTES)
    assert latest.keys_max == keys_max
    keys = [b"%d" % number for number in range(keys_max + 1)]
    assert not keys_max or note(latest, keys[:-1] + keys[:-1])
    assert not note(latest, keys)


def test_the_secret_is_another_one_every_time() -> None:
    assert OffsetMap(1000).secret.tolist() != OffsetMap(1000).secret.tolist()
