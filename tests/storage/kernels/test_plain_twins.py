import pytest

from pylog.storage.kernels.plain import murmur2


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"", 275646681),
        (b"a", -1563381124),
        (b"ab", 316155434),
        (b"abc", 479470107),
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"kafka", -798503068),
    ],
)
def test_murmur2_is_that_of_kafkas_own_clients(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32
