import pytest

from pylog.storage.kernels.plain import murmur2, siphash


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


@pytest.mark.parametrize(
    ("length", "digest"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (2, "8177228da4a45dc7fca38bdef60affe4"),
        (3, "9c70b60c5267a94e5f33b6b02985ed51"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
    ],
)
def test_siphash_is_that_of_its_authors(length: int, digest: str) -> None:
    assert siphash(bytes(range(16)), bytes(range(length))).hex() == digest
