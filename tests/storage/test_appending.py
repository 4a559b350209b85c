"""The quick check of an append refuses exactly what the check in words refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.storage.appending import place
from pylog.storage.batch import BatchHeader, check, pack_header, read_header
from pylog.storage.errors import InvalidBatch, InvalidTimestamp, StorageError
from tests.support.logs import batch_of

_SMALL = st.integers(-2, 4)
lies = st.fixed_dictionaries(
    {},
    optional={
        "attributes": st.sampled_from([0, 1, 4, 5, 7, 0x08, 0x10, 0x14, 0x15, 0x40, 0x44, 0x50, 0x80]),
        "last_offset_delta": _SMALL,
        "record_count": _SMALL | st.just(1000),
        "base_timestamp": _SMALL,
        "max_timestamp": _SMALL,
        "producer_id": st.sampled_from([-1, 7]),
        "magic": st.sampled_from([0, 1, 2, 3]),
    },
)


@given(lies=lies, length_lie=st.integers(-100, 100), seal=st.booleans(), cut=st.integers(0, 100))
def test_what_is_placed_is_what_is_sound(lies: dict[str, int], length_lie: int, seal: bool, cut: int) -> None:
    data = batch_of(2)
    header = read_header(data)
    lying = BatchHeader._make(header)._replace(**lies)
    pack_header(data, 0, lying)  # with the right CRC, so that the lie itself has to be found
    if not seal:
        data[8:12] = max(header.length + length_lie, 0).to_bytes(4, "big")
    del data[len(data) - min(cut, len(data)) :]
    before = bytes(data)
    try:
        placed, earlier, _ = place(data, 100, 7, -1)
    except StorageError:
        with pytest.raises(StorageError):
            _said_in_words(before)
        return
    assert placed == (0, 100 + lying.last_offset_delta, lying.max_timestamp)
    assert not earlier
    assert check(data)._replace(base_offset=0, leader_epoch=-1) == _said_in_words(before)._replace(leader_epoch=-1)


def _said_in_words(data: bytes) -> BatchHeader:
    header = check(data)
    if header.record_count != header.last_offset_delta + 1 or header.attributes & 0x08:
        raise InvalidBatch("")
    if header.codec == 0 and header.record_count * 7 > header.size_bytes - 61:
        raise InvalidBatch("")
    if header.attributes & 0x40 or (header.attributes & 0x10 and header.producer_id == -1):
        raise InvalidBatch("")
    if not -1 <= header.base_timestamp <= header.max_timestamp:
        raise InvalidTimestamp("")
    return header
