import numpy as np
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from pylog.storage.kernels import compact, decode
from pylog.storage.kernels.crc import SMALL_BYTES_MAX
from pylog.storage.kernels.segment_reader import address_of
from pylog.storage.records import Record, encode_batch


@given(st.lists(st.binary(max_size=SMALL_BYTES_MAX - 80), min_size=1, max_size=5), st.data())
def test_the_crc_of_small_batches_is_that_of_the_library(values: list[bytes], draw: st.DataObject) -> None:
    data = bytearray()
    starts = []
    for value in values:
        starts.append(len(data))
        data += encode_batch([Record(0, 0, None, value)])
    assert crc32c(data[starts[-1] + 21 :]) == int.from_bytes(data[starts[-1] + 17 : starts[-1] + 21], "big")
    buffer = np.frombuffer(data, np.uint8)
    table, _ = decode.scan_batches(address_of(buffer), len(buffer))
    assert compact.small_batch_with_wrong_crc(table, address_of(buffer)) == -1
    row = draw.draw(st.integers(0, len(values) - 1))
    end = starts[row + 1] if row + 1 < len(starts) else len(data)
    bit = draw.draw(st.integers((starts[row] + 21) * 8, end * 8 - 1))
    buffer = buffer.copy()
    buffer[bit // 8] ^= 1 << bit % 8
    assert compact.small_batch_with_wrong_crc(table, address_of(buffer)) == row
